"""Contrasts of systems over the seeds, with intervals, and verdicts on the claims."""

from enum import StrEnum
from math import inf, isinf

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base import intervals
from fred.base.intervals import Mean
from studies.local_updates.claims import LOSS, SECONDS, Claim, Quantity

WORST = 5.0  # nats: a loss that is larger, or no number, is at least that


class Verdict(StrEnum):
    """A verdict on a claim."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    OPEN = "open"


_VERDICTS = {
    intervals.Verdict.YES: Verdict.AGREES,
    intervals.Verdict.NO: Verdict.DISAGREES,
    intervals.Verdict.OPEN: Verdict.OPEN,
}


class Found:
    """A claim's sum over the seeds: its mean, and a 95 % interval, which has no end where a system did not get there.

    Args:
        claim: the claim.
        own: the rows of its experiment.
    """

    def __init__(self, claim: Claim, own: pd.DataFrame):
        self.claim = claim
        self.least = self.most = False  # it is at least, or at most, so much
        total: NDArray[np.float64] = np.zeros(own["seed"].nunique())
        for system, factor in claim.factors.items():
            values, missed = values_of(own, system, claim.quantity)
            total = total + factor * (np.log(values) if claim.quantity.ratio else values)
            self.least |= missed and factor > 0
            self.most |= missed and factor < 0
        mean = Mean.estimate(total)
        self.mean, (low, high) = mean.value, mean.interval()
        self.low, self.high = -inf if self.most else low, inf if self.least else high

    @property
    def verdict(self) -> Verdict:
        """Judge whether all of the interval lies between the claim's bounds, or none of it."""
        return _VERDICTS[intervals.verdict((self.low, self.high), self.claim.low, self.claim.high)]

    @property
    def said(self) -> str:
        """Return the cell of a table; for a system that missed a target only that it is more (>) or less (<)."""
        if self.least and self.most:
            return "neither got there"
        ends = f" ({self._one(self.low)} to {self._one(self.high)})" if not self.least and not self.most else ""
        return ("> " if self.least else "< " if self.most else "") + self._one(self.mean) + ends

    @property
    def expected(self) -> str:
        """The bound, for a table."""
        return f"< {self._one(self.claim.high)}" if isinf(self.claim.low) else f"> {self._one(self.claim.low)}"

    def _one(self, value: float) -> str:
        return f"× {np.exp(value):.2f}" if self.claim.quantity.ratio else f"{value:.3f}"


def values_of(own: pd.DataFrame, system: str, quantity: Quantity) -> tuple[NDArray[np.float64], bool]:
    """A system's values [seeds], and whether one of them is only known to be at least so much.

    Args:
        own: the rows of an experiment.
        system: which.
        quantity: the measurement.
    """
    rows = own[own["system"] == system].sort_values("seed")
    values = rows[quantity.column].to_numpy(np.float64)
    limits = {LOSS: np.full(len(rows), WORST), SECONDS: rows["virtual_seconds"].to_numpy(np.float64)}
    if quantity not in limits:
        return values, False
    missed = ~(values <= limits[quantity])
    return np.where(missed, limits[quantity], values), bool(missed.any())
