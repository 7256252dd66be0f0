"""Spells: a fast and a slow state of each series, fitted by expectation maximisation [Baum et al. 1970]."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fred.fitting.description import Matrix

_ROUNDS = 30
_PRIOR = 0.5  # pseudo-counts of changes, and of iterations without one
_LEAST = 1e-9  # least variance
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
    above = values > (low + high) / 2
    below_mean = np.where(above, 0, values).sum(0) / np.maximum((~above).sum(0), 1)
    above_mean = np.where(above, values, 0).sum(0) / np.maximum(above.sum(0), 1)
    starts = np.concatenate((middle, below_mean)), np.concatenate((high - middle, above_mean - below_mean))
    # Both starts run as one batch of twice as many columns: series do not depend on each other, and the loop over iterations,
    # which is in Python, runs once instead of twice.
    fits = _maximise(np.tile(values, (1, 2)), *starts)
    count = values.shape[1]
    first = fits.likelihood[:count] >= fits.likelihood[count:]
    return fits.part(np.arange(count) + np.where(first, 0, count))


def _maximise(values: Matrix, level: Row, jump: Row) -> Spells:
    variance = np.maximum(np.minimum((values - level) ** 2, (values - level - jump) ** 2).mean(0), _LEAST)
    to_slow, to_fast = np.full_like(level, 0.05), np.full_like(level, 0.1)
    for number in range(_ROUNDS):
        share = to_slow / (to_slow + to_fast)
        slow, up, down, likelihood = _smooth(values - level, jump, variance, to_slow, to_fast)
        if number == _ROUNDS - 1:
            break
        slow_time, fast_time = slow.sum(0), (1 - slow).sum(0)
        level = ((1 - slow) * values).sum(0) / np.maximum(fast_time, _LEAST)
        jump = np.maximum((slow * values).sum(0) / np.maximum(slow_time, _LEAST) - level, 0.0)
        rest = values - level
        variance = np.maximum(((1 - slow) * rest**2 + slow * (rest - jump) ** 2).mean(0), _LEAST)
        to_slow, to_fast = (up + _PRIOR) / (fast_time + 2 * _PRIOR), (down + _PRIOR) / (slow_time + 2 * _PRIOR)
    fast, late = _densities(values - level, jump, variance)
    memoryless = np.logaddexp(fast + np.log1p(-share), late + np.log(share)).sum(0)
    return Spells(level, jump, (up + down) / 2, slow, likelihood, likelihood - memoryless)


def _densities(rest: Matrix, jump: Row, variance: Row) -> tuple[Matrix, Matrix]:
    normal = -0.5 * np.log(2 * math.pi * variance)
    return normal - rest**2 / (2 * variance), normal - (rest - jump) ** 2 / (2 * variance)


def _smooth(rest: Matrix, jump: Row, variance: Row, to_slow: Row, to_fast: Row) -> tuple[Matrix, Row, Row, Row]:
    """Return the slow state's probability [iterations, series], expected changes to slow and to fast, and log-likelihood."""
    fast, late = _densities(rest, jump, variance)
    # The filter needs only the ratio of the two densities, which one exponential gives. The densities themselves underflow far
    # from both levels, and 0 / 0 would spoil all later iterations; the clip keeps the ratio within the range of a float.
    odds = np.exp(np.clip(late - fast, -500, 500))
    prior, filtered = np.empty_like(rest), np.empty_like(rest)
    predicted = to_slow / (to_slow + to_fast)
    for step, ratio in enumerate(odds):
        prior[step] = predicted
        weighted = predicted * ratio
        filtered[step] = weighted / (weighted + 1 - predicted)
        predicted = to_slow + filtered[step] * (1 - to_fast - to_slow)
    prior = np.clip(prior, 1e-12, 1 - 1e-12)
    likelihood = np.logaddexp(fast + np.log1p(-prior), late + np.log(prior)).sum(0)
    slow = filtered.copy()
    up, down = np.zeros_like(jump), np.zeros_like(jump)
    for step in range(len(rest) - 2, -1, -1):
        ahead_slow = slow[step + 1] / np.maximum(prior[step + 1], 1e-300)
        ahead_fast = (1 - slow[step + 1]) / np.maximum(1 - prior[step + 1], 1e-300)
        rises, falls = (1 - filtered[step]) * to_slow * ahead_slow, filtered[step] * to_fast * ahead_fast
        slow[step] = np.clip(filtered[step] * (1 - to_fast) * ahead_slow + falls, 0, 1)
        up, down = up + rises, down + falls
    return slow, up, down, likelihood
