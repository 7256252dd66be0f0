"""Algorithms whose centre moves whenever differences of models arrive, and that answer how stale these are.

| class           | source                                                                                                  |
|-----------------|---------------------------------------------------------------------------------------------------------|
| FedBuff         | Nguyen et al. 2022, "FedBuff", arXiv:2106.06639, algorithm 1                                            |
| FedAsync        | Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization", arXiv:1903.03934, algorithm 1           |
| DelayedNesterov | Liu et al. 2024, "Asynchronous local-SGD training for language modeling", arXiv:2401.09135, algorithm 3 |
| HALoS           | Kim et al. 2025, "HALoS: hierarchical asynchronous local SGD over slow networks", arXiv:2506.04531      |
| CGAD            | "CGAD" 2026, arXiv:2605.09126                                                                           |
| HeLoCo          | "HeLoCo" 2026, arXiv:2606.00271                                                                         |

A difference is the centre as a worker has read it, less that worker's model after its local steps.
"""

from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from pydantic import Field

from fred.components.component import Count
from fred.learning.models.model import Params
from fred.learning.optimizer import Optimizer, Transformation
from fred.learning.server import Family, Message, Rate, Scalar, Server, State
from fred.learning.servers.centred import _Moved
from fred.learning.servers.diloco import DiLoCo

Momentum = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
_EACH: dict[str, Any] = {"buffer": 1}


class FedBuff(_Moved):
    """The centre moves by the mean of K differences, each of which counts the less the staler it is.

    A round of two differences of 1, that are 0 and 3 updates stale:

        >>> from fred.learning.servers.arrivals import FedBuff
        >>> import jax.numpy as jnp
        >>> server = FedBuff(learning_rate=0.1)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2).replace(clock=jnp.int32(3))
        >>> parts = [server.contribute(state, {"w": jnp.array([1.0])}, timestamp, worker=0)["w"] for timestamp in (3, 0)]
        >>> server.apply_round(state, {"w": (parts[0] + parts[1]) / 2}, timestamp=3, count=2).params["w"].tolist()
        [0.25]
    """

    family: ClassVar[Family] = Family.ANSWERED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)    (H times, from w on)
w <- w - server_rate x mean of the last K (w when it was read - w_i) / sqrt(1 + tau)"""
    protocol: ClassVar[str] = "buffered"
    protocol_options: ClassVar[dict[str, Any]] = {"buffer": 10}

    server_rate: Rate = Field(1.0, description="of the centre's steps")

    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """The `message`, a difference, times the centre's rate and 1 / square root of 1 + its staleness."""
        weight = self.server_rate / jnp.sqrt(1.0 + state.clock - timestamp)
        return jax.tree.map(lambda leaf: weight * leaf, message)


class FedAsync(Server):
    """The centre goes some of the way towards each worker's model that arrives, less far where that is stale.

    Workers send models. A model at 3 reaches a centre at 1, fresh or 3 updates stale:

        >>> from fred.learning.servers.arrivals import FedAsync
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

    family: ClassVar[Family] = Family.ANSWERED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)    (H times, from w on)
w <- (1 - a) w + a w_i,  a = mixing x (1 + tau)^-exponent"""
    protocol: ClassVar[str] = "buffered"
    protocol_options: ClassVar[dict[str, Any]] = _EACH

    mixing: Annotated[float, Field(gt=0, le=1)] = Field(0.6, description="a of a model that is not stale")
    exponent: Annotated[float, Field(ge=0)] = Field(0.5, description="how fast it falls with staleness; 0: not at all")

    def send(self, memory: Any, params: Params, grads: Params) -> tuple[Message, Any]:
        """A worker's model; its gradients, which it steps with itself, lie beside it and are not sent."""
        return {"gradient": grads, "model": jax.tree.map(jnp.subtract, params, grads)}, memory

    def sent_bytes(self, message: Message) -> int:
        """Of the model alone."""
        return super().sent_bytes(message["model"])

    def apply_update(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        """A worker's own step."""
        return self.step(state, message["gradient"])

    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """The way to the model in the `message`, by its staleness."""
        share = self.mixing * (1.0 + state.clock - timestamp) ** -self.exponent
        return jax.tree.map(lambda own, other: share * (own - other), state.params, message["model"])

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """The centre goes that way."""
        return state.replace(params=jax.tree.map(jnp.subtract, state.params, total), clock=state.clock + 1)


class DelayedNesterov(Server):
    """Each difference is a plain step at once; momentum is made of N of them together, and steps with the last of these.

    With N = 1 it is SGD with Nesterov momentum. DyLU, local steps in proportion to a worker's speed, is the protocol's `paced`.
    Two differences of 1, N = 2, at rate 1 with momentum 0.5: first half of the difference, then that and the momentum.

        >>> from fred.learning.servers.arrivals import DelayedNesterov
        >>> import jax.numpy as jnp
        >>> server = DelayedNesterov(learning_rate=0.1, outer_rate=1.0, momentum=0.5)
        >>> state, values = server.init({"w": jnp.array([4.0])}, workers=2), []
        >>> for _ in range(2):
        ...     state = server.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=1)
        ...     values += state.params["w"].tolist()
        >>> values
        [3.5, 2.5]
    """

    family: ClassVar[Family] = Family.ANSWERED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)                 (H times, from w on)
w <- w - outer_rate (D / N + s mu b)   (D = w when it was read - w_i, as it arrives; s = c)
b <- mu b + mean of the last N D       (with every N-th, before the step; then s = 1 - c N + c)"""
    protocol: ClassVar[str] = "buffered"
    protocol_options: ClassVar[dict[str, Any]] = _EACH

    outer_rate: Rate = Field(0.7, description="of the centre's steps")
    momentum: Momentum = Field(0.9, description="mu")
    gathered: Count | None = Field(
        None, description="N: differences in each change of the momentum; absent: one of each worker"
    )
    spread: Share = Field(
        0.0, description="c: share of the momentum's step with each difference that is not an N-th; at most 1 / (N - 1)"
    )

    def check(self, workers: int) -> None:
        for number in self._numbers(workers):
            if self.spread * (number - 1) > 1 + 1e-9:
                raise ValueError(
                    f"`spread` ({self.spread:g}) must not exceed 1 / (N - 1), {1 / (number - 1):.4g} with N = {number} "
                    "differences gathered: every N-th step would go against the momentum"
                )

    def _numbers(self, workers: int) -> tuple[int, ...]:
        """Return N of each kind of server."""
        return (self.gathered or workers,)

    def init(self, params: Params, workers: int) -> State:
        zeros = jax.tree.map(jnp.zeros_like, params)
        state = super().init(params, workers).replace(speed=zeros, waiting=zeros, arrived=jnp.int32(0))
        return state.replace(
            every=jnp.int32(self.gathered or workers),
            outer_rate=jnp.float32(self.outer_rate),
            momentum=jnp.float32(self.momentum),
        )

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """A step with `total`, one difference."""
        every, last = jnp.float32(state.every), (state.arrived + 1) % state.every == 0
        waiting = jax.tree.map(jnp.add, state.waiting, total)
        speed = jax.tree.map(lambda b, d: jnp.where(last, state.momentum * b + d / every, b), state.speed, waiting)
        share = jnp.where(last, 1 - self.spread * (every - 1), self.spread) * state.momentum
        params = jax.tree.map(lambda p, b, d: p - state.outer_rate * (share * b + d / every), state.params, speed, total)
        waiting = jax.tree.map(lambda d: jnp.where(last, 0.0, d), waiting)
        counts = {"clock": state.clock + 1, "arrived": state.arrived + 1}
        return state.replace(params=params, speed=speed, waiting=waiting, **counts)


class HALoS(DelayedNesterov):
    """Delayed Nesterov on local servers, and again, with constants of its own, on the one that hears from these.

    Three servers, of which the last is that one; the same difference moves its model by 0.3 / 2 of it, the others' by 3.2 / 16.

        >>> from fred.learning.servers.arrivals import HALoS
        >>> import jax.numpy as jnp
        >>> server = HALoS(learning_rate=0.1)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
        >>> states = [server.place(state, replica, replicas=5) for replica in range(5)]
        >>> moved = [server.apply_round(each, {"w": jnp.array([1.0])}, timestamp=0, count=1) for each in states]
        >>> [round(float(each.params["w"][0]), 2) for each in moved[2:]]
        [0.8, 0.8, 0.85]
    """

    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)                   (H times, from w_s on; s: the worker's server)
w_s <- delayed Nesterov step of (w_s when it was read - w_i)
w <- delayed Nesterov step of (w_s when it was last mixed - w_s)    (after K of these)
w_s <- (1 - a) w_s + a w                 (when w has come)"""
    protocol: ClassVar[str] = "local-servers"
    protocol_options: ClassVar[dict[str, Any]] = {}

    outer_rate: Rate = Field(3.2, description="of local servers' steps")
    gathered: Count | None = Field(
        16, description="N: differences in each change of a local server's momentum; absent: one of each worker"
    )
    global_rate: Rate = Field(0.3, description="of the last server's steps")
    global_momentum: Momentum = Field(0.5, description="mu there")
    global_gathered: Count = Field(2, description="N there")

    def _numbers(self, workers: int) -> tuple[int, ...]:
        return (self.gathered or workers, self.global_gathered)

    def place(self, state: State, replica: int, replicas: int) -> State:
        """The state of a replica: the last one of all `replicas` has the global constants."""
        if replica < replicas - 1:
            return state
        there = {"every": jnp.int32(self.global_gathered), "outer_rate": jnp.float32(self.global_rate)}
        return state.replace(**there, momentum=jnp.float32(self.global_momentum))


class CGAD(DiLoCo):
    """Adam is the outer optimizer, of differences that fade with their staleness, to nothing at a cutoff.

    Neither the fading's rate nor the cutoff is in the paper's text as far as it was read: what is here are guesses.
    A difference of 1 that is 0, 5 or 10 updates stale, as the outer optimizer sees it:

        >>> from fred.learning.servers.arrivals import CGAD
        >>> import jax.numpy as jnp
        >>> server = CGAD(learning_rate=0.1, fading=0.1, cutoff=10)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2).replace(clock=jnp.int32(10))
        >>> seen = [server.contribute(state, {"w": jnp.array([1.0])}, timestamp, worker=0)["w"] for timestamp in (10, 5, 0)]
        >>> [round(float(each[0]), 3) for each in seen]
        [1.0, 0.303, 0.0]
    """

    family: ClassVar[Family] = Family.ANSWERED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)           (H times, from w on)
D <- (w when it was read - w_i) x e^(-a tau) x (1 + cos(pi min(1, tau / tau_c))) / 2
w <- w - outer step(D)           (Adam, as each arrives)"""
    protocol: ClassVar[str] = "buffered"
    protocol_options: ClassVar[dict[str, Any]] = _EACH

    outer_rate: Rate = Field(0.01, description="learning rate of the outer optimizer")
    outer: Optimizer = Field(
        (Transformation(name="adam"),), description="optax gradient transformation for differences, or a list"
    )
    fading: Annotated[float, Field(ge=0)] = Field(0.1, description="a: per update of staleness")
    cutoff: Count = Field(10, description="tau_c: staleness at which nothing is left, updates")

    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """What is left of the `message`, a difference, by its staleness."""
        staleness = jnp.float32(state.clock - timestamp)
        left = jnp.exp(-self.fading * staleness) * (1 + jnp.cos(jnp.pi * jnp.minimum(1.0, staleness / self.cutoff))) / 2
        return jax.tree.map(lambda leaf: left * leaf, message)


class HeLoCo(Server):
    """Differences that point away from the centre's momentum are turned towards it, array by array, before they are used.

    Those that agree with it well enough stay as they are; those that oppose it lose some of what opposes; the others are turned
    and keep their length. The constants are guesses: the paper's were not found. Against a momentum of (1, 0) come a difference
    along it, one across it, and one against it:

        >>> from fred.learning.servers.arrivals import HeLoCo
        >>> import jax.numpy as jnp
        >>> server = HeLoCo(learning_rate=0.1, outer_rate=1.0, momentum=0.0)
        >>> state = server.init({"w": jnp.zeros(2)}, workers=2).replace(speed={"w": jnp.array([1.0, 0.0])})
        >>> for way in ([1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]):
        ...     [round(float(each), 2) for each in server.contribute(state, {"w": jnp.array(way)}, 0, worker=0)["w"]]
        [1.0, 0.0]
        [0.24, 0.97]
        [-0.59, 1.0]
    """

    family: ClassVar[Family] = Family.ANSWERED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)                    (H times, from w on)
c = cos(D, m),  f = |D| / (|D| + |m|)     (D = w when it was read - w_i, as it arrives)
D <- D, if c >= c_ok; D less min(k_s (-c) f, b_max) of its part along m, if c < 0;
     |D| unit((1 - l) unit(D) + l unit(m)), l = min(k_d (1 - c) f, 1), otherwise
m <- mu m + (1 - mu) D;  w <- w - outer_rate (D + mu m)"""
    protocol: ClassVar[str] = "buffered"
    protocol_options: ClassVar[dict[str, Any]] = _EACH

    outer_rate: Rate = Field(0.7, description="of the centre's steps")
    momentum: Momentum = Field(0.9, description="mu")
    agreeing: Share = Field(0.5, description="c_ok: cosine from which on a difference is not turned")
    turn: Annotated[float, Field(ge=0)] = Field(0.4, description="k_d: how far others are turned")
    shrink: Annotated[float, Field(ge=0)] = Field(1.0, description="k_s: how much of what opposes the momentum is taken away")
    most: Share = Field(1.0, description="b_max: share of that which is taken away at most")

    def init(self, params: Params, workers: int) -> State:
        return super().init(params, workers).replace(speed=jax.tree.map(jnp.zeros_like, params))

    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """The `message`, a difference, corrected."""
        return jax.tree.map(self._corrected, message, state.speed)

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """A step with `total`, a corrected difference, and the momentum that it becomes part of."""
        speed = jax.tree.map(lambda m, d: self.momentum * m + (1 - self.momentum) * d, state.speed, total)
        params = jax.tree.map(lambda p, d, m: p - self.outer_rate * (d + self.momentum * m), state.params, total, speed)
        return state.replace(params=params, speed=speed, clock=state.clock + 1)

    def _corrected(self, difference: jax.Array, speed: jax.Array) -> jax.Array:
        length, pace = _length(difference), _length(speed)
        way, lead = difference / jnp.where(length > 0, length, 1.0), speed / jnp.where(pace > 0, pace, 1.0)
        cosine, sure = (way * lead).sum(), length / jnp.where(length + pace > 0, length + pace, 1.0)
        opposed = difference - jnp.minimum(-self.shrink * cosine * sure, self.most) * cosine * length * lead
        share = jnp.minimum(self.turn * (1 - cosine) * sure, 1.0)
        turned = (1 - share) * way + share * lead
        norm = _length(turned)
        turned = length * turned / jnp.where(norm > 0, norm, 1.0)
        corrected = jnp.where(cosine < 0, opposed, jnp.where(cosine >= self.agreeing, difference, turned))
        return jnp.where(pace > 0, corrected, difference)


def _length(array: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.square(array).sum())
