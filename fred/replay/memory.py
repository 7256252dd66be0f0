"""The state of an interpreted run: all values that rows read and write, by number; saved as a snapshot and restored."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fred.learning.loss import Arrays
from fred.learning.models.model import Params
from fred.learning.server import Message, State
from fred.replay.arithmetic import Arithmetic
from fred.replay.snapshot import Leaves, Restoring, Snapshot, Taking
from fred.schedule.schedule import NONE, Row


class Joined(NamedTuple):
    """A contribution to a round: a message, or a gradient that may still be computed in one batch with the others."""

    message: Message | None
    row: Row
    ordinal: int = NONE
    sources: Sequence[Params] = ()

    @property
    def clock(self) -> int:
        """Return the clock at which it joined."""
        return self.row.timestamp + self.row.staleness


@dataclass
class Memory:
    """All values that rows read and write."""

    states: list[State]  # of each block of each replica
    workers: list[Any]  # memory of each worker
    mailboxes: dict[int, dict[int, Params]] = field(default_factory=dict)  # by number and block
    messages: dict[tuple[int, ...], Message] = field(default_factory=dict)  # that may be used again, by key
    rounds: dict[int, list[Joined]] = field(default_factory=dict)  # open ones, by block of a replica
    ordinals: dict[tuple[int, ...], int] = field(default_factory=dict)  # of messages still in use, by key
    used: int = 0  # number of gradients used
    statistics: list[float] = field(default_factory=list)  # requested by timing
    rows: int = 0  # number of rows executed

    def snapshot(self) -> Snapshot:
        """Return the current state as a snapshot."""
        taking = Taking()
        leaves = taking.leaves

        def joined(each: Joined) -> dict[str, Any]:
            message = None if each.message is None else leaves(each.message)
            sources = [leaves(source) for source in each.sources]
            return {"message": message, "row": list(each.row), "ordinal": each.ordinal, "sources": sources}

        facts = {
            "states": [[leaves(state.params), leaves(state)] for state in self.states],
            "workers": [leaves(worker) for worker in self.workers],
            "mailboxes": [
                [number, [[block, leaves(part)] for block, part in blocks.items()]] for number, blocks in self.mailboxes.items()
            ],
            "messages": [[list(key), leaves(message)] for key, message in self.messages.items()],
            "rounds": [[cell, [joined(each) for each in members]] for cell, members in self.rounds.items()],
            "ordinals": [[list(key), ordinal] for key, ordinal in self.ordinals.items()],
            "used": self.used,
            "statistics": [statistic.hex() for statistic in self.statistics],
            "rows": self.rows,
        }
        return Snapshot(facts, taking.arrays)


def restored(snapshot: Snapshot, start: Memory, do: Arithmetic, examples: Arrays) -> Memory:
    """Return the memory in a snapshot, for an interpreter that begins with `start`. Raises ValueError for another run's."""
    return _Restoring(snapshot, start, do, examples).memory(snapshot.facts)


class _Restoring:
    """The restoration of a memory; parameters that were one tree become one tree again, which rounds rely on."""

    def __init__(self, snapshot: Snapshot, start: Memory, do: Arithmetic, examples: Arrays):
        self._tree, self._start, self._blocks = Restoring(snapshot.arrays).tree, start, do.blocks
        _, self._message, self._joining = do.shapes(examples)  # shapes from the model: states may have more arrays
        self._params: dict[tuple[int, ...], Params] = {}

    def memory(self, facts: dict[str, Any]) -> Memory:
        """Return the restored memory."""
        start = self._start
        return Memory(
            states=[
                self._tree(whole, like).replace(params=self._part(cell, params))
                for cell, (like, (params, whole)) in enumerate(zip(start.states, facts["states"], strict=True))
            ],
            workers=[self._tree(own, like) for own, like in zip(facts["workers"], start.workers, strict=True)],
            mailboxes={
                number: {block: self._part(block, part) for block, part in blocks} for number, blocks in facts["mailboxes"]
            },
            messages={tuple(key): self._tree(message, self._message) for key, message in facts["messages"]},
            rounds={cell: [self._joined(cell, each) for each in members] for cell, members in facts["rounds"]},
            ordinals={tuple(key): ordinal for key, ordinal in facts["ordinals"]},
            used=facts["used"],
            statistics=[float.fromhex(statistic) for statistic in facts["statistics"]],
            rows=facts["rows"],
        )

    def _joined(self, cell: int, each: dict[str, Any]) -> Joined:
        like = self._joining[self._blocks.place(cell % self._blocks.count)[0]]
        message = None if each["message"] is None else self._tree(each["message"], like)
        sources = [self._part(block, source) for block, source in enumerate(each["sources"])]
        return Joined(message, Row(*each["row"]), each["ordinal"], sources)

    def _part(self, cell: int, leaves: Leaves) -> Params:
        """Return a block of parameters."""
        key = tuple(leaves)
        if key not in self._params:
            self._params[key] = self._tree(leaves, self._start.states[cell % self._blocks.count].params)
        return self._params[key]
