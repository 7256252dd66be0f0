"""The event loop: virtual time, the cluster and the network at work, and the verbs that protocols use."""

import gc
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import simpy

from fred.errors import FredError
from fred.schedule import NONE, UNENDING
from fred.timing.cluster import Cluster
from fred.timing.contention import Loads
from fred.timing.durations import NANOSECONDS, durations
from fred.timing.faults import Faults
from fred.timing.held import Copy, Gradient
from fred.timing.links import Links
from fred.timing.lives import Lives
from fred.timing.loop import After, Loop
from fred.timing.network import NOTHING, Collective, Cost, Network
from fred.timing.recorder import Recorder

Process = Generator[simpy.Event, Any, Any]
MOST_GRADIENTS = 200_000_000  # of one run: an hour, and more memory than most machines have
MOST_POINTS = 1_000_000  # at which a run is looked at
_MANY_EVENTS = 1_000_000  # more than ever happen at one instant
_MANY_WORKERS = 10_000  # of whom a round may take as many events
_FEW_COLLECTIONS = 200_000  # objects made between two of Python's garbage collections


class Simulation:
    """One run's virtual world. Time is integer nanoseconds; simultaneous events happen in the order they were scheduled."""

    def __init__(self, cluster: Cluster, recorder: Recorder, seed: int, model_bytes: int, shares: Sequence[float] = ()):
        self.env = Loop()
        self.workers = cluster.size
        self.node_of = cluster.node_of
        self.seed = seed
        self.record = recorder
        self.servers = cluster.servers
        self.network = network = cluster.network
        self._faults = Faults(cluster.troubles(seed)) if cluster.faults else None
        self._links = Links(self.env, cluster, seed, self._faults) if network or self._faults else None
        self.model_bytes = (network and network.message_bytes) or model_bytes  # of one model or gradient
        self.blocks = blocks = recorder.layout.blocks  # into which replicas are cut
        self.shares = tuple(shares) or (1 / blocks,) * blocks  # of the blocks in a model
        self._cut = blocks if blocks > 1 else 0  # blocks that a copy must have
        sizes = [(self.bytes_of(block), 1) for block in range(blocks)]  # and messages, of each block
        self._whole = sizes if len(sizes) > 1 else [(self.model_bytes, self.servers)]  # every server gets its part
        self._durations = durations(seed, "compute", cluster.latencies(), cluster.worker_speeds())
        self._loads = Loads(cluster.loads(seed)) if cluster.contention else None
        self._lives = None if self._faults is None else Lives(self.env, self._faults, self._lose)
        self._processes: dict[int, simpy.Process] = {}  # main ones of workers, where nobody crashes
        self._steps = [0] * self.workers  # gradients begun by each worker
        self._waiting: dict[str, str] = {}  # who -> what it waits for
        self.standstill = ""  # why nothing happens any more when the time is over

    @property
    def now(self) -> int:
        """Virtual time, ns."""
        return self.env._now

    def process(self, generator: Process) -> simpy.Process:
        """Start a process."""
        return self.env.process(generator)

    def work(self, worker: int, process: Callable[[], Process]) -> None:
        """Start a worker's main process, which ends with all that it holds when the worker crashes, and begins anew afterwards.

        The gradients of a worker without one are only delayed: each is computed anew from the same copy.
        """
        if self._lives is None:
            self._processes[worker] = self.env.process(process())
        else:
            self._lives.start(worker, process)

    def interrupt(self, worker: int) -> None:
        """Interrupt a worker's main process, unless the worker is away."""
        process = self._processes[worker] if self._lives is None else self._lives.process(worker)
        if process is not None:
            process.interrupt()

    # What a worker does, network included.

    def pull(self, worker: int, replica: int = 0) -> Generator[simpy.Event, Any, Copy]:
        """The servers send the parameters that they have now, for a request takes no time; ends when they have arrived."""
        now, (size, messages) = self.env._now, self._whole[0]
        arrival = now if self._links is None else self._links.arrival(worker, size)
        copy = self.record.pull(now, worker, replica, 0, self._steps[worker], min(arrival, UNENDING), size, messages)
        if self._links is not None:
            yield After(self.env, arrival - now)
        return copy

    def duration(self, worker: int) -> int:
        """How long the worker's next gradient takes if it begins now, ns: a draw, and what slows the worker down."""
        duration = self._durations[worker]()
        if self._loads is None:
            return duration
        return self._loads.finish(worker, self._steps[worker], self.env._now, duration) - self.env._now

    def begin(self, worker: int, copy: Copy, duration: int | None = None, done: int = 0) -> Gradient:
        """A gradient at the copy that begins now, or of which `done`, ns, are over.

        The duration, ns, is the worker's next draw if not given.
        """
        step, now, record = self._steps[worker], self.env._now, self.record
        if self._cut and len(copy.timestamps) < self._cut:
            raise self._incomplete(copy)
        if duration is None:
            duration = self.duration(worker)
        self._steps[worker] = step + 1
        record.started += 1
        gradient = Gradient(worker, step, copy, now - done, now - done + duration)
        if self._lives is not None and not self._lives.hold(gradient):
            self._delay(gradient)
        if record.listener is not None:
            record.watch(gradient)
        return gradient

    def compute(self, worker: int, copy: Copy, duration: int | None = None) -> Gradient:
        """Begin a gradient; wait for its `finished`."""
        gradient = self.begin(worker, copy, duration)
        gradient.finished = After(self.env, gradient.end - self.env._now)
        return gradient

    def _delay(self, gradient: Gradient) -> None:
        """Begin a gradient anew after each time away."""
        assert self._faults is not None
        work = gradient.end - gradient.begin  # contention included
        gradient.begin, gradient.end = self._faults.undisturbed(gradient.worker, gradient.begin, work)

    def _lose(self, gradient: Gradient) -> None:
        """Its worker has crashed."""
        self.drop(gradient, cost=NOTHING)

    def present(self, worker: int) -> Process:
        """Wait until a worker is there."""
        back = self.now if self._faults is None else self._faults.back("worker", worker, self.now)
        if back > self.now:
            yield from self.wait(worker, self.env.after(back - self.now), "its own return")

    def difference(self, worker: int, before: Copy, after: Copy) -> Gradient:
        """What local steps have taken away from one copy to come to another: a message, like a gradient."""
        for copy in (before, after):
            if len(copy.timestamps) < self._cut:
                raise self._incomplete(copy)
        difference = Gradient(worker, NONE, after, self.now, self.now, source=before)
        self.record.watch(difference)
        return difference

    def send(self, gradient: Gradient, server: int | None = None) -> Iterable[simpy.Event]:
        """Bring a finished gradient to all servers, or a block of it to one; ends when it has arrived."""
        if self._links is None:
            return ()
        return self._links.upload(gradient.worker, self.model_bytes if server is None else self.bytes_of(server), server)

    def transfer(self, worker: int, receiver: int) -> simpy.Event:
        """A model on its way from a worker to another; happens when it has arrived."""
        return (
            self.env.after(0) if self._links is None else self.process(self._links.across(worker, receiver, self.model_bytes))
        )

    def later(self, nanoseconds: int, action: Callable[[], None]) -> None:
        """Do something after so long."""
        self.env.later(nanoseconds, action)

    def allreduce(self, members: int | Sequence[int], algorithm: Collective | None = None, begin: int | None = None) -> Cost:
        """What an allreduce of models among these workers (a number: the first so many) costs each of them.

        The algorithm is the network's if not given. Where links are slow at times, it counts when it begins, ns (default: now).
        """
        network, workers = self.network or Network(), range(members) if isinstance(members, int) else members
        spread = Counter(self.node_of[list(workers)].tolist()).values() if network.two_levels else [1] * len(workers)
        cost = network.allreduce(tuple(spread), self.model_bytes, algorithm)
        if self._links is None or len(workers) == 1:
            return cost
        begin = self.now if begin is None else begin
        return cost._replace(nanoseconds=self._links.together(workers, begin, cost.nanoseconds))

    @property
    def mean_latency(self) -> int:
        """Of one message, ns."""
        return 0 if self.network is None else round(self.network.latency.mean * NANOSECONDS)

    def wait(self, who: int | str, event: simpy.Event, reason: str) -> Process:
        """Wait for an event; who (a worker's number, or a name) waits for what is reported if nothing can happen any more."""
        name = f"worker {who}" if isinstance(who, int) else who
        self._waiting[name] = reason
        yield event
        self._waiting.pop(name, None)

    def bytes_of(self, block: int) -> int:
        """Size of a block of a model or gradient."""
        return math.ceil(self.model_bytes * self.shares[block] - 1e-6)  # 3,000 x 1/3 may come out above 1,000

    def clock(self, replica: int = 0, block: int = 0) -> int:
        """How often a block of a replica has been changed."""
        return self.record.clocks[replica * self.record.layout.blocks + block]

    # What happens to a replica, at once.

    def read(self, worker: int, replica: int = 0, arrival: int | None = None, sent: bool = True, block: int = 0) -> Copy:
        """The present parameters, sent by all servers or already at hand, which arrive at `arrival`, ns (default: at once)."""
        now = self.env._now
        size, messages = self._whole[block] if sent else (0, 0)
        arrival = now if arrival is None else arrival
        return self.record.pull(now, worker, replica, block, self._steps[worker], min(arrival, UNENDING), size, messages)

    def own(self, worker: int) -> Copy:
        """The worker's own replica as it is; nothing is sent."""
        now = self.env._now
        return self.record.pull(now, worker, worker, 0, self._steps[worker], now, 0, 0)

    def publish(self, worker: int, copies: int, parts: int = 1) -> Copy:
        """The worker's own replica as it is, for so many others to whom it is sent, each in so many messages."""
        now = self.now
        return self.record.pull(now, worker, worker, 0, self._steps[worker], now, copies * self.model_bytes, copies * parts)

    def read_block(self, worker: int, server: int, sent: bool = True) -> tuple[Copy, int]:
        """A server's present block on its way to a worker (or already there), and when it arrives, ns."""
        arrival = self.now
        if sent and self._links is not None:
            arrival = self._links.arrival(worker, self.bytes_of(server), server)
        return self.read(worker, 0, arrival, sent, server), arrival

    def compose(self, worker: int, copies: Sequence[Copy]) -> Copy:
        """A model made of one copy of each block."""
        return self.record.compose(self.now, worker, copies)

    def push(self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0) -> None:
        """The gradient makes one update; `cost` says what was sent for it, if not one message to each server."""
        now = self.env._now
        if gradient.end > now and gradient.ready_at(block) > now:
            raise self._unfinished(gradient, block)
        size, messages = self._whole[block] if cost is None else (cost.bytes, cost.messages)
        if self._lives is not None:
            self._lives.used(gradient)
        self.record.push(now, gradient, replica, block, size, messages)

    def add(self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0, weight: float = 1.0) -> None:
        """The gradient, times `weight`, joins the open round."""
        now = self.env._now
        if gradient.end > now and gradient.ready_at(block) > now:
            raise self._unfinished(gradient, block)
        size, messages = self._whole[block] if cost is None else (cost.bytes, cost.messages)
        if self._lives is not None:
            self._lives.used(gradient)
        self.record.add(now, gradient, replica, block, weight, size, messages)

    def commit(self, replica: int = 0, block: int = 0, weight: float | None = None) -> None:
        """The round's sum times `weight` (default: 1 / number of gradients, their mean) makes one update."""
        self.record.commit(self.now, replica, block, weight)

    def mix(self, worker: int, parts: Sequence[tuple[Copy, float]], block: int = 0) -> Copy:
        """The weighted sum of models, added up in this order by the worker (or by several together)."""
        return self.record.mix(self.env._now, worker, parts, block)

    def sync(
        self,
        worker: int,
        copy: Copy,
        keep: float = 0.0,
        weight: float = 1.0,
        cost: Cost = NOTHING,
        replica: int | None = None,
        block: int = 0,
    ) -> None:
        """A replica, by default the worker's own, becomes keep x itself + weight x the copy; `cost`: what the worker sent."""
        replica = worker if replica is None else replica
        self.record.sync(self.env._now, worker, replica, block, copy, keep, weight, cost.bytes, cost.messages)

    def drop(self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0) -> None:
        """The gradient is not used; if it is still being computed that ends now."""
        now = self.now
        size, messages = self._whole[block] if cost is None else (cost.bytes, cost.messages)
        if self._lives is not None:
            self._lives.used(gradient)
            gradient.begin = min(gradient.begin, now)  # or else its worker is away, and it was to begin later
        self.record.drop(now, gradient, replica, block, size, messages)

    def statistic(self, replica: int = 0) -> float:
        """What the algorithm lets timing depend on (see Server.statistic): of blocks, the mean by their sizes."""
        if self.blocks == 1:
            return self.record.statistic(replica, 0)
        return sum(share * self.record.statistic(replica, block) for block, share in enumerate(self.shares))

    def _incomplete(self, copy: Copy) -> FredError:
        return FredError(
            f"a copy of block {', '.join(map(str, copy.timestamps))} stands for a whole model, which has {self._cut} blocks: "
            "`compose` copies of all of them"
        )

    def _unfinished(self, gradient: Gradient, block: int) -> FredError:
        return FredError(
            f"worker {gradient.worker}'s gradient {gradient.step} is used at {self.now / NANOSECONDS:g} s, before it is "
            f"finished at {gradient.ready_at(block) / NANOSECONDS:g} s: the protocol must wait for its `finished` first"
        )

    def run(self, seconds: float = math.inf) -> None:
        """Let events happen until the schedule is full or the time is over. Raises FredError on a standstill."""
        if seconds < math.inf:
            self.env.at(round(seconds * NANOSECONDS), self._time_is_over)
        thresholds = gc.get_threshold()
        gc.set_threshold(_FEW_COLLECTIONS, *thresholds[1:])  # of what processes leave behind: up to a third of the time
        try:
            while not self.record.full:
                self._go_on(seconds)
        finally:
            gc.set_threshold(*thresholds)

    def _go_on(self, seconds: float) -> None:
        """Many events. Raises FredError if nothing comes of them."""
        began, rows, changes = self.now, len(self.record), self.record.changes
        if not self.env.happen(_MANY_EVENTS, self.record):
            raise FredError(self._standstill(self.now))
        if self.record.started > MOST_GRADIENTS:
            raise FredError(f"more than {MOST_GRADIENTS:,} gradients were begun; stop the run earlier")
        if self.record.full:
            return
        if self.now > began:
            if self._faults is not None and self.record.changes == changes and self.workers < _MANY_WORKERS:
                raise FredError(self._standstill(self.record.last_ns))
            return
        if seconds < math.inf:
            raise FredError(
                f"virtual time stands still at {began / NANOSECONDS:g} s, so it will never reach {seconds:g} s: "
                "some latency must be above 0, or give `stop` a number of updates or gradients"
            )
        if len(self.record) == rows:
            raise FredError(f"virtual time stands still at {began / NANOSECONDS:g} s, and nothing comes of what happens then")

    def _time_is_over(self) -> None:
        self.record.stop()
        if len(self.env._queue) == (self._lives.expected if self._lives else 0):
            self.standstill = self._standstill(self.record.last_ns)

    def _standstill(self, since: int) -> str:
        waiting = [f"{who} waits for {reason}" for who, reason in list(self._waiting.items())[:8]]
        if self._faults is not None:
            waiting += self._faults.gone(self.workers, self.servers, self.now)[:8]
        return f"nothing can happen any more after {since / NANOSECONDS:g} s: {'; '.join(waiting) or 'no worker is waiting'}"
