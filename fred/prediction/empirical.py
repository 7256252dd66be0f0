"""Expected order statistics from the steps between ranks in the last rounds [Kaplan & Meier 1958]."""

from collections import deque

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.contention import NodeOf
from fred.components.component import Count
from fred.prediction.contract import Choice, Chooser, Times
from fred.prediction.predictive import Predictive, Predictor


class Empirical(Predictive):
    """The best count by observed order statistics: x_(c) is predicted as the sum of mean gaps x_(j) - x_(j - 1).

    The mean of a step is over the rounds that saw it. A round sees the j-th step if it waited for j workers or more. That
    was decided before the round began. So while the cluster does not change, the rounds that did not see a step bias no
    mean; means of the x_(j) themselves would be biased. A rule that never waits for the last workers cannot know whether
    they are still late. So if no round in the window saw all workers, the next round waits for all.

    The only round so far had three workers close together and one late:

        >>> import numpy as np
        >>> from fred.prediction.empirical import Empirical
        >>> chooser = Empirical(objective="round", by="count").start(np.zeros(4, np.int64))
        >>> first = chooser.choose(np.array([], np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 40]) * 10**8, finished=np.ones(4, bool))
        >>> first, chooser.choose(np.array([], np.int64))
        (4, 3)
    """

    window: Count = Field(default=20, description="number of last rounds that are used")

    def start(self, node_of: NodeOf) -> Chooser:
        return OfTheLastRounds(self, len(node_of), self.window)


class OfTheLastRounds(Predictor):
    """Expected x_(1) .. x_(n) from a window of the last rounds.

    Args:
        rule: rule with the objective to decide by.
        workers: number of workers, n.
        window: number of last rounds that are used.
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
        rounds = len(self._waited_for) - np.searchsorted(np.sort(self._waited_for), ranks)  # rounds that saw the j-th
        return np.cumsum(np.add.reduce(self._steps, axis=0) / rounds)

    def learn(self, seconds: NDArray[np.float64], finished: NDArray[np.bool_]) -> None:
        there = int(finished.sum())
        self._steps.append(np.where(np.arange(self.workers) < there, np.diff(np.sort(seconds), prepend=0.0), 0.0))
        self._waited_for.append(there)
