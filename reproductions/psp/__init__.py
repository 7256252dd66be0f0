"""PSP-SGD: the cost of late replies (table 1), and of not waiting for them (figures 3 and 4)."""

import pandas as pd

from reproductions.common import RESULTS, write
from reproductions.psp import errors, page, times


def timing() -> None:
    """Some minutes: table 1's times, and what else is said of times."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    times.measure()


def training() -> None:
    """Some ten minutes: errors."""
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
    """The page."""
    return page.text(pd.read_csv(times.TIMES), pd.read_csv(errors.ERRORS))
