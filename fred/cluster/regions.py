"""Networks of regions: bandwidth and latency between each pair of regions, and collectives over them.

Point-to-point messages follow HALoS's simulator [Kim et al. 2025, arXiv:2506.04531]; a ring is as fast as its slowest link.
Between many regions a stream for each pair of workers is faster than a ring [hivemind's averaging; Ryabinin et al. 2021,
arXiv:2103.03239]: each stream carries a small part of the model.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fred.base.errors import FredError
from fred.cluster.bandwidths import Connection
from fred.cluster.collectives import LIBRARIES, Effort, one_way
from fred.components.component import Component, Natural, Time
from fred.components.input_path import InputPath
from fred.tables.quantities import BANDWIDTHS, bandwidth_in, seconds_in
from fred.tables.small_tables import read_square

_NAMES = {
    "bandwidth": ("bandwidth", "throughput", "rate", "speed", "bw"),
    "latency": ("latency", "delay", "one_way", "one_way_delay"),
}
_LEAST_BANDWIDTH, _MOST_LATENCY = 1000.0, 10.0  # bytes/s, s: beyond them a table has other units, and does not name them
MOST_REGIONS = 12  # the search for the best ring is exponential in their number
PAIRED = ("all-to-all", "nccl", "gloo")  # collectives for which each pair of workers has a connection of its own
_Widths = tuple[tuple[Annotated[float, Field(gt=0)], ...], ...]
_Seconds = tuple[tuple[Time, ...], ...]


class Regions(Component):
    """The regions of workers and servers, with bandwidth (bytes/s) and latency (s) from each region (row) to each (column).

    The diagonal applies between workers of one region. Each worker has its own link to each region, so messages of
    different workers do not slow each other down; with `all-to-all`, `nccl` or `gloo` it has a connection to each other worker,
    and the table holds for each. Both tables may be files: rows of numbers, or a row for each pair, such as
    `from,to,bandwidth_mbps,latency_ms`. All allreduces use the `collective` given here, whatever a protocol asks for.

    Example: two regions with a narrow link between them. A ring of four workers takes six messages of a quarter of the
    model at the speed of that link:

        >>> from fred.cluster.regions import Regions
        >>> regions = Regions(bandwidth=[[1e8, 1e6], [1e6, 1e8]])
        >>> regions.of_workers(4), regions.seconds([2, 2], 1_000_000)
        ((0, 0, 1, 1), 1.5)

    With a stream between each two workers, two messages of a quarter one after the other:

        >>> Regions(bandwidth=[[1e8, 1e6], [1e6, 1e8]], collective="all-to-all").seconds([2, 2], 1_000_000)
        0.5
    """

    bandwidth: _Widths = Field(
        description="bandwidth from each region to each, bytes/s; or a file of it", examples=[[[1.0e8, 1.0e6], [1.0e6, 1.0e8]]]
    )
    latency: _Seconds | None = Field(
        default=None, description="latency from each region to each, s; or a file of it; absent: the network's"
    )
    workers: tuple[Natural, ...] = Field(
        default=(), description="region of each worker; absent: equal numbers in each, in order"
    )
    servers: Natural | tuple[Natural, ...] = Field(default=0, description="region of all servers, or of each")
    collective: Literal["ring", "hierarchical", "all-to-all", "nccl", "gloo"] = Field(
        default="ring",
        description="how to allreduce: in the ring whose slowest link is fastest; trees in regions and a ring of them; "
        "`all-to-all`: each worker adds up a part that all others send to it, and sends the sum to all (hivemind); or as a "
        "library, whose ring passes the regions in their order",
    )

    @field_validator("bandwidth", "latency", mode="before")
    @classmethod
    def _read_tables(cls, table: Any, info: ValidationInfo) -> Any:
        return (
            _read_table(InputPath.validate(table, info).located(), str(info.field_name))
            if isinstance(table, str | Path)
            else table
        )

    @model_validator(mode="after")
    def _square(self) -> "Regions":
        regions = len(self.bandwidth)
        if not 1 <= regions <= MOST_REGIONS:
            raise ValueError(f"there are {regions} regions; expected 1 to {MOST_REGIONS}")
        for name, table in (("bandwidth", self.bandwidth), ("latency", self.latency or ())):
            if table and [len(row) for row in table] != [regions] * regions:
                raise ValueError(
                    f"`{name}` has rows of {sorted({len(row) for row in table})} numbers; expected {regions} of {regions}"
                )
        servers = self.servers if isinstance(self.servers, tuple) else (self.servers,)
        for name, region in (("workers", max(self.workers, default=0)), ("servers", max(servers, default=0))):
            if region >= regions:
                raise ValueError(f"`{name}` names region {region}; expected 0 to {regions - 1}")
        return self

    def of_workers(self, workers: int) -> tuple[int, ...]:
        """Return the region of each of the `workers`. Raises ValueError if regions are given for another number of workers."""
        if self.workers and len(self.workers) != workers:
            raise ValueError(f"`network.regions.workers` gives the regions of {len(self.workers)} workers; expected {workers}")
        return self.workers or tuple(worker * len(self.bandwidth) // workers for worker in range(workers))

    def of_servers(self, servers: int) -> tuple[int, ...]:
        """Return the region of each of the `servers`. Raises ValueError if regions are given for another number of servers."""
        if isinstance(self.servers, int):
            return (self.servers,) * servers
        if len(self.servers) != servers:
            raise ValueError(f"`network.regions.servers` gives the regions of {len(self.servers)} servers; expected {servers}")
        return self.servers

    def seconds(self, members: Sequence[int], size: int, latency: float = 0.0) -> float:
        """Return the duration of an allreduce, s.

        Args:
            members: number of workers in each region [regions].
            size: bytes.
            latency: mean latency of a message, s, if there is no table.
        """
        if self.collective != "hierarchical":
            return self._flat_seconds("allreduce", members, size, latency)
        occupied = tuple(region for region, number in enumerate(members) if number)
        tree_seconds = max(one_way(members[region]).rounds * self.link(region, region, size, latency) for region in occupied)
        slowest_message, _ = self.best_ring(occupied, size / len(occupied), latency)
        return 2 * tree_seconds + 2 * (len(occupied) - 1) * slowest_message  # trees: reduce, and later broadcast

    def allgather_seconds(self, members: Sequence[int], size: int, latency: float = 0.0) -> float:
        """Return the duration of an allgather, s: of `hierarchical`, too, in a ring.

        Args:
            members: number of workers in each region [regions].
            size: bytes of each member.
            latency: mean latency of a message, s, if there is no table.
        """
        return self._flat_seconds("allgather", members, size, latency)

    def _flat_seconds(
        self, operation: Literal["allreduce", "allgather"], members: Sequence[int], size: int, latency: float
    ) -> float:
        """Return the duration of an operation without leaders of regions, s: the slowest sender and receiver decide."""
        workers = sum(members)
        part = size / workers if operation == "allreduce" else float(size)  # bytes of a message
        pairs = self._pairs(members, part, latency)
        if self.collective in LIBRARIES:
            effort = self.library_effort(operation, workers)
            connections = [Connection(self._latency(*pair, latency), self.bandwidth[pair[0]][pair[1]]) for pair in pairs]
            return max(effort.seconds(size, connection) for connection in connections)
        passes = 2 if operation == "allreduce" else 1  # reduce-scatter and allgather, or allgather alone
        messages = passes * (1 if self.collective == "all-to-all" else workers - 1)  # one after the other
        return messages * max((self.link(*pair, part, latency) for pair in pairs), default=0.0)

    def library_effort(self, operation: Literal["allreduce", "allgather"], members: int) -> Effort:
        """Return the cost of an operation of the library named by `collective`, relative to a model or a member's message.

        Args:
            operation: the operation.
            members: number of workers.
        """
        effort = LIBRARIES[self.collective][operation](members)
        return effort if operation == "allreduce" else effort.times(members)

    def _pairs(self, members: Sequence[int], part: float, latency: float) -> Counter[tuple[int, int]]:
        """Return the regions of senders and receivers of messages at one time, each with the number of its pairs of workers."""
        occupied = tuple(region for region, number in enumerate(members) if number)
        if self.collective == "all-to-all":
            # A worker does not send to itself.
            counts = {(a, b): members[a] * (members[b] - (a == b)) for a in occupied for b in occupied}
            return Counter({pair: count for pair, count in counts.items() if count})
        order = occupied if self.collective in LIBRARIES else self.best_ring(occupied, part, latency)[1]
        # The ring passes all workers of a region before it goes on to the next region.
        pairs = Counter({(region, region): members[region] - 1 for region in occupied if members[region] > 1})
        pairs.update(zip(order, (*order[1:], order[0]), strict=True))
        return pairs

    def mean_traffic(self, members: Sequence[int]) -> tuple[float, float]:
        """Return the messages, and models, that each member of an allreduce sends on average."""
        workers, leaders = sum(members), sum(1 for count in members if count)  # each region with workers has a leader
        if self.collective in LIBRARIES:
            effort = self.library_effort("allreduce", workers)
            return effort.messages / workers, effort.sent / workers
        if self.collective != "hierarchical":  # in a ring or all to all, the same messages of 1 / workers of a model
            return 2.0 * (workers - 1), 2 * (workers - 1) / workers
        tree_messages = 2 * (workers - leaders)  # of whole models, up to the leaders and down
        return (tree_messages + 2 * leaders * (leaders - 1)) / workers, (tree_messages + 2 * (leaders - 1)) / workers

    def shares(self, members: Sequence[int], part: float, latency: float = 0.0) -> list[list[float]]:
        """Return the share of an allreduce's bytes that goes from each region to each: [regions, regions], of sum 1.

        Args:
            members: number of workers in each region [regions], two or more in all.
            part: size of a message, bytes, which decides on the best ring.
            latency: mean latency of a message, s, if there is no table.

        >>> Regions(bandwidth=[[1e8, 1e6], [1e6, 1e8]]).shares([2, 2], 1e6)
        [[0.25, 0.25], [0.25, 0.25]]
        """
        occupied = [region for region, number in enumerate(members) if number]
        sent = [[0.0] * len(members) for _ in members]  # models, or any other unit: only their ratios count
        if self.collective != "hierarchical":
            for (sender, receiver), pair_count in self._pairs(members, part, latency).items():
                sent[sender][receiver] = float(pair_count)  # all pairs send the same
        else:
            for region in occupied:  # each tree sends up and down
                sent[region][region] = 2.0 * (members[region] - 1)
            _, ring = self.best_ring(tuple(occupied), part, latency)
            if len(occupied) > 1:
                for sender, receiver in zip(ring, (*ring[1:], ring[0]), strict=True):
                    sent[sender][receiver] += 2 * (len(occupied) - 1) / len(occupied)
        total = sum(map(sum, sent))
        return [[bytes_sent / total for bytes_sent in row] for row in sent]

    def link(self, sender: int, receiver: int, size: float, latency: float = 0.0) -> float:
        """Return the duration of a message from one region to another, s.

        Args:
            sender, receiver: numbers of the regions.
            size: bytes.
            latency: mean latency of a message, s, if there is no table.
        """
        return self._latency(sender, receiver, latency) + size / self.bandwidth[sender][receiver]

    def _latency(self, sender: int, receiver: int, latency: float) -> float:
        return self.latency[sender][receiver] if self.latency else latency

    def mean_latency(self, members: Sequence[int]) -> float:
        """Return the mean latency of a message from each worker to each other one, s; 0 without a table, or for one worker.

        Args:
            members: region of each worker.

        >>> Regions(bandwidth=[[1e8, 1e6], [1e6, 1e8]], latency=[[0.0, 0.75], [0.75, 0.0]]).mean_latency([0, 0, 1])
        0.5
        """
        if self.latency is None or len(members) < 2:
            return 0.0
        counts = Counter(members)  # workers in each region
        pair_counts = {(a, b): counts[a] * (counts[b] - (a == b)) for a in counts for b in counts}
        total = sum(pair_count * self.latency[a][b] for (a, b), pair_count in pair_counts.items())
        return total / (len(members) * (len(members) - 1))

    def best_ring(self, regions: tuple[int, ...], part: float, latency: float = 0.0) -> tuple[float, tuple[int, ...]]:
        """Return the duration of the slowest message in the best ring of these regions, s (0 for one region), and its order.

        Args:
            regions: numbers of the regions.
            part: size of each message, bytes.
            latency: mean latency of a message, s, if there is no table.
        """
        if len(regions) == 1:
            return 0.0, regions
        slowest, order = _best_ring(tuple(tuple(self.link(a, b, part, latency) for b in regions) for a in regions))
        return slowest, tuple(regions[row] for row in order)


@lru_cache(maxsize=4096)
def _best_ring(link_seconds: tuple[tuple[float, ...], ...]) -> tuple[float, tuple[int, ...]]:
    """Return the smallest bottleneck of a ring through all rows, and the ring, by dynamic programming.

    States are the rows that a path from row 0 has visited, as a number with a bit for each, and the last one.

    >>> _best_ring(((0, 1, 9), (9, 0, 2), (3, 9, 0)))
    (3, (0, 1, 2))
    """
    number = len(link_seconds)
    least: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {(1, 0): (0.0, (0,))}
    for visited_bits in range(1, 1 << number, 2):  # odd numbers: every path begins at row 0
        for last in range(number):
            if (visited_bits, last) not in least:
                continue
            bottleneck, path = least[visited_bits, last]
            for next_row in range(1, number):
                if not visited_bits >> next_row & 1:
                    key = visited_bits | 1 << next_row, next_row
                    slowest = max(bottleneck, link_seconds[last][next_row])
                    if key not in least or slowest < least[key][0]:
                        least[key] = slowest, (*path, next_row)
    all_bits = (1 << number) - 1
    paths = [least[all_bits, last] for last in range(1, number)]
    return min((max(bottleneck, link_seconds[path[-1]][0]), path) for bottleneck, path in paths)


def _read_table(path: Path, name: str) -> list[list[float]]:
    """Return a table of bandwidths, bytes/s, or latencies, s. Raises ValueError."""
    is_bandwidth = name == "bandwidth"
    factor, units = (bandwidth_in, BANDWIDTHS) if is_bandwidth else (seconds_in, {})
    try:
        rows = read_square(path, _NAMES[name], factor, units)
    except FredError as error:
        raise ValueError(str(error)) from None
    example, unit = ("5 Gbit/s", "bytes/s") if is_bandwidth else ("35 ms", "s")
    for region, row in enumerate(rows):
        if not is_bandwidth and region < len(row) and math.isnan(row[region]):
            row[region] = 0.0  # tables of latencies often leave out the diagonal
    for i, row in enumerate(rows):
        if missing := [j for j, value in enumerate(row) if math.isnan(value)]:
            raise ValueError(
                f"{path}: no {name} from region {i} to region {missing[0]}; expected one between each two, in {unit}"
            )
    between_regions = [value for i, row in enumerate(rows) for j, value in enumerate(row) if i != j]
    if between_regions and (max(between_regions) < _LEAST_BANDWIDTH if is_bandwidth else min(between_regions) >= _MOST_LATENCY):
        raise ValueError(
            f"{path}: a {name} of {between_regions[0]:g} {unit} is unlikely: write units in the cells, such as {example}"
        )
    return rows
