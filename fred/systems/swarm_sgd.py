"""SwarmSGD: local steps, after which workers average in pairs.

| name      | source                                                                                          |
|-----------|-------------------------------------------------------------------------------------------------|
| swarm-sgd | Nadiradze et al. 2021, "Asynchronous decentralized SGD ... and local updates", arXiv:1910.12308 |
| InPairs   | SwarmSGD 2021, arXiv:1910.12308; NoLoCo 2025, arXiv:2506.10911                                  |

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "swarm-sgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "messages_between_workers"]].iloc[0].tolist()
    >>> measured(name="in-pairs", period=4)
    [131, 60]
    >>> measured(name="local-steps", period=4)
    [125, 168]
"""

from functools import partial
from typing import ClassVar

import numpy as np
import simpy
from pydantic import Field

from fred.base import streams
from fred.cluster.cluster import Cluster
from fred.components.component import Count
from fred.learning.server import Family, Server
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.simulation import Operation, Process, Simulation


class SwarmSGD(Server):
    """Local SGD with random pairwise averaging: after a few local steps, two random workers average their models."""

    name = "swarm-sgd"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
w_i <- mean of both w    (every `period` updates, with another one)"""
    protocol = "in-pairs"


class InPairs(Protocol):
    """Every `period` local updates, random pairs of workers average their models; each worker waits for its partner only.

    A random permutation of the workers gives the pairs of each round. With an odd number of workers, one model is not
    averaged. A slow worker delays its partner, and then that one's next partner.
    """

    name = "in-pairs"
    faults: ClassVar[str] = (
        "A worker keeps its model, and computes the lost gradient again; an averaging begins when both are available."
    )

    period: Count = Field(default=8, description="H: updates of each worker between two averagings")

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def start(self, sim: Simulation) -> None:
        pairs = _Pairs(sim)
        for worker in range(sim.workers):
            sim.process(self._work(sim, worker, pairs))

    def _work(self, sim: Simulation, worker: int, pairs: "_Pairs") -> Process:
        number = 0
        while True:
            yield from sim.local_steps(worker, self.period)
            yield from pairs.meet(worker, number)
            number += 1


class _Pairs:
    """The pairs of each round, and the workers that wait."""

    def __init__(self, sim: Simulation):
        self._sim = sim
        self._members: dict[int, dict[int, tuple[int, ...]]] = {}  # of each round, the pair of each worker
        self._waiting: dict[tuple[int, tuple[int, ...]], simpy.Event] = {}  # for the other of a pair in a round
        self._rounds = [0] * sim.workers  # that each has met in

    def meet(self, worker: int, number: int) -> Process:
        """Wait until a worker's model has been averaged in a round."""
        sim, pair = self._sim, self._pair(worker, number)
        over = self._waiting.pop((number, pair), None)
        if over is None and len(pair) == 2:
            over = self._waiting[number, pair] = sim.env.event()
        else:
            over = over or sim.env.event()
            operation = sim.allreduce(pair, awaited=pair)
            sim.later(operation.over, partial(self._average, pair, operation, over))
        yield from sim.wait(worker, over, f"its partner in round {number + 1}")

    def _average(self, pair: tuple[int, ...], operation: Operation, over: simpy.Event) -> None:
        sim = self._sim
        mean = sim.mix(pair[0], [(sim.own(worker), 1 / len(pair)) for worker in pair])
        for worker in pair:
            sim.sync(worker, mean, cost=operation.cost)
        over.succeed()

    def _pair(self, worker: int, number: int) -> tuple[int, ...]:
        """Return the pair of a worker in a round, itself included."""
        self._rounds[worker] = number
        if number not in self._members:
            self._members = {each: pairs for each, pairs in self._members.items() if each >= min(self._rounds)}
            order = np.argsort(
                streams.words(self._sim.seed, "pairs", np.arange(self._sim.workers), number), kind="stable"
            ).tolist()
            pairs = [tuple(sorted(order[first : first + 2])) for first in range(0, len(order), 2)]
            self._members[number] = {each: pair for pair in pairs for each in pair}
        return self._members[number][worker]
