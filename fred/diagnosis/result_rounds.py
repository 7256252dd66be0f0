"""Measurements of synchronous runs: arrival times of gradients, and rounds to the target."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.cluster.durations import NANOSECONDS
from fred.outcomes.outcome import Outcome
from fred.protocols.synchronous import Synchronous
from fred.schedule.schedule import Schedule, Verb


def arrivals(schedule: Schedule) -> NDArray[np.float64]:
    """Return the arrival times of each round's gradients, s since the previous round was complete [rounds, gradients].

    They cover complete rounds of the first block. Raises ValueError if there is none, or if rounds differ in size.

    Args:
        schedule: schedule of a synchronous run.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 3, "compute": {"name": "uniform", "low": 1, "high": 2}},
    ...     algorithm={"name": "ssgd", "learning_rate": 0.1},
    ...     stop={"updates": 2},
    ... )
    >>> arrivals(fred.run(scenario).outcome("ssgd").schedule).round(2)
    array([[1.39, 1.65, 1.7 ],
           [1.26, 1.38, 1.56]])
    """
    first = schedule["block"] == 0
    adds, commits = (np.flatnonzero(first & (schedule["verb"] == verb)) for verb in (Verb.ADD, Verb.COMMIT))
    round_of = np.searchsorted(commits, adds)
    sizes = np.bincount(round_of, minlength=len(commits))[: len(commits)]
    if len(set(sizes.tolist())) != 1:
        raise ValueError("expected complete rounds with the same number of gradients each")
    began = np.concatenate(([0], schedule["time_ns"][commits[:-1]]))
    arrived = schedule["time_ns"][adds[round_of < len(commits)]].reshape(len(commits), -1)
    return (arrived - began[:, None]) / NANOSECONDS


def rounds_of(outcomes: Sequence[Outcome]) -> NDArray[np.float64]:
    """Return the arrival times in the largest runs that wait for all workers, s [rounds, workers]. Raises FredError.

    Args:
        outcomes: outcomes, of which those with the protocol `synchronous` without backup workers are used.
    """
    waiting = [each for each in outcomes if each.run.protocol == Synchronous()]
    if not waiting:
        raise FredError(
            "expected a run with the protocol `synchronous` without backup workers, to measure arrivals; found none"
        )
    most = max(each.run.cluster.size for each in waiting)
    try:
        return np.concatenate([arrivals(each.schedule) for each in waiting if each.run.cluster.size == most])
    except ValueError as error:
        raise FredError(f"the runs that wait for all {most} workers: {error}") from error


def iterations_of(outcomes: Sequence[Outcome]) -> dict[int, float]:
    """Return updates to the target by number of averaged gradients, mean over runs and seeds. Raises FredError.

    Args:
        outcomes: outcomes, of which those with the protocol `synchronous` and a target are used; all must have reached it.
    """
    counted: dict[int, list[int]] = defaultdict(list)
    for each in outcomes:
        protocol, target = each.run.protocol, each.summary["target"]
        if not isinstance(protocol, Synchronous) or target is None:
            continue
        if target["updates"] is None:
            raise FredError(f"run {each.name}, seed {each.seed}, did not reach its target: run it for longer")
        counted[each.run.cluster.size - protocol.backup_workers].append(target["updates"])
    if not counted:
        raise FredError("no run of the protocol `synchronous` with a target here; give --iterations, or `evaluate.target_loss`")
    return {count: float(np.mean(updates)) for count, updates in counted.items()}
