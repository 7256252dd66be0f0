"""Local steps from a common model on, and an outer optimizer for what they have changed: DiLoCo, and what came of it.

| class           | source                                                                                   |
|-----------------|------------------------------------------------------------------------------------------|
| DiLoCo          | Douillard et al. 2023, "DiLoCo", arXiv:2311.08105, algorithm 1                           |
| MuLoCo          | Thérien et al. 2025, "MuLoCo", arXiv:2505.23725                                          |
| StreamingDiLoCo | Douillard et al. 2025, "Streaming DiLoCo", arXiv:2501.18512, algorithm 2                 |
| EagerDiLoCo     | Kale, Douillard, Donchev 2025, "Eager updates for overlapped communication and           |
|                 | computation in DiLoCo", arXiv:2502.12996                                                 |
| DecoupledDiLoCo | "Decoupled DiLoCo" 2026, arXiv:2604.21428                                                |
| PALSGD          | Naganuma et al. 2025, "Pseudo-asynchronous local SGD", arXiv:2504.18454, algorithm 1     |
| EDiT            | Cheng et al. 2025, "EDiT: efficient distributed training", arXiv:2412.07210, algorithm 2 |

A difference is parameters at the start of some steps, less those at their end: what a gradient would be.
"""

from functools import partial
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from pydantic import Field, field_validator

from fred.components.component import Whole
from fred.learning import optimizer as optimizers
from fred.learning.models.model import Params
from fred.learning.optimizer import Optimizer, Transformation
from fred.learning.server import Family, Message, Rate, Scalar, Server, State

_NESTEROV = (Transformation(name="sgd", momentum=0.9, nesterov=True),)


class DiLoCo(Server):
    """The mean of what workers' local steps have changed is a gradient for an outer optimizer, with Nesterov momentum.

    What the workers' own optimizer remembers stays with each worker.

    Two rounds whose mean difference is 1, at outer rate 0.5 with momentum 0.5:

        >>> from fred.learning.servers.diloco import DiLoCo
        >>> import jax.numpy as jnp
        >>> diloco = DiLoCo(learning_rate=0.1, outer_rate=0.5, outer={"name": "sgd", "momentum": 0.5, "nesterov": True})
        >>> state, values = diloco.init({"w": jnp.array([4.0])}, workers=2), []
        >>> for _ in range(2):
        ...     state = diloco.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=2)
        ...     values += state.params["w"].tolist()
        >>> values
        [3.25, 2.375]
    """

    family: ClassVar[Family] = Family.AVERAGED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)                  (H times, from w on)
w <- w - outer step(mean of w - w_i)    (outer: by default D + mu b, where b <- mu b + D, times outer_rate)"""
    protocol: ClassVar[str] = "outer-steps"

    outer_rate: Rate = Field(0.7, description="learning rate of the outer optimizer")
    outer: Optimizer = Field(
        _NESTEROV,
        description="optax gradient transformation for differences, or a list of them: SGD with Nesterov momentum 0.9",
    )

    @field_validator("outer")
    @classmethod
    def _outer_rate_enters(cls, outer: Optimizer) -> Optimizer:
        if sum(part.takes_rate for part in outer) != 1:
            raise ValueError("exactly one transformation must take the outer rate (sgd, adam, rmsprop, ...)")
        return outer

    def init(self, params: Params, workers: int) -> State:
        memory = optimizers.build(self.outer, self.outer_rate).init(params)
        return super().init(params, workers).replace(outer=memory)

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """A step of the outer optimizer with `total`, the mean of `count` differences."""
        updates, memory = optimizers.build(self.outer, self.outer_rate).update(total, state.outer, state.params)
        return state.replace(params=optax.apply_updates(state.params, updates), outer=memory, clock=state.clock + 1)


class MuLoCo(DiLoCo):
    """DiLoCo whose local steps are Muon's: nearly orthogonal for matrices, Adam's with Nesterov momentum for vectors."""

    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)                  (H times, from w on; Muon: about U V^T, of its momentum U S V^T)
w <- w - outer step(mean of w - w_i)"""
    protocol: ClassVar[str] = "outer-steps"

    optimizer: Optimizer = Field(
        (Transformation(name="muon"),), description="optax gradient transformation of local steps, or a list of them"
    )


class StreamingDiLoCo(DiLoCo):
    """DiLoCo in fragments of the model, one after the other, whose allreduce workers need not wait for.

    With one fragment, no delay and no mixing it is DiLoCo.
    """

    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
D <- mean of w_p - w_p,i                             (fragment p, `delay` updates before its turn; every H / P the next p)
w_p <- w_p - outer step(D)                           (at its turn)
w_p,i <- (1 - alpha) w_p + alpha w_p,i"""
    protocol: ClassVar[str] = "streaming"


class EagerDiLoCo(DiLoCo):
    """DiLoCo whose allreduce lasts until the end of the next round, for the workers' own differences count at once.

    So every worker has an outer model of its own. With one worker it is DiLoCo.
    """

    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)                                   (H times, from x_i on)
D_i = (x_i - w_i) / n + sum over j != i of (D_j of the round before) / n
x_i <- x_i - outer step(D_i)                             (x_i, outer memory: of each worker its own)"""
    protocol: ClassVar[str] = "overlapped-steps"


class DecoupledDiLoCo(DiLoCo):
    """DiLoCo of whose workers some are enough for a step: in each array the mean direction of differences, of mean length.

    Differences weigh by the updates that made them. The paper takes plain means of embeddings; here all arrays are alike.
    Two, of lengths 1 and 3, at a right angle: as long as 2, half way between.

        >>> from fred.learning.servers.diloco import DecoupledDiLoCo
        >>> import jax
        >>> import jax.numpy as jnp
        >>> server = DecoupledDiLoCo(learning_rate=0.1, outer_rate=1.0, outer="sgd")
        >>> state = server.init({"w": jnp.zeros(2)}, workers=2)
        >>> parts = [server.contribute(state, {"w": jnp.array(d)}, timestamp=0, worker=0) for d in ([1.0, 0.0], [0.0, 3.0])]
        >>> mean = jax.tree.map(lambda one, other: (one + other) / 2, *parts)
        >>> [round(float(each), 3) for each in server.apply_round(state, mean, timestamp=0, count=2).params["w"]]
        [-1.414, -1.414]
    """

    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)                     (all the time; w_i <- w when it comes)
D_i = w when it came - w_i;  s_i its steps (of those who answer in time)
D <- (sum of s_i |D_i|) / (sum of s_i) x unit(sum of s_i unit(D_i))
w <- w - outer step(D)"""
    protocol: ClassVar[str] = "quorum"

    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """The length and the direction of each array of the `message`, a difference."""
        lengths = jax.tree.map(lambda leaf: jnp.sqrt(jnp.square(leaf).sum()), message)
        return {"lengths": lengths, "ways": jax.tree.map(_unit, message)}

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """A step of the outer optimizer along the mean of all directions, as long as the mean of all lengths."""
        mean = jax.tree.map(lambda length, way: length * _unit(way), total["lengths"], total["ways"])
        return super().apply_round(state, mean, timestamp, count)


def _unit(array: jax.Array) -> jax.Array:
    """As long as 1; of nothing, nothing."""
    length = jnp.sqrt(jnp.square(array).sum())
    return array / jnp.where(length > 0, length, 1.0)


class PALSGD(DiLoCo):
    """DiLoCo some of whose local steps need no gradient: they draw a worker's model towards the common one.

    With probability p (`pulls` of the protocol) a step is such a pull. In the paper's terms its gradient steps have the rate
    eta / (1 - p), which is `learning_rate` here, and its pulls are of (eta / p) k of the way: rate x (1 - p) / p x k.

    At 2, when the common model is at 1, with p = 0.2 and k = 0.5:

        >>> from fred.learning.servers.diloco import PALSGD
        >>> import jax.numpy as jnp
        >>> palsgd = PALSGD(learning_rate=0.25)
        >>> state = palsgd.init({"w": jnp.array([2.0])}, workers=2)
        >>> palsgd.synchronize(state, {"w": jnp.array([1.0])}, keep=1.0, weight=0.8 / 0.2).params["w"].tolist()
        [1.5]
    """

    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)                               (of each H local updates, a share 1 - p)
w_i <- w_i - rate (1 - p) / p k (w_i - w)            (the others: `pulls`; no gradient, no message)
w <- w - outer step(mean of w - w_i)"""
    protocol: ClassVar[str] = "outer-steps"
    protocol_options: ClassVar[dict[str, Any]] = {"pulls": 0.2}

    strength: Annotated[float, Field(ge=0)] = Field(0.5, description="k: of the pulls")

    def synchronize(self, state: State, mixed: Params, keep: Scalar, weight: Scalar) -> State:
        """A pull of `weight`, (1 - p) / p; what keeps nothing (`keep` 0) is replaced."""
        share = jnp.where(keep == 0, 1.0, self.strength * state.rate * weight)

        def drawn(own: jax.Array, common: jax.Array) -> jax.Array:
            return jnp.where(keep == 0, common, own - share * (own - common))

        return state.replace(params=jax.tree.map(drawn, state.params, mixed))


class EDiT(DiLoCo):
    """DiLoCo that trusts small differences more than large ones, leaves out what is much larger than usual, and clips.

    All of it array by array. What is usual for a worker's lengths is followed by moving averages, which begin with the first
    length; `warm_up` rounds leave nobody out. Where all are out, momentum alone goes on. The published code's
    threshold also grows with the spread of recent scores, which is left out here.

    Of two differences, one is longer by ln 3, and counts for a quarter:

        >>> from fred.learning.servers.diloco import EDiT
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

    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)    (H times, from w on; or for so many seconds: `every`)
a_i = |w - w_i|; i is out if a_i - m_i > z sqrt(v_i)
D <- sum over who is not out of softmax(-a_i / T) (w - w_i), cut to length c
w <- w - outer step(D); m_i and v_i follow a_i, unless i is out"""

    outer: Optimizer = Field(
        (Transformation(name="sgd", momentum=0.8, nesterov=True),),
        description="optax gradient transformation for differences, or a list of them: SGD with Nesterov momentum 0.8",
    )
    temperature: Annotated[float, Field(gt=0)] = Field(1.0, description="T: the larger, the more alike the weights")
    longest: Annotated[float, Field(gt=0)] = Field(10.0, description="c: of an array's mean difference")
    deviations: Annotated[float, Field(gt=0)] = Field(
        3.0, description="z: standard deviations above the mean that are too many"
    )
    decay: Annotated[float, Field(gt=0, le=1)] = Field(0.02, description="what a new length counts for in what is usual")
    warm_up: Whole = Field(120, description="rounds at the start in which nobody is left out")

    def init(self, params: Params, workers: int) -> State:
        usual = jax.tree.map(lambda _: jnp.zeros(workers), params)
        return super().init(params, workers).replace(usual=usual, spread=usual, workers=jnp.zeros(workers))

    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        """The `message`, a difference, in its worker's place."""
        places = len(state.workers)
        return jax.tree.map(lambda leaf: jnp.zeros((places, *leaf.shape)).at[worker].set(leaf), message)

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """A step of the outer optimizer with a weighted mean of the differences, 1 / `count` of each of which is in `total`."""
        places = jax.tree.map(lambda leaf: count * leaf, total)
        lengths = jax.tree.map(lambda each: jnp.sqrt(jnp.square(each).reshape(len(each), -1).sum(1)), places)
        kept = jax.tree.map(partial(self._kept, state), lengths, state.usual, state.spread)
        stepped = super().apply_round(state, jax.tree.map(self._mean, places, lengths, kept), timestamp, count)
        usual = jax.tree.map(partial(self._usual, state), lengths, state.usual, kept)
        spread = jax.tree.map(partial(self._spread, state), lengths, state.usual, usual, state.spread, kept)
        return stepped.replace(usual=usual, spread=spread)

    def _kept(self, state: State, lengths: jax.Array, usual: jax.Array, spread: jax.Array) -> jax.Array:
        """Who is not out, by the lengths of their differences."""
        return (state.clock < self.warm_up) | (lengths - usual <= self.deviations * jnp.sqrt(spread))

    def _mean(self, places: jax.Array, lengths: jax.Array, kept: jax.Array) -> jax.Array:
        """Of the differences that are kept, the longer the less, and not too long itself."""
        weights = jnp.where(kept, jax.nn.softmax(jnp.where(kept, -lengths / self.temperature, -jnp.inf)), 0.0)
        mean = (weights.reshape(-1, *[1] * (places.ndim - 1)) * places).sum(0)
        length = jnp.sqrt(jnp.square(mean).sum())
        return mean * (self.longest / jnp.maximum(length, self.longest))

    def _usual(self, state: State, lengths: jax.Array, usual: jax.Array, kept: jax.Array) -> jax.Array:
        """The moving average of lengths, which begins with the first."""
        followed = jnp.where(state.clock == 0, lengths, usual + self.decay * (lengths - usual))
        return jnp.where(kept, followed, usual)

    def _spread(
        self, state: State, lengths: jax.Array, before: jax.Array, after: jax.Array, spread: jax.Array, kept: jax.Array
    ) -> jax.Array:
        """The moving variance about that average."""
        followed = (1 - self.decay) * (spread + self.decay * (lengths - before) * (lengths - after))
        return jnp.where(kept, jnp.where(state.clock == 0, 0.0, followed), spread)
