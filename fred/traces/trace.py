"""A recorded trace: how long each worker of a cluster took for each iteration."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Trace:
    """Run-times of complete iterations, in the order in which they happened.

    Args:
        seconds: run-times, s [iterations, workers], all positive and finite.
        workers: their names.
        node_of: the node of each worker, by number from 0 [workers]; None where nothing says it.
        source: what messages call it.
        repairs: what was mended on reading, in words.

    `fred.traces.reading.read` makes one of a file.

    >>> trace = Trace(np.array([[1.0, 1.5], [0.5, 2.0], [1.0, 1.0]]), ("left", "right"))
    >>> trace.iterations, trace.workers, trace.seconds.max(axis=1).tolist()
    (3, ('left', 'right'), [1.5, 2.0, 1.0])
    """

    seconds: NDArray[np.float64]  # [iterations, workers], all positive and finite
    workers: tuple[str, ...]  # their names
    node_of: NDArray[np.int64] | None = None  # the node of each worker, by number from 0; None: the file does not say
    source: str = "the trace"  # what messages call it
    repairs: tuple[str, ...] = ()  # what was mended on reading, in words

    @property
    def iterations(self) -> int:
        """How many."""
        return len(self.seconds)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the run-times and their shape.

        Names, nodes and where it was read do not count.
        """
        numbers = np.ascontiguousarray(self.seconds, "<f8")
        return hashlib.sha256(f"{numbers.shape}".encode() + numbers.tobytes()).hexdigest()
