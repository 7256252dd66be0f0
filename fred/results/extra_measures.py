"""Measures of a finished run that need its arithmetic again: B-staleness of gradients, and how the model fits each worker.

B-staleness is the distance of gradients from those at the current parameters [Odena 2016, arXiv:1601.04033, eq. 3].
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base import cached
from fred.base.errors import FredError
from fred.learning.loss import Arrays, Loss
from fred.learning.models.model import Params
from fred.outcomes.outcome import Named, Outcome
from fred.replay.arithmetic import Arithmetic
from fred.replay.interpreter import Interpreter
from fred.running.model_training import LastUses, Problem
from fred.schedule.schedule import NONE, Schedule, Verb
from fred.specification.loading import revalidated
from fred.specification.task import Task

BlockParams = Sequence[Params]
_BATCH = 1024  # examples of one product


def b_staleness(outcome: Outcome, every: int = 1) -> pd.DataFrame:
    """Return |g(theta_read) - g(theta_now)| of used gradients, both over the same minibatch; Euclidean norm.

    One row for each row of the schedule that uses a gradient (with several servers: each with its own block): row, worker,
    staleness (changes), b_staleness. If the algorithm has a statistic (the mean of FASGD's v), its value just before is
    included. theta_now are the replica's parameters just before the use. The run is interpreted again, with two additional
    gradients for each of these. Raises FredError for a run without a task.

    Args:
        outcome: outcome of a run with a task, whose data must be unchanged.
        every: only every N-th gradient is evaluated.
    """
    run, schedule = outcome.run, outcome.schedule.by_minibatch()
    if every < 1:
        raise FredError(f"`every` is {every}; expected 1 or more: only every N-th gradient is evaluated")
    if run.task is None:
        raise FredError(f"run `{outcome.name}` has no `task`: without one there are no gradients to compare")
    problem = _problem(outcome, run.task)
    arithmetic = problem.arithmetic
    interpreter = Interpreter(arithmetic, problem.models, problem.layout.replicas, problem.examples, problem.batches)
    gradient, has_statistic = _gradient(arithmetic), arithmetic.server.has_statistic
    uses, evaluated_rows = schedule.ledger.uses, _evaluated_rows(schedule, every)
    last_uses = LastUses(schedule)
    read_at = dict(zip(uses.tolist(), schedule.read_clocks(uses).tolist(), strict=True))
    rows = []
    for number, row in enumerate(schedule):
        if number in evaluated_rows:
            *models, minibatch = interpreter.gradient_inputs(row)
            distances = _distances(arithmetic, *(gradient(model, problem.examples, minibatch) for model in models))
            staleness = row.timestamp + row.staleness - read_at[number]
            statistic = [interpreter.statistic(row.replica * schedule.blocks + row.block)] if has_statistic else []
            rows.append((number, row.worker, staleness, float(distances[row.block]), *statistic))
        interpreter.execute(row)
        last_uses.release(interpreter, number)
    names = ["row", "worker", "staleness", "b_staleness", *(["statistic"] if has_statistic else [])]
    return pd.DataFrame(rows, columns=names)


def _problem(outcome: Outcome, task: Task) -> Problem:
    """Return a run's data and arithmetic. Raises FredError if the data have changed."""
    problem = Problem(revalidated(task), outcome.run, outcome.seed)
    if problem.data.digest != outcome.data_digest:
        raise FredError(f"run `{outcome.name}`: the data have changed since the run (their digest differs)")
    return problem


def by_staleness(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the number of gradients for each staleness, and the mean and the largest of their B-staleness.

    Args:
        frame: the result of `b_staleness`; its columns staleness and b_staleness are used.

    >>> by_staleness(pd.DataFrame({"staleness": [0, 1, 1], "b_staleness": [0.0, 0.5, 1.5]}))
       staleness  gradients  mean  largest
    0          0          1   0.0      0.0
    1          1          2   1.0      1.5
    """
    grouped = frame.groupby("staleness")["b_staleness"]
    return grouped.agg(gradients="size", mean="mean", largest="max").reset_index()


def _evaluated_rows(schedule: Schedule, every: int) -> set[int]:
    """Return the rows in which every N-th gradient is used."""
    ledger = schedule.ledger
    return set(ledger.uses[(ledger.gradients != NONE) & (ledger.gradients % every == 0)].tolist())


@cached.code(8)
def _gradient(arithmetic: Arithmetic) -> Callable[[BlockParams, Arrays, NDArray[np.int32]], Params]:
    """Return the compiled gradient at given blocks, over given examples."""

    def gradient(block_params: BlockParams, examples: Arrays, indices: jax.Array) -> Params:
        model = arithmetic.server.model(arithmetic.blocks.join(block_params))
        return arithmetic.loss.gradient(model, examples, indices, padded=arithmetic.padded)

    return jax.jit(gradient)


def _distances(arithmetic: Arithmetic, gradient: Params, other: Params) -> list[np.float32]:
    """Return the distances of two gradients, block by block."""
    difference = arithmetic.blocks.split(jax.tree.map(jnp.subtract, gradient, other))
    blocks = [jax.tree.leaves(arithmetic.blocks.block(difference, number)) for number in range(arithmetic.blocks.count)]
    return [np.sqrt(sum(np.sum(np.square(leaf, dtype=float)) for leaf in leaves)) for leaves in blocks]


def by_worker(outcome: Outcome) -> pd.DataFrame:
    """Return one row per worker: worker, gradients, dropped; if the examples are divided, also examples, loss, error.

    gradients are those that took part in an update, dropped ones those that were used in none. examples is the number of the
    worker's own training examples, loss and error are the final model's means over them. Raises FredError if the data have
    changed since the run.

    Args:
        outcome: outcome of a run.
    """
    task, table = outcome.run.task, _participation(outcome.schedule)
    if task is None or task.division == "shared":
        return table
    problem = _problem(outcome, task)
    assert problem.parts is not None
    order, begins = problem.parts
    params = _fill_structure(problem.params, outcome.final)
    model = params if problem.seen is None else problem.loss.model.calibrated(params, problem.seen)
    losses = np.asarray(_losses(problem.loss, model, problem.examples), np.float64)[:, order]
    means = np.add.reduceat(losses, begins[:-1], axis=1) / np.diff(begins)
    return table.assign(examples=np.diff(begins), loss=means[0], error=means[1])


def _participation(schedule: Schedule) -> pd.DataFrame:
    """Return one row per worker: worker, its gradients that took part in an update, and those that were used in none."""
    ledger, workers = schedule.ledger, schedule.workers
    applied = ledger.workers[ledger.applied != NONE]
    rows = schedule.rows(Verb.DROP)
    rows = rows[schedule["step"][rows] != NONE]
    steps = schedule.started + 1  # more than any worker has: worker x steps + step is a number of its own for each gradient
    dropped = np.setdiff1d(schedule["worker"][rows] * steps + schedule["step"][rows], ledger.workers * steps + ledger.steps)

    gradients, drops = (np.bincount(owners, minlength=workers) for owners in (applied, dropped // steps))
    return pd.DataFrame({"worker": range(workers), "gradients": gradients, "dropped": drops})


def _fill_structure(like: Params, named: Named) -> Params:
    """Return parameters in the structure of others, from their names."""

    def array_at(path: tuple[jax.tree_util.KeyEntry, ...], leaf: jax.Array) -> NDArray:
        return named[jax.tree_util.keystr(path, simple=True, separator="/") or "params"]

    return jax.tree_util.tree_map_with_path(array_at, like)


@partial(jax.jit, static_argnums=0)
def _losses(loss: Loss, model: Params, examples: Arrays) -> jax.Array:
    """Return loss and error of each example: [2, examples]."""

    def judge(example: Arrays) -> tuple[jax.Array, jax.Array]:
        inputs, answers = example[0][None], example[1][None]
        outputs = loss.model.apply(model, inputs)
        return loss.function.losses(outputs, answers)[0], loss.function.error(outputs, answers)

    return jax.numpy.stack(jax.lax.map(judge, examples, batch_size=_BATCH))
