"""Revisiting distributed synchronous SGD (Chen, Pan, Monga, Bengio, Jozefowicz 2017): stragglers, backups, staleness."""

import pandas as pd

from reproductions.backup_workers import arrivals, convergence, iterations, page, smaller, staleness
from reproductions.backup_workers.claims import Measured
from reproductions.common import RESULTS, write


def timing() -> None:
    """A minute or two: when the k-th of 100 gradients arrives, staleness by layer."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    arrivals.measure()
    staleness.measure_layers()


def training() -> None:
    """Forty minutes on two cores: error by staleness, iterations to an error, Sync-Opt against Async-Opt, and the rest."""
    smaller.measure()
    staleness.measure_errors()
    iterations.measure()
    convergence.measure()


def report() -> str:
    """Write backup-workers.md and its figures from what was measured."""
    arrived, shares = pd.read_csv(arrivals.ARRIVALS), pd.read_csv(arrivals.SHARES)
    layers, stale = pd.read_csv(staleness.LAYERS), pd.read_csv(staleness.ERRORS)
    reached, curves = pd.read_csv(iterations.ITERATIONS), pd.read_csv(convergence.CURVES)
    others = pd.read_csv(smaller.SMALLER)
    staleness.picture(layers, stale).save(RESULTS / "backup-workers-figure2.svg")
    arrivals.picture(arrived, shares).save(RESULTS / "backup-workers-figure4.svg")
    iterations.picture(reached, arrived).save(RESULTS / "backup-workers-figure6.svg")
    convergence.picture(curves).save(RESULTS / "backup-workers-figure8.svg")
    return write("backup-workers", page.text(Measured(layers, stale, arrived, reached, curves, others)))
