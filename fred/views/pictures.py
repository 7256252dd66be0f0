"""The figures of a result: which ones apply, and the data of each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.outcomes import sweeps
from fred.outcomes.comparisons import compared, shared_seeds, trade_off
from fred.outcomes.outcome import Outcome
from fred.outcomes.tables import Tables, by_timing, staleness_counts
from fred.outcomes.tables import pace as paces
from fred.schedule.schedule import WAYS
from fred.schedule.spans import KINDS
from fred.schedule.traffic import copies
from fred.views import bars, comparison_figures, curves, sweep_figures, timeline
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
        own = {name: partial(DRAWN[name], tables, view=view) for name in names}
        best = drawable(tables.with_its_best(), _of_points(tables, view)) if tables.chosen else {}
        return own | best | ({"cost": partial(cost, tables, view=view)} if _is_priced(tables) else {})
    return {name: partial(DRAWN[name], tables, view=view) for name in _applying(tables)}


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
    if any(sum(each.summary["bytes"].values()) for each in tables.outcomes):
        yield "traffic"
    if any(each.summary["staleness"]["max"] for each in tables.outcomes):
        yield "staleness"
    if any(_suppressed(**each.summary["copies"]) for each in tables.outcomes):
        yield "copies"
    if any(each.has_clock for each in tables.outcomes):
        yield from ("throughput", "workers-time", "timeline")
    if any(_changing(each) for each in tables.outcomes):
        yield "pace"
    if _is_priced(tables):
        yield "cost"


def coloured(tables: Tables, view: View) -> View:
    """Return the view with a colour and dashes for each run, assigned in order. Points of a sweep share those of their run.

    Args:
        tables: the tables of all runs.
        view: a view; the looks that it has already are kept.
    """
    names = dict.fromkeys(tables.scenario.run_of(each.name) for each in tables.outcomes)
    return replace(view, looks=view.looks_of(names) | dict(view.looks))


def _of_points(tables: Tables, view: View) -> View:
    """Return the view in which each point of a sweep has the look of the swept run."""
    return replace(
        view,
        looks={
            **view.looks,
            **{name: view.looks[each.of] for name, each in tables.scenario.points.items() if each.of in view.looks},
        },
    )


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
        needs = "only sequences with the loss `cross-entropy` have one"
        needs = needs if quantity == "perplexity" else f"set `evaluate.{quantity}: true`"
        raise FredError(f"there is no {quantity} to plot: {needs}")
    view = coloured(tables, view)
    metrics = metrics[metrics.groupby("run")[quantity].transform("count") > 0]  # runs that measured it
    return curves.learning(metrics, quantity, tables.scenario.title, tables.target(quantity), view)


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
    drawn = metrics.dropna(subset=quantity)
    if quantity == "disagreement":  # just averaged models are equal except for rounding
        own = drawn[quantity]
        drawn = drawn.assign(**{quantity: own.where(own > _EQUAL * own.median(), 0.0)})
    return curves.learning(drawn, quantity, tables.scenario.title, view=coloured(tables, view))


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
    most = max(sum(own.values()) for own in _means(tables.outcomes, "bytes", WAYS, 1.0).values())
    unit, size = next((each for each in _UNITS.items() if most >= each[1]), ("kB", 1e3))
    sent = _means(tables.outcomes, "bytes", WAYS, 1 / size)
    return bars.stacked(sent, f"sent over the network, {unit}", said=_over(tables.outcomes), view=view)


def sent_copies(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw the copies pushed and fetched against potential copies, for the first seed. Raises FredError without a server."""
    drawn: dict[str, pd.DataFrame] = {}
    for name in dict.fromkeys(each.name for each in tables.outcomes):
        own = tables.outcome(name)
        if own.summary["copies"]["potential"]:
            drawn[name] = copies(own.schedule)
    if not drawn:
        raise FredError("nothing to plot: in these runs nothing is pushed to a server")
    return curves.copies(drawn, _first_seed(tables.outcomes), coloured(tables, view))


def throughput(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw the throughput: gradients used per second of virtual time, mean and range over the seeds.

    Raises FredError if no run has a clock.
    """
    values: dict[str, list[float]] = {}
    for each in _clocked(tables):
        values.setdefault(each.name, []).append(each.summary["throughput"] or 0.0)
    said = _over(_clocked(tables))
    return bars.spread(values, "gradients used per second of virtual time", said, coloured(tables, view))


def pace(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw the throughput over time, mean and range over the seeds. Raises FredError if no run has a clock.

    Args:
        tables: the tables of the runs; the pace is taken as constant between two evaluations.
        view: the width, and the colours.
    """
    view = replace(coloured(tables, view), against=("seconds",))
    frame = pd.concat([paces(each.metrics, _PARTS).assign(run=each.name, seed=each.seed) for each in _clocked(tables)])
    return curves.learning(frame, "gradients per second", tables.scenario.title, view=view, from_zero=True)


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
    points, priced = trade_off(tables), [each for each in tables.outcomes if _has_cost(each)]
    means, missed = _over(priced), len({each.name for each in priced} - set(points["point"]))
    left = f"{missed} more missed the target{' with some seed' if means else ''}" if missed else ""
    return comparison_figures.cost(points, tables.scenario.title, means, left, coloured(tables, view))


def _is_priced(tables: Tables) -> bool:
    """Return True if two runs, or points, have a time and a cost."""
    return any(map(_has_cost, tables.outcomes)) and len(trade_off(tables)) > 1


def _has_cost(outcome: Outcome) -> bool:
    return outcome.has_clock and outcome.run.cluster.prices is not None


def workers_time(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw the shares of the workers' time in each run, averaged over the seeds. Raises FredError if no run has a clock."""
    percent = _means(_clocked(tables), "workers_time", KINDS, 100)
    colours = [OF_TIME[kind] for kind in KINDS]
    return bars.stacked(percent, "% of the workers' time", colours, _over(_clocked(tables)), view)


def stale_gradients(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw histograms of the staleness of all gradients that were used in updates, with all seeds together.

    Args:
        tables: the tables of the runs; runs with the same schedules share a panel.
        view: the width, and the colours.
    """
    said = f"all gradients that were used{', of all seeds together' if _over(tables.outcomes) else ''}"
    return bars.staleness(staleness_counts(tables.outcomes), said, coloured(tables, view))


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
    """Return the workers that are clearly slower than the median one by themselves."""
    try:
        rates = np.array(cluster.worker_rates())
    except FredError:  # the file of a trace may be gone
        return set()
    return set(np.flatnonzero(rates * _SLOWER < np.median(rates)).tolist())


def sweep(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw the criterion at every point, with a line for each run. Raises FredError if there is no sweep."""
    _check_swept(tables)
    scenario, view = tables.scenario, coloured(tables, view)
    return sweep_figures.sweep(tables.sweep, scenario.criterion, scenario.title, _over(tables.outcomes), view)


def sweep_timing(tables: Tables, view: View = SCREEN) -> Picture:
    """Draw time, throughput and waiting at every point, with a line for each run. Raises FredError if there is no sweep."""
    _check_swept(tables)
    summary = tables.summary
    by_column = {each.column: sweeps.table(tables.scenario, summary, each) for each in sweep_figures.OF_TIMING}
    return sweep_figures.timing(by_column, tables.scenario.title, _over(tables.outcomes), coloured(tables, view))


DRAWN: dict[str, Callable[..., Picture]] = {  # by `FigureName`, functions of tables and a view
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
    clocked = [each for each in tables.outcomes if each.has_clock]
    if not clocked:
        raise FredError("nothing to plot: these runs have no clock")
    return clocked


def _over(outcomes: Iterable[Outcome]) -> str:
    """Return the phrase that says over how many seeds means are taken; empty for one seed."""
    outcomes = list(outcomes)
    return over_seeds([each.name for each in outcomes], [each.seed for each in outcomes])


def _first_seed(outcomes: Sequence[Outcome]) -> str:
    """Return the phrase that names the shown seed; empty if the first run has only one."""
    seeds = [each.seed for each in outcomes if each.name == outcomes[0].name]
    return f"seed {seeds[0]}, of {len(seeds)}" if len(seeds) > 1 else ""


def _check_swept(tables: Tables) -> None:
    if not tables.swept:
        raise FredError("nothing to plot: the scenario has no `sweep`")


def _timing_differs(tables: Tables) -> bool:
    """Return True if the timing differs between the points of a sweep."""
    digests: dict[tuple[str, int], set[str]] = {}
    for each in tables.outcomes:
        if each.name in tables.scenario.points and each.has_clock:
            point = tables.scenario.points[each.name].of, each.seed
            digests.setdefault(point, set()).add(each.schedule_digest)
    return any(len(own) > 1 for own in digests.values())


def _suppressed(potential: int | None, pushes: int | None, fetches: int | None) -> bool:
    """Return True if some, but not all, potential copies were left out."""
    return bool(potential and pushes and fetches) and (pushes, fetches) != (potential, potential)


def _means(outcomes: Sequence[Outcome], fact: str, parts: Sequence[str], unit: float) -> dict[str, dict[str, float]]:
    """Return for each run the mean over its seeds of each part of a fact in the summary, multiplied by `unit`."""
    rows = pd.DataFrame([{"run": each.name, **each.summary[fact]} for each in outcomes]).astype(dict.fromkeys(parts, float))
    means = rows.groupby("run", sort=False)[list(parts)].mean().fillna(0.0) * unit
    return {str(name): dict(zip(parts, own.tolist(), strict=True)) for name, own in means.iterrows()}
