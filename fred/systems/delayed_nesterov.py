"""Delayed Nesterov: momentum of N pseudo-gradients together.

| name             | source                                                                                                  |
|------------------|---------------------------------------------------------------------------------------------------------|
| delayed-nesterov | Liu et al. 2024, "Asynchronous local-SGD training for language modeling", arXiv:2401.09135, algorithm 3 |
"""

from __future__ import annotations

from pydantic import Field

from fred.base.later import jax, jnp
from fred.components.component import Count
from fred.learning.models.model import Params
from fred.learning.server import Decay, Family, Message, Rate, Scalar, Server, Share, State


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
    spread: Share = Field(
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
        return state.replace(
            every=jnp.int32(self.gathered or workers),
            outer_rate=jnp.float32(self.outer_rate),
            momentum=jnp.float32(self.momentum),
        )

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with `total`, one pseudo-gradient."""
        every, last = jnp.float32(state.every), (state.arrived + 1) % state.every == 0
        waiting = jax.tree.map(jnp.add, state.waiting, total)
        speed = jax.tree.map(lambda b, d: jnp.where(last, state.momentum * b + d / every, b), state.speed, waiting)
        share = jnp.where(last, 1 - self.spread * (every - 1), self.spread) * state.momentum
        params = jax.tree.map(lambda p, b, d: p - state.outer_rate * (share * b + d / every), state.params, speed, total)
        waiting = jax.tree.map(lambda d: jnp.where(last, 0.0, d), waiting)
        counts = {"clock": state.clock + 1, "arrived": state.arrived + 1}
        return state.replace(params=params, speed=speed, waiting=waiting, **counts)
