"""The rule that chooses among rules at work: what a round shows of each, and what it makes of that (`auto.py` says why)."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fred import streams
from fred.cluster.durations import NANOSECONDS
from fred.cluster.elementary import exp
from fred.prediction.contract import Choice, Chooser, Deadline, Times

Floats = NDArray[np.float64]

_SIGHTINGS = 10  # of longer waits, that count for what they gain on average
_BOUGHT = 5  # times counts a sighting that was explored for; it stands for 1 / explore rounds, but may be an exception


class Rule(Protocol):
    """What has to be known of the rule."""

    @property
    def rate(self) -> float:
        """Of the weights."""

    @property
    def memory(self) -> int:
        """Rounds after which another candidate may be the best."""

    @property
    def explore(self) -> float:
        """Share of rounds in which the longest wait is followed."""

    @property
    def longer(self) -> tuple[float, ...]:
        """What was found of longer waits before; none: nothing."""

    @property
    def seed(self) -> int:
        """Of draws."""


def shared(weights: Floats, memory: int) -> Floats:
    """Weights that add up to 1, a share of which is divided among all: who was bad may be good from now on."""
    return (1 - 1 / memory) * weights / math.fsum(weights) + 1 / (memory * len(weights))


class Outcome(NamedTuple):
    """What would have come of each candidate's choice, as far as a round has shown it."""

    known: NDArray[np.bool_]  # [candidates]
    gradients: Floats  # that it would have taken [candidates]
    seconds: Floats  # when it would have ended the round [candidates]

    @classmethod
    def of(cls, choices: Sequence[Choice], played: Choice, times: Times, finished: NDArray[np.bool_]) -> "Outcome":
        """Of these choices, from what the one played has shown: `times`, ns [workers], and who has `finished` [workers]."""
        arrivals, end = np.sort(times[finished]), int(times.max())
        timed_out = isinstance(played, Deadline) and end == played.ns and len(arrivals) < (played.workers or len(times))
        told = math.inf if finished.all() else end if timed_out else end - 1  # at the end others may be there, too
        rows = [_outcome(choice, arrivals, end, told) for choice in choices]
        known, gradients, ends = zip(*rows, strict=True)
        return cls(np.array(known), np.array(gradients, float), np.array(ends) / NANOSECONDS)


def _outcome(choice: Choice, arrivals: Times, end: int, told: float) -> tuple[bool, int, int]:
    """Whether a choice's outcome is known, its gradients and when the round would have ended, ns; `told`: all up to then is."""
    limit, enough = (choice.ns, choice.workers) if isinstance(choice, Deadline) else (None, choice)
    if enough and enough <= len(arrivals) and (limit is None or arrivals[enough - 1] <= limit):
        return True, enough, int(arrivals[enough - 1])
    if limit is None or limit > told:
        return False, 0, 0
    taken = max(1, int(np.searchsorted(arrivals, limit, side="right")))
    return True, taken, max(int(arrivals[taken - 1]), min(limit, end))


def _size(choice: Choice, workers: int) -> tuple[int, float]:
    """The number of workers and the time, ns, of which one ends a round."""
    return (choice.workers or workers, choice.ns) if isinstance(choice, Deadline) else (choice, math.inf)


class Following(Chooser):
    """The rule at work.

    Args:
        rule: whose rate, memory, share of exploration and seed it heeds.
        choosers: the candidates at work.
        weights: at first [candidates].
        longer: what each gains more where it waits longer than who is followed [candidates].
        workers: n.
    """

    def __init__(self, rule: Rule, choosers: Sequence[Chooser], weights: Floats, longer: Floats, workers: int):
        self._rule, self._choosers, self._workers, self._rate = rule, choosers, workers, rule.rate
        self.weights, self.gains = weights / math.fsum(weights), np.zeros(len(choosers))  # of the last round, as reckoned
        self._longer, self._sightings = longer, np.full(len(choosers), _SIGHTINGS if rule.longer else 0)
        self._round, self._kept = 0, 1 - 1 / rule.memory
        self._every = round(1 / rule.explore) if rule.explore else _SIGHTINGS  # rounds whose draws are made at once
        self._owed = 0.0  # rounds that exploring has cost beyond one in each block: as many blocks go without
        self._gradients = self._time = 0.0

    def choose(self, times: Times) -> Choice:
        """What the candidate says that is drawn by the weights, or now and then who waits longest."""
        self._judged = np.array([chooser.ready for chooser in self._choosers])
        self._choices = [chooser.choose(times) for chooser in self._choosers]
        follow, which = self._draws()
        self._followed = min(int(np.searchsorted(np.cumsum(self.weights), follow, side="right")), len(self.weights) - 1)
        self._played = self._longest(which) if self._explored else self._followed
        return self._choices[self._played]

    def hear(self, statistic: float) -> None:
        """All candidates are told."""
        for chooser in self._choosers:
            chooser.hear(statistic)

    def _draws(self) -> tuple[float, float]:
        """Of this round. One of so many in a row, at random, explores: so none is ever far from the next that does."""
        block, at = divmod(self._round, self._every)
        if at == 0:
            draws = streams.uniforms(self._rule.seed, "auto", 0, start=(2 * self._every + 1) * block, count=2 * self._every + 1)
            self._block, self._exploring = draws[1:].reshape(-1, 2).tolist(), int(draws[0] * self._every)
            self._owed, self._due = max(0.0, self._owed - 1), self._owed < 1
        self._explored = self._rule.explore > 0 and self._due and at == self._exploring
        follow, which = self._block[at]
        return follow, which

    def _longest(self, draw: float) -> int:
        """Who waits for no fewer workers and no shorter than anybody else; of several one: which takes longest nobody knows."""
        sizes = [_size(choice, self._workers) for choice in self._choices]
        longest = [
            at
            for at, (number, ns) in enumerate(sizes)
            if not any(more >= number and later >= ns and (more, later) != (number, ns) for more, later in sizes)
            and (number, ns) not in sizes[:at]
        ]
        return longest[int(draw * len(longest))]

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        """Reckon what every candidate would have gained, weigh them by it, and tell them of the round."""
        self._round += 1
        outcome = Outcome.of(self._choices, self._choices[self._played], np.maximum(times, 1), finished)
        if self._time:
            self._reckon(outcome)
            self.gains = np.where(self._judged, self.gains, self._mean_gain())
            grown = self.weights * exp(self._rate * (self.gains - self.gains.max()))
            self.weights = shared(grown, self._rule.memory)
        told = outcome.known & self._judged
        if told.any():
            own = self._played if told[self._played] else int(np.argmax(told))
            self._gradients = self._kept * self._gradients + outcome.gradients[own]
            self._time = self._kept * self._time + outcome.seconds[own]
        for chooser in self._choosers:
            chooser.observe(times, finished)

    def _mean_gain(self) -> float:
        """Of those who chose by what they know."""
        weights = self.weights * self._judged
        return math.fsum(weights * self.gains) / (math.fsum(weights) or 1.0)

    def _reckon(self, outcome: Outcome) -> None:
        """The candidates' gains per worker in a round; where a longer wait was not seen, what such ones gain on average."""
        seen = (outcome.gradients - self._gradients / self._time * outcome.seconds) / self._workers
        if self._explored:
            self._owed += max(0.0, float(seen[self._followed] - seen[self._played]) - 1)
        base = self._followed if outcome.known[self._followed] else self._played
        expected = seen[base] + self._longer
        beyond = outcome.known & self._judged & (outcome.seconds > outcome.seconds[base])
        surprise = np.where(beyond, seen - expected, 0.0)
        self.gains = np.where(outcome.known, seen, expected)
        if self._explored:
            self.gains = self.gains + (_BOUGHT - 1) * surprise
        self._sightings = self._sightings + beyond
        self._longer = self._longer + surprise / np.clip(self._sightings, 1, _SIGHTINGS)
