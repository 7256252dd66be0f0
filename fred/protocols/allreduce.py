"""Allreduce-SGD [Li et al. 2021, section 2; Thakur, Rabenseifner, Gropp 2005]: all wait for all, no server."""

from typing import ClassVar

from fred.cluster.cluster import Cluster
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.simulation import Process, Simulation


class Allreduce(Protocol):
    """Every worker computes at the same parameters; an allreduce averages the gradients, and all make the same update."""

    faults: ClassVar[str] = "All wait: the lost gradient is computed anew, and the allreduce begins when everybody is there."

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.shared()

    def start(self, sim: Simulation) -> None:
        sim.process(self._rounds(sim))

    def _rounds(self, sim: Simulation) -> Process:
        while True:
            gradients = [sim.begin(worker, sim.read(worker, sent=False)) for worker in range(sim.workers)]
            last = max(gradient.end for gradient in gradients)
            cost = sim.allreduce(sim.workers, begin=last, awaited=range(sim.workers), size=sim.sizes.message.whole)
            yield sim.env.after(last + cost.nanoseconds - sim.now)
            for gradient in gradients:
                sim.add(gradient, cost=cost)
            sim.commit()
