"""The base of predicting rules: expected order statistics of the next round, and the best cutoff for them."""

import math
from abc import abstractmethod
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.durations import NANOSECONDS
from fred.prediction.contract import Best, By, Choice, Chooser, CutoffRule, Deadline, Objective, Round, Times

_PATIENCE = 3.0  # mean deviations beyond the expected end that a deadline allows
_LEAST = 0.05  # least deviation that a deadline which was too early counts as
_MOST = 0.2  # most deviation that a round counts as: no deadline exceeds 1.8 times the expected end
_NEWEST = 0.25  # weight of the last round in the mean deviation, as for round trips in TCP [Jacobson 1988; RFC 6298]


class Predictive(CutoffRule):
    """A rule that predicts the sorted times x_(1) .. x_(n) of the next round, and waits for the best c, or until E[x_(c)].

    A new rule needs a `Predictor`, which predicts and learns from rounds. This one predicts that the next round equals the
    last:

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

    objective: Objective = Field(
        default="throughput",
        description="quantity to maximise: c / E[x_(c)] of the next round, or c - rho E[x_(c)] of the long run",
    )
    at_least: Annotated[float, Field(ge=0, le=1)] = Field(default=0.0, description="smallest share of the workers to wait for")
    by: By = Field(
        default="count-or-deadline",
        description="what ends a round: `count`, its c-th worker; `deadline`, E[x_(c)]; or the first of both, "
        "with a deadline later than E[x_(c)] by as much as rounds usually deviate",
    )


class Predictor(Chooser):
    """A predicting rule at work; it waits for all workers until it has observed a round.

    Args:
        rule: rule with the objective and the smallest share of workers.
        workers: number of workers, n.

    A predictor defines `expected` and `learn`:

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
        self._ready = False  # True once it has observed enough to decide
        self._chosen: Choice | None = None  # own choice for this round
        self._lateness = _Lateness()  # of the worker expected to end a round

    @property
    def ready(self) -> bool:
        return self._ready

    def choose(self, times: Times) -> Choice:
        """Return the best c of the expected order statistics, or a deadline for it; `times` are ignored."""
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
        """Record the outcome of the rule's own choice, and `learn` from `times`, ns, and `finished`."""
        if self._chosen is not None:  # judge its own choice, even if the round waited for all
            gradients, time = _came_to(np.maximum(times, 1), finished, self._chosen)
            self._best.came_to(gradients, time / NANOSECONDS)
            if isinstance(self._chosen, Deadline) and self._chosen.workers:
                self._lateness.heard(self._chosen, gradients, time)
        self._ready = True
        self.learn(np.maximum(times, 1) / NANOSECONDS, finished)

    @abstractmethod
    def expected(self) -> NDArray[np.float64]:
        """Return the expected order statistics of the next round, s: [workers], ascending."""

    @abstractmethod
    def learn(self, seconds: NDArray[np.float64], finished: NDArray[np.bool_]) -> None:
        """Learn from a finished round. For a worker that has not finished, the time is only a lower bound.

        Args:
            seconds: compute time of each worker, s [workers].
            finished: True for workers that made the cutoff [workers].
        """


class _Lateness:
    """An estimator of how far rounds deviate from their expected end, by a mean factor, with the resulting deadline.

    It works like a sender's retransmission timeout [Jacobson 1988; RFC 6298], but on logarithms. A deadline that was too
    early counts as its own deviation, or at least a minimum, so the next one is later; the RFC doubles it. However late a
    round was, its deviation is capped. Without the cap, a rule that waits for a lost worker would wait longer and longer.
    """

    def __init__(self) -> None:
        self._expected, self._deviation, self._rounds = 0.0, _MOST, 0

    def deadline(self, expected: float, workers: int) -> Deadline:
        """Return the choice for a round that is expected to end by this time, s, with the given number of workers."""
        self._expected = expected
        return Deadline.after(expected * math.exp(_PATIENCE * self._deviation), workers)

    def heard(self, choice: Deadline, gradients: int, ns: int) -> None:
        """Learn from the outcome of a choice; ignore rounds that others cut short before its deadline."""
        early = gradients < (choice.workers or 0)
        if self._expected > 0 and (ns >= choice.ns or not early):
            self._rounds += 1
            error = max(abs(math.log(ns / NANOSECONDS / self._expected)), _LEAST if early else 0.0)
            self._deviation += max(_NEWEST, 1 / self._rounds) * (min(error, _MOST) - self._deviation)


def _came_to(times: Times, finished: NDArray[np.bool_], choice: Choice) -> tuple[int, int]:
    """Return gradients and duration, ns, of a round under this choice, as far as the possibly shorter round shows them."""
    there = int(finished.sum())
    if isinstance(choice, Deadline):
        taken = max(1, int((finished & (times <= choice.ns)).sum()))
        return min(taken, choice.workers or taken), Round.of(times, choice).cutoff
    return min(choice, there), Round.of(times, min(choice, there)).cutoff
