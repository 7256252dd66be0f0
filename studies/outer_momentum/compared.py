"""Differences between momenta in each case, seed by seed, with intervals; the cases of one question are a family."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from studies.kit.difference import Difference

CASE = ["factor", "system", "task", "inner", "period", "workers", "steps"]
MARGIN = 0.02  # nats: losses that are nearer to each other are equal


def differences(losses: pd.DataFrame, kind: str, momentum: float, column: str = "loss") -> dict[tuple[object, ...], Difference]:
    """Return the loss with a momentum less that of plain averages at their best, in each case that has both.

    Args:
        losses: one row for each case, way to choose rates, momentum and seed.
        kind: how rates were chosen: `tuned`, `matched` or `published`.
        momentum: mu.
        column: `loss`, of the mean model, or `own_loss`, of a worker's own.
    """
    found = dict[tuple[object, ...], NDArray[np.float64]]()
    for case, own in losses.groupby(CASE, sort=False):
        other = _by_seed(own, kind, momentum, column)
        plain = _by_seed(own, "tuned", 0.0, column)
        if len(other):
            found[case] = (other - plain).to_numpy(float)
    return Difference.family(found)


def chosen(own: pd.DataFrame, momentum: float, kind: str = "tuned") -> pd.Series:
    """Return the rates that were chosen for a momentum in a case: the first row of its seeds.

    Args:
        own: the case's rows.
        momentum: mu.
        kind: how rates were chosen.
    """
    return own[(own["kind"] == kind) & np.isclose(own["momentum"], momentum)].iloc[0]


def _by_seed(own: pd.DataFrame, kind: str, momentum: float, column: str) -> pd.Series:
    rows = own[(own["kind"] == kind) & np.isclose(own["momentum"], momentum)]
    return rows.set_index("seed")[column].sort_index()
