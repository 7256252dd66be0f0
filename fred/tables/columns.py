"""Columns of tables in files: text with delimiters, Parquet, Arrow, SQLite, lines or lists of JSON.

A row's place is looked up only to report an error.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
from numpy.typing import NDArray

from fred.base.errors import FredError, listed, quoted
from fred.base.types import Floats
from fred.tables import quantities, table_commands
from fred.tables.content import Content
from fred.tables.text_layout import TRACE_HEADER, Layout, find_layout

_MISSING_CELLS = ["", "NA", "N/A", "na", "nan", "NaN", "NAN", "null", "NULL", "None", "none", "-", "<NA>", "NaT"]
_PANDAS_INDEX = re.compile(r"|__index_level_\d+__|Unnamed: \d+")  # how pandas writes, and reads, an index without a name
_INTEGER = re.compile(r"-?\d+\.0+")  # a whole number in a column with gaps
_SAMPLE_ROWS = 100  # rows by which a column is known to have dates


class Labels(NamedTuple):
    """A column of names: the number of each row's name (-1: none), and the names in order of appearance."""

    codes: NDArray[np.int64]
    names: list[str]


class File(ABC):
    """A table: the names of its columns, and its cells as names or numbers. All methods raise FredError.

    Args:
        path: the file as messages name it.
        names: names of all columns.
        example: names of columns that messages show.

    `notes` say how the table was read, in words.
    """

    _comma = False  # True if a comma can only stand before decimals

    def __init__(self, path: Path, names: Sequence[str], example: str = TRACE_HEADER):
        self._example = example
        self.path, self.names, self.notes = path, list(names), list[str]()
        self.header = [name for name in self.names if not _is_index(name)]
        self._rows: NDArray[np.int64] | None = None
        self._check_header()

    def restrict(self, only: Mapping[str, str]) -> None:
        """Leave out all rows but those with a value in a column.

        Args:
            only: values by column.

        Raises FredError for an unknown column, and for a value that no row has.
        """
        for name, value in only.items():
            if name not in self.header:
                raise FredError(f"{self.path} has no column `{name}`; it has {listed(self.header)}")
            labels = self.columns([name], [])[0][name]
            if value not in labels.names:
                values = listed([quoted(value) for value in labels.names[:8]])
                raise FredError(f"{self.path}: no row has {quoted(value)} in column `{name}`; it has {values}")
            rows = np.flatnonzero(labels.codes == labels.names.index(value))
            self._rows = rows if self._rows is None else self._rows[rows]

    def columns(self, labels: Sequence[str], numbers: Sequence[str]) -> tuple[dict[str, Labels], dict[str, Floats]]:
        """Return columns, read as names or as numbers; durations and dates become s.

        Args:
            labels: columns to read as names.
            numbers: columns to read as numbers.
        """
        try:
            table = self._table(labels, numbers)
            if self._rows is not None:
                table = table.take(self._rows)
            return {name: _labels(table[name]) for name in labels}, {name: self._numbers(table, name) for name in numbers}
        except (OSError, pa.ArrowException) as error:
            raise unreadable_error(self.path, error) from error

    def texts(self, name: str) -> list[str]:
        """Return a column as it is written, with empty texts for missing cells.

        Args:
            name: name of the column.
        """
        labels = self.columns([name], [])[0][name]
        names = [*labels.names, ""]  # the last one for code -1
        return [names[code] for code in labels.codes.tolist()]

    def quantities(self, name: str, units: Mapping[str, float]) -> Floats:
        """Return a column of numbers with these units; a sign of a currency before them does not count.

        Args:
            name: name of the column.
            units: factors by unit; a cell without a unit has factor 1.
        """
        return self._parse_cells(name, [text.lstrip("$€£ ") for text in self.texts(name)], units)

    def unit(self, name: str) -> str:
        """Return `s` for a column whose cells have units, and the unit that a row of units gives; otherwise an empty text.

        Args:
            name: name of the column.
        """
        return self._units.get(name, "")

    def describe_row(self, row: int) -> str:
        """Return the file and the place of a row.

        Args:
            row: number of the row, from 0, without the header.
        """
        return self._describe_row(row if self._rows is None else int(self._rows[row]))

    def has_moments(self, name: str) -> bool:
        """Return True for a column of dates with times, which `columns` returns as numbers, s.

        Args:
            name: name of the column.
        """
        return name in self._moments

    @abstractmethod
    def _describe_row(self, row: int) -> str:
        """Return the file and the place of a row of the whole table."""

    @abstractmethod
    def _table(self, labels: Sequence[str], numbers: Sequence[str]) -> pa.Table:
        """Return these columns of the whole table."""

    def _inspect(self, samples: Mapping[str, Sequence[str]]) -> None:
        """Find the columns that have dates, from their first cells."""
        self._moments = {name for name, cells in samples.items() if any(map(quantities.is_moment, cells))}
        self._units: dict[str, str] = {}

    def _numbers(self, table: pa.Table, name: str) -> Floats:
        column = table[name]
        try:
            if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
                self._units[name] = "s"
                kind = pa.duration("ns") if pa.types.is_duration(column.type) else pa.timestamp("ns", column.type.tz)
                return column.cast(kind).cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy() / 1e9
            if not _is_text(column.type):
                return column.cast(pa.float64()).to_numpy().astype(np.float64)
        except pa.ArrowException:
            raise FredError(f"{self.path}: column `{name}` holds {column.type}; expected numbers") from None
        return self._parse_cells(name, column.to_pylist(), None)

    def _parse_cells(self, name: str, cells: Sequence[str | None], units: Mapping[str, float] | None) -> Floats:
        """Return the numbers in a column of text.

        Args:
            name: name of the column.
            cells: its texts; None: missing.
            units: factors by unit; None: the column has times, in s if they have units.
        """
        try:
            if name in self._moments:
                return quantities.parse_moments(cells)
            values, unit, notes = quantities.parse_numbers(cells, units, self._comma)
        except quantities.CellError as error:
            is_duration = not units and name not in self._moments
            column = f"column `{name}`"
            expected = f"a time in {column}, {error.expected}" if is_duration else f"{error.expected} in {column}"
            cure = self._comma_cure(name) if error.ambiguous == "comma" else ""
            row = self.describe_row(error.row)
            raise FredError(f"{row}: expected {expected}; found {quoted(cells[error.row])}{cure}") from None
        self.notes += [f"{note} in `{name}`" for note in notes if f"{note} in `{name}`" not in self.notes]
        if unit:
            self._units[name] = unit
        return values

    def command(self, change: str, options: str = "") -> str:
        """Return a command that writes the table with a change; an empty text if no file has the table as it is.

        Args:
            change: calls of methods of a data frame.
            options: options of pandas that replace the place of the header.
        """
        return ""

    def _two_headers_cure(self, name: str) -> str:
        """Return a command that keeps the second of two header lines, as pandas writes them for columns in two levels."""
        return ""

    def _comma_cure(self, name: str) -> str:
        """Return commands that write a column without commas."""
        changes = (f".replace({{{name!r}: {{',': {mark!r}}}}}, regex=True)" for mark in ("", "."))
        as_thousands, as_decimals = map(self.command, changes)
        return f". If thousands, {as_thousands}; if decimals, {as_decimals}" if as_thousands else ""

    def _header_cure(self) -> str:
        """Return a command that adds the names of columns to a table without them."""
        return ""

    def _check_header(self) -> None:
        if not self.names:
            raise FredError(f"{self.path} is empty; expected a line with the names of the columns, and rows below it")
        for name in self.header:
            if "." in name and quantities.is_number(name):  # whole numbers may name workers
                raise FredError(
                    f"{self.path}: expected names of columns, such as {self._example}; found {name}{self._header_cure()}"
                )
        for name, count in Counter(self.header).items():
            if count > 1:
                cure = self._two_headers_cure(name)
                raise FredError(f"{self.path} has {count} columns `{name}`; columns need different names{cure}")


class TextFile(File):
    """A table in text: values between commas, tabs, semicolons, bars or spaces, below a header line."""

    def __init__(self, file: Content, example: str = TRACE_HEADER):
        self._content = file
        self._layout: Layout = find_layout(file, example)
        super().__init__(file.path, self._layout.names, example)
        self._comma = self._layout.delimiter == ";"
        self._inspect(self._layout.samples)
        self._units = dict(self._layout.units)
        self.notes += [*file.notes, *self._layout.notes]

    def command(self, change: str, options: str = "") -> str:
        return table_commands.rewrite_command(self._content, change, options)

    def _two_headers_cure(self, name: str) -> str:
        # With two lines of names, all columns but the index have one name, and those in the second line look like a row.
        first_cell = self._layout.samples[self.names[0]][0]
        if self.names.count(name) < len(self.names) - 1 or quantities.is_number(first_cell):
            return ""
        command = self.command(f"[{name!r}].reset_index()", "header=[0, 1], index_col=0")
        return f"; if pandas wrote two lines of names: {command}"

    def _header_cure(self) -> str:
        # A trace whose columns are not as many as usual has a column for each worker.
        are_workers = self._example == TRACE_HEADER and len(self.names) != len(TRACE_HEADER.split(","))
        names = [f"worker{i}" for i in range(len(self.names))] if are_workers else self._example.split(",")
        if len(self.names) != len(names):
            condition = f"if columns {', '.join(map(str, range(len(names))))}, counted from 0, are {', '.join(names)}"
            change = f"[{list(range(len(names)))}].set_axis({names}, axis=1)"
            return f"; {condition}: {self.command(change, 'header=None')}"
        line = ("\\t" if self._layout.delimiter == "\t" else self._layout.delimiter or " ").join(names)
        order = "if each column is a worker" if are_workers else "in the order of your columns"
        return f"; put them first, {order}: `sed -i '1i {line}' {self.path}`"

    def _describe_row(self, row: int) -> str:
        return f"{self.path}:{self._layout.line(self._content, row)}"

    def _table(self, labels: Sequence[str], numbers: Sequence[str]) -> pa.Table:
        dictionary = pa.dictionary(pa.int32(), pa.string())
        if not self._layout.has_only_rows:
            return self._read_by_rows([*labels, *numbers])
        plain_numbers = [name for name in numbers if name not in self._moments]
        types = dict.fromkeys(numbers, pa.string()) | dict.fromkeys(labels, dictionary)
        # Arrow parses plain numbers without Python objects, but refuses a column with a `408 ms` or `0,4`. So columns are first
        # read as plain numbers, then as text whose cells `quantities` parses, and row by row if a row has another length.
        for column_types in (types | dict.fromkeys(plain_numbers, pa.float64()), types):
            try:
                return self._read_by_arrow(column_types)
            except pa.ArrowInvalid:
                continue
        return self._read_by_rows([*labels, *numbers])

    def _read_by_arrow(self, types: Mapping[str, pa.DataType]) -> pa.Table:
        return pyarrow.csv.read_csv(
            pa.BufferReader(self._content.data),
            pyarrow.csv.ReadOptions(skip_rows=self._layout.skipped, column_names=_unique_names(self.names)),
            pyarrow.csv.ParseOptions(delimiter=self._layout.delimiter),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=list(types), column_types=types, null_values=_MISSING_CELLS, strings_can_be_null=True
            ),
        )

    def _read_by_rows(self, names: Sequence[str]) -> pa.Table:
        rows = [fields for _, fields in self._layout.rows(self._content)]
        if not rows:
            raise FredError(f"{self.path} has no rows")
        columns = [(name, self.names.index(name)) for name in dict.fromkeys(names)]
        return pa.table({name: pa.array([fields[i] for fields in rows], pa.string()) for name, i in columns})


class ArrowFile(File):
    """A table in memory or in a binary file.

    Args:
        path: the file as messages name it.
        table: its columns.
        place: function that names the place of a row; default: its number.
        content: content of the file, from which commands in messages read the table; None: a reader made it from other data.
    """

    def __init__(self, path: Path, table: pa.Table, place: Callable[[int], str] | None = None, content: Content | None = None):
        super().__init__(path, table.column_names)
        if not table.num_rows:
            raise FredError(f"{path} has no rows")
        self._arrow_table, self._place, self._content = table, place, content
        self._inspect({name: _texts(table[name].slice(0, _SAMPLE_ROWS)) for name in self.header})
        self._moments |= {name for name in self.header if pa.types.is_timestamp(table.schema.field(name).type)}

    def command(self, change: str, options: str = "") -> str:
        return table_commands.rewrite_command(self._content, change, options) if self._content else ""

    def _describe_row(self, row: int) -> str:
        return self._place(row) if self._place else f"{self.path}, row {row + 1}"

    def _table(self, labels: Sequence[str], numbers: Sequence[str]) -> pa.Table:
        return self._arrow_table.select(list(dict.fromkeys([*labels, *numbers])))


def table_from_columns(path: Path, columns: Mapping[str, Any], place: Callable[[int], str] | None = None) -> ArrowFile:
    """Return a table of columns that a reader has taken from a file.

    Args:
        path: the file.
        columns: values by name.
        place: function that names the place of a row.

    >>> table = table_from_columns(Path("a.log"), {"step": [0, 1], "time": ["408 ms", "1.5 s"]})
    >>> table.columns([], ["time"])[1]["time"].tolist(), table.unit("time")
    ([0.408, 1.5], 's')
    """
    return ArrowFile(path, pa.table({name: pa.array(values) for name, values in columns.items()}), place)


def unreadable_error(path: Path, error: Exception) -> FredError:
    """Return an error about a file that a library could not read, without the content that Arrow appends to its reason.

    Args:
        path: the file.
        error: the library's error.
    """
    reason = getattr(error, "strerror", None) or str(error).partition(":")[0]
    return FredError(f"cannot read {path}: {reason}")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _texts(column: pa.ChunkedArray) -> list[str]:
    return [] if not _is_text(column.type) else [text for text in column.to_pylist() if text]


def _labels(column: pa.ChunkedArray) -> Labels:
    """Return a column as labels; whole numbers written as decimals, as in columns with gaps, become integers."""
    if pa.types.is_floating(column.type) and _are_integers(column):
        column = column.cast(pa.int64())
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    encoded = column.combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.unify_dictionaries().chunks)
    texts = [str(name).strip() for name in encoded.dictionary.to_pylist()]
    if all(_INTEGER.fullmatch(name) for name in texts if name):
        texts = [name.partition(".")[0] for name in texts]
    names = list(dict.fromkeys(name for name in texts if name not in _MISSING_CELLS))
    code_of = {**dict.fromkeys(_MISSING_CELLS, -1), **{name: i for i, name in enumerate(names)}}
    # Null cells have index -1, which is the last code: the -1 that is appended.
    codes = np.array([*(code_of[name] for name in texts), -1], np.int64)
    return Labels(codes[pc.fill_null(encoded.indices, -1).to_numpy()], names)


def _are_integers(column: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.equal(pc.floor(column), column)).as_py())


def _is_index(name: str) -> bool:
    return _PANDAS_INDEX.fullmatch(name) is not None


def _unique_names(names: Sequence[str]) -> list[str]:
    """Return the names, with those of indices made unique."""
    return [f"{name}\0{i}" if _is_index(name) else name for i, name in enumerate(names)]
