"""Systems compared on one case: over the seeds, with intervals."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.intervals import bca_mean

WAITING = ("sync", "backup-workers", "m-sync", "m-sync-finishing", "cutoff")  # in rounds
ALONE = ("asgd", "delay-adaptive", "ringmaster")  # asynchronous
SYSTEMS = (*WAITING, "rennala", *ALONE)
CASE = ["messages", "task", "times"]


class Ratio:
    """How many times as long some systems' best takes as others', over the seeds: the geometric mean, and its interval.

    Args:
        slow: seconds of the one [seeds]; infinite where the target was not reached.
        fast: of the other.
        budget: after which nobody was waited for, s.
    """

    def __init__(self, slow: NDArray[np.float64], fast: NDArray[np.float64], budget: float):
        self.least = bool(np.isinf(slow).any())  # it is at least so much
        self.most = bool(np.isinf(fast).any())
        logs = np.log(np.minimum(slow, budget) / np.minimum(fast, budget))
        self.mean = float(np.exp(logs.mean()))
        self.low, self.high = (float(np.exp(end)) for end in bca_mean(logs))

    @property
    def verdict(self) -> str:
        """Return the significantly faster group: `asynchronous`, `rounds`, or nothing."""
        if self.least and self.most:
            return ""
        return "asynchronous" if self.low > 1 and not self.most else "rounds" if self.high < 1 and not self.least else ""

    @property
    def said(self) -> str:
        """Return the cell of a table; bold if the interval excludes one."""
        if self.least and self.most:
            return "nobody"
        sign = "> " if self.least else "< " if self.most else ""
        words = f"{sign}{self.mean:.2f} ({self.low:.2f} to {self.high:.2f})"
        return f"**{words}**" if self.verdict else words


def ratio(own: pd.DataFrame, slow: Sequence[str], fast: Sequence[str]) -> Ratio:
    """Return the ratio of two groups, each represented by its fastest system on the seeds for choosing settings.

    Args:
        own: one case's rows.
        slow: the one group's systems.
        fast: the other's.
    """
    budget = float(own["budget"].iloc[0])
    return Ratio(seconds_of(own, chosen(own, slow)), seconds_of(own, chosen(own, fast)), budget)


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
