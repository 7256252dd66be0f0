"""The number N of N + b workers to wait for [Chen, Pan, Monga, Bengio, Jozefowicz 2017, sections 3.1-3.2, figures 3-6].

The time to the target is the number of iterations with N gradients, times the mean time of the N-th of N + b arrivals. Both
can be measured in synchronous runs. `fred plan` prints the time for each N, and draws it.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import gammaln

from fred.base.errors import FredError
from fred.base.types import Floats
from fred.components.component import NANOSECONDS
from fred.outcomes.outcome import Outcome
from fred.protocols.synchronous import Synchronous
from fred.schedule.schedule import Schedule, Verb
from fred.views.figures import COLOURS, Picture, style
from fred.views.table import Cell, Table, show, terminal

Curve = Literal["linear", "fitted"]
_MOST_PLANS = 20  # plans shown, apart from those around the best


@dataclass(frozen=True, eq=False)
class Plan:
    """The time to the target for every N with a known number of iterations; the other workers are backups."""

    workers: int  # N + b
    waited_for: NDArray[np.int64]  # N [plans]
    iterations: Floats  # to the target [plans]
    arrival: Floats  # mean time of the N-th of N + b gradients, s [plans]

    @property
    def seconds(self) -> Floats:
        """Return the time to the target, s [plans]."""
        return self.iterations * self.arrival

    @property
    def best_index(self) -> int:
        """Return the index of the plan that converges first."""
        return int(np.argmin(self.seconds))

    def json(self) -> str:
        """Return all of it as one JSON object."""
        columns = {name: getattr(self, name).tolist() for name in ("waited_for", "iterations", "arrival", "seconds")}
        plans = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return json.dumps({"workers": self.workers, "best": plans[self.best_index], "plans": plans}, indent=2)


def plan(arrivals: Floats, table: Mapping[int, float], curve: Curve = "linear") -> Plan:
    """Return, for every N where both are known, iterations to the target times mean time of the N-th arrival.

    `arrivals`: mean times of the first to the last of N + b arrivals, s [workers]. `table`: iterations at some N. Raises
    ValueError if no N is left.
    """
    counts = np.arange(1, len(arrivals) + 1)
    iterations = iterations_at(counts, table, curve)
    is_finite = np.isfinite(iterations)
    if not is_finite.any():
        raise ValueError(f"iterations are known for N = {min(table)} to {max(table)}, but there are {len(arrivals)} workers")
    return Plan(len(arrivals), counts[is_finite], iterations[is_finite], np.asarray(arrivals, float)[is_finite])


def iterations_at(counts: NDArray[np.int64], table: Mapping[int, float], curve: Curve = "linear") -> Floats:
    """Return the iterations to the target when N gradients are averaged, from a table of some N.

    `linear` interpolates, as the paper does, and returns NaN beyond the table. `fitted` is least + noise / N, fitted to the
    smallest relative squares with neither below 0. `least` is what the exact gradient would need; noise / N is what
    gradient noise adds [McCandlish et al. 2018]. Raises ValueError for a table that is empty, has too few N to fit, or has
    values that are not positive.
    """
    counts_in_table = np.array(sorted(table), float)
    measured = np.array([table[int(count)] for count in counts_in_table], float)
    fewest = 1 if curve == "linear" else 2
    if len(counts_in_table) < fewest or not (counts_in_table > 0).all() or not ((measured > 0) & np.isfinite(measured)).all():
        raise ValueError(
            f"expected a positive number of iterations for each of {fewest} or more positive N, found {dict(table)}"
        )
    if curve == "linear":
        return np.interp(counts, counts_in_table, measured, left=np.nan, right=np.nan)
    # Every equation is divided by its measured value, so that relative errors count; its right side is 1.
    terms = np.stack([1 / measured, 1 / (counts_in_table * measured)], axis=1)
    least_iterations, noise = nnls(terms, np.ones(len(counts_in_table)))[0]
    return np.asarray(least_iterations + noise / counts)


def mean_arrivals(seconds: Floats, workers: int | None = None) -> Floats:
    """Return the mean time of the k-th arrival in recorded rounds, s [workers]; `seconds`: [rounds, workers], in any order.

    `workers`: number of workers, by default all that were recorded. Fewer are averaged over all ways to choose them. The
    k-th of m is the i-th of n in (i-1 over k-1) (n-i over m-k) of (n over m) cases. Raises ValueError for more workers than
    were recorded.
    """
    ordered = np.sort(seconds, axis=1).mean(axis=0)
    recorded = len(ordered)
    chosen_workers = recorded if workers is None else workers
    if not 1 <= chosen_workers <= recorded:
        raise ValueError(f"expected 1 to {recorded} workers, the number recorded; found {workers}")
    if chosen_workers == recorded:
        return ordered
    i, k = np.arange(1, recorded + 1), np.arange(1, chosen_workers + 1)[:, None]
    possible = (i >= k) & (recorded - i >= chosen_workers - k)
    log_cases = _log_choices(i - 1, k - 1, possible) + _log_choices(recorded - i, chosen_workers - k, possible)
    shares = np.where(possible, np.exp(log_cases - _log_choices(recorded, chosen_workers)), 0.0)  # [k, i]
    return shares @ ordered


def _log_choices(
    total: NDArray[np.int64] | int, part: NDArray[np.int64] | int, possible: NDArray[np.bool_] | bool = True
) -> Floats:
    """Return the logarithm of the binomial coefficient (total over part), where it is possible; 0 elsewhere."""
    part, remainder = np.where(possible, part, 0), np.where(possible, np.subtract(total, part), 0)
    return gammaln(part + remainder + 1) - gammaln(part + 1) - gammaln(remainder + 1)


def print_plan(plan: Plan, source: str) -> None:
    """Print plans, those around the best included, and the gain of the best in words; `source` names the arrivals."""
    best, last = plan.best_index, len(plan.waited_for) - 1
    indices = {  # of the plans that are shown
        *np.linspace(0, last, min(_MOST_PLANS, last + 1)).round().astype(int).tolist(),
        *range(max(0, best - 2), best + 3),
    }
    rows = []
    for i in sorted(indices & set(range(last + 1))):
        count, ratio = int(plan.waited_for[i]), plan.seconds[i] / plan.seconds[best]
        numbers = [f"{column[i]:,.4g}" for column in (plan.iterations, plan.arrival, plan.seconds)]
        cells = [str(count), str(plan.workers - count), *numbers, "best" if i == best else f"{ratio:.3f}"]
        rows.append([Cell(cell, strong=i == best) for cell in cells])
    headings = ["N", "b", "iterations", "mean time of the N-th, s", "to the target, s", "of the best"]
    console = terminal()
    show(Table(headings, rows, source), console)
    count = plan.waited_for[best]
    comparison = (
        f", {plan.seconds[last] / plan.seconds[best]:.2f} times as fast as N = {plan.waited_for[last]}" if best < last else ""
    )
    console.print(f"N = {count}, b = {plan.workers - count} converges first{comparison}.", highlight=False)


def picture(plan: Plan) -> Picture:
    """Plot iterations, mean time of the N-th arrival, and their product against N, with a star at the best N.

    Args:
        plan: plan with iterations, mean arrival (s) and time to the target (s) by N, the number of workers waited for.
    """
    best = plan.best_index
    panels = (("iterations to the target", plan.iterations), ("mean time of the N-th, s", plan.arrival))
    with style():
        figure = Picture(figsize=(9.6, 2.8), layout="constrained")
        axes = figure.subplots(1, 3)
        for axis, (label, values) in zip(axes, (*panels, ("time to the target, s", plan.seconds)), strict=True):
            axis.plot(plan.waited_for, values, color=COLOURS[0])
            axis.set(xlabel=f"N, of {plan.workers} workers", ylabel=label)
        axes[2].plot(plan.waited_for[best], plan.seconds[best], "*", color=COLOURS[1], markersize=12)
        axes[2].set_title(f"N = {plan.waited_for[best]}, b = {plan.workers - plan.waited_for[best]}")
    return figure


def arrivals(schedule: Schedule) -> NDArray[np.float64]:
    """Return the arrival times of each round's gradients, s since the previous round was complete [rounds, gradients].

    They cover complete rounds of the first block. Raises ValueError if there is none, or if rounds differ in size.

    Args:
        schedule: schedule of a synchronous run.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 3, "compute": {"name": "uniform", "low": 1, "high": 2}},
    ...     algorithm={"name": "ssgd", "learning_rate": 0.1},
    ...     stop={"updates": 2},
    ... )
    >>> arrivals(fred.run(scenario).outcome("ssgd").schedule).round(2)
    array([[1.39, 1.65, 1.7 ],
           [1.26, 1.38, 1.56]])
    """
    is_first_block = schedule["block"] == 0
    adds, commits = (np.flatnonzero(is_first_block & (schedule["verb"] == verb)) for verb in (Verb.ADD, Verb.COMMIT))
    round_of = np.searchsorted(commits, adds)  # of each ADD row: the number of COMMIT rows before it
    sizes = np.bincount(round_of, minlength=len(commits))[: len(commits)]  # without the last, incomplete round
    if len(set(sizes.tolist())) != 1:
        raise ValueError("expected complete rounds with the same number of gradients each")
    round_starts = np.concatenate(([0], schedule["time_ns"][commits[:-1]]))
    arrival_times = schedule["time_ns"][adds[round_of < len(commits)]].reshape(len(commits), -1)
    return (arrival_times - round_starts[:, None]) / NANOSECONDS


def rounds_of(outcomes: Sequence[Outcome]) -> NDArray[np.float64]:
    """Return the arrival times in the largest runs that wait for all workers, s [rounds, workers]. Raises FredError.

    Args:
        outcomes: outcomes, of which those with the protocol `synchronous` without backup workers are used.
    """
    waiting = [outcome for outcome in outcomes if outcome.run.protocol == Synchronous()]
    if not waiting:
        raise FredError(
            "expected a run with the protocol `synchronous` without backup workers, to measure arrivals; found none"
        )
    most = max(outcome.run.cluster.size for outcome in waiting)
    try:
        return np.concatenate([arrivals(outcome.schedule) for outcome in waiting if outcome.run.cluster.size == most])
    except ValueError as error:
        raise FredError(f"the runs that wait for all {most} workers: {error}") from error


def iterations_of(outcomes: Sequence[Outcome]) -> dict[int, float]:
    """Return updates to the target by number of averaged gradients, mean over runs and seeds. Raises FredError.

    Args:
        outcomes: outcomes, of which those with the protocol `synchronous` and a target are used; all must have reached it.
    """
    updates_by_count: dict[int, list[int]] = defaultdict(list)
    for outcome in outcomes:
        protocol, target = outcome.run.protocol, outcome.summary["target"]
        if not isinstance(protocol, Synchronous) or target is None:
            continue
        if target["updates"] is None:
            raise FredError(f"run {outcome.name}, seed {outcome.seed}, did not reach its target: run it for longer")
        updates_by_count[outcome.run.cluster.size - protocol.backup_workers].append(target["updates"])
    if not updates_by_count:
        raise FredError("no run of the protocol `synchronous` with a target here; give --iterations, or `evaluate.target_loss`")
    return {count: float(np.mean(updates)) for count, updates in updates_by_count.items()}
