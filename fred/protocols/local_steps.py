"""Local SGD [Stich 2018, arXiv:1805.09767, algorithm 1; Lin et al. 2018, arXiv:1808.07217, algorithm 1]: meet now and then.

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def told(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "workers_time_waiting"]].round(2).iloc[0].tolist()
    >>> told(name="local-steps", period=1)
    [119.0, 0.55]
    >>> told(name="local-steps", period=8)
    [125.0, 0.5]
"""

from functools import partial
from typing import ClassVar

from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING, Cost
from fred.components.component import Count, Whole
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.simulation import Process, Simulation


class LocalSteps(Protocol):
    """Every worker makes `period` updates of its own model; then all wait for all, and an allreduce averages the models.

    Post-local SGD [Lin et al. 2018, section 3] averages after every update first, and only then as seldom as that.
    """

    faults: ClassVar[str] = (
        "A worker keeps its model, and computes the lost gradient anew; an averaging begins when everybody is there."
    )

    period: Count = Field(8, description="H: updates of each worker between two averagings")
    start_after: Whole = Field(0, description="so many updates at the start, after each of which models are averaged")

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def start(self, sim: Simulation) -> None:
        meeting = _Meeting(sim, self)
        for worker in range(sim.workers):
            sim.process(self._work(sim, worker, meeting))

    def _work(self, sim: Simulation, worker: int, meeting: "_Meeting") -> Process:
        while True:
            gradient = sim.compute(worker, sim.own(worker))
            yield gradient.finished
            sim.push(gradient, worker, NOTHING)
            yield from meeting.enter(worker)


class _Meeting:
    """Where everybody waits for everybody."""

    def __init__(self, sim: Simulation, protocol: LocalSteps):
        self._sim, self._protocol = sim, protocol
        self._updates = [0] * sim.workers
        self._arrived = 0
        self._over = sim.env.event()

    def enter(self, worker: int) -> Process:
        """A worker has made one more update; ends, where models are averaged after it, when they have been."""
        self._updates[worker] += 1
        local = self._updates[worker] - self._protocol.start_after
        if local > 0 and local % self._protocol.period:
            return
        self._arrived += 1
        if self._arrived == self._sim.workers:
            cost = self._sim.allreduce(self._sim.workers, awaited=range(self._sim.workers))
            self._sim.later(cost.nanoseconds, partial(self._average, cost))
        yield from self._sim.wait(worker, self._over, f"all to make {self._updates[worker]} updates")

    def _average(self, cost: Cost) -> None:
        everybody = range(self._sim.workers)
        mean = self._sim.mix(0, [(self._sim.own(worker), 1 / self._sim.workers) for worker in everybody])
        for worker in everybody:
            self._sim.sync(worker, mean, cost=cost)
        self._arrived = 0
        over, self._over = self._over, self._sim.env.event()
        over.succeed()
