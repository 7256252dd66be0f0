"""Additions to optax: a schedule and a moving average with power-law weights [Sadiev et al. 2026, arXiv:2605.18174]."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax


def inverse_power_schedule(init_value: float = 1.0, power: float = 0.5) -> optax.Schedule:
    """Return the schedule init_value / (count + 1)^power.

    Args:
        init_value: value at the first update (or gradient), where count is 0.
        power: exponent of the number of updates (or gradients), including this one.

        >>> from fred.learning.beyond_optax import inverse_power_schedule
        >>> schedule = inverse_power_schedule(power=0.5)
        >>> [round(float(schedule(count)), 3) for count in (0, 3, 99)]
        [1.0, 0.5, 0.1]
    """

    def schedule(count: jax.typing.ArrayLike) -> jax.Array:
        return init_value * (jnp.asarray(count, jnp.float32) + 1) ** -power

    return schedule


class Averaged(NamedTuple):
    """State of `inverse_power_ema`: the number of updates and the moving average."""

    updates: jax.Array
    ema: optax.Updates


def inverse_power_ema(power: float = 0.5) -> optax.GradientTransformation:
    """Replace each gradient by the moving average of all gradients so far.

    The k-th gradient, counted from 0, enters the average with weight (k + 1)^-power.

    Args:
        power: exponent of the weights. 0 gives the last gradient alone, 1 the mean of all gradients.

        >>> import jax.numpy as jnp
        >>> from fred.learning.beyond_optax import inverse_power_ema
        >>> mean = inverse_power_ema(power=1.0)
        >>> state = mean.init(jnp.zeros(()))
        >>> for gradient in (1.0, 2.0, 6.0):
        ...     average, state = mean.update(jnp.asarray(gradient), state)
        ...     print(round(float(average), 3))
        1.0
        1.5
        3.0
    """
    weight = inverse_power_schedule(power=power)

    def init(params: optax.Params) -> Averaged:
        return Averaged(jnp.zeros([], jnp.int32), jax.tree.map(jnp.zeros_like, params))

    def update(updates: optax.Updates, state: Averaged, params: optax.Params | None = None) -> tuple[optax.Updates, Averaged]:
        newest = weight(state.updates)
        ema = jax.tree.map(lambda mean, gradient: (1 - newest) * mean + newest * gradient, state.ema, updates)
        return ema, Averaged(optax.safe_increment(state.updates), ema)

    return optax.GradientTransformation(init, update)
