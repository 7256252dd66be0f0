"""What each verb does to values, as pure functions; the replay runs them on registers, the interpreter on values.

The bits of each follow from its operands alone (`learning/portable/`, environment.py), whatever is compiled around it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from fred.layout import Layout
from fred.learning.models.model import Params
from fred.learning.problem import Arrays, Loss
from fred.learning.server import Message, Scalar, Server, State
from fred.replay.blocks import Blocks
from fred.replay.versions import Hooks

F = TypeVar("F", bound=Callable[..., Any])


def sealed(function: F) -> F:
    """Keep the compiler from rewriting what a function does together with what comes before or after it.

    It would make one multiplication of two by constants, for example, whose product is rounded once instead of twice.
    """

    @wraps(function)
    def alone(self: Any, *operands: Any, **options: Any) -> Any:
        return jax.lax.optimization_barrier(function(self, *jax.lax.optimization_barrier(operands), **options))

    return alone  # type: ignore[return-value]


@dataclass(frozen=True)
class Arithmetic:
    """One run's server and loss, and how its parameters are cut; hashable, so that compiled code is shared."""

    server: Server
    loss: Loss
    blocks: Blocks
    workers: int

    @classmethod
    def of(cls, server: Server, loss: Loss, params: Params, layout: Layout, workers: int) -> "Arithmetic":
        """For a model with parameters like these."""
        return cls(server, loss, Blocks.of(params, layout), workers)

    def start(self, models: Sequence[Params], replicas: int) -> list[State]:
        """The state of each block of each replica before the first update; they start from `models`, cyclically."""
        cuts = [self.blocks.cut(model) for model in models[:replicas]]
        states = [
            [self.server.init(self.blocks.block(cut, number), self.workers) for number in range(self.blocks.count)]
            for cut in cuts
        ]
        return [state for replica in range(replicas) for state in states[replica % len(states)]]

    def remember(self, model: Params) -> Any:
        """What each worker remembers before its first message."""
        return self.server.memory(model)

    @property
    def hooks(self) -> Hooks:
        """Which of the server's functions are its own."""
        own = self.server.overrides
        return Hooks(own("send"), own("memory"), own("contribute"), own("publish"), own("synchronize"))

    def shapes(self, model: Params, examples: Arrays, batch_size: int) -> tuple[Any, Message, list[Message]]:
        """What is kept of a gradient, a message, and for each group of blocks what joins a round: their shapes."""
        blocks = self.blocks

        def made(model: Params, examples: Arrays) -> tuple[Any, Message, list[Message]]:
            states = self.start([model], 1)
            sources = [state.params for state in states]
            kept = self.begin(sources, examples, jnp.zeros(batch_size, jnp.int32), 1, members=1, masked=False)
            message, _ = self.finish(kept, examples, self.remember(model))
            firsts = [blocks.group_of_each.index(group) for group in range(len(blocks.groups))]
            joins = [self.server.contribute(states[block], blocks.block(message, block), 0, 0) for block in firsts]
            return kept, message, joins

        return jax.eval_shape(made, model, examples)

    def message(
        self,
        sources: Sequence[Params],
        examples: Arrays,
        indices: jax.Array,
        memory: Any,
        count: Scalar = 1,
        *,
        members: int = 1,
        masked: bool = False,
    ) -> tuple[Message, Any]:
        """What a worker sends, cut, and what it remembers then: made of the gradient of the mean loss of `members` minibatches.

        If it is masked only the first `count` of them are real.
        """
        return self.finish(self.begin(sources, examples, indices, count, members=members, masked=masked), examples, memory)

    @sealed
    def begin(
        self, sources: Sequence[Params], examples: Arrays, indices: jax.Array, count: Scalar, *, members: int, masked: bool
    ) -> Any:
        """What has to be kept of a gradient from when its parameters are at hand until it is used."""
        real = count * (len(indices) // members) if masked else None
        params = self.server.model(self.blocks.join(sources))
        grads = self.loss.gradient(params, examples, indices, real)
        return (params, grads) if self.server.overrides("send") else grads

    @sealed
    def finish(self, kept: Any, examples: Arrays, memory: Any) -> tuple[Message, Any]:
        """The message made of what was kept, cut, and what the worker remembers then."""
        params, grads = kept if self.server.overrides("send") else (None, kept)
        return self._sent(memory, params, grads)

    @sealed
    def difference(self, before: Sequence[Params], after: Sequence[Params], memory: Any) -> tuple[Message, Any]:
        """The message made of what local steps have taken away from a model, cut, and what the worker remembers then."""
        start = self.blocks.join(before)
        return self._sent(memory, start, jax.tree.map(jnp.subtract, start, self.blocks.join(after)))

    def _sent(self, memory: Any, params: Params, grads: Params) -> tuple[Message, Any]:
        message, memory = self.server.send(memory, params, grads)
        return self.blocks.cut(message), memory

    @sealed
    def apply(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        """One update with one message."""
        return self.server.apply_update(state, message, timestamp, worker)

    @sealed
    def commit(self, state: State, total: Message, weight: Scalar, count: Scalar) -> State:
        """One update with weight x what joined a round."""
        return self.server.apply_round(state, jax.tree.map(lambda leaf: weight * leaf, total), state.clock, count)

    @sealed
    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """What of a message joins a round."""
        return self.server.contribute(state, message, timestamp, worker)

    @sealed
    def publish(self, state: State, worker: Scalar) -> tuple[Params, State]:
        """What a worker reads."""
        return self.server.publish(state, worker)

    @sealed
    def synchronize(self, state: State, mixed: Params, keep: Scalar, weight: Scalar) -> State:
        """The state that has met a mailbox."""
        return self.server.synchronize(state, mixed, keep, weight)

    @sealed
    def add(self, total: Message, message: Message) -> Message:
        """One more message of a round."""
        return jax.tree.map(jnp.add, total, message)

    @sealed
    def mix(self, sources: Sequence[Params], weights: Sequence[Scalar], into: Params | None = None) -> Params:
        """[into +] the weighted sum, added up in order."""
        for params, weight in zip(sources, weights, strict=True):
            scaled = jax.tree.map(partial(jnp.multiply, weight), params)
            into = scaled if into is None else self.add(into, scaled)
        return into

    @partial(jax.jit, static_argnums=0)
    def answer(self, states: Sequence[State]) -> Params:
        """The model that a run has come to, from its blocks' states, each stacked over the replicas that are the answer."""
        return self.blocks.join([self.server.evaluated(jax.tree.map(_mean, state)) for state in states])

    @partial(jax.jit, static_argnums=0)
    def disagreement(self, replicas: Params) -> jax.Array:
        """Root mean square distance of replicas' models [replicas, ...] from their mean."""
        models = jax.vmap(self.server.model)(replicas)
        squares = jax.tree.map(lambda leaf: jnp.square(leaf - leaf.mean(0)).sum() / len(leaf), models)
        return jnp.sqrt(jax.tree.reduce(jnp.add, squares))


def _mean(stacked: jax.Array) -> jax.Array:
    """Of numbers; counts and random keys, which have no mean, are the first replica's."""
    if len(stacked) == 1 or not jnp.issubdtype(stacked.dtype, jnp.floating):
        return stacked[0]
    return stacked.mean(0)
