"""Busy times of steps from the operations of workers, without the time in which an operation waits for other workers.

Operations of several streams or threads overlap and nest, so the time of a step is that of the union of their intervals.
Communication is left out: it lasts as long as the slowest worker takes, so with it all workers look alike
[Lin et al. 2025, OSDI, arXiv:2505.05713, who recompute steps from operations]. Operations that wait under another name are
recognised by their behaviour: they begin when each worker arrives and end on all workers together. They may also compute, as
a backward pass that averages gradients does. So the worker that waits least in an operation tells how long it takes by itself,
and what others take longer is waiting. Where only durations are known, the operation that waits makes up for the differences
of all others.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.words import briefly, listed
from fred.traces.columns import Labels

Ints, Floats = NDArray[np.int64], NDArray[np.float64]
_TOGETHER = 0.25  # spread of ends relative to that of begins below which workers end together
_MATTERS = 0.005  # spread of begins, as a share of a step, from which it matters
_EQUAL = 0.2  # spread of steps relative to that of their operations below which the operations make up for one another
_FITS, _UNFIT = 0.3, 0.6  # mean distance from -1 of the slopes of an operation that waits, and of others
_HIDES, _STANDS_OUT = 0.1, 0.05  # share of a step inside operations that wait, and loss outside them, from which they count
_NEVER_WAIT = ("data", "load", "fetch", "input", "read", "h2d", "memcpy", "forward", "fwd", "optim")


@dataclass(frozen=True)
class Operations:
    """The operations of which times consist.

    Args:
        cell: number of the time to which each operation belongs [operations].
        kind: kind of each operation.
        seconds: durations, s [operations].
        start: begins, s, on one clock for each worker [operations]; None if unknown.
    """

    cell: Ints
    kind: Labels
    seconds: Floats
    start: Floats | None = None


class Own(NamedTuple):
    """Times without waiting.

    Args:
        seconds: time of each cell, s.
        notes: sentences that say what was recognised.
    """

    seconds: Floats
    notes: tuple[str, ...]


def busy(step: Ints, start: Floats, end: Floats, steps: int) -> Floats:
    """Return the length of the union of each step's intervals: [steps], 0 for a step without any.

    Args:
        step: number of each operation's step, from 0 [operations].
        start: start of each operation, in any unit [operations].
        end: end of each operation [operations].
        steps: number of steps.

    >>> busy(np.array([0, 0, 0, 1]), np.array([0.0, 1.0, 5.0, 9.0]), np.array([3.0, 2.0, 6.0, 9.5]), 3).tolist()
    [4.0, 0.5, 0.0]
    """
    steps_of, times = np.concatenate((step, step)), np.concatenate((start, end))
    change = np.repeat([1, -1], len(step))
    order = np.lexsort((-change, times, steps_of))
    steps_of, times = steps_of[order], times[order]
    running = np.cumsum(change[order])[:-1] > 0  # none runs from one step to the next
    return np.bincount(steps_of[1:], np.where(running, np.diff(times), 0.0), minlength=steps).astype(np.float64)


def own_times(operations: Operations, iteration: Ints, worker: Ints, workers: int) -> Own | None:
    """Return each worker's times without waiting in operations; None if no operation is seen to wait for other workers.

    What the worker that waits least takes inside such an operation is part of all times, as its mean over the iterations.

    Args:
        operations: operations of all workers.
        iteration: number of the iteration of each cell.
        worker: number of the worker of each cell.
        workers: number of workers.

    >>> loading, averaging = np.array([1.0, 1.2, 1.1, 3.0, 1.1, 3.1]), np.array([1.2, 1.0, 2.9, 1.0, 3.0, 1.0])
    >>> kind, cell = Labels(np.repeat([0, 1], 6), ["load", "average"]), np.tile(np.arange(6), 2)
    >>> both = np.concatenate((loading, averaging))
    >>> operations = Operations(cell, kind, both, np.where(kind.codes == 0, 0.0, loading[cell]))
    >>> found = own_times(operations, np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 0, 1, 0, 1]), 2)
    >>> found.seconds.round(9).tolist()
    [2.0, 2.2, 2.1, 4.0, 2.1, 4.1]
    """
    if workers < 2 or not len(operations.cell) or not np.isfinite(operations.seconds).all():
        return None
    steps = len(iteration)
    if operations.start is None:
        return _without_starts(operations, iteration, worker, workers)
    wait, kinds = _waits(operations, operations.start, iteration, worker, workers)
    if not kinds:
        return None
    end = operations.start + operations.seconds
    whole = busy(operations.cell, operations.start, end, steps)
    seconds = busy(operations.cell, operations.start + wait, end, steps)
    other = ~np.isin(operations.kind.codes, [operations.kind.names.index(kind) for kind in kinds])
    outside = busy(operations.cell[other], operations.start[other], end[other], steps)
    tables = (_table(values, iteration, worker, workers) for values in (whole, outside, seconds - outside))
    own, notes = _own(*tables, kinds, "as all end it together whenever they begin")
    return Own(own[iteration, worker], notes)


def _waits(operations: Operations, start: Floats, iteration: Ints, worker: Ints, workers: int) -> tuple[Floats, list[str]]:
    """Return the waiting in each operation, and the kinds that wait.

    The k-th operation of a kind in an iteration is the same on all workers.
    """
    cell, kind = operations.cell, operations.kind.codes
    order = np.lexsort((start, kind, cell))
    first = np.concatenate(([True], (np.diff(cell[order]) != 0) | (np.diff(kind[order]) != 0)))
    place = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    nth = np.empty(len(order), np.int64)
    nth[order] = place
    order = np.lexsort((worker[cell], nth, kind, iteration[cell]))
    key = np.stack((iteration[cell], kind, nth))[:, order]
    begins = np.concatenate(([0], np.flatnonzero((np.diff(key) != 0).any(0)) + 1, [len(order)]))
    full = begins[:-1][np.diff(begins) == workers]
    members = order[full[:, None] + np.arange(workers)]  # [operations that all have, workers]
    members = members[(worker[cell[members]] == np.arange(workers)).all(1)]
    wait, kinds = np.zeros(len(cell)), []
    if not len(members):
        return wait, kinds
    begun = np.full(len(iteration), np.inf)
    np.minimum.at(begun, cell, start)
    end = start + operations.seconds
    whole = np.zeros(len(iteration))
    np.maximum.at(whole, cell, end)
    step = float(np.median(whole - begun))
    of = kind[members[:, 0]]
    for code in np.unique(of):
        same = members[of == code]
        clocks = begun[cell[same]], np.zeros(same.shape)  # a step's begin; or the file's, less each worker's median
        if any(_together(start[same] - clock, end[same] - clock, step, bool(i)) for i, clock in enumerate(clocks)):
            wait[same] = operations.seconds[same] - operations.seconds[same].min(1, keepdims=True)
            kinds.append(operations.kind.names[code])
    return wait, kinds


def _together(start: Floats, end: Floats, step: float, offset: bool) -> bool:
    """Return True if workers begin an operation at different times and end it together: [operations, workers]."""
    spreads = []
    for moments in (start, end):
        apart = moments - np.median(moments, axis=1, keepdims=True)
        spreads.append(float(np.median(np.ptp(apart - (np.median(apart, axis=0) if offset else 0.0), axis=1))))
    return spreads[0] > _MATTERS * step and spreads[1] < _TOGETHER * spreads[0]


def _without_starts(operations: Operations, iteration: Ints, worker: Ints, workers: int) -> Own | None:
    """Return times without waiting from durations: one kind makes up for the differences of all others.

    A kind that waits is shorter by as much as another is longer, so its slope on each other kind is -1; other kinds do not
    depend on one another. Of two kinds, each makes up for the other: names and the order of a step decide.
    """
    kinds, steps = len(operations.kind.names), len(iteration)
    if kinds < 2:
        return None
    sums = np.bincount(operations.kind.codes * steps + operations.cell, operations.seconds, minlength=kinds * steps)
    table = np.stack([_table(values, iteration, worker, workers) for values in sums.reshape(kinds, steps)])
    full = table[:, np.isfinite(table).all((0, 2))]
    if full.shape[1] < 2:
        return None
    apart = full - full.mean(2, keepdims=True)
    spread = np.median(np.ptp(full, axis=2), axis=1)
    whole = float(np.median(np.ptp(full.sum(0), axis=1)))
    if whole > _EQUAL * spread.max() or spread.max() < _MATTERS * float(np.median(full.sum(0))):
        return None
    vary = np.flatnonzero(spread > max(2 * whole, 0.01 * float(spread.max())))
    waits = _makes_up(apart, vary, operations.kind.names)
    if waits is None:
        names = listed([operations.kind.names[kind] for kind in vary])
        which = f"operations: one of {names} waits for other workers; record the start of each operation to see which"
        return Own(table.sum(0)[iteration, worker], (which,))
    inside = np.broadcast_to(table[waits].min(1, keepdims=True), table[waits].shape)
    why = "as it makes up for the differences of all other operations"
    own, notes = _own(table.sum(0), table.sum(0) - table[waits], inside, [operations.kind.names[waits]], why)
    return Own(own[iteration, worker], notes)


def _makes_up(apart: Floats, vary: Ints, names: list[str]) -> int | None:
    """Return the kind that makes up for the differences of the others; None if it may be one or another."""
    levels = np.median(apart, axis=1, keepdims=True)
    changes = (apart - levels).reshape(len(apart), -1)
    steady = np.median(np.abs(changes), axis=1) < np.abs(levels).max((1, 2)) / 2  # workers differ more than iterations do
    flat = apart.reshape(len(apart), -1), changes
    slopes = {
        int(kind): [_slope(flat[0 if steady[i] else 1][i], flat[0 if steady[i] else 1][kind]) for i in vary if i != kind]
        for kind in vary
    }
    distance = {kind: float(np.mean(np.abs(np.array(of) + 1))) for kind, of in slopes.items() if of}
    able = sorted((kind for kind in distance if distance[kind] <= _FITS), key=lambda kind: distance[kind])
    if len(able) == 1 and all(far >= _UNFIT for kind, far in distance.items() if kind != able[0]):
        return able[0]
    named = [kind for kind in able if not any(word in names[kind].lower() for word in _NEVER_WAIT)]
    return named[0] if len(named) == 1 else None


def _slope(x: Floats, y: Floats) -> float:
    """Return the median slope of y on x, which rare large values of a third variable do not change."""
    large = np.abs(x) > np.median(np.abs(x))
    return float(np.median(y[large] / x[large])) if large.any() else 0.0


def _table(values: Floats, iteration: Ints, worker: Ints, workers: int) -> Floats:
    """Return the values of all cells as a table [iterations, workers], NaN where there is none."""
    table = np.full((int(iteration.max()) + 1, workers), np.nan)
    table[iteration, worker] = values
    return table


def _own(whole: Floats, outside: Floats, inside: Floats, kinds: list[str], why: str) -> Own:
    """Return times without waiting; those of the rounds if a worker that is slow inside the operations may be hidden.

    Args:
        whole: times with waiting, s [iterations, workers].
        outside: times outside operations that wait, s [iterations, workers].
        inside: times inside them without waiting, s [iterations, workers].
        kinds: kinds of operations that wait.
        why: clause that says how this was seen.
    """
    names = briefly([f"`{kind}`" for kind in kinds])
    note = f"operations: {names} waits for other workers, {why}"
    own = outside + np.nanmean(inside)  # all have this part in common, so as it varies it would look like waiting
    full = own[np.isfinite(own).all(1)]
    lost = 1 - np.median(full, axis=1).sum() / full.max(1).sum() if len(full) else 0.0
    if lost < _STANDS_OUT and np.nanmean(inside) > _HIDES * np.nanmean(own):
        rounds = np.where(np.isfinite(whole), np.nanmedian(whole, axis=1, keepdims=True), np.nan)
        return Own(rounds, (f"{note}; no worker is slow outside it, and a worker that is slow inside it does not show",))
    left = "a worker's time in it beyond that of the worker that waits least is left out as waiting"
    return Own(own, (f"{note}: {left}; a worker that is slow inside it does not show",))
