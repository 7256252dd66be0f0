"""Columns of tables with measured times, by their names and units; refusals of tables without sizes or durations."""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from fred.base.errors import FredError, briefly
from fred.fitting.measurement import BenchmarkLog
from fred.tables import quantities
from fred.tables.content import read_content
from fred.tables.table_commands import rewrite_command

SIZES = {"b": 1.0, "byte": 1.0, "bytes": 1.0} | {  # bytes; K, M and G are powers of 2^10, as the tools print them
    unit: 1024.0**power
    for power, letter, name in ((1, "k", "kilo"), (2, "m", "mega"), (3, "g", "giga"), (4, "t", "tera"))
    for unit in (letter, f"{letter}b", f"{letter}ib", f"{name}bytes")
}
TIMES = dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0)  # s
TIMES |= dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), 1e-3)
TIMES |= dict.fromkeys(("us", "usec", "usecs", "µs", "micros", "microsecond", "microseconds"), 1e-6)
TIMES |= dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9)
_TIME_WORDS = {"time", "duration", "latency", "lat", "elapsed", "runtime"}
_SIZE_WORDS = {"size", "msg", "message", "payload", "buffer", "nbytes", "data", "tensor", "length", "transfer"}
_RANKS = dict.fromkeys(("avg", "mean", "average", "out", "of", "place", "oop"), 0) | dict.fromkeys(
    ("median", "p50", "typical"), 1
)
_NOT_TIMES = {"min", "max", "p90", "p95", "p99", "p999", "std", "stdev", "stddev", "var", "cpu", "in", "start", "end", "cv"}
BANDWIDTHS = {"GB/s": 1e9, "GBps": 1e9, "MB/s": 1e6, "MBps": 1e6, "GiB/s": 2.0**30}  # bytes/s; case tells bytes from bits
BANDWIDTHS |= dict.fromkeys(("Gb/s", "Gbps", "Gbit/s"), 1e9 / 8) | dict.fromkeys(("Mb/s", "Mbps", "Mbit/s"), 1e6 / 8)
ELEMENTS = re.compile(r"num[ _-]?el|elem|count")  # numbers of elements, which are no sizes
RATES = re.compile(r"bw|bandwidth|throughput|tput|bps|/s$|per_s|rate|flops")
_OPERATIONS = {
    "operation",
    "op",
    "collective",
    "coll",
    "primitive",
    "comm op",
    "function",
    "collective op",
    "comm type",
    "kind",
}
_LIBRARIES = {"library", "backend", "lib", "comm backend"}
_MEMBERS = {
    "nodes",
    "workers",
    "members",
    "machines",
    "ranks",
    "world size",
    "worldsize",
    "world",
    "group size",
    "np",
    "devices",
}
_MEMBERS |= {"gpus", "processes", "procs", "nprocs", "nranks", "ngpus", "nnodes"}
_EXACT = {  # kind, factor
    "delay_ms": ("delay", 1e-3),
    "round_trip_ms": ("round_trip", 1e-3),
    "gbit_per_s": ("bandwidth", 1e9 / 8),
    "mbit_per_s": ("rate", 1e6 / 8),
    **{name: (name, 1.0) for name in ("how", "source")},
    **dict.fromkeys(("sender", "receiver"), ("text", 1.0)),  # for people
}
COLUMNS = (  # FRED's names, of which the first of each kind is the usual one
    *("library", "operation", "nodes", "bytes", "megabytes", "seconds", "milliseconds", "microseconds"),
    *(*_EXACT, "workers", "members", "machines", "ranks"),
)


class Column(NamedTuple):
    """The content of a column.

    Args:
        kind: `size`, `time`, `nodes`, `operation`, `library`, or as the name says; `algbw` is size / time, `busbw` what
            nccl-tests compute from it.
        factor: factor to bytes, s or bytes/s; 0: the name has no unit.
        rank: 0 for the best column of a kind.
        name: its name in the file.
    """

    kind: str
    factor: float = 1.0
    rank: int = 0
    name: str = ""


def recognise(name: str) -> Column | None:
    """Return the content of a column, by its name, or None.

    Args:
        name: its name in a file.

    >>> recognise("time (seconds)"), recognise("Size (Bytes)"), recognise("num_ranks").kind, recognise("busbw(GB/s)").kind
    (Column(kind='time', factor=1.0, rank=0, name=''), Column(kind='size', factor=1.0, rank=0, name=''), 'nodes', 'busbw')
    >>> recognise("Latency(us):p50")
    Column(kind='time', factor=1e-06, rank=1, name='')
    """
    if name.strip().lower() in _EXACT:
        return Column(*_EXACT[name.strip().lower()])
    if name.strip().startswith(("(", "[")):  # a unit alone
        return None
    if (unit := re.search(r"[\[(](\w+)[\])]", name)) and unit[1].lower() in SIZES | TIMES:
        name = f"{name[: unit.start()]} {name[unit.end() :]} {unit[1]}"
    words = re.findall(r"[a-zµ]+\d*", re.sub(r"(?<=[a-z])(?=[A-Z][a-zA-Z])", " ", name).lower())
    text = " ".join(words)
    counted = re.sub(r"^(num|number of|total|n) ", "", text)  # such as `ranks` of `num_ranks`
    if text == "ppn" or re.search(r"(gpus?|ranks?|procs?|processes|tasks|ntasks|devices) per (node|machine|host)", text):
        return Column("per_node")
    for kind, names in (("nodes", _MEMBERS), ("operation", _OPERATIONS), ("library", _LIBRARIES)):
        if counted in names:
            return Column(kind, rank=int(counted == "op"))  # in some tables it is the reduction
    if match := re.match(r"(alg|bus)(orithm)? ?(bw|bandwidth)", text):
        return Column(f"{match[1]}bw", next((factor for unit, factor in BANDWIDTHS.items() if unit in name), 0.0))
    if not words or RATES.search(name.lower()):
        return None
    if words[-1] in TIMES or _TIME_WORDS & set(words):
        return _recognise_time(words)
    if words[-1] in SIZES or _SIZE_WORDS & set(words):
        factor = SIZES.get(words[-1], 1.0 if "nbytes" in words else 0.0)
        further_words = set(words if words[-1] not in SIZES else words[:-1]) - _SIZE_WORDS
        return Column("size", factor) if further_words <= {"in", "of", "per", "rank", "the"} else None
    return None


def _recognise_time(words: list[str]) -> Column | None:
    """Return the content of a column of durations; None for extremes and spreads."""
    has_unit = words[-1] in TIMES
    further_words = set(words[:-1] if has_unit else words) - _TIME_WORDS
    known_words = {*_RANKS, "in", "per", "op", "call", "comm", "the", "total"}
    is_in_place = {"in", "place"} <= further_words  # a time out of place is in the table, too
    if is_in_place or further_words & (_NOT_TIMES - {"in"}) or further_words - known_words:
        return None
    rank = max((_RANKS.get(word, 0) for word in further_words), default=0)
    return Column("time", TIMES[words[-1]] if has_unit else 0.0, rank)


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
    missing = " and no ".join(description for kind, description in _QUANTITIES.items() if kind not in kinds)
    if not missing:
        return FredError(f"{log.path}: no measurement below the names of the columns; expected a row for each")
    problem = f"{log.path}: no column with a {missing}; the columns are: {briefly(names, 12)}"
    elements = next((name for name in names if ELEMENTS.search(name.lower())), "")
    if "size" not in kinds and elements:
        cells = [cell for row in rows[1:2] for name, cell in zip(names, row, strict=False) if "type" in name.lower()]
        # Bytes of an element, by the type in the first row; 4 if there is none, as most are single-precision.
        width = next((widths[0] for cell in cells if (widths := [_WIDTHS[word] for word in _TYPE.findall(cell)])), 4)
        size = rewrite_command(read_content(log.path), f".assign(bytes=lambda t: t[{elements!r}] * {width})")
        return FredError(f"{problem}; if `{elements}` are numbers of {width} bytes, write their sizes: {size}")
    guesses = _guesses(names, rows[1:], kinds)
    if len(guesses) < len({"size", "time"} - kinds):
        return FredError(f"{problem}; {_ALTERNATIVES}")
    columns = [f"{option}={header}" for option, header in [*log.columns.items(), *guesses]]
    command = log.command(columns=",".join(columns), values=log.examples(kinds))
    return FredError(f"{problem}; name yours, and what the file does not say, as in: {command}")


def _guesses(names: Sequence[str], rows: Sequence[Sequence[str]], kinds: Collection[str]) -> list[tuple[str, str]]:
    """Return the missing options, `bytes` or `milliseconds`, and a column for each.

    Sizes are whole and differ a lot, times differ. `kinds` are those that the table has.
    """
    values: dict[str, list[float]] = {}  # by name, of columns of plain numbers that FRED does not recognise
    for i, name in enumerate(names):
        cells = [row[i] for row in rows if i < len(row)]
        if name and not recognise(name) and not RATES.search(name.lower()) and cells and all(map(quantities.is_number, cells)):
            values[name] = [float(cell) for cell in cells]
    sizes = [
        name for name, column in values.items() if all(map(float.is_integer, column)) and 0 < _SPAN * min(column) <= max(column)
    ]
    guesses = [("bytes", sizes[0])] if sizes and "size" not in kinds else []
    times = [name for name, column in values.items() if 0 < min(column) < max(column) and ("bytes", name) not in guesses]
    return guesses + ([("milliseconds", times[-1])] if times and "time" not in kinds else [])
