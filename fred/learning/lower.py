"""Schedule -> program: which gradient is computed when, and where it is kept until it is used. NumPy only.

A program is a sequence of phases; in each phase every kind of instruction runs a number of times, kinds in a fixed order.
So one compiled loop per kind, nested in a loop over phases, executes any schedule without a branch.

Where a gradient is computed decides what has to be stored. If the replica has not changed since its parameters were pulled,
the gradient is computed when it is used; otherwise at the pull, from the parameters at hand, and the gradient is kept. No
copy of the parameters is ever made. A round whose gradients all belong to the present version is one flat batch.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.schedule import NONE, Schedule, Verb

Ints = NDArray[np.int64]
Operands = dict[str, NDArray]
LONGEST_PHASE = 256  # instructions


class Op(IntEnum):
    """Instructions, in the order in which a phase runs them."""

    APPLY = 0  # replica <- apply_update(replica, slot)
    TURN = 1  # APPLY, then GRADIENT of the same replica: what an asynchronous run does all the time
    COMMIT = 2  # replica <- apply_round(replica, weight x slot)
    GRADIENT = 3  # slot <- gradient at the replica's present parameters
    ADD = 4  # slot <- slot + other slot


@dataclass(frozen=True, order=True)
class Kind:
    """One kind of instruction: what it does, and the static shape of its operands."""

    op: Op
    members: int = 1  # minibatches in one gradient
    masked: bool = False  # whether only the first `count` of them are real


@dataclass(frozen=True)
class Program:
    """What the replay executes."""

    kinds: tuple[Kind, ...]
    operands: dict[Kind, Operands]  # of the instructions of each kind, in order: [instructions, ...]
    offsets: Ints  # [phases + 1, kinds]: instructions of each kind before the phase
    marks: Ints  # [breaks]: phases before each break
    slots: int  # gradients kept at a time


def padded(members: int, workers: int) -> int:
    """Size of the flat batch in which a round of `members` gradients is computed: one of at most 8 sizes."""
    step = -(-workers // 8)
    return min(-(-members // step) * step, workers)


def lower(schedule: Schedule, breaks: Ints) -> Program:
    """The program for a schedule. Phases never straddle a break: a row before which the state will be looked at."""
    uses = _Uses(schedule)
    code = _Code()
    _emit_flat_rounds(code, schedule, uses)
    _emit_gradients(code, schedule, uses)
    _emit_updates(code, schedule, uses)
    return code.program(breaks, uses.slots)


class _Uses:
    """The rows that use gradients, the gradients themselves, and the slot of each."""

    def __init__(self, schedule: Schedule):
        rows = schedule.rows(Verb.PUSH, Verb.ADD)
        key = schedule["worker"][rows] * (schedule["step"][rows].max(initial=0) + 1) + schedule["step"][rows]
        known, first = np.unique(key, return_index=True)
        ordinal = np.argsort(np.argsort(first))
        commit = _commit_of(schedule, rows)
        settled = (schedule["verb"][rows] == Verb.PUSH) | (commit != NONE)
        self.rows, self.commit = rows[settled], commit[settled]  # commit: row that closes the use's round
        gradients, first, self.gradient, times = np.unique(
            key[settled], return_index=True, return_inverse=True, return_counts=True
        )
        self.first = first  # [gradients], position in rows
        self.ordinal = ordinal[np.searchsorted(known, gradients)]  # [gradients], rank in the order of first use
        last = np.zeros_like(first)
        np.maximum.at(last, self.gradient, np.arange(len(self.rows)))
        fresh = schedule["staleness"][self.rows[first]] == 0
        self.flat = self._flat(schedule, times)  # [gradients], part of a flat batch
        self.late = fresh & ~self.flat  # computed when first used
        self.born = np.where(fresh, self.rows[first], self._pulled(schedule, first))  # row where it is computed
        brief = self.flat | (self.late & (times == 1))  # used at once and never again: slot 0
        self.slot = np.zeros(len(first), np.int64)
        self.slot[~brief] = 1 + _colour(self.born[~brief], self.rows[last][~brief])
        self.sums = int(self.slot.max(initial=0)) + 1  # first of the slots that sum a round, one per replica
        self.slots = self.sums + (schedule.replicas if (self.commit != NONE).any() and not self.flat.all() else 0)

    def _flat(self, schedule: Schedule, times: Ints) -> NDArray[np.bool_]:
        """Gradients of rounds in which every gradient is at the present version and used only here."""
        good = (schedule["staleness"][self.rows] == 0) & (times[self.gradient] == 1) & (self.commit != NONE)
        spoilt = np.unique(self.commit[~good])
        return ~np.isin(self.commit[self.first], spoilt) & (self.commit[self.first] != NONE)

    def _pulled(self, schedule: Schedule, first: Ints) -> Ints:
        """Row of the PULL that each gradient was computed from; the n-th PULL wrote mailbox n."""
        return schedule.rows(Verb.PULL)[schedule["mailbox"][self.rows[first]]]


class _Block(NamedTuple):
    kind: Kind
    rows: Ints
    within: int
    operands: Operands


class _Code:
    """Collects instructions in any order and arranges them into phases."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []

    def emit(self, kind: Kind, rows: Ints, within: int, **operands: NDArray) -> None:
        """Instructions that belong to these rows; `within` orders those of one row."""
        if len(rows):
            self._blocks.append(_Block(kind, rows, within, operands))

    def program(self, breaks: Ints, slots: int) -> Program:
        """The instructions in the order of their rows, cut into phases."""
        rows = np.concatenate([block.rows for block in self._blocks] or [np.zeros(0, np.int64)])
        within = np.concatenate([np.full(len(block.rows), block.within) for block in self._blocks] or [rows])
        order = np.lexsort((within, rows))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        ranks = np.split(rank, np.cumsum([len(block.rows) for block in self._blocks])[:-1])
        cuts = np.searchsorted(rows[order], breaks)  # instructions before each break
        placed = _fuse_turns(_by_kind(self._blocks, ranks), cuts)
        return _phases(placed, cuts, slots)


@dataclass(frozen=True)
class _Placed:
    """Instructions of one kind: where each stands among all, in order, and their operands."""

    position: Ints
    operands: Operands

    def only(self, chosen: NDArray[np.bool_]) -> "_Placed":
        return _Placed(self.position[chosen], {name: array[chosen] for name, array in self.operands.items()})


def _by_kind(blocks: list[_Block], ranks: list[Ints]) -> dict[Kind, _Placed]:
    result = {}
    for kind in sorted({block.kind for block in blocks}):
        mine = [(block, rank) for block, rank in zip(blocks, ranks, strict=True) if block.kind == kind]
        position = np.concatenate([rank for _, rank in mine])
        sort = np.argsort(position)
        names = mine[0][0].operands
        operands = {name: np.concatenate([block.operands[name] for block, _ in mine])[sort] for name in names}
        result[kind] = _Placed(position[sort], operands)
    return result


def _fuse_turns(placed: dict[Kind, _Placed], cuts: Ints) -> dict[Kind, _Placed]:
    """Replace each APPLY followed at once, with no break between, by a GRADIENT of the same replica."""
    apply, gradient = placed.get(Kind(Op.APPLY)), placed.get(Kind(Op.GRADIENT))
    if apply is None or gradient is None:
        return placed
    following = np.searchsorted(gradient.position, apply.position + 1)
    following = np.minimum(following, len(gradient.position) - 1)
    fused = (gradient.position[following] == apply.position + 1) & ~np.isin(apply.position + 1, cuts)
    fused &= gradient.operands["replica"][following] == apply.operands["replica"]
    taken = np.zeros(len(gradient.position), bool)
    taken[following[fused]] = True
    first, second = apply.only(fused), gradient.only(taken)
    turns = _Placed(first.position, {**second.operands, **first.operands, "into": second.operands["slot"]})
    parts = {Kind(Op.APPLY): apply.only(~fused), Kind(Op.TURN): turns, Kind(Op.GRADIENT): gradient.only(~taken)}
    return {kind: part for kind, part in {**placed, **parts}.items() if len(part.position)}


def _phases(placed: dict[Kind, _Placed], cuts: Ints, slots: int) -> Program:
    """A new phase wherever the order of kinds would go backwards, at each cut, and before one gets too long."""
    kinds = tuple(sorted(placed))
    position = np.concatenate([placed[kind].position for kind in kinds] or [cuts[:0]])
    which = np.repeat(np.arange(len(kinds)), [len(placed[kind].position) for kind in kinds])
    order = np.argsort(position)
    position, which = position[order], which[order]
    opens = np.ones(len(which), bool)
    opens[1:] = (which[1:] < which[:-1]) | (np.arange(1, len(which)) % LONGEST_PHASE == 0)
    cuts = np.searchsorted(position, cuts)
    opens[cuts[cuts < len(opens)]] = True
    phase = np.cumsum(opens) - 1
    counts = np.zeros((int(opens.sum()) + 1, len(kinds)), np.int64)
    np.add.at(counts, (phase + 1, which), 1)
    operands = {kind: placed[kind].operands for kind in kinds}
    return Program(kinds, operands, counts.cumsum(axis=0), np.append(phase, opens.sum())[cuts], slots)


def _emit_flat_rounds(code: _Code, schedule: Schedule, uses: _Uses) -> None:
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
            replica=schedule["replica"][commits[own]],
            slot=np.zeros(int(own.sum()), np.int64),
            worker=schedule["worker"][uses.rows[used]],
            step=schedule["step"][uses.rows[used]],
            ordinal=uses.ordinal[uses.gradient[used]],
            count=counts[own],
        )


def _emit_gradients(code: _Code, schedule: Schedule, uses: _Uses) -> None:
    """All other gradients, one by one: before their first use, or after the pull."""
    for chosen, within in ((uses.late, 0), (~uses.late & ~uses.flat, 1)):
        rows = uses.rows[uses.first[chosen]]
        code.emit(
            Kind(Op.GRADIENT),
            uses.born[chosen],
            within,
            replica=schedule["replica"][rows],
            slot=uses.slot[chosen],
            worker=schedule["worker"][rows, None],
            step=schedule["step"][rows, None],
            ordinal=uses.ordinal[chosen, None],
            count=np.ones(len(rows), np.int64),
        )


def _emit_updates(code: _Code, schedule: Schedule, uses: _Uses) -> None:
    """APPLY for every PUSH; COMMIT for every round, and ADD for the gradients of rounds that are not flat."""
    slot = uses.slot[uses.gradient]
    pushes = uses.commit == NONE
    rows = uses.rows[pushes]
    replica, timestamp, client = (schedule[name][rows] for name in ("replica", "timestamp", "worker"))
    code.emit(Kind(Op.APPLY), rows, 1, replica=replica, slot=slot[pushes], timestamp=timestamp, client=client)
    adds = ~pushes & ~uses.flat[uses.gradient]
    rows = uses.rows[adds]
    total = uses.sums + schedule["replica"][rows]
    opens = np.zeros(len(rows), bool)
    opens[np.unique(uses.commit[adds], return_index=True)[1]] = True
    code.emit(Kind(Op.ADD), rows, 1, slot=slot[adds], total=total, opens=opens)
    commits, counts = np.unique(uses.commit[~pushes], return_counts=True)
    summed = np.isin(commits, uses.commit[adds])
    replica, timestamp = schedule["replica"][commits], schedule["timestamp"][commits]
    weight = np.where(summed, schedule["weight"][commits], 1.0)
    source = np.where(summed, uses.sums + replica, 0)
    code.emit(Kind(Op.COMMIT), commits, 1, replica=replica, slot=source, weight=weight, timestamp=timestamp, count=counts)


def _commit_of(schedule: Schedule, rows: Ints) -> Ints:
    """For each of these rows the COMMIT row that closes the round it joined; NONE for a PUSH or a round never closed."""
    result = np.full(len(rows), NONE, np.int64)
    commits = schedule.rows(Verb.COMMIT)
    joins = schedule["verb"][rows] == Verb.ADD
    for replica in np.unique(schedule["replica"][commits]):
        own = commits[schedule["replica"][commits] == replica]
        mine = np.flatnonzero(joins & (schedule["replica"][rows] == replica))
        position = np.searchsorted(own, rows[mine])
        result[mine[position < len(own)]] = own[position[position < len(own)]]
    return result


def _colour(begin: Ints, end: Ints) -> Ints:
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
