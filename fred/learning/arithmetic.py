"""What each instruction does to values, as pure functions; the replay runs them on registers, inline execution on values.

Without fused multiply-add (see environment.py) the bits depend on the order of operations only, which is fixed here, so both
agree whatever is compiled around them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fred.learning.models.model import Params
from fred.learning.problem import Arrays, Loss
from fred.learning.server import Server, State

Scalar = Any


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
            return [self.server.init(block) for block in self.cut(models[0])]
        states = [self.server.init(model) for model in models[:replicas]]
        return [states[replica % len(states)] for replica in range(replicas)]

    def gradient(
        self, sources: Sequence[Params], examples: Arrays, indices: jax.Array, count: Scalar, members: int, masked: bool
    ) -> Params:
        """Gradient of the mean loss of `members` minibatches, of which the first `count` are real if it is masked."""
        real = count * (len(indices) // members) if masked else None
        grads = self.loss.gradient(self.model(sources), examples, indices, real)
        return grads if self.blocks == 1 else self.cut(grads)

    def apply(self, state: State, grads: Params, timestamp: Scalar, client: Scalar) -> State:
        """One update with one gradient."""
        return self.server.apply_update(state, grads, timestamp, client)

    def commit(self, state: State, total: Params, weight: Scalar, count: Scalar) -> State:
        """One update with weight x the sum of a round's gradients."""
        return self.server.apply_round(state, jax.tree.map(lambda leaf: weight * leaf, total), state.clock, count)

    def add(self, total: Params, grads: Params) -> Params:
        """One more gradient of a round."""
        return jax.tree.map(jnp.add, total, grads)

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
            return self.model(list(replicas))
        return self.model([jax.tree.map(lambda leaf: leaf[0] if len(leaf) == 1 else leaf.mean(0), replicas)])

    @partial(jax.jit, static_argnums=0)
    def disagreement(self, replicas: Params) -> jax.Array:
        """Root mean square distance of the replicas' models from their mean."""
        models = jax.vmap(self.server.model)(replicas)
        squares = jax.tree.map(lambda leaf: jnp.square(leaf - leaf.mean(0)).sum() / len(leaf), models)
        return jnp.sqrt(jax.tree.reduce(jnp.add, squares))

    def cut(self, params: Params) -> jax.Array:
        """All parameters in a row, in the order of their paths, cut into equal blocks [blocks, size]; the end is padded."""
        flat = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(params)])
        size = -(-len(flat) // self.blocks)
        return jnp.pad(flat, (0, self.blocks * size - len(flat))).reshape(self.blocks, size)

    def join(self, blocks: Sequence[jax.Array]) -> Params:
        """The reverse of `cut`."""
        flat = jnp.concatenate(blocks)
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        parts = jnp.split(flat[: ends[-1]], ends[:-1])
        leaves = [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)
