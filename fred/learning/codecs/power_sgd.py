"""PowerSGD: two thin matrices in place of a large one [Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727, algorithm 1]."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from pydantic import Field

from fred.components.component import Count
from fred.learning.codecs.codec import FLOAT_BITS, Codec, Key, Message
from fred.learning.keys import DRAWN_BY
from fred.learning.models.model import Params

_AS_IT_IS = 1  # dimensions; such arrays are sent as they are


class PowerSGD(Codec):
    """Of each matrix M the product of two thin ones, P = orth(M Q) and Q' = M^T P, from the last message's Q on.

    Arrays of more dimensions are matrices with their last one as columns; of one or none they are sent as they are, as are
    matrices that have no more numbers than P and Q. Each worker's matrices are its own, so that messages cannot be added up on
    their way: the paper's allreduce, which makes P orthogonal after it has been added up, is another method.

    Of a matrix of rank 1 nothing is lost; it has 12 numbers, P and Q have 7:

        >>> from fred.learning.codecs.power_sgd import PowerSGD
        >>> import jax.numpy as jnp
        >>> codec, message = PowerSGD(rank=1), {"w": jnp.outer(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, -1.0, 0.5, 2.0]))}
        >>> arrived, memory = codec.sent(message, codec.start(message))
        >>> bool(jnp.allclose(arrived["w"], message["w"])), codec.size(message)
        (True, 28)
    """

    rank: Count = Field(2, description="r: columns of P and Q")

    def memory(self, like: Params) -> Any:
        """Q of each matrix, at first of numbers that are normally distributed, alike for all workers."""
        keys = [jax.random.fold_in(jax.random.key(0, impl=DRAWN_BY), number) for number in range(len(jax.tree.leaves(like)))]
        return [
            jax.random.normal(key, (leaf.shape[-1], self._rank(leaf)))
            for key, leaf in zip(keys, jax.tree.leaves(like), strict=True)
            if self._rank(leaf)
        ]

    def decoded(self, message: Message, memory: Any, key: Key) -> tuple[Message, Any]:
        leaves, structure = jax.tree.flatten(message)
        known, arrived, after = iter(memory), [], []
        for leaf in leaves:
            if not self._rank(leaf):
                arrived.append(leaf)
                continue
            matrix = leaf.reshape(-1, leaf.shape[-1])
            left = _orthogonal(matrix @ next(known))
            right = matrix.T @ left
            arrived.append((left @ right.T).reshape(leaf.shape))
            after.append(right)
        return jax.tree.unflatten(structure, arrived), after

    def wire_bits(self, message: Message) -> int:
        return FLOAT_BITS * sum(self._numbers(leaf) for leaf in jax.tree.leaves(message))

    def _rank(self, leaf: Any) -> int:
        """Columns of an array's P and Q; 0: it is sent as it is."""
        if len(leaf.shape) <= _AS_IT_IS:
            return 0
        columns = leaf.shape[-1]
        size = math.prod(leaf.shape)
        return self.rank if self.rank * (size // max(1, columns) + columns) < size else 0

    def _numbers(self, leaf: Any) -> int:
        """How many are sent of an array."""
        size, rank = math.prod(leaf.shape), self._rank(leaf)
        return rank * (size // leaf.shape[-1] + leaf.shape[-1]) if rank else size


def _orthogonal(matrix: jax.Array) -> jax.Array:
    """The columns, one after the other, made of length 1 and at right angles to those before (Gram-Schmidt)."""
    columns: list[jax.Array] = []
    for column in matrix.T:
        for before in columns:
            column = column - (before * column).sum() * before
        length = jnp.sqrt((column * column).sum())
        columns.append(column / jnp.where(length == 0, 1.0, length))
    return jnp.stack(columns, axis=1)
