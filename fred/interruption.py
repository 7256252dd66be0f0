"""Being told to stop, by Ctrl-C or by the system: once is enough, and what is finished stays."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODES = tuple(128 + number for number in (signal.SIGINT, signal.SIGTERM))
_REPEATED = 2.0  # seconds after which a program that went on all the same is told again
_told: list[int] = []  # the signals that came
_heeding = False


@contextmanager
def heeded() -> Iterator[None]:
    """Meanwhile SIGTERM stops the program as SIGINT does; both again and again, for an event loop may take one for its own."""
    global _heeding
    _told.clear()
    _heeding = True
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)}
    for number in (signal.SIGTERM, signal.SIGINT):
        if before[number] in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _stop)
    try:
        yield
    finally:
        _heeding = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code() -> int:
    """As is usual for the signal that came. From then on no other one is heeded: the program is at its end."""
    global _heeding
    _heeding = False
    return 128 + (_told[0] if _told else signal.SIGINT)


def _stop(number: int, frame: FrameType | None) -> None:
    if not _heeding:
        return
    if number != signal.SIGALRM:
        _told.append(number)
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, _REPEATED)
    raise KeyboardInterrupt
