"""Lasting changes: workers that are slower or faster than before from some iteration to the end of the record."""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import median_filter
from scipy.special import ndtr
from scipy.stats import rankdata

from fred.diagnosis.shared_pace import Levels
from fred.diagnosis.spells import Floats

_WINDOW = 9  # rounds of the running median
_FEWEST = 10  # least rounds before a change, and after it
_CHANGED = 1.15  # least ratio of the times after and before
_BY_CHANCE = 0.001  # probability that some series without a change shows one
_CLEAN = 0.8  # share of the rounds on the right side of the middle, before and after
_ROUNDING = 1e-18  # variance of logarithms below which they do not vary
_SUDDEN = 0.5  # part of a sudden change that happens within a tenth of the rounds
_TOGETHER = 5  # rounds between changes of workers that change together


@dataclass(frozen=True)
class Change:
    """A change of some workers that lasts to the end of the record.

    Args:
        workers: numbers of the workers.
        round: first round after the change.
        times: time after it, relative to the time before.
    """

    workers: tuple[int, ...]
    round: int
    times: float


def find_changes(levels: Levels) -> list[Change]:
    """Return workers that changed to the end of the record, together if at the same time, largest change first.

    Args:
        levels: log times of the workers relative to their usual and the shared time.

    >>> from fred.diagnosis.shared_pace import split_times
    >>> seconds = np.ones((100, 4))
    >>> seconds[90:, 2] = 3.0
    >>> (change,) = find_changes(split_times(seconds))
    >>> change.workers, change.round, round(change.times, 6)
    ((2,), 90, 3.0)
    """
    chance = _BY_CHANCE / levels.deviations.size  # any worker, any round
    changed = [(worker, *change) for worker, series in enumerate(levels.deviations.T) if (change := _change(series, chance))]
    groups: list[list[tuple[int, int, float]]] = []
    for item in sorted(changed, key=lambda item: (item[2] > 1, item[1])):
        near = bool(groups) and item[1] - groups[-1][-1][1] <= _TOGETHER and (item[2] > 1) == (groups[-1][-1][2] > 1)
        if near:
            groups[-1].append(item)
        else:
            groups.append([item])
    changes = [
        Change(
            tuple(sorted(worker for worker, _, _ in group)),
            int(np.median([at for _, at, _ in group])),
            float(np.exp(np.mean([np.log(times) for _, _, times in group]))),
        )
        for group in groups
    ]
    return sorted(changes, key=lambda change: -abs(np.log(change.times)))


def _persistence(series: Floats) -> float:
    """Return the number of successive values that count as one: 1 + 2 times the first positive autocorrelations, at least 1."""
    variance, total = float(series @ series), 1.0
    if variance < _ROUNDING * len(series):
        return total
    for lag in range(1, len(series) // 2):
        correlation = float(series[lag:] @ series[:-lag]) / variance
        if correlation <= 0:
            break
        total += 2 * correlation
    return total


def is_sudden(series: Floats, at: int) -> bool:
    """Return True if a change happens at once, not little by little.

    Args:
        series: logarithms of times [rounds].
        at: first round after the change.

    >>> is_sudden(np.repeat([0.0, 1.0], 50), 50), is_sudden(np.linspace(0.0, 2.0, 100), 50)
    (True, False)
    """
    window = max(_FEWEST, len(series) // 10)
    near = np.median(series[at : at + window]) - np.median(series[max(0, at - window) : at])
    return bool(abs(near) >= _SUDDEN * abs(np.median(series[at:]) - np.median(series[:at])))


def _change(series: Floats, chance: float) -> tuple[int, float] | None:
    """Return the first round after the last lasting change of a series, and its size; None if there is none."""
    count = len(series)
    if count < 2 * _FEWEST:
        return None
    smooth = median_filter(series, size=_WINDOW, mode="nearest")
    sizes = np.arange(1, count)
    sums = np.cumsum(smooth)
    distance = (sums[-1] - sums[:-1]) / (count - sizes) - sums[:-1] / sizes
    variance = distance**2 * sizes * (count - sizes)
    at = int(np.argmax(variance[_FEWEST - 1 : count - _FEWEST])) + _FEWEST
    before, after = (float(np.median(part)) for part in (series[:at], series[at:]))
    change, middle = after - before, (after + before) / 2
    if abs(change) < np.log(_CHANGED):
        return None
    ranks = rankdata(series)  # Mann and Whitney's statistic
    surprise = abs(ranks[at:].mean() - (count + 1) / 2) / np.sqrt((count + 1) * at / (12 * (count - at)))
    around = np.concatenate([part - part.mean() for part in (series[:at], series[at:])])
    if ndtr(-surprise / np.sqrt(_persistence(around))) > chance:
        return None
    right = (smooth > middle) == (change > 0)
    if min(1 - right[:at].mean(), right[at:].mean()) < _CLEAN or not is_sudden(series, at):
        return None
    return at, float(np.exp(change))
