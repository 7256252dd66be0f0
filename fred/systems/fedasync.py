"""FedAsync: the server model moves towards each model that arrives.

| name     | source                                                                                        |
|----------|-----------------------------------------------------------------------------------------------|
| fedasync | Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization", arXiv:1903.03934, algorithm 1 |
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from fred.base.later import jax, jnp
from fred.components.component import Whole
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, Server, State
from fred.systems.fedavg import pulled


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

    name = "fedasync"
    family = Family.ANSWERED
    rule = """\
w_i <- w_i - step(g_i + mu (w_i - w))    (H times, from w on)
w <- (1 - a) w + a w_i,  a = mixing x s(tau)
s(tau) = (1 + tau)^-exponent;  with hinge [c, b]: 1 / (1 + c max(0, tau - b))"""
    protocol = "buffered"
    protocol_options = {"buffer": 1}

    mixing: Annotated[float, Field(gt=0, le=1)] = Field(default=0.6, description="weight a of a fresh model")
    exponent: Annotated[float, Field(ge=0)] = Field(
        default=0.5, description="exponent of the weight's decay with staleness; 0: constant weight"
    )
    hinge: tuple[Annotated[float, Field(gt=0)], Whole] | None = Field(
        default=None,
        description="c and b: the weight is whole up to a staleness of b updates, and then 1 / (1 + c (tau - b)) of it; "
        "instead of `exponent`",
        examples=[[10.0, 4]],
    )
    mu: Annotated[float, Field(ge=0)] = Field(
        default=0.0, description="rho: strength of the pull of local steps towards the server model; 0: none"
    )

    @model_validator(mode="after")
    def _one_decay(self) -> FedAsync:
        if self.hinge is not None and self.exponent != type(self).model_fields["exponent"].default:
            raise ValueError("`hinge` and `exponent` both set: leave one of them out")
        return self

    def init(self, params: Params, /, workers: int) -> State:
        state = super().init(params, workers)
        return state.replace(start=params) if self.mu else state

    def synchronize(self, state: State, mixed: Params, /, keep: Scalar, weight: Scalar) -> State:
        """Begin a worker's local steps at the server model, towards which they are drawn."""
        state = super().synchronize(state, mixed, keep, weight)
        return state.replace(start=mixed) if self.mu else state

    def send(self, memory: Any, params: Params, grads: Params, /) -> tuple[Message, Any]:
        """Return a worker's model and its gradients; only the model is sent."""
        return {"gradient": grads, "model": jax.tree.map(jnp.subtract, params, grads)}, memory

    def sent_bytes(self, message: Message, /) -> int:
        """Return the bytes of the model alone."""
        return super().sent_bytes(message["model"])

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Make a local step, drawn towards the server model."""
        gradient = message["gradient"]
        return self.step(state, pulled(gradient, state, self.mu) if self.mu else gradient)

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the step towards the model in the `message`, weighted by its staleness."""
        staleness = state.clock - timestamp
        if self.hinge is not None:
            slope, fresh = self.hinge
            share = self.mixing / (1.0 + slope * jnp.maximum(0, staleness - fresh))
        else:
            share = self.mixing * (1.0 + staleness) ** -self.exponent
        return jax.tree.map(lambda own, other: share * (own - other), state.params, message["model"])

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Move the server model by the weighted steps in `total`."""
        return state.replace(params=jax.tree.map(jnp.subtract, state.params, total), clock=state.clock + 1)
