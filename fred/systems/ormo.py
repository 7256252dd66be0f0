"""OrMo: momentum of asynchronous gradients, ordered by iteration [Shi, Yang, Li 2024, arXiv:2407.19234].

The implementation follows the paper's abstract and figure 1, which define the momentum. FRED infers that a bucket opens with
the first update at which one of its gradients could arrive. The paper's delay-adaptive rates are left out.
"""

from __future__ import annotations

from pydantic import Field

from fred.base.later import jax, jnp
from fred.learning.models.model import Params
from fred.learning.server import Decay, Family, Message, Scalar, Server, State


class OrMo(Server):
    """Asynchronous SGD with ordered momentum: a late gradient gets the weight that it would have had in time.

    Each bucket holds one gradient per worker; the update at which its parameters were read decides a gradient's bucket.
    Whatever the order of arrival, the result is that of SGD with momentum whose n-th step uses the sum of the n-th bucket.

    Three gradients of 1 with two workers, the first two at the initial parameters; the second update opens a bucket:

        >>> from fred.systems.ormo import OrMo
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
        newest = -(-state.clock // state.workers)
        decay = jnp.where(newest > state.bucket, jnp.float32(self.momentum), 1.0)
        moved = jnp.where(newest > state.bucket, jnp.float32(self.momentum), 0.0)
        late = jnp.float32(newest + -timestamp // state.workers)  # buckets: -(-t // n) is the ceiling
        share = jnp.float32(self.momentum) ** late
        steps = (1 - self.momentum * share) / (1 - self.momentum)
        stepped = self.step(state.replace(params=jax.tree.map(jnp.zeros_like, state.params)), message, model=state.params)
        params = jax.tree.map(lambda w, u, s: w - moved * u + steps * s, state.params, state.momentum, stepped.params)
        momentum = jax.tree.map(lambda u, s: decay * u - share * s, state.momentum, stepped.params)
        return stepped.replace(params=params, momentum=momentum, bucket=newest)
