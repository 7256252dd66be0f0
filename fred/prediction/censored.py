"""Censored times, of which some are only known to exceed a bound: their distribution, and estimates of the missing ones.

`Distribution` is the product-limit estimate [Kaplan & Meier 1958]. `Completion` estimates dropped workers' times from their
usual times and from how late all workers were before.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.numerics import exp, log
from fred.prediction.contract import Times
from fred.prediction.predictive import Floats, between_ranks

_ROUNDING = 1e-9  # tolerance of a sum of probabilities
BINS = 250  # steps of excess over the usual time
_LOWEST, _STEP = -1.0, 0.02  # of log time relative to the usual one: e^-1 to e^4 times as long
_EDGES = _LOWEST + _STEP * np.arange(BINS + 1)
_FORGOTTEN = 0.99  # share of a count that remains after each round
_ARRIVE, _PRIOR, _LEAST_PRIOR = 0.3, 5.0, 0.5  # prior: share that arrives per step, and its weight in workers' times
_GRID_REACH, _GRID_POINTS = 1.6, 160  # grid beyond the round's end: reach in log time, and number of points
_RATE, _SPREAD_RATE = 0.2, 0.05  # weight of the newest round in a usual time and in its deviation
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
        self._deviation = np.maximum(self._deviation + _SPREAD_RATE * (nearest - self._deviation), 0.01)


def excesses_of(seconds: Floats) -> Floats:
    """Return the histogram of how far times exceeded the usual ones in complete rounds, s [iterations, workers]: [bins]."""
    completion = Completion(seconds.shape[1])
    for row in seconds:
        completion.completed(row, np.ones(len(row), bool))
    return completion.excesses
