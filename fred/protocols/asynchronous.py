"""The protocol of asynchronous SGD, in which no worker waits [Dean et al. 2012; Chen et al. 2017, algorithms 1-2]."""

from functools import partial
from typing import ClassVar

from fred.protocols.central import Central, Use
from fred.timing.copies import Gradient
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
