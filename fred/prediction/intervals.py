"""How surely recorded rounds tell one rule from another: intervals of the ratio of two throughputs.

Rounds are paired, both rules had the same times, and what slows a cluster down lasts for several of them. So blocks of rounds
are resampled, for both rules at once: the moving-block bootstrap [Kuensch 1989, Annals of Statistics 17(3)], with the rounds in
a circle, so that all count alike [Politis & Romano 1992]. The interval is Student's, of the logarithm of the ratio and its
spread among the resamples, with as many values as there are blocks: few blocks show too little of it [Hesterberg 2015,
American Statistician 69(4)]. It reaches no further than the worst and the best single round.

What it cannot know is what these rounds have not seen: of 20 rounds whose neighbours correlate by 0.8, nominal 95 % are 83 %,
and less where a regime lasts as long as all of them. And each interval is for its pair alone: of many rules that do not differ,
some will seem to.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fred import streams
from fred.cluster import elementary
from fred.prediction.closed_loop import Rounds

FEWEST = 8  # rounds that something can be said of
_RESAMPLES = 2000
_BLOCKS = 4  # at least
_OUTSIDE = 0.05  # of the intervals do not hold the truth
_QUIET = 5  # autocorrelations in a row that are not significant: those from there on are not looked at
_SEED = 0


class Ratio(NamedTuple):
    """A rule's throughput relative to another's, and its 95 % interval: from 0 to infinity where nothing is known of it.

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
        """Whether the rounds are enough for an interval."""
        return math.isfinite(self.high)

    @property
    def above(self) -> bool:
        """Whether the rule is told better than the other."""
        return self.low > 1

    @property
    def below(self) -> bool:
        """Whether it is told worse."""
        return self.high < 1

    @property
    def interval(self) -> tuple[float, float] | None:
        """From where to where, if it is known."""
        return (self.low, self.high) if self.known else None

    def __str__(self) -> str:
        if not self.known:
            return f"{self.value - 1:+.1%}, too few rounds for an interval"
        return f"{self.value - 1:+.1%}, 95% interval {self.low - 1:+.1%} to {self.high - 1:+.1%}"


def ratio(rounds: Rounds, others: Rounds) -> Ratio:
    """The throughput of a rule relative to another's in the same rounds, with its interval: the same bits everywhere.

    Args:
        rounds: of the rule.
        others: of the rule that it is compared with, as many.

    A rule is as good as itself, however few the rounds; with fewer than `FEWEST` no more can be said.
    """
    sums = np.stack([rounds.cutoff, others.time, rounds.time, others.cutoff])
    value = float(_ratio(sums.sum(axis=1)))
    if np.array_equal(sums[:2], sums[:1:-1]):
        return Ratio(1.0, 1.0, 1.0)
    count = sums.shape[1]
    if count < FEWEST:
        return Ratio(value, 0.0, math.inf)
    shares = sums / sums.sum(axis=1, keepdims=True)
    length = block_length(shares[0] + shares[1] - shares[2] - shares[3])  # how far each round moves the logarithm
    logarithms = elementary.log(_ratio(_resampled(sums, length)))
    reach = float(elementary.exp(_quantile(count / length) * _spread(logarithms)))
    single = (rounds.cutoff / rounds.time) / (others.cutoff / others.time)
    low, high = min(value, float(single.min())), max(value, float(single.max()))
    return Ratio(value, max(low, value / reach), min(high, value * reach))


def block_length(values: NDArray[np.float64]) -> int:
    """How many values in a row are resampled together.

    sqrt(n), as for means of batches [Flegal & Jones 2010], but as many as [Politis & White 2004, corrected by Patton, Politis &
    White 2009] find in the autocorrelations, if these are more; in no case more than a quarter of the values.

    Args:
        values: that may depend on those before [n].

    >>> draws = streams.uniforms(0, "example", 0, start=0, count=400)
    >>> block_length(draws), block_length(np.repeat(draws[:8], 50)), block_length(draws[:9])
    (20, 36, 2)
    """
    count = len(values)
    length = max(math.sqrt(count), _from_autocorrelations(values))
    return max(1, min(math.ceil(length), count // _BLOCKS))


def _from_autocorrelations(values: NDArray[np.float64]) -> float:
    """The length that makes the error of the spread's estimate smallest, for blocks in a circle."""
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
    """Totals over as many rounds as there are, drawn in blocks: [4, resamples] of [4, rounds]."""
    count = sums.shape[1]
    whole, rest = divmod(count, length)
    starts = _starts(count, whole + 1)
    ends = np.pad(np.cumsum(np.concatenate((sums, sums), axis=1), axis=1), ((0, 0), (1, 0)))
    full, part = (ends[:, size : size + count] - ends[:, :count] for size in (length, rest))
    return np.add.reduce(full[:, starts[:, :-1]], axis=2) + part[:, starts[:, -1]]


@lru_cache(maxsize=8)
def _starts(count: int, blocks: int) -> NDArray[np.intp]:
    """The first round of each block, [resamples, blocks]."""
    words = streams.words(_SEED, "intervals", np.arange(_RESAMPLES)[:, None], np.arange(blocks))
    return (words * np.uint64(count) >> np.uint64(32)).astype(np.intp)


def _ratio(sums: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of throughputs, from what `ratio` adds up."""
    return sums[0].astype(np.float64) * sums[1] / (sums[2].astype(np.float64) * sums[3])


def _quantile(blocks: float) -> float:
    """How many of their spreads among resamples values of so many blocks may be off."""
    student = round(float(stdtrit(blocks - 1, 1 - _OUTSIDE / 2)), 6)  # what is cut off is not the same everywhere
    return student * math.sqrt(blocks / (blocks - 1))


def _spread(values: NDArray[np.float64]) -> float:
    """Their standard deviation."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((values - mean) ** 2) / len(values))
