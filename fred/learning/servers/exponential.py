"""Exponential staleness penalty [Chan & Lane 2014, "Distributed asynchronous optimization of convolutional networks"]."""

from typing import Annotated, ClassVar

from pydantic import Field

from fred.learning.models.model import Params
from fred.learning.server import Message, Scalar, Server, State
from fred.learning.servers.sasgd import weighed


class ExponentialPenalty(Server):
    """Multiply each gradient's step by rho to the power of its staleness; in a round, each gradient by its own."""

    rule: ClassVar[str] = "w <- w - rho^tau step(g)"

    rho: Annotated[float, Field(gt=0, le=1)] = Field(0.9, description="penalty of one update of staleness")

    def apply_update(self, state: State, grads: Params, timestamp: Scalar, worker: Scalar) -> State:
        staleness = state.clock - timestamp  # tau, updates
        return self.step(state, grads, scale=self.rho**staleness)

    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        return weighed(message, self.rho ** (state.clock - timestamp))

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        return self.step(state, total)
