"""Codecs that send fewer numbers: some coordinates, some frequencies, or factors of low rank.

| class   | source                                                                                                        |
|---------|---------------------------------------------------------------------------------------------------------------|
| TopK    | Aji, Heafield 2017, arXiv:1704.05021; Stich, Cordonnier, Jaggi 2018, arXiv:1809.07599, algorithm 1              |
| RandomK | Stich, Cordonnier, Jaggi 2018, arXiv:1809.07599, section 2; Wangni et al. 2018, arXiv:1710.09854                |
| DCT     | DeMo: Peng, Quesnelle, Kingma 2024, arXiv:2411.19870, section 3                                                 |
| PowerSGD | Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727, algorithm 1                                                 |
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from fred.base.imports import jax, jnp
from fred.components.component import Count
from fred.components.one_of import OneOf
from fred.learning.codecs.codec import FLOAT_BITS, Chunked, Codec, Key, Message, index_bits
from fred.learning.keys import GENERATOR
from fred.learning.models.model import Params

Share = Annotated[float, Field(gt=0, le=1)]


class _Some(Chunked):
    """A codec that sends a share of each chunk's numbers."""

    share: Share = Field(
        default=0.01, description="share of each chunk's numbers that are sent; rounded to a number of at least one"
    )

    def sent_count(self, length: int) -> int:
        """Return how many of a chunk's `length` numbers are sent."""
        return max(1, round(self.share * length))

    def _sent_counts(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many numbers of each chunk are sent [chunks, 1]."""
        return np.array([[self.sent_count(length)] for length in lengths.ravel().tolist()]).reshape(-1, 1)

    def _places(self, rank: jax.Array, lengths: NDArray[np.int64]) -> jax.Array:
        """Return the indices of the highest-ranked numbers of each chunk [chunks, largest number that a chunk sends].

        Ranks must not be negative; padding has a rank of -1. A shorter last chunk sends only the first of its places.
        """
        padded_rank = jnp.where(np.arange(rank.shape[-1]) < lengths, rank, -1.0)
        return jax.lax.top_k(padded_rank, int(self._sent_counts(lengths).max(initial=1)))[1]

    def _scatter(self, numbers: jax.Array, places: jax.Array, values: jax.Array, lengths: NDArray[np.int64]) -> jax.Array:
        """Return chunks like `values` with the `numbers` that are sent at their `places` and 0 everywhere else."""
        numbers = jnp.where(np.arange(places.shape[-1]) < self._sent_counts(lengths), numbers, 0.0)
        return jnp.zeros_like(values).at[np.arange(len(values))[:, None], places].set(numbers)


class TopK(_Some):
    """The numbers of each chunk with the largest absolute values, and their indices; all others become 0.

    An index takes as many bits as the chunk's length requires. If all numbers are sent, indices take none. `values` is a codec
    for the numbers that are sent, applied to those of each chunk together.

        >>> from fred.learning.codecs.sparse import TopK
        >>> import jax.numpy as jnp
        >>> message = {"w": jnp.array([3.0, -1.0, 0.5, -4.0, 0.0, 2.0])}
        >>> for codec in (TopK(share=0.5), TopK(share=0.5, values={"name": "low-bit", "bits": 2}), TopK(share=0.5, chunk=2)):
        ...     codec.sent(message, codec.start(message))[0]["w"].tolist(), codec.size(message)
        ([3.0, 0.0, 0.0, -4.0, 0.0, 2.0], 14)
        ([4.0, 0.0, 0.0, -4.0, 0.0, 0.0], 6)
        ([3.0, 0.0, 0.0, -4.0, 0.0, 2.0], 13)
    """

    values: Annotated[Chunked, OneOf("codec")] | None = Field(
        default=None, description="codec of the numbers that are sent; absent: 4 bytes each"
    )

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: Chunked | None) -> Chunked | None:
        if values is not None and (not isinstance(values, Chunked) or isinstance(values, _Some) or values.error_feedback):
            raise ValueError("expected a codec that rounds each number, such as `low-bit`, without `error_feedback`")
        if values is not None and values.chunk != type(values).model_fields["chunk"].default:
            raise ValueError("a chunk's numbers are coded together: leave out `chunk` here")
        return values

    def rows(self, values: jax.Array, lengths: NDArray[np.int64], key: Key) -> jax.Array:
        places = self._places(jnp.abs(values), lengths)
        numbers = jnp.take_along_axis(values, places, axis=-1)
        if self.values is not None:
            is_sent = np.arange(places.shape[-1]) < self._sent_counts(lengths)
            numbers = self.values.rows(jnp.where(is_sent, numbers, 0.0), self._sent_counts(lengths), key)
        return self._scatter(numbers, places, values, lengths)

    def chunk_bits(self, length: int) -> int:
        count = self.sent_count(length)
        bits_of_indices = count * index_bits(length) if count < length else 0
        return bits_of_indices + (count * FLOAT_BITS if self.values is None else self.values.chunk_bits(count))


class RandomK(_Some):
    """Random numbers of each chunk, by default scaled so that the codec is unbiased; all others become 0.

    Indices depend on the seed, the worker, and the number of messages that it has sent. So the receiver can compute them, and
    they are not sent.

        >>> from fred.learning.codecs.sparse import RandomK
        >>> import jax.numpy as jnp
        >>> codec, message = RandomK(share=0.5), {"w": jnp.array([1.0, 2.0, 3.0, 4.0])}
        >>> memory = codec.start(message)
        >>> for _ in range(3):
        ...     arrived, memory = codec.sent(message, memory)
        ...     print(arrived["w"].tolist(), codec.size(message))
        [0.0, 4.0, 0.0, 8.0] 8
        [2.0, 0.0, 0.0, 8.0] 8
        [0.0, 0.0, 6.0, 8.0] 8
    """

    draws: ClassVar[bool] = True

    unbiased: bool = Field(
        default=True,
        description="divide the numbers that are sent by their share of the chunk; not useful with `error_feedback`",
    )

    def rows(self, values: jax.Array, lengths: NDArray[np.int64], key: Key) -> jax.Array:
        places = self._places(jax.random.uniform(key, values.shape), lengths)
        numbers = jnp.take_along_axis(values, places, axis=-1)
        factor = np.float32(lengths / self._sent_counts(lengths)) if self.unbiased else 1.0
        return self._scatter(factor * numbers, places, values, lengths)

    def chunk_bits(self, length: int) -> int:
        return self.sent_count(length) * FLOAT_BITS


class DCT(Codec):
    """The largest coefficients of each chunk's discrete cosine transform (DCT), with their indices.

    A chunk is a block of a matrix, or a part of a vector. Each side is the largest divisor of the array's side that is at most
    `chunk`. Arrays with more than two dimensions are reshaped to matrices that keep the last dimension as columns. An index
    takes as many bits as a chunk's number of coefficients requires. If all coefficients are sent, indices take none.

    Two coefficients approximate a ramp:

        >>> from fred.learning.codecs.sparse import DCT
        >>> import jax.numpy as jnp
        >>> codec, message = DCT(kept=2), {"w": jnp.arange(8.0)}
        >>> arrived, _ = codec.sent(message, codec.start(message))
        >>> [round(number, 1) for number in arrived["w"].tolist()], codec.size(message)  # 2 x (32 + 3) bits
        ([0.3, 0.8, 1.7, 2.9, 4.1, 5.3, 6.2, 6.7], 9)
    """

    chunk: Count = Field(default=64, description="longest side of a chunk")
    kept: Count = Field(default=32, description="coefficients of each chunk that are sent; all if a chunk has fewer")

    def decoded(self, message: Message, memory: Any, key: Key) -> tuple[Message, Any]:
        return jax.tree.map(self._decode_array, message), memory

    def wire_bits(self, message: Message) -> int:
        return sum(self._array_bits(leaf.shape) for leaf in jax.tree.leaves(message))

    def _decode_array(self, array: jax.Array) -> jax.Array:
        rows, columns = _matrix(array.shape)
        if not rows * columns:
            return array
        height, width = self._sides(array.shape)
        row_waves, column_waves = _waves(height), _waves(width)
        # [chunk rows, chunk columns, height, width]; the coefficients are [chunks, height x width]
        chunks = array.reshape(rows // height, height, columns // width, width).swapaxes(1, 2)
        coefficients = jnp.matmul(jnp.matmul(row_waves, chunks), column_waves.T).reshape(-1, height * width)
        places = jax.lax.top_k(jnp.abs(coefficients), min(self.kept, height * width))[1]
        largest = jnp.take_along_axis(coefficients, places, axis=-1)
        sparse = jnp.zeros_like(coefficients).at[np.arange(len(coefficients))[:, None], places].set(largest)
        decoded = jnp.matmul(jnp.matmul(row_waves.T, sparse.reshape(chunks.shape)), column_waves)
        return decoded.swapaxes(1, 2).reshape(array.shape)

    def _array_bits(self, shape: tuple[int, ...]) -> int:
        length = math.prod(self._sides(shape))
        count = min(self.kept, length)  # coefficients that are sent, of each chunk's `length`
        return math.prod(shape) // length * count * (FLOAT_BITS + (index_bits(length) if count < length else 0))

    def _sides(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the height and width of an array's chunks."""
        height, width = (max(side for side in range(1, self.chunk + 1) if size % side == 0) for size in _matrix(shape))
        return height, width


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the rows and columns of an array as a matrix; a vector has one row."""
    return (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)


def _waves(length: int) -> NDArray[np.float32]:
    """Return the matrix of the orthonormal DCT-II [length, length], a row for each coefficient."""
    angles = np.pi * np.outer(np.arange(length), np.arange(length) + 0.5) / length
    waves = np.cos(angles) * np.sqrt(np.where(np.arange(length) == 0, 1.0, 2.0) / length)[:, None]
    return waves.astype(np.float32)


_UNCODED_DIMENSIONS = 1  # arrays of at most this many dimensions are sent uncoded


class PowerSGD(Codec):
    """A rank-r approximation of each matrix M by P = orth(M Q) and Q' = M^T P, where Q is the last message's Q'.

    Arrays with more dimensions are reshaped to matrices that keep the last dimension as columns. Vectors, scalars, and matrices
    that have no more numbers than P and Q are sent uncoded. Each worker has its own P and Q, so an allreduce cannot add its
    messages on the way. The paper's allreduce, which orthogonalises the sum of all P, is a different method.

    A matrix of rank 1 is coded without loss, as 7 numbers in P and Q instead of 12:

        >>> from fred.learning.codecs.sparse import PowerSGD
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
        qs, arrived, new_qs = iter(memory), [], []
        for leaf in leaves:
            if not self._rank(leaf):
                arrived.append(leaf)
                continue
            matrix = leaf.reshape(-1, leaf.shape[-1])
            p = _orthogonal(matrix @ next(qs))
            new_q = matrix.T @ p
            arrived.append((p @ new_q.T).reshape(leaf.shape))
            new_qs.append(new_q)
        return jax.tree.unflatten(structure, arrived), new_qs

    def wire_bits(self, message: Message) -> int:
        return FLOAT_BITS * sum(self._sent_numbers(leaf) for leaf in jax.tree.leaves(message))

    def _rank(self, leaf: Any) -> int:
        """Return the number of columns of an array's P and Q, or 0 if the array is sent uncoded."""
        if len(leaf.shape) <= _UNCODED_DIMENSIONS:
            return 0
        size, columns = math.prod(leaf.shape), leaf.shape[-1]
        rows = size // max(1, columns)  # an array without numbers may have no columns
        return self.rank if self.rank * (rows + columns) < size else 0

    def _sent_numbers(self, leaf: Any) -> int:
        """Return how many numbers are sent for an array."""
        size, rank = math.prod(leaf.shape), self._rank(leaf)
        return rank * (size // leaf.shape[-1] + leaf.shape[-1]) if rank else size


def _orthogonal(matrix: jax.Array) -> jax.Array:
    """Return the matrix with its columns made orthonormal, from the first one on (Gram-Schmidt)."""
    columns: list[jax.Array] = []
    for column in matrix.T:
        for unit in columns:
            column = column - (unit * column).sum() * unit
        norm = jnp.sqrt((column * column).sum())
        columns.append(column / jnp.where(norm == 0, 1.0, norm))
    return jnp.stack(columns, axis=1)
