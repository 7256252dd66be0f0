"""DiLoCo and MuLoCo: an outer optimizer applies the pseudo-gradients of local steps.

| name    | source                                                         |
|---------|----------------------------------------------------------------|
| diloco  | Douillard et al. 2023, "DiLoCo", arXiv:2311.08105, algorithm 1 |
| muloco  | Thérien et al. 2025, "MuLoCo", arXiv:2505.23725                |

A pseudo-gradient is the parameters before some local steps less those after them.
"""

from __future__ import annotations

from pydantic import Field

from fred.base.later import optax
from fred.learning import optimizer as optimizers
from fred.learning.models.model import Params
from fred.learning.optimizer import Optimizer, Transformation
from fred.learning.server import Family, Message, Rate, Scalar, Server, State

_NESTEROV = (Transformation.usual("sgd", momentum=0.9, nesterov=True),)


class DiLoCo(Server):
    """Local SGD with an outer optimizer, Nesterov momentum by default, that applies the mean pseudo-gradient.

    The state of a worker's inner optimizer stays with the worker.

    Two rounds with a mean pseudo-gradient of 1, at outer rate 0.5 with momentum 0.5:

        >>> from fred.systems.diloco import DiLoCo
        >>> import jax.numpy as jnp
        >>> diloco = DiLoCo(learning_rate=0.1, outer_rate=0.5, outer={"name": "sgd", "momentum": 0.5, "nesterov": True})
        >>> state, values = diloco.init({"w": jnp.array([4.0])}, workers=2), []
        >>> for _ in range(2):
        ...     state = diloco.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=2)
        ...     values += state.params["w"].tolist()
        >>> values
        [3.25, 2.375]
    """

    name = "diloco"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)                  (H times, from w on)
w <- w - outer step(mean of w - w_i)    (outer: by default D + mu b, where b <- mu b + D, times outer_rate)"""
    protocol = "outer-steps"

    outer_rate: Rate = Field(default=0.7, description="learning rate of the outer optimizer")
    outer: Optimizer = Field(
        default=_NESTEROV,
        description="optax gradient transformation of pseudo-gradients, or a list; default: SGD with Nesterov momentum 0.9",
    )

    def init(self, params: Params, /, workers: int) -> State:
        memory = optimizers.build(self.outer, self.outer_rate).init(params)
        return super().init(params, workers).replace(outer=memory)

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step the outer optimizer with `total`, the mean of `count` pseudo-gradients."""
        updates, memory = optimizers.build(self.outer, self.outer_rate).update(total, state.outer, state.params)
        return state.replace(params=optax.apply_updates(state.params, updates), outer=memory, clock=state.clock + 1)


class MuLoCo(DiLoCo):
    """DiLoCo with Muon as inner optimizer: orthogonalized steps for matrices, Adam with Nesterov momentum for vectors."""

    name = "muloco"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)                  (H times, from w on; Muon: about U V^T, of its momentum U S V^T)
w <- w - outer step(mean of w - w_i)"""
    protocol = "outer-steps"

    optimizer: Optimizer = Field(
        default=(Transformation.usual("muon"),), description="optax gradient transformation of local steps, or a list of them"
    )
