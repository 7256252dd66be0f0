"""Wait-avoiding group averaging [Li et al. 2021, algorithms 1-2; docs/errata.md, items 8 and 11]."""

import math
from typing import ClassVar, Literal

import simpy
from pydantic import Field

from fred.layout import Layout
from fred.timing.cluster import Cluster
from fred.timing.held import Copy
from fred.timing.network import NOTHING, Cost
from fred.timing.protocol import Protocol
from fred.timing.simulation import Process, Simulation


class GroupAveraging(Protocol):
    """After each local update models are averaged in groups, as soon as the first worker arrives; late ones add an old model.

    The first to arrive activates everybody: a message passes down a binomial tree, ceil(log2 P) latencies deep, and then each
    worker's last finished model enters its group's allreduce. A worker that arrives later finds the mean W of its group and
    takes (S W + its own model) / (S + 1). Every `period` iterations all wait for all and average globally.
    """

    faults: ClassVar[str] = (
        "A worker keeps its model, which others average with, and computes the lost gradient anew; now and then all wait."
    )

    group_size: int | None = Field(None, ge=1, description="S: workers in a group, a power of two; absent: about sqrt(P)")
    period: int = Field(10, ge=1, description="tau: every so many iterations all models are averaged")
    groups: Literal["dynamic", "fixed"] = Field("dynamic", description="whether the groups change from iteration to iteration")

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def check(self, cluster: Cluster) -> None:
        for name, number in (("number of workers", cluster.size), ("`group_size`", self.group_size or 1)):
            if number & (number - 1):
                raise ValueError(f"the {name} ({number}) must be a power of two")
        if (self.group_size or 1) > cluster.size:
            raise ValueError(f"`group_size` ({self.group_size}) must not exceed the number of workers ({cluster.size})")

    def start(self, sim: Simulation) -> None:
        collectives = _Collectives(sim, self)
        for worker in range(sim.workers):
            sim.process(self._work(sim, worker, collectives))

    def _work(self, sim: Simulation, worker: int, collectives: "_Collectives") -> Process:
        iteration = 0
        while True:
            gradient = sim.compute(worker, sim.own(worker))
            yield gradient.finished
            sim.push(gradient, worker, NOTHING)
            yield from collectives.enter(worker, iteration)
            iteration += 1


def differing(iteration: int, workers: int, size: int, fixed: bool = False) -> list[int]:
    """The log2(size) bits, which rotate from iteration to iteration, in which members of one group differ."""
    phases, bits = int(math.log2(workers)), int(math.log2(size))
    return [1 << ((0 if fixed else iteration * bits) + phase) % phases for phase in range(bits)]


def members(worker: int, bits: list[int]) -> list[int]:
    """The group of a worker: those who differ from it in these bits only."""
    group = [worker & ~sum(bits)]
    for bit in bits:
        group += [member | bit for member in group]
    return sorted(group)


class _Operation:
    """One iteration's collective operation."""

    def __init__(self, sim: Simulation, size: int, cost: Cost, bits: list[int]):
        self.size, self.cost, self.bits = size, cost, bits  # of each group
        self.arrived = self.left = 0  # workers
        self.contributed: list[Copy] = []  # by every worker, once the operation has been activated
        self.on_time: set[int] = set()
        self.means: dict[int, Copy] = {}  # by the group's first member, once it is over
        self.over: simpy.Event = sim.env.event()
        self._within = sum(bits)

    def first_of_group(self, worker: int) -> int:
        """The first member of a worker's group."""
        return worker & ~self._within


class _Collectives:
    """The collective operations of all iterations."""

    def __init__(self, sim: Simulation, protocol: GroupAveraging):
        self._sim, self._protocol = sim, protocol
        self._operations: dict[int, _Operation] = {}
        self._finished = [sim.own(worker) for worker in range(sim.workers)]  # what each would contribute
        self._iteration = [-1] * sim.workers  # that this is the model of
        depth = math.ceil(math.log2(sim.workers))
        self._activation = depth * sim.mean_latency
        self._group_size = protocol.group_size or 2 ** -(-depth // 2)
        self._costs = {size: sim.allreduce(size) for size in (self._group_size, sim.workers)}

    def enter(self, worker: int, iteration: int) -> Process:
        """A worker has finished its local update; ends when its model has been averaged."""
        sim = self._sim
        everybody = (iteration + 1) % self._protocol.period == 0
        if self._group_size == 1 and not everybody:
            return  # a group of its own
        if iteration not in self._operations:
            self._operations[iteration] = self._operation(iteration, everybody)
        operation = self._operations[iteration]
        self._finished[worker], self._iteration[worker] = sim.own(worker), iteration
        operation.arrived += 1
        if operation.arrived == (sim.workers if everybody else 1):
            sim.later(0 if everybody else self._activation, lambda: self._contribute(operation, iteration))
        if not operation.over.processed:
            yield from sim.wait(worker, operation.over, f"the averaging of iteration {iteration}")
        size, cost = operation.size, operation.cost
        mean = operation.means[operation.first_of_group(worker)]
        if worker in operation.on_time:
            sim.sync(worker, mean, cost=cost)
        else:
            sim.sync(worker, mean, keep=1 / (size + 1), weight=size / (size + 1), cost=cost)
        operation.left += 1
        if operation.left == sim.workers:
            del self._operations[iteration]

    def _operation(self, iteration: int, everybody: bool) -> _Operation:
        size = self._sim.workers if everybody else self._group_size
        bits = differing(iteration, self._sim.workers, size, self._protocol.groups == "fixed")
        return _Operation(self._sim, size, self._costs[size], bits)

    def _contribute(self, operation: _Operation, iteration: int) -> None:
        """The operation is active everywhere: whatever each worker finished last enters it."""
        operation.contributed = list(self._finished)
        operation.on_time = {worker for worker, last in enumerate(self._iteration) if last == iteration}
        self._sim.later(operation.cost.nanoseconds, lambda: self._average(operation))

    def _average(self, operation: _Operation) -> None:
        for worker in range(self._sim.workers):
            if worker == operation.first_of_group(worker):
                group = members(worker, operation.bits)
                parts = [(operation.contributed[member], 1 / operation.size) for member in group]
                operation.means[worker] = self._sim.mix(worker, parts)
        operation.over.succeed()
