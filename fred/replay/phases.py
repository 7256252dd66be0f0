"""Instructions -> program: fused where two always follow each other, and arranged into phases. NumPy only.

A program is a sequence of phases; in each phase every kind of instruction runs a number of times, kinds in a fixed order.
So one compiled loop per kind, nested in a loop over phases, executes any schedule without a branch.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    COLLECT = 7  # GRADIENT, then ADD to every replica's sum


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


class _Block(NamedTuple):
    kind: Kind
    rows: Ints
    within: int
    operands: Operands


class Code:
    """Collects instructions in any order and arranges them into phases."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []

    def emit(self, kind: Kind, rows: Ints, within: int, **operands: NDArray) -> None:
        """Instructions that belong to these rows; `within` orders those of one row."""
        if len(rows):
            self._blocks.append(_Block(kind, rows, within, operands))

    def phases(self, breaks: Ints, replicas: int) -> tuple[tuple[Kind, ...], dict[Kind, Operands], Ints, Ints]:
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
        placed = _collect(placed, replicas, cuts)
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


def _collect(placed: dict[Kind, _Placed], replicas: int, cuts: Ints) -> dict[Kind, _Placed]:
    """Make one instruction of a gradient that joins every replica's round at once, and is kept no longer."""
    gradient, add = placed.get(Kind(Op.GRADIENT)), placed.get(Kind(Op.ADD))
    if gradient is None or add is None or len(add.position) < replicas:
        return placed
    first = np.minimum(np.searchsorted(add.position, gradient.position), len(add.position) - replicas)
    all_adds = first[:, None] + np.arange(replicas)  # [gradients, replicas]
    together = (add.position[all_adds] == gradient.position[:, None] + 1 + np.arange(replicas)).all(1)
    together &= (add.operands["slot"][all_adds] == 0).all(1) & (gradient.operands["store"] == 0)
    together &= (add.operands["replica"][all_adds] == np.arange(replicas)).all(1)
    together &= np.searchsorted(cuts, gradient.position + replicas, "right") == np.searchsorted(
        cuts, gradient.position, "right"
    )
    left = np.ones(len(add.position), bool)
    left[all_adds[together]] = False
    one = gradient.only(together)
    both = _Placed(one.position, {**one.operands, "opens": add.operands["opens"][all_adds[together]]})
    parts = {Kind(Op.GRADIENT): gradient.only(~together), Kind(Op.ADD): add.only(left), Kind(Op.COLLECT): both}
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
