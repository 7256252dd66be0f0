"""Local SGD, and its outer momentum: BMUF, SlowMo, NoLoCo and SNOO.

| name      | source                                                                                                           |
|-----------|------------------------------------------------------------------------------------------------------------------|
| local-sgd | Stich 2018, arXiv:1805.09767, algorithm 1; Lin, Stich, Patel, Jaggi 2018, arXiv:1808.07217                       |
| adacomm   | Wang, Joshi 2019, arXiv:1810.08313, section 4                                                                    |
| bmuf      | Chen, Huo 2016, "Scalable training of deep learning machines by ... blockwise model-update filtering", section 2 |
| slowmo    | Wang, Tantia, Ballas, Rabbat 2020, "SlowMo", arXiv:1910.00643, algorithm 1                                       |
| noloco    | Kolehmainen et al. 2025, "NoLoCo: no-all-reduce low communication training", arXiv:2506.10911                    |
| snoo      | "SNOO: step-K Nesterov outer optimizer" 2025, arXiv:2510.15830                                                   |

Workers step their own models, which are averaged every few steps: a minute in which three workers take 0.5 s for each
gradient, and the fourth 2 s; periods of 1, 4 and 16 updates.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "local-sgd", "learning_rate": 0.1},
    ... }
    >>> for period in (1, 4, 16):
    ...     summary = fred.run(fred.scenario(settings, protocol={"period": period})).summary
    ...     summary[["updates", "messages_between_workers"]].iloc[0].tolist()
    [119, 696]
    [125, 168]
    [125, 24]

In BMUF, SlowMo, NoLoCo and SNOO, averages are steps of an outer optimizer with momentum. Every worker stores x_0, the model at
the start of its local steps, and the momentum. Both are the same for all workers of an average, so they are not sent.
"""

from __future__ import annotations

from pydantic import Field

from fred.base.imports import jax, jnp
from fred.learning.models.model import Params
from fred.learning.server import Decay, Family, Rate, Scalar, Server, State


class LocalSGD(Server):
    """Local SGD: workers step their own models; all models are averaged every `period` updates."""

    name = "local-sgd"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
w_i <- mean of all w    (every `period` updates)"""
    protocol = "local-steps"


class AdaComm(Server):
    """Local SGD with an adaptive period: the smaller the loss, the more often models are averaged."""

    name = "adacomm"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
w_i <- mean of all w                   (every H updates)
H <- ceil(H_0 sqrt(F(w) / F(w_0)))     (every T_0 s; or H / 2, if H would not fall)"""
    protocol = "local-steps"
    protocol_options = {"period": 16, "adapt_every": 60.0}


class _Outer(Server):
    """Local SGD whose outer optimizer steps from x_0 with the change that an average makes to it."""

    def init(self, params: Params, /, workers: int) -> State:
        return super().init(params, workers).replace(before=params, speed=jax.tree.map(jnp.zeros_like, params))

    def synchronize(self, state: State, mixed: Params, /, keep: Scalar, weight: Scalar) -> State:
        """Step the outer optimizer from x_0, instead of taking the average; local steps continue from the result."""
        averaged = super().synchronize(state, mixed, keep, weight)
        changes = jax.tree.map(jnp.subtract, averaged.params, state.before)
        speed = jax.tree.map(lambda velocity, change: self._new_speed(state, velocity, change), state.speed, changes)
        steps = jax.tree.map(lambda velocity, change: self._outer_step(state, velocity, change), speed, changes)
        params = jax.tree.map(jnp.add, state.before, steps)
        return averaged.replace(params=params, before=params, speed=speed)

    def _new_speed(self, state: State, speed: jax.Array, change: jax.Array) -> jax.Array:
        """Return the momentum after an average, given the `change` that this makes to an array of x_0."""
        raise NotImplementedError

    def _outer_step(self, state: State, speed: jax.Array, change: jax.Array) -> jax.Array:
        """Return the step from x_0, given the momentum after the same `change`."""
        raise NotImplementedError


class BMUF(_Outer):
    """Local SGD with blockwise momentum: the averaged change of a block of local steps is filtered by momentum.

    With `nesterov`, local steps begin ahead. A worker starts from 1, and two averages each change its model by 0.5:

        >>> from fred.systems.local_sgd import BMUF
        >>> import jax.numpy as jnp
        >>> def changed(server):
        ...     state, values = server.init({"w": jnp.array([1.0])}, workers=4), []
        ...     for _ in range(2):
        ...         state = server.synchronize(state, {"w": state.params["w"] + 0.5}, keep=0.0, weight=1.0)
        ...         values += state.params["w"].tolist()
        ...     return values
        >>> changed(BMUF(learning_rate=0.1)), changed(BMUF(learning_rate=0.1, nesterov=True))
        ([1.5, 2.375], [1.875, 3.03125])
    """

    name = "bmuf"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
d <- mu d + z (mean of all w_i - x_0)    (every `period` updates; mu = 1 - 1 / workers, z = 1)
w_i <- x_0 + d                           (`nesterov`: x_0 + z (mean of all w_i - x_0) + mu d)"""
    protocol = "local-steps"

    block_momentum: Decay | None = Field(default=None, description="mu: decay of the block momentum; absent: 1 - 1 / workers")
    block_rate: Rate = Field(default=1.0, description="z: factor of the averaged change of a block")
    nesterov: bool = Field(
        default=False, description="Nesterov momentum: whether local steps start from the model moved on by the momentum"
    )

    def init(self, params: Params, /, workers: int) -> State:
        momentum = 1 - 1 / workers if self.block_momentum is None else self.block_momentum
        return super().init(params, workers).replace(momentum=jnp.float32(momentum))

    def _new_speed(self, state: State, speed: jax.Array, change: jax.Array) -> jax.Array:
        return state.momentum * speed + self.block_rate * change

    def _outer_step(self, state: State, speed: jax.Array, change: jax.Array) -> jax.Array:
        return self.block_rate * change + state.momentum * speed if self.nesterov else speed


class NoLoCo(BMUF):
    """DiLoCo without allreduce: workers average in random pairs, with an outer momentum.

    The paper sends a worker's change and its model x_0; FRED sends their sum, which is all that the update uses.
    """

    name = "noloco"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
d <- mu d + z (mean of both w - x_0)    (every `period` updates, with another one)
w_i <- x_0 <- x_0 + d"""
    protocol = "in-pairs"

    block_momentum: Decay | None = Field(default=0.5, description="mu: decay of the block momentum; null: 1 - 1 / workers")
    block_rate: Rate = Field(default=0.7, description="z: factor of the averaged change of a block")


class SlowMo(_Outer):
    """Local SGD with slow momentum, in units of gradients, so that its steps scale with the learning rate.

    The state of each worker's optimizer stays with it. Averages can be those of any protocol, such as `gossip`. With a
    constant learning rate and a = 1 it is BMUF with momentum b and block rate 1.
    """

    name = "slowmo"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
u <- b u + (x_0 - mean of all w_i) / r    (every `period` updates; r: the learning rate)
w_i <- x_0 - a r u"""
    protocol = "local-steps"

    slow_rate: Rate = Field(default=1.0, description="a: learning rate of the slow steps")
    slow_momentum: Decay = Field(default=0.7, description="b: decay of the slow momentum; usually 0.4 to 0.8")

    def init(self, params: Params, /, workers: int) -> State:
        state = super().init(params, workers)
        return state.replace(due=state.rate)  # r: rate of the last local step

    def step(self, state: State, grads: Params, scale: float | Scalar = 1.0, model: Params | None = None) -> State:
        """Make a local step, and store its rate."""
        return super().step(state, grads, scale, model).replace(due=state.rate)

    def _new_speed(self, state: State, speed: jax.Array, change: jax.Array) -> jax.Array:
        return self.slow_momentum * speed - change / state.due

    def _outer_step(self, state: State, speed: jax.Array, change: jax.Array) -> jax.Array:
        return -self.slow_rate * state.due * speed


class SNOO(_Outer):
    """Outer Nesterov momentum on the change of K local steps, designed for a single worker.

    With several workers it is DiLoCo with the outer optimizer on each worker. K is the protocol's `period`.
    """

    name = "snoo"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
D <- x_0 - mean of all w_i    (every `period` updates)
b <- mu b + D
w_i <- x_0 - outer_rate (D + mu b)"""
    protocol = "local-steps"

    outer_rate: Rate = Field(default=0.7, description="learning rate of the outer steps")
    outer_momentum: Decay = Field(default=0.5, description="mu: decay of the outer momentum")

    def _new_speed(self, state: State, speed: jax.Array, change: jax.Array) -> jax.Array:
        return self.outer_momentum * speed - change

    def _outer_step(self, state: State, speed: jax.Array, change: jax.Array) -> jax.Array:
        return self.outer_rate * (change - self.outer_momentum * speed)
