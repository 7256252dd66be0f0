"""B-staleness: distance of gradients from those at the current parameters [Odena 2016, arXiv:1601.04033, eq. 3]."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.base import cached
from fred.base.errors import FredError
from fred.learning.loss import Arrays
from fred.learning.models.model import Params
from fred.outcomes.outcome import Outcome
from fred.replay.arithmetic import Arithmetic
from fred.replay.interpreter import Interpreter
from fred.running.problem import Problem
from fred.schedule.schedule import NONE, Schedule, Verb, message_key
from fred.specification.loading import revalidated

Blocks = Sequence[Params]


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
    problem = Problem(revalidated(run.task), run, outcome.seed)
    if problem.data.digest != outcome.data_digest:
        raise FredError(f"run `{outcome.name}`: the data have changed since the run (their digest differs)")
    do = problem.arithmetic
    interpreter = Interpreter(do, problem.models, problem.layout.replicas, problem.examples, problem.batches)
    gradient = _gradient(do)
    wanted = _uses(schedule, every)
    last = _LastUses(schedule)
    read_at = dict(zip((uses := schedule.ledger.uses).tolist(), schedule.read_at(uses).tolist(), strict=True))
    rows = []
    for number, row in enumerate(schedule):
        if number in wanted:
            read, now, minibatch = interpreter.gradient_inputs(row)
            apart = _distances(do, *(gradient(model, problem.examples, minibatch) for model in (read, now)))
            stale = row.timestamp + row.staleness - read_at[number]
            told = [interpreter.statistic(row.replica * schedule.blocks + row.block)] if do.server.has_statistic else []
            rows.append((number, row.worker, stale, float(apart[row.block]), *told))
        interpreter.execute(row)
        last.forget(interpreter, number)
    names = ["row", "worker", "staleness", "b_staleness", *(["statistic"] if do.server.has_statistic else [])]
    return pd.DataFrame(rows, columns=names)


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


def _uses(schedule: Schedule, every: int) -> set[int]:
    """Return the rows in which every N-th gradient is used."""
    ledger = schedule.ledger
    chosen = (ledger.gradients != NONE) & (ledger.gradients % every == 0)
    return set(ledger.uses[chosen].tolist())


@cached.code(8)
def _gradient(do: Arithmetic) -> Callable[[Blocks, Arrays, NDArray[np.int32]], Params]:
    """Return the compiled gradient at given blocks, over given examples."""
    return jax.jit(
        lambda blocks, examples, indices: do.loss.gradient(
            do.server.model(do.blocks.join(blocks)), examples, indices, padded=do.padded
        )
    )


def _distances(do: Arithmetic, one: Params, other: Params) -> list[np.float32]:
    """Return the distances of two gradients, block by block."""
    cut = do.blocks.split(jax.tree.map(jnp.subtract, one, other))
    blocks = [jax.tree.leaves(do.blocks.block(cut, number)) for number in range(do.blocks.count)]
    return [np.sqrt(sum(np.sum(np.square(leaf, dtype=float)) for leaf in leaves)) for leaves in blocks]


class _LastUses:
    """The values that an interpreter can release after each row."""

    def __init__(self, schedule: Schedule):
        self._last: dict[int, list[tuple[int, ...]]] = {}  # by row: mailboxes, as (number,), and keys of messages
        seen: dict[tuple[int, ...], int] = {}
        for number, row in enumerate(schedule):
            for mailbox in {row.mailbox, row.source} - {NONE}:
                seen[mailbox,] = number
            if row.verb in (Verb.PUSH, Verb.ADD):
                seen[message_key(row.worker, row.step, row.source, row.mailbox)] = number
        for key, number in seen.items():
            self._last.setdefault(number, []).append(key)

    def forget(self, interpreter: Interpreter, number: int) -> None:
        """Release the values whose last use is in this row."""
        for key in self._last.get(number, ()):
            if len(key) == 1:
                interpreter.forget_mailbox(key[0])
            else:
                interpreter.forget_message(key)
