"""Log-normal times: expected order statistics of independent times, and moments of censored ones."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from fred.base.elementary import exp

Floats = NDArray[np.float64]
_REACH, _POINTS = 4.5, 128  # grid: deviations beyond the outermost means; number of points


def expected_order_statistics(mean: Floats, deviation: Floats) -> Floats:
    """Return E[x_(1)] .. E[x_(n)] of independent log-normal times, s [n], given mean and deviation of their logarithms [n].

    >>> import numpy as np
    >>> from fred.prediction.lognormal import expected_order_statistics
    >>> expected_order_statistics(np.log([1.0, 2.0, 10.0]), np.full(3, 0.05)).round(2).tolist()
    [1.0, 2.0, 10.0]
    """
    grid = np.linspace((mean - _REACH * deviation).min(), (mean + _REACH * deviation).max(), _POINTS)
    over = np.add.reduce(ndtr((grid - mean[:, None]) / deviation[:, None]), axis=0)
    return between_ranks(over, exp(grid), len(mean))


def between_ranks(over: Floats, times: Floats, n: int) -> Floats:
    """Return E[x_(1)] .. E[x_(n)], s [n], of n independent times, of which `over` are expected by each of `times`.

    The expected number by time t is F_1(t) + .. + F_n(t). It is about j - 1/2 at the expected time of the j-th.

    Args:
        over: expected number of times that have passed by each of `times`, ascending [points].
        times: grid of times, s [points].
        n: number of independent times.
    """
    return np.interp(np.arange(n) + 0.5, over, times)


def beyond(mean: Floats, deviation: Floats, least: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of normal variables truncated to values above `least`.

    Args:
        mean: mean without truncation [n].
        deviation: standard deviation without truncation [n].
        least: lower bound of each variable [n].

        >>> import numpy as np
        >>> from fred.prediction.lognormal import beyond
        >>> [value.round(3).tolist() for value in beyond(np.zeros(2), np.ones(2), np.array([-9.0, 0.0]))]
        [[0.0, 0.798], [1.0, 0.363]]
    """
    z = (least - mean) / deviation
    hazard = math.sqrt(2 / math.pi) / erfcx(z / math.sqrt(2))  # of the standard normal density; no overflow in its tail
    return mean + deviation * hazard, deviation**2 * np.maximum(1 + (z - hazard) * hazard, 0)
