"""FedAsync: the server model moves towards each model that arrives.

| name     | source                                                                                        |
|----------|-----------------------------------------------------------------------------------------------|
| fedasync | Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization", arXiv:1903.03934, algorithm 1 |
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from fred.base.later import jax, jnp
from fred.learning.models.model import Params
from fred.learning.server import Message, Scalar, Server, State

ALGORITHMS = {
    "fedasync": {
        "family": "answered",
        "rule": """\
w_i <- w_i - step(g_i)    (H times, from w on)
w <- (1 - a) w + a w_i,  a = mixing x (1 + tau)^-exponent""",
        "server": "FedAsync",
        "protocol": {"name": "buffered", "buffer": 1},
    },
}


class FedAsync(Server):
    """Asynchronous federated SGD: the server averages its model with each arriving one, with less weight if that is stale.

    A worker's model at 3 reaches a server model at 1, fresh or 3 updates stale:

        >>> from fred.systems.fedasync import FedAsync
        >>> import jax.numpy as jnp
        >>> server = FedAsync(learning_rate=0.1, mixing=0.5)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2).replace(clock=jnp.int32(3))
        >>> sent, _ = server.send((), {"w": jnp.array([1.0])}, {"w": jnp.array([-2.0])})
        >>> def moved(timestamp):
        ...     joined = server.contribute(state, sent, timestamp, worker=0)
        ...     return server.apply_round(state, joined, timestamp=3, count=1).params["w"].tolist()
        >>> moved(3), moved(0)
        ([2.0], [1.5])
    """

    mixing: Annotated[float, Field(gt=0, le=1)] = Field(0.6, description="weight a of a fresh model")
    exponent: Annotated[float, Field(ge=0)] = Field(
        0.5, description="exponent of the weight's decay with staleness; 0: constant weight"
    )

    def send(self, memory: Any, params: Params, grads: Params) -> tuple[Message, Any]:
        """Return a worker's model and its gradients; only the model is sent."""
        return {"gradient": grads, "model": jax.tree.map(jnp.subtract, params, grads)}, memory

    def sent_bytes(self, message: Message) -> int:
        """Return the bytes of the model alone."""
        return super().sent_bytes(message["model"])

    def apply_update(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        """Make a local step."""
        return self.step(state, message["gradient"])

    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the step towards the model in the `message`, weighted by its staleness."""
        share = self.mixing * (1.0 + state.clock - timestamp) ** -self.exponent
        return jax.tree.map(lambda own, other: share * (own - other), state.params, message["model"])

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """Move the server model by the weighted steps in `total`."""
        return state.replace(params=jax.tree.map(jnp.subtract, state.params, total), clock=state.clock + 1)
