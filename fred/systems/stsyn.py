"""STSyn: local steps until enough workers have made enough [Zhu, Zhang, Wang 2024, arXiv:2210.03521, section 3].

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.2},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "workers_time_waiting"]].round(2).iloc[0].tolist()
    >>> measured(name="local-steps", period=8)
    [126.0, 0.5]
    >>> measured(name="straggler-tolerant", period=8, enough=3)
    [390.0, 0.0]
"""

from functools import partial
from typing import ClassVar

from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING, Cost
from fred.components.component import Count
from fred.learning.server import Family, Server
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Operation, Simulation


class STSyn(Server):
    """Straggler-tolerant local SGD: models are averaged as soon as K workers have made U local updates each."""

    name = "stsyn"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
w_i <- mean of the w_j of all workers with an update    (as soon as K workers have made U)"""
    protocol = "straggler-tolerant"


class StragglerTolerant(Protocol):
    """Workers make local updates until K of them have made U each; an allreduce then averages all changed models.

    Faster workers make more updates in the meantime, slower ones fewer; unfinished gradients are aborted. All workers continue
    from the average, which in the paper a server computes, here an allreduce of all workers.
    """

    name = "straggler-tolerant"
    faults: ClassVar[str] = (
        "A worker keeps its model, and computes the lost gradient again; a returning worker takes the last average."
    )

    period: Count = Field(default=8, description="U: updates that K workers must make between two averagings")
    enough: Count | None = Field(
        default=None, description="K: number of workers to wait for; absent: three quarters of them, rounded up", examples=[3]
    )

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def check(self, cluster: Cluster) -> None:
        if (self.enough or 0) > cluster.size:
            raise ValueError(f"`enough` ({self.enough}) must not exceed the number of workers ({cluster.size})")

    def start(self, sim: Simulation) -> None:
        rounds = _Rounds(sim, self.period, self.enough or -(-3 * sim.workers // 4))
        for worker in range(sim.workers):
            rounds.join(worker, None, NOTHING)


class _Rounds:
    """The rounds: the workers that compute, and their updates since the last averaging."""

    def __init__(self, sim: Simulation, period: int, quorum: int):
        self._sim, self._period, self._quorum = sim, period, quorum
        self._number = 0  # of averagings
        self._is_complete = False  # K workers have made U updates
        self._updates = [0] * sim.workers  # updates in this round
        self._computing: dict[int, Gradient] = {}

    def join(self, worker: int, average: Copy | None, cost: Cost) -> None:
        """Give a worker the average and let it begin, once it is available; skip an outdated average."""
        absence = self._sim.back(worker, self._sim.now) - self._sim.now
        if absence > 0:
            late_cost = cost._replace(nanoseconds=0)  # it took no part
            self._sim.later(absence, partial(self._return, self._number, worker, average, late_cost))
            return
        if average is not None:
            self._sim.sync(worker, average, cost=cost)
        self._begin(worker)

    def _return(self, number: int, worker: int, average: Copy | None, cost: Cost) -> None:
        """Let a worker join that has been offline, unless a later averaging has begun, at whose end it joins."""
        if number == self._number:
            self.join(worker, average, cost)

    def _begin(self, worker: int) -> None:
        if self._is_complete:
            return
        gradient = self._sim.begin(worker, self._sim.own(worker))
        self._computing[worker] = gradient
        self._sim.later(gradient.end - self._sim.now, partial(self._finish, gradient))

    def _finish(self, gradient: Gradient) -> None:
        if gradient.dropped:
            return
        worker = gradient.worker
        self._sim.push(gradient, worker, NOTHING)
        self._updates[worker] += 1
        del self._computing[worker]
        if not self._is_complete and sum(updates >= self._period for updates in self._updates) >= self._quorum:
            self._is_complete = True
            self._sim.later(0, self._end)
        self._sim.later(0, partial(self._begin, worker))  # first comes what else is finished now, which may be enough

    def _end(self) -> None:
        """Abort the gradients under way, then average models."""
        self._number += 1
        for gradient in self._computing.values():
            self._sim.drop(gradient, cost=NOTHING)
        self._computing = {}
        members = [worker for worker, updates in enumerate(self._updates) if updates]
        operation = self._sim.allreduce(self._sim.workers, awaited=members)
        self._sim.later(operation.over, partial(self._average, members, operation))

    def _average(self, members: list[int], operation: Operation) -> None:
        average = self._sim.mix(0, [(self._sim.own(worker), 1 / len(members)) for worker in members])
        self._updates, self._is_complete = [0] * self._sim.workers, False
        for worker in range(self._sim.workers):
            self.join(worker, average, operation.cost)
