"""Maximum-likelihood fits of persistent noise to single series: an autoregressive process plus white noise."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.fitting.description import Matrix

_PERSISTENCES = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.985, 0.995)
_SHARES = (0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95, 1.0)


class Wandering(NamedTuple):
    """The fitted noise of each series [series]."""

    persistence: NDArray[np.float64]  # from one iteration to the next
    deviation: NDArray[np.float64]  # of the persistent part
    likelihood: NDArray[np.float64]


def fit_wandering(values: Matrix) -> Wandering:
    """Fit persistent and white noise to each series, on a grid of persistences and shares of the variance.

    Args:
        values: logarithms [iterations, series].

    >>> rng = np.random.default_rng(0)
    >>> state = np.zeros(2000)
    >>> for step in range(1, 2000):
    ...     state[step] = 0.9 * state[step - 1] + math.sqrt(1 - 0.9**2) * rng.normal()
    >>> fitted = fit_wandering((0.2 * state + 0.1 * rng.normal(size=2000))[:, None])
    >>> fitted.persistence.tolist(), fitted.deviation.round(1).tolist()
    ([0.9], [0.2])
    """
    persistence, share = (grid.ravel()[:, None] for grid in np.meshgrid(_PERSISTENCES, _SHARES))
    centred = values - values.mean(0)
    state, variance = np.zeros((len(persistence), values.shape[1])), share.copy()
    squares, logs = np.zeros_like(state), np.zeros_like(persistence)
    # A Kalman filter of all grid points and series at once, scaled so that the variance of an observation is 1: `share` of it
    # is persistent and the rest is white. The true scale follows in closed form: the likelihood is largest at the mean of the
    # squared errors, divided by their predicted variances. So the grid has two dimensions instead of three.
    for observed in centred:
        total = variance + 1 - share
        error = observed - state
        squares += error**2 / total
        logs += np.log(total)
        gain = variance / total
        state = persistence * (state + gain * error)
        variance = persistence**2 * variance * (1 - gain) + (1 - persistence**2) * share
    scale = np.maximum(squares / len(values), 1e-12)
    likelihood = -0.5 * (len(values) * (np.log(2 * math.pi * scale) + 1) + logs)
    best = likelihood.argmax(0)
    columns = np.arange(values.shape[1])
    deviation = np.sqrt(scale[best, columns] * share[best, 0])
    return Wandering(persistence[best, 0], deviation, likelihood[best, columns])
