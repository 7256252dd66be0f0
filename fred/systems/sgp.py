"""Stochastic gradient push [Assran, Loizou, Ballas, Rabbat 2019, arXiv:1811.10792, algorithm 1]."""

from __future__ import annotations

from typing import ClassVar

from fred.base.later import jax, jnp
from fred.learning.models.model import Params
from fred.learning.server import Family, Scalar, Server, State


class SGP(Server):
    """Stochastic gradient push: push-sum gossip of models x and weights w; each worker steps x with its gradient at x / w.

    Weight decay applies to z = x / w as well, because it is part of the loss.

    Sending half of x and w away leaves z unchanged; with w = 1/2, a step of x by 1 moves z by 2:

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

    name = "sgp"
    family = Family.AVERAGED
    rule = """\
x_i <- x_i - step(g_i)    (g_i at z_i = x_i / w_i)
x_i <- sum over j of P_ij x_j
w_i <- sum over j of P_ij w_j"""
    protocol = "gossip"

    divisible: ClassVar[bool] = False

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state of one of `workers` before its first update: x is `params`, and w = 1."""
        state = super().init(params, workers)
        return state.replace(params={"x": params, "w": jnp.float32(1.0)})

    def model(self, params: Params, /) -> Params:
        """Return z = x / w, of `params` {"x": like the model, "w": []}."""
        return jax.tree.map(lambda x: x / params["w"], params["x"])

    def apply_update(self, state: State, grads: Params, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step x with `grads`, like the model, which were computed at z; w stays as it is."""
        stepped = self.step(state.replace(params=state.params["x"]), grads, model=self.model(state.params))
        return stepped.replace(params={"x": stepped.params, "w": state.params["w"]})
