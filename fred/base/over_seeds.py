"""Means over seeds, their 95 % intervals, and verdicts: the one way in which FRED compares runs.

Take one value per seed: a difference of two runs with the same seed, or the logarithm of their ratio.

- **Interval**: Student's t. `results/studies/coverage.md` has its measured coverage, next to that of bootstrap intervals.
- **Verdict**: yes, no or open. Fewer than 5 seeds leave every question open.
- **Family**: intervals that answer one question together are widened by Holm's method, so that one or more false verdicts occur
  in 5 % of families, not in 5 % of comparisons.
- **As good as**: the interval lies inside a margin. That no difference was found is not enough.
"""

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

FEWEST_SEEDS = 5
MISSES = 0.05  # share of intervals, or of families, that miss the true value
_ROUNDING = 1e-12  # relative: smaller differences count as none

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

    >>> mean = Mean.over([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> mean.value, [round(end, 3) for end in mean.interval()]
    (3.0, [1.037, 4.963])
    >>> Mean.over([1.0, 2.0]).interval()
    (nan, nan)
    """

    value: float
    error: float
    seeds: int

    @classmethod
    def over(cls, values: Iterable[float] | NDArray[np.float64]) -> "Mean":
        """Return the mean of values, which does not depend on their order.

        Args:
            values: one per seed. Equal values, but for rounding, have no error; none at all have NaN.
        """
        own = np.asarray(values, np.float64)
        scale = float(np.abs(own).max(initial=0.0))
        if not len(own) or not math.isfinite(scale):
            return cls(math.nan, math.nan, len(own))
        if np.ptp(own) <= _ROUNDING * scale:
            return cls(float(np.median(own)), 0.0, len(own))
        shares = own / scale
        share = math.fsum(shares) / len(own)
        variance = math.fsum((shares - share) ** 2) / max(1, len(own) - 1)
        return cls(scale * share, scale * math.sqrt(variance / len(own)), len(own))

    @property
    def known(self) -> bool:
        """Return True if there are enough finite values for an interval."""
        return self.seeds >= FEWEST_SEEDS and math.isfinite(self.error)

    def interval(self, misses: float = MISSES) -> Interval:
        """Return the lower and the upper end; NaN with fewer than 5 seeds.

        Args:
            misses: share of such intervals that miss the true mean.
        """
        if not self.known:
            return math.nan, math.nan
        half = self.error * quantile(self.seeds, misses)
        return self.value - half, self.value + half

    def p_value(self, bounds: Sequence[float] = (0.0,)) -> float:
        """Return the smallest share of misses whose interval excludes all bounds.

        Args:
            bounds: values of interest, such as 0 or the ends of a margin.

        >>> round(Mean.over([1.0, 2.0, 3.0, 4.0, 5.0]).p_value(), 4)
        0.0132
        """
        distance = min(abs(self.value - bound) for bound in bounds)
        if not self.known or distance == 0:
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

    >>> some = [Mean.over([each, 2.0, 3.0, 4.0, 5.0]) for each in (1.0, -3.0)]
    >>> [(round(low, 2), round(high, 2)) for low, high in intervals(some)]
    [(0.53, 5.47), (-1.67, 6.07)]
    """
    p_values = [each.p_value(bounds) for each in means if each.known]
    shares = iter(holm(p_values))
    return [each.interval(next(shares)) if each.known else each.interval() for each in means]


def holm(p_values: Sequence[float], misses: float = MISSES) -> list[float]:
    """Return the share of misses at which Holm's method tests each comparison of a family.

    Args:
        p_values: one for each comparison.
        misses: share of families with one or more false rejections.

    >>> holm([0.01, 0.04, 0.03, 0.005])
    [0.016666666666666666, 0.025, 0.025, 0.0125]
    """
    shares, share, certain = [0.0] * len(p_values), 0.0, True
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        share = misses / (len(p_values) - rank) if certain else share
        certain = certain and p_values[place] < share
        shares[place] = share
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
