"""A measured time of communication, and the benchmark's output that it is read from, without the prefixes of launchers."""

import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fred.base.errors import FredError, listed, quoted
from fred.cluster.collectives import LIBRARIES
from fred.components.registry import nearest

TEXTBOOK = "textbook"  # library of MPI's implementations and others whose costs FRED has not measured
LIBRARY_NAMES = {name: name for name in LIBRARIES if name != "in use"} | {"rccl": "nccl"}
LIBRARY_NAMES |= dict.fromkeys(("mpi", "openmpi", "mpich", "osu", "imb", "ccl", "oneccl", "hccl", "nccom", "neuron"), TEXTBOOK)
_OPERATIONS = {name.replace("-", ""): name for name in LIBRARIES["nccl"]} | {"bcast": "broadcast", "alltoall": "all-to-all"}
_OPERATIONS |= {"allr": "allreduce", "allg": "allgather", "redsct": "reduce-scatter"}  # as nccom-test abbreviates them
_OPERATIONS |= dict.fromkeys(("p2p", "pt2pt", "sendrecv", "send", "pingpong", "permute"), "point-to-point")
SYNCHRONIZATIONS = {  # synchronizations through servers -> the library that has their costs, whatever sends the messages
    "sharded-servers": "in use",
    "one-server": TEXTBOOK,
    "worker-as-server": TEXTBOOK,
}
_OPERATIONS |= {name.replace("-", ""): name for name in SYNCHRONIZATIONS}
_OTHER_OPERATIONS = re.compile(r"(all)?(gather|scatter|toall)v(?!\d)|hypercube|neighbo|nonblocking|pingping|barrier")
_FACTORS = {"allreduce": 2.0, **dict.fromkeys(("allgather", "reduce-scatter", "all-to-all", "gather", "scatter"), 1.0)}
NUMBER = re.compile(r"\d{1,15}(\.\d{0,15})?([eE][+-]?\d{1,2})?")  # as tools print times and bandwidths
_MOST_MEMBERS = 1e5


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
        machines: number of machines of the members; 0: unknown.

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
    machines: int = 0

    @property
    def source(self) -> str:
        """Return the library, the operation and the cluster."""
        return " ".join(word for word in (self.library, self.operation, self.where) if word)


@dataclass(frozen=True)
class Skipped:
    """A row that a reader leaves out.

    Args:
        reason: why, after "N rows".
        cure: what to run instead, if all rows of a file are such.
    """

    reason: str
    cure: str = ""


def skip_unknown(program: str, cure: str = "") -> Skipped:
    """Return the reason to leave out a row of an operation that FRED has no cost for.

    Args:
        program: its name.
        cure: what to run instead.
    """
    return Skipped(f"are of `{program}`, which FRED has no cost for", cure)


def recognise_operations(text: str) -> list[str]:
    """Return the operations that a text names, in FRED's words.

    Args:
        text: name of a program, an operation or a file.

    >>> [recognise_operations(name) for name in ("all_reduce_perf", "Reduce_scatter", "osu_bcast", "alltoallv_perf")]
    [['allreduce'], ['reduce-scatter'], ['broadcast'], []]
    """
    letters = re.sub("[^a-z0-9]", "", text.lower())
    if _OTHER_OPERATIONS.search(letters):
        return []
    names = [name for name in _OPERATIONS if name in letters]
    longest = [name for name in names if not any(name != other and name in other for other in names)]
    return list(dict.fromkeys(_OPERATIONS[name] for name in longest))


def bus_factor(operation: str, nodes: int) -> float:
    """Return the bus bandwidth of an operation, as nccl-tests define it, divided by its algorithm bandwidth.

    Args:
        operation: operation, in FRED's words.
        nodes: number of members.

    >>> bus_factor("allreduce", 4), bus_factor("allgather", 4), bus_factor("broadcast", 4)
    (1.5, 0.75, 1.0)
    """
    return _FACTORS[operation] * (nodes - 1) / nodes if operation in _FACTORS else 1.0


def infer_members(operation: str, bandwidths: Sequence[tuple[str, str]]) -> int:
    """Return the number of members that explains all bus bandwidths as they are rounded, or 0 if none or several do.

    Args:
        operation: operation, in FRED's words.
        bandwidths: algorithm bandwidth and bus bandwidth of each row, as printed.

    Example: an allreduce has 2 (n - 1) / n times its algorithm bandwidth on the bus [doc/PERFORMANCE.md of nccl-tests].
        >>> infer_members("allreduce", [("0.02", "0.03"), ("6.39", "11.18")])
        8
        >>> infer_members("allreduce", [("0.02", "0.03")]), infer_members("broadcast", [("5.00", "5.00")])
        (0, 0)
    """
    limit = _FACTORS.get(operation)  # of bus / algorithm bandwidth = limit (n - 1) / n, which n members approach
    low, high = 0.0, limit or 0.0
    for algorithm, bus in bandwidths:
        (low_algorithm, high_algorithm), (low_bus, high_bus) = _rounding_interval(algorithm), _rounding_interval(bus)
        if 0 < low_algorithm < high_algorithm < math.inf:
            low, high = max(low, low_bus / high_algorithm), min(high, high_bus / low_algorithm)
    if limit is None or not low <= high < limit:
        return 0
    fewest = max(2, math.ceil(limit / (limit - low) - 1e-9))  # the ratio solved for n
    most = math.floor(min(limit / (limit - high), _MOST_MEMBERS) + 1e-9)
    return fewest if fewest == most else 0


def _rounding_interval(text: str) -> tuple[float, float]:
    """Return the least and the largest number that is printed so; of many digits, within their floating-point error."""
    try:
        value = float(text)
    except ValueError:
        return 0.0, math.inf
    half_width = 0.5 * 10.0 ** -len(text.partition(".")[2]) + 1e-9 * value
    return value - half_width, value + half_width


MEMBERS = ("nodes", "workers", "members", "machines", "ranks")  # FRED's names of the number of members
OPERATIONS = (*LIBRARIES["nccl"], *SYNCHRONIZATIONS)
VALUES = (*MEMBERS, "library", "operation", "delay_ms", "round_trip_ms", "gbit_per_s")  # keys of --values
_NESTED = 4  # prefixes before each other
_LEAST_NUMBER, _MOST_NUMBER = 1e-9, 1e15  # of any number
_ALWAYS = re.compile(  # prefixes that nothing else looks like
    r"\x1b\[[0-9;]*m"  # a colour
    r"|\[[^\[\]\s]*\d+,\d+\]<std(?:out|err)>:?\s?"  # mpirun --tag-output
    r"|\[(?:rank|default)\d+\]:\s?"  # torchrun
    r"|\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}<std(?:out|err)>:\s?"  # mpirun --timestamp-output
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?\s"  # a time
)
_MOSTLY = (  # prefixes if most lines have them
    re.compile(r"\s*\d+:(?: |$)"),  # srun --label
    re.compile(r"[A-Za-z][\w.-]*:(?: |$)"),  # pdsh, dsh, clush
    re.compile(r"\[[\w.-]+\] "),  # mpirun -prepend-rank, of Hydra
    re.compile(r"> ?"),  # a quotation
    re.compile(r"[A-Za-z][\w./-]* +\| ?(?!.*\|)"),  # docker compose, kubetail; with further bars it is a table
)
_LAUNCHER = re.compile(  # up to the program, whose -n is another one
    r"\b(?:mpirun|mpiexec(?:\.hydra)?|orterun|prterun|srun|flux run)\b(?:(?!osu_|_perf|IMB|nccom).)*?"
    r"\s(?:-np?|--np|--ntasks)[ =]?(\d{1,9})\b"
)
_NAMED_MEMBERS = re.compile(
    r"(?:^|[^a-z])(?:np|n|nodes|ranks|procs|members)[-_=]?(\d{1,9})(?![0-9a-z])|(?<!\d)(\d{1,9})[-_]?"
    r"(?:members|nodes|ranks|workers|machines|procs|processes|gpus)(?![a-z])"
)


class Setting(NamedTuple):
    """The library, the operation and the number of members of measurements."""

    library: str
    operation: str
    nodes: int


@dataclass(frozen=True)
class BenchmarkLog:
    """The text of a file, and what the command line says of it.

    Args:
        path: the file.
        text: its text, without prefixes of launchers.
        values: values that the file does not have, by FRED's names of columns: `nodes`, `operation`, `library`, `delay_ms`.
        columns: column of the file, by FRED's names of columns.
    """

    path: Path
    text: str
    values: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number of each line, from 1, and the line."""
        yield from enumerate(self.text.splitlines(), start=1)

    def setting(self, library: str = "", operation: str = "", nodes: int = 0, line: int = 0) -> Setting:
        """Return library, operation and number of members: from the file, else from --values, else from the file's name.

        Args:
            library, operation: as the file has them, in any words; empty: not at all.
            nodes: number of members in the file; 0: not there.
            line: number of the line; 0: none in particular.

        Raises FredError for a value that is missing, with a command that adds all of them, and for one that is unknown or
        contradicts --values.
        """
        place, stem = f"{self.path}:{line}" if line else f"{self.path}", self.path.stem
        for key, value, normalise in (("library", library, LIBRARY_NAMES.get), ("operation", operation, recognise_operations)):
            if value and key in self.values and normalise(self.values[key].lower()) != normalise(value.lower()):
                raise FredError(f"--values {key}={self.values[key]}: {place} has `{value}`; leave it out")
        libraries_in_stem = [word for word in re.split("[^a-z]", stem.lower()) if word in LIBRARY_NAMES]
        name = library or self.values.get("library") or (libraries_in_stem or [""])[0]
        if name and name.lower() not in LIBRARY_NAMES:
            expected = " or ".join(LIBRARY_NAMES)
            raise FredError(f"{place}: unknown library `{name}`{nearest(name.lower(), LIBRARY_NAMES)}; expected {expected}")
        text = operation or self.values.get("operation") or stem
        operations = recognise_operations(text)
        if len(operations) > 1:
            raise FredError(f"{place}: `{text}` names several operations: {listed(operations)}")
        if not operations and text != stem:
            raise FredError(f"{place}: unknown operation `{text}`; expected one of {listed(OPERATIONS)}")
        if nodes == 1:
            raise FredError(f"{place}: one member, which sends no message; measure at least two")
        members = self._find_members(nodes, place) or (2 if operations == ["point-to-point"] else 0)
        servers_library = SYNCHRONIZATIONS.get("".join(operations), "")  # there is one operation or none
        self._require(place, servers_library or name, operations, members)
        return Setting(servers_library or LIBRARY_NAMES[name.lower()], operations[0], members)

    def _find_members(self, nodes: int, place: str) -> int:
        """Return the number of members: of the file, of --values, or of the file's name; 0: unknown."""
        key = next((key for key in MEMBERS if key in self.values), "")
        value = self.number(self.values[key], key, "--values") if key else 0.0
        if value and (value != int(value) or value < 2):
            raise FredError(f"--values {key}={self.values[key]}: expected a whole number from 2 on")
        if nodes and value and nodes != value:
            raise FredError(f"--values {key}={self.values[key]}: {place} has {nodes} members; leave it out")
        match = _NAMED_MEMBERS.search(self.path.stem.lower())
        members_in_name = int(match[1] or match[2]) if match else 0
        return nodes or int(value) or (members_in_name if members_in_name > 1 else 0)

    def _require(self, place: str, library: str, operations: Sequence[str], members: int) -> None:
        """Raise FredError for everything that is missing, with one command that adds it all."""
        numbers_in_name = re.findall(r"(?<![0-9a-zA-Z])\d{1,5}(?![0-9a-zA-Z])", self.path.stem)
        requirements = [
            ("the library", "library=nccl", library),
            ("the operation", "operation=allreduce", operations),
            ("the number of members", f"nodes={(numbers_in_name or ['N'])[-1]}", members),
        ]
        if missing := [(name, cure) for name, cure, value in requirements if not value]:
            cures = ",".join([f"{key}={value}" for key, value in self.values.items()] + [cure for _, cure in missing])
            names = listed([name for name, _ in missing])
            example = " (N: that number; in a file's name: np8)" if "nodes=N" in cures else ""
            raise FredError(f"{place}: the file does not say {names}; with your values: {self.command(values=cures)}{example}")

    def examples(self, kinds: Collection[str]) -> str:
        """Return a value of --values, with an example of each value that is missing in the file, its name and the command line.

        Args:
            kinds: values that the file has, of `library`, `operation`, `nodes`.
        """
        stem = self.path.stem.lower()
        is_in_name = {
            "library": bool({*re.split("[^a-z]", stem)} & {*LIBRARY_NAMES}),
            "operation": bool(recognise_operations(stem)),
        }
        is_in_name["nodes"] = bool(self._find_members(0, str(self.path)))
        defaults = {"library": "nccl", "operation": "allreduce", "nodes": "8"}
        defaults = {name: value for name, value in defaults.items() if name not in kinds and not is_in_name.get(name)}
        return ",".join(f"{name}={value}" for name, value in {**defaults, **self.values}.items())

    def command(self, **options: str) -> str:
        """Return the command line that reads this file with other options; those without a value are left out."""
        words = [word for name, value in options.items() if value for word in (f"--{name}", value)]
        return shlex.join(["fred", "fit-network", str(self.path), *words])

    def number(self, text: str, name: str, place: str, least: float = _LEAST_NUMBER) -> float:
        """Return a number. Raises FredError for another text, and for one that is too small or too large.

        Args:
            text: the number.
            name: name of the column, and
            place: the line, for the message.
            least: the smallest number allowed.
        """
        try:
            value = float(text.replace(",", "") if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", text) else text)
        except ValueError:
            value = math.nan
        if not least <= value < _MOST_NUMBER:
            brief = quoted(text if len(text) < 40 else f"{text[:36]}...")
            raise FredError(f"{place}: `{name}` is {brief}; expected a number between {least:g} and {_MOST_NUMBER:g}")
        return value

    def count_launched(self, line: int) -> int:
        """Return the number of processes in the last command (mpirun, srun) before a line, or 0.

        Args:
            line: number of the line, from 1.
        """
        commands = [match for text in self.text.splitlines()[:line] if (match := _LAUNCHER.search(text))]
        return int(commands[-1][1]) if commands else 0

    def records(self, key: str) -> list[dict[str, Any]]:
        """Return the objects in the list of a key of a JSON text, up to a cut.

        Args:
            key: the key; empty: the text itself is the list.

        >>> BenchmarkLog(Path("a.json"), '{"results": [{"size": 8}, {"size": 16}, {"si').records("results")
        [{'size': 8}, {'size': 16}]
        """
        start = re.search(rf'"{re.escape(key)}"\s*:\s*\[', self.text) if key else re.match(r"\s*\[", self.text)
        rows: list[dict[str, Any]] = []
        position = start.end() if start else len(self.text)
        while opening := re.compile(r"[\s,]*(?=\{)").match(self.text, position):
            try:
                row, position = json.JSONDecoder().raw_decode(self.text, opening.end())
            except (ValueError, RecursionError):
                break
            rows.append(row)
        return rows


def strip_prefixes(text: str) -> str:
    """Return a text without the prefixes that launchers, host lists and log collectors put before each line.

    Args:
        text: text of a file.

    >>> strip_prefixes("[1,0]<stdout>:# nThread 1"), strip_prefixes("node-00: 8 2 float" + chr(10) + "node-00:")
    ('# nThread 1', '8 2 float\\n')
    """
    lines = text.splitlines()
    for _ in range(_NESTED):
        lines = [_ALWAYS.sub("", line, count=1) if _ALWAYS.match(line) else line for line in lines]
        for pattern in _MOSTLY:
            filled = [line for line in lines if line.strip()]
            if 2 * sum(1 for line in filled if pattern.match(line)) > len(filled):
                lines = [pattern.sub("", line, count=1) if pattern.match(line) else line for line in lines]
    return "\n".join(lines)


class BenchmarkFormat(NamedTuple):
    """A format: the tool's name, a test of a text and a file's name, and the reader."""

    tool: str
    sniff: Callable[[str, str], bool]
    read: Callable[[BenchmarkLog], Iterator[Measurement | Skipped]]
