"""Persistent and white noise from autocovariances."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from fred.fitting.description import Matrix, autocovariance

_MOST_LAGS = 30
_PERSISTENCES = np.tanh(np.linspace(0.02, 2.65, 90))  # grid: 0.02 to 0.99
_EXACT = 1e3  # weight of the variance itself among the autocovariances
_DEVIATIONS = 3.0  # standard errors by which persistence must differ from 0


@dataclass(frozen=True)
class Noise:
    """First-order autoregressive noise in the logarithm, started from the stationary distribution."""

    deviation: float
    persistence: float  # from one iteration to the next


def autocovariances(centred: Matrix) -> NDArray[np.float64]:
    """Return the mean autocovariances over the columns, at lags 0, 1, ..., up to a quarter of the iterations."""
    lags = range(max(2, min(_MOST_LAGS, len(centred) // 4)))
    return np.array([autocovariance(centred, lag).mean() for lag in lags])


def fit_noise(covariances: NDArray[np.float64], iterations: int, columns: int) -> tuple[float, Noise | None]:
    """Fit white noise and, if significant, persistent noise by least squares over all lags; return variance and noise.

    Subtracting the columns' means lowers all autocovariances by the variance of a mean; the fit corrects for that.
    """
    lags = np.arange(len(covariances))
    weights = np.where(lags == 0, _EXACT, 1.0)
    white = (lags == 0) - 1 / iterations
    best = (math.inf, 0.0, 0.0, 0.0)
    for persistence in _PERSISTENCES:
        covariance = persistence**lags - variance_of_mean(persistence, iterations)
        parts, misfit = nnls(np.stack([white, covariance], 1) * weights[:, None], covariances * weights)
        best = min(best, (float(misfit), float(parts[0]), float(parts[1]), float(persistence)))
    _, white_variance, persistent_variance, persistence = best
    if persistent_variance * persistence < _DEVIATIONS * covariances[0] / math.sqrt(iterations * columns):
        return max(float(covariances[0]) * iterations / (iterations - 1), 0.0), None
    return white_variance, Noise(math.sqrt(persistent_variance), persistence)


def variance_of_mean(persistence: float, iterations: int) -> float:
    """Return the variance of a mean over steps of autoregressive noise, relative to that of one step."""
    return (
        (1 + persistence) / (1 - persistence)
        - 2 * persistence * (1 - persistence**iterations) / (iterations * (1 - persistence) ** 2)
    ) / iterations
