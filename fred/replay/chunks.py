"""A program's operands in chunks of fixed sizes, so that one compiled loop fits all; each is moved to the device once."""

from typing import NamedTuple

import jax
import numpy as np

from fred.replay.phases import LONGEST_PHASE, Kind, Op, Operands, Program
from fred.schedule.minibatches import Minibatches

_INDICES = 1 << 19  # of examples at a time, approximately
_PHASES = 4096  # at a time; also the limit of instructions of one kind


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
        self._capacities = [max(LONGEST_PHASE, min(_PHASES, _INDICES // width)) for width in widths]

    def after(self, phase: int) -> Chunk:
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
                indices = self._batches.indices(*np.moveaxis(part.pop("minibatch"), -1, 0))
                part["indices"] = indices.reshape(len(indices), kind.members * self._batches.width)
            operands.append({name: _padded(array, capacity) for name, array in part.items()})
        own = _padded(offsets[phase : end + 1] - offsets[phase], _PHASES + 1)
        return Chunk(phase, end, *jax.device_put((operands, own)))


def _width(kind: Kind, operands: Operands, batch: int) -> int:
    """Return the number of values (indices of examples, or registers) in one instruction."""
    return operands["sources"].shape[1] if kind.op == Op.MIX else kind.members * batch


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    """Return the array as 32-bit numbers, padded with zeros to a fixed size so that nothing is compiled again."""
    kind = np.float32 if array.dtype.kind == "f" else bool if array.dtype.kind == "b" else np.int32
    result = np.zeros((length, *array.shape[1:]), kind)
    result[: len(array)] = array
    return result
