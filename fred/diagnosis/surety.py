"""Intervals of the gain in the long run, which resample spells rather than rounds.

A cluster that is slow in spells shows only a few of them in some hundred rounds, so their share of the time is very
uncertain. Spells begin and end at separate rates. With k beginnings in T fast rounds, the rate has the posterior Gamma(k +
1/2) / T [Jeffreys' prior]; the same holds for ends. The ratio of the rates gives the odds of slow to fast rounds. With
equal numbers of beginnings and ends, these are the odds in the record times an F distribution. A single spell leaves the
share nearly open; a change without an end leaves it completely open.

Blocks of about sqrt(rounds) within fast and slow rounds get random weights, and so does each spell: the Bayesian bootstrap
[Rubin 1981, Annals of Statistics 9(1)]. The interval consists of quantiles. Odds and weights are spread a little wider,
since few blocks and spells show too little of the spread.

A rule that learns does better in the long run than in the record. The upper bound limits how much: the interval of such a
rule extends further up, by a third of the distance to the bound.

No interval covers events that were never recorded: without a spell it holds as long as none occurs.
"""

import itertools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv

from fred.base import streams
from fred.diagnosis.spells import Bools, Floats, runs
from fred.prediction.intervals import FEWEST, Ratio

_DRAWS = 2000
_OUTSIDE = 0.05  # share of intervals that miss the true ratio
_WIDER = 1.2  # factor on deviations of odds and weights; chosen on simulated traces (`studies/diagnosis`)
_NEARER = 1 / 3  # share of the distance to the upper bound that further learning may gain; chosen likewise
_PRIOR = 0.5  # prior number of beginnings, and of ends, of spells
_DIGITS = 9  # later digits depend on the machine


class Played(NamedTuple):
    """Gradients and seconds of recorded rounds under one remedy; columns run at the same time, each at its own pace.

    >>> Played(np.full((2, 1), 4.0), np.array([[1.0], [3.0]])).throughput()
    2.0
    """

    gradients: Floats  # number used [rounds, columns]
    seconds: Floats  # their duration, s [rounds, columns]

    def throughput(self) -> float:
        """Return the gradients per second of all rounds."""
        return float((self.gradients.sum(axis=0) / self.seconds.sum(axis=0)).sum())


class Surety:
    """Intervals of the gain of one way of using recorded rounds over another.

    Args:
        slow: True for rounds in a spell [rounds].
    >>> slow = np.repeat([False, True, False], [100, 50, 100])
    >>> every = Played(np.full((250, 1), 4.0), np.where(slow, 2.0, 1.0)[:, None])
    >>> repaired = Played(every.gradients, np.ones((250, 1)))
    >>> print(Surety(slow).ratio(repaired, every))
    +20.0%, 95% interval +1.0% to +87.0%
    """

    def __init__(self, slow: Bools):
        self.slow = slow

    @property
    def spells(self) -> int:
        """Return the number of spells, including any cut off at the beginning or the end of the record."""
        return sum(run.high for run in runs(self.slow))

    def ratio(self, played: Played, other: Played, bound: Played | None = None) -> Ratio:
        """Return the ratio of two throughputs, with its 95 % interval for the long run.

        Args:
            played: rounds under one remedy.
            other: rounds under the other, the same number.
            bound: upper bound of a remedy that keeps learning; None for one that learns nothing.
        """
        value = played.throughput() / other.throughput()
        if all(np.array_equal(own, others) for own, others in zip(played, other, strict=True)):
            return Ratio(1.0, 1.0, 1.0)
        if len(self.slow) < FEWEST:
            return Ratio(value, 0.0, math.inf)
        logarithms = np.log(self._throughputs(played) / self._throughputs(other))
        ends = np.quantile(logarithms, (_OUTSIDE / 2, 1 - _OUTSIDE / 2))
        room = bound.throughput() / played.throughput() if bound else 1.0
        low, high = math.exp(float(ends[0])), math.exp(float(ends[1])) * max(room, 1.0) ** _NEARER
        return Ratio(value, min(round(low, _DIGITS), value), max(round(high, _DIGITS), value))

    def _throughputs(self, played: Played) -> Floats:
        """Return the throughput under each of the drawn weights [draws]."""
        starts = [first for first, _ in self._blocks]
        gradients, seconds = (self._weights @ np.add.reduceat(each, starts, axis=0) for each in played)
        return np.asarray((gradients / seconds).sum(axis=1))

    @cached_property
    def _blocks(self) -> Sequence[tuple[int, int]]:
        """Return the blocks of rounds that share a weight, as first and end; each has one level."""
        length = math.sqrt(len(self.slow))
        cuts = [
            run.first + run.rounds * part // parts
            for run in runs(self.slow)
            for parts in [max(1, round(run.rounds / length))]
            for part in range(parts)
        ]
        return list(itertools.pairwise([*cuts, len(self.slow)]))

    @cached_property
    def _weights(self) -> Floats:
        """Return the drawn weights of each block [draws, blocks]."""
        draws = _uniforms("blocks", len(self._blocks))
        weights = gammaincinv(_WIDER**-2, draws)
        firsts = np.array([first for first, _ in self._blocks])
        for number, run in enumerate(each for each in runs(self.slow) if each.high):
            own = (firsts >= run.first) & (firsts < run.end)
            weights[:, own] *= -np.log(_uniforms("spells", number + 1)[:, -1:])
        slow = self.slow[firsts]
        if slow.any() and not slow.all():
            lengths = np.array([end - first for first, end in self._blocks])
            share = self._share_slow()[:, None]
            for level, part in ((slow, share), (~slow, 1 - share)):
                weights[:, level] *= part / (weights[:, level] @ lengths[level])[:, None]
        return np.asarray(weights)

    def _share_slow(self) -> Floats:
        """Return drawn shares of slow rounds in the long run [draws]."""
        begun = int((self.slow[1:] & ~self.slow[:-1]).sum())
        ended = int((~self.slow[1:] & self.slow[:-1]).sum())
        draws = _uniforms("odds", 2)
        rates = [gammaincinv(number + _PRIOR, own) for number, own in zip((begun, ended), draws.T, strict=True)]
        odds = self.slow.sum() / (~self.slow).sum() * (rates[0] / rates[1]) ** _WIDER
        return np.asarray(odds / (1 + odds))


def _uniforms(purpose: str, count: int) -> Floats:
    """Return uniform draws in (0, 1) [draws, count]; the same purpose gives the same draws."""
    words = streams.words(0, f"diagnosis, {purpose}", np.arange(_DRAWS)[:, None], np.arange(count))
    return np.asarray((words.astype(np.float64) + 0.5) / 2**32)
