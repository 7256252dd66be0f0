"""The network that connects workers with servers and with each other.

Example: two workers send and receive 1 MB each through a server's shared network card of 10 MB/s.
    >>> import fred
    >>> scenario = fred.scenario({
    ...     "cluster": {
    ...         "workers": 2,
    ...         "compute": {"name": "constant", "seconds": 1.0},
    ...         "network": {"bandwidth": 1e7, "server_bandwidth": 1e7, "message_bytes": 1_000_000},
    ...     },
    ...     "stop": {"updates": 2},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... })
    >>> schedule = fred.run(scenario).outcomes[0].schedule
    >>> [row.end_ns / 1e9 for row in schedule if row.verb == fred.Verb.PULL][:2]  # when a model arrives
    [0.1, 0.2]
    >>> [row.time_ns / 1e9 for row in schedule if row.verb == fred.Verb.PUSH]  # when a gradient does
    [1.2, 1.3]
"""

import math
from collections.abc import Collection, Iterable
from functools import cache, partial
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from fred.base.errors import FredError, quoted
from fred.cluster.bandwidths import (
    PRESETS,
    Bandwidth,
    Connection,
    Direction,
    Route,
    SlowLinks,
    SomeServers,
    Within,
    check_routes,
)
from fred.cluster.collectives import AnyCollective, Collective, Effort, Passage, list_passages, one_way
from fred.cluster.latency import AnyLatency, Constant, Latency
from fred.cluster.regions import Regions
from fred.components import registry
from fred.components.component import MOST_BYTES, NANOSECONDS, Component, Count, options_of

DDP_BUCKET = 25 * 2**20  # bytes of a bucket of PyTorch's DistributedDataParallel by default


class Cost(NamedTuple):
    """The cost of a message, or of one worker's part in a collective operation (the mean over members).

    Args:
        nanoseconds: duration, ns.
        bytes: bytes sent by this worker.
        messages: messages sent by this worker.
        moving: part of the duration in which a collective operation moves models, ns; the rest is waiting.

    Example: `Simulation.push` and `sync` take a cost, and an `Operation` has one.
        >>> import fred
        >>> fred.Cost(nanoseconds=2_000_000, bytes=500, messages=2)
        Cost(nanoseconds=2000000, bytes=500, messages=2, moving=0)
        >>> fred.NOTHING == fred.Cost(0, 0, 0)
        True
    """

    nanoseconds: int
    bytes: int  # sent
    messages: int
    moving: int = 0  # ns in which a collective operation moves models; the rest is waiting


NOTHING = Cost(0, 0, 0)


@cache
def _preset(name: str) -> "Network":
    return Network(name=name)


class Network(Component):
    """The links of workers and servers, and the network cards where messages queue. Absent: messages take no time.

    A message takes a latency, drawn for each message, plus size / bandwidth. A worker's link sends one message at a time,
    first come first served, and receives likewise. A message between workers occupies the sender's link and the receiver's
    at the same time; without queueing it takes size / bandwidth once. With `server_bandwidth`, messages to a server also
    pass its card, and messages from it pass the card's other direction. Without queueing, a message takes as long as the
    slowest of these.

    With `sharing: fair`, messages under way share links instead of queueing, and `links` and `routes` add links of switches
    and sites to their paths. Collectives are then made of messages, which share links with all others; `exchanges` are not.

    `within` and `node_bandwidth` define two levels. Messages inside a node follow `within`. All others also pass the cards
    of their nodes, which the node's workers share. Collectives are then hierarchical: reduce to one worker in each node
    along a binomial tree, allreduce among these workers, and broadcast in each node.

    A worker's link has both directions at once, and `upload` and `download` make them differ. A message between workers takes
    the slower one of the sender's upload and the receiver's download, and so does a collective, whose members all do both.

    With `collective: store` workers exchange messages through an object store, as over the internet: each uploads its message
    once, and downloads those of all others. They add up for themselves, because a store does not. On two levels, one
    worker of each node does so.

    Collectives have mean latencies. With `sharing: queue` they take a closed form (`collectives.py`), and other messages do not
    delay them.
    """

    name: str | None = Field(
        default=None,
        description="a preset, whose options replace the defaults here, such as `ethernet-25`; `fred list presets` has all, "
        "with their errors",
        json_schema_extra={"enum": list(PRESETS)},
    )
    latency: AnyLatency = Field(default=Constant(seconds=0.0), description="propagation time of one message, s")
    pull_latency: AnyLatency | None = Field(
        default=None, description="propagation time from servers to workers; absent: `latency`"
    )
    bandwidth: Bandwidth | None = Field(
        default=None, description="bandwidth of a worker's link, bytes/s or a card such as `10GbE`; absent: unlimited"
    )
    upload: Bandwidth | None = Field(default=None, description="bandwidth from a worker, bytes/s; absent: `bandwidth`")
    download: Bandwidth | None = Field(default=None, description="bandwidth to a worker, bytes/s; absent: `bandwidth`")
    server_bandwidth: Bandwidth | None = Field(
        default=None, description="bandwidth of a server's card, bytes/s; absent: no queueing"
    )
    servers: tuple[SomeServers, ...] = Field(default=(), description="servers with other links")
    within: Within | None = Field(default=None, description="links inside a node; absent: as between nodes")
    node_bandwidth: Bandwidth | None = Field(
        default=None, description="bandwidth of a node's card, bytes/s; absent: no queueing"
    )
    contention: tuple[SlowLinks, ...] = Field(default=(), description="temporary slowdowns of links")
    sharing: Literal["queue", "fair"] = Field(
        default="queue",
        description="how messages share a link: first come, first served, or all at once with max-min fair rates",
    )
    window: float | None = Field(
        default=None,
        gt=0,
        description="bytes that a message has under way at most: its rate is at most window / (2 latency); for `fair`",
    )
    initial_window: float | None = Field(
        default=None,
        gt=0,
        description="bytes that a message has under way at first; doubles with every round trip up to the full rate (TCP's "
        "slow start); absent: the full rate at once; for `fair`",
    )
    weights: Literal["equal", "latency"] = Field(
        default="equal", description="share of each message: equal, or inversely proportional to its latency; for `fair`"
    )
    message_bytes: int | None = Field(
        default=None,
        ge=1,
        le=MOST_BYTES,
        description="size of the parameters on the network, bytes, in place of 4 per parameter; a message that is smaller or "
        "larger than the parameters (codecs, control variates) keeps its ratio to them",
    )
    collective: AnyCollective = Field(
        default="ring",
        description="algorithm of allreduces, a library whose allreduces were measured (`nccl`, `gloo`), or `store`: an object "
        "store, to which each worker uploads its message once, and from which it downloads all others",
    )
    store_bandwidth: Bandwidth | None = Field(
        default=None,
        description="bandwidth of the object store in each direction, bytes/s, for `collective: store`; absent: unlimited",
    )
    regions: Regions | None = Field(
        default=None, description="regions of workers and servers, with the bandwidth between each pair"
    )
    links: dict[str, Bandwidth] = Field(
        default={},
        description="further links, by name, with their bandwidth in each direction; for `fair`",
        examples=[{"uplink": 1e9}],
    )
    routes: tuple[Route, ...] = Field(default=(), description="which messages pass these links")
    buckets: Count | Literal["ddp"] = Field(
        default=1,
        description="equal parts of a model that are allreduced one by one, each as soon as the backward pass (the last two "
        "thirds of a gradient's time) has computed it; 1: all after the backward pass; `ddp`: parts of at most 25 MiB",
    )
    efficiency: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="share of every bandwidth of the network that links actually reach"
    )

    @model_validator(mode="wrap")
    @classmethod
    def _with_preset(cls, options: Any, validate: ModelWrapValidatorHandler["Network"]) -> "Network":
        """Put the options of a preset in place of the defaults; `network: ethernet-25` is short for `{name: ethernet-25}`.

        A preset's `bandwidth` or `window` is left out where given options exclude it.
        """
        options = {"name": options} if isinstance(options, str) else options
        name = options.get("name") if isinstance(options, dict) else None
        if name is None:
            return validate(options)
        if not isinstance(name, str) or name not in PRESETS:
            hint = registry.nearest(str(name), PRESETS)
            raise ValueError(f"unknown preset {quoted(name)}{hint}; known: {', '.join(PRESETS)}")
        if options.get("regions") is not None:
            raise ValueError(f"`regions` define bandwidths and the algorithm of allreduces: leave out `name: {name}`")
        preset = dict(PRESETS[name].options)
        if options.get("upload") is not None and options.get("download") is not None:
            del preset["bandwidth"]
        if options.get("sharing") == "queue":
            preset.pop("window", None)
        return validate({**preset, **options})

    @model_serializer(mode="wrap")
    def _as_given(self, serialize: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Leave out an absent preset or store, so that files without them do not mention them.

        With a preset, `exclude_defaults` leaves out what equals the preset, instead of what equals the defaults.
        """
        absent = [name for name in ("name", "store_bandwidth") if getattr(self, name) is None]
        if self.name is None or not info.exclude_defaults:
            return {name: option for name, option in serialize(self).items() if name not in absent}
        options = self.model_dump(mode=info.mode, context=info.context)
        return {name: options[name] for name in self.given_options()}

    def default_of(self, option: str) -> Any:
        """Return an option's value if it is not given: that of the preset, if it has one.

        Args:
            option: the option's name.
        """
        return super().default_of(option) if self.name is None or option == "name" else getattr(_preset(self.name), option)

    def given_options(self) -> dict[str, Any]:
        options = options_of(self)
        return {name: value for name, value in options.items() if self.name is None or value != self.default_of(name)}

    def bucket_count(self, size: int) -> int:
        """Return the number of parts in which a message is allreduced.

        Args:
            size: of the message, bytes.
        """
        return max(1, math.ceil(size / DDP_BUCKET)) if self.buckets == "ddp" else self.buckets

    @model_validator(mode="after")
    def _servers_once(self) -> "Network":
        numbers = [server for entry in self.servers for server in entry.servers]
        if repeated := sorted({server for server in numbers if numbers.count(server) > 1}):
            raise ValueError(f"`servers` names {repeated[0]} more than once")
        return self

    @model_validator(mode="after")
    def _check_directions(self) -> "Network":
        if self.bandwidth and self.upload and self.download:
            raise ValueError("`upload` and `download` replace `bandwidth`: leave out `bandwidth`")
        return self

    @model_validator(mode="after")
    def _regions_alone(self) -> "Network":
        names = ("bandwidth", "upload", "download", "within", "node_bandwidth", "servers")
        settings = {name: getattr(self, name) for name in names}
        settings["collective"] = None if self.collective == "ring" else self.collective  # "ring" is the default
        if self.regions is not None and (conflicts := [name for name, value in settings.items() if value]):
            raise ValueError(f"`regions` define bandwidths and the algorithm of allreduces: leave out `{conflicts[0]}`")
        return self

    @model_validator(mode="after")
    def _check_store(self) -> "Network":
        if self.store_bandwidth and self.collective != "store":
            raise ValueError("`store_bandwidth` needs `collective: store`")
        return self

    @model_validator(mode="after")
    def _check_fair_only(self) -> "Network":
        check_routes(self.routes, self.links)
        settings: dict[str, object] = {name: getattr(self, name) for name in ("window", "initial_window", "links")}
        settings["weights"] = self.weights != "equal"
        if self.sharing == "queue" and (names := [name for name, value in settings.items() if value]):
            raise ValueError(f"`{names[0]}` needs `sharing: fair`")
        return self

    @property
    def directions(self) -> dict[Direction, float | None]:
        """Return the bandwidth of a worker's link by direction, bytes/s; None: unlimited.

        >>> Network(bandwidth=1e6, download=5e6).directions
        {'upload': 1000000.0, 'download': 5000000.0}
        """
        return {"upload": self.upload or self.bandwidth, "download": self.download or self.bandwidth}

    @property
    def effective(self) -> "Network":
        """Return the network with the bandwidths that links actually reach.

        >>> Network(bandwidth=1e6, efficiency=0.5).effective.bandwidth
        500000.0
        """
        if self.efficiency == 1:
            return self

        def reached(bandwidth: float | None) -> float | None:
            return None if bandwidth is None else self.efficiency * bandwidth

        changes: dict[str, Any] = {
            name: reached(getattr(self, name))
            for name in ("bandwidth", "upload", "download", "server_bandwidth", "node_bandwidth", "store_bandwidth")
        }
        changes["links"] = {name: self.efficiency * bandwidth for name, bandwidth in self.links.items()}
        changes["servers"] = tuple(entry.model_copy(update={"bandwidth": reached(entry.bandwidth)}) for entry in self.servers)
        if self.within is not None:
            changes["within"] = self.within.model_copy(update={"bandwidth": reached(self.within.bandwidth)})
        if self.regions is not None:
            table = tuple(tuple(self.efficiency * bandwidth for bandwidth in row) for row in self.regions.bandwidth)
            changes["regions"] = self.regions.model_copy(update={"bandwidth": table})
        return self.model_copy(update={**changes, "efficiency": 1.0})

    def latencies(self) -> Iterable[Latency]:
        """Return the latencies of all kinds of messages."""
        latencies = [self.latency, self.pull_latency, None if self.within is None else self.within.latency]
        latencies += [latency for entry in self.servers for latency in (entry.latency, entry.pull_latency)]
        return [latency for latency in latencies if latency is not None]

    @property
    def two_levels(self) -> bool:
        """Return True if the cost of a message depends on the workers' nodes."""
        return self.within is not None or self.node_bandwidth is not None

    def allreduce(self, members: int | Collection[int], size: int, algorithm: Collective | None = None) -> Cost:
        """Return the cost of an allreduce of `size` bytes among workers.

        Args:
            members: number of workers, or number on each node.
            size: size, bytes.
            algorithm: algorithm of the allreduce; absent: `collective`.

        Example: eight workers on two nodes, with links inside nodes ten times as fast.
            >>> flat = Network(bandwidth=1e6)
            >>> two_levels = Network(bandwidth=1e6, within=Within(bandwidth=1e7))
            >>> flat.allreduce(8, 1_000_000).nanoseconds / 1e9, two_levels.allreduce([4, 4], 1_000_000).nanoseconds / 1e9
            (1.75, 1.4)
        """
        if self.regions is not None:
            assert not isinstance(members, int)
            messages, sent = self.regions.mean_traffic(list(members))
            return _cost_of(self.regions.seconds(list(members), size, self.latency_without_table), sent * size, messages)
        workers = members if isinstance(members, int) else sum(members)
        node_sizes = [1] * workers if isinstance(members, int) else list(members)
        list_exchange = partial(list_passages, "allreduce", algorithm or self.collective)
        if not self._has_leaders(len(node_sizes), algorithm or self.collective):
            return self._cost(workers, size, list_exchange(workers, "inside" if self.two_levels else "between"))
        followers = workers - len(node_sizes)  # workers that are not leaders of their node
        # The largest node decides the time of the trees; all nodes' followers send messages.
        trees = Passage(one_way(max(node_sizes))._replace(messages=followers, sent=followers), "inside")
        return self._cost(workers, size, [trees, *list_exchange(len(node_sizes), "between"), trees])

    def allgather(self, members: int | Collection[int], size: int) -> Cost:
        """Return the cost of an allgather: every worker gets the `size` bytes of every other one.

        It goes by the network's `collective`; with `recursive-doubling`, `rabenseifner` and `tree` by doubling. On two levels,
        each node first gathers its messages at one worker. These workers exchange the messages of their nodes, and each node
        broadcasts all of them down a tree.

        Args:
            members: number of workers, or number on each node.
            size: size of each message, bytes.

        Example: eight workers on two nodes, with links inside nodes ten times as fast.
            >>> flat = Network(bandwidth=1e6)
            >>> two_levels = Network(bandwidth=1e6, within=Within(bandwidth=1e7))
            >>> flat.allgather(8, 1_000_000).nanoseconds / 1e9, two_levels.allgather([4, 4], 1_000_000).nanoseconds / 1e9
            (7.0, 5.9)
        """
        if self.regions is not None:
            assert not isinstance(members, int)
            messages = sum(members) - 1  # of each member
            seconds = self.regions.allgather_seconds(list(members), size, self.latency_without_table)
            return _cost_of(seconds, messages * size, messages)
        workers = members if isinstance(members, int) else sum(members)
        node_sizes = [1] * workers if isinstance(members, int) else list(members)
        list_exchange = partial(list_passages, "allgather", self.collective)
        if not self._has_leaders(len(node_sizes), self.collective):
            return self._cost(workers, size, list_exchange(workers, "inside" if self.two_levels else "between"))
        followers = workers - len(node_sizes)  # workers that are not leaders of their node
        largest = max(node_sizes)  # decides the time of each part; `messages` and `sent` count all nodes
        gather = Passage(Effort(largest - 1, largest - 1, followers, followers), "inside")
        broadcast = Passage(one_way(largest).times(workers)._replace(messages=followers, sent=followers * workers), "inside")
        exchange = [
            part._replace(effort=part.effort.times(largest)._replace(sent=part.effort.sent * workers / len(node_sizes)))
            for part in list_exchange(len(node_sizes), "between")
        ]
        return self._cost(workers, size, [gather, *exchange, broadcast])

    def _has_leaders(self, nodes: int, collective: AnyCollective) -> bool:
        """Return True if one worker of each of these nodes exchanges messages with those of other nodes.

        A single node needs no leader, unless it would use the store, which is outside.
        """
        return self.two_levels and (nodes > 1 or collective == "store")

    @property
    def latency_without_table(self) -> float:
        """Return the mean latency between regions that give none, s."""
        return 0.0 if self.regions is not None and self.regions.latency else mean_latency(self)

    def _cost(self, members: int, size: int, parts: list[Passage]) -> Cost:
        """Return the cost of parts in sequence, with the mean traffic of a member."""
        seconds = sum(self._seconds(part, size) for part in parts)
        messages, sent = (sum(getattr(part.effort, name) for part in parts) / members for name in ("messages", "sent"))
        return _cost_of(seconds, sent * size, messages)

    def _seconds(self, part: Passage, size: int) -> float:
        """Return the duration of a part at the slowest bandwidth on its way, s."""
        effort, inside = part.effort, part.way == "inside"
        link = self.within if inside and self.within is not None else self
        bandwidths = [None if inside else self.node_bandwidth]
        if isinstance(link, Within):
            bandwidths.append(link.bandwidth)
        else:
            idle_direction = {"to-store": "download", "from-store": "upload"}.get(part.way)  # others use both at once
            bandwidths += [bandwidth for direction, bandwidth in link.directions.items() if direction != idle_direction]
        if self.store_bandwidth and part.way in ("to-store", "from-store"):
            bandwidths.append(self.store_bandwidth / part.sharers)
        slowest = min((bandwidth for bandwidth in bandwidths if bandwidth is not None), default=math.inf)
        # A single member sends nothing, so it needs no finite mean.
        latency = mean_latency(link) if effort.rounds or effort.segments else 0.0
        return effort.seconds(size, Connection(latency, slowest, self.window or math.inf, self.initial_window or math.inf))


def _cost_of(seconds: float, sent_bytes: float, messages: float) -> Cost:
    nanoseconds = round(seconds * NANOSECONDS)
    return Cost(nanoseconds, round(sent_bytes), round(messages), moving=nanoseconds)


def mean_latency(link: Network | Within) -> float:
    """Return the mean latency of a message, s. Raises FredError if it is infinite."""
    mean = link.latency.mean
    if not mean < math.inf:
        name = registry.name_of("latency", link.latency)
        raise FredError(
            f"the network's latency `{name}` has no finite mean, which allreduces and `exchanges` need: "
            "choose another latency, or a thinner tail"
        )
    return mean
