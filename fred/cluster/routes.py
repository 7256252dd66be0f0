"""Links that many messages share on their way, such as those to a spine or to another site, and who passes them."""

from collections.abc import Collection
from typing import Literal

from pydantic import Field

from fred.components.component import Component, Whole

Kind = Literal["workers", "servers"]
Member = tuple[Kind, int]  # its kind and its number
Members = tuple[Whole, ...] | Kind


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
        description="two groups: numbers of workers, `workers` for all of them, or `servers`", examples=[[[0, 1], "servers"]]
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


def _named(members: Members) -> str:
    return f"`{members}`" if isinstance(members, str) else f"worker {members[0]}"


def check_routes(routes: Collection[Route], links: Collection[str]) -> None:
    """Raise ValueError for a route through a link that is not there, or a link that no route passes.

    Args:
        routes: all routes.
        links: names of all links.
    """
    for number, route in enumerate(routes):
        first, second = route.between
        if first == second and (first == "servers" or len(first) == 1):
            raise ValueError(f"`routes[{number}]` is from {_named(first)} to itself: no message goes there")
        if unknown := [name for name in route.through if name.removeprefix("-") not in links]:
            known = ", ".join(f"`{name}`" for name in links) or "none"
            raise ValueError(f"`routes[{number}]` goes through `{unknown[0]}`, which is not in `links`: {known}")
    used = {name.removeprefix("-") for route in routes for name in route.through}
    if idle := [name for name in links if name not in used]:
        raise ValueError(f"no route goes through the link `{idle[0]}`")
