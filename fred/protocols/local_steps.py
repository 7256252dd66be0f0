"""Local SGD [Stich 2018, arXiv:1805.09767, algorithm 1; Lin et al. 2018, arXiv:1808.07217, algorithm 1].

The period may follow the loss: AdaComm [Wang & Joshi 2019, arXiv:1810.08313, section 4], with a constant learning rate.

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "workers_time_waiting"]].round(2).iloc[0].tolist()
    >>> measured(name="local-steps", period=1)
    [119.0, 0.55]
    >>> measured(name="local-steps", period=8)
    [125.0, 0.5]
"""

import math
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.durations import NANOSECONDS, NEVER
from fred.cluster.network import NOTHING
from fred.components.component import Count, Whole
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.simulation import Operation, Process, Simulation


class LocalSteps(Protocol):
    """Every worker makes `period` updates of its own model; after a barrier, an allreduce averages the models.

    Post-local SGD [Lin et al. 2018, section 3] averages after every update at first (`start_after`), then once per period.
    AdaComm (`adapt_every`) averages rarely at first, and more and more often later. At the first averaging of each interval, H
    becomes ceil(H_0 x square root of F / F_0), F being the loss then and F_0 at the start. If that is not below H, H becomes
    ceil(H / 2). F is the loss of evaluations, where the paper has the training loss; to compute it takes no virtual time.
    """

    name = "local-steps"
    asks_for: ClassVar[Literal["statistic", "loss"]] = "loss"

    faults: ClassVar[str] = (
        "A worker keeps its model, and computes the lost gradient again; an averaging begins when all workers are available."
    )

    period: Count = Field(default=8, description="H: updates of each worker between two averagings")
    start_after: Whole = Field(default=0, description="number of updates at the start after each of which models are averaged")

    adapt_every: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="T_0: seconds between two changes of the period, which follows the loss; absent: constant period",
    )

    @property
    def needs_values(self) -> bool:
        return self.adapt_every is not None

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def start(self, sim: Simulation) -> None:
        averaging = _Averaging(sim, self)
        for worker in range(sim.workers):
            sim.process(self._work(sim, worker, averaging))

    def _work(self, sim: Simulation, worker: int, averaging: "_Averaging") -> Process:
        while True:
            gradient = sim.compute(worker, sim.own(worker))
            yield gradient.finished
            sim.push(gradient, worker, NOTHING)
            yield from averaging.enter(worker)


class _Averaging:
    """The barrier at which all workers meet, and the averaging that follows it."""

    def __init__(self, sim: Simulation, protocol: LocalSteps):
        self._sim, self._protocol = sim, protocol
        self._pace = _Pace(sim, protocol)
        self._updates = [0] * sim.workers
        self._since = [0] * sim.workers  # updates since the last averaging
        self._arrived = 0
        self._averages = 0
        self._over = sim.env.event()

    def enter(self, worker: int) -> Process:
        """Count one more update of a worker; if an averaging follows it, wait until that is over."""
        self._updates[worker] += 1
        self._since[worker] += 1
        if self._updates[worker] > self._protocol.start_after and self._since[worker] < self._pace.period:
            return
        self._since[worker] = 0
        self._arrived += 1
        if self._arrived == self._sim.workers:
            everybody = range(self._sim.workers)
            operation = self._sim.allreduce(everybody, awaited=everybody, size=self._sim.sizes.average(self._averages))
            self._averages += 1
            self._sim.later(operation.over, partial(self._average, operation))
        yield from self._sim.wait(worker, self._over, f"all to make {self._updates[worker]} updates")

    def _average(self, operation: Operation) -> None:
        everybody = range(self._sim.workers)
        mean = self._sim.mix(0, [(self._sim.own(worker), 1 / self._sim.workers) for worker in everybody])
        for worker in everybody:
            self._sim.sync(worker, mean, cost=operation.cost)
        self._pace.adapt()
        self._arrived = 0
        over, self._over = self._over, self._sim.env.event()
        over.succeed()


class _Pace:
    """The number of updates between two averagings."""

    def __init__(self, sim: Simulation, protocol: LocalSteps):
        self._sim, self._first = sim, protocol.period
        self.period = protocol.period
        self._interval = NEVER if protocol.adapt_every is None else max(1, round(protocol.adapt_every * NANOSECONDS))
        self._next = self._interval  # ns, time of the next change
        self._loss = math.nan if protocol.adapt_every is None else sim.loss()  # at the start

    def adapt(self) -> None:
        """Change the period after an averaging, at most once per interval."""
        if self._sim.now < self._next:
            return
        self._next = (self._sim.now // self._interval + 1) * self._interval
        followed = self._followed()
        self.period = followed if followed < self.period else math.ceil(self.period / 2)

    def _followed(self) -> int:
        """Return the period that the loss asks for, or the current one if the loss ratio is negative or not finite."""
        loss = self._sim.loss()
        root = math.sqrt(loss / self._loss) if self._loss > 0 and 0 <= loss < math.inf else math.inf
        return max(1, math.ceil(self._first * root)) if root < math.inf else self.period
