"""Small tables that a scenario names: failures, sessions, prices, devices; and square ones, between pairs of places."""

import csv
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fred.base.errors import FredError, briefly, listed, quoted
from fred.base.types import Floats
from fred.tables import quantities
from fred.tables.columns import File
from fred.tables.content import Content, read_content
from fred.tables.opening import open_table
from fred.tables.quantities import VAGUE_NAMES, UnitFactor, split_unit, to_snake_case
from fred.tables.records import read_record
from fred.tables.table_commands import clear_dates_command, drop_columns_command
from fred.tables.table_kinds import Column, Kind, match_column, missing_columns_cure, unknown_columns_error

_SENDERS = ("from", "source", "src", "sender", "origin", "from_region", "source_region", "src_region", "a")
_RECEIVERS = ("to", "destination", "dest", "dst", "receiver", "target", "to_region", "destination_region", "dst_region", "b")
_RULE = re.compile(r"[-=+|:\s]*[-=][-=+|:\s]*")  # such as |---|---|
_EXPECTED = "rows of numbers with commas between them, such as 1e8, 2.5e6; or names above and beside them; or from,to,{}"


def read_square(path: Path, names: Sequence[str], factor: UnitFactor, units: Mapping[str, float]) -> list[list[float]]:
    """Return a square table; a missing value is NaN.

    Args:
        path: the file.
        names: names of a column with the values, if a row is a pair.
        factor: function that returns the factor of a unit in that name.
        units: factors of units in cells; empty: those of time, s.

    Raises FredError.
    """
    file = read_content(path)
    expected = _EXPECTED.format(names[0])
    lines = [
        (number, line)
        for number, line in enumerate(file.text.splitlines(), 1)
        if line.strip() and line.lstrip()[0] != "#" and not _RULE.fullmatch(line)
    ]
    if not lines:
        raise FredError(f"{path} is empty; expected {expected}")
    delimiter = next((mark for mark in "\t;,|" if mark in lines[0][1]), None)
    rows = [(number, _split_cells(line, delimiter)) for number, line in lines]
    if all(len(cells) > 1 and not cells[-1] for _, cells in rows):  # a delimiter at the end of each line
        rows = [(number, cells[:-1]) for number, cells in rows]
    first_cells = rows[0][1]
    # A wider table is a square one, of places that happen to be named `a` and `b`.
    if {to_snake_case(cell) for cell in first_cells} & {*_SENDERS, *_RECEIVERS} and len(first_cells) < 6:
        return _read_pairs(file, names, factor, units)
    header, unit_factor = list[str](), 1.0
    if not any(map(_is_number, first_cells)):
        header, rows = [cell for cell in first_cells if cell], rows[1:]
    if header and len(rows) and len(rows[0][1]) == len(header) and not _is_number(rows[0][1][0]):
        *_, (_, unit_factor) = split_unit(header[0], factor)  # the last reading has the unit, if there is one
        header = header[1:]  # words above the names of the rows, such as `latency (ms)`
    table = []
    for i, (number, cells) in enumerate(rows):
        if header and len(cells) == len(header) + 1:
            row_name = header[min(i, len(header) - 1)]
            if cells[0] != row_name:
                raise FredError(f"{path}:{number}: expected the row of {quoted(row_name)}, as above")
            cells = cells[1:]
        try:
            numbers = quantities.parse_numbers(cells, units or None, comma=delimiter != ",")
            table.append((numbers.values * (1.0 if numbers.unit else unit_factor)).tolist())
        except quantities.CellError as error:
            raise FredError(f"{path}:{number}: found {quoted(cells[error.row])}; expected {expected}") from None
    return table


def _read_pairs(file: Content, names: Sequence[str], factor: UnitFactor, units: Mapping[str, float]) -> list[list[float]]:
    """Return the square table of one in which each row is a pair. Raises FredError."""
    table = open_table(file, f"from,to,{names[0]}")
    matches = {  # header and factor of its unit
        name: (header, unit_factor)
        for header in table.header
        for stem, unit_factor in split_unit(header, factor)
        for name, synonyms in (("from", _SENDERS), ("to", _RECEIVERS), ("value", names))
        if stem in synonyms
    }
    if len(matches) < 3:
        raise FredError(f"{file.path} has the columns {listed(table.header)}; expected from, to, {names[0]}")
    senders, receivers = table.texts(matches["from"][0]), table.texts(matches["to"][0])
    header, unit_factor = matches["value"]
    if units:
        values = table.quantities(header, units)
    else:
        values = table.columns([], [header])[1][header]
        unit_factor = unit_seconds(table, header, unit_factor)
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*senders, *receivers]))}
    square = np.full((len(numbers), len(numbers)), math.nan)
    for row, (sender, receiver) in enumerate(zip(senders, receivers, strict=True)):
        pair = numbers[sender], numbers[receiver]
        if not math.isnan(square[pair]):
            raise FredError(
                f"{table.describe_row(row)}: the pair {sender}, {receiver} stands twice; expected one row: take their mean"
            )
        square[pair] = values[row] * unit_factor
    mirrored = np.isnan(square) & ~np.isnan(square.T)
    square[mirrored] = square.T[mirrored]  # a pair in one direction counts for both
    rows: list[list[float]] = square.tolist()
    return rows


def _split_cells(line: str, delimiter: str | None) -> list[str]:
    text = line.strip().strip("|") if delimiter == "|" else line
    cells = text.split() if delimiter is None else next(csv.reader([text], delimiter=delimiter))
    return [cell.strip(" *`") for cell in cells]  # without the emphasis of Markdown


def _is_number(cell: str) -> bool:
    return bool(re.match(r"[-+]?\.?\d", cell)) or (quantities.is_missing(cell) and bool(cell))


_LEAST_DATE = 9e8  # s since 1970: no run begins 28 years after its start, so larger times are dates
_NO_UNIT: dict[str, float] = {"x": 1.0}


class Table(NamedTuple):
    """A table's cells.

    Args:
        file: the table, which names the place of a row.
        names: columns of names, with empty texts for missing ones.
        numbers: columns of numbers and times, in s from the begin of the run; NaN for missing ones.
        is_record: True if a tool wrote the table, whose names are not workers' numbers.
        length: duration of the record, s; None: until its last time.
    """

    file: File
    names: dict[str, list[str]]
    numbers: dict[str, Floats]
    is_record: bool = False
    length: float | None = None


def read_table(path: Path, kind: Kind, begin: date | None = None) -> Table:
    """Read a table of a kind, from any file. Warn of all that was interpreted.

    Args:
        path: the file.
        kind: the columns it must have.
        begin: the date from which times count; None: the first time in the table.

    Raises FredError for a missing or unknown column, for cells of another kind, and for dates that do not fit together.
    """
    source = read_content(path)
    record = read_record(source, kind.name)
    file = record.table if record else open_table(source, kind.header)
    matches = _match_columns(file, kind, source)
    notes = list(file.notes)
    readings = [
        f"`{header}` read as `{name}`" + (f" times {factor:g}" if factor != 1 else "")
        for name, (header, factor) in matches.items()
        if to_snake_case(header) != name and not record
    ]
    notes += [f"column {', '.join(readings)}"] if readings else []
    names = {name: file.texts(matches[name][0]) for name in kind.column_names("names") if name in matches}
    numbers = {
        column.name: _read_numbers(file, column, *matches[column.name])
        for column in kind.columns
        if column.holds == "numbers" and column.name in matches
    }
    time_matches = {name: matches[name] for name in kind.column_names("times") if name in matches}
    times = _read_times(file, time_matches, None if record else source)
    for name in kind.column_names("lengths"):
        if name in matches:
            times[name] = _read_lengths(file, *matches[name])
    times_from_begin, time_notes = _count_from_begin(file, times, begin, record.first if record else None)
    notes += time_notes
    if notes:
        warnings.warn(f"{path}: {'; '.join(notes)}", stacklevel=2)
    length = record.length if record else None
    if record and length and record.first is not None and begin is not None:
        length += record.first - seconds_since_1970(begin)  # a record ends when it does, from whatever date its times count
    return Table(file, names, numbers | times_from_begin, record is not None, length)


def intervals(table: Table, first: str, last: str) -> list[tuple[int, float, float]]:
    """Return the intervals of a table's rows, s: row, begin and end, infinite for those that are open.

    Intervals before the run's begin are left out, and those in which it lies are cut.

    Args:
        table: the table.
        first: name of the column with begins.
        last: name of the column with ends, or of durations.

    Raises FredError for a row without a begin, or whose end is not after its begin.
    """
    begins = table.numbers[first]
    ends = table.numbers[last] if last in table.numbers else begins + table.numbers["length"]
    ends = np.where(np.isnan(ends), math.inf, ends)
    for row in np.flatnonzero(~(begins < ends) | ~np.isfinite(begins)):
        raise FredError(
            f"{table.file.describe_row(int(row))}: expected a `{first}`, and a later `{last}` or none; "
            f"found {begins[row]:g} to {ends[row]:g} s"
        )
    spans = [(row, max(0.0, begin), end) for row, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True))]
    spans = [(row, begin, end) for row, begin, end in spans if end > 0]
    if not spans:
        raise FredError(f"{table.file.path}: all {len(begins)} rows end before the run begins: give an earlier date as `from`")
    if len(spans) < len(begins):
        left_out = len(begins) - len(spans)
        warnings.warn(f"{table.file.path}: {left_out} rows end before the run begins, and are left out", stacklevel=2)
    return spans


def _match_columns(file: File, kind: Kind, source: Content) -> dict[str, tuple[str, float]]:
    """Return the header and the factor of its unit for each column of a kind that the table has."""
    matches: dict[str, tuple[str, float]] = {}
    unknown = []
    for header in file.header:
        match = match_column(file, header, kind)
        if match is None:
            unknown.append(header)
            continue
        name, factor = match
        # Of two columns for one name, that with a vague name, such as `id`, is another one.
        if name in matches and to_snake_case(matches[name][0]) in VAGUE_NAMES:
            unknown.append(matches.pop(name)[0])
        if name in matches and to_snake_case(header) in VAGUE_NAMES:
            unknown.append(header)
            continue
        if name in matches:
            pair = f"columns `{matches[name][0]}` and `{header}`"
            cure = f"keep one of them: {drop_columns_command(source, [header])}"
            raise FredError(f"{file.path}: {pair} may both be `{name}`; {cure}")
        matches[name] = header, factor
    for column in kind.columns:
        # A length replaces the end, but not the begin, which is the first column of times.
        is_replaced = "length" in matches and column.holds == "times" and column.name != kind.column_names("times")[0]
        if column.required and column.name not in matches and not is_replaced:
            cure = missing_columns_cure(file, kind, source, matches, unknown)
            raise FredError(f"{file.path} has no column `{column.name}`; it has {listed(file.header)}; {kind.expected}; {cure}")
    if unknown:
        raise unknown_columns_error(file, kind, source, matches, unknown)
    if not any(name in matches for name in kind.column_names("numbers") + kind.column_names("times")):
        raise FredError(f"{file.path} has the columns {listed(file.header)}; {kind.expected}")
    return matches


def _read_numbers(file: File, column: Column, header: str, factor: float) -> Floats:
    """Return a column of numbers, in the column's unit. Raises FredError."""
    first_cells = {name: next(iter(file.texts(name)), "").strip("[]() ") for name in file.header}
    units = {name: cell for name, cell in first_cells.items() if cell[:1].isalpha() and column.factor(cell) is not None}
    if header in units:
        names = {name: f"{name}_{unit}" for name, unit in units.items()}
        raise FredError(
            f"{file.describe_row(0)}: a row of units stands below the names; write them in the names, as in `{names[header]}`: "
            f"{file.command(f'.rename(columns={names})', 'skiprows=[1]')}"
        )
    values = file.quantities(header, column.units or _NO_UNIT)
    return values if factor == 1 or _has_units(file, header) else values * factor


def _has_units(file: File, header: str) -> bool:
    """Return True if a cell of the column has a unit, which counts instead of that of the name."""
    first = next((text for text in file.texts(header) if text), "")
    return bool(first) and not quantities.is_number(first) and not first[-1:].isdigit()  # 1,633 is no unit


def _read_times(file: File, matches: dict[str, tuple[str, float]], source: Content | None) -> dict[str, Floats]:
    """Return columns of times: s, or s since 1970 for dates, all of which have days and months in the same order.

    `matches` are the header and the factor of each. The source is the content of a table that no tool has written.
    """
    texts = {name: file.texts(header) for name, (header, _) in matches.items()}
    dated = [name for name in matches if any(map(quantities.is_date, texts[name]))]
    try:  # all columns as one, so that each shows the order of days and months to the others
        moments = quantities.parse_moments([text for name in dated for text in texts[name]])
    except quantities.CellError as error:
        column, row = divmod(error.row, len(texts[dated[0]]))
        name = dated[column]
        expected = f"{error.expected} in column `{matches[name][0]}`, as in other rows; found {quoted(texts[name][row])}"
        headers = [matches[name][0] for name in dated]
        cure = f"; {clear_dates_command(source, headers)}" if error.ambiguous == "date" and source else ""
        raise FredError(f"{file.describe_row(row)}: expected {expected}{cure}") from None
    dates = dict(zip(dated, np.split(moments, len(dated)), strict=True)) if dated else {}
    return {name: dates[name] if name in dates else _read_lengths(file, *matches[name]) for name in matches}


def _read_lengths(file: File, header: str, factor: float) -> Floats:
    for row, text in enumerate(file.texts(header)):
        if text.count(":") == 1:
            raise FredError(
                f"{file.describe_row(row)}: {quoted(text)} in column `{header}` may be hours and minutes, or minutes and "
                f"seconds: write dates, s, or 00:{text}"
            )
    return read_seconds(file, header, factor)


def read_seconds(file: File, header: str, factor: float) -> Floats:
    """Return a column of durations, s. Raises FredError.

    Args:
        file: the table.
        header: name of the column.
        factor: seconds in the unit that the name has; units of the cells come first.
    """
    values = file.columns([], [header])[1][header]
    factor = unit_seconds(file, header, factor)
    return values * factor if factor != 1 else values


def unit_seconds(file: File, header: str, factor: float) -> float:
    """Return the seconds in the unit of a column that has been read.

    Args:
        file: the table.
        header: name of the column.
        factor: seconds in the unit that the name has; 1 for none.
    """
    unit = file.unit(header)
    return (quantities.seconds_in(unit) or 1.0) if unit else factor


def _count_from_begin(
    file: File, times: dict[str, Floats], begin: date | None, first: float | None
) -> tuple[dict[str, Floats], list[str]]:
    """Return times in s from the begin of the run, and notes; `first` is the begin of a tool's record, s since 1970."""
    lengths = {name: values for name, values in times.items() if name == "length"}
    moments = {name: values for name, values in times.items() if name != "length"}
    if not moments:
        return times, []
    earliest = {name: float(np.nanmin(values)) for name, values in moments.items() if np.isfinite(values).any()}
    if not any(value >= _LEAST_DATE for value in earliest.values()):
        if begin is not None:
            raise FredError(f"{file.path}: the scenario counts times `from` a date, but they are numbers: leave `from` out")
        for name, value in earliest.items():
            if value < 0:
                row = int(np.nanargmin(moments[name]))
                raise FredError(f"{file.describe_row(row)}: expected a time from 0 s on in column `{name}`; found {value:g}")
        return times, []
    if mixed := [name for name, value in earliest.items() if value < _LEAST_DATE]:
        expected = "has times from the begin of the run, others are dates: use one of them"
        raise FredError(f"{file.path}: column `{mixed[0]}` {expected}")
    # Clocks count s, ms, us or ns since 1970. The unit is the first in which the earliest date is before the year 5138, 1e11 s.
    scale = next(scale for scale in (1.0, 1e3, 1e6, 1e9) if min(earliest.values()) / scale < 1e11)
    zero = next(iter(earliest.values())) / scale if first is None else first  # the moment that becomes 0 s
    notes = []
    if begin is None:
        zero_date = datetime.fromtimestamp(zero, UTC).isoformat(sep=" ").removesuffix("+00:00")
        notes.append(f"times count from {zero_date}, the first in the record; another begin is `from: DATE` in the scenario")
    else:
        zero = seconds_since_1970(begin)
    return lengths | {name: values / scale - zero for name, values in moments.items()}, notes


def seconds_since_1970(day: date) -> float:
    """Return a date in s since 1970; one without a zone counts as UTC.

    Args:
        day: a date, or a date with a time of day.

    >>> seconds_since_1970(date(1970, 1, 2))
    86400.0
    """
    moment = day if isinstance(day, datetime) else datetime(day.year, day.month, day.day)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def number_names(names: Sequence[str], are_numbers: bool) -> tuple[list[int], list[str]]:
    """Return the number of each name: itself if all are whole numbers, otherwise its place in the order of appearance.

    Args:
        names: names of workers.
        are_numbers: False to count names in the order of appearance even if they are whole numbers.

    Returns the numbers, and the names in that order; empty if they are themselves numbers.

    >>> number_names(["b", "a", "b"], True), number_names(["3", "0"], True), number_names(["3", "0"], False)
    (([0, 1, 0], ['b', 'a']), ([3, 0], []), ([0, 1], ['3', '0']))
    """
    if are_numbers and all(map(quantities.is_count, names)):
        return [int(name) for name in names], []
    number_of = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [number_of[name] for name in names], list(number_of)


def warn_of_order(path: Path, names: Sequence[str]) -> None:
    """Warn which worker stands for which name.

    Args:
        path: the file.
        names: names in the order of the workers; empty: there are none to tell.
    """
    if names:
        last = len(names) - 1
        workers = "worker 0 is the machine" if not last else f"workers 0 to {last} are the machines"
        warnings.warn(f"{path}: {workers} {briefly(names)}, in the order of appearance", stacklevel=2)
