"""Initial weights, bit-identical to those of `jax.random` and `jax.nn.initializers`, without a program for each shape.

jax compiles a program for each shape, which takes longer than a small run. A draw depends only on its key and position
(`jax_threefry_partitionable`). So NumPy computes the random words as integers, and one program of fixed size converts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.base.later import jax, jnp
from fred.learning.keys import plain, threefry, words_of

_PLACES = 1 << 14  # draws at a time
_TRUNCATED = np.float32(2)  # standard deviations
_WITHIN = np.float32(0.9544997)  # erf(2 / sqrt(2)): probability within the truncation
_OF_TRUNCATED = np.float32(0.87962566103423978)  # standard deviation of the truncated normal distribution, as jax has it

Draw = Callable[[Any, tuple[int, ...]], Any]  # maps a key and a shape to a float32 array


def normal(key: jax.Array, shape: tuple[int, ...]) -> Any:
    """Return `jax.random.normal(key, shape)`.

    Args:
        key: a JAX random key.
        shape: shape of the result.

        >>> bool((normal(jax.random.key(0), (3, 5)) == jax.random.normal(jax.random.key(0), (3, 5))).all())
        True
    """
    return _drawn(key, shape, truncated=False) if plain(key) else jax.random.normal(key, shape)


def scaled(of: Callable[[float, float], float]) -> Draw:
    """Return an initialiser of weights [inputs, outputs] from a normal distribution truncated at two standard deviations.

    Args:
        of: function that returns the variance, given the numbers of inputs and of outputs, as for `he_normal`.

        >>> he = scaled(lambda inputs, outputs: 2 / inputs)
        >>> bool((he(jax.random.key(0), (3, 5)) == jax.nn.initializers.he_normal()(jax.random.key(0), (3, 5))).all())
        True
    """

    def draw(key: jax.Array, shape: tuple[int, ...]) -> Any:
        deviation = np.sqrt(np.float32(of(*shape))) / _OF_TRUNCATED
        if not plain(key):
            return jax.random.truncated_normal(key, -_TRUNCATED, _TRUNCATED, shape) * deviation
        return _drawn(key, shape, truncated=True) * deviation

    return draw


def _drawn(key: jax.Array, shape: tuple[int, ...], truncated: bool) -> NDArray[np.float32]:
    size, own = math.prod(shape), words_of(key)
    result = np.empty(-(-size // _PLACES) * _PLACES, np.float32)
    for first in range(0, size, _PLACES):
        one, other = threefry(own, np.arange(first, first + _PLACES, dtype=np.uint32))
        with jax.ensure_compile_time_eval():
            result[first : first + _PLACES] = _program()(one ^ other, truncated)
    return result[:size].reshape(shape)


@cache
def _program() -> Any:
    """Return `_numbers`, compiled."""
    return jax.jit(_numbers)


def _numbers(words: jax.Array, truncated: jax.Array) -> jax.Array:
    """Convert uniform words to normal numbers, by the same operations as jax."""
    least = jnp.where(truncated, -_WITHIN, np.nextafter(np.float32(-1), np.float32(0)))
    most = jnp.where(truncated, _WITHIN, np.float32(1))
    mantissa = jax.lax.bitcast_convert_type(words >> 9 | np.uint32(0x3F800000), jnp.float32) - np.float32(1)
    uniform = jnp.maximum(least, mantissa * (most - least) + least)
    found = np.float32(math.sqrt(2)) * jax.lax.erf_inv(uniform)
    end = jnp.where(truncated, np.nextafter(_TRUNCATED, np.float32(0)), np.float32(np.inf))
    return jnp.clip(found, -end, end)
