"""What every predicting rule has in common: expected order statistics of the next round, and the best cutoff for them."""

import math
from abc import abstractmethod
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.durations import NANOSECONDS
from fred.prediction.contract import Best, By, Choice, Chooser, CutoffRule, Deadline, Objective, Round, Times

_PATIENCE = 3.0  # mean deviations after which a worker that was expected is not waited for any longer
_LEAST = 0.05  # deviation that a deadline stands for which was too early
_MOST = 0.2  # deviation that any round stands for: no deadline is more than 1.8 times as late as what was expected
_NEWEST = 0.25  # weight of the last round in the mean deviation, as of a round trip in TCP's [Jacobson 1988; RFC 6298]


class Predictive(CutoffRule):
    """A rule that expects x_(1) .. x_(n) of the next round and takes the best c of them, or waits until E[x_(c)].

    A new one has a `Predictor` that says what it expects and learns from rounds; here that all goes on as in the last one:

        >>> import fred
        >>> import numpy as np
        >>> class Last(fred.Predictor):
        ...     def expected(self):
        ...         return np.sort(self.seconds)
        ...     def learn(self, seconds, finished):
        ...         self.seconds = seconds
        >>> class AsBefore(fred.Predictive):
        ...     def start(self, node_of):
        ...         return Last(self, len(node_of))
        >>> chooser = AsBefore(objective="round", by="count").start(np.zeros(4, np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 40]) * 10**8, finished=np.ones(4, bool))
        >>> chooser.choose(np.array([], np.int64))
        3
        >>> chooser = AsBefore(objective="round", by="deadline").start(np.zeros(4, np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 40]) * 10**8, finished=np.ones(4, bool))
        >>> chooser.choose(np.array([], np.int64))
        Deadline(ns=1200000000, workers=None)
    """

    objective: Objective = Field("throughput", description="c / E[x_(c)] of the round, or c - rho E[x_(c)] of the long run")
    at_least: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="smallest share of the workers to wait for")
    by: By = Field(
        "count-or-deadline",
        description="what ends a round: `count`, its c-th worker; `deadline`, E[x_(c)]; or the first of both, the deadline "
        "later by as much as rounds usually are late",
    )


class Predictor(Chooser):
    """A predicting rule at work; until it has seen a round it waits for all.

    Args:
        rule: whose objective and smallest share it heeds.
        workers: n.

    What it must say is what it expects, and how it learns:

        >>> import fred
        >>> import numpy as np
        >>> class Mean(fred.Predictor):
        ...     rounds = 0
        ...     total = 0.0
        ...     def expected(self):
        ...         return np.sort(self.total / self.rounds)
        ...     def learn(self, seconds, finished):
        ...         self.rounds, self.total = self.rounds + 1, self.total + seconds
        >>> class OfEach(fred.Predictive):
        ...     def start(self, node_of):
        ...         return Mean(self, len(node_of))
        >>> chooser = OfEach(objective="round", by="count").start(np.zeros(3, np.int64))
        >>> for times in ([10, 20, 60], [12, 14, 80]):
        ...     chooser.observe(np.array(times) * 10**8, finished=np.ones(3, bool))
        >>> chooser.expected().tolist(), chooser.choose(np.array([], np.int64))
        ([1.1, 1.7, 7.0], 2)
    """

    def __init__(self, rule: Predictive, workers: int):
        self.workers = workers
        self.least = max(1, math.ceil(rule.at_least * workers))
        self._best, self._by = Best(rule.objective, self.least), rule.by
        self._ready = False  # whether it has seen enough to decide
        self._chosen: Choice | None = None  # in this round, by what was expected
        self._lateness = _Lateness()  # of the worker that was to end a round

    @property
    def ready(self) -> bool:
        return self._ready

    def choose(self, times: Times) -> Choice:
        """The best c of the expected order statistics, or when it is expected; `times` are not looked at."""
        self._chosen = self._decided() if self._ready else None
        return self.workers if self._chosen is None else self._chosen

    def _decided(self) -> Choice:
        expected = self.expected()
        c = self._best.cutoff(expected)
        if self._by == "count":
            return c
        at = max(0.0, float(expected[c - 1]))
        return Deadline.after(at) if self._by == "deadline" else self._lateness.deadline(at, c)

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        """Note what the round came to by what was chosen, and `learn` from its `times`, ns, and who has `finished`."""
        if self._chosen is not None:  # it counts for what it chose, even where all were waited for
            gradients, time = _came_to(np.maximum(times, 1), finished, self._chosen)
            self._best.came_to(gradients, time / NANOSECONDS)
            if isinstance(self._chosen, Deadline) and self._chosen.workers:
                self._lateness.heard(self._chosen, gradients, time)
        self._ready = True
        self.learn(np.maximum(times, 1) / NANOSECONDS, finished)

    @abstractmethod
    def expected(self) -> NDArray[np.float64]:
        """Expected order statistics of the next round, s: [workers], ascending."""

    @abstractmethod
    def learn(self, seconds: NDArray[np.float64], finished: NDArray[np.bool_]) -> None:
        """A round is over: each worker's seconds, which where it has not finished are only a lower bound.

        Args:
            seconds: compute time of each worker, s [workers].
            finished: who made the cutoff [workers].
        """


class _Lateness:
    """By what factor rounds usually end earlier or later than expected: its mean deviation, and the deadline that follows.

    As a sender waits for an answer [Jacobson 1988; RFC 6298], but for the logarithm. A deadline that was too early counts as
    the deviation that it stands for, or a least one, so the next is later; the RFC doubles it. However late a round was, it
    counts as no more than a bound: who waited for a worker that is gone would else wait ever longer.
    """

    def __init__(self) -> None:
        self._expected, self._deviation, self._rounds = 0.0, _MOST, 0

    def deadline(self, expected: float, workers: int) -> Deadline:
        """When a round ends of which so many workers are expected by this time, s, if they are not there before."""
        self._expected = expected
        return Deadline.after(expected * math.exp(_PATIENCE * self._deviation), workers)

    def heard(self, choice: Deadline, gradients: int, ns: int) -> None:
        """What the round came to by that choice; nothing is learnt where others cut it short before."""
        early = gradients < (choice.workers or 0)
        if self._expected > 0 and (ns >= choice.ns or not early):
            self._rounds += 1
            error = max(abs(math.log(ns / NANOSECONDS / self._expected)), _LEAST if early else 0.0)
            self._deviation += max(_NEWEST, 1 / self._rounds) * (min(error, _MOST) - self._deviation)


def _came_to(times: Times, finished: NDArray[np.bool_], choice: Choice) -> tuple[int, int]:
    """Gradients and duration, ns, of what is known of a round, had it been left to a choice that others may have cut short."""
    there = int(finished.sum())
    if isinstance(choice, Deadline):
        taken = max(1, int((finished & (times <= choice.ns)).sum()))
        return min(taken, choice.workers or taken), Round.of(times, choice).cutoff
    return min(choice, there), Round.of(times, min(choice, there)).cutoff
