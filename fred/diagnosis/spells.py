"""Spells: stretches of rounds in which a series has a higher level, such as a node that is slow for some time.

A running median smooths the series, so that single late rounds make no spell. A threshold then separates two levels such
that they explain most of the variance [Otsu 1979, IEEE Transactions on Systems, Man, and Cybernetics 9(1)]. Levels that
explain little do not count. With independent normal values they explain 64 % of the smoothed variance, and about 10 % of
the whole.
"""

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter, uniform_filter

_WINDOW = 9  # rounds of the running median
_EXPLAINED, _OF_THE_SMOOTHED = 0.35, 0.8  # least share of the variance explained by two levels; one of the two suffices
_APART = 0.1  # least distance of the levels, in logarithms: 10 %
_SHORTEST = 5  # least rounds in a spell, and between two
_OFTEN = 1 / 3  # share of late rounds with which a spell goes on
_REST = 0.02  # share of values clipped at each end for the whole variance

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Run(NamedTuple):
    """Successive rounds at one level."""

    first: int  # its first round
    end: int  # the round after its last
    high: bool  # True in a spell

    @property
    def rounds(self) -> int:
        """Return the number of rounds."""
        return self.end - self.first


def waiting(seconds: Floats) -> Floats:
    """Return the cost of waiting for all in each round: log(slowest / median worker) [rounds].

    Args:
        seconds: compute times, s [rounds, workers].

    >>> waiting(np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 2.0]])).round(2).tolist()
    [0.0, 0.69]
    """
    return np.asarray(np.log(seconds.max(axis=1) / np.median(seconds, axis=1)))


def find(series: Floats) -> Bools:
    """Return True for rounds in a spell: a stretch at the higher of two levels; all False if there are not two [rounds].

    Args:
        series: logarithms, one per round [rounds].

    >>> find(np.repeat([0.0, 1.0, 0.0], [20, 10, 30])).nonzero()[0].tolist()
    [20, 21, 22, 23, 24, 25, 26, 27, 28, 29]
    >>> find(np.sin(np.arange(200.0) ** 2)).any()
    np.False_
    """
    none = np.zeros(len(series), bool)
    if len(series) < 2 * _SHORTEST:
        return none
    smooth = median_filter(series, size=_WINDOW, mode="reflect")
    high = smooth > threshold(smooth)
    inner = np.clip(series, *np.quantile(series, (_REST, 1 - _REST)))
    if apart(smooth, high) < _APART:
        return none
    clear = explained(smooth, high) >= _OF_THE_SMOOTHED or explained(inner, high) >= _EXPLAINED
    lasting = _lasting(high) if clear else none
    return none if lasting.all() else lasting


def grown(level: Floats, high: Bools) -> Bools:
    """Return spells that go on while late rounds are frequent, if not in the majority, for longer than a window [rounds].

    Args:
        level: logarithms, one per round [rounds].
        high: True for rounds in a spell [rounds].

    >>> level = np.array([0.0] * 20 + [1.0] * 20 + [1.0, 0.0, 1.0, 0.0, 0.0] * 6 + [0.0] * 20)
    >>> int(find(level).sum()), int(grown(level, find(level)).sum())
    (24, 47)
    """
    if not high.any() or high.all():
        return high
    late = level > (np.median(level[high]) + np.median(level[~high])) / 2
    often = uniform_filter(late.astype(float), _WINDOW, mode="nearest") >= _OFTEN
    grown = high.copy()
    for run in runs(often | high):
        inside = np.flatnonzero(high[run.first : run.end]) + run.first
        if not run.high or not len(inside):
            continue
        first = run.first if inside[0] - run.first > _WINDOW else inside[0]
        end = run.end if run.end - inside[-1] > _WINDOW else inside[-1] + 1
        grown[first:end] = True
    return grown


def runs(high: Bools) -> list[Run]:
    """Return the stretches of rounds at one level, in order.

    Args:
        high: True for rounds in a spell [rounds].

    >>> [tuple(run) for run in runs(np.array([False, True, True, False]))]
    [(0, 1, False), (1, 3, True), (3, 4, False)]
    """
    changes = [0, *(np.flatnonzero(np.diff(high)) + 1).tolist(), len(high)]
    return [Run(first, end, bool(high[first])) for first, end in itertools.pairwise(changes)]


def threshold(values: Floats) -> float:
    """Return the threshold that maximises the variance between the two classes.

    Args:
        values: at least two numbers.

    >>> threshold(np.array([1.0, 1.2, 3.0, 3.4]))
    2.1
    """
    ordered, count = np.sort(values), len(values)
    below, size = np.cumsum(ordered)[:-1], np.arange(1, count)
    between = (below / size - (ordered.sum() - below) / (count - size)) ** 2 * size * (count - size)
    best = int(np.argmax(between))
    return float(ordered[best] + ordered[best + 1]) / 2


def apart(values: Floats, high: Bools) -> float:
    """Return the difference of the means of two classes; 0 if one is empty.

    Args:
        values: numbers, such as logarithms of times.
        high: True for those of the higher class.

    >>> apart(np.array([1.0, 1.2, 3.1]), np.array([False, False, True])), apart(np.ones(2), np.zeros(2, bool))
    (2.0, 0.0)
    """
    return float(values[high].mean() - values[~high].mean()) if 0 < high.mean() < 1 else 0.0


def explained(values: Floats, high: Bools) -> float:
    """Return the share of the variance that lies between two classes.

    Args:
        values: numbers, such as logarithms of times.
        high: True for those of the higher class.

    >>> explained(np.array([1.0, 1.0, 3.0]), np.array([False, False, True])).__round__(9)
    1.0
    """
    share, variance = float(high.mean()), float(values.var())
    return share * (1 - share) * apart(values, high) ** 2 / variance if variance else 0.0


def _lasting(high: Bools) -> Bools:
    """Return the levels without short runs, removing the shortest first; runs at the ends may be cut off, so they stay."""
    high = high.copy()
    while short := [run for run in runs(high)[1:-1] if run.rounds < _SHORTEST]:
        first = min(short, key=lambda run: run.rounds)
        high[first.first : first.end] = not first.high
    return high
