"""The outcome of one run with one seed: the interface of outcomes in memory and on disk, those in memory, and the summary."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base import cached
from fred.base.errors import FredError
from fred.cluster import costs
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.components.component import NANOSECONDS
from fred.components.one_of import UnimportedError
from fred.schedule import staleness
from fred.schedule.schedule import NONE, UNENDING, Schedule, Verb, What
from fred.schedule.spans import KINDS, failure_times, shares, spans
from fred.schedule.traffic import copies, traffic
from fred.specification.shape import Run
from fred.specification.summary import Summary
from fred.specification.task import Task

Named = dict[str, NDArray]  # parameters by path, such as `layer0/weights`


class Outcome(Protocol):
    """The outcome of one run with one seed; `Computed` has it in memory, `Stored` reads it from its folder on demand.

    Example: `fred.Result.outcome` returns one:
        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster=fred.Cluster(workers=2), algorithm=fred.systems.ASGD(learning_rate=0.1), stop=fred.Stop(updates=4)
        ... )
        >>> outcome = fred.run(scenario).outcome("asgd")
        >>> outcome.seed, outcome.has_clock, len(outcome.run_times)
        (0, True, 4)
    """

    @property
    def name(self) -> str:
        """Return the run's name."""

    @property
    def seed(self) -> int:
        """Return the run's seed."""

    @property
    def run(self) -> Run:
        """Return the specification of the run."""

    @property
    def schedule(self) -> Schedule:
        """Return the schedule of the run."""

    @property
    def metrics(self) -> pd.DataFrame:
        """Return one row per evaluation: virtual_seconds (s), updates, gradients; with a task also loss and error."""

    @property
    def schedule_digest(self) -> str:
        """Return the SHA-256 of the schedule, the identity of the run's timing."""

    @property
    def params_digest(self) -> str | None:
        """Return the SHA-256 of the final parameters; None without a task."""

    @property
    def has_clock(self) -> bool:
        """Return True if virtual time passes in the run."""

    @property
    def initial(self) -> Named:
        """Return the initial parameters; those of each replica under `replica-<number>/`, if they differ."""

    @property
    def final(self) -> Named:
        """Return the parameters after the last update; empty without a task."""

    @property
    def data_digest(self) -> str | None:
        """Return the SHA-256 of the data; None without a task."""

    @property
    def run_times(self) -> pd.DataFrame:
        """Return the compute time of each gradient: iteration, worker, seconds, node."""

    @property
    def summary(self) -> dict[str, Any]:
        """Return all results as numbers, as in summary.json."""

    @property
    def params(self) -> Any:
        """Return the final parameters as the pytree that the model's `init` returns."""

    def module(self) -> Any:
        """Return the Flax or Equinox module with the final parameters."""

    def predict(self, inputs: Any) -> NDArray:
        """Return the trained model's outputs [n, outputs] for `inputs` [n, ...]."""

    def renamed(self, name: str) -> "Outcome":
        """Return the same outcome under another name."""


def digest(params: Named) -> str | None:
    """Return the SHA-256 of parameters; None if there are none.

    Args:
        params: arrays by path; their order does not matter, types and shapes do.

    >>> digest({}), len(digest({"weights": np.zeros(2)}))
    (None, 64)
    """
    if not params:
        return None
    sha = hashlib.sha256()
    for path, array in sorted(params.items()):
        sha.update(f"{path} {array.dtype.str} {array.shape}".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


class ModelOfRun:
    """The trained model of an outcome, in memory or on disk."""

    def __repr__(self: Outcome) -> str:
        losses = self.metrics.get("loss")
        loss = "" if losses is None else f", loss {losses.iloc[-1]:.4g}"
        return f"<Outcome of {self.name} with seed {self.seed}: {self.summary['updates']:,} updates{loss}>"

    @property
    def params(self: Outcome) -> Any:
        """Return the final parameters as the pytree that the model's `init` returns. Raises FredError without a task.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     task={"data": "digits", "model": {"name": "mlp", "hidden": [4]}},
        ...     cluster={"workers": 2},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> import jax
        >>> jax.tree.map(lambda array: array.shape, fred.run(scenario)["asgd"].params)["layer0"]
        {'biases': (4,), 'weights': (64, 4)}
        """
        from fred.learning.models.named import to_pytree

        task = _task_of(self)
        return to_pytree(self.final, task.model, task.data, self.seed)

    def module(self: Outcome) -> Any:
        """Return the Flax or Equinox module with the final parameters, ready for evaluation.

        Raises FredError for a model that is not made from such a module: use `params` or `predict`.
        """
        from fred.learning.models.named import for_evaluation

        model = _task_of(self).model
        try:
            with_params = model.with_params
        except UnimportedError:
            raise
        except AttributeError:
            raise FredError(
                f"model `{type(model).__name__}` is not made from a module of Flax or Equinox: use `.predict(inputs)`, or "
                "`.run.task.model.apply(.params, inputs)`"
            ) from None
        return with_params(for_evaluation(self.params, model, _task_of(self).data, self.seed))

    def predict(self: Outcome, inputs: Any) -> NDArray[Any]:
        """Return the trained model's outputs [n, outputs], such as a score for each class, computed as in evaluations.

        Args:
            inputs: inputs of n examples [n, ...], in the form of the training data.

        Raises FredError without a task.

        >>> import fred
        >>> import numpy as np
        >>> scenario = fred.scenario(
        ...     task={"data": "digits", "model": "softmax"},
        ...     cluster={"workers": 2},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 40},
        ... )
        >>> fred.run(scenario)["asgd"].predict(np.zeros((3, 64))).shape
        (3, 10)
        """
        from fred.learning.models.named import for_evaluation, predict

        task = _task_of(self)
        return predict(for_evaluation(self.params, task.model, task.data, self.seed), task.model, task.data, self.seed, inputs)


def _task_of(outcome: Outcome) -> Task:
    if outcome.run.task is None:
        raise FredError(f"run `{outcome.name}` trains no model: its scenario has no `task`")
    return outcome.run.task


@dataclass(frozen=True, repr=False)
class Computed(ModelOfRun):
    """The outcome of one run with one seed, in memory: an `Outcome`."""

    name: str
    seed: int
    run: Run
    schedule: Schedule
    metrics: pd.DataFrame
    initial: Named
    final: Named
    data_digest: str | None

    @property
    def has_clock(self) -> bool:
        """Return True if virtual time passes in the run."""
        return self.run.protocol.has_clock

    @cached_property
    def schedule_digest(self) -> str:
        """Return the SHA-256 of the schedule."""
        return self.schedule.digest()

    @cached_property
    def params_digest(self) -> str | None:
        """Return the SHA-256 of the final parameters."""
        return digest(self.final)

    @cached_property
    def run_times(self) -> pd.DataFrame:
        """Return the compute time of each gradient."""
        return run_times(self.schedule, self.run.cluster)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Return the summary: all results as numbers."""
        return summarise(self)

    def renamed(self, name: str) -> "Computed":
        """Return the same outcome under another name."""
        return replace(self, name=name)


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
    # A gradient dropped during its computation has an interval up to the time at which it would have ended.
    ends, unfinished = schedule["end_ns"].copy(), schedule.intervals.select(What.UNFINISHED)
    ends[unfinished.row] = unfinished.end_ns
    rows = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    rows = rows[(schedule["step"][rows] != NONE) & (ends[rows] < UNENDING)]
    # With several blocks a gradient has several rows, of which the first one counts.
    _, first_rows = np.unique(schedule["step"][rows] * schedule.workers + schedule["worker"][rows], return_index=True)
    rows = rows[first_rows]
    worker, nanoseconds = schedule["worker"][rows], ends[rows] - schedule["begin_ns"][rows]
    node = cluster.node_of[worker]
    columns = {"iteration": schedule["step"][rows], "worker": worker, "seconds": nanoseconds / NANOSECONDS, "node": node}
    return pd.DataFrame(columns)


_LEARNED = ("loss", "error", "perplexity", "gradient_norm", "replicas_loss", "replicas_error")  # columns of evaluations


def summarise(run: Outcome) -> dict[str, Any]:
    """Return the results of one run with one seed as numbers, as in summary.json.

    Args:
        run: the run.

    Numbers that do not apply are None, and so are numbers that JSON cannot represent.
    """
    schedule, settings, metrics = run.schedule, run.run, run.metrics
    is_measured = "loss" in metrics
    last = metrics.iloc[-1].to_dict() if is_measured else {}
    diverged = _diverged(metrics) if is_measured else None
    measures = {
        "name": run.name,
        "algorithm": registry.name_of("algorithm", settings.algorithm),
        "protocol": registry.name_of("protocol", settings.protocol),
        "seed": run.seed,
        "ended_by": _limit_reached(run),
        **_of_timing(schedule, settings.protocol.has_clock),
        **_spent(run),
        **({"failures": failure_times(schedule)} if settings.cluster.failures else {}),
        **{name: _finite(last[name]) if name in last else None for name in _LEARNED},
        "diverged": diverged,
        "target": _target(metrics, settings) if is_measured else None,
        "digests": {"schedule": run.schedule_digest, "params": run.params_digest},
    }
    if diverged is not None:
        measures["error"] = None  # of parameters that are no longer finite
    return Summary.model_validate(measures).model_dump(exclude_unset=True)


@cached.cache_per_object
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
        "workers_time": shares(spans(schedule)) if has_clock else dict.fromkeys(KINDS),
    }


def _spent(run: Outcome) -> dict[str, Any]:
    """Return the cost and the energy, kWh; nothing for clusters without prices or power."""
    schedule, cluster = run.schedule, run.run.cluster
    if cluster.prices is None:
        return {}
    spending = costs.spent(schedule, cluster, np.array([schedule.end_ns]), np.array([len(schedule)]))
    has_clock = run.run.protocol.has_clock
    cost = {
        name: float(amounts[0]) if has_clock else None for name, amounts in {"total": spending.total, **spending.parts}.items()
    }
    return {"cost": cost} | ({} if spending.kwh is None else {"energy_kwh": float(spending.kwh[0]) if has_clock else None})


def _limit_reached(run: Outcome) -> str:
    """Return the limit that ended the run; of several reached at once the first in this order, the time last."""
    stop, metrics, counts = run.run.stop, run.metrics, run.schedule.counts()
    if stop.target_loss and "loss" in metrics and len(metrics) > 1 and metrics["loss"].iloc[-1] <= stop.target_loss:
        return "target_loss"
    for limit, number in (("updates", stop.updates), ("gradients", stop.gradients)):
        if number and counts[limit] >= number:
            return limit
    return "standstill" if run.schedule.standstill else "seconds"


def _mean_and_max(numbers: NDArray[np.int64]) -> dict[str, float | int | None]:
    return {"mean": float(numbers.mean()), "max": int(numbers.max())} if len(numbers) else {"mean": None, "max": None}


def _copies(schedule: Schedule) -> dict[str, int | None]:
    """Return the last row of `copies`, if there are servers."""
    table = copies(schedule) if schedule.on_servers else pd.DataFrame()
    names = ("potential", "pushes", "fetches")
    return dict.fromkeys(names) if table.empty else {name: int(table[name].iloc[-1]) for name in names}


def _target(metrics: pd.DataFrame, run: Run) -> dict[str, Any] | None:
    """Return when the run's first target was first reached; None without a target."""
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
