"""Constant rules: a count, a deadline, or both, given or found in training [Chen et al. 2016; Giladi et al. 2023]."""

import math
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.contention import NodeOf
from fred.cluster.durations import NANOSECONDS, nanoseconds
from fred.components.component import Count, Duration
from fred.prediction.contract import Always, Chooser, CutoffRule, Deadline, Objective, Progress, Times, UntrainedError
from fred.prediction.lognormal import Floats

Value = TypeVar("Value", int, float)


class FixedCount(CutoffRule):
    """A fixed number of workers in every round, given or found in training [Chen et al. 2016].

    Here the last of four workers is always late. Three gradients in 2.4 s are more per second than any other number:

        >>> import numpy as np
        >>> from fred.prediction.fixed import FixedCount
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
        return Always(_possible("count", self.workers, node_of))

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress = lambda share: None) -> Self:
        """Return the rule with the best number for `seconds` [iterations, workers], unless a number is given."""
        if self.workers is not None:
            return self
        _check_any(seconds)
        progress(1.0)
        return self.model_copy(update={"workers": _best_count(np.sort(seconds, axis=1), self.objective)})


class FixedDeadline(CutoffRule):
    """A fixed deadline in every round, given or found in training [DropCompute, Giladi et al. 2023].

    The best deadline gives the most gradients per time over all rounds. Between two recorded times, a later deadline gains
    no worker. So the best deadline is one of the recorded times, and training tries each.

    Here sometimes one of four workers is late, and sometimes two:

        >>> import numpy as np
        >>> from fred.prediction.fixed import FixedDeadline
        >>> seconds = np.array([[1.0, 1.1, 1.2, 4.0], [1.1, 4.5, 1.0, 4.2]])
        >>> FixedDeadline().trained(seconds, node_of=np.zeros(4, np.int64)).seconds
        1.2
    """

    seconds: Duration | None = Field(
        default=None, description="deadline from the start of a round, s; absent: found in training", examples=[1.0]
    )

    def start(self, node_of: NodeOf) -> Chooser:
        return Always(Deadline.after(_given("deadline", "seconds", self.seconds)))

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress = lambda share: None) -> Self:
        """Return the rule with the best deadline for `seconds` [iterations, workers], unless a deadline is given."""
        if self.seconds is not None:
            return self
        _check_any(seconds)
        found = _best_deadline(seconds)
        progress(1.0)
        return self.model_copy(update={"seconds": found})


class FixedCountOrDeadline(CutoffRule):
    """A fixed count and deadline: a round ends with the c-th worker or at the deadline, whichever is first.

    Both are given or found in training, which takes the best number as by `count`, and for it the best deadline. Here the
    last of four workers is always late, and once two are:

        >>> import numpy as np
        >>> from fred.prediction.fixed import FixedCountOrDeadline
        >>> seconds = np.array([[1.0, 1.1, 1.2, 4.0], [1.1, 4.5, 1.0, 1.2], [1.0, 1.1, 3.0, 3.1]])
        >>> found = FixedCountOrDeadline().trained(seconds, node_of=np.zeros(4, np.int64))
        >>> found.workers, found.seconds
        (2, 1.1)
    """

    workers: Count | None = Field(
        default=None, description="workers that end a round, c; absent: found in training", examples=[1]
    )
    seconds: Duration | None = Field(
        default=None, description="deadline from the start of a round, s; absent: found in training", examples=[1.0]
    )

    def start(self, node_of: NodeOf) -> Chooser:
        workers = _possible("count-or-deadline", self.workers, node_of)
        return Always(Deadline.after(_given("count-or-deadline", "seconds", self.seconds), workers))

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress = lambda share: None) -> Self:
        """Return the rule with the best number and deadline for `seconds` [iterations, workers], unless they are given."""
        if self.workers is not None and self.seconds is not None:
            return self
        _check_any(seconds)
        ordered = np.sort(seconds, axis=1)
        workers = self.workers or _best_count(ordered, "throughput", self.seconds)
        found = self.seconds or _best_deadline(ordered[:, :workers])
        progress(1.0)
        return self.model_copy(update={"workers": workers, "seconds": found})


def _given(rule: str, option: str, value: Value | None) -> Value:
    """Return the option's value. Raises UntrainedError if it is neither given nor trained."""
    if value is None:
        raise UntrainedError(f"`{rule}` needs `{option}`, or training on recorded rounds (as by `fred cutoffs`)")
    return value


def _possible(rule: str, workers: int | None, node_of: NodeOf) -> int:
    """Return the number of workers. Raises ValueError if there is none, or it exceeds the cluster's number of workers."""
    number = _given(rule, "workers", workers)
    if number > len(node_of):
        raise ValueError(f"`workers` ({number}) must not exceed the cluster's {len(node_of)}")
    return number


def _check_any(seconds: Floats) -> None:
    """Raise ValueError if there are no iterations."""
    if len(seconds) == 0:
        raise ValueError("no iterations to find the best number or deadline in")


def _best_count(ordered: Floats, objective: Objective, deadline: float | None = None) -> int:
    """Return the best number of workers for order statistics x_(1) .. x_(n), s [iterations, workers].

    With a deadline, s, every round ends by then, but not before its first worker.
    """
    ends = np.maximum(ordered[:, :1], math.inf if deadline is None else deadline)
    counts, times = np.add.accumulate(ordered <= ends, axis=1), np.minimum(ordered, ends)
    if objective == "throughput":
        return 1 + int(np.argmax(np.add.reduce(counts, axis=0) / np.add.reduce(times, axis=0)))
    return 1 + int(np.argmax(np.add.reduce(counts / times, axis=0)))


def _best_deadline(seconds: Floats) -> float:
    """Return the deadline, s, with the most gradients per time in rounds that end when all are done: [iterations, workers]."""
    deadlines, rates = _rates(np.maximum(nanoseconds(seconds), 1))
    return int(deadlines[np.argmax(rates)]) / NANOSECONDS


def _rates(times: Times) -> tuple[Times, Floats]:
    """Return all times as deadlines, ascending, and the gradients per ns of each: [rounds x workers]; `times` are in ns."""
    deadlines, first, last = np.sort(times, axis=None), np.sort(times.min(axis=1)), np.sort(times.max(axis=1))
    begun, complete = (np.searchsorted(each, deadlines, side="right") for each in (first, last))  # rounds by each deadline
    until_first, until_last = (np.append(0, np.cumsum(each)) for each in (first, last))
    alone = len(times) - begun  # rounds without a worker in time: they wait for the first
    gradients = np.searchsorted(deadlines, deadlines, side="right") + alone
    time = until_last[complete] + deadlines * (begun - complete) + until_first[-1] - until_first[begun]
    return deadlines, gradients / time
