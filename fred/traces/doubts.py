"""Checks that numbers can be compute times: of what is read, and of a trace, whatever it is used for.

Guesses pass the first check before a message proposes them.

A doubt takes the place of any verdict: the table has numbers, but losses and gains from them would be false.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError, briefly
from fred.tables.columns import File
from fred.traces.roles import FILE, PLUS, Roles, is_communication
from fred.traces.trace import Trace

_BEGIN = re.compile(r"(.*?)[_ -]?(begin|start)", re.IGNORECASE)  # of the name of an event
_MOST_RATIO = 1000.0  # between the median times of two workers
_FEWEST_ITERATIONS = 8  # iterations over which a time does not keep growing by chance


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
    if len(seconds) >= _FEWEST_ITERATIONS:
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
    # With an end, the rows are durations; the command needs one column for each role.
    if not (step and worker and event and moment) or "end" in roles.columns or PLUS in step + worker or FILE in (step, worker):
        return
    names = file.columns([event], [])[0][event].names
    pairs = [(name, end) for name in names if (match := _BEGIN.fullmatch(name)) for end in names if _ends(match, name, end)]
    pairs = [(begin, end) for begin, end in pairs if not is_communication(begin)]
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
    """Return True if an event ends the operation that another one begins, `match` being that of `_BEGIN` with its name."""
    return any(end == begin[: match.start(2)] + word for word in ("end", "END", "End", "stop", "finish"))


_UNITS = (1e3, 1e6, 1e9)  # ratios of the units s, ms, us and ns
_RATIO_TOLERANCE = 3.0  # factor by which compute times of two workers may differ from a ratio of units
_STEADY_RATIO = 10.0  # factor within which a constant ratio of two workers stays in nearly all iterations
_LEAST_WAIT = 0.8  # median wait of the slow worker, relative to the next one's
_RISES = 0.98  # share of iterations in which a clock is later than before; a restart sets it back
_GROWTH = 3.0  # growth of a clock in the record; a step that becomes slower grows less, and not in each iteration
_MEND = "python -c \"import pandas as p; t = p.read_csv('seen/trace.csv', dtype={{'worker': str}}); {}\""
_WRITE = "t.to_csv('mended.csv', index=False)"


class Doubt(NamedTuple):
    """A reason not to believe the times of a trace.

    Args:
        reason: the fault, in a sentence.
        evidence: the numbers that show it, in a sentence.
        remedies: what to do, in sentences and commands.
    """

    reason: str
    evidence: str
    remedies: tuple[str, ...]


def find_doubt(trace: Trace) -> Doubt | None:
    """Return the first reason not to believe the times of a trace; None if there is none.

    Args:
        trace: recorded times, s.

    >>> seconds = np.random.default_rng(0).lognormal(sigma=0.1, size=(20, 3)) * [1, 1, 1000]
    >>> find_doubt(Trace(seconds, ("a", "b", "c"))).reason
    'The times of c are 1,000 times those of the others: they have another unit.'
    """
    return next((doubt for check in _CHECKS if (doubt := check(trace))), None)


def refuse_doubtful(trace: Trace) -> None:
    """Raise FredError if the numbers of a trace cannot be compute times.

    Args:
        trace: recorded times, s.
    """
    if doubt := find_doubt(trace):
        raise FredError(f"{trace.source}: {' '.join((doubt.reason, doubt.evidence, *doubt.remedies))}")


def _check_collective(trace: Trace) -> Doubt | None:
    """Return a doubt if the times are those of communication or of waiting, by their name."""
    if not trace.collective:
        return None
    medians = np.median(trace.seconds, axis=0)
    order = np.argsort(medians, kind="stable")
    evidence = "No worker waits clearly less than the others."
    if len(order) > 1 and medians[order[0]] < _LEAST_WAIT * medians[order[1]]:
        slowest, usual_wait = int(order[0]), float(np.median(medians[order[1:]]))
        evidence = (
            f"Who waits least is the slow one: {trace.worker(slowest)}, with a median of {medians[slowest]:.3g} s; the others "
            f"have {usual_wait:.3g} s."
        )
    return Doubt(
        f"The times are those of `{trace.collective}`, in which quick workers wait for the slow ones.",
        evidence,
        ('Record compute times with `fred record`, as the page "Record step times" shows.',),
    )


def _check_waiting(trace: Trace) -> Doubt | None:
    """Return a doubt if workers wait for one another in the times."""
    if not trace.waiting.certain:
        return None
    return Doubt(
        "The times contain waiting for the slowest worker.",
        trace.waiting.evidence,
        (
            'Record the time of each worker without its waits, as the page "Record step times" shows.',
            "Or give the operations of all workers: a table with iteration, worker, type, start and duration, or profiles.",
        ),
    )


def _check_units(trace: Trace) -> Doubt | None:
    """Return a doubt if some workers' times are a power of 1,000 times those of the others."""
    # The largest gap between the sorted medians divides the workers in two. Another unit gives a ratio near 1,000, 1e6 or 1e9
    # in nearly all iterations; a worker that is that much slower for another reason is not so steadily.
    logs = np.log(np.median(trace.seconds, axis=0))
    order = np.argsort(logs, kind="stable")
    gaps = np.diff(logs[order])
    if not len(gaps) or gaps.max() < np.log(_UNITS[0] / _RATIO_TOLERANCE):
        return None
    large = np.sort(order[int(np.argmax(gaps)) + 1 :])
    small = np.setdiff1d(order, large)
    ratio = np.median(trace.seconds[:, large], axis=1) / np.median(trace.seconds[:, small], axis=1)
    low, usual, high = np.quantile(ratio, (0.05, 0.5, 0.95))
    unit = min(_UNITS, key=lambda ratio_of_units: abs(np.log(usual / ratio_of_units)))
    if high > _STEADY_RATIO * low or not 1 / _RATIO_TOLERANCE < usual / unit < _RATIO_TOLERANCE:
        return None
    # The smaller part of the workers is taken to have the wrong unit.
    affected, operator = (large, "/=") if len(large) <= len(small) else (small, "*=")
    factor = f"{unit:,.0f} times" if operator == "/=" else f"1/{unit:,.0f} of"
    return Doubt(
        f"The times of {_name(trace, affected)} are {factor} those of the others: they have another unit.",
        f"The ratio is {low:,.0f} to {high:,.0f} in nine of ten iterations; a slow worker is not slow by a unit.",
        _remedies(f"t.loc[t.worker.isin({_names(trace, affected)}), 'seconds'] {operator} {unit:g}; {_WRITE}"),
    )


def _check_clocks(trace: Trace) -> Doubt | None:
    """Return a doubt if the times of some workers only grow, as the time since the start does."""
    seconds = trace.seconds
    if len(seconds) < _FEWEST_ITERATIONS:
        return None
    rises = (np.diff(seconds, axis=0) > 0).mean(axis=0)
    growth = seconds.max(axis=0) / seconds.min(axis=0)
    clocks = np.flatnonzero((rises >= _RISES) & (growth >= _GROWTH))
    if not len(clocks):
        return None
    first, all_workers = int(clocks[0]), len(clocks) == seconds.shape[1]
    subject = "all workers" if all_workers else _name(trace, clocks)
    steps = "t['seconds'] = t.groupby('worker').seconds.diff()"
    if not all_workers:
        steps += f".where(t.worker.isin({_names(trace, clocks)}), t.seconds)"
    return Doubt(
        f"The times of {subject} only grow: they are times since the start, not of a step.",
        f"Those of {trace.worker(first)} go from {seconds[0, first]:,.4g} to {seconds[-1, first]:,.4g} s.",
        _remedies(f"{steps}; t = t[t.iteration > 0]; {_WRITE}"),
    )


def _remedies(program: str) -> tuple[str, ...]:
    """Return the remedies of a doubt: what to record, and commands that mend the table that `fred diagnose --out` writes.

    `program` changes that table, the pandas frame `t`, and writes it.
    """
    return (
        "Record the time of each step, in one unit. Or mend this table: add `--out seen` to `fred diagnose`, then run",
        f"{_MEND.format(program)} && fred diagnose mended.csv --mend drop",
    )


def _name(trace: Trace, workers: NDArray[np.int64]) -> str:
    """Return workers as a sentence names them, the first of many."""
    return briefly([trace.worker(int(worker)) for worker in workers])


def _names(trace: Trace, workers: NDArray[np.int64]) -> list[str]:
    """Return the names of workers, as the table has them."""
    return [trace.workers[worker] for worker in workers]


_CHECKS: tuple[Callable[[Trace], Doubt | None], ...] = (_check_collective, _check_clocks, _check_units, _check_waiting)
