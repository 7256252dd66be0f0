"""Busy times of steps from the operations of workers, without the time in which an operation waits for other workers.

Operations of several streams or threads overlap and nest, so the time of a step is that of the union of their intervals.
Communication is left out: it lasts as long as the slowest worker takes, so with it all workers look alike
[Lin et al. 2025, OSDI, arXiv:2505.05713, who recompute steps from operations].

Operations that wait under another name are recognised by their behaviour: workers begin them when they arrive, and end them
together. They may also compute, as a backward pass that averages gradients does. The worker that waits least shows how long
they take without waiting; the rest is waiting. Without starts, an operation that waits makes up for the differences of all
others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import briefly, listed
from fred.base.types import Floats, Ints
from fred.tables.columns import Labels

_FEWEST_OPERATIONS = 8  # operations, or iterations, in which workers do not wait for one another by chance
_QUANTILE = 0.8  # share of them in which workers are to end together
_END_SPREAD = 0.25  # spread of ends relative to that of starts below which workers end together
_LEAST_SPREAD = 0.005  # spread of starts, as a share of a step, from which it matters
_BALANCED_SPREAD = 0.2  # spread of steps relative to that of an operation below which operations make up for one another
_HIDING_SHARE = 0.1  # share of a step inside operations that wait, from which it may hide a slow worker
_LEAST_LOSS = 0.05  # loss of time outside these operations, from which a worker is slow there
_FITTING, _NOT_FITTING = 0.3, 0.6  # mean distance from -1 of the slopes of an operation that waits, and of others
_NEVER_WAIT = ("data", "load", "fetch", "input", "read", "h2d", "memcpy", "forward", "fwd", "optim")  # rather than another


@dataclass(frozen=True)
class Operations:
    """The operations of which times consist.

    Args:
        cell: number of the time to which each operation belongs [operations].
        kind: kind of each operation.
        seconds: durations, s [operations].
        start: starts, s, on one clock for each worker [operations]; None if unknown.
        mixed: True if an operation that waits may also compute; kernels that wait only communicate.
    """

    cell: Ints
    kind: Labels
    seconds: Floats
    start: Floats | None = None
    mixed: bool = True


class ComputeTimes(NamedTuple):
    """Times without the waiting that operations show.

    Args:
        seconds: the times, s.
        note: sentence that names the operations that wait.
    """

    seconds: Floats
    note: str


def busy_times(step: Ints, start: Floats, end: Floats, steps: int) -> Floats:
    """Return the length of the union of each step's intervals: [steps], 0 for a step without any.

    Args:
        step: number of each operation's step, from 0 [operations].
        start: start of each operation, in any unit [operations].
        end: end of each operation [operations].
        steps: number of steps.

    >>> busy_times(np.array([0, 0, 0, 1]), np.array([0.0, 1.0, 5.0, 9.0]), np.array([3.0, 2.0, 6.0, 9.5]), 3).tolist()
    [4.0, 0.5, 0.0]
    """
    # A sweep over all steps at once: sorted by step and time, starts add 1 to the number of running operations and ends
    # subtract 1. Starts come before ends at the same time, so adjoining operations leave no gap. The number is 0 after the last
    # end of each step, so the time from one step to the next never counts.
    event_steps, times = np.concatenate((step, step)), np.concatenate((start, end))
    change = np.repeat([1, -1], len(step))
    order = np.lexsort((-change, times, event_steps))
    event_steps, times = event_steps[order], times[order]
    running = np.cumsum(change[order])[:-1] > 0
    return np.bincount(event_steps[1:], np.where(running, np.diff(times), 0.0), minlength=steps).astype(np.float64)


def find_compute_times(operations: Operations, iteration: Ints, worker: Ints, workers: int) -> ComputeTimes | None:
    """Return the times without waiting in operations; None if no operation is seen to wait for other workers.

    The part of the worker that waits least is in all times, as its mean over the iterations.

    Args:
        operations: operations of all workers.
        iteration: number of the iteration of each time.
        worker: number of the worker of each time.
        workers: number of workers.

    >>> loading = np.random.default_rng(0).lognormal(size=(8, 2))
    >>> averaging = 1 + loading.max(axis=1, keepdims=True) - loading  # 1 s, after the slower worker has arrived
    >>> kind, cell = Labels(np.repeat([0, 1], 16), ["load", "average"]), np.tile(np.arange(16), 2)
    >>> start = np.where(kind.codes == 0, 0.0, loading.ravel()[cell])
    >>> operations = Operations(cell, kind, np.concatenate((loading.ravel(), averaging.ravel())), start)
    >>> times = find_compute_times(operations, np.arange(16) // 2, np.arange(16) % 2, 2)
    >>> np.allclose(times.seconds, loading.ravel() + 1)
    True
    """
    measured = np.bincount(operations.cell, minlength=len(iteration)) > 0  # times all of whose operations are known
    ends = operations.seconds if operations.start is None else operations.seconds + operations.start
    measured[operations.cell[~np.isfinite(ends)]] = False
    is_of_measured = measured[operations.cell]
    if workers < 2 or not is_of_measured.any():
        return None
    steps = _Steps(iteration, worker, workers, measured, operations.mixed)
    kind = Labels(operations.kind.codes[is_of_measured], operations.kind.names)
    cell, seconds = operations.cell[is_of_measured], operations.seconds[is_of_measured]
    complete = replace(operations, cell=cell, kind=kind, seconds=seconds)
    if operations.start is None:
        return _use_durations(complete, steps)
    return _use_starts(complete, operations.start[is_of_measured], steps)


class _Steps(NamedTuple):
    """Iteration and worker of each time; the times that all their operations give; `mixed` as in `Operations`."""

    iteration: Ints
    worker: Ints
    workers: int
    measured: NDArray[np.bool_]
    mixed: bool

    def table(self, values: Floats) -> Floats:
        """Return a value for each time as a table [iterations, workers], NaN where there is none."""
        table = np.full((int(self.iteration.max()) + 1, self.workers), np.nan)
        table[self.iteration, self.worker] = np.where(self.measured, values, np.nan)
        return table

    def subtract_waiting(
        self, total: Floats, outside: Floats, inside: Floats, kinds: Sequence[str], reason: str
    ) -> ComputeTimes:
        """Return the times without waiting; those of the rounds if a worker that is slow inside operations may be hidden.

        Args:
            total: times with waiting, s [iterations, workers].
            outside: times outside operations that wait, s [iterations, workers].
            inside: times inside them without waiting, s [iterations, workers].
            kinds: operations that wait.
            reason: clause that says how this was seen.
        """
        note = f"operations that wait for other workers, {reason}: {briefly([f'`{kind}`' for kind in kinds])}; "
        if not self.mixed:
            return ComputeTimes(outside[self.iteration, self.worker], f"{note}left out as communication")
        complete = np.isfinite(outside).all(1)
        # The mean over all iterations is added, not the part of the iteration itself: that part is the same for all workers,
        # and a variation that workers share looks like waiting (`waiting.py`).
        common = float(inside[complete].mean()) if complete.any() else 0.0
        times = outside + common
        # Share of the time in which the median worker would wait for the slowest one.
        loss = 1 - np.median(times[complete], axis=1).sum() / times[complete].max(1).sum() if complete.any() else 0.0
        if loss < _LEAST_LOSS and common > _HIDING_SHARE * np.nanmean(times):
            times = _round_times(total)
            note += "no worker is slow outside them"
        else:
            note += "left out: the time of each worker in them beyond that of the worker that waits least"
        return ComputeTimes(times[self.iteration, self.worker], f"{note}; a worker that is slow inside them does not show")


def _use_starts(operations: Operations, start: Floats, steps: _Steps) -> ComputeTimes | None:
    """Return times without waiting if workers start some kinds of operations at different times and end them together."""
    cell, kind, end = operations.cell, operations.kind.codes, start + operations.seconds
    members = _match_operations(operations, start, steps)
    if not len(members):
        return None
    count = len(steps.iteration)
    step_begin, step_end = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(step_begin, cell, start)
    np.maximum.at(step_end, cell, end)
    least_spread = _LEAST_SPREAD * float(np.median((step_end - step_begin)[np.unique(cell)]))
    wait, waiting_kinds = np.zeros(len(cell)), []  # of each operation, s
    for code in np.unique(kind[members[:, 0]]):
        matches = members[kind[members[:, 0]] == code]
        # Clocks of workers may differ, so their moments are compared in two ways: from the beginning of each worker's step, or
        # without a constant offset for each worker. One of them is enough.
        begin = step_begin[cell[matches]]
        if _end_together(start[matches] - begin, end[matches] - begin, least_spread) or _end_together(
            _remove_offsets(start[matches]), _remove_offsets(end[matches]), least_spread
        ):
            wait[matches] = operations.seconds[matches] - operations.seconds[matches].min(1, keepdims=True)
            waiting_kinds.append(int(code))
    if not waiting_kinds:
        return None
    is_outside = ~np.isin(kind, waiting_kinds)
    outside = busy_times(cell[is_outside], start[is_outside], end[is_outside], count)
    # What these operations add to a step once each lasts as long as on the worker that waits least.
    inside = busy_times(cell, start + wait, end, count) - outside
    total, outside, inside = (steps.table(values) for values in (busy_times(cell, start, end, count), outside, inside))
    names = [operations.kind.names[code] for code in waiting_kinds]
    return steps.subtract_waiting(total, outside, inside, names, "as all end them together")


def _round_times(total: Floats) -> Floats:
    """Return the median time of each iteration for all workers, so that nothing is concluded from their differences."""
    is_measured = np.isfinite(total)
    median = [np.median(row[mask]) if mask.any() else np.nan for row, mask in zip(total, is_measured, strict=True)]
    return np.where(is_measured, np.array(median)[:, None], np.nan)


def _match_operations(operations: Operations, start: Floats, steps: _Steps) -> Ints:
    """Return the numbers of the operations that all workers have, by iteration, kind and k: [operations, workers].

    The k-th operation of a kind in an iteration is the same on all workers.
    """
    # `k` numbers the operations of a kind in an iteration of a worker, by their starts. Sorted by iteration, kind, k and
    # worker, the rows of one operation are then neighbours, and it is complete if there are as many as workers.
    cell, kind, rows = operations.cell, operations.kind.codes, np.arange(len(operations.cell))
    order = np.lexsort((start, kind, cell))
    is_first = np.concatenate(([True], (np.diff(cell[order]) != 0) | (np.diff(kind[order]) != 0)))
    k = np.empty(len(rows), np.int64)
    k[order] = rows - np.maximum.accumulate(np.where(is_first, rows, 0))
    order = np.lexsort((steps.worker[cell], k, kind, steps.iteration[cell]))
    keys = np.stack((steps.iteration[cell], kind, k))[:, order]
    bounds = np.concatenate(([0], np.flatnonzero((np.diff(keys) != 0).any(0)) + 1, [len(rows)]))
    complete_begins = bounds[:-1][np.diff(bounds) == steps.workers]
    members = order[complete_begins[:, None] + np.arange(steps.workers)]
    # A duplicate of a time, such as after a restart, may have taken the place of another worker.
    return members[(steps.worker[cell[members]] == np.arange(steps.workers)).all(1)]


def _remove_offsets(moments: Floats) -> Floats:
    """Return moments without the constant offsets of the workers' clocks: [operations, workers]."""
    deviations = moments - np.median(moments, axis=1, keepdims=True)
    return deviations - np.median(deviations, axis=0)


def _end_together(start: Floats, end: Floats, least_spread: float) -> bool:
    """Return True if workers start an operation at different times and end it together: [operations, workers].

    `least_spread` is the spread of starts, s, from which they differ.
    """
    start_spread, end_spread = (float(np.quantile(np.ptp(moments, axis=1), _QUANTILE)) for moments in (start, end))
    return len(start) >= _FEWEST_OPERATIONS and start_spread > least_spread and end_spread < _END_SPREAD * start_spread


def _use_durations(operations: Operations, steps: _Steps) -> ComputeTimes | None:
    """Return times without waiting if a kind of operations makes up for the differences of all others."""
    kinds, count = len(operations.kind.names), len(steps.iteration)
    if kinds < 2:
        return None
    index = operations.kind.codes * count + operations.cell  # in a flat array [kinds, times]
    sums = np.bincount(index, operations.seconds, minlength=kinds * count).astype(np.float64).reshape(kinds, count)
    table = np.stack([steps.table(values) for values in sums])  # s [kinds, iterations, workers]
    complete = table[:, np.isfinite(table).all((0, 2))]
    if complete.shape[1] < _FEWEST_OPERATIONS:
        return None
    spreads = np.quantile(np.ptp(complete, axis=2), _QUANTILE, axis=1)
    total_spread, largest = float(np.quantile(np.ptp(complete.sum(0), axis=1), _QUANTILE)), float(spreads.max())
    if total_spread > _BALANCED_SPREAD * largest or largest < _LEAST_SPREAD * float(np.median(complete.sum(0))):
        return None
    varying = np.flatnonzero(spreads > max(2 * total_spread, 0.01 * largest))  # kinds that vary more than the whole step
    waits = _find_balancing_kind(complete - complete.mean(2, keepdims=True), varying, operations.kind.names)
    if waits is None:
        names = listed([f"`{operations.kind.names[kind]}`" for kind in varying])
        note = f"operations: one of {names} waits for other workers; record the start of each operation to see which"
        return ComputeTimes(_round_times(table.sum(0))[steps.iteration, steps.worker], note)
    inside = np.broadcast_to(table[waits].min(1, keepdims=True), table[waits].shape)
    reason = "as they make up for all differences"
    return steps.subtract_waiting(table.sum(0), table.sum(0) - table[waits], inside, [operations.kind.names[waits]], reason)


def _find_balancing_kind(deviations: Floats, varying: Ints, names: Sequence[str]) -> int | None:
    """Return the kind that makes up for the differences of all others; None if it is unclear which one does.

    That kind is shorter by as much as another is longer, so its slope on each other kind is -1; the others do not depend on
    one another. Of only two kinds, each makes up for the other: their names decide.

    Args:
        deviations: times relative to the mean of all workers, s [kinds, iterations, workers].
        varying: kinds whose times differ.
        names: names of the kinds.
    """
    levels = np.median(deviations, axis=1, keepdims=True)
    changes = (deviations - levels).reshape(len(deviations), -1)
    steady = np.median(np.abs(changes), axis=1) < np.abs(levels).max((1, 2)) / 2  # workers differ more than iterations do
    totals = deviations.reshape(len(deviations), -1)
    distances = {}
    for kind in varying.tolist():
        # If workers differ more than iterations do, their constant differences are the evidence; otherwise they are removed.
        values = [(totals if steady[i] else changes)[[i, kind]] for i in varying.tolist() if i != kind]
        distances[kind] = float(np.mean([abs(_slope(x, y) + 1) for x, y in values])) if values else np.inf
    fitting = [kind for kind, distance in distances.items() if distance <= _FITTING]
    if len(fitting) == 1 and all(distances[kind] >= _NOT_FITTING for kind in distances if kind != fitting[0]):
        return fitting[0]
    likely = [kind for kind in fitting if not any(word in names[kind].lower() for word in _NEVER_WAIT)]
    return likely[0] if len(likely) == 1 else None


def _slope(x: Floats, y: Floats) -> float:
    """Return the median slope of y on x, which rare large values of a third variable do not change."""
    large = np.abs(x) > np.median(np.abs(x))  # the ratios at small x are noise
    return float(np.median(y[large] / x[large])) if large.any() else 0.0
