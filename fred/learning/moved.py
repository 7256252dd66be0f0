"""A server whose model moves by what workers' local steps have changed: the base of several systems."""

from __future__ import annotations

from fred.base.later import jax, jnp
from fred.learning.server import Message, Scalar, Server, State


class Moved(Server):
    """A server that subtracts a round's pseudo-gradients from its model, without an optimizer of its own.

    From 1, a worker has stepped to 0.5, and brings 1 - 0.5:

        >>> from fred.learning.server import Moved
        >>> import jax.numpy as jnp
        >>> server = Moved(learning_rate=0.1)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
        >>> server.apply_round(state, {"w": jnp.array([1.0 - 0.5])}, timestamp=0, count=1).params["w"].tolist()
        [0.5]
    """

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """Subtract `total`, the pseudo-gradients that the protocol has added up, times its weight."""
        params = jax.tree.map(jnp.subtract, state.params, total)
        return state.replace(params=params, clock=state.clock + 1)
