"""Execution of units on the machines of a Dask cluster."""

import logging
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fred.base.errors import FredError
from fred.base.progress import OfRuns
from fred.running import timings, work
from fred.running.checkpoints import Following
from fred.running.order import Order
from fred.running.timings import Timings
from fred.running.unit import Unit

_THREAD = threading.local()  # number of an experiment, and its timings


def on_dask(units: Sequence[Unit], stage: Path, progress: OfRuns, address: str) -> None:
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
    order = Order.of(units)
    with _without_its_log(), client:
        if not client.nthreads():
            print(f"fred: --dask {address}: the cluster has no workers yet; waiting for one", file=sys.stderr)
        units = timings.in_order(units)
        packed = [cloudpickle.dumps(unit) for unit in units]  # the scheduler need not understand it
        keys = [f"fred-{unit.identity}" for unit in units]
        futures = dict(zip(client.map(_remote, [order] * len(units), packed, key=keys), units, strict=True))
        for future in as_completed(list(futures)):
            unit, found = futures[future], _answer(future, address)
            _unpacked(unit, stage, found)
            progress(unit.name, unit.seed, 0.0)  # a unit whose first report is 1.0 counts as done before
            progress(unit.name, unit.seed, 1.0)
            future.release()


@contextmanager
def _without_its_log() -> Iterator[None]:
    """Silence Dask's loggers: Dask logs a lost scheduler with a traceback, and also raises it, which FRED reports."""
    own = [each for name, each in logging.root.manager.loggerDict.items() if name.split(".")[0] == "distributed"]
    loud = [each for each in own if isinstance(each, logging.Logger) and not each.disabled]
    try:
        for each in loud:
            each.disabled = True
        yield
    finally:
        for each in loud:
            each.disabled = False


def _answer(future: Any, address: str) -> dict[str, bytes]:
    """Return the files from a worker. Raises FredError if the worker or the scheduler reports an error instead."""
    try:
        found = future.result()
    except Exception as error:  # of any kind: it was raised elsewhere
        if "scheduler-connection-lost" in str(error):
            raise FredError(f"--dask {address}: the scheduler does not answer any more") from error
        said = next(iter(str(error).strip().splitlines()), "no message")
        raise FredError(f"--dask {address}: {type(error).__name__}: {said}") from error
    if isinstance(found, str):
        raise FredError(f"--dask {address}: {found}")
    files: dict[str, bytes] = found
    return files


def _unpacked(unit: Unit, stage: Path, files: dict[str, bytes]) -> None:
    own = stage / work.folder_of(unit)
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    for name, content in files.items():
        (own / name).write_bytes(content)
    work.put(own, stage / unit.folder)


def _remote(order: Order, packed: bytes) -> dict[str, bytes] | str:
    """Compute a unit on a machine of a Dask cluster: return its files, or an error message."""
    with tempfile.TemporaryDirectory() as folder:  # its checkpoints would be of no use
        try:
            with order.heeded():
                work.compute(order.unpacked(packed), Path(folder), Following(), _timings_of(order.number))
        except FredError as error:
            return str(error)
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def _timings_of(number: str) -> Timings:
    """Return the timings of this thread's experiment: Dask workers compute several units in threads of one process."""
    if getattr(_THREAD, "number", None) != number:
        _THREAD.number, _THREAD.timings = number, Timings()
    found: Timings = _THREAD.timings
    return found
