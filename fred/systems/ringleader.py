"""Heterogeneous data under asynchrony: IA2SGD, Ringleader and Rescaled ASGD.

| name          | source                                                                                          |
|---------------|-------------------------------------------------------------------------------------------------|
| rescaled-asgd | Mahran, Maranjyan, Richtarik 2026, arXiv:2605.13434                                             |
| ia2sgd        | a rival in Maranjyan, Richtarik 2025, arXiv:2509.22860: incremental aggregated asynchronous SGD |
| ringleader    | Maranjyan, Richtarik 2025, "Ringleader ASGD", arXiv:2509.22860, algorithm 1                     |

In IA2SGD and Ringleader the server stores a gradient of each worker, and steps with the mean of all. Means are updated
incrementally, so that an update does not read the whole table.

Rescaled ASGD makes steps in proportion to compute times. The implementation follows the paper's abstract. The constant of the
steps and the estimate of times are FRED's choice.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fred.base.imports import jax, jnp
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, Server, State


class _Tabled(Server):
    """A server with a table: each worker's gradient or mean gradient, its number of gradients, and the mean of all workers."""

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state before the first update: an empty table."""
        table = jax.tree.map(lambda leaf: jnp.zeros((workers, *leaf.shape), leaf.dtype), params)
        mean = jax.tree.map(jnp.zeros_like, params)
        return super().init(params, workers).replace(table=table, mean=mean, counts=jnp.zeros(workers, jnp.int32))

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with `total`, the sum of a round; it has gradients of several workers, so the table stays unchanged."""
        return self.step(state, total)

    def _step_if(self, due: Scalar, state: State) -> State:
        """Step with the mean if `due`; leave the table alone, as choosing would copy it."""
        stepped = self.step(state, state.mean)
        params, memory = jax.tree.map(
            lambda new, old: jnp.where(due, new, old),
            (stepped.params, stepped.optimizer),
            (state.params, state.optimizer),
        )
        return stepped.replace(params=params, optimizer=memory)


class IA2SGD(_Tabled):
    """Asynchronous SGD that steps with the mean of all workers' newest gradients, so that their data have equal weight.

    The first step is made when every worker has sent a gradient; until then arrivals only fill the table, but count as
    updates. Two workers, the second of which is slow:

        >>> from fred.systems.ringleader import IA2SGD
        >>> import jax.numpy as jnp
        >>> server, values = IA2SGD(learning_rate=1.0), []
        >>> state = server.init({"w": jnp.array([0.0])}, workers=2)
        >>> for worker, gradient in [(0, 2.0), (0, 4.0), (1, 8.0), (0, 0.0)]:
        ...     state = server.apply_update(state, {"w": jnp.array([gradient])}, timestamp=0, worker=worker)
        ...     values.append(state.params["w"].tolist())
        >>> values
        [[0.0], [0.0], [-6.0], [-10.0]]
    """

    name = "ia2sgd"
    family = Family.ANSWERED
    rule = "G_k <- g,  w <- w - step(1/n sum_i G_i)    (of worker k; w stays as it is until all have sent)"
    protocol = "asynchronous"

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Replace the `worker`'s last gradient by the `message`; step if every worker has one."""
        counts = state.counts.at[worker].set(1)  # has sent: 1
        old = _take_row(state.table, worker)
        mean = _replace_term(state.mean, message, old, workers=counts.shape[0])
        state = state.replace(table=_put_row(state.table, worker, message, old), mean=mean, counts=counts)
        return self._step_if(jnp.all(counts > 0), state)


class RingleaderASGD(_Tabled):
    """Asynchronous SGD in rounds of one update per worker, each with the mean of all workers' mean gradients.

    No worker waits. First the table is filled: until every worker has sent a gradient, arrivals count as updates, but leave the
    parameters unchanged. The last of these gradients makes the first step. The other steps follow when the other workers'
    next gradients arrive and join their means. Further gradients of a worker that has had its step are stored for the next
    round. So each worker needs one row of the table, either for this round or for the next.

    Two workers, the second of which is slow; the third gradient fills the table, the fourth ends the round:

        >>> from fred.systems.ringleader import RingleaderASGD
        >>> import jax.numpy as jnp
        >>> server, values = RingleaderASGD(learning_rate=1.0), []
        >>> state = server.init({"w": jnp.array([0.0])}, workers=2)
        >>> for worker, gradient in [(0, 2.0), (0, 4.0), (1, 8.0), (0, 6.0), (0, 1.0)]:
        ...     state = server.apply_update(state, {"w": jnp.array([gradient])}, timestamp=0, worker=worker)
        ...     values.append(state.params["w"].tolist())
        >>> values
        [[0.0], [0.0], [-5.5], [-11.5], [-11.5]]
    """

    name = "ringleader"
    family = Family.ANSWERED
    rule = """\
A_k <- A_k + g,  b_k <- b_k + 1    (of worker k; what comes after its step of this round is the next round's)
w <- w - step(1/n sum_i A_i / b_i)    (if all b_i > 0, once for each worker; then the next round begins)"""
    protocol = "asynchronous"

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state before the first update, with empty rounds."""
        state = super().init(params, workers)
        return state.replace(following=state.mean, stepped=jnp.zeros(workers, jnp.int32))

    def apply_update(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> State:
        """Add the `message` to its `worker`'s mean, of this round or the next; step if it is this worker's turn."""
        workers, stepped_before = state.counts.shape[0], state.stepped[worker] > 0
        counts = state.counts.at[worker].add(1)
        old = _take_row(state.table, worker)
        new = jax.tree.map(lambda m, g: m + (g - m) / counts[worker], old, message)
        # `mean` is over the workers' rows of this round, `following` over those of the next; one of them changes.
        mean = _select(stepped_before, state.mean, _replace_term(state.mean, new, old, workers))
        following = _select(stepped_before, _replace_term(state.following, new, old, workers), state.following)
        # The round's first step is due when all have sent, each further step at once.
        due = ~stepped_before & (jnp.any(state.stepped > 0) | jnp.all(counts > 0))
        row = jax.tree.map(lambda leaf: jnp.where(due, 0.0, leaf), new)  # after its step, the row is for the next round
        state = state.replace(table=_put_row(state.table, worker, row, old), mean=mean, following=following)
        state = state.replace(
            counts=counts.at[worker].set(jnp.where(due, 0, counts[worker])),
            stepped=state.stepped.at[worker].set(jnp.where(due, 1, state.stepped[worker])),
        )
        return self._end_round(self._step_if(due, state))

    def _end_round(self, state: State) -> State:
        """Begin the next round if all workers have had their step."""
        complete = jnp.all(state.stepped > 0)
        return state.replace(
            mean=_select(complete, state.following, state.mean),
            following=jax.tree.map(lambda leaf: jnp.where(complete, 0.0, leaf), state.following),
            stepped=jnp.where(complete, 0, state.stepped),
        )


def _take_row(table: Params, worker: Scalar) -> Params:
    """Return a worker's row, taken out of the table before anything else happens.

    The loop never runs, as no worker's number is below 0. But XLA does not know that, and reads the row first. Otherwise it
    would read the table several times, and copy all of it before one row is replaced.
    """
    row = jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, worker, keepdims=False), table)
    return jax.lax.fori_loop(worker, 0, lambda _, row: jax.tree.map(jnp.negative, row), row)


def _put_row(table: Params, worker: Scalar, row: Params, old: Params) -> Params:
    """Return the table with another row in the place of the `old` one, which has been taken out."""

    # The condition never holds (see `_take_row`). It makes the new row depend on the old one, so XLA reads that one first.
    def put(leaf: jax.Array, row: jax.Array, old_row: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_index_in_dim(leaf, jnp.where(worker < 0, old_row, row), worker, 0)

    return jax.tree.map(put, table, row, old)


def _replace_term(mean: Params, new: Params, old: Params, workers: int) -> Params:
    """Return a mean over workers, one of whose terms has changed."""
    return jax.tree.map(lambda m, n, o: m + (n - o) / workers, mean, new, old)


def _select(condition: Scalar, chosen: Params, otherwise: Params) -> Params:
    return jax.tree.map(lambda left, right: jnp.where(condition, left, right), chosen, otherwise)


class RescaledASGD(Server):
    """Asynchronous SGD with steps in proportion to compute times, so that the data of all workers have equal weight.

    Without `times`, a worker's compute time is estimated as inversely proportional to 1 + its number of arrived gradients.

    Worker 0 takes half as long as worker 1, so t is 4/3, and two of three gradients of 1 are worker 0's:

        >>> from fred.systems.ringleader import RescaledASGD
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
        return self._count_arrivals(stepped, jnp.zeros_like(state.numbers).at[worker].set(1.0))

    def contribute(self, state: State, message: Message, /, timestamp: Scalar, worker: Scalar) -> Message:
        """Return the `message`, a gradient, times its `worker`'s factor, and the worker."""
        scaled = jax.tree.map(lambda leaf: self._scale(state, worker) * leaf, message)
        return {"gradient": scaled, "worker": jnp.zeros_like(state.numbers).at[worker].set(1.0)}

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Step with the mean of `count` gradients in `total`, each times its worker's factor."""
        return self._count_arrivals(self.step(state, total["gradient"]), count * total["worker"])

    def _scale(self, state: State, worker: Scalar) -> Scalar:
        """Return t_k / t."""
        return state.numbers.mean() / state.numbers[worker]

    def _count_arrivals(self, state: State, arrived: jax.Array) -> State:
        return state if self.times is not None else state.replace(numbers=state.numbers + arrived)
