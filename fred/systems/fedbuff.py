"""FedBuff: a step with the mean of K pseudo-gradients, weighted by staleness.

| name    | source                                                       |
|---------|--------------------------------------------------------------|
| fedbuff | Nguyen et al. 2022, "FedBuff", arXiv:2106.06639, algorithm 1 |
"""

from __future__ import annotations

from pydantic import Field

from fred.base.later import jax, jnp
from fred.learning.server import Family, Message, Moved, Rate, Scalar, State


class FedBuff(Moved):
    """Buffered asynchronous local SGD: the server steps with the mean of K pseudo-gradients, weighted by staleness.

    A round of two pseudo-gradients of 1, which are 0 and 3 updates stale:

        >>> from fred.systems.fedbuff import FedBuff
        >>> import jax.numpy as jnp
        >>> server = FedBuff(learning_rate=0.1)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2).replace(clock=jnp.int32(3))
        >>> parts = [server.contribute(state, {"w": jnp.array([1.0])}, timestamp, worker=0)["w"] for timestamp in (3, 0)]
        >>> server.apply_round(state, {"w": (parts[0] + parts[1]) / 2}, timestamp=3, count=2).params["w"].tolist()
        [0.25]
    """

    name = "fedbuff"
    family = Family.ANSWERED
    rule = """\
w_i <- w_i - step(g_i)    (H times, from w on)
w <- w - server_rate x mean of the last K (w when it was read - w_i) / sqrt(1 + tau)"""
    protocol = "buffered"
    protocol_options = {"buffer": 10}

    server_rate: Rate = Field(default=1.0, description="learning rate of the server's steps")

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a pseudo-gradient, times the server's rate and 1 / sqrt(1 + its staleness)."""
        weight = self.server_rate / jnp.sqrt(1.0 + state.clock - timestamp)
        return jax.tree.map(lambda leaf: weight * leaf, message)
