"""Worker processes on this machine, which compute units in parallel. They start early, because each start takes seconds.

They must end with the program, however it ends. A terminal sends Ctrl-C to all processes of a command, so the worker processes
ignore it; the program itself kills them, after it has reported the stored units. They inherit this from a short time in which
Ctrl-C is blocked here: a handler of their own would come too late, after the second of their imports. Loky would start its
trackers of resources with Ctrl-C unblocked, so they are started here, too. A killed program cannot kill other processes. So a
thread in each worker process looks once a second whether its parent is still the same.
"""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import resource_tracker
from typing import Any

from fred.base import environment
from fred.base.process import collect_rarely

_IDLE = 300  # seconds after which an idle process ends
_EXECUTORS: list[Any] = []  # loky's executor, once it has been started


def begin(number: int) -> None:
    """Start worker processes, unless enough are running.

    Args:
        number: number of processes, without this one.
    """
    submit(os.getpid, [()] * number)


def number() -> int:
    """Return the number of worker processes that are alive."""
    return sum(process.is_alive() for executor in _EXECUTORS for process in [*executor._processes.values()])


def submit(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Future[Any]]:
    """Call a function in worker processes, one for each tuple of arguments, and return the futures.

    Without shared memory no process can start. Then this warns, and returns no future: the caller goes on alone.

    Args:
        function: a function that other processes can import.
        arguments: the arguments of each call.
    """
    if not arguments:
        return []
    try:
        with _ignoring_ctrl_c():
            executor = _executor(len(arguments))
            return [executor.submit(function, *values) for values in arguments]
    except (OSError, ImportError) as error:  # of the semaphores, before any process has started
        end()
        _warn_once(str(getattr(error, "strerror", None) or error))
        return []


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(f"no worker process starts, as /dev/shm is not usable ({reason}); FRED goes on alone", stacklevel=2)


def _executor(number: int) -> Any:
    """Return loky's executor. It never shrinks, because loky would wait for running tasks first."""
    from joblib.externals.loky import get_reusable_executor

    # An idle process ends after `_IDLE` s, and loky starts another: no news for a user.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given to the executor", UserWarning)
    number = max([number, *(executor._max_workers for executor in _EXECUTORS)])
    executor = get_reusable_executor(max_workers=number, timeout=_IDLE, initializer=_initialize, initargs=(os.getpid(),))
    _EXECUTORS[:] = [executor]
    return executor


@contextmanager
def ended() -> Iterator[None]:
    """End all worker processes after a `with` block. Otherwise the program would wait a second for them at its end."""
    try:
        yield
    finally:
        end()


def end() -> None:
    """Kill all worker processes, even those with running tasks."""
    while _EXECUTORS:
        _EXECUTORS.pop().shutdown(kill_workers=True)


def _initialize(parent: int) -> None:
    """Initialise a worker process: make it end with its parent, and import the modules that units need."""
    _end_with(parent)
    collect_rarely()
    with suppress(Exception):  # the main process, or the first unit, will report the error
        from fred.running import checks, execution, model_training  # noqa: F401

        environment.check()


def _end_with(parent: int) -> None:
    """End this process soon after its parent process, whatever ended that."""

    def watch() -> None:
        while True:
            if os.getppid() != parent:
                os._exit(1)
            time.sleep(1)

    threading.Thread(target=watch, name="fred-parent", daemon=True).start()


@contextmanager
def _ignoring_ctrl_c() -> Iterator[None]:
    """Make processes that start in a `with` block ignore Ctrl-C.

    A terminal sends it to all processes, but the parent process ends its worker processes itself.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joblib would announce a serial mode, which FRED does not use
        from joblib.externals.loky.backend import resource_tracker as of_loky

    with _mute():
        for tracker in (resource_tracker, of_loky):
            tracker.ensure_running()  # here, because loky would start them with Ctrl-C unblocked
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _mute() -> Iterator[None]:
    """Silence the standard error of processes that start in a `with` block.

    Trackers would warn about resources of processes that are killed.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # it is closed already
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)
