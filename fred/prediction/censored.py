"""Distributions of censored times, of which some are only known to exceed a bound [Kaplan & Meier 1958]."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.prediction.contract import Times
from fred.prediction.lognormal import Floats

_ROUNDING = 1e-9  # tolerance of a sum of probabilities


class Distribution(NamedTuple):
    """The distribution of times in each column of a sample; mass that was never observed lies beyond every bound.

    The probability of a bound is shared equally among the times beyond it. Here one of four times was at least 2, so its
    true value is equally likely to be 3 or 9:

        >>> import numpy as np
        >>> times, finished = np.array([[9], [1], [3], [2]]), np.array([[True], [True], [True], [False]])
        >>> distribution = Distribution.of(times, finished)
        >>> distribution.times[:, 0].tolist(), distribution.mass[:, 0].tolist()
        ([1, 2, 3, 9], [0.25, 0.0, 0.375, 0.375])
        >>> distribution.quantile(0.5).tolist(), distribution.mad().tolist()
        ([3.0], [2.0])
    """

    times: Times  # ascending, ns [sample, columns]
    mass: Floats  # probability of each, summing to 1, or to less where the largest are bounds [sample, columns]

    @classmethod
    def of(cls, times: Times, finished: NDArray[np.bool_]) -> "Distribution":
        """Return the product-limit estimate of each column [sample, columns]; times not `finished` are lower bounds."""
        order = np.argsort(2 * times + ~finished, axis=0, kind="stable")  # of equal times, bounds come last
        at_risk = np.arange(len(times), 0, -1.0)[:, None]
        survival = np.cumprod(1 - np.take_along_axis(finished, order, axis=0) / at_risk, axis=0)
        return cls(np.take_along_axis(times, order, axis=0), np.diff(1 - survival, axis=0, prepend=0.0))

    def quantile(self, share: float) -> Floats:
        """Return the smallest time by which this share has finished, ns [columns]; inf where that was never observed."""
        return _reached(self.times.astype(float), self.mass, share)

    def mad(self) -> Floats:
        """Return the median absolute deviation from the median, ns [columns]; inf where the median was never observed."""
        median = self.quantile(0.5)
        seen = np.isfinite(median)
        deviation = np.abs(self.times - np.where(seen, median, 0.0))
        order = np.argsort(deviation, axis=0, kind="stable")
        ordered, mass = (np.take_along_axis(each, order, axis=0) for each in (deviation, self.mass))
        return np.where(seen, _reached(ordered, mass, 0.5), np.inf)


def _reached(values: Floats, mass: Floats, share: float) -> Floats:
    """Return the first of each column's ascending values where the cumulative mass reaches `share` [columns], or inf."""
    there = np.cumsum(mass, axis=0) >= share - _ROUNDING
    return np.where(there[-1], np.take_along_axis(values, there.argmax(axis=0)[None], axis=0)[0], np.inf)
