"""How often Python looks for what could be collected: seldom, where most objects are of modules, and stay for good."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def seldom_looked_for() -> None:
    """In a process of FRED's own. Python's usual pace takes a tenth of a short run's time, to look through modules mostly."""
    gc.set_threshold(5_000, 10, 10)


def left() -> None:
    """At a program's end everything goes at once: Python need not look through it."""
    gc.disable()
    gc.freeze()


@contextmanager
def not_looked_for() -> Iterator[None]:
    """While modules are imported, in whatever process."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
