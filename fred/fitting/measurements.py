"""Measured times of communication: tables, and the logs of nccl-tests.

A table is CSV with a header; a row is one measurement:

| column                        | what                                                                    |
|-------------------------------|-------------------------------------------------------------------------|
| `library`                     | `nccl` or `gloo`; or the file's name begins with it: `gloo-allreduce.csv` |
| `operation`                   | such as `allreduce`, `broadcast`; or the file's name has it             |
| `how`                         | a synchronization in use: `allreduce` or `sharded-servers`              |
| `nodes`                       | members, also `workers`, `ranks`; default: 2                            |
| `megabytes` (2^20) or `bytes` | size of the model or message                                            |
| `delay_ms` or `round_trip_ms` | latency in one direction, or in both; empty: unknown                    |
| `gbit_per_s`                  | bandwidth of each member; empty: unknown                                |
| `seconds`, `milliseconds` or `microseconds` | measured duration                                         |
| `mbit_per_s`                  | instead: measured rate of a message of 64 MiB                           |
| `source`                      | where it was measured, if the table has several clusters                |
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fred.base import inputs
from fred.base.errors import FredError, quoted
from fred.base.words import listed
from fred.cluster.libraries import LIBRARIES
from fred.components.registry import nearest

_MEBIBYTE = 2**20
_BYTES_OF_A_RATE = 64 * _MEBIBYTE  # sent to measure a rate
_LEAST, _MOST = 1e-9, 1e15  # of any number
_ALIASES = {"bcast": "broadcast", "p2p": "point-to-point", "sendrecv": "point-to-point", "send": "point-to-point"}
_UNITS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6}
_LIBRARIES = tuple(name for name in LIBRARIES if name != "in use")
_MEMBERS = ("nodes", "workers", "members", "machines", "ranks")  # names of the column with their number
_QUANTITIES = ((*_UNITS, "mbit_per_s"), _MEMBERS, ("megabytes", "bytes"), ("delay_ms", "round_trip_ms"))  # one column each
_NAMES = ("library", "operation", "how", "source", "sender", "receiver")  # columns of text; the last two are for people


@dataclass(frozen=True)
class Measurement:
    """A measured duration.

    Args:
        library, operation: names of the library and of its operation; `in use` is a library, too.
        nodes: number of members.
        size: size of the model or message, bytes.
        seconds: duration, s.
        latency: time of a message in one direction, s; None: unknown.
        bandwidth: bandwidth of each member, bytes/s; None: unknown.
        is_rate: True if a rate was measured, with no slow start.
        where: name of the cluster.

    Example:
        >>> Measurement("nccl", "allreduce", 4, 2**27, 0.329, 0.001, 6.25e8).source
        'nccl allreduce'
    """

    library: str
    operation: str
    nodes: int
    size: float
    seconds: float
    latency: float | None = None
    bandwidth: float | None = None
    is_rate: bool = False
    where: str = ""

    @property
    def source(self) -> str:
        """Return the library, the operation and the cluster."""
        return " ".join(word for word in (self.library, self.operation, self.where) if word)


def read(path: Path) -> tuple[Measurement, ...]:
    """Return the measurements in a file.

    Args:
        path: CSV file, or the log of a program of nccl-tests.

    Raises FredError for a file that is neither, and for a column, library, operation or number that is missing or unknown.
    """
    text = inputs.text(path)
    rows = _logged(path, text) if re.search(r"^#.*(nThread|out-of-place)", text, re.MULTILINE) else _tabled(path, text)
    found = tuple(rows)
    if not found:
        raise FredError(f"{path}: no measurement; expected rows of a table, or of a log of nccl-tests")
    return found


def _tabled(path: Path, text: str) -> Iterator[Measurement]:
    """Yield the measurements of a table."""
    table = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), skipinitialspace=True)
    try:
        columns = [name.strip().lower() for name in next(table, [])]
        if twice := [name for name in columns if columns.count(name) > 1]:
            raise FredError(f"{path}: there are two columns `{twice[0]}`")
        _check_columns(path, columns)
        results = [name for name in (*_UNITS, "mbit_per_s") if name in columns]
        if not results:
            said = "`seconds`, `milliseconds` or `microseconds`"
            raise FredError(f"{path}: no column with a duration, {said}; the columns are: {listed(columns)}")
        for cells in table:
            where = f"{path}:{table.line_num}"
            if len(cells) > len(columns):
                raise FredError(f"{where}: there are more fields than columns")
            if not any(cells):
                continue
            row = {name: value.strip() for name, value in zip(columns, cells, strict=False)}
            yield _measurement(row, results[0], path, where)
    except csv.Error as error:
        raise FredError(f"{path}: not a CSV table: {error}") from None


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    """Raise FredError for a column that is not read, and for two columns of one quantity, which may contradict each other."""
    expected = ["gbit_per_s", *_NAMES, *(name for names in _QUANTITIES for name in names)]
    for name in columns:
        if name not in expected:
            raise FredError(f"{path}: unknown column `{name}`{nearest(name, expected)}; expected some of {', '.join(expected)}")
    for names in _QUANTITIES:
        if len(given := [name for name in columns if name in names]) > 1:
            raise FredError(f"{path}: the columns {listed(given)} say the same thing; leave one of them out")


def _measurement(row: Mapping[str, str], result: str, path: Path, where: str) -> Measurement:
    """Return the measurement in a row."""

    def number(name: str) -> float | None:
        return _number(row[name], name, where) if row.get(name) else None

    library, operation = _named(row, path, where)
    measured = number(result)
    if measured is None:
        raise FredError(f"{where}: `{result}` is empty; expected a positive number")
    delay, round_trip, width = number("delay_ms"), number("round_trip_ms"), number("gbit_per_s")
    latency = delay / 1e3 if delay is not None else None if round_trip is None else round_trip / 2e3
    bandwidth = None if width is None else width * 1e9 / 8
    source = row.get("source", "")
    if result == "mbit_per_s":
        seconds = _BYTES_OF_A_RATE / (measured * 1e6 / 8)
        return Measurement(library, operation, 2, _BYTES_OF_A_RATE, seconds, latency, bandwidth, True, source)
    members = next((name for name in _MEMBERS if row.get(name)), "nodes")
    nodes = number(members) or 2
    if nodes != int(nodes) or nodes < 2:
        raise FredError(f"{where}: `{members}` is `{row[members]}`; expected a whole number from 2 on")
    size = (number("megabytes") or 0) * _MEBIBYTE or number("bytes")
    if not size:
        raise FredError(f"{where}: no size; expected a number in a column `megabytes` or `bytes`")
    return Measurement(library, operation, int(nodes), size, measured * _UNITS[result], latency, bandwidth, where=source)


def _number(text: str, name: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    least = 0.0 if name in ("delay_ms", "round_trip_ms") else _LEAST
    if not least <= value < _MOST:
        shown = quoted(text if len(text) < 40 else f"{text[:36]}...")
        raise FredError(f"{where}: `{name}` is {shown}; expected a number between {least:g} and {_MOST:g}")
    return value


def _named(row: Mapping[str, str], path: Path, where: str) -> tuple[str, str]:
    """Return the library and the operation of a row, which may be in the file's name. Raises FredError if there are none."""
    if row.get("how"):
        return "in use", _operation("in use", row["how"], where)
    in_name = [library for library in _LIBRARIES if library in re.split("[^a-z]", path.stem.lower())]
    is_rate = "mbit_per_s" in row and not row.get("operation")
    library = row.get("library", "").lower() or (in_name or ["nccl" if is_rate else ""])[0]
    if library not in _LIBRARIES:
        said = f"unknown library `{library}`" if library else "no library, in a column `library` or in the file's name"
        raise FredError(f"{where}: {said}; expected {' or '.join(_LIBRARIES)}")
    return library, _operation(library, "point-to-point" if is_rate else row.get("operation") or path.stem, where)


def _operation(library: str, text: str, where: str) -> str:
    """Return the name by which FRED knows an operation: the one that the text holds. Raises FredError for none or several."""
    letters = re.sub("[^a-z0-9]", "", text.lower())
    names = {name.replace("-", ""): name for name in LIBRARIES[library]}
    names |= {alias: name for alias, name in _ALIASES.items() if name in LIBRARIES[library]}
    held = [each for each in names if each in letters]
    if not held:
        raise FredError(
            f"{where}: unknown operation `{text}`; name one in a column `operation` or in the file's name, such as "
            f"{library}-allreduce.csv: {listed(tuple(LIBRARIES[library]))}"
        )
    longest = [each for each in held if not any(each != other and each in other for other in held)]
    if len(longest) > 1:
        raise FredError(f"{where}: `{text}` names several operations: {listed([names[each] for each in longest])}")
    return names[longest[0]]


def _logged(path: Path, text: str) -> Iterator[Measurement]:
    """Yield the rows of a log of nccl-tests, out of place."""
    hosts = re.findall(r"^#\s+Rank\s+\d+\b.*?\bon\s+(\S+)", text, re.MULTILINE)
    if len(hosts) < 2:
        raise FredError(f"{path}: the log names {len(hosts)} ranks; expected a line `# Rank ...` for each of at least two")
    if len(set(hosts)) < len(hosts):
        raise FredError(f"{path}: {len(hosts)} ranks on {len(set(hosts))} machines; expected one rank on each machine")
    if len(re.findall(r"^#\s*nThread", text, re.MULTILINE)) > 1:
        raise FredError(f"{path}: the logs of several programs; expected a file for each")
    program = re.search(r"(\w+_perf)", text)
    operation = _operation("nccl", program[1] if program else path.stem, str(path))
    header = re.search(r"^#\s+(size\s+count.*)$", text, re.MULTILINE)
    if header is None:
        raise FredError(f"{path}: the log has no line `# size count ... time ...`")
    place = header[1].split().index("time")
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if len(words) > place and words[0].isdecimal() and words[1].isdecimal() and words[0].strip("0"):
            where = f"{path}:{number}"
            size, microseconds = _number(words[0], "size", where), _number(words[place], "time", where)
            yield Measurement("nccl", operation, len(hosts), size, microseconds * 1e-6)
