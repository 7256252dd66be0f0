"""A full table of iterations and workers from single times: gaps and duplicates are refused, or repaired as the user says."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.base.intervals import FEWEST_ROUNDS
from fred.base.words import briefly
from fred.components.limits import LONGEST
from fred.traces.cells import Cells
from fred.traces.refusal import UnclearTraceError
from fred.traces.roles import AND, FILE

Mend = Literal["refuse", "drop", "fill"]
Table = NDArray[np.float64]  # [iterations, workers], s; NaN: missing
_LASTING = 5  # iterations without a time at the end, from which a worker is said to have ended
_SHOWN = 3  # places shown in a message
_MOST_FILLED = 0.5  # share of the times; a table with more gaps is not the workers' any more
_ENOUGH = 0.8  # share of iterations without gaps below which filling is proposed first


@dataclass(frozen=True)
class Mended:
    """A table without gaps.

    Args:
        seconds: step times, s [iterations, workers].
        repairs: repairs, in words.
        rows: numbers of the iterations that remain [iterations].
    """

    seconds: Table
    repairs: tuple[str, ...]
    rows: NDArray[np.int64]


def mended(cells: Cells, source: str, mend: Mend, longest: float | None) -> Mended:
    """Return the full table of the times in files.

    Args:
        cells: the times.
        source: name of the trace in messages.
        mend: `refuse` gaps and duplicates; or use the first of several times of one gradient, and `drop` iterations with
            gaps or `fill` them with the worker's previous time.
        longest: times above it count as missing, s; so do times that are not above 0.

    Raises UnclearTraceError for gaps and duplicates that are refused, FredError for a table that cannot be repaired.
    """
    _check_size(cells, source)
    impossible = np.flatnonzero((cells.seconds <= 0) | (cells.seconds > (longest or LONGEST)))
    possible = replace(cells, seconds=cells.seconds.copy())
    possible.seconds[impossible] = np.nan
    first, again = _single(possible)
    table = np.full((len(cells.iteration.names), len(cells.worker.names)), np.nan)
    table[cells.iteration.codes[first], cells.worker.codes[first]] = possible.seconds[first]
    gaps = np.isnan(table)
    if mend == "refuse" and (gaps.any() or len(again)):
        raise _refused(cells, source, gaps, impossible, again, longest or LONGEST)
    repairs = []
    if len(impossible):
        found = [f"{cells.place(int(cell))} ({cells.seconds[cell]:g} s)" for cell in impossible[:_SHOWN]]
        shown = briefly(found, _SHOWN, "; ", len(impossible))
        repairs.append(f"{_number(len(impossible), 'impossible time')} taken as missing: {shown}")
    if len(again):
        found = [cells.place(int(cell)) for cell in again[:_SHOWN]]
        shown = briefly(found, _SHOWN, "; ", len(again))
        repairs.append(f"{_number(len(again), 'duplicate')} left out, the first of each kept: {shown}")
    if not gaps.any():
        return Mended(table, tuple(repairs), np.arange(len(table)))
    full, repair = (_dropped if mend == "drop" else _filled)(table, cells, source)
    rows = np.flatnonzero(~gaps.any(axis=1)) if mend == "drop" else np.arange(len(table))
    return Mended(full, (*repairs, repair), rows)


def _check_size(cells: Cells, source: str) -> None:
    iterations, workers, rows = len(cells.iteration.names), len(cells.worker.names), len(cells.seconds)
    if not rows:
        raise FredError(f"{source} has no rows")
    if iterations * workers > 1_000_000 + 10 * rows:
        raise FredError(
            f"{source}: {iterations:,} iterations of {workers:,} workers, but only {rows:,} times; are these the right columns?"
        )


def _single(cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the cells to use, one for each iteration and worker, and the duplicates, both in their order.

    Of duplicates, the first with a time is used.
    """
    order = np.lexsort((np.arange(len(cells.seconds)), np.isnan(cells.seconds), cells.keys))
    keys = cells.keys[order]
    later = np.concatenate(([False], keys[1:] == keys[:-1]))
    return np.sort(order[~later]), np.sort(order[later])


def _refused(
    cells: Cells,
    source: str,
    gaps: NDArray[np.bool_],
    impossible: NDArray[np.int64],
    again: NDArray[np.int64],
    longest: float,
) -> FredError:
    """Return an error that reports all problems, and the ways to repair them."""
    problems, ended = [], _ended(gaps, cells)
    if len(impossible):
        cell = int(impossible[0])
        problems.append(
            f"{cells.place(cell)}: found {cells.seconds[cell]:g} s; expected a time above 0 and up to {longest:g} s. "
            f"Found {_number(len(impossible), 'such time')}"
        )
    if len(again):
        cell = int(again[0])
        earlier = int(np.flatnonzero(cells.keys == cells.keys[cell])[0])
        before = cells.where(int(cells.row[earlier]))
        problems.append(
            f"{cells.place(cell)}: found a second time, after that in {before}. {_number(len(again), 'duplicate time')}"
        )
    if gaps.sum() > len(impossible):
        iteration, worker = (int(found[0]) for found in np.nonzero(gaps))
        place = _at(cells, iteration, worker) or source
        number = _number(int(gaps.sum()), "time")
        who = cells.whose(iteration, worker)
        problems.append(f"{place}: no time for {who}. {number} of {gaps.size:,} missing{ended}")
    stay, size, share = int((~gaps.any(axis=1)).sum()), len(gaps), float(gaps.mean())
    if share > _MOST_FILLED and not stay:
        return FredError(*problems[:-1], f"{problems[-1]}. {_sparse(cells, source, 1 - share)}")
    problems[-1] += (
        f". Choose what to do: `mend: drop` keeps the {stay:,} of {size:,} iterations that have all times; "
        "`mend: fill` keeps all, with the worker's previous time in each gap"
    )
    enough = stay >= _ENOUGH * size or (stay >= FEWEST_ROUNDS and ended)
    ways = ("drop",) if share > _MOST_FILLED else ("drop", "fill") if enough else ("fill", "drop")
    return UnclearTraceError(*problems, remedies=[{"mend": way} for way in ways])


def _sparse(cells: Cells, source: str, share: float) -> str:
    """Return what to do with iterations in which only some workers take part, such as sampled clients."""
    iteration, worker = cells.columns.get("iteration", FILE), cells.columns.get("worker", FILE)
    said = f"Workers take part in {share:.0%} of the iterations, and no iteration has all. Compare their k-th times instead"
    if not source.endswith(".csv") or any(AND in name or name == FILE for name in (iteration, worker)):
        return f"{said}: number the times of each worker in the column of iterations, and set `mend: drop`"
    numbered = f"t['{iteration}'] = t.groupby('{worker}').cumcount(); t.to_csv('numbered.csv', index=False)"
    command = f"import pandas; t = pandas.read_csv('{source}', sep=None, engine='python'); {numbered}"
    return f'{said}: `python -c "{command}"`, and read `numbered.csv` with `mend: drop`'


def _ended(gaps: NDArray[np.bool_], cells: Cells) -> str:
    """Return a clause about workers without times from some iteration on, or an empty text."""
    missing = np.where(gaps.all(axis=0), 0, np.argmin(gaps[::-1], axis=0))  # last iterations without a time, of each worker
    lasting = np.flatnonzero(missing >= _LASTING).tolist()
    if not lasting:
        return "; some workers end before others" if missing.sum() == gaps.sum() else ""
    since = [
        f"{cells.worker.names[each]} (from iteration {cells.iteration.names[len(gaps) - missing[each]]})" for each in lasting
    ]
    return f"; without times to the end: {briefly(since, _SHOWN)}"


def _dropped(table: Table, cells: Cells, source: str) -> tuple[Table, str]:
    gaps = np.isnan(table)
    whole = ~gaps.any(axis=1)
    if not whole.any():
        raise FredError(f"{source}: no iteration has all times, so `mend: drop` leaves nothing; expected `mend: fill`")
    left = _number(int((~whole).sum()), "iteration")
    return table[whole], f"{left} of {len(table):,} left out, for {_missing(gaps, cells)}"


def _filled(table: Table, cells: Cells, source: str) -> tuple[Table, str]:
    """Fill gaps with the worker's previous time, and gaps at the beginning with its first time."""
    gaps = np.isnan(table)
    never = np.flatnonzero(gaps.all(axis=0))
    if len(never):
        names = briefly([cells.worker.names[worker] for worker in never])
        raise FredError(
            f"{source}: no time at all of worker {names}, so `mend: fill` cannot fill the gaps; leave this worker out"
        )
    rows = np.arange(len(table))[:, None]
    last = np.maximum.accumulate(np.where(gaps, -1, rows), axis=0)
    source_row = np.where(last < 0, (~gaps).argmax(axis=0), last)
    share = f"{gaps.mean():.1%} of all, at most {gaps.mean(axis=0).max():.0%} of one worker's"
    repair = f"{_missing(gaps, cells)} filled in with the worker's previous time: {share}{_ended(gaps, cells)}"
    return np.take_along_axis(table, source_row, axis=0), repair


def _missing(gaps: NDArray[np.bool_], cells: Cells) -> str:
    places = [cells.whose(int(iteration), int(worker)) for iteration, worker in np.argwhere(gaps)[:_SHOWN]]
    number = int(gaps.sum())
    return f"{_number(number, 'missing time')} ({briefly(places, _SHOWN, '; ', number)})"


def _at(cells: Cells, iteration: int, worker: int) -> str:
    """Return the place of the row with the missing time, if there is such a row."""
    found = np.flatnonzero((cells.iteration.codes == iteration) & (cells.worker.codes == worker))
    return cells.where(int(cells.row[found[0]])) if len(found) else ""


def _number(number: int, of: str) -> str:
    return f"{number:,} {of}{'s' if number != 1 else ''}"
