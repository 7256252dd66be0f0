"""Systems compared on one case: over the seeds, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.over_seeds import Interval, Mean, Verdict, intervals, verdict

WAITING = ("sync", "backup-workers", "m-sync", "m-sync-finishing", "cutoff")  # in rounds
ALONE = ("asgd", "delay-adaptive", "ringmaster")  # asynchronous
FRESH = (*WAITING, "rennala")  # use no stale gradient
SYSTEMS = (*FRESH, *ALONE)
FIRST = "m=1"  # m-sync of the first worker alone: Ringmaster with R = 1
CASE = ["messages", "task", "times"]


@dataclass(frozen=True)
class Ratio:
    """How many times as long some systems' best takes as others': the geometric mean over the seeds, and its interval.

    Args:
        logarithm: mean of the ratio's logarithm.
        interval: of that mean, alone or widened as one of a family.
        least: True if the slow one missed the target on a seed, so that the ratio is at least so much.
        most: True if the fast one did.
    """

    logarithm: Mean
    interval: Interval
    least: bool = False
    most: bool = False

    @classmethod
    def between(cls, slow: NDArray[np.float64], fast: NDArray[np.float64], budget: float) -> "Ratio":
        """Return the ratio with an interval of its own.

        Args:
            slow: seconds of the one [seeds]; infinite where it missed the target.
            fast: of the other.
            budget: after which runs ended, s.
        """
        logarithm = Mean.over(np.log(np.minimum(slow, budget) / np.minimum(fast, budget)))
        return cls(logarithm, logarithm.interval(), bool(np.isinf(slow).any()), bool(np.isinf(fast).any()))

    @property
    def verdict(self) -> str:
        """Return the significantly faster group: `asynchronous`, `rounds`, or nothing if that is open."""
        if self.least and self.most:
            return ""
        below = verdict(self.interval)
        faster = {Verdict.YES: "" if self.least else "rounds", Verdict.NO: "" if self.most else "asynchronous"}
        return faster.get(below, "")

    @property
    def said(self) -> str:
        """Return the cell of a table; bold if the interval excludes one."""
        if self.least and self.most:
            return "nobody"
        sign = "> " if self.least else "< " if self.most else ""
        mean, low, high = (float(np.exp(each)) for each in (self.logarithm.value, *self.interval))
        words = f"{sign}{mean:.2f} ({low:.2f} to {high:.2f})"
        return f"**{words}**" if self.verdict else words


def ratio(own: pd.DataFrame, slow: Sequence[str], fast: Sequence[str]) -> Ratio:
    """Return the ratio of two groups, each represented by its fastest system on the seeds for choosing settings.

    Args:
        own: one case's rows.
        slow: the one group's systems.
        fast: the other's.
    """
    budget = float(own["budget"].iloc[0])
    return Ratio.between(seconds_of(own, chosen(own, slow)), seconds_of(own, chosen(own, fast)), budget)


def together(ratios: Sequence[Ratio]) -> list[Ratio]:
    """Return ratios with the intervals of one family.

    Args:
        ratios: with intervals of their own.
    """
    ends = intervals([each.logarithm for each in ratios])
    return [replace(each, interval=interval) for each, interval in zip(ratios, ends, strict=True)]


def chosen(own: pd.DataFrame, among: Sequence[str]) -> str:
    """The fastest on the seeds that settings were chosen on; none if none reached the target there.

    Args:
        own: one case's rows.
        among: systems.
    """
    some = own[own["system"].isin(among)]
    return "" if some.empty else str(some.sort_values("tuning_seconds", kind="stable")["system"].iloc[0])


def seconds_of(own: pd.DataFrame, system: str) -> NDArray[np.float64]:
    """Return a system's times in a case, s [seeds]; infinite if the target was not reached.

    Args:
        own: the case's rows.
        system: which.
    """
    found = own[own["system"] == system].sort_values("seed")["seconds"].to_numpy(float)
    return found if len(found) else np.full(own["seed"].nunique(), np.inf)


def medians(own: pd.DataFrame) -> dict[str, float]:
    """Return the median times of all systems in a case, s; infinite if most seeds did not reach the target.

    Args:
        own: the case's rows.
    """
    return {system: float(np.quantile(seconds_of(own, system), 0.5, method="inverted_cdf")) for system in SYSTEMS}
