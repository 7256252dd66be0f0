"""Asynchronous methods on the quadratic that their authors compare them on, beside another program's numbers."""

from reproductions.asynchronous import large, page, tuned
from reproductions.common import RESULTS


def timing() -> None:
    """Nothing can be told without gradients."""


def training() -> None:
    """All tables: about forty minutes on two cores."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    large.measure()
    for tuning in (tuned.AS_DESCRIBED, tuned.FROM_ZERO):
        tuned.measure(tuning)


def report() -> str:
    """Write the page from what was measured."""
    return page.report()
