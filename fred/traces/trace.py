"""A recorded trace: the time of each worker of a cluster for each iteration."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import briefly
from fred.traces.waiting import Waiting, find_waiting


@dataclass(frozen=True, eq=False)
class Trace:
    """The step times of complete iterations, in chronological order.

    Args:
        seconds: step times, s [iterations, workers], all positive and finite.
        workers: names of the workers.
        node_of: node number of each worker, from 0 [workers]; None if unknown.
        source: name of the trace in messages.
        repairs: repairs made on reading, in words.
        nodes: names of the nodes, by number; empty if they have none.
        notes: how the files were read, in words: units, columns, rows left out.
        steps: names of the iterations in the files, by number; empty if they have none.
        collective: name of the communication or waiting whose times these are; empty for compute times.

    `fred.traces.reading.read` makes a trace from files.

    >>> seconds = np.array([[1.0, 1.5], [0.5, 2.0], [1.0, 1.0]])
    >>> trace = Trace(seconds, ("7", "gpu-b"), np.array([0, 1]), nodes=("rack-a", "rack-b"))
    >>> trace.iterations, trace.worker(0), trace.worker(1), trace.node(1)
    (3, 'worker 7', 'gpu-b', 'rack-b')
    """

    seconds: NDArray[np.float64]
    workers: tuple[str, ...]
    node_of: NDArray[np.int64] | None = None
    source: str = "the trace"
    repairs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    collective: str = ""

    @property
    def iterations(self) -> int:
        """Return the number of iterations."""
        return len(self.seconds)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the notes and repairs that a user should know, one line each."""
        return (*(f"read: {note}" for note in self.notes), *(f"mended: {repair}" for repair in self.repairs))

    @cached_property
    def waiting(self) -> Waiting:
        """Return the signs of waiting for other workers in the times."""
        return find_waiting(self.seconds)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a sentence if the times contain waiting, or may; or if some workers count as one.

        >>> rng = np.random.default_rng(0)
        >>> pairs = rng.lognormal(sigma=0.1, size=(50, 3)).repeat(2, axis=1) * rng.lognormal(sigma=0.001, size=(50, 6))
        >>> Trace(pairs, tuple("abcdef")).warnings[0].partition(".")[0]
        'Workers a, b wait for each other; so do c, d; e, f'
        """
        if self.collective:
            return (
                f"The times are those of `{self.collective}`, in which quick workers wait for slow ones, not compute times.",
            )
        signs = self.waiting
        if signs.state == "groups":
            names = [briefly([self.workers[worker] for worker in group]) for group in signs.groups]
            further_groups = f"; so do {briefly(names[1:], 2, '; ')}" if names[1:] else ""
            advice = "Times within a group are equal in every iteration, so it counts as one worker: use one of each group."
            return (f"Workers {names[0]} wait for each other{further_groups}. {advice}",)
        doubt = {"certain": "contain", "possible": "may contain"}.get(signs.state)
        return (f"The times {doubt} waiting for the slowest worker. {signs.evidence}",) if doubt else ()

    def worker(self, number: int) -> str:
        """Return the name of a worker in a sentence: its own, or `worker 7` if that is a number.

        Args:
            number: number of the worker, from 0.
        """
        return _name_in_sentence("worker", self.workers[number])

    def node(self, number: int) -> str:
        """Return the name of a node in a sentence: its own, or `node 7` if that is a number or unknown.

        Args:
            number: number of the node, from 0, as in `node_of`; or of a group that was found.
        """
        return _name_in_sentence("node", self.nodes[number] if number < len(self.nodes) else str(number))

    def step(self, number: int) -> str:
        """Return the name of an iteration: that of the files, or its number.

        Args:
            number: number of the iteration, from 0.

        >>> Trace(np.ones((2, 1)), ("a",), steps=("1000", "1010")).step(1), Trace(np.ones((2, 1)), ("a",)).step(1)
        ('1010', '1')
        """
        return self.steps[number] if self.steps else str(number)

    @property
    def node_names(self) -> str:
        """Return the names of the nodes, shortened if they are many; empty if they are numbers or unknown."""
        return briefly([name for name in self.nodes if not name.isdigit()])

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the step times and their shape.

        Names, nodes and the source do not count.
        """
        numbers = np.ascontiguousarray(self.seconds, "<f8")
        return hashlib.sha256(f"{numbers.shape}".encode() + numbers.tobytes()).hexdigest()


def _name_in_sentence(kind: str, name: str) -> str:
    return f"{kind} {name}" if name[:1].isdigit() or name.startswith("-") else name
