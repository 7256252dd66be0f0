"""What predicting costs: decisions, training, and closed loops of thousands of workers."""

import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Row
from benchmarks.recording import measure_run
from fred.cluster.contention import NodeOf
from fred.prediction import closed_loop
from fred.prediction.auto import Auto
from fred.prediction.comparison import rule_named
from fred.prediction.deep.rule import DMM
from fred.protocols.synchronous import Cutoff

SIZES = {158: ((40, 40, 40, 38), 5, 90), 2175: ((68,) * 31 + (67,), 25, None)}  # nodes, limits: ms to decide, s to train
CHEAP = ("elfving", "empirical", "ewma", "hmm", "mad-deadline")
AUTO = {158: 8, 2175: 50}  # ms to decide


def cluster(workers: int, rounds: int) -> tuple[NDArray[np.float64], NodeOf]:
    """Return the run-times of nodes that are slow by turns, s [rounds, workers], and the workers' nodes."""
    rng = np.random.default_rng(0)
    node_of = np.repeat(np.arange(len(SIZES[workers][0])), SIZES[workers][0])
    slow = np.where(np.arange(rounds)[:, None] // 10 % (node_of.max() + 2) == node_of, 2.0, 1.0)
    return slow * rng.lognormal(0, 0.15, (rounds, workers)), node_of


def long_rows() -> Iterator[Row]:
    """Yield milliseconds and seconds."""
    for workers, (_, decision, training) in SIZES.items():
        seconds, node_of = cluster(workers, 1500 if training is None else 3000)
        start = time.perf_counter()
        deep = DMM().trained(seconds, node_of)
        yield Row(f"prediction: training, {workers:,} workers", time.perf_counter() - start, "s", training)
        seconds, _ = cluster(workers, 120)
        rules = {"dmm": deep} | {name: rule_named(name).trained(seconds, node_of) for name in CHEAP}
        limits = dict.fromkeys(rules, decision) | {"auto": AUTO[workers]}
        rules["auto"] = Auto().watching(deep).trained(seconds, node_of)
        for name, rule in rules.items():
            milliseconds = closed_loop.run(rule, seconds, node_of).summary()["milliseconds"]
            yield Row(f"prediction: choosing and observing, {name}, {workers:,} workers", milliseconds, "ms", limits[name])
    for name, limit in (*((cheap, 20) for cheap in ("elfving", "empirical", "ewma", "hmm")), ("dmm", 60)):
        seconds_, _ = measure_run(Cutoff(rule=name), 2175, None)
        yield Row(f"timing only: closed loop, {name}, 2,175 workers, 1,000 rounds", seconds_, "s", limit)
