"""What each verb does to values, as pure functions; the replay runs them on registers, the interpreter on values.

The bits of each follow from its operands alone (`portable/`, environment.py), whatever is compiled around it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fred import streams
from fred.components import registry
from fred.components.component import own_classes
from fred.learning import beside
from fred.learning.loss import Arrays, Loss
from fred.learning.models.model import Params
from fred.learning.server import Message, Scalar, Server, State
from fred.process import remembered
from fred.replay.blocks import Blocks
from fred.replay.compact import Split, split
from fred.replay.hooks import Hooks
from fred.schedule.layout import Layout, Sizes, size_in_bytes

_SMALL = 1 << 14  # numbers
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
    """One run's server and loss, and how its parameters are cut; hashable, so that compiled code is shared.

    What is compiled is the same for every learning rate: the rate lies in the state, and the server's own is no matter, unless
    its functions ask for it.
    """

    server: Server
    loss: Loss
    blocks: Blocks
    workers: int
    batch_size: int
    local: bool  # workers step models of their own: their gradients are not sent
    given: Server = field(compare=False)  # with its learning rate

    @classmethod
    def of(cls, server: Server, loss: Loss, params: Params, layout: Layout, workers: int, batch_size: int) -> "Arithmetic":
        """For a model with parameters like these."""
        blocks = Blocks.of(params, layout)
        local = layout.local(workers)
        return cls(_without_rate(server, blocks, workers), loss, blocks, workers, batch_size, local, server)

    def start(self, models: Sequence[Params], replicas: int, seed: int = 0) -> list[State]:
        """The state of each block of each replica before the first update; they start from `models`, cyclically."""
        words = streams.words(seed, "algorithm", 0, np.arange(2)).astype(np.uint32)
        cuts = [self.blocks.cut(model) for model in models[:replicas]]
        states = [
            [
                beside.start(self.given, self.blocks.block(cut, number), self.workers, words)
                for number in range(self.blocks.count)
            ]
            for cut in cuts
        ]
        return [
            self.given.place(state, replica, replicas) for replica in range(replicas) for state in states[replica % len(states)]
        ]

    def remember(self, model: Params, words: Any = (0, 0)) -> Any:
        """What a worker remembers before its first message; its codec draws what follows from the `words`."""
        return beside.remembered(self.server, model, words)

    def memories(self, model: Params, seed: int) -> list[Any]:
        """What each worker remembers before its first message; one for all, where they remember nothing."""
        if not self.hooks.remembers:
            return [self.remember(model)]
        words = streams.words(seed, "codec", np.arange(self.workers)[:, None], np.arange(2)).astype(np.uint32)
        return [self.remember(model, each) for each in words]

    @property
    def width(self) -> int:
        """Numbers in a minibatch, by which its gradient is told."""
        return self.loss.width(self.batch_size)

    @property
    def small(self) -> bool:
        """Whether a whole gradient is so small that making it in two steps would cost more than keeping it."""
        return self.blocks.size <= _SMALL and not self.hooks.remembers

    @cached_property
    def hooks(self) -> Hooks:
        """Which of the server's functions are its own."""
        own = self.server.overrides
        synchronizes = own("synchronize") or self.server.average is not None
        sends = own("send") or self.server.codec is not None
        return Hooks(sends, beside.remembers(self.server), own("contribute"), own("publish"), synchronizes)

    @property
    def sizes(self) -> Sizes:
        """Bytes of what is sent."""
        return _sizes(self)

    def shapes(self, examples: Arrays) -> tuple[Any, Message, list[Message]]:
        """What is kept of a gradient, a message, and for each group of blocks what joins a round: their shapes."""
        return list(self._halves(examples).kept), *_shapes(self, _shapes_of(examples))

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
        """What a worker sends, cut, and what it remembers then: made of the gradient of the mean loss of `members` minibatches.

        If it is masked only the first `count` of them are real. The same bits as `begin` and then `finish`.
        """
        halves, first = self._halves(examples, members, masked), (sources, indices, jnp.int32(count))
        given = {id(leaf) for leaf in jax.tree.leaves(first)}
        kept = halves.begin(first, examples)
        kept = [each if id(each) in given else jax.lax.optimization_barrier(each) for each in kept]
        return halves.finish(kept, examples, memory)

    @sealed
    def begin(self, sources: Sequence[Params], examples: Arrays, indices: jax.Array) -> list[jax.Array]:
        """What has to be kept of a minibatch's gradient from when its parameters are at hand until it is used."""
        return self._halves(examples).begin((sources, indices, jnp.int32(1)), examples)

    @sealed
    def finish(self, kept: list[jax.Array], examples: Arrays, memory: Any) -> tuple[Message, Any]:
        """The message made of what was kept, cut, and what the worker remembers then."""
        return self._halves(examples).finish(kept, examples, memory)

    def _halves(self, examples: Arrays, members: int = 1, masked: bool = False) -> Split:
        return _halves(self, _shapes_of(examples), members, masked)

    def _whole(self, members: int, masked: bool, first: Any, examples: Arrays, memory: Any) -> tuple[Message, Any]:
        """From parameters and a minibatch to a message."""
        sources, indices, count = first
        real = count * self.batch_size if masked else None
        params = self.server.model(self.blocks.join(sources))
        return self._sent(memory, params, self.loss.gradient(params, examples, indices, real, members), not self.local)

    @sealed
    def difference(self, before: Sequence[Params], after: Sequence[Params], memory: Any) -> tuple[Message, Any]:
        """The message made of what local steps have taken away from a model, cut, and what the worker remembers then."""
        start, end = (self.server.model(self.blocks.join(each)) for each in (before, after))
        return self._sent(memory, start, jax.tree.map(jnp.subtract, start, end), True)

    def _sent(self, memory: Any, params: Params, grads: Params, on_the_way: bool) -> tuple[Message, Any]:
        message, memory = beside.sent(self.server, memory, params, grads, on_the_way)
        return self.blocks.cut(message), memory

    def apply(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        """One update with one message; what of the state it neither reads nor changes is the same object afterwards."""
        aside = {name: getattr(state, name) for name in self._needless(state, message, timestamp, worker)}
        rest = State(**{name: value for name, value in vars(state).items() if name not in aside})
        return self._apply(rest, message, timestamp, worker).replace(**aside)

    @sealed
    def _apply(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        return beside.updated(self.server, lambda due: self.server.apply_update(due, message, timestamp, worker), state, 1)

    def _needless(self, state: State, *others: Any) -> list[str]:
        """The arrays of a state without which an update with one message can be made; a user's class may ask what there is."""
        if own_classes(self.server):
            return []

        def works(name: str) -> bool:
            without = State(**{each: value for each, value in vars(state).items() if each != name})
            try:
                return name not in vars(jax.eval_shape(self._apply, without, *others))
            except AttributeError:
                return False

        arrays = [name for name, value in vars(state).items() if any(jnp.ndim(leaf) for leaf in jax.tree.leaves(value))]
        return [name for name in arrays if works(name)]

    @sealed
    def commit(self, state: State, total: Message, weight: Scalar, count: Scalar) -> State:
        """One update with weight x what joined a round."""
        total = _scaled(total, weight)
        return beside.updated(self.server, lambda due: self.server.apply_round(due, total, due.clock, count), state, count)

    @sealed
    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """What of a message joins a round."""
        return self.server.contribute(state, message, timestamp, worker)

    @sealed
    def publish(self, state: State, worker: Scalar) -> tuple[Params, State]:
        """What a worker reads, and the state after that, whose parameters are what they were."""
        params, after = self.server.publish(state, worker)
        return params, after.replace(params=state.params)

    @sealed
    def synchronize(self, state: State, mixed: Params, keep: Scalar, weight: Scalar) -> State:
        """The state that has met a mailbox."""
        return beside.averaged(self.server, self.server.synchronize(state, mixed, keep, weight))

    @sealed
    def add(self, total: Message, message: Message) -> Message:
        """One more message of a round."""
        return jax.tree.map(jnp.add, total, message)

    @sealed
    def mix(self, sources: Sequence[Params], weights: Sequence[Scalar], into: Params | None = None) -> Params:
        """[into +] the weighted sum, added up in order."""
        for params, weight in zip(sources, weights, strict=True):
            scaled = _scaled(params, weight)
            into = scaled if into is None else self.add(into, scaled)
        return into

    @partial(jax.jit, static_argnums=0)
    def answer(self, states: Sequence[State]) -> Params:
        """The model that a run has come to, from its blocks' states, each stacked over the replicas that are the answer."""
        return self.blocks.join([beside.answer(self.server, jax.tree.map(_mean, state)) for state in states])

    @partial(jax.jit, static_argnums=0)
    def apart(self, states: Sequence[State], examples: Arrays, indices: jax.Array, seen: jax.Array | None = None) -> jax.Array:
        """Mean of [loss, error] over the replicas that are the answer, each on its own `indices` [replicas, n]."""

        def measured(own: tuple[Sequence[State], jax.Array]) -> jax.Array:
            states, indices = own
            model = self.blocks.join([beside.answer(self.server, state) for state in states])
            return self.loss.evaluate(model, (examples[0][indices], examples[1][indices]), seen)

        return jax.lax.map(measured, (list(states), indices)).mean(0)

    @partial(jax.jit, static_argnums=0)
    def disagreement(self, replicas: Params) -> jax.Array:
        """Root mean square distance of replicas' models [replicas, ...] from their mean."""
        models = jax.vmap(self.server.model)(replicas)
        squares = jax.tree.map(lambda leaf: jnp.square(leaf - leaf.mean(0)).sum() / len(leaf), models)
        return jnp.sqrt(jax.tree.reduce(jnp.add, squares))


@remembered.code(64)
def _without_rate(server: Server, blocks: Blocks, workers: int) -> Server:
    """The server with nobody's learning rate, if its functions do the same with it: they find theirs in the state."""
    try:
        one, two = (server.model_copy(update={"learning_rate": rate}) for rate in (1.0, 2.0))
        other = server if own_classes(server) else two  # FRED's own do the same with every rate, or with none
        return one if _traced(one, blocks, workers) == _traced(other, blocks, workers) else server
    except Exception:  # 1 is no rate for it; or something is wrong with it, which is found where it matters
        return server


@remembered.code(64)
def _traced(server: Server, blocks: Blocks, workers: int) -> str:
    """Everything that a server does with arrays, beside making its first state."""

    def everything(state: State, memory: Any, whole: Scalar, fraction: Scalar) -> Any:
        model = server.model(state.params)
        message, _ = server.send(memory, model, model)
        joined = server.contribute(state, message, whole, whole)
        states = server.apply_update(state, message, whole, whole), server.apply_round(state, joined, whole, whole)
        met = server.synchronize(state, state.params, fraction, fraction)
        told = server.statistic(state) if server.has_statistic else None
        return states, server.publish(state, whole), met, server.evaluated(state), told

    state = jax.eval_shape(lambda params: beside.start(server, params, workers), blocks.like)
    memory = jax.eval_shape(server.memory, blocks.like)
    program = jax.make_jaxpr(everything)(state, memory, np.int32(0), np.float32(0.5))
    return f"{program} {[np.asarray(each).tolist() for each in program.consts]}"


@remembered.code(256)
def _halves(arithmetic: Arithmetic, examples: Any, members: int, masked: bool) -> Split:
    """The way from parameters to a message, split where the least lies between; a small gradient is kept as it is."""
    params = arithmetic.blocks.like
    shapes = jax.eval_shape(lambda params: [state.params for state in arithmetic.start([params], 1)], params)
    first = shapes, jax.ShapeDtypeStruct((members * arithmetic.width,), np.int32), jax.ShapeDtypeStruct((), np.int32)
    always = tuple(jax.ShapeDtypeStruct(*each) for each in examples)
    memory = jax.eval_shape(arithmetic.remember, params)
    return split(partial(arithmetic._whole, members, masked), first, always, memory, whole=arithmetic.small)


def _shapes_of(examples: Arrays) -> tuple[tuple[tuple[int, ...], Any], ...]:
    return tuple((each.shape, np.dtype(each.dtype)) for each in examples)


@remembered.code(256)
def _shapes(arithmetic: Arithmetic, examples: Any) -> tuple[Message, list[Message]]:
    """Of a message, and for each group of blocks of what joins a round."""
    blocks = arithmetic.blocks

    def made(model: Params, examples: Arrays) -> tuple[Message, list[Message]]:
        states = arithmetic.start([model], 1)
        sources, indices = [state.params for state in states], jnp.zeros(arithmetic.width, jnp.int32)
        message, _ = arithmetic.message(sources, examples, indices, arithmetic.remember(model))
        firsts = [blocks.group_of_each.index(group) for group in range(len(blocks.groups))]
        joining = [arithmetic.server.contribute(states[block], blocks.block(message, block), 0, 0) for block in firsts]
        return message, joining

    return jax.eval_shape(made, blocks.like, tuple(jax.ShapeDtypeStruct(*each) for each in examples))


@remembered.code(256)
def _sizes(arithmetic: Arithmetic) -> Sizes:
    """What is sent is as large as the server says of the shapes that `publish` and `send` return."""
    server, blocks = arithmetic.server, arithmetic.blocks
    name = registry.name_of("algorithm", server)

    def made(params: Params) -> tuple[Params, Message]:
        read, _ = server.publish(beside.start(server, params, arithmetic.workers), jnp.int32(0))
        model = server.model(read)
        return read, server.send(server.memory(params), model, model)[0]

    read, message = jax.eval_shape(made, blocks.like)
    return Sizes(
        blocks.shares,
        blocks.sizes(read, lambda sent: size_in_bytes(server.published_bytes(sent), f"`published_bytes` of `{name}`")),
        blocks.sizes(message, lambda sent: size_in_bytes(server.sent_bytes(sent), f"`sent_bytes` of `{name}`")),
        server.codec is None or server.codec.summable,
        tuple(size_in_bytes(size, f"`averaged_bytes` of `{name}`") for size in server.averaged_bytes(read)),
    )


def _scaled(values: Any, weight: Scalar) -> Any:
    return jax.tree.map(lambda leaf: (weight * leaf).astype(leaf.dtype), values)


def _mean(stacked: jax.Array) -> jax.Array:
    """Of numbers; counts and random keys, which have no mean, are the first replica's."""
    if len(stacked) == 1 or not jnp.issubdtype(stacked.dtype, jnp.floating):
        return stacked[0]
    return stacked.mean(0)
