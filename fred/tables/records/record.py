"""A record as a plain table, with the begin and the duration of the whole record."""

from collections.abc import Callable, Mapping, Sequence
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


def objects_by_name(file: Content) -> Mapping[str, Mapping[str, Any]]:
    """Return a document of JSON with an object for each name. Raises FredError.

    Args:
        file: the file that holds it.
    """
    objects = parse_json(file)
    if not isinstance(objects, dict) or not all(isinstance(value, dict) for value in objects.values()):
        raise FredError(f"{file.path}: expected an object of JSON for each name")
    return objects
