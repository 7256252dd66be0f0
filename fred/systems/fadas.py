"""FADAS: AMSGrad on the mean of buffered pseudo-gradients, with shorter steps for stale ones.

| name    | source                                                                                                 |
|---------|--------------------------------------------------------------------------------------------------------|
| fadas   | Wang, Wang, Chen 2024, "FADAS: towards federated adaptive asynchronous optimization", arXiv:2407.18365 |
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fred.base.later import jax, jnp
from fred.components.component import Whole
from fred.learning.models.model import Params
from fred.learning.server import Decay, Family, Message, Rate, Scalar, Server, State


class FADAS(Server):
    """FedBuff with AMSGrad on the server: it steps with the mean of M pseudo-gradients, less far if one is too stale.

    This is the paper's delay-adaptive form; a large `patience` gives the plain one. As in the paper, moments have no bias
    correction. A first step with a pseudo-gradient of 0.5 that is 1 or 40 updates stale:

        >>> from fred.systems.fadas import FADAS
        >>> import jax.numpy as jnp
        >>> server = FADAS(learning_rate=0.1, outer_rate=0.1)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2).replace(clock=jnp.int32(40))
        >>> def stepped(timestamp):
        ...     joined = server.contribute(state, {"w": jnp.array([0.5])}, timestamp=timestamp, worker=1)
        ...     return server.apply_round(state, joined, timestamp=40, count=1).params["w"].tolist()
        >>> [round(stepped(timestamp)[0], 4) for timestamp in (39, 0)]
        [0.9, 0.975]
    """

    name = "fadas"
    family = Family.ANSWERED
    rule = """\
w_i <- w_i - step(g_i)    (H times, from w on)
D <- mean of the last M pseudo-gradients (w when it was read) - w_i
m <- beta_1 m + (1 - beta_1) D;  v <- beta_2 v + (1 - beta_2) D D;  u <- max(u, v)
w <- w - r m / (sqrt(u) + epsilon)
r = outer_rate if the largest tau in the round is at most tau_c, else min(outer_rate, 1 / tau)"""
    protocol = "buffered"

    outer_rate: Rate = Field(default=0.01, description="learning rate of the server if no pseudo-gradient is too stale")
    beta_1: Decay = Field(default=0.9, description="decay of the first moment, the moving average of pseudo-gradients")
    beta_2: Decay = Field(default=0.99, description="decay of the second moment, the moving average of their squares")
    epsilon: Annotated[float, Field(gt=0)] = Field(default=1e-8, description="added to the root of the largest second moment")
    patience: Whole = Field(default=1, description="tau_c: staleness up to which steps have the full rate, updates")

    def init(self, params: Params, /, workers: int) -> State:
        zeros = jax.tree.map(jnp.zeros_like, params)
        state = super().init(params, workers)
        return state.replace(first=zeros, second=zeros, largest=zeros, workers=jnp.zeros(workers))

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a pseudo-gradient, and its staleness in its worker's row; a second one counts as fresh."""
        staleness = jnp.float32(state.clock - timestamp)
        return {"pseudo_gradient": message, "staleness": state.workers.at[worker].set(staleness)}

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with `total`, the mean of `count` pseudo-gradients and of their staleness."""
        pseudo_gradient, stalest = total["pseudo_gradient"], jnp.round(count * total["staleness"].max())
        first = jax.tree.map(lambda m, d: self.beta_1 * m + (1 - self.beta_1) * d, state.first, pseudo_gradient)
        second = jax.tree.map(lambda v, d: self.beta_2 * v + (1 - self.beta_2) * d * d, state.second, pseudo_gradient)
        largest = jax.tree.map(jnp.maximum, state.largest, second)
        rate = jnp.where(stalest <= self.patience, self.outer_rate, jnp.minimum(self.outer_rate, 1 / jnp.maximum(stalest, 1)))
        params = jax.tree.map(lambda p, m, u: p - rate * m / (jnp.sqrt(u) + self.epsilon), state.params, first, largest)
        return state.replace(params=params, first=first, second=second, largest=largest, clock=state.clock + 1)
