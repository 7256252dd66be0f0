"""The values that cross between the processes of one replay, in memory that all of them share.

The memory has no name, only an open file, so nothing is left behind however a process ends. A value is copied on both sides:
JAX may alias NumPy's memory, so a buffer in use must never be written.
"""

import mmap
import os
import tempfile
import threading
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from fred.replay.division import Plan
from fred.replay.memory import data_of, key_like, to_numpy

_LINE = 64  # bytes of a cache line
_LOCK = threading.Lock()
Shapes = dict[tuple[str, int], Any]  # the arrays' shapes and types, for each kind of value


class SharedValues:
    """The slots of one plan, as one process sees them.

    Args:
        plan: the plan, whose crossing values have slots.
        shapes: for each kind of value, the shapes and types of its arrays.
        file: descriptor of the shared file (`clear_memory`).
        process: number of this process.
    """

    def __init__(self, plan: Plan, shapes: Shapes, file: int, process: int):
        self._plan, self.shapes, self._process = plan, shapes, process
        self._slots, size = _layout(plan, shapes)
        self._map = mmap.mmap(file, size)
        processes, slots = len(plan.queues), sum(plan.slots.values())
        marks = np.frombuffer(self._map, np.int64, (1 + processes) * slots).reshape(1 + processes, slots)
        # the number of a value plus 1, or 0: the value in each slot [slots], and the one each process has copied from it
        self._written, self._copied = marks[0], marks[1:]

    def holds(self, value: int) -> bool:
        """Return True if another process has written the value."""
        return bool(self._written[self._slot_number(value)] == value + 1)

    def is_vacant(self, value: int) -> bool:
        """Return True if all readers of the value that had the slot before have copied it."""
        previous_value = self._plan.crossings[value].before
        if previous_value is None:
            return True
        slot, readers = self._slot_number(value), self._plan.crossings[previous_value].readers
        return all(self._copied[reader, slot] == previous_value + 1 for reader in readers)

    def store(self, value: int, tree: Any) -> None:
        """Write a value into its slot, which is free."""
        for view, leaf in zip(_arrays(self._slot_bytes(value), self._fields(value)), jax.tree.leaves(tree), strict=True):
            view[...] = to_numpy(leaf)
        _fence()
        self._written[self._slot_number(value)] = value + 1

    def load(self, value: int) -> Any:
        """Return a copy of a value that is there: NumPy arrays, which compiled functions take as they are."""
        _fence()
        copy = _copy(self._slot_bytes(value))
        _fence()
        self._copied[self._process, self._slot_number(value)] = value + 1
        leaves, structure = jax.tree.flatten(self.shapes[self._plan.tasks.shapes[value]])
        arrays = [key_like(array, leaf) for array, leaf in zip(_arrays(copy, self._fields(value)), leaves, strict=True)]
        return jax.tree.unflatten(structure, arrays)

    def _slot_number(self, value: int) -> int:
        """Return the number of a value's slot among those of all shapes."""
        return self._slots[self._plan.tasks.shapes[value]].first + self._plan.crossings[value].slot

    def _fields(self, value: int) -> "_Fields":
        return self._slots[self._plan.tasks.shapes[value]].fields

    def _slot_bytes(self, value: int) -> NDArray[np.uint8]:
        """Return the memory of a value's slot."""
        slots = self._slots[self._plan.tasks.shapes[value]]
        return np.frombuffer(self._map, np.uint8, slots.size, slots.begin + self._plan.crossings[value].slot * slots.size)


def new_memory() -> int:
    """Return the descriptor of an empty file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fred")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def clear_memory(file: int, plan: Plan, shapes: Shapes) -> None:
    """Give a shared file the size for a plan, filled with zeros. No process may have it mapped."""
    os.ftruncate(file, 0)
    os.ftruncate(file, _layout(plan, shapes)[1])


_Fields = list[tuple[tuple[int, ...], Any, int]]  # arrays: shape, type, and first byte within the slot


class _Slots(NamedTuple):
    """The slots for values of one shape."""

    first: int  # number of the first one
    begin: int  # its first byte
    size: int  # bytes of each
    fields: _Fields


def _layout(plan: Plan, shapes: Shapes) -> tuple[dict[tuple[str, int], _Slots], int]:
    """Return the slots for values of each shape, and the bytes of the whole memory, which begins with the marks."""
    # For each slot a mark of the value written there, and one of the value that each process has copied: `__init__` maps them.
    marks = 8 * (1 + len(plan.queues)) * sum(plan.slots.values())
    slots, first = {}, 0
    begin = _rounded(marks) or _LINE  # an empty file cannot be mapped
    for shape, count in plan.slots.items():
        fields, size = [], 0
        for leaf in jax.tree.leaves(shapes[shape]):
            data = jax.eval_shape(data_of, leaf)
            fields.append((data.shape, data.dtype, size))
            size += _rounded(data.size * data.dtype.itemsize)
        slots[shape] = _Slots(first, begin, size, fields)
        first, begin = first + count, begin + count * size
    return slots, begin


def _arrays(memory: NDArray[np.uint8], fields: _Fields) -> list[NDArray[Any]]:
    """Return the arrays of a value that is stored in this memory."""
    return [np.ndarray(dims, dtype, memory.data, offset) for dims, dtype, offset in fields]


def _copy(memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a copy at the beginning of a cache line, which JAX need not copy again."""
    room = np.empty(memory.size + _LINE, np.uint8)
    begin = -room.ctypes.data % _LINE
    copy = room[begin : begin + memory.size]
    copy[:] = memory
    return copy


def _rounded(size: int) -> int:
    return -(-size // _LINE) * _LINE


def _fence() -> None:
    """Keep accesses to memory before this call ahead of those after it, as a lock does on every processor."""
    # Accesses may move into the section that a lock protects, but not out of it: those before a section may move in from one
    # side, and those after it from the other, and then change places. Between two sections of one lock, nothing can. Without
    # this, a process may see the mark of a value (`_written`) before the value, on processors that reorder writes (arm64).
    for _ in range(2):
        with _LOCK:
            pass
