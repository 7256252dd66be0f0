"""DropCompute: late workers contribute only finished gradients [Giladi et al. 2023, arXiv:2306.10598, algorithms 1-2].

Example: a minute in which three workers take 0.5 s for each of four gradients, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.2},
    ...     "algorithm": {"name": "dropcompute", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol={"micro_batches": 4, **protocol})).summary
    ...     return summary[["updates", "gradients_applied", "workers_time_waiting"]].round(2).iloc[0].tolist()
    >>> measured(threshold=8.0)
    [7.0, 112.0, 0.54]
    >>> measured(threshold=2.0)
    [30.0, 390.0, 0.0]
    >>> measured(measured=2)  # the first two rounds last 8 s, all others 2 s
    [24.0, 318.0, 0.15]
"""

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components.component import NANOSECONDS, Count
from fred.learning.server import Family, Server
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Gradient
from fred.timing.simulation import Process, Simulation


class DropComputeSGD(Server):
    """Synchronous SGD with gradient accumulation, which drops micro-batches unfinished at a deadline."""

    name = "dropcompute"
    family = Family.FRESH
    rule = "w <- w - step(sum of the g that are done by T / (M n))    (M of each of n were planned)"
    protocol = "drop-compute"


class DropCompute(Protocol):
    """Each worker accumulates up to M gradients until a deadline; an allreduce then averages those of all workers.

    Gradients that are unfinished at time T of the round are aborted. If no worker has finished a gradient by then, the round
    lasts until the first one is finished. A gradient is of one minibatch, which the paper calls a micro-batch.

    T is an option, or FRED finds it from the first rounds, which have no deadline. It maximises the speed-up of these
    rounds, the mean of share(T) (T_full + c) / (min(T, T_full) + c). Here share(T) is the share of gradients finished by T,
    T_full the time in which all gradients of the round finish, and c the time of the allreduce.

    The sum is divided by the number of planned gradients, as in the authors' program, so late workers shorten the step.
    With `average: done` it is divided by the number of finished gradients.
    """

    name = "drop-compute"
    faults: ClassVar[str] = (
        "A lost gradient is computed again; a round waits for offline workers until T at most, or for all while T is unknown."
    )

    micro_batches: Count = Field(default=8, description="M: largest number of gradients that a worker accumulates in a round")
    threshold: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="T: deadline, s from a round's start; absent: found from the first rounds", examples=[1.0]
    )
    measured: Count = Field(default=20, description="number of rounds from which T is found if `threshold` is absent")
    average: Literal["planned", "done"] = Field(
        default="planned", description="divisor of a round's sum: M x workers, or the number of finished gradients"
    )

    @property
    def sends_sums(self) -> bool:
        return True

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.shared()

    def start(self, sim: Simulation) -> None:
        sim.process(self._rounds(sim))

    def _rounds(self, sim: Simulation) -> Process:
        rule, planned = _Rule(self), sim.workers * self.micro_batches
        while True:
            current = _Round(sim, rule.threshold)
            yield sim.env.all_of([sim.process(current.work(worker, self.micro_batches)) for worker in range(sim.workers)])
            yield from current.end()
            operation = sim.add_up(sim.workers, awaited=current.members)
            for worker, gradient in current.late.items():  # its worker takes part in the allreduce
                sim.drop(gradient, cost=NOTHING, during=None if current.finished[worker] else operation)
            yield operation.over
            cost = operation.cost
            for worker in current.members:  # a worker sends the sum of its gradients once: the last one has the cost
                for gradient in current.finished[worker]:
                    sim.add(gradient, cost=cost if gradient is current.finished[worker][-1] else NOTHING)
            sim.commit(weight=1 / planned if self.average == "planned" else None)
            rule.observe(current, cost.nanoseconds)


class _Round:
    """One round: the finished gradients of each worker, and the late one."""

    def __init__(self, sim: Simulation, duration: float):
        self._sim, self.begin = sim, sim.now
        self._deadline = self.begin + duration
        self.finished: list[list[Gradient]] = [[] for _ in range(sim.workers)]
        self.late: dict[int, Gradient] = {}

    @property
    def members(self) -> list[int]:
        """Return the workers that have finished a gradient."""
        return [worker for worker, gradients in enumerate(self.finished) if gradients]

    def work(self, worker: int, planned: int) -> Process:
        """Compute a worker's gradients; end at the first one that will miss the deadline."""
        model = self._sim.read(worker, sent=False)
        for _ in range(planned):
            gradient = self._sim.begin(worker, model)
            if gradient.end > self._deadline:
                self.late[worker] = gradient
                return
            yield gradient.end - self._sim.now
            self.finished[worker].append(gradient)

    def end(self) -> Process:
        """Wait for the end of the round, after all workers have finished or begun a late gradient."""
        if not self.late:
            return
        if self.members:
            yield int(self._deadline) - self._sim.now
        else:
            first = min(self.late.values(), key=lambda gradient: gradient.end)
            yield first.end - self._sim.now
            self.finished[first.worker].append(self.late.pop(first.worker))


class _Rule:
    """The deadline of a round, ns from its start: infinite until enough rounds have been observed."""

    def __init__(self, protocol: DropCompute):
        threshold = protocol.threshold
        self.threshold: float = math.inf if threshold is None else round(threshold * NANOSECONDS)
        self._rounds_needed = protocol.measured if threshold is None else 0  # rounds
        self._times: list[list[int]] = []  # of each round, the ends of all gradients, ns from its start
        self._communication: list[int] = []  # ns

    def observe(self, finished_round: _Round, communication: int) -> None:
        """Record a finished round, whose allreduce took `communication` ns."""
        if not self._rounds_needed:
            return
        self._rounds_needed -= 1
        self._times.append(
            [gradient.end - finished_round.begin for gradients in finished_round.finished for gradient in gradients]
        )
        self._communication.append(communication)
        if not self._rounds_needed:
            self.threshold = best_threshold(np.array(self._times), np.array(self._communication))


def best_threshold(times: NDArray[np.int64], communication: NDArray[np.int64]) -> int:
    """Return the deadline T, ns, with the largest speed-up in these rounds; the largest T if several are equally good.

    Args:
        times: end of each gradient of all workers, ns from the round's start [rounds, gradients].
        communication: duration of the allreduce after each round, ns [rounds].

    Two workers with two gradients each; the last gradient is dropped, unless communication takes longer:
        >>> times = np.array([[10, 20, 10, 20], [10, 20, 20, 40]])
        >>> best_threshold(times, np.array([0, 0])), best_threshold(times, np.array([90, 90]))
        (20, 40)
    """
    candidates, full = np.unique(times), times.max(axis=1, keepdims=True)  # of T; T_full [rounds, 1]
    done = np.array([np.searchsorted(np.sort(ends), candidates, "right") for ends in times])  # [rounds, candidates]
    communication_column = communication[:, None]
    time_ratio = (full + communication_column) / np.maximum(np.minimum(candidates, full) + communication_column, 1)
    speedup = (done / times.shape[1] * time_ratio).mean(axis=0)
    return int(candidates[np.flatnonzero(speedup == speedup.max())[-1]])
