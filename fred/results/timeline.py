"""Who did what when: the start of each run, or its first fault, worker by worker."""

import itertools

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from fred.results.figures import OF_TIME, Picture, style, titled
from fred.schedule import NONE, Schedule, Verb
from fred.timing.cluster import Cluster
from fred.timing.durations import NANOSECONDS
from fred.timing.faults import Faults
from fred.timing.loop import NEVER

_PANELS = 12
_BEFORE = 1 / 3  # of what is shown comes before the first fault


def timeline(schedules: dict[str, Schedule], workers: int = 16, first_fault: int | None = None) -> Picture:
    """Computing, sending and waiting of the first workers at the start of each run; ticks on top mark updates.

    Where there is a first fault, ns, it begins shortly before.
    """
    schedules = dict(itertools.islice(schedules.items(), _PANELS))
    with style():
        figure = Picture(figsize=(9.2, 0.5 + 2.0 * max(1, len(schedules))), layout="constrained")
        axes = figure.subplots(max(1, len(schedules)), 1, sharex=True, squeeze=False)[:, 0]
        length = max((_window(schedule, workers) for schedule in schedules.values()), default=1.0)
        begin = max(0.0, (first_fault or 0) / NANOSECONDS - _BEFORE * length)
        shown = begin, begin + length
        for axis, (name, schedule) in zip(axes, schedules.items(), strict=False):
            _spans(axis, schedule, min(workers, schedule.workers), *shown)
            titled(axis, name, width=100)
            whose = f"first {workers} of {schedule.workers} workers" if schedule.workers > workers else "worker"
            axis.set(ylabel=whose, xlim=shown, ylim=(min(workers, schedule.workers) - 0.4, -1.6))
            axis.grid(False)
        axes[-1].set_xlabel("virtual time, s")
        figure.legend(handles=[Patch(color=_SPAN[k], label=k) for k in _SPAN], loc="outside upper right", ncols=4)
    return figure


_SPAN = {
    "computing": OF_TIME["computing"],
    "computed in vain": OF_TIME["in_vain"],
    "sending or waiting": OF_TIME["waiting"],
    "update": "#222222",
}


def first_fault(cluster: Cluster, seed: int, workers: int = 16) -> int | None:
    """When the first of these workers, or a server, is away for the first time, ns."""
    if not cluster.faults:
        return None
    faults = Faults(cluster.troubles(seed))
    spans = [faults.away("worker", worker, 0) for worker in range(min(workers, cluster.size))]
    begin = min(span[0] for span in spans + [faults.away("server", server, 0) for server in range(cluster.servers)])
    return begin if begin < NEVER else None


def _spans(axis: Axes, schedule: Schedule, workers: int, start: float, end: float) -> None:
    begin, stop, effect = (schedule[column] / NANOSECONDS for column in ("begin_ns", "end_ns", "time_ns"))
    seen = (schedule["worker"] >= 0) & (schedule["worker"] < workers) & (begin < end)
    seen &= np.maximum(stop, effect) > start
    verb = schedule["verb"]
    gradient = seen & np.isin(verb, (Verb.PUSH, Verb.ADD)) & _first_uses(schedule)
    for kind, chosen, left, right in (
        ("sending or waiting", gradient & (effect > stop), stop, effect),
        ("sending or waiting", seen & (verb == Verb.PULL) & (stop > begin), begin, stop),
        ("computing", gradient, begin, stop),  # on top: a late gradient may wait while the next one is computed
        ("computed in vain", seen & (verb == Verb.DROP), begin, stop),
    ):
        axis.barh(
            schedule["worker"][chosen],
            (right - left)[chosen],
            0.72,
            left[chosen],
            color=_SPAN[kind],
            edgecolor="white",
            linewidth=0.4,
        )
    updates = effect[np.isin(verb, (Verb.PUSH, Verb.COMMIT)) & (effect >= start) & (effect < end)]
    axis.vlines(updates, -1.4, -0.7, color=_SPAN["update"], linewidth=0.7)


def _first_uses(schedule: Schedule) -> NDArray[np.bool_]:
    """Rows that are not one more use of a gradient: a closed gate repeats the last one."""
    used = np.flatnonzero(np.isin(schedule["verb"], (Verb.PUSH, Verb.ADD)) & (schedule["step"] != NONE))
    _, first = np.unique(np.stack([schedule["worker"][used], schedule["step"][used]]), axis=1, return_index=True)
    repeated = np.zeros(len(schedule), bool)
    repeated[np.delete(used, first)] = True
    return ~repeated


def _window(schedule: Schedule, workers: int) -> float:
    """A stretch of virtual time in which the usual worker computes about six gradients, s."""
    gradients = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    lengths = (schedule["end_ns"] - schedule["begin_ns"])[gradients] / NANOSECONDS
    return float(6 * np.median(lengths)) or 1.0 if len(lengths) else 1.0
