"""The rule that chooses among rules at work: what each candidate gained in a round, and the weights that follow (`auto.py`)."""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred import streams
from fred.cluster.durations import NANOSECONDS, nanoseconds
from fred.cluster.elementary import exp
from fred.prediction.completed_rounds import Completion
from fred.prediction.contract import Choice, Chooser, Deadline, Round, Times
from fred.prediction.lognormal import Floats

RATE = 8.0  # of the weights, per gradient per worker
MEMORY = 1000  # rounds after which another candidate may be the best, on average
_LONGEST = 2.0  # times what a round should take: no round waits longer
_PACE = 1 / 20  # weight of the newest round in the gradients per time so far
_LATELY, _ABOVE = 2, 1.25  # no pace is more than so many times what one of so many last rounds could reach
_UNSEEN = 30  # rounds after which a worker that was never in time is waited for once
_BLOCK = 120  # rounds whose draws are made at once, and in which looking for who was not seen costs one round at most
_FOREVER = 1e9  # s: no time is longer


def shared(weights: Floats) -> Floats:
    """Make weights add up to 1, and divide a share of them among all: who was bad may be good from now on."""
    return (1 - 1 / MEMORY) * weights / math.fsum(weights) + 1 / (MEMORY * len(weights))


class Outcome(NamedTuple):
    """What would have come of each candidate's choice in a round, the times of dropped workers completed."""

    gradients: Floats  # that it would have taken [candidates]
    seconds: Floats  # when it would have ended the round [candidates]

    @classmethod
    def of(cls, choices: Sequence[Choice], times: Times) -> "Outcome":
        """Return the outcomes of these choices for a round of these times, ns [workers]."""
        rounds = [Round.of(times, choice) for choice in choices]
        gradients, ends = [len(each.first) for each in rounds], [each.cutoff for each in rounds]
        return cls(np.array(gradients, float), np.array(ends) / NANOSECONDS)


class Following(Chooser):
    """Candidates at work, of which one is followed in each round.

    Args:
        choosers: the candidates.
        weights: at first [candidates].
        workers: n.
        excesses: counts of how late workers were in training (`Completion`), or None.
        stream: of draws, and its seed.
        first: the number of a candidate that is followed until it is ready, or None.
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
        self.weights, self.gains = weights / math.fsum(weights), np.zeros(len(choosers))  # of the last round, as reckoned
        self._completion, self._round = Completion(workers, excesses), 0
        self._gradients = self._time = 0.0  # of a recent round
        self._expected, self._slack = 0.0, 1.0  # end of the followed choice by usual times, ns; ends relative to that
        self._possible: deque[float] = deque(maxlen=_LATELY)  # the most gradients per time of each of the last rounds
        self._block = -1  # whose draws are made
        self._seen = np.zeros(workers, np.int64)  # the last round in which each worker was in time, or was waited for
        self._explored = -_BLOCK  # the last round that waited longer to see who is still there
        self._cost = 0.0  # of that wait, as a share of a round

    @property
    def ready(self) -> bool:
        """Whether the first candidate is; without a first one, any."""
        return any(each.ready for each in self._choosers) if self._first is None else self._choosers[self._first].ready

    def choose(self, times: Times) -> Choice:
        """Return what the candidate says that is drawn by the weights, or now and then a longer wait."""
        self._judged = np.array([chooser.ready for chooser in self._choosers])
        self._choices = [chooser.choose(times) for chooser in self._choosers]
        if self._first is not None and not self._judged[self._first]:
            self._followed = self._first
            return self._choices[self._first]
        self._followed = self._drawn()
        if self._round == 0:
            return self._choices[self._followed]
        usual = np.maximum(nanoseconds(np.minimum(self._completion.usual, _FOREVER)), 1)
        longest = _longest(usual)
        self._choices = [_bounded(choice, longest, self._workers) for choice in self._choices]
        self._expected = Round.of(usual, self._choices[self._followed]).cutoff
        return self._further(longest) or self._choices[self._followed]

    def hear(self, statistic: float) -> None:
        """Tell all candidates."""
        for chooser in self._choosers:
            chooser.hear(statistic)

    def _drawn(self) -> int:
        """Draw the number of a candidate that is ready, by its weight."""
        block, at = divmod(self._round, _BLOCK)
        if block != self._block:
            self._block = block
            self._draws = streams.uniforms(*self._stream, 0, start=_BLOCK * block, count=_BLOCK)
        weights = np.cumsum(self.weights * self._judged if self._judged.any() else self.weights)
        return int(np.searchsorted(weights, float(self._draws[at]) * weights[-1], side="right"))

    def _further(self, longest: int) -> Deadline | None:
        """Return a longer deadline for workers not seen for long, if one is due; it costs 1 % of the time at most."""
        unseen = self._round - self._seen >= _UNSEEN
        number = int(unseen.sum())
        pays = min(number / max(self._workers - number, 1), 1.0)  # by this share of a round all of them are worth waiting for
        if not number or self._round - self._explored < max(pays, self._cost) * _BLOCK:
            return None
        self._explored, self._cost, self._seen[unseen] = self._round, pays, self._round
        return Deadline(min(longest, round((1 + pays) * self._slack * self._expected)))

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        """Reckon what every candidate would have gained, weigh them by it, and tell them of the round."""
        self._round += 1
        self._seen[finished] = self._round
        whole = np.minimum(self._completion.completed(np.maximum(times, 1) / NANOSECONDS, finished), _FOREVER)
        self._possible.append(float((np.arange(1, len(whole) + 1) / whole).max()))
        if self._round > 1:
            self._weigh(Outcome.of(self._choices, np.maximum(nanoseconds(whole), 1)))
        for chooser in self._choosers:
            chooser.observe(times, finished)

    def _weigh(self, outcome: Outcome) -> None:
        """Weigh the candidates by their gains per worker, and note what the one that is followed came to."""
        if self._time:
            pace = min(self._gradients / self._time, _ABOVE * max(self._possible))
            gains = (outcome.gradients - pace * outcome.seconds) / self._workers
            judged = self.weights * self._judged
            mean = math.fsum(judged * gains) / (math.fsum(judged) or 1.0)
            self.gains = np.where(self._judged, gains, mean)
            self.weights = shared(self.weights * exp(RATE * (self.gains - self.gains.max())))
        weight = _PACE if self._time else 1.0
        self._gradients += weight * (float(outcome.gradients[self._followed]) - self._gradients)
        self._time += weight * (float(outcome.seconds[self._followed]) - self._time)
        if self._expected:
            self._slack += _PACE * (float(outcome.seconds[self._followed]) * NANOSECONDS / self._expected - self._slack)


def _longest(usual: Times) -> int:
    """Return twice the best time for a round of usual times, ns [workers]: the most gradients per time."""
    ordered = np.sort(usual)
    return int(_LONGEST * ordered[int(np.argmax(np.arange(1, len(usual) + 1) / ordered))])


def _bounded(choice: Choice, longest: int, workers: int) -> Deadline:
    """Return the choice, with a deadline of at most `longest` ns."""
    number, ns = (choice.workers or workers, choice.ns) if isinstance(choice, Deadline) else (choice, longest)
    return Deadline(min(ns, longest), number)
