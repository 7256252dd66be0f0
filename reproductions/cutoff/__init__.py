"""Cutoff SGD (Teng & Wood 2018), figures 2, 3 and 4: throughput, predictions and convergence with a learned cutoff."""

import pandas as pd

from reproductions.common import RESULTS, write
from reproductions.cutoff import convergence, further, page, profiles, regime


def training() -> None:
    """Train, and run figures 2 to 4: about half an hour on two cores, most of it for figure 4."""
    regime.measure()
    profiles.measure()
    further.measure()
    convergence.measure(int(pd.read_csv(regime.TRAINING)["static"].iloc[0]))


def add_seeds() -> None:
    """Measure the seeds that the files lack; the model of `dmm` is the stored one."""
    regime.measure(add=True)
    further.measure_decisions(add=True)
    convergence.measure(int(pd.read_csv(regime.TRAINING)["static"].iloc[0]), add=True)


def report() -> str:
    """Write cutoff.md and its figures from the measurements."""
    files = page.read_files()
    regime.figure2(files.rounds, files.profiles).save(RESULTS / "cutoff-figure2.svg")
    regime.recovery(files.rounds).save(RESULTS / "cutoff-recovery.svg")
    profiles.figure3(pd.read_csv(profiles.ORDERED)).save(RESULTS / "cutoff-figure3.svg")
    convergence.figure4(files.curves).save(RESULTS / "cutoff-figure4.svg")
    return write("cutoff", text())


def text() -> str:
    """Return the page."""
    return page.text(page.read_files())
