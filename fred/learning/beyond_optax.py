"""What optax lacks: a schedule, and an average whose weights fall by a power [Sadiev et al. 2026, arXiv:2605.18174]."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax


def inverse_power_schedule(init_value: float = 1.0, power: float = 0.5) -> optax.Schedule:
    """Return the schedule init_value / (count + 1)^power.

    Args:
        init_value: at the first update, or gradient.
        power: of the number of updates, or gradients, this one included.

        >>> from fred.learning.beyond_optax import inverse_power_schedule
        >>> schedule = inverse_power_schedule(power=0.5)
        >>> [round(float(schedule(count)), 3) for count in (0, 3, 99)]
        [1.0, 0.5, 0.1]
    """

    def schedule(count: jax.typing.ArrayLike) -> jax.Array:
        return init_value * (jnp.asarray(count, jnp.float32) + 1) ** -power

    return schedule


class Averaged(NamedTuple):
    """What `inverse_power_ema` remembers: the number of its updates, and the average."""

    updates: jax.Array
    ema: optax.Updates


def inverse_power_ema(power: float = 0.5) -> optax.GradientTransformation:
    """Replace gradients by their moving average, in which the k-th, from k = 0 on, has the weight (k + 1)^-power when it comes.

    Args:
        power: 0: the last gradient alone; 1: the mean of all.

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
        own = weight(state.updates)
        ema = jax.tree.map(lambda mean, gradient: (1 - own) * mean + own * gradient, state.ema, updates)
        return ema, Averaged(optax.safe_increment(state.updates), ema)

    return optax.GradientTransformation(init, update)
