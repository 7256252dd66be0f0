"""The dispatcher's selection rules: how likely each worker is to come next, and how that changes once it has been selected."""

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
from pydantic import Field

from fred import streams
from fred.cluster.cluster import Cluster
from fred.cluster.elementary import exp
from fred.components.component import Component

_BLOCK = 1024  # uniform draws made at a time


class Selection(Component):
    """Draws one worker after another."""

    @abstractmethod
    def choices(self, seed: int, workers: int) -> Iterator[int]:
        """The workers in the order in which they are selected, without end."""

    def check(self, cluster: Cluster) -> None:
        """Refuse, with ValueError, a number of workers that the options do not fit."""


class Uniform(Selection):
    """Every worker is equally likely each time."""

    def choices(self, seed: int, workers: int) -> Iterator[int]:
        for u in _draws(seed):
            yield int(u * workers)


class Softmax(Selection):
    """A worker is selected with probability proportional to exp(priority); priorities stay as they are."""

    priorities: tuple[float, ...] = Field((), description="one per worker; absent: all 0")

    def check(self, cluster: Cluster) -> None:
        if self.priorities and len(self.priorities) != cluster.size:
            raise ValueError(f"{cluster.size} workers need as many `priorities`, not {len(self.priorities)}")

    def choices(self, seed: int, workers: int) -> Iterator[int]:
        priorities = np.array(self.priorities or [0.0] * workers)
        for u in _draws(seed):
            cumulative = np.cumsum(exp(priorities - priorities.max()))
            worker = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
            yield worker
            self._selected(priorities, worker)

    def _selected(self, priorities: np.ndarray, worker: int) -> None:
        """Change the priorities once a worker has been selected."""


class Shifting(Softmax):
    """Softmax of priorities, where a worker's priority changes by a fixed amount each time it has been selected.

    Negative changes even the workers out (towards round-robin), positive ones let the favourites run ahead.
    """

    change: float = Field(ge=-1e6, le=1e6, examples=[-1.0], description="added to a worker's priority when it is selected")

    def _selected(self, priorities: np.ndarray, worker: int) -> None:
        priorities[worker] += self.change


def _draws(seed: int) -> Iterator[float]:
    position = 0
    while True:
        yield from streams.uniforms(seed, "dispatch", 0, position, _BLOCK).tolist()
        position += _BLOCK
