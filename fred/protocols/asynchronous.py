"""Asynchronous SGD: with a clock, and with a dispatcher that draws the next worker.

| name         | source                                             |
|--------------|----------------------------------------------------|
| asynchronous | Dean et al. 2012; Chen et al. 2017, algorithms 1-2 |
| dispatcher   | Odena 2016, section 3                              |

In `asynchronous`, no worker waits. The dispatcher draws the next worker by a selection rule:

>>> from itertools import islice
>>> def shares(rule):
...     return np.bincount(list(islice(rule.choices(0, 3), 3000)), minlength=3) / 3000
>>> shares(Uniform()).round(2).tolist()
[0.33, 0.34, 0.33]
>>> shares(Softmax(priorities=(0.0, 0.0, 1.0))).round(2).tolist()
[0.21, 0.21, 0.58]
>>> list(islice(Shifting(change=-9.0).choices(0, 3), 6))
[0, 2, 1, 0, 1, 2]

Example: the dispatcher has no clock. The four workers' gradients arrive in random order, and no virtual time passes.
    >>> import fred
    >>> scenario = fred.scenario({
    ...     "cluster": {"workers": 4},
    ...     "stop": {"updates": 10},
    ...     "protocol": "dispatcher",
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... })
    >>> schedule = fred.run(scenario).outcomes[0].schedule
    >>> pushes = schedule.rows(fred.Verb.PUSH)
    >>> schedule["worker"][pushes].tolist(), schedule["staleness"][pushes].tolist(), schedule.end_ns
    ([0, 3, 0, 0, 0, 0, 3, 1, 2, 1], [0, 1, 1, 0, 0, 0, 4, 7, 8, 1], 0)
"""

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fred.base import numerics
from fred.base.numerics import exp
from fred.cluster.cluster import Cluster
from fred.components.component import Component
from fred.components.one_of import OneOf
from fred.protocols.gates import Gates
from fred.protocols.protocol import Central, Use
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Process, Simulation


class Asynchronous(Central):
    """Every worker pulls, computes and pushes at its own pace; the server applies each gradient on arrival."""

    name = "asynchronous"
    faults: ClassVar[str] = "A returning worker reads the newest model; no worker waits."

    def start(self, sim: Simulation) -> None:
        def push(gradient: Gradient, block: int) -> None:
            sim.push(gradient, block=block)

        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, worker, push))

    def _work(self, sim: Simulation, worker: int, push: Use) -> Process:
        fetch, compute, deliver = self.fetch, self.compute, self.deliver
        while True:
            model = yield from fetch(sim, worker)
            gradient = yield from compute(sim, worker, model)
            yield from deliver(sim, gradient, push)
            del model, gradient  # frees their memory before the next ones exist


class Selection(Component):
    """A rule that draws one worker after another.

    Example:
        >>> import itertools
        >>> import fred
        >>> class InTurn(fred.Selection):
        ...     '''One after the other; the last one twice as often.'''
        ...     def choices(self, seed, workers):
        ...         return itertools.cycle([*range(workers), workers - 1])
        >>> list(itertools.islice(InTurn().choices(seed=0, workers=3), 8))
        [0, 1, 2, 2, 0, 1, 2, 2]
        >>> scenario = fred.scenario({
        ...     "cluster": {"workers": 3},
        ...     "stop": {"updates": 400},
        ...     "protocol": {"name": "dispatcher", "selection": InTurn()},
        ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
        ... })
        >>> float(fred.run(scenario).summary["staleness_mean"].iloc[0])
        1.9875
    """

    @abstractmethod
    def choices(self, seed: int, workers: int) -> Iterator[int]:
        """Yield the number (from 0) of the next worker, without end.

        Args:
            seed: seed of the draws; the same seed gives the same order.
            workers: number of workers.
        """

    def check(self, cluster: Cluster) -> None:
        """Raise ValueError if the options do not fit the number of workers of the `cluster`."""


class Uniform(Selection):
    """Every worker is equally likely in each draw."""

    def choices(self, seed: int, workers: int) -> Iterator[int]:
        for u in numerics.iterate_uniforms(seed, "dispatch"):
            yield int(u * workers)


class Softmax(Selection):
    """A worker is selected with probability proportional to exp(priority); priorities are constant."""

    priorities: tuple[float, ...] = Field(default=(), description="one per worker; absent: all 0")

    def check(self, cluster: Cluster) -> None:
        if self.priorities and len(self.priorities) != cluster.size:
            raise ValueError(f"{cluster.size} workers need as many `priorities`, not {len(self.priorities)}")

    def choices(self, seed: int, workers: int) -> Iterator[int]:
        priorities = np.array(self.priorities or [0.0] * workers)
        for u in numerics.iterate_uniforms(seed, "dispatch"):
            cumulative = np.cumsum(exp(priorities - priorities.max()))
            worker = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
            yield worker
            self._selected(priorities, worker)

    def _selected(self, priorities: np.ndarray, worker: int) -> None:
        """Change the priorities after a worker has been selected; here, not at all."""


class Shifting(Softmax):
    """Softmax selection in which a worker's priority changes by a fixed amount each time it is selected.

    A negative change brings the order closer to round-robin; a positive one selects frequent workers even more often.
    """

    change: float = Field(ge=-1e6, le=1e6, examples=[-1.0], description="added to a worker's priority when it is selected")

    def _selected(self, priorities: np.ndarray, worker: int) -> None:
        priorities[worker] += self.change


class Dispatcher(Gates):
    """One worker after another is selected, pushes the gradient at its copy of the parameters, and gets a new copy.

    The compute times and the network of the cluster are not used: only the order of events matters. Pushes and fetches
    pass through the gates of `gated`, which are open by default.
    """

    name = "dispatcher"

    has_clock = False

    selection: Annotated[Selection, OneOf("selection")] = Field(
        default=Uniform(), description="rule that draws the next worker"
    )

    def check(self, cluster: Cluster) -> None:
        self.selection.check(cluster)

    def start(self, sim: Simulation) -> None:
        sim.process(self._dispatch(sim))

    def _dispatch(self, sim: Simulation) -> Process:
        workers, models = range(sim.workers), dict[int, Copy]()
        fetch_paths = [self.fetches(sim, worker) for worker in workers]
        outboxes = [self.pushes(sim, worker) for worker in workers]

        def fetch(worker: int) -> None:
            model = models.get(worker)
            passes = fetch_paths[worker].passes(model)
            models[worker] = sim.read(worker) if passes or model is None else self.unfetched(sim, model)

        for worker in workers:
            fetch(worker)
        for worker in self.selection.choices(sim.seed, sim.workers):
            gradient = sim.compute(worker, models[worker], duration=0)
            yield gradient.finished
            outbox = outboxes[worker]
            outbox.update(outbox.put(gradient, outbox.sends(gradient)))
            fetch(worker)
