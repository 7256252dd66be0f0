"""Stale synchronous parallel [Ho, Cipar, Cui, Lee, Kim, Gibbons, Gibson, Ganger, Xing 2013]: nobody runs too far ahead."""

from collections import Counter
from functools import partial

from pydantic import Field

from fred.timing.protocol import Protocol
from fred.timing.simulation import Process, Simulation


class StaleSynchronous(Protocol):
    """As asynchronous, but a worker that is more than `bound` steps ahead of the slowest waits for it.

    Bound 0 is bulk-synchronous: nobody begins step k before everybody has finished step k - 1. No bound is asynchronous.
    """

    bound: int | None = Field(3, ge=0, description="s: steps; null: no bound")

    def start(self, sim: Simulation) -> None:
        progress = _Progress(sim)
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, progress, worker))

    def _work(self, sim: Simulation, progress: "_Progress", worker: int) -> Process:
        step = 0
        while True:
            while self.bound is not None and step - progress.slowest > self.bound:
                yield from sim.wait(worker, progress.advanced, f"all to finish step {progress.slowest}")
            model = yield from sim.pull(worker)
            gradient = sim.compute(worker, model)
            yield gradient.finished
            yield from sim.send(gradient)
            sim.push(gradient)
            progress.finish(step)
            step += 1


class _Progress:
    """How far the slowest worker is."""

    def __init__(self, sim: Simulation):
        self._sim = sim
        self._finished: Counter[int] = Counter()  # step -> workers that have finished it
        self.slowest = 0  # steps that every worker has finished
        self.advanced = sim.env.event()

    def finish(self, step: int) -> None:
        """One more worker has finished this step."""
        self._finished[step] += 1
        if self._finished[step] == self._sim.workers:
            self.slowest += 1
            self.advanced.succeed()
            self.advanced = self._sim.env.event()
