"""Waves: a slow rise and fall of each series, such as a daily cycle, or a drift, which is half a cycle.

All drifts have the same period, twice the trace, so that workers that drifted together continue to do so."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.fitting.description import Matrix

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
    span = times[-1] + (times[-1] - times[0]) / max(len(times) - 1, 1)
    centred = values - values.mean(0)
    period, peak = _best_cosine(centred, times, span)
    return _choose(_candidates(centred, times, span, period, peak))


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


def _candidates(
    centred: Matrix, times: NDArray[np.float64], span: float, period: NDArray[np.float64], peak: NDArray[np.float64]
) -> list[Waves]:
    """Return a cosine and a triangle for each start: the least-squares cosine, and a drift."""
    # A drift, half a period, is not in the grid: it is tried with its peak at either end.
    drift = np.full_like(period, 2 * span)
    starts = (period, peak), (drift, np.full_like(drift, span)), (drift, 0 * drift)
    candidates = []
    for start_period, start_peak in starts:
        for linear in (False, True):
            phase = (times[:, None] - start_peak) / start_period
            shape = np.abs(1 - 2 * (phase % 1)) if linear else (1 + np.cos(2 * np.pi * phase)) / 2
            is_linear = np.full(len(period), linear)
            candidates.append(Waves(start_period, start_peak, is_linear, *_slowdown(centred, shape)))
    return candidates


def _choose(candidates: list[Waves]) -> Waves:
    """Return the candidate with the least misfit for each series."""
    choice, series = np.argmin([candidate.misfit for candidate in candidates], axis=0), np.arange(len(candidates[0].period))
    fields = (np.array(values) for values in zip(*candidates, strict=True))
    return Waves(*(field[choice, series] if field.ndim == 2 else field[choice, :, series].T for field in fields))


def _slowdown(centred: Matrix, shape: Matrix) -> tuple[NDArray[np.float64], Matrix, NDArray[np.float64]]:
    """Return the least-squares slowdown, its contribution to the logarithm, and the sum of squares."""
    best, slowdowns = np.full(shape.shape[1], np.inf), np.ones(shape.shape[1])
    for slowdown in _SLOWDOWNS:
        effect = np.log1p((slowdown - 1) * shape)
        misfit = ((centred - effect - (centred - effect).mean(0)) ** 2).sum(0)
        slowdowns, best = np.where(misfit < best, slowdown, slowdowns), np.minimum(misfit, best)
    return slowdowns, np.log1p((slowdowns - 1) * shape), best
