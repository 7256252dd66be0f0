"""Random keys and initial weights, bit-identical to those of `jax.random` and `jax.nn.initializers`, with fewer programs.

JAX compiles a program for each number of keys and for each shape of weights, which takes longer than a small run. So NumPy
computes the keys. A draw depends only on its key and position (`jax_threefry_partitionable`). So NumPy also computes the random
words, as integers, and one program of fixed size converts them to normal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.base.imports import jax, jnp

GENERATOR = "threefry2x32"  # jax's name for the generator of all of FRED's keys
Words = NDArray[np.uint32]
Draw = Callable[[Any, tuple[int, ...]], Any]  # maps a key and a shape to a float32 array
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_WORD = 0xFFFFFFFF
_PLACES = 1 << 14  # draws at a time
_TRUNCATED = np.float32(2)  # standard deviations
_COVERAGE = np.float32(0.9544997)  # erf(2 / sqrt(2)): probability within the truncation
_TRUNCATED_DEVIATION = np.float32(0.87962566103423978)  # standard deviation of the truncated normal distribution, as jax has it


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

        >>> ours, jaxs = (function(jax.random.key(0), 3)[2] for function in (split, jax.random.split))
        >>> jax.random.key_data(ours).tolist() == jax.random.key_data(jaxs).tolist()
        True
    """
    if not is_concrete(key):
        return list(jax.random.split(key, number))
    return [_key(words) for words in np.stack(threefry(words_of(key), np.arange(number, dtype=np.uint32)), axis=-1)]


def is_concrete(key: jax.Array) -> bool:
    """Return True if a key is a single concrete key of FRED's generator, so that NumPy can compute with it.

    Return False while JAX traces, and for keys of other generators, which a user's code may pass.

    Args:
        key: any JAX random key.
    """
    config: Any = jax.config
    if isinstance(key, jax.core.Tracer) or not config.jax_threefry_partitionable:
        return False
    return key.shape == () and str(jax.random.key_impl(key)) == GENERATOR


def words_of(key: jax.Array) -> tuple[int, int]:
    """Return the two 32-bit words of a key.

    Args:
        key: a key for which `is_concrete` is True.
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
    keys = *words, words[0] ^ words[1] ^ _PARITY  # the key schedule: after every four rounds, two of them are added
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
        return jax.random.wrap_key_data(jax.device_put(words), impl=GENERATOR)


def normal(key: jax.Array, shape: tuple[int, ...]) -> Any:
    """Return `jax.random.normal(key, shape)`.

    Args:
        key: a JAX random key.
        shape: shape of the result.

        >>> bool((normal(jax.random.key(0), (3, 5)) == jax.random.normal(jax.random.key(0), (3, 5))).all())
        True
    """
    return _draw_normal(key, shape, truncated=False) if is_concrete(key) else jax.random.normal(key, shape)


def scaled(variance: Callable[[float, float], float]) -> Draw:
    """Return an initialiser of weights [inputs, outputs] from a normal distribution truncated at two standard deviations.

    Args:
        variance: function that returns the variance, given the numbers of inputs and of outputs, as for `he_normal`.

        >>> he = scaled(lambda inputs, outputs: 2 / inputs)
        >>> bool((he(jax.random.key(0), (3, 5)) == jax.nn.initializers.he_normal()(jax.random.key(0), (3, 5))).all())
        True
    """

    def draw(key: jax.Array, shape: tuple[int, ...]) -> Any:
        deviation = np.sqrt(np.float32(variance(*shape))) / _TRUNCATED_DEVIATION
        if not is_concrete(key):
            return jax.random.truncated_normal(key, -_TRUNCATED, _TRUNCATED, shape) * deviation
        return _draw_normal(key, shape, truncated=True) * deviation

    return draw


def _draw_normal(key: jax.Array, shape: tuple[int, ...], truncated: bool) -> NDArray[np.float32]:
    size, key_words = math.prod(shape), words_of(key)
    result = np.empty(-(-size // _PLACES) * _PLACES, np.float32)
    for first in range(0, size, _PLACES):  # whole blocks, so that one compiled program fits all shapes
        words, more_words = threefry(key_words, np.arange(first, first + _PLACES, dtype=np.uint32))
        with jax.ensure_compile_time_eval():
            result[first : first + _PLACES] = _program()(words ^ more_words, truncated)  # jax's bits are the xor
    return result[:size].reshape(shape)


@cache
def _program() -> Any:
    """Return `_numbers`, compiled."""
    return jax.jit(_numbers)


def _numbers(words: jax.Array, truncated: jax.Array) -> jax.Array:
    """Convert uniform words to normal numbers, by the same operations as jax."""
    # As in `jax.random.uniform`, the upper 23 bits of a word are the mantissa of a number in [1, 2), less 1. The inverse error
    # function of a uniform number in (-1, 1), or in a narrower interval for a truncated distribution, times sqrt(2) is normal.
    # Any other formula for the same distribution gives other bits.
    low = jnp.where(truncated, -_COVERAGE, np.nextafter(np.float32(-1), np.float32(0)))
    high = jnp.where(truncated, _COVERAGE, np.float32(1))
    mantissa = jax.lax.bitcast_convert_type(words >> 9 | np.uint32(0x3F800000), jnp.float32) - np.float32(1)
    uniform = jnp.maximum(low, mantissa * (high - low) + low)
    numbers = np.float32(math.sqrt(2)) * jax.lax.erf_inv(uniform)
    end = jnp.where(truncated, np.nextafter(_TRUNCATED, np.float32(0)), np.float32(np.inf))
    return jnp.clip(numbers, -end, end)
