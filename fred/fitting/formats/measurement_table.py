"""Tables of any program: CSV and the like, aligned text, JSON records; `times.py` of FRED's page writes one.

A row is one measurement. The columns are recognised by FRED's names and by others with their units, such as `time (seconds)`,
`duration_ms`, `size_mb`, `world_size`, `collective`, `backend`:

| column                        | content                                                                 |
|-------------------------------|-------------------------------------------------------------------------|
| `library`                     | such as `nccl`, `gloo`, `mpi`; or the file's name has it: `gloo-allreduce.csv` |
| `operation`                   | such as `allreduce`, `broadcast`, `one-server`; or the file's name has it |
| `how`                         | a synchronization in use: `allreduce`, `sharded-servers`, `one-server` or `worker-as-server` |
| `nodes`                       | number of members; or the file's name has it: `nccl-allreduce-np8.csv`  |
| `megabytes` (2^20) or `bytes` | size of the model or message                                            |
| `delay_ms` or `round_trip_ms` | latency in one direction, or in both; empty: unknown                    |
| `gbit_per_s`                  | bandwidth of each member; empty: unknown                                |
| `seconds`, `milliseconds` or `microseconds` | measured duration; or `algbw (GB/s)`, size / duration; or `busbw (GB/s)` |
| `mbit_per_s`                  | instead: measured rate of a message of 64 MiB                           |
| `source`                      | where it was measured, if the table has several clusters                |
"""

import csv
import difflib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from fred.base.errors import FredError, listed, quoted
from fred.fitting.formats.table_refusals import BANDWIDTHS, COLUMNS, SIZES, TIMES, Column, explain_refusal, is_header, recognise
from fred.fitting.measurement import SYNCHRONIZATIONS, BenchmarkFormat, BenchmarkLog, Measurement, Setting, Skipped, bus_factor
from fred.tables import quantities

_RATE_BYTES = 64 * 2**20  # sent to measure a rate
_DELIMITERS = (",", ";", "\t", "|", r"\s{2,}", r"\s+")
_BARE_SIZES = 65536  # sizes without a unit are bytes if one is at least as large
_CUT = 0.8  # similarity from which on an unknown column is taken for a typing error
_REDUCTIONS = ("sum", "prod", "min", "max", "avg", "none")  # of a column `op`, in the words of nccl-tests
_RULE = re.compile(r"[-=+|:\s]+")
_IN_USE = {"allreduce": "in use", **SYNCHRONIZATIONS}  # in a column `how` -> library
_NONE = Skipped("have no positive time")
_UNIT = re.compile(r"[\[(][^\[\]()]*[\])]")
_CELL = re.compile(r"([\d.,]+(?:[eE][+-]?\d+)?)\s*([a-zA-Zµ]+)")


class _Table(NamedTuple):
    """Cells of a table: names of columns, and each row with its line."""

    names: list[str]
    rows: list[tuple[int, list[str]]]
    is_text: bool = False  # aligned with spaces or bars, with other lines around


class _Row(NamedTuple):
    """A row of a table.

    Args:
        log: the file.
        cells: text and column of each cell, by the column's kind.
        line: number of its line.
        sizes: the cells of all rows in a column of sizes.
    """

    log: BenchmarkLog
    cells: Mapping[str, tuple[str, Column]]
    line: int
    sizes: Sequence[str]

    @property
    def place(self) -> str:
        return f"{self.log.path}:{self.line}"

    def text(self, kind: str) -> str:
        """Return the text of a cell; empty: there is none."""
        return self.cells[kind][0] if kind in self.cells else ""

    def number(self, kind: str, least: float = 1e-9) -> float | None:
        """Return the number in a cell, in FRED's units; None: there is none."""
        if not self.text(kind):
            return None
        text, column = self.cells[kind]
        return _parse_quantity(self.log, text, column, self.place, least, self.sizes)


def sniff_measurement_table(head: str, name: str) -> bool:
    """Return True: what no other format recognises is read as a table.

    Args:
        head: text of the file.
        name: name of the file.
    """
    return True


def read_measurement_table(log: BenchmarkLog) -> Iterator[Measurement | Skipped]:
    """Yield the measurements of a table.

    Args:
        log: the file.

    Raises FredError for a text that is no table, and for a column, library, operation, unit or number that is missing.
    """
    table = _json_table(log) if log.text.lstrip()[:1] in ("[", "{") else _text_table(log)
    columns = _columns(log, table.names)
    kinds = {column.kind for column in columns.values()}
    if not _has_measurements(kinds):
        raise explain_refusal(log, [table.names, *(cells for _, cells in table.rows)])
    sizes = [cells[i] for i, column in columns.items() if column.kind == "size" for _, cells in table.rows if i < len(cells)]
    settings: dict[tuple[str, ...], Setting] = {}
    for line, cells in table.rows:
        cells_by_kind = {column.kind: (cells[i].strip(), column) for i, column in columns.items() if i < len(cells)}
        row = _Row(log, cells_by_kind, line, sizes)
        if table.is_text and not row.text("size")[:1].isdigit():  # another line around the table
            continue
        if table.is_text and len(cells) != len(table.names):
            if line == table.rows[-1][0] and len(cells) < len(table.names):
                yield Skipped("were cut off")
                continue
            raise FredError(
                f"{row.place}: {len(cells)} cells below {len(table.names)} names, so columns and names do not fit; write the "
                "table as CSV, with commas between cells"
            )
        yield _measurement(row, settings)


def _measurement(row: _Row, settings: dict[tuple[str, ...], Setting]) -> Measurement | Skipped:
    """Return the measurement in a row; a failed or rounded one has no positive time."""
    kinds = [kind for kind in ("time", "algbw", "busbw") if kind in row.cells]
    kind = next((kind for kind in kinds if row.text(kind)), "".join(kinds[:1]))  # of the cell from which the duration follows
    if kind and not _is_positive(row.text(kind)):
        return _NONE
    delay, round_trip = row.number("delay", least=0.0), row.number("round_trip", least=0.0)
    latency = delay if round_trip is None else round_trip / 2
    bandwidth, where = row.number("bandwidth"), row.text("source")
    if "rate" in row.cells:
        seconds = _RATE_BYTES / _read_rate(row)
        setting = row.log.setting(row.text("library") or "nccl", "point-to-point", 2, row.line)
        return Measurement(*setting, _RATE_BYTES, seconds, latency, bandwidth, is_rate=True, where=where)
    size = row.number("size")
    if not size:
        raise FredError(f"{row.place}: no size; expected a number in a column `megabytes` or `bytes`")
    if not (value := row.number(kind) if kind else None):
        raise FredError(f"{row.place}: no duration; expected a positive number")
    setting = _setting_of(row, settings)
    machines = int(row.number("nodes") or 0) if "per_node" in row.cells else 0
    seconds = _to_seconds(kind, value, size, setting)
    return Measurement(*setting, size, seconds, latency, bandwidth, where=where, machines=machines)


def _read_rate(row: _Row) -> float:
    """Return the measured rate of a message, in bytes/s."""
    rate = row.number("rate")
    if rate is None:
        raise FredError(f"{row.place}: `{row.cells['rate'][1].name}` is empty; expected a positive number")
    return rate


def _setting_of(row: _Row, settings: dict[tuple[str, ...], Setting]) -> Setting:
    """Return library, operation and number of members, from `settings` if an earlier row had the same cells."""
    operation = "" if row.text("operation").lower() in _REDUCTIONS else row.text("operation")
    library, how, nodes_text = row.text("library"), row.text("how"), row.text("nodes")
    key = library, operation, how, nodes_text, row.text("per_node")
    if key not in settings:
        per_node = row.number("per_node") or 1.0
        nodes = (row.number("nodes") or 0.0) * per_node
        if nodes and (nodes != int(nodes) or nodes < 2):
            raise FredError(f"{row.place}: `{row.cells['nodes'][1].name}` is `{nodes_text}`; expected a whole number from 2 on")
        settings[key] = (
            _setting_in_use(how, nodes, row.place) if how else row.log.setting(library, operation, int(nodes), row.line)
        )
    return settings[key]


def _to_seconds(kind: str, value: float, size: float, setting: Setting) -> float:
    """Return the measured duration, from the column that has it: a time, or a bandwidth of the algorithm or of the bus."""
    factor = bus_factor(setting.operation, setting.nodes) if kind == "busbw" else 1.0
    return value if kind == "time" else factor * size / value


def _is_positive(text: str) -> bool:
    """Return False for a number that is no time or rate: zero, negative, infinite or missing."""
    return not quantities.is_missing(text) and (not quantities.is_number(text) or 0 < float(text) < math.inf)


def _setting_in_use(operation: str, nodes: float, place: str) -> Setting:
    """Return the setting of a synchronization in use."""
    if operation not in _IN_USE or not nodes:
        raise FredError(f"{place}: expected {' or '.join(_IN_USE)} in `how`, and a number in `nodes`")
    return Setting(_IN_USE[operation], operation, int(nodes))


def _parse_quantity(log: BenchmarkLog, text: str, column: Column, place: str, least: float, sizes: Sequence[str]) -> float:
    """Return a number in FRED's units: bytes, s or bytes/s. Its unit is in the cell, or else in the column's name."""
    if re.match(r"\d+,\d+(?!,)\b", text) and not re.match(r"\d{1,3}(,\d{3})+(?!\d)", text):
        text = text.replace(",", ".")  # the comma cannot stand between thousands, so it stands before decimals
    units = {"size": SIZES, "time": TIMES, "algbw": BANDWIDTHS, "busbw": BANDWIDTHS}.get(column.kind, {})
    cell = _CELL.fullmatch(text)
    unit = cell[2] if cell and units is BANDWIDTHS else cell[2].lower() if cell else ""  # GB/s and Gb/s differ
    if cell and unit in units:
        return log.number(cell[1], column.name, place, least) * units[unit]
    value = log.number(text, column.name, place, least)
    if column.factor:
        return value * column.factor
    if column.kind == "size" and any(size.isdecimal() and int(size[:20]) >= _BARE_SIZES for size in sizes):
        return value  # bytes: no benchmark has so many megabytes
    if units is BANDWIDTHS:
        raise FredError(
            f"{log.path}: the column `{column.name}` has no unit; name it `{column.name} (GB/s)`, or add the durations"
        )
    names = ("bytes", "megabytes") if column.kind == "size" else ("microseconds", "milliseconds", "seconds")
    cure = log.command(columns=f"{names[0]}={column.name}", **_values_option(log))
    raise FredError(f"{log.path}: the column `{column.name}` has no unit; say it: {cure} (or {' or '.join(names[1:])})")


def _values_option(log: BenchmarkLog) -> dict[str, str]:
    return {"values": ",".join(f"{key}={value}" for key, value in log.values.items())} if log.values else {}


def _columns(log: BenchmarkLog, names: Sequence[str]) -> dict[int, Column]:
    """Return the columns that are read, by place in a row. Raises FredError for contradictions and likely typing errors."""
    lower_names = [name.strip().lower() for name in names]
    if duplicates := [name for name in lower_names if name and lower_names.count(name) > 1]:
        raise FredError(f"{log.path}: there are two columns `{duplicates[0]}`")
    selected: dict[int, Column] = {}
    for option, header in log.columns.items():
        column = recognise(option)
        if option not in COLUMNS or column is None:
            raise FredError(f"--columns {option}={header}: unknown column `{option}`; expected one of {listed(COLUMNS)}")
        if header.lower() not in lower_names:
            raise FredError(
                f"--columns {option}={header}: {log.path} has no such column; it has {listed([*map(str.strip, names)])}"
            )
        selected[lower_names.index(header.lower())] = column._replace(name=header)
    kinds = {column.kind for column in selected.values()}
    unknown = []
    for place, name in enumerate(names):
        column = recognise(name)
        if place in selected:  # by an option
            continue
        if column is None:
            unknown.append(name.strip())
        elif column.kind not in kinds:
            selected[place] = column._replace(name=name.strip())
    for name in unknown:
        if match := difflib.get_close_matches(name.lower(), COLUMNS, n=1, cutoff=_CUT):
            raise FredError(f"{log.path}: unknown column `{name}`; did you mean `{match[0]}`?")
    return _best_columns(log, selected)


def _best_columns(log: BenchmarkLog, selected: Mapping[int, Column]) -> dict[int, Column]:
    """Return one column of each kind: the best; raise FredError if two are as good."""
    best_ranks: dict[str, int] = {}
    for column in selected.values():
        best_ranks[column.kind] = min(column.rank, best_ranks.get(column.kind, column.rank))
    best = {place: column for place, column in selected.items() if column.rank == best_ranks[column.kind]}
    for kind in {column.kind for column in best.values()} - {"text", "algbw", "busbw"}:
        names = [column.name for column in best.values() if column.kind == kind]
        if len(names) > 1:
            option = {"time": "milliseconds", "size": "bytes", "delay": "delay_ms"}.get(kind, kind)
            header = next((name for name in names if name.lower() not in ("nodes", "machines")), names[0])  # ranks
            cure = log.command(columns=f"{option}={header}", **_values_option(log))
            raise FredError(
                f"{log.path}: the columns {listed(names)} say the same thing; leave one of them out, or choose: {cure}"
            )
    return best


def _text_table(log: BenchmarkLog) -> _Table:
    """Return the table in a text: the header is its first line with a size and a duration, or with a rate."""
    lines = list(log.lines())
    required = {name.lower() for name in log.columns.values()}
    for position, (_, line) in enumerate(lines):
        for delimiter in _DELIMITERS:
            names = _split_line(line.lstrip("# "), delimiter)
            if delimiter == "\t" and "" in names[1:-1]:  # several tabs stand between two cells
                delimiter = r"\t+"
                names = _split_line(line.lstrip("# "), delimiter)
            if not is_header(names) or (len(delimiter) > 1 and len({*names}) < len(names)):  # words repeat, names do not
                continue
            kinds = {column.kind for name in names if (column := recognise(name))}
            if (_has_measurements(kinds) and _has_sizes(lines[position + 1 :], delimiter, names)) or (
                required and required <= {name.lower() for name in names}  # --columns names columns of this header
            ):
                return _read_rows(log, lines[position:], delimiter, names)
    content = [line for _, line in lines if line.strip() and not line.startswith("#")]
    # Spaces delimit any text, so only the other delimiters make a table of it.
    delimiter = next((delimiter for delimiter in _DELIMITERS[:4] if content and delimiter in content[0]), "")
    raise explain_refusal(log, [_split_line(line, delimiter) for line in content] if delimiter else [])


def _has_sizes(lines: Sequence[tuple[int, str]], delimiter: str, names: Sequence[str]) -> bool:
    """Return True if the first line below a header, apart from rules, comments and units, has a number in a column of sizes."""
    kinds = [column.kind if (column := recognise(name)) else "" for name in names]
    for _, line in lines:
        cells = _split_line(line, delimiter)
        filled = [cell for cell in cells if cell]
        if not filled or line.startswith("#") or _RULE.fullmatch(line) or all(map(_UNIT.fullmatch, filled)) or cells == names:
            continue
        size_column = kinds.index("size") if "size" in kinds else 0
        return "rate" in kinds or (size_column < len(cells) and cells[size_column][:1].isdigit())
    return False


def _has_measurements(kinds: Collection[str]) -> bool:
    """Return True if columns of these kinds make measurements."""
    return "rate" in kinds or ("size" in kinds and bool({"time", "algbw", "busbw"} & {*kinds}))


def _read_rows(log: BenchmarkLog, lines: Sequence[tuple[int, str]], delimiter: str, names: list[str]) -> _Table:
    """Return the rows below a header; a row of units is added to the names."""
    is_text = delimiter == "|" or len(delimiter) > 1
    rows: list[tuple[int, list[str]]] = []
    for number, line in lines[1:]:
        cells = _split_line(line, delimiter)
        filled = [cell for cell in cells if cell]
        if not filled or cells == names or line.startswith("#"):
            continue
        if not rows and all(map(_UNIT.fullmatch, filled)) and len(cells) == len(names):
            names = [f"{name} {unit}".strip() for name, unit in zip(names, cells, strict=True)]
        elif len(cells) > len(names) and not is_text:
            raise FredError(f"{log.path}:{number}: there are more fields than columns")
        else:
            rows.append((number, cells))
    return _Table(names, _replace_commas(log, names, rows) if delimiter == ";" else rows, is_text)


def _replace_commas(
    log: BenchmarkLog, names: Sequence[str], rows: Sequence[tuple[int, list[str]]]
) -> list[tuple[int, list[str]]]:
    """Return rows between semicolons with points before decimals. Raises FredError for a comma that may mean thousands."""
    width = max((len(cells) for _, cells in rows), default=0)
    columns = []
    for i in range(width):
        column = [cells[i] if i < len(cells) else "" for _, cells in rows]
        try:
            columns.append(quantities.normalize_decimals(column, comma=True))
        except quantities.CellError as error:
            cause = f"found {quoted(column[error.row])} in `{names[i]}`"
            raise FredError(f"{log.path}:{rows[error.row][0]}: expected {error.expected}; {cause}") from None
    return [(number, [column[row] for column in columns[: len(cells)]]) for row, (number, cells) in enumerate(rows)]


def _split_line(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line."""
    if len(delimiter) > 1:
        return [cell.strip() for cell in re.split(delimiter, line.strip())]
    if delimiter == "|":
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])]
    except csv.Error:
        return []


def _json_table(log: BenchmarkLog) -> _Table:
    """Return the table of JSON records: a list, a list in an object, or an object on each line."""
    keys = ["", *re.findall(r'"(\w+)"\s*:\s*\[\s*\{', log.text)]
    records = next((listing for key in keys if (listing := log.records(key))), None)
    if records is None:
        records = BenchmarkLog(log.path, f"[{log.text}").records("")  # lines of objects are a list without an end
    names = list(dict.fromkeys(name for record in records for name in record))
    rows = [[_cell_text(record.get(name, "")) for name in names] for record in records]
    return _Table(names, list(enumerate(rows, start=1)))


def _cell_text(value: object) -> str:
    """Return the text of a cell."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


TABLE = BenchmarkFormat("table", sniff_measurement_table, read_measurement_table)
