"""Rows of logs: a line for each step of each process, with all values that the process writes for the step."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fred.tables import quantities
from fred.tables.log_lines import HOST, LOCAL_RANK, RANK, WORKER, Line
from fred.traces.log_columns import UNITS, has_unit, is_clock, is_evaluation_step, unit_in
from fred.traces.roles import to_snake_case

_FEWEST = 10  # steps over which times do not keep growing by chance
_CLOCK_GROWTH = 4  # a clock grows by more than this multiple of its first value
_LEAST_DATE = 1e7  # or its first value is a date, s since 1970
PARALLEL = ("dp", "dp_rank", "data_parallel_rank")
SOURCES = {
    *(*PARALLEL, RANK, LOCAL_RANK, HOST, WORKER),
    *("global_rank", "rank_id", "process", "process_index", "proc", "node", "node_rank", "hostname"),
    *("replica", "trainer", "executor", "machine", "pod", "worker_id", "host_id", "node_id", "client", "gpu"),
}


def collect_rows(lines: Sequence[Line], step: str) -> list[Line]:
    """Return a line for each step of each process. Values in further lines of a process belong to its last step.

    Args:
        lines: lines of a log.
        step: name of the steps' numbers.
    """
    rows, last_rows, previous = list[Line](), dict[tuple[str, ...], Line](), tuple[str, ...]()
    sources = {process for line in lines if (process := tuple(line.source.values()))}
    for line in lines:
        if any(map(is_evaluation_step, line.values)):
            continue
        process = next(iter(sources)) if len(sources) == 1 else tuple(line.source.values())
        if not process and step not in line.values:
            process = previous  # a further line of an entry
        previous = process
        row = last_rows.get(process)
        number = line.values.get(step, "")
        # A line with the row's own step, and no other value of the row, continues it: loggers write a step's metrics in several
        # lines. A line that repeats a value is a row of its own.
        if not quantities.is_count(number):
            if row is not None:
                row.values = {**row.values, **line.values} if line.is_bar else {**line.values, **row.values}
                row.is_bar |= line.is_bar
        elif row is not None and row.values[step] == number and not (row.values.keys() & line.values.keys()) - {step, "epoch"}:
            row.values |= line.values
        else:
            last_rows[process] = replace(line, values=dict(line.values))
            rows.append(last_rows[process])
    for row in rows:
        row.values = {**row.source, **row.values}
    return rows


def common_columns(rows: Sequence[Line]) -> list[str]:
    """Return the names that most rows have.

    Args:
        rows: rows of a log.
    """
    counts = Counter(name for row in rows for name in row.values)
    return [name for name, count in counts.items() if count * 2 >= len(rows)]


def process_columns(rows: Sequence[Line]) -> list[str]:
    """Return the names whose values identify a process, such as `rank`.

    Args:
        rows: rows of a log.
    """
    return [name for name in common_columns(rows) if to_snake_case(name) in SOURCES]


def group_by_process(rows: Sequence[Line]) -> list[list[Line]]:
    """Return the rows of each process.

    Args:
        rows: rows of a log.
    """
    names, processes = process_columns(rows), dict[tuple[str | None, ...], list[Line]]()
    for row in rows:
        processes.setdefault((*row.source.values(), *(row.values.get(name) for name in names)), []).append(row)
    return [*processes.values()]


def is_increasing(rows: Sequence[Line], name: str) -> bool:
    """Return True for a column whose numbers only grow, such as a clock.

    Args:
        rows: rows of a log.
        name: name of the column.
    """
    series = [parse_cells([row.values.get(name, "") for row in lines]) for lines in group_by_process(rows)]
    return len(rows) - len(series) >= _FEWEST and all((np.diff(values) > 0).all() for values in series)


def resembles_clock(rows: Sequence[Line], name: str) -> bool:
    """Return True for times that grow by a multiple of the first one, or have the name of a clock.

    Args:
        rows: rows of a log.
        name: a column that only grows.
    """
    for lines in group_by_process(rows):
        first, *_, last = parse_cells([row.values.get(name, "") for row in lines])
        if last - first < _CLOCK_GROWTH * first and first < _LEAST_DATE and not is_clock(name):
            return False
    return True


def have_equal_times(rows: Sequence[Line], names: Sequence[str]) -> bool:
    """Return True for columns whose median times agree within 1 %.

    Args:
        rows: rows of a log.
        names: columns of times.
    """
    medians = []
    for name in names:
        values = parse_cells([strip_per_step(row.values.get(name)) or "" for row in rows])
        unit = "s" if has_unit(next(row.values[name] for row in rows if name in row.values)) else unit_in(name)
        medians.append(float(np.nanmedian(values)) / quantities.PER_SECOND[unit] if unit else np.nan)
    return bool(np.nanmax(medians) < 1.01 * np.nanmin(medians)) and not np.isnan(medians).any()


def parse_cells(cells: Sequence[str]) -> NDArray[np.float64]:
    """Return numbers, in s if they have units; NaN if they cannot be read.

    Args:
        cells: texts.
    """
    try:
        return quantities.parse_numbers(cells).values
    except quantities.CellError:
        return np.full(len(cells), np.nan)


def add_differences(rows: Sequence[Line], step: str, clock: str) -> None:
    """Add the time between the steps of each process as `difference`.

    Args:
        rows: rows of a log.
        step: name of the steps' numbers.
        clock: a column that grows; empty: the lines' dates.
    """
    for lines in group_by_process(rows):
        texts = [row.values.get(clock, "") if clock else row.moment for row in lines]
        times = parse_cells(texts) if clock else quantities.parse_moments(texts)
        for (previous, row), seconds in zip(pairwise(lines), np.diff(times).tolist(), strict=True):
            if (steps := int(row.values[step]) - int(previous.values[step])) > 0 and seconds > 0:
                row.values["difference"] = repr(seconds / steps)


def strip_per_step(text: str | None) -> str | None:
    """Return a value whose unit is that of a column: `410 ms/step` is 410 ms.

    Args:
        text: the value.
    """
    return text if text is None or "/" not in text else re.sub(rf"( {UNITS})/\w+$", r"\1", text)
