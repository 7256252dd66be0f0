"""Order statistics as they were in the last rounds, steps between ranks from those that saw them [Kaplan & Meier 1958]."""

from collections import deque

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.contention import NodeOf
from fred.components.component import Count
from fred.prediction.contract import Choice, Chooser, Times
from fred.prediction.predictive import Predictive, Predictor


class Empirical(Predictive):
    """The mean of each x_(j) - x_(j - 1) over those of the last rounds that waited for j workers or more, added up.

    Which rounds saw a step was decided before they began, so while the cluster stays as it is no mean is biased by what the
    other rounds did not see; means of the x_(j) themselves would be. Whether the last ones are still late nobody knows who
    never waits for them: when no round of the window saw all workers, the next one waits for all.

    Three workers together and one late, in the only round so far:

        >>> import numpy as np
        >>> from fred.prediction.empirical import Empirical
        >>> chooser = Empirical(objective="round", by="count").start(np.zeros(4, np.int64))
        >>> first = chooser.choose(np.array([], np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 40]) * 10**8, finished=np.ones(4, bool))
        >>> first, chooser.choose(np.array([], np.int64))
        (4, 3)
    """

    window: Count = Field(20, description="rounds that are remembered")

    def start(self, node_of: NodeOf) -> Chooser:
        return OfTheLastRounds(self, len(node_of), self.window)


class OfTheLastRounds(Predictor):
    """What a window of rounds has shown of x_(1) .. x_(n).

    Args:
        rule: which decides by that.
        workers: n.
        window: rounds that are remembered.
    """

    def __init__(self, rule: Predictive, workers: int, window: int):
        super().__init__(rule, workers)
        self._steps: deque[NDArray[np.float64]] = deque(maxlen=window)  # x_(j) - x_(j - 1), s [workers]; 0 beyond the cutoff
        self._waited_for: deque[int] = deque(maxlen=window)

    def choose(self, times: Times) -> Choice:
        if self.workers in self._waited_for:
            return super().choose(times)
        self._chosen = None
        return self.workers

    def expected(self) -> NDArray[np.float64]:
        ranks = np.arange(1, self.workers + 1)
        rounds = len(self._waited_for) - np.searchsorted(np.sort(self._waited_for), ranks)  # that saw the j-th
        return np.cumsum(np.add.reduce(self._steps, axis=0) / rounds)

    def learn(self, seconds: NDArray[np.float64], finished: NDArray[np.bool_]) -> None:
        there = int(finished.sum())
        self._steps.append(np.where(np.arange(self.workers) < there, np.diff(np.sort(seconds), prepend=0.0), 0.0))
        self._waited_for.append(there)
