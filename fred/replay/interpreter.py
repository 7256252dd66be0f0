"""Arithmetic while the event loop runs: each row is computed as it is recorded, so that timing may follow values.

It leaves the same schedule, and the same bits, as recording first and replaying afterwards.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fred.learning.models.model import Params
from fred.learning.problem import Arrays
from fred.learning.server import State
from fred.minibatches import Minibatches
from fred.replay.arithmetic import Arithmetic
from fred.replay.lower import padded
from fred.scenario.shape import Unit
from fred.timing.recorder import Block, Gradient, Model, Recorder


class Inline(Recorder):
    """A recorder that also does what its rows mean."""

    def __init__(
        self,
        *sizes: int,
        updates: float,
        gradients: float,
        arithmetic: Arithmetic,
        models: Sequence[Params],
        examples: Arrays,
        batches: Minibatches,
        observe: Callable[[Params], bool],
        every: tuple[Unit, float],
    ):
        super().__init__(*sizes, updates=updates, gradients=gradients)
        self._do = jitted(arithmetic)
        self.states = arithmetic.start(models, len(self.clocks))  # of each replica
        self._examples = examples
        self._batches = batches
        self._observe = observe  # looks at the replicas; True: the target has been reached
        self._unit, self._spacing = every
        self._next = 1  # the next point is at this multiple of the spacing

    def replicas(self) -> Params:
        """All replicas' present parameters [replicas, ...]."""
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(state.params for state in self.states))

    def observe(self) -> None:
        """Look at the present parameters, and stop if the target has been reached."""
        if self._observe(self.replicas()):
            self.stop()

    def statistic(self, replica: int = 0) -> float:
        """What the algorithm lets timing depend on, of a replica's present state."""
        return float(self._do["statistic"](self.states[replica]))

    def pull(self, now: int, worker: int, replica: int, *facts: int) -> Model:
        return super().pull(now, worker, replica, *facts)._replace(params=self.states[replica].params)

    def pull_block(self, now: int, worker: int, replica: int, *facts: int) -> Block:
        return super().pull_block(now, worker, replica, *facts)._replace(params=self.states[replica].params)

    def push(self, now: int, gradient: Gradient, replica: int, size: int, messages: int) -> None:
        over = self.full
        super().push(now, gradient, replica, size, messages)
        if over:
            return
        grads = self._part(self._value(gradient), replica)
        state = self._do["apply"](self.states[replica], grads, gradient.model.at(replica), gradient.worker)
        self._changed(replica, state)

    def commit(self, now: int, replica: int) -> None:
        clock, members, over = self.clocks[replica], self._joined[replica], self.full
        super().commit(now, replica)
        if over:
            return
        fresh = all(member.model.at(replica) == clock and member.value is None for member in members)
        if fresh and len(self.clocks) == 1:
            total, weight = self._flat(members), 1.0
        else:
            parts = [self._part(self._value(member), replica) for member in members]
            total, weight = reduce(self._do["add"], parts), 1.0 / len(members)
        self._changed(replica, self._do["commit"](self.states[replica], total, weight, len(members)))

    def mix(self, now: int, worker: int, parts: Sequence[tuple[Model, float]]) -> Model:
        value = self._mixed([(model.params, weight) for model, weight in parts])
        return super().mix(now, worker, parts)._replace(params=value)

    def sync(self, now: int, worker: int, model: Model, keep: float, weight: float, size: int, messages: int) -> None:
        super().sync(now, worker, model, keep, weight, size, messages)
        if self.full:
            return
        state, value = self.states[worker], model.params
        if keep or weight != 1.0:
            value = self._mixed(([(state.params, keep)] if keep else []) + [(model.params, weight)])
        self.states[worker] = state.replace(params=value, clock=np.int32(self.clocks[worker]))

    def _changed(self, replica: int, state: State) -> None:
        """Keep a replica's new state, and observe if a point has been reached."""
        self.states[replica] = state.replace(clock=np.int32(self.clocks[replica]))
        reached = {"updates": self.updates, "gradients": self.gradients, "seconds": -1}[self._unit]
        if reached >= self._next * self._spacing:
            while reached >= self._next * self._spacing:
                self._next += 1
            self.observe()

    def _mixed(self, parts: Iterable[tuple[Params, float]]) -> Params:
        value = None
        for params, weight in parts:
            value = self._do["scale"](params, weight) if value is None else self._do["add_scaled"](value, params, weight)
        return value

    def _part(self, grads: Params, replica: int) -> Params:
        """The part of a gradient that belongs to a replica."""
        return grads if self.blocks == 1 else self._do["block"](grads, replica)

    def _value(self, gradient: Gradient) -> Params:
        """The gradient by itself."""
        if gradient.value is None:
            indices = self._batches.one(gradient.worker, gradient.step, gradient.ordinal)
            gradient.value = self._compute(gradient.model, indices, 1, 1, False)
        return gradient.value

    def _flat(self, members: list[Gradient]) -> Params:
        """Mean gradient of a round at the present version, as one batch in the order of the workers."""
        members = sorted(members, key=lambda member: (member.worker, member.step))
        size = padded(len(members), self.workers)
        rows = members + members[-1:] * (size - len(members))
        indices = self._batches.indices(*np.array([(row.worker, row.step, row.ordinal) for row in rows]).T)
        return self._compute(members[0].model, indices.reshape(-1), len(members), size, len(members) < size)

    def _compute(self, model: Model, indices: Any, count: int, members: int, masked: bool) -> Params:
        sources = [block.params for block in model.blocks] or [model.params]
        return self._do["gradient"](sources, self._examples, indices, count, members=members, masked=masked)


@lru_cache(maxsize=64)
def jitted(arithmetic: Arithmetic) -> dict[str, Callable[..., Any]]:
    """Each function compiled by itself; kept, because runs with several seeds share it."""
    functions: dict[str, Callable[..., Any]] = {
        name: jax.jit(getattr(arithmetic, name)) for name in ("apply", "commit", "add", "block")
    }
    return functions | {
        "gradient": jax.jit(arithmetic.gradient, static_argnames=("members", "masked")),
        "scale": jax.jit(lambda params, weight: arithmetic.mix([params], [weight])),
        "add_scaled": jax.jit(lambda value, params, weight: arithmetic.mix([params], [weight], value)),
        "statistic": jax.jit(arithmetic.server.statistic),
    }
