"""Named counter-based random streams: every draw is a function of (seed, purpose, entity, position), never of event order.

Philox4x32-10 [Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"], vectorised in NumPy integers,
so the same draw costs nothing to repeat, and adding a worker or a plot moves nobody else's draws.
"""

import hashlib
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

_ROUNDS = 10
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)
_LANES = 4  # 32-bit words per counter


def philox(key: tuple[int, int], *counter: ArrayLike) -> NDArray[np.uint64]:
    """Four 32-bit words for each counter of up to four 32-bit words: the counter words' broadcast shape + [4]."""
    x0, x1, x2, x3 = np.broadcast_arrays(*(np.asarray(word, np.uint64) for word in (*counter, 0, 0, 0, 0)[:4]))
    for i in range(_ROUNDS):
        key0 = np.uint64((key[0] + i * _WEYL_0) & 0xFFFFFFFF)
        key1 = np.uint64((key[1] + i * _WEYL_1) & 0xFFFFFFFF)
        product0, product1 = x0 * _MULTIPLIER_0, x2 * _MULTIPLIER_1
        x0, x1, x2, x3 = (product1 >> _WORD) ^ x1 ^ key0, product1 & _LOW, (product0 >> _WORD) ^ x3 ^ key1, product0 & _LOW
    return np.stack((x0, x1, x2, x3), axis=-1)


@cache
def stream_key(seed: int, purpose: str) -> tuple[int, int]:
    """The Philox key of one named stream: the first 64 bits of SHA-256(seed, purpose)."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def words(seed: int, purpose: str, entity: ArrayLike, position: ArrayLike) -> NDArray[np.uint64]:
    """One 32-bit word per (entity, position), broadcast against each other.

    Args:
        seed: the run's.
        purpose: names the stream.
        entity: numbers below 2**32.
        position: numbers from 0.

    Example: draws do not depend on what else is asked for.
        >>> one, several = words(0, "minibatch", 3, 7), words(0, "minibatch", [[2], [3]], np.arange(8))
        >>> int(one) == int(several[1, 7]), several.shape
        (True, (2, 8))
    """
    position = np.asarray(position, np.uint64)
    block = philox(stream_key(seed, purpose), position // _LANES, entity)
    lane = np.broadcast_to(position % _LANES, block.shape[:-1]).astype(np.intp)
    return np.take_along_axis(block, lane[..., None], axis=-1)[..., 0]


def word_runs(seed: int, purpose: str, entity: ArrayLike, start: ArrayLike, count: int) -> NDArray[np.uint64]:
    """`words` at positions start .. start + count - 1, quickly if all runs begin and end at multiples of four: + [count].

    >>> word_runs(0, "minibatch", [2, 3], 4, 8).tolist() == words(0, "minibatch", [[2], [3]], 4 + np.arange(8)).tolist()
    True
    """
    start, entity = np.asarray(start, np.uint64)[..., None], np.asarray(entity, np.uint64)[..., None]
    if count % _LANES or (start % _LANES).any():
        return words(seed, purpose, entity, start + np.arange(count, dtype=np.uint64))
    blocks = philox(stream_key(seed, purpose), start // _LANES + np.arange(count // _LANES, dtype=np.uint64), entity)
    return blocks.reshape(*blocks.shape[:-2], count)


def uniforms(seed: int, purpose: str, entity: ArrayLike, start: int, count: int) -> NDArray[np.float64]:
    """Draws start .. start + count - 1 of each entity's stream, strictly inside (0, 1): shape of `entity` + [count].

    >>> draws = uniforms(0, "compute", np.arange(1000), 0, 100)
    >>> draws.shape, round(float(draws.mean()), 2), bool(0 < draws.min() and draws.max() < 1)
    ((1000, 100), 0.5, True)
    >>> uniforms(0, "compute", 5, 10, 2).tolist() == draws[5, 10:12].tolist()
    True
    """
    first, last = start // 2, (start + count + 1) // 2
    entity = np.asarray(entity, np.uint64)
    block = philox(stream_key(seed, purpose), np.arange(first, last, dtype=np.uint64), entity[..., None])
    mantissa = (block[..., 0::2] >> np.uint64(6)) << np.uint64(26) | block[..., 1::2] >> np.uint64(6)  # 52 bits
    draws = ((mantissa.astype(np.float64) + 0.5) * 2.0**-52).reshape(*entity.shape, -1)
    return draws[..., start - 2 * first :][..., :count]
