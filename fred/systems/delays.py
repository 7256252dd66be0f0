"""Asynchronous SGD with corrections for delays: shorter steps, clipping, a Taylor correction, or a distance test.

| name           | source                                                                                            |
|----------------|---------------------------------------------------------------------------------------------------|
| ormo           | Shi, Yang, Li 2024, arXiv:2407.19234                                                              |
| delay-adaptive | Mishchenko, Bach, Even, Woodworth 2022, arXiv:2206.07638, section 2; Koloskova, Stich, Jaggi 2022 |
| dc-asgd        | Zheng et al. 2017, arXiv:1609.08326, eqs. 10 and 13                                               |
| clipped-asgd   | "Clipped asynchronous SGD" 2026, arXiv:2606.13287                                                 |
| picky-sgd      | Cohen, Daniely, Drori, Koren, Schain 2021, arXiv:2106.11879, algorithm 1                          |

OrMo orders the momentum of asynchronous gradients by iteration. The implementation follows the paper's abstract and figure 1,
which define the momentum. FRED infers that a bucket opens with the first update at which one of its gradients could arrive.
The paper's delay-adaptive rates are left out.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fred.base.imports import jax, jnp
from fred.components.component import Positive
from fred.learning.models.model import Params
from fred.learning.server import Decay, Family, Message, Scalar, Server, State
from fred.systems.asgd import StalenessAware

_SHRINK = 2.0**-80  # factor of numbers whose squares would be infinite


class DelayAdaptive(StalenessAware):
    """Asynchronous SGD with a delay-adaptive rate: steps shrink in proportion to staleness beyond the number of workers.

    Two workers; a step from 1 with a gradient of 1 that is 8, 4, 2 or 0 updates old:

        >>> from fred.systems.delays import DelayAdaptive
        >>> import jax.numpy as jnp
        >>> server = DelayAdaptive(learning_rate=1.0)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2).replace(clock=jnp.int32(8))
        >>> gradient = {"w": jnp.array([1.0])}
        >>> [server.apply_update(state, gradient, timestamp=read, worker=0).params["w"].tolist() for read in (0, 4, 6, 8)]
        [[0.75], [0.5], [0.0], [0.0]]
    """

    name = "delay-adaptive"
    family = Family.ANSWERED
    rule = "w <- w - step(g) n / max(n, tau)    (n: workers)"
    protocol = "asynchronous"

    beyond: Literal["n / tau", "1 / tau", "0"] = Field(
        default="n / tau",
        description="factor of a step whose gradient is more than n updates stale, n being the number of workers",
    )

    def init(self, params: Params, /, workers: int) -> State:
        return super().init(params, workers).replace(workers=jnp.float32(workers))

    def weight(self, staleness: Scalar, state: State) -> Scalar:
        """Return a step's factor []: 1 if `staleness` is at most the number of workers, else less."""
        staleness = jnp.float32(staleness)
        factors = {"n / tau": state.workers / jnp.maximum(staleness, 1), "1 / tau": 1 / jnp.maximum(staleness, 1), "0": 0.0}
        return jnp.where(staleness <= state.workers, 1.0, factors[self.beyond])


class ClippedASGD(Server):
    """Asynchronous SGD with clipped gradients: each gradient is clipped to a given norm, whatever its staleness.

    A gradient of norm 5, clipped to 1:

        >>> from fred.systems.delays import ClippedASGD
        >>> import jax.numpy as jnp
        >>> server = ClippedASGD(learning_rate=1.0, length=1.0)
        >>> state = server.init({"w": jnp.array([1.0, 1.0])}, workers=2)
        >>> server.apply_update(state, {"w": jnp.array([3.0, 4.0])}, timestamp=0, worker=0).params["w"].round(3).tolist()
        [0.4000000059604645, 0.20000000298023224]
    """

    name = "clipped-asgd"
    family = Family.ANSWERED
    rule = "w <- w - step(g min(1, c / |g|))"
    protocol = "asynchronous"

    divisible: ClassVar[bool] = False  # its length is the whole gradient's

    length: Positive = Field(default=1.0, description="c: largest norm of a gradient; longer ones are clipped to it")

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step with the `message`, a gradient, clipped."""
        return self.step(state, self._clip(message))

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, clipped."""
        return self._clip(message)

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with `total`, of gradients that have been clipped already."""
        return self.step(state, total)

    def _clip(self, gradient: Message) -> Message:
        factor = jnp.minimum(1.0, self.length / _length(gradient))  # of a gradient of zeros: 1
        return jax.tree.map(lambda leaf: factor * leaf, gradient)


class _WithCopies(Server):
    """A server that stores each worker's copy of the parameters, so that only gradients are sent."""

    def send(self, memory: Any, params: Params, grads: Params, /) -> tuple[Message, Any]:
        """Return a gradient and its parameters, `params`, which the server has stored."""
        return {"gradient": grads, "read": params}, memory

    def sent_bytes(self, message: Message, /) -> int:
        """Return the bytes of the gradient alone."""
        return super().sent_bytes(message["gradient"])


class DCASGD(_WithCopies):
    """Asynchronous SGD with delay compensation: a Taylor term corrects each gradient for the updates that it missed.

    The server stores each worker's copy, so that only gradients are sent. A gradient of 2 at 1, applied at 3:

        >>> from fred.systems.delays import DCASGD
        >>> import jax.numpy as jnp
        >>> server = DCASGD(learning_rate=1.0, compensation=0.5)
        >>> state = server.init({"w": jnp.array([3.0])}, workers=2)
        >>> message, _ = server.send((), {"w": jnp.array([1.0])}, {"w": jnp.array([2.0])})
        >>> server.apply_update(state, message, timestamp=0, worker=0).params["w"].tolist()  # 3 - (2 + 0.5 x 4 x 2)
        [-3.0]
    """

    name = "dc-asgd"
    family = Family.ANSWERED
    rule = """\
w <- w - step(g + lambda g g (w - w_read))
lambda / sqrt(m + 1e-7) in its place, m <- decay m + (1 - decay) g g    (`adaptive`)"""
    protocol = "asynchronous"

    compensation: Positive = Field(default=0.04, description="lambda: strength of the correction; with `adaptive`, 2 is usual")
    adaptive: bool = Field(
        default=False, description="whether to divide lambda by the root of a moving average of squared gradients"
    )
    decay: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.95, description="decay of that moving average")

    def init(self, params: Params, /, workers: int) -> State:
        state = super().init(params, workers)
        return state.replace(squares=jax.tree.map(jnp.zeros_like, params)) if self.adaptive else state

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step with the corrected gradient of the `message`."""
        state, gradient = self._correct(state, message)
        return self.step(state, gradient)

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the corrected gradient of the `message`."""
        return self._correct(state, message)[1]

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with `total`, of gradients that have been corrected already; the moving average follows their mean."""
        return self.step(self._average_squares(state, total), total)

    def _correct(self, state: State, message: Message) -> tuple[State, Params]:
        """Return the state, its moving average updated by the gradient in the `message`, and the corrected gradient."""
        gradient, read = message["gradient"], message["read"]
        if not self.adaptive:
            factors: Any = jax.tree.map(lambda _: self.compensation, gradient)
        else:
            state = self._average_squares(state, gradient)
            factors = jax.tree.map(lambda m: self.compensation / jnp.sqrt(m + 1e-7), state.squares)

        def correct_leaf(factor: Any, g: jax.Array, read_leaf: jax.Array, leaf: jax.Array) -> jax.Array:
            return g + factor * g * g * (leaf - read_leaf)

        return state, jax.tree.map(correct_leaf, factors, gradient, read, state.params)

    def _average_squares(self, state: State, gradient: Params) -> State:
        if not self.adaptive:
            return state
        squares = jax.tree.map(lambda m, g: self.decay * m + (1 - self.decay) * g * g, state.squares, gradient)
        return state.replace(squares=squares)


class PickySGD(_WithCopies):
    """Asynchronous SGD that drops a gradient if the parameters have moved too far since the worker read them.

    The server stores each worker's copy, so that only gradients are sent. A gradient at 1, applied at 3, with two limits:

        >>> from fred.systems.delays import PickySGD
        >>> import jax.numpy as jnp
        >>> used = []
        >>> for distance in (1.0, 2.0):
        ...     server = PickySGD(learning_rate=1.0, distance=distance)
        ...     state = server.init({"w": jnp.array([3.0])}, workers=2)
        ...     message, _ = server.send((), {"w": jnp.array([1.0])}, {"w": jnp.array([2.0])})
        ...     used.append(server.apply_update(state, message, timestamp=0, worker=0).params["w"].tolist())
        >>> used
        [[3.0], [1.0]]
    """

    name = "picky-sgd"
    family = Family.ANSWERED
    rule = "w <- w - step(g)    (if |w - w_read| <= distance; else w stays as it is)"
    protocol = "asynchronous"

    divisible: ClassVar[bool] = False  # the distance is that of whole models

    distance: Positive = Field(
        description="largest distance at which a gradient is used: wanted gradient norm / (2 x smoothness)", examples=[0.5]
    )

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step with the gradient of the `message`, if its parameters are near enough."""
        return self._select(self._is_near(state, message), self.step(state, message["gradient"]), state)

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the gradient of the `message`, or zeros if its parameters are too far from the present ones."""
        near = self._is_near(state, message)
        return jax.tree.map(lambda leaf: jnp.where(near, leaf, 0.0), message["gradient"])

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with `total`, without the gradients that were dropped."""
        return self.step(state, total)

    def _is_near(self, state: State, message: Message) -> Scalar:
        return _length(jax.tree.map(jnp.subtract, state.params, message["read"])) <= self.distance

    def _select(self, near: Scalar, stepped: State, state: State) -> State:
        """Return the state after the step if `near`, else `state`; the clock counts dropped gradients, too."""
        selected = jax.tree.map(lambda new, old: jnp.where(near, new, old), stepped, state)
        return selected.replace(clock=stepped.clock)


def _length(arrays: Params) -> jax.Array:
    """Return the Euclidean norm of all arrays together, also if its square would be infinite."""
    leaves = jax.tree.leaves(arrays)
    length = jnp.sqrt(sum(jnp.sum(leaf * leaf) for leaf in leaves))
    scaled = jnp.sqrt(sum(jnp.sum(jnp.square(leaf * _SHRINK)) for leaf in leaves)) / _SHRINK
    return jnp.where(jnp.isfinite(length), length, scaled)


class OrMo(Server):
    """Asynchronous SGD with ordered momentum: a late gradient gets the weight that it would have had in time.

    Each bucket holds one gradient per worker; the update at which its parameters were read decides a gradient's bucket.
    Whatever the order of arrival, the result is that of SGD with momentum whose n-th step uses the sum of the n-th bucket.

    Three gradients of 1 with two workers, the first two at the initial parameters; the second update opens a bucket:

        >>> from fred.systems.delays import OrMo
        >>> import jax.numpy as jnp
        >>> server = OrMo(learning_rate=1.0, momentum=0.5)
        >>> state = server.init({"w": jnp.array([0.0])}, workers=2)
        >>> for timestamp in (0, 0, 1):
        ...     state = server.apply_update(state, {"w": jnp.array([1.0])}, timestamp=timestamp, worker=0)
        ...     print(state.params["w"].tolist(), state.momentum["w"].tolist())
        [-1.0] [1.0]
        [-3.0] [1.0]
        [-4.0] [2.0]
    """

    name = "ormo"
    family = Family.ANSWERED
    rule = """\
w <- w - beta u,  u <- beta u                            (when a bucket opens: b = ceil(updates / n))
d = b - ceil(w's update when it was read / n)            (n: workers; the bucket of g is d before the newest)
u <- u + beta^d step(g)
w <- w - (1 + beta + ... + beta^d) step(g)"""
    protocol = "asynchronous"

    momentum: Decay = Field(default=0.9, description="beta: decay of the momentum from one bucket to the next")

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state before the first update: no momentum, and the bucket of the initial parameters."""
        zeros = jax.tree.map(jnp.zeros_like, params)
        return super().init(params, workers).replace(momentum=zeros, bucket=jnp.int32(0), workers=jnp.int32(workers))

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step with the `message`, a gradient at the parameters of update `timestamp`, in the place of its bucket."""
        newest = -(-state.clock // state.workers)  # number of the newest bucket, b: -(-t // n) is the ceiling
        opens_bucket = newest > state.bucket
        decay = jnp.where(opens_bucket, jnp.float32(self.momentum), 1.0)
        momentum_factor = jnp.where(opens_bucket, jnp.float32(self.momentum), 0.0)
        delay = jnp.float32(newest + -timestamp // state.workers)  # d, buckets
        power = jnp.float32(self.momentum) ** delay
        power_sum = (1 - self.momentum * power) / (1 - self.momentum)  # 1 + beta + ... + beta^d
        # From parameters of zero, a step leads to minus step(g).
        stepped = self.step(state.replace(params=jax.tree.map(jnp.zeros_like, state.params)), message, model=state.params)
        params = jax.tree.map(
            lambda w, u, s: w - momentum_factor * u + power_sum * s, state.params, state.momentum, stepped.params
        )
        momentum = jax.tree.map(lambda u, s: decay * u - power * s, state.momentum, stepped.params)
        return stepped.replace(params=params, momentum=momentum, bucket=newest)
