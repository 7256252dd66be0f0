"""Rules that predict order statistics of the next round, also from censored times, of which only a bound is certain.

| name      | source                                |
|-----------|---------------------------------------|
| Elfving   | Elfving 1947; Teng & Wood 2018, eq. 3 |
| Empirical | Kaplan & Meier 1958                   |
| EWMA      | Tobin 1958; Roberts 1959              |

`Predictive` and `Predictor` are the base: they choose the best cutoff for expected order statistics. `Elfving` takes these from
independent normal times, `Empirical` from the mean steps between ranks in the last rounds, and `EWMA` from averages of each
worker's log-normal times, in which dropped workers are imputed.
"""

import math
from abc import abstractmethod
from collections import deque
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import erfcx, ndtr, ndtri

from fred.base.numerics import exp, log
from fred.base.types import Floats
from fred.cluster.contention import NodeOf
from fred.components.component import NANOSECONDS, Count
from fred.prediction.contract import By, Choice, Chooser, CutoffRule, Deadline, Maximizer, Objective, Round, Times

VARIANCE_PER_MEDIAN = 2.2  # of a normal variable, over the median square of its deviations
_PATIENCE = 3.0  # mean deviations beyond the expected end that a deadline allows
_LEAST_LATENESS = 0.05  # least deviation that a deadline which was too early counts as
_MOST_LATENESS = 0.2  # most deviation that a round counts as: no deadline exceeds 1.8 times the expected end
_NEWEST = 0.25  # weight of the last round in the mean deviation, as for round trips in TCP [Jacobson 1988; RFC 6298]
_REACH, _POINTS = 4.5, 128  # grid: deviations beyond the outermost means; number of points
_LEAST_VARIANCE = 1e-6
# A squared error counts at most this many variances, or changes of regime would pass for spread. This makes the deviation of
# normal times a quarter too small. Larger bounds gave less throughput: part of the errors is common to all workers.
_MOST_SURPRISE = 2.0
_NODE_RATE = 0.4  # weight of the newest round in the mean shift of a node, which its workers share
_SPREAD_RATE = 0.03  # weight of the newest round in a variance
_PASSES = 3  # in turn: the imputed times of dropped workers depend on their node's shift, and it on them
Weight = Annotated[float, Field(gt=0, le=1)]


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
        self._maximizer, self._by = Maximizer(rule.objective, self.least), rule.by
        self._ready = False  # True once it has observed enough to decide
        self._choice: Choice | None = None  # own choice for this round
        self._lateness = _Lateness()  # of the worker expected to end a round

    @property
    def ready(self) -> bool:
        return self._ready

    def choose(self, times: Times) -> Choice:
        """Return the best c of the expected order statistics, or a deadline for it; `times` are ignored."""
        self._choice = self._decide() if self._ready else None
        return self.workers if self._choice is None else self._choice

    def _decide(self) -> Choice:
        expected = self.expected()
        c = self._maximizer.cutoff(expected)
        if self._by == "count":
            return c
        seconds = max(0.0, float(expected[c - 1]))
        return Deadline.after(seconds) if self._by == "deadline" else self._lateness.deadline(seconds, c)

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        """Record the outcome of the rule's own choice, and `learn` from `times`, ns, and `finished`."""
        times = np.maximum(times, 1)  # 0 has no logarithm
        if self._choice is not None:  # judge its own choice, even if the round waited for all
            gradients, time = _outcome(times, finished, self._choice)
            self._maximizer.record(gradients, time / NANOSECONDS)
            if isinstance(self._choice, Deadline) and self._choice.workers:  # only `count-or-deadline` gives both
                self._lateness.record(self._choice, gradients, time)
        self._ready = True
        self.learn(times / NANOSECONDS, finished)

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
        self._expected, self._deviation, self._rounds = 0.0, _MOST_LATENESS, 0

    def deadline(self, expected: float, workers: int) -> Deadline:
        """Return the choice for a round that is expected to end by this time, s, with the given number of workers."""
        self._expected = expected
        return Deadline.after(expected * math.exp(_PATIENCE * self._deviation), workers)

    def record(self, choice: Deadline, gradients: int, ns: int) -> None:
        """Learn from the outcome of a choice; ignore rounds that others cut short before its deadline."""
        early = gradients < (choice.workers or 0)  # the deadline came before the last of these workers
        if self._expected > 0 and (ns >= choice.ns or not early):
            self._rounds += 1
            error = max(abs(math.log(ns / NANOSECONDS / self._expected)), _LEAST_LATENESS if early else 0.0)
            self._deviation += max(_NEWEST, 1 / self._rounds) * (min(error, _MOST_LATENESS) - self._deviation)


def _outcome(times: Times, finished: NDArray[np.bool_], choice: Choice) -> tuple[int, int]:
    """Return gradients and duration, ns, of a round under this choice, as far as a round that ended earlier shows them."""
    in_time = int(finished.sum())
    if isinstance(choice, Deadline):
        gradients = max(1, int((finished & (times <= choice.ns)).sum()))
        return min(gradients, choice.workers or gradients), Round.from_choice(times, choice).cutoff
    return min(choice, in_time), Round.from_choice(times, min(choice, in_time)).cutoff


class Elfving(Predictive):
    """The best count by Elfving's formula, for independent normal compute times [Elfving 1947; Teng & Wood 2018, eq. 3].

    E[x_(j)] is about mu + sigma z_j, z_j = Phi^-1((j - pi/8) / (n - pi/4 + 1)) (docs/errata.md, item 1). Mean and deviation
    come from the line through the observed order statistics and z, so dropped workers do not bias them. They are averaged
    over the last rounds. With a large sigma the first order statistics would be expected near or below 0, and c = 1 would
    always look best. So the rule waits for at least the share `at_least` of the workers.

    One outlier looks like a wide normal distribution, of which the first two times come early:

        >>> import numpy as np
        >>> from fred.prediction.predictive import Elfving
        >>> chooser = Elfving().start(np.zeros(4, np.int64))
        >>> first = chooser.choose(np.array([], np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 40]) * 10**8, finished=np.ones(4, bool))
        >>> first, chooser.choose(np.array([], np.int64))
        (4, 2)
    """

    objective: Objective = Field(
        default="round", description="quantity to maximise: c / E[x_(c)] of the next round, or c - rho E[x_(c)] of the long run"
    )
    by: By = Field(
        default="count", description="what ends a round: `count`, its c-th worker, as published; `deadline`; or both"
    )
    window: Count = Field(default=20, description="number of rounds over which mean and deviation are averaged")
    at_least: Annotated[float, Field(gt=0, le=1)] = Field(default=0.5, description="smallest share of the workers to wait for")

    def start(self, node_of: NodeOf) -> Chooser:
        return _NormalOrderStatistics(self, len(node_of))


def expected_normal_order_statistics(n: int) -> NDArray[np.float64]:
    """Return Elfving's approximation to the expected order statistics of n standard normal variables: [n], ascending.

    >>> from fred.prediction.predictive import expected_normal_order_statistics
    >>> expected_normal_order_statistics(3).round(3).tolist()  # exactly: 3 / (2 sqrt(pi)) = 0.846
    [-0.882, 0.0, 0.882]
    """
    return ndtri((np.arange(1, n + 1) - math.pi / 8) / (n - math.pi / 4 + 1))


class _NormalOrderStatistics(Predictor):
    def __init__(self, rule: Elfving, workers: int):
        super().__init__(rule, workers)
        self._z = expected_normal_order_statistics(workers)
        self._fits: deque[tuple[float, float]] = deque(maxlen=rule.window)  # mean, deviation, s

    def expected(self) -> NDArray[np.float64]:
        mean, deviation = np.mean(self._fits, axis=0)
        return mean + deviation * self._z

    def learn(self, seconds: NDArray[np.float64], finished: NDArray[np.bool_]) -> None:
        observed = np.sort(seconds[finished])
        z = self._z[: len(observed)]
        z_mean = math.fsum(z) / len(z)  # fsum: the same bits on every machine
        centred = z - z_mean
        # The least-squares line: its value at z = 0 estimates the mean, its slope the deviation.
        slope = math.fsum(centred * observed) / math.fsum(centred**2) if len(observed) > 1 else 0.0
        self._fits.append((math.fsum(observed) / len(observed) - slope * z_mean, slope))


class Empirical(Predictive):
    """The best count by observed order statistics: x_(c) is predicted as the sum of mean gaps x_(j) - x_(j - 1).

    The mean of a step is over the rounds that saw it. A round sees the j-th step if it waited for j workers or more. That
    was decided before the round began. So while the cluster does not change, the rounds that did not see a step bias no
    mean; means of the x_(j) themselves would be biased. A rule that never waits for the last workers cannot know whether
    they are still late. So if no round in the window saw all workers, the next round waits for all.

    The only round so far had three workers close together and one late:

        >>> import numpy as np
        >>> from fred.prediction.predictive import Empirical
        >>> chooser = Empirical(objective="round", by="count").start(np.zeros(4, np.int64))
        >>> first = chooser.choose(np.array([], np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 40]) * 10**8, finished=np.ones(4, bool))
        >>> first, chooser.choose(np.array([], np.int64))
        (4, 3)
    """

    window: Count = Field(default=20, description="number of last rounds that are used")

    def start(self, node_of: NodeOf) -> Chooser:
        return WindowMeans(self, len(node_of), self.window)


class WindowMeans(Predictor):
    """Expected x_(1) .. x_(n) from a window of the last rounds.

    Args:
        rule: rule with the objective to decide by.
        workers: number of workers, n.
        window: number of last rounds that are used.
    """

    def __init__(self, rule: Predictive, workers: int, window: int):
        super().__init__(rule, workers)
        self._steps: deque[NDArray[np.float64]] = deque(maxlen=window)  # x_(j) - x_(j - 1), s [workers]; 0 beyond the cutoff
        self._waited_for: deque[int] = deque(maxlen=window)

    def choose(self, times: Times) -> Choice:
        if self.workers in self._waited_for:  # otherwise no round of the window saw the last steps
            return super().choose(times)
        self._choice = None
        return self.workers

    def expected(self) -> NDArray[np.float64]:
        ranks = np.arange(1, self.workers + 1)
        rounds_that_saw = len(self._waited_for) - np.searchsorted(np.sort(self._waited_for), ranks)  # the j-th step
        return np.cumsum(np.add.reduce(self._steps, axis=0) / rounds_that_saw)

    def learn(self, seconds: NDArray[np.float64], finished: NDArray[np.bool_]) -> None:
        waited_for = int(finished.sum())
        self._steps.append(np.where(np.arange(self.workers) < waited_for, np.diff(np.sort(seconds), prepend=0.0), 0.0))
        self._waited_for.append(waited_for)


def expected_order_statistics(mean: Floats, deviation: Floats) -> Floats:
    """Return E[x_(1)] .. E[x_(n)] of independent log-normal times, s [n], given mean and deviation of their logarithms [n].

    >>> import numpy as np
    >>> from fred.prediction.predictive import expected_order_statistics
    >>> expected_order_statistics(np.log([1.0, 2.0, 10.0]), np.full(3, 0.05)).round(2).tolist()
    [1.0, 2.0, 10.0]
    """
    grid = np.linspace((mean - _REACH * deviation).min(), (mean + _REACH * deviation).max(), _POINTS)  # log times
    expected_passed = np.add.reduce(ndtr((grid - mean[:, None]) / deviation[:, None]), axis=0)
    return between_ranks(expected_passed, exp(grid), len(mean))


def between_ranks(passed: Floats, times: Floats, n: int) -> Floats:
    """Return E[x_(1)] .. E[x_(n)], s [n], of n independent times, of which `passed` are expected by each of `times`.

    The expected number by time t is F_1(t) + .. + F_n(t). It is about j - 1/2 at the expected time of the j-th.

    Args:
        passed: expected number of times that have passed by each of `times`, ascending [points].
        times: grid of times, s [points].
        n: number of independent times.
    """
    return np.interp(np.arange(n) + 0.5, passed, times)


def truncated_moments(mean: Floats, deviation: Floats, least: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of normal variables truncated to values above `least`.

    Args:
        mean: mean without truncation [n].
        deviation: standard deviation without truncation [n].
        least: lower bound of each variable [n].

        >>> import numpy as np
        >>> from fred.prediction.predictive import truncated_moments
        >>> [value.round(3).tolist() for value in truncated_moments(np.zeros(2), np.ones(2), np.array([-9.0, 0.0]))]
        [[0.0, 0.798], [1.0, 0.363]]
    """
    z = (least - mean) / deviation
    # Density over survival of a standard normal variable at z, without overflow in its tail.
    hazard = math.sqrt(2 / math.pi) / erfcx(z / math.sqrt(2))
    return mean + deviation * hazard, deviation**2 * np.maximum(1 + (z - hazard) * hazard, 0)


class EWMA(Predictive):
    """The best count by exponentially weighted means and variances of each worker's log compute time.

    The rule assumes that the recent past continues and that workers are independent.

    A dropped worker counts with its expected time beyond the cutoff. So the rule does not forget that the worker is slow,
    nor how uncertain that is. An error of more than `jump` deviations is a change of regime, followed at once. With `of:
    node`, the workers of a node also share a common shift, next to their own means.

    Of four workers, the one that was late is expected to be late again:

        >>> import numpy as np
        >>> from fred.prediction.predictive import EWMA
        >>> chooser = EWMA(objective="round", of="worker", by="count").start(np.zeros(4, np.int64))
        >>> first = chooser.choose(np.array([], np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 40]) * 10**8, finished=np.ones(4, bool))
        >>> first, chooser.choose(np.array([], np.int64))
        (4, 3)
    """

    of: Literal["worker", "node"] = Field(default="node", description="unit that becomes slow or fast as a whole")
    rate: Weight = Field(default=0.2, description="weight of the newest round in a worker's mean")
    jump: float = Field(
        default=2.5, gt=0, description="error, in standard deviations, beyond which the rule assumes a change of regime"
    )

    def start(self, node_of: NodeOf) -> Chooser:
        return _Averages(self, node_of)


class _Averages(Predictor):
    def __init__(self, rule: EWMA, node_of: NodeOf):
        super().__init__(rule, len(node_of))
        self._rule, self._rounds = rule, 0
        self._mean = self._variance = np.zeros(len(node_of))
        self._node_of, self._size = node_of, np.maximum(np.bincount(node_of), 1)
        self._node_variance = np.zeros(len(self._size))

    def expected(self) -> Floats:
        return expected_order_statistics(self._mean, np.sqrt(self._variance))

    def learn(self, seconds: Floats, finished: NDArray[np.bool_]) -> None:
        logs = log(seconds)
        self._rounds += 1
        if self._rounds == 1:
            median = np.sort(logs)[len(logs) // 2]  # the upper one; in a first round cut short, bounds count as times
            variance = VARIANCE_PER_MEDIAN * np.sort((logs - median) ** 2)[len(logs) // 2]
            self._variance = np.full(len(logs), max(variance, _LEAST_VARIANCE))
            self._node_variance[:] = self._variance[0] / 4  # a first guess: nodes deviate half as much as workers
            self._mean = logs
        else:
            self._update(logs, ~finished)

    def _update(self, logs: Floats, dropped: NDArray[np.bool_]) -> None:
        """Update mean and variance of each worker's log time; with `of: node`, first the shift that a node's workers share.

        Args:
            logs: logarithms of times; of dropped workers that of the cutoff [workers].
            dropped: True for workers that were dropped [workers].
        """
        node_shifts = np.zeros(len(self._size))
        errors, uncertainty = self._errors(logs, dropped, node_shifts)
        if self._rule.of == "node":
            for _ in range(_PASSES):
                node_errors = self._node_errors(errors, node_shifts)
                node_shifts = self._correction(node_errors, self._node_variance, _NODE_RATE)
                errors, uncertainty = self._errors(logs, dropped, node_shifts)
            self._node_variance = self._new_variance(self._node_variance, node_errors**2)
        worker_shifts = node_shifts[self._node_of]
        self._mean = self._mean + worker_shifts + self._correction(errors - worker_shifts, self._variance, self._rule.rate)
        self._variance = self._new_variance(self._variance, errors**2 + uncertainty)

    def _errors(self, logs: Floats, dropped: NDArray[np.bool_], node_shifts: Floats) -> tuple[Floats, Floats]:
        """Return each worker's error of log x, and the variance of imputed errors, both [workers], given the nodes' shifts."""
        uncertainty, completed = np.zeros(len(logs)), logs.copy()
        expected = (self._mean + node_shifts[self._node_of])[dropped]
        completed[dropped], uncertainty[dropped] = truncated_moments(expected, np.sqrt(self._variance[dropped]), logs[dropped])
        return completed - self._mean, uncertainty

    def _node_errors(self, errors: Floats, node_shifts: Floats) -> Floats:
        """Return the mean error of each node's workers; each error is clipped to within a jump of the current shift."""
        reach = self._rule.jump * np.sqrt(self._variance)
        clipped = np.clip(errors - node_shifts[self._node_of], -reach, reach)
        return node_shifts + np.bincount(self._node_of, clipped, len(self._size)) / self._size

    def _correction(self, error: Floats, variance: Floats, rate: float) -> Floats:
        """Return what a mean moves by for this error: all of a jump, a share of anything smaller."""
        return np.where(error**2 > self._rule.jump**2 * variance, 1.0, max(rate, 1 / self._rounds)) * error

    def _new_variance(self, variance: Floats, squares: Floats) -> Floats:
        """Return the variances after a round with these squared errors."""
        rate = max(_SPREAD_RATE, 1 / self._rounds)
        return np.maximum(variance + rate * (np.minimum(squares, _MOST_SURPRISE * variance) - variance), _LEAST_VARIANCE)
