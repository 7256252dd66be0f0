"""Comparisons of runs: paired differences over the seeds with verdicts, their precision, and time against cost.

Runs of a scenario with the same seed share their random streams (common random numbers), so effects of the seed cancel in each
pair. The difference (or ratio) is taken for each seed first, then its mean and interval over the seeds. The variance that
pairing saves is reported.

Intervals and verdicts are those of `fred.base.intervals`. The comparisons of one quantity are a family.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fred.base import numerics
from fred.base.errors import FredError
from fred.base.intervals import Mean, intervals, verdict
from fred.components import registry
from fred.outcomes.tables import Tables
from fred.specification.stopping import FIRST_LOOK
from fred.specification.summary import NUMBERS

_COLUMNS = (
    *("run", "baseline", "quantity", "way", "mean", "low", "high", "better", "least", "largest", "seeds", "missing"),
    "variance_saved",
)
_FIRST = ("to_target", "loss", "throughput")  # the first of these that is measured counts
_ENDS = {"target_seconds": ("target_cost", "target_energy_kwh"), "virtual_seconds": ("cost_total", "energy_kwh")}


class Quantity(NamedTuple):
    """A quantity of the summary that is compared.

    Args:
        name: its name in the table of differences.
        way: `difference` or `ratio`.
        columns: columns of the summary, of which the first one counts that both runs of a pair have: updates to a target, if
            there is no clock.
        heading: heading of its column in printed tables.
        axis: its name at the axis of a figure.
    """

    name: str
    way: str
    columns: tuple[str, ...]
    heading: str
    axis: str

    @property
    def larger_is_better(self) -> bool:
        """Return True if larger values are better."""
        return NUMBERS[self.columns[0]].better == "higher"


QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("loss", "difference", ("loss",), "loss", "loss"),
        Quantity("error", "difference", ("error",), "error", "error"),
        Quantity("gradient_norm", "ratio", ("gradient_norm",), "gradient norm", "norm of the gradient"),
        Quantity("to_target", "ratio", ("target_seconds", "target_updates"), "to target", "time or updates to the target"),
        Quantity("cost_to_target", "ratio", ("target_cost",), "cost to target", "cost to the target"),
        Quantity("throughput", "ratio", ("throughput",), "throughput", "gradients per second"),
    )
}


def compared(tables: Tables, baseline: str | None = None) -> pd.DataFrame:
    """Compare runs with the baseline: a row per quantity and run that shares seeds with it; for sweeps, their best points.

    Args:
        tables: outcomes of the runs.
        baseline: the run that all others are compared with (for a swept run its best point); default: the scenario's
            `baseline`, or else the first run.

    Columns: run, baseline, quantity (loss, error, gradient_norm, to_target, cost_to_target, throughput; if measured), way
    (`difference` from the baseline for loss and error, `ratio` to it for the others), mean (geometric for ratios), low
    and high (its 95 % interval, widened by Holm's method if several runs have that quantity; NaN with fewer than 5
    seeds), better (`yes`: higher throughput than the baseline, or less of any other quantity; `no`: worse; or `open`), least
    and largest (over the seeds), seeds (number of pairs), missing (pairs left out, since one of the two missed the target or
    has no finite number), variance_saved (by pairing: 1 - the variance of the paired differences / the sum of both
    variances, of logarithms for ratios).

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
    baseline = tables.resolve_name(baseline) if baseline else _baseline(reported)
    if baseline not in runs:
        raise FredError(f"no run `{baseline}` to compare with{registry.nearest(baseline, runs)}; there are {', '.join(runs)}")
    summary = reported.summary.set_index("seed")
    by_run = {str(name): rows for name, rows in summary.groupby("name", sort=False)}
    measured = [
        quantity for quantity in QUANTITIES.values() if any(_is_measured(summary, column) for column in quantity.columns)
    ]
    frames = [by_run[run] for run in runs if run != baseline]
    families = [_family(frames, by_run[baseline], quantity) for quantity in measured]
    rows = [
        {"run": run, "baseline": baseline, "quantity": quantity.name, "way": quantity.way, **pair}
        for run, pairs in zip([run for run in runs if run != baseline], zip(*families, strict=True), strict=bool(families))
        for quantity, pair in zip(measured, pairs, strict=True)
        if pair["seeds"] + pair["missing"]
    ]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def shared_seeds(tables: Tables) -> int:
    """Return the largest number of seeds that the baseline shares with any other run.

    Args:
        tables: outcomes of the runs, without the points of sweeps.
    """
    seeds = _seeds(tables)
    baseline_seeds = seeds.pop(_baseline(tables))
    return max((len(baseline_seeds & run_seeds) for run_seeds in seeds.values()), default=0)


def _seeds(tables: Tables) -> dict[str, set[int]]:
    seeds: dict[str, set[int]] = {}
    for outcome in tables.outcomes:
        seeds.setdefault(outcome.name, set()).add(outcome.seed)
    return seeds


def _baseline(reported: Tables) -> str:
    """Return the scenario's baseline if it is among the reported runs, else the first run."""
    runs = [outcome.name for outcome in reported.outcomes]
    return reported.scenario.baseline if reported.scenario.baseline in runs else runs[0]


def _is_measured(rows: pd.DataFrame, column: str) -> bool:
    return column in rows and bool(rows[column].notna().any())


def _family(runs: Sequence[pd.DataFrame], baseline: pd.DataFrame, quantity: Quantity) -> list[dict[str, Any]]:
    """Compare runs with the baseline, each over the common seeds, by intervals that belong together.

    Return a row of the table for each run. A ratio is computed as the difference of logarithms.
    """
    is_ratio = quantity.way == "ratio"
    pairs = [_values(run, baseline, quantity) for run in runs]
    differences = [numerics.log(values[0] / values[1]) if is_ratio else values[0] - values[1] for values, _ in pairs]
    ends = intervals([Mean.estimate(paired) for paired in differences])
    rows = []
    for paired, (low, high), (values, missing) in zip(differences, ends, pairs, strict=True):
        numbers = {**_summarise_pairs(paired, numerics.log(values) if is_ratio else values), "low": low, "high": high}
        if is_ratio:
            numbers |= {name: math.exp(value) for name, value in numbers.items() if name != "variance_saved"}
        counts = {"seeds": len(paired), "missing": missing}
        excess = (-high, -low) if quantity.larger_is_better else (low, high)  # how much worse than the baseline
        rows.append({**numbers, "better": verdict(excess).value, **counts})
    return rows


def _values(run: pd.DataFrame, baseline: pd.DataFrame, quantity: Quantity) -> tuple[NDArray[np.float64], int]:
    """Return the values of run and baseline [2, seeds], and the number of common seeds without two usable values."""
    column = next(
        (name for name in quantity.columns if _is_measured(run, name) and _is_measured(baseline, name)), quantity.columns[-1]
    )
    seeds = [seed for seed in run.index if seed in baseline.index]
    values = np.array([_numbers(rows, column, seeds) for rows in (run, baseline)])
    usable = np.isfinite(values).all(axis=0) & ((values > 0).all(axis=0) | (quantity.way != "ratio"))
    return values[:, usable], int((~usable).sum())


def _numbers(rows: pd.DataFrame, column: str, seeds: list[int]) -> NDArray[np.float64]:
    return rows[column].reindex(seeds).to_numpy(np.float64) if column in rows else np.full(len(seeds), np.nan)


def _summarise_pairs(paired: NDArray[np.float64], values: NDArray[np.float64]) -> dict[str, float]:
    """Summarise paired differences over the seeds [seeds]; `values` has the values of run and baseline [2, seeds]."""
    if not paired.size:
        return dict.fromkeys(("mean", "least", "largest", "variance_saved"), math.nan)
    unpaired_variance = float(values.var(axis=1).sum())
    return {
        "mean": float(paired.mean()),
        "least": float(paired.min()),
        "largest": float(paired.max()),
        "variance_saved": 1 - float(paired.var()) / unpaired_variance if unpaired_variance > 0 else math.nan,
    }


def precision(tables: Tables) -> float:
    """Return half of the widest interval of all runs, relative to the baseline; infinite if one is unknown, NaN for one run.

    Args:
        tables: outcomes of the runs.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "exponential", "scale": 0.5}},
    ...     stop={"updates": 40},
    ...     runs={name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")},
    ...     seeds=[1, 2, 3, 4, 5],
    ... )
    >>> round(precision(fred.run(scenario)), 3)
    0.179
    """
    pairs = compared(tables) if tables.reported_outcomes else pd.DataFrame(columns=["quantity"])
    rows = next((pairs[pairs["quantity"] == name] for name in _FIRST if (pairs["quantity"] == name).any()), pairs[:0])
    if rows.empty:
        return math.nan
    if rows["way"].iloc[0] == "ratio":
        halves = (rows["high"] / rows["low"]) ** 0.5 - 1  # of an interval of logarithms, as a relative difference
    else:
        reported = tables.with_its_best().summary
        level = reported.loc[reported["name"] == rows["baseline"].iloc[0], rows["quantity"].iloc[0]].mean()
        halves = (rows["high"] - rows["low"]) / 2 / abs(level)
    return float(halves.fillna(math.inf).max())


def further_seeds(tables: Tables) -> int:
    """Return the number of seeds with which to go on; 0 if the comparisons are precise enough, or at the limit.

    Args:
        tables: outcomes of the runs.
    """
    until, count = tables.scenario.until, len(tables.scenario.reported_seeds)
    if until is None or count >= until.seeds:
        return 0
    half = precision(tables)
    return 0 if math.isnan(half) or (count >= FIRST_LOOK and half <= until.within) else until.next_look(count)


def why_stopped(tables: Tables) -> list[str]:
    """Return a sentence that says why no more seeds were added; none if the scenario asks for no precision.

    Args:
        tables: outcomes of the runs.
    """
    until, seeds = tables.scenario.until, len(tables.scenario.reported_seeds)
    if until is None or math.isnan(half := precision(tables)):
        return []
    if half <= until.within:
        return [f"Seeds were added until intervals were within {until.within:.3g} of the baseline: {seeds}"]
    return [f"With {seeds} seeds, the limit, intervals are not yet within {until.within:.3g} of the baseline"]


def trade_off(tables: Tables) -> pd.DataFrame:
    """Return the mean time and cost of each run, or point of a sweep, until the target; without one until the end.

    Points that are not finite for all seeds are left out, such as those that missed the target. If everything is free, the
    cost is the energy, kWh.

    Columns: run, point (its name), seconds, cost, front (True if no other point is both faster and cheaper). `attrs["time"]`
    and `attrs["cost"]` are their columns of the summary. Raises FredError if no run has prices.

    Args:
        tables: the tables of the runs.
    """
    summary = tables.summary
    time = next(name for name in _ENDS if name in summary)
    costs = [name for name in _ENDS[time] if name in summary]
    if not costs:
        raise FredError("nothing has a cost: the scenario has no `cluster.prices`")
    cost = next((name for name in costs if (summary[name].astype(float) > 0).any()), costs[0])
    rows = [
        {
            "run": tables.scenario.run_of(str(name)),
            "point": str(name),
            "seconds": means[0],
            "cost": means[1],
        }
        for name, rows_of_point in summary.groupby("name", sort=False)
        if np.isfinite(means := rows_of_point[[time, cost]].to_numpy(np.float64).mean(axis=0)).all()
    ]
    table = pd.DataFrame(rows, columns=["run", "point", "seconds", "cost"])
    table = table.assign(front=not_dominated(table["seconds"], table["cost"]))
    table.attrs = {"time": time, "cost": cost}
    return table


def not_dominated(seconds: ArrayLike, cost: ArrayLike) -> NDArray[np.bool_]:
    """Return True for points on the Pareto front: no other is at least as fast and as cheap, and better in one of them.

    Args:
        seconds, cost: time and cost of each point [points].

    >>> not_dominated([1.0, 2.0, 3.0, 3.0], [5.0, 4.0, 4.0, 1.0]).tolist()
    [True, True, False, True]
    """
    seconds, cost = np.asarray(seconds, np.float64), np.asarray(cost, np.float64)
    order = np.lexsort((cost, seconds))
    least = np.minimum.accumulate(np.concatenate(([np.inf], cost[order])))  # of all faster points, and of equally fast ones
    front = np.zeros(len(order), bool)
    front[order] = cost[order] < least[:-1]
    # Of equal points the first one is on the front so far; the others are, too.
    return front | np.array([any((seconds[front] == s) & (cost[front] == c)) for s, c in zip(seconds, cost, strict=True)], bool)
