"""The simulated machines: the number of workers, the speed of each, and their links to the servers."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fred.base.errors import FredError
from fred.cluster.bandwidths import PRESETS, Direction
from fred.cluster.contention import Contention, Load, NodeOf, start_regime
from fred.cluster.devices import Devices
from fred.cluster.durations import check_median
from fred.cluster.failures import Failures
from fred.cluster.faults import Fault, FaultProcess
from fred.cluster.latency import AnyLatency, Constant, Latency
from fred.cluster.network import Network
from fred.cluster.prices import Place, Prices
from fred.components.component import NANOSECONDS, Component, Count, Positive, Rule, check_rules
from fred.components.one_of import OneOf
from fred.traces.trace import spread_workers

T = TypeVar("T")
MOST_WORKERS = 10_000_000
MOST_SERVERS = 10_000

_LAWS: dict[str, Callable[[int], float]] = {"1/i": float, "1/sqrt(i)": math.sqrt}  # 1/speed of worker i, counted from 1
Speeds = Literal["1/i", "1/sqrt(i)"] | tuple[Positive, ...]


class Group(Component):
    """A group of workers of one kind."""

    workers: Count = Field(examples=[4])
    speed: Positive = Field(default=1.0, description="factor that divides compute times")
    compute: AnyLatency | None = Field(
        default=None, description="compute time of this group's gradients; absent: the cluster's"
    )


def _allow_presets(schema: dict[str, Any]) -> None:
    schema["anyOf"].insert(0, {"enum": list(PRESETS)})


class Cluster(Component):
    """The workers with their compute times, and the network between workers and servers.

    Example: two fast workers and a slow one on two machines, of which the second is busy from 10 s on:
        >>> import fred
        >>> cluster = fred.Cluster(
        ...     groups=[{"workers": 2}, {"workers": 1, "speed": 0.5}],
        ...     compute={"name": "constant", "seconds": 0.1},
        ...     nodes=[2, 1],
        ...     contention=[{"name": "job", "nodes": [1], "slowdown": 4.0, "begin": 10.0}],
        ... )
        >>> cluster.size, cluster.worker_speeds(), cluster.node_of.tolist()
        (3, [1.0, 1.0, 0.5], [0, 0, 1])
        >>> round(cluster.gradients_per_second, 3)
        25.0
    """

    workers: Count | None = Field(default=None, description="number of workers; not needed with `groups`", examples=[4])
    compute: AnyLatency = Field(default=Constant(seconds=1.0), description="time of one gradient at speed 1, s")
    speeds: Speeds = Field(
        default=(),
        description="speed of each worker: a list, or `1/i` or `1/sqrt(i)` of its number i from 1; absent: all 1",
        examples=["1/i"],
    )
    groups: tuple[Group, ...] = Field(default=(), description="groups of workers, in the order of the workers' numbers")
    devices: Devices | None = Field(
        default=None, description="speeds and bandwidths of workers, from a table or distributions", examples=[{"kinds": [{}]}]
    )
    servers: int = Field(
        default=1, ge=1, le=MOST_SERVERS, description="parameter servers, which hold equal shards of the model"
    )
    nodes: Count | tuple[Count, ...] = Field(
        default=1,
        description="number of machines, over which the workers are spread evenly, in order; or the number of workers on each",
        examples=[1],
    )
    contention: tuple[Annotated[Contention, OneOf("contention")], ...] = Field(default=(), description="temporary slowdowns")
    network: Network | None = Field(
        default=None,
        description="links between workers and servers, or the name of a preset; absent: messages take no time",
        json_schema_extra=_allow_presets,
    )
    faults: tuple[Annotated[Fault, OneOf("fault")], ...] = Field(
        default=(), description="crashes, offline times and lost messages"
    )
    failures: Failures | None = Field(
        default=None, description="failures that stop the whole job, which goes back to its last checkpoint; absent: none"
    )
    prices: Prices | None = Field(
        default=None, description="prices and power of machines, price of traffic; absent: runs have no cost"
    )

    @model_serializer(mode="wrap")
    def _leave_absent_out(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave absent failures and prices out, so that files of clusters without them do not mention them."""
        absent_parts = [name for name in ("failures", "prices") if getattr(self, name) is None]
        return {name: option for name, option in serialize(self).items() if name not in absent_parts}

    @model_validator(mode="after")
    def _parts_fit(self) -> "Cluster":
        check_rules(self, _RULES)
        # These calls raise ValueError for parts that do not fit; their results are not needed. Seed 0 stands for any.
        spread_workers(self.nodes, self.size)
        regions = self.network.regions if self.network else None
        if regions is not None:
            regions.of_workers(self.size)
            regions.of_servers(self.servers)
        if self.devices is not None and self.devices.has_bandwidths:
            for way in ("upload", "download"):
                self.devices.bandwidths(way, self.size)
        with _naming("faults"):
            self.fault_processes(0)
        with _naming("failures"):
            if self.failures is not None:
                self.failures.check(self.size, self.node_of, self.region_of)
        self._check_loads()
        self._check_latencies()
        with _naming("prices"):
            if self.prices is not None:
                region_count = len(regions.bandwidth) if regions is not None else 0
                self.prices.check(self.workers_place, self.servers_place, len(self.groups), region_count)
        return self

    def _check_loads(self) -> None:
        """Start all regimes once, which raises ValueError for options that do not fit this cluster."""
        try:
            self.loads(0)
            self.link_loads("workers", 0)
            self.link_loads("servers", 0)
        except OverflowError as error:
            raise ValueError("`contention`: a time is too long; times are in seconds") from error

    def check_alike(self, operation: str) -> None:
        """Raise FredError if links have bandwidths of their own, which closed forms do not know.

        Args:
            operation: clause that names the operation with a closed form.
        """
        if self.devices is not None and self.devices.has_bandwidths:
            raise FredError(f"`devices` have bandwidths of their own, and {operation}: leave the bandwidths out")

    def bandwidths(self, way: Direction) -> list[float | None]:
        """Return the bandwidth of each worker's link in one direction, bytes/s; None: unlimited.

        Args:
            way: `upload` (from workers) or `download` (to workers).
        """
        network = self.network
        if network is None:
            return [None] * self.size
        default = network.effective.directions[way]  # with the network's efficiency
        if self.devices is None:
            return [default] * self.size
        bandwidths = self.devices.bandwidths(way, self.size)
        return [default if bandwidth is None else network.efficiency * bandwidth for bandwidth in bandwidths]

    def _check_latencies(self) -> None:
        """Check each latency once, however many workers share it."""
        latencies = self.latencies()
        pairs = zip(latencies, self.worker_speeds(), strict=True)
        for latency, speed in {(id(latency), speed): (latency, speed) for latency, speed in pairs}.values():
            check_median(latency, speed)
        worker_counts = Counter(map(id, latencies))
        for latency in {id(latency): latency for latency in latencies}.values():
            latency.check(worker_counts[id(latency)])
        for message_latency in self.network.latencies() if self.network else ():
            message_latency.check(self.size)

    @cached_property
    def size(self) -> int:
        """Return the number of workers."""
        return self.workers or sum(group.workers for group in self.groups)

    @property
    def node_of(self) -> NodeOf:
        """Return the node of each worker, an array [workers]."""
        return spread_workers(self.nodes, self.size)

    @property
    def workers_place(self) -> Place:
        """Return the group and the region of each worker, for prices."""
        regions = self.network.regions if self.network else None
        sizes = [group.workers for group in self.groups] or [self.size]
        return Place(
            np.repeat(np.arange(len(sizes)), sizes), np.array(regions.of_workers(self.size) if regions else [0] * self.size)
        )

    @property
    def servers_place(self) -> Place:
        """Return the region of each server, for prices; servers have no groups."""
        regions = self.network.regions if self.network else None
        return Place(
            np.zeros(self.servers, np.int64), np.array(regions.of_servers(self.servers) if regions else [0] * self.servers)
        )

    @property
    def region_of(self) -> tuple[int, ...]:
        """Return the region of each worker; empty if there are no regions."""
        return self.network.regions.of_workers(self.size) if self.network and self.network.regions else ()

    def latencies(self) -> list[Latency]:
        """Return the compute time of each worker at speed 1: [workers]."""
        if not self.groups:
            return [self.compute] * self.size
        return [group.compute or self.compute for group in self.groups for _ in range(group.workers)]

    def doubts(self) -> tuple[str, ...]:
        """Return warnings about the workers' compute times, as sentences, such as waiting in a trace."""
        return tuple(dict.fromkeys(doubt for latency in self.latencies() for doubt in latency.doubts()))

    def distributions(self) -> list[Latency]:
        """Return the distribution of each worker's compute time at speed 1: [workers]; under a trace, that of its own times."""
        ranks: dict[int, Iterator[int]] = defaultdict(count)  # a worker's index among those with the same latency
        return [latency.of_member(next(ranks[id(latency)])) for latency in self.latencies()]

    def of_distributions(self, compute: Callable[[Latency], T]) -> list[T]:
        """Return what a function gives for each worker's distribution: [workers].

        Args:
            compute: the function, which is called once for workers with the same distribution.
        """
        distributions = self.distributions()
        distinct = {id(latency): latency for latency in distributions}
        results = {identity: compute(latency) for identity, latency in distinct.items()}
        return [results[id(latency)] for latency in distributions]

    def worker_speeds(self) -> list[float]:
        """Return the speed of each worker: [workers]."""
        if self.devices is not None:
            return self.devices.speeds(self.size)
        if self.groups:
            return [group.speed for group in self.groups for _ in range(group.workers)]
        if isinstance(self.speeds, str):
            return [1 / _LAWS[self.speeds](i) for i in range(1, self.size + 1)]
        return list(self.speeds) or [1.0] * self.size

    def worker_rates(self) -> list[float]:
        """Return each worker's gradients per second, from the mean compute time, or the median if the mean is infinite:
        [workers].

        This ignores contention. For example, with a compute time of 0.5 s and two speeds:

            >>> import fred
            >>> fred.Cluster(workers=2, compute={"name": "constant", "seconds": 0.5}, speeds=[1.0, 0.25]).worker_rates()
            [2.0, 0.5]
        """
        return self._rates(message_seconds=0.0)

    @cached_property
    def gradients_per_second(self) -> float:
        """Return the approximate gradients per second of virtual time of all workers, if they wait for messages only."""
        network = self.network
        message_seconds = 0.0 if network is None else sum(map(_typical_seconds, (network.latency, network.pull_latency)))
        return sum(self._rates(message_seconds))

    def _rates(self, message_seconds: float) -> list[float]:
        """Return each worker's gradients per second if it waits this long, s, for the messages of each gradient."""
        pairs = zip(self.of_distributions(_typical_seconds), self.worker_speeds(), strict=True)
        return [1 / max(seconds / speed + message_seconds, 1 / NANOSECONDS) for seconds, speed in pairs]

    def loads(self, seed: int) -> list[Load]:
        """Start every contention regime, in the order of `contention`; `seed` is the run's."""
        regimes = enumerate(self.contention)
        return [start_regime(regime, seed, f"contention {number}", self.node_of) for number, regime in regimes]

    def fault_processes(self, seed: int) -> list[FaultProcess]:
        """Start every fault process, in the order of `faults`; `seed` is the run's."""
        faults = enumerate(self.faults)
        return [fault.start(seed, f"fault {number}", self.size, self.servers) for number, fault in faults]

    def link_loads(self, machines: Literal["workers", "servers"], seed: int) -> list[Load]:
        """Start every regime on the links of these machines; `seed` is the run's."""
        contention = self.network.contention if self.network else ()
        regimes = [(number, slow.regime) for number, slow in enumerate(contention) if slow.of == machines]
        return [start_regime(regime, seed, f"links {number}", self._link_nodes(machines)) for number, regime in regimes]

    def _link_nodes(self, machines: Literal["workers", "servers"]) -> NodeOf:
        """Return the node of each machine's link; every server is a node of its own."""
        return self.node_of if machines == "workers" else np.arange(self.servers)


def _typical_seconds(latency: Latency | None) -> float:
    """Return the mean duration, s; without a finite mean, the median."""
    if latency is None:
        return 0.0
    try:
        mean = latency.mean
    except Exception:  # in a user's class, or too large to compute
        mean = math.inf
    return mean if mean < math.inf else float(latency.sample(np.array([0.5]))[0])


@contextmanager
def _naming(part: str) -> Iterator[None]:
    """Put the name of a part before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"`{part}`: {error}") from error


def _wrong_group_total(cluster: Cluster, workers: int) -> int:
    """Return the number of workers in groups if it is not that of all workers; else 0."""
    total = sum(group.workers for group in cluster.groups)
    return total if cluster.groups and total != workers else 0


def _wrong_speed_count(cluster: Cluster, values: Any) -> int:
    """Return the number of speeds if it is not that of the workers; else 0, also for a law, such as `1/i`."""
    return len(values) if isinstance(values, tuple) and len(values) != cluster.size else 0


def _speed_options(cluster: Cluster, _: Any) -> str:
    """Return the options that give the workers' speeds, if there are several."""
    names = [f"`{name}`" for name in ("groups", "speeds", "devices") if getattr(cluster, name)]
    return ", ".join(names) if len(names) > 1 else ""


def _unknown_worker(cluster: Cluster, routes: Any) -> int:
    """Return the largest number of a worker in routes if there is no such worker; else 0."""
    groups = [group for route in routes for group in route.between if not isinstance(group, str)]
    number = max((worker for group in groups for worker in group), default=0)
    return number if number >= cluster.size else 0


def _unknown_server(cluster: Cluster, entries: Any) -> int:
    """Return the largest number of a server in the network's entries if there is no such server; else 0."""
    number = max((server for entry in entries for server in entry.servers), default=0)
    return number if number >= cluster.servers else 0


_RULES: tuple[Rule[Cluster], ...] = (
    Rule("", lambda cluster, _: cluster.workers is None and not cluster.groups, "needs `workers` or `groups`"),
    Rule(
        "workers",
        _wrong_group_total,
        "`groups` hold {fact} workers, but `workers` says {value}: leave it out, or change the groups",
    ),
    Rule("", _speed_options, "give one of {fact}"),
    Rule("speeds", _wrong_speed_count, "{self.size} workers need as many `{option}`, not {fact}"),
    Rule(
        "",
        lambda cluster, _: cluster.size > MOST_WORKERS,
        f"at most {MOST_WORKERS:,} workers can be simulated, not {{self.size:,}}",
    ),
    Rule(
        "devices",
        lambda cluster, devices: devices.has_bandwidths and cluster.network is None,
        "`devices` have bandwidths: give a `network`, too, such as `network: {{}}`",
    ),
    Rule(
        "network.regions",
        lambda cluster, _: cluster.devices is not None and cluster.devices.has_bandwidths,
        "`network.regions` define bandwidths: leave them out of `devices`",
    ),
    Rule(
        "failures",
        lambda cluster, _: cluster.faults,
        "give `failures`, which stop the whole job, or `faults`, which the protocol bears: leave one of them out",
    ),
    Rule(
        "failures.checkpoint.to",
        lambda cluster, _: cluster.network is None,
        "`failures.checkpoint.to` needs a `network` that carries checkpoints: `network: {{bandwidth: 10GbE}}`",
    ),
    Rule(
        "failures.checkpoint.blocking failures.checkpoint.pause",
        lambda cluster, _: cluster.network is not None and cluster.network.sharing == "fair",
        "`failures.checkpoint.{option}` needs `network.sharing: queue`; or let the job go on: leave it out",
    ),
    Rule("network.routes", _unknown_worker, "`network.routes` names worker {fact}; there are {self.size}, numbered from 0"),
    Rule(
        "network.servers", _unknown_server, "`network.servers` names server {fact}; there are {self.servers}, numbered from 0"
    ),
)
