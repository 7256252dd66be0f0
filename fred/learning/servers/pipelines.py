"""Gradients that are all of the same age, as in pipelines and one-step-late allreduces, and what makes up for it.

| class        | source                                                                                    |
|--------------|-------------------------------------------------------------------------------------------|
| Extrapolated | "error feedback" of arXiv:2606.30634, 2026, for one step of delay                          |
| PipeMare     | Yang, Zhang, Li, Re, Aberger, De Sa 2021, arXiv:1910.05124, technique 1: rates by delay    |
"""

from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from pydantic import Field

from fred.components.component import Whole
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, Server, State
from fred.learning.servers.sasgd import StalenessAware


class Extrapolated(Server):
    """Each step is lengthened by what it differs from the step before: a guess of the steps that the gradient has not seen.

    Steps of 1, 1 and 3; the third is taken for 5:

        >>> from fred.learning.servers.pipelines import Extrapolated
        >>> import jax.numpy as jnp
        >>> server = Extrapolated(learning_rate=1.0)
        >>> state = server.init({"w": jnp.array([10.0])}, workers=1)
        >>> for gradient in (1.0, 1.0, 3.0):
        ...     state = server.apply_update(state, {"w": jnp.array([gradient])}, timestamp=0, worker=0)
        ...     print(state.params["w"].tolist())
        [9.0]
        [8.0]
        [3.0]
    """

    family: ClassVar[Family] = Family.OF_ONE_AGE
    rule: ClassVar[str] = """\
u <- step(g)
w <- w - u - ahead (u - u_before)    (u_before: of the update before; of the first: u)"""
    protocol: ClassVar[str] = "fixed-lag"

    ahead: Annotated[float, Field(ge=0)] = Field(1.0, description="how many steps are guessed, such as the lag")

    def init(self, params: Params, workers: int) -> State:
        return super().init(params, workers).replace(before=jax.tree.map(jnp.zeros_like, params))

    def apply_update(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        """One step with the `message`, a gradient, extrapolated."""
        nowhere = jax.tree.map(jnp.zeros_like, state.params)
        stepped = self.step(state.replace(params=nowhere), message, model=state.params)
        before = jax.tree.map(lambda now, then: jnp.where(state.clock == 0, now, then), stepped.params, state.before)

        def lengthened(own: jax.Array, now: jax.Array, then: jax.Array) -> jax.Array:
            return own + now + self.ahead * (now - then)

        params = jax.tree.map(lengthened, state.params, stepped.params, before)
        return stepped.replace(params=params, before=stepped.params)


class PipeMare(StalenessAware):
    """Steps are divided by a power of the gradient's age, which goes from 1 to 0 while training warms up.

    Steps from 0 with a gradient of 1 that is 4 updates old, at the beginning, half-way and after warming up:

        >>> from fred.learning.servers.pipelines import PipeMare
        >>> import jax.numpy as jnp
        >>> server = PipeMare(learning_rate=1.0, warm_up=8)
        >>> state = server.init({"w": jnp.array([0.0])}, workers=1)
        >>> [float(server.weight(4, state.replace(clock=jnp.int32(clock)))) for clock in (0, 4, 8, 100)]
        [0.25, 0.5, 1.0, 1.0]
    """

    rule: ClassVar[str] = "w <- w - step(g) / max(tau, 1)^p    (p = max(0, 1 - updates / warm_up))"
    family: ClassVar[Family] = Family.OF_ONE_AGE
    protocol: ClassVar[str] = "fixed-lag"

    warm_up: Whole = Field(1000, description="updates in which the power falls from 1 to 0", examples=[1000])

    def weight(self, staleness: Scalar, state: State) -> Scalar:
        """max(staleness, 1)^-p of a gradient that is `staleness` updates old [], p by the clock of `state`."""
        power = jnp.maximum(0.0, 1 - state.clock / max(1, self.warm_up))
        return jnp.float32(jnp.maximum(staleness, 1)) ** -power
