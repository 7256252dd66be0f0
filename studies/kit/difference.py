"""Differences over the seeds, with intervals; the differences of one question are a family."""

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
    """

    mean: Mean
    interval: Interval

    @classmethod
    def family(cls, values: Mapping[Key, NDArray[np.float64]], bounds: Sequence[float] = (0.0,)) -> dict[Key, Self]:
        """Return differences whose intervals are widened as those of one family.

        Args:
            values: differences [seeds], by name.
            bounds: numbers that the differences are compared with.
        """
        means = {key: Mean.estimate(each) for key, each in values.items()}
        return dict(zip(means, map(cls, means.values(), intervals(list(means.values()), bounds)), strict=True))

    @property
    def lower(self) -> Verdict:
        """Return whether the difference is below 0."""
        return verdict(self.interval)

    @property
    def half(self) -> float:
        """Return half the width of the interval: a smaller difference cannot be seen."""
        return (self.interval[1] - self.interval[0]) / 2

    def below(self, bound: float) -> Verdict:
        """Return whether the difference is below a bound, such as a margin within which the one is as good as the other.

        Args:
            bound: in the unit of the differences.
        """
        return verdict(self.interval, high=bound)

    def within(self, margin: float) -> Verdict:
        """Return whether the difference is between a margin below 0 and the same above.

        Args:
            margin: in the unit of the differences.
        """
        return verdict(self.interval, -margin, margin)

    @property
    def ratio(self) -> str:
        """Return, for a difference of logarithms, the ratio in the cell of a table; bold if the interval excludes 1."""
        value, low, high = np.exp([self.mean.value, *self.interval])
        return bold(f"{value:.2f} ({low:.2f} to {high:.2f})", self.lower)

    def cell(self, digits: int = 3) -> str:
        """Return the cell of a table; bold if the interval excludes 0.

        Args:
            digits: after the point.
        """
        value, low, high = (f"{number:+.{digits}f}" for number in (self.mean.value, *self.interval))
        return bold(f"{value} ({low} to {high})", self.lower)


def bold(words: str, answer: Verdict) -> str:
    """Return words, bold if the answer is not open.

    Args:
        words: of a table's cell.
        answer: the verdict that they stand for.
    """
    return words if answer == Verdict.OPEN else f"**{words}**"
