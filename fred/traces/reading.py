"""Reader of traces: logs, exports and tables, in one file or several, become a full table of iterations and workers.

| table      | columns                                                                                           |
|------------|---------------------------------------------------------------------------------------------------|
| long       | `iteration`, `worker`, `seconds`, and `node` if it is known: one row for each gradient            |
| wide       | one column for each worker, and `iteration` if there is one: one row for each iteration           |
| operations | `iteration`, `worker`, `start`, `end` or a duration, and a `type`: several rows for each gradient |

`fred/tables/` unpacks, decodes and splits files. FRED recognises many names of columns (`roles.py`); `columns` names others.
A unit comes from a cell, the name of a column or the user, never from the size of numbers. Iterations and workers are sorted
by number if their names are numbers or differ in one, and otherwise stay in order of appearance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from fred.base.errors import FredError, briefly
from fred.base.intervals import FEWEST_ROUNDS
from fred.components.component import LONGEST, Component, Duration
from fred.tables.content import Content, read_contents
from fred.tables.quantities import Unit
from fred.tables.table_commands import rewrite_command
from fred.traces import doubts, formats
from fred.traces.cells import Cells, join_files, short_names
from fred.traces.formats import step_recorders
from fred.traces.guessing import resolve_problems
from fred.traces.roles import FILE, PLUS, FileOptions, Role, UnclearTraceError
from fred.traces.trace import Trace, spread_workers

Mend = Literal["refuse", "drop", "fill"]
Table = NDArray[np.float64]  # [iterations, workers], s; NaN: missing
_LEAST_MISSING = 5  # iterations without a time at the end, from which a message names a worker
_MOST_PLACES = 3  # places in a message
_MOST_FILLED = 0.5  # share of the times; a table with more gaps is not the workers' any more
_DROP_SHARE = 0.8  # share of iterations without gaps below which filling is proposed first


@dataclass(frozen=True)
class MendedTable:
    """A table without gaps.

    Args:
        seconds: step times, s [iterations, workers].
        repairs: repairs, in words.
        rows: numbers of the iterations that remain [iterations].
    """

    seconds: Table
    repairs: tuple[str, ...]
    rows: NDArray[np.int64]


def mend_table(cells: Cells, files: Sequence[Content], source: str, mend: Mend, longest: float | None) -> MendedTable:
    """Return the full table of the times in files.

    Args:
        cells: the times.
        files: the files.
        source: name of the trace in messages.
        mend: `refuse` gaps and duplicates; or use the first of several times of one gradient, and `drop` iterations with
            gaps or `fill` them with the worker's previous time.
        longest: times above it count as missing, s; so do times that are not above 0.

    Raises UnclearTraceError for gaps and duplicates that are refused, FredError for a table that cannot be repaired.
    """
    _check_size(cells, source)
    invalid = np.flatnonzero((cells.seconds <= 0) | (cells.seconds > (longest or LONGEST)))
    valid = replace(cells, seconds=cells.seconds.copy())
    valid.seconds[invalid] = np.nan
    unique_cells, duplicates = _split_duplicates(valid)
    table = np.full((len(cells.iteration.names), len(cells.worker.names)), np.nan)
    table[cells.iteration.codes[unique_cells], cells.worker.codes[unique_cells]] = valid.seconds[unique_cells]
    gaps = np.isnan(table)
    if mend == "refuse" and (gaps.any() or len(duplicates)):
        raise _refusal(cells, files, source, gaps, invalid, duplicates, longest or LONGEST)
    repairs = []
    if len(invalid):
        places = [f"{cells.describe_time(int(cell))} ({cells.seconds[cell]:g} s)" for cell in invalid[:_MOST_PLACES]]
        listing = briefly(places, _MOST_PLACES, "; ", len(invalid))
        repairs.append(f"{_count(len(invalid), 'impossible time')} taken as missing: {listing}")
    if len(duplicates):
        places = [cells.describe_time(int(cell)) for cell in duplicates[:_MOST_PLACES]]
        listing = briefly(places, _MOST_PLACES, "; ", len(duplicates))
        repairs.append(f"{_count(len(duplicates), 'duplicate')} left out, the first of each kept: {listing}")
    if not gaps.any():
        return MendedTable(table, tuple(repairs), np.arange(len(table)))
    full, repair = (_drop_gaps if mend == "drop" else _fill_gaps)(table, cells, source)
    rows = np.flatnonzero(~gaps.any(axis=1)) if mend == "drop" else np.arange(len(table))
    return MendedTable(full, (*repairs, repair), rows)


def _check_size(cells: Cells, source: str) -> None:
    """Raise FredError for a trace without rows, and for a table that would be nearly empty."""
    iterations, workers, rows = len(cells.iteration.names), len(cells.worker.names), len(cells.seconds)
    if not rows:
        raise FredError(f"{source} has no rows")
    if iterations * workers > 1_000_000 + 10 * rows:  # a wrong column, such as a timestamp, would make a table of many GB
        raise FredError(
            f"{source}: {iterations:,} iterations of {workers:,} workers, but only {rows:,} times; are these the right columns?"
        )


def _split_duplicates(cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the cells to use, one for each iteration and worker, and the duplicates, both in their order.

    Of duplicates, the first with a time is used.
    """
    # Sorted by iteration and worker, then measured before missing times, then by place: the first of each key is to be used.
    order = np.lexsort((np.arange(len(cells.seconds)), np.isnan(cells.seconds), cells.keys))
    keys = cells.keys[order]
    is_repeat = np.concatenate(([False], keys[1:] == keys[:-1]))
    return np.sort(order[~is_repeat]), np.sort(order[is_repeat])


def _refusal(
    cells: Cells,
    files: Sequence[Content],
    source: str,
    gaps: NDArray[np.bool_],
    invalid: NDArray[np.int64],
    duplicates: NDArray[np.int64],
    longest: float,
) -> FredError:
    """Return an error that reports all problems, and the ways to repair them.

    Args:
        cells: the cells of the files.
        files: the files, for commands.
        source: name of all files together.
        gaps: True where a time is missing [iterations, workers].
        invalid: cells whose time is no possible one [invalid].
        duplicates: cells that repeat an iteration and worker [duplicates].
        longest: time above which a time is invalid, s.
    """
    problems, early_ends = [], _describe_ends(gaps, cells)
    if len(invalid):
        cell = int(invalid[0])
        problems.append(
            f"{cells.describe_time(cell)}: found {cells.seconds[cell]:g} s; expected a time above 0 and up to {longest:g} s. "
            f"Found {_count(len(invalid), 'such time')}"
        )
    if len(duplicates):
        cell = int(duplicates[0])
        earlier = int(np.flatnonzero(cells.keys == cells.keys[cell])[0])
        earlier_place = cells.describe_row(int(cells.row[earlier]))
        problems.append(
            f"{cells.describe_time(cell)}: found a second time, after that in {earlier_place}. "
            f"{_count(len(duplicates), 'duplicate time')}"
        )
    if gaps.sum() > len(invalid):  # not all gaps are invalid times, which are reported above
        iteration, worker = (int(indices[0]) for indices in np.nonzero(gaps))
        place = _find_place(cells, iteration, worker) or source
        number = _count(int(gaps.sum()), "time")
        step = cells.describe_step(iteration, worker)
        problems.append(f"{place}: no time for {step}. {number} of {gaps.size:,} missing{early_ends}")
    complete, iterations, missing_share = int((~gaps.any(axis=1)).sum()), len(gaps), float(gaps.mean())
    if missing_share > _MOST_FILLED and not complete:
        return FredError(*problems[:-1], f"{problems[-1]}. {_sparse_cure(cells, files, 1 - missing_share)}")
    problems[-1] += (
        f". Choose what to do: `mend: drop` keeps the {complete:,} of {iterations:,} iterations that have all times; "
        "`mend: fill` keeps all, with the worker's previous time in each gap"
    )
    # Filling would go on with the last time of a worker that ended early.
    drop_first = complete >= _DROP_SHARE * iterations or (complete >= FEWEST_ROUNDS and early_ends)
    repairs = ("drop",) if missing_share > _MOST_FILLED else ("drop", "fill") if drop_first else ("fill", "drop")
    return UnclearTraceError(*problems, remedies=[{"mend": repair} for repair in repairs])


def _sparse_cure(cells: Cells, files: Sequence[Content], participation: float) -> str:
    """Return what to do with iterations in which only some workers take part, such as sampled clients."""
    iteration, worker = cells.columns.get("iteration", FILE), cells.columns.get("worker", FILE)
    advice = (
        f"Workers take part in {participation:.0%} of the iterations, and no iteration has all. To compare their k-th times "
        "instead, number the times of each worker in the column of iterations"
    )
    if len(files) > 1 or any(PLUS in name or name == FILE for name in (iteration, worker)):
        return f"{advice}, and set `mend: drop`"
    numbers = f".assign(**{{{iteration!r}: lambda t: t.groupby({worker!r}).cumcount()}})"
    return f"{advice}, and read the new table with `mend: drop`: {rewrite_command(files[0], numbers)}"


def _describe_ends(gaps: NDArray[np.bool_], cells: Cells) -> str:
    """Return a clause about workers without times from some iteration on, or an empty text."""
    last_gaps = np.where(gaps.all(axis=0), 0, np.argmin(gaps[::-1], axis=0))  # iterations after each worker's last time
    ended_workers = np.flatnonzero(last_gaps >= _LEAST_MISSING).tolist()
    if not ended_workers:
        has_other_gaps = last_gaps.sum() != gaps.sum()
        return "" if has_other_gaps else "; some workers end before others"
    ends = [
        f"{cells.worker.names[worker]} (from iteration {cells.iteration.names[len(gaps) - last_gaps[worker]]})"
        for worker in ended_workers
    ]
    return f"; without times to the end: {briefly(ends, _MOST_PLACES)}"


def _drop_gaps(table: Table, cells: Cells, source: str) -> tuple[Table, str]:
    """Return the table without iterations that have gaps, and this repair in words."""
    gaps = np.isnan(table)
    complete = ~gaps.any(axis=1)
    if not complete.any():
        raise FredError(f"{source}: no iteration has all times, so `mend: drop` leaves nothing; expected `mend: fill`")
    dropped = _count(int((~complete).sum()), "iteration")
    return table[complete], f"{dropped} of {len(table):,} left out, for {_describe_gaps(gaps, cells)}"


def _fill_gaps(table: Table, cells: Cells, source: str) -> tuple[Table, str]:
    """Return the table with each gap filled with the worker's previous time, or else its first time; and this in words."""
    gaps = np.isnan(table)
    absent_workers = np.flatnonzero(gaps.all(axis=0))
    if len(absent_workers):
        names = briefly([cells.worker.names[worker] for worker in absent_workers])
        raise FredError(
            f"{source}: no time at all of worker {names}, so `mend: fill` cannot fill the gaps; leave this worker out"
        )
    # The running maximum of the rows that have a time is, at each gap, the row of the worker's previous time: the table is
    # filled in three passes of NumPy, not in a loop over gaps.
    rows = np.arange(len(table))[:, None]
    last_row = np.maximum.accumulate(np.where(gaps, -1, rows), axis=0)  # -1: there is none yet
    source_row = np.where(last_row < 0, (~gaps).argmax(axis=0), last_row)
    share = f"{gaps.mean():.1%} of all, at most {gaps.mean(axis=0).max():.0%} of one worker's"
    repair = f"{_describe_gaps(gaps, cells)} filled in with the worker's previous time: {share}{_describe_ends(gaps, cells)}"
    return np.take_along_axis(table, source_row, axis=0), repair


def _describe_gaps(gaps: NDArray[np.bool_], cells: Cells) -> str:
    places = [cells.describe_step(int(iteration), int(worker)) for iteration, worker in np.argwhere(gaps)[:_MOST_PLACES]]
    number = int(gaps.sum())
    return f"{_count(number, 'missing time')} ({briefly(places, _MOST_PLACES, '; ', number)})"


def _find_place(cells: Cells, iteration: int, worker: int) -> str:
    """Return the place of the row with the missing time, if there is such a row."""
    candidates = np.flatnonzero((cells.iteration.codes == iteration) & (cells.worker.codes == worker))
    return cells.describe_row(int(cells.row[candidates[0]])) if len(candidates) else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


EXAMPLE = "example"  # name of the trace that comes with FRED
Nodes = int | Sequence[int]


class Reading(Component):
    """Options for reading the files of a trace, and for repairing gaps and duplicates."""

    columns: dict[Role, str] = Field(
        default={},
        description="columns by role, where FRED does not recognise them; `a+b`: two together; `FILE`: one value per file",
    )
    unit: Unit | None = Field(default=None, description="unit of the times, if the names of the columns do not give it")
    mend: Mend = Field(
        default="refuse",
        description="repair of gaps and duplicates: use the first duplicate, and drop iterations with gaps or fill them",
    )
    longest: Duration | None = Field(default=None, description="times above this count as gaps, s")
    only: dict[str, str] = Field(default={}, description="values of columns, by their names, that the rows to read have")

    def read(self, paths: Sequence[Path], nodes: Nodes | None = None) -> Trace:
        """Return the trace in some files.

        Args:
            paths: files, archives or folders; `example` is the trace that comes with FRED.
            nodes: as in the function `read`.

        Raises FredError, or UnclearTraceError if options would help.
        """
        options = {name: getattr(self, name) for name in Reading.model_fields}
        example = Path(__file__).with_name("example.csv")
        files = read_contents([example if str(path) == EXAMPLE else path for path in paths])
        source = f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else str(paths[0])
        return resolve_problems(
            lambda attempted: Reading.model_validate(attempted)._read(files, source, nodes),
            options,
            lambda trace: doubts.find_implausibility(trace.seconds, trace.workers),
        )

    def _read(self, files: Sequence[Content], source: str, nodes: Nodes | None) -> Trace:
        """Return the trace with exactly these options."""
        names = short_names([file.path for file in files])
        file_options = [
            FileOptions(columns=self.columns, unit=self.unit, mend=self.mend != "refuse", name=name, only=self.only)
            for name in names
        ]
        cells = join_files([formats.read_cells(file, options) for file, options in zip(files, file_options, strict=True)])
        if all(map(step_recorders.sniff_recorded_steps, files)):
            cells = step_recorders.drop_incomplete(cells)
        formats.check_several_workers(files, len(cells.worker.names))
        table = mend_table(cells, files, source, self.mend, self.longest)
        node_of, node_names = _find_nodes(cells) if nodes is None else (_assign_nodes(nodes, len(cells.worker.names)), ())
        table.seconds.flags.writeable = False  # shared by several runs
        notes = dict.fromkeys((*cells.notes, *(note for file in files for note in file.notes)))
        if table.seconds.shape[1] == 1:
            notes["only one worker: name the files of all workers to see which is slow"] = None
        return Trace(
            seconds=table.seconds,
            workers=tuple(cells.worker.names),
            node_of=node_of,
            source=source,
            repairs=table.repairs,
            nodes=node_names,
            notes=tuple(notes),
            steps=tuple(cells.iteration.names[row] for row in table.rows),
            collective=cells.collective,
        )


def read(path: str | Path, *more_paths: str | Path, nodes: Nodes | None = None, **options: Any) -> Trace:
    r"""Return the trace in a file, or in several that belong together, such as one for each node or day.

    Args:
        path: file, archive or folder; `example` is the trace that comes with FRED.
        more_paths: further files of the trace.
        nodes: number of nodes over which the workers are spread evenly, in order; or number of workers on each node. This
            overrides the nodes in the file.
        options: options of `Reading`: `columns` by role; `unit` of the times (s, ms, us, ns); `mend` for gaps and
            duplicates (refuse, drop, fill); `longest`, above which a time counts as a gap, s; `only`, values by column.

    Raises FredError, with file and row, for errors in the files; UnclearTraceError, with options that would help, if more
    than one reading is possible.

    >>> trace = read("example")
    >>> trace.seconds.shape, trace.node_of.tolist()
    ((240, 8), [0, 0, 1, 1, 2, 2, 3, 3])
    >>> _ = Path("mine.csv").write_text("step,rank,duration_ms\n0,a,1000\n0,b,1500\n1,a,500\n")
    >>> mended = read("mine.csv", mend="drop")
    >>> mended.seconds.tolist(), mended.notes
    ([[1.0, 1.5]], ('times in ms, as `duration_ms` says',))
    >>> mended.repairs
    ('1 iteration of 2 left out, for 1 missing time (iteration 1, worker b)',)
    >>> read("mine.csv")
    Traceback (most recent call last):
    ...
    fred.traces.roles.UnclearTraceError: mine.csv: no time for iteration 1, worker b. 1 time of 4 missing; some ...
    """
    try:
        reading = Reading.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        expected = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        raise FredError(f"reading {path}: {key}{': ' if key else ''}{expected}") from None
    return reading.read([Path(path), *map(Path, more_paths)], nodes)


def _find_nodes(cells: Cells) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Return the node of each worker, numbered in the order of their first workers, and the names of the nodes."""
    if cells.node is None:
        return None, ()
    node_of = np.empty(len(cells.worker.names), np.int64)
    node_of[cells.worker.codes] = cells.node.codes
    _, first_workers, nodes = np.unique(node_of, return_index=True, return_inverse=True)
    order = np.argsort(first_workers)
    new_number = np.argsort(order)  # the inverse permutation
    return new_number[nodes], tuple(cells.node.names[node_of[worker]] for worker in first_workers[order])


def _assign_nodes(nodes: Nodes, workers: int) -> NDArray[np.int64]:
    try:
        return spread_workers(nodes, workers)
    except ValueError as error:
        raise FredError(str(error)) from None
