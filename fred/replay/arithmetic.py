"""The effect of each verb on values, as pure functions; the replay runs them on registers, the interpreter on values.

The bits of each result depend only on its operands (`portable/`, environment.py), not on the code compiled around it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fred.base import cached, numerics
from fred.components import registry
from fred.components.component import own_classes
from fred.learning import wrapper
from fred.learning.loss import Arrays, Loss
from fred.learning.models.model import Params
from fred.learning.server import Message, Scalar, Server, State
from fred.portable.barriers import sealed
from fred.replay.blocks import Blocks
from fred.replay.compact import Split, split_function
from fred.replay.phases import Hooks
from fred.schedule.layout import Layout, Sizes, size_in_bytes

_SMALL, _EXPENSIVE = 1 << 14, 1 << 25  # numbers in a gradient; parameters x predictions in a minibatch, about 3 ms
Batch = int | Sequence[int]  # examples in each minibatch, or in those of each worker


@dataclass(frozen=True)
class Arithmetic:
    """The server and loss of one run, and the division of its parameters; hashable, so that compiled code is shared.

    The compiled code is the same for every learning rate: the rate is part of the state, and the server's own rate is replaced,
    unless its functions use it.
    """

    server: Server
    loss: Loss
    blocks: Blocks
    workers: int
    batch_size: int  # of the largest minibatch
    padded: bool  # smaller minibatches end with -1
    predictions: int  # in a minibatch: examples, or tokens
    local: bool  # workers update their own models, so their gradients are not sent
    server_with_rate: Server = field(compare=False)  # the server with its learning rate

    @classmethod
    def build(
        cls, server: Server, loss: Loss, params: Params, layout: Layout, workers: int, batch: Batch, context: int = 1
    ) -> "Arithmetic":
        """Return the arithmetic for a model with parameters of these shapes; `context`: tokens in an example."""
        blocks = Blocks.from_layout(params, layout)
        rateless, local = wrapper.without_rate(server, blocks.like, workers), layout.local(workers)
        largest, padded = int(np.max(batch)), bool(np.min(batch) < np.max(batch))
        return cls(rateless, loss, blocks, workers, largest, padded, largest * context, local, server)

    def start(self, models: Sequence[Params], replicas: int, seed: int = 0) -> list[State]:
        """Return the initial state of each block of each replica; replicas start from `models`, cyclically."""
        words = numerics.words(seed, "algorithm", 0, np.arange(2)).astype(np.uint32)  # they seed the algorithm's draws
        split_models = [self.blocks.split(model) for model in models[:replicas]]
        states = [
            [
                wrapper.init_state(self.server_with_rate, self.blocks.block(split_model, block), self.workers, words)
                for block in range(self.blocks.count)
            ]
            for split_model in split_models
        ]
        return [
            self.server_with_rate.place(state, replica, replicas)  # replicas may differ in more than their parameters
            for replica in range(replicas)
            for state in states[replica % len(states)]
        ]

    def remember(self, model: Params, words: Any = (0, 0)) -> Any:
        """Return a worker's memory before its first message; `words` seed the random draws of its codec."""
        return wrapper.init_memory(self.server, model, words)

    def memories(self, model: Params, seed: int) -> list[Any]:
        """Return each worker's memory before its first message; a single one if workers have no memory."""
        if not self.hooks.remembers:
            return [self.remember(model)]
        if self.server.codec is None:
            return [self.remember(model)] * self.workers
        words = numerics.words(seed, "codec", np.arange(self.workers)[:, None], np.arange(2)).astype(np.uint32)
        return [self.remember(model, seed_words) for seed_words in words]

    @property
    def width(self) -> int:
        """Return the length of a minibatch's array, which determines its gradient."""
        return self.loss.width(self.batch_size)

    @property
    def stores_gradients(self) -> bool:
        """Return True if a gradient is so small that computing it in two steps costs more than storing it."""
        return self.blocks.size <= _SMALL and not self.hooks.remembers

    @property
    def expensive(self) -> bool:
        """Return True if a gradient takes so long that one batch of a round's gradients saves no time."""
        return self.blocks.size * self.predictions >= _EXPENSIVE

    @cached_property
    def hooks(self) -> Hooks:
        """Return which of the server's functions have to be called, and whether rounds compute gradients one by one."""
        overrides = self.server.overrides
        return Hooks(
            sends=overrides("send") or overrides("send_steps") or self.server.codec is not None,
            remembers=wrapper.has_memory(self.server),
            contributes=overrides("contribute"),
            synchronizes=overrides("synchronize") or self.server.average is not None,  # a SYNC also moves the average
            unbatched=self.expensive or self.padded,
        )

    @property
    def sizes(self) -> Sizes:
        """Return the bytes of models and messages."""
        return _sizes(self)

    def shapes(self, examples: Arrays) -> tuple[Any, Message, list[Message]]:
        """Return the shapes of a stored gradient, of a message, and (per group of blocks) of its contribution to a round."""
        return list(self._halves(examples).stored), *_shapes(self, _shapes_of(examples))

    @sealed
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
        """Return a worker's message, split into blocks, and its memory afterwards.

        The message is made of the gradient of the mean loss of `members` minibatches. If `masked`, only the first `count`
        are real. The bits are the same as those of `begin` followed by `finish`.
        """
        halves, first = self._halves(examples, members, masked), (sources, indices, jnp.int32(count))
        # The halves are compiled together here, but must not be optimized together. Inputs are behind the barrier of `sealed`.
        inputs = {id(leaf) for leaf in jax.tree.leaves(first)}
        stored = halves.begin(first, examples)
        stored = [array if id(array) in inputs else jax.lax.optimization_barrier(array) for array in stored]
        return halves.finish(stored, examples, memory)

    @sealed
    def begin(self, sources: Sequence[Params], examples: Arrays, indices: jax.Array) -> list[jax.Array]:
        """Return the arrays to store of a minibatch's gradient, from the read of its parameters until its use."""
        return self._halves(examples).begin((sources, indices, jnp.int32(1)), examples)

    @sealed
    def finish(self, stored: list[jax.Array], examples: Arrays, memory: Any) -> tuple[Message, Any]:
        """Return the message for a stored gradient, split into blocks, and the worker's memory afterwards."""
        return self._halves(examples).finish(stored, examples, memory)

    def _halves(self, examples: Arrays, members: int = 1, masked: bool = False) -> Split:
        return _halves(self, _shapes_of(examples), members, masked)

    def _full_message(self, members: int, masked: bool, first: Any, examples: Arrays, memory: Any) -> tuple[Message, Any]:
        """Return the message for parameters and a minibatch, and the worker's memory afterwards."""
        sources, indices, count = first
        real_examples = count * self.batch_size if masked else None
        params = self.server.model(self.blocks.join(sources))
        grads = self.loss.gradient(params, examples, indices, real_examples, members, self.padded)
        return self._encode(memory, params, grads, on_the_way=not self.local)

    @sealed
    def pseudo_gradient(self, before: Sequence[Params], after: Sequence[Params], memory: Any) -> tuple[Message, Any]:
        """Return the message made of a pseudo-gradient, split into blocks, and the worker's memory afterwards."""
        params_before, params_after = self.blocks.join(before), self.blocks.join(after)
        model_before, model_after = self.server.model(params_before), self.server.model(params_after)
        difference = jax.tree.map(jnp.subtract, model_before, model_after)
        return self._encode(memory, model_before, difference, on_the_way=True, after=params_after)

    def _encode(
        self, memory: Any, params: Params, grads: Params, on_the_way: bool, after: Params | None = None
    ) -> tuple[Message, Any]:
        message, memory = wrapper.send_message(self.server, memory, params, grads, on_the_way, after)
        return self.blocks.split(message), memory

    def apply(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        """Apply one update with one message; parts of the state that it neither reads nor changes remain the same objects."""
        untouched = {name: getattr(state, name) for name in self._untouched_arrays(state, message, timestamp, worker)}
        rest = State(**{name: value for name, value in vars(state).items() if name not in untouched})
        return self._apply(rest, message, timestamp, worker).replace(**untouched)

    @sealed
    def _apply(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        return wrapper.update_state(
            self.server, lambda current: self.server.apply_update(current, message, timestamp, worker), state, 1
        )

    def _untouched_arrays(self, state: State, *operands: Any) -> list[str]:
        """Return the names of the arrays of a state that an update with one message neither reads nor writes."""
        if own_classes(self.server):  # a user's class may do anything when an attribute is missing
            return []

        def works_without(name: str) -> bool:
            reduced = State(**{key: value for key, value in vars(state).items() if key != name})
            try:
                return name not in vars(jax.eval_shape(self._apply, reduced, *operands))
            except AttributeError:  # the update reads it
                return False

        arrays = [name for name, value in vars(state).items() if any(jnp.ndim(leaf) for leaf in jax.tree.leaves(value))]
        return [name for name in arrays if works_without(name)]

    @sealed
    def commit(self, state: State, total: Message, weight: Scalar, count: Scalar) -> State:
        """Apply one update with weight x the sum of a round."""
        total = _scaled(total, weight)
        return wrapper.update_state(
            self.server,
            lambda current: self.server.apply_round(current, total, current.clock, count),
            state,
            count,
        )

    @sealed
    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the contribution of a message to a round."""
        return self.server.contribute(state, message, timestamp, worker)

    @sealed
    def synchronize(self, state: State, mixed: Params, keep: Scalar, weight: Scalar) -> State:
        """Return the state after synchronizing with a mailbox."""
        return wrapper.update_average(self.server, self.server.synchronize(state, mixed, keep, weight))

    @sealed
    def add(self, total: Message, message: Message) -> Message:
        """Add one more message to a round."""
        return jax.tree.map(jnp.add, total, message)

    @sealed
    def mix(self, sources: Sequence[Params], weights: Sequence[Scalar], total: Params | None = None) -> Params:
        """Return [total +] the weighted sum, added in order."""
        for params, weight in zip(sources, weights, strict=True):
            scaled = _scaled(params, weight)
            total = scaled if total is None else self.add(total, scaled)
        return total

    @partial(jax.jit, static_argnums=0)
    def answer(self, states: Sequence[State]) -> Params:
        """Return the run's model from its blocks' states, each stacked over the replicas that are the answer."""
        params = [jax.tree.map(_mean, wrapper.evaluated_params(self.server, state)) for state in states]
        return self.blocks.join([self.server.model(block) for block in params])

    @partial(jax.jit, static_argnums=0)
    def mean_replica_loss(
        self, states: Sequence[State], examples: Arrays, indices: jax.Array, calibration: jax.Array | None = None
    ) -> jax.Array:
        """Return the mean [loss, error] over the replicas that are the answer, each on its own `indices` [replicas, n]."""

        def measure_replica(replica: tuple[Sequence[State], jax.Array]) -> jax.Array:
            states, indices = replica
            model = self.blocks.join([self.server.model(wrapper.evaluated_params(self.server, state)) for state in states])
            return self.loss.evaluate(model, (examples[0][indices], examples[1][indices]), calibration)

        return jax.lax.map(measure_replica, (list(states), indices)).mean(0)

    @partial(jax.jit, static_argnums=0)
    def disagreement(self, replicas: Params) -> jax.Array:
        """Return the root mean square distance of replicas' models [replicas, ...] from their mean."""
        models = jax.vmap(self.server.model)(replicas)
        squares = jax.tree.map(lambda leaf: jnp.square(leaf - leaf.mean(0)).sum() / len(leaf), models)
        return jnp.sqrt(jax.tree.reduce(jnp.add, squares))


@cached.code(256)
def _halves(arithmetic: Arithmetic, examples: Any, members: int, masked: bool) -> Split:
    """Return the path from parameters to message, split where the least data lies between; small gradients stay whole."""
    params = arithmetic.blocks.like
    sources = jax.eval_shape(lambda params: [state.params for state in arithmetic.start([params], 1)], params)
    first = sources, jax.ShapeDtypeStruct((members * arithmetic.width,), np.int32), jax.ShapeDtypeStruct((), np.int32)
    shared = tuple(jax.ShapeDtypeStruct(*shape) for shape in examples)
    memory = jax.eval_shape(arithmetic.remember, params)
    message = partial(arithmetic._full_message, members, masked)
    return split_function(message, first, shared, memory, undivided=arithmetic.stores_gradients)


def _shapes_of(examples: Arrays) -> tuple[tuple[tuple[int, ...], Any], ...]:
    return tuple((array.shape, np.dtype(array.dtype)) for array in examples)


@cached.code(256)
def _shapes(arithmetic: Arithmetic, examples: Any) -> tuple[Message, list[Message]]:
    """Return the shapes of a message and, for each group of blocks, of its contribution to a round."""
    blocks = arithmetic.blocks

    def trace(model: Params, examples: Arrays) -> tuple[Message, list[Message]]:
        states = arithmetic.start([model], 1)
        sources, indices = [state.params for state in states], jnp.zeros(arithmetic.width, jnp.int32)
        message, _ = arithmetic.message(sources, examples, indices, arithmetic.remember(model))
        # the blocks of a group have the same shapes
        first_blocks = [blocks.group_of_each.index(group) for group in range(len(blocks.groups))]
        contributions = [
            arithmetic.server.contribute(states[block], blocks.block(message, block), 0, 0) for block in first_blocks
        ]
        return message, contributions

    return jax.eval_shape(trace, blocks.like, tuple(jax.ShapeDtypeStruct(*shape) for shape in examples))


@cached.code(256)
def _sizes(arithmetic: Arithmetic) -> Sizes:
    """Return the bytes of models and messages, as the server counts them from the shapes of its parameters and messages."""
    server, blocks = arithmetic.server, arithmetic.blocks
    name = registry.name_of("algorithm", server)

    def trace(params: Params) -> tuple[Params, Message]:
        read = wrapper.init_state(server, params, arithmetic.workers).params
        model = gradient = server.model(read)  # they have the same shapes
        return read, server.send(server.memory(params), model, gradient)[0]

    read, message = jax.eval_shape(trace, blocks.like)
    return Sizes(
        shares=blocks.shares,
        model=blocks.sizes(read, lambda sent: size_in_bytes(server.published_bytes(sent), f"`published_bytes` of `{name}`")),
        message=blocks.sizes(message, lambda sent: size_in_bytes(server.sent_bytes(sent), f"`sent_bytes` of `{name}`")),
        summable=server.codec is None or server.codec.summable,
        averages=tuple(size_in_bytes(size, f"`averaged_bytes` of `{name}`") for size in server.averaged_bytes(read)),
        params=sum(4 * math.prod(leaf.shape) for leaf in jax.tree.leaves(blocks.like)),
    )


def _scaled(values: Any, weight: Scalar) -> Any:
    return jax.tree.map(lambda leaf: (weight * leaf).astype(leaf.dtype), values)


def _mean(stacked: jax.Array) -> jax.Array:
    """Return the mean of numbers; of counts, which have no mean, the first replica's."""
    if len(stacked) == 1 or not jnp.issubdtype(stacked.dtype, jnp.floating):
        return stacked[0]
    return stacked.mean(0)
