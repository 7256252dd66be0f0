"""Instructions -> program: arranged into phases, whose operands are passed to the compiled loop in chunks.

A program is a sequence of phases; in each phase each kind of instruction runs some number of times, kinds in a fixed order.
So one compiled loop per kind, nested in a loop over phases, executes any schedule without a branch. The operands of many
phases form a chunk of fixed size, so that one compiled loop fits all chunks; each is moved to the device once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.imports import jax
from fred.base.types import Ints
from fred.schedule.minibatches import Minibatches

Operands = dict[str, NDArray]
LONGEST_PHASE = 256  # instructions
LONGEST_OF_SLOW = 8  # instructions, where a gradient takes long: other processes may take over after each phase
_INDICES = 1 << 19  # of examples in a chunk, approximately
_PHASES = 4096  # in a chunk; also the limit of instructions of one kind


class Op(IntEnum):
    """Instructions, in the order in which a phase runs them."""

    STORE = 0  # slot <- message
    APPLY = 1  # block <- apply_update(block, message)
    ADD = 2  # the block's sum <- sum + message
    COLLECT = 3  # ADD to the sums of all blocks
    COMMIT = 4  # block <- apply_round(block, weight x total)
    MIX = 5  # register <- weighted sum of registers
    SYNC = 6  # block <- synchronize(block, register)
    BEGIN = 7  # pending <- the first half of a gradient at the parameters in registers
    TURN = 8  # APPLY of a pending gradient, then BEGIN: the usual sequence in asynchronous runs


class How(IntEnum):
    """The source of an instruction's message, or of a COMMIT's total."""

    NOTHING = 0
    SLOT = 1  # it was stored
    GRADIENT = 2  # a gradient at the parameters in registers; for a COMMIT, over one batch
    PENDING = 3  # a gradient that was begun before and is finished now
    DIFFERENCE = 4  # a pseudo-gradient: two models in registers
    SUM = 5  # sum of the round


class Kind(NamedTuple):
    """One kind of instruction: its effect, and its static properties."""

    op: Op
    how: How = How.NOTHING
    group: int = 0  # of the block: blocks of equal shapes, or a layer (`Blocks.groups`)
    members: int = 1  # minibatches in one gradient, or sources that every mix has
    masked: bool = False  # one batch of which only the first members are real
    weighted: bool = False  # ADD with a weight


class Hooks(NamedTuple):
    """The functions that a server overrides, which have to be called: the default ones change nothing."""

    sends: bool = False
    remembers: bool = False
    contributes: bool = False
    synchronizes: bool = False
    unbatched: bool = False  # a round's gradients are computed one by one: they take long, or minibatches differ in size

    @property
    def batchable(self) -> bool:
        """Return True if messages are gradients and rounds are their sums, so that a round can be one batch."""
        return not (self.sends or self.remembers or self.contributes)


def padded(members: int, workers: int) -> int:
    """Return the batch size for a round of `members` gradients: one of at most 8 sizes up to `workers`."""
    step = -(-workers // 8)
    return max(members, min(-(-members // step) * step, workers))


_APPLY, _BEGIN = Kind(Op.APPLY, How.PENDING), Kind(Op.BEGIN)


@dataclass(frozen=True)
class Program:
    """The program that the replay executes."""

    kinds: tuple[Kind, ...]
    operands: dict[Kind, Operands]  # of the instructions of each kind, in order: [instructions, ...]
    offsets: Ints  # [phases + 1, kinds]: number of instructions of each kind before the phase
    marks: Ints  # [marks]: number of phases before each mark
    replica_registers: Ints  # [marks, replicas x blocks]: registers of the replicas' parameters at the mark
    clocks: Ints  # [marks, replicas x blocks]: number of changes before the mark
    registers: tuple[int, ...]  # number of versions stored at a time, per group of blocks
    pending: int  # number of unfinished gradients stored at a time
    slots: int  # number of messages stored at a time

    def repeats(self, mark: int) -> bool:
        """Return True if the replicas at a mark are those at the mark before: a replica may change without an instruction."""
        arrays = self.marks, self.replica_registers, self.clocks
        return mark > 0 and all(np.array_equal(array[mark - 1], array[mark]) for array in arrays)


class _Batch(NamedTuple):
    kind: Kind
    rows: Ints
    suborder: int | Ints
    operands: Operands


class Code:
    """A collector of instructions, in any order, which arranges them into phases."""

    def __init__(self) -> None:
        self._batches: list[_Batch] = []

    def emit(self, kind: Kind, rows: Ints, suborder: int | Ints, **operands: NDArray) -> None:
        """Add instructions for these rows; `suborder`, of all or of each, orders the instructions of one row."""
        if len(rows):
            self._batches.append(_Batch(kind, rows, suborder, operands))

    def phases(self, marks: Ints, turns: bool, slow: bool = False) -> tuple[tuple[Kind, ...], dict[Kind, Operands], Ints, Ints]:
        """Return the instructions in the order of rows, as phases: kinds, operands, offsets and marks of a Program.

        `turns`: True to merge an APPLY and the BEGIN that follows it into one instruction. `slow`: a gradient takes long.
        """
        rows = np.concatenate([batch.rows for batch in self._batches] or [np.zeros(0, np.int64)])
        suborder = np.concatenate([np.full(len(batch.rows), batch.suborder) for batch in self._batches] or [rows])
        order = np.lexsort((suborder, rows))
        rank = np.empty_like(order)  # of each instruction among all
        rank[order] = np.arange(len(order))
        ranks = np.split(rank, np.cumsum([len(batch.rows) for batch in self._batches])[:-1])  # of each batch
        placed = _by_kind(self._batches, ranks)
        mark_ranks = np.searchsorted(rows[order], marks)  # of the first instruction of each mark's row or a later one
        if turns:
            placed = _fuse(placed, mark_ranks)
        return _phases(placed, mark_ranks, LONGEST_OF_SLOW if slow else LONGEST_PHASE)


@dataclass(frozen=True)
class _Placed:
    """Instructions of one kind: their positions among all, ascending, and their operands."""

    position: Ints
    operands: Operands

    def select(self, mask: NDArray[np.bool_]) -> _Placed:
        return _Placed(self.position[mask], {name: array[mask] for name, array in self.operands.items()})


def _by_kind(batches: list[_Batch], ranks: list[Ints]) -> dict[Kind, _Placed]:
    """Return the instructions of each kind, in order, from batches and the ranks of their instructions among all."""
    result = {}
    for kind in sorted({batch.kind for batch in batches}):
        parts = [(batch, rank) for batch, rank in zip(batches, ranks, strict=True) if batch.kind == kind]
        position = np.concatenate([rank for _, rank in parts])
        order = np.argsort(position)
        names = parts[0][0].operands
        operands = {name: np.concatenate([batch.operands[name] for batch, _ in parts])[order] for name in names}
        result[kind] = _Placed(position[order], operands)
    return result


def _fuse(placed: dict[Kind, _Placed], marks: Ints) -> dict[Kind, _Placed]:
    """Merge each APPLY with a BEGIN that follows it immediately, unless a mark lies between."""
    applies, begins = placed.get(_APPLY), placed.get(_BEGIN)
    if applies is None or begins is None:
        return placed
    next_begin = np.minimum(np.searchsorted(begins.position, applies.position + 1), len(begins.position) - 1)
    is_fused_apply = (begins.position[next_begin] == applies.position + 1) & ~np.isin(applies.position + 1, marks)
    is_fused_begin = np.zeros(len(begins.position), bool)
    is_fused_begin[next_begin[is_fused_apply]] = True
    fused_applies, fused_begins = applies.select(is_fused_apply), begins.select(is_fused_begin)
    begin_operands = {
        "begun": fused_begins.operands["pending"],
        **{name: fused_begins.operands[name] for name in ("sources", "minibatch")},
    }
    parts = {
        _APPLY: applies.select(~is_fused_apply),
        _BEGIN: begins.select(~is_fused_begin),
        Kind(Op.TURN, How.PENDING): _Placed(fused_applies.position, fused_applies.operands | begin_operands),
    }
    return {kind: part for kind, part in {**placed, **parts}.items() if len(part.position)}


def _phases(
    placed: dict[Kind, _Placed], marks: Ints, longest: int
) -> tuple[tuple[Kind, ...], dict[Kind, Operands], Ints, Ints]:
    """Begin a new phase where the order of kinds would go backwards, at each mark, and before a phase gets too long.

    Return kinds, operands, offsets and marks of a Program; `marks` are positions here.
    """
    position = np.concatenate([part.position for part in placed.values()] or [marks[:0]])
    kind_of_each = np.repeat(np.arange(len(placed)), [len(part.position) for part in placed.values()])
    order = np.argsort(position)
    position, kind_of_each = position[order], kind_of_each[order]
    kinds, rank = _order_kinds(list(placed), kind_of_each)
    opens = np.ones(len(rank), bool)
    # at every multiple of `longest`, wherever the phase began: so none is longer
    opens[1:] = (rank[1:] < rank[:-1]) | (np.arange(1, len(rank)) % longest == 0)
    mark_indices = np.searchsorted(position, marks)  # of the first instruction after each mark
    opens[mark_indices[mark_indices < len(opens)]] = True
    phase = np.cumsum(opens) - 1  # of each instruction
    counts = np.zeros((int(opens.sum()) + 1, len(kinds)), np.int64)
    np.add.at(counts, (phase + 1, rank), 1)
    operands = {kind: placed[kind].operands for kind in kinds}
    return kinds, operands, counts.cumsum(axis=0), np.append(phase, opens.sum())[mark_indices]


def _order_kinds(kinds: list[Kind], kind_of_each: Ints) -> tuple[tuple[Kind, ...], Ints]:
    """Return the kinds in the order in which phases run them, and each instruction's rank in that order.

    `kind_of_each` is the index in `kinds` of each instruction's. Groups of blocks go forwards or, as gradients reach servers,
    backwards: whichever makes fewer phases, since a phase ends where the rank goes down.
    """
    candidates = []
    for direction in (1, -1):
        order = sorted(range(len(kinds)), key=lambda kind: kinds[kind]._replace(group=direction * kinds[kind].group))
        rank_of_kind = np.argsort(order)  # the inverse of `order`
        rank = rank_of_kind[kind_of_each]
        ends = int((rank[1:] < rank[:-1]).sum())
        candidates.append((ends, tuple(kinds[kind] for kind in order), rank))
    _, ordered, rank = min(candidates, key=lambda candidate: candidate[0])
    return ordered, rank


class Chunk(NamedTuple):
    """Some phases of a program, in the form that the compiled loop takes.

    Args:
        begin: the first phase.
        end: the phase after the last.
        operands: operands of each kind of instruction.
        offsets: for each phase, and for the end, the position of its first instruction of each kind [phases + 1, kinds].
    """

    begin: int
    end: int
    operands: list[Operands] | None = None
    offsets: jax.Array | None = None


class Chunks:
    """A program's operands in the fixed sizes of the compiled loop: each is drawn, and moved to the device, once.

    Args:
        program: the program.
        batches: the examples of each minibatch.
    """

    def __init__(self, program: Program, batches: Minibatches):
        self._program, self._batches = program, batches
        widths = [_width(kind, program.operands[kind], batches.width) for kind in program.kinds]
        # instructions of each kind in a chunk; a whole phase must fit
        self._capacities = [max(LONGEST_PHASE, min(_PHASES, _INDICES // width)) for width in widths]

    def chunk_from(self, phase: int) -> Chunk:
        """Return the phases from this one on, as many as fit.

        Args:
            phase: the end of the last chunk, or the phase at which a replay resumes.
        """
        offsets = self._program.offsets
        end = min(len(offsets) - 1, phase + _PHASES)
        for k, capacity in enumerate(self._capacities):
            end = min(end, int(np.searchsorted(offsets[:, k], offsets[phase, k] + capacity, side="right")) - 1)
        operands = []
        for k, (kind, capacity) in enumerate(zip(self._program.kinds, self._capacities, strict=True)):
            part = {name: full[offsets[phase, k] : offsets[end, k]] for name, full in self._program.operands[kind].items()}
            if "minibatch" in part:
                indices = self._batches.indices(*np.moveaxis(part.pop("minibatch"), -1, 0))  # of worker, step and rank
                part["indices"] = indices.reshape(len(indices), kind.members * self._batches.width)
            operands.append({name: _padded(array, capacity) for name, array in part.items()})
        chunk_offsets = _padded(offsets[phase : end + 1] - offsets[phase], _PHASES + 1)
        return Chunk(phase, end, *jax.device_put((operands, chunk_offsets)))


def _width(kind: Kind, operands: Operands, batch: int) -> int:
    """Return the number of values (indices of examples, or registers) in one instruction."""
    return operands["sources"].shape[1] if kind.op == Op.MIX else kind.members * batch


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    """Return the array as 32-bit numbers, padded with zeros to a fixed size so that nothing is compiled again."""
    dtype = np.float32 if array.dtype.kind == "f" else bool if array.dtype.kind == "b" else np.int32
    result = np.zeros((length, *array.shape[1:]), dtype)
    result[: len(array)] = array
    return result
