"""The outcome of one run with one seed: the interface of outcomes in memory and on disk, and those in memory."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components.component import NANOSECONDS
from fred.components.one_of import UnimportedError
from fred.schedule.schedule import NONE, UNENDING, Schedule, Verb, What
from fred.specification.shape import Run
from fred.specification.summary import Finished, summarise
from fred.specification.task import Task

Named = dict[str, NDArray]  # parameters by path, such as `layer0/weights`


class Outcome(Finished, Protocol):
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
    ends, late_ends = schedule["end_ns"].copy(), schedule.intervals.select(What.UNFINISHED)
    ends[late_ends.row] = late_ends.end_ns
    rows = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    rows = rows[(schedule["step"][rows] != NONE) & (ends[rows] < UNENDING)]
    _, first = np.unique(schedule["step"][rows] * schedule.workers + schedule["worker"][rows], return_index=True)
    rows = rows[first]
    worker, nanoseconds = schedule["worker"][rows], ends[rows] - schedule["begin_ns"][rows]
    node = cluster.node_of[worker]
    columns = {"iteration": schedule["step"][rows], "worker": worker, "seconds": nanoseconds / NANOSECONDS, "node": node}
    return pd.DataFrame(columns)
