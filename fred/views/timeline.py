"""Timelines of workers' activities at the start of each run, around its first fault, or at any other time."""

import itertools
from collections.abc import Collection, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.components.component import NANOSECONDS
from fred.schedule.schedule import Schedule, Verb, What
from fred.schedule.spans import STATES, first_absence, spans
from fred.views.figures import Picture, caption, on_top, style, titled
from fred.views.view import OF_A_JOB, OF_TIME, SCREEN, View

WORKERS = 16  # number of workers shown by default
PANELS = 12
_BEFORE = 1 / 3  # share of the interval before the first fault
_MOST_STRETCHES = 20  # limit in stretches of six gradients, when the interval is extended to a second average
_TICKS = 250  # up to this number, each update has a tick
_UPDATE = "#222222"

Schedules = Mapping[tuple[str, ...], Schedule]  # by the names of all runs that share a timing


def timeline(
    schedules: Schedules, note: str = "", view: View = SCREEN, slow: Mapping[tuple[str, ...], Collection[int]] = {}
) -> Picture:
    """Draw the workers' activities at the start of each run, or around the first fault of all runs. Raises FredError.

    Ticks at the top mark updates; if there are many, a profile shows their number over time. Colours are those of the shares of
    workers' time. By default the interval is as long as a typical worker takes for about six gradients, and a fault counts if
    it comes before the end of the shortest run. By default sixteen workers are shown, evenly spaced, and the first one that
    goes offline.

    Args:
        schedules: schedules of runs with a clock, by the names of the runs that share them; at most twelve are drawn.
        note: the seed, for the caption.
        view: the width, the workers, and the interval. FredError is raised for workers or times that no run has.
        slow: numbers of the workers that are marked as slow, by the names of the runs.
    """
    schedules = _schedules_with_workers(schedules, view)
    left_out = len(schedules) - PANELS
    schedules = dict(itertools.islice(schedules.items(), PANELS))
    fault_time, fault_worker = _first_fault(schedules, view)
    interval = _window(schedules, view, fault_time)
    rows = {names: _workers(schedule, view, fault_worker) for names, schedule in schedules.items()}
    slow_rows = {names: np.flatnonzero(np.isin(run_workers, list(slow.get(names, ())))) for names, run_workers in rows.items()}
    # of the panels, inches: of the title, and of the bars, the labels or the label of the axis, whichever are the highest
    heights = [
        min(5.0, 0.4 + max(0.1 * len(run_workers), 0.16 * len(_labelled(run_workers)), 0.5)) for run_workers in rows.values()
    ]
    with style(view):
        figure = Picture(figsize=(view.inches or 9.2, 0.4 + sum(heights)), layout="constrained")
        axes = figure.subplots(len(rows), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axis, (names, run_workers) in zip(axes, rows.items(), strict=True):
            _draw(axis, schedules[names], run_workers, interval)
            _mark_slow(axis, slow_rows[names])
            titled(axis, names, width=int(10.5 * figure.get_figwidth()))
        axes[-1].set_xlabel("virtual time, s")
        colours = {**OF_TIME, **_states(schedules), "update": _UPDATE}
        on_top(figure, [Patch(color=colour) for colour in colours.values()], list(colours))
        slow_note = "line at the right: slow workers" if any(map(len, slow_rows.values())) else ""
        omitted = f"{left_out} more timings are not shown" if left_out > 0 else ""
        caption(figure, note, slow_note, _sampled(schedules, view), omitted)
    return figure


def _states(schedules: Schedules) -> dict[str, str]:
    """Return the colours of the states in which some job is, because machines fail."""
    present = set[int]().union(*(np.unique(schedule.intervals.what).tolist() for schedule in schedules.values()))
    return {f"job: {state}": OF_A_JOB[state] for state, activity in STATES.items() if activity in present}


def _sampled(schedules: Schedules, view: View) -> str:
    most = max((schedule.workers for schedule in schedules.values()), default=0)
    return f"{WORKERS} of {most:,} workers, evenly spaced" if view.workers is None and most > WORKERS else ""


def _schedules_with_workers(schedules: Schedules, view: View) -> Schedules:
    """Return the schedules that have some of the requested workers. Raises FredError for a worker that none has."""
    most = max((schedule.workers for schedule in schedules.values()), default=0)
    for worker in view.workers or ():
        if worker >= most:
            raise FredError(f"no worker {worker} on the timeline; workers are numbered 0 to {most - 1}")
    lowest = min(view.workers or (0,))
    return {names: schedule for names, schedule in schedules.items() if lowest < schedule.workers}


def _workers(schedule: Schedule, view: View, struck: int) -> NDArray[np.int64]:
    """Return the workers of a run to show. By default, the worker struck by the first fault replaces the nearest one."""
    if view.workers is not None:
        return np.array([worker for worker in view.workers if worker < schedule.workers], np.int64)
    workers = np.linspace(0, schedule.workers - 1, min(WORKERS, schedule.workers)).round().astype(np.int64)
    if 0 <= struck < schedule.workers and struck not in workers:
        workers[np.abs(workers - struck).argmin()] = struck
    return workers


def _first_fault(schedules: Schedules, view: View) -> tuple[int, int]:
    """Return the time, ns, when a shown worker or a server first goes offline, and the worker, or -1 for a server.

    Return 0 and -1 if that is not before the shortest run ends.
    """
    shortest = min((schedule.end_ns for schedule in schedules.values()), default=0)  # ns
    absences = [first for schedule in schedules.values() if (first := first_absence(schedule, view.workers))]
    time, worker = min(absences, default=(shortest, -1))
    return (time, worker) if time < shortest else (0, -1)


def _window(schedules: Schedules, view: View, fault: int) -> tuple[float, float]:
    """Return the start and end of the shown interval, s. Raises FredError if it starts after the last run ends."""
    length = max((_default_length(schedule) for schedule in schedules.values()), default=1.0)
    begin, end = view.begin, view.end
    if begin is None:
        begin = max(0.0, (fault / NANOSECONDS - _BEFORE * length) if end is None else end - length)
    last = max((schedule.end_ns for schedule in schedules.values()), default=0) / NANOSECONDS
    if view.begin is not None and begin >= last:
        raise FredError(f"the timeline cannot begin at {begin:g} s: the last run ends at {last:g} s")
    return begin, begin + length if end is None else end


def _draw(axis: Axes, schedule: Schedule, workers: NDArray[np.int64], interval: tuple[float, float]) -> None:
    """Draw a run: a row of bars for each worker, from 0 downwards, above them the updates, and below them the job."""
    account = spans(schedule, int(workers.max()) + 1)
    row_of = np.full(int(workers.max()) + 1, -1)  # by worker; -1: it is not shown
    row_of[workers] = np.arange(len(workers))
    begin, end = account["begin_ns"].to_numpy() / NANOSECONDS, account["end_ns"].to_numpy() / NANOSECONDS
    rows = row_of[account["worker"].to_numpy()]
    visible = (end > interval[0]) & (begin < interval[1]) & (rows >= 0)
    for kind, colour in OF_TIME.items():
        of_kind = visible & (account["kind"] == kind).to_numpy()
        bars = _outline(begin[of_kind], end[of_kind], rows[of_kind], 0.72)
        bars.set(facecolor=colour, edgecolor="white", linewidth=min(0.4, 6 / len(workers)), label=kind)
        axis.add_artist(bars)
    job_places = _draw_job(axis, schedule, len(workers))
    _draw_updates(axis, schedule["time_ns"][schedule.rows(Verb.PUSH, Verb.COMMIT)] / NANOSECONDS, interval)
    labelled = _labelled(workers)
    axis.set_yticks([*labelled, *job_places], [*(str(worker) for worker in workers[labelled]), *["job"] * len(job_places)])
    axis.set(ylabel="worker", xlim=interval, ylim=(len(workers) - 0.4 + 1.2 * len(job_places), -1.8))
    axis.grid(False)


def _mark_slow(axis: Axes, rows: NDArray[np.int64]) -> None:
    """Draw a line at the right of slow workers' rows; it is in no legend."""
    for row in rows.tolist():
        (line,) = axis.plot([1.006, 1.006], [row - 0.5, row + 0.5], color=_UPDATE, linewidth=2.5, solid_capstyle="butt")
        line.set(transform=axis.get_yaxis_transform(), clip_on=False)


def _draw_job(axis: Axes, schedule: Schedule, workers: int) -> list[float]:
    """Draw the states of a job whose machines fail, below the workers. Return the place of this row, if there is one."""
    row, intervals = workers + 0.2, schedule.intervals  # just below the last worker's row
    if not (intervals.what >= What.SAVING).any():
        return []
    for state, activity in STATES.items():
        begin, end = (times[intervals.what == activity] / NANOSECONDS for times in (intervals.begin_ns, intervals.end_ns))
        bars = _outline(begin, end, np.full(len(begin), row), 0.72)
        bars.set(facecolor=OF_A_JOB[state], edgecolor="none", label=f"job: {state}")
        axis.add_artist(bars)
    return [row]


def _labelled(workers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows that have a label: consecutive workers need fewer."""
    most = 8 if np.array_equal(workers, np.arange(len(workers))) else WORKERS
    return np.arange(len(workers))[:: max(1, -(-len(workers) // most))]


def _draw_updates(axis: Axes, updates: NDArray[np.float64], interval: tuple[float, float]) -> None:
    """Draw a tick for each update or, if there are many, a profile of their number over time, above the first row, 0."""
    start, end = interval
    updates = updates[(updates >= start) & (updates < end)]
    if len(updates) <= _TICKS:
        axis.vlines(updates, -1.4, -0.7, color=_UPDATE, linewidth=0.7)
        return
    counts, edges = np.histogram(updates, _TICKS, interval)
    axis.stairs(-0.7 - 0.9 * counts / counts.max(), edges, baseline=-0.7, fill=True, color=_UPDATE)


def _outline(begin: NDArray[np.float64], end: NDArray[np.float64], rows: NDArray[np.int64], thickness: float) -> PathPatch:
    """Return all bars as one patch: separate patches are many times slower to draw."""
    low, high = rows - thickness / 2, rows + thickness / 2
    corners = np.stack([[begin, low], [begin, high], [end, high], [end, low], [begin, low]]).transpose(2, 0, 1)
    codes = np.tile(np.array([Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY], Path.code_type), len(begin))
    return PathPatch(Path(corners.reshape(-1, 2), codes))


def _default_length(schedule: Schedule) -> float:
    """Return how much virtual time to show, s: six gradients of the usual worker, and at least two rounds or averages."""
    gradients = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    lengths = (schedule["end_ns"] - schedule["begin_ns"])[gradients] / NANOSECONDS
    stretch = (float(6 * np.median(lengths)) if len(lengths) else 0.0) or 1.0  # s; 1 if gradients take no time
    rounds = np.unique(schedule["time_ns"][schedule.rows(Verb.COMMIT, Verb.SYNC)])[:2] / NANOSECONDS
    return max(stretch, min(1.1 * float(rounds[-1]), _MOST_STRETCHES * stretch)) if len(rounds) == 2 else stretch
