"""How each message is made: where its gradient is computed, and what is kept of it until it is used. NumPy only.

If the parameters that a gradient belongs to are still the present ones when it is first used, it is computed then. Otherwise
it is begun as soon as they are at hand, what has been made of it is kept, and it is finished when it is used. A message that
is used again is kept from its first use to its last. A round of one server whose gradients all belong to its present version,
and are used for the first time, is one flat batch, and has no messages.

Each array here has an entry for each of one kind of thing, which its brackets name, and some lead from one kind to another:

| kind     | what is counted                                                           | what leads on from there             |
|----------|---------------------------------------------------------------------------|--------------------------------------|
| uses     | rows PUSH and ADD for which a message has to be made                      | to rows `Uses.row`, to messages      |
|          |                                                                           | `Messages.of_use`                    |
| messages | what is made by itself: once, however often it is used                    | to the first of its uses `first`     |
| origins  | what messages are made of: gradients, numbered as in the ledger, and      | to workers and steps the ledger      |
|          | after them differences of models                                          |                                      |
| rows     | of the schedule                                                           | to what stands there its columns     |
"""

import numpy as np
from numpy.typing import NDArray

from fred.replay.hooks import Hooks
from fred.replay.versions import Versions, assign_slots
from fred.schedule.schedule import NONE, Ints, Schedule, Verb

Bools = NDArray[np.bool_]


class Uses:
    """The uses of messages, in the order of their rows. All arrays are [uses]."""

    row: Ints  # in which it is used
    update: Ints  # row of the update that the message takes part in; NONE: its round is left open
    origin: Ints  # what the message is made of
    differs: Bools  # that is a difference
    adds: Bools  # it joins a round; the others make an update by themselves
    flat: Bools  # its round is one batch

    def __init__(self, schedule: Schedule, hooks: Hooks, versions: Versions):
        ledger = schedule.ledger
        needed = np.full(len(ledger.uses), hooks.remembers) | (ledger.updates != NONE)  # also those that leave a memory behind
        self.row, self.update = ledger.uses[needed], ledger.updates[needed]
        self.origin = _origins(schedule, self.row, ledger.gradients[needed])
        self.differs = self.origin >= len(ledger.workers)
        self.adds = schedule["verb"][self.row] == Verb.ADD
        simple = hooks.plain and schedule.replicas * schedule.blocks == 1
        self.flat = self._flat(schedule, versions) if simple else np.zeros(len(self.row), bool)

    def _flat(self, schedule: Schedule, versions: Versions) -> Bools:
        """In a round that is the mean of gradients at the present version, in full, each used for the first time."""
        first = np.zeros(len(self.row), bool)
        first[np.unique(self.origin, return_index=True)[1]] = True
        good = self.adds & first & ~self.differs & (schedule["weight"][self.row] == 1.0)
        good &= versions.fresh[self.row]
        clock = schedule["timestamp"][self.row] + schedule["staleness"][self.row]
        good[good] &= clock[good] == schedule["timestamp"][self.update[good]]  # nothing has changed since
        commits, members = np.unique(self.update[self.adds], return_counts=True)
        means = commits[(schedule["weight"][commits] == 1.0 / members) & (commits != NONE)]
        good &= np.isin(self.update, means)
        spoilt = np.unique(self.update[~good])
        return good & ~np.isin(self.update, spoilt)


class Messages:
    """Messages that are made by themselves, and how. All arrays but `of_use` are [messages]."""

    of_use: Ints  # [uses]: which message is used; NONE: none by itself, its round is one batch
    origin: Ints  # what it is made of; ascending
    first: Ints  # its first use
    begun: Bools  # before its first use: when its parameters are at hand
    computable: Ints  # row since which they are
    kept: Ints  # the slot in which it lies, begun, until its first use
    collected: Bools  # it joins the rounds of all blocks at once
    again: Bools  # it is used again later, and stored until then
    slot: Ints  # the slot in which it lies, stored, from its first use to its last
    kept_slots: int  # how many slots each of the two needs
    slots: int

    def __init__(self, schedule: Schedule, uses: Uses, hooks: Hooks, versions: Versions, marks: Ints, turns: bool):
        alone = np.flatnonzero(~uses.flat)  # uses
        self.origin, first, which, times = np.unique(
            uses.origin[alone], return_index=True, return_inverse=True, return_counts=True
        )
        self.of_use = np.full(len(uses.row), NONE)
        self.of_use[alone] = which
        self.first, last = alone[first], np.zeros_like(first)
        last[which] = alone  # of several uses the last is what stays
        begin, end = uses.row[self.first], uses.row[last]  # rows between which it is needed
        self.begun = _begun(~uses.differs[self.first], versions.fresh[begin], turns)
        self.computable = versions.computable[begin]
        self.kept, self.kept_slots = _slots(self.begun, self.computable, begin)
        self.collected = np.zeros(len(times), bool)
        if schedule.replicas == 1 < schedule.blocks and not hooks.contributes and not hooks.remembers:
            once_for_each = np.flatnonzero(times == schedule.blocks)
            self.collected[once_for_each] = _collectable(schedule, begin[once_for_each], end[once_for_each], marks)
        self.again = (times > 1) & ~self.collected
        self.slot, self.slots = _slots(self.again, begin, end)


def _origins(schedule: Schedule, row: Ints, gradient: Ints) -> Ints:
    """[uses]: the ledger's number of the gradient; where there is none (NONE), of a difference, one beyond those."""
    differs = gradient == NONE
    between = np.stack([schedule[name][row[differs]] for name in ("worker", "source", "mailbox")])
    origin = gradient.copy()
    origin[differs] = len(schedule.ledger.workers) + np.unique(between, axis=1, return_inverse=True)[1].ravel()
    return origin


def _begun(of_gradients: Bools, fresh: Bools, turns: bool) -> Bools:
    """[messages]: gradients whose parameters are gone when they are first used, where they are not `fresh`.

    Where updates and beginnings are one instruction (`turns`), and any gradient has to be begun before, all are: that costs
    little, and leaves one kind of instruction less to compile.
    """
    begun = of_gradients & ~fresh
    return of_gradients if turns and begun.any() else begun


def _collectable(schedule: Schedule, begin: Ints, end: Ints, marks: Ints) -> Bools:
    """Of messages that are used as often as there are blocks, first and last in these rows: whether one instruction can do it.

    So it is if they are ADDed in full to one block after the other, in order, without a mark in between.
    """
    blocks = np.arange(schedule.blocks)
    good = end == begin + blocks[-1]
    rows = begin[good][:, None] + blocks
    fits = (schedule["verb"][rows] == Verb.ADD) & (schedule["weight"][rows] == 1.0) & (schedule["block"][rows] == blocks)
    good[good] = fits.all(1) & (np.searchsorted(marks, rows[:, 0], "right") == np.searchsorted(marks, rows[:, -1], "right"))
    return good


def _slots(chosen: Bools, begin: Ints, end: Ints) -> tuple[Ints, int]:
    """[messages]: a slot for each of the chosen from row to row; and how many there are."""
    slots = np.zeros(len(chosen), np.int64)
    slots[chosen] = assign_slots(begin[chosen], end[chosen])
    return slots, int(slots[chosen].max(initial=NONE)) + 1
