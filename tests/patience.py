"""A limit of the processor's time for what may go on for ever; others may use the processor meanwhile."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TooSlow(BaseException):
    """Nothing that is fuzzed may catch it."""


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raises TooSlow inside once so much time has passed."""

    def too_slow(*_: Any) -> None:
        raise TooSlow(f"more than {seconds} s")

    before = signal.signal(signal.SIGPROF, too_slow)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
