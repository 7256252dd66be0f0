"""What each verb means, on rows written by hand: numbers small enough to follow by eye."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fred.learning.loss import Loss
from fred.learning.loss_functions import SquaredError
from fred.learning.models.model import Model
from fred.replay.arithmetic import Arithmetic
from fred.replay.helpers import replay
from fred.replay.interpreter import Interpreter
from fred.replay.lower import lower
from fred.replay.machine import states_at
from fred.schedule.layout import Layout
from fred.schedule.minibatches import Minibatches
from fred.schedule.schedule import NONE, Row, Schedule, Verb
from fred.systems.rows import ASGD


class Line(Model):
    """One number w; its output is w, whatever the input: with answers 0 and squared error, the gradient is 2 w."""

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> dict:
        return {"w": jnp.ones(1)}

    def apply(self, params: dict, inputs: jax.Array) -> jax.Array:
        return jnp.zeros((len(inputs), 1)) + params["w"]


RATE = 0.25  # so that one step from w leads to w - 0.25 x 2 w = w / 2
MODEL = {"w": jnp.ones(1)}
EXAMPLES = jnp.zeros((4, 1)), jnp.zeros((4, 1))
BATCHES = Minibatches(0, 1, 4, "replacement", 2)


def row(verb: Verb, replica: int = 0, *, mailbox: int = NONE, source: int = NONE, step: int = NONE, **more: float) -> Row:
    """A row of worker `replica`; `more`: timestamp, staleness, weight, keep, worker."""
    facts: dict[str, Any] = {"time_ns": 0, "worker": replica, "block": 0, "timestamp": 0, "staleness": 0}
    facts |= {"begin_ns": 0, "end_ns": 0, "bytes": 0, "messages": 0, "weight": 1.0, "keep": 0.0, **more}
    return Row(verb=verb, replica=replica, mailbox=mailbox, source=source, step=step, **facts)


def arithmetic(replicas: int) -> Arithmetic:
    layout = Layout.peers(replicas) if replicas > 1 else Layout.central()
    return Arithmetic.of(ASGD(learning_rate=RATE), Loss(Line(), SquaredError()), MODEL, layout, 2, 1)


def interpreted(rows: list[Row], replicas: int = 1) -> Interpreter:
    interpreter = Interpreter(arithmetic(replicas), [MODEL], replicas, EXAMPLES, BATCHES)
    for each in rows:
        interpreter.execute(each)
    return interpreter


def values(rows: list[Row], replicas: int = 1) -> list[float]:
    """Each replica's number after these rows, if the interpreter and the replay agree on it."""
    numbers = [float(state.params["w"][0]) for state in interpreted(rows, replicas).memory.states]
    types = {"weight": float, "keep": float}
    columns = {name: np.array([getattr(row, name) for row in rows], types.get(name, np.int64)) for name in Row._fields}
    program, do = lower(Schedule(columns, 2, replicas, 1, len(rows), 0), np.array([len(rows)])), arithmetic(replicas)
    (mark,) = replay(program, do, [MODEL], EXAMPLES, BATCHES)
    (states,) = states_at(program, 0, mark, do, range(replicas))
    assert states.params["w"][:, 0].tolist() == numbers
    return numbers


PULL = row(Verb.PULL, mailbox=0)


def test_push_updates_with_the_gradient_at_what_was_pulled():
    assert values([PULL, row(Verb.PUSH, mailbox=0, step=0)]) == [0.5]
    twice = [PULL, row(Verb.PUSH, mailbox=0, step=0), row(Verb.PUSH, mailbox=0, step=1, staleness=1)]
    assert values(twice) == [0.0], "the second gradient is at 1, too"
    again = [PULL, row(Verb.PUSH, mailbox=0, step=0), row(Verb.PUSH, mailbox=0, step=0, staleness=1)]
    assert values(again) == [0.0], "one gradient may be used twice"


def test_commit_updates_with_the_weighted_sum_of_what_joined():
    first, second = (row(Verb.ADD, mailbox=0, step=step) for step in range(2))
    assert values([PULL, first, second, row(Verb.COMMIT, weight=0.5)]) == [0.5], "the mean"
    assert values([PULL, first, second, row(Verb.COMMIT, weight=1.0)]) == [0.0], "the sum"
    light = second._replace(weight=0.5)
    assert values([PULL, first, light, row(Verb.COMMIT, weight=0.5)]) == [1 - 0.25 * 0.5 * (2 + 1)]
    assert values([PULL, row(Verb.COMMIT, weight=1.0)]) == [1.0], "an empty round moves nothing"
    assert values([PULL, first, row(Verb.COMMIT), second._replace(staleness=1)]) == [0.5], "the second round is open"


def test_a_drop_changes_nothing():
    assert values([PULL, row(Verb.DROP, mailbox=0, step=0)]) == [1.0]


HALVED = [row(Verb.PULL, mailbox=0), row(Verb.PUSH, mailbox=0, step=0)]  # replica 0: 1/2; replica 1: 1
READ = [row(Verb.PULL, mailbox=1), row(Verb.PULL, 1, mailbox=2)]


def test_mix_adds_up_and_sync_replaces_or_blends():
    mixed = [row(Verb.MIX, mailbox=3, source=1, weight=0.5), row(Verb.MIX, mailbox=3, source=2, weight=0.5)]
    both = [row(Verb.SYNC, replica, mailbox=3) for replica in range(2)]
    assert values(HALVED + READ + mixed + both, 2) == [0.75, 0.75]
    blend = row(Verb.SYNC, 1, mailbox=1, weight=0.5, keep=0.25)
    assert values([*HALVED, *READ, blend], 2) == [0.5, 0.25 * 1 + 0.5 * 0.5]
    alone = [row(Verb.MIX, mailbox=3, source=1), row(Verb.SYNC, 1, mailbox=3)]
    assert values(HALVED + READ + alone, 2) == [0.5, 0.5], "a mix of one is that one"


def test_a_gradient_may_be_computed_at_a_mix():
    mixed = [row(Verb.MIX, 1, mailbox=3, source=1, weight=2.0), row(Verb.MIX, 1, mailbox=3, source=2, weight=1.0)]
    push = row(Verb.PUSH, 1, mailbox=3, step=0)
    assert values([*HALVED, *READ, *mixed, push], 2) == [0.5, 1 - 0.25 * 2 * 2.0]


def test_a_difference_of_models_is_a_message():
    push = row(Verb.PUSH, 1, mailbox=1, source=2)
    assert values([*HALVED, *READ, push], 2) == [0.5, 1 - 0.25 * (1 - 0.5)]


def test_mailboxes_and_messages_are_held_until_they_are_forgotten():
    interpreter = interpreted([PULL, row(Verb.PUSH, mailbox=0, step=0)])
    assert set(interpreter.memory.mailboxes) == {0}
    assert set(interpreter.memory.messages) == {(0, 0)}
    interpreter.forget_mailbox(0)
    interpreter.forget_message((0, 0))
    assert not interpreter.memory.mailboxes
    assert not interpreter.memory.messages
