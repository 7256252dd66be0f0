"""What protocols say: the verbs, for which the cluster and the network take their time."""

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from fred.cluster.cluster import Cluster
from fred.cluster.contention import Loads
from fred.cluster.durations import durations
from fred.cluster.faults import Span
from fred.cluster.network import NOTHING, Cost
from fred.schedule.layout import Sizes
from fred.schedule.schedule import NONE, UNENDING, What
from fred.timing.copies import Copy, Gradient
from fred.timing.loop import After, Wait
from fred.timing.recorder import Recorder
from fred.timing.sending import Sending, bytes_of, more
from fred.timing.world import Process as Process  # protocols find it here


class Simulation(Sending):
    """One run: who computes what at which copy of the parameters, what is sent, and what it does to the replicas.

    What is sent has the `size`, bytes, that a verb is told, or else the usual one: the network's `message_bytes`, or else what
    `sizes` says of models, of workers' messages, and of each block of them (a number: what all of them have).

    Args:
        cluster: the machines.
        recorder: who writes the schedule, and says when it is full.
        seed: of everything that is drawn.
        sizes: bytes.

    A protocol gets one in `start`. Without a protocol it is driven by hand:

        >>> import fred
        >>> cluster = fred.Cluster(workers=1, compute={"name": "constant", "seconds": 0.5})
        >>> sim = fred.Simulation(cluster, fred.Recorder(1, fred.Layout.central(), updates=2), seed=0)
        >>> def work(worker):
        ...     while True:
        ...         model = yield from sim.pull(worker)
        ...         gradient = sim.compute(worker, model)
        ...         yield gradient.finished
        ...         yield from sim.send(gradient)
        ...         sim.push(gradient)
        >>> _ = sim.process(work(0))
        >>> sim.run()
        >>> [(row.time_ns, fred.Verb(row.verb).name) for row in sim.schedule()]
        [(0, 'PULL'), (500000000, 'PUSH'), (500000000, 'PULL'), (1000000000, 'PUSH')]
    """

    def __init__(self, cluster: Cluster, recorder: Recorder, seed: int, sizes: Sizes | int = 0):
        super().__init__(cluster, recorder, seed, sizes)
        self._cut = self.blocks if self.blocks > 1 else 0  # blocks that a copy must have
        self._durations = durations(seed, "compute", cluster.latencies(), cluster.worker_speeds())
        self._loads = Loads(cluster.loads(seed)) if cluster.contention else None
        self._steps, self._latest = recorder.steps, recorder.latest  # of each worker
        self._attempts: dict[tuple[int, int], list[Span]] = {}  # lost ones, of gradients that are begun anew

    # What a worker does, network included.

    def pull(
        self, worker: int, replica: int = 0, size: int | None = None, block: int = 0, server: int | None = None
    ) -> Generator[Wait, Any, Copy]:
        """The servers send the parameters that they have now, for a request takes no time; ends when they have arrived.

        Args:
            worker: who reads, from 0; so everywhere.
            replica: whose parameters, by number (`Layout`); so everywhere.
            size: bytes; absent: the usual ones of a model, or of the block.
            block: which one, where replicas are cut.
            server: which one has all of it, by number; absent: each has a part.
        """
        now = self.env._now
        sent, messages = self._down[block] if size is None else (bytes_of(size, 0), self._down[block][1])
        if server is not None:
            messages = 1
        if self.links is None:
            return self.record.pull(now, worker, replica, block, self._steps[worker], now, sent, messages)
        arrival = self.links.arrival(worker, sent, server)
        if not self.faultless:
            sent, messages = more(sent, messages, self.links.resent())
        copy = self.record.pull(now, worker, replica, block, self._steps[worker], min(arrival, UNENDING), sent, messages)
        yield arrival - now
        return copy

    def pull_between(self, worker: int, replica: int, server: int, receiver: int) -> Generator[Wait, Any, Copy]:
        """One server sends the parameters that it has now to another; ends when they have arrived.

        Args:
            worker: in whose name.
            replica: whose parameters.
            server, receiver: by number.
        """
        now, size = self.env._now, self.sizes.model.whole
        arrival = now if self.links is None else self.links.between(server, receiver, size)
        copy = self.record.pull(now, worker, replica, 0, self._steps[worker], min(arrival, UNENDING), size, 1)
        yield arrival - now
        return copy

    def duration(self, worker: int) -> int:
        """How long the `worker`'s next gradient takes if it begins now, ns: a draw, and what slows the worker down."""
        duration = self._durations[worker]()
        if self._loads is None:
            return duration
        return self._loads.finish(worker, self._steps[worker], self.env._now, duration) - self.env._now

    def begin(self, worker: int, copy: Copy, duration: int | None = None, done: int = 0) -> Gradient:
        """A gradient at the copy that begins now, or of which `done`, ns, are over; nobody is told of its end.

        Args:
            worker: who computes; its next minibatch.
            copy: the parameters that it is computed at: a whole model.
            duration: ns, all of it; absent: the worker's next draw.
            done: ns of it that lie behind.
        """
        step, now, record = self._steps[worker], self.env._now, self.record
        if self._cut and len(copy.timestamps) < self._cut:
            raise copy.incomplete(self._cut)
        if duration is None:
            duration = self._durations[worker]() if self._loads is None else self.duration(worker)
        self._steps[worker] = step + 1
        gradient = Gradient(worker, step, copy, now - done, now - done + duration)
        if self._latest[worker].due > 0:
            record.keep(self._latest[worker])
        self._latest[worker] = gradient
        if self._lives is not None and not self._lives.hold(gradient):
            self._delay(gradient)
        if record.listener is not None:
            record.watch(gradient)
        return gradient

    def compute(self, worker: int, copy: Copy, duration: int | None = None) -> Gradient:
        """Begin a gradient of a `worker` at a `copy`; wait for its `finished`.

        Its `duration`, ns, is the worker's next draw if not given.
        """
        gradient = self.begin(worker, copy, duration)
        gradient.finished = After(self.env, gradient.end - self.env._now)
        return gradient

    def _delay(self, gradient: Gradient) -> None:
        """Begin a gradient anew after each time away."""
        assert self._faults is not None
        work, attempts = gradient.end - gradient.begin, list[Span]()  # contention included
        gradient.begin, gradient.end = self._faults.undisturbed(
            (gradient.worker,), gradient.begin, lambda _: work, attempts.append
        )
        if attempts:
            self._attempts[gradient.worker, gradient.step] = attempts

    def _settle(self, gradient: Gradient) -> None:
        """It has reached a server, or is dropped: so many attempts at it have been lost."""
        assert self._lives is not None
        self._lives.used(gradient)
        if self.record.full:
            return
        for begin, end in self._attempts.pop((gradient.worker, gradient.step), ()):
            if begin < self.now:
                self.record.beside(What.LOST, begin, min(end, self.now), worker=gradient.worker)

    def _unfinished(self) -> Iterator[tuple[int, ...]]:
        """What no row tells of yet, until now: gradients, lost attempts at them, and messages to servers; intervals."""
        for (worker, _), attempts in self._attempts.items():
            for begin, end in attempts:
                if begin < self.now:
                    yield What.LOST, begin, min(end, self.now), NONE, worker, NONE
        for gradient in self.record.in_flight():
            begin, end, worker = gradient.begin, min(gradient.end, self.now), gradient.worker
            if begin < end:
                yield What.COMPUTING, begin, end, NONE, worker, NONE
            if gradient.underway and gradient.due > 0 and end < (gone := self._sends_until(worker, end)):
                yield What.SENDING, end, gone, NONE, worker, NONE

    def _sends_until(self, worker: int, begin: int) -> int:
        """When a message that is still on its way ends: now, or when its worker has crashed."""
        if self._lives is None or self._faults is None or not self._lives.lives(worker):
            return self.now
        return min(self.now, self._faults.away("worker", worker, begin)[0])

    def _lose(self, gradient: Gradient) -> None:
        """Its worker has crashed, and nobody hears of what it was sending."""
        if gradient.underway and gradient.end < self.now:
            self.record.beside(What.SENDING, gradient.end, self.now, worker=gradient.worker)
        self.drop(gradient, cost=NOTHING)

    def difference(self, worker: int, before: Copy, after: Copy) -> Gradient:
        """What local steps have taken away from one copy to come to another: a message, like a gradient.

        Args:
            worker: whose steps.
            before, after: its models, from which and to which they led.
        """
        for copy in (before, after):
            if len(copy.timestamps) < self._cut:
                raise copy.incomplete(self._cut)
        difference = Gradient(worker, NONE, after, self.now, self.now, source=before)
        self.record.watch(difference)
        return difference

    def clock(self, replica: int = 0, block: int = 0) -> int:
        """How often a `block` of a `replica` has been changed."""
        return self.record.clocks[replica * self.record.layout.blocks + block]

    # What happens to a replica, at once.

    def read(
        self,
        worker: int,
        replica: int = 0,
        arrival: int | None = None,
        sent: bool = True,
        block: int = 0,
        size: int | None = None,
    ) -> Copy:
        """The present parameters, `sent` by all servers or already at hand, which arrive at `arrival`, ns (default: at once).

        Args:
            worker, replica: who reads, of what.
            block: which one, where replicas are cut.
            size: bytes; absent: the usual ones of a model, or of the block.
        """
        now = self.env._now
        size, messages = self._read(block, size) if sent else (0, 0)
        arrival = now if arrival is None else arrival
        return self.record.pull(now, worker, replica, block, self._steps[worker], min(arrival, UNENDING), size, messages)

    def own(self, worker: int) -> Copy:
        """The `worker`'s own replica as it is; nothing is sent."""
        now = self.env._now
        return self.record.pull(now, worker, worker, 0, self._steps[worker], now, 0, 0)

    def publish(
        self,
        worker: int,
        copies: int,
        parts: int = 1,
        block: int = 0,
        size: int | None = None,
        replica: int | None = None,
    ) -> Copy:
        """A `block` of a `replica`, by default the `worker`'s own, for so many others to whom it sends it.

        Args:
            copies: receivers.
            parts: messages to each.
            replica: by number.
            size: bytes for each receiver, which a `transfer` takes its time for, too; absent: the usual ones.
        """
        now = self.now
        again = 0 if self.links is None else self.links.announce(worker, copies)
        each = bytes_of(size, self.sizes.model.blocks[block])
        self._published[worker] = len(self.record), each
        sent, messages = (copies + again) * each, copies * parts + again
        replica = worker if replica is None else replica
        return self.record.pull(now, worker, replica, block, self._steps[worker], now, sent, messages)

    def read_block(
        self, worker: int, server: int, sent: bool = True, replica: int = 0, size: int | None = None
    ) -> tuple[Copy, int]:
        """A server's present block of a replica on its way to a worker (or already there), and when it arrives, ns.

        Args:
            worker, replica: who reads, of what.
            server: whose block, by number.
            sent: False: it is already there.
            size: bytes; absent: the block's usual ones.
        """
        arrival = self.now
        if sent and self.links is not None:
            arrival = self.links.arrival(worker, bytes_of(size, self.sizes.model.blocks[server]), server)
        return self.read(worker, replica, arrival, sent, server, size), arrival

    def compose(self, worker: int, copies: Sequence[Copy]) -> Copy:
        """A model that a `worker` makes of the `copies`, one of each block."""
        return self.record.compose(self.now, worker, copies)

    def stamp(self, copy: Copy) -> Copy:
        """The `copy` as it is, of which servers will be told that it is of their present parameters."""
        return copy.stamped([self.clock(block=block) for block in range(self.blocks)])

    def push(self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0) -> None:
        """The `gradient` makes one update of a `block` of a `replica`. Raises FredError if it is not finished.

        `cost` says what was sent for it; absent: one message to each server, or what `send` was told.
        """
        now = self.env._now
        if gradient.end > now and gradient.ready_at(block) > now:
            raise gradient.unfinished(now, block)
        size, messages = self._up[block] if cost is None and not gradient.sent else self._charged(gradient, block, cost, now)
        if self._lives is not None:
            self._settle(gradient)
        self.record.push(now, gradient, replica, block, size, messages)

    def add(self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0, weight: float = 1.0) -> None:
        """The `gradient`, times `weight`, joins the open round of a `block` of a `replica`; `cost` as in `push`."""
        now = self.env._now  # the lines of `push`: a function for both costs either 1 % more time
        if gradient.end > now and gradient.ready_at(block) > now:
            raise gradient.unfinished(now, block)
        size, messages = self._up[block] if cost is None and not gradient.sent else self._charged(gradient, block, cost, now)
        if self._lives is not None:
            self._settle(gradient)
        self.record.add(now, gradient, replica, block, weight, size, messages)

    def commit(self, replica: int = 0, block: int = 0, weight: float | None = None) -> None:
        """The round's sum times `weight` (default: 1 / number of gradients, their mean) makes one update.

        The round is that of a `block` of a `replica`; a new one opens.
        """
        self.record.commit(self.now, replica, block, weight)

    def mix(self, worker: int, parts: Sequence[tuple[Copy, float]], block: int = 0) -> Copy:
        """The weighted sum of models, added up in this order by the `worker` (or by several together).

        Args:
            parts: copies and their weights, which need not sum to 1.
            block: of the models, where replicas are cut.
        """
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
        """A `replica`, by default the worker's own, becomes keep x itself + weight x the copy; `cost`: what the worker sent.

        Args:
            worker: who does it.
            copy: what is mixed in; of `block` only, where replicas are cut.
            keep, weight: factors of what was there, and of the copy; by default the copy takes its place.
        """
        replica = worker if replica is None else replica
        if cost.nanoseconds:
            self.record.together(self.env._now - cost.moving, self.env._now, worker)
        self.record.sync(self.env._now, worker, replica, block, copy, keep, weight, cost.bytes, cost.messages)

    def drop(self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0) -> None:
        """The `gradient` is not used; if it is still being computed that ends now.

        `replica`, `block` and `cost` are of the message that came in vain, as in `push`.
        """
        now = self.now
        end = now + cost.nanoseconds if cost else now  # its worker still takes part in the others' operation
        size, messages = self._charged(gradient, block, cost, end)
        if self._lives is not None:
            self._settle(gradient)
            gradient.begin = min(gradient.begin, now)  # or else its worker is away, and it was to begin later
        self.record.drop(now, gradient, replica, block, size, messages)
        gradient.dropped = True

    def give_up(self, gradient: Gradient) -> None:
        """The `gradient` is not used: one that is still computed has cost nobody anything yet, one on its way comes in vain."""
        self.drop(gradient, cost=NOTHING if self.now < gradient.end else None)

    def statistic(self, replica: int = 0) -> float:
        """What the algorithm lets timing depend on (see Server.statistic): of blocks, the mean by their sizes.

        It is known of each `replica`, in protocols whose `needs_values` is True.
        """
        if self.blocks == 1:
            return self.record.statistic(replica, 0)
        return sum(share * self.record.statistic(replica, block) for block, share in enumerate(self.shares))

    def loss(self) -> float:
        """The loss that an evaluation would find now; known in protocols whose `needs_values` is True."""
        return self.record.loss()
