"""Each worker's part in a run, and how well the final model fits its own examples: participation and fairness."""

from functools import partial

import jax
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.learning.loss import Arrays, Loss
from fred.learning.models.model import Params
from fred.outcomes.outcome import Named, Outcome
from fred.running.problem import Problem
from fred.schedule.schedule import NONE, Schedule, Verb
from fred.specification.loading import revalidated

_AT_ONCE = 1024  # examples


def by_worker(outcome: Outcome) -> pd.DataFrame:
    """Return one row per worker: worker, gradients, dropped; if the examples are divided, also examples, loss, error.

    gradients are those that took part in an update, dropped ones those that were used in none. examples is the number of the
    worker's own training examples, loss and error are the final model's means over them. Raises FredError if the data have
    changed since the run.

    Args:
        outcome: outcome of a run.
    """
    run, seed = outcome.run, outcome.seed
    table = _participation(outcome.schedule)
    if run.task is None or run.task.division == "shared":
        return table
    problem = Problem(revalidated(run.task), run, seed)
    if problem.data.digest != outcome.data_digest:
        raise FredError(f"run `{outcome.name}`: the data have changed since the run (their digest differs)")
    assert problem.parts is not None
    order, begins = problem.parts
    params = _of_names(problem.params, outcome.final)
    model = params if problem.seen is None else problem.loss.model.calibrated(params, problem.seen)
    losses = np.asarray(_losses(problem.loss, model, problem.examples), np.float64)[:, order]
    means = np.add.reduceat(losses, begins[:-1], axis=1) / np.diff(begins)
    return table.assign(examples=np.diff(begins), loss=means[0], error=means[1])


def _participation(schedule: Schedule) -> pd.DataFrame:
    ledger, workers = schedule.ledger, schedule.workers
    applied = ledger.workers[ledger.applied != NONE]
    rows = schedule.rows(Verb.DROP)
    rows = rows[schedule["step"][rows] != NONE]
    steps = schedule.started + 1
    dropped = np.setdiff1d(schedule["worker"][rows] * steps + schedule["step"][rows], ledger.workers * steps + ledger.steps)

    def counted(who: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.bincount(who, minlength=workers)

    return pd.DataFrame({"worker": range(workers), "gradients": counted(applied), "dropped": counted(dropped // steps)})


def _of_names(like: Params, named: Named) -> Params:
    """Return parameters in the structure of others, from their names."""

    def found(path: tuple[jax.tree_util.KeyEntry, ...], leaf: jax.Array) -> NDArray:
        return named[jax.tree_util.keystr(path, simple=True, separator="/") or "params"]

    return jax.tree_util.tree_map_with_path(found, like)


@partial(jax.jit, static_argnums=0)
def _losses(loss: Loss, model: Params, examples: Arrays) -> jax.Array:
    """Return loss and error of each example: [2, examples]."""

    def each(example: Arrays) -> tuple[jax.Array, jax.Array]:
        inputs, answers = example[0][None], example[1][None]
        outputs = loss.model.apply(model, inputs)
        return loss.function.losses(outputs, answers)[0], loss.function.error(outputs, answers)

    return jax.numpy.stack(jax.lax.map(each, examples, batch_size=_AT_ONCE))
