"""Outcomes as data frames: metrics and schedules, a summary row per run and seed, points of sweeps and the best of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd

from fred.base.errors import FredError
from fred.base.types import Ints
from fred.components import registry
from fred.components.component import Object
from fred.outcomes.outcome import Outcome
from fred.schedule import staleness
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
        untried_points = {name: point for name, point in points_of_run.items() if name not in set(tried)}
        next_names += [name for name, point in untried_points.items() if point.values in neighbours]
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
        i = values.index(point[key])
        neighbours += [point | {key: values[k]} for k in (i - 1, i + 1) if 0 <= k < len(values)]
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


@dataclass(frozen=True)
class Tables:
    """All runs of a scenario, each with every seed: in memory, or in a folder from which they are read on demand."""

    scenario: Scenario
    outcomes: Sequence[Outcome]

    @property
    def metrics(self) -> pd.DataFrame:
        """Return all evaluations: run, seed, virtual_seconds, updates, gradients, loss, error.

        virtual_seconds is in s (NaN without a clock). loss and error exist with a task, gradient_norm if requested. If
        workers have their own models, there are also replicas_loss, replicas_error and disagreement.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> fred.run(scenario.replace({"evaluate.points": 2})).metrics
            run  seed  virtual_seconds  updates  gradients
        0  asgd     0              0.0        0          0
        1  asgd     0              0.5        2          2
        2  asgd     0              1.0        4          4
        """
        frames = [outcome.metrics.assign(run=outcome.name, seed=outcome.seed) for outcome in self.outcomes]
        frame = pd.concat(frames, ignore_index=True)
        return frame[["run", "seed", *(name for name in frame if name not in ("run", "seed"))]]

    @property
    def summary(self) -> pd.DataFrame:
        """Return one row per run and seed: counts, times, staleness, last loss and error, times to targets, digests.

        Columns are those of summary.json, with nested keys joined by `_`: times in s, throughput in gradients per second,
        staleness in updates (staleness_in_gradients: R of Birch SGD), workers_time_* as shares of all workers' time.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> summary = fred.run(scenario).summary
        >>> print(*summary.loc[0, ["ended_by", "gradients_in_flight", "throughput", "workers_time_waiting"]])
        updates 1 4.0 0.0
        """
        return pd.json_normalize([outcome.summary for outcome in self.outcomes], sep="_")

    @property
    def swept(self) -> bool:
        """Return True if any of these runs is a point of a sweep."""
        return any(outcome.name in self.scenario.points for outcome in self.outcomes)

    @property
    def sweep(self) -> pd.DataFrame:
        """Return one row per point: run, point, the values, and the criterion's mean, least and largest over the seeds.

        Raises FredError without a sweep.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "ssgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ...     sweep={"over": {"cluster.workers": [2, 4]}},
        ... )
        >>> result = fred.run(scenario)
        >>> result.sweep[["run", "cluster.workers", "mean"]]
            run  cluster.workers  mean
        0  ssgd                2   4.0
        1  ssgd                4   8.0
        >>> result.best["cluster.workers"].tolist()
        [4]
        """
        return self._sweep_points.copy()

    @property
    def best(self) -> pd.DataFrame:
        """Return the best point of each swept run, if one has a finite mean. Raises FredError without a sweep."""
        return self._best_points.copy()

    @cached_property  # figures and the page ask for it dozens of times
    def _sweep_points(self) -> pd.DataFrame:
        if not self.swept:
            raise FredError("no points: the scenario has no `sweep`")
        return table(self.scenario, self.summary)

    @cached_property
    def _best_points(self) -> pd.DataFrame:
        return best_points(self._sweep_points, self.scenario.criterion.highest)

    @property
    def runs_without_best(self) -> list[str]:
        """Return the swept runs without a best point: at none of their points is the criterion finite with all seeds."""
        runs = dict.fromkeys(self.sweep["run"]) if self.swept else ()
        return [str(run) for run in runs if run not in set(self.best["run"])]

    def with_its_best(self) -> Self:
        """Return the reported runs: only the best points of each sweep, with the reported seeds.

        Raises FredError if no run is left.
        """
        if not self.swept and not self.scenario.report_seeds:
            return self
        outcomes = self.reported_outcomes
        if not outcomes:
            raise FredError(f"no point of the sweep has a finite {self.scenario.criterion.column}, so none is the best")
        runs = {outcome.name: outcome.run for outcome in outcomes}
        baseline = self.resolve_name(self.scenario.baseline or "")
        reported = {"runs": runs, "points": {}, "baseline": baseline if baseline in runs else None}
        seeds = {"seeds": self.scenario.reported_seeds, "report_seeds": None}
        return replace(self, scenario=self.scenario.model_copy(update=reported | seeds), outcomes=outcomes)

    def target(self, quantity: str) -> float | None:
        """Return the target of all runs for a quantity; None if it is not the same for all.

        Args:
            quantity: `loss`, `error` or `gradient_norm`.
        """
        goals = {outcome.run.targets.get(quantity) for outcome in self.outcomes}
        return goals.pop() if len(goals) == 1 else None

    def resolve_name(self, run: str) -> str:
        """Return the name of a run among the reported ones: for a swept run that of its best point, if it has one.

        Args:
            run: its name.
        """
        best = dict(zip(self.best["run"], self.best["point"], strict=True)) if self.swept else {}
        return str(best.get(run, run))

    @property
    def reported_outcomes(self) -> list[Outcome]:
        """Return the outcomes of the best points, and of runs that were not swept, with the reported seeds."""
        best, seeds = set(self.best["point"]) if self.swept else set(), set(self.scenario.reported_seeds)
        outcomes = (outcome for outcome in self.outcomes if outcome.name not in self.scenario.points or outcome.name in best)
        return [outcome for outcome in outcomes if outcome.seed in seeds]

    def schedule(self, run: str, seed: int | None = None) -> pd.DataFrame:
        """Return the schedule of one run, a row per verb. Raises FredError for an unknown run.

        Args:
            run: its name.
            seed: one of the scenario's; default: the first.

        Columns are those of `fred.Schedule`; times in ns of virtual time.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> fred.run(scenario).schedule("asgd").query("verb == 'PUSH'")[["time_ns", "worker", "staleness"]].tail(2)
              time_ns  worker  staleness
        6  1000000000       0          1
        8  1000000000       1          1
        """
        return self.outcome(run, seed).schedule.frame()

    def run_times(self, run: str, seed: int | None = None) -> pd.DataFrame:
        """Return the compute time of each gradient of one run, as a trace that can drive a cluster.

        Args:
            run: its name.
            seed: one of the scenario's; default: the first.

        Columns: iteration (the worker's own count), worker, seconds, node. Raises FredError for an unknown run, or one
        without a clock.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> fred.run(scenario).run_times("asgd").tail(2)
           iteration  worker  seconds  node
        2          1       0      0.5     0
        3          1       1      0.5     0
        """
        outcome = self.outcome(run, seed)
        if not outcome.has_clock:
            raise FredError(f"run `{run}` has no clock, so its gradients take no time")
        return outcome.run_times

    def outcome(self, run: str, seed: int | None = None) -> Outcome:
        """Return the outcome of one run with one seed. Raises FredError if there is none.

        Args:
            run: its name; for a swept run, that of its best point is used.
            seed: one of the scenario's; default: the first.

        It has schedule, metrics, run_times and summary; with a task also initial and final parameters, arrays by path; digests.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> fred.run(scenario).outcome("asgd").summary["gradients"]
        {'computed': 4, 'applied': 4, 'dropped': 0, 'in_flight': 1}
        """
        run = self.resolve_name(run)
        for outcome in self.outcomes:
            if outcome.name == run and seed in (None, outcome.seed):
                return outcome
        names = list(dict.fromkeys(outcome.name for outcome in self.outcomes))
        if run in names:
            seeds = ", ".join(str(outcome.seed) for outcome in self.outcomes if outcome.name == run)
            raise FredError(f"no run `{run}` with seed {seed} here; there are seeds {seeds}")
        raise FredError(f"no run `{run}` here{registry.nearest(run, names)}; there are {', '.join(names)}")


def pace(metrics: pd.DataFrame, parts: int) -> pd.DataFrame:
    """Return the gradients used per second in equal parts of a run: virtual_seconds (the middle), gradients per second.

    Args:
        metrics: a run's evaluations, with columns virtual_seconds and gradients; between two of them the rate is constant.
        parts: number of parts, at most one for each interval between evaluations.

    >>> pace(pd.DataFrame({"virtual_seconds": [0.0, 1.0, 4.0], "gradients": [0, 4, 10]}), parts=2)
       virtual_seconds  gradients per second
    0              1.0                   3.0
    1              3.0                   2.0
    """
    seconds = metrics["virtual_seconds"].to_numpy(float)
    edges = np.linspace(0.0, seconds.max(), min(parts, max(1, len(seconds) - 1)) + 1)
    used = np.diff(np.interp(edges, seconds, metrics["gradients"].to_numpy(float)))
    lengths = np.diff(edges)
    rate = np.divide(used, lengths, out=np.zeros_like(used), where=lengths > 0)
    return pd.DataFrame({"virtual_seconds": edges[:-1] + lengths / 2, "gradients per second": rate})


def by_timing(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """Return the names of all runs that share a timing, for each different timing.

    Args:
        outcomes: the outcomes of the runs, in the order of their seeds.
    """
    digests: dict[str, str] = {}  # of all seeds together, by the name of the run
    for outcome in outcomes:
        digests[outcome.name] = digests.get(outcome.name, "") + outcome.schedule_digest
    sharing: dict[str, tuple[str, ...]] = {}
    for name, digest in digests.items():
        sharing[digest] = (*sharing.get(digest, ()), name)
    return list(sharing.values())


def staleness_counts(outcomes: Sequence[Outcome]) -> dict[tuple[str, ...], Ints]:
    """Return the number of used gradients of each staleness, from 0 to the largest, updates [largest + 1].

    Args:
        outcomes: the outcomes of the runs; all seeds of a run count together.

    Returns: counts by the names of all runs that share a timing; empty counts if a run used no gradient.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> {runs: counts.tolist() for runs, counts in staleness_counts(fred.run(scenario).outcomes).items()}
    {('asgd',): [1, 3]}
    """
    counts: dict[tuple[str, ...], Ints] = {}
    for shared in by_timing(outcomes):
        values = [staleness.of_gradients(outcome.schedule) for outcome in outcomes if outcome.name == shared[0]]
        counts[shared] = np.bincount(np.maximum(np.concatenate(values), 0))  # a gradient at a newer model is not stale
    return counts
