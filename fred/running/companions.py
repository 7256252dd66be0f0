"""Other processes on this machine, which do units beside this one: begun early, as starting one takes seconds."""

import importlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any

from fred.errors import FredError
from fred.process import environment, garbage

_IDLE = 300  # seconds after which a process that nobody needs ends


def begun(number: int) -> Any:
    """So many processes, those of before if they are as many: an executor of loky's, which ends with this process.

    Args:
        number: of processes beside this one.
    """
    from joblib.externals.loky import get_reusable_executor

    with _deaf_to_the_terminal():
        executor = get_reusable_executor(max_workers=number, timeout=_IDLE, initializer=_ready, initargs=(os.getpid(),))
        executor.submit(os.getpid)  # none is started before it is asked for something
    return executor


@contextmanager
def while_planning(number: int) -> Iterator[None]:
    """So many processes start while this one imports and plans; afterwards they are ended, as programs wait for theirs.

    Args:
        number: of processes beside this one; 0: none.
    """
    if number:
        begun(number)
    try:
        yield
    finally:
        if number:
            end()


def end() -> None:
    """End all that are there, whatever they are at."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor(reuse=True).shutdown(kill_workers=True)


def _ready(parent: int) -> None:
    """What a process does first: it sees to it that it ends with its parent, and imports what units need."""
    _end_with(parent)
    garbage.seldom_looked_for()
    importlib.import_module("fred.running.side_by_side")
    with suppress(FredError):  # which the one that plans says
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
