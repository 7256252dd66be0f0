"""Checks of what a protocol may do: of its layout before a run, and of all rows of its schedule after it."""

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.schedule.layout import Cut, Layout, is_whole_number
from fred.schedule.schedule import Verb

_SECOND = 1e9  # ns


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
