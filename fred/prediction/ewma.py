"""Exponentially weighted averages of each worker's log-normal times, dropped workers imputed [Tobin 1958; Roberts 1959]."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.base.elementary import log
from fred.cluster.contention import NodeOf
from fred.prediction.contract import Chooser
from fred.prediction.lognormal import Floats, beyond, expected_order_statistics
from fred.prediction.predictive import Predictive, Predictor

_LEAST_VARIANCE = 1e-6
# A squared error counts at most this many variances, or changes of regime would pass for spread. This makes the deviation of
# normal times a quarter too small. Larger bounds gave less throughput: part of the errors is common to all workers.
_MOST_SURPRISE = 2.0
_PASSES = 3  # iterations over dropped workers, as their times and the node's level depend on each other

Weight = Annotated[float, Field(gt=0, le=1)]


class EWMA(Predictive):
    """The best count by exponentially weighted means and variances of each worker's log compute time.

    The rule assumes that the recent past continues and that workers are independent.

    A dropped worker counts with its expected time beyond the cutoff. So the rule does not forget that the worker is slow,
    nor how uncertain that is. An error of more than `jump` deviations is a change of regime, followed at once. With `of:
    node`, the workers of a node also share a common shift, next to their own means.

    Of four workers, the one that was late is expected to be late again:

        >>> import numpy as np
        >>> from fred.prediction.ewma import EWMA
        >>> chooser = EWMA(objective="round", of="worker", by="count").start(np.zeros(4, np.int64))
        >>> first = chooser.choose(np.array([], np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 40]) * 10**8, finished=np.ones(4, bool))
        >>> first, chooser.choose(np.array([], np.int64))
        (4, 3)
    """

    of: Literal["worker", "node"] = Field(default="node", description="unit that becomes slow or fast as a whole")
    rate: Weight = Field(default=0.2, description="weight of the newest round in a worker's mean")
    node_rate: Weight = Field(
        default=0.4, description="weight of the newest round in the mean shift of a node, which its workers share"
    )
    spread_rate: Weight = Field(default=0.03, description="weight of the newest round in a variance")
    jump: float = Field(
        default=2.5, gt=0, description="error, in standard deviations, beyond which the rule assumes a change of regime"
    )

    def start(self, node_of: NodeOf) -> Chooser:
        return _Averages(self, node_of)


class _Averages(Predictor):
    def __init__(self, rule: EWMA, node_of: NodeOf):
        super().__init__(rule, len(node_of))
        self._rule, self._rounds = rule, 0
        self._mean = self._variance = np.zeros(len(node_of))
        self._node_of, self._size = node_of, np.maximum(np.bincount(node_of), 1)
        self._node_variance = np.zeros(len(self._size))

    def expected(self) -> Floats:
        return expected_order_statistics(self._mean, np.sqrt(self._variance))

    def learn(self, seconds: Floats, finished: NDArray[np.bool_]) -> None:
        logs = log(seconds)
        self._rounds += 1
        if self._rounds == 1:
            middle = np.sort(logs)[len(logs) // 2]
            spread = 2.2 * np.sort((logs - middle) ** 2)[len(logs) // 2]  # a normal variance is 2.2 times the median square
            self._variance = np.full(len(logs), max(spread, _LEAST_VARIANCE))
            self._node_variance[:] = self._variance[0] / 4
            self._mean = logs
        else:
            self._update(logs, ~finished)

    def _update(self, logs: Floats, dropped: NDArray[np.bool_]) -> None:
        shift = np.zeros(len(self._size))
        errors, uncertainty = self._errors(logs, dropped, shift)
        if self._rule.of == "node":
            for _ in range(_PASSES):
                found = self._common(errors, shift)
                shift = self._step(found, self._node_variance, self._rule.node_rate)
                errors, uncertainty = self._errors(logs, dropped, shift)
            self._node_variance = self._spread(self._node_variance, found**2)
        shared = shift[self._node_of]
        self._mean = self._mean + shared + self._step(errors - shared, self._variance, self._rule.rate)
        self._variance = self._spread(self._variance, errors**2 + uncertainty)

    def _errors(self, logs: Floats, dropped: NDArray[np.bool_], shift: Floats) -> tuple[Floats, Floats]:
        """Return each worker's error of log x, and the variance of imputed errors, both [workers], given the nodes' shifts."""
        uncertainty, seen = np.zeros(len(logs)), logs.copy()
        expected = (self._mean + shift[self._node_of])[dropped]
        seen[dropped], uncertainty[dropped] = beyond(expected, np.sqrt(self._variance[dropped]), logs[dropped])
        return seen - self._mean, uncertainty

    def _common(self, errors: Floats, shift: Floats) -> Floats:
        """Return the mean error of each node's workers; each error is clipped to within a jump of the current shift."""
        reach = self._rule.jump * np.sqrt(self._variance)
        own = np.clip(errors - shift[self._node_of], -reach, reach)
        return shift + np.bincount(self._node_of, own, len(self._size)) / self._size

    def _step(self, error: Floats, variance: Floats, rate: float) -> Floats:
        """Return the update of a mean for this error."""
        return np.where(error**2 > self._rule.jump**2 * variance, 1.0, max(rate, 1 / self._rounds)) * error

    def _spread(self, variance: Floats, squares: Floats) -> Floats:
        rate = max(self._rule.spread_rate, 1 / self._rounds)
        return np.maximum(variance + rate * (np.minimum(squares, _MOST_SURPRISE * variance) - variance), _LEAST_VARIANCE)
