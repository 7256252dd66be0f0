"""Topologies, the graphs along which workers send models; some change from iteration to iteration.

>>> [Ring().receivers(worker, 0, 4) for worker in range(4)]
[[1, 3], [0, 2], [1, 3], [0, 2]]
>>> [Star().receivers(worker, 0, 4) for worker in range(4)]
[[1, 2, 3], [0], [0], [0]]
>>> [list(Bipartite().receivers(worker, 0, 5)) for worker in range(5)]
[[1, 3], [0, 2, 4], [1, 3], [0, 2, 4], [1, 3]]
>>> [Hypercube().receivers(worker, 0, 5) for worker in range(5)]
[[1, 2, 4], [0, 3], [0, 3], [1, 2], [0]]
>>> [Complete().receivers(worker, 0, 3) for worker in range(3)]
[[1, 2], [0, 2], [0, 1]]
>>> [Exponential().receivers(0, iteration, 8) for iteration in range(4)]
[[1], [2], [4], [1]]
>>> [Edges(edges=((0, 1), (1, 2))).receivers(worker, 0, 4) for worker in range(4)]
[[1], [0, 2], [1], []]
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property

from pydantic import Field, model_validator

from fred.components.component import Component, Count, Whole

Number = Whole  # of a worker


class Topology(Component):
    """A directed graph on the workers for each iteration; every worker also keeps its own model.

    Example:
        >>> import fred
        >>> class Swing(fred.Topology):
        ...     '''To the right in even iterations, to the left in odd ones.'''
        ...     def receivers(self, worker, iteration, workers):
        ...         return [(worker + 1) % workers if iteration % 2 == 0 else (worker - 1) % workers]
        ...     def period(self, workers):
        ...         return 2
        >>> [Swing().receivers(worker=0, iteration=iteration, workers=4) for iteration in range(3)]
        [[1], [3], [1]]
    """

    @abstractmethod
    def receivers(self, worker: int, iteration: int, workers: int) -> Sequence[int]:
        """Return the workers to which a worker sends in this iteration, never itself.

        Args:
            worker: number of the sender, from 0.
            iteration: the sender's own count of iterations, from 0.
            workers: number of workers.
        """

    def period(self, workers: int) -> int:
        """Return the number of iterations after which the graphs on that number of `workers` repeat."""
        return 1


class Ring(Topology):
    """Every worker sends to both neighbours on a ring."""

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        return sorted({(worker + 1) % workers, (worker - 1) % workers} - {worker})


class Complete(Topology):
    """Every worker sends to all others."""

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        return [other for other in range(workers) if other != worker]


class Star(Topology):
    """Worker 0 sends to all others, which send to worker 0 only: the most unequal degrees."""

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        return list(range(1, workers)) if worker == 0 else [0]


class Exponential(Topology):
    """Worker i sends to i + 2^k, k = 0, 1, 2, ... in turn [Assran et al. 2019, appendix A]."""

    neighbours: Count = Field(default=1, description="receivers in each iteration, at consecutive distances 2^k")

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        phases = self.period(workers)
        distances = {2 ** ((iteration + k) % phases) for k in range(min(self.neighbours, phases))}
        return sorted({(worker + distance) % workers for distance in distances} - {worker})

    def period(self, workers: int) -> int:
        return max(1, math.ceil(math.log2(workers)))


class Bipartite(Topology):
    """Even workers send to all odd ones, odd workers to all even ones."""

    def receivers(self, worker: int, iteration: int, workers: int) -> Sequence[int]:
        return range(1 - worker % 2, workers, 2)


class Hypercube(Topology):
    """Every worker sends to all workers whose numbers differ from its own in one bit: a bipartite graph."""

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        bits = range((workers - 1).bit_length())
        return sorted(other for other in (worker ^ 1 << bit for bit in bits) if other < workers)


class Edges(Topology):
    """Any graph: the two ends of each edge send to each other."""

    edges: tuple[tuple[Number, Number], ...] = Field(description="pairs of workers' numbers", examples=[[[0, 1], [1, 2]]])

    @model_validator(mode="after")
    def _no_loops(self) -> "Edges":
        if loops := [one for one, other in self.edges if one == other]:
            raise ValueError(f"`edges` joins worker {loops[0]} with itself; remove it: every worker keeps its own model")
        return self

    @cached_property
    def _others(self) -> dict[int, set[int]]:
        others: dict[int, set[int]] = {}
        for one, other in self.edges:
            others.setdefault(one, set()).add(other)
            others.setdefault(other, set()).add(one)
        return others

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        if max(self._others, default=0) >= workers:
            raise ValueError(f"`edges` names worker {max(self._others)}; there are {workers}, numbered from 0")
        return sorted(self._others.get(worker, ()))
