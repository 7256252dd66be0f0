"""Eager DiLoCo: an allreduce lasts as long as the next local steps [Kale, Douillard, Donchev 2025, arXiv:2502.12996].

Example: a minute in which workers take 0.5 s for each gradient, and an allreduce 3 s: it hides behind eight of them.
    >>> import fred
    >>> settings = {
    ...     "cluster": {
    ...         "workers": 4,
    ...         "compute": {"name": "constant", "seconds": 0.5},
    ...         "network": {"bandwidth": 1e6, "message_bytes": 2_000_000},
    ...     },
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "eager-diloco", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "messages_between_workers"]].iloc[0].tolist()
    >>> measured(name="overlapped-steps", period=8)
    [476, 336]
    >>> measured(name="outer-steps", period=8)
    [284, 192]
"""

from collections import defaultdict
from functools import partial
from itertools import count
from typing import ClassVar

import simpy
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components.component import Count
from fred.learning.server import Family
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.systems.diloco import DiLoCo
from fred.timing.copies import Gradient
from fred.timing.simulation import Operation, Process, Simulation


class EagerDiLoCo(DiLoCo):
    """DiLoCo with an allreduce that overlaps the next round; a worker applies its own pseudo-gradient at once.

    So every worker has an outer model of its own. With one worker it is DiLoCo.
    """

    name = "eager-diloco"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)                                   (H times, from x_i on)
D_i = (x_i - w_i) / n + sum over j != i of (D_j of the round before) / n
x_i <- x_i - outer step(D_i)                             (each worker has its own x_i and outer momentum)"""
    protocol = "overlapped-steps"


class OverlappedSteps(Protocol):
    """Like `outer-steps`, but each allreduce overlaps the next `period` local updates.

    So the other workers' pseudo-gradients are applied one round late. With `eager` a worker applies its own at once, and has an
    outer model of its own; otherwise its own is as late as the others', and all outer models are equal. The first outer step
    uses no pseudo-gradients of others. A worker that ends a round before the last allreduce is over waits for it.
    """

    name = "overlapped-steps"
    faults: ClassVar[str] = (
        "A worker keeps its model, and computes the lost gradient again; an allreduce begins when all workers are available."
    )

    period: Count = Field(default=8, description="H: updates of each worker between two outer steps")
    eager: bool = Field(
        default=True, description="whether a worker applies its own pseudo-gradient at once, not one round late"
    )

    def layout(self, cluster: Cluster) -> Layout:
        own = cluster.size
        return Layout(2 * own, range(own, 2 * own), range(0))

    def start(self, sim: Simulation) -> None:
        rounds = _Rounds(sim, self.eager)
        for worker in range(sim.workers):
            sim.process(self._work(sim, worker, rounds))

    def _work(self, sim: Simulation, worker: int, rounds: "_Rounds") -> Process:
        outer = sim.workers + worker
        for number in count(1):
            before = sim.read(worker, outer, sent=False)
            sim.sync(worker, before)
            yield from sim.local_steps(worker, self.period)
            yield from rounds.over(number - 1, worker)
            pseudo_gradient = sim.pseudo_gradient(worker, before, sim.own(worker))
            if self.eager:
                sim.add(pseudo_gradient, outer, NOTHING)
            sim.commit(outer, weight=1 / sim.workers)
            rounds.bring(number, pseudo_gradient)


class _Rounds:
    """Successive allreduces, which add the workers' pseudo-gradients to the outer models' rounds."""

    def __init__(self, sim: Simulation, eager: bool):
        self._sim, self._eager = sim, eager
        self._brought: list[Gradient] = []
        self._over: defaultdict[int, simpy.Event] = defaultdict(sim.env.event)

    def bring(self, number: int, pseudo_gradient: Gradient) -> None:
        """Add a worker's pseudo-gradient; the allreduce begins when all have been added."""
        self._brought.append(pseudo_gradient)
        if len(self._brought) == self._sim.workers:
            operation = self._sim.add_up(self._sim.workers, awaited=range(self._sim.workers))
            self._sim.later(operation.over, partial(self._end, number, operation))

    def over(self, number: int, worker: int) -> Process:
        """Wait until the allreduce of this number is over; the first has number 1."""
        if number:
            yield from self._sim.wait(worker, self._over[number], f"allreduce {number}")
            yield from self._sim.present(worker)

    def _end(self, number: int, operation: Operation) -> None:
        sim, brought = self._sim, sorted(self._brought, key=lambda each: each.worker)
        self._brought = []
        for pseudo_gradient in brought:
            charged = operation.cost
            for worker in range(sim.workers):
                if not self._eager or worker != pseudo_gradient.worker:
                    sim.add(pseudo_gradient, sim.workers + worker, charged)
                    charged = NOTHING
        self._over[number].succeed()
