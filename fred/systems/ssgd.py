"""Synchronous SGD that waits for fewer workers: backup workers, cutoffs and DBW.

| name          | source                                                                      |
|---------------|-----------------------------------------------------------------------------|
| cutoff-sgd    | Teng & Wood 2018, algorithm 1                                               |
| dbw           | Xu, Neglia & Sebastianelli 2020, arXiv:2004.14696                           |
| ssgd          | Chen, Pan, Monga, Bengio, Jozefowicz 2017, arXiv:1604.00981, algorithm 4    |
| m-sync        | Dutta et al. 2018, arXiv:1803.01113, section 2, as k-sync; arXiv:2602.03802 |
| allreduce-sgd | Li et al. 2021, section 2                                                   |

Each update averages the gradients of a round, such as 1 and 3:

    >>> import fred
    >>> import jax.numpy as jnp
    >>> server = fred.Server(learning_rate=0.5)
    >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
    >>> state = server.apply_round(state, {"w": jnp.array([(1.0 + 3.0) / 2])}, timestamp=0, count=2)
    >>> state.params["w"].tolist(), int(state.clock)
    ([0.0], 1)

Cutoff SGD steps with the gradients before a cutoff: a minute in which three workers take 0.5 s for each gradient, and the
fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "cutoff-sgd", "learning_rate": 0.1},
    ... }
    >>> for rule in ("all", {"name": "count", "workers": 3}):
    ...     summary = fred.run(fred.scenario(settings, protocol={"rule": rule})).summary
    ...     summary[["updates", "gradients_applied", "gradients_dropped"]].iloc[0].tolist()
    [29, 116, 0]
    [119, 357, 119]

DBW has dynamic backup workers: their number follows from the noise of gradients and from compute times.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from fred.base.imports import jax, jnp
from fred.learning import optimizer as optimizers
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, Server, State

_FOR_ALL = 1e30  # noise of which no number of gradients is enough


class SSGD(Server):
    """Synchronous SGD, optionally with backup workers: each update averages the gradients of a round."""

    name = "ssgd"
    family = Family.FRESH
    rule = "w <- w - step(mean of the round's g)"
    protocol = "synchronous"


class MSync(Server):
    """m-synchronous SGD: each update averages the first m gradients of a round; slower workers restart."""

    name = "m-sync"
    family = Family.FRESH
    rule = "w <- w - step(mean of the first m of n g)"
    protocol = "synchronous"
    protocol_options = {"late": "interrupt"}


class AllreduceSGD(Server):
    """Synchronous SGD without servers: an allreduce averages all gradients, and all workers make the same update."""

    name = "allreduce-sgd"
    family = Family.FRESH
    rule = "w <- w - step(mean of all n g)"
    protocol = "allreduce"


class CutoffSGD(Server):
    """Synchronous SGD with a cutoff: each update averages the first gradients of a round and drops the others."""

    name = "cutoff-sgd"
    family = Family.FRESH
    rule = "w <- w - step(mean of the first c of n g)"
    protocol = "cutoff"


class DBW(Server):
    """Synchronous SGD with dynamic backup workers: k, the number of gradients to wait for, follows from noise and timing.

    A step of rate eta along the mean of k gradients lowers the loss by at least (eta - L eta^2 / 2) |g|^2 -
    (L eta^2 / 2) V / k. This is proportional to 1 - noise / k. L is the smoothness of the loss. Each round with several
    gradients gives estimates of their variance V and of |g|^2, which are averaged over rounds. `statistic` is the noise, for
    the rule `backup` of the protocol `cutoff`, which estimates times. The paper also estimates L, which is an option here.

    A round with the gradients 1 and 3: their variance is 2, and |g|^2 is 2^2 - 2 / 2:

        >>> from fred.systems.ssgd import DBW
        >>> import jax.numpy as jnp
        >>> server = DBW(learning_rate=0.5)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
        >>> messages = [server.contribute(state, {"w": jnp.array([gradient])}, 0, 0) for gradient in (1.0, 3.0)]
        >>> mean = jax.tree.map(lambda first, second: (first + second) / 2, *messages)
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
        default=None, description="L: smoothness of the loss; absent: 1 / learning rate, for which that rate is optimal"
    )
    decay: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.8, description="decay of the moving averages of V and of |g|^2"
    )

    def check(self, workers: int) -> None:
        if self.smoothness is not None and optimizers.has_own_rate(self.optimizer):
            raise ValueError(
                "`smoothness` needs the learning rate, which FRED cannot read in an object of optax: name the optimizer"
            )

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state before the first update, with V and |g|^2, infinite until the first estimate."""
        return super().init(params, workers).replace(variance=jnp.float32(jnp.inf), squared=jnp.float32(jnp.inf))

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the gradient `message`, and its squared length."""
        return {"gradient": message, "squared": _squared_norm(message)}

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with the mean gradient of `total`, and update V and |g|^2 from the spread of its `count` gradients."""
        squared_mean, count = _squared_norm(total["gradient"]), jnp.float32(count)
        # The mean of |g|^2 less |mean|^2 is the variance of these gradients; k / (k - 1) times that estimates V.
        sample_variance = jnp.maximum(total["squared"] - squared_mean, 0.0) * count / jnp.maximum(count - 1, 1)
        variance = jnp.where(count > 1, self._moving_average(state.variance, sample_variance), state.variance)
        squared = self._moving_average(state.squared, squared_mean - variance / jnp.maximum(count, 1))
        return self.step(state, total["gradient"]).replace(variance=variance, squared=squared)

    def statistic(self, state: State, /) -> Scalar:
        """Return the noise []: a step with more gradients than that is expected to lower the loss."""
        l_eta = jnp.float32(1) if self.smoothness is None else self.smoothness * state.rate  # L eta
        noise = l_eta / (2 - l_eta) * state.variance / state.squared
        estimable = (l_eta < 2) & (state.squared > 0) & (noise < _FOR_ALL)
        return jnp.where(estimable, noise, _FOR_ALL)

    def _moving_average(self, old: Scalar, new: Scalar) -> Scalar:
        """Return the moving average after one more estimate; the first replaces infinity."""
        return jnp.where(jnp.isfinite(old), self.decay * old + (1 - self.decay) * new, new)


def _squared_norm(arrays: Params) -> jax.Array:
    return sum((jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(arrays)), jnp.float32(0))
