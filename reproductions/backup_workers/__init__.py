"""Revisiting distributed synchronous SGD (Chen, Pan, Monga, Bengio, Jozefowicz 2017): stragglers, backups, staleness."""

import pandas as pd

from reproductions.backup_workers import arrivals, convergence, epochs, iterations, page, smaller, staleness
from reproductions.backup_workers.claims import Files
from reproductions.common import RESULTS, write


def timing() -> None:
    """Measure the time of the k-th of 100 gradients, and staleness by layer: a minute or two."""
    arrivals.measure()
    staleness.measure_layers()
    epochs.measure()


def training() -> None:
    """Measure errors by staleness, iterations to an error, figure 8, and the rest: forty minutes on two cores."""
    smaller.measure()
    staleness.measure_errors()
    iterations.measure()
    convergence.measure()


def add_seeds() -> None:
    """Measure the reported seeds of figures 7 and 8 that the files lack."""
    smaller.add_seeds()
    convergence.measure(add=True)


def read_files() -> Files:
    """Read the CSV files."""
    paths = (staleness.LAYERS, staleness.ERRORS, arrivals.ARRIVALS, iterations.ITERATIONS, convergence.CURVES, smaller.SMALLER)
    return Files(*map(pd.read_csv, (*paths, epochs.EPOCHS)))


def text() -> str:
    """Return the page."""
    return page.text(read_files())


def report() -> str:
    """Write backup-workers.md and its figures from the measurements."""
    files = read_files()
    staleness.picture(files.layers, files.stale).save(RESULTS / "backup-workers-figure2.svg")
    arrivals.picture(files.arrived, pd.read_csv(arrivals.SHARES)).save(RESULTS / "backup-workers-figure4.svg")
    iterations.picture(files.reached, files.arrived).save(RESULTS / "backup-workers-figure6.svg")
    convergence.picture(files.curves).save(RESULTS / "backup-workers-figure8.svg")
    return write("backup-workers", text())
