"""Systems compared on one case: over the seeds, with intervals."""

from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fred
from fred.base.intervals import bca_mean
from fred.learning.data.language import Bigrams
from studies.low_communication.cases import HERE

SYSTEMS = ("sync", "demo", "diloco", "streaming", "sparseloco", "noloco", "a-edit", "delayed-nesterov", "decoupled")
SHOWN = (*SYSTEMS[:6], "noloco-mean", *SYSTEMS[6:])  # with the mean of all workers' models, which nobody has
CASE = ["stragglers", "megabits"]
BUDGETS = (150, 300)  # s; settings were chosen by the loss at the second
TARGET = 0.25  # nats above the least loss: about a quarter of what it is at the start


class Difference:
    """What some values are above others, seed by seed: the mean, and its interval.

    Args:
        own: of the one system [seeds].
        other: of the other, in the same order.
    """

    def __init__(self, own: NDArray[np.float64], other: NDArray[np.float64]):
        self.mean = float((own - other).mean())
        self.low, self.high = bca_mean(own - other)

    @property
    def verdict(self) -> str:
        """`ahead` or `behind` where the interval excludes 0: a loss is the better the lower it is."""
        return "ahead" if self.high < 0 else "behind" if self.low > 0 else ""

    @property
    def said(self) -> str:
        """Return the cell of a table; bold if the interval excludes 0."""
        words = f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"
        return f"**{words}**" if self.verdict else words


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


def against(own: pd.DataFrame, system: str, other: str, seconds: float = BUDGETS[-1]) -> Difference:
    """One system's loss less another's.

    Args:
        own: one case's rows.
        system: the one.
        other: the other.
        seconds: when, s.
    """
    return Difference(values(own, system, seconds), values(own, other, seconds))


def chosen(own: pd.DataFrame) -> str:
    """The best on the seeds that settings were chosen on.

    Args:
        own: one case's rows.
    """
    some = own[own["system"].isin(SYSTEMS)]
    return str(some.sort_values("tuning_loss", kind="stable")["system"].iloc[0])


def equals(own: pd.DataFrame, best: str) -> list[str]:
    """Return the systems that are indistinguishable from the best one, or ahead of it, on the reported seeds.

    Args:
        own: one case's rows.
        best: a system.
    """
    return [system for system in SYSTEMS if system != best and against(own, system, best).verdict != "behind"]


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
