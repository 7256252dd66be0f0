"""Claims without a figure: longer run-times need no other model, decisions are quick. The cost of a CNN."""

import time

import pandas as pd

import fred
from fred.prediction import closed_loop
from fred.prediction.deep.rule import DMM
from reproductions.common import RESULTS, Seeds, say, store
from reproductions.cutoff.cluster import SCENARIOS, WARM_UP, changing
from reproductions.cutoff.regime import MODEL, SEEDS

LONGER = 3  # times as long: another network, or larger batches
DECISIONS, NETWORK = RESULTS / "cutoff-decisions.csv", RESULTS / "cutoff-network.csv"
_CNN = ("task.model={name: cnn, channels: [8, 16], hidden: 32}", "evaluate={points: 1}", "seeds=[11]")
_ROUNDS = (1, 6)


def measure() -> None:
    """Measure decisions, and the cost of a CNN: a few minutes."""
    measure_decisions()
    store(NETWORK, rounds_of_a_cnn(), "%.3g")


def measure_decisions(add: bool = False) -> None:
    """Measure, for each seed and with longer gradients, the share of the oracle's throughput and the time of a decision."""
    measured, rule = Seeds(DECISIONS, ["times"], add), DMM(objective="round", by="count", model=MODEL)
    for times in (1, LONGER):
        for seed in measured.missing(SEEDS, times=times):
            test = changing(seed, [f"cluster.compute.median={0.8595 * times}"])
            summary = closed_loop.run(rule, *test, WARM_UP).summary()
            row = {"times": times, "seed": seed, **{name: summary[name] for name in ("of_oracle", "milliseconds")}}
            measured.add(pd.DataFrame([row]), "%.5g")
            say(f"cutoff: gradients {times} times as long, seed {seed}")


def rounds_of_a_cnn() -> pd.DataFrame:
    """Measure the time that some rounds of figure 4 take one core, with two convolutions."""
    rows = []
    for rounds in _ROUNDS:
        scenario = fred.load(SCENARIOS / "figure4.yaml", [*_CNN, f"stop={{updates: {rounds}}}"])
        begin = time.process_time()
        fred.run(scenario, only="sync")
        rows.append({"rounds": rounds, "core_seconds": time.process_time() - begin})
        say(f"cutoff: {rounds} rounds with a CNN")
    return pd.DataFrame(rows)
