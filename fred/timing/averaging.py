"""Collective operations: workers sum gradients or average models, without a server.

Where links queue messages, an operation takes the closed form of its algorithm, and disturbs nothing else. With
`sharing: fair` it is made of messages, which share links with everything else.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, get_args

import simpy

from fred.base.errors import FredError, quoted
from fred.cluster import patterns
from fred.cluster.collectives import Collective
from fred.cluster.collectives import Operation as Kind
from fred.cluster.durations import NEVER
from fred.cluster.faults import MOST_TRIES
from fred.cluster.network import Cost, Network
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
        computed_at: time before which it is not computed, ns.
        share: share of it that is not sent yet.
    """

    computed_at: int
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
            return max(operations, key=lambda operation: operation.cost.nanoseconds)
        # Messages that share links have no known times before they have arrived.
        joint = Operation(self.env.all_of([operation.over for operation in operations]), operations[0].cost)

        def set_cost(_: simpy.Event) -> None:
            joint.cost = max((operation.cost for operation in operations), key=lambda cost: cost.nanoseconds)

        assert joint.over.callbacks is not None
        joint.over.callbacks.append(set_cost)
        return joint

    def _join_operation(self, worker: int, operation: Operation) -> None:
        """Mark the next row, of `worker`, as part of an operation that has begun."""
        now, row = self.now, len(self.record)

        def record_times() -> None:
            cost = operation.cost
            if cost.nanoseconds and not self.record.full:
                end = now + cost.nanoseconds
                self.record.record_collective(end - cost.moving, end, worker, row)

        if isinstance(self.links, FairLinks):
            self.later(operation.over, record_times)
        else:
            record_times()

    def _collect(
        self,
        kind: Kind,
        size: int,
        members: int | Sequence[int],
        begin: int | None,
        awaited: Collection[int],
        algorithm: Collective | None = None,
    ) -> Operation:
        """Begin an operation of this kind on `size` bytes, divided into the network's buckets, one after the other."""
        network, workers = self.network or Network(), range(members) if isinstance(members, int) else members
        if algorithm is not None and algorithm not in get_args(Collective):
            raise FredError(f"allreduce by {quoted(algorithm)}: expected one of {', '.join(get_args(Collective))}")
        if not isinstance(self.links, FairLinks):
            self.cluster.check_alike("collectives need links alike, or `network: {sharing: fair}`")
        request_time, buckets = self.now if begin is None else begin, network.bucket_count(size)
        spread, bucket_bytes = self._spread(network, workers), size // buckets
        if kind == "allgather":
            cost = network.allgather(spread, bucket_bytes)
        else:
            cost = network.allreduce(spread, bucket_bytes, algorithm)
        if buckets > 1:  # the time stays that of one bucket
            cost = cost._replace(bytes=cost.bytes * buckets, messages=cost.messages * buckets)
        computed_at = self._bucket_times(buckets, workers, request_time)
        if isinstance(self.links, FairLinks):
            stages = patterns.stages(network, kind, self._groups(network, workers), algorithm, bucket_bytes)
            send = partial(self._send_parts, self.links, stages, bucket_bytes)
            return self._as_messages(send, cost, computed_at, request_time, awaited)
        return self._in_closed_form(cost, workers, computed_at, request_time, awaited)

    def _as_messages(
        self,
        send: Callable[[list[Part], int], Generator[Wait, Any, bool]],
        cost: Cost,
        computed_at: list[int],
        request_time: int,
        awaited: Collection[int],
    ) -> Operation:
        """Begin an operation of messages; `cost` is that of each bucket on idle links, and `send` sends given parts."""
        operation = Operation(self.env.event(), cost._replace(nanoseconds=0, moving=0))
        parts = list(self._parts(computed_at, cost.nanoseconds))
        earliest_begin = max([self.now, *(part.computed_at for part in parts[:1])])  # now, if no part is left to send
        self.process(self._send_all(operation, partial(send, parts), earliest_begin, request_time, awaited))
        return operation

    def _in_closed_form(
        self, cost: Cost, workers: Sequence[int], computed_at: list[int], request_time: int, awaited: Collection[int]
    ) -> Operation:
        """Begin an operation that takes the closed form of its algorithm; each bucket takes the time of `cost`."""
        duration = max(0, _ends(computed_at, cost.nanoseconds)[-1] - request_time)  # the part after the request
        cost = self._delayed_cost(cost._replace(nanoseconds=duration, moving=duration), workers, request_time, awaited)
        return Operation(self.env.after(request_time + cost.nanoseconds - self.now), cost)

    def _spread(self, network: Network, workers: Sequence[int]) -> int | Collection[int]:
        """Return the number of members of a collective operation, by node or region if the network has any."""
        if network.regions is not None:
            counts = Counter(self._region_of[worker] for worker in workers)
            return [counts[region] for region in range(len(network.regions.bandwidth))]
        return Counter(self.node_of[list(workers)].tolist()).values() if network.two_levels else len(workers)

    def _groups(self, network: Network, workers: Sequence[int]) -> list[list[int]]:
        """Return the members of a collective operation, by node or region if the network has any."""
        if network.regions is not None:
            regions = range(len(network.regions.bandwidth))
            return [[worker for worker in workers if self._region_of[worker] == region] for region in regions]
        if not network.two_levels:
            return [list(workers)]
        groups: dict[int, list[int]] = {}
        for worker in workers:
            groups.setdefault(int(self.node_of[worker]), []).append(worker)
        return list(groups.values())

    def _bucket_times(self, buckets: int, workers: Sequence[int], request_time: int) -> list[int]:
        """Return when each bucket has been computed by the backward passes of all `workers`, ns.

        They are sent one after the other, each once it is ready [Li et al. 2020, arXiv:2006.15704]. A backward pass computes
        all buckets in equal times. The gradient of a worker that still computes at the request is not in the operation.
        """
        if buckets == 1:
            return [request_time]
        latest = [self.record.latest[worker] for worker in workers]
        computed = [
            (gradient.end, _BACKWARD * (gradient.end - gradient.begin)) for gradient in latest if gradient.end <= request_time
        ]
        return [
            max((round(end - backward * (1 - bucket / buckets)) for end, backward in computed), default=request_time)
            for bucket in range(1, buckets + 1)
        ]

    def _parts(self, computed_at: list[int], duration: int) -> Iterator[Part]:
        """Yield the buckets that are not over by now if the links are idle, and each takes `duration`, ns."""
        now = self.now
        for begin, end in zip(computed_at, _ends(computed_at, duration), strict=True):
            if end > now or duration == 0:
                elapsed = max(0, now - (end - duration))
                yield Part(max(begin, now), 1 - elapsed / duration if duration else 1.0)

    def _delayed_cost(self, cost: Cost, workers: Sequence[int], request_time: int, awaited: Collection[int]) -> Cost:
        """Return the cost of a collective operation, including slow links and offline workers."""
        if self.links is None:
            return cost
        duration_from = partial(self.links.collective_time, workers, work=cost.nanoseconds)  # by when it begins, ns
        if self._faults is not None and awaited:
            begin, end = self._faults.undisturbed(awaited, request_time, duration_from)
        else:
            begin, end = request_time, request_time + duration_from(request_time)
        return cost._replace(nanoseconds=end - request_time, moving=end - begin)

    def _send_all(
        self,
        operation: Operation,
        send: Callable[[int], Generator[Wait, Any, bool]],
        earliest_begin: int,
        request_time: int,
        awaited: Collection[int],
    ) -> Process:
        """Send the messages of an operation; if an awaited worker crashes, again from the beginning.

        Messages that are under way at a crash still arrive.

        Args:
            operation: the operation.
            send: sends its messages, unless a time comes before that, ns; ends with True if all have arrived by then.
            earliest_begin, request_time: when it may begin, and when all members have asked for it, ns.
            awaited: workers who must be available.
        """
        for _ in range(MOST_TRIES):
            yield max(0, earliest_begin - self.now)
            begin, crash = self.now, NEVER  # `crash`: the next one of an awaited worker
            if self._faults is not None and awaited:
                begin = max(self.back(worker, begin) for worker in awaited)
                yield begin - self.now
                crash = min(self._faults.offline_interval("worker", worker, begin)[0] for worker in awaited)
                if crash < begin:  # another one has crashed in the meantime
                    continue
            sending = self.process(send(crash))
            yield sending if crash >= NEVER else self.env.any_of([sending, self.env.after(crash - begin)])
            if sending.triggered and sending.value:  # all messages have arrived, no later than the crash
                break
        else:
            raise FredError(f"`cluster.faults`: a worker crashes in each of {MOST_TRIES:,} attempts at an average")
        yield max(0, request_time - self.now)
        operation.cost = operation.cost._replace(
            nanoseconds=self.now - request_time, moving=self.now - max(begin, request_time)
        )
        operation.over.succeed()

    def _send_parts(
        self, links: FairLinks, stages: patterns.Stages, size: int, parts: list[Part], until: int
    ) -> Generator[Wait, Any, bool]:
        """Send parts of a model one after the other; return False if a crash at `until` (ns) ends this."""
        for part in parts:
            yield max(0, part.computed_at - self.now)
            yield from links.collect(stages, size, part.share, until)
        return self.now <= until


def _ends(begins: list[int], duration: int) -> list[int]:
    """Return when each of successive operations ends, ns, if each takes `duration` and begins once its part is ready."""
    ends, end = [], 0
    for begin in begins:
        end = max(end, begin) + duration
        ends.append(end)
    return ends
