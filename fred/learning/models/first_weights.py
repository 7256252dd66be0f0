"""First weights: what `jax.random` and `jax.nn.initializers` draw of a key, bit for bit, without a program for each shape.

jax compiles its drawing anew for each shape, which takes longer than a small run. Draws are functions of key and place alone
(`jax_threefry_partitionable`), so NumPy's integers make their words, and one program of a fixed size makes numbers of these.
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
_WITHIN = np.float32(0.9544997)  # erf(2 / sqrt(2)): the share of the normal distribution that is left
_OF_TRUNCATED = np.float32(0.87962566103423978)  # standard deviation of what is left, as jax has it

Draw = Callable[[Any, tuple[int, ...]], Any]  # of a key and a shape: an array, float32


def normal(key: jax.Array, shape: tuple[int, ...]) -> Any:
    """`jax.random.normal(key, shape)`.

    Args:
        key: of JAX's random numbers.
        shape: of what is drawn.

        >>> bool((normal(jax.random.key(0), (3, 5)) == jax.random.normal(jax.random.key(0), (3, 5))).all())
        True
    """
    return _drawn(key, shape, truncated=False) if plain(key) else jax.random.normal(key, shape)


def scaled(of: Callable[[float, float], float]) -> Draw:
    """Normal distributions cut off at two standard deviations, as `he_normal` and its like draw weights of [inputs, outputs].

    Args:
        of: the variance, of the numbers of inputs and of outputs.

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
    """Numbers with a normal distribution of equally distributed words, by jax's own steps."""
    least = jnp.where(truncated, -_WITHIN, np.nextafter(np.float32(-1), np.float32(0)))
    most = jnp.where(truncated, _WITHIN, np.float32(1))
    mantissa = jax.lax.bitcast_convert_type(words >> 9 | np.uint32(0x3F800000), jnp.float32) - np.float32(1)
    uniform = jnp.maximum(least, mantissa * (most - least) + least)
    found = np.float32(math.sqrt(2)) * jax.lax.erf_inv(uniform)
    end = jnp.where(truncated, np.nextafter(_TRUNCATED, np.float32(0)), np.float32(np.inf))
    return jnp.clip(found, -end, end)
