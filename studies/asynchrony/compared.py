"""Systems compared over the seeds, in one case and over several, with intervals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.intervals import Interval, Mean, Verdict, intervals, verdict
from studies.asynchrony.cases import WORKERS
from studies.asynchrony.measure import IN_THE_CASE, OVER_LAWS
from studies.asynchrony.systems import SYSTEMS

CASE = ["workers", "messages", "task", "times"]
MARGIN = float(np.log(1.1))  # times are equal if their ratio lies between 1 / 1.1 and 1.1
Logarithms = NDArray[np.float64]  # of ratios [seeds]


@dataclass(frozen=True)
class Ratio:
    """A ratio of times: the geometric mean over the seeds, and its interval.

    Args:
        logarithm: mean of the ratio's logarithm.
        interval: of that mean, alone or widened as one of a family.
        least: True if the numerator missed its target on a seed, so that the ratio is a lower bound.
        most: True if the denominator did.
    """

    logarithm: Mean
    interval: Interval
    least: bool = False
    most: bool = False

    @classmethod
    def between(cls, slow: NDArray[np.float64], fast: NDArray[np.float64], budget: float) -> "Ratio":
        """Return the ratio of two systems' times, with an interval of its own.

        Args:
            slow: times of the numerator [seeds], s; infinite where it missed the target.
            fast: those of the denominator.
            budget: time after which runs ended, s.
        """
        return cls.of(np.log(np.minimum(slow, budget) / np.minimum(fast, budget)), np.isinf(slow).any(), np.isinf(fast).any())

    @classmethod
    def of(cls, logarithms: Logarithms, least: Any = False, most: Any = False) -> "Ratio":
        """Return the ratio with an interval of its own.

        Args:
            logarithms: one for each seed.
            least: True if the numerator missed its target.
            most: True if the denominator did.
        """
        mean = Mean.estimate(logarithms)
        return cls(mean, mean.interval(), bool(least), bool(most))

    @property
    def value(self) -> float:
        """Return the geometric mean."""
        return float(np.exp(self.logarithm.value))

    @property
    def faster(self) -> str:
        """Return `numerator` or `denominator` if one is significantly faster, else nothing."""
        if self.least and self.most:
            return ""
        below = verdict(self.interval)
        return {Verdict.YES: "" if self.least else "numerator", Verdict.NO: "" if self.most else "denominator"}.get(below, "")

    @property
    def equal(self) -> bool:
        """Return True if the whole interval lies within the margin of 10 %."""
        return not (self.least or self.most) and verdict(self.interval, -MARGIN, MARGIN) == Verdict.YES

    @property
    def said(self) -> str:
        """Return the cell of a table; bold if the interval excludes one, with `=` if it lies within the margin."""
        if self.least and self.most:
            return "both missed"
        sign = "> " if self.least else "< " if self.most else ""
        low, high = (float(np.exp(each)) for each in self.interval)
        words = f"{sign}{self.value:.2f} ({low:.2f} to {high:.2f})"
        return (f"**{words}**" if self.faster else words) + (" =" if self.equal else "")


def together(ratios: Mapping[Any, Ratio]) -> dict[Any, Ratio]:
    """Return ratios with the intervals of one family.

    Args:
        ratios: with intervals of their own.
    """
    ends = intervals([each.logarithm for each in ratios.values()])
    return {key: replace(each, interval=interval) for (key, each), interval in zip(ratios.items(), ends, strict=True)}


def tuned_cases(times: pd.DataFrame, workers: int | None = WORKERS) -> dict[tuple[Any, ...], pd.DataFrame]:
    """Return the rows of each case, with settings that were tuned for it, by number of workers, messages, task and law.

    Args:
        times: one row for each case, system and seed.
        workers: number of workers; None for all.
    """
    own = times[times["tuned_for"] == IN_THE_CASE]
    own = own if workers is None else own[own["workers"] == workers]
    return {key: rows for key, rows in own.groupby(CASE, sort=False) if isinstance(key, tuple)}


def untuned_cases(times: pd.DataFrame) -> dict[tuple[Any, ...], pd.DataFrame]:
    """Return the rows of each case with the settings that were tuned for all laws, by the same keys.

    Args:
        times: one row for each case, system and seed.
    """
    own = times[times["tuned_for"] == OVER_LAWS]
    return {key: rows for key, rows in own.groupby(CASE, sort=False) if isinstance(key, tuple)}


def ratio(own: pd.DataFrame, slow: Sequence[str], fast: Sequence[str]) -> Ratio:
    """Return the ratio of two groups, each represented by its fastest system on the seeds for choosing settings.

    Args:
        own: one case's rows.
        slow: systems of the numerator.
        fast: systems of the denominator.
    """
    one, other = (seconds_of(own, chosen(own, group)) for group in (slow, fast))
    return Ratio.between(one, other, float(own["budget"].iloc[0]))


def pooled(cases: Iterable[pd.DataFrame], slow: Sequence[str], fast: Sequence[str]) -> Ratio:
    """Return the ratio of two groups over several cases: for each seed the geometric mean of the cases' ratios.

    Args:
        cases: rows of each case.
        slow: systems of the numerator.
        fast: systems of the denominator.
    """
    pairs = [(own, seconds_of(own, chosen(own, slow)), seconds_of(own, chosen(own, fast))) for own in cases]
    return mean_ratio([(own, one, other) for own, one, other in pairs])


def mean_ratio(pairs: Sequence[tuple[pd.DataFrame, NDArray[np.float64], NDArray[np.float64]]]) -> Ratio:
    """Return the geometric mean of ratios, seed by seed.

    Args:
        pairs: a case's rows, and the times of numerator and denominator there [seeds], s.
    """
    budgets = [float(own["budget"].iloc[0]) for own, _, _ in pairs]
    logarithms = [
        np.log(np.minimum(one, budget) / np.minimum(other, budget))
        for budget, (_, one, other) in zip(budgets, pairs, strict=True)
    ]
    least, most = (any(np.isinf(pair[place]).any() for pair in pairs) for place in (1, 2))
    return Ratio.of(np.mean(logarithms, axis=0), least, most)


def chosen(own: pd.DataFrame, among: Sequence[str]) -> str:
    """Return the fastest system on the seeds that settings were chosen on.

    Args:
        own: one case's rows.
        among: systems.
    """
    return str(own[own["system"].isin(among)].sort_values("tuning_seconds", kind="stable")["system"].iloc[0])


def seconds_of(own: pd.DataFrame, system: str) -> NDArray[np.float64]:
    """Return a system's times in a case [seeds], s; infinite if the target was not reached.

    Args:
        own: the case's rows.
        system: its name.
    """
    return own[own["system"] == system].sort_values("seed")["seconds"].to_numpy(float)


def medians(own: pd.DataFrame) -> dict[str, float]:
    """Return the median times of all systems in a case, s; infinite if most seeds did not reach the target.

    Args:
        own: the case's rows.
    """
    present = [system for system in SYSTEMS if system in set(own["system"])]
    return {system: float(np.quantile(seconds_of(own, system), 0.5, method="inverted_cdf")) for system in present}
