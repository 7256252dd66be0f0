"""Units in one process after another, or in several at once on this machine."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from fred.errors import FredError
from fred.outcomes import stored
from fred.outcomes.unit import Unit, code_of_fred
from fred.process.progress import OfRuns
from fred.running import timings, work
from fred.running.order import Order
from fred.running.timings import Timings

_LOOK = 0.2  # seconds between two looks at what the others have done
_IDLE = 300  # seconds after which a process that nobody needs ends


def one_by_one(units: Sequence[Unit], stage: Path, progress: OfRuns) -> None:
    """In this process.

    Args:
        units: what is to be computed, timing by timing.
        stage: the folder in which a result comes to be.
        progress: told the run, the seed and the fraction done.
    """
    shared = Timings(stage / timings.FOLDER)
    for unit in timings.in_order(units):
        progress(unit.name, unit.seed, 0.0)
        work.do(unit, stage, partial(progress, unit.name, unit.seed), timings=shared)
        progress(unit.name, unit.seed, 1.0)


def in_processes(units: Sequence[Unit], stage: Path, progress: OfRuns, jobs: int) -> None:
    """In so many processes, of which this is one: it is at work while the others start. The first failure ends them all.

    Args:
        units: what is to be computed, timing by timing; each process begins elsewhere among them, and takes what no other is
            at.
        stage: the folder in which a result comes to be.
        progress: told the run, the seed and the fraction done, as the processes write it down.
        jobs: processes; the others end when this one does.
    """
    import cloudpickle
    from joblib.externals.loky import get_reusable_executor

    if any(unit.own for unit in units):
        get_reusable_executor().shutdown(kill_workers=True)  # in which there may be older modules of the user's
    order, parent, ordered = Order.of(units, {"FRED": code_of_fred()}), os.getpid(), timings.in_order(units)
    packed = [cloudpickle.dumps(_from(ordered, k / jobs)) for k in range(1, jobs)]
    with _Watched(units, stage, progress):
        with _deaf_to_the_terminal():
            others = get_reusable_executor(max_workers=jobs - 1, timeout=_IDLE)
            told = [others.submit(_share, order, each, stage, parent) for each in packed]
        try:
            _among_others(ordered, stage, told)
        except BaseException:
            others.shutdown(kill_workers=True)
            raise
    one_by_one([unit for unit in units if not stored.holds(unit, stage / unit.folder)], stage, progress)


def _among_others(units: Sequence[Unit], stage: Path, told: Sequence[Future[str]]) -> None:
    """Whatever no other process is at; until all have ended. Raises FredError for what one of them says, as soon as it does."""
    shared = Timings(stage / timings.FOLDER)
    for unit in units:
        for each in told:
            if each.done():
                _check(each.result())
        with suppress(work.TakenError):
            work.do(unit, stage, patience=0, timings=shared)
    for each in as_completed(told):
        _check(each.result())


def _check(error: str) -> None:
    if error:
        raise FredError(error)


def _from(units: Sequence[Unit], share: float) -> list[Unit]:
    """All units, beginning after this share of them: neighbours have much of what is compiled in common."""
    first = round(share * len(units))
    return [*units[first:], *units[:first]]


def _share(order: Order, packed: bytes, stage: Path, parent: int) -> str:
    """What a process does: all units, in this order, that no other is at; what it says if it cannot."""
    _end_with(parent)
    shared = Timings(stage / timings.FOLDER)
    try:
        with order.heeded():
            for unit in order.unpacked(packed):
                with suppress(work.TakenError):
                    work.do(unit, stage, patience=0, timings=shared)
    except FredError as error:
        return str(error)
    return ""


@contextmanager
def _deaf_to_the_terminal() -> Iterator[None]:
    """Processes that begin meanwhile do not hear of Ctrl-C, which a terminal tells everybody: the parent ends what it began."""
    from joblib.externals.loky.backend import resource_tracker as of_loky

    with _mute():
        for tracker in (resource_tracker, of_loky):
            tracker.ensure_running()  # loky starts them, too, and whoever starts one hears of Ctrl-C again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _mute() -> Iterator[None]:
    """Processes that begin meanwhile say nothing; trackers would, of what is left by who is told to end at his last moment."""
    try:
        kept = os.dup(2)
    except OSError:  # it is closed already
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def _end_with(parent: int) -> None:
    """End this process soon after the one that started it is gone, however that ended."""
    if any(thread.name == "fred-parent" for thread in threading.enumerate()):
        return

    def watch() -> None:
        while True:
            if os.getppid() != parent:
                os._exit(1)
            time.sleep(1)

    threading.Thread(target=watch, name="fred-parent", daemon=True).start()


class _Watched:
    """While it lasts, tells the progress of units that other processes are at."""

    def __init__(self, units: Sequence[Unit], stage: Path, progress: OfRuns):
        self._units, self._stage, self._progress = units, stage, progress
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
                self._progress(unit.name, unit.seed, share)
            if share != 1.0:
                left.append(unit)
        return left
