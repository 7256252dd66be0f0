"""Asynchronous local SGD with momentum: Delayed Nesterov and HeLoCo.

| name             | source                                                                                                  |
|------------------|---------------------------------------------------------------------------------------------------------|
| heloco           | "HeLoCo" 2026, arXiv:2606.00271                                                                         |
| delayed-nesterov | Liu et al. 2024, "Asynchronous local-SGD training for language modeling", arXiv:2401.09135, algorithm 3 |

Delayed Nesterov updates the momentum with N pseudo-gradients together. HeLoCo rotates pseudo-gradients towards the server's
momentum.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fred.base.imports import jax, jnp
from fred.components.component import Count, Fraction
from fred.learning.models.model import Params
from fred.learning.server import Decay, Family, Message, Rate, Scalar, Server, State


class DelayedNesterov(Server):
    """Asynchronous DiLoCo with delayed momentum: plain steps with each pseudo-gradient, momentum with every N-th only.

    With N = 1 it is SGD with Nesterov momentum. The protocol's `paced` is DyLU: local steps in proportion to a worker's speed.
    Two pseudo-gradients of 1, N = 2, rate 1, momentum 0.5: a step of 0.5, then one of 0.5 and the momentum.

        >>> from fred.systems.delayed_nesterov import DelayedNesterov
        >>> import jax.numpy as jnp
        >>> server = DelayedNesterov(learning_rate=0.1, outer_rate=1.0, momentum=0.5)
        >>> state, values = server.init({"w": jnp.array([4.0])}, workers=2), []
        >>> for _ in range(2):
        ...     state = server.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=1)
        ...     values += state.params["w"].tolist()
        >>> values
        [3.5, 2.5]
    """

    name = "delayed-nesterov"
    family = Family.ANSWERED
    rule = """\
w_i <- w_i - step(g_i)                 (H times, from w on)
w <- w - outer_rate (D / N + s mu b)   (D = w when it was read - w_i, as it arrives; s = c)
b <- mu b + mean of the last N D       (with every N-th, before the step; then s = 1 - c N + c)"""
    protocol = "buffered"
    protocol_options = {"buffer": 1}

    outer_rate: Rate = Field(default=0.7, description="learning rate of the server's steps")
    momentum: Decay = Field(default=0.9, description="mu: decay of the momentum")
    gathered: Count | None = Field(
        default=None, description="N: pseudo-gradients per update of the momentum; absent: the number of workers"
    )
    spread: Fraction = Field(
        default=0.0, description="c: share of the momentum's step in each update but every N-th; at most 1 / (N - 1)"
    )

    def check(self, workers: int) -> None:
        for number in self._numbers(workers):
            if self.spread * (number - 1) > 1 + 1e-9:
                raise ValueError(
                    f"`spread` ({self.spread:g}) must not exceed 1 / (N - 1), {1 / (number - 1):.4g} with N = {number} "
                    "pseudo-gradients per change: every N-th step would go against the momentum"
                )

    def _numbers(self, workers: int) -> tuple[int, ...]:
        """Return N of each kind of server."""
        return (self.gathered or workers,)

    def init(self, params: Params, /, workers: int) -> State:
        zeros = jax.tree.map(jnp.zeros_like, params)
        state = super().init(params, workers).replace(speed=zeros, waiting=zeros, arrived=jnp.int32(0))
        # Constants in the state, as HALoS's global server has others than its local ones.
        return state.replace(
            every=jnp.int32(self.gathered or workers),
            outer_rate=jnp.float32(self.outer_rate),
            momentum=jnp.float32(self.momentum),
        )

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with `total`, one pseudo-gradient; with every N-th, first update the momentum b (`speed`) by the last N."""
        n, is_nth = jnp.float32(state.every), (state.arrived + 1) % state.every == 0
        waiting = jax.tree.map(jnp.add, state.waiting, total)  # sum of the pseudo-gradients since the last update of b
        speed = jax.tree.map(lambda b, d: jnp.where(is_nth, state.momentum * b + d / n, b), state.speed, waiting)
        factor = jnp.where(is_nth, 1 - self.spread * (n - 1), self.spread) * state.momentum  # s mu
        params = jax.tree.map(lambda p, b, d: p - state.outer_rate * (factor * b + d / n), state.params, speed, total)
        waiting = jax.tree.map(lambda d: jnp.where(is_nth, 0.0, d), waiting)
        counts = {"clock": state.clock + 1, "arrived": state.arrived + 1}
        return state.replace(params=params, speed=speed, waiting=waiting, **counts)


class HeLoCo(Server):
    """Asynchronous DiLoCo that rotates stale pseudo-gradients towards the server momentum, per array, before applying them.

    Pseudo-gradients well aligned with the momentum are applied unchanged. Opposing ones lose part of their opposing component.
    All others are rotated and keep their length. The defaults are guesses: the paper's constants were not found.

    The momentum is (1, 0); pseudo-gradients point along it, across it and against it:

        >>> from fred.systems.delayed_nesterov import HeLoCo
        >>> import jax.numpy as jnp
        >>> server = HeLoCo(learning_rate=0.1, outer_rate=1.0, momentum=0.0)
        >>> state = server.init({"w": jnp.zeros(2)}, workers=2).replace(speed={"w": jnp.array([1.0, 0.0])})
        >>> for way in ([1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]):
        ...     [round(float(value), 2) for value in server.contribute(state, {"w": jnp.array(way)}, 0, worker=0)["w"]]
        [1.0, 0.0]
        [0.24, 0.97]
        [-0.59, 1.0]
    """

    name = "heloco"
    family = Family.ANSWERED
    rule = """\
w_i <- w_i - step(g_i)                    (H times, from w on)
c = cos(D, m),  f = |D| / (|D| + |m|)     (D = w when it was read - w_i, as it arrives)
D <- D, if c >= c_ok; D less min(k_s (-c) f, b_max) of its part along m, if c < 0;
     |D| unit((1 - l) unit(D) + l unit(m)), l = min(k_d (1 - c) f, 1), otherwise
m <- mu m + (1 - mu) D;  w <- w - outer_rate (D + mu m)"""
    protocol = "buffered"
    protocol_options = {"buffer": 1}

    outer_rate: Rate = Field(default=0.7, description="learning rate of the server's steps")
    momentum: Decay = Field(default=0.9, description="mu: decay of the momentum")
    agreeing: Fraction = Field(
        default=0.5, description="c_ok: cosine with the momentum from which a pseudo-gradient is applied unchanged"
    )
    turn: Annotated[float, Field(ge=0)] = Field(default=0.4, description="k_d: strength of the rotation")
    shrink: Annotated[float, Field(ge=0)] = Field(
        default=1.0, description="k_s: strength of the removal of the opposing component"
    )
    most: Fraction = Field(default=1.0, description="b_max: largest share of the opposing component that is removed")

    def init(self, params: Params, /, workers: int) -> State:
        return super().init(params, workers).replace(speed=jax.tree.map(jnp.zeros_like, params))

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a pseudo-gradient, corrected."""
        return jax.tree.map(self._correct, message, state.speed)

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with `total`, a corrected pseudo-gradient, and the momentum updated by it."""
        speed = jax.tree.map(lambda m, d: self.momentum * m + (1 - self.momentum) * d, state.speed, total)
        params = jax.tree.map(lambda p, d, m: p - self.outer_rate * (d + self.momentum * m), state.params, total, speed)
        return state.replace(params=params, speed=speed, clock=state.clock + 1)

    def _correct(self, pseudo_gradient: jax.Array, momentum: jax.Array) -> jax.Array:
        """Return an array of the corrected pseudo-gradient D, given that of the momentum m; see `rule` for c, f and l."""
        d_norm, m_norm = _norm(pseudo_gradient), _norm(momentum)
        d_unit, m_unit = pseudo_gradient / jnp.where(d_norm > 0, d_norm, 1.0), momentum / jnp.where(m_norm > 0, m_norm, 1.0)
        c, f = (d_unit * m_unit).sum(), d_norm / jnp.where(d_norm + m_norm > 0, d_norm + m_norm, 1.0)
        shrunk = pseudo_gradient - jnp.minimum(-self.shrink * c * f, self.most) * c * d_norm * m_unit
        share = jnp.minimum(self.turn * (1 - c) * f, 1.0)  # l
        direction = (1 - share) * d_unit + share * m_unit
        norm = _norm(direction)
        rotated = d_norm * direction / jnp.where(norm > 0, norm, 1.0)
        corrected = jnp.where(c < 0, shrunk, jnp.where(c >= self.agreeing, pseudo_gradient, rotated))
        return jnp.where(m_norm > 0, corrected, pseudo_gradient)  # before the first update there is no momentum


def _norm(array: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.square(array).sum())
