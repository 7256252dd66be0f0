"""What every codec is: the values that arrive in place of those that were sent, and how many bytes carry them.

Where a size is given, [n] and the like are numbers of an array; bits are those that a wire needs, without headers.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.base.later import jax, jnp
from fred.components.component import Component, Count
from fred.learning.keys import DRAWN_BY
from fred.learning.models.model import Params

Message = Any  # a pytree of arrays
Key = Any  # of jax's, from which a codec draws
FLOAT_BITS = 32  # of a number that is sent as it is, and of a scale


class Codec(Component):
    """A worker's message is coded when it is sent; whoever gets it goes on with what it decodes.

    A message is a gradient, or what local steps have changed. Models that servers send, or that workers average, travel as
    they are. With `error_feedback` a worker remembers what coding has left out, and adds it to its next message.

    A codec of one's own that sends every second number, as it is:

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

    draws: ClassVar[bool] = False  # whether what arrives is random

    error_feedback: bool | Annotated[float, Field(ge=0, le=1)] = Field(
        False, description="whether what coding leaves out is added to the next message; a number: times that"
    )

    @property
    def summable(self) -> bool:
        """Whether coded messages can be added up on their way, as allreduces do; otherwise everybody gets all of them."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether a message depends on those before it."""
        return bool(self.error_feedback) or self.draws or type(self).memory is not Codec.memory

    def memory(self, like: Params) -> Any:
        """What a worker's codec itself remembers, at first: a pytree of arrays.

        Args:
            like: a message, or the shapes of one.
        """
        return ()

    def decoded(self, message: Message, memory: Any, key: Key) -> tuple[Message, Any]:
        """What arrives in place of a message, and what the codec remembers then.

        Args:
            message: a pytree of arrays.
            memory: as the last message has left it.
            key: for a codec that `draws`.
        """
        raise NotImplementedError

    def wire_bits(self, message: Message) -> int:
        """Bits of a coded message on the wire.

        Args:
            message: or the shapes of one.
        """
        raise NotImplementedError

    def size(self, message: Message) -> int:
        """Bytes of a coded message on the wire.

        Args:
            message: or the shapes of one.
        """
        return -(-self.wire_bits(message) // 8)

    def start(self, like: Params, words: Any = (0, 0)) -> dict[str, Any]:
        """All that a worker remembers before its first message.

        Args:
            like: a message, or the shapes of one.
            words: two of 32 bits, from which the worker's draws follow.
        """
        memory: dict[str, Any] = {"own": own} if jax.tree.leaves(own := self.memory(like)) else {}
        if self.error_feedback:
            memory["rest"] = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        if self.draws:
            memory |= {"words": jnp.asarray(words, jnp.uint32), "count": jnp.int32(0)}
        return memory

    def sent(self, message: Message, memory: dict[str, Any]) -> tuple[Message, dict[str, Any]]:
        """What arrives in place of a message, and what the worker remembers then.

        Args:
            message: a pytree of arrays.
            memory: as `start` or the last message has left it.
        """
        after = dict(memory)
        whole, key = message, None
        if self.error_feedback:
            whole = jax.tree.map(lambda now, rest: now + float(self.error_feedback) * rest, message, memory["rest"])
        if self.draws:
            key = jax.random.fold_in(jax.random.wrap_key_data(memory["words"], impl=DRAWN_BY), memory["count"])
            after["count"] = memory["count"] + 1
        arrived, own = self.decoded(whole, memory.get("own", ()), key)
        if "own" in memory:
            after["own"] = own
        if self.error_feedback:
            after["rest"] = jax.tree.map(jnp.subtract, whole, arrived)
        return arrived, after


class Chunked(Codec):
    """A codec of chunks: numbers in a row, each chunk by itself."""

    chunk: Count | Literal["array", "message"] = Field(
        "array",
        description="numbers in a row that are coded together, of each array; or a whole `array`, or the whole `message`",
    )

    def decoded(self, message: Message, memory: Any, key: Key) -> tuple[Message, Any]:
        leaves, structure = jax.tree.flatten(message)
        if self.chunk == "message":
            whole = self._piece(jnp.concatenate([leaf.ravel() for leaf in leaves]), key, 0)
            pieces = jnp.split(whole, np.cumsum([leaf.size for leaf in leaves])[:-1])
        else:
            pieces = [self._piece(leaf, key, number) for number, leaf in enumerate(leaves)]
        arrived = [piece.reshape(leaf.shape) for piece, leaf in zip(pieces, leaves, strict=True)]
        return jax.tree.unflatten(structure, arrived), memory

    def rows(self, values: jax.Array, lengths: NDArray[np.int64], key: Key) -> jax.Array:
        """What arrives in place of chunks.

        Args:
            values: [chunks, numbers], the last chunk filled up with zeros.
            lengths: numbers of each chunk that are real [chunks, 1].
            key: for a codec that draws.
        """
        raise NotImplementedError

    def chunk_bits(self, length: int) -> int:
        """Bits of a chunk of so many numbers on the wire."""
        raise NotImplementedError

    def wire_bits(self, message: Message) -> int:
        return sum(count * self.chunk_bits(length) for length, count in self.chunks(message))

    def chunks(self, message: Message) -> list[tuple[int, int]]:
        """Into what chunks a message falls: of how many numbers, and how many such.

        Args:
            message: or the shapes of one.
        """
        sizes = [math.prod(leaf.shape) for leaf in jax.tree.leaves(message)]
        pieces = [sum(sizes)] if self.chunk == "message" else sizes
        found = []
        for piece in pieces:
            length = self._length(piece)
            found += [(length, piece // length), (piece % length, 1)] if piece else []
        return [(length, count) for length, count in found if length and count]

    def _length(self, numbers: int) -> int:
        return max(1, numbers) if isinstance(self.chunk, str) else min(self.chunk, max(1, numbers))

    def _piece(self, piece: jax.Array, key: Key, number: int) -> jax.Array:
        """The numbers that arrive in place of so many in a row, [n]."""
        length = self._length(piece.size)
        rows = -(-piece.size // length)
        values = jnp.pad(piece.ravel(), (0, rows * length - piece.size)).reshape(rows, length)
        lengths = np.minimum(length, piece.size - length * np.arange(rows))[:, None]
        return self.rows(values, lengths, jax.random.fold_in(key, number) if self.draws else None).ravel()[: piece.size]


def largest(values: jax.Array) -> jax.Array:
    """Of each chunk the largest size of a number [chunks, 1], where all are 0: 1."""
    size = jnp.abs(values).max(axis=-1, keepdims=True)
    return jnp.where(size == 0, 1.0, size)


def index_bits(length: int) -> int:
    """Bits that say which of so many numbers is meant."""
    return (length - 1).bit_length()
