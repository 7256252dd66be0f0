"""B-staleness: how far gradients are from those at the parameters that they meet [Odena 2016, arXiv:1601.04033, eq. 3]."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.errors import FredError
from fred.learning.loss import Arrays
from fred.learning.models.model import Params
from fred.outcomes.outcome import Outcome
from fred.process import remembered
from fred.replay.arithmetic import Arithmetic
from fred.replay.interpreter import Interpreter
from fred.running.problem import Problem
from fred.schedule.schedule import NONE, Schedule, Verb, message_key
from fred.specification.loading import validated_anew

Blocks = Sequence[Params]


def b_staleness(outcome: Outcome, every: int = 1) -> pd.DataFrame:
    """|g(theta_read) - g(theta_now)| of every so many-th gradient that was used, both over its minibatch; Euclidean.

    One row for each row of the schedule that uses one (of several servers: each, of its own block): row, worker, staleness
    (changes), b_staleness; and the algorithm's statistic just before (the mean of FASGD's v), where it has one. theta_now is
    what the replica holds just before. The run is interpreted once more, in which each of these gradients takes two more.
    Raises FredError for a run without a task.

    Args:
        outcome: of a run with a task, whose data must still be the same.
        every: of so many gradients one is looked at.
    """
    run, schedule = outcome.run, outcome.schedule
    if every < 1:
        raise FredError(f"`every` must be at least 1, not {every}: which gradients are looked at")
    if run.task is None:
        raise FredError(f"run `{outcome.name}` has no `task`: without one there are no gradients to compare")
    problem = Problem(validated_anew(run.task), run, outcome.seed)
    if problem.data.digest != outcome.data_digest:
        raise FredError(f"run `{outcome.name}`: the data are not those that it saw (their digest differs)")
    do = problem.arithmetic
    interpreter = Interpreter(do, problem.models, problem.layout.replicas, problem.examples, problem.batches)
    gradient = _gradient(do)
    wanted = _uses(schedule, every)
    last = _LastUses(schedule)
    read_at = dict(zip((uses := schedule.ledger.uses).tolist(), schedule.read_at(uses).tolist(), strict=True))
    rows = []
    for number, row in enumerate(schedule):
        if number in wanted:
            read, now, minibatch = interpreter.meeting(row)
            apart = _distances(do, *(gradient(model, problem.examples, minibatch) for model in (read, now)))
            stale = row.timestamp + row.staleness - read_at[number]
            told = [interpreter.statistic(row.replica * schedule.blocks + row.block)] if do.server.has_statistic else []
            rows.append((number, row.worker, stale, float(apart[row.block]), *told))
        interpreter.execute(row)
        last.forget(interpreter, number)
    names = ["row", "worker", "staleness", "b_staleness", *(["statistic"] if do.server.has_statistic else [])]
    return pd.DataFrame(rows, columns=names)


def by_staleness(frame: pd.DataFrame) -> pd.DataFrame:
    """For each staleness how many gradients had it, and the mean and the largest of their B-staleness.

    Args:
        frame: of `b_staleness`, of which columns staleness and b_staleness count.

    >>> by_staleness(pd.DataFrame({"staleness": [0, 1, 1], "b_staleness": [0.0, 0.5, 1.5]}))
       staleness  gradients  mean  largest
    0          0          1   0.0      0.0
    1          1          2   1.0      1.5
    """
    grouped = frame.groupby("staleness")["b_staleness"]
    return grouped.agg(gradients="size", mean="mean", largest="max").reset_index()


def _uses(schedule: Schedule, every: int) -> set[int]:
    """Rows in which every so many-th gradient is used."""
    ledger = schedule.ledger
    chosen = (ledger.gradients != NONE) & (ledger.gradients % every == 0)
    return set(ledger.uses[chosen].tolist())


@remembered.code(8)
def _gradient(do: Arithmetic) -> Callable[[Blocks, Arrays, NDArray[np.int32]], Params]:
    """The gradient at these blocks, over these examples."""
    return jax.jit(
        lambda blocks, examples, indices: do.loss.gradient(do.server.model(do.blocks.join(blocks)), examples, indices)
    )


def _distances(do: Arithmetic, one: Params, other: Params) -> list[np.float32]:
    """Of two gradients, block by block."""
    cut = do.blocks.cut(jax.tree.map(jnp.subtract, one, other))
    blocks = [jax.tree.leaves(do.blocks.block(cut, number)) for number in range(do.blocks.count)]
    return [np.sqrt(sum(np.sum(np.square(leaf, dtype=float)) for leaf in leaves)) for leaves in blocks]


class _LastUses:
    """What an interpreter need not keep after each row."""

    def __init__(self, schedule: Schedule):
        self._last: dict[int, list[tuple[int, ...]]] = {}  # by row: mailboxes, as (number,), and messages' keys
        seen: dict[tuple[int, ...], int] = {}
        for number, row in enumerate(schedule):
            for mailbox in {row.mailbox, row.source} - {NONE}:
                seen[mailbox,] = number
            if row.verb in (Verb.PUSH, Verb.ADD):
                seen[message_key(row.worker, row.step, row.source, row.mailbox)] = number
        for key, number in seen.items():
            self._last.setdefault(number, []).append(key)

    def forget(self, interpreter: Interpreter, number: int) -> None:
        """Whatever is used last in this row."""
        for key in self._last.get(number, ()):
            if len(key) == 1:
                interpreter.forget_mailbox(key[0])
            else:
                interpreter.forget_message(key)
