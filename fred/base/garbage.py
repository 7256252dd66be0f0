"""Settings of Python's garbage collector: it runs rarely, because most objects belong to modules and are never freed."""

import gc


def seldom_looked_for() -> None:
    """Make garbage collections rare in this process. With Python's defaults they take a tenth of a short run's time."""
    gc.set_threshold(5_000, 10, 10)


def left() -> None:
    """Disable garbage collection at a program's end, when all memory is freed anyway."""
    gc.disable()
    gc.freeze()
