"""What an outcome comes to in numbers: a summary row, times of gradients, staleness, traffic."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred import registry
from fred.results import worker_time
from fred.running.execution import Outcome
from fred.schedule import NONE, Schedule, Verb
from fred.specification.shape import Evaluate, Run
from fred.timing.durations import NANOSECONDS

WAYS = ("to_workers", "to_servers", "between_workers")


def staleness(schedule: Schedule) -> NDArray[np.int64]:
    """Staleness of every gradient that took part in an update (or waits in an open round), updates."""
    stale: NDArray[np.int64] = schedule["staleness"][schedule.rows(Verb.PUSH, Verb.ADD)]
    return stale


def model_ages(schedule: Schedule) -> NDArray[np.int64]:
    """Of each model that was averaged with others: how many local steps it lacks against the replica that first takes the mean.

    That is what WAGMA-SGD's tau bounds [Li et al. 2021, section 4]. Means that nobody took, and means of means, are left out.
    """
    pushes, stride = schedule.rows(Verb.PUSH), len(schedule) + 1
    keys = np.sort(schedule["replica"][pushes] * stride + pushes)

    def steps(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of the replica that each row is about, before it."""
        first = schedule["replica"][rows] * stride
        return np.searchsorted(keys, first + rows) - np.searchsorted(keys, first)

    pulls, syncs, mixes = (schedule.rows(verb) for verb in (Verb.PULL, Verb.SYNC, Verb.MIX))
    read, taken = (np.full(int(schedule["mailbox"].max(initial=NONE)) + 1, NONE) for _ in range(2))
    read[schedule["mailbox"][pulls]] = steps(pulls)
    taken[schedule["mailbox"][syncs[::-1]]] = steps(syncs[::-1])  # the first of several is written last
    had, now = read[schedule["source"][mixes]], taken[schedule["mailbox"][mixes]]
    known = (had != NONE) & (now != NONE)
    return now[known] - had[known]


def summarise(outcome: Outcome) -> dict[str, Any]:
    """One run with one seed in numbers, as summary.json holds it."""
    schedule, run, metrics = outcome.schedule, outcome.run, outcome.metrics
    counts = schedule.counts()
    stale = staleness(schedule)
    measured = "loss" in metrics
    return {
        "name": outcome.name,
        "algorithm": registry.name_of("algorithm", run.algorithm),
        "protocol": registry.name_of("protocol", run.protocol),
        "seed": outcome.seed,
        "workers": schedule.workers,
        "updates": counts["updates"],
        "gradients": {
            "computed": counts["gradients"] + counts["dropped"],
            "applied": counts["gradients"],
            "dropped": counts["dropped"],
            "in_flight": counts["in_flight"],
        },
        "virtual_seconds": schedule.end_ns / NANOSECONDS if run.protocol.has_clock else None,
        "staleness": {"mean": float(stale.mean()), "max": int(stale.max())} if len(stale) else {"mean": None, "max": None},
        **traffic(outcome),
        "workers_time": _workers_time(schedule, run),
        "loss": _finite(metrics["loss"].iloc[-1]) if measured else None,
        "error": _finite(metrics["error"].iloc[-1]) if measured else None,
        "diverged": _diverged(metrics) if measured else None,
        "target": _target(metrics, run.evaluate, run.stop.target_loss) if measured else None,
        "digests": {"schedule": schedule.digest(), "params": outcome.params_digest},
    }


def _workers_time(schedule: Schedule, run: Run) -> dict[str, float | None]:
    if not run.protocol.has_clock:
        return dict.fromkeys(worker_time.KINDS)
    return worker_time.shares(schedule, run.cluster.network, run.protocol.layout(run.cluster).on_servers)


def run_times(outcome: Outcome) -> pd.DataFrame:
    """How long each gradient took, as a trace is written that can drive a cluster: iteration, worker, seconds, node.

    An iteration is the worker's own count of gradients. One that was dropped while it was being computed has the time that it
    would have taken; those that the run's end left unfinished or unused are absent, so some workers may end before others.
    """
    schedule = outcome.schedule
    ends = schedule["end_ns"].copy()
    ends[list(schedule.unfinished)] = list(schedule.unfinished.values())
    rows = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    rows = rows[schedule["step"][rows] != NONE]
    _, first = np.unique(schedule["step"][rows] * schedule.workers + schedule["worker"][rows], return_index=True)
    rows = rows[first]
    worker, nanoseconds = schedule["worker"][rows], ends[rows] - schedule["begin_ns"][rows]
    node = outcome.run.cluster.node_of[worker]
    columns = {"iteration": schedule["step"][rows], "worker": worker, "seconds": nanoseconds / NANOSECONDS, "node": node}
    return pd.DataFrame(columns)


def traffic(outcome: Outcome) -> dict[str, dict[str, int]]:
    """Bytes and messages sent each way: by servers to workers, by workers to servers, and between workers."""
    schedule, layout = outcome.schedule, outcome.run.protocol.layout(outcome.run.cluster)
    pulls = schedule["verb"] == Verb.PULL
    on_server = np.isin(schedule["replica"], layout.on_servers)
    ways = dict(zip(WAYS, (pulls & on_server, ~pulls & on_server, ~on_server), strict=True))
    return {unit: {way: _exact_sum(schedule[unit][rows]) for way, rows in ways.items()} for unit in ("bytes", "messages")}


def _exact_sum(numbers: NDArray[np.int64]) -> int:
    """Beyond 64 bits, too."""
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())


def _target(metrics: pd.DataFrame, evaluate: Evaluate, stop_loss: float | None) -> dict[str, Any] | None:
    """When the loss, or else the error, first came down to its target; None without one."""
    loss = evaluate.target_loss or stop_loss
    column, goal = ("loss", loss) if loss else ("error", evaluate.target_error)
    if goal is None:
        return None
    reached = metrics[metrics[column] <= goal]
    first = None if reached.empty else reached.iloc[0]
    seconds = None if first is None else _finite(first["virtual_seconds"])
    return {column: goal, "updates": None if first is None else int(first["updates"]), "seconds": seconds}


def _diverged(metrics: pd.DataFrame) -> int | None:
    """After how many updates the loss was found not to be a finite number for good; None if it ended as one."""
    finite = np.flatnonzero(np.isfinite(metrics["loss"]))
    first = finite[-1] + 1 if len(finite) else 0
    return int(metrics["updates"].iloc[first]) if first < len(metrics) else None


def _finite(value: float) -> float | None:
    """None for what JSON cannot hold: a loss that diverged, the time of a run without a clock."""
    return float(value) if np.isfinite(value) else None
