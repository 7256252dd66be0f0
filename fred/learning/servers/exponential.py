"""Exponential staleness penalty [Chan & Lane 2014, "Distributed asynchronous optimization of convolutional networks"]."""

from typing import Annotated, ClassVar

from pydantic import Field

from fred.learning.server import Scalar
from fred.learning.servers.sasgd import StalenessAware


class ExponentialPenalty(StalenessAware):
    """Multiply each gradient's step by rho to the power of its staleness; in a round, each gradient by its own."""

    rule: ClassVar[str] = "w <- w - rho^tau step(g)"

    rho: Annotated[float, Field(gt=0, le=1)] = Field(0.9, description="penalty of one update of staleness")

    def weight(self, staleness: Scalar) -> Scalar:
        return self.rho**staleness
