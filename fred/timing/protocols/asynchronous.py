"""Asynchronous SGD's protocol [Dean et al. 2012; Chen et al. 2017, algorithms 1-2]: nobody waits for anybody."""

from functools import partial

from fred.timing.protocol import Protocol
from fred.timing.simulation import Process, Simulation


class Asynchronous(Protocol):
    """Every worker pulls, computes and pushes at its own pace; each gradient makes one update when it arrives."""

    def start(self, sim: Simulation) -> None:
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, worker))

    def _work(self, sim: Simulation, worker: int) -> Process:
        while True:
            model = yield from sim.pull(worker)
            gradient = sim.compute(worker, model)
            yield gradient.finished
            yield from sim.send(gradient)
            sim.push(gradient)
