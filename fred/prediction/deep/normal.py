"""The normal distribution in 32 bits: its density, and its far tail, where dropped workers lie."""

import math

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import log_ndtr, ndtri

_FAR = 3.0  # from here on the inverse of the distribution function loses too many digits
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def log_density(y: Array, mean: Array, scale: Array) -> Array:
    """Return the log density of a normal variable."""
    return -0.5 * ((y - mean) / scale) ** 2 - jnp.log(scale) - _HALF_LOG_TWO_PI


def log_survival(y: Array, mean: Array, scale: Array) -> Array:
    """Return the log probability that a normal variable exceeds y."""
    return log_ndtr((mean - y) / scale)


def above(bound: Array, u: Array) -> Array:
    """Return the quantile 1 - u of a standard normal variable truncated to values above `bound`; u in (0, 1], any shape.

    Far out, Newton's method solves log sf(x) = log sf(bound) + log u. It starts from sqrt(bound^2 - 2 log u), which is
    exact for the leading term of the tail.
    """
    target = log_ndtr(-bound) + jnp.log(u)
    near = -ndtri(jnp.exp(jnp.maximum(target, -20.0)))
    x = jnp.sqrt(jnp.maximum(bound, 1.0) ** 2 - 2 * jnp.log(u))
    for _ in range(3):
        survival = log_ndtr(-x)
        x = x + (survival - target) * jnp.exp(survival + 0.5 * x * x + _HALF_LOG_TWO_PI)  # one over the hazard
    return jnp.maximum(jnp.where(target < log_ndtr(-_FAR), x, near), bound)
