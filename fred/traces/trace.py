"""A recorded trace: how long each worker of a cluster took for each iteration."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fred.traces.words import briefly


@dataclass(frozen=True, eq=False)
class Trace:
    """Step times of complete iterations, in the order in which they happened.

    Args:
        seconds: step times, s [iterations, workers], all positive and finite.
        workers: their names.
        node_of: the node of each worker, by number from 0 [workers]; None where nothing says it.
        source: what messages call it.
        repairs: what was mended on reading, in words.
        nodes: the names of the nodes, by number; empty where they have none.
        notes: how the files were understood, in words: units, columns, what was left out.

    `fred.traces.reading.read` makes one of files.

    >>> seconds = np.array([[1.0, 1.5], [0.5, 2.0], [1.0, 1.0]])
    >>> trace = Trace(seconds, ("7", "gpu-b"), np.array([0, 1]), nodes=("rack-a", "rack-b"))
    >>> trace.iterations, trace.worker(0), trace.worker(1), trace.node(1)
    (3, 'worker 7', 'gpu-b', 'rack-b')
    """

    seconds: NDArray[np.float64]  # [iterations, workers], all positive and finite
    workers: tuple[str, ...]  # their names
    node_of: NDArray[np.int64] | None = None  # the node of each worker, by number from 0; None: the file does not say
    source: str = "the trace"  # what messages call it
    repairs: tuple[str, ...] = ()  # what was mended on reading, in words
    nodes: tuple[str, ...] = ()  # their names, by number
    notes: tuple[str, ...] = ()  # how the files were understood, in words

    @property
    def iterations(self) -> int:
        """Return the number of iterations."""
        return len(self.seconds)

    @property
    def said(self) -> tuple[str, ...]:
        """Return all that a reader should know of how the files were read, a line each."""
        return (*(f"read: {note}" for note in self.notes), *(f"mended: {repair}" for repair in self.repairs))

    def worker(self, number: int) -> str:
        """Return what a sentence calls a worker: its name, or `worker 7` where that is a number.

        Args:
            number: of the worker, from 0.
        """
        return _called("worker", self.workers[number])

    def node(self, number: int) -> str:
        """Return what a sentence calls a node: its name, or `node 7` where that is a number or not known.

        Args:
            number: of the node, from 0, as in `node_of`; or of a group that was found.
        """
        return _called("node", self.nodes[number] if number < len(self.nodes) else str(number))

    @property
    def names_of_nodes(self) -> str:
        """Return the names of the nodes, the first few of many; empty where they are numbers or not known."""
        return briefly([name for name in self.nodes if not name.isdigit()])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the step times and their shape.

        Names, nodes and where it was read do not count.
        """
        numbers = np.ascontiguousarray(self.seconds, "<f8")
        return hashlib.sha256(f"{numbers.shape}".encode() + numbers.tobytes()).hexdigest()


def _called(what: str, name: str) -> str:
    return f"{what} {name}" if name[:1].isdigit() or name.startswith("-") else name
