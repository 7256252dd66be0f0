"""What every predicting rule has in common: expected order statistics of the next round, and the best cutoff for them."""

import math
from abc import abstractmethod
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.durations import NANOSECONDS
from fred.prediction.contract import Best, Choice, Chooser, CutoffRule, Objective, Times


class Predictive(CutoffRule):
    """A rule that expects x_(1) .. x_(n) of the next round and takes the best c of them.

    A new one has a `Predictor` that says what it expects and learns from rounds; here that all goes on as in the last one:

        >>> import numpy as np
        >>> from fred.prediction.predictive import Predictive, Predictor
        >>> class Last(Predictor):
        ...     def expected(self):
        ...         return np.sort(self.seconds)
        ...     def learn(self, seconds, finished):
        ...         self.seconds = seconds
        >>> class AsBefore(Predictive):
        ...     def start(self, node_of):
        ...         return Last(self, len(node_of))
        >>> chooser = AsBefore(objective="round").start(np.zeros(4, np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 40]) * 10**8, finished=np.ones(4, bool))
        >>> chooser.choose(np.array([], np.int64))
        3
    """

    objective: Objective = Field("throughput", description="c / E[x_(c)] of the round, or c - rho E[x_(c)] of the long run")
    at_least: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="smallest share of the workers to wait for")


class Predictor(Chooser):
    """A predicting rule at work; until it has seen a round it waits for all.

    Args:
        rule: whose objective and smallest share it heeds.
        workers: n.
    """

    def __init__(self, rule: Predictive, workers: int):
        self.workers = workers
        self.least = max(1, math.ceil(rule.at_least * workers))
        self._best = Best(rule.objective, self.least)
        self._ready = False  # whether it has seen enough to decide
        self._chosen = 0  # in this round, by what was expected

    def choose(self, times: Times) -> Choice:
        """The best c of the expected order statistics; `times` are not looked at."""
        self._chosen = self._best.cutoff(self.expected()) if self._ready else 0
        return self._chosen or self.workers

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        """Note what the round came to by what was chosen, and `learn` from its `times`, ns, and who has `finished`."""
        seconds = np.maximum(times, 1) / NANOSECONDS
        if self._chosen:  # it counts for what it chose, even where all were waited for
            c = min(self._chosen, int(finished.sum()))
            self._best.came_to(c, np.partition(seconds, c - 1)[c - 1])
        self._ready = True
        self.learn(seconds, finished)

    @abstractmethod
    def expected(self) -> NDArray[np.float64]:
        """Expected order statistics of the next round, s: [workers], ascending."""

    @abstractmethod
    def learn(self, seconds: NDArray[np.float64], finished: NDArray[np.bool_]) -> None:
        """A round is over: each worker's seconds, which where it has not finished are only a lower bound.

        Args:
            seconds: compute time of each worker, s [workers].
            finished: who made the cutoff [workers].
        """
