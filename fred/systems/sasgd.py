"""Staleness-aware asynchronous SGD: steps are weighted by a function of the staleness.

| name        | source                                                                              |
|-------------|-------------------------------------------------------------------------------------|
| sasgd       | Zhang, Gupta, Lian, Liu 2016, arXiv:1511.05950, eq. 7; Odena 2016, eqs. 1-2         |
| exponential | Chan & Lane 2014, "Distributed asynchronous optimization of convolutional networks" |
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field

from fred.base.later import jax, jnp
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, Server, State

Divisor = Literal["max(tau, 1)", "tau + 1"]


def divisor(rule: Divisor, staleness: Scalar) -> Scalar:
    """Return the divisor of a step for a staleness of tau updates; a fresh gradient has tau = 0, so tau itself will not do.

    Args:
        rule: the formula.
        staleness: tau, updates [].

        >>> [[int(divisor(rule, tau)) for tau in range(4)] for rule in ("max(tau, 1)", "tau + 1")]
        [[1, 1, 2, 3], [1, 2, 3, 4]]
    """
    return staleness + 1 if rule == "tau + 1" else jnp.maximum(staleness, 1)


def weighed(message: Message, weight: Scalar) -> Message:
    """Return a message times its weight in a round.

    Args:
        message: a pytree of arrays.
        weight: factor of each number [].
    """
    return jax.tree.map(lambda leaf: weight * leaf, message)


class StalenessAware(Server):
    """Multiply each gradient's step by a weight that follows its staleness; in a round, each gradient by its own.

    A subclass defines the weight; this one ignores gradients more than two updates stale:

        >>> from fred.systems.sasgd import StalenessAware
        >>> import jax.numpy as jnp
        >>> class Forgetful(StalenessAware):
        ...     def weight(self, staleness, state):
        ...         return jnp.where(staleness <= 2, 1.0, 0.0)
        >>> server = Forgetful(learning_rate=1.0)
        >>> state = server.init({"w": jnp.array([5.0])}, workers=4).replace(clock=jnp.int32(3))
        >>> [server.apply_update(state, {"w": jnp.array([1.0])}, read, 0).params["w"].tolist() for read in (0, 1, 3)]
        [[5.0], [4.0], [4.0]]
    """

    @abstractmethod
    def weight(self, staleness: Scalar, state: State) -> Scalar:
        """Return the factor [] of a step whose gradient is `staleness` updates old [] when the server is in `state`."""

    def apply_update(self, state: State, grads: Params, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step with `grads`, read at `timestamp`, times its weight: the optimizer sees the gradient as it is."""
        return self.step(state, grads, scale=self.weight(state.clock - timestamp, state))

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a gradient read at `timestamp`, times its weight on arrival, at `state.clock`."""
        return weighed(message, self.weight(state.clock - timestamp, state))

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with `total`, in which each of `count` gradients has its weight already."""
        return self.step(state, total)


class SASGD(StalenessAware):
    """Staleness-aware SGD: divide the step of each gradient by its staleness, counted in server updates.

    A step from 1 with a gradient of 1 that is 4, 2, 1 or 0 updates old:

        >>> from fred.systems.sasgd import SASGD
        >>> import jax.numpy as jnp
        >>> server = SASGD(learning_rate=1.0)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=4).replace(clock=jnp.int32(4))
        >>> gradient = {"w": jnp.array([1.0])}
        >>> [server.apply_update(state, gradient, timestamp=read, worker=0).params["w"].tolist() for read in (0, 2, 3, 4)]
        [[0.75], [0.5], [0.0], [0.0]]
    """

    name = "sasgd"
    family = Family.ANSWERED
    rule = "w <- w - step(g) / max(tau, 1)"
    protocol = "asynchronous"

    divisor: Divisor = Field(
        default="max(tau, 1)", description="divisor of the step by staleness; `tau + 1` is that of Odena's published code"
    )

    def weight(self, staleness: Scalar, state: State) -> Scalar:
        """Return 1 / max(staleness, 1), or the reciprocal of `divisor`, for a gradient `staleness` updates old []."""
        return 1 / divisor(self.divisor, staleness)


class ExponentialPenalty(StalenessAware):
    """Asynchronous SGD with an exponential penalty: multiply the step of each gradient by rho^staleness.

    Factors of gradients that are 0 to 3 updates stale:

        >>> from fred.systems.sasgd import ExponentialPenalty
        >>> import jax.numpy as jnp
        >>> server = ExponentialPenalty(learning_rate=0.1, rho=0.5)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=4)
        >>> [server.weight(tau, state) for tau in range(4)]
        [1.0, 0.5, 0.25, 0.125]
    """

    name = "exponential"
    family = Family.ANSWERED
    rule = "w <- w - rho^tau step(g)"
    protocol = "asynchronous"

    rho: Annotated[float, Field(gt=0, le=1)] = Field(default=0.9, description="factor of a step per update of staleness")

    def weight(self, staleness: Scalar, state: State) -> Scalar:
        """Return rho^staleness, for a gradient that is `staleness` updates old []."""
        return self.rho**staleness
