"""Checks of what a protocol may do, and of schedules that are read from a file.

A protocol's layout is checked before a run, and all rows of its schedule after it. A schedule from a file may hold anything,
so each of its numbers is compared with the least and the largest that a recorder can have written.
"""

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.components.component import MOST_GRADIENTS
from fred.schedule.layout import Cut, Layout, is_whole_number
from fred.schedule.schedule import COLUMNS, NONE, SCALES, UNENDING, Intervals, Schedule, Verb, What

_SECOND = 1e9  # ns
_Bounds = Mapping[str, tuple[int, int]]
_MOST = 1 << 62  # ns or bytes: the sum of two still fits into 64 bits


def check_layout(layout: Any) -> None:
    """Raise ValueError if `layout` is not a valid `Layout`.

    >>> check_layout(Layout(replicas=2, answer=range(2, 3), on_servers=range(0)))
    Traceback (most recent call last):
    ValueError: `layout` returns answer=range(2, 3); expected numbers of its replicas, from 0 to 1
    """
    if not isinstance(layout, Layout):
        raise ValueError(f"`layout` returns {layout!r}; expected a `Layout`, such as `Layout.central()`")
    for name in ("replicas", "blocks"):
        if not is_whole_number(number := getattr(layout, name)) or number < 1:
            raise ValueError(f"`layout` returns {name}={number!r}; expected a whole number, 1 or more")
    for name in ("answer", "on_servers"):
        numbers = getattr(layout, name)
        if not isinstance(numbers, range) or numbers.step != 1:
            raise ValueError(f"`layout` returns {name}={numbers!r}; expected a range of replicas, one after the other")
        if numbers and not 0 <= numbers[0] <= numbers[-1] < layout.replicas:
            bounds = f"from 0 to {layout.replicas - 1}"
            raise ValueError(f"`layout` returns {name}={numbers!r}; expected numbers of its replicas, {bounds}")
    if not layout.answer:
        raise ValueError("`layout` returns an empty `answer`; expected one replica or more, whose mean is the run's result")
    if layout.cut not in get_args(Cut):
        raise ValueError(f"`layout` returns cut={layout.cut!r}; expected one of {', '.join(get_args(Cut))}")


def check_rows(columns: Mapping[str, NDArray], layout: Layout) -> None:
    """Raise FredError for an impossible schedule: negative counts, or a replica or block that does not exist.

    Args:
        columns: columns of the rows, [rows] each.
        layout: the replicas.

    >>> rows = {name: np.array([2]) for name in ("time_ns", "verb", "worker", "replica", "block", "messages")}
    >>> check_rows(rows | {"bytes": np.array([-5])}, Layout(3, range(3), range(0), blocks=3))
    Traceback (most recent call last):
    fred.FredError: worker 2's ADD at 2e-09 s has bytes -5; expected 0 or more
    """
    has_replica = columns["verb"] != Verb.MIX  # a MIX has no replica
    for name, wrong, expected in (
        ("bytes", columns["bytes"] < 0, "0 or more"),
        ("messages", columns["messages"] < 0, "0 or more"),
        ("replica", has_replica & _outside(columns["replica"], layout.replicas), f"0 to {layout.replicas - 1}"),
        ("block", _outside(columns["block"], layout.blocks), f"0 to {layout.blocks - 1}"),
    ):
        if wrong.any():
            row = {column: int(values[np.argmax(wrong)]) for column, values in columns.items()}
            subject = f"worker {row['worker']}'s {Verb(row['verb']).name} at {row['time_ns'] / _SECOND:g} s"
            raise FredError(f"{subject} has {name} {row[name]}; expected {expected}")


def _outside(numbers: NDArray, count: int) -> NDArray[np.bool_]:
    return (numbers < 0) | (numbers >= count)


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
    facts = {"workers": workers, "replicas": layout.replicas, "blocks": layout.blocks, "on_servers": layout.on_servers}
    for name, expected in facts.items():
        if getattr(schedule, name) != expected:
            raise ValueError(f"`{name}` is {getattr(schedule, name)}; expected {expected}")
    for name in ("started", "end_ns"):
        if not is_whole_number(number := getattr(schedule, name)) or not 0 <= number <= _MOST:
            raise ValueError(f"`{name}` is {number!r}; expected a whole number, 0 or more")
    if not isinstance(schedule.standstill, str):
        raise ValueError(f"`standstill` is {schedule.standstill!r}; expected text")
    _check_columns("row", schedule.columns, _row_bounds(schedule))
    skips = schedule.intervals.what == What.SKIPPED
    for mask, bounds in ((~skips, _interval_bounds(schedule, servers)), (skips, _skip_bounds(schedule))):
        _check_columns("interval", {name: column[mask] for name, column in schedule.intervals._asdict().items()}, bounds)
    for name in SCALES:
        if schedule[name].dtype != np.float64:
            raise ValueError(f"column `{name}` holds {schedule[name].dtype}; expected float64")
    backwards = np.flatnonzero(np.diff(schedule["time_ns"]) < 0)
    if len(backwards):
        raise ValueError(f"row {backwards[0] + 1} is earlier than the one before")


def _row_bounds(schedule: Schedule) -> _Bounds:
    """Return the least and the largest number of each column; a clock is at most the number of rows."""
    rows = len(schedule)
    nothing, row_numbers, times = NONE, (NONE, rows - 1), (0, schedule.end_ns)
    bounds = {
        "time_ns": times,
        "worker": (nothing, schedule.workers - 1),
        "replica": (nothing, schedule.replicas - 1),
        "block": (0, schedule.blocks - 1),
        "mailbox": row_numbers,
        "source": row_numbers,
        "step": (nothing, schedule.started),  # a pull may precede a minibatch that is never begun
        "timestamp": (nothing, rows),
        "staleness": (-rows, rows),
        "begin_ns": times,
        "end_ns": (0, UNENDING),  # a read that never ended
    }
    return dict.fromkeys(COLUMNS, (0, _MOST)) | bounds


def _interval_bounds(schedule: Schedule, servers: int) -> _Bounds:
    times, workers = (0, UNENDING), (NONE, schedule.workers - 1)
    other = NONE, max(schedule.workers, servers, schedule.replicas * schedule.blocks) - 1
    bounds = {"what": (0, len(What) - 1), "row": (NONE, len(schedule) - 1), "worker": workers, "other": other}
    return dict.fromkeys(Intervals._fields, times) | bounds


def _skip_bounds(schedule: Schedule) -> _Bounds:
    bounds = {"row": (NONE, NONE), "worker": (0, schedule.workers - 1), "other": (1, MOST_GRADIENTS)}
    return dict.fromkeys(Intervals._fields, (0, schedule.end_ns)) | bounds


def _check_columns(kind: str, columns: Mapping[str, NDArray], bounds: _Bounds) -> None:
    for name, (least, most) in bounds.items():
        column = columns[name]
        if column.dtype != np.int64:  # a column with gaps has another type
            raise ValueError(f"column `{name}` holds {column.dtype}; expected int64")
        wrong = np.flatnonzero((column < least) | (column > most))
        if len(wrong):
            raise ValueError(f"{kind} {wrong[0]} has {name} {column[wrong[0]]}; expected {least} to {most}")
