"""Candidate methods for the interval of a mean, each for many samples at a time."""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

from fred.base.intervals import MISSES, quantile
from studies.coverage.laws import Floats

RESAMPLES = 9999
Ends = tuple[Floats, Floats]  # of the intervals [samples]


def student(values: Floats, misses: float = MISSES) -> Ends:
    """Return Student's t intervals.

    Args:
        values: samples, one each row [samples, seeds].
        misses: nominal share of intervals that miss the mean.
    """
    half = quantile(values.shape[1], misses) * _error(values)
    return values.mean(axis=1) - half, values.mean(axis=1) + half


def bca(values: Floats, misses: float = MISSES) -> Ends:
    """Return BCa bootstrap intervals at the level whose normal form is Student's: the method of FRED before this study.

    Args:
        values: as above.
        misses: as above.
    """
    seeds, mean = values.shape[1], values.mean(axis=1)
    tail = ndtr(np.sqrt(seeds / (seeds - 1)) * -quantile(seeds, misses))
    means = np.sort(values @ _counts(seeds).T / seeds, axis=1)
    below = ((means < mean[:, None]).mean(axis=1) + (means <= mean[:, None]).mean(axis=1)) / 2
    left_out = (values - mean[:, None]) / (seeds - 1)
    skew = (left_out**3).sum(axis=1) / (6 * (left_out**2).sum(axis=1) ** 1.5)
    low, high = (_quantile(means, _corrected(ndtri(below), skew, ndtri(each))) for each in (tail, 1 - tail))
    return low, high


def bootstrap_t(values: Floats, misses: float = MISSES) -> Ends:
    """Return bootstrap-t intervals: quantiles of Student's ratio among resamples, those without any spread left out.

    Args:
        values: as above.
        misses: as above.
    """
    seeds, mean, counts = values.shape[1], values.mean(axis=1), _counts(values.shape[1])
    counts = counts[(counts > 0).sum(axis=1) > 1]
    centred = values - mean[:, None]
    means = centred @ counts.T / seeds
    spread = np.maximum(centred**2 @ counts.T / seeds - means**2, 1e-300)
    ratios = np.sort(means / np.sqrt(spread / (seeds - 1)), axis=1)
    every = np.full(len(values), misses / 2)
    return mean - _quantile(ratios, 1 - every) * _error(values), mean - _quantile(ratios, every) * _error(values)


METHODS: dict[str, Callable[[Floats, float], Ends]] = {"Student's t": student, "BCa": bca, "bootstrap-t": bootstrap_t}


def _error(values: Floats) -> Floats:
    return np.asarray(values.std(axis=1, ddof=1) / np.sqrt(values.shape[1]))


def _counts(seeds: int) -> Floats:
    """Return how often each value is in each resample [resamples, seeds]."""
    return np.random.default_rng(0).multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES).astype(float)


def _corrected(bias: Floats, skew: Floats, quantile: float) -> Floats:
    return np.asarray(ndtr(bias + (bias + quantile) / (1 - skew * (bias + quantile))))


def _quantile(ordered: Floats, shares: Floats) -> Floats:
    """Return a quantile of each row, between its values by a line."""
    places = np.nan_to_num(shares, nan=0.5) * (ordered.shape[1] - 1)
    left = np.minimum(places.astype(int), ordered.shape[1] - 2)
    rows = np.arange(len(ordered))
    return np.asarray(ordered[rows, left] + (places - left) * (ordered[rows, left + 1] - ordered[rows, left]))
