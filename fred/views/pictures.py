"""The figures of a result: which ones apply, and the data of each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.outcomes.comparisons import compared, shared_seeds, trade_off
from fred.outcomes.outcome import Outcome
from fred.outcomes.tables import Tables, by_timing, staleness_counts, table
from fred.outcomes.tables import pace as paces
from fred.schedule.schedule import WAYS
from fred.schedule.spans import KINDS
from fred.schedule.traffic import copies
from fred.views import charts, comparison_figures, timeline
from fred.views.figures import Picture, over_seeds
from fred.views.view import OF_TIME, SCREEN, View

_EQUAL = 1e-4  # a disagreement below this share of the median is drawn as 0
_PARTS = 30  # number of intervals of a run, for its pace
_SLOWER = 1.25  # time of a gradient relative to the median worker from which a timeline marks a worker as slow

_UNITS = {"TB": 1e12, "GB": 1e9, "MB": 1e6}  # bytes


def drawable(tables: Tables, view: View = SCREEN) -> dict[str, Callable[[], Picture]]:
    """Return the figures that apply to these runs: by name, functions that draw them.

    Loss and error need a task; throughput and timeline need a clock. `copies` needs copies that were not sent, `traffic` needs
    messages, `staleness` needs stale gradients, and `pace` needs contention or faults. A sweep has figures of its own, and the
    figures of its best points.

    Args:
        tables: the tables of the runs; a figure is drawn only when its function is called.
        view: the axes, the width, and the colours. A run has the same colour in all figures, also as best point of its sweep.
    """
    view = coloured(tables, view)
    if tables.swept:
        names = ("sweep", "sweep-timing") if _timing_differs(tables) else ("sweep",)
        swept_figures = {name: partial(DRAW_FUNCTIONS[name], tables, view=view) for name in names}
        best = drawable(tables.with_its_best(), _look_like_swept_runs(tables, view)) if tables.reported_outcomes else {}
        return swept_figures | best | ({"cost": partial(cost, tables, view=view)} if _is_priced(tables) else {})
    return {name: partial(DRAW_FUNCTIONS[name], tables, view=view) for name in _applying(tables)}


def _applying(tables: Tables) -> Iterator[str]:
    """Yield the names of the figures that say something about these runs, without those of sweeps."""
    metrics = tables.metrics
    if "loss" in metrics:
        yield from ("loss", "error")
    if "perplexity" in metrics:
        yield "perplexity"
    if "gradient_norm" in metrics:
        yield "gradient-norm"
    if "disagreement" in metrics:
        yield from ("disagreement", "replicas-error")
    if shared_seeds(tables) > 1:
        yield "paired"
    if any(sum(outcome.summary["bytes"].values()) for outcome in tables.outcomes):
        yield "traffic"
    if any(outcome.summary["staleness"]["max"] for outcome in tables.outcomes):
        yield "staleness"
    if any(_suppressed(**outcome.summary["copies"]) for outcome in tables.outcomes):
        yield "copies"
    if any(outcome.has_clock for outcome in tables.outcomes):
        yield from ("throughput", "workers-time", "timeline")
    if any(_changing(outcome) for outcome in tables.outcomes):
        yield "pace"
    if _is_priced(tables):
        yield "cost"


def coloured(tables: Tables, view: View) -> View:
    """Return the view with a colour and dashes for each run, assigned in order. Points of a sweep share those of their run.

    Args:
        tables: the tables of all runs.
        view: a view; the looks that it has already are kept.
    """
    names = dict.fromkeys(tables.scenario.run_of(outcome.name) for outcome in tables.outcomes)
    return replace(view, looks=view.looks_of(names) | dict(view.looks))


def _look_like_swept_runs(tables: Tables, view: View) -> View:
    """Return the view in which each point of a sweep has the look of the swept run."""
    swept_runs = {name: tables.scenario.run_of(name) for name in tables.scenario.points}
    looks = {name: view.looks[run] for name, run in swept_runs.items() if run in view.looks}
    return replace(view, looks={**view.looks, **looks})


def learning(tables: Tables, quantity: str, view: View = SCREEN) -> Picture:
    """Draw learning curves against updates and virtual time. Raises FredError if the quantity was not measured.

    Args:
        tables: the tables of the runs.
        quantity: `loss`, `error`, `perplexity` or `gradient_norm`.
        view: other horizontal axes, the width, and the colours.
    """
    metrics = tables.metrics
    if "loss" not in metrics:
        raise FredError(f"there is no {quantity} to plot: the scenario has no `task`, so only the timing was simulated")
    if quantity not in metrics:
        needs_sequences = "only sequences with the loss `cross-entropy` have one"
        cure = needs_sequences if quantity == "perplexity" else f"set `evaluate.{quantity}: true`"
        raise FredError(f"there is no {quantity} to plot: {cure}")
    view = coloured(tables, view)
    metrics = metrics[metrics.groupby("run")[quantity].transform("count") > 0]  # runs that measured it
    return charts.learning(metrics, quantity, tables.scenario.title, tables.target(quantity), view)


def of_replicas(tables: Tables, quantity: str, view: View = SCREEN) -> Picture:
    """Draw a quantity of the workers' own models. Raises FredError if no run has such models.

    Args:
        tables: the tables of the runs.
        quantity: `disagreement` (the distance of the models from their mean), `replicas_loss` or `replicas_error`.
        view: other horizontal axes, the width, and the colours.
    """
    metrics = tables.metrics
    if quantity not in metrics:
        raise FredError("nothing to plot: in these runs workers have no models of their own")
    measured = metrics.dropna(subset=quantity)
    if quantity == "disagreement":  # just averaged models are equal except for rounding
        values = measured[quantity]
        measured = measured.assign(**{quantity: values.where(values > _EQUAL * values.median(), 0.0)})
    return charts.learning(measured, quantity, tables.scenario.title, view=coloured(tables, view))


def paired(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw each run's difference from the baseline, or ratio to it, seed by seed. Raises FredError if nothing is comparable.

    Args:
        tables: the tables of the runs.
        view: the width, and the colours.
    """
    pairs = compared(tables)
    if pairs.empty:
        raise FredError("nothing to plot: no two runs have seeds in common")
    return comparison_figures.paired(pairs, tables.scenario.title, coloured(tables, view))


def traffic(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw the traffic of each run by direction, MB (10^6 bytes), averaged over the seeds.

    Args:
        tables: the tables of the runs.
        view: the width.
    """
    most = max(sum(sizes.values()) for sizes in _means(tables.outcomes, "bytes", WAYS, 1.0).values())
    unit, size = next((unit for unit in _UNITS.items() if most >= unit[1]), ("kB", 1e3))
    sent = _means(tables.outcomes, "bytes", WAYS, 1 / size)
    return charts.stacked(sent, f"sent over the network, {unit}", note=_means_phrase(tables.outcomes), view=view)


def sent_copies(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw the copies pushed and fetched against potential copies, for the first seed. Raises FredError without a server."""
    copies_by_run: dict[str, pd.DataFrame] = {}
    for name in dict.fromkeys(outcome.name for outcome in tables.outcomes):
        outcome = tables.outcome(name)
        if outcome.summary["copies"]["potential"]:
            copies_by_run[name] = copies(outcome.schedule)
    if not copies_by_run:
        raise FredError("nothing to plot: in these runs nothing is pushed to a server")
    return charts.copies(copies_by_run, _first_seed(tables.outcomes), coloured(tables, view))


def throughput(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw the throughput: gradients used per second of virtual time, mean and range over the seeds.

    Raises FredError if no run has a clock.
    """
    values: dict[str, list[float]] = {}
    for outcome in _clocked(tables):
        values.setdefault(outcome.name, []).append(outcome.summary["throughput"] or 0.0)
    note = _means_phrase(_clocked(tables))
    return charts.spread(values, "gradients used per second of virtual time", note, coloured(tables, view))


def pace(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw the throughput over time, mean and range over the seeds. Raises FredError if no run has a clock.

    Args:
        tables: the tables of the runs; the pace is taken as constant between two evaluations.
        view: the width, and the colours.
    """
    view = replace(coloured(tables, view), against=("seconds",))
    frame = pd.concat(
        [paces(outcome.metrics, _PARTS).assign(run=outcome.name, seed=outcome.seed) for outcome in _clocked(tables)]
    )
    return charts.learning(frame, "gradients per second", tables.scenario.title, view=view, from_zero=True)


def _changing(outcome: Outcome) -> bool:
    """Return True if the run has a clock and its cluster has contention or faults."""
    cluster = outcome.run.cluster
    return outcome.has_clock and bool(cluster.contention or cluster.faults)


def cost(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw the cost of each run, or point of a sweep, against its time. Raises FredError if no run has prices.

    Args:
        tables: the tables of the runs; both count until the target, or without one until the end.
        view: the width, and the colours.
    """
    points, priced = trade_off(tables), [outcome for outcome in tables.outcomes if _has_cost(outcome)]
    means, missed = _means_phrase(priced), len({outcome.name for outcome in priced} - set(points["point"]))
    misses = f"{missed} more missed the target{' with some seed' if means else ''}" if missed else ""
    return comparison_figures.cost(points, tables.scenario.title, means, misses, coloured(tables, view))


def _is_priced(tables: Tables) -> bool:
    """Return True if two runs, or points, have a time and a cost."""
    return any(map(_has_cost, tables.outcomes)) and len(trade_off(tables)) > 1


def _has_cost(outcome: Outcome) -> bool:
    return outcome.has_clock and outcome.run.cluster.prices is not None


def workers_time(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw the shares of the workers' time in each run, averaged over the seeds. Raises FredError if no run has a clock."""
    percent = _means(_clocked(tables), "workers_time", KINDS, 100)
    colours = [OF_TIME[kind] for kind in KINDS]
    return charts.stacked(percent, "% of the workers' time", colours, _means_phrase(_clocked(tables)), view)


def stale_gradients(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw histograms of the staleness of all gradients that were used in updates, with all seeds together.

    Args:
        tables: the tables of the runs; runs with the same schedules share a panel.
        view: the width, and the colours.
    """
    note = f"all gradients that were used{', of all seeds together' if _means_phrase(tables.outcomes) else ''}"
    return charts.staleness(staleness_counts(tables.outcomes), note, coloured(tables, view))


def timeline_of(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw each worker's activities at the start of each run, around the first fault of all runs, or at another time.

    Args:
        tables: the tables of the runs; of those with a clock, one of each timing is drawn, for the first seed.
        view: the workers, the time interval, and the width.
    """
    clocked = _clocked(tables)
    schedules = {shared: tables.outcome(shared[0]).schedule for shared in by_timing(clocked)}
    slow = {shared: _slow(tables.outcome(shared[0]).run.cluster) for shared in schedules}
    return timeline.timeline(schedules, _first_seed(clocked), view, slow)


def _slow(cluster: Cluster) -> set[int]:
    """Return the workers that are clearly slower than the median one even without contention and faults."""
    try:
        rates = np.array(cluster.worker_rates())
    except FredError:  # the file of a trace may be gone
        return set()
    return set(np.flatnonzero(rates * _SLOWER < np.median(rates)).tolist())


def sweep(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw the criterion at every point, with a line for each run. Raises FredError if there is no sweep."""
    _check_swept(tables)
    scenario, view = tables.scenario, coloured(tables, view)
    return comparison_figures.sweep(tables.sweep, scenario.criterion, scenario.title, _means_phrase(tables.outcomes), view)


def sweep_timing(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw time, throughput and waiting at every point, with a line for each run. Raises FredError if there is no sweep."""
    _check_swept(tables)
    summary = tables.summary
    by_column = {criterion.column: table(tables.scenario, summary, criterion) for criterion in comparison_figures.OF_TIMING}
    return comparison_figures.timing(by_column, tables.scenario.title, _means_phrase(tables.outcomes), coloured(tables, view))


DRAW_FUNCTIONS: dict[str, Callable[..., Picture]] = {  # by `FigureName`, functions of tables and a view
    "loss": partial(learning, quantity="loss"),
    "error": partial(learning, quantity="error"),
    "perplexity": partial(learning, quantity="perplexity"),
    "gradient-norm": partial(learning, quantity="gradient_norm"),
    "disagreement": partial(of_replicas, quantity="disagreement"),
    "replicas-error": partial(of_replicas, quantity="replicas_error"),
    "paired": paired,
    "traffic": traffic,
    "staleness": stale_gradients,
    "copies": sent_copies,
    "throughput": throughput,
    "workers-time": workers_time,
    "timeline": timeline_of,
    "pace": pace,
    "cost": cost,
    "sweep": sweep,
    "sweep-timing": sweep_timing,
}


def _clocked(tables: Tables) -> list[Outcome]:
    clocked = [outcome for outcome in tables.outcomes if outcome.has_clock]
    if not clocked:
        raise FredError("nothing to plot: these runs have no clock")
    return clocked


def _means_phrase(outcomes: Iterable[Outcome]) -> str:
    """Return the phrase that says over how many seeds means are taken; empty for one seed."""
    outcomes = list(outcomes)
    return over_seeds([outcome.name for outcome in outcomes], [outcome.seed for outcome in outcomes])


def _first_seed(outcomes: Sequence[Outcome]) -> str:
    """Return the phrase that names the shown seed; empty if the first run has only one."""
    seeds = [outcome.seed for outcome in outcomes if outcome.name == outcomes[0].name]
    return f"seed {seeds[0]}, of {len(seeds)}" if len(seeds) > 1 else ""


def _check_swept(tables: Tables) -> None:
    if not tables.swept:
        raise FredError("nothing to plot: the scenario has no `sweep`")


def _timing_differs(tables: Tables) -> bool:
    """Return True if the points of some swept run differ in timing, with the same seed."""
    digests: dict[tuple[str, int], set[str]] = {}
    for outcome in tables.outcomes:
        if outcome.name in tables.scenario.points and outcome.has_clock:
            swept_run = tables.scenario.run_of(outcome.name)
            digests.setdefault((swept_run, outcome.seed), set()).add(outcome.schedule_digest)
    return any(len(digests_of_points) > 1 for digests_of_points in digests.values())


def _suppressed(potential: int | None, pushes: int | None, fetches: int | None) -> bool:
    """Return True if some, but not all, potential copies were left out."""
    return bool(potential and pushes and fetches) and (pushes, fetches) != (potential, potential)


def _means(outcomes: Sequence[Outcome], fact: str, parts: Sequence[str], unit: float) -> dict[str, dict[str, float]]:
    """Return for each run the mean over its seeds of each part of a fact in the summary, multiplied by `unit`."""
    rows = pd.DataFrame([{"run": outcome.name, **outcome.summary[fact]} for outcome in outcomes]).astype(
        dict.fromkeys(parts, float)
    )
    means = rows.groupby("run", sort=False)[list(parts)].mean().fillna(0.0) * unit
    return {str(name): dict(zip(parts, values.tolist(), strict=True)) for name, values in means.iterrows()}
