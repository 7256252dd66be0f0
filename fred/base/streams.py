"""Named counter-based random streams: every draw is a function of (seed, purpose, entity, position), never of event order.

Philox4x32-10 [Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"], vectorised in NumPy integers,
so the same draw costs nothing to repeat, and adding a worker or a plot moves nobody else's draws.
"""

import hashlib
from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

_ROUNDS = 10
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)
_LANES = 4  # 32-bit words per counter
_FEWEST, _MOST = 64, 1024  # draws that are made together where they are taken one by one


def philox(key: tuple[int, int], *counter: ArrayLike) -> NDArray[np.uint64]:
    """Four 32-bit words for each counter of up to four 32-bit words: the counter words' broadcast shape + [4].

    Args:
        key: two 32-bit words.
        counter: one to four 32-bit words, arrays that are broadcast against each other; those left out are 0.

        >>> from fred.base import streams
        >>> [hex(word) for word in streams.philox((0, 0), 0).tolist()]  # as in Random123's known answers
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
    """The Philox key of one named stream: the first 64 bits of SHA-256(seed, purpose).

    Args:
        seed: of the run.
        purpose: a name, such as "latency".
    """
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def words(seed: int, purpose: str, entity: ArrayLike, position: ArrayLike) -> NDArray[np.uint64]:
    """One 32-bit word per (entity, position), broadcast against each other.

    Args:
        seed: of the run.
        purpose: of the stream.
        entity: whose draw: a worker's number, for example.
        position: which of its draws, from 0.

        >>> from fred.base import streams
        >>> several = streams.words(0, "example", [[0], [1]], [0, 5, 9])
        >>> several.shape, int(several[1, 2]) == int(streams.words(0, "example", 1, 9))
        ((2, 3), True)
    """
    position = np.asarray(position, np.uint64)
    block = philox(stream_key(seed, purpose), position // _LANES, entity)
    lane = np.broadcast_to(position % _LANES, block.shape[:-1]).astype(np.intp)
    return np.take_along_axis(block, lane[..., None], axis=-1)[..., 0]


def word_runs(seed: int, purpose: str, entity: ArrayLike, start: ArrayLike, count: int) -> NDArray[np.uint64]:
    """`words` at positions start .. start + count - 1, quickly if all runs begin and end at multiples of four: + [count].

    Args:
        seed: of the run.
        purpose: of the stream.
        entity: whose draws.
        start: the first position of each, broadcast against `entity`.
        count: draws in a row.
    """
    start, entity = np.asarray(start, np.uint64)[..., None], np.asarray(entity, np.uint64)[..., None]
    if count % _LANES or (start % _LANES).any():
        return words(seed, purpose, entity, start + np.arange(count, dtype=np.uint64))
    blocks = philox(stream_key(seed, purpose), start // _LANES + np.arange(count // _LANES, dtype=np.uint64), entity)
    return blocks.reshape(*blocks.shape[:-2], count)


def uniforms(seed: int, purpose: str, entity: ArrayLike, start: int, count: int) -> NDArray[np.float64]:
    """Draws start .. start + count - 1 of each entity's stream, strictly inside (0, 1): shape of `entity` + [count].

    Args:
        seed: of the run.
        purpose: of the stream.
        entity: whose draws.
        start: the first of them.
        count: how many.

    However they are asked for, they are the same ones:

        >>> from fred.base import streams
        >>> at_once = streams.uniforms(0, "example", [0, 1], start=0, count=6)
        >>> later = streams.uniforms(0, "example", 1, start=4, count=2)
        >>> at_once.shape, at_once[1, 4:].tolist() == later.tolist()
        ((2, 6), True)
    """
    first, last = start // 2, (start + count + 1) // 2
    entity = np.asarray(entity, np.uint64)
    block = philox(stream_key(seed, purpose), np.arange(first, last, dtype=np.uint64), entity[..., None])
    mantissa = (block[..., 0::2] >> np.uint64(6)) << np.uint64(26) | block[..., 1::2] >> np.uint64(6)  # 52 bits
    draws = ((mantissa.astype(np.float64) + 0.5) * 2.0**-52).reshape(*entity.shape, -1)
    return draws[..., start - 2 * first :][..., :count]


def one_by_one(seed: int, purpose: str, entity: int = 0) -> Iterator[float]:
    """Yield an entity's draws, strictly inside (0, 1), without end.

    Args:
        seed: of the run.
        purpose: of the stream.
        entity: whose draws.

        >>> from itertools import islice
        >>> from fred.base import streams
        >>> list(islice(streams.one_by_one(0, "example"), 5)) == streams.uniforms(0, "example", 0, 0, 5).tolist()
        True
    """
    position, count = 0, _FEWEST
    while True:
        yield from uniforms(seed, purpose, entity, position, count).tolist()
        position, count = position + count, min(2 * count, _MOST)
