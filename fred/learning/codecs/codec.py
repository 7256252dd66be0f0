"""The base classes of codecs, which define the decoded values of a message and its size; codecs that round.

Sizes in brackets, such as [n], are shapes of arrays. Bits are those on the wire, without headers.

| class   | source                                                                                                        |
|---------|---------------------------------------------------------------------------------------------------------------|
| LowBit  | Dettmers 2016, "8-bit approximations for parallelism in deep learning", arXiv:1511.04561, section 2             |
| Sign    | Seide, Fu, Droppo, Li, Yu 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, arXiv:1901.09847 |
| QSGD    | Alistarh, Grubic, Li, Tomioka, Vojnovic 2017, arXiv:1610.02132, section 3.1                                     |
| Float   | Micikevicius et al. 2018, arXiv:1710.03740; of 8 bits: Micikevicius et al. 2022, arXiv:2209.05433               |
| E3M0    | Douillard et al. 2025, "Streaming DiLoCo", arXiv:2501.18512, section 2.3                                        |
"""

from __future__ import annotations

import math
from abc import abstractmethod
from numbers import Integral
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.base.errors import FredError
from fred.base.imports import jax, jnp
from fred.components.component import Component, Count
from fred.learning.keys import GENERATOR
from fred.learning.models.model import Params

Message = Any  # a pytree of arrays
Key = Any  # a JAX random key
FLOAT_BITS = 32  # of an uncoded number, and of a scale


class Codec(Component):
    """A lossy or lossless coding of workers' messages. The receiver uses the decoded values.

    Messages are gradients, or pseudo-gradients of local steps. Models that servers send or workers average are not coded.
    With `error_feedback` a worker stores the coding error of a message and adds it to the next one.

    Your own codec, which sends every second number uncoded:

        >>> import fred
        >>> import jax
        >>> import jax.numpy as jnp
        >>> class Half(fred.Codec):
        ...     def decoded(self, message, memory, key):
        ...         return jax.tree.map(lambda leaf: leaf.ravel().at[1::2].set(0.0).reshape(leaf.shape), message), memory
        ...     def wire_bits(self, message):
        ...         return sum(32 * -(-leaf.size // 2) for leaf in jax.tree.leaves(message))
        >>> codec, message = Half(error_feedback=True), {"w": jnp.array([1.0, 2.0, 3.0])}
        >>> codec.size(message)  # bytes
        8
        >>> memory = codec.start(message)
        >>> for _ in range(2):
        ...     arrived, memory = codec.sent(message, memory)
        ...     print(arrived["w"].tolist(), memory["rest"]["w"].tolist())
        [1.0, 0.0, 3.0] [0.0, 2.0, 0.0]
        [1.0, 0.0, 3.0] [0.0, 4.0, 0.0]
    """

    draws: ClassVar[bool] = False  # True: decoded values are random

    error_feedback: bool | Annotated[float, Field(ge=0, le=1)] = Field(
        default=False, description="add the coding error of a message to the next one; a number: multiply the error by it first"
    )

    @property
    def summable(self) -> bool:
        """True if an allreduce can add coded messages on the way; otherwise every worker receives all messages."""
        return False

    @property
    def remembers(self) -> bool:
        """True if a message depends on earlier messages of the same worker."""
        return bool(self.error_feedback) or self.draws or type(self).memory is not Codec.memory

    def memory(self, like: Params) -> Any:
        """Return the initial state of one worker's codec, without error feedback: a pytree of arrays.

        Args:
            like: a message, or the shapes of one.
        """
        return ()

    @abstractmethod
    def decoded(self, message: Message, memory: Any, key: Key) -> tuple[Message, Any]:
        """Return the decoded message and the codec's new state.

        Args:
            message: a pytree of arrays.
            memory: the codec's state after the last message.
            key: a JAX random key for a codec that `draws`, else None.
        """

    @abstractmethod
    def wire_bits(self, message: Message) -> int:
        """Return the size of a coded message on the wire, in bits.

        Args:
            message: a message, or the shapes of one.
        """

    def size(self, message: Message) -> int:
        """Return the size of a coded message on the wire, in bytes.

        Args:
            message: a message, or the shapes of one.
        """
        bits = self.wire_bits(message)
        if not isinstance(bits, Integral):
            raise FredError(
                f"`wire_bits` of {type(self).__name__} returns {bits!r}; expected a whole number, such as `math.ceil(...)`"
            )
        return -(-int(bits) // 8)

    def start(self, like: Params, words: Any = (0, 0)) -> dict[str, Any]:
        """Return a worker's whole memory for the codec before its first message, including error feedback.

        Args:
            like: a message, or the shapes of one.
            words: two 32-bit words that determine the worker's random draws.
        """
        codec_memory = self.memory(like)
        # own: the state that `decoded` receives; rest: the coding error; words and count: key, and number of messages.
        memory: dict[str, Any] = {"own": codec_memory} if jax.tree.leaves(codec_memory) else {}
        if self.error_feedback:
            memory["rest"] = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        if self.draws:
            memory |= {"words": jnp.asarray(words, jnp.uint32), "count": jnp.int32(0)}
        return memory

    def sent(self, message: Message, memory: dict[str, Any]) -> tuple[Message, dict[str, Any]]:
        """Return the decoded message and the worker's new memory, with error feedback applied.

        Args:
            message: a pytree of arrays.
            memory: the worker's memory, from `start` or from the last message.
        """
        new_memory = dict(memory)
        corrected, key = message, None
        if self.error_feedback:
            corrected = jax.tree.map(lambda leaf, rest: leaf + float(self.error_feedback) * rest, message, memory["rest"])
        if self.draws:
            key = jax.random.fold_in(jax.random.wrap_key_data(memory["words"], impl=GENERATOR), memory["count"])
            new_memory["count"] = memory["count"] + 1
        decoded = self.decoded(corrected, memory.get("own", ()), key)
        if not isinstance(decoded, tuple) or len(decoded) != 2:
            expected = "expected two values, the decoded message and the codec's new state: `return message, memory`"
            raise FredError(f"`decoded` of {type(self).__name__} returns a {type(decoded).__name__}; {expected}")
        arrived, codec_memory = decoded
        if "own" in memory:
            new_memory["own"] = codec_memory
        if self.error_feedback:
            new_memory["rest"] = jax.tree.map(jnp.subtract, corrected, arrived)
        return arrived, new_memory


class Chunked(Codec):
    """A codec that splits a message into chunks of consecutive numbers and codes each chunk separately."""

    chunk: Count | Literal["array", "message"] = Field(
        default="array",
        description="consecutive numbers of an array that are coded together; or a whole `array`, or the whole `message`",
    )

    def decoded(self, message: Message, memory: Any, key: Key) -> tuple[Message, Any]:
        leaves, structure = jax.tree.flatten(message)
        if self.chunk == "message":
            flat = self._decode_piece(jnp.concatenate([leaf.ravel() for leaf in leaves]), key, 0)
            pieces = jnp.split(flat, np.cumsum([leaf.size for leaf in leaves])[:-1])
        else:
            pieces = [self._decode_piece(leaf, key, number) for number, leaf in enumerate(leaves)]
        arrived = [piece.reshape(leaf.shape) for piece, leaf in zip(pieces, leaves, strict=True)]
        return jax.tree.unflatten(structure, arrived), memory

    @abstractmethod
    def rows(self, values: jax.Array, lengths: NDArray[np.int64], key: Key) -> jax.Array:
        """Return the decoded values of chunks [chunks, numbers].

        Args:
            values: the chunks' values [chunks, numbers]; the last chunk is padded with zeros.
            lengths: numbers of each chunk without padding [chunks, 1].
            key: a JAX random key for a codec that draws, else None.
        """

    @abstractmethod
    def chunk_bits(self, length: int) -> int:
        """Return the size of a coded chunk of `length` numbers on the wire, in bits."""

    def wire_bits(self, message: Message) -> int:
        return sum(count * self.chunk_bits(length) for length, count in self.chunks(message))

    def chunks(self, message: Message) -> list[tuple[int, int]]:
        """Return the lengths of a message's chunks, each with the number of such chunks.

        Args:
            message: a message, or the shapes of one.
        """
        array_sizes = [math.prod(leaf.shape) for leaf in jax.tree.leaves(message)]
        sizes = [sum(array_sizes)] if self.chunk == "message" else array_sizes
        chunks = []
        for size in sizes:
            length = self._chunk_length(size)
            chunks += [(length, size // length), (size % length, 1)] if size else []  # the last one is shorter, or empty
        return [(length, count) for length, count in chunks if length and count]

    def _chunk_length(self, size: int) -> int:
        """Return the length of chunks of an array, or of a whole message, of `size` numbers; at least 1."""
        return max(1, size) if isinstance(self.chunk, str) else min(self.chunk, max(1, size))

    def _decode_piece(self, piece: jax.Array, key: Key, number: int) -> jax.Array:
        """Return the decoded values [n] of an array, or of the whole message; its `number` determines its random draws."""
        length = self._chunk_length(piece.size)
        rows = -(-piece.size // length)
        values = jnp.pad(piece.ravel(), (0, rows * length - piece.size)).reshape(rows, length)
        lengths = np.minimum(length, piece.size - length * np.arange(rows))[:, None]
        return self.rows(values, lengths, jax.random.fold_in(key, number) if self.draws else None).ravel()[: piece.size]


def largest(values: jax.Array) -> jax.Array:
    """Return the largest absolute value of each chunk [chunks, 1], or 1 for a chunk of zeros."""
    scale = jnp.abs(values).max(axis=-1, keepdims=True)
    return jnp.where(scale == 0, 1.0, scale)


def index_bits(length: int) -> int:
    """Return the bits of an index into `length` numbers."""
    return (length - 1).bit_length()


class LowBit(Chunked):
    """Rounding to evenly spaced levels between minus and plus the chunk's largest absolute value, which is sent.

    >>> from fred.learning.codecs.codec import LowBit
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

    >>> from fred.learning.codecs.codec import Sign
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

        >>> from fred.learning.codecs.codec import QSGD
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
        exact_level = jnp.abs(values) / jnp.where(norm == 0, 1.0, norm) * self.levels
        lower_level = jnp.floor(exact_level)
        level = lower_level + (jax.random.uniform(key, values.shape) < exact_level - lower_level)
        return jnp.sign(values) * level / self.levels * norm

    def chunk_bits(self, length: int) -> int:
        return index_bits(2 * self.levels + 1) * length + FLOAT_BITS


_JAX_NAMES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}  # of formats that JAX calls otherwise


class Float(Chunked):
    """Rounding to a shorter floating point format; larger numbers become the format's largest.

    With `scaled`, each chunk is first scaled so that its largest number becomes the format's largest. The scale is sent, too,
    so an allreduce cannot add such messages on the way. Messages without scales are added exactly: FRED does not model rounding
    on the way.

        >>> from fred.learning.codecs.codec import Float
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
        limit = float(jnp.finfo(self._type).max)
        scale = largest(values) / limit if self.scaled else 1.0
        rounded = jnp.clip(values / scale, -limit, limit).astype(self._type)
        return rounded.astype(jnp.float32) * scale

    def chunk_bits(self, length: int) -> int:
        return length * 8 * np.dtype(self._type).itemsize + self.scaled * FLOAT_BITS

    @property
    def _type(self) -> Any:
        """JAX's type of the format."""
        return getattr(jnp, _JAX_NAMES.get(self.format, self.format))


class E3M0(Chunked):
    """Four bits, a sign and a three-bit exponent, as Streaming DiLoCo codes pseudo-gradients.

    Each number is rounded to 0 or one of the powers of two from 2^-6 to 1, times the chunk's largest number. That number is
    sent as the scale. The paper does not say how it scales numbers.

        >>> from fred.learning.codecs.codec import E3M0
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
        # The nearest level is the sum of the steps between levels whose middle the number reaches.
        level = sum(
            jnp.where(share >= middle, step, 0.0)
            for middle, step in zip((levels[1:] + levels[:-1]) / 2, np.diff(levels), strict=True)
        )
        return jnp.sign(values) * level * scale

    def chunk_bits(self, length: int) -> int:
        return 4 * length + FLOAT_BITS
