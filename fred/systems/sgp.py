"""Stochastic gradient push [Assran, Loizou, Ballas, Rabbat 2019, arXiv:1811.10792, algorithm 1]."""

from __future__ import annotations

from typing import ClassVar

from fred.base.later import jax, jnp
from fred.learning.models.model import Params
from fred.learning.server import Scalar, Server, State

ALGORITHMS = {
    "sgp": {
        "family": "averaged",
        "rule": """\
x_i <- x_i - step(g_i)    (g_i at z_i = x_i / w_i)
x_i <- sum over j of P_ij x_j
w_i <- sum over j of P_ij w_j""",
        "server": "SGP",
        "protocol": "gossip",
    },
}


class SGP(Server):
    """Every worker steps x with its gradient at z = x / w, and mixes x and the push-sum weight w with its neighbours'.

    What the optimizer decays is z, too: a weight decay is part of the loss, whose gradient is taken there.

    Sending one half of x and w away leaves z as it is; a step of x by 1 is one of z by 2, where w is 1/2:

        >>> from fred.systems.sgp import SGP
        >>> import jax.numpy as jnp
        >>> sgp = SGP(learning_rate=1.0)
        >>> state = sgp.init({"bias": jnp.array([4.0])}, workers=2)
        >>> half = {"x": {"bias": jnp.array([2.0])}, "w": jnp.float32(0.5)}
        >>> sgp.model(half)["bias"].tolist()
        [4.0]
        >>> after = sgp.apply_update(state.replace(params=half), {"bias": jnp.array([1.0])}, timestamp=0, worker=0)
        >>> after.params["x"]["bias"].tolist(), sgp.evaluated(after)["bias"].tolist()
        ([1.0], [2.0])
    """

    divisible: ClassVar[bool] = False

    def init(self, params: Params, workers: int) -> State:
        """Return the state of one of `workers` before its first update: x is `params`, and w = 1."""
        state = super().init(params, workers)
        return state.replace(params={"x": params, "w": jnp.float32(1.0)})

    def model(self, params: Params) -> Params:
        """Return z = x / w, of `params` {"x": like the model, "w": []}."""
        return jax.tree.map(lambda x: x / params["w"], params["x"])

    def apply_update(self, state: State, grads: Params, timestamp: Scalar, worker: Scalar) -> State:
        """Step x with `grads`, like the model, which were computed at z; w stays as it is."""
        stepped = self.step(state.replace(params=state.params["x"]), grads, model=self.model(state.params))
        return stepped.replace(params={"x": stepped.params, "w": state.params["w"]})
