"""One replay by two processes / by one: transformers on minibatches of 8 x 64 tokens, 8 workers; the helper's start included.

The second figure compares CPU times: that of one process with that of the busier of two. Load on the machine hardly
changes it.
"""

import resource
import time
from collections.abc import Callable, Iterator

import jax

from benchmarks.common import Row
from benchmarks.replay import LARGE, Case, Work, perceptron, transformer, workers
from fred.learning.server import Server
from fred.protocols.gossip import Gossip
from fred.protocols.local_steps import LocalSteps
from fred.protocols.outer_steps import OuterSteps
from fred.protocols.protocol import Protocol
from fred.protocols.synchronous import Synchronous
from fred.replay import helpers, machine
from fred.replay.division import plan_of
from fred.replay.tasks import tasks_of
from fred.systems.diloco import DiLoCo
from fred.systems.sasgd import SASGD

_RATE = 0.01
SYSTEMS: dict[str, tuple[Server, Protocol | None, float]] = {  # and the least ratio
    "asynchronous": (SASGD(learning_rate=_RATE), None, 1.7),
    "synchronous": (SASGD(learning_rate=_RATE), Synchronous(), 1.7),
    "local SGD, H = 20": (SASGD(learning_rate=_RATE), LocalSteps(period=20), 1.8),
    "DiLoCo, H = 20": (DiLoCo(learning_rate=_RATE), OuterSteps(period=20), 1.8),
    "gossip on a ring": (SASGD(learning_rate=_RATE), Gossip(), 1.7),
}
NUMBERS = (2, 4, 8, 16, 64)


def rows() -> Iterator[Row]:
    """Five systems with a large transformer, one with a small one, and one with gradients too fast for it."""
    for name, (server, protocol, limit) in SYSTEMS.items():
        yield from _compared(f"4 x 128, {name}", transformer(4, 128), server, protocol, 2400, limit)
    yield from _compared("2 x 64, asynchronous", transformer(2, 64), SASGD(learning_rate=_RATE), None, 12_000, 1.5)
    yield from _compared("784-200-10, asynchronous", perceptron(LARGE), SASGD(learning_rate=_RATE), None, 200_000, 0.95)


def _compared(name: str, work: Work, server: Server, protocol: Protocol | None, gradients: int, limit: float) -> Iterator[Row]:
    case = Case(work, 8, workers(8), server, gradients, protocol)
    run = case.program, case.arithmetic, [case.params], case.examples, case.batches
    alone, own, _ = _times(lambda: helpers.replay(*run))
    together, *busy = _times(lambda: helpers.replay(*run, cores=2))
    yield Row(f"one process / two: {name}", alone / together, "x", limit, at_least=True)
    yield Row("  the same in CPU time of the busier process", own / max(busy), "x")
    yield Row("  one process", alone, "s")
    tasks = tasks_of(
        case.program, case.arithmetic.blocks.count, case.arithmetic.hooks, end=min(4000, len(case.program.offsets) - 1)
    )
    for number in NUMBERS:
        yield Row(f"  predicted with {number} processes", plan_of(tasks, number).speed_up, "x")


def _times(replay: Callable[[], Iterator[machine.Progress]]) -> tuple[float, float, float]:
    """Return seconds of wall clock, of this process's CPU, and of its helpers' CPU."""
    began, own, others = time.perf_counter(), time.process_time(), _of_children()
    for mark in replay():
        jax.block_until_ready(mark.carry)
    return time.perf_counter() - began, time.process_time() - own, _of_children() - others


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
