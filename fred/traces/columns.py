"""Columns of CSV, Parquet or JSON Lines files. The line of a row is looked up only to report an error."""

import csv
import gzip
import itertools
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fred.base import inputs
from fred.base.errors import FredError, quoted

MISSING = ["", "NA", "N/A", "na", "nan", "NaN", "NAN", "null", "NULL", "None", "-"]  # values that mean a missing time
_LOOKED_AT = 100  # rows inspected to tell a table from other text
_PANDAS_INDEX = re.compile(r"|__index_level_\d+__|Unnamed: \d+")  # how pandas writes, and reads, an index without a name
_WHOLE = re.compile(r"-?\d+\.0+")  # a whole number in a column with gaps
_BETWEEN = ",\t;"  # delimiters
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(?P<zone>Z|[+-]\d\d:?\d\d)?")  # ISO 8601
EXAMPLE = "example"  # name of the trace that comes with FRED
Numbers = NDArray[np.float64]  # NaN: missing


class Labels(NamedTuple):
    """A column of names: the number of each row's name (-1: none), and the names in order of appearance."""

    codes: NDArray[np.int64]
    names: list[str]


class File(ABC):
    """A table on disk. All methods raise FredError."""

    def __init__(self, path: Path):
        self.path = path
        try:
            with inputs.opened(path):  # fails unless it is a readable file
                self.names = self._names()
                self.header = [name for name in self.names if not _is_index(name)]
        except (OSError, csv.Error, pa.ArrowException) as error:
            raise self._unreadable(error) from error
        self._check_header()

    def columns(self, labels: Sequence[str], numbers: Sequence[str]) -> tuple[dict[str, Labels], dict[str, Numbers]]:
        """Return columns, read as names or as numbers."""
        try:
            table = self._table(labels, numbers)
            named = {name: _labels(table[name]) for name in labels}
        except (OSError, csv.Error, pa.ArrowException) as error:
            raise self._unreadable(error) from error
        return named, {name: self._numbers(table, name) for name in numbers}

    @abstractmethod
    def has_moments(self, name: str) -> bool:
        """Return True for a column of dates with times, which `columns` returns as numbers, s.

        Args:
            name: name of the column.
        """

    @abstractmethod
    def where(self, row: int) -> str:
        """Return the file and the place of a row, counted from 0 without the header."""

    @abstractmethod
    def _names(self) -> list[str]:
        """Return the names of the columns."""

    @abstractmethod
    def _table(self, labels: Sequence[str], numbers: Sequence[str]) -> pa.Table:
        """Return these columns as a table."""

    def _numbers(self, table: pa.Table, name: str) -> Numbers:
        try:
            column = table[name]
            if pa.types.is_timestamp(column.type):
                nanoseconds = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
                return nanoseconds.cast(pa.float64(), safe=False).to_numpy() / 1e9
            column = column.cast(pa.float64())
        except pa.ArrowException:
            raise self._no_number(table, name) from None
        return column.to_numpy().astype(np.float64)

    def _no_number(self, table: pa.Table, name: str) -> FredError:
        """Return an error about the column's first value that is not a number."""
        for row, value in enumerate(table[name].to_pylist()):
            if not _is_number(str(value)):
                return FredError(f"{self.where(row)}: expected a time in column `{name}`, a number; found {quoted(value)}")
        return FredError(f"{self.path}: column `{name}` holds {table[name].type}; expected times, as numbers")

    def _unreadable(self, error: Exception) -> FredError:
        reason = getattr(error, "strerror", None) or str(error).partition(":")[0]  # without the content that Arrow appends
        return FredError(f"cannot read {self.path}: {reason}")

    def _check_header(self) -> None:
        if not self.names:
            raise FredError(f"{self.path} is empty; expected a line with the names of the columns, and rows below it")
        for name in self.header:
            if "." in name and _is_number(name):
                raise FredError(f"{self.path}: expected names of columns, such as iteration,worker,seconds; found {name}")
        for name, number in Counter(self.header).items():
            if number > 1:
                raise FredError(f"{self.path} has {number} columns `{name}`; columns need different names")


class CSVFile(File):
    """A CSV file: values separated by commas, tabs or semicolons, below a header line."""

    def where(self, row: int) -> str:
        line, _ = next(itertools.islice(self._lines(), row + 1, None))
        return f"{self.path}:{line}"

    def _names(self) -> list[str]:
        (_, first), *_ = [*itertools.islice(self._lines(","), 1)] or [(0, [""])]
        self._delimiter = max(_BETWEEN, key=",".join(first).count)
        (self._skipped, names), *rows = [*itertools.islice(self._lines(), 1 + _LOOKED_AT)] or [(0, [])]
        if names and not rows:
            raise FredError(f"{self.path} has no rows")
        if names and not any(_is_row(fields, len(names)) for _, fields in rows):
            raise FredError(
                f"{self.path}:{rows[0][0]}: expected a row with numbers, below a line with the names of columns, such as "
                "iteration,worker,seconds"
            )
        names = [name.strip() for name in names]
        cells = ((name, _MOMENT.fullmatch(text.strip())) for _, row in rows for name, text in zip(names, row, strict=False))
        self._moments = {name: "UTC" if match["zone"] else None for name, match in cells if match}
        return names

    def has_moments(self, name: str) -> bool:
        """Return True for a column in which some row looks like a date with a time.

        Args:
            name: name of the column.
        """
        return name in self._moments

    def _lines(self, delimiter: str = "") -> Iterator[tuple[int, list[str]]]:
        """Yield number and fields of each line that is not empty."""
        with inputs.opened(self.path) as file:
            unpacked = cast(IO[bytes], gzip.GzipFile(fileobj=file)) if self.path.name.lower().endswith(".gz") else file
            text = TextIOWrapper(unpacked, encoding="utf-8-sig", newline="")
            reader = csv.reader(text, delimiter=delimiter or self._delimiter)
            try:
                yield from ((reader.line_num, fields) for fields in reader if fields)
            except UnicodeDecodeError:
                inputs.text(self.path)  # raises an error with the line
                raise

    def _table(self, labels: Sequence[str], numbers: Sequence[str]) -> pa.Table:
        moments = {name: pa.timestamp("ns", zone) for name, zone in self._moments.items() if name in numbers}
        types = dict.fromkeys(labels, pa.dictionary(pa.int32(), pa.string())) | dict.fromkeys(numbers, pa.float64()) | moments
        try:
            return pyarrow.csv.read_csv(
                self.path,
                pyarrow.csv.ReadOptions(skip_rows=self._skipped, column_names=_all_different(self.names)),
                pyarrow.csv.ParseOptions(delimiter=self._delimiter, invalid_row_handler=self._treat),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=list(types), column_types=types, null_values=MISSING, strings_can_be_null=True
                ),
            )
        except pa.ArrowInvalid as error:
            self._explain(numbers)
            raise self._unreadable(error) from error

    def _treat(self, row: pyarrow.csv.InvalidRow) -> str:
        """Return `skip` for the last line of a log whose writer was killed within the line, else `error`."""
        end = f"\n{row.text}".encode()  # without a line break: the line is unfinished
        with inputs.opened(self.path) as file:
            file.seek(-min(len(end), self.path.stat().st_size), os.SEEK_END)
            return "skip" if file.read() == end else "error"

    def _explain(self, numbers: Sequence[str]) -> None:
        """Raise FredError for the first invalid line."""
        if len(list(itertools.islice(self._lines(), 2))) < 2:
            raise FredError(f"{self.path} has no rows")
        for line, fields in itertools.islice(self._lines(), 1, None):
            if len(fields) != len(self.names):
                raise FredError(
                    f"{self.path}:{line}: found {len(fields)} fields; expected {len(self.names)}, as many as the header "
                    "names; decimals are written with a point"
                )
            for name, text in zip(self.names, fields, strict=True):
                if name not in numbers or text in MISSING or _is_number(text):
                    continue
                if name not in self._moments:
                    raise FredError(f"{self.path}:{line}: expected a time in column `{name}`, a number; found {quoted(text)}")
                if not _MOMENT.fullmatch(text.strip()):
                    raise FredError(f"{self.path}:{line}: expected a date and a time in column `{name}`; found {quoted(text)}")


class ParquetFile(File):
    """A Parquet file, as written by any data frame library."""

    def where(self, row: int) -> str:
        return f"{self.path}, row {row + 1}"

    def _names(self) -> list[str]:
        return list(pq.read_schema(self.path).names)

    def has_moments(self, name: str) -> bool:
        """Return True for a column of dates with times.

        Args:
            name: name of the column.
        """
        return bool(pa.types.is_timestamp(pq.read_schema(self.path).field(name).type))

    def _table(self, labels: Sequence[str], numbers: Sequence[str]) -> pa.Table:
        return pq.read_table(self.path, columns=[*labels, *numbers])


class JSONLinesFile(File):
    """A JSON Lines file, with an object in each line, as in logs."""

    def where(self, row: int) -> str:
        return f"{self.path}:{row + 1}"

    def _names(self) -> list[str]:
        self._all = pyarrow.json.read_json(self.path)
        return list(self._all.column_names)

    def has_moments(self, name: str) -> bool:
        """Return True for a column of dates with times.

        Args:
            name: name of the column.
        """
        return bool(pa.types.is_timestamp(self._all.schema.field(name).type))

    def _table(self, labels: Sequence[str], numbers: Sequence[str]) -> pa.Table:
        return self._all.select([*labels, *numbers])


def opened(path: Path) -> File:
    """Open a file by the ending of its name: Parquet, JSON Lines, or otherwise CSV; `example` is FRED's own.

    Args:
        path: path of the file.

    Raises FredError for a file that cannot be read.
    """
    if str(path) == EXAMPLE:
        path = Path(__file__).with_name("example.csv")
    for kind, endings in _KINDS.items():
        if path.name.lower().endswith(endings):
            return kind(path)
    return CSVFile(path)


_KINDS: dict[type[File], tuple[str, ...]] = {
    ParquetFile: (".parquet", ".pq"),
    JSONLinesFile: (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"),
}


def _labels(column: pa.ChunkedArray) -> Labels:
    """Return a column as labels; whole numbers written as decimals, as in columns with gaps, become integers."""
    if pa.types.is_floating(column.type) and _is_whole(column):
        column = column.cast(pa.int64())
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    encoded = column.combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.unify_dictionaries().chunks)
    written = [str(name).strip() for name in encoded.dictionary.to_pylist()]
    if all(_WHOLE.fullmatch(name) for name in written if name):
        written = [name.partition(".")[0] for name in written]
    names = list(dict.fromkeys(filter(None, written)))
    number = {"": -1, **{name: i for i, name in enumerate(names)}}
    renumbered = np.array([*(number[name] for name in written), -1], np.int64)
    return Labels(renumbered[pc.fill_null(encoded.indices, -1).to_numpy()], names)


def _is_whole(column: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.equal(pc.floor(column), column)).as_py())


def _is_index(name: str) -> bool:
    return _PANDAS_INDEX.fullmatch(name) is not None


def _all_different(names: Sequence[str]) -> list[str]:
    """Return the names, with those of indices made unique."""
    return [f"{name}\0{i}" if _is_index(name) else name for i, name in enumerate(names)]


def _is_row(fields: Sequence[str], columns: int) -> bool:
    numbers = [_is_number(text) or text in MISSING or _MOMENT.fullmatch(text.strip()) is not None for text in fields]
    return all(numbers) or (any(numbers) and len(fields) == columns)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text  # float() accepts underscores
