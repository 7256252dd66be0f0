"""PSP-SGD: the cost of late replies (table 1), and of not waiting for them (figures 3 and 4)."""

import pandas as pd

from reproductions.common import RESULTS, write
from reproductions.psp import errors, page, times


def timing() -> None:
    """Measure table 1's times, and other times in the text: some minutes."""
    times.measure()


def training() -> None:
    """Measure errors: some ten minutes."""
    errors.measure()


def add_seeds() -> None:
    """Measure the seeds that the files lack."""
    times.measure(add=True)
    errors.measure(add=True)


def report() -> str:
    """Write psp.md and its figures from the measurements."""
    timed, learned = pd.read_csv(times.TIMES), pd.read_csv(errors.ERRORS)
    times.picture(timed).save(RESULTS / "psp-table1.svg")
    errors.picture(learned).save(RESULTS / "psp-figure3.svg")
    return write("psp", text())


def text() -> str:
    """Return the page."""
    return page.text(pd.read_csv(times.TIMES), pd.read_csv(errors.ERRORS))
