"""Other processes on this machine, which do units beside this one: begun early, as starting one takes seconds."""

import importlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any

from fred.base import environment, garbage

_IDLE = 300  # seconds after which a process that nobody needs ends
_THERE: list[Any] = []  # the executor, if any process has been begun


def begin(number: int) -> None:
    """Start so many processes, unless they are there.

    Args:
        number: of processes beside this one.
    """
    told(os.getpid, [()] * number)


def number() -> int:
    """How many are there, and alive."""
    return sum(process.is_alive() for executor in _THERE for process in [*executor._processes.values()])


def told(do: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Future[Any]]:
    """Have something done in as many processes as there are arguments.

    Args:
        do: a function that other processes can import.
        arguments: of each call.
    """
    if not arguments:
        return []
    with _deaf_to_the_terminal():
        executor = _executor(len(arguments))
        return [executor.submit(do, *each) for each in arguments]


def _executor(number: int) -> Any:
    """Of loky's. It is never made smaller, for which it would wait until what is under way is done."""
    from joblib.externals.loky import get_reusable_executor

    number = max([number, *(executor._max_workers for executor in _THERE)])
    executor = get_reusable_executor(max_workers=number, timeout=_IDLE, initializer=_ready, initargs=(os.getpid(),))
    _THERE[:] = [executor]
    return executor


@contextmanager
def ended() -> Iterator[None]:
    """None is there afterwards: programs wait for theirs, which would take a second."""
    try:
        yield
    finally:
        end()


def end() -> None:
    """End all that are there, whatever they are at."""
    while _THERE:
        _THERE.pop().shutdown(kill_workers=True)


def _ready(parent: int) -> None:
    """What a process does first: it sees to it that it ends with its parent, and imports what units need."""
    _end_with(parent)
    garbage.seldom_looked_for()
    with suppress(Exception):  # whatever it is, the one that plans says it, or who does a unit
        importlib.import_module("fred.running.side_by_side")
        environment.check()


def _end_with(parent: int) -> None:
    """End this process soon after the one that started it is gone, however that ended."""

    def watch() -> None:
        while True:
            if os.getppid() != parent:
                os._exit(1)
            time.sleep(1)

    threading.Thread(target=watch, name="fred-parent", daemon=True).start()


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
