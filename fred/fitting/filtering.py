"""What persistent noise and a switching regime predict of the next iteration: a Kalman filter, and a mixture of two states."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """Autoregressive noise of first order in the logarithm, from stationarity."""

    deviation: float
    persistence: float  # from one iteration to the next


@dataclass(frozen=True)
class Switching:
    """A fast and a slow state."""

    slowdown: float  # in the logarithm
    to_slow: float  # probability that a fast iteration is followed by a slow one
    to_fast: float

    @property
    def slow_share(self) -> float:
        """In the long run."""
        return self.to_slow / (self.to_slow + self.to_fast)


@dataclass(frozen=True)
class Series:
    """Columns that behave alike: the sum of scaled autoregressive noises, white noise, and perhaps two states."""

    noises: tuple[tuple[Noise, NDArray[np.float64]], ...]  # and the variance's factor of each column: [columns]
    white: NDArray[np.float64]  # variance: [columns]
    switching: Switching | None = None
    dimensions: NDArray[np.float64] | float = 1.0  # that each column stands for, in a subspace of the columns


def log_likelihood(values: Matrix, model: Series) -> NDArray[np.float64]:
    """Of each iteration given those before, summed over the columns of values [iterations, columns]: [iterations].

    With two states the filter goes on with the mean of what they come to, so that the predictions are approximate but proper.
    """
    kept = np.array([noise.persistence for noise, _ in model.noises])
    stationary = np.array([noise.deviation**2 * factor for noise, factor in model.noises]).reshape(len(kept), values.shape[1])
    covariance = stationary[:, None] * np.eye(len(kept))[..., None]  # [noises, noises, columns]
    fresh = covariance * (1 - kept**2)[:, None, None]
    state, slow = np.zeros((len(kept), values.shape[1])), np.full(values.shape[1], _slow_share(model.switching))
    result = np.empty(len(values))
    for step, observed in enumerate(values):
        variance = covariance.sum((0, 1)) + model.white
        error = observed - state.sum(0)
        density, error, slow = _with_states(error, variance, slow, model)
        result[step] = density.sum()
        gain = covariance.sum(0) / variance
        state = (state + gain * error) * kept[:, None]
        covariance = (covariance - gain[:, None] * gain[None] * variance) * np.outer(kept, kept)[..., None] + fresh
    return result


def _slow_share(switching: Switching | None) -> float:
    return switching.slow_share if switching else 0.0


def _with_states(error: Matrix, variance: Matrix, slow: Matrix, model: Series) -> tuple[Matrix, Matrix, Matrix]:
    """Log-density of each column, what is left of the error in the likely state, and the next slow state's probability."""
    fast = -0.5 * (model.dimensions * np.log(2 * math.pi * variance) + error**2 / variance)
    if model.switching is None:
        return fast, error, slow
    switching = model.switching
    late = -0.5 * (np.log(2 * math.pi * variance) + (error - switching.slowdown) ** 2 / variance)
    with np.errstate(divide="ignore"):
        late, fast = late + np.log(slow), fast + np.log1p(-slow)
    density = np.logaddexp(fast, late)
    now = np.exp(late - density)
    return density, error - now * switching.slowdown, now * (1 - switching.to_fast) + (1 - now) * switching.to_slow
