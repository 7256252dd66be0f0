"""Execution of units in this process, or in several worker processes on this machine."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, as_completed
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from fred.base.errors import FredError
from fred.base.progress import OfRuns
from fred.running import pool, stored, timings, work
from fred.running.order import Order
from fred.running.timings import Timings
from fred.running.unit import Unit

_LOOK = 0.2  # seconds between two checks of the other processes' progress


def one_by_one(units: Sequence[Unit], stage: Path, progress: OfRuns, cores: int = 1) -> None:
    """Compute units one after the other in this process.

    Args:
        units: units to compute, grouped by timing.
        stage: the unfinished result folder.
        progress: called with run, seed and the fraction done.
        cores: largest number of processes for each unit.
    """
    shared = Timings(stage / timings.FOLDER)
    for unit in timings.in_order(units):
        progress(unit.name, unit.seed, 0.0)
        work.do(unit, stage, partial(progress, unit.name, unit.seed), timings=shared, cores=cores)
        progress(unit.name, unit.seed, 1.0)


def in_processes(units: Sequence[Unit], stage: Path, progress: OfRuns, jobs: int) -> None:
    """Compute units in `jobs` processes, including this one, which computes while the others start. Stop at the first failure.

    Processes without a unit help this one with its unit.

    Args:
        units: units to compute, grouped by timing; each process begins at a different one, and skips those that another
            process is computing.
        stage: the unfinished result folder.
        progress: called with run, seed and the fraction done, as the processes report it.
        jobs: number of processes; the others end when this one does.
    """
    import cloudpickle

    if any(unit.own for unit in units):
        pool.end()  # they may hold older versions of the user's modules
    order, ordered = Order.of(units), timings.in_order(units)
    number = min(jobs, len(units))
    packed = [cloudpickle.dumps(_of_process(ordered, k, number)) for k in range(1, number)]
    with _Watched(units, stage, progress):
        try:
            _among_others(ordered, stage, pool.submit(_share, [(order, each, stage) for each in packed]), jobs)
        except BaseException:
            pool.end()
            raise
    one_by_one([unit for unit in units if not stored.holds(unit, stage / unit.folder)], stage, progress, jobs)


def _among_others(units: Sequence[Unit], stage: Path, told: Sequence[Future[str]], jobs: int) -> None:
    """Compute units that no other process is computing, until all have ended. Raises the first FredError that one reports."""
    shared = Timings(stage / timings.FOLDER)
    for unit in units:
        for each in told:
            if each.done():
                _check(each.result())
        with suppress(work.TakenError):
            work.do(unit, stage, patience=0, timings=shared, cores=jobs - sum(not each.done() for each in told))
    for each in as_completed(told):
        _check(each.result())


def _check(error: str) -> None:
    if error:
        raise FredError(error)


def _of_process(units: Sequence[Any], number: int, jobs: int) -> list[Any]:
    """Return all units in the order of this process: pairs of processes go in opposite directions, to compile other programs.

    >>> [_of_process("abcdef", number, 3) for number in range(3)]
    [['a', 'b', 'c', 'd', 'e', 'f'], ['d', 'c', 'b', 'a', 'f', 'e'], ['e', 'f', 'a', 'b', 'c', 'd']]
    """
    first = round((number + number % 2) / jobs * len(units)) % max(1, len(units))
    forwards = [*units[first:], *units[:first]]
    return forwards[::-1] if number % 2 else forwards


def _share(order: Order, packed: bytes, stage: Path) -> str:
    """Compute, in a worker process, all units that no other process is computing; return an error message, or nothing."""
    shared = Timings(stage / timings.FOLDER)
    try:
        with order.heeded():
            for unit in order.unpacked(packed):
                with suppress(work.TakenError):
                    work.do(unit, stage, patience=0, timings=shared)
    except FredError as error:
        return str(error)
    return ""


class _Watched:
    """A context that reports the progress of units in other processes."""

    def __init__(self, units: Sequence[Unit], stage: Path, progress: OfRuns):
        self._units, self._stage, self._progress = units, stage, progress
        self._told = set[Unit]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        missing = list(self._units)
        while missing and not self._over.wait(_LOOK):
            missing = self._look(missing)
        self._look(missing)

    def _look(self, missing: Sequence[Unit]) -> list[Unit]:
        left = []
        for unit in missing:
            share = 1.0 if (self._stage / unit.folder).exists() else work.progress(self._stage, unit)
            if share is not None:
                if share == 1.0 and unit not in self._told:  # a unit whose first report is 1.0 counts as done before
                    self._progress(unit.name, unit.seed, 0.0)
                self._progress(unit.name, unit.seed, share)
                self._told.add(unit)
            if share != 1.0:
                left.append(unit)
        return left
