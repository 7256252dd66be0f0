"""Differences over the seeds, with intervals; the differences of one question are a family."""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fred.base.intervals import Interval, Mean, Verdict, intervals, verdict

Key = TypeVar("Key", bound=Hashable)


class Difference(NamedTuple):
    """One quantity less another, seed by seed: the mean, and its interval.

    Args:
        mean: over the seeds.
        interval: widened as one of a family.
        bound: `>` if the mean is a lower bound, since the first quantity is a time that missed its target on a seed; `<` if it
            is an upper bound, since the second one did; both if both did.
    """

    mean: Mean
    interval: Interval
    bound: str = ""

    @classmethod
    def family(
        cls,
        values: Mapping[Key, NDArray[np.float64]],
        bounds: Sequence[float] = (0.0,),
        missed: Mapping[Key, str] | None = None,
    ) -> dict[Key, Self]:
        """Return differences whose intervals are widened as those of one family.

        Args:
            values: differences [seeds], by name.
            bounds: numbers that the differences are compared with.
            missed: `bound` of each difference; None: no target was missed.
        """
        means = {key: Mean.estimate(sample) for key, sample in values.items()}
        ends = dict(zip(means, intervals(list(means.values()), bounds), strict=True))
        return {key: cls(mean, ends[key], (missed or {}).get(key, "")) for key, mean in means.items()}

    @property
    def lower(self) -> Verdict:
        """Return whether the difference is below 0."""
        return self.below(0.0)

    @property
    def half(self) -> float:
        """Return half the width of the interval: a smaller difference cannot be seen."""
        return (self.interval[1] - self.interval[0]) / 2

    def below(self, bound: float) -> Verdict:
        """Return whether the difference is below a bound, such as a margin within which the one is as good as the other.

        Args:
            bound: in the unit of the differences.
        """
        return verdict(self.open_interval, high=bound)

    def subtract(self, bound: float) -> Self:
        """Return the distance from a bound, to draw it.

        Args:
            bound: in the unit of the differences.
        """
        low, high = self.interval
        return self._replace(mean=self.mean._replace(value=self.mean.value - bound), interval=(low - bound, high - bound))

    def equals_within(self, margin: float) -> Verdict:
        """Return whether the difference is between a margin below 0 and the same above.

        Args:
            margin: in the unit of the differences.
        """
        return verdict(self.open_interval, -margin, margin)

    @property
    def open_interval(self) -> Interval:
        """Return the interval, open at the end towards which a missed target may move it."""
        low, high = self.interval
        return -math.inf if "<" in self.bound else low, math.inf if ">" in self.bound else high

    @property
    def ratio(self) -> str:
        """Return, for a difference of logarithms, the ratio in the cell of a table; bold if the interval excludes 1."""
        value, low, high = np.exp([self.mean.value, *self.interval])
        return self._cell(f"{value:.2f} ({low:.2f} to {high:.2f})")

    def cell(self, digits: int = 3) -> str:
        """Return the cell of a table; bold if the interval excludes 0.

        Args:
            digits: after the point.
        """
        value, low, high = (f"{number:+.{digits}f}" for number in (self.mean.value, *self.interval))
        return self._cell(f"{value} ({low} to {high})")

    def _cell(self, words: str) -> str:
        """Return a cell with the side on which a missed target lets the difference lie."""
        sign = f"{self.bound} " if self.bound else ""
        return bold("both missed" if len(self.bound) > 1 else f"{sign}{words}", self.lower)


def bold(words: str, answer: Verdict) -> str:
    """Return words, bold if the answer is not open.

    Args:
        words: of a table's cell.
        answer: the verdict that they stand for.
    """
    return words if answer == Verdict.OPEN else f"**{words}**"
