"""One replay by two processes / by one: transformers on minibatches of 8 x 64 tokens, 8 workers; the helper's start included.

Medians of three runs of each, in turn; one process takes a minute. CPU times compare that of one process with that of the
busier of two: load on the machine, and time that a virtual machine's host takes from it, hardly change them.
"""

import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import Row
from benchmarks.replay import LARGE, Case, Work, perceptron, transformer, workers
from fred.base import environment
from fred.learning.server import Server
from fred.protocols.gossip import Gossip
from fred.protocols.local_steps import LocalSteps, OuterSteps
from fred.protocols.protocol import Protocol
from fred.protocols.synchronous import Synchronous
from fred.replay.division import plan_of
from fred.replay.tasks import tasks_of
from fred.systems.asgd import SASGD
from fred.systems.diloco import DiLoCo

_RATE, _SECONDS, _ROUNDS = 0.01, 66, 3
SYSTEMS: dict[str, tuple[Server, Protocol | None, float]] = {  # and the least ratio
    "asynchronous": (SASGD(learning_rate=_RATE), None, 1.7),
    "synchronous": (SASGD(learning_rate=_RATE), Synchronous(), 1.7),
    "local SGD, H = 20": (SASGD(learning_rate=_RATE), LocalSteps(period=20), 1.8),
    "DiLoCo, H = 20": (DiLoCo(learning_rate=_RATE), OuterSteps(period=20), 1.8),
    "gossip on a ring": (SASGD(learning_rate=_RATE), Gossip(), 1.7),
}
NUMBERS = (2, 4, 8, 16, 64)


def long_rows() -> Iterator[Row]:
    """Yield five systems with a large transformer, one with a small one, and one with gradients too fast for it."""
    environment.check()  # as in a user's run: compiled programs are cached
    for name, (server, protocol, limit) in SYSTEMS.items():
        yield from _compared(f"4 x 128, {name}", transformer(4, 128), server, protocol, limit)
    yield from _compared("2 x 64, asynchronous", transformer(2, 64), SASGD(learning_rate=_RATE), None, 1.5)
    yield from _compared("784-200-10, asynchronous", perceptron(LARGE), SASGD(learning_rate=_RATE), None, 0.95)


def _compared(name: str, work: Work, server: Server, protocol: Protocol | None, limit: float) -> Iterator[Row]:
    case = Case(work, 8, workers(8), server, _count_gradients(work, server, protocol), protocol)
    ways = case.replay, partial(case.replay, cores=2)
    singles, doubles = zip(*([_times(way) for way in ways] for _ in range(_ROUNDS)), strict=True)
    ratios = [single.wall / double.wall for single, double in zip(singles, doubles, strict=True)]
    yield Row(f"one process / two: {name}", statistics.median(ratios), "x", limit, at_least=True)
    yield Row("  the lowest ratio", min(ratios), "x")
    busier = [single.process / max(double.process, double.helpers) for single, double in zip(singles, doubles, strict=True)]
    yield Row("  the same in CPU time of the busier process", statistics.median(busier), "x")
    yield Row("  one process", statistics.median(single.wall for single in singles), "s")
    yield Row(
        "  time of two cores that the machine's host took",
        statistics.median(double.stolen / double.wall for double in doubles),
        "s/s",
    )
    tasks = tasks_of(
        case.program, case.arithmetic.blocks.count, case.arithmetic.hooks, end=min(4000, len(case.program.offsets) - 1)
    )
    for number in NUMBERS:
        yield Row(f"  predicted with {number} processes", plan_of(tasks, number).speed_up, "x")


def _count_gradients(work: Work, server: Server, protocol: Protocol | None) -> int:
    """Return the number of gradients that take one process the seconds that a run should last."""
    case = Case(work, 8, workers(8), server, 200, protocol)
    for _ in range(2):  # the first one compiles
        seconds = _times(case.replay).wall
    return math.ceil(_SECONDS / seconds * 200)


class _Times(NamedTuple):
    """Seconds of wall clock, of this process's CPU, of its helpers' CPU, and of CPUs that the machine's host took."""

    wall: float
    process: float
    helpers: float
    stolen: float


def _times(replay: Callable[[], object]) -> _Times:
    start, own_start, children_start, stolen_start = time.perf_counter(), time.process_time(), _of_children(), _stolen()
    replay()
    wall, own_seconds = time.perf_counter() - start, time.process_time() - own_start
    return _Times(wall, own_seconds, _of_children() - children_start, _stolen() - stolen_start)


def _of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _stolen() -> float:
    """Return the seconds of all CPUs that the host of a virtual machine has taken; 0 where the system does not tell."""
    statistics_file = Path("/proc/stat")
    if not statistics_file.exists():
        return 0.0
    return int(statistics_file.read_text().split()[8]) / os.sysconf("SC_CLK_TCK")
