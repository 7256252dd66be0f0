"""Which pictures there are of what runs came to, and of which numbers each is drawn."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest

import numpy as np
import pandas as pd

from fred.errors import FredError
from fred.outcomes import staleness, sweeps
from fred.outcomes.measures import copies
from fred.outcomes.measures import pace as paces
from fred.outcomes.outcome import Outcome
from fred.outcomes.paired import compared, shared_seeds
from fred.outcomes.spans import KINDS
from fred.outcomes.tables import Tables
from fred.schedule.schedule import WAYS
from fred.views import bars, curves, paired_figure, sweep_figures, timeline
from fred.views.figures import Picture, over_seeds
from fred.views.view import OF_TIME, View

_EQUAL = 1e-4  # of the median disagreement: what is less is drawn as 0
_PARTS = 30  # of a run, of each of which the pace is drawn

_UNITS = {"TB": 1e12, "GB": 1e9, "MB": 1e6}  # bytes


def drawable(tables: Tables, view: View | None = None) -> dict[str, Callable[[], Picture]]:
    """Those that show something of these runs, by name; of a sweep's, its own and those of the best points.

    Args:
        tables: what the runs came to; nothing is drawn before a picture is called.
        view: how they are looked at; a run has the same colour in all of them, also where it is the best point of its sweep.

    Without a task there is no loss or error; without a clock no throughput and no timeline; copies are drawn where some were
    not sent, traffic where something was, staleness where something is stale, the pace where the cluster changes with time.
    """
    view = coloured(tables, view)
    if tables.swept:
        timing = {"sweep-timing": partial(sweep_timing, tables, view)} if _timing_differs(tables) else {}
        own = {"sweep": partial(sweep, tables, view)} | timing
        return own | (drawable(tables.with_its_best(), _of_points(tables, view)) if tables.chosen else {})
    metrics = tables.metrics
    drawn: dict[str, Callable[[], Picture]] = {}
    if "loss" in metrics:
        drawn |= {"loss": partial(learning, tables, "loss", view), "error": partial(learning, tables, "error", view)}
    if "perplexity" in metrics:
        drawn["perplexity"] = partial(learning, tables, "perplexity", view)
    if "gradient_norm" in metrics:
        drawn["gradient-norm"] = partial(learning, tables, "gradient_norm", view)
    if "disagreement" in metrics:
        own_models = {"disagreement": "disagreement", "replicas-error": "replicas_error"}
        drawn |= {name: partial(of_replicas, tables, quantity, view) for name, quantity in own_models.items()}
    if shared_seeds(tables) > 1:
        drawn["paired"] = partial(paired, tables, view)
    if any(sum(each.summary["bytes"].values()) for each in tables.outcomes):
        drawn["traffic"] = partial(traffic, tables, view)
    if any(each.summary["staleness"]["max"] for each in tables.outcomes):
        drawn["staleness"] = partial(stale_gradients, tables, view)
    if any(_suppressed(**each.summary["copies"]) for each in tables.outcomes):
        drawn["copies"] = partial(sent_copies, tables, view)
    if any(each.run.protocol.has_clock for each in tables.outcomes):
        drawn |= {"throughput": partial(throughput, tables, view), "workers-time": partial(workers_time, tables, view)}
        drawn |= {"timeline": partial(timeline_of, tables, view)}
    if any(_changing(each) for each in tables.outcomes):
        drawn["pace"] = partial(pace, tables, view)
    return drawn


def coloured(tables: Tables, view: View | None) -> View:
    """The view with a look for each run (of a sweep: each swept run), by the order of all of them.

    Args:
        tables: what all runs came to.
        view: which may have looks already.
    """
    view = view or View()
    points = tables.scenario.points
    names = dict.fromkeys(points[each.name].of if each.name in points else each.name for each in tables.outcomes)
    return replace(view, looks=view.looks_of(names) | dict(view.looks))


def _of_points(tables: Tables, view: View) -> View:
    """The view in which each point of a sweep looks like the run whose point it is."""
    return replace(
        view,
        looks={
            **view.looks,
            **{name: view.looks[each.of] for name, each in tables.scenario.points.items() if each.of in view.looks},
        },
    )


def learning(tables: Tables, quantity: str, view: View | None = None) -> Picture:
    """What was learned against updates and against virtual time. Raises FredError where it was not measured.

    Args:
        tables: what the runs came to.
        quantity: `loss`, `error` or `gradient_norm`.
        view: against what else, how wide.
    """
    metrics = tables.metrics
    if "loss" not in metrics:
        raise FredError(f"there is no {quantity} to plot: the scenario has no `task`, so only the timing was simulated")
    if quantity not in metrics:
        raise FredError(f"there is no {quantity} to plot: say `evaluate.{quantity}: true`")
    view = coloured(tables, view)
    metrics = metrics[metrics.groupby("run")[quantity].transform("count") > 0]  # those that measured it
    return curves.learning(metrics, quantity, tables.scenario.title, tables.target(quantity), view)


def of_replicas(tables: Tables, quantity: str, view: View | None = None) -> Picture:
    """What is measured of workers' own models. Raises FredError where no run has such models.

    Args:
        tables: what the runs came to.
        quantity: `disagreement` (how far the models are from their mean), `replicas_loss` or `replicas_error`.
        view: against what else, how wide.
    """
    metrics = tables.metrics
    if quantity not in metrics:
        raise FredError("nothing to plot: in these runs workers have no models of their own")
    drawn = metrics.dropna(subset=quantity)
    if quantity == "disagreement":  # models that have just been averaged are equal, but for rounding
        own = drawn[quantity]
        drawn = drawn.assign(**{quantity: own.where(own > _EQUAL * own.median(), 0.0)})
    return curves.learning(drawn, quantity, tables.scenario.title, view=coloured(tables, view))


def paired(tables: Tables, view: View | None = None) -> Picture:
    """Each run less the baseline, or relative to it, seed by seed. Raises FredError where there is none to compare.

    Args:
        tables: what the runs came to.
        view: how wide, in which colours.
    """
    pairs = compared(tables)
    if pairs.empty:
        raise FredError("nothing to plot: no two runs have seeds in common")
    return paired_figure.paired(pairs, tables.scenario.title, coloured(tables, view))


def traffic(tables: Tables, view: View | None = None) -> Picture:
    """What was sent each way in each run, mean over the seeds.

    Args:
        tables: what the runs came to; MB are 10^6 bytes.
        view: how wide.
    """
    most = max(sum(own.values()) for own in _means(tables.outcomes, "bytes", WAYS, 1.0).values())
    unit, size = next((each for each in _UNITS.items() if most >= each[1]), ("kB", 1e3))
    sent = _means(tables.outcomes, "bytes", WAYS, 1 / size)
    return bars.stacked(sent, f"sent over the network, {unit}", said=_over(tables.outcomes), view=view)


def sent_copies(tables: Tables, view: View | None = None) -> Picture:
    """What was pushed and fetched of what could have been, with the first seed. Raises FredError where no server is."""
    drawn: dict[str, pd.DataFrame] = {}
    for name in dict.fromkeys(each.name for each in tables.outcomes):
        own = tables.outcome(name)
        if own.summary["copies"]["potential"]:
            drawn[name] = copies(own.schedule)
    if not drawn:
        raise FredError("nothing to plot: in these runs nothing is pushed to a server")
    return curves.copies(drawn, _first_seed(tables.outcomes), coloured(tables, view))


def throughput(tables: Tables, view: View | None = None) -> Picture:
    """Gradients that were used per second of virtual time, mean and range of the seeds. Raises FredError without a clock."""
    values: dict[str, list[float]] = {}
    for each in _clocked(tables):
        values.setdefault(each.name, []).append(each.summary["throughput"] or 0.0)
    said = _over(_clocked(tables))
    return bars.spread(values, "gradients used per second of virtual time", said, coloured(tables, view))


def pace(tables: Tables, view: View | None = None) -> Picture:
    """Throughput in the course of time, mean and range of the seeds. Raises FredError if no run has a clock.

    Args:
        tables: what the runs came to, of which the evaluations are used: between two of them the pace is taken as constant.
        view: how wide.
    """
    view = replace(coloured(tables, view), against=("seconds",))
    frame = pd.concat([paces(each.metrics, _PARTS).assign(run=each.name, seed=each.seed) for each in _clocked(tables)])
    return curves.learning(frame, "gradients per second", tables.scenario.title, view=view, from_zero=True)


def _changing(outcome: Outcome) -> bool:
    """Whether the cluster has regimes or faults that come and go."""
    cluster = outcome.run.cluster
    return outcome.run.protocol.has_clock and bool(cluster.contention or cluster.faults)


def workers_time(tables: Tables, view: View | None = None) -> Picture:
    """Where the workers' time went in each run, mean over the seeds. Raises FredError where no run has a clock."""
    percent = _means(_clocked(tables), "workers_time", KINDS, 100)
    colours = [OF_TIME[kind] for kind in KINDS]
    return bars.stacked(percent, "% of the workers' time", colours, _over(_clocked(tables)), view)


def stale_gradients(tables: Tables, view: View | None = None) -> Picture:
    """How stale the gradients were that took part in updates, all seeds together.

    Args:
        tables: what the runs came to; those with the same schedules share a panel.
        view: how wide.
    """
    counts: dict[tuple[str, ...], list[int]] = {}  # how many gradients of each staleness
    for shared in _by_timing(tables.outcomes):
        for each in (outcome for outcome in tables.outcomes if outcome.name == shared[0]):
            own = np.bincount(np.maximum(staleness.of_gradients(each.schedule), 0)).tolist()  # of a newer model: not stale
            counts[shared] = [sum(both) for both in zip_longest(own, counts.get(shared, []), fillvalue=0)]
    several = bool(_over(tables.outcomes))
    said = f"all gradients that were used{', of all seeds together' if several else ''}"
    drawn = {shared: np.array(own, np.int64) for shared, own in counts.items()}
    return bars.staleness(drawn, said, coloured(tables, view))


def timeline_of(tables: Tables, view: View | None = None) -> Picture:
    """What each worker did at the start of each run, shortly before the first fault of all runs, or at some other time.

    Args:
        tables: what the runs came to, of which those with a clock are drawn, one of each timing, with the first seed.
        view: which workers, from when to when; how wide.
    """
    clocked = _clocked(tables)
    schedules = {shared: tables.outcome(shared[0]).schedule for shared in _by_timing(clocked)}
    return timeline.timeline(schedules, _first_seed(clocked), view)


def sweep(tables: Tables, view: View | None = None) -> Picture:
    """The criterion at every point, a line for each run. Raises FredError where nothing was swept."""
    _check_swept(tables)
    scenario, view = tables.scenario, coloured(tables, view)
    return sweep_figures.sweep(tables.sweep, scenario.criterion, scenario.title, _over(tables.outcomes), view)


def sweep_timing(tables: Tables, view: View | None = None) -> Picture:
    """Time, throughput and waiting at every point, a line for each run. Raises FredError where nothing was swept."""
    _check_swept(tables)
    summary = tables.summary
    by_column = {each.column: sweeps.table(tables.scenario, summary, each) for each in sweep_figures.OF_TIMING}
    return sweep_figures.timing(by_column, tables.scenario.title, _over(tables.outcomes), coloured(tables, view))


def _clocked(tables: Tables) -> list[Outcome]:
    clocked = [each for each in tables.outcomes if each.run.protocol.has_clock]
    if not clocked:
        raise FredError("nothing to plot: these runs have no clock")
    return clocked


def _over(outcomes: Iterable[Outcome]) -> str:
    """What means are of, if they are of several seeds."""
    outcomes = list(outcomes)
    return over_seeds([each.name for each in outcomes], [each.seed for each in outcomes])


def _first_seed(outcomes: Sequence[Outcome]) -> str:
    """Which seed is shown, if there are several of the first run."""
    seeds = [each.seed for each in outcomes if each.name == outcomes[0].name]
    return f"seed {seeds[0]}, of {len(seeds)}" if len(seeds) > 1 else ""


def _check_swept(tables: Tables) -> None:
    if not tables.swept:
        raise FredError("nothing to plot: the scenario has no `sweep`")


def _timing_differs(tables: Tables) -> bool:
    """Whether what was swept changes when things happen."""
    digests: dict[tuple[str, int], set[str]] = {}
    for each in tables.outcomes:
        if each.name in tables.scenario.points and each.run.protocol.has_clock:
            point = tables.scenario.points[each.name].of, each.seed
            digests.setdefault(point, set()).add(each.schedule_digest)
    return any(len(own) > 1 for own in digests.values())


def _by_timing(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """The names of all runs that share a timing, for each different one."""
    digests: dict[str, str] = {}
    for each in outcomes:
        digests[each.name] = digests.get(each.name, "") + each.schedule_digest
    sharing: dict[str, tuple[str, ...]] = {}
    for name, digest in digests.items():
        sharing[digest] = (*sharing.get(digest, ()), name)
    return list(sharing.values())


def _suppressed(potential: int | None, pushes: int | None, fetches: int | None) -> bool:
    """Whether some, but not all, of what could have been sent was not."""
    return bool(potential and pushes and fetches) and (pushes, fetches) != (potential, potential)


def _means(outcomes: Sequence[Outcome], fact: str, parts: Sequence[str], unit: float) -> dict[str, dict[str, float]]:
    """For each run the mean over its seeds of each part of a fact in the summary, in a unit."""
    rows = pd.DataFrame([{"run": each.name, **each.summary[fact]} for each in outcomes]).astype(dict.fromkeys(parts, float))
    means = rows.groupby("run", sort=False)[list(parts)].mean().fillna(0.0) * unit
    return {str(name): dict(zip(parts, own.tolist(), strict=True)) for name, own in means.iterrows()}
