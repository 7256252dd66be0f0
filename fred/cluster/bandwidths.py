"""Bandwidths by the names of network cards, connections with the windows of TCP, and links that many messages share.

- **Cards**: Ethernet [IEEE 802.3], and four lanes of InfiniBand [IBTA's roadmap].
- **Connections**: a TCP connection has at most a window of bytes under way, so its rate is at most window / round trip. It
  begins with a small window, and doubles it every round trip [slow start, RFC 5681; ten segments, RFC 6928].
- **Routes**: messages between two groups pass shared links, such as those to a spine or to another site.
"""

import math
from collections.abc import Collection
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, WithJsonSchema

from fred.components.component import Component, Natural

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
            delay += round_trip - window / rate
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
        forward = _in(first, sender) and _in(second, receiver)
        if not forward and not (_in(second, sender) and _in(first, receiver)):
            return []
        return [(name.removeprefix("-"), forward != name.startswith("-")) for name in self.through]


def _in(members: Members, member: Member) -> bool:
    kind, number = member
    return kind == members if isinstance(members, str) else kind == "workers" and number in members


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
        if first == second and (first in ("servers", "store") or len(first) == 1):
            raise ValueError(f"`routes[{number}]` is from {_describe(first)} to itself: no message goes there")
        if unknown := [name for name in route.through if name.removeprefix("-") not in links]:
            names = ", ".join(f"`{name}`" for name in links) or "none"
            raise ValueError(f"`routes[{number}]` goes through `{unknown[0]}`, which is not in `links`: {names}")
    used = {name.removeprefix("-") for route in routes for name in route.through}
    if idle := [name for name in links if name not in used]:
        raise ValueError(f"no route goes through the link `{idle[0]}`")
