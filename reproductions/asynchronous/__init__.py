"""Asynchronous methods on the quadratic that their authors compare them on, next to another program's numbers."""

from reproductions.asynchronous import large, page, tuned


def training() -> None:
    """Measure all tables: about three quarters of an hour on a core."""
    large.measure()
    tuned.measure()


def report() -> str:
    """Write the page from the measurements."""
    return page.report()
