"""Revisiting distributed synchronous SGD (Chen, Pan, Monga, Bengio, Jozefowicz 2017): stragglers, backups, staleness."""

import pandas as pd

from reproductions.backup_workers import arrivals, convergence, iterations, page
from reproductions.common import RESULTS, write


def timing() -> None:
    """A minute: when the k-th of 100 gradients arrives."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    arrivals.measure()


def training() -> None:
    """Half an hour on two cores: iterations to an error, and Sync-Opt against Async-Opt."""
    iterations.measure()
    convergence.measure()


def report() -> str:
    """Write backup-workers.md and its figures from what was measured."""
    arrived, shares = pd.read_csv(arrivals.ARRIVALS), pd.read_csv(arrivals.SHARES)
    reached, curves = pd.read_csv(iterations.ITERATIONS), pd.read_csv(convergence.CURVES)
    arrivals.picture(arrived, shares).save(RESULTS / "backup-workers-figure4.svg")
    iterations.picture(reached, arrived).save(RESULTS / "backup-workers-figure6.svg")
    convergence.picture(curves).save(RESULTS / "backup-workers-figure8.svg")
    return write("backup-workers", page.text(arrived, reached, curves))
