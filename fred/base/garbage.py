"""Settings of Python's garbage collector: it runs rarely, because most objects belong to modules and are never freed."""

import gc


def collect_rarely() -> None:
    """Make garbage collections rare in this process. With Python's defaults they take a tenth of a short run's time."""
    gc.set_threshold(5_000, 10, 10)


def disable_collection() -> None:
    """Disable garbage collection at a program's end, when all memory is freed anyway."""
    gc.disable()
    gc.freeze()
