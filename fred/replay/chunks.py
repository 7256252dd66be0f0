"""A program's operands in pieces of fixed sizes, for which one compiled loop will do: each is brought to the device once."""

from typing import NamedTuple

import jax
import numpy as np

from fred.replay.phases import LONGEST_PHASE, Kind, Op, Operands, Program
from fred.schedule.minibatches import Minibatches

_INDICES = 1 << 19  # of examples at a time, about
_PHASES = 4096  # at a time, and instructions of a kind


class Chunk(NamedTuple):
    """Some phases of a program, as the compiled loop has them.

    Args:
        begin: the first phase.
        end: the first that is not among them.
        operands: of each kind of instructions.
        offsets: of each phase's first instruction of each kind, and of the end [phases + 1, kinds].
    """

    begin: int
    end: int
    operands: list[Operands] | None = None
    offsets: jax.Array | None = None


class Chunks:
    """A program's operands for the compiled loop's fixed sizes: each is drawn, and brought to the device, once.

    Args:
        program: of which phases are taken.
        batches: which examples are in a minibatch.
    """

    def __init__(self, program: Program, batches: Minibatches):
        self._program, self._batches = program, batches
        widths = [_width(kind, program.operands[kind], batches.width) for kind in program.kinds]
        self._capacities = [max(LONGEST_PHASE, min(_PHASES, _INDICES // width)) for width in widths]

    def after(self, phase: int) -> Chunk:
        """The phases from this one on, as many as fit.

        Args:
            phase: where the last chunk ended, or a replay goes on.
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
    """How many numbers, of minibatches or registers, come with one instruction."""
    return operands["sources"].shape[1] if kind.op == Op.MIX else kind.members * batch


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    """The array as 32-bit numbers, lengthened with zeros to a fixed size so that nothing is compiled anew."""
    kind = np.float32 if array.dtype.kind == "f" else bool if array.dtype.kind == "b" else np.int32
    result = np.zeros((length, *array.shape[1:]), kind)
    result[: len(array)] = array
    return result
