"""Who did what when: the start of each run, or its first fault, worker by worker."""

import itertools

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from fred.cluster.durations import NANOSECONDS
from fred.outcomes.spans import spans
from fred.schedule.schedule import Schedule, Verb, What
from fred.views.figures import OF_TIME, Picture, style, titled

_PANELS = 12
_BEFORE = 1 / 3  # of what is shown comes before the first fault
_UPDATE = "#222222"


def timeline(schedules: dict[str, Schedule], workers: int = 16) -> Picture:
    """What the first workers did at the start of each run, or shortly before the first fault of all; ticks on top mark updates.

    A fault counts if it comes before the end of the shortest run, and one of these workers or a server is away.

    Args:
        schedules: by the name of a run, or of several that share one; no more than twelve are drawn.
        workers: how many of them, from the first on.

    What is shown is so long that the usual worker computes about six gradients; colours are those of workers' shares of time.
    """
    schedules = dict(itertools.islice(schedules.items(), _PANELS))
    with style():
        figure = Picture(figsize=(9.2, 0.5 + 2.0 * max(1, len(schedules))), layout="constrained")
        axes = figure.subplots(max(1, len(schedules)), 1, sharex=True, squeeze=False)[:, 0]
        length = max((_window(schedule) for schedule in schedules.values()), default=1.0)
        begin = max(0.0, _first_fault(schedules, workers) / NANOSECONDS - _BEFORE * length)
        shown = begin, begin + length
        for axis, (name, schedule) in zip(axes, schedules.items(), strict=False):
            _draw(axis, schedule, workers, *shown)
            titled(axis, name, width=100)
            whose = f"first {workers} of {schedule.workers} workers" if schedule.workers > workers else "worker"
            axis.set(ylabel=whose, xlim=shown, ylim=(min(workers, schedule.workers) - 0.4, -1.6))
            axis.grid(False)
        axes[-1].set_xlabel("virtual time, s")
        handles = [Patch(color=colour, label=kind.replace("_", " ")) for kind, colour in OF_TIME.items()]
        handles.append(Patch(color=_UPDATE, label="update"))
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    return figure


def _first_fault(schedules: dict[str, Schedule], workers: int) -> int:
    """When somebody who is shown, or a server, is away for the first time, ns; 0: not before the shortest run ends."""
    shortest = min((schedule.end_ns for schedule in schedules.values()), default=0)
    begins = list[int]()
    for schedule in schedules.values():
        away, servers = (schedule.intervals.only(what) for what in (What.AWAY, What.SERVER_AWAY))
        begins += [*away.begin_ns[away.worker < workers].tolist(), *servers.begin_ns.tolist()]
    return min((begin for begin in begins if begin < shortest), default=0)


def _draw(axis: Axes, schedule: Schedule, workers: int, start: float, end: float) -> None:
    account = spans(schedule, workers)
    begin, stop = account["begin_ns"] / NANOSECONDS, account["end_ns"] / NANOSECONDS
    seen = (stop > start) & (begin < end)
    for kind, colour in OF_TIME.items():
        own = seen & (account["kind"] == kind)
        axis.barh(account["worker"][own], (stop - begin)[own], 0.72, begin[own], color=colour, edgecolor="white", linewidth=0.4)
    updates = schedule["time_ns"][schedule.rows(Verb.PUSH, Verb.COMMIT)] / NANOSECONDS
    axis.vlines(updates[(updates >= start) & (updates < end)], -1.4, -0.7, color=_UPDATE, linewidth=0.7)


def _window(schedule: Schedule) -> float:
    """A stretch of virtual time in which the usual worker computes about six gradients, s."""
    gradients = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    lengths = (schedule["end_ns"] - schedule["begin_ns"])[gradients] / NANOSECONDS
    return float(6 * np.median(lengths)) or 1.0 if len(lengths) else 1.0
