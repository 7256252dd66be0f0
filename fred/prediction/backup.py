"""Dynamic backup workers: wait for the k with the largest expected loss decrease per time [Xu, Neglia & Sebastianelli 2020]."""

import math
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fred.cluster.contention import NodeOf
from fred.components.component import Count
from fred.prediction.contract import Best, By, Chooser
from fred.prediction.empirical import OfTheLastRounds
from fred.prediction.lognormal import Floats
from fred.prediction.predictive import Predictive


class DynamicBackup(Predictive):
    """Dynamic backup workers: wait for the k with the largest expected gain per time, where gains level off with k.

    A step of rate eta along the mean of k gradients lowers the loss by at least (eta - L eta^2 / 2) |g|^2 - (L eta^2 / 2) V
    / k (arXiv 2004.14696). Here L is the smoothness of the loss, g its gradient, and V the variance of one worker's
    gradient. So the gain is proportional to 1 - noise / k, with noise = L eta / (2 - L eta) V / |g|^2. The paper estimates
    |g|^2, V and L from the gradients on arrival. With `noise: measured` the algorithm, such as `dbw`, reports that
    estimate. A rule that sees only times cannot compute it: give `noise`, which may grow from round to round as the
    gradient shrinks. Durations are means over the last rounds, as in the rule `empirical`. The paper's estimate also
    depends on the k of two successive rounds, because its late workers continue; FRED's late workers are dropped.

    With noisier gradients, more of them are worth waiting for:

        >>> import numpy as np
        >>> from fred.prediction.backup import DynamicBackup
        >>> def chosen(noise):
        ...     chooser = DynamicBackup(noise=noise, objective="round").start(np.zeros(4, np.int64))
        ...     chooser.observe(np.array([10, 15, 20, 60]) * 10**8, finished=np.ones(4, bool))
        ...     return chooser.choose(np.array([], np.int64))
        >>> [chosen(noise) for noise in (0.0, 1.0, 3.5)]
        [1, 3, 4]
    """

    noise: Annotated[float, Field(ge=0)] | Literal["measured"] = Field(
        default=10.0, description="gradients below which a round gains nothing (above); `measured`: the algorithm's statistic"
    )
    noise_growth: float = Field(default=0.0, ge=0, description="increase of a given `noise` from round to round")
    by: By = Field(
        default="count", description="what ends a round: `count`, its k-th worker, as published; `deadline`; or both"
    )
    window: Count = Field(default=20, description="number of rounds over which durations are averaged")

    @model_validator(mode="after")
    def _grows_only_if_given(self) -> Self:
        if self.needs_values and self.noise_growth:
            raise ValueError("`noise_growth` needs a number as `noise`; with `noise: measured` the gradients set it")
        return self

    @property
    def needs_values(self) -> bool:
        """Return True if the noise is measured from the gradients."""
        return self.noise == "measured"

    def start(self, node_of: NodeOf) -> Chooser:
        return _GainPerTime(self, len(node_of))


class _GainPerTime(OfTheLastRounds):
    def __init__(self, rule: DynamicBackup, workers: int):
        super().__init__(rule, workers, rule.window)
        self._noise = math.inf if rule.noise == "measured" else rule.noise
        self._growth, self._rounds = rule.noise_growth, 0
        self._best = Best(rule.objective, self.least, worth=self._gain)

    def _gain(self, counts: Floats) -> Floats:
        return 1 - (self._noise + self._growth * self._rounds) / counts

    def hear(self, statistic: float) -> None:
        """Store the noise measured from the gradients so far."""
        self._noise = statistic

    def learn(self, seconds: Floats, finished: NDArray[np.bool_]) -> None:
        super().learn(seconds, finished)
        self._rounds += 1
