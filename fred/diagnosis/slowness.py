"""The loss and its causes: time spent waiting for the slowest worker, by worker, node, spell and part of the record.

The loss is relative to rounds in which all workers are as fast as the median one (`diagnosis/attribution.py`). A worker or
node is named if it differs from the others for long: always, or in spells. Workers that are late by chance, each in turn,
are not named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fred.base.types import Bools, Floats
from fred.diagnosis import spells
from fred.diagnosis.attribution import COMPUTING, Attribution
from fred.diagnosis.spells import Change, Pauses, Stalls, find_changes, find_pauses, find_stalls, is_sudden, split_times
from fred.traces.trace import Trace

_MOST_LETTERS = 30  # of the names in a sentence, if they are several


def name_workers(trace: Trace, numbers: Sequence[int]) -> str:
    """Return the name of some workers in a sentence: their node if they are all of it, otherwise their own names.

    Args:
        trace: trace of the cluster.
        numbers: numbers of the workers, from 0.
    >>> trace = Trace(np.ones((1, 6)), tuple("012345"), node_of=np.array([0, 0, 0, 1, 1, 1]))
    >>> name_workers(trace, [3, 4, 5]), name_workers(trace, [1, 2, 3, 5]), name_workers(trace, [4])
    ('node 1', 'workers 1, 2, 3 and 5', 'worker 4')
    """
    if trace.node_of is not None and len(numbers) > 1:
        nodes = np.unique(trace.node_of[list(numbers)])
        if len(nodes) == 1 and (trace.node_of == nodes[0]).sum() == len(numbers):
            return trace.node(int(nodes[0]))
    if len(numbers) == 1:
        return trace.worker(numbers[0])
    names = [trace.workers[number] for number in numbers]
    return f"{'workers ' if names[0].isdecimal() else ''}{join_names(names)}"


def join_names(names: Sequence[str], most: int = 6) -> str:
    """Return names as a list in a sentence.

    Args:
        names: names, at least one.
        most: maximum number of names written out; long names are fewer.

    >>> join_names(["a", "b", "c"]), join_names(["a", "b", "c"], most=1)
    ('a, b and c', 'a and 2 more')
    >>> join_names([f"ip-10-0-0-{i}.ec2.internal" for i in range(5)])
    'ip-10-0-0-0.ec2.internal and 4 more'
    """
    while most > 1 and sum(map(len, names[:most])) > _MOST_LETTERS:
        most -= 1
    first_names, remainder = names[:most], len(names) - most
    *first, last = [*first_names, f"{remainder} more"] if remainder > 0 else first_names
    return f"{', '.join(first)} and {last}" if first else last


PARTS = 4  # parts of the record, each with its own loss
_MOST_NAMES = 6  # most workers and nodes that are named
_SLOWER = 1.15  # time relative to the median worker from which a worker is named
_MOSTLY = 0.5  # share of the loss as a cost alone from which a worker is named, even if others hide it
_NAMED_SHARE = 0.05  # share of the loss from which a worker is named
_LATE = 1.3  # time relative to the median worker from which a worker is late in a round
_ROUNDING = 1e-9  # relative loss below which a slowdown is rounding
_BY_CHANCE = 3.0  # multiple of the median worker's cost from which rare delays are not chance
_FEWEST_LATE = 3  # rounds in which a worker must be late to be named for rare delays
_LARGE_GROUP = 0.25  # share of the workers from which slow ones are a group of their own: the median worker is not far from it
_MAJORITY = 0.5  # share of the workers above which slow ones are the usual ones, and the others quick
_CLEAR_SHARE = 0.8  # share of the variance between workers that two groups of them must explain
_MOST_CHANGE = 0.75  # share of the workers that must change alike for a change of all
_PARTS_OF_DRIFT = 10  # parts of the record, the last of which is the end of a drift
_LASTING = 0.8  # share of the rounds in which the slower group must be slower


class Pattern(NamedTuple):
    """How workers are slow: the fields of `Slow` that depend on their own times alone."""

    pattern: str
    times: float
    share: float = 1.0
    spells: tuple[tuple[int, int], ...] = ()


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
        slowdown_alone: slowdown of all rounds if only these keep their times.
        loss_share: part of the loss that goes if only these become as fast as the median worker; of a large group: as the
            median of the others.
    """

    name: str
    workers: tuple[int, ...]
    pattern: str
    times: float
    share: float
    spells: tuple[tuple[int, int], ...]
    slowdown_alone: float
    loss_share: float


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
    def lost_share(self) -> float:
        """Return the share of the time that is lost."""
        return 1 - 1 / self.slowdown


def slowness(trace: Trace, seconds: Floats, node_of: NDArray[np.int64], has_nodes: bool) -> Slowness:
    """Return the loss of recorded rounds, and its causes.

    Args:
        trace: trace with the names.
        seconds: compute times of the counted rounds, s [rounds, workers].
        node_of: node number of each worker, from 0 [workers].
        has_nodes: True if the trace gives the nodes; otherwise they are groups of workers that are slow together.

    Here one of four workers is always three times slower:

        >>> seconds = np.tile([1.0, 1.0, 1.0, 3.0], (50, 1))
        >>> loss = slowness(Trace(seconds, tuple("abcd")), seconds, np.zeros(4, np.int64), has_nodes=False)
        >>> round(loss.lost_share, 3), loss.slow[0].name, round(loss.slow[0].times, 6), loss.slow[0].loss_share
        (0.667, 'd', 3.0, 1.0)
    """
    attribution = Attribution({COMPUTING: seconds}, node_of)
    slower, levels = _slower_kind(seconds), split_times(seconds)
    stragglers = _select_slow(trace, seconds, attribution, has_nodes, slower)
    slow_workers = sorted({worker for straggler in stragglers for worker in straggler.workers})
    quarters = [part for part in np.array_split(seconds, PARTS) if len(part)]
    waits = seconds.max(axis=1) - np.median(seconds, axis=1)
    worst = int(np.argmax(waits))
    return Slowness(
        rounds=len(seconds),
        waiting=float(1 - seconds.sum() / (seconds.shape[1] * seconds.max(axis=1).sum())),
        slowdown=attribution.slowdown,
        lasting=attribution.lasting,
        parts=tuple(map(_lost_share, quarters)),
        paces=tuple(float(np.median(part)) for part in quarters),
        shared_paces=_shared_paces(seconds),
        worst=(_first_iteration(trace, seconds) + worst, float(waits[worst] / max(waits.sum(), _ROUNDING))),
        high=_rounds_in_spells(seconds, stragglers, _first_iteration(trace, seconds)),
        slow=tuple(stragglers),
        together=attribution.share(slow_workers) if slow_workers else 0.0,
        quick=_quick(seconds, slower),
        stalls=find_stalls(seconds, levels),
        pauses=tuple(find_pauses(seconds, levels)),
        changes=tuple(_without_spells(find_changes(levels), stragglers)),
    )


def _lost_share(seconds: Floats) -> float:
    return float(1 - np.median(seconds, axis=1).sum() / seconds.max(axis=1).sum())


def _shared_paces(seconds: Floats) -> tuple[float, ...]:
    """Return the median worker's usual time in each quarter, s, so far as three in four workers change as it does.

    The median of all times would lie in the gap between two kinds of workers, and jump from one to the other.
    """
    medians = np.array([np.median(part, axis=0) for part in np.array_split(seconds, PARTS) if len(part)])
    usual = np.median(seconds, axis=0)
    low, high = np.quantile(medians / usual, (1 - _MOST_CHANGE, _MOST_CHANGE), axis=1)
    shared_ratio = np.where(low > 1, low, np.minimum(high, 1))  # three in four are slower, or quicker, by this; otherwise 1
    return tuple((np.median(usual) * shared_ratio).tolist())


def _rounds_in_spells(seconds: Floats, slow: Sequence[Slow], first: int) -> Bools:
    """Return True for rounds in a spell: of the cost of waiting, or else of the named workers, unless these fill the record.

    Args:
        seconds: compute times, s [rounds, workers].
        slow: named workers and nodes.
        first: iteration of the first round.
    """
    high = spells.find_spells(spells.waiting(seconds))
    if high.any():
        return high
    for straggler in slow:
        for begin, end in straggler.spells:
            high[begin - first : end - first] = True
    return np.zeros_like(high) if high.all() else high


def _without_spells(changes: Sequence[Change], slow: Sequence[Slow]) -> Iterator[Change]:
    """Yield the changes of workers that are not named for their spells, which say the same."""
    workers_in_spells = {worker for straggler in slow if straggler.spells for worker in straggler.workers}
    yield from (change for change in changes if not workers_in_spells & set(change.workers))


def _select_slow(trace: Trace, seconds: Floats, attribution: Attribution, has_nodes: bool, slower: Bools) -> list[Slow]:
    """Return slow workers and nodes, those with the highest cost alone first, without those that cost little."""
    if attribution.slowdown - 1 < _ROUNDING:
        return []
    parties = [*_nodes(trace, seconds, attribution, has_nodes), *_workers(trace, seconds, attribution)]
    large_groups = _large_groups(trace, seconds, attribution, slower)
    grouped = {worker for group in large_groups for worker in group.workers}
    ungrouped = [party for party in parties if not grouped & set(party.workers)]
    candidates = large_groups + _merge_always_slow(ungrouped, trace, seconds, attribution)
    selected: list[Slow] = []
    selected_workers: list[int] = []
    for straggler in sorted(candidates, key=lambda straggler: (-straggler.slowdown_alone, -len(straggler.workers))):
        if set(straggler.workers) & set(selected_workers) or len(selected) == _MOST_NAMES:
            continue
        share_before = attribution.share(selected_workers) if selected_workers else 0.0
        added_share = attribution.share([*selected_workers, *straggler.workers]) - share_before
        # If others are slow in the same rounds, these may cost much alone, although their repair alone gains nothing.
        costs_most = straggler.slowdown_alone - 1 >= _MOSTLY * (attribution.slowdown - 1)
        if max(straggler.loss_share, added_share) >= _NAMED_SHARE or costs_most:
            selected.append(straggler)
            selected_workers += straggler.workers
    return selected if selected_workers and attribution.share(selected_workers) >= _NAMED_SHARE else []


def _nodes(trace: Trace, seconds: Floats, attribution: Attribution, has_nodes: bool) -> Iterator[Slow]:
    """Yield the nodes, or groups, of several workers that are slow as a whole."""
    for number in range(int(attribution.node_of.max()) + 1):
        workers = np.flatnonzero(attribution.node_of == number).tolist()
        if 1 < len(workers) < seconds.shape[1] and (
            pattern := _pattern(_level(seconds, workers), _first_iteration(trace, seconds))
        ):
            name = trace.node(number) if has_nodes else f"{name_workers(trace, workers)} (slow together)"
            yield Slow(
                name=name,
                workers=tuple(workers),
                **pattern._asdict(),
                slowdown_alone=float(attribution.of_nodes[number]),
                loss_share=attribution.share(workers),
            )


def _workers(trace: Trace, seconds: Floats, attribution: Attribution) -> Iterator[Slow]:
    """Yield the workers that are slow individually."""
    median_cost = float(np.median(attribution.of_workers)) - 1  # of a worker that is late by chance
    for worker in np.flatnonzero(attribution.of_workers - 1 > _NAMED_SHARE * (attribution.slowdown - 1)).tolist():
        level = _level(seconds, [worker])
        pattern = _pattern(level, _first_iteration(trace, seconds))
        slowdown_alone, loss_share = float(attribution.of_workers[worker]), attribution.share([worker])
        if pattern is None and slowdown_alone - 1 > _BY_CHANCE * median_cost and loss_share > _NAMED_SHARE:
            pattern = _rarely_late(level)
        if pattern is not None:
            yield Slow(
                name=trace.worker(worker),
                workers=(worker,),
                **pattern._asdict(),
                slowdown_alone=slowdown_alone,
                loss_share=loss_share,
            )


def _merge_always_slow(stragglers: list[Slow], trace: Trace, seconds: Floats, attribution: Attribution) -> list[Slow]:
    """Merge workers that are always slow into one entry: repairing one of them alone would not help."""
    always = [straggler for straggler in stragglers if straggler.pattern == "always" and len(straggler.workers) == 1]
    if len(always) < 2:
        return stragglers
    workers = sorted(straggler.workers[0] for straggler in always)
    ideal = np.median(seconds, axis=1, keepdims=True)
    merged = _always_slow_entry(trace, seconds, workers, ideal, attribution)
    return [*(straggler for straggler in stragglers if straggler not in always), merged]


def _slower_kind(seconds: Floats) -> Bools:
    """Return True for the slower of two kinds of workers; all False if there are not two [workers]."""
    none = np.zeros(seconds.shape[1], bool)
    ratios = np.log(seconds / np.median(seconds, axis=1, keepdims=True))
    usual = np.median(ratios, axis=0)
    slower = usual > spells.threshold(usual)
    if spells.explained_share(usual, slower) < _CLEAR_SHARE:
        return none
    even_rounds, odd_rounds = (np.median(ratios[start::2], axis=0) for start in (0, 1))
    slower_in_even = even_rounds > spells.threshold(even_rounds)
    if spells.class_distance(odd_rounds, slower_in_even) < np.log(_SLOWER):  # chance would not repeat in the other half
        return none
    level = _level(seconds, np.flatnonzero(slower).tolist())
    return slower if (level > spells.class_distance(usual, slower) / 2).mean() >= _LASTING else none


def _quick(seconds: Floats, slower: Bools) -> Quick | None:
    """Return the faster of two kinds of workers, if they are fewer."""
    if slower.mean() <= _MAJORITY:
        return None
    times = float(np.exp(_level(seconds, np.flatnonzero(slower).tolist())).mean())
    return Quick(tuple(np.flatnonzero(~slower).tolist()), times)


def _large_groups(trace: Trace, seconds: Floats, attribution: Attribution, slower: Bools) -> list[Slow]:
    """Return a large group that is always slower than the rest, but no majority, as one entry."""
    if not _LARGE_GROUP <= slower.mean() <= _MAJORITY:
        return []
    ideal = np.median(seconds[:, ~slower], axis=1, keepdims=True)
    return [_always_slow_entry(trace, seconds, np.flatnonzero(slower).tolist(), ideal, attribution)]


def _always_slow_entry(trace: Trace, seconds: Floats, workers: list[int], ideal: Floats, attribution: Attribution) -> Slow:
    """Return workers that are always slow as one entry; `ideal` is the time of a quick worker, s [rounds, 1]."""
    is_member = np.isin(np.arange(seconds.shape[1]), workers)
    repaired_seconds = float(np.where(is_member, ideal, seconds).max(axis=1).sum())  # of all rounds, if they were quick
    alone_seconds = float(np.where(is_member, seconds, ideal).max(axis=1).sum())  # if all others were quick
    return Slow(
        name=name_workers(trace, workers),
        workers=tuple(workers),
        pattern="always",
        times=float(np.exp(_level(seconds, workers)).mean()),
        share=1.0,
        spells=(),
        slowdown_alone=alone_seconds / float(ideal.sum()),
        loss_share=min(1.0, (attribution.seconds - repaired_seconds) / (attribution.seconds - attribution.ideal_seconds)),
    )


def _level(seconds: Floats, workers: list[int]) -> Floats:
    """Return the log ratio of the median time of some workers to that of the others [rounds]."""
    is_member = np.isin(np.arange(seconds.shape[1]), workers)
    return np.asarray(np.log(np.median(seconds[:, is_member], axis=1) / np.median(seconds[:, ~is_member], axis=1)))


def _first_iteration(trace: Trace, seconds: Floats) -> int:
    """Return the iteration of the first counted round."""
    return trace.iterations - len(seconds)


def _pattern(level: Floats, first: int) -> Pattern | None:
    """Return the pattern of slowness; None if not slow for long.

    Args:
        level: log times relative to the others [rounds].
        first: iteration of the first round.
    """
    high = spells.extend_spells(level, spells.find_spells(level))
    ratio = np.exp(level)
    if high.any() and not high.all():
        times = float(ratio[high].mean())
        if times >= _SLOWER * max(1.0, float(ratio[~high].mean())):  # than the others, and than at other times
            iterations = tuple((first + run.first, first + run.end) for run in spells.runs(high) if run.high)
            ((begin, end), *later_spells) = iterations
            if not later_spells and first < begin and end == first + len(level) and not is_sudden(level, begin - first):
                times_at_end = float(ratio[-len(ratio) // _PARTS_OF_DRIFT :].mean())
                return Pattern("drift", times_at_end, float(high.mean()), iterations)
            return Pattern("spells", times, float(high.mean()), iterations)
    times = float(np.exp(np.median(level)))
    return Pattern("always", float(ratio.mean())) if times >= _SLOWER else None


def _rarely_late(level: Floats) -> Pattern | None:
    """Return the pattern of late rounds, given log times relative to the others [rounds]; None if they are too few."""
    late = level > np.log(_LATE)
    if late.sum() < _FEWEST_LATE:
        return None
    return Pattern("rarely", float(np.exp(level[late]).mean()), float(late.mean()))
