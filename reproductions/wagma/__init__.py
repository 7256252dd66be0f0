"""WAGMA-SGD (Li et al. 2021): throughput with delays, sentences and episodes, errors, ablations."""

import pandas as pd

from reproductions.common import RESULTS, write
from reproductions.wagma import accuracy, bandwidths, further, page, speeds, throughput, variations


def timing() -> None:
    """Some minutes: figures 4, 7 and 10, the times of figures 5 and 8, and what explains differences."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    throughput.measure()
    bandwidths.measure()
    variations.measure()


def training() -> None:
    """Some ninety minutes: figure 5's errors, the ablations, and what else is said of accuracy, on MNIST."""
    accuracy.measure()
    further.measure()


def add_seeds() -> None:
    """Measure the seeds that the files of figures 4, 7 and 10 and of errors lack."""
    throughput.measure(add=True)
    accuracy.measure(add=True)
    further.measure(add=True)


def report() -> str:
    """Write wagma.md and its figures from the measurements."""
    measured = throughput.Throughput(pd.read_csv(throughput.THROUGHPUT))
    for figure, ideal in speeds.IDEAL.items():
        measured.picture(figure, ideal).save(RESULTS / f"wagma-figure{figure}.svg")
    bandwidths.Bandwidths(pd.read_csv(bandwidths.MEASURED)).picture().save(RESULTS / "wagma-bandwidths.svg")
    accuracy.picture(pd.read_csv(accuracy.ERRORS)).save(RESULTS / "wagma-figure5.svg")
    return write("wagma", text())


def text() -> str:
    """The page."""
    measured = throughput.Throughput(pd.read_csv(throughput.THROUGHPUT))
    rates = bandwidths.Bandwidths(pd.read_csv(bandwidths.MEASURED))
    changed = variations.Variations(pd.read_csv(variations.MEASURED, dtype={"figure": str}), measured)
    return page.text(measured, rates, changed, pd.read_csv(accuracy.ERRORS), pd.read_csv(further.MEASURED))
