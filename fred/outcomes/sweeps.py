"""Results of sweeps: each point's mean over the seeds, and the best point of each swept run on the same budget."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fred.components.component import Object
from fred.specification.loading import Scenario
from fred.specification.sweep import Criterion, is_number, word

_FIXED_COLUMNS = ("run", "point", "points", "mean", "least", "largest")  # columns that are not swept keys


def table(scenario: Scenario, summary: pd.DataFrame, criterion: Criterion | None = None) -> pd.DataFrame:
    """Return a row per point: the swept run, its values by key, and the criterion's mean, least and largest over the seeds.

    A point has an infinite mean (the worst) if the criterion is not finite for some seed: it diverged, or missed the target.

    Args:
        scenario: the scenario with the points.
        summary: a row per run and seed; points that are not in it are left out, and so are seeds that are only reported.
        criterion: a column of the summary, and whether higher is better; default: the scenario's.
    """
    criterion, summary = criterion or scenario.criterion, summary[summary["seed"].isin(scenario.seeds)]
    column, worst = criterion.column, -np.inf if criterion.highest else np.inf
    runs, rows = dict(list(summary.groupby("name"))), []
    for name, point in scenario.points.items():
        if name not in runs:
            continue
        rows_of_run = runs[name]
        values_of_criterion = rows_of_run[column].astype(float) if column in rows_of_run else pd.Series([np.nan])
        values_of_criterion = values_of_criterion.where(np.isfinite(values_of_criterion), worst)
        values = {key: word(value) if isinstance(value, dict | list | Object) else value for key, value in point.values.items()}
        rows.append(
            {
                "run": point.of,
                "point": name,
                **values,
                "mean": values_of_criterion.mean(),
                "least": values_of_criterion.min(),
                "largest": values_of_criterion.max(),
            }
        )
    points = pd.DataFrame(rows, columns=None if rows else ["run", "point", "mean", "least", "largest"])
    return points.assign(**{key: _plottable(points[key]) for key in keys_of(points)})


def _plottable(values: pd.Series) -> pd.Series:
    """Return numeric values as they are, others as text: no axis can have both."""
    return values if pd.api.types.is_numeric_dtype(values) else values.map(str, na_action="ignore")


def keys_of(points: pd.DataFrame) -> list[str]:
    """Return the swept keys."""
    return [str(column) for column in points if column not in _FIXED_COLUMNS]


def setting(key: str) -> str:
    """Return the last part of a swept key, in words.

    >>> setting("protocol.backup_workers")
    'backup workers'
    """
    return key.rpartition(".")[2].replace("_", " ")


def value_texts(values: Iterable[Any]) -> list[str]:
    """Return values of a key as text; a dash for missing ones.

    Args:
        values: numbers, words, or NaN.

    >>> value_texts([0.10000, 3, "asgd", np.nan])
    ['0.1', '3', 'asgd', '–']
    """
    return ["–" if pd.isna(value) else f"{value:g}" if isinstance(value, float) else str(value) for value in values]


def best_points(points: pd.DataFrame, highest: bool = False) -> pd.DataFrame:
    """Return the row with the best mean of each swept run; the first of equal ones. Runs without a finite mean have no row.

    The added column `points` is the number of points of the run.

    Args:
        points: a row per point, with columns run and mean.
        highest: True if higher is better.

    >>> points = pd.DataFrame({"run": ["a", "a", "b"], "point": ["a1", "a2", "b1"], "mean": [2.0, 1.0, np.inf]})
    >>> best_points(points)["point"].tolist(), best_points(points, highest=True)["point"].tolist()
    (['a2'], ['a1'])
    """
    means = points[np.isfinite(points["mean"])].groupby("run", sort=False)["mean"]
    rows = points.loc[means.idxmax() if highest else means.idxmin()].reset_index(drop=True)
    return rows.assign(points=rows["run"].map(points["run"].value_counts()))


def find_next_points(scenario: Scenario, points: pd.DataFrame, best: pd.DataFrame) -> list[str]:
    """Return the points to try next: of each run, those next to its best point, or to any if none has a finite mean.

    Two points are next to each other if they differ in one key, by one step of its values.

    Args:
        scenario: the scenario with all points.
        points: a row per point that has been tried, as returned by `table`.
        best: some of these rows: the best point of each run.
    """
    tried_names, next_names = dict(list(points.groupby("run", sort=False)["point"])), list[str]()
    for run, tried in tried_names.items():
        points_of_run = {name: point for name, point in scenario.points.items() if point.of == run}
        if not any(point.later for point in points_of_run.values()):
            continue  # all points of this run are tried at first
        ranges = _ranges([point.values for point in points_of_run.values()])
        centres = best[best["run"] == run]["point"].tolist() or tried.tolist()
        neighbours = [values for name in centres for values in _neighbours(points_of_run[name].values, ranges)]
        untried = {name: point for name, point in points_of_run.items() if name not in set(tried)}
        next_names += [name for name, point in untried.items() if point.values in neighbours]
    return next_names


def _ranges(points: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the increasing values of each key that has numbers."""
    return {
        key: sorted({values[key] for values in points}) for key in points[0] if all(is_number(values[key]) for values in points)
    }


def _neighbours(point: dict[str, Any], ranges: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return the points next to one, all as values by key."""
    neighbours = []
    for key, values in ranges.items():
        place = values.index(point[key])
        neighbours += [point | {key: values[position]} for position in (place - 1, place + 1) if 0 <= position < len(values)]
    return neighbours


def at_the_ends(points: pd.DataFrame, best: pd.DataFrame) -> list[tuple[str, str, float]]:
    """Return best values at the end of their range, for keys with three values or more: run, key and value.

    Args:
        points: a row per point, as returned by `table`.
        best: some of these rows: the best point of each run.

    >>> points = pd.DataFrame({"run": "a", "point": ["a1", "a2", "a3"], "rate": [0.1, 0.2, 0.4], "mean": [2.0, 3.0, 1.0]})
    >>> at_the_ends(points, points.tail(1)), at_the_ends(points, points[1:2])
    ([('a', 'rate', 0.4)], [])
    """
    ends = []
    for _, row in best.iterrows():
        rows_of_run = points[points["run"] == row["run"]]
        for key in keys_of(points):
            values = rows_of_run[key].dropna()
            if pd.api.types.is_numeric_dtype(values) and values.nunique() > 2 and row[key] in (values.min(), values.max()):
                ends.append((str(row["run"]), key, float(row[key])))
    return ends
