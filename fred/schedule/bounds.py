"""Bounds of every number in a schedule, checked when one is read from a file."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fred.components.limits import MOST_GRADIENTS
from fred.schedule.layout import Layout, is_whole
from fred.schedule.schedule import COLUMNS, NONE, SCALES, UNENDING, Intervals, Schedule, What

_Bounds = Mapping[str, tuple[int, int]]
_MOST = 1 << 62  # ns or bytes: the sum of two still fits into 64 bits


def check_bounds(schedule: Schedule, workers: int, servers: int, layout: Layout) -> None:
    """Raise ValueError for a schedule that no recorder can have written.

    Args:
        schedule: the schedule that was read.
        workers, servers: numbers of both in the cluster.
        layout: the protocol's replicas.

    >>> import fred
    >>> scenario = fred.scenario(cluster={"workers": 2}, algorithm={"name": "asgd", "learning_rate": 1}, stop={"updates": 2})
    >>> schedule = fred.run(scenario).outcome("asgd").schedule
    >>> check_bounds(schedule, 2, 1, fred.Layout.central())
    >>> check_bounds(schedule, 1, 1, fred.Layout.central())
    Traceback (most recent call last):
    ValueError: `workers` is 2; expected 1
    """
    known = {"workers": workers, "replicas": layout.replicas, "blocks": layout.blocks, "on_servers": layout.on_servers}
    for name, expected in known.items():
        if getattr(schedule, name) != expected:
            raise ValueError(f"`{name}` is {getattr(schedule, name)}; expected {expected}")
    for name in ("started", "end_ns"):
        if not is_whole(number := getattr(schedule, name)) or not 0 <= number <= _MOST:
            raise ValueError(f"`{name}` is {number!r}; expected a whole number, 0 or more")
    if not isinstance(schedule.standstill, str):
        raise ValueError(f"`standstill` is {schedule.standstill!r}; expected text")
    _check_columns("row", schedule.columns, _of_rows(schedule))
    skips = schedule.intervals.what == What.SKIPPED
    for some, bounds in ((~skips, _of_intervals(schedule, servers)), (skips, _of_skips(schedule))):
        _check_columns("interval", {name: each[some] for name, each in schedule.intervals._asdict().items()}, bounds)
    for name in SCALES:
        if schedule[name].dtype != np.float64:
            raise ValueError(f"column `{name}` holds {schedule[name].dtype}; expected float64")
    backwards = np.flatnonzero(np.diff(schedule["time_ns"]) < 0)
    if len(backwards):
        raise ValueError(f"row {backwards[0] + 1} is earlier than the one before")


def _of_rows(schedule: Schedule) -> _Bounds:
    """Return the least and the largest number of each column; a clock is at most the number of rows."""
    rows = len(schedule)
    nothing, of_rows, times = NONE, (NONE, rows - 1), (0, schedule.end_ns)
    known = {
        "time_ns": times,
        "worker": (nothing, schedule.workers - 1),
        "replica": (nothing, schedule.replicas - 1),
        "block": (0, schedule.blocks - 1),
        "mailbox": of_rows,
        "source": of_rows,
        "step": (nothing, schedule.started),  # a pull may precede a minibatch that is never begun
        "timestamp": (nothing, rows),
        "staleness": (-rows, rows),
        "begin_ns": times,
        "end_ns": (0, UNENDING),  # a read that never ended
    }
    return dict.fromkeys(COLUMNS, (0, _MOST)) | known


def _of_intervals(schedule: Schedule, servers: int) -> _Bounds:
    times, workers = (0, UNENDING), (NONE, schedule.workers - 1)
    others = NONE, max(schedule.workers, servers, schedule.replicas * schedule.blocks) - 1
    known = {"what": (0, len(What) - 1), "row": (NONE, len(schedule) - 1), "worker": workers, "other": others}
    return dict.fromkeys(Intervals._fields, times) | known


def _of_skips(schedule: Schedule) -> _Bounds:
    known = {"row": (NONE, NONE), "worker": (0, schedule.workers - 1), "other": (1, MOST_GRADIENTS)}
    return dict.fromkeys(Intervals._fields, (0, schedule.end_ns)) | known


def _check_columns(what: str, columns: Mapping[str, NDArray], bounds: _Bounds) -> None:
    for name, (least, most) in bounds.items():
        column = columns[name]
        if column.dtype != np.int64:  # a column with gaps has another type
            raise ValueError(f"column `{name}` holds {column.dtype}; expected int64")
        wrong = np.flatnonzero((column < least) | (column > most))
        if len(wrong):
            raise ValueError(f"{what} {wrong[0]} has {name} {column[wrong[0]]}; expected {least} to {most}")
