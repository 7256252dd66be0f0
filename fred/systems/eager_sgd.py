"""Eager-SGD: partial allreduces of the gradients that are ready.

| name             | source                                                                                                   |
|------------------|----------------------------------------------------------------------------------------------------------|
| eager-sgd, Eager | Li, Ben-Nun, Di Girolamo, Alistarh, Hoefler 2020, arXiv:1908.04207, algorithm 2; docs/errata.md, item 26 |

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "gradients_applied", "workers_time_waiting"]].round(2).iloc[0].tolist()
    >>> measured(name="eager", start_by="solo")
    [32.0, 104.0, 0.0]
    >>> measured(name="eager", start_by="solo", period=None)
    [119.0, 386.0, 0.0]
"""

import math
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from fred.base import numerics
from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components.component import Count
from fred.learning.server import Family, Server
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Gradient
from fred.timing.simulation import Operation, Process, Simulation


class EagerSGD(Server):
    """SGD with partial allreduces: each update uses the gradients that are ready; late ones join a later update."""

    name = "eager-sgd"
    family = Family.AS_THEY_COME
    rule = "w <- w - step(sum of the g that are ready, late ones included, / workers)"
    protocol = "eager"


class Eager(Protocol):
    """Each iteration's allreduce starts without late workers, whose gradients join a later one.

    The initiator activates all others: a message passes down a binomial tree, ceil(log2 P) latencies deep. Then each worker
    contributes its finished gradients that are not yet in an update: none, one, or the sum of several. All make the same
    update with the sum over all workers, divided by P. A late worker continues at once, at the newest parameters.
    """

    name = "eager"
    faults: ClassVar[str] = (
        "The lost gradient is computed again, a finished one is not lost; offline workers take no part in an allreduce. "
        "If the initiator is offline, all wait for it; every `period` iterations all wait for all."
    )

    start_by: Literal["solo", "majority", "half"] = Field(
        default="majority",
        description="initiator of an allreduce: the first worker to arrive; one drawn at random in each iteration, so half "
        "have arrived on average; or the worker whose arrival makes it half of all",
    )
    period: Count | None = Field(
        default=33, description="number of iterations between two allreduces that wait for all workers; null: never"
    )

    @property
    def sends_sums(self) -> bool:
        return True

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.shared()

    def start(self, sim: Simulation) -> None:
        allreduces = _Allreduces(sim, self)
        for worker in range(sim.workers):
            sim.process(self._work(sim, worker, allreduces))

    def _work(self, sim: Simulation, worker: int, allreduces: "_Allreduces") -> Process:
        while True:
            yield from sim.present(worker)
            gradient = sim.compute(worker, sim.read(worker, sent=False))
            yield gradient.finished
            yield from allreduces.enter(worker, gradient)


class _Allreduce:
    """The allreduce of one iteration."""

    def __init__(self, sim: Simulation, initiator: int | None, quorum: int):
        self.initiator = initiator  # worker whose arrival starts it, if any
        self.quorum = quorum  # number of arrivals that start it as well
        self.waits = initiator is None and quorum == sim.workers  # all, for all
        self.arrived = 0  # workers, late ones included
        self.is_started = False
        self.over = sim.env.event()


class _Allreduces:
    """The allreduces of all iterations; one begins when the one before it is over."""

    def __init__(self, sim: Simulation, protocol: Eager):
        self._sim, self._protocol = sim, protocol
        self._iteration = [0] * sim.workers  # of each worker
        self._finished: list[list[Gradient]] = [[] for _ in range(sim.workers)]  # not yet in an update
        self._owed = [NOTHING] * sim.workers  # by each worker, for allreduces to which it contributed no gradient
        self._allreduces: dict[int, _Allreduce] = {}  # by iteration, until all have come
        self._activation = math.ceil(math.log2(sim.workers)) * sim.mean_latency

    def enter(self, worker: int, gradient: Gradient) -> Process:
        """Enter a worker's finished gradient, and wait until that iteration's allreduce is over."""
        iteration = self._iteration[worker]
        self._iteration[worker] += 1
        self._finished[worker].append(gradient)
        if iteration not in self._allreduces:
            self._allreduces[iteration] = self._create(iteration)
        allreduce = self._allreduces[iteration]
        allreduce.arrived += 1
        if allreduce.arrived == self._sim.workers:
            del self._allreduces[iteration]
            self._begin(allreduce)
        elif worker == allreduce.initiator or allreduce.arrived == allreduce.quorum:
            self._sim.later(self._activation, partial(self._begin, allreduce))
        if not allreduce.over.processed:
            yield from self._sim.wait(worker, allreduce.over, f"the allreduce of iteration {iteration}")

    def _create(self, iteration: int) -> _Allreduce:
        """Return an iteration's allreduce, with its initiator or the number of arrivals that start it."""
        sim, start_by, period = self._sim, self._protocol.start_by, self._protocol.period
        if period and (iteration + 1) % period == 0:
            return _Allreduce(sim, initiator=None, quorum=sim.workers)
        if start_by == "majority":
            word = int(numerics.words(sim.seed, "initiator", 0, iteration))
            return _Allreduce(sim, initiator=word * sim.workers >> 32, quorum=sim.workers)  # `word` has 32 random bits
        return _Allreduce(sim, initiator=None, quorum=1 if start_by == "solo" else (sim.workers + 1) // 2)

    def _begin(self, allreduce: _Allreduce) -> None:
        """Begin the allreduce, with the finished gradients of all available workers."""
        if allreduce.is_started:
            return
        allreduce.is_started = True
        sim = self._sim
        rejoin_times = [sim.back(worker, sim.now) for worker in range(sim.workers)]  # now, if available
        # The available workers take part. If there are none, it waits for the first that rejoins.
        available = [] if allreduce.waits else [worker for worker, time in enumerate(rejoin_times) if time == sim.now]
        awaited = range(sim.workers) if allreduce.waits else [rejoin_times.index(min(rejoin_times))]
        operation = sim.add_up(available or awaited, awaited=() if available else awaited)
        gradients = {worker: self._finished[worker] for worker in available or awaited}
        for worker in gradients:
            self._finished[worker] = []
        sim.later(operation.over, partial(self._update, allreduce, gradients, operation))

    def _update(self, allreduce: _Allreduce, gradients_of: dict[int, list[Gradient]], operation: Operation) -> None:
        cost = operation.cost
        for worker, gradients in gradients_of.items():
            # What a worker sends is reported by the row of its first gradient; without one, by a later gradient's.
            owed = self._owed[worker]
            owed = cost._replace(bytes=owed.bytes + cost.bytes, messages=owed.messages + cost.messages)
            for gradient in gradients:
                self._sim.add(gradient, cost=owed)
                owed = owed._replace(bytes=0, messages=0)
            self._owed[worker] = owed
        self._sim.commit(weight=1 / self._sim.workers)
        allreduce.over.succeed()
