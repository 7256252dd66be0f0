"""Being told to stop, by Ctrl-C or by the system: once is enough, and what is finished stays."""

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_REPEATED = 2.0  # seconds after which a program that went on all the same is told again
_PATIENCE = 10.0  # seconds for an import to be over: one that is cut in two raises anything
_SOON = 0.05  # seconds between two looks whether it is
_told: list[int] = []  # the signals that came
_first = 0.0  # when the first of them did, by the monotonic clock
_heeding = False
_is_program = False
_words = ""  # of a program that may end there and then


def at_once() -> None:
    """From now on either signal ends the program there and then, until it heeds them or something has begun, and at its end."""
    global _is_program, _words
    _is_program, _words = True, "nothing was begun"
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)
            atexit.register(signal.signal, number, signal.SIG_IGN)  # nothing is left then that could be said, or stopped


def begun() -> None:
    """From now on there is something to tidy up before the program ends."""
    global _words
    _words = ""


@contextmanager
def heeded() -> Iterator[None]:
    """Meanwhile SIGTERM stops the program as SIGINT does; both again and again, for an event loop may take one for its own."""
    global _heeding, _words
    _told.clear()
    _heeding = True
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)}
    for number in (signal.SIGTERM, signal.SIGINT):
        if before[number] in (signal.SIG_DFL, signal.default_int_handler, _end):
            signal.signal(number, _stop)
    unraisable, sys.unraisablehook = sys.unraisablehook, _lost
    try:
        yield
    except Exception as error:
        if _told:  # what an interrupt becomes on its way through other people's code
            raise KeyboardInterrupt from error
        raise
    finally:
        _heeding, _words = False, "it was at its end" if _is_program else ""
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = unraisable
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def saying(words: Callable[[], str]) -> Iterator[None]:
    """An interrupt that comes meanwhile says this, unless somebody inside has more to say.

    Args:
        words: asked when it comes.

    >>> try:
    ...     with saying(lambda: "two of five are kept"):
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt as error:
    ...     print(said_by(error))
    ['two of five are kept']
    """
    try:
        yield
    except KeyboardInterrupt as error:
        if not said_by(error):
            error.add_note(words())
        raise


def said_by(error: BaseException | None) -> list[str]:
    """What an interrupt says, or if it has nothing to say the one in whose middle it came."""
    while error is not None and not getattr(error, "__notes__", ()):
        error = error.__context__
    return list(getattr(error, "__notes__", ()))


def exit_code() -> int:
    """As is usual for the signal that came. From then on no other one is heeded: the program is at its end."""
    global _heeding
    _heeding = False
    return 128 + (_told[0] if _told else signal.SIGINT)


def _end(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):
        os.write(2, f"\nfred: interrupted; {_words}\n".encode())
    os._exit(128 + number)


def _stop(number: int, frame: FrameType | None) -> None:
    global _first
    if not _heeding:
        return
    if number != signal.SIGALRM:
        _first = _first if _told else time.monotonic()
        _told.append(number)
    signal.signal(signal.SIGALRM, _stop)
    if _importing(frame) and _words:
        _end(_told[0], frame)
    if _importing(frame) and time.monotonic() - _first < _PATIENCE:
        signal.setitimer(signal.ITIMER_REAL, _SOON)
        return
    signal.setitimer(signal.ITIMER_REAL, _REPEATED)
    raise KeyboardInterrupt


def _lost(unraisable: "sys.UnraisableHookArgs") -> None:
    """What comes where Python can raise nothing, as in `__del__` or while it collects garbage, is told again at once."""
    if _told and issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _SOON)
    else:
        sys.__unraisablehook__(unraisable)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None
