"""Reasons for differences from the paper: figures 4, 5 and 10 with one thing changed. Timing only, one seed."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd

import fred
from reproductions.common import RESULTS, quiet, say, store
from reproductions.wagma import paper
from reproductions.wagma.throughput import HALF_BATCH, SCENARIOS, Throughput

MEASURED = RESULTS / "wagma-variations.csv"
MODEL_BYTES = 102_236_324
EAGER = "eager-sgd"
FOUR = ("local-sgd", "d-psgd", "sgp", EAGER, "wagma-global")
TEN = ("local-sgd", "d-psgd", "sgp")
SLOW = 1.6e9  # bytes/s: D-PSGD communicating twice then takes the 410 minutes of figure 5


class Variation(NamedTuple):
    """Settings for some runs of a figure's scenario."""

    figure: str
    change: str
    runs: Sequence[str]
    settings: Sequence[str]


def _own_throughput() -> list[str]:
    """Return the bandwidths at which each run's communication explains its printed throughput without delays."""
    butterfly = (10 * 3 + 6) / 11  # models that WAGMA's operations move in a step, global ones included
    models = {"local-sgd": 2 * 63 / 64, "d-psgd": 2.0, "sgp": 2.0, "wagma": butterfly}
    rates = {fact.run: fact.value for fact in paper.STEPS_PER_SECOND}
    bandwidths = {run: moved * MODEL_BYTES / (1 / rates[run] - 1 / rates["ad-psgd"]) for run, moved in models.items()}
    bandwidths |= {EAGER: bandwidths["wagma"], "wagma-global": bandwidths["wagma"]}  # not printed: the same links
    return [f"runs.{run}.cluster.network.bandwidth={bandwidth:.4g}" for run, bandwidth in bandwidths.items()]


_PUBLISHED = "[{name: random-delays, workers: 2, seconds: 0.32, draw: published}]"
_SPREAD = "{name: normal, mu: 0.621, sigma: 0.005}"
_THINNER = (
    "{name: mixture, weights: [0.9996, 0.0004], components: [{name: lognormal, shift: 1.7, median: 0.2, sigma: 0.8}, "
    "{name: uniform, low: 1.7, high: 43.5}]}"
)
_BUTTERFLIES = ("wagma", EAGER, "wagma-global")


PRINTED_RATES, PUBLISHED, JITTER, RING, SLOWER = (
    "communication from each run's printed throughput without delays",
    "delays as published, from the first step on",
    "compute times spread by 5 ms",
    "the ring for every global allreduce",
    "1.6 GB/s, from figure 5's 410 minutes",
)
OVERLAPPED, OVERLAPPED_SLOW = "allreduces behind the backward pass, in 50 parts", "the same at 1.6 GB/s"
HALF, NEVER, SOLO = "eager-SGD starts with half", "eager-SGD never waits for all", "eager-SGD starts with the first"
CUT, THINNER = "the tail cut off at 43.5 s", "a thinner tail, and one of 2,500 up to 43.5 s"
TWICE = "1.6 GB/s"
VARIATIONS = (
    Variation("4", PRINTED_RATES, ("wagma", *FOUR), _own_throughput()),
    Variation("4", SLOWER, ("wagma", *FOUR), [f"cluster.network.bandwidth={SLOW}"]),
    Variation("4", PUBLISHED, ("wagma", *FOUR), [f"cluster.contention={_PUBLISHED}"]),
    Variation("4", JITTER, ("wagma", *FOUR), [f"cluster.compute={_SPREAD}"]),
    Variation("4", RING, ("wagma", *FOUR), [f"runs.{run}.cluster.network.collective=ring" for run in _BUTTERFLIES]),
    Variation("4", OVERLAPPED, ("wagma", *FOUR), ["cluster.network.buckets=50"]),
    Variation("4", OVERLAPPED_SLOW, ("wagma", *FOUR), [f"cluster.network.bandwidth={SLOW}", "cluster.network.buckets=50"]),
    Variation("4", HALF, (EAGER,), [f"runs.{EAGER}.protocol.start_by=half"]),
    Variation("4", SOLO, (EAGER,), [f"runs.{EAGER}.protocol.start_by=solo"]),
    Variation("4", NEVER, (EAGER,), [f"runs.{EAGER}.protocol.period=null"]),
    Variation("5", TWICE, ("d-psgd-twice",), [f"cluster.compute.seconds={HALF_BATCH}", f"cluster.network.bandwidth={SLOW}"]),
    Variation("5", PRINTED_RATES, ("wagma", "local-sgd", "sgp"), [f"cluster.compute.seconds={HALF_BATCH}", *_own_throughput()]),
    Variation("10", CUT, ("wagma", *TEN), ["cluster.compute.longest=43.5"]),
    Variation("10", THINNER, ("wagma", *TEN), [f"cluster.compute={_THINNER}"]),
)
_LENGTH = {"4": (64, 120), "5": (64, 120), "10": (1024, 100)}  # workers, s
_SCENARIO = {"5": "figure4"}


def measure() -> None:
    """Measure all variations: some minutes."""
    store(MEASURED, pd.concat(_measured(variation) for variation in VARIATIONS))


def _measured(variation: Variation) -> pd.DataFrame:
    workers, seconds = _LENGTH[variation.figure]
    scenario = SCENARIOS / f"{_SCENARIO.get(variation.figure, f'figure{variation.figure}')}.yaml"
    settings = ["seeds=[1]", f"cluster.workers={workers}", f"stop.seconds={seconds}", *variation.settings]
    summary = quiet(fred.load(scenario, settings), variation.runs).summary
    steps = summary["gradients_applied"] / workers / summary["virtual_seconds"]
    say(f"wagma: figure {variation.figure}, {variation.change}")
    return summary[["name"]].assign(figure=variation.figure, variation=variation.change, steps_per_second=steps)


class Variations:
    """Steps per second, and how much faster WAGMA is."""

    def __init__(self, measured: pd.DataFrame, as_it_is: Throughput):
        self._steps = measured.set_index(["figure", "variation", "name"])["steps_per_second"].to_dict()
        self._as_it_is = as_it_is

    def rate(self, figure: str, change: str, run: str) -> float:
        """Return the steps per second of one run."""
        return float(self._steps[figure, change, run])

    def faster(self, figure: str, change: str, run: str) -> float:
        """WAGMA's steps of that run's; those of the scenario as it is where the variation is not about WAGMA."""
        usual = self._as_it_is.rate(figure, _LENGTH[figure][0], "wagma")
        return self._steps.get((figure, change, "wagma"), usual) / self._steps[figure, change, run]

    def row(self, figure: str, change: str, runs: Iterable[str]) -> list[str]:
        """Return the row of a change: its name, and WAGMA's speed-ups."""
        cells = [f"{self.faster(figure, change, run):.2f}" if (figure, change, run) in self._steps else "" for run in runs]
        return [change, *cells]
