"""Confidence intervals of the ratio of two rules' throughputs on recorded rounds.

Rounds are paired, because both rules had the same times, and slowdowns last for several rounds. So blocks of rounds are
resampled for both rules at once: the moving-block bootstrap [Kuensch 1989, Annals of Statistics 17(3)]. The rounds form a
circle, so that all count alike [Politis & Romano 1992]. The interval is Student's, from the logarithm of the ratio and its
spread among the resamples. Its degrees of freedom follow from the number of blocks, since few blocks show too little spread
[Hesterberg 2015, American Statistician 69(4)]. It reaches no further than the worst and the best single round.

The interval cannot cover events that these rounds did not contain. With 20 rounds whose neighbours correlate by 0.8,
nominal 95 % are 83 %, and less where a regime lasts as long as all of them. Each interval is for one pair of rules: of many
equal rules, some will seem to differ.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fred.base import streams
from fred.cluster import elementary
from fred.prediction.closed_loop import Rounds

FEWEST = 8  # rounds needed for an interval
_RESAMPLES = 2000
_BLOCKS = 4  # least number of blocks
_OUTSIDE = 0.05  # share of intervals that miss the true ratio
_QUIET = 5  # after this many insignificant autocorrelations in a row, the others are ignored
_SEED = 0


class Ratio(NamedTuple):
    """The throughput of a rule relative to another's, with a 95 % interval, from 0 to infinity if unknown.

    >>> Ratio(1.1, 1.02, 1.2).above, Ratio(1.1, 0.95, 1.3).above, Ratio(0.9, 0.8, 0.95).below
    (True, False, True)
    >>> print(Ratio(1.1, 1.02, 1.2), Ratio(1.1, 0.0, math.inf), sep="; ")
    +10.0%, 95% interval +2.0% to +20.0%; +10.0%, too few rounds for an interval
    """

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Return True if there are enough rounds for an interval."""
        return math.isfinite(self.high)

    @property
    def above(self) -> bool:
        """Return True if the rule is significantly better than the other."""
        return self.low > 1

    @property
    def below(self) -> bool:
        """Return True if the rule is significantly worse than the other."""
        return self.high < 1

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the lower and upper end, or None if there are too few rounds."""
        return (self.low, self.high) if self.known else None

    def __str__(self) -> str:
        if not self.known:
            return f"{self.value - 1:+.1%}, too few rounds for an interval"
        return f"{self.value - 1:+.1%}, 95% interval {self.low - 1:+.1%} to {self.high - 1:+.1%}"


def ratio(rounds: Rounds, others: Rounds) -> Ratio:
    """Return the throughput of a rule relative to another's in the same rounds, with its interval.

    The result has the same bits on every machine.

    Args:
        rounds: rounds of the rule.
        others: rounds of the other rule, the same number.

    A rule equals itself, however few the rounds. Otherwise fewer than `FEWEST` rounds give no interval.
    """
    sums = np.stack([rounds.cutoff, others.time, rounds.time, others.cutoff])
    value = float(_ratio(sums.sum(axis=1)))
    if np.array_equal(sums[:2], sums[:1:-1]):
        return Ratio(1.0, 1.0, 1.0)
    count = sums.shape[1]
    if count < FEWEST:
        return Ratio(value, 0.0, math.inf)
    shares = sums / sums.sum(axis=1, keepdims=True)
    length = block_length(shares[0] + shares[1] - shares[2] - shares[3])  # each round's effect on the logarithm
    logarithms = elementary.log(_ratio(_resampled(sums, length)))
    reach = float(elementary.exp(_quantile(count / length) * _spread(logarithms)))
    single = (rounds.cutoff / rounds.time) / (others.cutoff / others.time)
    low, high = min(value, float(single.min())), max(value, float(single.max()))
    return Ratio(value, max(low, value / reach), min(high, value * reach))


def block_length(values: NDArray[np.float64]) -> int:
    """Return the number of consecutive values to resample together.

    The length is sqrt(n), as for batch means [Flegal & Jones 2010], or the length that [Politis & White 2004, corrected by
    Patton, Politis & White 2009] find from the autocorrelations, if that is larger. It never exceeds a quarter of the
    values.

    Args:
        values: series whose values may depend on earlier ones [n].

    >>> draws = streams.uniforms(0, "example", 0, start=0, count=400)
    >>> block_length(draws), block_length(np.repeat(draws[:8], 50)), block_length(draws[:9])
    (20, 36, 2)
    """
    count = len(values)
    length = max(math.sqrt(count), _from_autocorrelations(values))
    return max(1, min(math.ceil(length), count // _BLOCKS))


def _from_autocorrelations(values: NDArray[np.float64]) -> float:
    """Return the block length that minimises the error of the estimated spread, for blocks in a circle."""
    count = len(values)
    most = min(math.ceil(math.sqrt(count)) + _QUIET, count - 1)
    centred = values - math.fsum(values) / count
    covariance = np.array([math.fsum(centred[lag:] * centred[: count - lag]) for lag in range(most + 1)]) / count
    large = np.abs(covariance) >= 2 * math.sqrt(math.log10(count) / count) * covariance[0]
    quiet = [lag for lag in range(1, most + 2 - _QUIET) if not large[lag : lag + _QUIET].any()]
    window = min(2 * max(1, quiet[0] - 1 if quiet else int(np.flatnonzero(large)[-1])), most)
    lags = np.arange(1, window + 1)
    weighted = np.minimum(1.0, 2 * (1 - lags / window)) * covariance[1 : window + 1]
    spectrum = covariance[0] + 2 * math.fsum(weighted)
    if spectrum <= 0:
        return 1.0
    return float(np.cbrt(1.5 * count * (2 * math.fsum(lags * weighted) / spectrum) ** 2))


def _resampled(sums: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return totals over the original number of rounds, drawn in blocks: [4, resamples] from [4, rounds]."""
    count = sums.shape[1]
    whole, rest = divmod(count, length)
    starts = _starts(count, whole + 1)
    ends = np.pad(np.cumsum(np.concatenate((sums, sums), axis=1), axis=1), ((0, 0), (1, 0)))
    full, part = (ends[:, size : size + count] - ends[:, :count] for size in (length, rest))
    return np.add.reduce(full[:, starts[:, :-1]], axis=2) + part[:, starts[:, -1]]


@lru_cache(maxsize=8)
def _starts(count: int, blocks: int) -> NDArray[np.intp]:
    """Return the first round of each block: [resamples, blocks]."""
    words = streams.words(_SEED, "intervals", np.arange(_RESAMPLES)[:, None], np.arange(blocks))
    return (words * np.uint64(count) >> np.uint64(32)).astype(np.intp)


def _ratio(sums: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the ratio of throughputs from the sums in `ratio`."""
    return sums[0].astype(np.float64) * sums[1] / (sums[2].astype(np.float64) * sums[3])


def _quantile(blocks: float) -> float:
    """Return the half-width of the interval for this number of blocks, in spreads among resamples."""
    student = round(float(stdtrit(blocks - 1, 1 - _OUTSIDE / 2)), 6)  # further digits differ between machines
    return student * math.sqrt(blocks / (blocks - 1))


def _spread(values: NDArray[np.float64]) -> float:
    """Return the standard deviation of the values."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((values - mean) ** 2) / len(values))
