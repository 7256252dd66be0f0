"""Rescaled ASGD: steps in proportion to compute times [Mahran, Maranjyan, Richtarik 2026, arXiv:2605.13434].

The implementation follows the paper's abstract; the constant of the steps and the estimate of times are FRED's choice.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fred.base.later import jax, jnp
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, Server, State


class RescaledASGD(Server):
    """Asynchronous SGD with steps in proportion to compute times, so that the data of all workers have equal weight.

    Without `times`, a worker's compute time is estimated as inversely proportional to 1 + its number of arrived gradients.

    Worker 0 takes half as long as worker 1, so t is 4/3, and two of three gradients of 1 are worker 0's:

        >>> from fred.systems.rescaled_asgd import RescaledASGD
        >>> import jax.numpy as jnp
        >>> server = RescaledASGD(learning_rate=1.0, times=[1.0, 2.0])
        >>> state = server.init({"w": jnp.array([0.0])}, workers=2)
        >>> for worker in (0, 0, 1):
        ...     state = server.apply_update(state, {"w": jnp.array([1.0])}, timestamp=0, worker=worker)
        ...     print(state.params["w"].tolist())
        [-0.75]
        [-1.5]
        [-3.0]
    """

    name = "rescaled-asgd"
    family = Family.ANSWERED
    rule = "w <- w - t_k / t step(g)    (of worker k, whose gradients take t_k; t: the harmonic mean of all t_k)"
    protocol = "asynchronous"

    times: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(
        default=None, description="t_k: compute time of each worker, s; absent: estimated from the numbers of arrived gradients"
    )

    def check(self, workers: int) -> None:
        if self.times is not None and len(self.times) != workers:
            raise ValueError(f"`times` has {len(self.times)} numbers; expected one for each of {workers} workers")

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state before the first update, with each worker's number of gradients, or its equivalent in `times`."""
        times = jnp.ones(workers) if self.times is None else jnp.array(self.times)
        return super().init(params, workers).replace(numbers=1 / times)

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step with the `message`, a gradient of this `worker`."""
        stepped = self.step(state, message, scale=self._scale(state, worker))
        return self._counted(stepped, jnp.zeros_like(state.numbers).at[worker].set(1.0))

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a gradient, times its `worker`'s factor, and the worker."""
        scaled = jax.tree.map(lambda leaf: self._scale(state, worker) * leaf, message)
        return {"gradient": scaled, "worker": jnp.zeros_like(state.numbers).at[worker].set(1.0)}

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with the mean of `count` gradients in `total`, each times its worker's factor."""
        return self._counted(self.step(state, total["gradient"]), count * total["worker"])

    def _scale(self, state: State, worker: Scalar) -> Scalar:
        """Return t_k / t."""
        return state.numbers.mean() / state.numbers[worker]

    def _counted(self, state: State, arrived: jax.Array) -> State:
        return state if self.times is not None else state.replace(numbers=state.numbers + arrived)
