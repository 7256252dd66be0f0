"""This process: how it ends at Ctrl-C and SIGTERM, its garbage collections, and its number of processors."""

import atexit
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_REPEATED = 2.0  # seconds until the interrupt is raised again, if the program goes on
_PATIENCE = 10.0  # seconds to wait for the end of an import: an interrupted one may raise any exception
_CHECK_PERIOD = 0.05  # seconds between two checks whether the import has ended
_received: list[int] = []  # signals received
_first = 0.0  # time of the first of them, by the monotonic clock
_raising = False
_is_program = False
_words = ""  # message of a program that may end at once


def end_at_once() -> None:
    """Let SIGTERM and Ctrl-C end the program at once, outside `raise_interrupts` blocks. They are ignored at its exit.

    In a `raise_interrupts` block they end it at once only during an import, and only until `require_cleanup` is called.
    """
    global _is_program, _words
    _is_program, _words = True, "nothing was started"
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)
            atexit.register(signal.signal, number, signal.SIG_IGN)  # by then, nothing is left to report or to stop


def require_cleanup() -> None:
    """Note that the program has something to clean up, so a signal during an import must not end it at once."""
    global _words
    _words = ""


@contextmanager
def raise_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM and SIGINT in a `with` block.

    It is raised repeatedly until the block ends, because an event loop may catch one.
    """
    global _raising, _words
    _received.clear()
    _raising = True
    earlier_handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)}
    for number in (signal.SIGTERM, signal.SIGINT):
        if earlier_handlers[number] in (signal.SIG_DFL, signal.default_int_handler, _end):  # not a program's, nor ignored
            signal.signal(number, _stop)
    earlier_hook, sys.unraisablehook = sys.unraisablehook, _raise_again
    try:
        yield
    except Exception as error:
        if _received:  # other libraries may turn an interrupt into another exception
            raise KeyboardInterrupt from error
        raise
    finally:
        _raising, _words = False, "it had finished" if _is_program else ""
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = earlier_hook
        for number, handler in earlier_handlers.items():
            signal.signal(number, handler)


@contextmanager
def add_note(words: Callable[[], str]) -> Iterator[None]:
    """Add a note to a KeyboardInterrupt in a `with` block, unless it has one from an inner block.

    Args:
        words: function that returns the note; it is called at the interrupt.

    >>> try:
    ...     with add_note(lambda: "two of five are kept"):
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt as error:
    ...     print(notes_of(error))
    ['two of five are kept']
    """
    try:
        yield
    except KeyboardInterrupt as error:
        if not notes_of(error):
            error.add_note(words())
        raise


def notes_of(error: BaseException | None) -> list[str]:
    """Return the notes of an interrupt, or of the first exception in its context that has notes."""
    while error is not None and not getattr(error, "__notes__", ()):
        error = error.__context__
    return list(getattr(error, "__notes__", ()))


def exit_code() -> int:
    """Return the usual exit code for the signal received. Later signals are ignored, because the program is ending."""
    global _raising
    _raising = False
    return 128 + (_received[0] if _received else signal.SIGINT)


def _end(number: int, frame: FrameType | None) -> None:
    """Handle a signal: report it and end the process at once, without any cleanup."""
    with suppress(OSError):
        os.write(2, f"\nfred: interrupted; {_words}\n".encode())
    os._exit(128 + number)


def _stop(number: int, frame: FrameType | None) -> None:
    """Handle a signal, or the timer after one: raise KeyboardInterrupt, as soon as no import is under way."""
    global _first
    if not _raising:
        return
    if number != signal.SIGALRM:  # a signal; the timer repeats an earlier one
        _first = _first if _received else time.monotonic()
        _received.append(number)
    # An interrupt during an import may leave a module half loaded, or come out as another exception. So a timer calls this
    # handler again until the import has ended, or takes too long. A program that has nothing to clean up need not wait.
    signal.signal(signal.SIGALRM, _stop)
    if _importing(frame) and _words:
        _end(_received[0], frame)
    if _importing(frame) and time.monotonic() - _first < _PATIENCE:
        signal.setitimer(signal.ITIMER_REAL, _CHECK_PERIOD)
        return
    signal.setitimer(signal.ITIMER_REAL, _REPEATED)
    raise KeyboardInterrupt


def _raise_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Raise an interrupt again soon if Python could not raise it, as in `__del__` or during garbage collection."""
    if _received and issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _CHECK_PERIOD)
    else:
        sys.__unraisablehook__(unraisable)


def _importing(frame: FrameType | None) -> bool:
    """Return True if the frame belongs to an import, or was called by one."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def collect_rarely() -> None:
    """Make garbage collections rare in this process. With Python's defaults they take a tenth of a short run's time."""
    gc.set_threshold(5_000, 10, 10)


def disable_collection() -> None:
    """Disable garbage collection at a program's end, when all memory is freed anyway."""
    gc.disable()
    gc.freeze()


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
