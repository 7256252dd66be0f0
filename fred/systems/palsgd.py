"""PALSGD: DiLoCo with pulls towards the global model in place of some gradients.

| name    | source                                                                               |
|---------|--------------------------------------------------------------------------------------|
| palsgd  | Naganuma et al. 2025, "Pseudo-asynchronous local SGD", arXiv:2504.18454, algorithm 1 |
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fred.base.later import jax, jnp
from fred.learning import optimizer as optimizers
from fred.learning.models.model import Params
from fred.learning.server import Family, Scalar, State
from fred.systems.diloco import DiLoCo


class PALSGD(DiLoCo):
    """DiLoCo in which some local steps pull a worker's model towards the global model, instead of computing a gradient.

    With probability p (`pulls` of the protocol) a step is a pull. In the paper gradient steps have the rate eta / (1 - p),
    which is `learning_rate` here. A pull moves the model by the share (eta / p) k = rate (1 - p) / p k of the way.

    A pull of a model at 2 towards the global model at 1, with p = 0.2 and k = 0.5:

        >>> from fred.protocols.outer_steps import pull_weight
        >>> from fred.systems.palsgd import PALSGD
        >>> import jax.numpy as jnp
        >>> palsgd = PALSGD(learning_rate=0.25)
        >>> state = palsgd.init({"w": jnp.array([2.0])}, workers=2)
        >>> palsgd.synchronize(state, {"w": jnp.array([1.0])}, keep=1.0, weight=pull_weight(0.2)).params["w"].tolist()
        [1.5]
    """

    name = "palsgd"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)                               (of each H local updates, a share 1 - p)
w_i <- w_i - rate (1 - p) / p k (w_i - w)            (the others: `pulls`; no gradient, no message)
w <- w - outer step(mean of w - w_i)"""
    protocol = "outer-steps"
    protocol_options = {"pulls": 0.2}

    strength: Annotated[float, Field(ge=0)] = Field(default=0.5, description="k: strength of the pulls")

    def check(self, workers: int) -> None:
        if optimizers.has_own_rate(self.optimizer):
            raise ValueError("pulls need the learning rate, which FRED cannot read in an object of optax: name the optimizer")

    def synchronize(self, state: State, mixed: Params, /, keep: Scalar, weight: Scalar) -> State:
        """Pull the model towards the global one, `mixed`, with `weight` from `pull_weight`; replace it if `keep` is 0."""
        share = jnp.where(keep == 0, 1.0, self.strength * state.rate * weight)

        def drawn(own: jax.Array, common: jax.Array) -> jax.Array:
            return jnp.where(keep == 0, common, own - share * (own - common))

        return state.replace(params=jax.tree.map(drawn, state.params, mixed))
