"""Arithmetic while the event loop runs: each row is computed as it is recorded, so that timing may follow values.

It leaves the same schedule, and the same bits, as recording first and replaying afterwards.
"""

from collections.abc import Callable
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fred.learning.data.sampling import Minibatches
from fred.learning.lower import Kind, Op, padded
from fred.learning.models.model import Params
from fred.learning.problem import Arrays, Loss
from fred.learning.replay import single
from fred.learning.server import Server, State
from fred.scenario import Unit
from fred.schedule import Gradient, Model, Recorder


class Inline(Recorder):
    """A recorder that also does what its rows mean."""

    def __init__(
        self,
        workers: int,
        updates: float,
        gradients: float,
        *,
        server: Server,
        loss: Loss,
        params: Params,
        examples: Arrays,
        batches: Minibatches,
        observe: Callable[[State], bool],
        every: tuple[Unit, float],
    ):
        super().__init__(workers, updates=updates, gradients=gradients)
        self._step = partial(single, server, loss)
        self.state = server.init(params)
        self._empty = jax.tree.map(lambda leaf: jnp.zeros((1, *leaf.shape), leaf.dtype), params)  # one gradient slot
        self._examples = examples
        self._batches = batches
        self._round: list[Gradient] = []
        self._observe = observe  # looks at the state; True: the target has been reached
        self._unit, self._spacing = every
        self._next = 1  # the next point is at this multiple of the spacing

    def observe(self) -> None:
        """Look at the present state, and stop if the target has been reached."""
        self.full = self._observe(self.state) or self.full

    def pull(self, now: int, worker: int, replica: int, step: int, arrival: int, size: int) -> Model:
        model = super().pull(now, worker, replica, step, arrival, size)
        return model._replace(params=self.state.params)

    def push(self, now: int, gradient: Gradient, replica: int, size: int) -> None:
        super().push(now, gradient, replica, size)
        facts = {"timestamp": gradient.model.timestamp, "client": gradient.worker}
        self._update(Op.APPLY, replica, self._value(gradient), **facts)

    def add(self, now: int, gradient: Gradient, replica: int, size: int) -> None:
        super().add(now, gradient, replica, size)
        self._round.append(gradient)

    def commit(self, now: int, replica: int) -> None:
        clock, members, self._round = self.clocks[replica], self._round, []
        super().commit(now, replica)
        if all(member.model.timestamp == clock and member.value is None for member in members):
            total, weight = self._flat(members), 1.0
        else:
            total, weight = reduce(_add, map(self._value, members)), 1.0 / len(members)
        self._update(Op.COMMIT, replica, total, weight=weight, timestamp=clock, count=len(members))

    def _update(self, op: Op, replica: int, gradient: Params, **facts: float) -> None:
        """Run the instruction, and observe if a point has been reached."""
        carry = (self.state, gradient)
        self.state, _ = self._step(Kind(op))(carry, self._examples, replica=replica, slot=0, **facts)
        reached = {"updates": self.updates, "gradients": self.gradients, "seconds": -1}[self._unit]
        if reached >= self._next * self._spacing:
            while reached >= self._next * self._spacing:
                self._next += 1
            self.observe()

    def _value(self, gradient: Gradient) -> Params:
        """The gradient by itself, in the form of one slot."""
        if gradient.value is None:
            indices = self._batches.one(gradient.worker, gradient.step, gradient.ordinal)
            gradient.value = self._compute(Kind(Op.GRADIENT), gradient.model, indices, 1)
        return gradient.value

    def _flat(self, members: list[Gradient]) -> Params:
        """Mean gradient of a round at the present version, as one batch in the order of the workers."""
        members = sorted(members, key=lambda member: (member.worker, member.step))
        size = padded(len(members), self.workers)
        rows = members + members[-1:] * (size - len(members))
        indices = self._batches.indices(*np.array([(row.worker, row.step, row.ordinal) for row in rows]).T)
        kind = Kind(Op.GRADIENT, size, masked=len(members) < size)
        return self._compute(kind, members[0].model, indices.reshape(-1), len(members))

    def _compute(self, kind: Kind, model: Model, indices: NDArray[np.int32], count: int) -> Params:
        carry = (self.state.replace(params=model.params), self._empty)
        return self._step(kind)(carry, self._examples, replica=0, slot=0, indices=indices, count=count)[1]


@jax.jit
def _add(a: Params, b: Params) -> Params:
    return jax.tree.map(jnp.add, a, b)
