"""What an interpreted run has come to: everything that rows read and write, by number."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fred.learning.models.model import Params
from fred.learning.server import Message, State
from fred.schedule import NONE, Row


class Joined(NamedTuple):
    """What a row added to a round: a message, or a gradient that may still be computed together with the round's others."""

    message: Message | None
    row: Row
    ordinal: int = NONE
    sources: Sequence[Params] = ()

    @property
    def clock(self) -> int:
        """When it joined."""
        return self.row.timestamp + self.row.staleness


@dataclass
class Memory:
    """Everything that rows read and write. Arrays are never changed, so a shallow copy is a snapshot."""

    states: list[State]  # of each block of each replica
    workers: list[Any]  # what each worker remembers
    mailboxes: dict[int, dict[int, Params]] = field(default_factory=dict)  # by number and block
    messages: dict[tuple[int, ...], Message] = field(default_factory=dict)  # that may be used again, by key
    rounds: dict[int, list[Joined]] = field(default_factory=dict)  # open ones, by block of a replica
    ordinals: dict[tuple[int, ...], int] = field(default_factory=dict)  # of messages that are still held, by key
    used: int = 0  # gradients
    statistics: list[float] = field(default_factory=list)  # that timing has asked for
    rows: int = 0  # executed

    def copy(self) -> "Memory":
        """A snapshot."""
        return replace(
            self,
            states=list(self.states),
            workers=list(self.workers),
            mailboxes={number: dict(blocks) for number, blocks in dict(self.mailboxes).items()},
            messages=dict(self.messages),
            rounds={cell: list(joined) for cell, joined in self.rounds.items()},
            ordinals=dict(self.ordinals),
            statistics=list(self.statistics),
        )
