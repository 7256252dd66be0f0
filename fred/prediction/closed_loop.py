"""How a rule would have done on recorded rounds: it decides in closed loop and sees only what its own cutoffs let it see."""

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, fields
from time import perf_counter
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fred.timing.contention import NodeOf
from fred.timing.cutoffs import CutoffRule, Progress, Times
from fred.timing.durations import NANOSECONDS, nanoseconds

WARM_UP = 20  # rounds


@dataclass(frozen=True, eq=False)
class Rounds:
    """What a rule chose in each counted round, and what the oracle would have that knows the round's times."""

    cutoff: NDArray[np.int64]  # c [rounds]
    time: NDArray[np.int64]  # x_(c), ns [rounds]
    decision_seconds: NDArray[np.float64]  # wall time of choosing and observing [rounds]
    best_cutoff: NDArray[np.int64]  # argmax of c / x_(c) [rounds]
    best_time: NDArray[np.int64]  # its x_(c), ns [rounds]

    def part(self, first: int, last: int) -> Self:
        """The rounds from `first` up to, but not including `last`."""
        return type(self)(*(getattr(self, field.name)[first:last] for field in fields(self)))

    def summary(self) -> dict[str, float]:
        """What the rounds came to.

        `throughput`: gradients per s, sum c / sum x_(c). `of_oracle`: that, relative to the oracle's. `mean_ratio`: mean of the
        rounds' own ratios. `cutoff`: mean c. `milliseconds`: median wall time of a decision.
        """
        throughput, best = _throughput(self.cutoff, self.time), _throughput(self.best_cutoff, self.best_time)
        ratios = (self.cutoff / self.time) / (self.best_cutoff / self.best_time)
        return {
            "throughput": throughput,
            "of_oracle": throughput / best,
            "mean_ratio": math.fsum(ratios) / len(ratios),
            "cutoff": int(self.cutoff.sum()) / len(ratios),
            "milliseconds": 1e3 * statistics.median(self.decision_seconds.tolist()),
        }


def run(
    rule: CutoffRule,
    seconds: NDArray[np.float64],
    node_of: NodeOf,
    warm_up: int = WARM_UP,
    progress: Progress = lambda share: None,
) -> Rounds:
    """The rule in closed loop on recorded rounds, s [iterations, workers], as the cutoff protocol would drive it.

    In the first `warm_up` rounds all workers are waited for, whatever the rule says; it observes them, and they do not count.
    Raises ValueError if no round is left, or if the rule cannot work on these workers.
    """
    if len(seconds) <= warm_up:
        raise ValueError(f"{len(seconds)} iterations, of which the first {warm_up} are for warming up: none is left")
    times = np.maximum(nanoseconds(np.asarray(seconds, np.float64)), 1)
    rounds = []
    for number, row in enumerate(_rounds(rule, times, node_of, warm_up)):
        rounds.append(row)
        progress((number + 1) / len(times))
    cutoff, time, decision, best_cutoff, best_time = zip(*rounds[warm_up:], strict=True)
    return Rounds(np.array(cutoff), np.array(time), np.array(decision), np.array(best_cutoff), np.array(best_time))


def _rounds(rule: CutoffRule, times: Times, node_of: NodeOf, warm_up: int) -> Iterator[tuple[int, int, float, int, int]]:
    """The fields of `Rounds`, of one round after another; `times` in ns [iterations, workers]."""
    chooser, workers = rule.start(node_of), times.shape[1]
    counts = np.arange(1, workers + 1)
    for number, round_times in enumerate(times):
        order = np.argsort(round_times, kind="stable")
        ordered = round_times[order]
        best = int(np.argmax(counts / ordered))
        began = perf_counter()
        chosen = chooser.choose(round_times)
        decided = perf_counter() - began
        waited_for = workers if number < warm_up else chosen
        cutoff = int(ordered[waited_for - 1])
        taken = np.zeros(workers, bool)
        taken[order[:waited_for]] = True
        began = perf_counter()
        chooser.observe(np.minimum(round_times, cutoff), taken)
        yield waited_for, cutoff, decided + perf_counter() - began, best + 1, int(ordered[best])


def _throughput(cutoff: NDArray[np.int64], time: NDArray[np.int64]) -> float:
    return int(cutoff.sum()) / (int(time.sum()) / NANOSECONDS)
