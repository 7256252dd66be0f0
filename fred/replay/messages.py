"""How each message is made: where its gradient is computed, and what is kept of it until it is used. NumPy only.

If the parameters that a gradient belongs to are still the present ones when it is first used, it is computed then. Otherwise
it is begun as soon as they are at hand, what has been made of it is kept, and it is finished when it is used. A message that
is used again is kept from its first use to its last. A round of one server whose gradients all belong to its present version,
and are used for the first time, is one flat batch.
"""

import numpy as np
from numpy.typing import NDArray

from fred.replay.versions import Hooks, Versions, assign_slots
from fred.schedule import NONE, Ints, Schedule, Verb


class Messages:
    """The rows that use messages, and for each how its message is made."""

    def __init__(self, schedule: Schedule, hooks: Hooks, versions: Versions, marks: Ints, turns: bool):
        ledger = schedule.ledger
        needed = np.full(len(ledger.uses), hooks.remembers) | (ledger.updates != NONE)  # also those that leave a memory behind
        self._schedule = schedule
        self.rows, self.updates = ledger.uses[needed], ledger.updates[needed]
        self.gradients = ledger.gradients[needed]  # [uses]; of differences, numbers that come after those of gradients
        self.differs = self.gradients == NONE
        between = np.stack([schedule[name][self.rows[self.differs]] for name in ("worker", "source", "mailbox")])
        self.gradients[self.differs] = len(ledger.workers) + np.unique(between, axis=1, return_inverse=True)[1].ravel()
        self.adds = schedule["verb"][self.rows] == Verb.ADD
        simple = hooks.plain and schedule.replicas * schedule.blocks == 1
        self.flat = self._flat(versions) if simple else np.zeros(len(self.rows), bool)
        single = np.flatnonzero(~self.flat)  # uses of messages by themselves
        self.known, first, self._which, self._times = np.unique(
            self.gradients[single], return_index=True, return_inverse=True, return_counts=True
        )  # [known]: of the messages that are made by themselves
        self._single = single
        self.first = single[first]  # [known], positions among the uses
        self.last = np.zeros_like(self.first)
        np.maximum.at(self.last, self._which, single)
        first, last = self.rows[self.first], self.rows[self.last]
        self.begun = ~versions.fresh[first] & ~self.differs[self.first]  # [known]: before the first use
        if turns and self.begun.any():  # then all are, which costs little and leaves one kind of instruction less to compile
            self.begun = ~self.differs[self.first]
        self.computable = versions.computable[first]
        self.collected = self._collected(marks) if self._collectable(hooks) else np.zeros(len(self.known), bool)
        self.again = (self._times > 1) & ~self.collected  # [known]: kept from the first use to the last
        self.kept, self.kept_slots = _slots(self.begun, self.computable, first)
        self.slot, self.slots = _slots(self.again, first, last)

    def _collectable(self, hooks: Hooks) -> bool:
        """Whether one instruction can add to the rounds of all blocks."""
        return self._schedule.replicas == 1 < self._schedule.blocks and not hooks.contributes and not hooks.remembers

    def of_use(self, per_message: NDArray) -> NDArray:
        """A fact about messages by themselves, for each use; zero where it has none."""
        result = np.zeros(len(self.rows), per_message.dtype)
        result[self._single] = per_message[self._which]
        return result

    def _flat(self, versions: Versions) -> NDArray[np.bool_]:
        """[uses]: in a round that is the mean of gradients at the present version, in full, each used for the first time."""
        schedule, rows = self._schedule, self.rows
        first = np.zeros(len(rows), bool)
        first[np.unique(self.gradients, return_index=True)[1]] = True
        good = self.adds & first & ~self.differs & (schedule["weight"][rows] == 1.0)
        good &= versions.fresh[rows]
        clock = schedule["timestamp"][rows] + schedule["staleness"][rows]
        good[good] &= clock[good] == schedule["timestamp"][self.updates[good]]  # nothing has changed since
        commits, members = np.unique(self.updates[self.adds], return_counts=True)
        mean = np.isin(self.updates, commits[(schedule["weight"][commits] == 1.0 / members) & (commits != NONE)])
        good &= mean
        spoilt = np.unique(self.updates[~good])
        return good & ~np.isin(self.updates, spoilt)

    def _collected(self, marks: Ints) -> NDArray[np.bool_]:
        """[known]: joins the rounds of all blocks at once, in order, and is used nowhere else."""
        schedule, blocks = self._schedule, self._schedule.blocks
        candidates = np.flatnonzero(self._times == blocks)
        rows = self.rows[self.first[candidates]][:, None] + np.arange(blocks)
        good = rows[:, -1] == self.rows[self.last[candidates]]
        candidates, rows = candidates[good], rows[good]
        good = (schedule["verb"][rows] == Verb.ADD).all(1) & (schedule["weight"][rows] == 1.0).all(1)
        good &= (schedule["block"][rows] == np.arange(blocks)).all(1)
        good &= np.searchsorted(marks, rows[:, 0], "right") == np.searchsorted(marks, rows[:, -1], "right")
        collected = np.zeros(len(self.known), bool)
        collected[candidates[good]] = True
        return collected


def _slots(chosen: NDArray[np.bool_], begin: Ints, end: Ints) -> tuple[Ints, int]:
    """A slot for each of the chosen from row to row, and how many there are."""
    slots = np.zeros(len(chosen), np.int64)
    slots[chosen] = assign_slots(begin[chosen], end[chosen])
    return slots, int(slots[chosen].max(initial=NONE)) + 1
