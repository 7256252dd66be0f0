"""Exponential staleness penalty [Chan & Lane 2014, "Distributed asynchronous optimization of convolutional networks"]."""

from typing import Annotated, ClassVar

from pydantic import Field

from fred.learning.models.model import Params
from fred.learning.server import Scalar, Server, State


class ExponentialPenalty(Server):
    """Multiply each gradient's step by rho to the power of its staleness."""

    rule: ClassVar[str] = "w <- w - rho^tau step(g)"

    rho: Annotated[float, Field(gt=0, le=1)] = Field(0.9, description="penalty of one update of staleness")

    def apply_update(self, state: State, grads: Params, timestamp: Scalar, worker: Scalar) -> State:
        staleness = state.clock - timestamp  # tau, updates
        return self.step(state, grads, scale=self.rho**staleness)
