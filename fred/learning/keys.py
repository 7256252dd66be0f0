"""Keys for JAX's random numbers, bit-identical to those of `jax.random`.

They are computed in NumPy, because JAX would compile a program for each number of keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.base.later import jax

DRAWN_BY = "threefry2x32"  # jax's name for the generator of all of FRED's keys
Words = NDArray[np.uint32]
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_WORD = 0xFFFFFFFF


def key_of(seed: int) -> jax.Array:
    """Return `jax.random.key(seed)`, as jax makes it in FRED's numeric environment.

    Args:
        seed: seed of a run; only its lowest 32 bits are used.

        >>> jax.random.key_data(key_of(7)).tolist() == jax.random.key_data(jax.random.key(7)).tolist()
        True
    """
    return _key(np.array([0, seed & _WORD], np.uint32))


def split(key: jax.Array, number: int = 2) -> list[jax.Array]:
    """Return the keys of `jax.random.split(key, number)`, as a list.

    Args:
        key: a JAX random key.
        number: number of new keys.

        >>> one, other = (each(jax.random.key(0), 3)[2] for each in (split, jax.random.split))
        >>> jax.random.key_data(one).tolist() == jax.random.key_data(other).tolist()
        True
    """
    if not plain(key):
        return list(jax.random.split(key, number))
    return [_key(words) for words in np.stack(threefry(words_of(key), np.arange(number, dtype=np.uint32)), axis=-1)]


def plain(key: jax.Array) -> bool:
    """Return True if a key is a single concrete key of FRED's generator, so that NumPy can compute with it.

    Return False while JAX traces, and for keys of other generators, which a user's code may pass.

    Args:
        key: any JAX random key.
    """
    config: Any = jax.config
    if isinstance(key, jax.core.Tracer) or not config.jax_threefry_partitionable:
        return False
    return key.shape == () and str(jax.random.key_impl(key)) == DRAWN_BY


def words_of(key: jax.Array) -> tuple[int, int]:
    """Return the two 32-bit words of a key.

    Args:
        key: a key for which `plain` is True.
    """
    with jax.ensure_compile_time_eval():  # a concrete key can be read while something else is traced
        first, second = np.asarray(jax.random.key_data(key)).tolist()
    return first, second


def threefry(words: tuple[int, int], places: Words) -> tuple[Words, Words]:
    """Return two words for each counter (0, place), by Threefry-2x32 with 20 rounds [Salmon, Moraes, Dror & Shaw 2011].

    Args:
        words: the two words of a key.
        places: counters, an array of any shape.
    """
    keys = *words, words[0] ^ words[1] ^ _PARITY
    x = np.full_like(places, keys[0])
    y = places + np.uint32(keys[1])
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x += y
            y = (y << np.uint32(rotation) | y >> np.uint32(32 - rotation)) ^ x
        x += np.uint32(keys[(block + 1) % 3])
        y += np.uint32((keys[(block + 2) % 3] + block + 1) & _WORD)
    return x, y


def _key(words: Words) -> jax.Array:
    with jax.ensure_compile_time_eval():
        return jax.random.wrap_key_data(jax.device_put(words), impl=DRAWN_BY)
