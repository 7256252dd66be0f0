"""How each message is made: when its gradient is computed, and the data stored until its use. NumPy only.

If a gradient's parameters are still the current ones at its first use, it is computed then. Otherwise it is begun as soon as
its parameters are known, an intermediate result is stored, and it is finished when used. A message that is used again is
stored from its first use to its last. A round of one server is computed as one batch, without messages, if all its gradients
belong to the current version and are used for the first time.

Each array here has an entry for each object of one kind, named in brackets. Some arrays lead from one kind to another:

| kind     | meaning                                                                   | arrays that lead to other kinds      |
|----------|---------------------------------------------------------------------------|--------------------------------------|
| uses     | rows PUSH and ADD for which a message has to be made                      | to rows `Uses.row`, to messages      |
|          |                                                                           | `Messages.of_use`                    |
| messages | messages made by themselves: once, however often they are used            | to the first of its uses `first`     |
| origins  | contents of messages: gradients, numbered as in the ledger, followed by   | to workers and steps the ledger      |
|          | pseudo-gradients                                                          |                                      |
| rows     | rows of the schedule                                                      | to its contents the columns          |
"""

import numpy as np
from numpy.typing import NDArray

from fred.replay.hooks import Hooks
from fred.replay.versions import Versions, assign_slots
from fred.schedule.schedule import NONE, Ints, Schedule, Verb

Bools = NDArray[np.bool_]


class Uses:
    """The uses of messages, in the order of their rows. All arrays are [uses]."""

    row: Ints  # row of the use
    update: Ints  # row of the update that includes the message; NONE: its round was never committed
    origin: Ints  # contents of the message
    differs: Bools  # a pseudo-gradient
    adds: Bools  # joins a round; the others are updates by themselves
    flat: Bools  # its round is computed as one batch

    def __init__(self, schedule: Schedule, hooks: Hooks, versions: Versions):
        ledger = schedule.ledger
        relevant = np.full(len(ledger.uses), hooks.remembers) | (ledger.updates != NONE)  # or changes a memory
        self.row, self.update = ledger.uses[relevant], ledger.updates[relevant]
        self.origin = _origins(schedule, self.row, ledger.gradients[relevant])
        self.differs = self.origin >= len(ledger.workers)
        self.adds = schedule["verb"][self.row] == Verb.ADD
        simple = hooks.batchable and schedule.replicas * schedule.blocks == 1
        self.flat = self._flat(schedule, versions) if simple else np.zeros(len(self.row), bool)

    def _flat(self, schedule: Schedule, versions: Versions) -> Bools:
        """Return True for uses in rounds that are the mean of gradients at the current version, all used for the first time."""
        first = np.zeros(len(self.row), bool)
        first[np.unique(self.origin, return_index=True)[1]] = True
        valid = self.adds & first & ~self.differs & (schedule["weight"][self.row] == 1.0)
        valid &= versions.fresh[self.row]
        clock = schedule["timestamp"][self.row] + schedule["staleness"][self.row]
        valid[valid] &= clock[valid] == schedule["timestamp"][self.update[valid]]  # nothing has changed since
        commits, members = np.unique(self.update[self.adds], return_counts=True)
        means = commits[(schedule["weight"][commits] == 1.0 / members) & (commits != NONE)]
        valid &= np.isin(self.update, means)
        invalid = np.unique(self.update[~valid])
        return valid & ~np.isin(self.update, invalid)


class Messages:
    """The messages made by themselves, and how. All arrays except `of_use` are [messages]."""

    of_use: Ints  # [uses]: message that is used; NONE: none, since its round is computed as one batch
    origin: Ints  # contents of the message; ascending
    first: Ints  # its first use
    early: Bools  # begun before its first use: as soon as its parameters are known
    computable: Ints  # row after which they are known
    pending: Ints  # slot of its intermediate result until its first use
    collected: Bools  # joins the rounds of all blocks at once
    reused: Bools  # used again later, and stored until then
    slot: Ints  # slot in which it is stored from its first use to its last
    pending_slots: int  # number of slots of each kind
    slots: int

    def __init__(self, schedule: Schedule, uses: Uses, hooks: Hooks, versions: Versions, marks: Ints, turns: bool):
        separate = np.flatnonzero(~uses.flat)  # uses
        self.origin, first, message, use_counts = np.unique(
            uses.origin[separate], return_index=True, return_inverse=True, return_counts=True
        )
        self.of_use = np.full(len(uses.row), NONE)
        self.of_use[separate] = message
        self.first, last = separate[first], np.zeros_like(first)
        last[message] = separate  # of several uses the last one wins
        begin, end = uses.row[self.first], uses.row[last]  # rows between which it is needed
        self.early = _early_gradients(~uses.differs[self.first], versions.fresh[begin], turns)
        self.computable = versions.computable[begin]
        self.pending, self.pending_slots = _slots(self.early, self.computable, begin)
        self.collected = np.zeros(len(use_counts), bool)
        if schedule.replicas == 1 < schedule.blocks and not hooks.contributes and not hooks.remembers:
            once_per_block = np.flatnonzero(use_counts == schedule.blocks)
            self.collected[once_per_block] = _collectable(schedule, begin[once_per_block], end[once_per_block], marks)
        self.reused = (use_counts > 1) & ~self.collected
        self.slot, self.slots = _slots(self.reused, begin, end)


def _origins(schedule: Schedule, row: Ints, gradient: Ints) -> Ints:
    """Return the ledger's number of each gradient; pseudo-gradients (NONE) are numbered after those: [uses]."""
    differs = gradient == NONE
    keys = np.stack([schedule[name][row[differs]] for name in ("worker", "source", "mailbox")])
    origin = gradient.copy()
    origin[differs] = len(schedule.ledger.workers) + np.unique(keys, axis=1, return_inverse=True)[1].ravel()
    return origin


def _early_gradients(of_gradients: Bools, fresh: Bools, turns: bool) -> Bools:
    """Return True for gradients whose parameters are overwritten before their first use (not `fresh`): [messages].

    If updates and beginnings are merged (`turns`) and any gradient has to be begun early, all are: that costs little, and saves
    compiling one kind of instruction.
    """
    early = of_gradients & ~fresh
    return of_gradients if turns and early.any() else early


def _collectable(schedule: Schedule, begin: Ints, end: Ints, marks: Ints) -> Bools:
    """Return True for messages that one instruction can add to all blocks; each has one use per block, in these rows.

    That is possible if a message is ADDed with weight 1 to one block after the other, in order, without a mark in between.
    """
    blocks = np.arange(schedule.blocks)
    valid = end == begin + blocks[-1]
    rows = begin[valid][:, None] + blocks
    fits = (schedule["verb"][rows] == Verb.ADD) & (schedule["weight"][rows] == 1.0) & (schedule["block"][rows] == blocks)
    valid[valid] = fits.all(1) & (np.searchsorted(marks, rows[:, 0], "right") == np.searchsorted(marks, rows[:, -1], "right"))
    return valid


def _slots(mask: Bools, begin: Ints, end: Ints) -> tuple[Ints, int]:
    """Return a slot for each of the chosen from row to row, [messages], and the number of slots."""
    slots = np.zeros(len(mask), np.int64)
    slots[mask] = assign_slots(begin[mask], end[mask])
    return slots, int(slots[mask].max(initial=NONE)) + 1
