"""95 % intervals: of means over seeds, with verdicts, and of ratios over the rounds of one record.

**Means over seeds** (`Mean`, `intervals`, `verdict`) are the one way in which FRED compares runs. Take one value per seed: a
difference of two runs with the same seed, or the logarithm of their ratio.

- **Interval**: Student's t. `results/studies/coverage.md` has its measured coverage, next to that of bootstrap intervals.
- **Verdict**: yes, no or open. Fewer than 5 seeds leave every question open.
- **Family**: intervals that answer one question together are widened by Holm's method, so that one or more false verdicts occur
  in 5 % of families, not in 5 % of comparisons.
- **As good as**: the interval lies inside a margin. That no difference was found is not enough.

**Ratios over rounds** compare two ways of using one cluster, of which there is one record:

| function       | of                            | used by                       | because                           |
|----------------|-------------------------------|-------------------------------|-----------------------------------|
| `block_ratio`  | ratio of throughputs          | `fred cutoffs`, trained rules | slowdowns last for several rounds |
| `block_ratios` | ratios of sums over rounds    | clusters fitted to a trace    | spells need longer blocks         |
| `spell_ratio`  | long-run ratio of throughputs | `fred diagnose`               | a record shows few spells         |

An interval of a ratio is for its own pair alone: of many rules that do not differ, one in twenty will seem to. No interval
covers events that were never recorded. All draws are fixed, so the same values have the same interval; `block_ratio` has
the same bits on every machine.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from fred.base import numerics
from fred.base.types import Floats

FEWEST_SEEDS = 5
MISSES = 0.05  # share of intervals, or of families, that miss the true value
_ROUNDING = 1e-12  # relative: smaller differences count as none
FEWEST_ROUNDS = 8  # rounds needed for intervals of ratios
_PAIRED_RESAMPLES, _FITTED_RESAMPLES, _SPELL_DRAWS = 2000, 1000, 2000
_BLOCKS = 4  # least number of blocks
_QUIET = 5  # after this many insignificant autocorrelations in a row, the others are ignored
_SPELLS = 2  # factor on the block length in `block_ratios`: spells of 15 to 60 rounds need it
_WIDER = 1.2  # factor on deviations of odds and weights of spells; chosen on simulated traces (`studies/diagnosis.py`)
_NEARER = 1 / 3  # share of the distance to the upper bound that further learning may gain; chosen likewise
_PRIOR = 0.5  # prior number of beginnings, and of ends, of spells
_DIGITS = 9  # digits of `spell_ratio`: later ones depend on the machine

Interval = tuple[float, float]


class Verdict(StrEnum):
    """Answer to a question about a mean over all possible seeds."""

    YES = "yes"
    NO = "no"
    OPEN = "open"


class Mean(NamedTuple):
    """Mean of one value per seed, and its standard error.

    Args:
        value: mean.
        error: standard error.
        seeds: number of values.

    >>> mean = Mean.estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> mean.value, [round(end, 3) for end in mean.interval()]
    (3.0, [1.037, 4.963])
    >>> Mean.estimate([1.0, 2.0]).interval()
    (nan, nan)
    """

    value: float
    error: float
    seeds: int

    @classmethod
    def estimate(cls, values: Iterable[float] | NDArray[np.float64]) -> "Mean":
        """Return the mean of values, which does not depend on their order.

        Args:
            values: one per seed. Equal values, but for rounding, have no error; none at all have NaN.
        """
        sample = np.asarray(values, np.float64)
        scale = float(np.abs(sample).max(initial=0.0))  # squares of values divided by it neither overflow nor vanish
        if not len(sample) or not math.isfinite(scale):
            return cls(math.nan, math.nan, len(sample))
        if np.ptp(sample) <= _ROUNDING * scale:
            return cls(float(np.median(sample)), 0.0, len(sample))
        scaled = sample / scale
        scaled_mean = math.fsum(scaled) / len(sample)
        variance = math.fsum((scaled - scaled_mean) ** 2) / max(1, len(sample) - 1)
        return cls(scale * scaled_mean, scale * math.sqrt(variance / len(sample)), len(sample))

    @property
    def has_interval(self) -> bool:
        """Return True if there are enough finite values for an interval."""
        return self.seeds >= FEWEST_SEEDS and math.isfinite(self.error)

    def interval(self, misses: float = MISSES) -> Interval:
        """Return the lower and the upper end; NaN with fewer than 5 seeds.

        Args:
            misses: share of such intervals that miss the true mean.
        """
        if not self.has_interval:
            return math.nan, math.nan
        half = self.error * quantile(self.seeds, misses)
        return self.value - half, self.value + half

    def p_value(self, bounds: Sequence[float] = (0.0,)) -> float:
        """Return the smallest share of misses whose interval excludes all bounds.

        Args:
            bounds: values of interest, such as 0 or the ends of a margin.

        >>> round(Mean.estimate([1.0, 2.0, 3.0, 4.0, 5.0]).p_value(), 4)
        0.0132
        """
        distance = min(abs(self.value - bound) for bound in bounds)
        if not self.has_interval or distance == 0:
            return 1.0
        return float(2 * scipy.special.stdtr(self.seeds - 1, -distance / self.error)) if self.error else 0.0


def quantile(count: float, misses: float = MISSES) -> float:
    """Return half of the interval of a mean in standard errors, by Student's t.

    Args:
        count: number of independent values.
        misses: share of intervals that miss the true mean.

    >>> round(quantile(5), 3)
    2.776
    """
    return float(scipy.special.stdtrit(count - 1, 1 - misses / 2))


def intervals(means: Sequence[Mean], bounds: Sequence[float] = (0.0,)) -> list[Interval]:
    """Return the intervals of a family, widened by Holm's method [Holm 1979, Scandinavian Journal of Statistics 6(2)].

    An interval excludes the bounds exactly if Holm's method rejects them. So a table and its verdicts cannot contradict each
    other. The interval of the most certain of m comparisons misses in 5 % / m of all cases, that of the second in
    5 % / (m - 1), and so on, until one does not exclude the bounds; the others have its share. Comparisons of fewer than 5
    seeds do not count.

    Args:
        means: differences that answer one question together.
        bounds: what each is compared with.

    >>> some = [Mean.estimate([value, 2.0, 3.0, 4.0, 5.0]) for value in (1.0, -3.0)]
    >>> [(round(low, 2), round(high, 2)) for low, high in intervals(some)]
    [(0.53, 5.47), (-1.67, 6.07)]
    """
    p_values = [mean.p_value(bounds) for mean in means if mean.has_interval]
    shares = iter(holm(p_values))
    return [mean.interval(next(shares)) if mean.has_interval else mean.interval() for mean in means]


def holm(p_values: Sequence[float], misses: float = MISSES) -> list[float]:
    """Return the share of misses at which Holm's method tests each comparison of a family.

    Args:
        p_values: one for each comparison.
        misses: share of families with one or more false rejections.

    >>> holm([0.01, 0.04, 0.03, 0.005])
    [0.016666666666666666, 0.025, 0.025, 0.0125]
    """
    shares, share, rejects = [0.0] * len(p_values), 0.0, True
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        # After the first comparison that is not rejected, all others have its share.
        share = misses / (len(p_values) - rank) if rejects else share
        rejects = rejects and p_values[index] < share
        shares[index] = share
    return shares


def verdict(interval: Interval, low: float = -math.inf, high: float = 0.0) -> Verdict:
    """Return whether the true mean lies between two bounds: yes or no if all of its interval does or does not, else open.

    Args:
        interval: of the mean.
        low: lower bound.
        high: upper bound. 0 asks "is it lower?", a margin "is it as good as the other, within that margin?".

    >>> verdict((-0.3, -0.1)).value, verdict((-0.1, 0.02)).value, verdict((-0.1, 0.02), high=0.05).value
    ('yes', 'open', 'yes')
    """
    above, below = low == -math.inf or low < interval[0], high == math.inf or interval[1] < high
    if above and below:
        return Verdict.YES
    return Verdict.NO if interval[0] > high or interval[1] < low else Verdict.OPEN


class Played(NamedTuple):
    """Gradients and times of rounds; columns run at the same time, each at its own pace.

    >>> Played(np.full((2, 1), 4.0), np.array([[1.0], [3.0]])).throughput()
    2.0
    """

    gradients: NDArray[Any]  # number used [rounds] or [rounds, columns]
    time: NDArray[Any]  # duration of each, s or ns, of the same shape

    def throughput(self) -> float:
        """Return the gradients per unit of time over all rounds."""
        return float((self.gradients.sum(axis=0) / self.time.sum(axis=0)).sum())


class Ratio(NamedTuple):
    """A throughput relative to another, with a 95 % interval, from 0 to infinity if unknown.

    >>> Ratio(1.1, 1.02, 1.2).above, Ratio(1.1, 0.95, 1.3).above, Ratio(0.9, 0.8, 0.95).below
    (True, False, True)
    >>> print(Ratio(1.1, 1.02, 1.2), Ratio(1.1, 0.0, math.inf), sep="; ")
    +10.0%, 95% interval +2.0% to +20.0%; +10.0%, too few rounds for an interval
    """

    value: float
    low: float
    high: float

    @property
    def has_interval(self) -> bool:
        """Return True if there are enough rounds for an interval."""
        return math.isfinite(self.high)

    @property
    def above(self) -> bool:
        """Return True if the throughput is significantly higher than the other."""
        return self.low > 1

    @property
    def below(self) -> bool:
        """Return True if the throughput is significantly lower than the other."""
        return self.high < 1

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the lower and upper end, or None if there are too few rounds."""
        return (self.low, self.high) if self.has_interval else None

    def __str__(self) -> str:
        if not self.has_interval:
            return f"{self.value - 1:+.1%}, too few rounds for an interval"
        return f"{self.value - 1:+.1%}, 95% interval {self.low - 1:+.1%} to {self.high - 1:+.1%}"


def block_ratio(numerator: Played, denominator: Played) -> Ratio:
    """Return the ratio of the throughputs of two rules in the same rounds, by the moving-block bootstrap.

    Rounds are paired, because both rules had the same times, and slowdowns last for several rounds. So blocks of rounds are
    resampled for both rules at once [Kuensch 1989, Annals of Statistics 17(3)]. The rounds form a circle, so that all count
    alike [Politis & Romano 1992]. The interval is Student's, from the logarithm of the ratio and its spread among the
    resamples. Its degrees of freedom follow from the number of blocks, since few blocks show too little spread [Hesterberg
    2015]. It reaches no further than the worst and the best single round.

    With 20 rounds whose neighbours correlate by 0.8, nominal 95 % are 83 %, and less where a regime lasts as long as all of
    them.

    Args:
        numerator: rounds under the rule, gradients and ns as integers [rounds].
        denominator: the same rounds under the other rule. A rule equals itself, however few the rounds.

    >>> print(block_ratio(Played(np.full(30, 3), np.full(30, 10)), Played(np.full(30, 4), np.full(30, 10))))
    -25.0%, 95% interval -25.0% to -25.0%
    """
    sums = np.stack([numerator.gradients, denominator.time, numerator.time, denominator.gradients])  # [4, rounds]
    value = float(_ratio(sums.sum(axis=1)))
    if np.array_equal(sums[:2], sums[:1:-1]):  # both have the same gradients and the same times
        return Ratio(1.0, 1.0, 1.0)
    count = sums.shape[1]
    if count < FEWEST_ROUNDS:
        return Ratio(value, 0.0, math.inf)
    shares = sums / sums.sum(axis=1, keepdims=True)
    influence = shares[0] + shares[1] - shares[2] - shares[3]  # of each round on the logarithm of the ratio, to first order
    length = block_length(influence)
    logarithms = numerics.log(_ratio(_resampled(sums, length)))
    blocks = count / length
    # The variance among resamples of n independent blocks is too small by the factor (n - 1) / n.
    standard = round(quantile(blocks), 6) * math.sqrt(blocks / (blocks - 1))  # further digits differ between machines
    reach = float(numerics.exp(standard * _deviation(logarithms)))  # a factor
    single = (numerator.gradients / numerator.time) / (denominator.gradients / denominator.time)
    low, high = min(value, float(single.min())), max(value, float(single.max()))
    return Ratio(value, max(low, value / reach), min(high, value * reach))


def _resampled(sums: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return totals over the original number of rounds, drawn in blocks: [4, resamples] from [4, rounds]."""
    # The sum of a block is the difference of two cumulated sums. These go twice around the circle, so that a block may pass its
    # end. The sums are integers, so differences are exact. A shorter block at the end makes the number of rounds right.
    count = sums.shape[1]
    blocks, remainder = divmod(count, length)
    starts, cumulated = _starts(count, blocks + 1), _cumulated(sums)
    # Sums of the blocks that begin at each round, full ones and shorter ones [4, rounds]:
    full, short = (cumulated[:, size : size + count] - cumulated[:, :count] for size in (length, remainder))
    return np.add.reduce(full[:, starts[:, :-1]], axis=2) + short[:, starts[:, -1]]


@lru_cache(maxsize=8)
def _starts(count: int, blocks: int) -> NDArray[np.intp]:
    """Return the first round of each block: [resamples, blocks]."""
    words = numerics.words(0, "intervals", np.arange(_PAIRED_RESAMPLES)[:, None], np.arange(blocks))
    return (words * np.uint64(count) >> np.uint64(32)).astype(np.intp)


def _cumulated(sums: NDArray[Any]) -> NDArray[Any]:
    """Return sums over all rounds before each one, twice around the circle, [..., 2 rounds + 1, ...] along axis 1."""
    return np.cumsum(np.concatenate((np.zeros_like(sums[:, :1]), sums, sums), axis=1), axis=1)


def _ratio(sums: NDArray[np.int64]) -> Floats:
    """Return the ratio of throughputs from the sums in `block_ratio`."""
    return sums[0].astype(np.float64) * sums[1] / (sums[2].astype(np.float64) * sums[3])


def _deviation(values: Floats) -> float:
    """Return the standard deviation of the values."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((values - mean) ** 2) / len(values))


def block_length(values: Floats) -> int:
    """Return the number of consecutive values to resample together.

    The length is sqrt(n), as for batch means [Flegal & Jones 2010], or the length that [Politis & White 2004, corrected by
    Patton, Politis & White 2009] find from the autocorrelations, if that is larger. It never exceeds a quarter of the
    values.

    Args:
        values: series whose values may depend on earlier ones [n].

    >>> from fred.base.numerics import uniforms
    >>> draws = uniforms(0, "example", 0, start=0, count=400)
    >>> block_length(draws), block_length(np.repeat(draws[:8], 50)), block_length(draws[:9]), block_length(np.ones(400))
    (20, 36, 2, 20)
    """
    count = len(values)
    length = max(math.sqrt(count), _from_autocorrelations(values))
    return max(1, min(math.ceil(length), count // _BLOCKS))


def _from_autocorrelations(values: Floats) -> float:
    """Return the block length that minimises the error of the estimated spread, for blocks in a circle.

    This is the automatic choice in `block_length`'s papers, with their constants.
    """
    count = len(values)
    longest_lag = min(math.ceil(math.sqrt(count)) + _QUIET, count - 1)
    centred = values - math.fsum(values) / count
    covariance = np.array([math.fsum(centred[lag:] * centred[: count - lag]) for lag in range(longest_lag + 1)]) / count
    is_significant = np.abs(covariance) >= 2 * math.sqrt(math.log10(count) / count) * covariance[0]
    # Lags from which on the autocorrelations are insignificant; the window is twice the last lag before them.
    quiet_lags = [lag for lag in range(1, longest_lag + 2 - _QUIET) if not is_significant[lag : lag + _QUIET].any()]
    last_lag = quiet_lags[0] - 1 if quiet_lags else int(np.flatnonzero(is_significant)[-1])
    window = min(2 * max(1, last_lag), longest_lag)
    lags = np.arange(1, window + 1)
    weighted = np.minimum(1.0, 2 * (1 - lags / window)) * covariance[1 : window + 1]  # flat, then falling to 0
    spectrum = covariance[0] + 2 * math.fsum(weighted)  # density at frequency 0
    if spectrum <= 0:
        return 1.0
    return float(np.cbrt(1.5 * count * (2 * math.fsum(lags * weighted) / spectrum) ** 2))


def block_ratios(sums: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the intervals of several ratios of sums over the same rounds, [measures] each.

    The method is that of `block_ratio`, with blocks twice as long, and the same blocks for all measures. Fewer than 8
    rounds give 0 and infinity.

    Args:
        sums: numerators and denominators of each round [2, rounds, measures].

    >>> low, high = block_ratios(np.stack([np.arange(1.0, 17.0), np.ones(16)])[:, :, None])
    >>> low.round(1).tolist(), high.round(1).tolist()
    ([3.9], [18.7])
    """
    rounds, measures = sums.shape[1:]
    if rounds < FEWEST_ROUNDS or not measures:
        return np.zeros(measures), np.full(measures, math.inf)
    totals = sums.sum(1)
    shares = sums / totals[:, None]
    influence = shares[0] - shares[1]  # of each round on the logarithm of the ratio, to first order [rounds, measures]
    # A block length takes long, and neighbouring measures are alike (one more backup worker), so three stand for all of them.
    longest = max(_length(influence[:, column]) for column in {0, measures // 2, measures - 1})
    length = max(1, min(_SPELLS * longest, rounds // _BLOCKS))
    blocks = rounds // length
    starts = np.random.default_rng(0).integers(rounds, size=(_FITTED_RESAMPLES, blocks))
    cumulated, resampled = _cumulated(sums), np.zeros((2, _FITTED_RESAMPLES, measures))
    for start in starts.T:  # `start + length` may pass the last round: the sums go twice around the circle
        resampled += cumulated[:, start + length] - cumulated[:, start]
    log_deviation = np.log(resampled[0] / resampled[1]).std(0)
    half_width = quantile(blocks) * math.sqrt(blocks / (blocks - 1)) * log_deviation
    value = totals[0] / totals[1]
    return value * np.exp(-half_width), value * np.exp(half_width)


def _length(values: Floats) -> int:
    """Return the block length of a series, 1 for one that does not vary."""
    return block_length(values) if values.any() and np.ptp(values) > 0 else 1


def spell_ratio(slow: NDArray[np.bool_], numerator: Played, denominator: Played, bound: Played | None = None) -> Ratio:
    """Return the ratio of two throughputs, with its interval for the long run, which resamples spells rather than rounds.

    A cluster that is slow in spells shows only a few of them in some hundred rounds, so their share of the time is very
    uncertain. Spells begin and end at separate rates. With k beginnings in T fast rounds, the rate has the posterior
    Gamma(k + 1/2) / T [Jeffreys' prior]; the same holds for ends. The ratio of the rates gives the odds of slow to fast
    rounds. With equal numbers of beginnings and ends, these are the odds in the record times an F distribution. A single
    spell leaves the share nearly open; a change without an end leaves it completely open.

    Blocks of about sqrt(rounds) within fast and slow rounds get random weights, and so does each spell: the Bayesian
    bootstrap [Rubin 1981, Annals of Statistics 9(1)]. The interval consists of quantiles. Odds and weights are spread a
    little wider, since few blocks and spells show too little of the spread.

    Args:
        slow: True for rounds in a spell [rounds].
        numerator: rounds of one way of using the cluster [rounds, columns].
        denominator: the same rounds of the other way.
        bound: upper bound of one that keeps learning, and so does better in the long run than in the record: its interval
            extends further up, by a third of the distance to the bound; None for one that learns nothing.

    >>> slow, gradients = np.repeat([False, True, False], [100, 50, 100]), np.full((250, 1), 4.0)
    >>> every = Played(gradients, np.where(slow, 2.0, 1.0)[:, None])
    >>> print(spell_ratio(slow, Played(gradients, np.ones((250, 1))), every))
    +20.0%, 95% interval +1.0% to +87.0%
    """
    value = numerator.throughput() / denominator.throughput()
    if all(np.array_equal(a, b) for a, b in zip(numerator, denominator, strict=True)):
        return Ratio(1.0, 1.0, 1.0)
    if len(slow) < FEWEST_ROUNDS:
        return Ratio(value, 0.0, math.inf)
    starts, weights = _spell_weights(slow.tobytes())
    throughputs = [  # of each draw: weighted gradients / weighted time, summed over the columns
        np.divide(*(weights @ np.add.reduceat(column, starts, axis=0) for column in played)).sum(axis=1)
        for played in (numerator, denominator)
    ]
    ends = np.quantile(np.log(throughputs[0] / throughputs[1]), (MISSES / 2, 1 - MISSES / 2))
    room = bound.throughput() / numerator.throughput() if bound else 1.0
    low, high = math.exp(float(ends[0])), math.exp(float(ends[1])) * max(room, 1.0) ** _NEARER
    return Ratio(value, min(round(low, _DIGITS), value), max(round(high, _DIGITS), value))


@lru_cache(maxsize=8)  # the same for all remedies of a trace
def _spell_weights(levels: bytes) -> tuple[list[int], Floats]:
    """Return the first round of each block, and drawn weights of the blocks [draws, blocks].

    Args:
        levels: bytes of `slow` in `spell_ratio`, because a key of a cache must be hashable.
    """
    slow = np.frombuffer(levels, np.bool_)
    usual_length = math.sqrt(len(slow))
    runs = list(itertools.pairwise([0, *(np.flatnonzero(np.diff(slow)) + 1).tolist(), len(slow)]))  # fast or slow throughout
    cuts = list[int]()
    for first, end in runs:
        blocks = max(1, round((end - first) / usual_length))
        cuts += [first + (end - first) * block // blocks for block in range(blocks)]
    starts = np.array(cuts)
    # Gamma draws, whose standard deviation is `_WIDER` times their mean; 1 would give the exponential ones of the bootstrap.
    weights = scipy.special.gammaincinv(_WIDER**-2, _uniforms("blocks", len(cuts)))
    for number, (first, end) in enumerate(run for run in runs if slow[run[0]]):
        weights[:, (starts >= first) & (starts < end)] *= -np.log(_uniforms("spells", number + 1)[:, -1:])  # exponential
    if slow.any() and not slow.all():  # scale the weights so that slow rounds have the drawn share
        lengths, slow_share = np.diff([*cuts, len(slow)]), _share_slow(slow)[:, None]
        for at_level, share in ((slow[starts], slow_share), (~slow[starts], 1 - slow_share)):
            weights[:, at_level] *= share / (weights[:, at_level] @ lengths[at_level])[:, None]
    return cuts, np.asarray(weights)


def _share_slow(slow: NDArray[np.bool_]) -> Floats:
    """Return drawn shares of slow rounds in the long run [draws]."""
    beginnings = int((slow[1:] & ~slow[:-1]).sum())
    ends = int((~slow[1:] & slow[:-1]).sum())
    draws = _uniforms("odds", 2)
    rates = [  # Gamma draws; the numbers of fast and slow rounds, by which they are divided, are in the odds below
        scipy.special.gammaincinv(number + _PRIOR, uniforms)
        for number, uniforms in zip((beginnings, ends), draws.T, strict=True)
    ]
    odds = slow.sum() / (~slow).sum() * (rates[0] / rates[1]) ** _WIDER
    return np.asarray(odds / (1 + odds))


def _uniforms(purpose: str, count: int) -> Floats:
    """Return uniform draws in (0, 1) [draws, count]; the same purpose gives the same draws."""
    words = numerics.words(0, f"diagnosis, {purpose}", np.arange(_SPELL_DRAWS)[:, None], np.arange(count))
    return np.asarray((words.astype(np.float64) + 0.5) / 2**32)
