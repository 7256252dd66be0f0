"""The loss and its causes: time spent waiting for the slowest worker, by worker, node, spell and part of the record.

The loss is relative to rounds in which all workers are as fast as the median one (`diagnosis/attribution.py`). A worker or
node is named if it differs from the others for long: always, or in spells. Workers that are late by chance, each in turn,
are not named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fred.diagnosis import spells
from fred.diagnosis.attribution import COMPUTING, Attribution
from fred.diagnosis.spells import (
    Bools,
    Change,
    Floats,
    Pauses,
    Stalls,
    find_changes,
    find_pauses,
    find_stalls,
    is_sudden,
    split_times,
)
from fred.diagnosis.worker_names import several
from fred.traces.trace import Trace

PARTS = 4  # parts of the record, each with its own loss
_MOST = 6  # most workers and nodes that are named
_SLOWER = 1.15  # time relative to the median worker from which a worker is named
_MOSTLY = 0.5  # share of the loss as a cost alone from which a worker is named, even if others hide it
_COSTS = 0.05  # share of the loss from which a worker is named
_LATE = 1.3  # time relative to the median worker from which a worker is late in a round
_NOTHING = 1e-9  # relative loss below which a slowdown is rounding
_BY_CHANCE = 3.0  # multiple of the median worker's cost from which rare delays are not chance
_FEWEST_LATE = 3  # rounds in which a worker must be late to be named for rare delays
_MANY = 0.25  # share of the workers from which slow ones are a group of their own: the median worker is not far from it
_HALF = 0.5  # share of the workers above which slow ones are the usual ones, and the others quick
_CLEAR = 0.8  # share of the variance between workers that two groups of them must explain
_MOST_CHANGE = 0.75  # share of the workers that must change for a change of all
_PARTS_OF_DRIFT = 10  # parts of the record, the last of which is the end of a drift
_LASTING = 0.8  # share of the rounds in which the slower group must be slower


@dataclass(frozen=True)
class Slow:
    """A worker, or the workers of a node, that rounds wait for.

    Args:
        name: name in the trace.
        workers: numbers of the workers.
        pattern: `always`, in `spells`, `drift` if it becomes slower little by little, or `rarely`.
        times: mean time relative to the median of the others; in spells, at the end of a drift, or when late.
        share: share of the rounds in which they are slow.
        spells: first iteration of each spell, and the one after its last.
        alone: slowdown of all rounds if only these keep their times.
        lost: part of the loss that goes if only these become as fast as the median worker; of a large group: as the median
            of the others.
    """

    name: str
    workers: tuple[int, ...]
    pattern: str
    times: float
    share: float
    spells: tuple[tuple[int, int], ...]
    alone: float
    lost: float


@dataclass(frozen=True)
class Quick:
    """A minority of workers that are always faster than the others, which costs no time.

    Args:
        workers: numbers of the workers.
        times: mean time of the others, relative to theirs.
    """

    workers: tuple[int, ...]
    times: float


@dataclass(frozen=True)
class Slowness:
    """The time that a trace loses to its slowest workers.

    Args:
        rounds: number of counted rounds.
        waiting: share of the workers' time spent waiting for the slowest.
        slowdown: time of rounds, relative to rounds with all workers as fast as the median one.
        lasting: the same with each worker at its usual speed.
        parts: share of the time lost in each quarter of the record.
        paces: median of all times in each quarter, s.
        shared_paces: the median worker's usual time in each quarter, so far as three in four workers change as it does, s.
        worst: iteration with the longest wait, and its share of the loss.
        high: True for rounds in a spell, in which waiting for all costs more than at other times [rounds].
        slow: slow workers and nodes, most costly first.
        together: part of the loss that goes if all of them become as fast as the median worker.
        quick: workers that are always faster than the others, if they are fewer.
        stalls: rounds in which all workers are slow at once, if they cost time.
        pauses: regular pauses of workers.
        changes: workers that are slower or faster than before to the end of the record.
    """

    rounds: int
    waiting: float
    slowdown: float
    lasting: float
    parts: tuple[float, ...]
    paces: tuple[float, ...]
    shared_paces: tuple[float, ...]
    worst: tuple[int, float]
    high: Bools
    slow: tuple[Slow, ...]
    together: float
    quick: Quick | None = None
    stalls: Stalls | None = None
    pauses: tuple[Pauses, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def spells(self) -> tuple[int, ...]:
        """Return the number of rounds in each spell, including those cut off at the beginning or the end of the record."""
        return tuple(run.rounds for run in spells.runs(self.high) if run.high)

    @property
    def share(self) -> float:
        """Return the share of the rounds in spells."""
        return float(self.high.mean())

    @property
    def lost(self) -> float:
        """Return the share of the time that is lost."""
        return 1 - 1 / self.slowdown


def slowness(trace: Trace, seconds: Floats, node_of: NDArray[np.int64], told: bool) -> Slowness:
    """Return the loss of recorded rounds, and its causes.

    Args:
        trace: trace with the names.
        seconds: compute times of the counted rounds, s [rounds, workers].
        node_of: node number of each worker, from 0 [workers].
        told: True if the trace gives the nodes; otherwise they are groups of workers that are slow together.

    Here one of four workers is always three times slower:

        >>> seconds = np.tile([1.0, 1.0, 1.0, 3.0], (50, 1))
        >>> found = slowness(Trace(seconds, tuple("abcd")), seconds, np.zeros(4, np.int64), told=False)
        >>> round(found.lost, 3), found.slow[0].name, round(found.slow[0].times, 6), found.slow[0].lost
        (0.667, 'd', 3.0, 1.0)
    """
    lost = Attribution({COMPUTING: seconds}, node_of)
    slower, levels = _slower_kind(seconds), split_times(seconds)
    slow = _named(trace, seconds, lost, told, slower)
    everybody = sorted({worker for each in slow for worker in each.workers})
    quarters = [part for part in np.array_split(seconds, PARTS) if len(part)]
    waits = seconds.max(axis=1) - np.median(seconds, axis=1)
    worst = int(np.argmax(waits))
    return Slowness(
        rounds=len(seconds),
        waiting=float(1 - seconds.sum() / (seconds.shape[1] * seconds.max(axis=1).sum())),
        slowdown=lost.slowdown,
        lasting=lost.lasting,
        parts=tuple(map(_lost, quarters)),
        paces=tuple(float(np.median(part)) for part in quarters),
        shared_paces=_paces(seconds),
        worst=(_first(trace, seconds) + worst, float(waits[worst] / max(waits.sum(), _NOTHING))),
        high=_high(seconds, slow, _first(trace, seconds)),
        slow=tuple(slow),
        together=lost.share(everybody) if everybody else 0.0,
        quick=_quick(seconds, slower),
        stalls=find_stalls(seconds, levels),
        pauses=tuple(find_pauses(seconds, levels)),
        changes=tuple(_without_spells(find_changes(levels), slow)),
    )


def _lost(seconds: Floats) -> float:
    return float(1 - np.median(seconds, axis=1).sum() / seconds.max(axis=1).sum())


def _paces(seconds: Floats) -> tuple[float, ...]:
    """Return the median worker's usual time in each quarter, s, so far as three in four workers change as it does.

    The median of all times would lie in the gap between two kinds of workers, and jump from one to the other.
    """
    medians = np.array([np.median(part, axis=0) for part in np.array_split(seconds, PARTS) if len(part)])
    usual = np.median(seconds, axis=0)
    low, high = np.quantile(medians / usual, (1 - _MOST_CHANGE, _MOST_CHANGE), axis=1)
    return tuple((np.median(usual) * np.where(low > 1, low, np.minimum(high, 1))).tolist())


def _high(seconds: Floats, slow: Sequence[Slow], first: int) -> Bools:
    """Return True for rounds in a spell: of the cost of waiting, or else of the named workers, unless these fill the record."""
    high = spells.find(spells.waiting(seconds))
    if high.any():
        return high
    for each in slow:
        for begin, end in each.spells:
            high[begin - first : end - first] = True
    return np.zeros_like(high) if high.all() else high


def _without_spells(changes: Sequence[Change], slow: Sequence[Slow]) -> Iterator[Change]:
    """Yield the changes of workers that are not named for their spells, which say the same."""
    named = {worker for each in slow if each.spells for worker in each.workers}
    yield from (change for change in changes if not named & set(change.workers))


def _named(trace: Trace, seconds: Floats, lost: Attribution, told: bool, slower: Bools) -> list[Slow]:
    """Return slow workers and nodes, those with the highest cost alone first, without those that cost little."""
    if lost.slowdown - 1 < _NOTHING:
        return []
    found = [*_nodes(trace, seconds, lost, told), *_workers(trace, seconds, lost)]
    many = _many(trace, seconds, lost, slower)
    grouped = {worker for each in many for worker in each.workers}
    found = many + _alike([each for each in found if not grouped & set(each.workers)], trace, seconds, lost)
    named: list[Slow] = []
    everybody: list[int] = []
    for each in sorted(found, key=lambda each: (-each.alone, -len(each.workers))):
        if set(each.workers) & set(everybody) or len(named) == _MOST:
            continue
        more = lost.share([*everybody, *each.workers]) - (lost.share(everybody) if everybody else 0.0)
        if max(each.lost, more) >= _COSTS or each.alone - 1 >= _MOSTLY * (lost.slowdown - 1):
            named.append(each)
            everybody += each.workers
    return named if everybody and lost.share(everybody) >= _COSTS else []


def _nodes(trace: Trace, seconds: Floats, lost: Attribution, told: bool) -> Iterator[Slow]:
    """Yield the nodes, or groups, of several workers that are slow as a whole."""
    for number in range(int(lost.node_of.max()) + 1):
        own = np.flatnonzero(lost.node_of == number).tolist()
        if 1 < len(own) < seconds.shape[1] and (pattern := _pattern(_level(seconds, own), _first(trace, seconds))):
            name = trace.node(number) if told else f"{several(trace, own)} (slow together)"
            yield Slow(name, tuple(own), *pattern, float(lost.of_nodes[number]), lost.share(own))


def _workers(trace: Trace, seconds: Floats, lost: Attribution) -> Iterator[Slow]:
    """Yield the workers that are slow individually."""
    usual = float(np.median(lost.of_workers)) - 1
    for worker in np.flatnonzero(lost.of_workers - 1 > _COSTS * (lost.slowdown - 1)).tolist():
        level = _level(seconds, [worker])
        pattern = _pattern(level, _first(trace, seconds))
        alone, share = float(lost.of_workers[worker]), lost.share([worker])
        if pattern is None and alone - 1 > _BY_CHANCE * usual and share > _COSTS:
            pattern = _rarely(level)
        if pattern is not None:
            yield Slow(trace.worker(worker), (worker,), *pattern, alone, share)


def _alike(found: list[Slow], trace: Trace, seconds: Floats, lost: Attribution) -> list[Slow]:
    """Merge workers that are always slow into one entry: repairing one of them alone would not help."""
    always = [each for each in found if each.pattern == "always" and len(each.workers) == 1]
    if len(always) < 2:
        return found
    own = sorted(each.workers[0] for each in always)
    as_one = _group(trace, seconds, own, np.median(seconds, axis=1, keepdims=True), lost)
    return [*(each for each in found if each not in always), as_one]


def _slower_kind(seconds: Floats) -> Bools:
    """Return True for the slower of two kinds of workers; all False if there are not two [workers]."""
    none = np.zeros(seconds.shape[1], bool)
    ratios = np.log(seconds / np.median(seconds, axis=1, keepdims=True))
    usual = np.median(ratios, axis=0)
    slower = usual > spells.threshold(usual)
    if spells.explained(usual, slower) < _CLEAR:
        return none
    half = np.median(ratios[::2], axis=0)  # groups by half of the rounds, which chance does not repeat in the other half
    if spells.apart(np.median(ratios[1::2], axis=0), half > spells.threshold(half)) < np.log(_SLOWER):
        return none
    level = _level(seconds, np.flatnonzero(slower).tolist())
    return slower if (level > spells.apart(usual, slower) / 2).mean() >= _LASTING else none


def _quick(seconds: Floats, slower: Bools) -> Quick | None:
    """Return the faster of two kinds of workers, if they are fewer."""
    if slower.mean() <= _HALF:
        return None
    times = float(np.exp(_level(seconds, np.flatnonzero(slower).tolist())).mean())
    return Quick(tuple(np.flatnonzero(~slower).tolist()), times)


def _many(trace: Trace, seconds: Floats, lost: Attribution, slower: Bools) -> list[Slow]:
    """Return a large group that is always slower than the rest, but no majority, as one entry."""
    if not _MANY <= slower.mean() <= _HALF:
        return []
    rest = np.median(seconds[:, ~slower], axis=1, keepdims=True)
    return [_group(trace, seconds, np.flatnonzero(slower).tolist(), rest, lost)]


def _group(trace: Trace, seconds: Floats, workers: list[int], ideal: Floats, lost: Attribution) -> Slow:
    """Return workers that are always slow as one entry; `ideal` is the time of a quick worker, s [rounds, 1]."""
    own = np.isin(np.arange(seconds.shape[1]), workers)
    repaired, alone = (float(each.max(axis=1).sum()) for each in (np.where(own, ideal, seconds), np.where(own, seconds, ideal)))
    goes = min(1.0, (lost.seconds - repaired) / (lost.seconds - lost.ideal_seconds))
    times = float(np.exp(_level(seconds, workers)).mean())
    return Slow(several(trace, workers), tuple(workers), "always", times, 1.0, (), alone / float(ideal.sum()), goes)


def _level(seconds: Floats, workers: list[int]) -> Floats:
    """Return the log ratio of the median time of some workers to that of the others [rounds]."""
    own = np.isin(np.arange(seconds.shape[1]), workers)
    return np.asarray(np.log(np.median(seconds[:, own], axis=1) / np.median(seconds[:, ~own], axis=1)))


def _first(trace: Trace, seconds: Floats) -> int:
    """Return the iteration of the first counted round."""
    return trace.iterations - len(seconds)


Pattern = tuple[str, float, float, tuple[tuple[int, int], ...]]


def _pattern(level: Floats, first: int) -> Pattern | None:
    """Return the pattern of slowness, given log times relative to the others [rounds]; None if not slow for long."""
    high = spells.grown(level, spells.find(level))
    ratio = np.exp(level)
    if high.any() and not high.all():
        times = float(ratio[high].mean())
        if times >= _SLOWER * max(1.0, float(ratio[~high].mean())):
            found = tuple((first + run.first, first + run.end) for run in spells.runs(high) if run.high)
            ((begin, end), *others) = found
            if not others and first < begin and end == first + len(level) and not is_sudden(level, begin - first):
                return "drift", float(ratio[-len(ratio) // _PARTS_OF_DRIFT :].mean()), float(high.mean()), found
            return "spells", times, float(high.mean()), found
    times = float(np.exp(np.median(level)))
    return ("always", float(ratio.mean()), 1.0, ()) if times >= _SLOWER else None


def _rarely(level: Floats) -> Pattern | None:
    late = level > np.log(_LATE)
    if late.sum() < _FEWEST_LATE:
        return None
    return "rarely", float(np.exp(level[late]).mean()), float(late.mean()), ()
