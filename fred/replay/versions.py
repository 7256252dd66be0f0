"""Which version of the parameters each row reads and writes, and the register in which each version lies. NumPy only.

Every change of a replica makes a new version; a SYNC that replaces a replica by a mailbox makes none, so replicas that
averaged with each other share one. A version keeps its register until its last reader is done, and no longer; where there is
one replica and nobody reads anything but its present version, that is one register.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fred.schedule import NONE, Schedule, Verb

Ints = NDArray[np.int64]
_PULL, _PUSH, _, _COMMIT, _MIX, _SYNC, _ = map(int, Verb)  # plain integers: an enum costs time in every row
LONGEST_MIX = 2  # sources of one instruction; longer sums are made of several (wider ones were slower)


@dataclass
class Mix:
    """One instruction that makes a version of others: into <- [into +] sum of weights x sources."""

    row: int
    into: int
    continues: bool = False  # whether it adds to what is there
    sources: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Versions:
    """What each row reads and writes, as registers."""

    sources: Ints  # [rows, blocks]: what the gradient first used in the row is computed at; NONE elsewhere
    pulled: Ints  # [rows]: for such a row the row since which all of that has been at hand
    fresh: NDArray[np.bool_]  # [rows]: whether all of that is still the present version then
    read: Ints  # [rows]: the replica before an update
    made: Ints  # [rows]: the replica after it
    mixes: list[Mix]
    homes: Ints  # [breaks, replicas]: the replicas at each break
    count: int  # registers


def trace(schedule: Schedule, breaks: Ints, first_uses: Ints) -> Versions:
    """Follow the versions through the schedule; `first_uses` are the rows in which a gradient is used for the first time."""
    if schedule.replicas > 1 or len(schedule.rows(Verb.MIX, Verb.SYNC)):
        return _Tracer(schedule, first_uses).run(breaks)
    zeros = np.zeros(len(schedule), np.int64)
    pulls = schedule.rows(Verb.PULL)
    rows_of = np.zeros(int(schedule["mailbox"].max(initial=NONE)) + 2, np.int64)  # the last one for PULLs of no mailbox
    rows_of[schedule["mailbox"][pulls]] = pulls
    pulled = zeros.copy()
    pulled[first_uses] = rows_of[schedule["mailbox"][first_uses]]
    homes = np.zeros((len(breaks), 1), np.int64)
    return Versions(zeros[:, None], pulled, schedule["staleness"] == 0, zeros, zeros, [], homes, 1)


class _Tracer:
    """One walk through the rows, with the present version of each replica at hand."""

    def __init__(self, schedule: Schedule, first_uses: Ints):
        self._schedule = schedule
        names = ("verb", "replica", "mailbox", "source", "worker", "weight", "keep")
        self._rows = list(zip(*(schedule[name].tolist() for name in names), strict=True))
        self._first_uses = set(first_uses.tolist())
        self._present = list(range(schedule.replicas))
        self._born, self._last = [-1] * schedule.replicas, [0] * schedule.replicas  # row, by version
        self._mailboxes = _Mailboxes(schedule)
        rows = len(schedule)
        self._sources = [[NONE] * schedule.blocks] * rows
        self._pulled, self._read, self._made, self._fresh = [NONE] * rows, [NONE] * rows, [NONE] * rows, [False] * rows
        self._mixes: list[Mix] = []

    def run(self, breaks: Ints) -> Versions:
        homes = np.empty((len(breaks), self._schedule.replicas), np.int64)
        bounds = [0, *breaks.tolist(), len(self._schedule)]
        for number, (start, end) in enumerate(pairwise(bounds)):
            for row in range(start, end):
                self._follow(row)
            if number < len(breaks):
                homes[number] = self._present
        for version in self._present:
            self._reads(version, len(self._schedule))
        registers = colour(np.array(self._born), np.maximum(self._last, np.array(self._born) + 1))
        for mix in self._mixes:
            mix.into, mix.sources = int(registers[mix.into]), registers[mix.sources].tolist()
        sources, read, made = (registers[np.array(versions)] for versions in (self._sources, self._read, self._made))
        pulled, fresh = np.array(self._pulled), np.array(self._fresh)
        return Versions(sources, pulled, fresh, read, made, self._mixes, registers[homes], int(registers.max()) + 1)

    def _follow(self, row: int) -> None:
        verb, replica, mailbox, source, worker, weight, keep = self._rows[row]
        if verb == _PULL:
            self._mailboxes.fill(mailbox, replica, self._present[replica], row)
        elif verb == _MIX:
            self._mix(row, mailbox, self._mailboxes.only(source), weight)
        elif verb == _SYNC:
            self._sync(row, replica, self._mailboxes.only(mailbox), keep, weight)
        elif row in self._first_uses:
            self._use(row, replica, worker, mailbox)
        if verb in (_PUSH, _COMMIT):
            self._read[row] = self._present[replica]
            self._made[row] = self._replace(row, replica, self._new(row))

    def _new(self, row: int) -> int:
        self._born.append(row)
        self._last.append(row)
        return len(self._born) - 1

    def _reads(self, version: int, row: int) -> None:
        self._last[version] = max(self._last[version], row)

    def _replace(self, row: int, replica: int, version: int) -> int:
        """A replica may be looked at until it is replaced."""
        self._reads(self._present[replica], row)
        self._present[replica] = version
        return version

    def _use(self, row: int, replica: int, worker: int, mailbox: int) -> None:
        """A gradient's first use: its versions are still present, or are read where they were pulled."""
        versions, self._pulled[row] = self._mailboxes.contents(worker, mailbox)
        self._sources[row] = versions
        self._fresh[row] = versions == (self._present if self._schedule.blocks > 1 else [self._present[replica]])
        if not self._fresh[row]:
            for version in versions:
                self._reads(version, self._pulled[row])

    def _mix(self, row: int, mailbox: int, version: int, weight: float) -> None:
        into = self._mailboxes.made_by_mix.get(mailbox)
        if into is None:
            into = self._mailboxes.made_by_mix[mailbox] = self._new(row)
            self._mixes.append(Mix(row, into))
        elif len(self._mixes[-1].sources) == LONGEST_MIX:
            self._mixes.append(Mix(row, into, continues=True))
        mix = self._mixes[-1]
        mix.sources.append(version)
        mix.weights.append(weight)
        mix.row = row
        if not mix.continues:
            self._born[into] = row
        for source in mix.sources:  # all are read when the last is known
            self._reads(source, row)

    def _sync(self, row: int, replica: int, version: int, keep: float, weight: float) -> None:
        self._reads(version, row)
        if (keep, weight) == (0.0, 1.0):
            self._replace(row, replica, version)
            return
        parts = [(self._present[replica], keep), (version, weight)] if keep else [(version, weight)]
        mix = Mix(row, self._new(row), False, [part[0] for part in parts], [part[1] for part in parts])
        self._mixes.append(mix)
        self._replace(row, replica, mix.into)


class _Mailboxes:
    """The versions in each mailbox."""

    def __init__(self, schedule: Schedule):
        self._blocks = schedule.blocks
        self.made_by_mix: dict[int, int] = {}  # mailbox -> version
        self._pulls: dict[int, list[tuple[int, int, int]]] = {}  # mailbox -> (block, version, row) of its PULLs
        self._contents: dict[int, tuple[list[int], int]] = {}  # mailbox -> versions by block; row of the last PULL
        pulls = schedule.rows(Verb.PULL)
        pulls = pulls[schedule["mailbox"][pulls] != NONE]
        self._queues: dict[int, list[int]] = {}  # worker -> its mailboxes not resolved yet, the first one last
        for worker in np.unique(schedule["worker"][pulls]).tolist() if schedule.blocks > 1 else ():
            own = pulls[schedule["worker"][pulls] == worker]
            self._queues[worker] = np.unique(schedule["mailbox"][own])[::-1].tolist()
        self._latest: dict[int, tuple[list[int], int]] = {}  # worker -> contents of its last resolved mailbox

    def fill(self, mailbox: int, replica: int, version: int, row: int) -> None:
        """A PULL."""
        if self._blocks == 1:
            self._contents[mailbox] = [version], row
        elif mailbox != NONE:
            self._pulls.setdefault(mailbox, []).append((replica, version, row))

    def only(self, mailbox: int) -> int:
        """The version in a mailbox of one block."""
        mixed = self.made_by_mix.get(mailbox)
        return self._contents[mailbox][0][0] if mixed is None else mixed

    def contents(self, worker: int, mailbox: int) -> tuple[list[int], int]:
        """Versions by block, and the row since which all have been at hand."""
        while mailbox not in self._contents:  # a block that was not sent is that of the worker's mailbox before
            number = self._queues[worker].pop()
            versions, written = self._latest.get(worker, ([NONE] * self._blocks, NONE))
            versions = list(versions)
            for block, version, row in self._pulls[number]:
                versions[block], written = version, max(written, row)
            self._latest[worker] = self._contents[number] = versions, written
        return self._contents[mailbox]


def colour(begin: Ints, end: Ints) -> Ints:
    """A slot for each interval of rows (begin, end] such that no two that overlap share one; as few slots as possible."""
    slots = np.empty(len(begin), np.int64)
    free: list[int] = []
    used = 0
    events = np.lexsort((np.repeat((1, 0), len(begin)), np.concatenate((begin, end))))  # ends before begins
    for event in events.tolist():
        if event >= len(begin):
            free.append(int(slots[event - len(begin)]))
        else:
            if not free:
                free.append(used)
                used += 1
            slots[event] = free.pop()
    return slots
