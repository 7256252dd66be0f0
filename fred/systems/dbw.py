"""DBW: synchronous SGD with dynamic backup workers [Xu, Neglia & Sebastianelli 2020, arXiv:2004.14696]."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from fred.base.later import jax, jnp
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, Server, State

_FOR_ALL = 1e30  # noise of which no number of gradients is enough


class DBW(Server):
    """Synchronous SGD with dynamic backup workers: k, the number of gradients to wait for, follows from noise and timing.

    A step of rate eta along the mean of k gradients lowers the loss by at least (eta - L eta^2 / 2) |g|^2 -
    (L eta^2 / 2) V / k. This is proportional to 1 - noise / k. L is the smoothness of the loss. Each round with several
    gradients gives estimates of their variance V and of |g|^2, which are averaged over rounds. `statistic` is the noise, for
    the rule `backup` of the protocol `cutoff`, which estimates times. The paper also estimates L, which is an option here.

    A round with the gradients 1 and 3: their variance is 2, and |g|^2 is 2^2 - 2 / 2:

        >>> from fred.systems.dbw import DBW
        >>> import jax.numpy as jnp
        >>> server = DBW(learning_rate=0.5)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
        >>> messages = [server.contribute(state, {"w": jnp.array([gradient])}, 0, 0) for gradient in (1.0, 3.0)]
        >>> mean = jax.tree.map(lambda one, other: (one + other) / 2, *messages)
        >>> state = server.apply_round(state, mean, timestamp=0, count=2)
        >>> state.params["w"].tolist(), round(float(server.statistic(state)), 4)
        ([0.0], 0.6667)
    """

    name = "dbw"
    family = Family.FRESH
    rule = """\
w <- w - step(mean of the first k of n g)
k = argmax of (1 - noise / k) / (expected time of k g)
noise = L eta / (2 - L eta) V / G
V <- decay V + (1 - decay) (variance of the round's g)    (if k > 1)
G <- decay G + (1 - decay) (|mean|^2 - V / k)"""
    protocol = "cutoff"
    protocol_options = {"rule": {"name": "backup", "noise": "measured", "objective": "round"}}

    divisible: ClassVar[bool] = False  # lengths are those of whole gradients
    has_statistic: ClassVar[bool] = True
    weights_examples: ClassVar[bool] = False  # the variance is that of equally noisy gradients

    smoothness: Annotated[float, Field(gt=0)] | None = Field(
        None, description="L: smoothness of the loss; absent: 1 / learning rate, for which that rate is optimal"
    )
    decay: Annotated[float, Field(ge=0, lt=1)] = Field(0.8, description="decay of the moving averages of V and of |g|^2")

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state before the first update, with V and |g|^2, infinite until the first estimate."""
        return super().init(params, workers).replace(variance=jnp.float32(jnp.inf), squared=jnp.float32(jnp.inf))

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the gradient `message`, and its squared length."""
        return {"gradient": message, "squared": _squared(message)}

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with the mean gradient of `total`, and update V and |g|^2 from the spread of its `count` gradients."""
        length, count = _squared(total["gradient"]), jnp.float32(count)
        shown = jnp.maximum(total["squared"] - length, 0.0) * count / jnp.maximum(count - 1, 1)
        variance = jnp.where(count > 1, self._averaged(state.variance, shown), state.variance)
        squared = self._averaged(state.squared, length - variance / jnp.maximum(count, 1))
        return self.step(state, total["gradient"]).replace(variance=variance, squared=squared)

    def statistic(self, state: State, /) -> Scalar:
        """Return the noise []: a step with more gradients than that is expected to lower the loss."""
        step = jnp.float32(1) if self.smoothness is None else self.smoothness * state.rate
        noise = step / (2 - step) * state.variance / state.squared
        known = (step < 2) & (state.squared > 0) & (noise < _FOR_ALL)
        return jnp.where(known, noise, _FOR_ALL)

    def _averaged(self, old: Scalar, new: Scalar) -> Scalar:
        return jnp.where(jnp.isfinite(old), self.decay * old + (1 - self.decay) * new, new)


def _squared(arrays: Params) -> jax.Array:
    return sum((jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(arrays)), jnp.float32(0))
