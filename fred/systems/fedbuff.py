"""Asynchronous federated learning: FedBuff, FedAsync, FADAS and CGAD.

| name     | source                                                                                                 |
|----------|--------------------------------------------------------------------------------------------------------|
| cgad     | "CGAD" 2026, arXiv:2605.09126                                                                          |
| fedbuff  | Nguyen et al. 2022, "FedBuff", arXiv:2106.06639, algorithm 1                                           |
| fedasync | Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization", arXiv:1903.03934, algorithm 1          |
| fadas    | Wang, Wang, Chen 2024, "FADAS: towards federated adaptive asynchronous optimization", arXiv:2407.18365 |

FedBuff steps with the mean of K pseudo-gradients, weighted by staleness. In FedAsync the server model moves towards each model
that arrives. FADAS is AMSGrad on the mean of buffered pseudo-gradients, with shorter steps if one is stale. CGAD is Adam on
pseudo-gradients whose weights fade with their staleness.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from fred.base.imports import jax, jnp
from fred.components.component import Count, Natural
from fred.learning.models.model import Params
from fred.learning.optimizer import Optimizer, Transformation
from fred.learning.server import Decay, Family, Message, Moved, Rate, Scalar, Server, State
from fred.systems.diloco import DiLoCo
from fred.systems.fedavg import add_proximal_term


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


class FedAsync(Server):
    """Asynchronous federated SGD: the server averages its model with each arriving one, with less weight if that is stale.

    A worker's model at 3 reaches a server model at 1, fresh or 3 updates stale:

        >>> from fred.systems.fedbuff import FedAsync
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
    hinge: tuple[Annotated[float, Field(gt=0)], Natural] | None = Field(
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
        return state.replace(start=state.params) if self.mu else state

    def send(self, memory: Any, params: Params, grads: Params, /) -> tuple[Message, Any]:
        """Return a worker's model and its gradients; only the model is sent."""
        return {"gradient": grads, "model": jax.tree.map(jnp.subtract, params, grads)}, memory

    def sent_bytes(self, message: Message, /) -> int:
        """Return the bytes of the model alone."""
        return super().sent_bytes(message["model"])

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Make a local step, drawn towards the server model."""
        gradient = message["gradient"]
        return self.step(state, add_proximal_term(gradient, state, self.mu) if self.mu else gradient)

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the step towards the model in the `message`, weighted by its staleness."""
        staleness = state.clock - timestamp
        if self.hinge is not None:
            slope, fresh = self.hinge
            share = self.mixing / (1.0 + slope * jnp.maximum(0, staleness - fresh))
        else:
            share = self.mixing * (1.0 + staleness) ** -self.exponent
        return jax.tree.map(lambda current, received: share * (current - received), state.params, message["model"])

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Move the server model by the weighted steps in `total`."""
        return state.replace(params=jax.tree.map(jnp.subtract, state.params, total), clock=state.clock + 1)


class FADAS(Server):
    """FedBuff with AMSGrad on the server: it steps with the mean of M pseudo-gradients, less far if one is too stale.

    This is the paper's delay-adaptive form; a large `patience` gives the plain one. As in the paper, moments have no bias
    correction. A first step with a pseudo-gradient of 0.5 that is 1 or 40 updates stale:

        >>> from fred.systems.fedbuff import FADAS
        >>> import jax.numpy as jnp
        >>> server = FADAS(learning_rate=0.1, outer_rate=0.1)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2).replace(clock=jnp.int32(40))
        >>> def stepped(timestamp):
        ...     joined = server.contribute(state, {"w": jnp.array([0.5])}, timestamp=timestamp, worker=1)
        ...     return server.apply_round(state, joined, timestamp=40, count=1).params["w"].tolist()
        >>> [round(stepped(timestamp)[0], 4) for timestamp in (39, 0)]
        [0.9, 0.975]
    """

    name = "fadas"
    family = Family.ANSWERED
    rule = """\
w_i <- w_i - step(g_i)    (H times, from w on)
D <- mean of the last M pseudo-gradients (w when it was read) - w_i
m <- beta_1 m + (1 - beta_1) D;  v <- beta_2 v + (1 - beta_2) D D;  u <- max(u, v)
w <- w - r m / (sqrt(u) + epsilon)
r = outer_rate if the largest tau in the round is at most tau_c, else min(outer_rate, 1 / tau)"""
    protocol = "buffered"

    outer_rate: Rate = Field(default=0.01, description="learning rate of the server if no pseudo-gradient is too stale")
    beta_1: Decay = Field(default=0.9, description="decay of the first moment, the moving average of pseudo-gradients")
    beta_2: Decay = Field(default=0.99, description="decay of the second moment, the moving average of their squares")
    epsilon: Annotated[float, Field(gt=0)] = Field(default=1e-8, description="added to the root of the largest second moment")
    patience: Natural = Field(default=1, description="tau_c: staleness up to which steps have the full rate, updates")

    def init(self, params: Params, /, workers: int) -> State:
        zeros = jax.tree.map(jnp.zeros_like, params)
        state = super().init(params, workers)
        return state.replace(first=zeros, second=zeros, largest=zeros, no_staleness=jnp.zeros(workers))

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a pseudo-gradient, and its staleness at its worker's place [workers]."""
        # A worker's second message in a round has staleness 0, for it reads the model after sending the first. So the sum over
        # the round has at most one staleness in each place.
        staleness = jnp.float32(state.clock - timestamp)
        return {"pseudo_gradient": message, "staleness": state.no_staleness.at[worker].set(staleness)}

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with `total`, the mean of `count` pseudo-gradients and of their staleness."""
        pseudo_gradient = total["pseudo_gradient"]
        stalest = jnp.round(count * total["staleness"].max())  # from the mean back to the sum, an integer
        first = jax.tree.map(lambda m, d: self.beta_1 * m + (1 - self.beta_1) * d, state.first, pseudo_gradient)
        second = jax.tree.map(lambda v, d: self.beta_2 * v + (1 - self.beta_2) * d * d, state.second, pseudo_gradient)
        largest = jax.tree.map(jnp.maximum, state.largest, second)
        rate = jnp.where(stalest <= self.patience, self.outer_rate, jnp.minimum(self.outer_rate, 1 / jnp.maximum(stalest, 1)))
        params = jax.tree.map(lambda p, m, u: p - rate * m / (jnp.sqrt(u) + self.epsilon), state.params, first, largest)
        return state.replace(params=params, first=first, second=second, largest=largest, clock=state.clock + 1)


class CGAD(DiLoCo):
    """Asynchronous DiLoCo with Adam as outer optimizer, and weights of pseudo-gradients that decay with their staleness.

    The decay rate and the cutoff were not found in the paper; the defaults are guesses.
    A pseudo-gradient of 1 that is 0, 5 or 10 updates stale, as the outer optimizer sees it:

        >>> from fred.systems.fedbuff import CGAD
        >>> import jax.numpy as jnp
        >>> server = CGAD(learning_rate=0.1, fading=0.1, cutoff=10)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2).replace(clock=jnp.int32(10))
        >>> weighted = [server.contribute(state, {"w": jnp.array([1.0])}, timestamp, worker=0)["w"] for timestamp in (10, 5, 0)]
        >>> [round(float(leaf[0]), 3) for leaf in weighted]
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
        default=(Transformation.unchecked("adam"),), description="optax gradient transformation of pseudo-gradients, or a list"
    )
    fading: Annotated[float, Field(ge=0)] = Field(default=0.1, description="a: decay rate of a weight per update of staleness")
    cutoff: Count = Field(default=10, description="tau_c: staleness from which the weight is 0, updates")

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a pseudo-gradient, times its weight by staleness."""
        staleness = jnp.float32(state.clock - timestamp)
        weight = jnp.exp(-self.fading * staleness) * (1 + jnp.cos(jnp.pi * jnp.minimum(1.0, staleness / self.cutoff))) / 2
        return jax.tree.map(lambda leaf: weight * leaf, message)
