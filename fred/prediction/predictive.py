"""Rules that predict order statistics of the next round, also from censored times, of which only a bound is certain.

| name      | source                                |
|-----------|---------------------------------------|
| Elfving   | Elfving 1947; Teng & Wood 2018, eq. 3 |
| Empirical | Kaplan & Meier 1958                   |
| EWMA      | Tobin 1958; Roberts 1959              |

`Predictive` and `Predictor` are the base: they choose the best cutoff for expected order statistics. `Elfving` takes these from
independent normal times, `Empirical` from the mean steps between ranks in the last rounds, and `EWMA` from averages of each
worker's log-normal times, in which dropped workers are imputed.

`Distribution` is the product-limit estimate [Kaplan & Meier 1958]. `Completion` estimates dropped workers' times from their
usual times and from how late all workers were before.
"""

import math
from abc import abstractmethod
from collections import deque
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import erfcx, ndtr, ndtri

from fred.base.numerics import exp, log
from fred.cluster.contention import NodeOf
from fred.components.component import NANOSECONDS, Count
from fred.prediction.contract import By, Choice, Chooser, CutoffRule, Deadline, Maximizer, Objective, Round, Times

_PATIENCE = 3.0  # mean deviations beyond the expected end that a deadline allows
_LEAST = 0.05  # least deviation that a deadline which was too early counts as
_MOST = 0.2  # most deviation that a round counts as: no deadline exceeds 1.8 times the expected end
_NEWEST = 0.25  # weight of the last round in the mean deviation, as for round trips in TCP [Jacobson 1988; RFC 6298]
Floats = NDArray[np.float64]
_REACH, _POINTS = 4.5, 128  # grid: deviations beyond the outermost means; number of points
_LEAST_VARIANCE = 1e-6
# A squared error counts at most this many variances, or changes of regime would pass for spread. This makes the deviation of
# normal times a quarter too small. Larger bounds gave less throughput: part of the errors is common to all workers.
_MOST_SURPRISE = 2.0
_NODE_RATE = 0.4  # weight of the newest round in the mean shift of a node, which its workers share
_SPREAD_RATE = 0.03  # weight of the newest round in a variance
_PASSES = 3  # iterations over dropped workers, as their times and the node's level depend on each other
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
        self._best, self._by = Maximizer(rule.objective, self.least), rule.by
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
        c = self._best.cutoff(expected)
        if self._by == "count":
            return c
        seconds = max(0.0, float(expected[c - 1]))
        return Deadline.after(seconds) if self._by == "deadline" else self._lateness.deadline(seconds, c)

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        """Record the outcome of the rule's own choice, and `learn` from `times`, ns, and `finished`."""
        if self._choice is not None:  # judge its own choice, even if the round waited for all
            gradients, time = _outcome(np.maximum(times, 1), finished, self._choice)
            self._best.record(gradients, time / NANOSECONDS)
            if isinstance(self._choice, Deadline) and self._choice.workers:
                self._lateness.record(self._choice, gradients, time)
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

    def record(self, choice: Deadline, gradients: int, ns: int) -> None:
        """Learn from the outcome of a choice; ignore rounds that others cut short before its deadline."""
        early = gradients < (choice.workers or 0)
        if self._expected > 0 and (ns >= choice.ns or not early):
            self._rounds += 1
            error = max(abs(math.log(ns / NANOSECONDS / self._expected)), _LEAST if early else 0.0)
            self._deviation += max(_NEWEST, 1 / self._rounds) * (min(error, _MOST) - self._deviation)


def _outcome(times: Times, finished: NDArray[np.bool_], choice: Choice) -> tuple[int, int]:
    """Return gradients and duration, ns, of a round under this choice, as far as the possibly shorter round shows them."""
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
        mean, centred = math.fsum(z) / len(z), z - math.fsum(z) / len(z)  # fsum: the same bits on every machine
        slope = math.fsum(centred * observed) / math.fsum(centred**2) if len(observed) > 1 else 0.0
        self._fits.append((math.fsum(observed) / len(observed) - slope * mean, slope))


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
        if self.workers in self._waited_for:
            return super().choose(times)
        self._choice = None
        return self.workers

    def expected(self) -> NDArray[np.float64]:
        ranks = np.arange(1, self.workers + 1)
        rounds = len(self._waited_for) - np.searchsorted(np.sort(self._waited_for), ranks)  # rounds that saw the j-th
        return np.cumsum(np.add.reduce(self._steps, axis=0) / rounds)

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
    grid = np.linspace((mean - _REACH * deviation).min(), (mean + _REACH * deviation).max(), _POINTS)
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
    hazard = math.sqrt(2 / math.pi) / erfcx(z / math.sqrt(2))  # of the standard normal density; no overflow in its tail
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
            middle = np.sort(logs)[len(logs) // 2]
            spread = 2.2 * np.sort((logs - middle) ** 2)[len(logs) // 2]  # a normal variance is 2.2 times the median square
            self._variance = np.full(len(logs), max(spread, _LEAST_VARIANCE))
            self._node_variance[:] = self._variance[0] / 4
            self._mean = logs
        else:
            self._update(logs, ~finished)

    def _update(self, logs: Floats, dropped: NDArray[np.bool_]) -> None:
        shift = np.zeros(len(self._size))
        errors, uncertainty = self._errors(logs, dropped, shift)
        if self._rule.of == "node":
            for _ in range(_PASSES):
                common = self._common(errors, shift)
                shift = self._step(common, self._node_variance, _NODE_RATE)
                errors, uncertainty = self._errors(logs, dropped, shift)
            self._node_variance = self._spread(self._node_variance, common**2)
        shared = shift[self._node_of]
        self._mean = self._mean + shared + self._step(errors - shared, self._variance, self._rule.rate)
        self._variance = self._spread(self._variance, errors**2 + uncertainty)

    def _errors(self, logs: Floats, dropped: NDArray[np.bool_], shift: Floats) -> tuple[Floats, Floats]:
        """Return each worker's error of log x, and the variance of imputed errors, both [workers], given the nodes' shifts."""
        uncertainty, completed = np.zeros(len(logs)), logs.copy()
        expected = (self._mean + shift[self._node_of])[dropped]
        completed[dropped], uncertainty[dropped] = truncated_moments(expected, np.sqrt(self._variance[dropped]), logs[dropped])
        return completed - self._mean, uncertainty

    def _common(self, errors: Floats, shift: Floats) -> Floats:
        """Return the mean error of each node's workers; each error is clipped to within a jump of the current shift."""
        reach = self._rule.jump * np.sqrt(self._variance)
        clipped = np.clip(errors - shift[self._node_of], -reach, reach)
        return shift + np.bincount(self._node_of, clipped, len(self._size)) / self._size

    def _step(self, error: Floats, variance: Floats, rate: float) -> Floats:
        """Return the update of a mean for this error."""
        return np.where(error**2 > self._rule.jump**2 * variance, 1.0, max(rate, 1 / self._rounds)) * error

    def _spread(self, variance: Floats, squares: Floats) -> Floats:
        rate = max(_SPREAD_RATE, 1 / self._rounds)
        return np.maximum(variance + rate * (np.minimum(squares, _MOST_SURPRISE * variance) - variance), _LEAST_VARIANCE)


_ROUNDING = 1e-9  # tolerance of a sum of probabilities
BINS = 250  # steps of excess over the usual time
_LOWEST, _STEP = -1.0, 0.02  # of log time relative to the usual one: e^-1 to e^4 times as long
_EDGES = _LOWEST + _STEP * np.arange(BINS + 1)
_FORGOTTEN = 0.99  # share of a count that remains after each round
_ARRIVE, _PRIOR, _LEAST_PRIOR = 0.3, 5.0, 0.5  # prior: share that arrives per step, and its weight in workers' times
_GRID_REACH, _GRID_POINTS = 1.6, 160  # grid beyond the round's end: reach in log time, and number of points
_RATE, _DEVIATION_RATE = 0.2, 0.05  # weight of the newest round in a usual time and in its deviation
_JUMP, _LEAST_JUMP = 2.5, 0.1  # an error beyond this many mean deviations, and this log time, is a change of the usual time


class Distribution(NamedTuple):
    """The distribution of times in each column of a sample; mass that was never observed lies beyond every bound.

    The probability of a bound is shared equally among the times beyond it. Here one of four times was at least 2, so its
    true value is equally likely to be 3 or 9:

        >>> import numpy as np
        >>> times, finished = np.array([[9], [1], [3], [2]]), np.array([[True], [True], [True], [False]])
        >>> distribution = Distribution.estimate(times, finished)
        >>> distribution.times[:, 0].tolist(), distribution.mass[:, 0].tolist()
        ([1, 2, 3, 9], [0.25, 0.0, 0.375, 0.375])
        >>> distribution.quantile(0.5).tolist(), distribution.mad().tolist()
        ([3.0], [2.0])
    """

    times: Times  # ascending, ns [sample, columns]
    mass: Floats  # probability of each, summing to 1, or to less where the largest are bounds [sample, columns]

    @classmethod
    def estimate(cls, times: Times, finished: NDArray[np.bool_]) -> "Distribution":
        """Return the product-limit estimate of each column [sample, columns]; times not `finished` are lower bounds."""
        order = np.argsort(2 * times + ~finished, axis=0, kind="stable")  # of equal times, bounds come last
        at_risk = np.arange(len(times), 0, -1.0)[:, None]
        survival = np.cumprod(1 - np.take_along_axis(finished, order, axis=0) / at_risk, axis=0)
        return cls(np.take_along_axis(times, order, axis=0), np.diff(1 - survival, axis=0, prepend=0.0))

    def quantile(self, share: float) -> Floats:
        """Return the smallest time by which this share has finished, ns [columns]; inf where that was never observed."""
        return _reached(self.times.astype(float), self.mass, share)

    def mad(self) -> Floats:
        """Return the median absolute deviation from the median, ns [columns]; inf where the median was never observed."""
        median = self.quantile(0.5)
        observed = np.isfinite(median)
        deviation = np.abs(self.times - np.where(observed, median, 0.0))
        order = np.argsort(deviation, axis=0, kind="stable")
        ordered, mass = (np.take_along_axis(array, order, axis=0) for array in (deviation, self.mass))
        return np.where(observed, _reached(ordered, mass, 0.5), np.inf)


def _reached(values: Floats, mass: Floats, share: float) -> Floats:
    """Return the first of each column's ascending values where the cumulative mass reaches `share` [columns], or inf."""
    reached = np.cumsum(mass, axis=0) >= share - _ROUNDING
    return np.where(reached[-1], np.take_along_axis(values, reached.argmax(axis=0)[None], axis=0)[0], np.inf)


class Completion:
    """An estimator that completes rounds one after the other, giving dropped workers their expected times.

    A worker's usual log time follows its own times, as in `EWMA`. One histogram for all workers counts how far times exceed
    the usual ones, in steps of 2 %. A dropped worker counts as one that took longer than the round. These counts give the
    distribution of the missing times [Kaplan & Meier 1958]. Old counts decay. Beyond all observations, missing workers are
    expected soon; a rule that then waits for them finds out whether they come.

    Here the last of four workers that always took 1 s is dropped at 1.1 s:

        >>> import numpy as np
        >>> completion = Completion(4)
        >>> for _ in range(50):
        ...     times = completion.completed(np.ones(4), np.ones(4, bool))
        >>> times = np.array([1.0, 1.0, 1.0, 1.1])
        >>> completion.completed(times, np.array([True, True, True, False])).round(1).tolist()
        [1.0, 1.0, 1.0, 1.1]

    Args:
            workers: number of workers, n.
            excesses: histogram of how far times exceeded the usual ones before [bins]; None: nothing is known.
    """

    def __init__(self, workers: int, excesses: Floats | None = None):
        self._usual_logs, self._deviation, self._rounds = np.zeros(workers), np.zeros(workers), 0
        self.excesses = np.zeros(BINS) if excesses is None else excesses
        self.prior = _PRIOR  # weight of the prior, by which missing workers arrive soon
        self._lasted = np.zeros(BINS)  # histogram of dropped workers' excess over their usual time when the round ended

    @property
    def usual_seconds(self) -> Floats:
        """Return each worker's usual time, s [workers]."""
        return exp(self._usual_logs)

    def adapt_prior(self, arrived: bool) -> None:
        """Restore the prior's weight when a missing worker has arrived; halve it after a wait in which none did."""
        self.prior = _PRIOR if arrived else max(self.prior / 2, _LEAST_PRIOR)

    def completed(self, seconds: Floats, finished: NDArray[np.bool_]) -> Floats:
        """Return the times of all workers, ascending, s [workers], and learn from the round.

        Args:
            seconds: time of each worker; for dropped workers, the time until the round ended, s [workers].
            finished: True for workers that were not dropped [workers].
        """
        logs, dropped = log(seconds), ~finished
        self._rounds += 1
        if self._rounds == 1:
            self._begin(logs)
            return np.sort(seconds)
        all_times, expected = np.sort(seconds), logs.copy()
        if dropped.any():
            missing, expected[dropped] = self._missing(float(logs[dropped].max()), self._usual_logs[dropped])
            all_times = np.concatenate((np.sort(seconds[finished]), missing))
        self._count(logs, finished)
        self._follow(expected)
        return all_times

    def _begin(self, logs: Floats) -> None:
        middle = np.sort(logs)[len(logs) // 2]
        self._usual_logs = logs
        self._deviation = np.full(len(logs), max(np.sort(np.abs(logs - middle))[len(logs) // 2], _STEP))

    def _missing(self, end: float, usual_logs: Floats) -> tuple[Floats, Floats]:
        """Return the dropped workers' times, ascending, s, and the expected log time of each, both [dropped].

        Args:
            end: log of the time at which the round ended.
            usual_logs: usual log times of the dropped workers [dropped].
        """
        # Summed over workers, the complement of `still_computing` is the expected number of arrivals, hence the ordered times.
        # Its differences are each worker's distribution, hence its expected log time.
        reach = max(_GRID_REACH, float(usual_logs.max()) - end + _GRID_REACH / 2)
        grid = end + reach * np.linspace(0, 1, _GRID_POINTS) ** 2
        still_computing = self._still_computing(grid, end, usual_logs)
        arrived = np.add.reduce(1 - still_computing, axis=0)
        log_time_shares = np.ascontiguousarray(-np.diff(still_computing, axis=1).T) * ((grid[1:] + grid[:-1]) / 2)[:, None]
        return between_ranks(arrived, exp(grid), len(usual_logs)), np.cumsum(log_time_shares, axis=0)[-1]

    def _still_computing(self, grid: Floats, end: float, usual_logs: Floats) -> Floats:
        """Return the probability that a worker has not finished by a point of the grid, given that it had not at `end`.

        Its shape is [dropped, points]. Workers that are missing at the end of the grid arrive in its last step.
        """
        survival = self._survival()
        beyond = np.interp(grid - usual_logs[:, None], _EDGES, survival)
        still_computing: Floats = beyond / np.interp(end - usual_logs, _EDGES, survival)[:, None]
        still_computing[:, -1] = 0.0
        return still_computing

    def _survival(self) -> Floats:
        """Return the share of times that exceed the usual one by more than each edge [bins + 1]."""
        exits = self.excesses + self._lasted
        at_risk = np.cumsum(exits[::-1])[::-1]
        hazard = (self.excesses + self.prior * _ARRIVE) / (at_risk + self.prior)
        return np.concatenate(([1.0], np.cumprod(1 - np.minimum(hazard, 0.95))))

    def _count(self, logs: Floats, finished: NDArray[np.bool_]) -> None:
        bins = np.clip(((logs - self._usual_logs - _LOWEST) / _STEP).astype(np.int64), 0, BINS - 1)
        self.excesses = _FORGOTTEN * self.excesses + np.bincount(bins[finished], minlength=BINS)
        self._lasted = _FORGOTTEN * self._lasted + np.bincount(bins[~finished], minlength=BINS)

    def _follow(self, expected: Floats) -> None:
        error = expected - self._usual_logs
        changed = np.abs(error) > np.maximum(_JUMP * self._deviation, _LEAST_JUMP)
        self._usual_logs = self._usual_logs + np.where(changed, 1.0, max(_RATE, 1 / self._rounds)) * error
        nearest = np.minimum(np.abs(error), 3 * self._deviation)
        self._deviation = np.maximum(self._deviation + _DEVIATION_RATE * (nearest - self._deviation), 0.01)


def excesses_of(seconds: Floats) -> Floats:
    """Return the histogram of how far times exceeded the usual ones in complete rounds, s [iterations, workers]: [bins]."""
    completion = Completion(seconds.shape[1])
    for row in seconds:
        completion.completed(row, np.ones(len(row), bool))
    return completion.excesses
