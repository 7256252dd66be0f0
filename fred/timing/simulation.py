"""What protocols say: the verbs, for which the cluster and the network take their time."""

import math
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence
from functools import partial
from typing import Any

import simpy

from fred.schedule import NONE, UNENDING
from fred.timing.cluster import Cluster
from fred.timing.contention import Loads
from fred.timing.durations import NANOSECONDS, durations
from fred.timing.held import Copy, Gradient
from fred.timing.links import Links
from fred.timing.loop import After
from fred.timing.network import NOTHING, Collective, Cost, Network, mean_latency
from fred.timing.recorder import Recorder
from fred.timing.world import Process as Process  # protocols find it here
from fred.timing.world import World


class Simulation(World):
    """One run: who computes what at which copy of the parameters, what is sent, and what it does to the replicas."""

    def __init__(self, cluster: Cluster, recorder: Recorder, seed: int, model_bytes: int, shares: Sequence[float] = ()):
        super().__init__(cluster, recorder, seed)
        self.network = network = cluster.network
        self.links = Links(self.env, cluster, seed, self._faults) if network or self._faults else None
        self.model_bytes = (network and network.message_bytes) or model_bytes  # of one model or gradient
        self.blocks = blocks = recorder.layout.blocks  # into which replicas are cut
        self.shares = tuple(shares) or (1 / blocks,) * blocks  # of the blocks in a model
        self._cut = blocks if blocks > 1 else 0  # blocks that a copy must have
        sizes = [(self.bytes_of(block), 1) for block in range(blocks)]  # and messages, of each block
        self._whole = sizes if len(sizes) > 1 else [(self.model_bytes, self.servers)]  # every server gets its part
        self._durations = durations(seed, "compute", cluster.latencies(), cluster.worker_speeds())
        self._loads = Loads(cluster.loads(seed)) if cluster.contention else None
        self._steps = [0] * self.workers  # gradients begun by each worker

    # What a worker does, network included.

    def pull(self, worker: int, replica: int = 0) -> Generator[simpy.Event, Any, Copy]:
        """The servers send the parameters that they have now, for a request takes no time; ends when they have arrived."""
        now = self.env._now
        arrival = now if self.links is None else self.links.arrival(worker, self._whole[0][0])
        size, messages = self._whole[0] if self.faultless else self._read(0)
        copy = self.record.pull(now, worker, replica, 0, self._steps[worker], min(arrival, UNENDING), size, messages)
        if self.links is not None:
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
            raise copy.incomplete(self._cut)
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
        gradient.begin, gradient.end = self._faults.undisturbed((gradient.worker,), gradient.begin, lambda _: work)

    def _lose(self, gradient: Gradient) -> None:
        """Its worker has crashed."""
        self.drop(gradient, cost=NOTHING)

    def difference(self, worker: int, before: Copy, after: Copy) -> Gradient:
        """What local steps have taken away from one copy to come to another: a message, like a gradient."""
        for copy in (before, after):
            if len(copy.timestamps) < self._cut:
                raise copy.incomplete(self._cut)
        difference = Gradient(worker, NONE, after, self.now, self.now, source=before)
        self.record.watch(difference)
        return difference

    def send(self, gradient: Gradient, server: int | None = None) -> Iterable[simpy.Event]:
        """Bring a finished gradient to all servers, or a block of it to one; ends when it has arrived."""
        if self.links is None:
            return ()
        size = self.model_bytes if server is None else self.bytes_of(server)
        upload = self.links.upload(gradient.worker, size, server)
        return upload if self.faultless else self._sending(gradient, server or 0, upload)

    def transfer(self, worker: int, receiver: int) -> simpy.Event:
        """A model on its way from a worker to another; happens when it has arrived."""
        if self.links is None:
            return self.env.after(0)
        return self.process(self.links.across(worker, receiver, self.model_bytes))

    def allreduce(
        self,
        members: int | Sequence[int],
        algorithm: Collective | None = None,
        begin: int | None = None,
        awaited: Collection[int] = (),
    ) -> Cost:
        """What an allreduce of models among these workers (a number: the first so many) costs each of them.

        The algorithm is the network's if not given. Where links are slow at times, it counts when it begins, ns (default: now).
        It begins when those who are awaited are there, and anew if one of them crashes: that time is part of the cost.
        """
        network, workers = self.network or Network(), range(members) if isinstance(members, int) else members
        spread = Counter(self.node_of[list(workers)].tolist()).values() if network.two_levels else len(workers)
        cost = network.allreduce(spread, self.model_bytes, algorithm)
        if self.links is None:
            return cost
        asked = self.now if begin is None else begin
        lasts = partial(self.links.together, workers, work=cost.nanoseconds)
        if self._faults is not None and awaited:
            begin, end = self._faults.undisturbed(awaited, asked, lasts)
        else:
            begin, end = asked, asked + lasts(asked)
        return cost._replace(nanoseconds=end - asked, moving=end - begin)

    @property
    def mean_latency(self) -> int:
        """Of one message, ns."""
        return 0 if self.network is None else round(mean_latency(self.network) * NANOSECONDS)

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
        size, messages = self._read(block) if sent else (0, 0)
        arrival = now if arrival is None else arrival
        return self.record.pull(now, worker, replica, block, self._steps[worker], min(arrival, UNENDING), size, messages)

    def own(self, worker: int) -> Copy:
        """The worker's own replica as it is; nothing is sent."""
        now = self.env._now
        return self.record.pull(now, worker, worker, 0, self._steps[worker], now, 0, 0)

    def publish(self, worker: int, copies: int, parts: int = 1) -> Copy:
        """The worker's own replica as it is, for so many others to whom it is sent, each in so many messages."""
        now = self.now
        again = 0 if self.links is None else self.links.announce(worker, copies)
        size, messages = (copies + again) * self.model_bytes, copies * parts + again
        return self.record.pull(now, worker, worker, 0, self._steps[worker], now, size, messages)

    def read_block(self, worker: int, server: int, sent: bool = True, replica: int = 0) -> tuple[Copy, int]:
        """A server's present block of a replica on its way to a worker (or already there), and when it arrives, ns."""
        arrival = self.now
        if sent and self.links is not None:
            arrival = self.links.arrival(worker, self.bytes_of(server), server)
        return self.read(worker, replica, arrival, sent, server), arrival

    def compose(self, worker: int, copies: Sequence[Copy]) -> Copy:
        """A model made of one copy of each block."""
        return self.record.compose(self.now, worker, copies)

    def stamp(self, copy: Copy) -> Copy:
        """The copy as it is, of which servers will be told that it is of their present parameters."""
        return copy.stamped([self.clock(block=block) for block in range(self.blocks)])

    def push(self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0) -> None:
        """The gradient makes one update; `cost` says what was sent for it, if not one message to each server."""
        now = self.env._now
        if gradient.end > now and gradient.ready_at(block) > now:
            raise gradient.unfinished(now, block)
        size, messages = self._whole[block] if cost is None and not gradient.again else self._sent(gradient, block, cost, now)
        if self._lives is not None:
            self._lives.used(gradient)
        self.record.push(now, gradient, replica, block, size, messages)

    def add(self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0, weight: float = 1.0) -> None:
        """The gradient, times `weight`, joins the open round."""
        now = self.env._now
        if gradient.end > now and gradient.ready_at(block) > now:
            raise gradient.unfinished(now, block)
        size, messages = self._whole[block] if cost is None and not gradient.again else self._sent(gradient, block, cost, now)
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
        self.record.moving(self.env._now - cost.moving, self.env._now)
        self.record.sync(self.env._now, worker, replica, block, copy, keep, weight, cost.bytes, cost.messages)

    def drop(self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0) -> None:
        """The gradient is not used; if it is still being computed that ends now."""
        now = self.now
        end = now + cost.nanoseconds if cost else now  # its worker still takes part in the others' operation
        size, messages = self._whole[block] if cost is None and not gradient.again else self._sent(gradient, block, cost, end)
        if self._lives is not None:
            self._lives.used(gradient)
            gradient.begin = min(gradient.begin, now)  # or else its worker is away, and it was to begin later
        self.record.drop(now, gradient, replica, block, size, messages)

    def statistic(self, replica: int = 0) -> float:
        """What the algorithm lets timing depend on (see Server.statistic): of blocks, the mean by their sizes."""
        if self.blocks == 1:
            return self.record.statistic(replica, 0)
        return sum(share * self.record.statistic(replica, block) for block, share in enumerate(self.shares))

    def _sending(self, gradient: Gradient, block: int, upload: Process) -> Process:
        """Bring a gradient to where it goes, and keep in mind what was sent again."""
        if again := (yield from upload):
            gradient.again = gradient.again | {block: again}

    def _read(self, block: int) -> tuple[int, int]:
        """Bytes and messages that servers have just sent."""
        return self._whole[block] if self.links is None else self._counted(block, self.links.resent())

    def _sent(self, gradient: Gradient, block: int, cost: Cost | None, end: int) -> tuple[int, int]:
        """Bytes and messages that the next row, which is about a gradient, is charged with; `end`: of what costs that, ns."""
        if cost is None:
            return self._counted(block, gradient.again.get(block, 0))
        self.record.moving(end - cost.moving, end)
        return cost.bytes, cost.messages

    def _counted(self, block: int, again: int) -> tuple[int, int]:
        """Bytes and messages for a block, where so many messages were sent again."""
        size, messages = self._whole[block]
        return size + size * again // messages, messages + again
