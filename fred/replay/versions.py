"""Versions of the parameters that each row reads and writes, and their registers; how each message is made. NumPy only.

Every change of a block of a replica makes a new version. A SYNC that replaces it by a mailbox makes none, so replicas that
averaged with each other share one. A version occupies its register until its last reader is done. With one replica of which
only the current version is ever read, one register suffices. Each group of blocks has its own registers.

Without registers memory would grow with the run: 20,000 updates of 784-200-10 make 13 GB of versions, of which 16 asynchronous
workers need 17 at a time, 11 MB. The whole schedule is known before the replay, so each version's last reader is, too.

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

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fred.base.types import Bools, Ints
from fred.replay.phases import Hooks
from fred.schedule.schedule import NONE, Schedule, Verb

_PULL, _PUSH, _ADD, _COMMIT, _MIX, _SYNC, _ = map(int, Verb)  # plain integers: an enum costs time in every row


@dataclass
class Mix:
    """A version made of others: into <- sum of weights x sources."""

    row: int
    target: int
    sources: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Versions:
    """The registers that each row reads and writes, in its block's group; NONE if there is none."""

    sources: Ints  # [rows, blocks]: parameters at which the row's message is computed
    computable: Ints  # [rows]: for the use of a gradient, the row after which all of these are known
    fresh: NDArray[np.bool_]  # [rows]: True if all of these are still the current version at the use
    read: Ints  # [rows]: the block before the row; ADD: the block whose round is joined
    synced_with: Ints  # [rows]: SYNC: the mailbox
    output: Ints  # [rows]: the block after the row
    ends: Ints  # [rows, blocks]: where a pseudo-gradient ends
    mixes: list[Mix]
    replica_registers: Ints  # [marks, replicas x blocks]: the replicas at each mark
    counts: tuple[int, ...]  # number of registers in each group


def trace(schedule: Schedule, marks: Ints, groups: Sequence[int], hooks: Hooks) -> Versions:
    """Trace the versions through the schedule.

    `marks`: rows before which the replicas will be read; `groups`: the group of each block.
    """
    cells = schedule.replicas * schedule.blocks
    if cells > 1 or len(schedule.rows(Verb.MIX, Verb.SYNC)) or (schedule["source"] != NONE).any():
        return _Tracer(schedule, groups, hooks).run(marks)
    # One block of one replica, which only PULLs read: each row reads and writes register 0. A gradient whose parameters are
    # overwritten before its use is begun at its PULL.
    zeros = np.zeros(len(schedule), np.int64)
    pulls = schedule.rows(Verb.PULL)
    pull_rows = np.zeros(int(schedule["mailbox"].max(initial=NONE)) + 1, np.int64)  # by mailbox
    pull_rows[schedule["mailbox"][pulls]] = pulls
    computable, fresh = np.full(len(schedule), NONE), np.zeros(len(schedule), bool)
    uses = schedule.ledger.uses
    computable[uses] = pull_rows[schedule["mailbox"][uses]]
    clocks = schedule["timestamp"][uses] + schedule["staleness"][uses]
    fresh[uses] = clocks == schedule.read_clocks(uses)  # not `staleness == 0`: a timestamp may be later than the read
    registers = np.zeros((len(marks), 1), np.int64)
    sources, ends = zeros[:, None], np.full((len(schedule), 0), NONE)
    return Versions(sources, computable, fresh, zeros, zeros, zeros, ends, [], registers, (1,))


class _Tracer:
    """A walk through the rows, with the current version of each block of each replica."""

    def __init__(self, schedule: Schedule, groups: Sequence[int], hooks: Hooks):
        self._schedule, self._groups, self._hooks = schedule, groups, hooks
        names = ("verb", "replica", "block", "mailbox", "source", "step", "weight", "keep")
        self._rows = list(zip(*(schedule[name].tolist() for name in names), strict=True))
        blocks, rows = schedule.blocks, len(schedule)
        self._current = list(range(schedule.replicas * blocks))
        self._birth_rows, self._last_reads = [NONE] * len(self._current), [0] * len(self._current)  # row of each, by version
        self._group = [groups[cell % blocks] for cell in self._current]  # by version
        self._mailboxes: dict[int, list[tuple[int, int]]] = {}  # by mailbox and block: version, and row of its PULL or MIX
        self._is_lone_mix = _lone_mixes(schedule)
        self._sources, self._ends = np.full((rows, blocks), NONE), np.full((rows, blocks), NONE)
        self._computable, self._read, self._synced_with, self._output = (np.full(rows, NONE) for _ in range(4))
        self._fresh = np.zeros(rows, bool)
        self._mixes: list[Mix] = []
        self._mixing: tuple[int, int] | None = None  # mailbox and block of the last MIX

    def run(self, marks: Ints) -> Versions:
        versions_at_marks = np.empty((len(marks), len(self._current)), np.int64)
        bounds = [0, *marks.tolist(), len(self._schedule)]  # of intervals of rows; each but the last one ends at a mark
        for interval, (start, end) in enumerate(pairwise(bounds)):
            for row in range(start, end):
                self._trace_row(row)
            if interval < len(marks):
                versions_at_marks[interval] = self._current
        for version in self._current:
            self._note_read(version, len(self._schedule))
        registers, counts = self._assign_registers()
        for mix in self._mixes:
            mix.target, mix.sources = int(registers[mix.target]), registers[mix.sources].tolist()
        registers = np.append(registers, NONE)  # index NONE, the last, yields NONE
        read, synced_with, output = (registers[versions] for versions in (self._read, self._synced_with, self._output))
        sources, ends = registers[self._sources], registers[self._ends]
        return Versions(
            sources,
            self._computable,
            self._fresh,
            read,
            synced_with,
            output,
            ends,
            self._mixes,
            registers[versions_at_marks],
            counts,
        )

    def _assign_registers(self) -> tuple[Ints, tuple[int, ...]]:
        """Return a register for each version, in its group's stack [versions], and the number of registers of each group."""
        birth_rows, group_of_version = np.array(self._birth_rows), np.array(self._group)
        last_reads = np.maximum(self._last_reads, birth_rows + 1)  # even an unread version is written somewhere
        registers = np.empty(len(birth_rows), np.int64)
        counts = []
        for group in range(max(self._groups) + 1):
            mask = group_of_version == group
            registers[mask] = assign_slots(birth_rows[mask], last_reads[mask])
            counts.append(int(registers[mask].max(initial=0)) + 1)
        return registers, tuple(counts)

    def _trace_row(self, row: int) -> None:
        verb, replica, block, mailbox, source, step, weight, keep = self._rows[row]
        cell = replica * self._schedule.blocks + block
        if verb == _PULL:
            self._put_into_mailbox(mailbox, block, self._current[cell], row)
        elif verb == _MIX:
            self._mix(row, block, mailbox, self._mailboxes[source][block], weight)
        elif verb == _SYNC:
            self._sync(row, cell, block, self._mailboxes[mailbox][block][0], keep, weight)
        elif verb in (_PUSH, _ADD) and step == NONE:  # a pseudo-gradient, from the model in `source` to that in `mailbox`
            self._sources[row], self._ends[row] = self._note_reads(source, row), self._note_reads(mailbox, row)
        elif verb in (_PUSH, _ADD):
            self._use(row, replica, mailbox)
        if verb in (_PUSH, _COMMIT):
            self._replace(row, cell, self._add_version(row, block))
        elif verb == _ADD:
            self._read[row] = self._current[cell]
            self._note_read(self._current[cell], row)

    def _add_version(self, row: int, block: int) -> int:
        """Return the number of a new version, which this row makes."""
        self._birth_rows.append(row)
        self._last_reads.append(row)
        self._group.append(self._groups[block])
        return len(self._birth_rows) - 1

    def _note_read(self, version: int, row: int) -> None:
        self._last_reads[version] = max(self._last_reads[version], row)

    def _note_reads(self, mailbox: int, row: int) -> list[int]:
        """Note that a row reads a whole mailbox, and return its versions."""
        versions = [version for version, _ in self._mailboxes[mailbox]]
        for version in versions:
            self._note_read(version, row)
        return versions

    def _replace(self, row: int, cell: int, version: int) -> None:
        """Replace a block of a replica by a version; the old one may be read until now."""
        self._read[row], self._output[row] = self._current[cell], version
        self._note_read(self._current[cell], row)
        self._current[cell] = version

    def _put_into_mailbox(self, mailbox: int, block: int, version: int, row: int) -> None:
        contents = self._mailboxes.setdefault(mailbox, [(NONE, NONE)] * self._schedule.blocks)
        contents[block] = version, row

    def _use(self, row: int, replica: int, mailbox: int) -> None:
        """Trace the use of a gradient: its versions are either still current, or read as soon as all are known."""
        contents = self._mailboxes[mailbox]
        versions = [version for version, _ in contents]
        self._computable[row] = max(row_of_write for _, row_of_write in contents)
        self._sources[row] = versions
        blocks = self._schedule.blocks
        self._fresh[row] = versions == self._current[replica * blocks : (replica + 1) * blocks]
        if not self._fresh[row]:
            for version in versions:  # + 1: the gradient is begun after that row, whose output must not take their registers
                self._note_read(version, self._computable[row] + 1)

    def _mix(self, row: int, block: int, mailbox: int, source: tuple[int, int], weight: float) -> None:
        version, row_of_write = source
        if weight == 1.0 and self._is_lone_mix[row]:  # nothing is summed: the same version, known since it was read
            self._put_into_mailbox(mailbox, block, version, row_of_write)
            return
        if self._mixing != (mailbox, block):
            self._mixing = mailbox, block  # later rows of this mailbox and block add sources to the same version
            self._mixes.append(Mix(row, self._add_version(row, block)))
        mix = self._mixes[-1]
        self._put_into_mailbox(mailbox, block, mix.target, row)
        mix.sources.append(version)
        mix.weights.append(weight)
        mix.row = self._birth_rows[mix.target] = row
        for mix_source in mix.sources:  # all are read once the last one is known
            self._note_read(mix_source, row)

    def _sync(self, row: int, cell: int, block: int, version: int, keep: float, weight: float) -> None:
        self._note_read(version, row)
        self._synced_with[row] = version
        if self._hooks.synchronizes:
            self._replace(row, cell, self._add_version(row, block))
        elif (keep, weight) == (0.0, 1.0):
            self._replace(row, cell, version)  # no new version
        else:
            parts = [(self._current[cell], keep), (version, weight)] if keep else [(version, weight)]
            mix = Mix(row, self._add_version(row, block), [part[0] for part in parts], [part[1] for part in parts])
            self._mixes.append(mix)
            self._mixing = None  # `_mixes[-1]` is no longer that of the last MIX
            self._replace(row, cell, mix.target)


def _lone_mixes(schedule: Schedule) -> NDArray[np.bool_]:
    """Return True for each MIX that is the only one for its block of its mailbox: [rows]."""
    mixes = schedule.rows(Verb.MIX)
    keys = schedule["mailbox"][mixes] * schedule.blocks + schedule["block"][mixes]
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    lone = np.zeros(len(schedule), bool)
    lone[mixes] = counts[inverse] == 1
    return lone


def assign_slots(begin: Ints, end: Ints) -> Ints:
    """Return a slot for each interval of rows (begin, end]; overlapping ones get different slots, as few as possible."""
    # The slot that became free last is reused first, and a new one is added only while all others are taken. So the number
    # of slots is the largest number of intervals that overlap. An interval that ends at a row frees its slot for one that
    # begins there, because ends come first in the stable order of events.
    count, used = len(begin), 0
    slots, free = [0] * count, list[int]()  # lists: single elements of an array take three times as long
    events = np.argsort(np.concatenate((end, begin)), kind="stable")  # ends before begins
    for event in events.tolist():
        if event < count:
            free.append(slots[event])
        elif free:
            slots[event - count] = free.pop()
        else:
            slots[event - count] = used
            used += 1
    return np.array(slots, np.int64)


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
        # a message whose round is never committed is made only if that changes its worker's memory
        relevant = np.full(len(ledger.uses), hooks.remembers) | (ledger.updates != NONE)
        self.row, self.update = ledger.uses[relevant], ledger.updates[relevant]
        self.origin = _origins(schedule, self.row, ledger.gradients[relevant])
        self.differs = self.origin >= len(ledger.workers)
        self.adds = schedule["verb"][self.row] == Verb.ADD
        simple = hooks.batchable and schedule.replicas * schedule.blocks == 1
        self.flat = self._flat(schedule, versions) if simple else np.zeros(len(self.row), bool)

    def _flat(self, schedule: Schedule, versions: Versions) -> Bools:
        """Return True for uses in rounds that are the mean of gradients at the current version, all used for the first time."""
        is_first_use = np.zeros(len(self.row), bool)
        is_first_use[np.unique(self.origin, return_index=True)[1]] = True
        valid = self.adds & is_first_use & ~self.differs & (schedule["weight"][self.row] == 1.0)
        valid &= versions.fresh[self.row]
        clock = schedule["timestamp"][self.row] + schedule["staleness"][self.row]
        valid[valid] &= clock[valid] == schedule["timestamp"][self.update[valid]]  # no update since
        commits, members = np.unique(self.update[self.adds], return_counts=True)
        means = commits[(schedule["weight"][commits] == 1.0 / members) & (commits != NONE)]
        valid &= np.isin(self.update, means)
        rounds_with_invalid_use = np.unique(self.update[~valid])
        return valid & ~np.isin(self.update, rounds_with_invalid_use)


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
        separate = np.flatnonzero(~uses.flat)  # uses of messages made by themselves
        self.origin, first_in_separate, message_of_each, use_counts = np.unique(
            uses.origin[separate], return_index=True, return_inverse=True, return_counts=True
        )
        self.of_use = np.full(len(uses.row), NONE)
        self.of_use[separate] = message_of_each
        self.first, last_use = separate[first_in_separate], np.zeros_like(first_in_separate)
        last_use[message_of_each] = separate  # of several uses the last one wins
        begin_rows, end_rows = uses.row[self.first], uses.row[last_use]  # of the first and the last use
        self.early = _early_gradients(~uses.differs[self.first], versions.fresh[begin_rows], turns)
        self.computable = versions.computable[begin_rows]
        self.pending, self.pending_slots = _slots(self.early, self.computable, begin_rows)
        self.collected = np.zeros(len(use_counts), bool)
        if schedule.replicas == 1 < schedule.blocks and not hooks.contributes and not hooks.remembers:
            once_per_block = np.flatnonzero(use_counts == schedule.blocks)
            self.collected[once_per_block] = _collectable(schedule, begin_rows[once_per_block], end_rows[once_per_block], marks)
        self.reused = (use_counts > 1) & ~self.collected
        self.slot, self.slots = _slots(self.reused, begin_rows, end_rows)


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
    """Return a slot for each message of the mask, taken from row `begin` to row `end` [messages], and the number of slots."""
    slots = np.zeros(len(mask), np.int64)
    slots[mask] = assign_slots(begin[mask], end[mask])
    return slots, int(slots[mask].max(initial=NONE)) + 1
