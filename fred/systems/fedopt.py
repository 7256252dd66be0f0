"""Adaptive federated optimization: FedAvg with an adaptive optimizer on the server.

| name    | source                                                                                                     |
|---------|------------------------------------------------------------------------------------------------------------|
| fedadam | Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan 2021, arXiv:2003.00295, algorithm 2         |
| fedyogi | Reddi et al. 2021, arXiv:2003.00295, algorithm 2                                                           |
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fred.base.later import jax, jnp
from fred.learning.models.model import Params
from fred.learning.server import Decay, Family, Message, Rate, Scalar, State
from fred.systems.fedavg import FedAvg


class FedAdam(FedAvg):
    """FedAvg with Adam on the server, which steps with the mean pseudo-gradient.

    As in the paper, moments have no bias correction. A first round with a mean pseudo-gradient of 1, without momentum: v
    becomes 0.5 x 1 + 0.5 x 1.

        >>> from fred.systems.fedopt import FedAdam
        >>> import jax.numpy as jnp
        >>> server = FedAdam(learning_rate=0.1, server_rate=0.5, beta_1=0.0, beta_2=0.5, tau=1.0)
        >>> state = server.init({"w": jnp.array([4.0])}, workers=2)
        >>> server.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=2).params["w"].tolist()
        [3.75]
    """

    name = "fedadam"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)    (H times, from w on);  D <- mean of w - w_i
m <- beta_1 m + (1 - beta_1) D;  v <- beta_2 v + (1 - beta_2) D D    (at first, v = tau^2)
w <- w - server_rate x m / (sqrt(v) + tau)"""
    protocol = "client-rounds"

    server_rate: Rate = Field(default=0.03, description="learning rate of the server's steps")
    beta_1: Decay = Field(default=0.9, description="decay of the first moment, the moving average of pseudo-gradients")
    beta_2: Decay = Field(default=0.99, description="decay of the second moment, the moving average of their squares")
    tau: Annotated[float, Field(gt=0)] = Field(
        default=1e-3, description="degree of adaptivity: added to the root of the second moment"
    )

    def init(self, params: Params, /, workers: int) -> State:
        first = jax.tree.map(jnp.zeros_like, params)
        second = jax.tree.map(lambda leaf: jnp.full_like(leaf, self.tau**2), params)
        return super().init(params, workers).replace(first=first, second=second)

    def second(self, moment: jax.Array, squares: jax.Array) -> jax.Array:
        """Return the second moment after a round.

        Args:
            moment: the second moment before it, in the shape of an array of parameters.
            squares: the squared mean pseudo-gradient, in the same shape.
        """
        return self.beta_2 * moment + (1 - self.beta_2) * squares

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with the moments of `total`, the mean pseudo-gradient."""
        first = jax.tree.map(lambda m, d: self.beta_1 * m + (1 - self.beta_1) * d, state.first, total)
        second = jax.tree.map(lambda v, d: self.second(v, d * d), state.second, total)
        steps = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + self.tau), first, second)
        return super().apply_round(state.replace(first=first, second=second), steps, timestamp, count)


class FedYogi(FedAdam):
    """FedAdam whose second moment changes by at most a share of the squared pseudo-gradient, however large it is itself."""

    name = "fedyogi"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)    (H times, from w on);  D <- mean of w - w_i
m <- beta_1 m + (1 - beta_1) D;  v <- v - (1 - beta_2) D D sign(v - D D)    (at first, v = tau^2)
w <- w - server_rate x m / (sqrt(v) + tau)"""
    protocol = "client-rounds"

    def second(self, moment: jax.Array, squares: jax.Array) -> jax.Array:
        """Return the second moment after a round, moved towards the squares by a share of them."""
        return moment - (1 - self.beta_2) * squares * jnp.sign(moment - squares)
