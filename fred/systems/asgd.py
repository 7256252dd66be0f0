"""Asynchronous SGD: plain, with steps weighted by staleness, and FASGD.

| name        | source                                                                              |
|-------------|-------------------------------------------------------------------------------------|
| asgd        | Dean et al. 2012, "Large scale distributed deep networks"; Odena 2016, section 2.1  |
| sasgd       | Zhang, Gupta, Lian, Liu 2016, arXiv:1511.05950, eq. 7; Odena 2016, eqs. 1-2         |
| exponential | Chan & Lane 2014, "Distributed asynchronous optimization of convolutional networks" |
| fasgd       | Odena 2016, arXiv:1601.04033, eqs. 4-8; v as docs/errata.md item 3 corrects it      |
| b-fasgd     | Odena 2016, arXiv:1601.04033, section 2.3; docs/errata.md, item 5                   |

SASGD and the exponential penalty weight steps by a function of the staleness. FASGD divides them by a moving standard deviation
of the gradient, too.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fred.base.imports import jax, jnp
from fred.learning.models.model import Params
from fred.learning.server import Decay, Family, Message, Scalar, Server, State

Divisor = Literal["max(tau, 1)", "tau + 1"]


class ASGD(Server):
    """Asynchronous SGD: apply every gradient on arrival, whatever its staleness.

    Two gradients at the initial parameters; the second is one update stale:

        >>> import fred
        >>> import jax.numpy as jnp
        >>> asgd = fred.ASGD(learning_rate=0.5)
        >>> state = asgd.init({"w": jnp.array([1.0])}, workers=2)
        >>> for worker, gradient in enumerate((1.0, 3.0)):
        ...     state = asgd.apply_update(state, {"w": jnp.array([gradient])}, timestamp=0, worker=worker)
        >>> state.params["w"].tolist(), int(state.clock)
        ([-1.0], 2)
    """

    name = "asgd"
    family = Family.AS_THEY_COME
    rule = "w <- w - step(g)"
    protocol = "asynchronous"


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

        >>> from fred.systems.asgd import StalenessAware
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

        >>> from fred.systems.asgd import SASGD
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

        >>> from fred.systems.asgd import ExponentialPenalty
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


class FASGD(Server):
    """Divide each parameter's step by a moving average v of its gradient's standard deviation, and by the staleness.

    `std`: v averages the standard deviation sqrt(n - b^2 + epsilon), as the paper's prose says.
    `published-code`: m averages |g| and stands for v + 0.001; the staleness divides as tau + 1.
    `literal`: v averages 1 / sqrt(n - b^2 + epsilon), so that dividing by it *multiplies* by the deviation, as printed.
    In a round each gradient is divided by its own staleness; v is that of the plain mean (docs/errata.md, item 30).

    The same gradient twice: its deviation shrinks, so v falls from 1, and the second step is longer than the first:

        >>> from fred.systems.asgd import FASGD
        >>> import jax.numpy as jnp
        >>> fasgd = FASGD(learning_rate=0.1)
        >>> state = fasgd.init({"w": jnp.array([1.0])}, workers=1)
        >>> for clock in range(2):
        ...     state = fasgd.apply_update(state, {"w": jnp.array([1.0])}, timestamp=clock, worker=0)
        ...     print(*(round(float(value[0]), 4) for value in (state.n["w"], state.b["w"], state.v["w"], state.params["w"])))
        0.1 0.1 0.93 0.8925
        0.19 0.19 0.8763 0.7784
    """

    name = "fasgd"
    family = Family.ANSWERED
    rule = """\
n <- gamma n + (1 - gamma) g^2
b <- gamma b + (1 - gamma) g
v <- beta v + (1 - beta) sqrt(n - b^2 + epsilon)
w <- w - step(g / v) / max(tau, 1)"""
    protocol = "asynchronous"

    variant: Literal["std", "published-code", "literal"] = Field(default="std", description="definition of v")
    gamma: Decay = Field(default=0.9, description="decay of the gradient's moving moments n and b")
    beta: Decay = Field(default=0.9, description="decay of v (of m, with `published-code`)")
    epsilon: float = Field(default=1e-4, gt=0, description="added to the variance (`published-code` adds 0.001 to m instead)")
    v0: float = Field(default=1.0, ge=0, description="v before the first update (`published-code` starts from 0)")
    divisor: Divisor = Field(default="max(tau, 1)", description="divisor of a step by staleness (`published-code`: tau + 1)")

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state before the first update, with n, b and v (or m), each like `params`."""
        zeros = jax.tree.map(jnp.zeros_like, params)
        state = super().init(params, workers)
        if self.variant == "published-code":
            return state.replace(m=zeros)
        return state.replace(n=zeros, b=zeros, v=jax.tree.map(lambda p: jnp.full_like(p, self.v0), params))

    def apply_update(self, state: State, grads: Params, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step with grads / v over the divisor of the staleness, where v has seen `grads` already (eqs. 4-8)."""
        state, v = self._deviation(state, grads)
        scaled = jax.tree.map(jnp.divide, grads, v)
        return self.step(state, scaled, scale=1 / self._divisor(state, timestamp))  # eqs. 7-8

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the gradient as it is, for the moments n and b, and divided by its own staleness, for the step."""
        return {"gradient": message, "weighed": weighed(message, 1 / self._divisor(state, timestamp))}

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with `total["weighed"]` / v, where v has seen the mean gradient, `total["gradient"]`."""
        state, v = self._deviation(state, total["gradient"])
        return self.step(state, jax.tree.map(jnp.divide, total["weighed"], v))

    def _divisor(self, state: State, timestamp: Scalar) -> Scalar:
        staleness = state.clock - timestamp  # tau, updates
        return divisor("tau + 1" if self.variant == "published-code" else self.divisor, staleness)

    def _deviation(self, state: State, grads: Params) -> tuple[State, Params]:
        """Return the moments after one more gradient, or a round's mean, and the divisor of steps (eqs. 4-6)."""
        if self.variant == "published-code":
            m = _average(self.beta, state.m, jax.tree.map(jnp.abs, grads))
            return state.replace(m=m), jax.tree.map(lambda m: m + 0.001, m)
        n = _average(self.gamma, state.n, jax.tree.map(jnp.square, grads))  # eq. 4
        b = _average(self.gamma, state.b, grads)  # eq. 5
        deviation = jax.tree.map(lambda n, b: jnp.sqrt(n - b * b + self.epsilon), n, b)
        if self.variant == "literal":
            deviation = jax.tree.map(jnp.reciprocal, deviation)
        v = _average(self.beta, state.v, deviation)  # eq. 6
        return state.replace(n=n, b=b, v=v), v


def _average(decay: float, old: Params, new: Params) -> Params:
    """Return the exponential moving average."""
    return jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, old, new)


class BFASGD(FASGD):
    """FASGD with gated messages: workers push and fetch less often as the gradients' standard deviation v shrinks.

    The statistic is the mean of v over all parameters; at first it is `v0`:

        >>> from fred.systems.asgd import BFASGD
        >>> import jax.numpy as jnp
        >>> server = BFASGD(learning_rate=0.1)
        >>> state = server.init({"w": jnp.zeros(3), "b": jnp.zeros(1)}, workers=2)
        >>> v = {"w": jnp.array([1.0, 1.0, 0.0]), "b": jnp.array([0.0])}
        >>> float(server.statistic(state)), float(server.statistic(state.replace(v=v)))
        (1.0, 0.5)
    """

    name = "b-fasgd"
    family = Family.ANSWERED
    rule = """\
w <- as in fasgd, with g, or the worker's last g again if this one is not sent
P(a message is sent) = 1 / (1 + c / (mean of v + epsilon))"""
    protocol = "gated"

    has_statistic: ClassVar[bool] = True

    def statistic(self, state: State, /) -> Scalar:
        """Return the mean of v (of m, with `published-code`) over all parameters of `state`: a float32 number []."""
        leaves = jax.tree.leaves(state.m if self.variant == "published-code" else state.v)
        return jnp.concatenate([leaf.ravel() for leaf in leaves]).mean()
