"""Detection of step times that contain waiting: a worker that waits for the slowest takes as long as it does.

| sign                                                | reason                                                             |
|-----------------------------------------------------|--------------------------------------------------------------------|
| iterations vary more than workers within one        | all workers take the time of the slowest; clocks differ by little  |
| differences do not grow with an iteration's time    | clocks add to a time; lengths of inputs, which all share, scale it |
| a worker that is late is early in the next one      | the same event ends one time and starts the next; not so if late   |
|                                                     | times come again regularly: pauses by turns                        |
| sums over H iterations are equal, from one phase on | all workers meet every H iterations                                |

The thresholds were chosen on simulated logs and judged on other kinds and seeds; the page "Read trace files" has the rates.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy

from fred.base.types import Floats

_FEWEST_ITERATIONS = 8  # iterations from which waiting can be seen
_NORMAL = 1.4826  # standard deviation of a normal variable, relative to its median absolute deviation
_ONE_SIDED = 1.64  # standard errors of a 95 % bound
_EFFICIENCY = 0.35  # independent observations in a variance from absolute differences, relative to their number
_POSSIBLE_CORRELATION = 0.9  # correlation of workers from which times may contain waiting
_CERTAIN_CORRELATION = 0.97  # correlation of workers from which times contain waiting
_GROWING_POWER, _CONSTANT_POWER = 0.25, 0.5  # growth of deviations with a round's time, as a power: surely above, surely below
_NARROW_ROUNDS = 0.08  # deviation of rounds up to which no lengths of inputs are suspected
_PERIOD = 9  # longest period of pauses of all workers at once that no differences between rounds are made of
_STANDARD_ERRORS = 4.0  # standard errors of a correlation
_FOLLOWING = -0.25  # correlation of successive deviations from which the same event ends one time and begins the next
_MEETS, _MEETS_RELATIVE = 0.15, 0.25  # variance of sums: relative to independent times, and to sums from other iterations on
_FALSE_ALARM_RATE = 1e-4  # probability that independent times meet at any interval and phase
_COMPENSATION = 0.5  # variance of sums relative to that without the longest times, from which these are waits
_LONGEST_INTERVAL = 64  # longest interval between meetings, or between pauses, that is tried
_GROUP_DIFFERENCE = 0.2  # difference within a group, relative to that of other pairs


@dataclass(frozen=True)
class Waiting:
    """Signs of waiting in the times of a trace.

    Args:
        state: `no`, `possible` or `certain`; `groups` if only workers of the same group wait for one another.
        worker_deviation: standard deviation of workers within a round, as a share of the time.
        round_deviation: standard deviation of rounds, as a share of the time, without trends.
        correlation: correlation of two workers from these, 0 to 1.
        in_step: True if workers that are late in an iteration are early in the next.
        every: number of iterations between two meetings of all workers, if that is how it shows; 0 otherwise.
        groups: numbers of the workers in each group of two or more whose members wait for one another.
    """

    state: Literal["no", "possible", "certain", "groups"] = "no"
    worker_deviation: float = 0.0
    round_deviation: float = 0.0
    correlation: float = 0.0
    in_step: bool = False
    every: int = 0
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def certain(self) -> bool:
        """Return True if the times cannot be compute times, so that nothing follows from them."""
        return self.state == "certain"

    @property
    def evidence(self) -> str:
        """Return the evidence for waiting of all workers in a sentence."""
        if self.every:
            return f"The sums of {self.every} iterations are equal for all workers: they meet every {self.every} iterations."
        workers, rounds = _percent(self.worker_deviation), _percent(self.round_deviation)
        spread = f"workers differ by {workers} within an iteration, iterations by {rounds}"
        if self.in_step:
            return f"A worker that is late in one iteration is early in the next, so all keep in step; {spread}."
        return f"{spread.capitalize()}; the correlation of workers is {self.correlation:.2f}."

    def json(self) -> dict[str, Any]:
        """Return all of it as a JSON object."""
        numbers = {"within": self.worker_deviation, "between": self.round_deviation, "correlation": self.correlation}
        signs = {"in_step": self.in_step, "every": self.every, "groups": [list(group) for group in self.groups]}
        return {"state": self.state, **numbers, **signs}


def find_waiting(seconds: Floats) -> Waiting:
    """Return the signs of waiting in step times; `no` for fewer than eight iterations or two workers.

    Args:
        seconds: step times, s [iterations, workers], all positive.

    >>> rng = np.random.default_rng(0)
    >>> computing = rng.lognormal(-1, 0.05, (100, 4)) * [1, 2, 1, 1]
    >>> find_waiting(computing).state
    'no'
    >>> waiting = computing.max(axis=1, keepdims=True) + rng.normal(0, 0.001, (100, 4))
    >>> find_waiting(waiting).state
    'certain'
    """
    iterations, workers = seconds.shape
    if iterations < _FEWEST_ITERATIONS or workers < 2:
        return Waiting()
    worker_deviation, round_deviation = _robust_deviations(np.log(seconds))
    correlation = _correlation(worker_deviation, round_deviation)
    if _keeps_in_step(seconds):
        return Waiting("certain", worker_deviation, round_deviation, correlation, in_step=True)
    power, width = _growth(seconds)
    is_possible = correlation >= _POSSIBLE_CORRELATION and power - width <= _GROWING_POWER
    lower_bound = _correlation(worker_deviation, round_deviation * _lower_bound(iterations, workers))
    is_significant = correlation >= _CERTAIN_CORRELATION and lower_bound >= _POSSIBLE_CORRELATION
    # Then workers differ by their clocks, not because inputs of varying length stretch the times of all.
    differ_by_clocks = not worker_deviation or round_deviation <= _NARROW_ROUNDS or power + width <= _CONSTANT_POWER
    if is_possible and is_significant and differ_by_clocks:
        return Waiting("certain", worker_deviation, round_deviation, correlation)
    if every := next(_find_meetings(seconds), 0):
        return Waiting("certain", worker_deviation, round_deviation, correlation, every=every)
    if is_possible:
        return Waiting("possible", worker_deviation, round_deviation, correlation)
    groups = _find_groups(np.log(seconds))
    return Waiting("groups" if groups else "no", worker_deviation, round_deviation, correlation, groups=groups)


def _robust_deviations(logs: Floats) -> tuple[float, float]:
    """Return robust deviations of workers within a round, levels removed, and of rounds, trends and regular pauses removed."""
    centre = np.median(logs, axis=1, keepdims=True)
    deviations = logs - centre
    workers = logs.shape[1]
    spread = _NORMAL * float(np.median(np.abs(deviations - np.median(deviations, axis=0))))
    worker_deviation = spread * math.sqrt(workers / (workers - 1))
    # The variance of rounds comes from second differences, which remove a linear trend and have 1 + 4 + 1 = 6 times the
    # variance of independent rounds. Pauses of all workers every i rounds vanish from differences over i rounds, therefore
    # the smallest of several distances counts. The part that comes from the workers' own variation is subtracted.
    round_logs = centre[:, 0]
    periods = range(1, max(1, min(_PERIOD, len(logs) // _FEWEST_ITERATIONS)) + 1)
    bends = (round_logs[2 * i :] - 2 * round_logs[i:-i] + round_logs[: -2 * i] for i in periods)
    median_deviation = min(_NORMAL * float(np.median(np.abs(bend))) / math.sqrt(6) for bend in bends)
    return worker_deviation, math.sqrt(max(0.0, median_deviation**2 - worker_deviation**2 / workers))


def _correlation(worker_deviation: float, round_deviation: float) -> float:
    """Return the correlation of two workers from the deviations of workers and rounds."""
    return round_deviation**2 / (round_deviation**2 + worker_deviation**2) if round_deviation else 0.0


def _lower_bound(iterations: int, workers: int) -> float:
    """Return the factor from a ratio of deviations, of rounds and within rounds, to its lower bound."""
    # The logarithm of a deviation from n independent observations has the variance 1 / (2 n).
    observations = _EFFICIENCY * (iterations - 1)
    return math.exp(-_ONE_SIDED * math.sqrt(0.5 / observations + 0.5 / (observations * (workers - 1))))


def _growth(seconds: Floats) -> tuple[float, float]:
    """Return the power with which differences within a round grow with its time, and the width of its one-sided bound.

    Inputs of varying length, which all workers share, give a power of 1; inexact clocks one of 0.
    """
    centre = np.median(seconds, axis=1)
    deviations = np.abs(seconds - centre[:, None]).mean(1)
    usable = deviations > 0
    x, y = np.log(centre[usable]), np.log(deviations[usable])
    x -= x.mean() if len(x) else 0.0
    square = float(x @ x)
    if len(x) < _FEWEST_ITERATIONS or not square:
        return 0.0, math.inf
    power = float(x @ y) / square
    residuals = y - y.mean() - power * x
    return power, _ONE_SIDED * math.sqrt(float(residuals @ residuals) / (len(x) - 2) / square)


def _keeps_in_step(seconds: Floats) -> bool:
    """Return True if a deviation within a round is undone in the next: workers keep in step although clocks differ."""
    deviations = seconds - seconds.mean(1, keepdims=True)
    limit = 4 * _NORMAL * np.median(np.abs(deviations))
    deviations = np.clip(deviations, -limit, limit)  # long pauses count like four standard deviations
    square = float((deviations**2).sum())
    if not square:
        return False
    correlation = float((deviations[1:] * deviations[:-1]).sum()) / square
    error = 1 / math.sqrt(deviations.size - len(deviations))  # the deviations of a round add up to 0: one less is independent
    return (
        correlation + _STANDARD_ERRORS * error < 0
        and correlation < _FOLLOWING
        and not _are_periodic(deviations, -correlation / 2)
    )


def _are_periodic(deviations: Floats, threshold: float) -> bool:
    """Return True if deviations come again after some iterations, as regular pauses do and errors of clocks do not."""
    square = float((deviations**2).mean())
    for lag in range(2, min(_LONGEST_INTERVAL, len(deviations) // 2) + 1):
        products = deviations[lag:] * deviations[:-lag]
        error = 1 / math.sqrt(products.size - len(products))
        if float(products.mean()) / square > max(threshold, _STANDARD_ERRORS * error):
            return True
    return False


def _find_meetings(seconds: Floats) -> Iterator[int]:
    """Yield the intervals, in iterations, after which all workers have taken the same time, from one phase on."""
    iterations, workers = seconds.shape
    deviations = seconds - seconds.mean(1, keepdims=True)
    cumulated = np.concatenate((np.zeros((1, workers)), np.cumsum(deviations, axis=0)))
    iteration_squares = (deviations**2).sum(1)
    cumulated_squares = np.concatenate(([0.0], np.cumsum(iteration_squares)))
    products = deviations.T @ deviations
    # Workers that vary together, or a few long pauses, carry less evidence than their number. The square of a sum of variances
    # over the sum of their squares is the number of independent ones, for workers (from the eigenvalues of their covariance)
    # and for iterations. The sum of squares at the meetings then follows a chi-squared distribution, and the probability of
    # chance is divided by the number of intervals and phases.
    independent_workers = float(np.trace(products)) ** 2 / (float((products**2).sum()) or 1.0)
    independent_iterations = float(iteration_squares.sum()) ** 2 / (float(iteration_squares @ iteration_squares) or 1.0)
    longest = min(_LONGEST_INTERVAL, iterations // 4)
    significance = _FALSE_ALARM_RATE / max(1, longest * (longest + 1) // 2 - 1)
    for every in range(2, longest + 1):
        sum_squares = ((cumulated[every:] - cumulated[:-every]) ** 2).sum(1)  # of sums over `every` iterations, by the first
        expected_squares = cumulated_squares[every:] - cumulated_squares[:-every]  # the same for independent times
        phases = [(sum_squares[phase::every], expected_squares[phase::every]) for phase in range(every)]
        variances = np.array([float(observed.sum() / (expected.sum() or 1.0)) for observed, expected in phases])
        phase = int(variances.argmin())
        observed, expected = phases[phase]
        freedom = independent_workers * min(independent_iterations, len(observed))
        typical = float(np.median(np.delete(variances, phase)))
        limit = min(_MEETS, _MEETS_RELATIVE * typical)
        meets = variances[phase] < limit and np.median(observed) < _MEETS * np.median(expected)
        chance = scipy.special.chdtr(freedom, variances[phase] * freedom)
        if meets and chance < significance and _compensates(seconds[phase:], every):
            yield every


def _compensates(seconds: Floats, every: int) -> bool:
    """Return True if the longest time of each worker in each block makes its sum equal to those of the others.

    A wait does. Pauses of equal lengths, one in each block, give equal sums, too, but the other times are as equal without.
    """
    blocks = seconds[: len(seconds) // every * every].reshape(-1, every, seconds.shape[1])
    sums, shortened = blocks.sum(1), blocks.sum(1) - blocks.max(1)
    with_longest, without_longest = (float(((part - part.mean(1, keepdims=True)) ** 2).sum()) for part in (sums, shortened))
    return with_longest < _COMPENSATION * without_longest


def _find_groups(logs: Floats) -> tuple[tuple[int, ...], ...]:
    """Return groups of workers that are much nearer to one another than to others, and vary together."""
    iterations, workers = logs.shape
    if workers < 3:
        return ()
    deviations = logs - np.median(logs, axis=1, keepdims=True)
    deviations -= np.median(deviations, axis=0)
    limit = 4 * _NORMAL * np.median(np.abs(deviations), axis=0)
    deviations = np.clip(deviations, -limit, limit)
    length = np.sqrt((deviations**2).sum(0))
    # One product finds the pairs that may be equal, so that the robust deviations below, a pass each, are of few pairs.
    candidates = deviations.T @ deviations > _POSSIBLE_CORRELATION * length * length[:, None]
    typical_difference = float(np.median(_difference(logs, np.roll(logs, workers // 2, axis=1))))
    bound = _lower_bound(iterations, workers=2)
    near = np.eye(workers, dtype=bool)  # [workers, workers]
    for worker in np.flatnonzero(candidates.sum(1) > 1):
        mates = np.flatnonzero(candidates[worker])
        difference = _difference(logs[:, mates], logs[:, [worker]])
        # The lower bound of the deviation of rounds, from second differences of the pair's mean, as in `_robust_deviations`:
        bends = np.abs(np.diff((logs[:, mates] + logs[:, [worker]]) / 2, n=2, axis=0))
        round_deviation = bound * _NORMAL * np.median(bends, axis=0) / math.sqrt(6)
        # The same as `_correlation(difference, round_deviation) >= _CERTAIN_CORRELATION`:
        equal = difference**2 <= round_deviation**2 * (1 - _CERTAIN_CORRELATION) / _CERTAIN_CORRELATION
        near[worker, mates] |= equal & (difference <= _GROUP_DIFFERENCE * bound * typical_difference)
    neighbourhoods = {tuple(np.flatnonzero(row).tolist()) for row in near}
    # In a group, all workers are near to exactly its members.
    groups = [
        group for group in neighbourhoods if len(group) > 1 and all((near[worker] == near[group[0]]).all() for worker in group)
    ]
    return tuple(sorted(groups))


def _difference(first: Floats, second: Floats) -> Floats:
    """Return the robust deviation of each pair of workers within a round, levels removed: [pairs]."""
    deviations = first - second
    return _NORMAL * np.median(np.abs(deviations - np.median(deviations, axis=0)), axis=0) / math.sqrt(2)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
