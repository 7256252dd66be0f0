"""Floating point numbers of fewer bits.

| class | source                                                                                            |
|-------|---------------------------------------------------------------------------------------------------|
| Float | Micikevicius et al. 2018, arXiv:1710.03740; of 8 bits: Micikevicius et al. 2022, arXiv:2209.05433 |
| E3M0  | Douillard et al. 2025, "Streaming DiLoCo", arXiv:2501.18512, section 2.3                          |
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.components.component import Count
from fred.learning.codecs.codec import FLOAT_BITS, Chunked, Key, largest

_TYPES = {
    "float32": jnp.float32,
    "bfloat16": jnp.bfloat16,
    "float16": jnp.float16,
    "e4m3": jnp.float8_e4m3fn,
    "e5m2": jnp.float8_e5m2,
}


class Float(Chunked):
    """Rounding to a shorter floating point format; larger numbers become the format's largest.

    With `scaled`, each chunk is first scaled so that its largest number becomes the format's largest. The scale is sent, too,
    so an allreduce cannot add such messages on the way. Messages without scales are added exactly: FRED does not model rounding
    on the way.

        >>> from fred.learning.codecs.floats import Float
        >>> import jax.numpy as jnp
        >>> for options in ({"format": "bfloat16"}, {"format": "e4m3"}, {"format": "e4m3", "scaled": True}):
        ...     codec = Float(**options)
        ...     arrived, _ = codec.sent({"w": jnp.array([1000.0, 3.3, 0.001])}, codec.start({"w": jnp.zeros(3)}))
        ...     print([round(number, 6) for number in arrived["w"].tolist()], codec.size({"w": jnp.zeros(3)}))
        [1000.0, 3.296875, 0.000999] 6
        [448.0, 3.25, 0.001953] 3
        [1000.0, 3.348214, 0.0] 7
    """

    format: Literal["float32", "bfloat16", "float16", "e4m3", "e5m2"] = Field(
        default="bfloat16", description="16 bits, or 8 (e: bits of the exponent, m: of the mantissa); `float32` does not round"
    )
    scaled: bool = Field(default=False, description="scale each chunk to the format's range, for 4 more bytes a chunk")

    @property
    def summable(self) -> bool:
        return not self.scaled

    def rows(self, values: jax.Array, lengths: NDArray[np.int64], key: Key) -> jax.Array:
        if self.format == "float32":
            return values
        limit = float(jnp.finfo(_TYPES[self.format]).max)
        scale = largest(values) / limit if self.scaled else 1.0
        short = jnp.clip(values / scale, -limit, limit).astype(_TYPES[self.format])
        return short.astype(jnp.float32) * scale

    def chunk_bits(self, length: int) -> int:
        return length * 8 * np.dtype(_TYPES[self.format]).itemsize + self.scaled * FLOAT_BITS


class E3M0(Chunked):
    """Four bits, a sign and a three-bit exponent, as Streaming DiLoCo codes pseudo-gradients.

    Each number is rounded to 0 or one of the powers of two from 2^-6 to 1, times the chunk's largest number. That number is
    sent as the scale. The paper does not say how it scales numbers.

        >>> from fred.learning.codecs.floats import E3M0
        >>> import jax.numpy as jnp
        >>> codec, message = E3M0(), {"w": jnp.array([8.0, -3.5, 2.9, 0.1, 0.05])}
        >>> codec.sent(message, codec.start(message))[0]["w"].tolist(), codec.size(message)
        ([8.0, -4.0, 2.0, 0.125, 0.0], 7)
    """

    chunk: Count | Literal["array", "message"] = Field(
        default=256,
        description="consecutive numbers of an array that share a scale; or a whole `array`, or the whole `message`",
    )

    def rows(self, values: jax.Array, lengths: NDArray[np.int64], key: Key) -> jax.Array:
        levels = np.array([0.0, *2.0 ** np.arange(-6, 1)], np.float32)
        scale = largest(values)
        share = jnp.abs(values) / scale
        level = sum(
            jnp.where(share >= middle, step, 0.0)
            for middle, step in zip((levels[1:] + levels[:-1]) / 2, np.diff(levels), strict=True)
        )
        return jnp.sign(values) * level * scale

    def chunk_bits(self, length: int) -> int:
        return 4 * length + FLOAT_BITS
