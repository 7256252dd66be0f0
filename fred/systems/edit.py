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
from fred.learning.server import Message, Scalar, State
from fred.systems.diloco import DiLoCo

ALGORITHMS = {
    "edit": {
        "family": "averaged",
        "rule": """\
w_i <- w_i - step(g_i)    (H times, from w on; or for so many seconds: `every`)
a_i = |w - w_i|; i is out if a_i - m_i > z sqrt(v_i)
D <- sum over who is not out of softmax(-a_i / T) (w - w_i), cut to length c
w <- w - outer step(D); m_i and v_i follow a_i, unless i is out""",
        "server": "EDiT",
        "protocol": "outer-steps",
    },
}


class EDiT(DiLoCo):
    """DiLoCo that trusts small differences more than large ones, leaves out what is much larger than usual, and clips.

    All of it array by array. What is usual for a worker's lengths is followed by moving averages, which begin with the first
    length; `warm_up` rounds leave no worker out. Where all are out, momentum alone goes on. The published code's
    threshold also grows with the spread of recent scores, which is left out here.

    Of two differences, one is longer by ln 3, and counts for a quarter:

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

    outer: Optimizer = Field(
        (Transformation.usual("sgd", momentum=0.8, nesterov=True),),
        description="optax gradient transformation for differences, or a list of them: SGD with Nesterov momentum 0.8",
    )
    temperature: Annotated[float, Field(gt=0)] = Field(1.0, description="T: the larger, the more alike the weights")
    longest: Annotated[float, Field(gt=0)] = Field(10.0, description="c: of an array's mean difference")
    deviations: Annotated[float, Field(gt=0)] = Field(
        3.0, description="z: standard deviations above the mean that are too many"
    )
    decay: Annotated[float, Field(gt=0, le=1)] = Field(0.02, description="what a new length counts for in what is usual")
    warm_up: Whole = Field(120, description="rounds at the start in which no worker is left out")

    def init(self, params: Params, workers: int) -> State:
        usual = jax.tree.map(lambda _: jnp.zeros(workers), params)
        return super().init(params, workers).replace(usual=usual, spread=usual, workers=jnp.zeros(workers))

    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a pseudo-gradient, in its worker's place."""
        places = len(state.workers)
        return jax.tree.map(lambda leaf: jnp.zeros((places, *leaf.shape)).at[worker].set(leaf), message)

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """Step the outer optimizer with a weighted mean of the pseudo-gradients; `total` has 1 / `count` of each."""
        places = jax.tree.map(lambda leaf: count * leaf, total)
        lengths = jax.tree.map(lambda each: jnp.sqrt(jnp.square(each).reshape(len(each), -1).sum(1)), places)
        kept = jax.tree.map(partial(self._kept, state), lengths, state.usual, state.spread)
        stepped = super().apply_round(state, jax.tree.map(self._mean, places, lengths, kept), timestamp, count)
        usual = jax.tree.map(partial(self._usual, state), lengths, state.usual, kept)
        spread = jax.tree.map(partial(self._spread, state), lengths, state.usual, usual, state.spread, kept)
        return stepped.replace(usual=usual, spread=spread)

    def _kept(self, state: State, lengths: jax.Array, usual: jax.Array, spread: jax.Array) -> jax.Array:
        """Return which workers take part, by the lengths of their pseudo-gradients."""
        return (state.clock < self.warm_up) | (lengths - usual <= self.deviations * jnp.sqrt(spread))

    def _mean(self, places: jax.Array, lengths: jax.Array, kept: jax.Array) -> jax.Array:
        """Return the mean of the pseudo-gradients that take part, weighted by length and clipped."""
        weights = jnp.where(kept, jax.nn.softmax(jnp.where(kept, -lengths / self.temperature, -jnp.inf)), 0.0)
        mean = (weights.reshape(-1, *[1] * (places.ndim - 1)) * places).sum(0)
        length = jnp.sqrt(jnp.square(mean).sum())
        return mean * (self.longest / jnp.maximum(length, self.longest))

    def _usual(self, state: State, lengths: jax.Array, usual: jax.Array, kept: jax.Array) -> jax.Array:
        """Return the moving average of lengths, which begins with the first."""
        followed = jnp.where(state.clock == 0, lengths, usual + self.decay * (lengths - usual))
        return jnp.where(kept, followed, usual)

    def _spread(
        self, state: State, lengths: jax.Array, before: jax.Array, after: jax.Array, spread: jax.Array, kept: jax.Array
    ) -> jax.Array:
        """Return the moving variance about that average."""
        followed = (1 - self.decay) * (spread + self.decay * (lengths - before) * (lengths - after))
        return jnp.where(kept, jnp.where(state.clock == 0, 0.0, followed), spread)
