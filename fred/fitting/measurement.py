"""A measured time of communication, and the names of libraries and operations by which tools call them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fred.cluster.collectives import LIBRARIES

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
    most = _FACTORS.get(operation)
    low, high = 0.0, most or 0.0
    for algorithm, bus in bandwidths:
        (slow, fast), (low_bus, high_bus) = _rounding_interval(algorithm), _rounding_interval(bus)
        if 0 < slow < fast < math.inf:
            low, high = max(low, low_bus / fast), min(high, high_bus / slow)
    if most is None or not low <= high < most:
        return 0
    fewest = max(2, math.ceil(most / (most - low) - 1e-9))
    largest = math.floor(min(most / (most - high), _MOST_MEMBERS) + 1e-9)
    return fewest if fewest == largest else 0


def _rounding_interval(text: str) -> tuple[float, float]:
    """Return the least and the largest number that is printed so; of many digits, within their floating-point error."""
    try:
        value = float(text)
    except ValueError:
        return 0.0, math.inf
    half = 0.5 * 10.0 ** -len(text.partition(".")[2]) + 1e-9 * value
    return value - half, value + half
