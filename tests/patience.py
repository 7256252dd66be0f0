"""A limit of time for what may go on for ever."""

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

    before = signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
