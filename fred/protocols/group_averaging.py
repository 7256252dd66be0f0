"""Wait-avoiding group averaging [Li et al. 2021, algorithms 1-2; docs/errata.md, items 8, 11 and 18]."""

import math
from functools import partial
from typing import ClassVar, Literal

import simpy
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING, Collective, Cost
from fred.components.component import Count
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Copy
from fred.timing.simulation import Process, Simulation


class GroupAveraging(Protocol):
    """After each local update models are averaged in groups, as soon as the first worker arrives; late ones add an old model.

    The first to arrive activates everybody: a message passes down a binomial tree, ceil(log2 P) latencies deep, and then each
    worker's last finished model enters its group's allreduce. A worker that arrives later finds the mean W of its group and
    takes (S W + its own model) / (S + 1). Every `period` iterations all wait for all and average globally, as the network's
    `collective` says. With `group_size` 1 this is local SGD, with all workers in one group every average is global.
    """

    faults: ClassVar[str] = (
        "A worker keeps its model, which its groups average with, and computes the lost gradient anew; where all average, all "
        "wait until everybody is there."
    )

    group_size: Count | None = Field(None, description="S: workers in a group, a power of two; absent: about sqrt(P)")
    period: Count = Field(10, description="tau: every so many iterations all models are averaged")
    groups: Literal["dynamic", "fixed"] = Field("dynamic", description="whether the groups change from iteration to iteration")
    group_collective: Collective = Field(
        "recursive-doubling", description="how a group's allreduce is done; the paper's: log2 S phases of a whole model each"
    )

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def check(self, cluster: Cluster) -> None:
        for name, number in (("number of workers", cluster.size), ("`group_size`", self.group_size or 1)):
            if number & (number - 1):
                raise ValueError(f"the {name} ({number}) must be a power of two")
        if (self.group_size or 1) > cluster.size:
            raise ValueError(f"`group_size` ({self.group_size}) must not exceed the number of workers ({cluster.size})")

    def start(self, sim: Simulation) -> None:
        averaging = _Averaging(sim, self)
        for worker in range(sim.workers):
            sim.process(self._work(sim, worker, averaging))

    def _work(self, sim: Simulation, worker: int, averaging: "_Averaging") -> Process:
        while True:
            gradient = sim.compute(worker, sim.own(worker))
            yield gradient.finished
            sim.push(gradient, worker, NOTHING)
            operation = averaging.enter(worker)
            if operation is None:
                continue
            late = operation.active
            if not operation.over.processed:
                yield from sim.wait(worker, operation.over, f"the averaging of iteration {operation.iteration}")
            yield from sim.present(worker)
            mean = operation.means[worker & operation.first]
            sim.sync(worker, mean, *(operation.late if late else operation.on_time), operation.cost)


def differing(iteration: int, workers: int, size: int, fixed: bool = False) -> list[int]:
    """The log2(size) bits, which rotate from iteration to iteration, in which members of one group differ.

    Args:
        iteration: from 0.
        workers, size: how many there are, of all and in a group: powers of two.
        fixed: the bits are those of iteration 0, always.

    Example: eight workers in pairs.
        >>> [differing(iteration, workers=8, size=2) for iteration in range(4)]
        [[1], [2], [4], [1]]
    """
    phases, bits = int(math.log2(workers)), int(math.log2(size))
    return [1 << ((0 if fixed else iteration * bits) + phase) % phases for phase in range(bits)]


def members(worker: int, bits: list[int]) -> list[int]:
    """The group of a worker: those who differ from it in these bits only.

    >>> members(5, bits=[1]), members(5, bits=[1, 4])
    ([4, 5], [0, 1, 4, 5])
    """
    group = [worker & ~sum(bits)]
    for bit in bits:
        group += [member | bit for member in group]
    return sorted(group)


class _Operation:
    """One iteration's collective operation, in every group."""

    def __init__(self, sim: Simulation, iteration: int, bits: list[int], everybody: bool):
        self.iteration, self.bits = iteration, bits
        self.everybody = everybody  # whether all wait for all
        self.cost = NOTHING  # known when it begins
        self.size = size = 1 << len(bits)  # of each group
        self.on_time, self.late = (0.0, 1.0), (1 / (size + 1), size / (size + 1))  # of one's own model and of the mean
        self.first = ~sum(bits)  # worker & first: the first member of its group
        self.arrived = 0  # workers
        self.active = False  # whether it has begun everywhere: who arrives now is late
        self.means: dict[int, Copy] = {}  # by the group's first member, once it is over
        self.over: simpy.Event = sim.env.event()


class _Averaging:
    """The collective operations of all iterations."""

    def __init__(self, sim: Simulation, protocol: GroupAveraging):
        self._sim, self._protocol = sim, protocol
        self._operations: dict[int, _Operation] = {}
        self._models = [sim.own(worker) for worker in range(sim.workers)]  # finished last: what each would contribute
        self._finished = [0] * sim.workers  # iterations
        depth = math.ceil(math.log2(sim.workers))
        self._activation = depth * sim.mean_latency
        self._group_size = protocol.group_size or 2 ** -(-depth // 2)

    def enter(self, worker: int) -> _Operation | None:
        """A worker has finished its local update; the operation in which its model takes part, if there is one."""
        iteration = self._finished[worker]
        self._finished[worker] = iteration + 1
        everybody = (iteration + 1) % self._protocol.period == 0
        if self._group_size == 1 and not everybody:
            return None  # a group of its own
        operation = self._operations.get(iteration) or self._open(iteration, everybody)
        self._models[worker] = self._sim.own(worker)
        operation.arrived += 1
        if operation.arrived == (self._sim.workers if everybody else 1):
            self._sim.later(0 if everybody else self._activation, partial(self._begin, operation))
        if operation.arrived == self._sim.workers:
            del self._operations[iteration]
        return operation

    def _open(self, iteration: int, everybody: bool) -> _Operation:
        workers, fixed = self._sim.workers, self._protocol.groups == "fixed"
        bits = differing(iteration, workers, workers if everybody else self._group_size, fixed)
        operation = _Operation(self._sim, iteration, bits, everybody)
        self._operations[iteration] = operation
        return operation

    def _begin(self, operation: _Operation) -> None:
        """The operation is active everywhere: whatever each worker finished last enters it."""
        operation.active = True
        operation.cost = self._cost(operation)
        self._sim.later(operation.cost.nanoseconds, partial(self._average, operation, self._models.copy()))

    def _cost(self, operation: _Operation) -> Cost:
        """What it costs a worker; where groups differ, all take as long as the slowest one."""
        sim, network = self._sim, self._sim.network
        algorithm = None if operation.everybody else self._protocol.group_collective
        differ = network is not None and (network.two_levels or network.contention or network.regions)
        firsts = {worker & operation.first for worker in range(sim.workers)} if differ else {0}
        groups = [members(first, operation.bits) for first in sorted(firsts)]
        awaited = range(sim.workers if operation.everybody else 0)
        costs = [sim.allreduce(group, algorithm, awaited=awaited) for group in groups]
        return max(costs, key=lambda cost: cost.nanoseconds)

    def _average(self, operation: _Operation, models: list[Copy]) -> None:
        share = 1 / operation.size
        for worker in range(self._sim.workers):
            if worker == worker & operation.first:
                parts = [(models[member], share) for member in members(worker, operation.bits)]
                operation.means[worker] = self._sim.mix(worker, parts)
        operation.over.succeed()
