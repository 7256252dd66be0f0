"""The verdict: a sentence or two that name the best run, and by how much it is better over the seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fred.base.errors import FredError, briefly
from fred.components import registry
from fred.outcomes.comparisons import compared, why_stopped
from fred.outcomes.tables import Tables, keys_of, value_texts

_SHARES = ("cross-entropy", "squared-error")  # losses whose error is a share, unless it is the root of the loss


class _Run(NamedTuple):
    """A run's rows of the summary, one for each seed."""

    name: str
    rows: pd.DataFrame

    def values(self, column: str) -> pd.Series:
        """Return a column as numbers; NaN where it does not apply."""
        return self.rows[column].astype(float) if column in self.rows else pd.Series(np.nan, self.rows.index)

    def mean(self, column: str) -> float:
        """Return the mean of a column over all seeds; NaN if a seed has no such number."""
        return float(self.values(column).mean(skipna=False))


def answer(tables: Tables) -> str:
    """Return the verdict in words: the run that reached the target first, or ended best, or has the highest throughput.

    It also says whether the next run is significantly different.

    Args:
        tables: the tables of the runs; of a sweep the best points are compared.
    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}, "speeds": [1.0, 0.5]},
    ...     stop={"updates": 4},
    ...     runs={name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")},
    ... )
    >>> answer(fred.run(scenario))
    'asgd computed the most gradients per second, 2.667 (1 seed); 1.3 times as many as ssgd.'
    """
    try:
        reported = tables.with_its_best()
    except FredError as error:
        return f"{str(error)[:1].upper()}{str(error)[1:]}."
    runs = [_Run(str(name), rows) for name, rows in reported.summary.groupby("name", sort=False)]
    share = _is_share(reported)
    if any(run.values("target_updates").notna().any() or _goals([run]) for run in runs):
        sentences = [_to_target(reported, runs, share)]
    elif any(run.values("loss").notna().any() for run in runs):
        sentences = [_at_the_end(reported, runs, share)]
    elif any(run.values("throughput").notna().any() for run in runs):
        sentences = [_throughput(reported, runs)]
    else:
        sentences = [_count_updates(runs)]
    if tables.swept:
        column = tables.scenario.criterion.column.replace("_", " ")
        never = [f"No point of {briefly(tables.runs_without_best)} has a finite {column}"] if tables.runs_without_best else []
        sentences += [*never, *_best_points(tables)]
    return " ".join(f"{sentence}." for sentence in sentences + _caveats(runs) + why_stopped(reported))


def _best_points(tables: Tables) -> list[str]:
    """Return a sentence that names the best point of each sweep, for up to three sweeps."""
    criterion, best = tables.scenario.criterion, tables.best
    keys, phrases = keys_of(best), []
    if not len(best):
        return []
    for _, row in best.head(3).iterrows():
        values = zip(keys, value_texts(row[keys]), strict=True)
        words = ", ".join(f"{key.rsplit('.', 1)[-1]} {value}" for key, value in values if value != "–")
        phrases.append(f"{row['run']} with {words}")
    remainder = f"; and {len(best) - 3} more, in the table" if len(best) > 3 else ""
    points = len(tables.sweep)
    beginning = f"The best of each run's points, {points} in all," if len(best) > 1 else f"The best of {points} points"
    return [f"{beginning} by the {criterion.way} {criterion.column.replace('_', ' ')}: {'; '.join(phrases)}{remainder}"]


def _to_target(tables: Tables, runs: Sequence[_Run], share: bool) -> str:
    """Return a sentence that names the run that reached the target first, with all seeds.

    Runs without a clock are not ranked with runs that have one.
    """
    goals = _goals(runs)
    goal = _goal(*goals[0], share) if len(goals) == 1 else "its target"
    reached_runs = [run for run in runs if np.isfinite(run.mean("target_updates"))]
    if not reached_runs:
        return _not_reached(tables, runs, goal, share)
    timed = [run for run in reached_runs if np.isfinite(run.mean("target_seconds"))]
    unclocked = [run for run in reached_runs if run not in timed] if timed else []
    sentence = _name_fastest(tables, timed or reached_runs, goal, "target_seconds" if timed else "target_updates")
    phrases = [
        f"{run.name}, which has no clock, after {run.mean('target_updates'):,.0f} updates{_seeds_phrase(run)}"
        for run in unclocked
    ]
    if len(timed or reached_runs) == 1 < len(runs) and not unclocked:
        phrases = ["and no other run did with all seeds"]
    return ", ".join([sentence, *phrases])


def _name_fastest(tables: Tables, reached_runs: Sequence[_Run], goal: str, column: str) -> str:
    """Return the sentence on which of the runs that reached the target was the first, and by how much."""
    first, *slower = sorted(reached_runs, key=lambda run: run.mean(column))
    after = f"{first.mean(column):.3g} s" if column == "target_seconds" else f"{first.mean(column):,.0f} updates"
    seeds = f"{after}{_seeds_phrase(first)}"
    if not slower:
        return f"{first.name} reached {goal} after {seeds}"
    second = slower[0].name
    pair = _pair(tables, first.name, second, "to_target")
    if not np.isfinite(pair["least"]) or pair["least"] == pair["largest"] == 1:  # it took no time, or all took equally long
        return f"{_tied([first, *slower], column)} reached {goal} first, after {seeds}"
    if _lowest(pair) > 1:
        return f"{first.name} reached {goal} first, after {seeds}; {_range(pair)} times before {second}{_sure(pair)}"
    return (
        f"{first.name} reached {goal} first on average, after {seeds}, but is indistinguishable from {second}, "
        f"which took {_range(pair)} times as long{_sure(pair)}"
    )


def _not_reached(tables: Tables, runs: Sequence[_Run], goal: str, share: bool) -> str:
    """Return a sentence on runs none of which reached the target with all seeds: the seeds that did, or how the runs ended."""
    seeds_at_target = {run.name: int(run.values("target_updates").notna().sum()) for run in runs}
    best = max(runs, key=lambda run: seeds_at_target[run.name])
    denial = "No run reached" if len(runs) > 1 else f"{runs[0].name} did not reach"
    if seeds_at_target[best.name]:
        return f"{denial} {goal} with all seeds; {best.name} did with {seeds_at_target[best.name]} of {len(best.rows)}"
    return f"{denial} {goal}. {_at_the_end(tables, runs, share)}"


def _at_the_end(tables: Tables, runs: Sequence[_Run], share: bool) -> str:
    """Return a sentence that names the run with the lowest final error, or final loss if the error is not a share."""
    quantity = "error" if share else "loss"
    finite = sorted((run for run in runs if np.isfinite(run.mean(quantity))), key=lambda run: run.mean(quantity))
    if not finite:
        return (
            f"No run ended with a finite {quantity}" if len(runs) > 1 else f"{runs[0].name} ended without a finite {quantity}"
        )
    first = finite[0]
    value = f"{_measured(quantity, first.mean(quantity))}{_seeds_phrase(first)}"
    if len(finite) == 1:
        no_other = f"; no other run ended with a finite {quantity}" if len(runs) > 1 else ""
        return f"{first.name} ended with {quantity} {value}{no_other}"
    second, pair = finite[1].name, _pair(tables, first.name, finite[1].name, quantity)
    if pair["least"] == pair["largest"] == 0:
        return f"{_tied(finite, quantity)} ended with the same lowest {quantity}, {value}"
    if _lowest(pair) > 0:
        ends = [_measured(quantity, pair[end], is_difference=True) for end in _ends(pair)]
        difference = ends[0] if ends[0] == ends[1] else " to ".join(ends)
        return f"{first.name} ended with the lowest {quantity}, {value}; {second} came next, {difference} above it{_sure(pair)}"
    below, above = (_measured(quantity, abs(pair[end]), is_difference=True) for end in _ends(pair))
    return (
        f"{first.name} ended with the lowest mean {quantity}, {value}, but is indistinguishable from {second}, "
        f"which ended between {below} below and {above} above it{_sure(pair)}"
    )


def _throughput(tables: Tables, runs: Sequence[_Run]) -> str:
    """Return a sentence that names the run with the highest throughput."""
    ranked = [run for run in runs if np.isfinite(run.mean("throughput"))]
    ranked.sort(key=lambda run: -run.mean("throughput"))
    if not ranked:
        return _count_updates(runs)
    first = ranked[0]
    value = f"{first.mean('throughput'):.4g}{_seeds_phrase(first)}"
    if len(ranked) == 1:
        return f"{first.name} computed {first.mean('throughput'):.4g} gradients per second{_seeds_phrase(first)}"
    pair = _inverted(_pair(tables, first.name, ranked[1].name, "throughput"))  # the ratio of the first to the second
    if pair["least"] == pair["largest"] == 1:
        return f"{_tied(ranked, 'throughput')} computed equally many gradients per second, {value}"
    if _lowest(pair) > 1:
        return (
            f"{first.name} computed the most gradients per second, {value}; "
            f"{_range(pair)} times as many as {ranked[1].name}{_sure(pair)}"
        )
    return (
        f"{first.name} computed the most gradients per second on average, {value}, but is indistinguishable from "
        f"{ranked[1].name}: {_range(pair)} times as many{_sure(pair)}"
    )


def _count_updates(runs: Sequence[_Run]) -> str:
    """Return the verdict on runs without a task and a clock: their numbers of updates and gradients."""
    phrases = [
        f"{run.name} made {run.mean('updates'):,.0f} updates of {run.mean('gradients_applied'):,.0f} gradients" for run in runs
    ]
    remainder = f" (and {len(phrases) - 3} more runs)" if len(phrases) > 3 else ""
    return f"Nothing was learned or timed: {'; '.join(phrases[:3])}{remainder}"


def _caveats(runs: Sequence[_Run]) -> list[str]:
    diverged = [run.name for run in runs if run.values("diverged").notna().any()]
    standing = [run.name for run in runs if "standstill" in run.rows and run.rows["standstill"].notna().any()]
    phrases = [f"{briefly(diverged)} diverged"] if diverged else []
    return phrases + ([f"{briefly(standing)} came to a standstill"] if standing else [])


def _tied(ranked: Sequence[_Run], column: str) -> str:
    """Return the names of the runs that tie for the first place."""
    names = [run.name for run in ranked if run.mean(column) == ranked[0].mean(column)]
    return f"{names[0]} and {names[1] if len(names) < 3 else f'{len(names) - 1} other runs'}" if len(names) > 1 else names[0]


def _goals(runs: Sequence[_Run]) -> list[tuple[str, float]]:
    """Return the different targets: the quantity and the value of each."""
    measured = ("loss", "error", "gradient_norm")
    goals = {(quantity, goal) for run in runs for quantity in measured for goal in run.values(f"target_{quantity}").dropna()}
    return sorted(goals)


def _goal(quantity: str, goal: float, share: bool) -> str:
    if quantity == "error" and share:
        return f"{100 * goal:.3g} % error"
    return f"{'an' if quantity == 'error' else 'a'} {quantity.replace('_', ' ')} of {goal:.3g}"


def _is_share(tables: Tables) -> bool:
    """Return True if the error is surely a share of the examples.

    It is not if it is the root of the loss, and may not be with a loss of the user's own.
    """
    tasks = [outcome.run.task for outcome in tables.outcomes]
    if any(task and task.loss and registry.name_of("loss", task.loss) not in _SHARES for task in tasks):
        return False
    metrics = tables.metrics
    finite = metrics[np.isfinite(metrics["loss"]) & np.isfinite(metrics["error"])] if "loss" in metrics else pd.DataFrame()
    return len(finite) > 0 and not np.allclose(finite["error"] ** 2, finite["loss"], rtol=1e-4)


def _measured(quantity: str, value: float, is_difference: bool = False) -> str:
    """Return an error in per cent, a difference of errors in percentage points, or a loss as it is."""
    if quantity == "error":
        return f"{100 * value:.2g} points" if is_difference else f"{100 * value:.3g} %"
    return f"{value:.3g}"


def _pair(tables: Tables, baseline: str, run: str, quantity: str) -> pd.Series:
    """Return the paired comparison of a run with the baseline over the seeds: least, largest, low, high.

    The interval is that of a family of all runs, because the baseline and the other run are chosen by their results.
    """
    rows = compared(tables, baseline)
    return rows[(rows["quantity"] == quantity) & (rows["run"] == run)].iloc[0]


def _inverted(pair: pd.Series) -> pd.Series:
    """Return the ratio of the baseline to the run."""
    ends = {"low": "high", "high": "low", "least": "largest", "largest": "least"}
    return pd.Series({name: 1 / pair[opposite] for name, opposite in ends.items()})


def _ends(pair: pd.Series) -> tuple[str, str]:
    """Return the columns of the interval if there is one, else those of the range over the seeds."""
    return ("low", "high") if np.isfinite(pair["low"]) else ("least", "largest")


def _lowest(pair: pd.Series) -> float:
    """Return the lower end of the interval or range: the two runs differ if it is above 1 (ratio) or 0 (difference)."""
    return float(pair[_ends(pair)[0]])


def _range(pair: pd.Series) -> str:
    """Return the ends of the interval or range as text, one number if they are equal when rounded."""
    low, high = (f"{pair[end]:.3g}" if pair[end] >= 10 else f"{pair[end]:.2g}" for end in _ends(pair))
    return low if low == high else f"{low} to {high}"


def _sure(pair: pd.Series) -> str:
    """Return the phrase that says what a range is: a 95 % interval, or the range over the seeds."""
    low, _ = _ends(pair)
    if pair["least"] == pair["largest"]:
        return ""
    return " (95 % interval)" if low == "low" else " over the seeds, too few to decide"


def _seeds_phrase(run: _Run) -> str:
    number = len(run.rows)
    return f" ({'mean of ' if number > 1 else ''}{number} seed{'s' if number > 1 else ''})"
