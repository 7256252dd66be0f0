"""How often Python looks for what could be collected: seldom, where most objects are of modules, and stay for good."""

import gc


def seldom_looked_for() -> None:
    """In a process of FRED's own. Python's usual pace takes a tenth of a short run's time, to look through modules mostly."""
    gc.set_threshold(5_000, 10, 10)


def left() -> None:
    """At a program's end everything goes at once: Python need not look through it."""
    gc.disable()
    gc.freeze()
