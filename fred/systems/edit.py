"""EDiT: DiLoCo that weighs, leaves out and clips pseudo-gradients.

| name    | source                                                                                   |
|---------|------------------------------------------------------------------------------------------|
| edit    | Cheng et al. 2025, "EDiT: efficient distributed training", arXiv:2412.07210, algorithm 2 |
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field

from fred.base.later import jax, jnp
from fred.components.component import Whole
from fred.learning.models.model import Params
from fred.learning.optimizer import Optimizer, Transformation
from fred.learning.server import Family, Message, Scalar, State
from fred.systems.diloco import DiLoCo


class EDiT(DiLoCo):
    """DiLoCo with weighted averaging: large pseudo-gradients get less weight, outliers are left out, the mean is clipped.

    All this is done per array. An outlier is much longer than the moving average of its worker's lengths. In the first
    `warm_up` rounds no worker is left out. If all are left out, the step is that of the momentum alone. The published code's
    threshold also grows with the spread of recent scores, which is left out here.

    One of two pseudo-gradients is longer by ln 3, and has the weight 1/4:

        >>> from fred.systems.edit import EDiT
        >>> import jax
        >>> import jax.numpy as jnp
        >>> edit = EDiT(learning_rate=0.1, outer_rate=1.0, outer="sgd")
        >>> state = edit.init({"w": jnp.array([4.0])}, workers=2)
        >>> brought = [{"w": jnp.array([length])} for length in (1.0, 2.0986123)]
        >>> joined = [edit.contribute(state, each, timestamp=0, worker=worker) for worker, each in enumerate(brought)]
        >>> total = jax.tree.map(lambda one, other: (one + other) / 2, *joined)
        >>> round(float(edit.apply_round(state, total, timestamp=0, count=2).params["w"][0]), 4)  # 4 - (3/4 + 2.0986 / 4)
        2.7253
    """

    name = "edit"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)    (H times, from w on; or for `every` seconds)
a_i = |w - w_i|; i is out if a_i - m_i > z sqrt(v_i)
D <- sum over the others of softmax(-a_i / T) (w - w_i), clipped to norm c
w <- w - outer step(D); m_i and v_i follow a_i, unless i is out"""
    protocol = "outer-steps"

    outer: Optimizer = Field(
        default=(Transformation.usual("sgd", momentum=0.8, nesterov=True),),
        description="optax gradient transformation of pseudo-gradients, or a list; default: SGD with Nesterov momentum 0.8",
    )
    temperature: Annotated[float, Field(gt=0)] = Field(
        default=1.0, description="T: temperature of the weights; the larger, the more equal they are"
    )
    longest: Annotated[float, Field(gt=0)] = Field(
        default=10.0, description="c: largest norm of an array's mean pseudo-gradient"
    )
    deviations: Annotated[float, Field(gt=0)] = Field(
        default=3.0, description="z: standard deviations above the mean length from which a pseudo-gradient is an outlier"
    )
    decay: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.02, description="weight of a new length in the moving averages"
    )
    warm_up: Whole = Field(default=120, description="number of rounds at the start in which no worker is left out")

    def init(self, params: Params, /, workers: int) -> State:
        usual = jax.tree.map(lambda _: jnp.zeros(workers), params)
        return super().init(params, workers).replace(usual=usual, spread=usual, workers=jnp.zeros(workers))

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a pseudo-gradient, in its worker's row [workers, ...]."""
        places = len(state.workers)
        return jax.tree.map(lambda leaf: jnp.zeros((places, *leaf.shape)).at[worker].set(leaf), message)

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step the outer optimizer with a weighted mean of the pseudo-gradients; `total` has 1 / `count` of each."""
        places = jax.tree.map(lambda leaf: count * leaf, total)
        lengths = jax.tree.map(lambda each: jnp.sqrt(jnp.square(each).reshape(len(each), -1).sum(1)), places)
        kept = jax.tree.map(partial(self._kept, state), lengths, state.usual, state.spread)
        stepped = super().apply_round(state, jax.tree.map(self._mean, places, lengths, kept), timestamp, count)
        usual = jax.tree.map(partial(self._usual, state), lengths, state.usual, kept)
        spread = jax.tree.map(partial(self._spread, state), lengths, state.usual, usual, state.spread, kept)
        return stepped.replace(usual=usual, spread=spread)

    def _kept(self, state: State, lengths: jax.Array, usual: jax.Array, spread: jax.Array) -> jax.Array:
        """Return True for each worker whose pseudo-gradient is no outlier [workers]."""
        return (state.clock < self.warm_up) | (lengths - usual <= self.deviations * jnp.sqrt(spread))

    def _mean(self, places: jax.Array, lengths: jax.Array, kept: jax.Array) -> jax.Array:
        """Return the mean of the pseudo-gradients that take part, weighted by length and clipped."""
        weights = jnp.where(kept, jax.nn.softmax(jnp.where(kept, -lengths / self.temperature, -jnp.inf)), 0.0)
        mean = (weights.reshape(-1, *[1] * (places.ndim - 1)) * places).sum(0)
        length = jnp.sqrt(jnp.square(mean).sum())
        return mean * (self.longest / jnp.maximum(length, self.longest))

    def _usual(self, state: State, lengths: jax.Array, usual: jax.Array, kept: jax.Array) -> jax.Array:
        """Return the moving averages of lengths, which start with the first lengths [workers]."""
        followed = jnp.where(state.clock == 0, lengths, usual + self.decay * (lengths - usual))
        return jnp.where(kept, followed, usual)

    def _spread(
        self, state: State, lengths: jax.Array, before: jax.Array, after: jax.Array, spread: jax.Array, kept: jax.Array
    ) -> jax.Array:
        """Return the moving variances of lengths [workers]."""
        followed = (1 - self.decay) * (spread + self.decay * (lengths - before) * (lengths - after))
        return jnp.where(kept, jnp.where(state.clock == 0, 0.0, followed), spread)
