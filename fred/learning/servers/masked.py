"""Local SGD that averages some coordinates at a time, drawn alike by all, and may do so late.

| class     | source                                                                                             |
|-----------|----------------------------------------------------------------------------------------------------|
| SPARTA    | "SPARTA" 2025, in EXO Gym; as AsyncMesh 2026, arXiv:2601.22442, describes it                         |
| AsyncMesh | "AsyncMesh" 2026, arXiv:2601.22442                                                                  |
| LOSCAR    | "LOSCAR" 2026, arXiv:2605.20866                                                                     |

Which coordinates they are follows from the seed and the average's number, so only numbers are sent.
"""

import math
from functools import partial
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from pydantic import Field

from fred.learning.keys import DRAWN_BY
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, Server, State

Share = Annotated[float, Field(ge=0, le=1)]
_FIRST_DECAY, _LAST_DECAY, _WARM_UP = 0.5, 0.99, 1000  # AsyncMesh's beta, and updates


class _Masked(Server):
    """Averages of a part of the coordinates each."""

    family: ClassVar[Family] = Family.AVERAGED
    protocol: ClassVar[str] = "late-averaging"
    divisible: ClassVar[bool] = False
    draws: ClassVar[bool] = True

    parts: Annotated[int, Field(ge=1, le=4096)] = Field(
        20, description="1 / p: of how many coordinates of each array one is in an average"
    )

    def init(self, params: Params, workers: int) -> State:
        """The state before the first update."""
        return super().init(params, workers).replace(averages=jnp.int32(0))

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """Nothing is done with `total`, what the worker's model was less what it is."""
        return state.replace(clock=state.clock + 1)

    def synchronize(self, state: State, mixed: Params, keep: Scalar, weight: Scalar) -> State:
        """The state whose masked coordinates meet a mailbox."""
        met, mask = super().synchronize(state, self._corrected(state, mixed), keep, weight), self._mask(state)
        params = jax.tree.map(jnp.where, mask, met.params, state.params)
        return met.replace(params=params, averages=state.averages + 1)

    def averaged_bytes(self, params: Params) -> tuple[int, ...]:
        """Of each part's coordinates."""
        sizes = [math.prod(leaf.shape) for leaf in jax.tree.leaves(params)]
        return tuple(
            4 * sum(len(range(self._part(number), size, self.parts)) for size in sizes) for number in range(self.parts)
        )

    def _part(self, number: Any) -> Any:
        """Which part of a division of the coordinates an average is of."""
        return number % self.parts

    def _division(self, number: Any) -> Any:
        """Which division of the coordinates that is."""
        return number // self.parts

    def _corrected(self, state: State, mean: Params) -> Params:
        """What is merged in place of a mean that comes late."""
        return mean

    def _mask(self, state: State) -> Params:
        """Which coordinates the next average is of."""
        key = jax.random.wrap_key_data(state.words, impl=DRAWN_BY)
        key = jax.random.fold_in(key, self._division(state.averages))
        leaves, structure = jax.tree.flatten(state.params)
        masks = [self._chosen(state, jax.random.fold_in(key, number), leaf) for number, leaf in enumerate(leaves)]
        return jax.tree.unflatten(structure, masks)

    def _chosen(self, state: State, key: Any, leaf: jax.Array) -> jax.Array:
        order = jnp.argsort(jax.random.uniform(key, (leaf.size,)))
        ranks = jnp.zeros(leaf.size, jnp.int32).at[order].set(jnp.arange(leaf.size, dtype=jnp.int32))
        return (ranks % self.parts == self._part(state.averages)).reshape(leaf.shape)


class SPARTA(_Masked):
    """After every update one of 20 parts of the coordinates is averaged; each time that all have been, they are divided anew.

    With one part it is local SGD that averages models after every update. A mean that comes late takes the place of what is
    there.
    """

    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
w_i <- mean of all w    (its coordinates in the mask, as of tau updates ago)"""


class _Late(_Masked):
    """What updates have done since a model was brought is not lost when the mean comes."""

    ahead: Share = Field(1.0, description="lambda: factor of what is added to a late mean; 0: it is taken as it is")

    def init(self, params: Params, workers: int) -> State:
        """The state before the first update."""
        return super().init(params, workers).replace(drift=jax.tree.map(jnp.zeros_like, params))

    def apply_round(self, state: State, total: Message, timestamp: Scalar, count: Scalar) -> State:
        """`total`, what the worker's model was less what it is, is remembered until the mean is merged, which comes next."""
        moved = jax.tree.map(partial(self._moved, state), state.drift, total)
        return state.replace(drift=jax.tree.map(jnp.where, self._mask(state), moved, state.drift), clock=state.clock + 1)

    def _corrected(self, state: State, mean: Params) -> Params:
        return jax.tree.map(lambda to, drift: to - self.ahead * drift, mean, state.drift)

    def _moved(self, state: State, drift: jax.Array, change: jax.Array) -> jax.Array:
        """The drift of an array, after a change in the time that a mean has taken."""
        return change


class AsyncMesh(_Late):
    """SPARTA whose means come late, and are moved on by what updates have done in such a time, on average.

    Each coordinate has an average d of its changes, which decays as beta; that goes from 0.5 to 0.99 along a cosine, in the
    worker's first 1,000 updates. With `average_changes` false it is the worker's own last change (add-back).
    """

    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
d_i <- beta d_i + (1 - beta) (w_i, tau updates ago, - w_i)
w_i <- mean of all w, tau updates ago, - lambda d_i          (both: its coordinates in the mask)"""
    protocol_options: ClassVar[dict[str, Any]] = {"delay": 5}

    average_changes: bool = Field(True, description="whether changes are averaged; false: each is taken as it is")

    def init(self, params: Params, workers: int) -> State:
        """The state before the first update."""
        return super().init(params, workers).replace(updates=jnp.int32(0))

    def apply_update(self, state: State, message: Message, timestamp: Scalar, worker: Scalar) -> State:
        """One step of the worker's own, which is counted."""
        return super().apply_update(state, message, timestamp, worker).replace(updates=state.updates + 1)

    def _moved(self, state: State, drift: jax.Array, change: jax.Array) -> jax.Array:
        if not self.average_changes:
            return change
        beta = (
            _LAST_DECAY - (_LAST_DECAY - _FIRST_DECAY) * (1 + jnp.cos(jnp.pi * jnp.minimum(state.updates / _WARM_UP, 1.0))) / 2
        )
        return beta * drift + (1 - beta) * change


class LOSCAR(_Late):
    """Random coordinates are averaged while workers go on; a mean that comes is moved on by what they have done meanwhile.

    Nobody waits for anybody. As soon as a mean is merged, the next one is begun, of coordinates that are drawn anew.
    """

    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
w_i <- mean of all y + w_i - y_i    (y_i: w_i when it was sent; its coordinates in the mask)"""
    protocol_options: ClassVar[dict[str, Any]] = {"delay": None}

    def _part(self, number: Any) -> Any:
        return number * 0

    def _division(self, number: Any) -> Any:
        return number
