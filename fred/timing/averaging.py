"""Collective operations: workers sum gradients or average models, without a server.

Where links queue messages, an operation takes the closed form of its algorithm, and disturbs nothing else. With
`sharing: fair` it is made of messages, which share links with everything else.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import simpy

from fred.base.errors import FredError
from fred.cluster import patterns
from fred.cluster.durations import NEVER
from fred.cluster.faults import MOST_TRIES
from fred.cluster.network import Collective, Cost, Network
from fred.timing.fair_links import FairLinks
from fred.timing.loop import Wait
from fred.timing.sending import Sending, bytes_of
from fred.timing.world import Process

_BACKWARD = 2 / 3  # share of a gradient's time: the backward pass costs twice as much as the forward pass


class Operation:
    """A collective operation that has been asked for.

    Args:
        over: event that happens when it ends.
        cost: its cost to each worker. The times are known when it is over; bytes and messages at once.

    Example: a process of a protocol waits for it, and charges its cost.
        >>> import fred
        >>> cluster = fred.Cluster(workers=2, network={"bandwidth": 1e6, "sharing": "fair"})
        >>> sim = fred.Simulation(cluster, fred.Recorder(2, fred.Layout.peers(2), rows=2), seed=0, sizes=500_000)
        >>> def average():
        ...     operation = sim.allreduce(2)
        ...     yield operation.over
        ...     mean = sim.mix(0, [(sim.own(worker), 0.5) for worker in range(2)])
        ...     for worker in range(2):
        ...         sim.sync(worker, mean, cost=operation.cost)
        ...     sim.record.stop()
        >>> _ = sim.process(average())
        >>> sim.run()
        >>> sim.now / 1e9
        0.5
    """

    __slots__ = ("cost", "over")

    def __init__(self, over: simpy.Event, cost: Cost):
        self.over, self.cost = over, cost


class Part(NamedTuple):
    """A bucket of a model: it is sent once the part before it is over.

    Args:
        ready: time before which it is not computed, ns.
        share: share of it that is not sent yet.
    """

    ready: int
    share: float = 1.0


class Averaging(Sending):
    """The collective operations of a run."""

    def allreduce(
        self,
        members: int | Sequence[int],
        algorithm: Collective | None = None,
        begin: int | None = None,
        awaited: Collection[int] = (),
        size: int | None = None,
    ) -> Operation:
        """Begin an allreduce among `members`, of whole models unless `size` is given.

        It begins when all awaited workers are available, and starts again if one of them crashes; that time is part of the
        cost.

        Args:
            members: workers, by number; or the number of workers, counted from worker 0.
            algorithm: one of `ring`, `recursive-doubling`, `rabenseifner`, `tree`; default: the network's.
            begin: when to begin, ns; default: now.
            awaited: workers, by number.
            size: bytes that each member contributes.

        Example: four workers average 8 MB in a ring, in 6 messages of 2 MB one after the other.
            >>> import fred
            >>> cluster = fred.Cluster(workers=4, network={"bandwidth": 1e7})
            >>> sim = fred.Simulation(cluster, fred.Recorder(4, fred.Layout.shared()), seed=0, sizes=8_000_000)
            >>> sim.allreduce(4).cost
            Cost(nanoseconds=1200000000, bytes=12000000, messages=6, moving=1200000000)
            >>> sim.allreduce([0, 3], "tree", size=1_000_000).cost.nanoseconds
            200000000
        """
        return self._collect("allreduce", bytes_of(size, self.sizes.model.total), members, begin, awaited, algorithm)

    def add_up(
        self, members: int | Sequence[int], begin: int | None = None, awaited: Collection[int] = (), block: int | None = None
    ) -> Operation:
        """Begin to sum the messages of all `members`, so that each gets the sum.

        This is an allreduce; if a codec's messages cannot be summed on their way, an allgather of all messages.

        Args:
            members: workers, by number; or the number of workers, counted from worker 0.
            begin: when to begin, ns; default: now.
            awaited: workers; it begins when all are available, and starts again if one of them crashes.
            block: the block that the messages are about; default: whole messages.

        Example: four workers in a ring, with messages of 2 MB.
            >>> import fred
            >>> cluster = fred.Cluster(workers=4, network={"bandwidth": 1e7})
            >>> sim = fred.Simulation(cluster, fred.Recorder(4, fred.Layout.shared()), seed=0, sizes=2_000_000)
            >>> sim.add_up(4).cost
            Cost(nanoseconds=300000000, bytes=3000000, messages=6, moving=300000000)
            >>> sim.sizes = sim.sizes._replace(summable=False)  # as a codec says
            >>> sim.add_up(4).cost
            Cost(nanoseconds=600000000, bytes=6000000, messages=3, moving=600000000)
        """
        size = self.sizes.message.total if block is None else self.sizes.message.blocks[block]
        return self._collect("allreduce" if self.sizes.summable else "allgather", size, members, begin, awaited)

    def slowest(self, operations: Sequence[Operation]) -> Operation:
        """Return an operation that is over when all of these are, at the cost of the one that ends last.

        Args:
            operations: at least one, all of which began at the same time.
        """
        if len(operations) == 1:
            return operations[0]
        if not isinstance(self.links, FairLinks):
            return max(operations, key=lambda each: each.cost.nanoseconds)
        whole = Operation(self.env.all_of([each.over for each in operations]), operations[0].cost)

        def note(_: simpy.Event) -> None:
            whole.cost = max((each.cost for each in operations), key=lambda cost: cost.nanoseconds)

        assert whole.over.callbacks is not None
        whole.over.callbacks.append(note)
        return whole

    def _take_part(self, worker: int, operation: Operation) -> None:
        """Mark the next row, of `worker`, as part of an operation that has begun."""
        now, row = self.now, len(self.record)

        def note() -> None:
            cost = operation.cost
            if cost.nanoseconds and not self.record.full:
                end = now + cost.nanoseconds
                self.record.together(end - cost.moving, end, worker, row)

        if isinstance(self.links, FairLinks):
            self.later(operation.over, note)
        else:
            note()

    def _collect(
        self,
        kind: patterns.Operation,
        size: int,
        members: int | Sequence[int],
        begin: int | None,
        awaited: Collection[int],
        algorithm: Collective | None = None,
    ) -> Operation:
        network, workers = self.network or Network(), range(members) if isinstance(members, int) else members
        if not isinstance(self.links, FairLinks):
            self.cluster.check_alike("collectives need links alike, or `network: {sharing: fair}`")
        asked, buckets = self.now if begin is None else begin, network.buckets
        spread, part = self._spread(network, workers), size // buckets
        cost = network.allgather(spread, part) if kind == "allgather" else network.allreduce(spread, part, algorithm)
        if buckets > 1:
            cost = cost._replace(bytes=cost.bytes * buckets, messages=cost.messages * buckets)
        ready = self._ready(buckets, workers, asked)
        if isinstance(self.links, FairLinks):
            operation = Operation(self.env.event(), cost._replace(nanoseconds=0, moving=0))
            parts = list(self._parts(ready, cost.nanoseconds))
            stages = patterns.stages(network, kind, self._groups(network, workers), algorithm, part)
            send = partial(self._send_parts, self.links, stages, part, parts)
            first = max([self.now, *(part.ready for part in parts[:1])])
            self.process(self._send_all(operation, send, first, asked, awaited))
            return operation
        left = max(0, _ends(ready, cost.nanoseconds)[-1] - asked)
        cost = self._together(cost._replace(nanoseconds=left, moving=left), workers, asked, awaited)
        return Operation(self.env.after(asked + cost.nanoseconds - self.now), cost)

    def _spread(self, network: Network, workers: Sequence[int]) -> int | Collection[int]:
        """Return the number of members of a collective operation, by node or region if the network has any."""
        if network.regions is not None:
            there = Counter(self._region_of[worker] for worker in workers)
            return [there[region] for region in range(len(network.regions.bandwidth))]
        return Counter(self.node_of[list(workers)].tolist()).values() if network.two_levels else len(workers)

    def _groups(self, network: Network, workers: Sequence[int]) -> list[list[int]]:
        """Return the members of a collective operation, by node or region if the network has any."""
        if network.regions is not None:
            everywhere = range(len(network.regions.bandwidth))
            return [[worker for worker in workers if self._region_of[worker] == region] for region in everywhere]
        if not network.two_levels:
            return [list(workers)]
        groups: dict[int, list[int]] = {}
        for worker in workers:
            groups.setdefault(int(self.node_of[worker]), []).append(worker)
        return list(groups.values())

    def _ready(self, buckets: int, workers: Sequence[int], asked: int) -> list[int]:
        """Return when each bucket has been computed by the backward passes of all `workers`, ns.

        They are sent one after the other, each once it is ready [Li et al. 2020, arXiv:2006.15704].
        """
        if buckets == 1:
            return [asked]
        latest = [self.record.latest[worker] for worker in workers]
        computed = [(each.end, _BACKWARD * (each.end - each.begin)) for each in latest if each.end <= asked]
        return [
            max((round(end - backward * (1 - part / buckets)) for end, backward in computed), default=asked)
            for part in range(1, buckets + 1)
        ]

    def _parts(self, ready: list[int], lasts: int) -> Iterator[Part]:
        """Yield the buckets that are not over by now if the links are idle, when each `lasts` so long, ns."""
        now = self.now
        for begin, end in zip(ready, _ends(ready, lasts), strict=True):
            if end > now or lasts == 0:
                over = max(0, now - (end - lasts))
                yield Part(max(begin, now), 1 - over / lasts if lasts else 1.0)

    def _together(self, cost: Cost, workers: Sequence[int], asked: int, awaited: Collection[int]) -> Cost:
        """Return the cost of a collective operation, including slow links and offline workers."""
        if self.links is None:
            return cost
        lasts = partial(self.links.together, workers, work=cost.nanoseconds)
        if self._faults is not None and awaited:
            begin, end = self._faults.undisturbed(awaited, asked, lasts)
        else:
            begin, end = asked, asked + lasts(asked)
        return cost._replace(nanoseconds=end - asked, moving=end - begin)

    def _send_all(
        self,
        operation: Operation,
        send: Callable[[int], Generator[Wait, Any, bool]],
        first: int,
        asked: int,
        awaited: Collection[int],
    ) -> Process:
        """Send the messages of an operation; if an awaited worker crashes, again from the beginning.

        Messages that are under way at a crash still arrive.

        Args:
            operation: the operation.
            send: sends its messages, unless a time comes before that, ns; ends with True if all have arrived by then.
            first, asked: when it may begin, and when all members have asked for it, ns.
            awaited: workers who must be available.
        """
        for _ in range(MOST_TRIES):
            yield max(0, first - self.now)
            begin, until = self.now, NEVER
            if self._faults is not None and awaited:
                begin = max(self.back(worker, begin) for worker in awaited)
                yield begin - self.now
                until = min(self._faults.away("worker", worker, begin)[0] for worker in awaited)
                if until < begin:  # another one has crashed in the meantime
                    continue
            sending = self.process(send(until))
            yield sending if until >= NEVER else self.env.any_of([sending, self.env.after(until - begin)])
            if sending.triggered and sending.value:
                break
        else:
            raise FredError(f"`cluster.faults`: a worker crashes in each of {MOST_TRIES:,} attempts at an average")
        yield max(0, asked - self.now)
        operation.cost = operation.cost._replace(nanoseconds=self.now - asked, moving=self.now - max(begin, asked))
        operation.over.succeed()

    def _send_parts(
        self, links: FairLinks, stages: patterns.Stages, size: int, parts: list[Part], until: int
    ) -> Generator[Wait, Any, bool]:
        """Send parts of a model one after the other; return False if a crash at `until` (ns) ends this."""
        for part in parts:
            yield max(0, part.ready - self.now)
            yield from links.collect(stages, size, part.share, until)
        return self.now <= until


def _ends(ready: list[int], lasts: int) -> list[int]:
    """Return when each of successive operations ends, ns, if each `lasts` so long and begins once its part is ready."""
    ends, end = [], 0
    for each in ready:
        end = max(end, each) + lasts
        ends.append(end)
    return ends
