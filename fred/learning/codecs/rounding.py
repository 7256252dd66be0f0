"""Codecs that round numbers to a few levels.

| class   | source                                                                                                        |
|---------|---------------------------------------------------------------------------------------------------------------|
| LowBit  | Dettmers 2016, "8-bit approximations for parallelism in deep learning", arXiv:1511.04561, section 2             |
| Sign    | Seide, Fu, Droppo, Li, Yu 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, arXiv:1901.09847 |
| QSGD    | Alistarh, Grubic, Li, Tomioka, Vojnovic 2017, arXiv:1610.02132, section 3.1                                     |
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from numpy.typing import NDArray
from pydantic import Field

from fred.base.later import jax, jnp
from fred.components.component import Count
from fred.learning.codecs.codec import FLOAT_BITS, Chunked, Key, index_bits, largest


class LowBit(Chunked):
    """Rounding to evenly spaced levels between minus and plus the chunk's largest absolute value, which is sent.

    >>> from fred.learning.codecs.rounding import LowBit
    >>> import jax.numpy as jnp
    >>> message = {"w": jnp.array([3.0, -0.9, 1.2, 0.1])}
    >>> for codec in (LowBit(bits=2), LowBit(bits=2, zero=False), LowBit(bits=8)):
    ...     arrived, _ = codec.sent(message, codec.start(message))
    ...     print([round(number, 3) for number in arrived["w"].tolist()], codec.size(message))
    [3.0, -0.0, 0.0, 0.0] 5
    [3.0, -1.0, 1.0, 1.0] 5
    [3.0, -0.898, 1.205, 0.094] 8
    """

    bits: Annotated[int, Field(ge=2, le=16)] = Field(default=8, description="bits of each number")
    zero: bool = Field(default=True, description="whether 0 is a level: 2^bits - 1 levels with 0, 2^bits levels without")

    def rows(self, values: jax.Array, lengths: NDArray, key: Key) -> jax.Array:
        scale = largest(values)
        if self.zero:
            steps = 2 ** (self.bits - 1) - 1  # between 0 and the largest
            return jnp.round(values / scale * steps) / steps * scale
        steps = 2**self.bits - 1  # between the two ends
        return (jnp.round((values / scale + 1) / 2 * steps) / steps * 2 - 1) * scale

    def chunk_bits(self, length: int) -> int:
        return self.bits * length + FLOAT_BITS


class Sign(Chunked):
    """The sign of each number, times the mean absolute value of its chunk, which is sent; the sign of 0 is plus.

    >>> from fred.learning.codecs.rounding import Sign
    >>> import jax.numpy as jnp
    >>> codec, message = Sign(), {"w": jnp.array([3.0, -1.0, 2.0, 0.0])}
    >>> codec.sent(message, codec.start(message))[0]["w"].tolist(), codec.size(message)
    ([1.5, -1.5, 1.5, 1.5], 5)
    """

    def rows(self, values: jax.Array, lengths: NDArray, key: Key) -> jax.Array:
        scale = jnp.abs(values).sum(axis=-1, keepdims=True) / lengths
        return jnp.where(values < 0, -scale, scale)

    def chunk_bits(self, length: int) -> int:
        return length + FLOAT_BITS


class QSGD(Chunked):
    """Unbiased random rounding to one of the two nearest multiples of norm / levels.

    The norm is the chunk's Euclidean norm, which is sent. Each number takes the bits that 2 levels + 1 values require. FRED
    does not implement the paper's Elias code, which needs fewer bits for zeros. Draws depend on the seed, the worker, and the
    number of messages that it has sent.

        >>> from fred.learning.codecs.rounding import QSGD
        >>> import jax.numpy as jnp
        >>> codec, message = QSGD(levels=4), {"w": jnp.array([3.0, -4.0])}
        >>> memory = codec.start(message)
        >>> for _ in range(3):
        ...     arrived, memory = codec.sent(message, memory)
        ...     print(arrived["w"].tolist(), codec.size(message))
        [3.75, -3.75] 5
        [2.5, -3.75] 5
        [3.75, -5.0] 5
    """

    draws: ClassVar[bool] = True

    levels: Count = Field(default=7, description="s: levels between 0 and the norm; 7 take 4 bits for each number, 127 take 8")

    def rows(self, values: jax.Array, lengths: NDArray, key: Key) -> jax.Array:
        norm = jnp.sqrt((values * values).sum(axis=-1, keepdims=True))
        steps = jnp.abs(values) / jnp.where(norm == 0, 1.0, norm) * self.levels
        below = jnp.floor(steps)
        steps = below + (jax.random.uniform(key, values.shape) < steps - below)
        return jnp.sign(values) * steps / self.levels * norm

    def chunk_bits(self, length: int) -> int:
        return index_bits(2 * self.levels + 1) * length + FLOAT_BITS
