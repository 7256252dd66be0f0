"""What is sent: how large it is, how long it takes, and with what the rows about it are charged."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import partial

import simpy

from fred.cluster.cluster import Cluster
from fred.cluster.durations import NANOSECONDS
from fred.cluster.network import Collective, Cost, Network, mean_latency
from fred.schedule.layout import Size, Sizes, size_in_bytes
from fred.schedule.schedule import NONE, UNENDING
from fred.timing.copies import Gradient
from fred.timing.links import Links
from fred.timing.loop import Wait
from fred.timing.recorder import Recorder
from fred.timing.world import Process, World

_BACKWARD = 2 / 3  # of a gradient's time: the backward pass computes twice as much as the forward pass


class Sending(World):
    """The network at hand, and what messages cost.

    What is sent has the `size`, bytes, that a verb is told, or else the usual one: the network's `message_bytes`, or else what
    `sizes` says of models, of workers' messages, and of each block of them (a number: what all of them have).
    """

    def __init__(self, cluster: Cluster, recorder: Recorder, seed: int, sizes: Sizes | int):
        super().__init__(cluster, recorder, seed)
        self.network = network = cluster.network and cluster.network.effective
        self._region_of = network.regions.of(cluster.size) if network and network.regions else ()
        self.links = Links(self.env, cluster, seed, self._faults) if network or self._faults else None
        self.blocks = blocks = recorder.layout.blocks  # into which replicas are cut
        usual = Sizes.alike(sizes, (1 / blocks,) * blocks) if isinstance(sizes, int) else sizes
        self.sizes = Sizes.alike(network.message_bytes, usual.shares) if network and network.message_bytes else usual
        self.shares = usual.shares  # of the blocks in a model
        self._down, self._up = self._counted(self.sizes.model), self._counted(self.sizes.message)
        self._published = [(NONE, self.sizes.model.whole)] * self.workers  # row and bytes of what each worker published last

    def send(
        self, gradient: Gradient, server: int | None = None, size: int | None = None, block: int | None = None
    ) -> Iterable[Wait]:
        """Bring a finished gradient to all servers, or to one of them; ends when it has arrived.

        Where replicas are cut, one server gets its block of it, and all servers together may get one `block`.

        Its `size`, bytes, is what its use (`push`, `add` or `drop`) will be charged with, too.

        Args:
            gradient: a gradient or a difference.
            server: by number, from 0; absent: all of them.
            size: bytes; absent: what the server's `send` returns, 4 for each parameter.
            block: by number, if nothing else of it is ever sent, and all servers have a part of each; absent: all blocks.

        Example: 1 MB at 10 MB/s, two workers at their own links.
            >>> import fred
            >>> cluster = fred.Cluster(workers=2, network={"bandwidth": 1e7})
            >>> sim = fred.Simulation(cluster, fred.Recorder(2, fred.Layout.central(), updates=2), seed=0, sizes=1_000_000)
            >>> def work(worker, size):
            ...     gradient = sim.compute(worker, sim.own(0))
            ...     yield gradient.finished
            ...     yield from sim.send(gradient, size=size)
            ...     sim.push(gradient)
            ...     print(f"worker {worker}: {sim.now / 1e9} s")
            >>> _ = [sim.process(work(worker, size)) for worker, size in ((0, None), (1, 250_000))]
            >>> sim.run()
            worker 1: 1.025 s
            worker 0: 1.1 s
            >>> sim.schedule()["bytes"].tolist()[-2:]
            [250000, 1000000]
        """
        one = block if server is None else server if self.blocks > 1 else None
        said = None if size is None else self._say(gradient, one, size)
        if server is not None and self.blocks == 1:
            gradient.sent = {0: ((said or self.sizes.message).whole, 1)}
        if self.links is None:
            return ()
        if gradient.underway or self.blocks > 1 or gradient.step == NONE:
            self._note(gradient, one)
        gradient.underway = True
        sent = said or self.sizes.message
        upload = self.links.upload(gradient.worker, sent.whole if one is None else sent.blocks[one], server)
        return upload if self.faultless else self._sending(gradient, one, sent, upload)

    def send_between(self, difference: Gradient, server: int, receiver: int) -> Iterable[Wait]:
        """Bring a difference from one server to another; ends when it has arrived.

        Args:
            difference: of what a server has.
            server, receiver: by number.
        """
        size = self.sizes.message.whole
        difference.sent = {0: (size, 1)}
        if self.links is None:
            return ()
        self._note(difference, None)
        return (self.links.between(server, receiver, size) - self.now,)

    def transfer(self, worker: int, receiver: int, size: int | None = None) -> simpy.Event:
        """What a worker has just published, on its way to another; happens when it has arrived.

        Args:
            worker: who sends.
            receiver: the other worker.
            size: bytes that take their time; absent: as many as `publish` said, which is what traffic is charged with.

        Example:
            >>> import fred
            >>> cluster = fred.Cluster(workers=2, network={"latency": {"name": "constant", "seconds": 0.25}, "bandwidth": 1e6})
            >>> sim = fred.Simulation(cluster, fred.Recorder(2, fred.Layout.peers(2), rows=2), seed=0, sizes=500_000)
            >>> def give(worker, receiver):
            ...     model = sim.publish(worker, copies=1)
            ...     yield sim.transfer(worker, receiver)
            ...     sim.sync(receiver, model, keep=0.5, weight=0.5)
            ...     sim.record.stop()
            >>> _ = sim.process(give(0, 1))
            >>> sim.run()
            >>> sim.now / 1e9
            0.75
        """
        now, (row, published) = self.env._now, self._published[worker]
        size = bytes_of(size, published)
        if self.links is None:
            self.record.trip(now, now, row, worker, receiver)
            return self.env.after(0)
        trip = self.record.trip(now, UNENDING, row, worker, receiver)
        return self.process(self._travel(trip, self.links.across(worker, receiver, size)))

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

        Args:
            members: the workers, by number; or how many.
            algorithm: one of `ring`, `recursive-doubling`, `rabenseifner`, `tree`.
            begin: ns.
            awaited: workers.
            size: bytes that each member has.

        Example: four workers average 8 MB in a ring, 6 messages of 2 MB one after the other.
            >>> import fred
            >>> cluster = fred.Cluster(workers=4, network={"bandwidth": 1e7})
            >>> sim = fred.Simulation(cluster, fred.Recorder(4, fred.Layout.shared()), seed=0, sizes=8_000_000)
            >>> sim.allreduce(4)
            Cost(nanoseconds=1200000000, bytes=12000000, messages=6, moving=1200000000)
            >>> sim.allreduce([0, 3], "tree", size=1_000_000).nanoseconds
            200000000
        """
        network, workers, spread = self._gathering(members)
        parts = network.buckets
        cost = network.allreduce(spread, bytes_of(size, self.sizes.model.whole) // parts, algorithm)
        return self._together(self._behind(cost, parts, workers, begin), workers, begin, awaited)

    def add_up(
        self, members: int | Sequence[int], begin: int | None = None, awaited: Collection[int] = (), block: int | None = None
    ) -> Cost:
        """What it costs each of these workers (a number: the first so many) that all of them get the sum of their messages.

        That is an allreduce; where a codec's messages cannot be added up on their way, an allgather of all of them.

        Args:
            members: the workers, by number; or how many.
            begin: ns (default: now).
            awaited: workers; it begins when they are there, and anew if one of them crashes.
            block: of which the messages are; absent: whole ones.

        Example: four workers in a ring, whose messages have 2 MB.
            >>> import fred
            >>> cluster = fred.Cluster(workers=4, network={"bandwidth": 1e7})
            >>> sim = fred.Simulation(cluster, fred.Recorder(4, fred.Layout.shared()), seed=0, sizes=2_000_000)
            >>> sim.add_up(4)
            Cost(nanoseconds=300000000, bytes=3000000, messages=6, moving=300000000)
            >>> sim.sizes = sim.sizes._replace(summable=False)  # as a codec says
            >>> sim.add_up(4)
            Cost(nanoseconds=600000000, bytes=6000000, messages=3, moving=600000000)
        """
        size = self.sizes.message.whole if block is None else self.sizes.message.blocks[block]
        network, workers, spread = self._gathering(members)
        parts = network.buckets
        cost = (network.allreduce if self.sizes.summable else network.allgather)(spread, size // parts)
        return self._together(self._behind(cost, parts, workers, begin), workers, begin, awaited)

    def _gathering(self, members: int | Sequence[int]) -> tuple[Network, Sequence[int], int | Collection[int]]:
        """The network, who takes part in a collective operation, and how many, on each node or in each region."""
        network, workers = self.network or Network(), range(members) if isinstance(members, int) else members
        if network.regions is not None:
            there = Counter(self._region_of[worker] for worker in workers)
            return network, workers, [there[region] for region in range(len(network.regions.bandwidth))]
        return network, workers, Counter(self.node_of[list(workers)].tolist()).values() if network.two_levels else len(workers)

    def _behind(self, cost: Cost, parts: int, workers: Sequence[int], begin: int | None) -> Cost:
        """The cost of `parts` operations like this one, less what is over when they could first be done all at once.

        One after the other, each begins when all workers' backward passes have come so far [Li et al. 2020, arXiv:2006.15704].
        """
        if parts == 1:
            return cost
        asked = self.now if begin is None else begin
        latest = [self.record.latest[worker] for worker in workers]
        computed = [(each.end, _BACKWARD * (each.end - each.begin)) for each in latest if each.end <= asked]
        over = 0
        for part in range(1, parts + 1):
            made = max((round(end - backward * (1 - part / parts)) for end, backward in computed), default=asked)
            over = max(over, made) + cost.nanoseconds
        left = max(0, over - asked)
        return Cost(left, cost.bytes * parts, cost.messages * parts, left)

    def _together(self, cost: Cost, workers: Sequence[int], begin: int | None, awaited: Collection[int]) -> Cost:
        """The cost of a collective operation, with what links and absences make of it."""
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

    def _travel(self, trip: int, way: Process) -> Process:
        """A model's way from a worker to another."""
        yield from way
        self.record.arrived(trip, self.now)

    def _note(self, gradient: Gradient, block: int | None) -> None:
        """The gradient, or a block of it, leaves, and something will be done with it: what is more than one row about it."""
        if gradient.underway:
            gradient.due += 1
        elif block is None and self.blocks > 1:
            gradient.due = self.blocks
        if gradient.step == NONE and not gradient.underway:
            self.record.keep(gradient)

    def _charged(self, gradient: Gradient, block: int, cost: Cost | None, end: int) -> tuple[int, int]:
        """Bytes and messages for a gradient; `end`: of what costs that, ns."""
        if cost is None:
            return gradient.sent.get(block, self._up[block])
        if cost.nanoseconds:
            self.record.together(end - cost.moving, end, gradient.worker)
        return cost.bytes, cost.messages

    def _say(self, gradient: Gradient, block: int | None, size: int) -> Size:
        """The size of what is sent for a gradient, or a block of it, which is kept in mind until it is used."""
        sent = Size.cut(bytes_of(size, 0), self.shares if block is None else (1.0,) * self.blocks)
        counted = dict(enumerate(self._counted(sent)))
        gradient.sent = gradient.sent | (counted if block is None else {block: counted[block]})
        return sent

    def _sending(self, gradient: Gradient, one: int | None, sent: Size, upload: Process) -> Process:
        """Bring a gradient, or `one` block of it, to where it goes, and keep in mind what was sent again, to which server."""
        again = yield from upload
        if not any(again):
            return
        counted = [(sent.whole, len(again))] if self.blocks == 1 else self._counted(sent)
        for block in range(len(counted)) if one is None else (one,):
            share = again if len(counted) == 1 else again[block % len(again) :: self.blocks] if one is None else again
            gradient.sent = gradient.sent | {block: more(*counted[block], sum(share))}

    def _read(self, block: int, size: int | None) -> tuple[int, int]:
        """Bytes and messages that servers have just sent of a block."""
        usual, messages = self._down[block]
        again = 0 if self.links is None else self.links.resent()
        return more(bytes_of(size, usual), messages, again)

    def _counted(self, size: Size) -> list[tuple[int, int]]:
        """Bytes and messages of each block, or of the whole, of which every server gets (or sends) its part."""
        return [(each, 1) for each in size.blocks] if self.blocks > 1 else [(size.whole, self.servers)]


def more(size: int, messages: int, again: int) -> tuple[int, int]:
    """Bytes and messages where so many of the messages were sent again."""
    return size + size * again // messages, messages + again


def bytes_of(size: int | None, usual: int) -> int:
    """Bytes of something whose size a protocol may have said. Raises FredError if it cannot be one."""
    return usual if size is None else size_in_bytes(size, "the protocol")
