"""The loss and its causes: the time that rounds wait for the slowest, by worker, node, spell and part of the record.

The loss is that against rounds in which all workers are as fast as the median one (`diagnosis/attribution.py`). A worker, or a
node, is named where it differs from the others for long: always, or in spells. Workers that are late by chance, each in
turn, are not named.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fred.diagnosis import spells
from fred.diagnosis.attribution import COMPUTING, Attribution
from fred.diagnosis.spells import Floats
from fred.diagnosis.worker_names import several
from fred.traces.trace import Trace

PARTS = 4  # of the record, each with its own loss
_MOST = 6  # workers and nodes that are named
_SLOWER = 1.15  # times as slow as the median worker, from which on somebody is named
_MOSTLY = 0.5  # of the loss, that somebody would cost alone: named even where others hide it
_COSTS = 0.05  # of the loss, from which on somebody is named
_LATE = 1.3  # times the median worker: late in a round
_NOTHING = 1e-9  # of the time: rounding
_BY_CHANCE = 3.0  # times what the median worker costs alone: rare delays of one worker that are not by chance


@dataclass(frozen=True)
class Slow:
    """A worker, or the workers of a node, that rounds wait for.

    Args:
        name: the trace's own.
        workers: their numbers.
        pattern: `always`, in `spells`, or `rarely`.
        times: how many times slower than the others; in spells than outside them.
        share: of the rounds, in which they are slow.
        spells: first iteration of each spell, and the one after its last.
        alone: slowdown of all rounds if only these were as slow as they are.
        lost: part of the loss that goes if only these were as fast as the median worker.
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
class Slowness:
    """What a trace loses to its slowest workers.

    Args:
        rounds: that count.
        waiting: share of the workers' time that they wait for the slowest.
        slowdown: how many times as long rounds take as if all workers were as the median one.
        lasting: the same if each was always as slow as it mostly is.
        parts: share of the time that is lost in each quarter of the record.
        spells: rounds of each spell in which waiting for all costs more than at other times.
        share: of the rounds, in such spells.
        slow: slow workers and nodes, the most costly first.
        together: part of the loss that goes if all of them were as fast as the median worker.
    """

    rounds: int
    waiting: float
    slowdown: float
    lasting: float
    parts: tuple[float, ...]
    spells: tuple[int, ...]
    share: float
    slow: tuple[Slow, ...]
    together: float

    @property
    def lost(self) -> float:
        """Return the share of the time that is lost."""
        return 1 - 1 / self.slowdown


def slowness(trace: Trace, seconds: Floats, node_of: NDArray[np.int64], told: bool) -> Slowness:
    """Return the loss of recorded rounds, and its causes.

    Args:
        trace: for its names.
        seconds: compute times of the rounds that count, s [rounds, workers].
        node_of: the node of each worker, by number from 0 [workers].
        told: whether the trace says the nodes; else they are groups of workers that are slow together.

    One of four workers is always three times slower:

        >>> seconds = np.tile([1.0, 1.0, 1.0, 3.0], (50, 1))
        >>> found = slowness(Trace(seconds, tuple("abcd")), seconds, np.zeros(4, np.int64), told=False)
        >>> round(found.lost, 3), found.slow[0].name, round(found.slow[0].times, 6), found.slow[0].lost
        (0.667, 'd', 3.0, 1.0)
    """
    lost = Attribution({COMPUTING: seconds}, node_of)
    slow = _named(trace, seconds, lost, told)
    everybody = sorted({worker for each in slow for worker in each.workers})
    high = spells.find(spells.waiting(seconds))
    return Slowness(
        rounds=len(seconds),
        waiting=float(1 - seconds.sum() / (seconds.shape[1] * seconds.max(axis=1).sum())),
        slowdown=lost.slowdown,
        lasting=lost.lasting,
        parts=tuple(_lost(part) for part in np.array_split(seconds, PARTS) if len(part)),
        spells=tuple(run.rounds for run in spells.runs(high) if run.high),
        share=float(high.mean()),
        slow=tuple(slow),
        together=lost.share(everybody) if everybody else 0.0,
    )


def _lost(seconds: Floats) -> float:
    return float(1 - np.median(seconds, axis=1).sum() / seconds.max(axis=1).sum())


def _named(trace: Trace, seconds: Floats, lost: Attribution, told: bool) -> list[Slow]:
    """Return slow workers and nodes, those that would cost most alone first, without those that cost little."""
    if lost.slowdown - 1 < _NOTHING:
        return []
    found = _alike([*_nodes(trace, seconds, lost, told), *_workers(trace, seconds, lost)], trace, seconds, lost)
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
    """Yield the nodes, or groups, of several workers that are slow as one."""
    for number in range(int(lost.node_of.max()) + 1):
        own = np.flatnonzero(lost.node_of == number).tolist()
        if 1 < len(own) < seconds.shape[1] and (pattern := _pattern(_level(seconds, own), _first(trace, seconds))):
            name = trace.node(number) if told else f"{several(trace, own)} (slow together)"
            yield Slow(name, tuple(own), *pattern, float(lost.of_nodes[number]), lost.share(own))


def _workers(trace: Trace, seconds: Floats, lost: Attribution) -> Iterator[Slow]:
    """Yield the workers that are slow for themselves."""
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
    """Return the same, and as one those workers that are always slow: none of them would help alone."""
    always = [each for each in found if each.pattern == "always" and len(each.workers) == 1]
    if len(always) < 2:
        return found
    own = sorted(each.workers[0] for each in always)
    times = float(np.exp(np.median(_level(seconds, own))))
    ideal = np.where(np.isin(np.arange(seconds.shape[1]), own), seconds, np.median(seconds, axis=1, keepdims=True))
    alone = float(ideal.max(axis=1).sum() / lost.ideal_seconds)
    as_one = Slow(several(trace, own), tuple(own), "always", times, 1.0, (), alone, lost.share(own))
    return [*(each for each in found if each not in always), as_one]


def _level(seconds: Floats, workers: list[int]) -> Floats:
    """Return the logarithm of how many times slower the median of some workers is than that of the others [rounds]."""
    own = np.isin(np.arange(seconds.shape[1]), workers)
    return np.asarray(np.log(np.median(seconds[:, own], axis=1) / np.median(seconds[:, ~own], axis=1)))


def _first(trace: Trace, seconds: Floats) -> int:
    """Return the iteration of the first round that counts."""
    return trace.iterations - len(seconds)


Pattern = tuple[str, float, float, tuple[tuple[int, int], ...]]


def _pattern(level: Floats, first: int) -> Pattern | None:
    """Return how somebody is slow whose log-times, less those of the others, these are [rounds]; None: not for long."""
    high = spells.find(level)
    if high.any():
        times = float(np.exp(np.median(level[high]) - np.median(level[~high])))
        if times >= _SLOWER and float(np.median(level[high])) > np.log(_SLOWER):
            found = tuple((first + run.first, first + run.end) for run in spells.runs(high) if run.high)
            return "spells", times, float(high.mean()), found
    times = float(np.exp(np.median(level)))
    return ("always", times, 1.0, ()) if times >= _SLOWER else None


def _rarely(level: Floats) -> Pattern | None:
    late = level > np.log(_LATE)
    return ("rarely", float(np.exp(np.median(level[late]))), float(late.mean()), ()) if late.any() else None
