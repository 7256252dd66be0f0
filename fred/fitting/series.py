"""Fits to single series: persistent and white noise, spells [Baum et al. 1970], and waves.

All drifts have the same period, twice the trace, so that workers that drifted together continue to do so.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

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
    unit_white = (lags == 0) - 1 / iterations  # autocovariances of white noise of variance 1
    best = (math.inf, 0.0, 0.0, 0.0)
    for persistence in _PERSISTENCES:
        unit_persistent = persistence**lags - variance_of_mean(persistence, iterations)
        design = np.stack([unit_white, unit_persistent], 1)
        (white, persistent), misfit = nnls(design * weights[:, None], covariances * weights)
        best = min(best, (float(misfit), float(white), float(persistent), float(persistence)))
    _, white_variance, persistent_variance, persistence = best
    # Without persistence, the autocovariance at lag 1 has the standard error variance / sqrt(values).
    if persistent_variance * persistence < _DEVIATIONS * covariances[0] / math.sqrt(iterations * columns):
        return max(float(covariances[0]) * iterations / (iterations - 1), 0.0), None
    return white_variance, Noise(math.sqrt(persistent_variance), persistence)


def variance_of_mean(persistence: float, iterations: int) -> float:
    """Return the variance of a mean over steps of autoregressive noise, relative to that of one step."""
    return (
        (1 + persistence) / (1 - persistence)
        - 2 * persistence * (1 - persistence**iterations) / (iterations * (1 - persistence) ** 2)
    ) / iterations


_WANDERING_PERSISTENCES = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.985, 0.995)
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
    persistence, share = (grid.ravel()[:, None] for grid in np.meshgrid(_WANDERING_PERSISTENCES, _SHARES))
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


_ROUNDS = 30
_PRIOR = 0.5  # pseudo-counts of changes, and of iterations without one
_LEAST_POSITIVE = 1e-9  # of variances, and of sums by which others are divided
Row = NDArray[np.float64]


@dataclass(frozen=True)
class Spells:
    """A hidden Markov model of each series [series], with the inferred states.

    Args:
        level: mean of the fast state.
        jump: difference between the slow and the fast state.
        changes: expected number of spells that begin or end, halved.
        slow: probability of the slow state [iterations, series].
        likelihood: log-likelihood of all values.
        persistence: log-likelihood relative to a model without memory.
    """

    level: Row
    jump: Row
    changes: Row
    slow: Matrix
    likelihood: Row
    persistence: Row

    def part(self, series: NDArray[np.int64]) -> "Spells":
        """Return the model of some series only.

        Args:
            series: numbers of the series.
        """
        rows = (self.level, self.jump, self.changes, self.likelihood, self.persistence)
        level, jump, changes, likelihood, persistence = (row[series] for row in rows)
        return Spells(level, jump, changes, self.slow[:, series], likelihood, persistence)


def fit_spells(values: Matrix) -> Spells:
    """Fit two states to each series, with its own levels, variance and transition probabilities.

    The better of two starts is used: few slow iterations, or about half of them.

    Args:
        values: logarithms [iterations, series].

    >>> rng = np.random.default_rng(0)
    >>> slow = np.repeat([0, 1, 0, 1], 50)
    >>> fitted = fit_spells((slow * 0.7 + 0.1 * rng.normal(size=200))[:, None])
    >>> fitted.jump.round(1).tolist(), fitted.changes.round(1).tolist(), bool((fitted.slow[:, 0].round() == slow).all())
    ([0.7], [1.5], True)
    """
    low, middle, high = np.quantile(values, (0.02, 0.5, 0.98), axis=0)
    above = values > (low + high) / 2  # the slow half of the second start; the first has its fast state at the median
    below_mean = np.where(above, 0, values).sum(0) / np.maximum((~above).sum(0), 1)
    above_mean = np.where(above, values, 0).sum(0) / np.maximum(above.sum(0), 1)
    start_levels = np.concatenate((middle, below_mean))
    start_jumps = np.concatenate((high - middle, above_mean - below_mean))
    # Both starts run as one batch of twice as many columns: series do not depend on each other, and the loop over iterations,
    # which is in Python, runs once instead of twice.
    fits = _maximise_likelihood(np.tile(values, (1, 2)), start_levels, start_jumps)
    count = values.shape[1]
    is_first_better = fits.likelihood[:count] >= fits.likelihood[count:]
    return fits.part(np.arange(count) + np.where(is_first_better, 0, count))


def _maximise_likelihood(values: Matrix, level: Row, jump: Row) -> Spells:
    """Return the model of each series after rounds of expectation maximisation from a start."""
    variance = np.maximum(np.minimum((values - level) ** 2, (values - level - jump) ** 2).mean(0), _LEAST_POSITIVE)
    to_slow, to_fast = np.full_like(level, 0.05), np.full_like(level, 0.1)
    for iteration in range(_ROUNDS):
        slow_share = to_slow / (to_slow + to_fast)
        slow, up, down, likelihood = _smooth(values - level, jump, variance, to_slow, to_fast)
        if iteration == _ROUNDS - 1:
            break  # the states and the likelihood are those of the returned parameters
        slow_time, fast_time = slow.sum(0), (1 - slow).sum(0)
        level = ((1 - slow) * values).sum(0) / np.maximum(fast_time, _LEAST_POSITIVE)
        jump = np.maximum((slow * values).sum(0) / np.maximum(slow_time, _LEAST_POSITIVE) - level, 0.0)
        excess = values - level
        variance = np.maximum(((1 - slow) * excess**2 + slow * (excess - jump) ** 2).mean(0), _LEAST_POSITIVE)
        to_slow, to_fast = (up + _PRIOR) / (fast_time + 2 * _PRIOR), (down + _PRIOR) / (slow_time + 2 * _PRIOR)
    log_fast, log_slow = _log_densities(values - level, jump, variance)
    memoryless = np.logaddexp(log_fast + np.log1p(-slow_share), log_slow + np.log(slow_share)).sum(0)
    return Spells(level, jump, (up + down) / 2, slow, likelihood, likelihood - memoryless)


def _log_densities(excess: Matrix, jump: Row, variance: Row) -> tuple[Matrix, Matrix]:
    """Return the log densities in the fast and in the slow state of values less the level of the fast one."""
    normal = -0.5 * np.log(2 * math.pi * variance)
    return normal - excess**2 / (2 * variance), normal - (excess - jump) ** 2 / (2 * variance)


def _smooth(excess: Matrix, jump: Row, variance: Row, to_slow: Row, to_fast: Row) -> tuple[Matrix, Row, Row, Row]:
    """Return the slow state's probability [iterations, series], expected changes to slow and to fast, and log-likelihood.

    A filter goes forward through the iterations, a smoother back [Baum et al. 1970].
    """
    log_fast, log_slow = _log_densities(excess, jump, variance)
    # The filter needs only the ratio of the two densities, which one exponential gives. The densities themselves underflow far
    # from both levels, and 0 / 0 would spoil all later iterations; the clip keeps the ratio within the range of a float.
    ratios = np.exp(np.clip(log_slow - log_fast, -500, 500))
    # Probability of the slow state given the values before an iteration, and given its value, too.
    prior, filtered = np.empty_like(excess), np.empty_like(excess)
    predicted = to_slow / (to_slow + to_fast)
    for step, ratio in enumerate(ratios):
        prior[step] = predicted
        weighted = predicted * ratio
        filtered[step] = weighted / (weighted + 1 - predicted)
        predicted = to_slow + filtered[step] * (1 - to_fast - to_slow)
    prior = np.clip(prior, 1e-12, 1 - 1e-12)
    likelihood = np.logaddexp(log_fast + np.log1p(-prior), log_slow + np.log(prior)).sum(0)
    slow = filtered.copy()
    up, down = np.zeros_like(jump), np.zeros_like(jump)
    for step in range(len(excess) - 2, -1, -1):
        # Factors by which the next and all later values change the next iteration's probability of each state.
        ahead_slow = slow[step + 1] / np.maximum(prior[step + 1], 1e-300)
        ahead_fast = (1 - slow[step + 1]) / np.maximum(1 - prior[step + 1], 1e-300)
        rises, falls = (1 - filtered[step]) * to_slow * ahead_slow, filtered[step] * to_fast * ahead_fast
        slow[step] = np.clip(filtered[step] * (1 - to_fast) * ahead_slow + falls, 0, 1)
        up, down = up + rises, down + falls
    return slow, up, down, likelihood


_MOST_HALF_PERIODS = 48  # most half-periods in the trace
_FEWEST_ITERATIONS = 8  # least iterations in a half-period
_STEP = 0.25  # step of the grid of half-periods
_SLOWDOWNS = np.exp(np.linspace(0, np.log(30), 60))


class Waves(NamedTuple):
    """A wave for each series, a cosine or a triangle, with its least-squares slowdown [series].

    Args:
        period: period, s.
        peak: time of the slowest moment, s.
        linear: True for a triangle wave.
        slowdown: slowdown at the peak, relative to the trough.
        effect: contribution to the logarithm at each time [iterations, series].
        misfit: sum of squares that it leaves.
    """

    period: NDArray[np.float64]
    peak: NDArray[np.float64]
    linear: NDArray[np.bool_]
    slowdown: NDArray[np.float64]
    effect: Matrix
    misfit: NDArray[np.float64]

    @property
    def likelihood(self) -> NDArray[np.float64]:
        """Return the log-likelihood of all values given the wave."""
        iterations = len(self.effect)
        variance = np.maximum(self.misfit / iterations, 1e-12)
        return -0.5 * iterations * (np.log(2 * np.pi * variance) + 1)

    @property
    def most_half_periods(self) -> int:
        """Return the most half-periods in the trace that were tried."""
        return _most_half_periods(len(self.effect))


def fit_waves(values: Matrix, times: NDArray[np.float64]) -> Waves:
    """Fit a wave to each series: the one that fits it best.

    It has the period and the peak of the least-squares cosine whose period is not longer than the trace. Or it is a drift, and
    its period is twice the trace. Slowdowns are on a grid up to 30.

    Args:
        values: logarithms [iterations, series].
        times: start of each iteration, s [iterations].

    >>> times = np.arange(300.0)
    >>> factor = 1 + 0.5 * (1 + np.cos(2 * np.pi * (times - 20) / 100))
    >>> fitted = fit_waves(np.log(factor)[:, None], times)
    >>> fitted.period.round().tolist(), fitted.peak.round().tolist(), fitted.slowdown.round(1).tolist()
    ([100.0], [20.0], [2.0])
    """
    span = times[-1] + (times[-1] - times[0]) / max(len(times) - 1, 1)  # the last iteration counts as a mean one
    centred = values - values.mean(0)
    period, peak = _best_cosine(centred, times, span)
    return _choose_waves(_make_candidates(centred, times, span, period, peak))


def _most_half_periods(iterations: int) -> int:
    return max(1, min(_MOST_HALF_PERIODS, iterations // _FEWEST_ITERATIONS))


def _best_cosine(centred: Matrix, times: NDArray[np.float64], span: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the period and the peak of the least-squares cosine of each series, both in s."""
    best, best_half_periods, best_angle = np.full(centred.shape[1], np.inf), *np.zeros((2, centred.shape[1]))
    for half_periods in np.arange(2.0, max(_most_half_periods(len(times)), 2) + _STEP, _STEP):
        phase = np.pi * half_periods * times / span
        design = np.stack([np.ones_like(phase), np.cos(phase), np.sin(phase)], 1)
        coefficients = np.linalg.solve(design.T @ design, design.T @ centred)
        misfit = ((centred - design @ coefficients) ** 2).sum(0)
        # a cos p + b sin p = r cos(p - atan2(b, a)): the angle of the peak. [:0:-1] gives b, a.
        angle = np.arctan2(*coefficients[:0:-1])
        improved = misfit < best
        best = np.where(improved, misfit, best)
        best_half_periods = np.where(improved, half_periods, best_half_periods)
        best_angle = np.where(improved, angle, best_angle)
    period = 2 * span / best_half_periods
    return period, best_angle / (2 * np.pi) % 1 * period


def _make_candidates(
    centred: Matrix, times: NDArray[np.float64], span: float, period: NDArray[np.float64], peak: NDArray[np.float64]
) -> list[Waves]:
    """Return a cosine and a triangle for each start: the least-squares cosine, and a drift.

    Args:
        centred: logarithms less their mean [iterations, series].
        times: start of each iteration, s [iterations].
        span: duration of the trace, s.
        period, peak: those of the least-squares cosines, s [series].
    """
    # A drift, half a period, is not in the grid: it is tried with its peak at either end.
    drift = np.full_like(period, 2 * span)
    starts = (period, peak), (drift, np.full_like(drift, span)), (drift, 0 * drift)
    candidates = []
    for start_period, start_peak in starts:
        for linear in (False, True):
            phase = (times[:, None] - start_peak) / start_period
            shape = np.abs(1 - 2 * (phase % 1)) if linear else (1 + np.cos(2 * np.pi * phase)) / 2
            is_linear = np.full(len(period), linear)
            candidates.append(Waves(start_period, start_peak, is_linear, *_fit_slowdown(centred, shape)))
    return candidates


def _choose_waves(candidates: list[Waves]) -> Waves:
    """Return the candidate with the least misfit for each series."""
    choice, series = np.argmin([candidate.misfit for candidate in candidates], axis=0), np.arange(len(candidates[0].period))
    fields = (np.array(values) for values in zip(*candidates, strict=True))  # of all candidates; `effect` has 3 dimensions
    return Waves(*(field[choice, series] if field.ndim == 2 else field[choice, :, series].T for field in fields))


def _fit_slowdown(centred: Matrix, shape: Matrix) -> tuple[NDArray[np.float64], Matrix, NDArray[np.float64]]:
    """Return the least-squares slowdown, its contribution to the logarithm, and the sum of squares."""
    best, slowdowns = np.full(shape.shape[1], np.inf), np.ones(shape.shape[1])
    for slowdown in _SLOWDOWNS:
        effect = np.log1p((slowdown - 1) * shape)
        misfit = ((centred - effect - (centred - effect).mean(0)) ** 2).sum(0)
        slowdowns, best = np.where(misfit < best, slowdown, slowdowns), np.minimum(misfit, best)
    return slowdowns, np.log1p((slowdowns - 1) * shape), best
