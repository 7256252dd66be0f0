"""Remedies: ways of using the recorded rounds, each with its throughput in the same rounds.

| way            | a round                                                                                       |
|----------------|-----------------------------------------------------------------------------------------------|
| all            | ends with the slowest worker                                                                  |
| repair X       | ends with the slowest worker, X as fast as the median worker                                  |
| remove X       | ends with the slowest of the others                                                           |
| b backups      | ends with the worker n - b                                                                    |
| deadline       | ends at the best deadline of the rounds before                                                |
| auto           | ends as the rule says, which is trained on the rounds before                                  |
| H local steps  | H of them end together, with the worker that is the slowest in their sum                      |
| asynchronous   | does not end: each worker goes on at its own pace                                             |
| bound          | ends as is best for the throughput of all rounds, all times known in advance [Dinkelbach 1967] |

Times are those of the record: how long a gradient takes is supposed not to depend on how rounds end.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.cluster.durations import NANOSECONDS, nanoseconds
from fred.diagnosis.spells import Bools, Floats
from fred.diagnosis.surety import Played
from fred.prediction import closed_loop
from fred.prediction.closed_loop import Rounds
from fred.prediction.comparison import nodes_of, rule_named
from fred.prediction.contract import CutoffRule
from fred.prediction.fixed import FixedDeadline
from fred.process.progress import Show
from fred.traces.trace import Trace

RULE = "auto"  # the rule that is tried
LEARNING = 20  # rounds that rules learn from at first, at most; they count for nobody
_SHARE_LEARNING = 4  # or one of so many
LOCAL_STEPS = (4, 16)


@dataclass(frozen=True, eq=False)
class Remedy:
    """A way of using the recorded rounds.

    Args:
        name: in words.
        kind: `repair`, `remove`, `backup`, `deadline`, `rule`, `local` or `asynchronous`; `all` and `bound` are what
            the others are compared with.
        played: gradients and seconds of the rounds.
        used: the part of each worker's gradients that is used, relative to the worker with most [workers].
        taken: whose gradients each round takes [rounds, workers]; None where rounds drop none.
        run: a run of a scenario that does so; None where no scenario can.
    """

    name: str
    kind: str
    played: Played
    used: Floats
    taken: Bools | None = None
    run: dict[str, Any] | None = field(default=None)


def learning(iterations: int) -> int:
    """Return the number of first rounds that only train rules and do not count.

    Args:
        iterations: of the trace.

    >>> learning(400), learning(30)
    (20, 7)
    """
    return min(LEARNING, iterations // _SHARE_LEARNING)


def waiting_for_all(seconds: Floats) -> Remedy:
    """Return waiting for all, which the others are compared with.

    Args:
        seconds: compute times, s [rounds, workers].

    >>> waiting_for_all(np.array([[1.0, 2.0], [1.0, 4.0]])).played.throughput() == 4 / 6
    True
    """
    run = {"algorithm": {"name": "ssgd"}}
    return Remedy("waiting for all", "all", _rounds(seconds, seconds.max(axis=1)), np.ones(seconds.shape[1]), run=run)


def repaired(seconds: Floats, workers: Sequence[int], name: str) -> Iterator[Remedy]:
    """Yield two remedies: some workers become as fast as the median worker of each round; or they are removed.

    Args:
        seconds: compute times, s [rounds, workers].
        workers: their numbers.
        name: what they are called.

    >>> repair, remove = repaired(np.array([[1.0, 1.0, 1.0, 2.0]]), [3], "worker 3")
    >>> repair.played.throughput(), remove.played.throughput()
    (4.0, 3.0)
    """
    own = np.isin(np.arange(seconds.shape[1]), workers)
    ideal = np.where(own, np.median(seconds, axis=1, keepdims=True), seconds)
    yield Remedy(f"repair {name}", "repair", _rounds(seconds, ideal.max(axis=1)), np.ones(len(own)))
    if not own.all():
        rest = seconds[:, ~own]
        yield Remedy(f"remove {name}", "remove", _rounds(rest, rest.max(axis=1)), (~own).astype(float))


def backups(seconds: Floats, number: int) -> Remedy:
    """Return a number of backup workers: each round ends when all but that many are done.

    Args:
        seconds: compute times, s [rounds, workers].
        number: of backup workers.

    >>> backups(np.array([[1.0, 1.0, 1.0, 2.0]]), 1).played.throughput()
    3.0
    """
    count = np.full(len(seconds), seconds.shape[1] - number)
    ends = np.sort(seconds, axis=1)[:, -1 - number]
    run = {"algorithm": {"name": "ssgd"}, "protocol": {"name": "synchronous", "backup_workers": number}}
    return _cut(seconds, count, ends, f"{number} backup worker{'s' if number > 1 else ''}", "backup", run)


def best_backups(seconds: Floats) -> int:
    """Return the number of backup workers with most gradients per second; 0 where waiting for all is best.

    Args:
        seconds: compute times, s [rounds, workers].

    >>> best_backups(np.array([[1.0, 1.0, 1.0, 2.0]])), best_backups(np.ones((1, 4)))
    (1, 0)
    """
    counts = np.arange(1, seconds.shape[1] + 1)
    return int(counts[-1] - 1 - np.argmax(counts / np.sort(seconds, axis=1).sum(axis=0)))


def numbers_of_backups(seconds: Floats) -> list[int]:
    """Return the numbers of backup workers to show: 1, 2, 4, ... up to half of the workers, and the best one.

    Args:
        seconds: compute times, s [rounds, workers].

    >>> numbers_of_backups(np.ones((1, 12)))
    [1, 2, 4]
    """
    most = seconds.shape[1] // 2
    doubled = [2**power for power in range(most.bit_length()) if 2**power <= most and 2**power < seconds.shape[1]]
    return sorted({*doubled[:3], best_backups(seconds)} - {0})


def local_steps(seconds: Floats, period: int) -> Remedy:
    """Return local steps: workers meet after several of them, so that a late step is made up for by quick ones.

    Args:
        seconds: compute times, s [rounds, workers].
        period: steps between two meetings.

    >>> local_steps(np.array([[1.0, 3.0], [3.0, 1.0]]), 2).played.throughput()
    1.0
    """
    starts = np.arange(0, len(seconds), period)
    sizes = np.diff([*starts, len(seconds)])
    ends = np.add.reduceat(seconds, starts, axis=0).max(axis=1)
    run = {"algorithm": {"name": "local-sgd"}, "protocol": {"name": "local-steps", "period": period}}
    played = _rounds(seconds, np.repeat(ends / sizes, sizes))
    return Remedy(f"{period} local steps", "local", played, np.ones(seconds.shape[1]), run=run)


def asynchronous(seconds: Floats) -> Remedy:
    """Return asynchronous workers: none waits, and gradients are stale.

    Args:
        seconds: compute times, s [rounds, workers].

    >>> asynchronous(np.array([[1.0, 2.0], [1.0, 2.0]])).played.throughput()
    1.5
    """
    rates = 1 / seconds.sum(axis=0)
    run = {"algorithm": {"name": "asgd"}}
    played = Played(np.ones_like(seconds), seconds)
    return Remedy("asynchronous", "asynchronous", played, rates / rates.max(), run=run)


def deadline(trace: Trace, progress: Show = lambda what, share: None) -> Remedy:
    """Return a deadline: in each part of the record, the best one of the rounds before.

    Args:
        trace: all of its iterations.
        progress: receives the name of the task, and the share that is done.
    """
    rounds = _rolling(FixedDeadline(), trace, "deadline", progress)
    now = FixedDeadline().trained(trace.seconds, nodes_of(trace, trace.iterations)).seconds
    assert now is not None
    run = {"algorithm": {"name": "cutoff-sgd"}, "protocol": {"name": "cutoff", "rule": {"name": "deadline", "seconds": now}}}
    return _played(rounds, trace, f"deadline (now {now:.4g} s)", "deadline", run)


def rule(trace: Trace, progress: Show = lambda what, share: None) -> Remedy:
    """Return the rule `auto`, trained again whenever the rounds so far have doubled.

    Args:
        trace: all of its iterations.
        progress: receives the name of the task, and the share that is done.
    """
    rounds = _rolling(rule_named(RULE), trace, RULE, progress)
    run = {"algorithm": {"name": "cutoff-sgd"}, "protocol": {"name": "cutoff", "rule": RULE}}
    return _played(rounds, trace, f"cutoff rule `{RULE}`", "rule", run)


def bound(seconds: Floats) -> Remedy:
    """Return the upper bound of all ways that drop gradients: the best number in each round for the throughput of all.

    Args:
        seconds: compute times, s [rounds, workers].

    In the second round the first gradient alone is best, as three more seconds for the second one lower the rate:

        >>> bound(np.array([[1.0, 1.0, 1.0], [1.0, 4.0, 9.0]])).played.throughput()
        2.0
    """
    ordered, counts = np.sort(seconds, axis=1), np.arange(1.0, seconds.shape[1] + 1)
    rate, chosen = 0.0, np.full(len(seconds), seconds.shape[1])
    while True:
        ends = ordered[np.arange(len(ordered)), chosen - 1]
        if (better := float(chosen.sum() / ends.sum())) <= rate:
            return _cut(seconds, chosen, ends, "upper bound: all times known in advance", "bound", None)
        rate = better
        chosen = 1 + np.argmax(counts - rate * ordered, axis=1)


def _rolling(rule: CutoffRule, trace: Trace, name: str, progress: Show) -> Rounds:
    """Return the rounds that count under a rule, trained on all before whenever these have doubled."""
    first, parts = learning(trace.iterations), []
    origins = list(itertools.takewhile(lambda at: at < trace.iterations, (first * 2**power for power in itertools.count())))
    for number, (begin, end) in enumerate(itertools.pairwise([*origins, trace.iterations])):
        before, node_of = min(closed_loop.WARM_UP, begin), nodes_of(trace, begin)
        trained = closed_loop.warmed_up(rule, before).trained(trace.seconds[:begin], node_of)
        parts.append(closed_loop.run(trained, trace.seconds[begin - before : end], node_of, before))
        progress(name, (number + 1) / len(origins))
    return Rounds.joined(parts)


def _played(rounds: Rounds, trace: Trace, name: str, kind: str, run: dict[str, Any]) -> Remedy:
    seconds = trace.seconds[trace.iterations - len(rounds.cutoff) :]
    return _cut(seconds, rounds.cutoff, rounds.time / NANOSECONDS, name, kind, run)


def _rounds(seconds: Floats, ends: Floats) -> Played:
    """Return rounds that take all of some workers' gradients."""
    return Played(np.full((len(seconds), 1), float(seconds.shape[1])), ends[:, None])


def _cut(seconds: Floats, counts: NDArray[np.int64], ends: Floats, name: str, kind: str, run: dict[str, Any] | None) -> Remedy:
    """Return rounds that end after some of the gradients, taken in the order in which they come."""
    times = nanoseconds(seconds)
    ranks = np.argsort(np.argsort(times, axis=1, kind="stable"), axis=1)
    taken = ranks < counts[:, None]
    used = taken.mean(axis=0)
    played = Played(counts[:, None].astype(float), ends[:, None])
    return Remedy(name, kind, played, used / used.max(), taken, run)
