"""Partially synchronous parallel SGD ["PSP-SGD", algorithm 1, extending Pan et al. 2017; docs/errata.md, item 9]."""

from typing import ClassVar

from fred.learning.models.model import Params
from fred.learning.server import Scalar, Server, State


class PSPSGD(Server):
    """Each server steps with the mean of the d gradients that it got, d times as long."""

    rule: ClassVar[str] = "w_k <- w_k - d step(mean of the d g_k)    (the block k of w and of g)"
    protocol: ClassVar[str] = "partial"

    def apply_round(self, state: State, grads: Params, timestamp: Scalar, count: Scalar) -> State:
        return self.step(state, grads, scale=count)
