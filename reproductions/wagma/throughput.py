"""Figures 4, 7 and 10, the times of figures 5 and 8, and an ablation: steps per second. Timing only."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

import fred
from fred.views import figures
from reproductions.common import RESULTS, ROOT, Seeds, quiet, say

THROUGHPUT = RESULTS / "wagma-throughput.csv"
SCENARIOS = ROOT / "scenarios" / "wagma-sgd"
NOT_HIDDEN = "7, AD-PSGD's exchanges not hidden"
TRANSFORMER_BYTES = 245_448_704
HALF_BATCH = 0.341  # s of computing with 64 examples in place of 128: figure 5


class Case(NamedTuple):
    """A figure with a number of workers."""

    figure: str  # what it is for
    scenario: str
    workers: int
    seconds: float
    settings: Sequence[str] = ()
    runs: Sequence[str] = ()  # none: all
    seeds: Sequence[int] = ()  # none: those of the scenario


def _and_its_exchange(workers: int) -> list[str]:
    """Settings by which each of AD-PSGD's steps in figure 7 is longer by its exchange, there and back."""
    seconds = 2 * TRANSFORMER_BYTES / 2.4e9
    return [f"runs.ad-psgd.cluster.contention=[{{name: random-delays, workers: {workers}, seconds: {seconds:.4f}}}]"]


CASES = (
    *(Case("4", "figure4", workers, 120, seeds=range(1, 21)) for workers in (4, 16, 64)),
    Case("4", "figure4", 256, 40),
    Case("4", "figure4", 256, 40, runs=("wagma", "eager-sgd", "allreduce"), seeds=range(1, 21)),  # of which claims speak
    Case("4, no delays", "figure4", 64, 40, ("cluster.contention=[]",)),
    Case("5", "figure4", 64, 80, (f"cluster.compute.seconds={HALF_BATCH}",)),
    *(Case("7", "figure7", workers, 300) for workers in (4, 16, 64)),
    *(Case(NOT_HIDDEN, "figure7", workers, 300, _and_its_exchange(workers), ("ad-psgd",)) for workers in (16, 64)),
    *(Case("10", "figure10", workers, 200 if workers == 1024 else 600) for workers in (16, 64, 256, 1024)),
)


def measure(add: bool = False) -> None:
    """Measure throughput in all cases: some minutes; with `add` only the seeds that the file lacks."""
    measured = Seeds(THROUGHPUT, ("figure", "workers", "name"), add)
    for case in CASES:
        path = SCENARIOS / f"{case.scenario}.yaml"
        settings = [f"cluster.workers={case.workers}", f"stop.seconds={case.seconds}", *case.settings]
        if case.scenario != "figure10":
            settings.append(f"runs.wagma-global.protocol.group_size={case.workers}")
        scenario = fred.load(path, settings)
        for run in case.runs or scenario.runs:
            seeds = measured.missing(case.seeds or scenario.seeds, figure=case.figure, workers=case.workers, name=run)
            if seeds:
                summary = quiet(fred.load(path, [*settings, f"seeds={seeds}"]), [run]).summary
                steps = summary["gradients_applied"] / case.workers / summary["virtual_seconds"]
                rows = summary[["name", "seed"]].assign(figure=case.figure, workers=case.workers, steps_per_second=steps)
                measured.add(rows, "%.6g")
        say(f"wagma: figure {case.figure}, {case.workers} workers")


class Throughput:
    """Steps per second of all workers, means over the seeds."""

    def __init__(self, measured: pd.DataFrame):
        self._measured = measured
        self._means = measured.groupby(["figure", "workers", "name"], sort=False)["steps_per_second"].mean()

    def rate(self, figure: str, workers: int, run: str) -> float:
        """Return the throughput of one run."""
        return float(self._means[figure, workers, run])

    def seeds(self, figure: str, workers: int, run: str) -> "pd.Series[float]":
        """Return the throughput of one run, by seed."""
        rows = self._measured
        rows = rows[(rows["figure"] == figure) & (rows["workers"] == workers) & (rows["name"] == run)]
        return rows.set_index("seed")["steps_per_second"]

    def faster(self, figure: str, workers: int, run: str) -> float:
        """Return WAGMA's throughput, of that run's, with the seeds that both have."""
        means = pd.DataFrame({name: self.seeds(figure, workers, name) for name in ("wagma", run)}).dropna().mean()
        return float(means["wagma"] / means[run])

    def runs(self, figure: str) -> list[str]:
        """Return the names of a figure's runs."""
        return list(dict.fromkeys(name for entry, _, name in self._means.index if entry == figure))

    def workers(self, figure: str) -> list[int]:
        """Return the numbers of workers."""
        return list(dict.fromkeys(workers for entry, workers, _ in self._means.index if entry == figure))

    def picture(self, figure: str, ideal: float) -> figures.Picture:
        """Draw steps per second of all workers, bars by their number; dotted: no communication and no waiting."""
        runs, sizes = self.runs(figure), self.workers(figure)
        with figures.style():
            image = figures.Picture(figsize=(9.6, 3.2), layout="constrained")
            axis = image.subplots()
            for number, (colour, run) in enumerate(zip(figures.COLOURS, runs, strict=False)):
                places = [group + (number - len(runs) / 2) * 0.8 / len(runs) for group in range(len(sizes))]
                axis.bar(places, [self.rate(figure, size, run) for size in sizes], 0.8 / len(runs), color=colour, label=run)
            axis.axhline(ideal, color="#5B5B5B", linestyle=":", label="no communication, no waiting")
            axis.set(xticks=range(len(sizes)), xticklabels=[f"{size:,}" for size in sizes], xlabel="workers")
            axis.set_ylabel("steps of each worker per second")
            axis.grid(axis="x", visible=False)
            image.legend(loc="outside right center")
        return image
