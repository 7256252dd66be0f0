"""Significance of differences between runs: paired over the seeds, with bootstrap intervals.

Runs of a scenario with the same seed share their random streams (common random numbers), so effects of the seed cancel in each
pair. The difference (or ratio) is taken for each seed first, then its mean and interval over the seeds. The variance that
pairing saves is reported.

Intervals are those of `fred.base.intervals.bca_mean`.
"""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base import elementary
from fred.base.errors import FredError
from fred.base.intervals import bca_mean
from fred.components import registry
from fred.outcomes.tables import Tables

_COLUMNS = (
    *("run", "baseline", "quantity", "way", "mean", "low", "high", "least", "largest", "seeds", "missing"),
    "variance_saved",
)


class _Quantity(NamedTuple):
    """A quantity of the summary, and how it is compared."""

    name: str
    way: str  # difference or ratio
    columns: tuple[str, ...]  # of the summary: the first one that both runs of a pair have


_QUANTITIES = (
    _Quantity("loss", "difference", ("loss",)),
    _Quantity("error", "difference", ("error",)),
    _Quantity("gradient_norm", "ratio", ("gradient_norm",)),
    _Quantity("to_target", "ratio", ("target_seconds", "target_updates")),  # updates if there is no clock
    _Quantity("throughput", "ratio", ("throughput",)),
)


def compared(tables: Tables, baseline: str | None = None) -> pd.DataFrame:
    """Compare runs with the baseline: a row per quantity and run that shares seeds with it; for sweeps, their best points.

    Args:
        tables: outcomes of the runs.
        baseline: the run that all others are compared with (for a swept run its best point); default: the scenario's
            `baseline`, or else the first run.

    Columns: run, baseline, quantity (loss, error, gradient_norm, to_target, throughput; if measured), way (`difference`
    from the baseline for loss and error, `ratio` to it for the others), mean (geometric for ratios), low and high (its 95 %
    interval; NaN with fewer than 5 seeds), least and largest (over the seeds), seeds (number of pairs), missing (pairs left
    out, since one of the two missed the target or has no finite number), variance_saved (by pairing: 1 - the variance of
    the paired differences / the sum of both variances, of logarithms for ratios).

    Raises FredError for an unknown baseline, or if no point of a sweep is the best.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "exponential", "scale": 0.5}},
    ...     stop={"updates": 40},
    ...     runs={name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")},
    ...     seeds=[1, 2, 3, 4, 5],
    ... )
    >>> compared(fred.run(scenario))[["run", "baseline", "quantity", "way", "seeds"]]
        run baseline    quantity    way  seeds
    0  ssgd     asgd  throughput  ratio      5
    """
    reported = tables.with_its_best()
    runs = list(_seeds(reported))
    baseline = tables.called(baseline) if baseline else _baseline(reported)
    if baseline not in runs:
        raise FredError(f"no run `{baseline}` to compare with{registry.nearest(baseline, runs)}; there are {', '.join(runs)}")
    summary = reported.summary.set_index("seed")
    by_run = {str(name): own for name, own in summary.groupby("name", sort=False)}
    rows = [
        {"run": run, "baseline": baseline, "quantity": quantity.name, "way": quantity.way, **pair}
        for run in runs
        for quantity in _QUANTITIES
        if run != baseline and any(_has(summary, column) for column in quantity.columns)
        for pair in [_pair(by_run[run], by_run[baseline], quantity)]
        if pair["seeds"] + pair["missing"]
    ]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def shared_seeds(tables: Tables) -> int:
    """Return the largest number of seeds that the baseline shares with any other run.

    Args:
        tables: outcomes of the runs, without the points of sweeps.
    """
    seeds = _seeds(tables)
    own = seeds.pop(_baseline(tables))
    return max((len(own & each) for each in seeds.values()), default=0)


def _seeds(tables: Tables) -> dict[str, set[int]]:
    seeds: dict[str, set[int]] = {}
    for each in tables.outcomes:
        seeds.setdefault(each.name, set()).add(each.seed)
    return seeds


def _baseline(reported: Tables) -> str:
    """Return the scenario's baseline if it is among the reported runs, else the first run."""
    runs = [each.name for each in reported.outcomes]
    return reported.scenario.baseline if reported.scenario.baseline in runs else runs[0]


def _has(rows: pd.DataFrame, column: str) -> bool:
    return column in rows and bool(rows[column].notna().any())


def _pair(run: pd.DataFrame, baseline: pd.DataFrame, quantity: _Quantity) -> dict[str, float]:
    """Compare a run with the baseline over their common seeds."""
    column = next((each for each in quantity.columns if _has(run, each) and _has(baseline, each)), quantity.columns[-1])
    seeds = [seed for seed in run.index if seed in baseline.index]
    both = np.array([_numbers(rows, column, seeds) for rows in (run, baseline)])
    ratio = quantity.way == "ratio"
    usable = np.isfinite(both).all(axis=0) & ((both > 0).all(axis=0) | (not ratio))
    both = both[:, usable]
    if ratio:
        found = _of_pairs(elementary.log(both[0] / both[1]), elementary.log(both))
        found |= {name: math.exp(value) for name, value in found.items() if name != "variance_saved"}
    else:
        found = _of_pairs(both[0] - both[1], both)
    return found | {"seeds": int(usable.sum()), "missing": int((~usable).sum())}


def _numbers(rows: pd.DataFrame, column: str, seeds: list[int]) -> NDArray[np.float64]:
    return rows[column].reindex(seeds).to_numpy(np.float64) if column in rows else np.full(len(seeds), np.nan)


def _of_pairs(paired: NDArray[np.float64], both: NDArray[np.float64]) -> dict[str, float]:
    """Summarise paired differences over the seeds [seeds]; `both` has the values of run and baseline [2, seeds]."""
    if not paired.size:
        return dict.fromkeys(("mean", "low", "high", "least", "largest", "variance_saved"), math.nan)
    low, high = bca_mean(paired)
    apart = float(both.var(axis=1).sum())
    return {
        "mean": float(paired.mean()),
        "low": low,
        "high": high,
        "least": float(paired.min()),
        "largest": float(paired.max()),
        "variance_saved": 1 - float(paired.var()) / apart if apart > 0 else math.nan,
    }
