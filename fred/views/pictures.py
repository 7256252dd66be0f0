"""Which pictures there are of what runs came to, and of which numbers each is drawn."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest

import numpy as np
import pandas as pd

from fred.errors import FredError
from fred.outcomes import staleness, sweeps
from fred.outcomes.measures import WAYS, copies
from fred.outcomes.outcome import Outcome
from fred.outcomes.paired import compared, shared_seeds
from fred.outcomes.spans import KINDS
from fred.outcomes.tables import Tables
from fred.views import figures, paired_figure, sweep_figures, timeline
from fred.views.figures import Picture


def drawable(tables: Tables) -> dict[str, Callable[[], Picture]]:
    """Those that show something of these runs, by name; of a sweep's, its own and those of the best points.

    Args:
        tables: what the runs came to; nothing is drawn before a picture is called.

    Without a task there is no loss or error; without a clock no timeline; copies are drawn where some were not sent.
    """
    if tables.swept:
        timing = {"sweep-timing": partial(sweep_timing, tables)} if _timing_differs(tables) else {}
        return {"sweep": partial(sweep, tables)} | timing | (drawable(tables.with_its_best()) if tables.chosen else {})
    metrics = tables.metrics
    drawn: dict[str, Callable[[], Picture]] = {}
    if "loss" in metrics:
        drawn |= {"loss": partial(learning, tables, "loss"), "error": partial(learning, tables, "error")}
    if "disagreement" in metrics:
        own = {"disagreement": "disagreement", "replicas-error": "replicas_error"}
        drawn |= {name: partial(of_replicas, tables, quantity) for name, quantity in own.items()}
    if shared_seeds(tables) > 1:
        drawn["paired"] = partial(paired, tables)
    drawn |= {"traffic": partial(traffic, tables), "staleness": partial(stale_gradients, tables)}
    if any(_suppressed(**each.summary["copies"]) for each in tables.outcomes):
        drawn["copies"] = partial(sent_copies, tables)
    if any(each.run.protocol.has_clock for each in tables.outcomes):
        drawn |= {"workers-time": partial(workers_time, tables), "timeline": partial(first_moments, tables)}
    return drawn


def learning(tables: Tables, quantity: str) -> Picture:
    """Loss or error against updates and against virtual time. Raises FredError where nothing was learned.

    Args:
        tables: what the runs came to.
        quantity: `loss` or `error`.
    """
    metrics = tables.metrics
    if quantity not in metrics:
        raise FredError(f"there is no {quantity} to plot: the scenario has no `task`, so only the timing was simulated")
    return figures.learning(metrics, quantity, tables.scenario.title, _target(tables, quantity))


def of_replicas(tables: Tables, quantity: str) -> Picture:
    """What is measured of workers' own models. Raises FredError where no run has such models.

    Args:
        tables: what the runs came to.
        quantity: `disagreement` (how far the models are from their mean), `replicas_loss` or `replicas_error`.
    """
    metrics = tables.metrics
    if quantity not in metrics:
        raise FredError("nothing to plot: in these runs workers have no models of their own")
    return figures.learning(metrics.dropna(subset=quantity), quantity, tables.scenario.title)


def paired(tables: Tables) -> Picture:
    """Each run less the baseline, or relative to it, seed by seed. Raises FredError where there is none to compare.

    Args:
        tables: what the runs came to.
    """
    pairs = compared(tables)
    if pairs.empty:
        raise FredError("nothing to plot: no two runs have seeds in common")
    return paired_figure.paired(pairs, tables.scenario.title)


def traffic(tables: Tables) -> Picture:
    """What was sent each way in each run, mean over the seeds.

    Args:
        tables: what the runs came to; MB are 10^6 bytes.
    """
    return figures.stacked(_means(tables.outcomes, "bytes", WAYS, 1e-6), "sent over the network, MB")


def sent_copies(tables: Tables) -> Picture:
    """What was pushed and fetched of what could have been, with the first seed. Raises FredError where no server is."""
    drawn: dict[str, pd.DataFrame] = {}
    for name in dict.fromkeys(each.name for each in tables.outcomes):
        own = tables.outcome(name)
        if own.summary["copies"]["potential"]:
            drawn[name] = copies(own.schedule)
    if not drawn:
        raise FredError("nothing to plot: in these runs nothing is pushed to a server")
    return figures.copies(drawn)


def workers_time(tables: Tables) -> Picture:
    """Where the workers' time went in each run, mean over the seeds. Raises FredError where no run has a clock."""
    clocked = [each for each in tables.outcomes if each.run.protocol.has_clock]
    if not clocked:
        raise FredError("nothing to plot: these runs have no clock")
    percent = _means(clocked, "workers_time", KINDS, 100)
    return figures.stacked(percent, "% of the workers' time", [figures.OF_TIME[kind] for kind in KINDS])


def stale_gradients(tables: Tables) -> Picture:
    """How stale the gradients were that took part in updates, all seeds together.

    Args:
        tables: what the runs came to; those with the same schedules share a panel.
    """
    counts: dict[str, list[int]] = {}  # how many gradients of each staleness
    for name, shared in _by_timing(tables.outcomes).items():
        for each in (outcome for outcome in tables.outcomes if outcome.name == name):
            own = np.bincount(np.maximum(staleness.of_gradients(each.schedule), 0)).tolist()  # of a newer model: not stale
            counts[shared] = [sum(both) for both in zip_longest(own, counts.get(shared, []), fillvalue=0)]
    return figures.staleness({shared: np.array(own, np.int64) for shared, own in counts.items()})


def first_moments(tables: Tables) -> Picture:
    """What each worker did at the start of each run, or shortly before the first fault of all runs, with the first seed.

    Args:
        tables: what the runs came to, of which those with a clock are drawn, one of each timing.
    """
    names = _by_timing([each for each in tables.outcomes if each.run.protocol.has_clock])
    return timeline.timeline({shared: tables.outcome(name).schedule for name, shared in names.items()})


def sweep(tables: Tables) -> Picture:
    """The criterion at every point, a line for each run. Raises FredError where nothing was swept."""
    _check_swept(tables)
    return sweep_figures.sweep(tables.sweep, tables.scenario.criterion, tables.scenario.title)


def sweep_timing(tables: Tables) -> Picture:
    """Time, throughput and waiting at every point, a line for each run. Raises FredError where nothing was swept."""
    _check_swept(tables)
    summary = tables.summary
    by_column = {each.column: sweeps.table(tables.scenario, summary, each) for each in sweep_figures.OF_TIMING}
    return sweep_figures.timing(by_column, tables.scenario.title)


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


def _by_timing(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """One run of each different timing, and the names of all that share it."""
    digests: dict[str, str] = {}
    for each in outcomes:
        digests[each.name] = digests.get(each.name, "") + each.schedule_digest
    sharing: dict[str, list[str]] = {}
    for name, digest in digests.items():
        sharing.setdefault(digest, []).append(name)
    return {names[0]: ", ".join(names) for names in sharing.values()}


def _target(tables: Tables, quantity: str) -> float | None:
    """What all runs are to come down to, if it is the same."""
    if quantity == "loss":
        goals = {each.run.evaluate.target_loss or each.run.stop.target_loss for each in tables.outcomes}
    else:
        goals = {each.run.evaluate.target_error for each in tables.outcomes}
    return goals.pop() if len(goals) == 1 else None


def _suppressed(potential: int | None, pushes: int | None, fetches: int | None) -> bool:
    """Whether some, but not all, of what could have been sent was not."""
    return bool(potential and pushes and fetches) and (pushes, fetches) != (potential, potential)


def _means(outcomes: Sequence[Outcome], fact: str, parts: Sequence[str], unit: float) -> dict[str, dict[str, float]]:
    """For each run the mean over its seeds of each part of a fact in the summary, in a unit."""
    rows = pd.DataFrame([{"run": each.name, **each.summary[fact]} for each in outcomes]).astype(dict.fromkeys(parts, float))
    means = rows.groupby("run", sort=False)[list(parts)].mean().fillna(0.0) * unit
    return {str(name): dict(zip(parts, own.tolist(), strict=True)) for name, own in means.iterrows()}
