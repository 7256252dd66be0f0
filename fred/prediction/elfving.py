"""The cutoff rule for independent normal times [Elfving 1947; Teng & Wood 2018, eq. 3]."""

import math
from collections import deque
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtri

from fred.cluster.contention import NodeOf
from fred.components.component import Count
from fred.prediction.contract import By, Chooser, Objective
from fred.prediction.predictive import Predictive, Predictor


class Elfving(Predictive):
    """The best count by Elfving's formula, for independent normal compute times [Elfving 1947; Teng & Wood 2018, eq. 3].

    E[x_(j)] is about mu + sigma z_j, z_j = Phi^-1((j - pi/8) / (n - pi/4 + 1)) (docs/errata.md, item 1). Mean and deviation
    come from the line through the observed order statistics and z, so dropped workers do not bias them. They are averaged
    over the last rounds. With a large sigma the first order statistics would be expected near or below 0, and c = 1 would
    always look best. So the rule waits for at least the share `at_least` of the workers.

    One outlier looks like a wide normal distribution, of which the first two times come early:

        >>> import numpy as np
        >>> from fred.prediction.elfving import Elfving
        >>> chooser = Elfving().start(np.zeros(4, np.int64))
        >>> first = chooser.choose(np.array([], np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 40]) * 10**8, finished=np.ones(4, bool))
        >>> first, chooser.choose(np.array([], np.int64))
        (4, 2)
    """

    objective: Objective = Field(
        default="round", description="quantity to maximise: c / E[x_(c)] of the next round, or c - rho E[x_(c)] of the long run"
    )
    by: By = Field(
        default="count", description="what ends a round: `count`, its c-th worker, as published; `deadline`; or both"
    )
    window: Count = Field(default=20, description="number of rounds over which mean and deviation are averaged")
    at_least: Annotated[float, Field(gt=0, le=1)] = Field(default=0.5, description="smallest share of the workers to wait for")

    def start(self, node_of: NodeOf) -> Chooser:
        return _NormalOrderStatistics(self, len(node_of))


def expected_normal_order_statistics(n: int) -> NDArray[np.float64]:
    """Return Elfving's approximation to the expected order statistics of n standard normal variables: [n], ascending.

    >>> from fred.prediction.elfving import expected_normal_order_statistics
    >>> expected_normal_order_statistics(3).round(3).tolist()  # exactly: 3 / (2 sqrt(pi)) = 0.846
    [-0.882, 0.0, 0.882]
    """
    return ndtri((np.arange(1, n + 1) - math.pi / 8) / (n - math.pi / 4 + 1))


class _NormalOrderStatistics(Predictor):
    def __init__(self, rule: Elfving, workers: int):
        super().__init__(rule, workers)
        self._z = expected_normal_order_statistics(workers)
        self._fits: deque[tuple[float, float]] = deque(maxlen=rule.window)  # mean, deviation, s

    def expected(self) -> NDArray[np.float64]:
        mean, deviation = np.mean(self._fits, axis=0)
        return mean + deviation * self._z

    def learn(self, seconds: NDArray[np.float64], finished: NDArray[np.bool_]) -> None:
        observed = np.sort(seconds[finished])
        z = self._z[: len(observed)]
        mean, centred = math.fsum(z) / len(z), z - math.fsum(z) / len(z)  # fsum: the same bits on every machine
        slope = math.fsum(centred * observed) / math.fsum(centred**2) if len(observed) > 1 else 0.0
        self._fits.append((math.fsum(observed) / len(observed) - slope * mean, slope))
