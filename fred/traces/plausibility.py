"""Checks of what was read: that numbers can be times, and that rows are no events without durations.

Guesses pass the first check before a message proposes them.
"""

import re

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError, briefly
from fred.tables.columns import File
from fred.traces.roles import FILE, PLUS, Roles, is_communication

_BEGIN = re.compile(r"(.*?)[_ -]?(begin|start)", re.IGNORECASE)  # of the name of an event
_MOST_RATIO = 1000.0  # between the median times of two workers
_FEWEST = 8  # iterations over which a time does not keep growing by chance


def find_implausibility(seconds: NDArray[np.float64], workers: tuple[str, ...]) -> str:
    """Return why a table can hold no step times, as a sentence without its full stop; an empty text if it can.

    Args:
        seconds: times, s [iterations, workers].
        workers: names of the workers.

    >>> steps = np.arange(1.0, 21)[:, None]
    >>> find_implausibility(np.hstack([1e9 + steps, steps % 3 + 1]), ("Wall time", "Value"))
    'Wall time only grows, like a moment or a counter'
    >>> find_implausibility(steps % 3 + np.array([[1.0, 5e4]]), ("rank0", "loss"))
    'loss is 25000 times rank0, so they are not times of the same step'
    >>> find_implausibility(steps % 3 + np.array([[1.0, 2.0]]), ("rank0", "rank1"))
    ''
    """
    medians = np.median(seconds, axis=0)
    if len(seconds) >= _FEWEST:
        growing = np.flatnonzero((np.diff(seconds, axis=0) > 0).all(axis=0))
        if len(growing):
            return f"{briefly([workers[worker] for worker in growing])} only grows, like a moment or a counter"
    low, high = int(np.argmin(medians)), int(np.argmax(medians))
    ratio = medians[high] / medians[low] if medians[low] > 0 else 1.0
    if ratio > _MOST_RATIO:
        return f"{workers[high]} is {ratio:.5g} times {workers[low]}, so they are not times of the same step"
    return ""


def check_no_event_pairs(file: File, roles: Roles) -> None:
    """Raise FredError, with a command that writes their durations, if the rows of a table are begins and ends of operations.

    Args:
        file: the table.
        roles: roles of its columns.
    """
    step, worker, event = (roles.get(role) for role in ("iteration", "worker", "type"))
    moment = next((name for name in file.header if file.has_moments(name)), "")
    if not (step and worker and event and moment) or "end" in roles.columns or PLUS in step + worker or FILE in (step, worker):
        return
    names = file.columns([event], [])[0][event].names
    pairs = [(name, end) for name in names if (match := _BEGIN.fullmatch(name)) for end in names if _ends(match, name, end)]
    pairs = [pair for pair in pairs if not is_communication(pair[0])]
    if not pairs:
        return
    begin, end = next((pair for pair in pairs if "comput" in pair[0].lower()), pairs[0])
    command = file.command(
        f".assign(**{{{moment!r}: lambda t: pandas.to_datetime(t[{moment!r}])}})"
        f".pivot_table(index={[step, worker]}, columns={event!r}, values={moment!r}, aggfunc='first')"
        f".assign(seconds=lambda t: (t[{end!r}] - t[{begin!r}]).dt.total_seconds())"
        f".reset_index()[{[step, worker, 'seconds']}]"
    )
    raise FredError(
        f"{file.path}: its rows are events, such as `{begin}` and `{end}`, and FRED needs durations. Write a table of these, "
        f"and read it{f': {command}' if command else ''}"
    )


def _ends(match: re.Match[str], begin: str, end: str) -> bool:
    """Return True if an event ends the operation that another one begins."""
    return any(end == begin[: match.start(2)] + word for word in ("end", "END", "End", "stop", "finish"))
