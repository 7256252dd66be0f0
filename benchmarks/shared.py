"""Memory of one replay by two processes, beside that of one: a small transformer and a large one; on Linux.

Pages that both processes hold count once. The largest sum over a run is compared with 1.3 times one process and 600 MB.
"""

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

from benchmarks.common import Row
from benchmarks.cores import SYSTEMS
from benchmarks.replay import Case, transformer, workers
from fred.base import environment
from fred.replay import helpers
from tests.processes import children

_CASES = (
    ("asynchronous", 4, 128, 96),
    ("asynchronous", 6, 384, 48),
    ("gossip on a ring", 6, 384, 48),
)  # layers, width, gradients
_MARKS = 8  # gradients from each mark to the next
_PAUSE = 0.1  # seconds between two looks


def long_rows() -> Iterator[Row]:
    """Yield the memory of each system with one process and with two, each in a process of its own."""
    for system, layers, width, gradients in _CASES if sys.platform == "linux" else ():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
            single, double = pool.map(
                _peak, *zip(*((system, layers, width, gradients, cores) for cores in (1, 2)), strict=True)
            )
        name = f"{layers} x {width}, {system}"
        yield Row(f"memory of two processes / (1.3 x one + 600 MB): {name}", double / (1.3 * single + 600), "x", 1.0)
        yield Row("  one process", single, "MB")
        yield Row("  two processes", double, "MB")


def _peak(system: str, layers: int, width: int, gradients: int, cores: int) -> float:
    """Return the largest memory of a replay and its helpers, MB."""
    environment.check()
    helpers.FORCE_HELPERS = True
    server, protocol, _ = SYSTEMS[system]
    case = Case(transformer(layers, width), 8, workers(8), server, gradients, protocol, tuple(range(_MARKS, gradients, _MARKS)))
    peaks, stop = [0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(_PAUSE):
            peaks.append(sum(map(_memory, {os.getpid()} | children(os.getpid()))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        case.replay(cores)
    finally:
        stop.set()
        watcher.join()
    return max(peaks)


def _memory(process: int) -> float:
    """Return the memory of a process, MB; of pages that several hold, its share."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1000
    return 0.0
