"""Numbers of an outcome: summary row, compute times, staleness, traffic."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base import cached
from fred.cluster.cluster import Cluster
from fred.cluster.durations import NANOSECONDS
from fred.components import registry
from fred.outcomes import costs, job_time, spans, staleness
from fred.outcomes.outcome import Outcome
from fred.schedule.schedule import NONE, UNENDING, WAYS, Schedule, Verb, What, exact_sum
from fred.specification.shape import Run

_SOMETIMES = ("perplexity", "gradient_norm", "replicas_loss", "replicas_error")  # only if measured


def summarise(outcome: Outcome) -> dict[str, Any]:
    """Return the results of one run with one seed as numbers, as in summary.json.

    Args:
        outcome: the run; its schedule and metrics are used, its own `summary` is not.

    Numbers that do not apply are None, and so are numbers that JSON cannot represent.
    """
    schedule, run, metrics = outcome.schedule, outcome.run, outcome.metrics
    counts = schedule.counts()
    measured = "loss" in metrics
    timing = _of_timing(schedule, run.protocol.has_clock)
    diverged = _diverged(metrics) if measured else None
    return {
        "name": outcome.name,
        "algorithm": registry.name_of("algorithm", run.algorithm),
        "protocol": registry.name_of("protocol", run.protocol),
        "seed": outcome.seed,
        **{name: timing[name] for name in ("workers", "updates", "gradients")},
        "ended_by": _ended_by(outcome, counts),
        **timing,
        **_spent(outcome),
        **({"failures": job_time.of_failures(schedule)} if run.cluster.failures else {}),
        "loss": _finite(metrics["loss"].iloc[-1]) if measured else None,
        "error": _finite(metrics["error"].iloc[-1]) if measured and diverged is None else None,  # else meaningless
        **{name: _finite(metrics[name].iloc[-1]) if name in metrics else None for name in _SOMETIMES},
        "diverged": diverged,
        "target": _target(metrics, run) if measured else None,
        "digests": {"schedule": outcome.schedule_digest, "params": outcome.params_digest},
    }


@cached.with_each
def _of_timing(schedule: Schedule, has_clock: bool) -> dict[str, Any]:
    """Return the numbers that are the same for all runs with this timing."""
    counts = schedule.counts()
    seconds = schedule.end_ns / NANOSECONDS if has_clock else None
    return {
        "workers": schedule.workers,
        "updates": counts["updates"],
        "gradients": {
            "computed": counts["gradients"] + counts["dropped"],
            "applied": counts["gradients"],
            "dropped": counts["dropped"],
            "in_flight": counts["in_flight"],
        },
        "standstill": schedule.standstill or None,
        "virtual_seconds": seconds,
        "throughput": counts["gradients"] / seconds if seconds else None,
        "staleness_by_block": staleness.by_block(schedule).reset_index().to_dict("records") if schedule.blocks > 1 else None,
        "staleness": _mean_and_max(staleness.of_gradients(schedule)),
        "staleness_in_gradients": staleness.in_gradients(schedule),
        "model_age": _mean_and_max(staleness.of_models(schedule)),
        **traffic(schedule),
        "copies": _copies(schedule),
        "workers_time": spans.shares(spans.spans(schedule)) if has_clock else dict.fromkeys(spans.KINDS),
    }


def _spent(outcome: Outcome) -> dict[str, Any]:
    """Return the cost and the energy, kWh; nothing for clusters without prices or power."""
    schedule, cluster = outcome.schedule, outcome.run.cluster
    if cluster.prices is None:
        return {}
    found = costs.spent(schedule, cluster, np.array([schedule.end_ns]), np.array([len(schedule)]))
    clocked = outcome.run.protocol.has_clock
    cost = {name: float(each[0]) if clocked else None for name, each in {"total": found.total, **found.parts}.items()}
    return {"cost": cost} | ({} if found.kwh is None else {"energy_kwh": float(found.kwh[0]) if clocked else None})


def _ended_by(outcome: Outcome, counts: dict[str, int]) -> str:
    """Return the limit that ended the run; of several reached at once the first in this order, the time last."""
    stop, metrics = outcome.run.stop, outcome.metrics
    if stop.target_loss and "loss" in metrics and len(metrics) > 1 and metrics["loss"].iloc[-1] <= stop.target_loss:
        return "target_loss"
    for limit, wanted in (("updates", stop.updates), ("gradients", stop.gradients)):
        if wanted and counts[limit] >= wanted:
            return limit
    return "standstill" if outcome.schedule.standstill else "seconds"


def _mean_and_max(numbers: NDArray[np.int64]) -> dict[str, float | int | None]:
    return {"mean": float(numbers.mean()), "max": int(numbers.max())} if len(numbers) else {"mean": None, "max": None}


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


def traffic(schedule: Schedule) -> dict[str, dict[str, int]]:
    """Return the bytes and messages from servers to workers, from workers to servers, and between workers.

    Args:
        schedule: schedule of any run; without a task its messages have no bytes, unless `message_bytes` is set.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> traffic(fred.run(scenario).outcome("asgd").schedule)["messages"]
    {'to_workers': 5, 'to_servers': 4, 'between_workers': 0}
    """
    pulls = schedule["verb"] == Verb.PULL
    on_server = np.isin(schedule["replica"], schedule.on_servers)
    ways = dict(zip(WAYS, (pulls & on_server, ~pulls & on_server, ~on_server), strict=True))
    return {unit: {way: exact_sum(schedule[unit][rows]) for way, rows in ways.items()} for unit in ("bytes", "messages")}


def copies(schedule: Schedule) -> pd.DataFrame:
    """Return the copies sent and the copies possible [Odena 2016, figure 3]: a row per gradient known to servers, in order.

    Each gradient could be pushed once and, before that, parameters could be fetched once. Columns, cumulative up to that
    gradient: seconds, updates (so far), potential, pushes, fetches, pushed_bytes, fetched_bytes.

    Args:
        schedule: schedule of a run with servers.

    >>> import fred
    >>> scenario = fred.scenario(
    ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     algorithm={"name": "asgd", "learning_rate": 0.1},
    ...     stop={"updates": 4},
    ... )
    >>> copies(fred.run(scenario).outcome("asgd").schedule)[["seconds", "potential", "pushes", "fetches"]].tail(1)
       seconds  potential  pushes  fetches
    3      1.0          4       4        4
    """
    rows = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    rows = rows[(schedule["step"][rows] != NONE) & np.isin(schedule["replica"][rows], schedule.on_servers)]
    worker, step, mailbox = (schedule[name][rows] for name in ("worker", "step", "mailbox"))
    _, first, gradient = np.unique(worker * (step.max(initial=0) + 1) + step, return_index=True, return_inverse=True)
    order = np.argsort(first)
    _, read_first = np.unique(mailbox[first[order]], return_index=True)
    columns = {
        "seconds": schedule["time_ns"][rows[first[order]]] / NANOSECONDS,
        "updates": np.searchsorted(schedule.ledger.every_update, rows[first[order]]) // schedule.blocks,
        "potential": 1 + np.arange(len(order)),
    }
    for unit, (pushed, fetched) in {"messages": ("pushes", "fetches"), "bytes": ("pushed_bytes", "fetched_bytes")}.items():
        up = np.bincount(gradient, schedule[unit][rows], len(order))[order]
        down = np.zeros(len(order))
        down[read_first] = _fetched(schedule, unit)[mailbox[first[order]][read_first]]
        columns |= {pushed: up, fetched: down} if unit == "bytes" else {pushed: up > 0, fetched: down > 0}
        columns |= {name: np.cumsum(columns[name]) for name in (pushed, fetched)}
    return pd.DataFrame(columns)


def _fetched(schedule: Schedule, unit: str) -> NDArray[np.float64]:
    """Return the messages or bytes sent to fill each mailbox; a block counts in the first mailbox that includes it."""
    pulls, mixes = schedule.rows(Verb.PULL), schedule.rows(Verb.MIX)
    fetched = np.zeros(int(schedule["mailbox"].max(initial=0)) + 1)
    fetched[schedule["mailbox"][pulls]] = schedule[unit][pulls]
    _, first = np.unique(schedule["source"][mixes], return_index=True)
    whole, part = schedule["mailbox"][mixes[first]], schedule["source"][mixes[first]]
    np.add.at(fetched, whole, fetched[part])
    return fetched


def _copies(schedule: Schedule) -> dict[str, int | None]:
    """Return the last row of `copies`, if there are servers."""
    counted = copies(schedule) if schedule.on_servers else pd.DataFrame()
    names = ("potential", "pushes", "fetches")
    return dict.fromkeys(names) if counted.empty else {name: int(counted[name].iloc[-1]) for name in names}


def _target(metrics: pd.DataFrame, run: Run) -> dict[str, Any] | None:
    """Return when the loss, or else the error, or else the gradient norm, first reached its target; None without a target."""
    if not run.has_target:
        return None
    column, goal = next(iter(run.targets.items()))
    reached = metrics[metrics[column] <= goal]
    first = None if reached.empty else reached.iloc[0]
    seconds = None if first is None else _finite(first["virtual_seconds"])
    spent = {name: None if first is None else _finite(first[name]) for name in costs.COLUMNS if name in metrics}
    return {column: goal, "updates": None if first is None else int(first["updates"]), "seconds": seconds, **spent}


def _diverged(metrics: pd.DataFrame) -> int | None:
    """Return the number of updates after which the loss stayed non-finite; None if the last loss is finite."""
    finite = np.flatnonzero(np.isfinite(metrics["loss"]))
    first = finite[-1] + 1 if len(finite) else 0
    return int(metrics["updates"].iloc[first]) if first < len(metrics) else None


def _finite(value: float) -> float | None:
    """Return None for numbers that JSON cannot represent: a diverged loss, the time of a run without a clock."""
    return float(value) if np.isfinite(value) else None
