"""Staleness-aware asynchronous SGD [Zhang, Gupta, Lian, Liu 2016, arXiv:1511.05950, eq. 7; Odena 2016, eqs. 1-2]."""

from abc import abstractmethod
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from fred.learning.models.model import Params
from fred.learning.server import Message, Scalar, Server, State

Divisor = Literal["max(tau, 1)", "tau + 1"]


def divisor(rule: Divisor, staleness: Scalar) -> Scalar:
    """What a staleness of tau updates divides a step by; a fresh gradient has tau = 0, so tau itself will not do."""
    return staleness + 1 if rule == "tau + 1" else jnp.maximum(staleness, 1)


def weighed(message: Message, weight: Scalar) -> Message:
    """A message by its weight in a round."""
    return jax.tree.map(lambda leaf: weight * leaf, message)


class StalenessAware(Server):
    """Multiply each gradient's step by a weight that follows its staleness; in a round, each gradient by its own."""

    @abstractmethod
    def weight(self, staleness: Scalar) -> Scalar:
        """Of a gradient that is so many updates old."""

    def apply_update(self, state: State, grads: Params, timestamp: Scalar, worker: Scalar) -> State:
        return self.step(state, grads, scale=self.weight(state.clock - timestamp))

    def contribute(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> Message:
        return weighed(message, self.weight(state.clock - timestamp))

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        return self.step(state, total)


class SASGD(StalenessAware):
    """Divide each gradient's step by its staleness, counted in server updates; in a round, each gradient by its own."""

    rule: ClassVar[str] = "w <- w - step(g) / max(tau, 1)"

    divisor: Divisor = Field("max(tau, 1)", description="of the step; tau + 1 is what Odena's published code does")

    def weight(self, staleness: Scalar) -> Scalar:
        return 1 / divisor(self.divisor, staleness)
