"""Schedule -> program: which gradient is computed when, and where it is kept until it is used. NumPy only.

Where a gradient is computed decides what has to be stored. If the replica has not changed since its parameters were pulled,
the gradient is computed when it is used; otherwise at the pull, from the parameters at hand, and the gradient is kept. So
versions of the parameters are kept only where other workers still have to read them (`versions.py`). A round of one server
whose gradients all belong to the present version is one flat batch.
"""

import numpy as np
from numpy.typing import NDArray

from fred.replay.phases import Code, Ints, Kind, Op, Program
from fred.replay.versions import Mix, Versions, colour, trace
from fred.schedule import NONE, Schedule, Verb


def padded(members: int, workers: int) -> int:
    """Size of the flat batch in which a round of `members` gradients is computed: one of at most 8 sizes up to `workers`."""
    step = -(-workers // 8)
    return max(members, min(-(-members // step) * step, workers))


def lower(schedule: Schedule, breaks: Ints) -> Program:
    """The program for a schedule. Phases never straddle a break: a row before which the state will be looked at."""
    uses = _Uses(schedule)
    versions = trace(schedule, breaks, uses.rows[uses.first])
    uses.place(versions)
    code = Code()
    _emit_flat_rounds(code, schedule, uses)
    _emit_gradients(code, schedule, uses, versions)
    _emit_mixes(code, versions.mixes)
    _emit_updates(code, schedule, uses, versions)
    kinds, operands, offsets, marks = code.phases(breaks, schedule.replicas)
    return Program(kinds, operands, offsets, marks, versions.homes, versions.count, uses.slots)


class _Uses:
    """The rows that use gradients, the gradients themselves, and the slot of each."""

    def __init__(self, schedule: Schedule):
        everything = schedule.rows(Verb.PUSH, Verb.ADD)
        known, first = np.unique(schedule.keys(everything), return_index=True)
        ordinal = np.argsort(np.argsort(first))
        self.rows, update = schedule.settled()
        self.commit = np.where(schedule["verb"][self.rows] == Verb.ADD, update, NONE)  # row that closes the use's round
        gradients, self.first, self.gradient, self.times = np.unique(
            schedule.keys(self.rows), return_index=True, return_inverse=True, return_counts=True
        )  # first: [gradients], position in rows
        self.ordinal = ordinal[np.searchsorted(known, gradients)]  # [gradients], rank in the order of first use
        self._stale = schedule["staleness"][self.rows] > 0
        self._one_server = schedule.replicas == 1

    def place(self, versions: Versions) -> None:
        """Decide where each gradient is computed, and find it a slot until its last use."""
        last = np.zeros_like(self.first)
        np.maximum.at(last, self.gradient, np.arange(len(self.rows)))
        fresh = versions.fresh[self.rows[self.first]]
        self.flat = self._flat()  # [gradients], part of a flat batch
        self.late = fresh & ~self.flat  # computed when first used
        self.born = np.where(fresh, self.rows[self.first], versions.pulled[self.rows[self.first]])  # row where it is computed
        in_a_row = self.rows[last] - self.rows[self.first] == self.times - 1
        once = (self.times == 1) | (in_a_row & (self.commit[self.first] != NONE))  # or once for every block
        brief = self.flat | (self.late & once)  # used where it is computed and never again: slot 0
        self.slot = np.zeros(len(self.first), np.int64)
        self.slot[~brief] = 1 + colour(self.born[~brief], self.rows[last][~brief])
        self.slots = int(self.slot.max(initial=0)) + 1

    def _flat(self) -> NDArray[np.bool_]:
        """Gradients of one server's rounds in which every gradient is at the present version and used only here."""
        good = ~self._stale & (self.times[self.gradient] == 1) & (self.commit != NONE) & self._one_server
        spoilt = np.unique(self.commit[~good])
        return ~np.isin(self.commit[self.first], spoilt) & (self.commit[self.first] != NONE)


def _emit_flat_rounds(code: Code, schedule: Schedule, uses: _Uses) -> None:
    """One gradient for each flat round, its members in the order of their workers, whoever arrived first."""
    mine = np.flatnonzero(uses.flat[uses.gradient])
    workers, steps = schedule["worker"][uses.rows[mine]], schedule["step"][uses.rows[mine]]
    mine = mine[np.lexsort((steps, workers, uses.commit[mine]))]
    commits, begins, counts = np.unique(uses.commit[mine], return_index=True, return_counts=True)
    sizes = np.array([padded(count, schedule.workers) for count in counts.tolist()], np.int64)
    for size in np.unique(sizes):
        own = sizes == size
        member = np.minimum(np.arange(size), counts[own, None] - 1)  # absent members repeat the last one, masked
        used = mine[begins[own, None] + member]
        code.emit(
            Kind(Op.GRADIENT, int(size), bool((counts[own] < size).any())),
            commits[own],
            0,
            sources=np.zeros((int(own.sum()), 1), np.int64),
            store=np.zeros(int(own.sum()), np.int64),
            worker=schedule["worker"][uses.rows[used]],
            step=schedule["step"][uses.rows[used]],
            ordinal=uses.ordinal[uses.gradient[used]],
            count=counts[own],
        )


def _emit_gradients(code: Code, schedule: Schedule, uses: _Uses, versions: Versions) -> None:
    """All other gradients, one by one: before their first use, or after the pull."""
    for chosen, within in ((uses.late, 0), (~uses.late & ~uses.flat, 1)):
        rows = uses.rows[uses.first[chosen]]
        code.emit(
            Kind(Op.GRADIENT),
            uses.born[chosen],
            within,
            sources=versions.sources[rows],
            store=uses.slot[chosen],
            worker=schedule["worker"][rows, None],
            step=schedule["step"][rows, None],
            ordinal=uses.ordinal[chosen, None],
            count=np.ones(len(rows), np.int64),
        )


def _emit_mixes(code: Code, mixes: list[Mix]) -> None:
    for width, continues in {(len(mix.sources), mix.continues) for mix in mixes}:
        own = [mix for mix in mixes if (len(mix.sources), mix.continues) == (width, continues)]
        code.emit(
            Kind(Op.MIX, width, continues),
            np.array([mix.row for mix in own]),
            1,
            into=np.array([mix.into for mix in own]),
            sources=np.array([mix.sources for mix in own]),
            weights=np.array([mix.weights for mix in own]),
        )


def _emit_updates(code: Code, schedule: Schedule, uses: _Uses, versions: Versions) -> None:
    """APPLY for every PUSH; COMMIT for every round, and ADD for the gradients of rounds that are not flat."""
    slot = uses.slot[uses.gradient]
    pushes = uses.commit == NONE
    rows = uses.rows[pushes]
    replica, timestamp, client = (schedule[name][rows] for name in ("replica", "timestamp", "worker"))
    clock = timestamp + schedule["staleness"][rows]
    state = {"replica": replica, "source": versions.read[rows], "into": versions.made[rows], "clock": clock}
    code.emit(Kind(Op.APPLY), rows, 1, **state, slot=slot[pushes], timestamp=timestamp, client=client)
    adds = ~pushes & ~uses.flat[uses.gradient]
    rows = uses.rows[adds]
    opens = np.zeros(len(rows), bool)
    opens[np.unique(uses.commit[adds], return_index=True)[1]] = True
    code.emit(Kind(Op.ADD), rows, 1, replica=schedule["replica"][rows], slot=slot[adds], opens=opens)
    commits, counts = np.unique(uses.commit[~pushes], return_counts=True)
    summed = np.isin(commits, uses.commit[adds])
    for chosen, special in ((summed, True), (~summed, False)):
        rows = commits[chosen]
        replica, clock = schedule["replica"][rows], schedule["timestamp"][rows]
        weight = schedule["weight"][rows] if special else np.ones(len(rows))
        state = {"replica": replica, "source": versions.read[rows], "into": versions.made[rows], "clock": clock}
        code.emit(Kind(Op.COMMIT, 1, special), rows, 1, **state, weight=weight, count=counts[chosen])
