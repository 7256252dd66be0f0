"""The simulated clusters: run-times recorded from runs that wait for all, to train rules on and to test them with."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fred
from reproductions.common import ROOT

SCENARIOS = ROOT / "scenarios" / "cutoff-sgd"
WARM_UP = 20  # iterations in which all are waited for, not counted
CHANGE = 61  # the iteration, counted from 1 after warming up, in which the slow node becomes as fast as the others


class Recorded(NamedTuple):
    """Run-times of complete iterations, and the node of each worker."""

    seconds: NDArray[np.float64]  # [iterations, workers]
    node_of: NDArray[np.int64]


def record(scenario: str, part: str, seed: int, settings: Sequence[str] = ()) -> Recorded:
    """Record one part (`training` or `test`) of the figure's scenario."""
    result = fred.run(fred.load(SCENARIOS / f"{scenario}.yaml", [f"seeds=[{seed}]", *settings]), only=part)
    cluster = result.scenario.runs[part].cluster
    times = result.run_times(part).pivot(index="iteration", columns="worker", values="seconds")
    return Recorded(times.to_numpy(), cluster.node_of)


def changing(seed: int, settings: Sequence[str] = ()) -> Recorded:
    """Record figure 2's test part: the slow node is fast from the beginning of iteration 61, if all are waited for."""
    endless = record("figure2", "test", seed, [*settings, "runs.test.cluster.contention.3.end=1e6"])
    begins: Any = endless.seconds.max(axis=1).cumsum()[WARM_UP + CHANGE - 2]
    return record("figure2", "test", seed, [*settings, f"runs.test.cluster.contention.3.end={begins:.6f}"])
