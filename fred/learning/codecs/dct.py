"""The largest DCT coefficients of each chunk, as in DeMo [Peng, Quesnelle, Kingma 2024, arXiv:2411.19870, section 3]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.base.later import jax, jnp
from fred.components.component import Count
from fred.learning.codecs.codec import FLOAT_BITS, Codec, Key, Message, index_bits


class DCT(Codec):
    """The largest coefficients of each chunk's discrete cosine transform (DCT), with their indices.

    A chunk is a block of a matrix, or a part of a vector. Each side is the largest divisor of the array's side that is at most
    `chunk`. Arrays with more than two dimensions are reshaped to matrices that keep the last dimension as columns. An index
    takes as many bits as a chunk's number of coefficients requires. If all coefficients are sent, indices take none.

    Two coefficients approximate a ramp:

        >>> from fred.learning.codecs.dct import DCT
        >>> import jax.numpy as jnp
        >>> codec, message = DCT(kept=2), {"w": jnp.arange(8.0)}
        >>> arrived, _ = codec.sent(message, codec.start(message))
        >>> [round(number, 1) for number in arrived["w"].tolist()], codec.size(message)  # 2 x (32 + 3) bits
        ([0.3, 0.8, 1.7, 2.9, 4.1, 5.3, 6.2, 6.7], 9)
    """

    chunk: Count = Field(default=64, description="longest side of a chunk")
    kept: Count = Field(default=32, description="coefficients of each chunk that are sent; all if a chunk has fewer")

    def decoded(self, message: Message, memory: Any, key: Key) -> tuple[Message, Any]:
        return jax.tree.map(self._array, message), memory

    def wire_bits(self, message: Message) -> int:
        return sum(self._array_bits(leaf.shape) for leaf in jax.tree.leaves(message))

    def _array(self, array: jax.Array) -> jax.Array:
        """Return the decoded array."""
        rows, columns = _matrix(array.shape)
        if not rows * columns:
            return array
        high, wide = self._sides(array.shape)
        down, across = _waves(high), _waves(wide)
        chunks = array.reshape(rows // high, high, columns // wide, wide).swapaxes(1, 2)
        waves = jnp.matmul(jnp.matmul(down, chunks), across.T).reshape(-1, high * wide)
        places = jax.lax.top_k(jnp.abs(waves), min(self.kept, high * wide))[1]
        chosen = jnp.take_along_axis(waves, places, axis=-1)
        only = jnp.zeros_like(waves).at[np.arange(len(waves))[:, None], places].set(chosen)
        back = jnp.matmul(jnp.matmul(down.T, only.reshape(chunks.shape)), across)
        return back.swapaxes(1, 2).reshape(array.shape)

    def _array_bits(self, shape: tuple[int, ...]) -> int:
        high, wide = self._sides(shape)
        length = high * wide
        kept = min(self.kept, length)
        return math.prod(shape) // length * kept * (FLOAT_BITS + (index_bits(length) if kept < length else 0))

    def _sides(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the height and width of an array's chunks."""
        high, wide = (max(side for side in range(1, self.chunk + 1) if whole % side == 0) for whole in _matrix(shape))
        return high, wide


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the rows and columns of an array as a matrix; a vector has one row."""
    return (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)


def _waves(length: int) -> NDArray[np.float32]:
    """Return the matrix of the orthonormal DCT-II [length, length], a row for each coefficient."""
    angles = np.pi * np.outer(np.arange(length), np.arange(length) + 0.5) / length
    waves = np.cos(angles) * np.sqrt(np.where(np.arange(length) == 0, 1.0, 2.0) / length)[:, None]
    return waves.astype(np.float32)
