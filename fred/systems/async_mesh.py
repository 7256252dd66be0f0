"""AsyncMesh and LOSCAR: late averages of random coordinates, corrected for the updates made in the meantime.

| name       | source                             |
|------------|------------------------------------|
| async-mesh | "AsyncMesh" 2026, arXiv:2601.22442 |
| loscar     | "LOSCAR" 2026, arXiv:2605.20866    |
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import Field

from fred.base.imports import jax, jnp
from fred.components.component import Fraction
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, State
from fred.systems.sparta import Masked

_FIRST_DECAY, _LAST_DECAY, _WARM_UP = 0.5, 0.99, 1000  # AsyncMesh's beta, and updates


class _Late(Masked):
    """SPARTA with late averages that keep a worker's updates since it sent its model."""

    ahead: Fraction = Field(default=1.0, description="lambda: factor of the correction of a late mean; 0: no correction")

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state before the first update."""
        return super().init(params, workers).replace(drift=jax.tree.map(jnp.zeros_like, params))

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Store `total`, the worker's model when it was sent less its present one, until the mean is merged."""
        drift = jax.tree.map(partial(self._new_drift, state), state.drift, total)
        return state.replace(drift=jax.tree.map(jnp.where, self._mask(state), drift, state.drift), clock=state.clock + 1)

    def _corrected(self, state: State, mean: Params) -> Params:
        return jax.tree.map(lambda leaf, drift: leaf - self.ahead * drift, mean, state.drift)

    def _new_drift(self, state: State, drift: jax.Array, change: jax.Array) -> jax.Array:
        """Return the new drift of an array, given its change during the delay of a mean."""
        return change


class AsyncMesh(_Late):
    """SPARTA with late averages, each corrected by a moving average of the changes that a worker makes during the delay.

    Each coordinate has a moving average d of its changes. Its decay beta rises from 0.5 to 0.99 along a cosine in the worker's
    first 1,000 updates. With `average_changes: false`, d is the worker's last change (add-back).

    A worker at 1 sent its model at 3, so it has changed by -2; with a mean of 4, it continues from 4 - 2:

        >>> from fred.systems.async_mesh import AsyncMesh
        >>> import jax.numpy as jnp
        >>> server = AsyncMesh(learning_rate=0.1, parts=1, average_changes=False)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2).replace(words=jnp.zeros(2, jnp.uint32))
        >>> state = server.apply_round(state, {"w": jnp.array([3.0 - 1.0])}, timestamp=0, count=1)
        >>> server.synchronize(state, {"w": jnp.array([4.0])}, keep=0.0, weight=1.0).params["w"].tolist()
        [2.0]
    """

    name = "async-mesh"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
d_i <- beta d_i + (1 - beta) (w_i, tau updates ago, - w_i)
w_i <- mean of all w, tau updates ago, - lambda d_i          (both: its coordinates in the mask)"""
    protocol = "late-averaging"
    protocol_options = {"delay": 5}

    average_changes: bool = Field(
        default=True, description="whether to average a worker's changes over time; false: use the last change"
    )

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state before the first update."""
        return super().init(params, workers).replace(updates=jnp.int32(0))

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Make a local step, and count it."""
        return super().apply_update(state, message, timestamp, worker).replace(updates=state.updates + 1)

    def _new_drift(self, state: State, drift: jax.Array, change: jax.Array) -> jax.Array:
        if not self.average_changes:
            return change
        beta = (
            _LAST_DECAY - (_LAST_DECAY - _FIRST_DECAY) * (1 + jnp.cos(jnp.pi * jnp.minimum(state.updates / _WARM_UP, 1.0))) / 2
        )
        return beta * drift + (1 - beta) * change


class LOSCAR(_Late):
    """Average random coordinates while workers continue; add each worker's updates since it sent its model to the mean.

    No worker waits. When a mean is merged, the next average begins, of newly drawn coordinates.
    """

    name = "loscar"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
w_i <- mean of all y + w_i - y_i    (y_i: w_i when it was sent; its coordinates in the mask)"""
    protocol = "late-averaging"
    protocol_options = {"delay": None}

    def _part(self, number: Any) -> Any:
        return number * 0  # each average takes part 0 of a division of its own; an array if `number` is one

    def _division(self, number: Any) -> Any:
        return number
