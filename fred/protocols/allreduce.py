"""Allreduce-SGD [Li et al. 2021, section 2; Thakur, Rabenseifner, Gropp 2005]: a barrier in each step, no server.

Example: four workers compute for 1 s per step. A ring allreduce then moves 6/4 of a model of 1 MB at 1 MB/s.
    >>> import fred
    >>> scenario = fred.scenario({
    ...     "cluster": {
    ...         "workers": 4,
    ...         "compute": {"name": "constant", "seconds": 1.0},
    ...         "network": {"bandwidth": 1e6, "message_bytes": 1_000_000},
    ...     },
    ...     "stop": {"updates": 10},
    ...     "protocol": "allreduce",
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... })
    >>> fred.run(scenario).summary[["virtual_seconds", "workers_time_network"]].round(2).iloc[0].tolist()
    [25.0, 0.6]
"""

from typing import ClassVar

from fred.cluster.cluster import Cluster
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.simulation import Process, Simulation


class Allreduce(Protocol):
    """All workers compute at the same parameters; an allreduce averages the gradients, and all make the same update."""

    name = "allreduce"
    faults: ClassVar[str] = (
        "All workers wait: the lost gradient is computed again, and the allreduce begins when all workers are available."
    )

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.shared()

    def start(self, sim: Simulation) -> None:
        sim.process(self._rounds(sim))

    def _rounds(self, sim: Simulation) -> Process:
        while True:
            gradients = [sim.begin(worker, sim.read(worker, sent=False)) for worker in range(sim.workers)]
            last = max(gradient.end for gradient in gradients)
            operation = sim.add_up(sim.workers, begin=last, awaited=range(sim.workers))
            yield operation.over
            for gradient in gradients:
                sim.add(gradient, cost=operation.cost)
            sim.commit()
