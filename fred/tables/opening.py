"""Readers of tables, chosen by the content of a file: text with delimiters, Parquet, Arrow, SQLite, lines or lists of JSON."""

import io
import json
import math
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet as pq

from fred.base.errors import FredError, listed
from fred.tables.columns import ArrowFile, File, TextFile, unreadable_error
from fred.tables.content import Content, matrix_command, parse_json
from fred.tables.text_layout import RECORDING_CURE, TRACE_HEADER


def open_table(file: Content, example: str = TRACE_HEADER) -> File:
    """Open a table by the content of the file. Raises FredError for a file without one.

    Args:
        file: the content of the file.
        example: names of columns that messages show.
    """
    try:
        if file.kind in _BINARY:
            return ArrowFile(file.path, _BINARY[file.kind](file), content=file)
        if file.kind != "text" or file.name.endswith((".parquet", ".pq", ".feather", ".arrow")):
            raise FredError(f"cannot read {file.path}: it is not text, Parquet, Arrow or SQLite; expected a table, such as CSV")
        has_object_lines = re.match(r"\s*\{.*\}[ \t]*\r?\n\s*\{", file.head)
        if file.name.endswith(".json") and not has_object_lines:
            return _read_document(file)
        if file.name.endswith((".jsonl", ".ndjson")) or re.match(r'\s*\{\s*"', file.head):
            return _read_lines(file)
        if re.match(r"\s*\[\s*\{", file.head):
            return _read_document(file)
        return TextFile(file, example)
    except (OSError, pa.ArrowException, sqlite3.Error) as error:
        raise unreadable_error(file.path, error) from error


def _read_lines(file: Content) -> File:
    """Return the table in lines of JSON; a document of several lines is tried as a whole."""
    # Arrow reads flat objects without a Python object for each line. Files that it refuses, and nested values, which get names
    # such as `perf/step_time`, are read line by line.
    try:
        table = pyarrow.json.read_json(pa.BufferReader(file.data))
        if not any(pa.types.is_nested(kind) for kind in table.schema.types):
            return ArrowFile(file.path, table, lambda row: f"{file.path}:{row + 1}", file)
    except pa.ArrowException:
        pass
    records, lines = list[dict[str, Any]](), list[int]()
    texts = file.text.splitlines()
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            if number == 1 and len(texts) > 1:
                return _read_document(file)
            if number == len(texts) and records and not file.text.endswith("\n"):
                continue  # the program was stopped while it wrote
            raise FredError(f"{file.path}:{number}: it is not JSON; expected an object in each line") from None
        if not isinstance(record, dict):
            raise FredError(f"{file.path}:{number}: expected an object of JSON in each line, with names and values")
        records.append(record)
        lines.append(number)
    if len(records) == 1 and any(isinstance(value, list) for value in records[0].values()):
        return _read_document(file)  # a whole document in one line
    if not records:
        raise FredError(f"{file.path} is empty; expected an object of JSON in each line")
    return table_from_records(file.path, records, lambda row: f"{file.path}:{lines[row]}", file)


def _read_document(file: Content) -> File:
    """Return the table in one document of JSON: a list of objects, or an object of columns."""
    document = parse_json(file)
    # pandas' {"columns": ["step"], "data": [[0], [1]]}
    if isinstance(document, dict) and isinstance(document.get("columns"), list) and isinstance(document.get("data"), list):
        document = [dict(zip(map(str, document["columns"]), row, strict=False)) for row in document["data"]]
    # Series by worker, {"0": {"time": [0.4, 0.5]}}
    if isinstance(document, dict) and document and all(map(_has_series, document.values())):
        document = [
            {"worker": name, "iteration": iteration}
            | {key: value[iteration] if isinstance(value, list) else value for key, value in record.items()}
            for name, record in document.items()
            for iteration in range(next(len(value) for value in record.values() if isinstance(value, list)))
        ]
    # Records under a key, {"steps": [{"time": 0.4}]}; or columns, {"time": [0.4, 0.5]} or {"time": {"0": 0.4, "1": 0.5}}
    if isinstance(document, dict):
        lists = [value for value in document.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
        if len(lists) == 1:
            document = lists[0]
        elif document and all(isinstance(value, list | dict) and value for value in document.values()):
            columns = {name: [*value.values()] if isinstance(value, dict) else value for name, value in document.items()}
            if len({len(values) for values in columns.values()}) == 1:
                document = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    is_matrix = isinstance(document, list) and document and all(isinstance(row, list) for row in document)
    matrix = "; " + matrix_command(f"pandas.read_json('{file.path}')", file.path.stem) if is_matrix else ""
    if not isinstance(document, list) or not document or not all(isinstance(record, dict) for record in document):
        raise FredError(
            f"{file.path}: expected a table in JSON: a list of objects with the same names, an object of lists, or an object "
            f"in each line{matrix}"
        )
    return table_from_records(file.path, document, content=file)


def _has_series(record: Any) -> bool:
    """Return True for an object of a worker, with lists of equal length that hold a number for each step."""
    lists = [value for value in record.values() if isinstance(value, list)] if isinstance(record, dict) else []
    numbers = all(isinstance(value, int | float | None) for values in lists for value in values)
    return bool(lists) and len({len(values) for values in lists}) == 1 and numbers


def table_from_records(
    path: Path,
    records: Iterable[Mapping[str, Any]],
    place: Callable[[int], str] | None = None,
    content: Content | None = None,
) -> ArrowFile:
    """Return a table of records, whose nested values get names such as `perf/step_time`. Raises FredError.

    Args:
        path: the file.
        records: a mapping for each row.
        place: function that names the place of a row.
        content: content of the file, if it has the records as they are.
    """
    rows = [dict(_flatten(record)) for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    first_row = next(iter(rows), {})
    if first_row and all(str(value).startswith(("[{", "[[")) for value in first_row.values()):
        raise FredError(
            f"{path}: expected a value in each cell; {listed([*first_row])} holds lists of JSON. Write a row for each time, "
            f"with the columns {TRACE_HEADER}; or {RECORDING_CURE}"
        )
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        if kinds <= {int, float}:
            columns[name] = pa.array([None if value is None else _to_float(value) for value in values], pa.float64())
        else:
            columns[name] = pa.array([None if value is None else str(value) for value in values], pa.string())
    return ArrowFile(path, pa.table(columns), place, content)


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of 309 digits or more
        return math.inf if value > 0 else -math.inf


def _flatten(record: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str | int | float) or value is None else json.dumps(value)


def _read_parquet(file: Content) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(file.data)).read()


def _read_arrow(file: Content) -> pa.Table:
    return pyarrow.feather.read_table(io.BytesIO(file.data))


def _read_sqlite(file: Content) -> pa.Table:
    """Return the only table of a data base; readers of formats choose among several."""
    with open_database(file.data) as connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        names = [name for (name,) in connection.execute(query)]
        if len(names) != 1:
            tables = f"{len(names)} tables: {listed(names)}" if names else "no tables"
            raise FredError(
                f"the data base {file.path} has {tables}; expected one: write that of the times as CSV: "
                f"`sqlite3 -header -csv {file.path} 'SELECT * FROM TABLE' > times.csv`"
            )
        cursor = connection.execute(f'SELECT * FROM "{names[0]}"')
        columns = [name for name, *_ in cursor.description]
        return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in cursor])


def open_database(data: bytes) -> sqlite3.Connection:
    """Return a data base of SQLite, read into memory.

    Args:
        data: bytes of the file.
    """
    # SQLite opens files only, and the bytes may come from an archive. They go through a temporary file into memory, so that
    # nothing is left on disk while the data base is read.
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        file.write(data)
        file.flush()
        memory = sqlite3.connect(":memory:")
        on_disk = sqlite3.connect(f"file:{file.name}?mode=ro", uri=True)
        on_disk.backup(memory)
        on_disk.close()
    return memory


_BINARY: dict[str, Callable[[Content], pa.Table]] = {"parquet": _read_parquet, "arrow": _read_arrow, "sqlite": _read_sqlite}
