"""SPARTA: local SGD that averages a random part of the coordinates at a time, at once or late.

| name          | source                                                                       |
|---------------|------------------------------------------------------------------------------|
| sparta        | "SPARTA" 2025, in EXO Gym; as AsyncMesh 2026, arXiv:2601.22442, describes it |
| LateAveraging | AsyncMesh 2026, arXiv:2601.22442; LOSCAR 2026, arXiv:2605.20866              |

The coordinates follow from the seed and the average's number, so indices are not sent.

Example: a minute in which workers take 0.5 s for each gradient, and an average 0.75 s. With delay 0 they wait for it.
    >>> import fred
    >>> settings = {
    ...     "cluster": {
    ...         "workers": 2,
    ...         "compute": {"name": "constant", "seconds": 0.5},
    ...         "network": {"bandwidth": 1e6, "message_bytes": 750_000},
    ...     },
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "sparta", "learning_rate": 0.1},
    ... }
    >>> for delay in (0, 1, 2, None):
    ...     summary = fred.run(fred.scenario(settings, protocol={"delay": delay})).summary
    ...     summary[["gradients_applied", "messages_between_workers", "workers_time_waiting"]].round(2).iloc[0].tolist()
    [96.0, 188.0, 0.0]
    [160.0, 316.0, 0.0]
    [162.0, 316.0, 0.0]
    [238.0, 156.0, 0.0]
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from functools import partial
from typing import Annotated, Any, ClassVar

import simpy
from pydantic import Field

from fred.base.imports import jax, jnp
from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING, Cost
from fred.components.component import Count, Natural
from fred.learning.keys import GENERATOR
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, Server, State
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Copy
from fred.timing.simulation import Operation, Process, Simulation


class Masked(Server):
    """A server whose averages include a random part of the coordinates."""

    divisible: ClassVar[bool] = False
    draws: ClassVar[bool] = True

    parts: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=20, description="1 / p: number of parts of each array's coordinates; each average includes one part"
    )

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state before the first update."""
        return super().init(params, workers).replace(averages=jnp.int32(0))

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Ignore `total`, the worker's model when it was sent less its present one."""
        return state.replace(clock=state.clock + 1)

    def synchronize(self, state: State, mixed: Params, /, keep: Scalar, weight: Scalar) -> State:
        """Average the masked coordinates with a mailbox."""
        averaged, mask = super().synchronize(state, self._corrected(state, mixed), keep, weight), self._mask(state)
        params = jax.tree.map(jnp.where, mask, averaged.params, state.params)
        return averaged.replace(params=params, averages=state.averages + 1)

    def averaged_bytes(self, params: Params, /) -> tuple[int, ...]:
        """Return the bytes of each part's coordinates."""
        sizes = [math.prod(leaf.shape) for leaf in jax.tree.leaves(params)]
        return tuple(
            4 * sum(len(range(self._part(number), size, self.parts)) for size in sizes) for number in range(self.parts)
        )

    def _part(self, number: Any) -> Any:
        """Return the number of the part of the coordinates that an average includes."""
        return number % self.parts

    def _division(self, number: Any) -> Any:
        """Return the number of the division of the coordinates that an average belongs to."""
        return number // self.parts

    def _corrected(self, state: State, mean: Params) -> Params:
        """Return the corrected values that are merged instead of a late `mean`."""
        return mean

    def _mask(self, state: State) -> Params:
        """Return the mask of the coordinates in the next average."""
        key = jax.random.wrap_key_data(state.words, impl=GENERATOR)
        key = jax.random.fold_in(key, self._division(state.averages))
        leaves, structure = jax.tree.flatten(state.params)
        masks = [self._draw_mask(state, jax.random.fold_in(key, number), leaf) for number, leaf in enumerate(leaves)]
        return jax.tree.unflatten(structure, masks)

    def _draw_mask(self, state: State, key: Any, leaf: jax.Array) -> jax.Array:
        """Return the mask of an array: coordinate r of a random permutation is in part r modulo `parts`."""
        order = jnp.argsort(jax.random.uniform(key, (leaf.size,)))
        ranks = jnp.zeros(leaf.size, jnp.int32).at[order].set(jnp.arange(leaf.size, dtype=jnp.int32))
        return (ranks % self.parts == self._part(state.averages)).reshape(leaf.shape)


class SPARTA(Masked):
    """Sparse parameter averaging: after each update workers average a random part of the coordinates, by default a twentieth.

    When all parts have been averaged, the coordinates are divided again at random. With one part it is local SGD that averages
    after every update. A late mean overwrites the current values.
    """

    name = "sparta"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
w_i <- mean of all w    (its coordinates in the mask, as of tau updates ago)"""
    protocol = "late-averaging"


class LateAveraging(Protocol):
    """Every few updates workers contribute their models to an allreduce, and merge its mean some updates later.

    An allreduce begins when all workers have contributed and the one before it is over. After `delay` updates a worker waits
    for the mean if necessary. With `delay: null` no worker waits: it merges a mean after the first update that ends with the
    mean available, and only then contributes again. The algorithm defines the averaged part of a model and its size. A late
    mean is merged in two steps: a round of the worker with the model that it contributed less its present one, then the mean.
    """

    name = "late-averaging"
    faults: ClassVar[str] = (
        "A worker keeps its model, and computes the lost gradient again; an allreduce begins when all workers are available."
    )

    every: Count = Field(default=1, description="number of updates of each worker between two averages")
    delay: Natural | None = Field(default=0, description="tau: updates until a mean is merged; null: when it has arrived")

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def start(self, sim: Simulation) -> None:
        averages = _Averages(sim)
        for worker in range(sim.workers):
            sim.process(self._work(sim, worker, averages))

    def _work(self, sim: Simulation, worker: int, averages: _Averages) -> Process:
        updates, number = 0, 0  # made updates; number of the next average
        pending = deque[tuple[int, int, Copy]]()  # averages to merge: number, updates made by then, contributed model
        while True:
            gradient = sim.compute(worker, sim.own(worker))
            yield gradient.finished
            sim.push(gradient, worker, NOTHING)
            updates += 1
            if updates % self.every == 0 and (self.delay is not None or not pending):
                model = sim.own(worker)
                averages.add(number, worker, model)
                pending.append((number, updates, model))
                number += 1
            while pending and self._is_due(pending[0], updates, averages):
                due_number, _, model = pending.popleft()
                yield from self._merge(sim, worker, averages, due_number, model)

    def _is_due(self, average: tuple[int, int, Copy], updates: int, averages: _Averages) -> bool:
        """Return True if a worker merges this average of `pending` after its number of `updates`."""
        number, updates_then, _ = average
        return averages.is_over(number) if self.delay is None else updates >= updates_then + self.delay

    def _merge(self, sim: Simulation, worker: int, averages: _Averages, number: int, model: Copy) -> Process:
        if not averages.is_over(number):
            yield from averages.wait(number, worker)
        yield from sim.present(worker)
        mean, cost = averages.take(number, worker)
        if self.delay != 0:  # without delay the worker has not changed since
            sim.add(sim.pseudo_gradient(worker, model, sim.own(worker)), worker, NOTHING)
            sim.commit(worker)
        sim.sync(worker, mean, cost=cost._replace(nanoseconds=0))  # `_receive` has recorded the time


class _Averages:
    """The allreduces of the workers' models, by number."""

    def __init__(self, sim: Simulation):
        self._sim = sim
        self._models: defaultdict[int, dict[int, Copy]] = defaultdict(dict)
        self._events: defaultdict[int, simpy.Event] = defaultdict(sim.env.event)
        self._complete: deque[int] = deque()  # those to which all have contributed and which are not over
        self._means: dict[int, dict[int, tuple[Copy, Cost]]] = {}  # for the workers that have not merged it

    def add(self, number: int, worker: int, model: Copy) -> None:
        """Add a worker's model; the allreduce begins when all have been added."""
        sim, models = self._sim, self._models[number]
        models[worker] = model
        if len(models) == sim.workers:
            self._complete.append(number)
            if len(self._complete) == 1:
                self._begin(number)

    def _begin(self, number: int) -> None:
        """Begin the allreduce of this number."""
        sim, everybody = self._sim, range(self._sim.workers)
        operation = sim.allreduce(everybody, awaited=everybody, size=sim.sizes.average(number))
        sim.later(operation.over, partial(self._end, number, operation))

    def is_over(self, number: int) -> bool:
        """Return True if all workers have the mean."""
        return number in self._means

    def wait(self, number: int, worker: int) -> Process:
        """Wait until all workers have the mean."""
        yield from self._sim.wait(worker, self._events[number], f"average {number + 1}")

    def take(self, number: int, worker: int) -> tuple[Copy, Cost]:
        """Return the mean, and its cost to the worker."""
        mean_and_cost = self._means[number].pop(worker)
        if not self._means[number]:
            del self._means[number]
        return mean_and_cost

    def _receive(self, worker: int, mean: Copy, cost: Cost) -> Copy:
        """Return a worker's copy of the mean, and record its time on the network."""
        if cost.nanoseconds:
            self._sim.record.record_collective(self._sim.now - cost.moving, self._sim.now, worker)
        return self._sim.mix(worker, [(mean, 1.0)])

    def _end(self, number: int, operation: Operation) -> None:
        sim, models, cost = self._sim, self._models.pop(number), operation.cost
        self._complete.popleft()
        if self._complete:
            self._begin(self._complete[0])
        mean = sim.mix(0, [(models[worker], 1 / sim.workers) for worker in range(sim.workers)])
        self._means[number] = {worker: (self._receive(worker, mean, cost), cost) for worker in range(sim.workers)}
        self._events.pop(number, sim.env.event()).succeed()  # a new event if no worker waits
