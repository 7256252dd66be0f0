"""Federated averaging: sampled clients take local steps from the server model, which moves by their mean pseudo-gradient.

| name     | source                                                                                                           |
|----------|------------------------------------------------------------------------------------------------------------------|
| fedavg   | McMahan, Moore, Ramage, Hampson, Agüera y Arcas 2017, arXiv:1602.05629, algorithm 1                              |
| fedprox  | Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, arXiv:1812.06127, eq. 2 and algorithm 2                        |
| fednova  | Wang, Liu, Liang, Joshi, Poor 2020, arXiv:2007.07481, section 5, for local SGD without momentum                  |
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fred.base.later import jax
from fred.learning import optimizer as optimizers
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Moved, Rate, Scalar, State


class FedAvg(Moved):
    """Federated averaging: the server model moves by the mean pseudo-gradient of the sampled clients.

    A client's local optimizer starts afresh in each round. A round with a mean pseudo-gradient of 1:

        >>> from fred.systems.fedavg import FedAvg
        >>> import jax.numpy as jnp
        >>> server = FedAvg(learning_rate=0.1, server_rate=0.5)
        >>> state = server.init({"w": jnp.array([4.0])}, workers=2)
        >>> server.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=2).params["w"].tolist()
        [3.5]
    """

    name = "fedavg"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)                                   (H times, from w on)
w <- w - server_rate x sum of p_i (w - w_i)              (p_i: share of client i's examples in the round's)"""
    protocol = "client-rounds"
    protocol_options = {"weights": "size"}

    server_rate: Rate = Field(default=1.0, description="learning rate of the server's steps")

    def synchronize(self, state: State, mixed: Params, /, keep: Scalar, weight: Scalar) -> State:
        """Begin a client's local steps at `mixed`, the server model, with a new optimizer state."""
        return state.replace(params=mixed, optimizer=optimizers.build(self.optimizer, 1.0).init(mixed))

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Subtract `total`, the mean pseudo-gradient, times the server's rate."""
        return super().apply_round(state, jax.tree.map(lambda leaf: self.server_rate * leaf, total), timestamp, count)


class FedNova(FedAvg):
    """FedAvg whose pseudo-gradients count per local step, so that clients with more steps do not count more.

    The default work is in proportion to speed. Local steps have no momentum: with it the paper's normalization differs.
    """

    name = "fednova"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - rate x g_i                                  (H_i times, from w on)
w <- w - (sum of p_i H_i) x sum of p_i (w - w_i) / H_i"""
    protocol = "client-rounds"
    protocol_options = {"weights": "size", "work": "speed", "normalized": True}


def pulled(gradient: Params, state: State, mu: float) -> Params:
    """Return the gradient of the loss plus mu / 2 times the squared distance from the model where local steps began."""
    return jax.tree.map(lambda g, own, start: g + mu * (own - start), gradient, state.params, state.start)


class FedProx(FedAvg):
    """FedAvg whose local steps are drawn towards the server model, with strength mu.

    A client at 1 + 2 of a server model at 1, with a gradient of 1, a rate of 0.5 and mu = 0.25:

        >>> from fred.systems.fedavg import FedProx
        >>> import jax.numpy as jnp
        >>> server = FedProx(learning_rate=0.5, mu=0.25)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
        >>> state = state.replace(params={"w": jnp.array([3.0])})
        >>> server.apply_update(state, {"w": jnp.array([1.0])}, timestamp=0, worker=0).params["w"].tolist()
        [2.25]
    """

    name = "fedprox"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i + mu (w_i - w))                    (H times, from w on)
w <- w - server_rate x sum of p_i (w - w_i)"""
    protocol = "client-rounds"
    protocol_options = {"weights": "size"}

    mu: Annotated[float, Field(ge=0)] = Field(
        default=0.01, description="strength of the pull towards the server model; 0: FedAvg"
    )

    def init(self, params: Params, /, workers: int) -> State:
        return super().init(params, workers).replace(start=params)

    def synchronize(self, state: State, mixed: Params, /, keep: Scalar, weight: Scalar) -> State:
        """Begin a client's local steps at `mixed`, the server model, towards which they are drawn."""
        return super().synchronize(state, mixed, keep, weight).replace(start=mixed)

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step with the gradient plus mu times the distance from the server model."""
        return self.step(state, pulled(message, state, self.mu))
