"""Pauses: single slow rounds of all workers at once, and those of workers that come back after a number of iterations.

A running median over 31 rounds is the usual time, so spells and drifts are no pauses.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fred.diagnosis.shared_pace import Levels, above_usual
from fred.diagnosis.spells import Bools, Floats

_STALLED = 1.5  # time relative to the usual one from which a round stalls
_OF_ALL = 0.25  # quantile of the workers that must stall: three in four
_COSTS = 0.02  # share of the time from which stalls or pauses are reported
_LATE = 1.25  # least time of a pause, relative to the worker's usual one
_CLEAR = 8.0  # least distance of a stall or pause from usual times, in their median absolute deviations
_FEWEST = 4  # pauses from which their distances show a period
_REGULAR = 0.8  # share of the distances that must be multiples of the period
_BY_CHANCE = 0.01  # probability that irregular pauses of some worker look regular
_SHORTEST = 3  # iterations of the shortest period
_MOST = 0.34  # share of the rounds above which slow ones are no pauses


@dataclass(frozen=True)
class Stalls:
    """Rounds in which all workers are slow at once.

    Args:
        rounds: numbers of these rounds.
        times: mean and largest time of such a round, relative to the usual one.
        share: share of the time that they cost.
        period: iterations from one to the next; 0 if irregular.
    """

    rounds: tuple[int, ...]
    times: tuple[float, float]
    share: float
    period: int


@dataclass(frozen=True)
class Pauses:
    """Regular pauses of workers.

    Args:
        workers: numbers of the workers.
        period: iterations from one pause of a worker to its next.
        times: mean time of an iteration with a pause, relative to the worker's usual one.
        share: share of the rounds in which some worker pauses.
        aligned: times of the same iterations with pauses that coincide, s [rounds, workers]; None if they do already.
    """

    workers: tuple[int, ...]
    period: int
    times: float
    share: float
    aligned: Floats | None


def find_stalls(seconds: Floats, levels: Levels) -> Stalls | None:
    """Return the rounds in which all workers are slow at once; None if they cost little.

    Args:
        seconds: compute times, s [rounds, workers].
        levels: their two parts.

    >>> from fred.diagnosis.shared_pace import split_times
    >>> seconds = np.ones((40, 3))
    >>> seconds[[9, 19, 29, 39]] = 3.0
    >>> stalls = find_stalls(seconds, split_times(seconds))
    >>> stalls.rounds, stalls.period, round(stalls.share, 3)
    ((9, 19, 29, 39), 10, 0.167)
    """
    least = np.quantile(levels.shared[:, None] + levels.deviations, _OF_ALL, axis=1)
    high = above_usual(least)
    stalled = high > max(np.log(_STALLED), _CLEAR * float(np.median(np.abs(high))))
    if not 0 < stalled.mean() < _MOST:
        return None
    ends = seconds.max(axis=1)
    usual = ends / np.exp(np.where(stalled, high, 0.0))
    share = float((ends - usual).sum() / ends.sum())
    if share < _COSTS:
        return None
    times = np.exp(high[stalled])
    return Stalls(
        tuple(np.flatnonzero(stalled).tolist()), (float(times.mean()), float(times.max())), share, find_period(stalled)
    )


def find_pauses(seconds: Floats, levels: Levels) -> list[Pauses]:
    """Return the regular pauses of workers, by period, those of most workers first.

    Args:
        seconds: compute times, s [rounds, workers].
        levels: their two parts.

    Two workers pause every ten iterations, one five iterations after the other:

        >>> from fred.diagnosis.shared_pace import split_times
        >>> seconds = np.ones((60, 5))
        >>> seconds[2::10, 0], seconds[7::10, 1] = 3.0, 3.0
        >>> (pauses,) = find_pauses(seconds, split_times(seconds))
        >>> pauses.workers, pauses.period, pauses.share, float(pauses.aligned.max(axis=1).sum())
        ((0, 1), 10, 0.2, 72.0)
    """
    high = above_usual(levels.deviations)
    spread = np.median(np.abs(high), axis=0)
    late = high > np.maximum(np.log(_LATE), _CLEAR * spread)
    periods = np.array([find_period(series, late.shape[1]) if series.mean() < _MOST else 0 for series in late.T])
    regular = []
    for period in np.unique(periods[periods > 0]).tolist():
        workers = np.flatnonzero(periods == period)
        paused = late & (periods == period)
        times = float(np.exp(high[paused]).mean())
        share = float(paused.any(axis=1).mean())
        if share * (times - 1) < _COSTS:
            continue
        aligned = _aligned(seconds, paused, period)
        regular.append(Pauses(tuple(workers.tolist()), period, times, share, aligned))
    return sorted(regular, key=lambda pauses: -len(pauses.workers))


def find_period(late: Bools, series: int = 1) -> int:
    """Return the number of rounds after which slow rounds return; 0 if they are irregular.

    Args:
        late: True for slow rounds [rounds].
        series: number of series that are searched, one of which may look regular by chance.

    >>> late = np.zeros(50, bool)
    >>> late[[3, 13, 23, 43]] = True  # one is missing
    >>> find_period(late), find_period(np.ones(50, bool))
    (10, 0)
    """
    rounds = np.flatnonzero(late)
    if len(rounds) < _FEWEST:
        return 0
    distances = np.diff(rounds)
    period = int(np.median(distances))
    regular = distances % period == 0
    by_chance = series * float(period) ** (1 - int(regular.sum()))  # the first is no chance: the period is chosen by it
    return period if period >= _SHORTEST and regular.mean() >= _REGULAR and by_chance <= _BY_CHANCE else 0


def _aligned(seconds: Floats, paused: Bools, period: int) -> Floats | None:
    """Return the times with the pauses of all workers in the same rounds; None if they are there already, or of one worker.

    A worker's time with a pause changes places with that of the round in which all pause, so no worker's sum changes.
    """
    phases = [_phase(series, period) for series in paused.T if series.any()]
    if len(set(phases)) < 2:
        return None
    moved = seconds.copy()
    for worker in np.flatnonzero(paused.any(axis=0)).tolist():
        for at in np.flatnonzero(paused[:, worker]).tolist():
            to = at - (at - phases[0]) % period
            to = to if to >= 0 else to + period
            if to < len(seconds) and not paused[to, worker]:
                moved[[at, to], worker] = moved[[to, at], worker]
    return moved


def _phase(late: Bools, period: int) -> int:
    rounds: NDArray[np.int64] = np.flatnonzero(late)
    return int(np.bincount(rounds % period).argmax())
