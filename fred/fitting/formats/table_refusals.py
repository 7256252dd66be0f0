"""Refusals of tables without sizes or durations of messages, with commands that make them readable."""

import re
from collections.abc import Collection, Sequence

from fred.base.errors import FredError, briefly
from fred.fitting.benchmark_log import BenchmarkLog
from fred.fitting.formats.column_names import ELEMENTS, RATES, recognise
from fred.tables import quantities
from fred.tables.content import read_content
from fred.tables.table_commands import rewrite_command

_SPAN = 4  # times the smallest size is the largest of a benchmark, at least
_QUANTITIES = {"size": "size, `bytes` or `megabytes`", "time": "duration, `seconds`, `milliseconds` or `microseconds`"}
_TYPE = re.compile("half|double|64|32|16|8")  # such as bfloat16
_WIDTHS = {"half": 2, "double": 8, "64": 8, "32": 4, "16": 2, "8": 1}  # bytes
_ALTERNATIVES = (
    "write a table with the header `library,operation,nodes,bytes,microseconds`, a row for each time; a latency or a bandwidth "
    "alone goes into the scenario: `network: {latency: {name: constant, seconds: 0.0001}, bandwidth: 1250000000}` in s (half a "
    "round trip) and bytes/s, or as tables or files into `network: {regions: {latency: ..., bandwidth: ...}}`"
)


def is_header(names: Sequence[str]) -> bool:
    """Return True for names of columns, and not words of a log: several, short, of letters first.

    Args:
        names: cells of a line.
    """
    return len(names) > 1 and all(re.fullmatch(r"[^\d\W][\w ()\[\]/:.#%µ-]{0,30}", name) for name in names if name)


def explain_refusal(log: BenchmarkLog, rows: Sequence[Sequence[str]]) -> FredError:
    """Return the error for a text without a table, or a table without sizes or durations, for which it has a command.

    Args:
        log: the file.
        rows: names of the columns, and the rows.
    """
    names = [name.strip() for name in rows[0]] if rows else []
    if not is_header(names):
        return FredError(
            f"{log.path}: no table, nor a log that FRED knows: nccl-tests, rccl-tests, OSU, IMB-MPI1, ds_bench, nccom-test, "
            f"iperf3, perftest; {_ALTERNATIVES}"
        )
    kinds = {column.kind for name in [*names, *log.columns] if (column := recognise(name))}
    if {"iteration", "step", "worker", "rank"} & {name.lower() for name in names} and "time" in kinds:
        return FredError(f"{log.path}: step times of workers, not times of messages: `fred fit {log.path}` reads them")
    missing = " and no ".join(columns_of_kind for kind, columns_of_kind in _QUANTITIES.items() if kind not in kinds)
    if not missing:
        return FredError(f"{log.path}: no measurement below the names of the columns; expected a row for each")
    problem = f"{log.path}: no column with a {missing}; the columns are: {briefly(names, 12)}"
    elements = next((name for name in names if ELEMENTS.search(name.lower())), "")
    if "size" not in kinds and elements:
        cells = [cell for row in rows[1:2] for name, cell in zip(names, row, strict=False) if "type" in name.lower()]
        width = next((bits[0] for cell in cells if (bits := [_WIDTHS[word] for word in _TYPE.findall(cell)])), 4)
        size = rewrite_command(read_content(log.path), f".assign(bytes=lambda t: t[{elements!r}] * {width})")
        return FredError(f"{problem}; if `{elements}` are numbers of {width} bytes, write their sizes: {size}")
    guesses = _guesses(names, rows[1:], kinds)
    if len(guesses) < len({"size", "time"} - kinds):
        return FredError(f"{problem}; {_ALTERNATIVES}")
    columns = [f"{option}={header}" for option, header in [*log.columns.items(), *guesses]]
    command = log.command(columns=",".join(columns), values=log.examples(kinds))
    return FredError(f"{problem}; name yours, and what the file does not say, as in: {command}")


def _guesses(names: Sequence[str], rows: Sequence[Sequence[str]], kinds: Collection[str]) -> list[tuple[str, str]]:
    """Return columns that may be sizes, which are whole and differ a lot, or times, which differ."""
    values: dict[str, list[float]] = {}
    for place, name in enumerate(names):
        cells = [row[place] for row in rows if place < len(row)]
        if name and not recognise(name) and not RATES.search(name.lower()) and cells and all(map(quantities.is_number, cells)):
            values[name] = [float(cell) for cell in cells]
    sizes = [
        name for name, column in values.items() if all(map(float.is_integer, column)) and 0 < _SPAN * min(column) <= max(column)
    ]
    guesses = [("bytes", sizes[0])] if sizes and "size" not in kinds else []
    times = [name for name, column in values.items() if 0 < min(column) < max(column) and ("bytes", name) not in guesses]
    return guesses + ([("milliseconds", times[-1])] if times and "time" not in kinds else [])
