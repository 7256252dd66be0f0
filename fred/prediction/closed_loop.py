"""Closed-loop evaluation of a rule on recorded rounds: it sees only the times that its own cutoffs reveal.

`run` plays all rounds, `run_held_out` those that training did not use, and `evaluate_held_out` compares them with the best
fixed count.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from time import perf_counter
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from fred.base.intervals import Played, Ratio, block_ratio
from fred.base.types import OnProgress
from fred.cluster.contention import NodeOf
from fred.cluster.durations import nanoseconds
from fred.components.component import NANOSECONDS, Count, Positive
from fred.prediction.contract import CutoffRule, Round, Times
from fred.prediction.simple_rules import FixedCount

WARM_UP = 20  # rounds


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rule's choice in each counted round, and that of an oracle that knows the round's times."""

    cutoff: NDArray[np.int64]  # c, gradients taken [rounds]
    time: NDArray[np.int64]  # when the round ended, ns: x_(c), or the deadline [rounds]
    decision_seconds: NDArray[np.float64]  # wall time of choosing and observing [rounds]
    best_cutoff: NDArray[np.int64]  # argmax of c / x_(c) [rounds]
    best_time: NDArray[np.int64]  # its x_(c), ns [rounds]

    def part(self, first: int, last: int) -> Self:
        """Return the rounds from `first` up to, but not including, `last`."""
        return type(self)(*(getattr(self, field.name)[first:last] for field in fields(self)))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the rounds of several closed loops."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def ratio_to(self, other: Self) -> Ratio:
        """Return the throughput relative to another rule's in the same rounds, with its interval.

        Args:
            other: the same number of rounds under the other rule.
        """
        return block_ratio(Played(self.cutoff, self.time), Played(other.cutoff, other.time))

    def summary(self) -> dict[str, float]:
        """Return summary statistics of the rounds.

        `throughput`: gradients per s, sum of c over sum of times. `of_oracle`: throughput relative to the oracle's.
        `mean_ratio`: mean of the per-round ratios to the oracle. `cutoff`: mean c. `milliseconds`: median wall time of a
        decision.
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
    progress: OnProgress = lambda share: None,
) -> Rounds:
    """Run the rule in closed loop on recorded rounds, s [iterations, workers], as the cutoff protocol would drive it.

    The first `warm_up` rounds wait for all workers, whatever the rule chooses. The rule observes them, but they do not
    count. Raises ValueError if no round is left, or if the rule cannot work on these workers.
    """
    if len(seconds) <= warm_up:
        raise ValueError(f"{len(seconds)} iterations, of which the first {warm_up} are for warming up: none is left to count")
    times = np.maximum(nanoseconds(np.asarray(seconds, np.float64)), 1)
    rounds = []
    for number, cutoff_time_decision in enumerate(_rounds(rule, times, node_of, warm_up)):
        rounds.append(cutoff_time_decision)
        progress((number + 1) / len(times))
    cutoff, time, decision = zip(*rounds[warm_up:], strict=True)
    return Rounds(np.array(cutoff), np.array(time), np.array(decision), *_oracle(times[warm_up:]))


def warmed_up(rule: CutoffRule, warm_up: int) -> CutoffRule:
    """Return the rule with its own warm-up reduced to at most `warm_up` rounds."""
    rounds = getattr(rule, "warm_up", warm_up)  # rules without such an option stay as they are
    return rule if rounds <= warm_up else rule.model_copy(update={"warm_up": warm_up})


def _rounds(rule: CutoffRule, times: Times, node_of: NodeOf, warm_up: int) -> Iterator[tuple[int, int, float]]:
    """Yield each round's gradients, end (ns) and decision time (s); `times` are in ns [rounds, workers]."""
    if rule.needs_values:
        raise ValueError("this rule needs what gradients say, which recorded times do not contain")
    chooser, workers = rule.start(node_of), times.shape[1]
    for number, round_times in enumerate(times):
        start = perf_counter()
        choice = chooser.choose(round_times)  # only an oracle uses the times of the round that begins
        decision_seconds = perf_counter() - start
        outcome = Round.from_choice(round_times, workers if number < warm_up else choice)
        start = perf_counter()
        chooser.observe(outcome.observed, outcome.in_time)
        yield len(outcome.first), outcome.cutoff, decision_seconds + perf_counter() - start


def _oracle(times: Times) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return c and x_(c), ns, with the most gradients per time in each round [rounds]; `times` are in ns [rounds, workers]."""
    ordered = np.sort(times, axis=1)
    best_index = np.argmax(np.arange(1, times.shape[1] + 1) / ordered, axis=1)
    return best_index + 1, ordered[np.arange(len(ordered)), best_index]


def _throughput(cutoff: NDArray[np.int64], time: NDArray[np.int64]) -> float:
    return int(cutoff.sum()) / (sum(time.tolist()) / NANOSECONDS)


def split_rounds(seconds: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Split rounds into the first three quarters, for training, and the last quarter, for validation.

    The last quarter is rounded up, so neither part is empty for two rounds or more. Raises ValueError for fewer.

    Args:
        seconds: compute times, s [iterations, workers].

    >>> [len(part) for part in split_rounds(np.ones((15, 2)))], [len(part) for part in split_rounds(np.ones((2, 2)))]
    ([11, 4], [1, 1])
    """
    if len(seconds) < 2:
        raise ValueError(f"{len(seconds)} iterations: at least 2 are needed to hold some of them back")
    training = 3 * len(seconds) // 4
    return seconds[:training], seconds[training:]


def run_held_out(
    rule: CutoffRule,
    seconds: NDArray[np.float64],
    node_of: NodeOf,
    warm_up: int = WARM_UP,
) -> Rounds:
    """Run a rule in closed loop on the last quarter of rounds, which its training did not use.

    The rule warms up in the last rounds before the quarter, which wait for all workers. So all rounds of the quarter count.
    Raises ValueError if the rule cannot work there.

    Args:
        rule: rule trained on the first three quarters.
        seconds: all rounds available for training, s [iterations, workers], at least two rounds.
        node_of: node number of each worker [workers].
        warm_up: maximum number of warm-up rounds.
    """
    training = len(split_rounds(seconds)[0])
    warm_up_rounds = min(warm_up, training)
    return run(warmed_up(rule, warm_up_rounds), seconds[training - warm_up_rounds :], node_of, warm_up_rounds)


class HeldBack(BaseModel):
    """The result of a trained rule in the last quarter of rounds, against the best fixed count of the first three.

    >>> HeldBack(rounds=100, static=24, ratio=1.05, interval=(1.02, 1.08)).doubt
    >>> HeldBack(rounds=20, static=24, ratio=1.05, interval=(0.97, 1.14)).doubt
    '20 rounds held back cannot tell it from always waiting for 24 workers (+5.0%, 95% interval -3.0% to +14.0%)'
    >>> HeldBack(rounds=90, static=24, ratio=0.9, interval=(0.8, 0.95)).is_significantly_worse
    True
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    rounds: Count  # in the last quarter
    static: Count  # number of workers that the fixed count waits for
    ratio: Positive  # of the two throughputs
    interval: tuple[Positive, Positive] | None  # 95 % interval of the ratio; None: too few rounds

    @property
    def against_static(self) -> Ratio:
        """Return the ratio with its interval."""
        return Ratio(self.ratio, *(self.interval or (0.0, float("inf"))))

    @property
    def is_significantly_worse(self) -> bool:
        """Return True if the rule is significantly worse."""
        return self.against_static.below

    @property
    def doubt(self) -> str | None:
        """Return a warning in words, or None if the rule is significantly better."""
        other = f"always waiting for {self.static} workers ({self.against_static})"
        if self.is_significantly_worse:
            return f"in {self.rounds} rounds held back it was worse than {other}"
        if self.against_static.above:
            return None
        return f"{self.rounds} rounds held back cannot tell it from {other}"


def evaluate_held_out(
    rule: CutoffRule,
    seconds: NDArray[np.float64],
    node_of: NodeOf,
    warm_up: int = WARM_UP,
) -> HeldBack:
    """Run a trained rule in closed loop on the last quarter of rounds, s [iterations, workers], which training did not use.

    Both rules warm up in the last rounds before the quarter, which wait for all workers. So all rounds of the quarter
    count. Raises ValueError if the rule cannot work there.

    Args:
        rule: rule trained on the first three quarters.
        seconds: all rounds available for training, s [iterations, workers], at least two rounds.
        node_of: node number of each worker [workers].
        warm_up: maximum number of warm-up rounds.
    """
    static = FixedCount().trained(split_rounds(seconds)[0], node_of)
    assert static.workers is not None
    fixed = run_held_out(static, seconds, node_of, warm_up)
    rounds = run_held_out(rule, seconds, node_of, warm_up)
    ratio = rounds.ratio_to(fixed)
    return HeldBack(rounds=len(rounds.cutoff), static=static.workers, ratio=ratio.value, interval=ratio.interval)
