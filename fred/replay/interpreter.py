"""The meaning of each row of a schedule, row by row: the specification of the verbs, and the arithmetic of inline runs.

It leaves the same bits as the replay, which executes the same schedule much faster.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fred.base import cached
from fred.learning.loss import Arrays
from fred.learning.models.model import Params
from fred.learning.server import Message, State
from fred.replay.arithmetic import Arithmetic
from fred.replay.memory import Contribution, Memory, Snapshot, restore_memory
from fred.replay.phases import padded
from fred.schedule.minibatches import Minibatches
from fred.schedule.schedule import NONE, Row, Verb, message_key


class Interpreter:
    """An executor of rows. Resumed from a snapshot, it skips rows already executed and repeats earlier statistics."""

    def __init__(
        self,
        arithmetic: Arithmetic,
        models: Sequence[Params],
        replicas: int,
        examples: Arrays,
        batches: Minibatches,
        resumed: Snapshot | None = None,
    ):
        self._arithmetic, self._do = arithmetic, jitted(arithmetic)
        self._examples, self._batches = examples, batches
        start = Memory(arithmetic.start(models, replicas, batches.seed), arithmetic.memories(models[0], batches.seed))
        self.memory = restore_memory(resumed, start, arithmetic, examples) if resumed else start
        self._rows_to_skip = self.memory.rows  # number of rows executed before the snapshot
        self._statistics_read = 0  # number of statistics returned
        self._row = 0  # number of rows that `execute` has received
        self.loss: Callable[[], float]  # of the run's current model; set by the caller, which knows how to evaluate it
        self._shapes = lambda: arithmetic.shapes(examples)[2]  # of values that join rounds
        self._may_batch = arithmetic.hooks.batchable and replicas * arithmetic.blocks.count == 1

    def execute(self, row: Row) -> None:
        """Execute one row."""
        self._row += 1
        if self._row <= self._rows_to_skip:
            return
        self.memory.rows = self._row  # so a snapshot of the memory tells where to go on
        cell = row.replica * self._arithmetic.blocks.count + row.block  # index into `memory.states`; a MIX has none
        _VERBS[Verb(row.verb)](self, row, cell)

    def pull(self, row: Row, cell: int) -> None:
        """Execute a PULL: mailbox <- parameters of the replica."""
        self.memory.mailboxes[row.mailbox] = {row.block: self.memory.states[cell].params}

    def push(self, row: Row, cell: int) -> None:
        """Execute a PUSH: replica <- apply_update(replica, message)."""
        message = self._part(self._message(row), row.block)
        self._change(cell, self._do["apply"](self._state(cell, row), message, row.timestamp, row.worker), row)

    def add(self, row: Row, cell: int) -> None:
        """Execute an ADD: round <- round + weight x contribute(replica, message)."""
        contributions = self.memory.rounds.setdefault(cell, [])
        if self._can_join_batch(row, cell):
            contributions.append(Contribution(None, row, self._ordinal(row), self._model(row.mailbox)))
            return
        message = self._part(self._message(row), row.block)
        if self._arithmetic.hooks.contributes:
            message = self._do["contribute"](self._state(cell, row), message, row.timestamp, row.worker)
        contributions.append(
            Contribution(message if row.weight == 1.0 else self._do["scale"](message, np.float32(row.weight)), row)
        )

    def _can_join_batch(self, row: Row, cell: int) -> bool:
        """Return True if COMMIT may compute the gradient of an ADD together with the round's others, as one batch.

        Such a gradient is used for the first time, without a weight, and at the current version of the parameters.
        """
        is_first_use = row.step != NONE and _key(row) not in self.memory.ordinals
        if not (self._may_batch and is_first_use and row.weight == 1.0):
            return False
        (source,) = self._model(row.mailbox)
        return source is self.memory.states[cell].params  # a PULL takes this very object, and an update makes another

    def commit(self, row: Row, cell: int) -> None:
        """Execute a COMMIT: replica <- apply_round(replica, weight x sum of the round).

        The mean of gradients at the current version, each used for the first time, is computed as one batch, unless a gradient
        takes long. Then they are added in the order of the workers.
        """
        contributions = self.memory.rounds.pop(cell, [])
        weight = row.weight
        fresh = all(entry.message is None and entry.clock == row.timestamp for entry in contributions)  # no update since
        is_fresh_mean = contributions and fresh and weight == 1.0 / len(contributions)
        if is_fresh_mean and self._arithmetic.hooks.unbatched:
            contributions.sort(key=_by_worker)
        if is_fresh_mean and not self._arithmetic.hooks.unbatched:
            total, weight = self._part(self._mean_of_batch(contributions), row.block), 1.0  # the batch's gradient is a mean
        elif contributions:
            total = reduce(self._do["add"], [self._contribution(entry) for entry in contributions])
        else:
            total = self._nothing(row.block)
        self._change(cell, self._do["commit"](self._state(cell, row), total, np.float32(weight), len(contributions)), row)

    def mix(self, row: Row, cell: int) -> None:
        """Execute a MIX: mailbox <- mailbox + weight x mailbox `source`."""
        source = self.memory.mailboxes[row.source][row.block]
        blocks = self.memory.mailboxes.setdefault(row.mailbox, {})
        if row.block in blocks:
            blocks[row.block] = self._do["add_scaled"](blocks[row.block], source, np.float32(row.weight))
        else:
            blocks[row.block] = source if row.weight == 1.0 else self._do["scale"](source, np.float32(row.weight))

    def sync(self, row: Row, cell: int) -> None:
        """Execute a SYNC: replica <- synchronize(replica, mailbox, keep, weight)."""
        state, other = self._state(cell, row), self.memory.mailboxes[row.mailbox][row.block]
        keep, weight = np.float32(row.keep), np.float32(row.weight)
        if self._arithmetic.hooks.synchronizes:
            self._change(cell, self._do["synchronize"](state, other, keep, weight), row)
            return
        if row.keep:
            other = self._do["add_scaled"](self._do["scale"](state.params, keep), other, weight)
        elif row.weight != 1.0:
            other = self._do["scale"](other, weight)
        self._change(cell, state.replace(params=other), row)

    def drop(self, row: Row, cell: int) -> None:
        """Execute a DROP: do nothing."""

    def forget_mailbox(self, mailbox: int) -> None:
        """Release a mailbox that is never read again."""
        self.memory.mailboxes.pop(mailbox, None)

    def forget_message(self, key: tuple[int, ...]) -> None:
        """Release a message that is never used again."""
        self.memory.messages.pop(key, None)
        self.memory.ordinals.pop(key, None)

    def statistic(self, cell: int) -> float:
        """Return a value on which timing may depend: the algorithm's statistic of `cell`, or for NONE the loss."""
        if self._statistics_read == len(self.memory.statistics):
            value = self.loss() if cell == NONE else float(self._do["statistic"](self.memory.states[cell]))
            self.memory.statistics.append(value)
        self._statistics_read += 1
        return self.memory.statistics[self._statistics_read - 1]

    def gradient_inputs(self, row: Row) -> tuple[Sequence[Params], Sequence[Params], NDArray[np.int32]]:
        """Return a gradient's inputs before its use: the blocks that were read, the current ones, and its minibatch."""
        count = self._arithmetic.blocks.count
        current = [state.params for state in self.memory.states[row.replica * count : (row.replica + 1) * count]]
        ordinal = self.memory.ordinals.get(_key(row), self.memory.used)  # by default that of the next new gradient
        return self._model(row.mailbox), current, self._batches.minibatch(row.worker, row.step, ordinal)

    def states(self, replicas: Sequence[int]) -> list[State]:
        """Return the states of these replicas: for each block, stacked over the replicas."""
        count = self._arithmetic.blocks.count
        return [
            jax.tree.map(
                lambda *leaves: jnp.stack(leaves), *(self.memory.states[replica * count + block] for replica in replicas)
            )
            for block in range(count)
        ]

    def _state(self, cell: int, row: Row) -> State:
        return self.memory.states[cell].replace(clock=np.int32(row.timestamp + row.staleness))

    def _change(self, cell: int, state: State, row: Row) -> None:
        self.memory.states[cell] = state.replace(clock=np.int32(row.timestamp + row.staleness + 1))

    def _model(self, mailbox: int) -> list[Params]:
        """Return the parameters in a mailbox, one for each block."""
        blocks = self.memory.mailboxes[mailbox]
        return [blocks[number] for number in range(self._arithmetic.blocks.count)]

    def _ordinal(self, row: Row) -> int:
        """Return the gradient's rank in the order of first use."""
        ordinals, key = self.memory.ordinals, _key(row)
        if key not in ordinals:
            ordinals[key] = self.memory.used
            self.memory.used += row.step != NONE  # pseudo-gradients are not counted
        return ordinals[key]

    def _message(self, row: Row) -> Message:
        """Return the worker's message, split into blocks."""
        return self._make(row, self._ordinal(row), self._model(row.mailbox))

    def _make(self, row: Row, ordinal: int, model: Sequence[Params]) -> Message:
        """Return a message; at its first use, make it with the worker's memory of that time."""
        key, messages = _key(row), self.memory.messages
        if key in messages:
            return messages[key]
        if row.step == NONE:
            message = self._encode(row.worker, "pseudo_gradient", self._model(row.source), model)
        else:
            indices = self._batches.minibatch(row.worker, row.step, ordinal)
            message = self._encode(row.worker, "message", model, self._examples, indices)
        if key in self.memory.ordinals:  # otherwise `forget_message` has been called: it is never used again
            messages[key] = message
        return message

    def _encode(self, worker: int, function: str, *parts: Any) -> Message:
        entry = worker if self._arithmetic.hooks.remembers else 0
        message, self.memory.workers[entry] = self._do[function](*parts, self.memory.workers[entry])
        return message

    def _contribution(self, entry: Contribution) -> Message:
        if entry.message is not None:
            return entry.message
        return self._part(self._make(entry.row, entry.ordinal, entry.sources), entry.row.block)

    def _mean_of_batch(self, contributions: list[Contribution]) -> Message:
        """Return the mean gradient of a round, computed as one batch in the order of the workers."""
        members = sorted(contributions, key=_by_worker)
        size = padded(len(members), self._arithmetic.workers)
        entries = members + members[-1:] * (size - len(members))  # absent members repeat the last one, and are masked
        workers, steps, ordinals = np.array([(entry.row.worker, entry.row.step, entry.ordinal) for entry in entries]).T
        indices, masked = self._batches.indices(workers, steps, ordinals).reshape(-1), len(members) < size
        message, _ = self._do["message"](
            members[0].sources, self._examples, indices, (), len(members), members=size, masked=masked
        )
        return message

    def _part(self, message: Message, block: int) -> Message:
        """Return the part of a message that belongs to a block."""
        blocks = self._arithmetic.blocks
        return message[0].values if blocks.count == 1 else self._do["block"](message, block)

    def _nothing(self, block: int) -> Message:
        """Return the sum of an empty round."""
        shape = self._shapes()[self._arithmetic.blocks.place(block)[0]]
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)


def _by_worker(entry: Contribution) -> tuple[int, int]:
    return entry.row.worker, entry.row.step


def _key(row: Row) -> tuple[int, ...]:
    return message_key(row.worker, row.step, row.source, row.mailbox)


_VERBS = {
    Verb.PULL: Interpreter.pull,
    Verb.PUSH: Interpreter.push,
    Verb.ADD: Interpreter.add,
    Verb.COMMIT: Interpreter.commit,
    Verb.MIX: Interpreter.mix,
    Verb.SYNC: Interpreter.sync,
    Verb.DROP: Interpreter.drop,
}


@cached.code(64)
def jitted(arithmetic: Arithmetic) -> dict[str, Callable[..., Any]]:
    """Return the functions, each compiled by itself; cached, since runs with several seeds share them."""
    names = ("apply", "commit", "add", "contribute", "synchronize", "pseudo_gradient")
    functions: dict[str, Callable[..., Any]] = {name: jax.jit(getattr(arithmetic, name)) for name in names}
    return functions | {
        "message": jax.jit(arithmetic.message, static_argnames=("members", "masked")),
        "block": jax.jit(arithmetic.blocks.block, static_argnums=1 if arithmetic.blocks.layers else ()),
        "scale": jax.jit(lambda params, weight: arithmetic.mix([params], [weight])),
        "add_scaled": jax.jit(lambda value, params, weight: arithmetic.mix([params], [weight], value)),
        "statistic": jax.jit(arithmetic.server.statistic),
    }
