"""Bandwidths: of network cards and, as trainings reach them, of networks by name; of connections, shared and special links.

- **Cards**: Ethernet [IEEE 802.3], and four lanes of InfiniBand [IBTA's roadmap].
- **Connections**: a TCP connection has at most a window of bytes under way, so its rate is at most window / round trip. It
  begins with a small window, and doubles it every round trip [slow start, RFC 5681; ten segments, RFC 6928].
- **Routes**: messages between two groups pass shared links, such as those to a spine or to another site.

Shares of the nominal bandwidth are fitted to one step of training, of the largest model with the most GPUs. Errors are of the
preset as it is, on all steps of programs that average gradients in parts over such cards (`results/reproductions/measured.md`,
"Presets"). A worker is a machine, whatever the number of its GPUs, because they share the card.

    >>> from fred.cluster.network import Network
    >>> network = Network(name="ethernet-25", message_bytes=102_000_000)
    >>> f"{network.effective.bandwidth * 8 / 1e9:.1f} Gbit/s, {network.bucket_count(102_000_000)} buckets"
    '14.5 Gbit/s, 4 buckets'
"""

import math
from collections.abc import Collection
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from fred.cluster.contention import Contention
from fred.cluster.latency import AnyLatency, Constant
from fred.components.component import Component, Natural
from fred.components.one_of import OneOf

SPEEDS = {  # name -> bytes/s, before headers
    "1GbE": 0.125e9,
    "10GbE": 1.25e9,
    "25GbE": 3.125e9,
    "40GbE": 5e9,
    "100GbE": 12.5e9,
    "200GbE": 25e9,
    "400GbE": 50e9,
    "EDR": 12.5e9,
    "HDR": 25e9,
    "NDR": 50e9,
}
Kind = Literal["workers", "servers", "store"]
Direction = Literal["upload", "download"]  # from workers, to workers
Member = tuple[Kind, int]  # its kind and its number
Members = tuple[Natural, ...] | Kind


def bytes_per_second(value: Any) -> Any:
    """Return the bandwidth of a card in bytes/s, or a number as it is.

    Args:
        value: name of a card, or a number.

    Raises ValueError for another name.

    >>> bytes_per_second("10GbE"), bytes_per_second(1e6)
    (1250000000.0, 1000000.0)
    """
    if not isinstance(value, str) or _is_number(value):
        return value
    if value not in SPEEDS:
        raise ValueError(f"unknown card `{value}`; expected bytes/s, or one of {', '.join(SPEEDS)}")
    return SPEEDS[value]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


Bandwidth = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(bytes_per_second),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"enum": list(SPEEDS)}]}),
]


class Connection(NamedTuple):
    """A connection between two workers.

    Args:
        latency: time of a message in one direction, s.
        bandwidth: bandwidth of the slowest link, bytes/s.
        window: bytes under way at most.
        initial_window: bytes under way at most in the first round trip.

    Example: a window of 3 MiB limits a transfer over 10 Gbit/s and 20 ms to 157 MB/s.
        >>> connection = Connection(latency=0.01, bandwidth=1.25e9, window=3 * 2**20, initial_window=89_490)
        >>> connection.rate / 1e6
        157.2864
        >>> round(connection.startup_delay(64 * 2**20), 3)  # s
        0.084
    """

    latency: float = 0.0
    bandwidth: float = math.inf
    window: float = math.inf
    initial_window: float = math.inf

    @property
    def rate(self) -> float:
        """Return the highest rate, bytes/s."""
        return min(self.bandwidth, self.window / (2 * self.latency)) if self.latency else self.bandwidth

    def times(self, streams: int) -> "Connection":
        """Return the connection that equals several connections over the same link.

        Args:
            streams: their number.
        """
        return self._replace(window=streams * self.window, initial_window=streams * self.initial_window)

    def startup_delay(self, size: float) -> float:
        """Return the time that a message loses because its window still grows, s.

        Args:
            size: size of the message, bytes.
        """
        round_trip, rate, window = 2 * self.latency, self.rate, self.initial_window
        delay = sent = 0.0
        while window < rate * round_trip and sent + window < size:
            delay += round_trip - window / rate  # idle from the end of the window until its first byte is confirmed
            sent += window
            window *= 2
        return delay


class Route(Component):
    """The shared links that messages pass between two groups, besides the members' own links.

    Example: workers 0 and 1 reach the servers through a link named `uplink`.
        >>> route = Route(between=((0, 1), "servers"), through=("uplink",))
        >>> server = "servers", 0
        >>> route.passed(("workers", 1), server), route.passed(server, ("workers", 0))
        ([('uplink', True)], [('uplink', False)])
        >>> route.passed(("workers", 2), server)
        []
    """

    between: tuple[Members, Members] = Field(
        description="two groups: numbers of workers, `workers` for all of them, `servers`, or `store` for the object store",
        examples=[[[0, 1], "servers"]],
    )
    through: tuple[str, ...] = Field(
        min_length=1,
        description="names of the links that messages from the first group to the second pass, `-NAME` against the link's own "
        "direction; messages back pass them the other way",
        examples=[["uplink"]],
    )

    def passed(self, sender: Member, receiver: Member) -> list[tuple[str, bool]]:
        """Return the links that a message passes, each with True if it goes in the link's own direction.

        Args:
            sender, receiver: sender and receiver of the message.
        """
        first, second = self.between
        forward = _contains(first, sender) and _contains(second, receiver)
        if not forward and not (_contains(second, sender) and _contains(first, receiver)):
            return []
        return [(name.removeprefix("-"), forward != name.startswith("-")) for name in self.through]


def _contains(members: Members, member: Member) -> bool:
    kind, number = member
    if isinstance(members, str):
        return kind == members
    return kind == "workers" and number in members


def _describe(members: Members) -> str:
    return f"`{members}`" if isinstance(members, str) else f"worker {members[0]}"


def check_routes(routes: Collection[Route], links: Collection[str]) -> None:
    """Raise ValueError for a route through a link that is not there, or a link that no route passes.

    Args:
        routes: all routes.
        links: names of all links.
    """
    for number, route in enumerate(routes):
        first, second = route.between
        if first == second and (first in ("servers", "store") or len(first) == 1):  # several workers send to each other
            raise ValueError(f"`routes[{number}]` is from {_describe(first)} to itself: no message goes there")
        if unknown := [name for name in route.through if name.removeprefix("-") not in links]:
            names = ", ".join(f"`{name}`" for name in links) or "none"
            raise ValueError(f"`routes[{number}]` goes through `{unknown[0]}`, which is not in `links`: {names}")
    used = {name.removeprefix("-") for route in routes for name in route.through}
    if unused := [name for name in links if name not in used]:
        raise ValueError(f"no route goes through the link `{unused[0]}`")


class Within(Component):
    """The links between workers of one node."""

    latency: AnyLatency = Field(default=Constant(seconds=0.0), description="propagation time of one message, s")
    bandwidth: Bandwidth | None = Field(
        default=None, description="worker's bandwidth inside its node, bytes/s; absent: unlimited"
    )


class SomeServers(Component):
    """Servers with links different from the others'."""

    servers: tuple[Natural, ...] = Field(min_length=1, description="numbers of the servers, from 0", examples=[[0]])
    latency: AnyLatency | None = Field(
        default=None, description="propagation time of messages to them, s; absent: the network's"
    )
    pull_latency: AnyLatency | None = Field(
        default=None, description="propagation time of messages from them, s; absent: `latency` here, or the network's"
    )
    bandwidth: Bandwidth | None = Field(default=None, description="bandwidth of each card, bytes/s; absent: `server_bandwidth`")

    @model_validator(mode="after")
    def _differ(self) -> "SomeServers":
        if self.latency is None and self.pull_latency is None and self.bandwidth is None:
            raise ValueError("give `latency`, `pull_latency` or `bandwidth`, in which these servers differ from the others")
        return self


class SlowLinks(Component):
    """A contention regime that slows links down instead of processors."""

    of: Literal["workers", "servers"] = Field(
        default="workers", description="owners of the links; each server is on its own node"
    )
    regime: Annotated[Contention, OneOf("contention")] = Field(
        description="regime that multiplies latencies and transfer times; its delays are added to single messages",
        examples=[{"name": "job", "nodes": [0], "slowdown": 2.0}],
    )


class Preset(NamedTuple):
    """A network by name.

    Args:
        options: options of a network, in place of their defaults.
        error: what it predicted, and how far that was off.
        source: where the numbers are from.
    """

    options: dict[str, Any]
    error: str
    source: str


def _cards(name: str, efficiency: float, latency: float) -> dict[str, Any]:
    """Return the options of machines with these cards, which train with DDP over NCCL."""
    return {
        "bandwidth": name,
        "server_bandwidth": name,
        "efficiency": efficiency,
        "latency": {"name": "constant", "seconds": latency},
        "collective": "nccl",
        "buckets": "ddp",
    }


PRESETS = {
    "ethernet-1": Preset(_cards("1GbE", 0.9, 1e-4), "16 % too fast, 1 step", "the share of `ethernet-10`"),
    "ethernet-10": Preset(
        _cards("10GbE", 0.89, 5e-5),
        "median 3 to 7 % by program, worst 23 % too fast, 18 steps",
        "ddl-benchmarks: MG-WFBP, 8 to 32 GPUs",
    ),
    "ethernet-25": Preset(
        _cards("25GbE", 0.58, 5e-5),
        "median 3 %, worst 7 % too fast, 3 steps; over RDMA up to 33 % too slow",
        "Horovod over TCP, 16 GPUs",
    ),
    "ethernet-40": Preset(_cards("40GbE", 0.44, 5e-5), "median 7 %, worst 12 % too fast, 3 steps", "Horovod over TCP, 64 GPUs"),
    "ethernet-100": Preset(
        _cards("100GbE", 0.33, 5e-5),
        "median 3 to 24 % by program, worst 43 % too fast, 30 steps",
        "ddl-benchmarks: WFBP and MG-WFBP, 8 to 32 GPUs",
    ),
    "infiniband-100": Preset(
        _cards("EDR", 0.9, 5e-6),
        "DDP 5 % too fast, 2 steps; other programs 22 to 34 %, 28 steps",
        "a share that RDMA reaches at 25 Gbit/s",
    ),
    "infiniband-200": Preset(_cards("HDR", 0.9, 5e-6), "not judged: no measured steps", "the share of `infiniband-100`"),
    "infiniband-400": Preset(
        _cards("NDR", 0.9, 5e-6), "median 7 %, worst 9 % too fast, 4 steps", "the share of `infiniband-100`"
    ),
    "cloud-regions": Preset(
        {
            "bandwidth": 1.375e8,
            "server_bandwidth": 1.375e8,
            "latency": {"name": "constant", "seconds": 0.05},
            "sharing": "fair",
            "window": 11e6,
            "collective": "nccl",
        },
        "median 6 %, 80 % within 15 %, 45 pairs, with the pair's own latency",
        "NCCL between ten regions of one cloud",
    ),
    "internet": Preset(
        {
            "bandwidth": 1.25e8,
            "server_bandwidth": 1.25e8,
            "latency": {"name": "constant", "seconds": 0.05},
            "sharing": "fair",
            "window": 2.7 * 2**20,
        },
        "median 4 %, 16 streams, with the pair's own latency",
        "single TCP streams between regions of one cloud, 33 to 277 ms",
    ),
}
