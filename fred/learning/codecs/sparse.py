"""Codecs that send only some of the numbers.

| class   | source                                                                                                        |
|---------|---------------------------------------------------------------------------------------------------------------|
| TopK    | Aji, Heafield 2017, arXiv:1704.05021; Stich, Cordonnier, Jaggi 2018, arXiv:1809.07599, algorithm 1              |
| RandomK | Stich, Cordonnier, Jaggi 2018, arXiv:1809.07599, section 2; Wangni et al. 2018, arXiv:1710.09854                |
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from fred.base.later import jax, jnp
from fred.components.one_of import OneOf
from fred.learning.codecs.codec import FLOAT_BITS, Chunked, Key, index_bits

Share = Annotated[float, Field(gt=0, le=1)]


class _Some(Chunked):
    """A codec that sends a share of each chunk's numbers."""

    share: Share = Field(
        default=0.01, description="share of each chunk's numbers that are sent; rounded to a number of at least one"
    )

    def kept(self, length: int) -> int:
        """Return how many of a chunk's `length` numbers are sent."""
        return max(1, round(self.share * length))

    def _kept(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many numbers of each chunk are sent [chunks, 1]."""
        return np.array([[self.kept(length)] for length in lengths.ravel().tolist()]).reshape(-1, 1)

    def _places(self, rank: jax.Array, lengths: NDArray[np.int64]) -> jax.Array:
        """Return the indices of the highest-ranked numbers of each chunk [chunks, largest number that a chunk sends].

        Ranks must not be negative; padding has a rank of -1.
        """
        real = jnp.where(np.arange(rank.shape[-1]) < lengths, rank, -1.0)
        return jax.lax.top_k(real, int(self._kept(lengths).max(initial=1)))[1]

    def _arrived(self, chosen: jax.Array, places: jax.Array, values: jax.Array, lengths: NDArray[np.int64]) -> jax.Array:
        """Return chunks like `values` with the `chosen` numbers at their `places` and 0 everywhere else."""
        chosen = jnp.where(np.arange(places.shape[-1]) < self._kept(lengths), chosen, 0.0)
        return jnp.zeros_like(values).at[np.arange(len(values))[:, None], places].set(chosen)


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
    def _of_chunks(cls, values: Chunked | None) -> Chunked | None:
        if values is not None and (not isinstance(values, Chunked) or isinstance(values, _Some) or values.error_feedback):
            raise ValueError("expected a codec that rounds each number, such as `low-bit`, without `error_feedback`")
        if values is not None and values.chunk != type(values).model_fields["chunk"].default:
            raise ValueError("a chunk's numbers are coded together: leave out `chunk` here")
        return values

    def rows(self, values: jax.Array, lengths: NDArray[np.int64], key: Key) -> jax.Array:
        places = self._places(jnp.abs(values), lengths)
        chosen = jnp.take_along_axis(values, places, axis=-1)
        if self.values is not None:
            real = np.arange(places.shape[-1]) < self._kept(lengths)
            chosen = self.values.rows(jnp.where(real, chosen, 0.0), self._kept(lengths), key)
        return self._arrived(chosen, places, values, lengths)

    def chunk_bits(self, length: int) -> int:
        kept = self.kept(length)
        where = kept * index_bits(length) if kept < length else 0
        return where + (kept * FLOAT_BITS if self.values is None else self.values.chunk_bits(kept))


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
        chosen = jnp.take_along_axis(values, places, axis=-1)
        factor = np.float32(lengths / self._kept(lengths)) if self.unbiased else 1.0
        return self._arrived(factor * chosen, places, values, lengths)

    def chunk_bits(self, length: int) -> int:
        return self.kept(length) * FLOAT_BITS
