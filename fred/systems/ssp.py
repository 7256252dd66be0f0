"""SSP: stale synchronous parallel SGD.

| name                  | source                                                                                            |
|-----------------------|---------------------------------------------------------------------------------------------------|
| ssp, StaleSynchronous | Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server" |

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "staleness_mean", "workers_time_waiting"]].round(2).iloc[0].tolist()
    >>> measured(name="stale-synchronous", bound=0)
    [119.0, 1.49, 0.55]
    >>> measured(name="stale-synchronous", bound=8)
    [143.0, 8.31, 0.5]
    >>> measured(name="stale-synchronous", bound=None)
    [386.0, 192.5, 0.0]
"""

from collections import Counter
from functools import partial
from typing import ClassVar

from pydantic import Field

from fred.components.component import Whole
from fred.learning.server import Family, Server
from fred.protocols.central import Central
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Process, Simulation


class SSP(Server):
    """Stale synchronous parallel SGD: gradients are applied on arrival; a bound limits how far workers run ahead."""

    name = "ssp"
    family = Family.AS_THEY_COME
    rule = "w <- w - step(g)"
    protocol = "stale-synchronous"


class StaleSynchronous(Central):
    """Asynchronous, but a worker more than `bound` steps ahead of the slowest one waits for it.

    In step c a worker needs parameters that include all workers' updates of steps up to c - bound - 1. With a cache it fetches
    new parameters only when its copy lacks one of these; without a cache it fetches in every step.

    Bound 0 is bulk-synchronous: no worker begins step k before all have finished step k - 1. Without a bound it is asynchronous
    SGD; with a cache as well, all workers use the initial parameters for ever.
    """

    name = "stale-synchronous"
    faults: ClassVar[str] = (
        "A returning worker reads the newest model; the others wait once they are as far ahead as the bound allows."
    )

    bound: Whole | None = Field(default=3, description="s: largest lead over the slowest worker, steps; null: no bound")
    cache: bool = Field(
        default=True, description="whether to use cached parameters again while they are fresh enough, instead of fetching"
    )

    def start(self, sim: Simulation) -> None:
        progress = _Steps(sim)
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, progress, worker))

    def _work(self, sim: Simulation, progress: "_Steps", worker: int) -> Process:
        def push(gradient: Gradient, block: int) -> None:
            sim.push(gradient, block=block)

        fetch, compute, deliver = self.fetch, self.compute, self.deliver
        model: Copy | None = None  # a process that restarts after a crash has none
        includes = 0  # number of steps of all workers that the parameters surely include
        while True:
            step = progress.steps[worker]
            needed = 0 if self.bound is None else step - self.bound
            if step == 0 or not self.cache or includes < needed:
                while progress.slowest < needed:
                    yield from sim.wait(worker, progress.advanced, f"all to finish step {progress.slowest}")
                includes, model = progress.slowest, None
            if model is None:
                model = yield from fetch(sim, worker)
            gradient = yield from compute(sim, worker, model)
            yield from deliver(sim, gradient, push)
            model = gradient.copy
            del gradient  # or it would be held until the next one is there
            progress.finish(worker)


class _Steps:
    """The number of steps that each worker has finished."""

    def __init__(self, sim: Simulation):
        self._sim = sim
        self._finished: Counter[int] = Counter()  # step -> workers that have finished it
        self.steps = [0] * sim.workers  # that each worker has finished
        self.slowest = 0  # steps that every worker has finished
        self.advanced = sim.env.event()

    def finish(self, worker: int) -> None:
        """Record that a worker has finished one more step."""
        step = self.steps[worker]
        self.steps[worker] += 1
        self._finished[step] += 1
        if self._finished[step] == self._sim.workers:
            self.slowest += 1
            self.advanced.succeed()
            self.advanced = self._sim.env.event()
