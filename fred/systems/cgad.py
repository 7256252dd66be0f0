"""CGAD: Adam on pseudo-gradients that fade with their staleness ["CGAD" 2026, arXiv:2605.09126]."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fred.base.later import jax, jnp
from fred.components.component import Count
from fred.learning.optimizer import Optimizer, Transformation
from fred.learning.server import Family, Message, Rate, Scalar, State
from fred.systems.diloco import DiLoCo


class CGAD(DiLoCo):
    """Asynchronous DiLoCo with Adam as outer optimizer, and weights of pseudo-gradients that decay with their staleness.

    The decay rate and the cutoff were not found in the paper; the defaults are guesses.
    A pseudo-gradient of 1 that is 0, 5 or 10 updates stale, as the outer optimizer sees it:

        >>> from fred.systems.cgad import CGAD
        >>> import jax.numpy as jnp
        >>> server = CGAD(learning_rate=0.1, fading=0.1, cutoff=10)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2).replace(clock=jnp.int32(10))
        >>> seen = [server.contribute(state, {"w": jnp.array([1.0])}, timestamp, worker=0)["w"] for timestamp in (10, 5, 0)]
        >>> [round(float(each[0]), 3) for each in seen]
        [1.0, 0.303, 0.0]
    """

    name = "cgad"
    family = Family.ANSWERED
    rule = """\
w_i <- w_i - step(g_i)           (H times, from w on)
D <- (w when it was read - w_i) x e^(-a tau) x (1 + cos(pi min(1, tau / tau_c))) / 2
w <- w - outer step(D)           (Adam, as each arrives)"""
    protocol = "buffered"
    protocol_options = {"buffer": 1}

    outer_rate: Rate = Field(default=0.01, description="learning rate of the outer optimizer")
    outer: Optimizer = Field(
        default=(Transformation.usual("adam"),), description="optax gradient transformation of pseudo-gradients, or a list"
    )
    fading: Annotated[float, Field(ge=0)] = Field(default=0.1, description="a: decay rate of a weight per update of staleness")
    cutoff: Count = Field(default=10, description="tau_c: staleness from which the weight is 0, updates")

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a pseudo-gradient, times its weight by staleness."""
        staleness = jnp.float32(state.clock - timestamp)
        left = jnp.exp(-self.fading * staleness) * (1 + jnp.cos(jnp.pi * jnp.minimum(1.0, staleness / self.cutoff))) / 2
        return jax.tree.map(lambda leaf: left * leaf, message)
