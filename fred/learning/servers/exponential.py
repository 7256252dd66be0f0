"""Exponential staleness penalty [Chan & Lane 2014, "Distributed asynchronous optimization of convolutional networks"]."""

from typing import Annotated, ClassVar

from pydantic import Field

from fred.learning.server import Scalar, State
from fred.learning.servers.sasgd import StalenessAware


class ExponentialPenalty(StalenessAware):
    """Multiply each gradient's step by rho to the power of its staleness; in a round, each gradient by its own.

    What gradients are multiplied by that are 0 to 3 updates old:

        >>> from fred.learning.servers.exponential import ExponentialPenalty
        >>> import jax.numpy as jnp
        >>> server = ExponentialPenalty(learning_rate=0.1, rho=0.5)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=4)
        >>> [server.weight(tau, state) for tau in range(4)]
        [1.0, 0.5, 0.25, 0.125]
    """

    rule: ClassVar[str] = "w <- w - rho^tau step(g)"

    rho: Annotated[float, Field(gt=0, le=1)] = Field(0.9, description="penalty of one update of staleness")

    def weight(self, staleness: Scalar, state: State) -> Scalar:
        """rho^staleness, of a gradient that is `staleness` updates old []."""
        return self.rho**staleness
