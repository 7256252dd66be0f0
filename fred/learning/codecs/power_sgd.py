"""PowerSGD: low-rank approximations of matrices [Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727, algorithm 1]."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from pydantic import Field

from fred.components.component import Count
from fred.learning.codecs.codec import FLOAT_BITS, Codec, Key, Message
from fred.learning.keys import GENERATOR
from fred.learning.models.model import Params

_AS_IT_IS = 1  # arrays of at most this many dimensions are not coded


class PowerSGD(Codec):
    """A rank-r approximation of each matrix M by P = orth(M Q) and Q' = M^T P, where Q is the last message's Q'.

    Arrays with more dimensions are reshaped to matrices that keep the last dimension as columns. Vectors, scalars, and matrices
    that have no more numbers than P and Q are sent uncoded. Each worker has its own P and Q, so an allreduce cannot add its
    messages on the way. The paper's allreduce, which orthogonalises the sum of all P, is a different method.

    A matrix of rank 1 is coded without loss, as 7 numbers in P and Q instead of 12:

        >>> from fred.learning.codecs.power_sgd import PowerSGD
        >>> import jax.numpy as jnp
        >>> codec, message = PowerSGD(rank=1), {"w": jnp.outer(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, -1.0, 0.5, 2.0]))}
        >>> arrived, memory = codec.sent(message, codec.start(message))
        >>> bool(jnp.allclose(arrived["w"], message["w"])), codec.size(message)
        (True, 28)
    """

    rank: Count = Field(default=2, description="r: columns of P and Q")

    def memory(self, like: Params) -> Any:
        """Return the initial Q of each matrix: standard normal numbers, the same for all workers."""
        keys = [jax.random.fold_in(jax.random.key(0, impl=GENERATOR), number) for number in range(len(jax.tree.leaves(like)))]
        return [
            jax.random.normal(key, (leaf.shape[-1], self._rank(leaf)))
            for key, leaf in zip(keys, jax.tree.leaves(like), strict=True)
            if self._rank(leaf)
        ]

    def decoded(self, message: Message, memory: Any, key: Key) -> tuple[Message, Any]:
        leaves, structure = jax.tree.flatten(message)
        factors, arrived, after = iter(memory), [], []
        for leaf in leaves:
            if not self._rank(leaf):
                arrived.append(leaf)
                continue
            matrix = leaf.reshape(-1, leaf.shape[-1])
            left = _orthogonal(matrix @ next(factors))
            right = matrix.T @ left
            arrived.append((left @ right.T).reshape(leaf.shape))
            after.append(right)
        return jax.tree.unflatten(structure, arrived), after

    def wire_bits(self, message: Message) -> int:
        return FLOAT_BITS * sum(self._numbers(leaf) for leaf in jax.tree.leaves(message))

    def _rank(self, leaf: Any) -> int:
        """Return the number of columns of an array's P and Q, or 0 if the array is sent uncoded."""
        if len(leaf.shape) <= _AS_IT_IS:
            return 0
        columns = leaf.shape[-1]
        size = math.prod(leaf.shape)
        return self.rank if self.rank * (size // max(1, columns) + columns) < size else 0

    def _numbers(self, leaf: Any) -> int:
        """Return how many numbers are sent for an array."""
        size, rank = math.prod(leaf.shape), self._rank(leaf)
        return rank * (size // leaf.shape[-1] + leaf.shape[-1]) if rank else size


def _orthogonal(matrix: jax.Array) -> jax.Array:
    """Return the matrix with its columns made orthonormal, from the first one on (Gram-Schmidt)."""
    columns: list[jax.Array] = []
    for column in matrix.T:
        for before in columns:
            column = column - (before * column).sum() * before
        length = jnp.sqrt((column * column).sum())
        columns.append(column / jnp.where(length == 0, 1.0, length))
    return jnp.stack(columns, axis=1)
