"""The dispatcher's selection rules, which draw the next worker.

>>> from itertools import islice
>>> def shares(rule):
...     return np.bincount(list(islice(rule.choices(0, 3), 3000)), minlength=3) / 3000
>>> shares(Uniform()).round(2).tolist()
[0.33, 0.34, 0.33]
>>> shares(Softmax(priorities=(0.0, 0.0, 1.0))).round(2).tolist()
[0.21, 0.21, 0.58]
>>> list(islice(Shifting(change=-9.0).choices(0, 3), 6))
[0, 2, 1, 0, 1, 2]
"""

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
from pydantic import Field

from fred.base import streams
from fred.base.elementary import exp
from fred.cluster.cluster import Cluster
from fred.components.component import Component


class Selection(Component):
    """A rule that draws one worker after another.

    Example:
        >>> import itertools
        >>> import fred
        >>> class InTurn(fred.Selection):
        ...     '''One after the other; the last one twice as often.'''
        ...     def choices(self, seed, workers):
        ...         return itertools.cycle([*range(workers), workers - 1])
        >>> list(itertools.islice(InTurn().choices(seed=0, workers=3), 8))
        [0, 1, 2, 2, 0, 1, 2, 2]
        >>> scenario = fred.scenario({
        ...     "cluster": {"workers": 3},
        ...     "stop": {"updates": 400},
        ...     "protocol": {"name": "dispatcher", "selection": InTurn()},
        ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
        ... })
        >>> float(fred.run(scenario).summary["staleness_mean"].iloc[0])
        1.9875
    """

    @abstractmethod
    def choices(self, seed: int, workers: int) -> Iterator[int]:
        """Yield the number (from 0) of the next worker, without end.

        Args:
            seed: seed of the draws; the same seed gives the same order.
            workers: number of workers.
        """

    def check(self, cluster: Cluster) -> None:
        """Raise ValueError if the options do not fit the number of workers of the `cluster`."""


class Uniform(Selection):
    """Every worker is equally likely in each draw."""

    def choices(self, seed: int, workers: int) -> Iterator[int]:
        for u in streams.one_by_one(seed, "dispatch"):
            yield int(u * workers)


class Softmax(Selection):
    """A worker is selected with probability proportional to exp(priority); priorities are constant."""

    priorities: tuple[float, ...] = Field(default=(), description="one per worker; absent: all 0")

    def check(self, cluster: Cluster) -> None:
        if self.priorities and len(self.priorities) != cluster.size:
            raise ValueError(f"{cluster.size} workers need as many `priorities`, not {len(self.priorities)}")

    def choices(self, seed: int, workers: int) -> Iterator[int]:
        priorities = np.array(self.priorities or [0.0] * workers)
        for u in streams.one_by_one(seed, "dispatch"):
            cumulative = np.cumsum(exp(priorities - priorities.max()))
            worker = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
            yield worker
            self._selected(priorities, worker)

    def _selected(self, priorities: np.ndarray, worker: int) -> None:
        """Change the priorities after a worker has been selected; here, not at all."""


class Shifting(Softmax):
    """Softmax selection in which a worker's priority changes by a fixed amount each time it is selected.

    A negative change brings the order closer to round-robin; a positive one selects frequent workers even more often.
    """

    change: float = Field(ge=-1e6, le=1e6, examples=[-1.0], description="added to a worker's priority when it is selected")

    def _selected(self, priorities: np.ndarray, worker: int) -> None:
        priorities[worker] += self.change
