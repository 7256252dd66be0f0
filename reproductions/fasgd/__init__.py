"""Odena 2016: FASGD against SASGD (figures 1 and 2), what B-FASGD's gates save (figure 3), and what else the text says."""

import pandas as pd

from reproductions.common import RESULTS, write
from reproductions.fasgd import curves, page, smaller, traffic
from reproductions.fasgd.claims import Files


def training() -> None:
    """Measure figures 1 and 2 (an hour or two on two cores), figure 3 (another one), and the rest (ten minutes)."""
    smaller.measure()
    traffic.measure()
    curves.measure()


def add_seeds() -> None:
    """Measure the seeds that the file of the smaller scenarios lacks."""
    smaller.measure(add=True)


def read_files() -> Files:
    """Read the CSV files."""
    tuning, sent, facts = map(pd.read_csv, (curves.TUNING, traffic.TRAFFIC, smaller.SMALLER))
    return Files(curves.Errors(pd.read_csv(curves.CURVES)), tuning, sent, facts)


def text() -> str:
    """Return the page."""
    return page.text(read_files())


def report() -> str:
    """Write fasgd.md and its figures from the measurements."""
    files = read_files()
    curves.draw(files.errors.curves)
    traffic.picture(files.traffic).save(RESULTS / "fasgd-figure3.svg")
    return write("fasgd", text())
