"""A record as a plain table, with its begin and duration; changes of machines, down and up, as such a record."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fred.base.errors import FredError
from fred.tables.columns import ArrowFile, table_from_columns
from fred.tables.content import Content, parse_json


class Record(NamedTuple):
    """A plain table from a record.

    Args:
        table: the table, whose columns have the names that its kind expects.
        first: when the record begins, s since 1970; None: at the first time in the table.
        length: duration of the record, s; None: until its last time.
    """

    table: ArrowFile
    first: float | None = None
    length: float | None = None


def rows_table(
    file: Content, columns: Sequence[str], rows: Sequence[Sequence[Any]], place: Callable[[int], str] | None = None
) -> ArrowFile:
    """Return a table of rows. Raises FredError if there are none.

    Args:
        file: the file that held them.
        columns: names of the columns.
        rows: values of each row.
        place: function that names the place of a row; None: its number.
    """
    if not rows:
        raise FredError(f"{file.path} has no {columns[0]} with {' and '.join(columns[1:])}")
    values = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
    return table_from_columns(file.path, values, place)


def drop_missing(times: Iterable[float]) -> list[float]:
    """Return the times that a record has, those that are not NaN.

    Args:
        times: of a column.
    """
    return [time for time in times if not math.isnan(time)]


def objects_by_name(file: Content) -> Mapping[str, Mapping[str, Any]]:
    """Return a document of JSON with an object for each name. Raises FredError.

    Args:
        file: the file that holds it.
    """
    objects = parse_json(file)
    if not isinstance(objects, dict) or not all(isinstance(value, dict) for value in objects.values()):
        raise FredError(f"{file.path}: expected an object of JSON for each name")
    return objects


class Change(NamedTuple):
    """A machine that goes down or comes up, or is seen to be so.

    Args:
        machine: its name.
        moment: when, s.
        is_up: True if it is up from then on.
    """

    machine: str
    moment: float
    is_up: bool


def record_changes(
    file: Content, kind: str, changes: Sequence[Change], place: Callable[[int], str] | None = None, has_dates: bool = True
) -> Record:
    """Return the failures, worker, down, up; or the sessions, member, begin, end. Raises FredError if there are none.

    A change to the state that a machine already has is none. A machine is up before its first change.

    Args:
        file: the file that held the changes.
        kind: `failures` or `sessions`.
        changes: the changes, in any order.
        place: function that names the place of a change; None: the file.
        has_dates: True if moments count from 1970, False if they count from the begin of the record.
    """
    rows_of = defaultdict[str, list[int]](list)  # of each machine, in order of time
    for row in sorted(range(len(changes)), key=lambda row: (changes[row].moment, row)):
        rows_of[changes[row].machine].append(row)
    moments = [change.moment for change in changes]
    are_sessions, first, last = kind == "sessions", min(moments, default=0.0), max(moments, default=0.0)
    spans, last_rows = list[tuple[str, float, float | None]](), list[int]()  # spans without an end are open
    for name, rows in rows_of.items():
        begin = first if are_sessions and not changes[rows[0]].is_up else None  # it was up before its first row
        for row in rows:
            if changes[row].is_up == are_sessions:
                begin = changes[row].moment if begin is None else begin
            elif begin is not None:
                if changes[row].moment > begin:
                    spans.append((name, begin, changes[row].moment))
                    last_rows.append(row)
                begin = None
        if begin is not None and not (are_sessions and begin == last):  # a session from the last moment on has no length
            spans.append((name, begin, None))
            last_rows.append(rows[-1])
    columns = ("member", "begin", "end") if are_sessions else ("worker", "down", "up")
    table = rows_table(file, columns, spans, lambda row: place(last_rows[row]) if place else str(file.path))
    record_begin = first if has_dates else 0.0
    length = last - record_begin if are_sessions and last > record_begin else None
    return Record(table, first=record_begin if has_dates else None, length=length)


class RecordFormat(NamedTuple):
    """A format of a tool's record.

    Args:
        name: name of the tool, in the line that says how a file was read.
        kinds: the kinds of tables that the format can become.
        sniff: function that tells whether a file has the format.
        read: function that returns its plain table, given the kind.
    """

    name: str
    kinds: Sequence[str]
    sniff: Callable[[Content], bool]
    read: Callable[[Content, str], Record]
