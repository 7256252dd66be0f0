"""The computation of units: in this process, in several processes on this machine, or on the machines of a Dask cluster.

Every process has the same list of units, in an order of its own, and takes the next free one: the lock on a unit's work folder
decides (`execution.complete`). So no process hands out work, and other processes take the units of a killed one.

An `Order` goes with the units to another process. A worker process may be older than the user's last change of a module, and a
machine of a cluster may have other versions. Such a process would write other results under the same identity. So the order has
the facts that the bits depend on (versions, options of JAX, FRED's code, the user's code), and the process
compares them with its own.
"""

import logging
import os
import pickle
import platform
import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from fred.base import cached, compiled
from fred.base.disk import TIMINGS
from fred.base.errors import FredError
from fred.base.progress import OfRuns
from fred.base.staging import TakenError
from fred.components import own_code, registry
from fred.running import execution, pool, stored
from fred.running.checkpoints import Following
from fred.running.recording import Timings, in_order
from fred.running.units import Unit

_INTERVAL = 0.2  # seconds between two checks of the other processes' progress
_THREAD = threading.local()  # number of an experiment, and its timings


class Means(NamedTuple):
    """The processes that compute units.

    Args:
        jobs: number of processes on this machine.
        dask: address of the scheduler of a Dask cluster; empty: none.
    """

    jobs: int = 1
    dask: str = ""


def compute_units(units: Sequence[Unit], stage: Path, progress: OfRuns, means: Means) -> None:
    """Compute units. Raises FredError.

    Args:
        units: units to compute.
        stage: the unfinished result folder.
        progress: called with run, seed and the fraction done.
        means: the processes that compute them.
    """
    if means.dask and units:
        compute_on_dask(units, stage, progress, means.dask)
    elif means.jobs > 1 and len(units) > 1:
        compute_in_processes(units, stage, progress, means.jobs)
    else:
        compute_here(units, stage, progress, means.jobs)


def compute_here(units: Sequence[Unit], stage: Path, progress: OfRuns, cores: int = 1) -> None:
    """Compute units one after the other in this process.

    Args:
        units: units to compute.
        stage: the unfinished result folder.
        progress: called with run, seed and the fraction done.
        cores: largest number of processes for each unit.
    """
    timings = Timings(stage / TIMINGS)
    for unit in in_order(units):
        progress(unit.name, unit.seed, 0.0)
        execution.complete(unit, stage, partial(progress, unit.name, unit.seed), timings=timings, cores=cores)
        progress(unit.name, unit.seed, 1.0)


def compute_in_processes(units: Sequence[Unit], stage: Path, progress: OfRuns, jobs: int) -> None:
    """Compute units in `jobs` processes, including this one, which computes while the others start. Stop at the first failure.

    Processes without a unit help this one with its unit.

    Args:
        units: units to compute; each process begins at a different one, and skips those that another process is computing.
        stage: the unfinished result folder.
        progress: called with run, seed and the fraction done, as the processes report it.
        jobs: number of processes; the others end when this one does.
    """
    import cloudpickle

    if any(unit.has_own_classes for unit in units):
        pool.end()  # they may hold older versions of the user's modules
    order, ordered = Order.for_units(units), in_order(units)
    processes = min(jobs, len(units))  # with this one, whose number is 0
    packed = [cloudpickle.dumps(_order_of_process(ordered, number, processes)) for number in range(1, processes)]
    with _Watched(units, stage, progress):
        try:
            _compute_among_others(ordered, stage, pool.submit(_take_units, [(order, part, stage) for part in packed]), jobs)
        except BaseException:
            pool.end()
            raise
    # Units of a process that was killed are not finished.
    compute_here([unit for unit in units if not stored.find_unchecked(unit, stage / unit.folder)], stage, progress, jobs)


def _compute_among_others(units: Sequence[Unit], stage: Path, futures: Sequence[Future[str]], jobs: int) -> None:
    """Compute units that no other process is computing, until all have ended. Raises the first FredError that one reports."""
    timings = Timings(stage / TIMINGS)
    for unit in units:
        for future in futures:
            if future.done():
                _raise_error(future.result())
        with suppress(TakenError):
            execution.complete(
                unit, stage, patience=0, timings=timings, cores=jobs - sum(not future.done() for future in futures)
            )
    for future in as_completed(futures):
        _raise_error(future.result())


def _raise_error(error: str) -> None:
    if error:
        raise FredError(error)


def _order_of_process(units: Sequence[Any], number: int, jobs: int) -> list[Any]:
    """Return all units in the order of this process: pairs of processes go in opposite directions, to compile other programs.

    >>> [_order_of_process("abcdef", number, 3) for number in range(3)]
    [['a', 'b', 'c', 'd', 'e', 'f'], ['d', 'c', 'b', 'a', 'f', 'e'], ['e', 'f', 'a', 'b', 'c', 'd']]
    """
    # An odd process begins where the next one does, and goes back from there.
    first = round((number + number % 2) / jobs * len(units)) % max(1, len(units))
    forwards = [*units[first:], *units[:first]]
    return forwards[::-1] if number % 2 else forwards


def _take_units(order: "Order", packed: bytes, stage: Path) -> str:
    """Compute, in a worker process, all units that no other process is computing; return an error message, or nothing."""
    timings = Timings(stage / TIMINGS)
    try:
        with order.compilation():
            for unit in order.unpack(packed):
                with suppress(TakenError):
                    execution.complete(unit, stage, patience=0, timings=timings)
    except FredError as error:
        return str(error)
    return ""


class _Watched:
    """A context that reports the progress of units in other processes, which they write to their work folders."""

    def __init__(self, units: Sequence[Unit], stage: Path, progress: OfRuns):
        self._units, self._stage, self._progress = units, stage, progress
        self._reported = set[Unit]()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: Any) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        missing = list(self._units)
        while missing and not self._end.wait(_INTERVAL):
            missing = self._report(missing)
        self._report(missing)

    def _report(self, missing: Sequence[Unit]) -> list[Unit]:
        """Report the progress of units, and return those that are not finished."""
        remaining = []
        for unit in missing:
            share = 1.0 if (self._stage / unit.folder).exists() else execution.progress(self._stage, unit)
            if share is not None:
                if share == 1.0 and unit not in self._reported:  # a unit whose first report is 1.0 counts as done before
                    self._progress(unit.name, unit.seed, 0.0)
                self._progress(unit.name, unit.seed, share)
                self._reported.add(unit)
            if share != 1.0:
                remaining.append(unit)
        return remaining


class Order(NamedTuple):
    """Facts sent to another process together with units."""

    imports: Sequence[str]
    expected: dict[str, str]  # must be the same there
    has_own_classes: bool  # True if the user's own classes take part
    code: dict[str, str]  # modules of these classes and the files they read; must be the same in a process that has them
    number: str  # identifies the experiment
    uses_cache: bool  # True if previously compiled programs may be used

    @classmethod
    def for_units(cls, units: Sequence[Unit]) -> "Order":
        """Return the order for these units, which will be computed elsewhere."""
        has_own_classes = any(unit.has_own_classes for unit in units)
        code = own_code.facts() if has_own_classes else {}
        uses_cache = compiled.folder() is not None
        return cls(registry.imported(), own_code.local_facts(), has_own_classes, code, uuid.uuid4().hex, uses_cache)

    def compilation(self) -> AbstractContextManager[None]:
        """Return a context that uses cached compiled programs only if the experiment allows it, however old the process."""
        return nullcontext() if self.uses_cache else compiled.disabled()

    def unpack(self, packed: bytes) -> Any:
        """Return the unpickled content, in another process. Raises FredError in a process that would compute other results."""
        registry.allow_import(self.imports)
        self._compare()
        _forget_once(self.number, self.has_own_classes)
        try:
            content = pickle.loads(packed)
        except (ImportError, AttributeError) as error:
            raise FredError(
                f"the user's classes cannot be loaded there ({error}); put them into a module, and allow it"
            ) from error
        self._compare()  # with modules that unpickling has loaded
        return content

    def _compare(self) -> None:
        try:
            differing = own_code.objection(self.expected, self.code)
        except FredError as error:  # nothing can be computed there
            differing = str(error)
        if differing:
            process = f"process {os.getpid()} on {platform.node()}"
            is_late = self.expected.get("unprepared")  # of the process that gives the order
            cure = "import fred before jax here" if is_late else "restart it with the same code and settings"
            raise FredError(f"{process} would compute other results: {differing}; {cure}")


@lru_cache(maxsize=1)
def _forget_once(number: str, compiled_too: bool) -> None:
    """Clear caches when the experiment is not the last one of this process."""
    cached.forget(compiled=compiled_too)


def compute_on_dask(units: Sequence[Unit], stage: Path, progress: OfRuns, address: str) -> None:
    """Compute units on the workers of a Dask cluster, and fetch their files; other workers take over from a lost one.

    Args:
        units: units to compute.
        stage: the unfinished result folder; workers need no access to it.
        progress: called with run, seed and 1.0 when a unit is done.
        address: address of the scheduler, such as `tcp://192.0.2.1:8786`.

    Raises FredError if no scheduler answers, or workers would compute other bits.
    """
    try:
        import cloudpickle
        from distributed import Client, as_completed
    except ImportError:
        raise FredError("--dask needs the package `distributed`: pip install 'fred-sim[dask]'") from None
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError, TypeError) as error:
        raise FredError(f"--dask {address}: no scheduler answers there: {error}") from None
    order = Order.for_units(units)
    with _without_its_log(), client:
        if not client.nthreads():
            print(f"fred: --dask {address}: the cluster has no workers yet; waiting for one", file=sys.stderr)
        units = in_order(units)
        packed = [cloudpickle.dumps(unit) for unit in units]  # the scheduler need not understand it
        keys = [f"fred-{unit.identity}" for unit in units]
        futures = dict(zip(client.map(_compute_remotely, [order] * len(units), packed, key=keys), units, strict=True))
        for future in as_completed(list(futures)):
            unit = futures[future]
            _place_files(unit, stage, _answer(future, address))
            progress(unit.name, unit.seed, 0.0)  # a unit whose first report is 1.0 counts as done before
            progress(unit.name, unit.seed, 1.0)
            future.release()


@contextmanager
def _without_its_log() -> Iterator[None]:
    """Silence Dask's loggers: Dask logs a lost scheduler with a traceback, and also raises it, which FRED reports."""
    named = logging.root.manager.loggerDict.items()
    loggers = [logger for name, logger in named if name.split(".")[0] == "distributed" and isinstance(logger, logging.Logger)]
    enabled = [logger for logger in loggers if not logger.disabled]
    try:
        for logger in enabled:
            logger.disabled = True
        yield
    finally:
        for logger in enabled:
            logger.disabled = False


def _answer(future: Any, address: str) -> dict[str, bytes]:
    """Return the files from a worker. Raises FredError if the worker or the scheduler reports an error instead."""
    try:
        answer = future.result()
    except Exception as error:  # of any kind: it was raised elsewhere
        if "scheduler-connection-lost" in str(error):
            raise FredError(f"--dask {address}: the scheduler does not answer any more") from error
        message = next(iter(str(error).strip().splitlines()), "no message")
        raise FredError(f"--dask {address}: {type(error).__name__}: {message}") from error
    if isinstance(answer, str):
        raise FredError(f"--dask {address}: {answer}")
    files: dict[str, bytes] = answer
    return files


def _place_files(unit: Unit, stage: Path, files: dict[str, bytes]) -> None:
    """Write a unit's files to its work folder, and move them to their place."""
    folder = stage / unit.work_folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    execution.put(folder, stage / unit.folder)


def _compute_remotely(order: Order, packed: bytes) -> dict[str, bytes] | str:
    """Compute a unit on a machine of a Dask cluster: return its files, or an error message."""
    with tempfile.TemporaryDirectory() as folder:  # its checkpoints would be of no use
        try:
            with order.compilation():
                execution.compute(order.unpack(packed), Path(folder), Following(), _timings_of(order.number))
        except FredError as error:
            return str(error)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def _timings_of(number: str) -> Timings:
    """Return the timings of this thread's experiment: Dask workers compute several units in threads of one process."""
    if getattr(_THREAD, "number", None) != number:
        _THREAD.number, _THREAD.timings = number, Timings()
    timings: Timings = _THREAD.timings
    return timings
