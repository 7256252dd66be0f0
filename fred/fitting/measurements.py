"""Measured times of communication: tables, and the logs of nccl-tests.

A table is CSV with a header; a row is one measurement:

| column                        | what                                                                    |
|-------------------------------|-------------------------------------------------------------------------|
| `library`                     | `nccl` or `gloo`; or the file's name begins with it: `gloo-allreduce.csv` |
| `operation`                   | such as `allreduce`, `broadcast`; or the file's name has it             |
| `how`                         | a synchronization in use: `allreduce` or `sharded-servers`              |
| `nodes`                       | members; default: 2                                                     |
| `megabytes` (2^20) or `bytes` | size of the model or message                                            |
| `delay_ms` or `round_trip_ms` | latency in one direction, or in both; empty: unknown                    |
| `gbit_per_s`                  | bandwidth of each member; empty: unknown                                |
| `seconds`, `milliseconds` or `microseconds` | measured duration                                         |
| `mbit_per_s`                  | instead: measured rate of a message of 64 MiB                           |
| `source`                      | where it was measured, if the table has several clusters                |
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fred.base.errors import FredError
from fred.base.words import listed
from fred.cluster.libraries import LIBRARIES

_MEBIBYTE = 2**20
_BYTES_OF_A_RATE = 64 * _MEBIBYTE  # sent to measure a rate
_ALIASES = {"bcast": "broadcast", "p2p": "point-to-point", "sendrecv": "point-to-point", "send": "point-to-point"}
_UNITS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6}
_LOGGED = re.compile(r"\s*(\d+)\s+\d+\s+\w+\s+\w+(?:\s+-?\d+)?\s+([\d.]+)\s+[\d.]+\s+[\d.]+")  # a row of nccl-tests: size, us


@dataclass(frozen=True)
class Measurement:
    """A measured duration.

    Args:
        library, operation: what was measured; `in use` is a library, too.
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
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FredError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not text'}") from None
    rows = _logged(path, text) if re.search(r"^#.*(nThread|out-of-place)", text, re.MULTILINE) else _tabled(path)
    found = tuple(rows)
    if not found:
        raise FredError(f"{path}: no measurement; expected rows of a table, or of a log of nccl-tests")
    return found


def _tabled(path: Path) -> Iterator[Measurement]:
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True)
    except (ValueError, pd.errors.ParserError) as error:
        raise FredError(f"{path}: not a CSV table: {error}") from None
    columns = {str(name).strip().lower() for name in table.columns}
    results = [name for name in (*_UNITS, "mbit_per_s") if name in columns]
    if not results:
        raise FredError(
            f"{path}: no column with a duration; expected `seconds`, `milliseconds`, `microseconds` or `mbit_per_s`"
        )
    for number, row in enumerate(table.to_dict("records"), start=2):
        cells = {str(name).strip().lower(): str(value).strip() for name, value in row.items()}
        yield _measurement(cells, results[0], path, f"{path}:{number}")


def _measurement(row: Mapping[str, str], result: str, path: Path, where: str) -> Measurement:
    """Return the measurement in a row."""

    def number(name: str) -> float | None:
        if not row.get(name):
            return None
        try:
            value = float(row[name])
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf or (value == 0 and name not in ("delay_ms", "round_trip_ms")):
            raise FredError(f"{where}: `{name}` is `{row[name]}`; expected a positive number")
        return value

    library, operation = _named(row, path, where)
    measured = number(result)
    if measured is None:
        raise FredError(f"{where}: `{result}` is empty; expected a positive number")
    delay, round_trip, width = number("delay_ms"), number("round_trip_ms"), number("gbit_per_s")
    latency = delay / 1e3 if delay is not None else None if round_trip is None else round_trip / 2e3
    nodes = number("nodes") or 2
    if nodes != int(nodes) or nodes < 2:
        raise FredError(f"{where}: `nodes` is `{row['nodes']}`; expected a whole number from 2 on")
    bandwidth = None if width is None else width * 1e9 / 8
    if result == "mbit_per_s":
        seconds = _BYTES_OF_A_RATE / (measured * 1e6 / 8)
        return Measurement(library, operation, 2, _BYTES_OF_A_RATE, seconds, latency, bandwidth, True, row.get("source", ""))
    size = (number("megabytes") or 0) * _MEBIBYTE or number("bytes")
    if not size:
        raise FredError(f"{where}: no size; expected a number in a column `megabytes` or `bytes`")
    return Measurement(
        library, operation, int(nodes), size, measured * _UNITS[result], latency, bandwidth, where=row.get("source", "")
    )


def _named(row: Mapping[str, str], path: Path, where: str) -> tuple[str, str]:
    """Return the library and the operation of a row."""
    if row.get("how"):
        return _known("in use", row["how"], where)
    first, _, rest = path.stem.lower().replace("_", "-").partition("-")
    named = first if first in LIBRARIES else ""
    library = row.get("library", "").lower() or named or "nccl"
    operation = row.get("operation") or (rest if named else path.stem)
    return _known(library, "point-to-point" if "mbit_per_s" in row and not row.get("operation") else operation, where)


def _known(library: str, operation: str, where: str) -> tuple[str, str]:
    """Return the names by which FRED knows a library and an operation. Raises FredError if there are none."""
    if library not in LIBRARIES:
        raise FredError(f"{where}: unknown library `{library}`; expected {listed(tuple(LIBRARIES))}")
    letters = re.sub("[^a-z0-9]", "", operation.lower().removesuffix("_perf").removesuffix(".csv"))
    known = {name.replace("-", ""): name for name in LIBRARIES[library]}
    name = known.get(letters) or known.get(_ALIASES.get(letters, "").replace("-", ""))
    if name is None:
        raise FredError(
            f"{where}: unknown operation `{operation}`; name one in a column `operation`, or in the file's name, such as "
            f"`{library}-allreduce.csv`: {listed(tuple(LIBRARIES[library]))}"
        )
    return library, name


def _logged(path: Path, text: str) -> Iterator[Measurement]:
    """Yield the rows of a log of nccl-tests, out of place."""
    ranks = len(re.findall(r"^#\s+Rank\s+\d+", text, re.MULTILINE))
    if ranks < 2:
        raise FredError(f"{path}: the log names {ranks} ranks; expected a line `# Rank ...` for each of at least two")
    program = re.search(r"(\w+_perf)", text)
    library, operation = _known("nccl", program[1] if program else path.stem.removeprefix("nccl-"), str(path))
    for line in text.splitlines():
        if (row := _LOGGED.match(line)) and int(row[1]) > 0 and float(row[2]) > 0:
            yield Measurement(library, operation, ranks, float(row[1]), float(row[2]) * 1e-6)
