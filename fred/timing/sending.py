"""Messages: sizes, durations, and the bytes charged to the rows of the schedule."""

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
from fred.timing.fair_links import FairLinks
from fred.timing.links import Links
from fred.timing.loop import Wait
from fred.timing.queued_links import QueuedLinks
from fred.timing.recorder import Recorder
from fred.timing.world import Process, World

_BACKWARD = 2 / 3  # share of a gradient's time: the backward pass costs twice as much as the forward pass


class Sending(World):
    """The network of a run, and the costs of messages.

    A message has the `size`, bytes, given to a verb, or else the usual one. That is the network's `message_bytes` if set, or
    else the value in `sizes` for models, workers' messages and each block of them (a number applies to all).
    """

    def __init__(self, cluster: Cluster, recorder: Recorder, seed: int, sizes: Sizes | int):
        super().__init__(cluster, recorder, seed)
        self.network = network = cluster.network and cluster.network.effective
        self._region_of = network.regions.of(cluster.size) if network and network.regions else ()
        kind = FairLinks if network and network.sharing == "fair" else QueuedLinks
        self.links: Links | None = kind(self.env, cluster, seed, self._faults) if network or self._faults else None
        self.blocks = blocks = recorder.layout.blocks  # number of blocks in each replica
        usual = Sizes.alike(sizes, (1 / blocks,) * blocks) if isinstance(sizes, int) else sizes
        self.sizes = Sizes.alike(network.message_bytes, usual.shares) if network and network.message_bytes else usual
        self.shares = usual.shares  # each block's share of a model
        self._down, self._up = self._counted(self.sizes.model), self._counted(self.sizes.message)
        self._published = [(NONE, self.sizes.model.whole)] * self.workers  # row and bytes of each worker's last `publish`

    def send(
        self, gradient: Gradient, server: int | None = None, size: int | None = None, block: int | None = None
    ) -> Iterable[Wait]:
        """Send a finished gradient to all servers, or to one; ends when it has arrived.

        If replicas are split into blocks, one server gets its own block; all servers together may get one `block`.

        The `size`, bytes, is also charged to the row that uses it (`push`, `add` or `drop`).

        Args:
            gradient: a gradient or a pseudo-gradient.
            server: its number, from 0; default: all servers.
            size: bytes; default: the size of what the server's `send` returns, at 4 bytes per parameter.
            block: its number, if no other block of the gradient is ever sent and all servers hold a part of each block;
                default: all blocks.

        Example: 1 MB at 10 MB/s, two workers, each with its own link.
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

    def send_between(self, pseudo_gradient: Gradient, server: int, receiver: int) -> Iterable[Wait]:
        """Send a pseudo-gradient from one server to another; ends when it has arrived.

        Args:
            pseudo_gradient: that of a server's model.
            server, receiver: numbers of the two servers.
        """
        size = self.sizes.message.whole
        pseudo_gradient.sent = {0: (size, 1)}
        if self.links is None:
            return ()
        self._note(pseudo_gradient, None)
        return (self.links.between(server, receiver, size),)

    def transfer(self, worker: int, receiver: int, size: int | None = None) -> simpy.Event:
        """Send a worker's last published model to another worker; the returned event happens on arrival.

        Args:
            worker: sender.
            receiver: the other worker.
            size: bytes that determine the duration; default: as given to `publish`, whose bytes are charged in either case.

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
        """Return the cost to each worker of an allreduce among `members`; of whole models unless `size` is given.

        If links slow down at times, the cost depends on when it begins (default: now). It begins when all awaited workers are
        available, and starts again if one of them crashes; that time is part of the cost.

        Args:
            members: workers, by number; or the number of workers, counted from worker 0.
            algorithm: one of `ring`, `recursive-doubling`, `rabenseifner`, `tree`; default: the network's.
            begin: ns.
            awaited: workers, by number.
            size: bytes that each member contributes.

        Example: four workers average 8 MB in a ring, in 6 messages of 2 MB one after the other.
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
        """Return the cost to each worker of summing the messages of all `members`, so that each gets the sum.

        This is an allreduce; if a codec's messages cannot be summed on their way, an allgather of all messages.

        Args:
            members: workers, by number; or the number of workers, counted from worker 0.
            begin: ns (default: now).
            awaited: workers; it begins when all are available, and starts again if one of them crashes.
            block: the block that the messages are about; default: whole messages.

        Example: four workers in a ring, with messages of 2 MB.
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
        """Return the network and the members of a collective operation, and their number (by node or region)."""
        network, workers = self.network or Network(), range(members) if isinstance(members, int) else members
        if network.regions is not None:
            there = Counter(self._region_of[worker] for worker in workers)
            return network, workers, [there[region] for region in range(len(network.regions.bandwidth))]
        return network, workers, Counter(self.node_of[list(workers)].tolist()).values() if network.two_levels else len(workers)

    def _behind(self, cost: Cost, parts: int, workers: Sequence[int], begin: int | None) -> Cost:
        """Return the cost of `parts` operations like this one, minus what overlaps with the backward passes.

        They run one after the other; each begins once all backward passes have computed its part
        [Li et al. 2020, arXiv:2006.15704].
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
        """Return the cost of a collective operation, including slow links and offline workers."""
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
        """Return the mean latency of one message, ns."""
        return 0 if self.network is None else round(mean_latency(self.network) * NANOSECONDS)

    def _travel(self, trip: int, way: Process) -> Process:
        """Move a model from one worker to another, and record its arrival."""
        yield from way
        self.record.arrived(trip, self.now)

    def _note(self, gradient: Gradient, block: int | None) -> None:
        """Count the rows that a departing gradient, or block of it, still needs beyond the first."""
        if gradient.underway:
            gradient.due += 1
        elif block is None and self.blocks > 1:
            gradient.due = self.blocks
        if gradient.step == NONE and not gradient.underway:
            self.record.keep(gradient)

    def _charged(self, gradient: Gradient, block: int, cost: Cost | None, end: int) -> tuple[int, int]:
        """Return the bytes and messages charged for a gradient; `end`, ns, is when the operation with this cost ends."""
        if cost is None:
            return gradient.sent.get(block, self._up[block])
        if cost.nanoseconds:
            self.record.together(end - cost.moving, end, gradient.worker)
        return cost.bytes, cost.messages

    def _say(self, gradient: Gradient, block: int | None, size: int) -> Size:
        """Return the size of a message for a gradient, or a block of it; store it in the gradient for its row."""
        sent = Size.cut(bytes_of(size, 0), self.shares if block is None else (1.0,) * self.blocks)
        counted = dict(enumerate(self._counted(sent)))
        gradient.sent = gradient.sent | (counted if block is None else {block: counted[block]})
        return sent

    def _sending(self, gradient: Gradient, one: int | None, sent: Size, upload: Process) -> Process:
        """Send a gradient, or `one` block of it; store in it the bytes and messages that were sent again."""
        again = yield from upload
        if not any(again):
            return
        counted = [(sent.whole, len(again))] if self.blocks == 1 else self._counted(sent)
        for block in range(len(counted)) if one is None else (one,):
            share = again if len(counted) == 1 else again[block % len(again) :: self.blocks] if one is None else again
            gradient.sent = gradient.sent | {block: more(*counted[block], sum(share))}

    def _read(self, block: int, size: int | None) -> tuple[int, int]:
        """Return the bytes and messages that servers have just sent for a block."""
        usual, messages = self._down[block]
        again = 0 if self.links is None else self.links.resent()
        return more(bytes_of(size, usual), messages, again)

    def _counted(self, size: Size) -> list[tuple[int, int]]:
        """Return the bytes and messages of each block; or of the whole, of which each server gets (or sends) a part."""
        return [(each, 1) for each in size.blocks] if self.blocks > 1 else [(size.whole, self.servers)]


def more(size: int, messages: int, again: int) -> tuple[int, int]:
    """Return the bytes and messages of a transfer, plus those of `again` repeated messages."""
    return size + size * again // messages, messages + again


def bytes_of(size: int | None, usual: int) -> int:
    """Return a message's size in bytes: the protocol's `size` if given, else `usual`. Raises FredError if it is no size."""
    return usual if size is None else size_in_bytes(size, "the protocol")
