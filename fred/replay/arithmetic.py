"""What each instruction does to values, as pure functions; the replay runs them on registers, inline execution on values.

The bits of each follow from its operands alone (`portable/`, environment.py), whatever is compiled around it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from fred.learning.models.model import Params
from fred.learning.problem import Arrays, Loss
from fred.learning.server import Server, State

Scalar = Any
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
    """One run's server, loss, and cut of the parameters into blocks; hashable, so that compiled code is shared."""

    server: Server
    loss: Loss
    blocks: int  # 1: every replica holds all parameters
    shapes: tuple[tuple[int, ...], ...]  # of the model's parameter arrays
    structure: Any  # their tree

    @classmethod
    def of(cls, server: Server, loss: Loss, params: Params, blocks: int = 1) -> "Arithmetic":
        """For a model with parameters like these."""
        leaves, structure = jax.tree.flatten(params)
        return cls(server, loss, blocks, tuple(leaf.shape for leaf in leaves), structure)

    def start(self, models: Sequence[Params], replicas: int) -> list[State]:
        """Each replica's state before the first update; they start from `models`, cyclically."""
        if self.blocks > 1:
            cut = self.cut(models[0])
            return [self.server.init(self.block(cut, number)) for number in range(self.blocks)]
        states = [self.server.init(model) for model in models[:replicas]]
        return [states[replica % len(states)] for replica in range(replicas)]

    @sealed
    def gradient(
        self, sources: Sequence[Params], examples: Arrays, indices: jax.Array, count: Scalar, *, members: int, masked: bool
    ) -> Params:
        """Gradient of the mean loss of `members` minibatches, of which the first `count` are real if it is masked."""
        real = count * (len(indices) // members) if masked else None
        grads = self.loss.gradient(self.model(sources), examples, indices, real)
        return grads if self.blocks == 1 else self.cut(grads)

    @sealed
    def apply(self, state: State, grads: Params, timestamp: Scalar, client: Scalar) -> State:
        """One update with one gradient."""
        return self.server.apply_update(state, grads, timestamp, client)

    @sealed
    def commit(self, state: State, total: Params, weight: Scalar, count: Scalar) -> State:
        """One update with weight x the sum of a round's gradients."""
        return self.server.apply_round(state, jax.tree.map(lambda leaf: weight * leaf, total), state.clock, count)

    @sealed
    def add(self, total: Params, grads: Params) -> Params:
        """One more gradient of a round."""
        return jax.tree.map(jnp.add, total, grads)

    @sealed
    def mix(self, sources: Sequence[Params], weights: Sequence[Scalar], into: Params | None = None) -> Params:
        """[into +] the weighted sum, added up in order."""
        for params, weight in zip(sources, weights, strict=True):
            scaled = jax.tree.map(partial(jnp.multiply, weight), params)
            into = scaled if into is None else self.add(into, scaled)
        return into

    def model(self, sources: Sequence[Params]) -> Params:
        """What gradients are computed at: one replica's model, or all blocks together."""
        return self.server.model(sources[0] if self.blocks == 1 else self.join(sources))

    @partial(jax.jit, static_argnums=0)
    def consensus(self, replicas: Params) -> Params:
        """The model that a run has come to, from its replicas' parameters [replicas, ...]: all blocks, or the mean."""
        if self.blocks > 1:
            return self.model([self.block(replicas, number) for number in range(self.blocks)])
        return self.model([jax.tree.map(lambda leaf: leaf[0] if len(leaf) == 1 else leaf.mean(0), replicas)])

    @partial(jax.jit, static_argnums=0)
    def disagreement(self, replicas: Params) -> jax.Array:
        """Root mean square distance of the replicas' models from their mean."""
        models = jax.vmap(self.server.model)(replicas)
        squares = jax.tree.map(lambda leaf: jnp.square(leaf - leaf.mean(0)).sum() / len(leaf), models)
        return jnp.sqrt(jax.tree.reduce(jnp.add, squares))

    def cut(self, params: Params) -> Params:
        """Every array in a row and cut into equal parts [blocks, size], the last one padded: each server has one of each."""

        def parts(array: jax.Array) -> jax.Array:
            size = -(-array.size // self.blocks)
            return jnp.pad(array.ravel(), (0, self.blocks * size - array.size)).reshape(self.blocks, size)

        return jax.tree.map(parts, params)

    def join(self, blocks: Sequence[Params]) -> Params:
        """The reverse of `cut`."""
        leaves = zip(*map(jax.tree.leaves, blocks), strict=True)
        whole = [
            jnp.concatenate(parts)[: math.prod(shape)].reshape(shape) for parts, shape in zip(leaves, self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.structure, whole)

    def block(self, cut: Params, number: int | jax.Array) -> Params:
        """One part of each array."""
        return jax.tree.map(lambda leaf: leaf[number], cut)
