"""DiLoCo, MuLoCo, PALSGD, SparseLoCo and EDiT: outer steps with the pseudo-gradients of local steps.

| name       | source                                                                                                       |
|------------|--------------------------------------------------------------------------------------------------------------|
| diloco     | Douillard et al. 2023, "DiLoCo", arXiv:2311.08105, algorithm 1                                               |
| muloco     | Thérien et al. 2025, "MuLoCo", arXiv:2505.23725                                                              |
| palsgd     | Naganuma et al. 2025, "Pseudo-asynchronous local SGD", arXiv:2504.18454, algorithm 1                         |
| sparseloco | Sarfi et al. 2025, "Communication efficient LLM pre-training with SparseLoCo", arXiv:2508.15706, algorithm 1 |
| edit       | Cheng et al. 2025, "EDiT: efficient distributed training", arXiv:2412.07210, algorithm 2                     |

A pseudo-gradient is the parameters before some local steps less those after them. In DiLoCo and MuLoCo an outer optimizer
applies their mean. PALSGD pulls a model towards the global one in place of some gradients. SparseLoCo sends sparse
pseudo-gradients. EDiT weighs, leaves out and clips them.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar

from pydantic import Field

from fred.base.imports import jax, jnp, optax
from fred.components.component import Natural
from fred.components.one_of import OneOf
from fred.learning import optimizer as optimizers
from fred.learning.codecs.codec import Codec, LowBit
from fred.learning.codecs.sparse import TopK
from fred.learning.models.model import Params
from fred.learning.optimizer import Optimizer, Transformation
from fred.learning.server import Family, Message, Rate, Scalar, Server, State

_NESTEROV = (Transformation.unchecked("sgd", momentum=0.9, nesterov=True),)
_LARGEST = {"name": "top-k", "share": 0.25, "error_feedback": 0.95}  # of small models, whose chunks are short


class DiLoCo(Server):
    """Local SGD with an outer optimizer, Nesterov momentum by default, that applies the mean pseudo-gradient.

    The state of a worker's inner optimizer stays with the worker.

    Two rounds with a mean pseudo-gradient of 1, at outer rate 0.5 with momentum 0.5:

        >>> from fred.systems.diloco import DiLoCo
        >>> import jax.numpy as jnp
        >>> diloco = DiLoCo(learning_rate=0.1, outer_rate=0.5, outer={"name": "sgd", "momentum": 0.5, "nesterov": True})
        >>> state, values = diloco.init({"w": jnp.array([4.0])}, workers=2), []
        >>> for _ in range(2):
        ...     state = diloco.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=2)
        ...     values += state.params["w"].tolist()
        >>> values
        [3.25, 2.375]
    """

    name = "diloco"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)                  (H times, from w on)
w <- w - outer step(mean of w - w_i)    (outer: by default D + mu b, where b <- mu b + D, times outer_rate)"""
    protocol = "outer-steps"

    outer_rate: Rate = Field(default=0.7, description="learning rate of the outer optimizer")
    outer: Optimizer = Field(
        default=_NESTEROV,
        description="optax gradient transformation of pseudo-gradients, or a list; default: SGD with Nesterov momentum 0.9",
    )

    def init(self, params: Params, /, workers: int) -> State:
        memory = optimizers.build(self.outer, self.outer_rate).init(params)
        return super().init(params, workers).replace(outer=memory)

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step the outer optimizer with `total`, the mean of `count` pseudo-gradients."""
        updates, memory = optimizers.build(self.outer, self.outer_rate).update(total, state.outer, state.params)
        return state.replace(params=optax.apply_updates(state.params, updates), outer=memory, clock=state.clock + 1)


class MuLoCo(DiLoCo):
    """DiLoCo with Muon as inner optimizer: orthogonalized steps for matrices, Adam with Nesterov momentum for vectors."""

    name = "muloco"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)                  (H times, from w on; Muon: about U V^T, of its momentum U S V^T)
w <- w - outer step(mean of w - w_i)"""
    protocol = "outer-steps"

    optimizer: Optimizer = Field(
        default=(Transformation.unchecked("muon"),),
        description="optax gradient transformation of local steps, or a list of them",
    )


class PALSGD(DiLoCo):
    """DiLoCo in which some local steps pull a worker's model towards the global model, instead of computing a gradient.

    With probability p (`pulls` of the protocol) a step is a pull. In the paper gradient steps have the rate eta / (1 - p),
    which is `learning_rate` here. A pull moves the model by the share (eta / p) k = rate (1 - p) / p k of the way.

    A pull of a model at 2 towards the global model at 1, with p = 0.2 and k = 0.5:

        >>> from fred.protocols.local_steps import pull_weight
        >>> from fred.systems.diloco import PALSGD
        >>> import jax.numpy as jnp
        >>> palsgd = PALSGD(learning_rate=0.25)
        >>> state = palsgd.init({"w": jnp.array([2.0])}, workers=2)
        >>> palsgd.synchronize(state, {"w": jnp.array([1.0])}, keep=1.0, weight=pull_weight(0.2)).params["w"].tolist()
        [1.5]
    """

    name = "palsgd"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)                               (of each H local updates, a share 1 - p)
w_i <- w_i - rate (1 - p) / p k (w_i - w)            (the others: `pulls`; no gradient, no message)
w <- w - outer step(mean of w - w_i)"""
    protocol = "outer-steps"
    protocol_options = {"pulls": 0.2}

    pulls_models: ClassVar[bool] = True

    strength: Annotated[float, Field(ge=0)] = Field(default=0.5, description="k: strength of the pulls")

    def check(self, workers: int) -> None:
        if optimizers.has_own_rate(self.optimizer):
            raise ValueError("pulls need the learning rate, which FRED cannot read in an object of optax: name the optimizer")

    def synchronize(self, state: State, mixed: Params, /, keep: Scalar, weight: Scalar) -> State:
        """Pull the model towards the global one, `mixed`, with `weight` from `pull_weight`; replace it if `keep` is 0."""
        share = jnp.where(keep == 0, 1.0, self.strength * state.rate * weight)

        def pull(leaf: jax.Array, global_leaf: jax.Array) -> jax.Array:
            return jnp.where(keep == 0, global_leaf, leaf - share * (leaf - global_leaf))

        return state.replace(params=jax.tree.map(pull, state.params, mixed))


class SparseLoCo(Server):
    """DiLoCo with top-k compressed pseudo-gradients; error feedback on each worker replaces the outer momentum.

    By default workers send 64 numbers of each chunk of 4,096, with 2 bits each; the paper makes 15 to 30 local steps.

        >>> from fred.systems.diloco import SparseLoCo
        >>> import jax.numpy as jnp
        >>> server = SparseLoCo(learning_rate=0.1, outer_rate=0.5)
        >>> state = server.init({"w": jnp.array([4.0])}, workers=2)
        >>> server.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=2).params["w"].tolist()
        [3.5]
    """

    name = "sparseloco"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)         (H times, from w on)
e_i <- beta e_i + w - w_i
s_i <- code(e_i)               (the largest of each chunk, quantised)
e_i <- e_i - s_i
w <- w - alpha mean of s_i     (alpha: `outer_rate`; beta: the codec's `error_feedback`)"""
    protocol = "outer-steps"

    outer_rate: Rate = Field(default=1.0, description="alpha: learning rate of the outer steps")
    codec: Annotated[Codec, OneOf("codec")] | None = Field(
        default=TopK(chunk=4096, share=1 / 64, values=LowBit(bits=2, zero=False), error_feedback=0.95),
        description="codec of pseudo-gradients; null: 4 bytes for each number",
        examples=[_LARGEST],
    )

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Subtract `total`, the mean of `count` coded pseudo-gradients, times the outer rate."""
        params = jax.tree.map(lambda leaf, change: leaf - self.outer_rate * change, state.params, total)
        return state.replace(params=params, clock=state.clock + 1)


class EDiT(DiLoCo):
    """DiLoCo with weighted averaging: large pseudo-gradients get less weight, outliers are left out, the mean is clipped.

    All this is done per array. An outlier is much longer than the moving average of its worker's lengths. In the first
    `warm_up` rounds no worker is left out. If all are left out, the step is that of the momentum alone. The published code's
    threshold also grows with the spread of recent scores, which is left out here.

    One of two pseudo-gradients is longer by ln 3, and has the weight 1/4:

        >>> from fred.systems.diloco import EDiT
        >>> import jax
        >>> import jax.numpy as jnp
        >>> edit = EDiT(learning_rate=0.1, outer_rate=1.0, outer="sgd")
        >>> state = edit.init({"w": jnp.array([4.0])}, workers=2)
        >>> messages = [{"w": jnp.array([length])} for length in (1.0, 2.0986123)]
        >>> joined = [edit.contribute(state, message, timestamp=0, worker=worker) for worker, message in enumerate(messages)]
        >>> total = jax.tree.map(lambda first, second: (first + second) / 2, *joined)
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
        default=(Transformation.unchecked("sgd", momentum=0.8, nesterov=True),),
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
    warm_up: Natural = Field(default=120, description="number of rounds at the start in which no worker is left out")

    def init(self, params: Params, /, workers: int) -> State:
        # usual and spread: mean and variance of each worker's lengths, per array; by_worker: its shape alone is used.
        zeros = jax.tree.map(lambda _: jnp.zeros(workers), params)
        return super().init(params, workers).replace(usual=zeros, spread=zeros, by_worker=jnp.zeros(workers))

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a pseudo-gradient, in its worker's row [workers, ...]."""
        workers = len(state.by_worker)  # a shape, which a compiled function must know
        return jax.tree.map(lambda leaf: jnp.zeros((workers, *leaf.shape)).at[worker].set(leaf), message)

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step the outer optimizer with a weighted mean of the pseudo-gradients; `total` has 1 / `count` of each."""
        pseudo_gradients = jax.tree.map(lambda leaf: count * leaf, total)
        lengths = jax.tree.map(lambda leaf: jnp.sqrt(jnp.square(leaf).reshape(len(leaf), -1).sum(1)), pseudo_gradients)
        inliers = jax.tree.map(partial(self._inliers, state), lengths, state.usual, state.spread)
        mean = jax.tree.map(self._mean, pseudo_gradients, lengths, inliers)
        stepped = super().apply_round(state, mean, timestamp, count)
        usual = jax.tree.map(partial(self._moving_mean, state), lengths, state.usual, inliers)
        spread = jax.tree.map(partial(self._spread, state), lengths, state.usual, usual, state.spread, inliers)
        return stepped.replace(usual=usual, spread=spread)

    def _inliers(self, state: State, lengths: jax.Array, usual: jax.Array, spread: jax.Array) -> jax.Array:
        """Return True for each worker whose pseudo-gradient is no outlier [workers]."""
        return (state.clock < self.warm_up) | (lengths - usual <= self.deviations * jnp.sqrt(spread))

    def _mean(self, pseudo_gradients: jax.Array, lengths: jax.Array, inliers: jax.Array) -> jax.Array:
        """Return the mean of an array's pseudo-gradients [workers, ...] that take part, weighted by length and clipped."""
        # The outer `where` is for a round without inliers, in which the softmax is NaN.
        weights = jnp.where(inliers, jax.nn.softmax(jnp.where(inliers, -lengths / self.temperature, -jnp.inf)), 0.0)
        mean = (weights.reshape(-1, *[1] * (pseudo_gradients.ndim - 1)) * pseudo_gradients).sum(0)
        length = jnp.sqrt(jnp.square(mean).sum())
        return mean * (self.longest / jnp.maximum(length, self.longest))

    def _moving_mean(self, state: State, lengths: jax.Array, usual: jax.Array, inliers: jax.Array) -> jax.Array:
        """Return the moving averages of lengths, which start with the first lengths [workers]."""
        updated = jnp.where(state.clock == 0, lengths, usual + self.decay * (lengths - usual))
        return jnp.where(inliers, updated, usual)

    def _spread(
        self, state: State, lengths: jax.Array, old_mean: jax.Array, new_mean: jax.Array, spread: jax.Array, inliers: jax.Array
    ) -> jax.Array:
        """Return the moving variances of lengths [workers]."""
        updated = (1 - self.decay) * (spread + self.decay * (lengths - old_mean) * (lengths - new_mean))
        return jnp.where(inliers, jnp.where(state.clock == 0, 0.0, updated), spread)
