"""Distributions of times some of which are only known to be larger than a bound [Kaplan & Meier 1958]."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.prediction.contract import Times
from fred.prediction.lognormal import Floats

_ROUNDING = 1e-9  # of a sum of probabilities


class Distribution(NamedTuple):
    """Of each column of a sample, where its times are and how likely; what was never seen lies beyond every bound.

    A bound's own probability goes to the times beyond it, in equal parts with theirs. Of four times one was at least 2, and
    what it would have been is as likely 3 as 9:

        >>> import numpy as np
        >>> times, finished = np.array([[9], [1], [3], [2]]), np.array([[True], [True], [True], [False]])
        >>> distribution = Distribution.of(times, finished)
        >>> distribution.times[:, 0].tolist(), distribution.mass[:, 0].tolist()
        ([1, 2, 3, 9], [0.25, 0.0, 0.375, 0.375])
        >>> distribution.quantile(0.5).tolist(), distribution.mad().tolist()
        ([3.0], [2.0])
    """

    times: Times  # ascending, ns [sample, columns]
    mass: Floats  # of each, adding up to 1, or to less where the largest are bounds [sample, columns]

    @classmethod
    def of(cls, times: Times, finished: NDArray[np.bool_]) -> "Distribution":
        """The product-limit estimate, for columns [sample, columns] in which times not `finished` are bounds."""
        order = np.argsort(2 * times + ~finished, axis=0, kind="stable")  # of equal ones the bounds are larger
        at_risk = np.arange(len(times), 0, -1.0)[:, None]
        survival = np.cumprod(1 - np.take_along_axis(finished, order, axis=0) / at_risk, axis=0)
        return cls(np.take_along_axis(times, order, axis=0), np.diff(1 - survival, axis=0, prepend=0.0))

    def quantile(self, share: float) -> Floats:
        """The smallest time by which this share have finished: ns [columns]; inf where that was never seen."""
        return _reached(self.times.astype(float), self.mass, share)

    def mad(self) -> Floats:
        """The median absolute deviation from the median: ns [columns]; inf where the median was never seen."""
        median = self.quantile(0.5)
        seen = np.isfinite(median)
        deviation = np.abs(self.times - np.where(seen, median, 0.0))
        order = np.argsort(deviation, axis=0, kind="stable")
        ordered, mass = (np.take_along_axis(each, order, axis=0) for each in (deviation, self.mass))
        return np.where(seen, _reached(ordered, mass, 0.5), np.inf)


def _reached(values: Floats, mass: Floats, share: float) -> Floats:
    """Of each column the first of its ascending values at which the mass comes to a share: [columns]; inf if it never does."""
    there = np.cumsum(mass, axis=0) >= share - _ROUNDING
    return np.where(there[-1], np.take_along_axis(values, there.argmax(axis=0)[None], axis=0)[0], np.inf)
