"""Waves: a slow rise and fall of each series, such as a daily cycle, or a drift, which is half a cycle.

All drifts have the same period, twice the trace, so that workers that drifted together continue to do so."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fred.fitting.description import Matrix

_MOST_HALF_PERIODS = 48  # most half-periods in the trace
_FEWEST_ITERATIONS = 8  # least iterations in a half-period
_STEP = 0.25  # step of the grid of half-periods
_SLOWDOWNS = np.exp(np.linspace(0, np.log(30), 60))


@dataclass(frozen=True)
class Waves:
    """The cosine or triangle wave that fits each series best [series].

    Args:
        period: period, s.
        peak: time of the slowest moment, s.
        linear: True for a triangle wave.
        slowdown: slowdown at the peak, relative to the trough.
        effect: contribution to the logarithm at each time [iterations, series].
        likelihood: log-likelihood of all values given the wave.
        periods: number of periods tried.
    """

    period: NDArray[np.float64]
    peak: NDArray[np.float64]
    linear: NDArray[np.bool_]
    slowdown: NDArray[np.float64]
    effect: Matrix
    likelihood: NDArray[np.float64]
    periods: int


def fit_waves(values: Matrix, times: NDArray[np.float64]) -> Waves:
    """Fit a wave to each series; the longest period is twice the trace, which is a drift.

    Args:
        values: logarithms [iterations, series].
        times: start of each iteration, s [iterations].

    >>> times = np.arange(300.0)
    >>> factor = 1 + 0.5 * (1 + np.cos(2 * np.pi * (times - 20) / 100))
    >>> fitted = fit_waves(np.log(factor)[:, None], times)
    >>> fitted.period.round().tolist(), fitted.peak.round().tolist(), fitted.slowdown.round(1).tolist()
    ([100.0], [20.0], [2.0])
    """
    span = times[-1] + (times[-1] - times[0]) / max(len(times) - 1, 1)
    periods = max(1, min(_MOST_HALF_PERIODS, len(times) // _FEWEST_ITERATIONS))
    centred = values - values.mean(0)
    best, angles = np.full(values.shape[1], np.inf), np.zeros((2, values.shape[1]))
    for half_periods in np.arange(2.0, max(periods, 2) + _STEP, _STEP):
        phase = np.pi * half_periods * times / span
        design = np.stack([np.ones_like(phase), np.cos(phase), np.sin(phase)], 1)
        coefficients = np.linalg.solve(design.T @ design, design.T @ centred)
        misfit = ((centred - design @ coefficients) ** 2).sum(0)
        improved = misfit < best
        best = np.where(improved, misfit, best)
        angles = np.where(improved, np.stack([np.full_like(best, half_periods), np.arctan2(*coefficients[:0:-1])]), angles)
    period = 2 * span / angles[0]
    peak = angles[1] / (2 * np.pi) % 1 * period
    drift = np.full_like(period, 2 * span)
    starts = (period, peak), (drift, np.full_like(drift, span)), (drift, 0 * drift)
    shapes = [(*start, linear) for start in starts for linear in (False, True)]
    rows = []
    for candidate_period, candidate_peak, linear in shapes:
        phase = (times[:, None] - candidate_peak) / candidate_period
        shape = np.abs(1 - 2 * (phase % 1)) if linear else (1 + np.cos(2 * np.pi * phase)) / 2
        rows.append((candidate_period, candidate_peak, np.full(len(period), linear), *_slowdown(centred, shape)))
    choice = np.argmin([row[-1] for row in rows], axis=0), np.arange(len(period))
    period, peak, linear, slowdown, misfit = (np.array([row[i] for row in rows])[choice] for i in (0, 1, 2, 3, 5))
    effect = np.array([row[4] for row in rows])[choice[0], :, choice[1]].T
    variance = np.maximum(misfit / len(times), 1e-12)
    return Waves(period, peak, linear, slowdown, effect, -0.5 * len(times) * (np.log(2 * np.pi * variance) + 1), periods)


def _slowdown(centred: Matrix, shape: Matrix) -> tuple[NDArray[np.float64], Matrix, NDArray[np.float64]]:
    """Return the least-squares slowdown, its contribution to the logarithm, and the sum of squares."""
    best, slowdowns = np.full(shape.shape[1], np.inf), np.ones(shape.shape[1])
    for slowdown in _SLOWDOWNS:
        effect = np.log1p((slowdown - 1) * shape)
        misfit = ((centred - effect - (centred - effect).mean(0)) ** 2).sum(0)
        slowdowns, best = np.where(misfit < best, slowdown, slowdowns), np.minimum(misfit, best)
    return slowdowns, np.log1p((slowdowns - 1) * shape), best
