"""Asynchronous methods on the quadratic that their authors compare them on, next to another program's numbers."""

from reproductions.asynchronous import large, page, tuned
from reproductions.common import RESULTS


def timing() -> None:
    """Measure nothing, because everything needs gradients."""


def training() -> None:
    """All tables: about three quarters of an hour on a core."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    large.measure()
    tuned.measure()


def report() -> str:
    """Write the page from the measurements."""
    return page.report()
