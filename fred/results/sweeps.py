"""What a sweep shows: each point's mean over the seeds, and the best point of each swept run on the same budget."""

import numpy as np
import pandas as pd

from fred.specification.shape import Scenario

_COLUMN = {"loss": "loss", "error": "error", "seconds": "target_seconds", "updates": "target_updates"}


def table(scenario: Scenario, summary: pd.DataFrame) -> pd.DataFrame:
    """A row per point: the swept run, its values by key, and the criterion's mean, least and largest over the seeds.

    A point with a seed whose criterion is not a finite number (it diverged, or never reached the target) has an infinite mean.
    """
    column = _COLUMN[scenario.best]
    runs, rows = dict(list(summary.groupby("name"))), []
    for name, point in scenario.points.items():
        if name not in runs:
            continue
        own = runs[name]
        found = own[column].astype(float) if column in own else pd.Series([np.nan])
        found = found.where(np.isfinite(found), np.inf)
        rows.append(
            {"run": point.of, "point": name, **point.values, "mean": found.mean(), "least": found.min(), "largest": found.max()}
        )
    points = pd.DataFrame(rows, columns=None if rows else ["run", "point", "mean", "least", "largest"])
    return points.assign(**{key: _alike(points[key]) for key in keys_of(points)})


def _alike(values: pd.Series) -> pd.Series:
    """Numbers if all of them are, else their text: no axis has both."""
    return values if pd.api.types.is_numeric_dtype(values) else values.map(str, na_action="ignore")


def keys_of(points: pd.DataFrame) -> list[str]:
    """What was swept."""
    return [str(column) for column in points if column not in ("run", "point", "mean", "least", "largest")]


def best(points: pd.DataFrame) -> pd.DataFrame:
    """The row with the smallest mean of each swept run; of equal ones the first. None where no point has a finite one."""
    finite = points[np.isfinite(points["mean"])]
    return points.loc[finite.groupby("run", sort=False)["mean"].idxmin()].reset_index(drop=True)
