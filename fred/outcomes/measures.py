"""Measures of outcomes for traces and figures: compute times, pace, staleness of runs that share a timing."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fred.cluster.cluster import Cluster
from fred.components.limits import NANOSECONDS
from fred.outcomes.outcome import Outcome
from fred.schedule import staleness
from fred.schedule.schedule import NONE, UNENDING, Ints, Schedule, Verb, What


def run_times(schedule: Schedule, cluster: Cluster) -> pd.DataFrame:
    """Return the compute time of each gradient, as a trace that can drive a cluster: iteration, worker, seconds, node.

    An iteration is the worker's own count of gradients. A gradient dropped during its computation has the time that it
    would have taken, unless its worker left for good. Gradients unfinished or unused at the end of the run are missing, so
    some workers may end before others.

    Args:
        schedule: schedule of a run with a clock.
        cluster: cluster of that run; its nodes are listed.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> outcome = fred.run(scenario).outcome("asgd")
    >>> run_times(outcome.schedule, outcome.run.cluster)
       iteration  worker  seconds  node
    0          0       0      0.5     0
    1          0       1      0.5     0
    2          1       0      0.5     0
    3          1       1      0.5     0
    """
    ends, unfinished = schedule["end_ns"].copy(), schedule.intervals.only(What.UNFINISHED)
    ends[unfinished.row] = unfinished.end_ns
    rows = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    rows = rows[(schedule["step"][rows] != NONE) & (ends[rows] < UNENDING)]
    _, first = np.unique(schedule["step"][rows] * schedule.workers + schedule["worker"][rows], return_index=True)
    rows = rows[first]
    worker, nanoseconds = schedule["worker"][rows], ends[rows] - schedule["begin_ns"][rows]
    node = cluster.node_of[worker]
    columns = {"iteration": schedule["step"][rows], "worker": worker, "seconds": nanoseconds / NANOSECONDS, "node": node}
    return pd.DataFrame(columns)


def pace(metrics: pd.DataFrame, parts: int) -> pd.DataFrame:
    """Return the gradients used per second in equal parts of a run: virtual_seconds (the middle), gradients per second.

    Args:
        metrics: a run's evaluations, with columns virtual_seconds and gradients; between two of them the rate is constant.
        parts: number of parts, at most one for each interval between evaluations.

    >>> pace(pd.DataFrame({"virtual_seconds": [0.0, 1.0, 4.0], "gradients": [0, 4, 10]}), parts=2)
       virtual_seconds  gradients per second
    0              1.0                   3.0
    1              3.0                   2.0
    """
    seconds = metrics["virtual_seconds"].to_numpy(float)
    edges = np.linspace(0.0, seconds.max(), min(parts, max(1, len(seconds) - 1)) + 1)
    used = np.diff(np.interp(edges, seconds, metrics["gradients"].to_numpy(float)))
    lengths = np.diff(edges)
    rate = np.divide(used, lengths, out=np.zeros_like(used), where=lengths > 0)
    return pd.DataFrame({"virtual_seconds": edges[:-1] + lengths / 2, "gradients per second": rate})


def by_timing(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """Return the names of all runs that share a timing, for each different timing.

    Args:
        outcomes: the outcomes of the runs, in the order of their seeds.
    """
    digests: dict[str, str] = {}
    for each in outcomes:
        digests[each.name] = digests.get(each.name, "") + each.schedule_digest
    sharing: dict[str, tuple[str, ...]] = {}
    for name, digest in digests.items():
        sharing[digest] = (*sharing.get(digest, ()), name)
    return list(sharing.values())


def staleness_counts(outcomes: Sequence[Outcome]) -> dict[tuple[str, ...], Ints]:
    """Return the number of used gradients of each staleness, from 0 to the largest, updates [largest + 1].

    Args:
        outcomes: the outcomes of the runs; all seeds of a run count together.

    Returns: counts by the names of all runs that share a timing; empty counts if a run used no gradient.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> {runs: counts.tolist() for runs, counts in staleness_counts(fred.run(scenario).outcomes).items()}
    {('asgd',): [1, 3]}
    """
    counts: dict[tuple[str, ...], Ints] = {}
    for shared in by_timing(outcomes):
        own = [staleness.of_gradients(each.schedule) for each in outcomes if each.name == shared[0]]
        counts[shared] = np.bincount(np.maximum(np.concatenate(own), 0))  # a gradient at a newer model is not stale
    return counts
