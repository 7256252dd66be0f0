"""The history of each worker: its recent difference from its node, as the shared network sees it."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

SLOW, FAST = 0.97, 0.7  # decay of the averages per round
_PRIOR = 3.0, 1.0  # weight of a prior difference of 0 in each average, in rounds


class History(NamedTuple):
    """Decaying sums of each worker's difference from its node's mean, and of the rounds in which it finished.

    All arrays are [..., nodes, places]. A round in which a worker was dropped leaves its history unchanged.
    """

    slow: Array
    fast: Array
    last: Array
    slow_rounds: Array
    fast_rounds: Array

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> "History":
        """Return the history before the first round."""
        nothing = jnp.zeros(shape)
        return cls(nothing, nothing, nothing, nothing, nothing)

    def after(self, y: Array, finished: Array, there: Array) -> "History":
        """Return the history after one more round of (log) times y [nodes, places]."""
        mean = jnp.where(there, y, 0.0).sum(-1, keepdims=True) / there.sum(-1, keepdims=True)
        rest = jnp.where(there, y - mean, 0.0)
        longer = History(
            SLOW * self.slow + rest, FAST * self.fast + rest, rest, SLOW * self.slow_rounds + 1, FAST * self.fast_rounds + 1
        )
        return History(*(jnp.where(finished, new, old) for new, old in zip(longer, self, strict=True)))

    @property
    def baseline(self) -> Array:
        """Return how much slower each worker is than its node in the long run, in (log) time."""
        return self.slow / (self.slow_rounds + _PRIOR[0])

    @property
    def features(self) -> Array:
        """Return the inputs of the network: [..., nodes, places, 3]."""
        return jnp.stack([4 * self.baseline, 4 * self.fast / (self.fast_rounds + _PRIOR[1]), 2 * self.last], -1)
