"""Simple rules: a constant count or deadline, a deadline from recent times, and dynamic backup workers.

| name                                            | source                               |
|-------------------------------------------------|--------------------------------------|
| FixedCount, FixedDeadline, FixedCountOrDeadline | Chen et al. 2016; Giladi et al. 2023 |
| MADDeadline                                     | Hampel 1974; Leys et al. 2013        |
| DynamicBackup                                   | Xu, Neglia & Sebastianelli 2020      |

A constant count, deadline, or both are given or found in training. `MADDeadline` takes its deadline from the median of recent
times and their median absolute deviation. `DynamicBackup` waits for the k with the largest expected decrease of the loss per
time.

`Distribution` is the product-limit estimate [Kaplan & Meier 1958].
"""

import math
from collections import deque
from typing import Annotated, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.base.types import Floats, OnProgress
from fred.cluster.contention import NodeOf
from fred.cluster.durations import nanoseconds
from fred.components.component import NANOSECONDS, Count, Duration
from fred.prediction.contract import (
    Always,
    By,
    Choice,
    Chooser,
    CutoffRule,
    Deadline,
    Maximizer,
    Objective,
    Times,
    UntrainedError,
)
from fred.prediction.predictive import Predictive, WindowMeans

Value = TypeVar("Value", int, float)
_BACKOFF = 2  # factor by which a deadline that was too early is extended, as in RFC 6298 (5.5)
_ROUNDING = 1e-9  # tolerance of a sum of probabilities
_LEAST_SHARE = 0.25  # share of the workers: half of those expected by the median


class FixedCount(CutoffRule):
    """A fixed number of workers in every round, given or found in training [Chen et al. 2016].

    Here the last of four workers is always late. Three gradients in 2.4 s are more per second than any other number:

        >>> import numpy as np
        >>> from fred.prediction.simple_rules import FixedCount
        >>> seconds = np.array([[1.0, 1.1, 1.2, 4.0], [1.1, 4.5, 1.0, 1.2]])
        >>> FixedCount().trained(seconds, node_of=np.zeros(4, np.int64)).workers
        3
        >>> FixedCount(workers=5).start(np.zeros(4, np.int64))
        Traceback (most recent call last):
        ValueError: `workers` (5) must not exceed the cluster's 4
    """

    workers: Count | None = Field(
        default=None, description="number of workers to wait for, c; absent: found in training", examples=[1]
    )
    objective: Objective = Field(
        default="throughput",
        description="quantity that training maximises: the sum of c / the sum of x_(c), or the mean of c / x_(c)",
    )

    def start(self, node_of: NodeOf) -> Chooser:
        return Always(_check_workers("count", self.workers, node_of))

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: OnProgress = lambda share: None) -> Self:
        """Return the rule with the best number for `seconds` [iterations, workers], unless a number is given."""
        if self.workers is not None:
            return self
        _check_nonempty(seconds)
        progress(1.0)
        return self.model_copy(update={"workers": _best_count(np.sort(seconds, axis=1), self.objective)})


class FixedDeadline(CutoffRule):
    """A fixed deadline in every round, given or found in training [DropCompute, Giladi et al. 2023].

    The best deadline gives the most gradients per time over all rounds. Between two recorded times, a later deadline gains
    no worker. So the best deadline is one of the recorded times, and training tries each.

    Here sometimes one of four workers is late, and sometimes two:

        >>> import numpy as np
        >>> from fred.prediction.simple_rules import FixedDeadline
        >>> seconds = np.array([[1.0, 1.1, 1.2, 4.0], [1.1, 4.5, 1.0, 4.2]])
        >>> FixedDeadline().trained(seconds, node_of=np.zeros(4, np.int64)).seconds
        1.2
    """

    seconds: Duration | None = Field(
        default=None, description="deadline from the start of a round, s; absent: found in training", examples=[1.0]
    )

    def start(self, node_of: NodeOf) -> Chooser:
        return Always(Deadline.after(_require("deadline", "seconds", self.seconds)))

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: OnProgress = lambda share: None) -> Self:
        """Return the rule with the best deadline for `seconds` [iterations, workers], unless a deadline is given."""
        if self.seconds is not None:
            return self
        _check_nonempty(seconds)
        deadline = _best_deadline(seconds)
        progress(1.0)
        return self.model_copy(update={"seconds": deadline})


class FixedCountOrDeadline(CutoffRule):
    """A fixed count and deadline: a round ends with the c-th worker or at the deadline, whichever is first.

    Both are given or found in training, which takes the best number as by `count`, and for it the best deadline. Here the
    last of four workers is always late, and once two are:

        >>> import numpy as np
        >>> from fred.prediction.simple_rules import FixedCountOrDeadline
        >>> seconds = np.array([[1.0, 1.1, 1.2, 4.0], [1.1, 4.5, 1.0, 1.2], [1.0, 1.1, 3.0, 3.1]])
        >>> rule = FixedCountOrDeadline().trained(seconds, node_of=np.zeros(4, np.int64))
        >>> rule.workers, rule.seconds
        (2, 1.1)
    """

    workers: Count | None = Field(
        default=None, description="workers that end a round, c; absent: found in training", examples=[1]
    )
    seconds: Duration | None = Field(
        default=None, description="deadline from the start of a round, s; absent: found in training", examples=[1.0]
    )

    def start(self, node_of: NodeOf) -> Chooser:
        workers = _check_workers("count-or-deadline", self.workers, node_of)
        return Always(Deadline.after(_require("count-or-deadline", "seconds", self.seconds), workers))

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: OnProgress = lambda share: None) -> Self:
        """Return the rule with the best number and deadline for `seconds` [iterations, workers], unless they are given."""
        if self.workers is not None and self.seconds is not None:
            return self
        _check_nonempty(seconds)
        ordered = np.sort(seconds, axis=1)
        workers = self.workers or _best_count(ordered, "throughput", self.seconds)
        deadline = self.seconds or _best_deadline(ordered[:, :workers])
        progress(1.0)
        return self.model_copy(update={"workers": workers, "seconds": deadline})


def _require(rule: str, option: str, value: Value | None) -> Value:
    """Return the option's value. Raises UntrainedError if it is neither given nor trained."""
    if value is None:
        raise UntrainedError(f"`{rule}` needs `{option}`, or training on recorded rounds (as by `fred cutoffs`)")
    return value


def _check_workers(rule: str, workers: int | None, node_of: NodeOf) -> int:
    """Return the number of workers. Raises ValueError if there is none, or it exceeds the cluster's number of workers."""
    count = _require(rule, "workers", workers)
    if count > len(node_of):
        raise ValueError(f"`workers` ({count}) must not exceed the cluster's {len(node_of)}")
    return count


def _check_nonempty(seconds: Floats) -> None:
    """Raise ValueError if there are no iterations."""
    if len(seconds) == 0:
        raise ValueError("no iterations to find the best number or deadline in")


def _best_count(ordered: Floats, objective: Objective, deadline: float | None = None) -> int:
    """Return the best number of workers for order statistics x_(1) .. x_(n), s [iterations, workers].

    With a deadline, s, every round ends by then, but not before its first worker.
    """
    latest_ends = np.maximum(ordered[:, :1], math.inf if deadline is None else deadline)
    # Gradients and duration of each round if it waits for 1 .. n workers [iterations, workers].
    counts, times = np.add.accumulate(ordered <= latest_ends, axis=1), np.minimum(ordered, latest_ends)
    if objective == "throughput":
        return 1 + int(np.argmax(np.add.reduce(counts, axis=0) / np.add.reduce(times, axis=0)))
    return 1 + int(np.argmax(np.add.reduce(counts / times, axis=0)))


def _best_deadline(seconds: Floats) -> float:
    """Return the deadline, s, with the most gradients per time in rounds that end when all are done: [iterations, workers]."""
    deadlines, rates = _rates(np.maximum(nanoseconds(seconds), 1))
    return int(deadlines[np.argmax(rates)]) / NANOSECONDS


def _rates(times: Times) -> tuple[Times, Floats]:
    """Return all times as deadlines, ascending, and the gradients per ns of each: [rounds x workers]; `times` are in ns."""
    # The total duration of all rounds under every deadline d at once: a round whose last worker is in time ends with it, one
    # without a worker in time ends with its first, and any other ends at d. After sorting, each of these sums is a cumulative
    # sum up to a position, so a trace costs one sort, not one pass per deadline.
    deadlines, first, last = np.sort(times, axis=None), np.sort(times.min(axis=1)), np.sort(times.max(axis=1))
    # Rounds whose first worker, and whose last, is in time, for each deadline.
    with_first, with_last = (np.searchsorted(ends, deadlines, side="right") for ends in (first, last))
    first_sums, last_sums = (np.append(0, np.cumsum(ends)) for ends in (first, last))
    empty_rounds = len(times) - with_first  # rounds without a worker in time: they wait for the first
    gradients = np.searchsorted(deadlines, deadlines, side="right") + empty_rounds
    time = last_sums[with_last] + deadlines * (with_first - with_last) + first_sums[-1] - first_sums[with_first]
    return deadlines, gradients / time


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
        at_risk = np.arange(len(times), 0, -1.0)[:, None]  # times that have not passed before each position
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


class MADDeadline(CutoffRule):
    """A deadline at the median of recent times plus `k` median absolute deviations [Hampel 1974; Leys et al. 2013].

    The median absolute deviations (MAD) are unscaled. Hampel multiplies them by 1.4826 to get standard deviations of normal
    times. So k = 3 is 2.0 standard deviations, and k = 4.45 is 3. Times of dropped workers are bounds [Kaplan & Meier
    1958].

    `pooled`: all workers' times form one sample, as in Spark's speculative execution (a multiple of the median over a
    stage's tasks). `worker`: every worker has a deadline from its own times, as every connection has its retransmission
    timeout [Jacobson 1988; RFC 6298]. The round ends at the latest of these deadlines, since no worker is late before its
    own.

    A rule based on recent times sees nothing beyond its own deadlines; if it trusted them, it would drop more and more
    workers. So sometimes the next deadline is at least twice as late as the last round's end (RFC 6298, 5.5). This happens
    if the median was not observed, or if less than a quarter of the workers made the last deadline, until enough workers
    finish. The rule notices a faster cluster at once.

    Here the median time is 11, and half of the times are within 1 of it:

        >>> import numpy as np
        >>> from fred.prediction.simple_rules import MADDeadline
        >>> chooser = MADDeadline(k=3).start(np.zeros(5, np.int64))
        >>> first = chooser.choose(np.array([], np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 9, 40]), finished=np.ones(5, bool))
        >>> first, chooser.choose(np.array([], np.int64))
        (5, Deadline(ns=14, workers=None))
    """

    of: Literal["pooled", "worker"] = Field(
        default="pooled", description="sample that a deadline is taken from: all workers' times, or each worker's own"
    )
    window: Count = Field(default=20, description="number of last rounds that are used")
    k: float = Field(
        default=3.0, gt=0, description="median absolute deviations beyond the median, not scaled to standard deviations"
    )

    def start(self, node_of: NodeOf) -> Chooser:
        return _FromWindow(self, len(node_of))


class _FromWindow(Chooser):
    def __init__(self, rule: MADDeadline, workers: int):
        self._rule, self._workers = rule, workers
        self._times: deque[Times] = deque(maxlen=rule.window)
        self._finished: deque[NDArray[np.bool_]] = deque(maxlen=rule.window)

    def choose(self, times: Times) -> Choice:
        """Return all workers until a round was observed, then a deadline; `times` are ignored."""
        if not self._times:
            return self._workers
        columns = self._workers if self._rule.of == "worker" else 1
        recent = Distribution.estimate(np.reshape(self._times, (-1, columns)), np.reshape(self._finished, (-1, columns)))
        deadlines = recent.quantile(0.5) + self._rule.k * recent.mad()  # infinite where the median was not observed
        observed = np.isfinite(deadlines)
        latest = int(deadlines[observed].max(initial=0.0))
        if not observed.all() or self._finished[-1].sum() < _LEAST_SHARE * self._workers:
            latest = max(latest, _BACKOFF * int(self._times[-1].max()))
        return Deadline(latest)

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        self._times.append(times)
        self._finished.append(finished)


class DynamicBackup(Predictive):
    """Dynamic backup workers: wait for the k with the largest expected gain per time, where gains level off with k.

    A step of rate eta along the mean of k gradients lowers the loss by at least (eta - L eta^2 / 2) |g|^2 - (L eta^2 / 2) V
    / k (arXiv 2004.14696). Here L is the smoothness of the loss, g its gradient, and V the variance of one worker's
    gradient. So the gain is proportional to 1 - noise / k, with noise = L eta / (2 - L eta) V / |g|^2. The paper estimates
    |g|^2, V and L from the gradients on arrival. With `noise: measured` the algorithm, such as `dbw`, reports that
    estimate. A rule that sees only times cannot compute it: give `noise`, which may grow from round to round as the
    gradient shrinks. Durations are means over the last rounds, as in the rule `empirical`. The paper's estimate also
    depends on the k of two successive rounds, because its late workers continue; FRED's late workers are dropped.

    With noisier gradients, more of them are worth waiting for:

        >>> import numpy as np
        >>> from fred.prediction.simple_rules import DynamicBackup
        >>> def chosen(noise):
        ...     chooser = DynamicBackup(noise=noise, objective="round").start(np.zeros(4, np.int64))
        ...     chooser.observe(np.array([10, 15, 20, 60]) * 10**8, finished=np.ones(4, bool))
        ...     return chooser.choose(np.array([], np.int64))
        >>> [chosen(noise) for noise in (0.0, 1.0, 3.5)]
        [1, 3, 4]
    """

    noise: Annotated[float, Field(ge=0)] | Literal["measured"] = Field(
        default=10.0, description="gradients below which a round gains nothing (above); `measured`: the algorithm's statistic"
    )
    by: By = Field(
        default="count", description="what ends a round: `count`, its k-th worker, as published; `deadline`; or both"
    )
    window: Count = Field(default=20, description="number of rounds over which durations are averaged")

    @property
    def needs_values(self) -> bool:
        """Return True if the noise is measured from the gradients."""
        return self.noise == "measured"

    def start(self, node_of: NodeOf) -> Chooser:
        return _GainPerTime(self, len(node_of))


class _GainPerTime(WindowMeans):
    def __init__(self, rule: DynamicBackup, workers: int):
        super().__init__(rule, workers, rule.window)
        self._noise = math.inf if rule.noise == "measured" else rule.noise
        self._maximizer = Maximizer(rule.objective, self.least, worth=self._gain)

    def _gain(self, counts: Floats) -> Floats:
        return 1 - self._noise / counts

    def hear(self, statistic: float) -> None:
        """Store the noise measured from the gradients so far."""
        self._noise = statistic
