"""Remedies: ways of using the recorded rounds, each with its throughput in the same rounds.

| remedy         | a round                                                                                            |
|----------------|----------------------------------------------------------------------------------------------------|
| all            | ends with the slowest worker.                                                                      |
| repair X       | ends with the slowest worker, with X as fast as the median of the others.                          |
| remove X       | ends with the slowest worker other than X.                                                         |
| b backups      | ends with the worker n - b.                                                                        |
| pauses at once | ends with the slowest worker, with regular pauses of all in the same rounds.                       |
| deadline       | ends at the deadline that was best in earlier rounds.                                              |
| auto           | ends as the cutoff rule `auto` decides, trained on earlier rounds.                                 |
| H local steps  | is one of H rounds that end together, with the worker whose sum of times is largest.               |
| asynchronous   | does not end: each worker continues at its own pace.                                               |
| bound          | ends optimally for the total throughput, with all times known in advance [Dinkelbach 1967].        |

All remedies use the recorded times, assuming that compute times do not depend on how rounds end.

The cost of a remedy is that it drops gradients of some workers, whose data then count less (`Fairness`). The effective number
of workers follows Kish's design effect, (sum of u)^2 / sum of u^2, where u is the used share of each
worker's gradients [Kish 1965, Survey Sampling]. It is 10 if ten workers count equally, and 5 if five of them count for
nothing.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.base.intervals import Played
from fred.base.progress import Show
from fred.base.types import Bools, Floats
from fred.cluster.durations import nanoseconds
from fred.components.component import NANOSECONDS
from fred.prediction import closed_loop
from fred.prediction.closed_loop import Rounds
from fred.prediction.comparison import nodes_of, rule_named
from fred.prediction.contract import CutoffRule
from fred.prediction.simple_rules import FixedDeadline
from fred.traces.trace import Trace

RULE = "auto"  # cutoff rule that is tried
LEARNING = 20  # most first rounds that only train rules and do not count
_SHARE_LEARNING = 4  # at most one round in this many trains rules
LOCAL_STEPS = (4, 16)
EXCLUDED = 0.05  # used share of gradients below which a worker might as well be switched off
RARELY_USED = 0.5  # used share of gradients below which a worker's data count for little


@dataclass(frozen=True, eq=False)
class Remedy:
    """A way of using the recorded rounds.

    Args:
        name: name in words.
        kind: `repair`, `remove`, `align`, `backup`, `deadline`, `rule`, `local` or `asynchronous`; `all` and `bound` for the
            two references.
        played: gradients and seconds of the rounds.
        used: used share of each worker's gradients, relative to the most used worker [workers].
        mask: True for workers whose gradients the round takes [rounds, workers]; None if no gradients are dropped.
        run: equivalent run of a scenario; None if there is none.
    """

    name: str
    kind: str
    played: Played
    used: Floats
    mask: Bools | None = None
    run: dict[str, Any] | None = field(default=None)


def learning(iterations: int) -> int:
    """Return the number of first rounds that only train rules and do not count.

    Args:
        iterations: number of iterations in the trace.

    >>> learning(400), learning(30)
    (20, 7)
    """
    return min(LEARNING, iterations // _SHARE_LEARNING)


def waiting_for_all(seconds: Floats) -> Remedy:
    """Return waiting for all, the baseline.

    Args:
        seconds: compute times, s [rounds, workers].

    >>> waiting_for_all(np.array([[1.0, 2.0], [1.0, 4.0]])).played.throughput() == 4 / 6
    True
    """
    run = {"algorithm": {"name": "ssgd"}}
    return Remedy("waiting for all", "all", _rounds(seconds, seconds.max(axis=1)), np.ones(seconds.shape[1]), run=run)


def repaired(seconds: Floats, workers: Sequence[int], name: str) -> Iterator[Remedy]:
    """Yield two remedies: some workers become as fast as the median of the others in each round, or they are removed.

    Args:
        seconds: compute times, s [rounds, workers].
        workers: numbers of the workers.
        name: name of the workers in a sentence.

    >>> repair, remove = repaired(np.array([[1.0, 1.0, 1.0, 2.0]]), [3], "worker 3")
    >>> repair.played.throughput(), remove.played.throughput()
    (4.0, 3.0)
    """
    is_repaired = np.isin(np.arange(seconds.shape[1]), workers)
    rest = seconds if is_repaired.all() else seconds[:, ~is_repaired]  # the others, if there are any
    ideal = np.where(is_repaired, np.median(rest, axis=1, keepdims=True), seconds)
    yield Remedy(f"repair {name}", "repair", _rounds(seconds, ideal.max(axis=1)), np.ones(len(is_repaired)))
    if not is_repaired.all():
        yield Remedy(f"remove {name}", "remove", _rounds(rest, rest.max(axis=1)), (~is_repaired).astype(float))


def aligned(moved: Floats, period: int) -> Remedy:
    """Return the remedy of pauses at once: regular pauses of all workers are in the same rounds, and hold them up once.

    Args:
        moved: compute times with the pauses moved, s [rounds, workers].
        period: iterations from one pause to the next.

    >>> aligned(np.array([[1.0, 1.0], [3.0, 3.0]]), 2).played.throughput()
    1.0
    """
    played, used = _rounds(moved, moved.max(axis=1)), np.ones(moved.shape[1])
    return Remedy(f"pauses every {period} iterations at once", "align", played, used)


def backups(seconds: Floats, number: int) -> Remedy:
    """Return the remedy of backup workers: each round ends when all but `number` workers are done.

    Args:
        seconds: compute times, s [rounds, workers].
        number: number of backup workers.

    >>> backups(np.array([[1.0, 1.0, 1.0, 2.0]]), 1).played.throughput()
    3.0
    """
    count = np.full(len(seconds), seconds.shape[1] - number)
    ends = np.sort(seconds, axis=1)[:, -1 - number]
    run = {"algorithm": {"name": "ssgd"}, "protocol": {"name": "synchronous", "backup_workers": number}}
    return _cut_rounds(seconds, count, ends, f"{number} backup worker{'s' if number > 1 else ''}", "backup", run)


def best_backups(seconds: Floats) -> int:
    """Return the number of backup workers with the most gradients per second; 0 if waiting for all is best.

    Args:
        seconds: compute times, s [rounds, workers].

    >>> best_backups(np.array([[1.0, 1.0, 1.0, 2.0]])), best_backups(np.ones((1, 4)))
    (1, 0)
    """
    counts = np.arange(1, seconds.shape[1] + 1)  # of workers that are waited for
    best_count = counts[np.argmax(counts / np.sort(seconds, axis=1).sum(axis=0))]
    return int(counts[-1] - best_count)


def numbers_of_backups(seconds: Floats) -> list[int]:
    """Return the numbers of backup workers to show: 1, 2, 4, ... up to half of the workers, and the best one.

    Args:
        seconds: compute times, s [rounds, workers].

    >>> numbers_of_backups(np.ones((1, 12)))
    [1, 2, 4]
    """
    most = seconds.shape[1] // 2
    powers_of_two = [2**power for power in range(most.bit_length())]
    return sorted({*powers_of_two[:3], best_backups(seconds)} - {0})


def local_steps(seconds: Floats, period: int) -> Remedy:
    """Return the remedy of local steps: workers synchronise after several steps, so fast steps make up for a slow one.

    Args:
        seconds: compute times, s [rounds, workers].
        period: steps between two synchronisations.

    >>> local_steps(np.array([[1.0, 3.0], [3.0, 1.0]]), 2).played.throughput()
    1.0
    """
    starts = np.arange(0, len(seconds), period)
    sizes = np.diff([*starts, len(seconds)])  # rounds between synchronisations; the last may be fewer
    durations = np.add.reduceat(seconds, starts, axis=0).max(axis=1)
    run = {"algorithm": {"name": "local-sgd"}, "protocol": {"name": "local-steps", "period": period}}
    played = _rounds(seconds, np.repeat(durations / sizes, sizes))  # all of its rounds last equally long
    return Remedy(f"{period} local steps", "local", played, np.ones(seconds.shape[1]), run=run)


def asynchronous(seconds: Floats) -> Remedy:
    """Return the asynchronous remedy: no worker waits, and gradients are stale.

    Args:
        seconds: compute times, s [rounds, workers].

    >>> asynchronous(np.array([[1.0, 2.0], [1.0, 2.0]])).played.throughput()
    1.5
    """
    rates = 1 / seconds.sum(axis=0)
    run = {"algorithm": {"name": "asgd"}}
    played = Played(np.ones_like(seconds), seconds)
    return Remedy("asynchronous", "asynchronous", played, rates / rates.max(), run=run)


def deadline(trace: Trace, progress: Show = lambda task, share: None) -> Remedy:
    """Return the remedy of a deadline: each part of the record uses the best deadline of the rounds before it.

    Args:
        trace: trace with all its iterations.
        progress: called with the name of the task, and the share that is done.
    """
    rounds = _rolling(FixedDeadline(), trace, "deadline", progress)
    last_seconds = FixedDeadline().trained(trace.seconds, nodes_of(trace, trace.iterations)).seconds
    assert last_seconds is not None
    run = {
        "algorithm": {"name": "cutoff-sgd"},
        "protocol": {"name": "cutoff", "rule": {"name": "deadline", "seconds": last_seconds}},
    }
    return _remedy_of_rounds(rounds, trace, f"deadline (now {last_seconds:.4g} s)", "deadline", run)


def rule(trace: Trace, progress: Show = lambda task, share: None) -> Remedy:
    """Return the remedy of the cutoff rule `auto`, trained again whenever the number of rounds so far has doubled.

    Args:
        trace: trace with all its iterations.
        progress: called with the name of the task, and the share that is done.
    """
    rounds = _rolling(rule_named(RULE), trace, RULE, progress)
    run = {"algorithm": {"name": "cutoff-sgd"}, "protocol": {"name": "cutoff", "rule": RULE}}
    return _remedy_of_rounds(rounds, trace, f"cutoff rule `{RULE}`", "rule", run)


def bound(seconds: Floats) -> Remedy:
    """Return the upper bound of all remedies that drop gradients: the number per round that maximises the total throughput.

    Args:
        seconds: compute times, s [rounds, workers].

    In the second round the first gradient alone is best, as three more seconds for the second one would lower the rate:

        >>> bound(np.array([[1.0, 1.0, 1.0], [1.0, 4.0, 9.0]])).played.throughput()
        2.0
    """
    ordered, counts = np.sort(seconds, axis=1), np.arange(1.0, seconds.shape[1] + 1)
    # A ratio of sums, gradients / seconds, cannot be maximised round by round. Dinkelbach's way: for a given rate, the sum of
    # gradients - rate * seconds can, as each round contributes to it by itself. The numbers that maximise it have a higher
    # rate, unless the given one was the highest. There are finitely many choices, so the loop ends.
    rate, taken = 0.0, np.full(len(seconds), seconds.shape[1])  # gradients per second; gradients that each round takes
    while True:
        ends = ordered[np.arange(len(ordered)), taken - 1]
        if (new_rate := float(taken.sum() / ends.sum())) <= rate:
            return _cut_rounds(seconds, taken, ends, "upper bound: all times known in advance", "bound", None)
        rate = new_rate
        taken = 1 + np.argmax(counts - rate * ordered, axis=1)


def _rolling(rule: CutoffRule, trace: Trace, name: str, progress: Show) -> Rounds:
    """Return the counted rounds under a rule that is trained again whenever the rounds before have doubled."""
    parts, doubled = [], (learning(trace.iterations) * 2**power for power in itertools.count())
    origins = list(itertools.takewhile(lambda origin: origin < trace.iterations, doubled))  # iterations before which it trains
    for number, (origin, end) in enumerate(itertools.pairwise([*origins, trace.iterations])):
        warm_up, node_of = min(closed_loop.WARM_UP, origin), nodes_of(trace, origin)
        trained = closed_loop.warmed_up(rule, warm_up).trained(trace.seconds[:origin], node_of)
        parts.append(closed_loop.run(trained, trace.seconds[origin - warm_up : end], node_of, warm_up))
        progress(name, (number + 1) / len(origins))
    return Rounds.concatenate(parts)


def _remedy_of_rounds(rounds: Rounds, trace: Trace, name: str, kind: str, run: dict[str, Any]) -> Remedy:
    seconds = trace.seconds[trace.iterations - len(rounds.cutoff) :]  # of the counted rounds, the last ones
    return _cut_rounds(seconds, rounds.cutoff, rounds.time / NANOSECONDS, name, kind, run)


def _rounds(seconds: Floats, ends: Floats) -> Played:
    """Return rounds that take a gradient from every column of `seconds` and end at `ends`, s [rounds]."""
    return Played(np.full((len(seconds), 1), float(seconds.shape[1])), ends[:, None])


def _cut_rounds(
    seconds: Floats, counts: NDArray[np.int64], ends: Floats, name: str, kind: str, run: dict[str, Any] | None
) -> Remedy:
    """Return a remedy whose rounds end after some of the gradients, taken in order of arrival.

    Args:
        seconds: compute times, s [rounds, workers].
        counts: number of gradients that each round takes [rounds].
        ends: duration of each round, s [rounds].
        name: the remedy's name.
        kind: its kind.
        run: the run that applies it, as a scenario has it; None: no protocol can.
    """
    times = nanoseconds(seconds)
    ranks = np.argsort(np.argsort(times, axis=1, kind="stable"), axis=1)  # 0 for the first to arrive [rounds, workers]
    mask = ranks < counts[:, None]
    used = mask.mean(axis=0)  # share of each worker's gradients
    played = Played(counts[:, None].astype(float), ends[:, None])
    return Remedy(name, kind, played, used / used.max(), mask, run)


@dataclass(frozen=True, eq=False)
class Fairness:
    """The share of each worker's gradients that a remedy uses.

    Args:
        remedy: remedy that uses them.

    Here two of four workers are always late:

        >>> import numpy as np
        >>> from fred.diagnosis.remedies import backups
        >>> fairness = Fairness(backups(np.tile([1.0, 1.1, 5.0, 6.0], (9, 1)), 2))
        >>> fairness.effective, fairness.excluded, fairness.same_set_share, fairness.dropped
        (2.0, [2, 3], 1.0, 0.5)
    """

    remedy: Remedy

    @cached_property
    def effective(self) -> float:
        """Return the effective number of workers."""
        used = self.remedy.used
        return float(used.sum() ** 2 / (used**2).sum())

    @cached_property
    def excluded(self) -> list[int]:
        """Return the workers with less than 5 % of their gradients used."""
        return [worker for worker, used in enumerate(self.remedy.used.tolist()) if used < EXCLUDED]

    @cached_property
    def rare(self) -> list[int]:
        """Return the workers with between 5 % and half of their gradients used."""
        return [worker for worker, used in enumerate(self.remedy.used.tolist()) if EXCLUDED <= used < RARELY_USED]

    @cached_property
    def dropped(self) -> float:
        """Return the share of all computed gradients that is dropped."""
        return 0.0 if self.remedy.mask is None else float(1 - self.remedy.mask.mean())

    @cached_property
    def same_set_share(self) -> float:
        """Return the share of rounds that take the most frequent set of fewer than all workers; 0 without one."""
        if self.remedy.mask is None:
            return 0.0
        rounds_by_set = Counter(row.tobytes() for row in self.remedy.mask if not row.all())
        return max(rounds_by_set.values(), default=0) / len(self.remedy.mask)
