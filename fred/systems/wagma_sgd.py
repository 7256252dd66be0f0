"""WAGMA-SGD: wait-avoiding averages of groups.

| name                      | source                                                                            |
|---------------------------|-----------------------------------------------------------------------------------|
| wagma-sgd, GroupAveraging | Li et al. 2021, algorithms 1-2, section 4; docs/errata.md, items 8, 11, 15 and 45 |

Example: a minute in which eight workers take 0.5 s for a gradient on average.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 8, "compute": {"name": "exponential", "scale": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "wagma-sgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "workers_time_waiting"]].round(2).iloc[0].tolist()
    >>> measured(group_size=2, period=None)
    [980.0, 0.0]
    >>> measured(group_size=2, period=None, group_waits=True)
    [501.0, 0.5]
    >>> measured(group_size=8, period=None, group_waits=True)
    [339.0, 0.65]
"""

import math
from functools import partial
from typing import ClassVar, Literal

import simpy
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.collectives import Collective
from fred.cluster.network import NOTHING
from fred.components.component import Count
from fred.learning.server import Family, Server
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Copy
from fred.timing.simulation import Operation, Process, Simulation


class WAGMASGD(Server):
    """Wait-avoiding group averaging: workers average models in small groups, which do not wait for late members."""

    name = "wagma-sgd"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
w_i <- W                        (the mean of its group of S, if it is in time)
w_i <- (S W + w_i) / (S + 1)    (if it is late; W includes an older model of its own)
w_i <- mean of all w            (every `period` iterations)"""
    protocol = "group-averaging"


class GroupAveraging(Protocol):
    """Models are averaged in groups after each local update; late workers contribute an old model, or the group waits.

    The first worker to arrive activates all others: a message passes down a binomial tree, ceil(log2 P) latencies deep. Then
    each worker's last finished model enters its group's allreduce. A worker that arrives later finds the mean W of its group
    and takes (S W + its own model) / (S + 1). With `group_waits` there is no activation: a group's allreduce begins when all
    its members have arrived. No model is late then, and groups do not wait for each other. Every `period` iterations all
    workers wait for all and average globally, as the network's `collective` says.

    The paper [section 4] has two switches: alpha for groups that do not wait, beta for groups that do. Its special cases:

    - `group_size: 1` (neither switch) is local SGD, which averages every `period` updates.
    - `group_waits: true` with `period: null` is D-PSGD and SGP on the graph in which the members of a group are neighbours, in
      the order `update-first`. With all workers in one group it is Allreduce-SGD, up to rounding.
    - Small groups that do not wait, with `period: null`, resemble AD-PSGD, but each iteration waits for its first worker.
    """

    name = "group-averaging"
    faults: ClassVar[str] = (
        "A worker keeps its model, which its groups still average, and computes the lost gradient again. Global averages, and "
        "groups with `group_waits`, wait until all members are available."
    )

    group_size: Count | None = Field(default=None, description="S: workers in a group, a power of two; absent: about sqrt(P)")
    period: Count | None = Field(
        default=10, description="tau: number of iterations between two averages of all models; null: never"
    )
    group_waits: bool = Field(
        default=False,
        description="whether a group's allreduce waits for all its members (beta), or starts with the first worker (alpha)",
    )
    groups: Literal["dynamic", "fixed"] = Field(
        default="dynamic", description="whether the groups change from iteration to iteration"
    )
    group_collective: Collective = Field(
        default="recursive-doubling",
        description="collective of a group's allreduce; the paper's is recursive doubling, with log2 S phases of a whole model",
    )

    @property
    def follows_collective(self) -> Literal["always", "partly", "never"]:
        return "never" if self.period is None else "partly"  # groups have one of their own

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
            is_late = operation.active  # without its model
            if not operation.over.processed:
                yield from sim.wait(worker, operation.over, f"the averaging of iteration {operation.iteration}")
            yield from sim.present(worker)
            mean = operation.means[worker & operation.group_mask]
            keep, weight = operation.late_factors if is_late else operation.on_time_factors
            sim.sync(worker, mean, keep=keep, weight=weight, cost=operation.cost)


def differing_bits(iteration: int, workers: int, size: int, fixed: bool = False) -> list[int]:
    """Return the log2(size) bits in which members of one group differ; they rotate from iteration to iteration.

    Args:
        iteration: from 0.
        workers, size: numbers of all workers and of members of a group: powers of two.
        fixed: True to use the bits of iteration 0 always.

    Example: eight workers in pairs.
        >>> [differing_bits(iteration, workers=8, size=2) for iteration in range(4)]
        [[1], [2], [4], [1]]
    """
    worker_bits, group_bits = int(math.log2(workers)), int(math.log2(size))
    shift = 0 if fixed else iteration * group_bits
    return [1 << (shift + phase) % worker_bits for phase in range(group_bits)]


def members(worker: int, bits: list[int]) -> list[int]:
    """Return the group of a worker: the workers whose numbers differ from its own in these bits only.

    >>> members(5, bits=[1]), members(5, bits=[1, 4])
    ([4, 5], [0, 1, 4, 5])
    """
    group = [worker & ~sum(bits)]
    for bit in bits:
        group += [member | bit for member in group]
    return sorted(group)


class _Operation:
    """A collective operation of one iteration: of all groups, or of a single group that waits for its members."""

    def __init__(self, sim: Simulation, iteration: int, bits: list[int], is_global: bool, workers: list[int], waits: bool):
        self.iteration, self.bits = iteration, bits
        self.is_global = is_global  # then the network's `collective` does it
        self.workers = workers  # the participants
        self.waits = waits  # True: it begins with the last of them to arrive; False: with the first
        self.cost = NOTHING  # known when it is over
        self.size = size = 1 << len(bits)  # of each group
        self.on_time_factors, self.late_factors = (0.0, 1.0), (1 / (size + 1), size / (size + 1))  # keep, weight
        # The mask clears the bits in which members of a group differ: what is left is the group's first member.
        self.group_mask = ~sum(bits)
        self.first_members = sorted({worker & self.group_mask for worker in workers})
        self.arrived = 0  # workers
        self.active = False  # True: it has begun everywhere, so workers that arrive now are late
        self.means: dict[int, Copy] = {}  # of each group, by its first member, once the operation is over
        self.over: simpy.Event = sim.env.event()


class _Averaging:
    """The collective operations of all iterations."""

    def __init__(self, sim: Simulation, protocol: GroupAveraging):
        self._sim, self._protocol = sim, protocol
        self._operations: dict[tuple[int, int], _Operation] = {}  # by iteration and first participant
        self._models = [sim.own(worker) for worker in range(sim.workers)]  # each worker's last finished one
        self._finished = [0] * sim.workers  # iterations of each worker
        depth = math.ceil(math.log2(sim.workers))  # of the tree by which the first worker activates the others
        self._activation = depth * sim.mean_latency
        self._group_size = protocol.group_size or 2 ** -(-depth // 2)  # about the root of the number of workers

    def enter(self, worker: int) -> _Operation | None:
        """Enter a finished local update; return the operation in which the model takes part, if there is one."""
        iteration = self._finished[worker]
        self._finished[worker] = iteration + 1
        period = self._protocol.period
        is_global = period is not None and (iteration + 1) % period == 0
        if self._group_size == 1 and not is_global:
            return None  # a group of its own
        operation = self._find_or_open(worker, iteration, is_global)
        self._models[worker] = self._sim.own(worker)
        operation.arrived += 1
        is_last = operation.arrived == len(operation.workers)
        if is_last if operation.waits else operation.arrived == 1:
            self._sim.later(0 if operation.waits else self._activation, partial(self._begin, operation))
        if is_last:
            del self._operations[iteration, operation.workers[0]]
        return operation

    def _find_or_open(self, worker: int, iteration: int, is_global: bool) -> _Operation:
        """Return the operation in which a worker takes part in an iteration; opens it if there is none yet."""
        workers, fixed = self._sim.workers, self._protocol.groups == "fixed"
        waits = is_global or self._protocol.group_waits
        bits = differing_bits(iteration, workers, workers if is_global else self._group_size, fixed)
        # A group that waits has an operation of its own. Otherwise the first worker of all starts all groups, in one operation.
        participants = members(worker, bits) if waits else list(range(workers))
        key = iteration, participants[0]
        if key not in self._operations:
            self._operations[key] = _Operation(
                self._sim, iteration, bits, is_global=is_global, workers=participants, waits=waits
            )
        return self._operations[key]

    def _begin(self, operation: _Operation) -> None:
        """Begin the operation everywhere, with the last finished model of each worker."""
        operation.active = True
        allreduce = self._allreduce(operation)
        self._sim.later(allreduce.over, partial(self._average, operation, self._models.copy(), allreduce))

    def _allreduce(self, operation: _Operation) -> Operation:
        """Begin the allreduces of all groups; all take as long as the slowest one, and one stands for all if they are alike."""
        sim, network = self._sim, self._sim.network
        algorithm = None if operation.is_global else self._protocol.group_collective
        durations_differ = network is not None and (
            network.two_levels or network.contention or network.regions or network.sharing == "fair"
        )
        first_members = operation.first_members if durations_differ else operation.first_members[:1]
        awaited = operation.workers if operation.waits else ()
        return sim.slowest(
            [sim.allreduce(members(first, operation.bits), algorithm, awaited=awaited) for first in first_members]
        )

    def _average(self, operation: _Operation, models: list[Copy], allreduce: Operation) -> None:
        operation.cost = allreduce.cost
        share = 1 / operation.size
        for first in operation.first_members:
            parts = [(models[member], share) for member in members(first, operation.bits)]
            operation.means[first] = self._sim.mix(first, parts)
        operation.over.succeed()
