"""Schedule -> program: which gradient is computed when, and where it is kept until it is used. NumPy only.

A program is a sequence of phases; in each phase every kind of instruction runs a number of times, kinds in a fixed order.
So one compiled loop per kind, nested in a loop over phases, executes any schedule without a branch.

Where a gradient is computed decides what has to be stored. If the replica has not changed since its parameters were pulled,
the gradient is computed when it is used; otherwise at the pull, from the parameters at hand, and the gradient is kept. So
versions of the parameters are kept only where other workers still have to read them (`versions.py`). A round of one server
whose gradients all belong to the present version is one flat batch.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.learning.versions import Mix, Versions, colour, trace
from fred.schedule import NONE, Schedule, Verb

Ints = NDArray[np.int64]
Operands = dict[str, NDArray]
LONGEST_PHASE = 256  # instructions


class Op(IntEnum):
    """Instructions, in the order in which a phase runs them."""

    APPLY = 0  # replica <- apply_update(replica, slot)
    TURN = 1  # APPLY, then GRADIENT: what asynchronous runs do all the time
    STEP = 2  # GRADIENT, then APPLY: what decentralised runs do all the time
    COMMIT = 3  # replica <- apply_round(replica, weight x slot or sum)
    MIX = 4  # register <- [register +] weighted sum of registers
    GRADIENT = 5  # slot <- gradient at the parameters in registers
    ADD = 6  # the replica's sum <- sum + slot


@dataclass(frozen=True, order=True)
class Kind:
    """One kind of instruction: what it does, and the static shape of its operands."""

    op: Op
    members: int = 1  # minibatches in one gradient, sources of one mix
    special: bool = False  # GRADIENT: only the first `count` members are real; COMMIT: of a sum; MIX: adds to what is there


@dataclass(frozen=True)
class Program:
    """What the replay executes."""

    kinds: tuple[Kind, ...]
    operands: dict[Kind, Operands]  # of the instructions of each kind, in order: [instructions, ...]
    offsets: Ints  # [phases + 1, kinds]: instructions of each kind before the phase
    marks: Ints  # [breaks]: phases before each break
    homes: Ints  # [breaks, replicas]: register of each replica's parameters there
    registers: int  # versions of the parameters kept at a time
    slots: int  # gradients kept at a time
    blocks: int  # of the parameters


def padded(members: int, workers: int) -> int:
    """Size of the flat batch in which a round of `members` gradients is computed: one of at most 8 sizes."""
    step = -(-workers // 8)
    return min(-(-members // step) * step, workers)


def lower(schedule: Schedule, breaks: Ints) -> Program:
    """The program for a schedule. Phases never straddle a break: a row before which the state will be looked at."""
    uses = _Uses(schedule)
    versions = trace(schedule, breaks, uses.rows[uses.first])
    uses.place(versions)
    code = _Code()
    _emit_flat_rounds(code, schedule, uses)
    _emit_gradients(code, schedule, uses, versions)
    _emit_mixes(code, versions.mixes)
    _emit_updates(code, schedule, uses, versions)
    kinds, operands, offsets, marks = code.phases(breaks)
    return Program(kinds, operands, offsets, marks, versions.homes, versions.count, uses.slots, schedule.blocks)


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
        brief = self.flat | (self.late & (self.times == 1))  # used at once and never again: slot 0
        self.slot = np.zeros(len(self.first), np.int64)
        self.slot[~brief] = 1 + colour(self.born[~brief], self.rows[last][~brief])
        self.slots = int(self.slot.max(initial=0)) + 1

    def _flat(self) -> NDArray[np.bool_]:
        """Gradients of one server's rounds in which every gradient is at the present version and used only here."""
        good = ~self._stale & (self.times[self.gradient] == 1) & (self.commit != NONE) & self._one_server
        spoilt = np.unique(self.commit[~good])
        return ~np.isin(self.commit[self.first], spoilt) & (self.commit[self.first] != NONE)


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

    def phases(self, breaks: Ints) -> tuple[tuple[Kind, ...], dict[Kind, Operands], Ints, Ints]:
        """The instructions in the order of their rows, cut into phases: kinds, operands, offsets, marks of a Program."""
        rows = np.concatenate([block.rows for block in self._blocks] or [np.zeros(0, np.int64)])
        within = np.concatenate([np.full(len(block.rows), block.within) for block in self._blocks] or [rows])
        order = np.lexsort((within, rows))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        ranks = np.split(rank, np.cumsum([len(block.rows) for block in self._blocks])[:-1])
        cuts = np.searchsorted(rows[order], breaks)  # instructions before each break
        placed = _fuse(_by_kind(self._blocks, ranks), Op.GRADIENT, Op.APPLY, Op.STEP, cuts)
        placed = _fuse(placed, Op.APPLY, Op.GRADIENT, Op.TURN, cuts)
        return _phases(placed, cuts)


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


def _fuse(placed: dict[Kind, _Placed], first: Op, second: Op, both: Op, cuts: Ints) -> dict[Kind, _Placed]:
    """Make one instruction of two that follow each other at once, with no break between and with one slot."""
    before, after = placed.get(Kind(first)), placed.get(Kind(second))
    if before is None or after is None:
        return placed
    following = np.searchsorted(after.position, before.position + 1)
    following = np.minimum(following, len(after.position) - 1)
    fused = (after.position[following] == before.position + 1) & ~np.isin(before.position + 1, cuts)
    if both == Op.STEP:  # the gradient that is applied, and kept no longer
        fused &= (before.operands["store"] == 0) & (after.operands["slot"][following] == 0)
    taken = np.zeros(len(after.position), bool)
    taken[following[fused]] = True
    one, other = before.only(fused), after.only(taken)
    together = _Placed(one.position, {**one.operands, **other.operands})
    parts = {Kind(first): before.only(~fused), Kind(both): together, Kind(second): after.only(~taken)}
    return {kind: part for kind, part in {**placed, **parts}.items() if len(part.position)}


def _phases(placed: dict[Kind, _Placed], cuts: Ints) -> tuple[tuple[Kind, ...], dict[Kind, Operands], Ints, Ints]:
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
    return kinds, operands, counts.cumsum(axis=0), np.append(phase, opens.sum())[cuts]


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
            sources=np.zeros((int(own.sum()), 1), np.int64),
            store=np.zeros(int(own.sum()), np.int64),
            worker=schedule["worker"][uses.rows[used]],
            step=schedule["step"][uses.rows[used]],
            ordinal=uses.ordinal[uses.gradient[used]],
            count=counts[own],
        )


def _emit_gradients(code: _Code, schedule: Schedule, uses: _Uses, versions: Versions) -> None:
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


def _emit_mixes(code: _Code, mixes: list[Mix]) -> None:
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


def _emit_updates(code: _Code, schedule: Schedule, uses: _Uses, versions: Versions) -> None:
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
