"""Numbers with the same bits on all machines: elementary functions and random streams.

The C library computes elementary functions one number at a time: NumPy's results depend on the instruction set. Each draw of
a stream depends only on (seed, purpose, entity, position), never on event order.

Results that are too large become infinity.

The generator is Philox4x32-10 [Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"], vectorised in
NumPy integers. So draws can be repeated in any order, and another worker or plot does not change existing draws.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray


def _elementwise(function: Callable[..., float], arguments: int) -> Callable[..., NDArray[np.float64]]:
    """Return a function of arrays that applies a function of this number of arguments to their elements."""

    def or_infinity(*x: float) -> float:
        try:
            return function(*x)
        except OverflowError:
            return math.inf

    vectorized, vectorized_or_infinity = np.frompyfunc(function, arguments, 1), np.frompyfunc(or_infinity, arguments, 1)

    def elementwise(*x: ArrayLike) -> NDArray[np.float64]:
        try:
            return np.asarray(vectorized(*x), np.float64)
        except OverflowError:
            return np.asarray(vectorized_or_infinity(*x), np.float64)  # three times as slow

    return elementwise


cos = _elementwise(math.cos, 1)
exp = _elementwise(math.exp, 1)
log = _elementwise(math.log, 1)
log1p = _elementwise(math.log1p, 1)
power = _elementwise(math.pow, 2)


_ROUNDS = 10
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)
_LANES = 4  # 32-bit words per counter
_SMALLEST_BLOCK, _LARGEST_BLOCK = 64, 1024  # block sizes of draws that are taken one by one


def philox(key: tuple[int, int], *counter: ArrayLike) -> NDArray[np.uint64]:
    """Return four 32-bit words for each counter, in the broadcast shape of the counter's words + [4].

    Args:
        key: two 32-bit words.
        counter: one to four 32-bit words, as arrays that are broadcast against each other; missing words are 0.

        >>> from fred.base import numerics
        >>> [hex(word) for word in numerics.philox((0, 0), 0).tolist()]  # as in Random123's known answers
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    x0, x1, x2, x3 = np.broadcast_arrays(*(np.asarray(word, np.uint64) for word in (*counter, 0, 0, 0, 0)[:4]))
    for i in range(_ROUNDS):
        key0 = np.uint64((key[0] + i * _WEYL_0) & 0xFFFFFFFF)
        key1 = np.uint64((key[1] + i * _WEYL_1) & 0xFFFFFFFF)
        product0, product1 = x0 * _MULTIPLIER_0, x2 * _MULTIPLIER_1
        x0, x1, x2, x3 = (product1 >> _WORD) ^ x1 ^ key0, product1 & _LOW, (product0 >> _WORD) ^ x3 ^ key1, product0 & _LOW
    return np.stack((x0, x1, x2, x3), axis=-1)


@cache
def stream_key(seed: int, purpose: str) -> tuple[int, int]:
    """Return the Philox key of a named stream: the first 64 bits of SHA-256(seed, purpose).

    Args:
        seed: seed of the run.
        purpose: name of the stream, such as "latency".
    """
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def words(seed: int, purpose: str, entity: ArrayLike, position: ArrayLike) -> NDArray[np.uint64]:
    """Return one 32-bit word for each (entity, position), which are broadcast against each other.

    Args:
        seed: seed of the run.
        purpose: name of the stream.
        entity: number of the entity, such as a worker.
        position: index of the entity's draw, from 0.

        >>> from fred.base import numerics
        >>> several = numerics.words(0, "example", [[0], [1]], [0, 5, 9])
        >>> several.shape, int(several[1, 2]) == int(numerics.words(0, "example", 1, 9))
        ((2, 3), True)
    """
    position = np.asarray(position, np.uint64)
    block = philox(stream_key(seed, purpose), position // _LANES, entity)
    lane = np.broadcast_to(position % _LANES, block.shape[:-1]).astype(np.intp)
    return np.take_along_axis(block, lane[..., None], axis=-1)[..., 0]


def word_runs(seed: int, purpose: str, entity: ArrayLike, start: ArrayLike, count: int) -> NDArray[np.uint64]:
    """Return `words` at positions start .. start + count - 1, in the broadcast shape of `entity` and `start` + [count].

    It is fast if all `start` and `count` are multiples of four.

    Args:
        seed: seed of the run.
        purpose: name of the stream.
        entity: number of the entity.
        start: first position, broadcast against `entity`.
        count: number of consecutive draws.
    """
    start, entity = np.asarray(start, np.uint64)[..., None], np.asarray(entity, np.uint64)[..., None]
    if count % _LANES or (start % _LANES).any():
        return words(seed, purpose, entity, start + np.arange(count, dtype=np.uint64))
    blocks = philox(stream_key(seed, purpose), start // _LANES + np.arange(count // _LANES, dtype=np.uint64), entity)
    return blocks.reshape(*blocks.shape[:-2], count)


def uniforms(seed: int, purpose: str, entity: ArrayLike, start: int, count: int) -> NDArray[np.float64]:
    """Return draws start .. start + count - 1 of each entity, strictly inside (0, 1), in the shape of `entity` + [count].

    Args:
        seed: seed of the run.
        purpose: name of the stream.
        entity: number of the entity.
        start: index of the first draw.
        count: number of draws.

    Draws do not depend on how they are requested:

        >>> from fred.base import numerics
        >>> at_once = numerics.uniforms(0, "example", [0, 1], start=0, count=6)
        >>> later = numerics.uniforms(0, "example", 1, start=4, count=2)
        >>> at_once.shape, at_once[1, 4:].tolist() == later.tolist()
        ((2, 6), True)
    """
    # A draw has 26 bits of each of two words, so a counter gives two draws. With 52 bits, adding a half is exact, and the
    # result is never 0 or 1, at which quantile functions may be infinite. A mantissa of 53 bits could be rounded up to 1.
    first, last = start // 2, (start + count + 1) // 2
    entity = np.asarray(entity, np.uint64)
    block = philox(stream_key(seed, purpose), np.arange(first, last, dtype=np.uint64), entity[..., None])
    mantissa = (block[..., 0::2] >> np.uint64(6)) << np.uint64(26) | block[..., 1::2] >> np.uint64(6)  # 52 bits
    draws = ((mantissa.astype(np.float64) + 0.5) * 2.0**-52).reshape(*entity.shape, -1)
    return draws[..., start - 2 * first :][..., :count]


def iterate_uniforms(seed: int, purpose: str, entity: int = 0) -> Iterator[float]:
    """Yield an entity's draws, strictly inside (0, 1), without end.

    Args:
        seed: seed of the run.
        purpose: name of the stream.
        entity: number of the entity.

        >>> from itertools import islice
        >>> from fred.base import numerics
        >>> list(islice(numerics.iterate_uniforms(0, "example"), 5)) == numerics.uniforms(0, "example", 0, 0, 5).tolist()
        True
    """
    position, count = 0, _SMALLEST_BLOCK
    while True:
        yield from uniforms(seed, purpose, entity, position, count).tolist()
        position, count = position + count, min(2 * count, _LARGEST_BLOCK)
