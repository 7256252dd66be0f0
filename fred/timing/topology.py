"""Who sends its model to whom: graphs, some of which change from iteration to iteration."""

import math
from abc import abstractmethod
from collections.abc import Sequence

from pydantic import Field

from fred.component import Component


class Topology(Component):
    """A directed graph on the workers for each iteration; everybody also keeps its own model."""

    @abstractmethod
    def receivers(self, worker: int, iteration: int, workers: int) -> Sequence[int]:
        """To whom a worker sends in this iteration; never itself."""

    def period(self, workers: int) -> int:
        """After how many iterations the graphs repeat."""
        return 1


class Ring(Topology):
    """Everybody sends to both neighbours."""

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        return sorted({(worker + 1) % workers, (worker - 1) % workers} - {worker})


class Complete(Topology):
    """Everybody sends to everybody."""

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        return [other for other in range(workers) if other != worker]


class Star(Topology):
    """Worker 0 sends to everybody, everybody sends to worker 0: degrees as unequal as can be."""

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        return list(range(1, workers)) if worker == 0 else [0]


class Exponential(Topology):
    """Worker i sends to i + 2^k, k = 0, 1, 2, ... in turn [Assran et al. 2019, appendix A]."""

    neighbours: int = Field(1, ge=1, description="receivers in each iteration: as many distances in a row")

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
    """Workers whose numbers differ in one bit send to each other."""

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        others = (worker ^ 1 << bit for bit in range(max(1, workers - 1).bit_length()))
        return sorted(other for other in others if other < workers)
