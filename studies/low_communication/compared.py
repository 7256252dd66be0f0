"""Systems compared on one case: over the seeds, with intervals."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fred
from fred.base.over_seeds import Interval, Mean, Verdict, intervals, verdict
from fred.learning.data.language import Bigrams
from studies.low_communication.cases import HERE

SYSTEMS = ("sync", "demo", "diloco", "streaming", "sparseloco", "noloco", "a-edit", "delayed-nesterov", "decoupled")
SHOWN = (*SYSTEMS[:6], "noloco-mean", *SYSTEMS[6:])  # with the mean of all workers' models, which nobody has
CASE = ["stragglers", "megabits"]
BUDGETS = (150, 300)  # s; settings were chosen by the loss at the second
MARGIN = 0.01  # nats: a loss that is higher by less is as good
TARGET = 0.25  # nats above the least loss: about a quarter of what it is at the start


class Difference(NamedTuple):
    """One system's loss less another's, seed by seed: the mean, and its interval.

    Args:
        mean: over the seeds.
        interval: widened as one of a family.
    """

    mean: Mean
    interval: Interval

    def below(self, bound: float = 0.0) -> Verdict:
        """Return whether the difference is below a bound: 0, or a margin within which the one is as good as the other.

        Args:
            bound: in nats.
        """
        return verdict(self.interval, high=bound)

    @property
    def said(self) -> str:
        """Return the cell of a table; bold if the interval excludes 0."""
        words = f"{self.mean.value:+.3f} ({self.interval[0]:+.3f} to {self.interval[1]:+.3f})"
        return f"**{words}**" if self.below() != Verdict.OPEN else words


@lru_cache
def _entropy(seed: int) -> float:
    task = next(iter(fred.load(HERE / "scenario.yaml").runs.values())).task
    assert task is not None and isinstance(task.data, Bigrams)
    return task.data.entropy(seed)


def above(losses: pd.DataFrame) -> pd.DataFrame:
    """Return the losses with a column of their distance from the least possible loss, nats.

    Args:
        losses: one row for each case, system, seed and time.
    """
    return losses.assign(above=losses["loss"] - losses["seed"].map(_entropy))


def values(own: pd.DataFrame, system: str, seconds: float) -> NDArray[np.float64]:
    """Return a system's distance from the least loss in a case [seeds].

    Args:
        own: the case's rows.
        system: which.
        seconds: when, s.
    """
    rows = own[(own["system"] == system) & (own["seconds"] == seconds)]
    return rows.sort_values("seed")["above"].to_numpy(float)


def against(losses: pd.DataFrame, system: str, other: str, bound: float = 0.0) -> dict[tuple[bool, int], Difference]:
    """Return one system's loss less another's in each case, at the end; the cases are a family.

    Args:
        losses: one row for each case, system, seed and time, with what the loss is above the least.
        system: the one.
        other: the other.
        bound: what the differences are compared with.
    """
    means = {
        (bool(own["stragglers"].iloc[0]), int(own["megabits"].iloc[0])): Mean.over(
            values(own, system, BUDGETS[-1]) - values(own, other, BUDGETS[-1])
        )
        for _, own in losses.groupby(CASE, sort=False)
    }
    return dict(zip(means, map(Difference, means.values(), intervals(list(means.values()), [bound])), strict=True))


def chosen(own: pd.DataFrame) -> str:
    """The best on the seeds that settings were chosen on.

    Args:
        own: one case's rows.
    """
    some = own[own["system"].isin(SYSTEMS)]
    return str(some.sort_values("tuning_loss", kind="stable")["system"].iloc[0])


def beside(own: pd.DataFrame, best: str) -> dict[str, Verdict]:
    """Return whether each other system is as good as the best one, within the margin, on the reported seeds: a family.

    Args:
        own: one case's rows.
        best: a system.
    """
    at_its_end = values(own, best, BUDGETS[-1])
    means = {each: Mean.over(values(own, each, BUDGETS[-1]) - at_its_end) for each in SYSTEMS if each != best}
    ends = intervals(list(means.values()), [MARGIN])
    return {system: verdict(interval, high=MARGIN) for system, interval in zip(means, ends, strict=True)}


def seconds_to(own: pd.DataFrame, system: str, target: float = TARGET) -> NDArray[np.float64]:
    """Return the time at which a system's loss first reached the target, s [seeds], interpolated; infinite if it never did.

    Args:
        own: one case's rows.
        system: which.
        target: above the least loss, nats.
    """
    curves = own[own["system"] == system].pivot(index="seed", columns="seconds", values="above")
    times = curves.columns.to_numpy(float)
    return np.array([_crossing(times, curve, target) for curve in curves.to_numpy(float)])


def _crossing(times: NDArray[np.float64], curve: NDArray[np.float64], target: float) -> float:
    there = np.flatnonzero(curve <= target)
    if not len(there):
        return np.inf
    last = there[0]
    return float(np.interp(target, curve[[last, last - 1]], times[[last, last - 1]])) if last else float(times[0])
