"""Patterns in times: slow spells, lasting changes, stalls and pauses, and the part that all workers share.

| pattern | meaning                                                                                                |
|---------|--------------------------------------------------------------------------------------------------------|
| spell   | a stretch of rounds in which a series has a higher level, such as a node that is slow for some time    |
| change  | a worker that is slower or faster than before, from some iteration to the end of the record            |
| stall   | a single slow round of all workers at once                                                             |
| pause   | a single slow round of some workers, which comes back after a number of iterations                     |

Spells: a running median smooths the series, so that single late rounds make no spell. A threshold then separates two levels
such that they explain most of the variance [Otsu 1979, IEEE Transactions on Systems, Man, and Cybernetics 9(1)]. Levels that
explain little do not count. With independent normal values they explain 64 % of the smoothed variance, and about 10 % of
the whole.

Changes, stalls and pauses: times are split into a part that all workers share, and the deviations of each worker from its
usual time. For stalls and pauses, a running median over 31 rounds is the usual time, so spells and drifts are no pauses.
"""

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter, uniform_filter
from scipy.special import ndtr
from scipy.stats import rankdata

from fred.base.types import Bools, Floats

_WINDOW = 9  # rounds of the running median
_EXPLAINED, _OF_THE_SMOOTHED = 0.35, 0.8  # least share of the variance explained by two levels; one of the two suffices
_LEAST_DISTANCE = 0.1  # least distance of the levels, in logarithms: 10 %
_SHORTEST_SPELL = 5  # least rounds in a spell, and between two
_LATE_SHARE = 1 / 3  # share of late rounds with which a spell goes on
_CLIPPED_SHARE = 0.02  # share of values clipped at each end, so that outliers do not make up the variance

_PACE_WINDOW = 31  # rounds of the running median, within which single slow rounds do not count
_CHANGE_WINDOW = 9  # rounds of the running median
_FEWEST_ROUNDS = 10  # least rounds before a change, and after it
_CHANGED = 1.15  # least ratio of the times after and before
_BY_CHANCE = 0.001  # probability that some series without a change shows one
_CLEAN = 0.8  # share of the rounds on the right side of the middle, before and after
_ROUNDING = 1e-18  # variance of logarithms below which they do not vary
_SUDDEN = 0.5  # part of a sudden change that happens within a tenth of the rounds
_TOGETHER = 5  # rounds between changes of workers that change together
_STALLED = 1.5  # time relative to the usual one from which a round stalls
_OF_ALL = 0.25  # quantile of the workers that must stall: three in four
_REPORTED_SHARE = 0.02  # share of the time from which stalls or pauses are reported
_LATE = 1.25  # least time of a pause, relative to the worker's usual one
_CLEAR_DISTANCE = 8.0  # least distance of a stall or pause from usual times, in their median absolute deviations
_FEWEST_PAUSES = 4  # pauses from which their distances show a period
_REGULAR = 0.8  # share of the distances that must be multiples of the period
_PERIOD_BY_CHANCE = 0.01  # probability that irregular pauses of some worker look regular
_SHORTEST_PERIOD = 3  # iterations of the shortest period
_MOST_PAUSED = 0.34  # share of the rounds above which slow ones are no pauses


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


def find_spells(series: Floats) -> Bools:
    """Return True for rounds in a spell: a stretch at the higher of two levels; all False if there are not two [rounds].

    Args:
        series: logarithms, one per round [rounds].

    >>> find_spells(np.repeat([0.0, 1.0, 0.0], [20, 10, 30])).nonzero()[0].tolist()
    [20, 21, 22, 23, 24, 25, 26, 27, 28, 29]
    >>> find_spells(np.sin(np.arange(200.0) ** 2)).any()
    np.False_
    """
    none = np.zeros(len(series), bool)
    if len(series) < 2 * _SHORTEST_SPELL:
        return none
    smooth = median_filter(series, size=_WINDOW, mode="reflect")
    high = smooth > threshold(smooth)
    clipped = np.clip(series, *np.quantile(series, (_CLIPPED_SHARE, 1 - _CLIPPED_SHARE)))
    if class_distance(smooth, high) < _LEAST_DISTANCE:
        return none
    clear = explained_share(smooth, high) >= _OF_THE_SMOOTHED or explained_share(clipped, high) >= _EXPLAINED
    spells = _without_short_runs(high) if clear else none
    return none if spells.all() else spells


def extend_spells(level: Floats, high: Bools) -> Bools:
    """Return spells that go on while late rounds are frequent, if not in the majority, for longer than a window [rounds].

    Args:
        level: logarithms, one per round [rounds].
        high: True for rounds in a spell [rounds].

    >>> level = np.array([0.0] * 20 + [1.0] * 20 + [1.0, 0.0, 1.0, 0.0, 0.0] * 6 + [0.0] * 20)
    >>> int(find_spells(level).sum()), int(extend_spells(level, find_spells(level)).sum())
    (24, 47)
    """
    if not high.any() or high.all():
        return high
    late = level > (np.median(level[high]) + np.median(level[~high])) / 2
    often_late = uniform_filter(late.astype(float), _WINDOW, mode="nearest") >= _LATE_SHARE
    extended = high.copy()
    for run in runs(often_late | high):
        spell_rounds = np.flatnonzero(high[run.first : run.end]) + run.first
        if not run.high or not len(spell_rounds):
            continue
        # Late rounds at the edge of a spell raise the means of a window beyond it. So only what is longer extends the spell.
        first = run.first if spell_rounds[0] - run.first > _WINDOW else spell_rounds[0]
        end = run.end if run.end - spell_rounds[-1] > _WINDOW else spell_rounds[-1] + 1
        extended[first:end] = True
    return extended


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
    """Return the threshold that maximises the variance between the two classes [Otsu 1979].

    Args:
        values: at least two numbers.

    >>> threshold(np.array([1.0, 1.2, 3.0, 3.4]))
    2.1
    """
    ordered, count = np.sort(values), len(values)
    lower_sum, lower_count = np.cumsum(ordered)[:-1], np.arange(1, count)  # of the lower class, for each way to divide them
    upper_mean = (ordered.sum() - lower_sum) / (count - lower_count)
    variance = (lower_sum / lower_count - upper_mean) ** 2 * lower_count * (count - lower_count)  # times count^2
    best = int(np.argmax(variance))
    return float(ordered[best] + ordered[best + 1]) / 2


def class_distance(values: Floats, high: Bools) -> float:
    """Return the difference of the means of two classes; 0 if one is empty.

    Args:
        values: numbers, such as logarithms of times.
        high: True for those of the higher class.

    >>> class_distance(np.array([1.0, 1.2, 3.1]), np.array([False, False, True])), class_distance(np.ones(2), np.zeros(2, bool))
    (2.0, 0.0)
    """
    return float(values[high].mean() - values[~high].mean()) if 0 < high.mean() < 1 else 0.0


def explained_share(values: Floats, high: Bools) -> float:
    """Return the share of the variance that lies between two classes.

    Args:
        values: numbers, such as logarithms of times.
        high: True for those of the higher class.

    >>> explained_share(np.array([1.0, 1.0, 3.0]), np.array([False, False, True])).__round__(9)
    1.0
    """
    share, variance = float(high.mean()), float(values.var())
    return share * (1 - share) * class_distance(values, high) ** 2 / variance if variance else 0.0


def _without_short_runs(high: Bools) -> Bools:
    """Return `high` without short runs, removing the shortest first; runs at the ends may be cut off, so they stay."""
    high = high.copy()
    while short := [run for run in runs(high)[1:-1] if run.rounds < _SHORTEST_SPELL]:
        shortest = min(short, key=lambda run: run.rounds)
        high[shortest.first : shortest.end] = not shortest.high
    return high


class Levels(NamedTuple):
    """Log times in two parts.

    Args:
        shared: log of the time that all workers share in each round, relative to the usual one [rounds].
        deviations: log of each worker's time relative to its usual time and to the shared part [rounds, workers].
    """

    shared: Floats
    deviations: Floats


def split_times(seconds: Floats) -> Levels:
    """Split log times into a part that all workers share and a part of each worker.

    The shared part is a median over workers of times relative to each worker's median. So workers that are always slow do
    not move it, however many they are. If half of the workers are slow for some time, it is that of the others.

    Args:
        seconds: compute times, s [rounds, workers].

    Here one worker is always twice as slow, and in the last round all are four times slower:

        >>> levels = split_times(np.array([[1.0, 1.0, 2.0], [1.0, 1.0, 2.0], [4.0, 4.0, 8.0]]))
        >>> np.exp(levels.shared).round(6).tolist(), float(abs(levels.deviations).max()) < 1e-9
        ([1.0, 1.0, 4.0], True)
    """
    logs = np.log(seconds)
    relative = logs - np.median(logs, axis=0)
    shared = np.quantile(relative, 0.5, axis=1, method="lower")  # of an even number, the quicker middle one
    shared -= np.median(shared)
    return Levels(shared, relative - shared[:, None])


def above_usual(series: Floats) -> Floats:
    """Return a series less its running median, which follows slow changes and not single rounds [rounds, ...].

    Args:
        series: logarithms of times [rounds, ...].

    >>> above_usual(np.array([0.0, 0.0, 1.0, 0.0, 0.0])).tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0]
    """
    size = (_PACE_WINDOW, *([1] * (series.ndim - 1)))
    return np.asarray(series - median_filter(series, size=size, mode="reflect"))


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

    >>> from fred.diagnosis.spells import split_times
    >>> seconds = np.ones((100, 4))
    >>> seconds[90:, 2] = 3.0
    >>> (change,) = find_changes(split_times(seconds))
    >>> change.workers, change.round, round(change.times, 6)
    ((2,), 90, 3.0)
    """
    chance = _BY_CHANCE / levels.deviations.size  # any worker may seem to change, in any round (Bonferroni)
    single = [
        Change((worker,), *round_and_times)
        for worker, series in enumerate(levels.deviations.T)
        if (round_and_times := _last_change(series, chance))
    ]
    groups: list[list[Change]] = []  # changes of one direction at about the same time
    for change in sorted(single, key=lambda change: (change.times > 1, change.round)):
        latest = groups[-1][-1] if groups else None
        if latest and change.round - latest.round <= _TOGETHER and (change.times > 1) == (latest.times > 1):
            groups[-1].append(change)
        else:
            groups.append([change])
    changes = [
        Change(
            workers=tuple(sorted(change.workers[0] for change in group)),
            round=int(np.median([change.round for change in group])),
            times=float(np.exp(np.mean([np.log(change.times) for change in group]))),
        )
        for group in groups
    ]
    return sorted(changes, key=lambda change: -abs(np.log(change.times)))


def _persistence(series: Floats) -> float:
    """Return the number of successive values that count as one: 1 + 2 times the first positive autocorrelations, at least 1."""
    variance, persistence = float(series @ series), 1.0  # the mean is 0: these are residuals
    if variance < _ROUNDING * len(series):
        return persistence
    for lag in range(1, len(series) // 2):
        correlation = float(series[lag:] @ series[:-lag]) / variance
        if correlation <= 0:
            break
        persistence += 2 * correlation
    return persistence


def is_sudden(series: Floats, at: int) -> bool:
    """Return True if a change happens at once, not little by little.

    Args:
        series: logarithms of times [rounds].
        at: first round after the change.

    >>> is_sudden(np.repeat([0.0, 1.0], 50), 50), is_sudden(np.linspace(0.0, 2.0, 100), 50)
    (True, False)
    """
    window = max(_FEWEST_ROUNDS, len(series) // 10)
    near_change = np.median(series[at : at + window]) - np.median(series[max(0, at - window) : at])
    whole_change = np.median(series[at:]) - np.median(series[:at])
    return bool(abs(near_change) >= _SUDDEN * abs(whole_change))


def _last_change(series: Floats, chance: float) -> tuple[int, float] | None:
    """Return the first round after the last lasting change of a series, and the ratio of times; None if there is none.

    Args:
        series: logarithms of times [rounds].
        chance: probability that a series without a change shows one.
    """
    count = len(series)
    if count < 2 * _FEWEST_ROUNDS:
        return None
    smooth = median_filter(series, size=_CHANGE_WINDOW, mode="nearest")
    sizes = np.arange(1, count)  # numbers of rounds before the change
    sums = np.cumsum(smooth)
    distance = (sums[-1] - sums[:-1]) / (count - sizes) - sums[:-1] / sizes  # of the means after and before
    variance = distance**2 * sizes * (count - sizes)  # between the two parts, times count^2
    first_after = int(np.argmax(variance[_FEWEST_ROUNDS - 1 : count - _FEWEST_ROUNDS])) + _FEWEST_ROUNDS
    before, after = (float(np.median(part)) for part in (series[:first_after], series[first_after:]))
    change, middle = after - before, (after + before) / 2
    if abs(change) < np.log(_CHANGED):
        return None
    # Mann and Whitney's statistic, in standard deviations. Successive rounds that depend on each other count as fewer.
    ranks = rankdata(series)
    rank_deviation = np.sqrt((count + 1) * first_after / (12 * (count - first_after)))
    surprise = abs(ranks[first_after:].mean() - (count + 1) / 2) / rank_deviation
    residuals = np.concatenate([part - part.mean() for part in (series[:first_after], series[first_after:])])
    if ndtr(-surprise / np.sqrt(_persistence(residuals))) > chance:
        return None
    is_like_after = (smooth > middle) == (change > 0)
    clean_share = min(1 - is_like_after[:first_after].mean(), is_like_after[first_after:].mean())
    if clean_share < _CLEAN or not is_sudden(series, first_after):
        return None
    return first_after, float(np.exp(change))


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

    >>> from fred.diagnosis.spells import split_times
    >>> seconds = np.ones((40, 3))
    >>> seconds[[9, 19, 29, 39]] = 3.0
    >>> stalls = find_stalls(seconds, split_times(seconds))
    >>> stalls.rounds, stalls.period, round(stalls.share, 3)
    ((9, 19, 29, 39), 10, 0.167)
    """
    least = np.quantile(levels.shared[:, None] + levels.deviations, _OF_ALL, axis=1)  # three in four workers are as slow
    excess = above_usual(least)
    stalled = excess > max(np.log(_STALLED), _CLEAR_DISTANCE * float(np.median(np.abs(excess))))
    if not 0 < stalled.mean() < _MOST_PAUSED:
        return None
    durations = seconds.max(axis=1)
    without_stalls = durations / np.exp(np.where(stalled, excess, 0.0))
    share = float((durations - without_stalls).sum() / durations.sum())
    if share < _REPORTED_SHARE:
        return None
    times = np.exp(excess[stalled])
    return Stalls(
        rounds=tuple(np.flatnonzero(stalled).tolist()),
        times=(float(times.mean()), float(times.max())),
        share=share,
        period=find_period(stalled),
    )


def find_pauses(seconds: Floats, levels: Levels) -> list[Pauses]:
    """Return the regular pauses of workers, by period, those of most workers first.

    Args:
        seconds: compute times, s [rounds, workers].
        levels: their two parts.

    Two workers pause every ten iterations, one five iterations after the other:

        >>> from fred.diagnosis.spells import split_times
        >>> seconds = np.ones((60, 5))
        >>> seconds[2::10, 0], seconds[7::10, 1] = 3.0, 3.0
        >>> (pauses,) = find_pauses(seconds, split_times(seconds))
        >>> pauses.workers, pauses.period, pauses.share, float(pauses.aligned.max(axis=1).sum())
        ((0, 1), 10, 0.2, 72.0)
    """
    excess = above_usual(levels.deviations)
    spread = np.median(np.abs(excess), axis=0)
    late = excess > np.maximum(np.log(_LATE), _CLEAR_DISTANCE * spread)
    number = late.shape[1]  # of series that are searched
    periods = np.array([find_period(series, number) if series.mean() < _MOST_PAUSED else 0 for series in late.T])
    regular = []
    for period in np.unique(periods[periods > 0]).tolist():
        workers = np.flatnonzero(periods == period)
        paused = late & (periods == period)
        times = float(np.exp(excess[paused]).mean())
        share = float(paused.any(axis=1).mean())
        if share * (times - 1) < _REPORTED_SHARE:  # about the share of the time that the pauses cost
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
    if len(rounds) < _FEWEST_PAUSES:
        return 0
    distances = np.diff(rounds)
    period = int(np.median(distances))
    regular = distances % period == 0
    # Expected number of series that are as regular by chance: a distance is a multiple of the period with probability
    # 1 / period. One distance does not count, because the period was chosen by it.
    by_chance = series * float(period) ** (1 - int(regular.sum()))
    return period if period >= _SHORTEST_PERIOD and regular.mean() >= _REGULAR and by_chance <= _PERIOD_BY_CHANCE else 0


def _aligned(seconds: Floats, paused: Bools, period: int) -> Floats | None:
    """Return the times with the pauses of all workers in the same rounds; None if they are there already, or of one worker.

    A worker's time with a pause changes places with that of the round in which all pause, so no worker's sum changes.

    Args:
        seconds: compute times, s [rounds, workers].
        paused: True where a worker of this period pauses [rounds, workers].
        period: iterations from one pause of a worker to its next.
    """
    phases = [_phase(series, period) for series in paused.T if series.any()]
    if len(set(phases)) < 2:
        return None
    moved = seconds.copy()
    for worker in np.flatnonzero(paused.any(axis=0)).tolist():
        for source in np.flatnonzero(paused[:, worker]).tolist():
            target = source - (source - phases[0]) % period  # the last round, up to this one, in which the first worker pauses
            target = target if target >= 0 else target + period
            if target < len(seconds) and not paused[target, worker]:
                moved[[source, target], worker] = moved[[target, source], worker]
    return moved


def _phase(late: Bools, period: int) -> int:
    """Return the round number, modulo the period, of most slow rounds."""
    rounds: NDArray[np.int64] = np.flatnonzero(late)
    return int(np.bincount(rounds % period).argmax())
