"""Rennala and Malenia: batches of gradients that were all computed at the current parameters.

| name                  | source                                                                                |
|-----------------------|---------------------------------------------------------------------------------------|
| rennala, FreshBatch   | Tyurin, Richtarik 2023, arXiv:2305.12387, method 4; k-batch-sync of Dutta et al. 2018 |
| malenia, FreshFromAll | Tyurin, Richtarik 2023, arXiv:2305.12387, method 6                                    |

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "gradients_applied", "gradients_dropped"]].iloc[0].tolist()
    >>> measured(name="fresh-batch", batch=3)
    [119, 357, 119]
    >>> measured(name="fresh-from-all")
    [29, 290, 87]
"""

from abc import abstractmethod
from collections import Counter
from fractions import Fraction
from functools import partial
from typing import ClassVar, Literal

import simpy
from pydantic import Field

from fred.cluster.durations import NEVER
from fred.components.component import Count, Natural
from fred.learning.server import Family, Server
from fred.protocols.protocol import Protocol
from fred.timing.copies import Gradient
from fred.timing.simulation import Process, Simulation


class Rennala(Server):
    """Rennala SGD: each update averages the first B gradients at the current parameters, from any workers."""

    name = "rennala"
    family = Family.FRESH
    rule = "w <- w - step(mean of the first B g at w)"
    protocol = "fresh-batch"


class Malenia(Server):
    """Rennala for heterogeneous data: each update averages all workers' mean gradients at the current parameters."""

    name = "malenia"
    family = Family.FRESH
    rule = "w <- w - step(mean over i of (mean of the g_i at w))"
    protocol = "fresh-from-all"


class _Fresh(Protocol):
    """Protocols whose workers compute gradients at the current parameters until there are enough for an update.

    As in `synchronous`, the server's notice takes no time. With `late: interrupt` all workers learn of an update at once. With
    `late: finish` a worker learns of it when it delivers, so it may compute at an outdated model.
    """

    faults: ClassVar[str] = (
        "A returning worker reads the newest model, and joins the round; what others deliver in the meantime counts."
    )

    late: Literal["interrupt", "finish"] = Field(
        default="interrupt",
        description="what a worker with an outdated model does with its gradient: abort it, or deliver it, to be dropped",
    )

    @abstractmethod
    def _server(self, sim: Simulation) -> "_Server":
        """Return the server, which collects gradients."""

    def start(self, sim: Simulation) -> None:
        server = self._server(sim)
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, server, worker))

    def _work(self, sim: Simulation, server: "_Server", worker: int) -> Process:
        while True:
            gradient, is_current = None, True
            try:
                model = yield from sim.pull(worker)
                while is_current:
                    gradient = sim.compute(worker, model)
                    yield gradient.finished
                    yield from sim.send(gradient)
                    arrived, gradient = gradient, None  # it can no longer be aborted
                    if not server.accept(arrived):
                        yield from server.pause(worker)
                    elif self.late == "interrupt":
                        self._interrupt_others(sim, worker)
                    is_current = model.timestamp == sim.clock()
            except simpy.Interrupt:
                if gradient:
                    sim.abort(gradient)

    def _interrupt_others(self, sim: Simulation, worker: int) -> None:
        for other in range(sim.workers):
            if other != worker:
                sim.interrupt(other)


class FreshBatch(_Fresh):
    """Each update averages the first B gradients computed at the current parameters, from any workers.

    No worker waits: a worker that has delivered a gradient begins another one at the same parameters. With B = 1 it is the
    fastest worker's SGD. The best B is ceil(variance of a gradient / wanted accuracy) [arXiv:2305.12387, theorem 7.5].
    """

    name = "fresh-batch"

    batch: Count | None = Field(
        default=None, description="B: gradients in each update; absent: as many as there are workers", examples=[4]
    )

    def _server(self, sim: Simulation) -> "_Server":
        return _Batch(sim, self.batch or sim.workers)


class FreshFromAll(_Fresh):
    """Each update averages the workers' mean gradients at the current parameters, over any number of gradients per worker.

    A round ends when every worker has delivered a gradient, and the harmonic mean of their numbers of gradients exceeds
    `batch` / workers. So the data of fast and slow workers have equal weight.
    """

    name = "fresh-from-all"

    batch: Natural = Field(
        default=0,
        description="S: a round ends when the harmonic mean of the workers' numbers of gradients exceeds S / n; then equal "
        "numbers sum to more than S; 0: one per worker suffices",
    )

    def _server(self, sim: Simulation) -> "_Server":
        return _Means(sim, self.batch)


class _Server:
    """A server that collects gradients at the current parameters."""

    def __init__(self, sim: Simulation):
        self._sim = sim

    def accept(self, gradient: Gradient) -> bool:
        """Accept an arrived gradient; return True if there has been an update."""
        if gradient.copy.timestamp < self._sim.clock():
            self._sim.drop(gradient)
            return False
        return self._collect(gradient)

    def pause(self, worker: int) -> Process:
        """Pause for a moment, in which arrivals may end the round."""
        yield 0

    def _collect(self, gradient: Gradient) -> bool:
        raise NotImplementedError


class _Batch(_Server):
    """A server that steps with the mean of a number of gradients."""

    def __init__(self, sim: Simulation, gradients: int):
        super().__init__(sim)
        self._target, self._arrived = gradients, 0

    def _collect(self, gradient: Gradient) -> bool:
        self._sim.add(gradient)
        self._arrived += 1
        if self._arrived < self._target:
            return False
        self._sim.commit()
        self._arrived = 0
        return True


class _Means(_Server):
    """A server that steps with the mean of the workers' mean gradients, which are known at the end of a round."""

    def __init__(self, sim: Simulation, gradients: int):
        super().__init__(sim)
        self._target = gradients
        self._arrived: list[Gradient] = []
        self._numbers = Counter[int]()  # of each worker's gradients

    def pause(self, worker: int) -> Process:
        """Pause for a moment; block forever if a missing worker never returns."""
        if self._is_hopeless():
            yield from self._sim.wait(worker, self._sim.env.event(), "a gradient of every worker")
        yield 0

    def _is_hopeless(self) -> bool:
        sim = self._sim
        missing = () if sim.faultless else (worker for worker in range(sim.workers) if not self._numbers[worker])
        return any(sim.back(worker, sim.now) >= NEVER for worker in missing)

    def _collect(self, gradient: Gradient) -> bool:
        self._arrived.append(gradient)
        self._numbers[gradient.worker] += 1
        if not self._has_quorum():
            return False
        # Workers hold their gradients until the end of the round; those of workers that have crashed since are lost.
        self._arrived = [entry for entry in self._arrived if not entry.dropped]
        self._numbers = Counter(entry.worker for entry in self._arrived)
        if not self._has_quorum():
            return False
        for entry in self._arrived:
            self._sim.add(entry, weight=1 / (self._sim.workers * self._numbers[entry.worker]))
        self._sim.commit(weight=1.0)
        self._arrived, self._numbers = [], Counter()
        return True

    def _has_quorum(self) -> bool:
        """Return True if the harmonic mean of the numbers, n / (sum of 1 / b_i), exceeds S / n.

        It computes in fractions: floats make 5 x 1/3 less than 5/3.
        """
        workers = self._sim.workers
        if len(self._numbers) < workers:
            return False
        inverses = sum(Fraction(count, number) for number, count in Counter(self._numbers.values()).items())
        return workers**2 > self._target * inverses
