"""Local steps from a global model, which moves by the mean of their pseudo-gradients [Douillard et al. 2023, arXiv:2311.08105].

| class      | source                                                                                                      |
|------------|-------------------------------------------------------------------------------------------------------------|
| OuterSteps | DiLoCo, arXiv:2311.08105, algorithm 1; `every`: A-EDiT, arXiv:2412.07210; `pulls`: PALSGD, arXiv:2504.18454 |

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s; a message takes 0.5 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {
    ...         "workers": 4,
    ...         "speeds": [1.0, 1.0, 1.0, 0.25],
    ...         "compute": {"name": "constant", "seconds": 0.5},
    ...         "network": {"latency": {"name": "constant", "seconds": 0.5}},
    ...     },
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "diloco", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "messages_between_workers"]].iloc[0].tolist()
    >>> measured(name="outer-steps", period=8)
    [112, 72]
    >>> measured(name="outer-steps", period=8, paced=True)
    [230, 192]
    >>> measured(name="outer-steps", every=16.0)
    [328, 72]
"""

from collections import defaultdict
from functools import partial
from typing import Annotated, ClassVar, Self

import simpy
from pydantic import Field, model_validator

from fred.base import streams
from fred.cluster.cluster import Cluster
from fred.cluster.durations import NANOSECONDS, NEVER
from fred.cluster.network import NOTHING
from fred.components.component import Count
from fred.protocols.pacing import Paced
from fred.schedule.layout import Cut, Layout
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Operation, Process, Simulation


def with_global(workers: int, blocks: int = 1, cut: Cut = "parts") -> Layout:
    """Return the layout with a model for each worker, and a global model that is on no server.

    Args:
        workers: number of workers.
        blocks: number of blocks of each model.
        cut: how models are cut into blocks: equal parts of every array, or whole layers.

        >>> layout = with_global(4)
        >>> layout.replicas, list(layout.answer)
        (5, [4])
    """
    return Layout(workers + 1, range(workers, workers + 1), range(0), blocks, cut)


def pull_weight(share: float) -> float:
    """Return the weight of a pull, (1 - p) / p: a server's `synchronize` gets it as `weight`, with `keep` = 1.

    Args:
        share: p, the share of updates that are pulls.

        >>> pull_weight(0.2)
        4.0
    """
    return (1 - share) / share


class OuterSteps(Paced):
    """Every worker makes `period` updates of its own model; an allreduce then averages the pseudo-gradients.

    The global model makes a step with their mean, and all workers continue from it. With `every` instead of `period`, a worker
    waits for the others at its first end of an update after that number of seconds, so faster workers make more updates. With
    `pulls`, some updates draw the worker's model towards its own copy of the global one, instead of applying a gradient. A
    pull sends nothing and takes no time.
    """

    name = "outer-steps"
    faults: ClassVar[str] = (
        "A worker keeps its model, and computes the lost gradient again; an outer step begins when all workers are available."
    )

    period: Count = Field(
        default=8, description="H: updates of each worker, or with `paced` of the fastest, between two outer steps"
    )
    every: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="seconds between two outer steps, instead of `period`; each worker makes at least one update",
    )
    pulls: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="p: share of updates that draw a worker's model towards the global one, instead of a gradient step",
    )

    @model_validator(mode="after")
    def _by_number_or_time(self) -> Self:
        if self.paced and self.every is not None:
            raise ValueError("`paced` and `every` both set the number of updates of each worker: give one of them")
        return self

    def layout(self, cluster: Cluster) -> Layout:
        return with_global(cluster.size)

    def start(self, sim: Simulation) -> None:
        synchronizations = Synchronizations(sim)
        for worker, updates in enumerate(self.updates(sim.cluster)):
            sim.process(self._work(sim, worker, updates, synchronizations))

    def _work(self, sim: Simulation, worker: int, updates: int, synchronizations: "Synchronizations") -> Process:
        number, made = 0, 0
        common = sim.read(worker, sim.workers, sent=False)
        while True:
            first, end = made, NEVER if self.every is None else sim.now + round(self.every * NANOSECONDS)
            while made == first or (made - first < updates if self.every is None else sim.now < end):
                yield from self._update(sim, worker, made, common)
                made += 1
            synchronizations.bring(number, sim.pseudo_gradient(worker, common, sim.own(worker)))
            yield from synchronizations.over(number, worker)
            common = sim.read(worker, sim.workers, sent=False)
            sim.sync(worker, common)
            number += 1

    def _update(self, sim: Simulation, worker: int, made: int, common: Copy) -> Process:
        """Make one update of the worker's model: a gradient step, or a pull towards the global model."""
        if self.pulls and int(streams.words(sim.seed, "pull", worker, made)) < self.pulls * 2**32:
            sim.sync(worker, common, keep=1.0, weight=pull_weight(self.pulls))
            return
        gradient = sim.compute(worker, sim.own(worker))
        yield gradient.finished
        sim.push(gradient, worker, NOTHING)


def whole(sim: Simulation, worker: int, replica: int) -> Copy:
    """Return a whole replica, composed of its blocks, as a worker reads it without a message.

    Args:
        sim: the run.
        worker: number of the worker that reads it.
        replica: number of the replica.
    """
    copies = [sim.read(worker, replica, sent=False, block=block) for block in range(sim.blocks)]
    return copies[0] if sim.blocks == 1 else sim.compose(worker, copies)


class Synchronizations:
    """Allreduces of pseudo-gradients, each followed by a step of the global model; the n-th is of block n, cyclically."""

    def __init__(self, sim: Simulation):
        self._sim = sim
        self._first = dict.fromkeys(range(sim.workers), 0)  # of each available worker, the first outer step that awaits it
        self._brought: defaultdict[int, dict[int, Gradient]] = defaultdict(dict)  # by worker
        self._begun: set[int] = set()
        self._over: defaultdict[int, simpy.Event] = defaultdict(sim.env.event)

    def others(self, worker: int) -> list[int]:
        """Return the other workers that are available."""
        return sorted(set(self._first) - {worker})

    def join(self, worker: int, number: int) -> None:
        """Await a worker at this outer step and at all later ones."""
        self._first[worker] = number

    def leave(self, worker: int) -> None:
        """Remove a crashed worker and drop its pseudo-gradients; begin the outer steps that waited for it alone."""
        self._first.pop(worker, None)
        if self._sim.record.full:
            return
        for number in sorted(set(self._brought) - self._begun):
            if pseudo_gradient := self._brought[number].pop(worker, None):
                self._sim.drop(pseudo_gradient, self._sim.workers, NOTHING, number % self._sim.blocks)
            self._begin_if_complete(number)

    def bring(self, number: int, pseudo_gradient: Gradient) -> None:
        """Add a worker's pseudo-gradient to an outer step; the allreduce begins when all have been added."""
        self._brought[number][pseudo_gradient.worker] = pseudo_gradient
        self._begin_if_complete(number)

    def _begin_if_complete(self, number: int) -> None:
        brought, sim = self._brought[number], self._sim
        if not brought or any(number >= first and worker not in brought for worker, first in self._first.items()):
            return
        self._begun.add(number)
        block = number % sim.blocks if sim.blocks > 1 else None
        operation = sim.add_up(sorted(brought), awaited=sorted(brought), block=block)
        sim.later(operation.over, partial(self._step, number, operation))

    def over(self, number: int, worker: int) -> Process:
        """Wait until an outer step is over."""
        yield from self._sim.wait(worker, self._over[number], f"all workers at outer step {number + 1}")

    def _step(self, number: int, operation: Operation) -> None:
        sim, block = self._sim, number % self._sim.blocks
        self._begun.discard(number)
        for _, pseudo_gradient in sorted(self._brought.pop(number).items()):
            sim.add(pseudo_gradient, sim.workers, operation.cost, block)
        sim.commit(sim.workers, block)
        self._over[number].succeed()
