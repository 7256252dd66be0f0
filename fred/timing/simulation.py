"""What protocols say: the verbs, for which the cluster and the network take their time."""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence
from functools import partial
from typing import Any

import simpy

from fred.layout import Size, Sizes, size_in_bytes
from fred.schedule import NONE, UNENDING, What
from fred.timing.cluster import Cluster
from fred.timing.contention import Loads
from fred.timing.durations import NANOSECONDS, durations
from fred.timing.faults import Span
from fred.timing.held import Copy, Gradient
from fred.timing.links import Links
from fred.timing.loop import After
from fred.timing.network import NOTHING, Collective, Cost, Network, mean_latency
from fred.timing.recorder import Recorder
from fred.timing.world import Process as Process  # protocols find it here
from fred.timing.world import World

_COLLECTIVE, _TRIP = int(What.COLLECTIVE), int(What.TRIP)  # plain integers, as in the recorder


class Simulation(World):
    """One run: who computes what at which copy of the parameters, what is sent, and what it does to the replicas.

    What is sent has the `size`, bytes, that a verb is told, or else the usual one: the network's `message_bytes`, or else what
    `sizes` says of models, of workers' messages, and of each block of them (a number: what all of them have).
    """

    def __init__(self, cluster: Cluster, recorder: Recorder, seed: int, sizes: Sizes | int = 0):
        super().__init__(cluster, recorder, seed)
        self.network = network = cluster.network
        self.links = Links(self.env, cluster, seed, self._faults) if network or self._faults else None
        self.blocks = blocks = recorder.layout.blocks  # into which replicas are cut
        self._cut = blocks if blocks > 1 else 0  # blocks that a copy must have
        usual = Sizes.alike(sizes, (1 / blocks,) * blocks) if isinstance(sizes, int) else sizes
        self.sizes = Sizes.alike(network.message_bytes, usual.shares) if network and network.message_bytes else usual
        self.shares = usual.shares  # of the blocks in a model
        self._down, self._up = self._counted(self.sizes.model), self._counted(self.sizes.message)
        self._durations = durations(seed, "compute", cluster.latencies(), cluster.worker_speeds())
        self._loads = Loads(cluster.loads(seed)) if cluster.contention else None
        self._steps = [0] * self.workers  # gradients begun by each worker
        self._published = [NONE] * self.workers  # row in which each worker's model was published last
        self._attempts: dict[tuple[int, int], list[Span]] = {}  # lost ones, of gradients that are begun anew

    # What a worker does, network included.

    def pull(self, worker: int, replica: int = 0, size: int | None = None) -> Generator[simpy.Event, Any, Copy]:
        """The servers send the parameters that they have now, for a request takes no time; ends when they have arrived."""
        now = self.env._now
        sent, messages = self._down[0] if size is None else (_said(size, 0), self._down[0][1])
        arrival = now if self.links is None else self.links.arrival(worker, sent)
        if not self.faultless:
            sent, messages = self._read(0, size)
        copy = self.record.pull(now, worker, replica, 0, self._steps[worker], min(arrival, UNENDING), sent, messages)
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
        for begin, end in self._attempts.pop((gradient.worker, gradient.step), ()):
            if begin < self.now:
                self.record.beside(What.LOST, begin, min(end, self.now), worker=gradient.worker)

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

    def send(self, gradient: Gradient, server: int | None = None, size: int | None = None) -> Iterable[simpy.Event]:
        """Bring a finished gradient to all servers, or a block of it to one; ends when it has arrived.

        Its `size`, bytes, is what its use (`push`, `add` or `drop`) will be charged with, too.
        """
        said = None if size is None else self._say(gradient, server, size)
        if self.links is None:
            return ()
        sent = said or self.sizes.message
        upload = self.links.upload(gradient.worker, sent.whole if server is None else sent.blocks[server], server)
        return upload if self.faultless else self._sending(gradient, server or 0, sent, upload)

    def transfer(self, worker: int, receiver: int, size: int | None = None) -> simpy.Event:
        """A model, or something of another `size`, on its way from a worker to another; happens when it has arrived."""
        if self.links is None:
            self._travelled(worker, receiver, self.now)
            return self.env.after(0)
        way = self.links.across(worker, receiver, _said(size, self.sizes.model.whole))
        return self.process(self._travel(worker, receiver, way))

    def allreduce(
        self,
        members: int | Sequence[int],
        algorithm: Collective | None = None,
        begin: int | None = None,
        awaited: Collection[int] = (),
        size: int | None = None,
    ) -> Cost:
        """What an allreduce among these workers (a number: the first so many) costs each of them; of models, if without `size`.

        The algorithm is the network's if not given. Where links are slow at times, it counts when it begins, ns (default: now).
        It begins when those who are awaited are there, and anew if one of them crashes: that time is part of the cost.
        """
        network, workers = self.network or Network(), range(members) if isinstance(members, int) else members
        spread = Counter(self.node_of[list(workers)].tolist()).values() if network.two_levels else len(workers)
        cost = network.allreduce(spread, _said(size, self.sizes.model.whole), algorithm)
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

    def clock(self, replica: int = 0, block: int = 0) -> int:
        """How often a block of a replica has been changed."""
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
        """The present parameters, sent by all servers or already at hand, which arrive at `arrival`, ns (default: at once)."""
        now = self.env._now
        size, messages = self._read(block, size) if sent else (0, 0)
        arrival = now if arrival is None else arrival
        return self.record.pull(now, worker, replica, block, self._steps[worker], min(arrival, UNENDING), size, messages)

    def own(self, worker: int) -> Copy:
        """The worker's own replica as it is; nothing is sent."""
        now = self.env._now
        return self.record.pull(now, worker, worker, 0, self._steps[worker], now, 0, 0)

    def publish(self, worker: int, copies: int, parts: int = 1, block: int = 0, size: int | None = None) -> Copy:
        """A block of the worker's own replica as it is, for so many others to whom it is sent, each in so many messages."""
        now = self.now
        again = 0 if self.links is None else self.links.announce(worker, copies)
        size, messages = (copies + again) * _said(size, self.sizes.model.blocks[block]), copies * parts + again
        self._published[worker] = len(self.record)
        return self.record.pull(now, worker, worker, block, self._steps[worker], now, size, messages)

    def read_block(self, worker: int, server: int, sent: bool = True, size: int | None = None) -> tuple[Copy, int]:
        """A server's present block on its way to a worker (or already there), and when it arrives, ns."""
        arrival = self.now
        if sent and self.links is not None:
            arrival = self.links.arrival(worker, _said(size, self.sizes.model.blocks[server]), server)
        return self.read(worker, 0, arrival, sent, server, size), arrival

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
        size, messages = self._up[block] if cost is None and not gradient.sent else self._charged(gradient, block, cost, now)
        if self._lives is not None:
            self._settle(gradient)
        self.record.push(now, gradient, replica, block, size, messages)

    def add(self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0, weight: float = 1.0) -> None:
        """The gradient, times `weight`, joins the open round."""
        now = self.env._now  # the lines of `push`: a function for both costs either 1 % more time
        if gradient.end > now and gradient.ready_at(block) > now:
            raise gradient.unfinished(now, block)
        size, messages = self._up[block] if cost is None and not gradient.sent else self._charged(gradient, block, cost, now)
        if self._lives is not None:
            self._settle(gradient)
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
        self._together(worker, cost, self.env._now)
        self.record.sync(self.env._now, worker, replica, block, copy, keep, weight, cost.bytes, cost.messages)

    def drop(self, gradient: Gradient, replica: int = 0, cost: Cost | None = None, block: int = 0) -> None:
        """The gradient is not used; if it is still being computed that ends now."""
        now = self.now
        end = now + cost.nanoseconds if cost else now  # its worker still takes part in the others' operation
        size, messages = self._charged(gradient, block, cost, end)
        if self._lives is not None:
            self._settle(gradient)
            gradient.begin = min(gradient.begin, now)  # or else its worker is away, and it was to begin later
        self.record.drop(now, gradient, replica, block, size, messages)

    def statistic(self, replica: int = 0) -> float:
        """What the algorithm lets timing depend on (see Server.statistic): of blocks, the mean by their sizes."""
        if self.blocks == 1:
            return self.record.statistic(replica, 0)
        return sum(share * self.record.statistic(replica, block) for block, share in enumerate(self.shares))

    def _travel(self, worker: int, receiver: int, way: Process) -> Process:
        """A model's way from a worker to another, known once it has arrived."""
        begin = self.now
        yield from way
        self._travelled(worker, receiver, begin)

    def _travelled(self, worker: int, receiver: int, begin: int) -> None:
        self.record.beside(_TRIP, begin, self.now, self._published[worker], worker, receiver)

    def _together(self, worker: int, cost: Cost, end: int) -> None:
        """The next row is what a worker has of a collective operation that ends then, ns, if it is of one."""
        if cost.messages or cost.moving:
            self.record.beside(_COLLECTIVE, end - cost.moving, end, len(self.record), worker)

    def _charged(self, gradient: Gradient, block: int, cost: Cost | None, end: int) -> tuple[int, int]:
        """Bytes and messages for a gradient; `end`: of what costs that, ns."""
        if cost is None:
            return gradient.sent.get(block, self._up[block])
        self._together(gradient.worker, cost, end)
        return cost.bytes, cost.messages

    def _say(self, gradient: Gradient, server: int | None, size: int) -> Size:
        """The size of what is sent for a gradient, which is kept in mind until it is used."""
        said = Size.cut(_said(size, 0), self.shares if server is None else (1.0,) * self.blocks)
        counted = dict(enumerate(self._counted(said)))
        gradient.sent = gradient.sent | (counted if server is None else {server: counted[server]})
        return said

    def _sending(self, gradient: Gradient, block: int, sent: Size, upload: Process) -> Process:
        """Bring a gradient to where it goes, and keep in mind what was sent again."""
        if again := (yield from upload):
            gradient.sent = gradient.sent | {block: _more(*self._counted(sent)[block], again)}

    def _read(self, block: int, size: int | None) -> tuple[int, int]:
        """Bytes and messages that servers have just sent of a block."""
        usual, messages = self._down[block]
        again = 0 if self.links is None else self.links.resent()
        return _more(_said(size, usual), messages, again)

    def _counted(self, size: Size) -> list[tuple[int, int]]:
        """Bytes and messages of each block, or of the whole, of which every server gets (or sends) its part."""
        return [(each, 1) for each in size.blocks] if self.blocks > 1 else [(size.whole, self.servers)]


def _more(size: int, messages: int, again: int) -> tuple[int, int]:
    """Bytes and messages where so many of the messages were sent again."""
    return size + size * again // messages, messages + again


def _said(size: int | None, usual: int) -> int:
    """Bytes of something whose size a protocol may have said. Raises FredError if it cannot be one."""
    return usual if size is None else size_in_bytes(size, "the protocol")
