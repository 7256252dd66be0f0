"""A chooser that follows one of several candidates, weighted by what each would have gained in every round (`auto.py`).

A round that was cut short is completed first: `Completion` estimates dropped workers' times from their usual times and from how
late all workers were before.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr

from fred.base import numerics
from fred.base.numerics import exp, log
from fred.base.types import Floats
from fred.cluster.contention import NodeOf
from fred.cluster.durations import nanoseconds
from fred.components.component import NANOSECONDS
from fred.prediction.contract import Choice, Chooser, Deadline, Objective, Round, Times
from fred.prediction.predictive import EWMA, Predictive, Predictor, between_ranks

RATE = 8.0  # learning rate of the weights, per gradient per worker
MEMORY = 1000  # mean number of rounds after which another candidate may become the best
_LONGEST_ROUND = 2.0  # longest round, relative to the best time of a round
_PACE = 1 / 20  # weight of the newest round in the recent gradients per time
_LATELY, _ABOVE = 2, 1.25  # no pace exceeds this multiple of the best rate of these last rounds
_PATIENCE, _MOST_PATIENCE = 30, 480  # rounds until a worker never in time is waited for: doubled until it comes
_IDLE = 1.3  # a round that lasts this many times as long as its last worker in time waited for others, without success
_BLOCK = 120  # rounds whose draws are made at once; waiting for unseen workers costs at most one round in as many
_MODEL = np.array([0.99, 0.01])  # initial weights of a watched model, and of the averages
_FOREVER = 1e9  # s: upper bound of all times


def share_weights(weights: Floats) -> Floats:
    """Normalise the weights and share a part of them equally: a candidate that was bad may be good from now on."""
    return (1 - 1 / MEMORY) * weights / math.fsum(weights) + 1 / (MEMORY * len(weights))


class Outcome(NamedTuple):
    """The outcome of each candidate's choice in a round, with the times of dropped workers completed."""

    gradients: Floats  # number that it would have taken [candidates]
    seconds: Floats  # when it would have ended the round, s [candidates]

    @classmethod
    def from_choices(cls, choices: Sequence[Choice], times: Times) -> "Outcome":
        """Return the outcomes of these choices in a round of these times, ns [workers]."""
        rounds = [Round.from_choice(times, choice) for choice in choices]
        gradients, ends = [len(outcome.first) for outcome in rounds], [outcome.cutoff for outcome in rounds]
        return cls(np.array(gradients, float), np.array(ends) / NANOSECONDS)


BINS = 250  # steps of excess over the usual time
_LOWEST, _STEP = -1.0, 0.02  # of log time relative to the usual one: e^-1 to e^4 times as long
_EDGES = _LOWEST + _STEP * np.arange(BINS + 1)
_FORGOTTEN = 0.99  # share of a count that remains after each round
_ARRIVE, _PRIOR, _LEAST_PRIOR = 0.3, 5.0, 0.5  # prior: share that arrives per step, and its weight in workers' times
_GRID_REACH, _GRID_POINTS = 1.6, 160  # grid beyond the round's end: reach in log time, and number of points
_TIME_RATE, _DEVIATION_RATE = 0.2, 0.05  # weight of the newest round in a usual time and in its deviation
_JUMP, _LEAST_JUMP = 2.5, 0.1  # an error beyond this many mean deviations, and this log time, is a change of the usual time


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
        self._lasted = np.zeros(BINS)  # histogram of dropped workers' excess over their usual time when they were dropped

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
        ascending_times, expected = np.sort(seconds), logs.copy()
        if dropped.any():
            end = float(logs[dropped].max())  # of the round, until which all dropped workers were observed
            missing_times, expected[dropped] = self._missing(end, self._usual_logs[dropped])
            ascending_times = np.concatenate((np.sort(seconds[finished]), missing_times))
        self._count(logs, finished)
        self._follow(expected)
        return ascending_times

    def _begin(self, logs: Floats) -> None:
        median = np.sort(logs)[len(logs) // 2]
        self._usual_logs = logs
        self._deviation = np.full(len(logs), max(np.sort(np.abs(logs - median))[len(logs) // 2], _STEP))

    def _missing(self, end: float, usual_logs: Floats) -> tuple[Floats, Floats]:
        """Return the dropped workers' times, ascending, s, and the expected log time of each, both [dropped].

        Args:
            end: log of the time at which the round ended.
            usual_logs: usual log times of the dropped workers [dropped].
        """
        # Summed over workers, the complement of `still_computing` is the expected number of arrivals, hence the ordered times.
        # Its differences are each worker's distribution, hence its expected log time.
        reach = max(_GRID_REACH, float(usual_logs.max()) - end + _GRID_REACH / 2)  # also beyond a usual time after the end
        grid = end + reach * np.linspace(0, 1, _GRID_POINTS) ** 2  # finest after the end, where most arrive
        still_computing = self._still_computing(grid, end, usual_logs)
        arrived = np.add.reduce(1 - still_computing, axis=0)
        middles = (grid[1:] + grid[:-1]) / 2
        log_time_shares = np.ascontiguousarray(-np.diff(still_computing, axis=1).T) * middles[:, None]
        return between_ranks(arrived, exp(grid), len(usual_logs)), np.cumsum(log_time_shares, axis=0)[-1]

    def _still_computing(self, grid: Floats, end: float, usual_logs: Floats) -> Floats:
        """Return the probability that a worker has not finished by a point of the grid, given that it had not at `end`.

        Its shape is [dropped, points]. Workers that are missing at the end of the grid arrive in its last step.
        """
        survival = self._survival()
        survival_on_grid = np.interp(grid - usual_logs[:, None], _EDGES, survival)
        still_computing: Floats = survival_on_grid / np.interp(end - usual_logs, _EDGES, survival)[:, None]
        still_computing[:, -1] = 0.0
        return still_computing

    def _survival(self) -> Floats:
        """Return the share of times that exceed the usual one by more than each edge [bins + 1]."""
        ends = self.excesses + self._lasted  # workers whose observation ends in each bin: they finish, or are dropped
        at_risk = np.cumsum(ends[::-1])[::-1]
        hazard = (self.excesses + self.prior * _ARRIVE) / (at_risk + self.prior)
        return np.concatenate(([1.0], np.cumprod(1 - np.minimum(hazard, 0.95))))  # above 0, as `_still_computing` divides by it

    def _count(self, logs: Floats, finished: NDArray[np.bool_]) -> None:
        """Add the round's times to the histograms."""
        bins = np.clip(((logs - self._usual_logs - _LOWEST) / _STEP).astype(np.int64), 0, BINS - 1)
        self.excesses = _FORGOTTEN * self.excesses + np.bincount(bins[finished], minlength=BINS)
        self._lasted = _FORGOTTEN * self._lasted + np.bincount(bins[~finished], minlength=BINS)

    def _follow(self, expected: Floats) -> None:
        """Move usual times and deviations towards the round's log times, observed or expected [workers]."""
        error = expected - self._usual_logs
        changed = np.abs(error) > np.maximum(_JUMP * self._deviation, _LEAST_JUMP)
        self._usual_logs = self._usual_logs + np.where(changed, 1.0, max(_TIME_RATE, 1 / self._rounds)) * error
        deviation = np.minimum(np.abs(error), 3 * self._deviation)  # a change counts as no more, or it would pass for spread
        self._deviation = np.maximum(self._deviation + _DEVIATION_RATE * (deviation - self._deviation), 0.01)


def excesses_of(seconds: Floats) -> Floats:
    """Return the histogram of how far times exceeded the usual ones in complete rounds, s [iterations, workers]: [bins]."""
    completion = Completion(seconds.shape[1])
    for times in seconds:
        completion.completed(times, np.ones(len(times), bool))
    return completion.excesses


class Following(Chooser):
    """A chooser that runs all candidates and follows one of them in each round.

    Args:
        choosers: the candidates.
        weights: initial weights [candidates].
        workers: number of workers, n.
        excesses: histogram of how late workers were in training (`Completion`), or None.
        stream: seed and name of the random stream.
        first: index of a candidate that is followed until it is ready, or None.
    """

    def __init__(
        self,
        choosers: Sequence[Chooser],
        weights: Floats,
        workers: int,
        excesses: Floats | None,
        stream: tuple[int, str],
        first: int | None = None,
    ):
        self._choosers, self._workers, self._stream, self._first = choosers, workers, stream, first
        self.weights, self.gains = weights / math.fsum(weights), np.zeros(len(choosers))  # gains of the last round
        self._completion, self._round = Completion(workers, excesses), 0
        self._gradients = self._time = 0.0  # averages over recent rounds
        self._expected, self._slack = 0.0, 1.0  # expected end of the followed choice, ns; mean ratio of actual ends to it
        self._best_rates: deque[float] = deque(maxlen=_LATELY)  # best gradients per time of each of the last rounds
        self._block = -1  # block of rounds whose draws are made
        self._last_contact = np.zeros(workers, np.int64)  # last round in which each worker was in time, or was waited for
        self._last_in_time = np.zeros(workers, np.int64)  # last round in which each worker was in time
        self._patience = np.full(workers, _PATIENCE)  # rounds after the last contact until it is waited for
        self._explored = -_BLOCK  # last round that waited longer for unseen workers
        self._cost = 0.0  # cost of that wait, as a share of a round

    @property
    def ready(self) -> bool:
        """Return True if the first candidate is ready; without a first candidate, if any is."""
        return any(chooser.ready for chooser in self._choosers) if self._first is None else self._choosers[self._first].ready

    def choose(self, times: Times) -> Choice:
        """Return the choice of a candidate drawn by weight, or now and then a longer deadline for unseen workers."""
        self._ready = np.array([chooser.ready for chooser in self._choosers])
        self._choices = [chooser.choose(times) for chooser in self._choosers]
        if self._first is not None and not self._ready[self._first]:
            self._followed = self._first
            return self._choices[self._first]
        self._followed = self._draw_candidate()
        if self._round == 0:  # usual times, which bound the choices, are unknown
            return self._choices[self._followed]
        usual_times = np.maximum(nanoseconds(np.minimum(self._completion.usual_seconds, _FOREVER)), 1)
        longest = _longest(usual_times)
        self._choices = [_bounded(choice, longest, self._workers) for choice in self._choices]
        self._expected = Round.from_choice(usual_times, self._choices[self._followed]).cutoff
        return self._deadline_for_overdue(longest) or self._choices[self._followed]

    def hear(self, statistic: float) -> None:
        """Pass the statistic to all candidates."""
        for chooser in self._choosers:
            chooser.hear(statistic)

    def _draw_candidate(self) -> int:
        """Draw the index of a ready candidate by weight."""
        block, position = divmod(self._round, _BLOCK)
        if block != self._block:
            self._block = block
            self._draws = numerics.uniforms(*self._stream, 0, start=_BLOCK * block, count=_BLOCK)
        cumulated = np.cumsum(self.weights * self._ready if self._ready.any() else self.weights)
        return int(np.searchsorted(cumulated, float(self._draws[position]) * cumulated[-1], side="right"))

    def _deadline_for_overdue(self, longest: int) -> Deadline | None:
        """Return a longer deadline for workers unseen for long, if one is due; this costs at most 1 % of the time."""
        overdue = self._round - self._last_contact >= self._patience
        count = int(overdue.sum())
        share = min(count / max(self._workers - count, 1), 1.0)  # waiting this share of a round is worth all their gradients
        # This wait and the last one cost at most these shares of a round, so neither exceeds 1 / _BLOCK of the rounds between.
        if not count or self._round - self._explored < max(share, self._cost) * _BLOCK:
            return None
        self._explored, self._cost, self._last_contact[overdue] = self._round, share, self._round
        self._patience[overdue] = np.minimum(2 * self._patience[overdue], _MOST_PATIENCE)
        return Deadline(min(longest, round((1 + share) * self._slack * self._expected)))

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        """Compute what every candidate would have gained, update the weights, and pass the round on to the candidates."""
        self._adapt_prior(times, finished)
        self._round += 1
        self._last_contact[finished] = self._last_in_time[finished] = self._round
        self._patience[finished] = _PATIENCE
        ascending_times = np.minimum(self._completion.completed(np.maximum(times, 1) / NANOSECONDS, finished), _FOREVER)
        # The most gradients per s of any cutoff: k gradients after the k-th time.
        self._best_rates.append(float((np.arange(1, len(ascending_times) + 1) / ascending_times).max()))
        if self._round > 1:  # the first round's choices were not bounded, and its times set the usual ones
            self._weigh(Outcome.from_choices(self._choices, np.maximum(nanoseconds(ascending_times), 1)))
        for chooser in self._choosers:
            chooser.observe(times, finished)

    def _adapt_prior(self, times: Times, finished: NDArray[np.bool_]) -> None:
        """Adapt the completion's prior: a worker that was missing for long has come, or the round waited without success."""
        missing = self._round - self._last_in_time >= _PATIENCE
        if (missing & finished).any():
            self._completion.adapt_prior(arrived=True)
        elif missing.any() and finished.any() and times.max() > _IDLE * times[finished].max():
            self._completion.adapt_prior(arrived=False)

    def _weigh(self, outcome: Outcome) -> None:
        """Update the weights by the candidates' gains per worker, and record the outcome of the followed choice."""
        if self._time:
            pace = min(self._gradients / self._time, _ABOVE * max(self._best_rates))  # rho (`auto.py`), gradients per s
            gains = (outcome.gradients - pace * outcome.seconds) / self._workers
            ready_weights = self.weights * self._ready
            mean = math.fsum(ready_weights * gains) / (math.fsum(ready_weights) or 1.0)
            self.gains = np.where(self._ready, gains, mean)  # the others as much as the ready ones on average
            self.weights = share_weights(self.weights * exp(RATE * (self.gains - self.gains.max())))
        weight = _PACE if self._time else 1.0  # the first outcome sets the averages
        self._gradients += weight * (float(outcome.gradients[self._followed]) - self._gradients)
        self._time += weight * (float(outcome.seconds[self._followed]) - self._time)
        if self._expected:
            self._slack += _PACE * (float(outcome.seconds[self._followed]) * NANOSECONDS / self._expected - self._slack)


def _longest(times: Times) -> int:
    """Return twice the duration of a round with the most gradients per time, given usual times, ns [workers]."""
    ordered = np.sort(times)
    return int(_LONGEST_ROUND * ordered[int(np.argmax(np.arange(1, len(times) + 1) / ordered))])


def _bounded(choice: Choice, longest: int, workers: int) -> Deadline:
    """Return the choice with a deadline of at most `longest` ns."""
    count, ns = (choice.workers or workers, choice.ns) if isinstance(choice, Deadline) else (choice, longest)
    return Deadline(min(ns, longest), count)


class Watched(Predictive):
    """A rule whose model may be wrong for a changing cluster; `ewma` of nodes takes over while it does better."""

    _watched: bool = PrivateAttr(True)

    def unwatched(self) -> Self:
        """Return the rule with its model alone, without the fallback on averages."""
        copy = self.model_copy()
        copy._watched = False
        return copy

    def with_averages(self, model: Predictor, node_of: NodeOf, objective: Objective, seed: int = 0) -> Chooser:
        """Return a chooser that follows the model as long as averages do no better.

        It ends rounds at deadlines. So the model alone is returned if the rule asks for counts, or for a smallest share of the
        workers.

        Args:
            model: predictor of the model.
            node_of: node number of each worker [workers].
            objective: objective of the averages.
            seed: seed of the draws.
        """
        if self.by == "count" or self.at_least:
            return model
        averages = EWMA(objective=objective).start(node_of)
        return Following((model, averages), _MODEL, len(node_of), None, (seed, "watched"), first=0)
