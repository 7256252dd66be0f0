"""Asynchronous averages in pairs: AD-PSGD and SwarmSGD.

| name              | source                                                                                          |
|-------------------|-------------------------------------------------------------------------------------------------|
| ad-psgd, Pairwise | Lian, Zhang, Zhang, Liu 2018, arXiv:1710.06952, algorithm 1; docs/errata.md, item 16            |
| swarm-sgd         | Nadiradze et al. 2021, "Asynchronous decentralized SGD ... and local updates", arXiv:1910.12308 |
| InPairs           | SwarmSGD 2021, arXiv:1910.12308; NoLoCo 2025, arXiv:2506.10911                                  |

AD-PSGD: no worker waits. A minute in which three workers take 0.5 s for each gradient, and the fourth 2 s:
    >>> import fred
    >>> scenario = fred.scenario({
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "protocol": "pairwise",
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... })
    >>> fred.run(scenario).summary[["updates", "workers_time_waiting"]].round(2).iloc[0].tolist()
    [386.0, 0.0]

SwarmSGD: a worker waits for its partner after every period of local steps. The same cluster:
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

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Annotated, ClassVar

import numpy as np
import simpy
from pydantic import Field

from fred.base import numerics
from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components.component import Count
from fred.components.one_of import OneOf
from fred.learning.server import Family, Server
from fred.protocols.gossip import Bipartite, Topology, receivers_of
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.simulation import Operation, Process, Simulation


class ADPSGD(Server):
    """Decentralized SGD: workers step their own models, and average them in random pairs without waiting."""

    name = "ad-psgd"
    family = Family.AVERAGED
    rule = """\
w_j <- (w_i + w_j) / 2         (j is drawn; w_i is what i has sent)
w_i <- w_i + (w_j - w_i) / 2    (what j had sent back less what i had sent)
w_i <- w_i - step(g_i)          (at any time)"""
    protocol = "pairwise"


class Pairwise(Protocol):
    """Each worker steps its own model without waiting, while pairs of neighbours average their models.

    One side of a bipartite graph is active. An active worker starts one exchange for each gradient it begins, or fewer if
    exchanges take longer: it sends its model x to a random neighbour. On arrival, the neighbour sends its own model y back,
    and replaces it by (x + y) / 2. When y arrives, the active worker adds (y - x) / 2 to its model, which gradients may have
    changed since. So no worker waits, and averaging leaves the sum of all models unchanged.
    """

    name = "pairwise"
    has_allreduces = False
    faults: ClassVar[str] = (
        "A worker keeps its model, and computes the lost gradient again; its partner waits, and goes on computing."
    )

    topology: Annotated[Topology, OneOf("topology")] = Field(
        default=Bipartite(), description="bipartite graph; workers average along its edges"
    )

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def check(self, cluster: Cluster) -> None:
        self._active(cluster.size)

    def start(self, sim: Simulation) -> None:
        active, exchanges = self._active(sim.workers), _Exchanges(sim, self.topology)
        for worker in range(sim.workers):
            sim.process(self._work(sim, worker, exchanges if worker in active else None))

    def _work(self, sim: Simulation, worker: int, exchanges: "_Exchanges | None") -> Process:
        while True:
            gradient = sim.compute(worker, sim.own(worker))
            if exchanges:
                exchanges.request(worker)
            yield gradient.finished
            sim.push(gradient, worker, NOTHING)

    def _active(self, workers: int) -> Sequence[int] | set[int]:
        """Return the half of the workers with the smallest number of each part of the graph. Raises ValueError if none."""
        if isinstance(self.topology, Bipartite):
            return range(0, workers, 2)  # the same without a look at millions of edges
        # Two-colour each part of the graph from its worker `first` on, breadth first: `reached` grows while it is read.
        is_active: dict[int, bool] = {}
        for first in range(workers):
            reached = [] if first in is_active else [first]
            is_active.setdefault(first, True)
            for worker in reached:
                for other in _partners(self.topology, worker, workers):
                    if other not in is_active:
                        is_active[other] = not is_active[worker]
                        reached.append(other)
                    if is_active[other] == is_active[worker]:
                        raise ValueError(
                            f"`topology` must be bipartite, but workers {worker} and {other}, who are neighbours, fall on the "
                            "same side of it; take `bipartite`, `hypercube`, `star`, or a `ring` of an even number of workers"
                        )
        return {worker for worker, active in is_active.items() if active}


class _Exchanges:
    """The communication threads of the active workers."""

    def __init__(self, sim: Simulation, topology: Topology):
        self._sim, self._topology = sim, topology
        self._due = [False] * sim.workers  # True: the worker has begun a gradient since its last exchange began
        self._busy = [False] * sim.workers
        self._number = [0] * sim.workers  # of each worker's exchanges

    def request(self, worker: int) -> None:
        """Request one more exchange of an active worker, now or after its present one."""
        partners = _partners(self._topology, worker, self._sim.workers)
        self._due[worker] = bool(partners)
        if partners and not self._busy[worker]:
            self._sim.process(self._communicate(worker, partners))

    def _communicate(self, worker: int, partners: Sequence[int]) -> Process:
        self._busy[worker] = True
        while self._due[worker]:
            self._due[worker] = False
            word = int(numerics.words(self._sim.seed, "partner", worker, self._number[worker]))
            self._number[worker] += 1
            yield from self._average(worker, partners[word * len(partners) >> 32])  # uniform, as `word` has 32 bits
        self._busy[worker] = False

    def _average(self, worker: int, partner: int) -> Process:
        """Send a worker's model to its partner, which averages it and replies with its own, as it was before."""
        sim = self._sim
        yield from sim.present(worker)
        sent = sim.publish(worker, 1)
        yield sim.transfer(worker, partner)
        yield from sim.present(partner)
        reply = sim.publish(partner, 1)
        sim.sync(partner, sent, keep=0.5, weight=0.5)
        yield sim.transfer(partner, worker)
        yield from sim.present(worker)
        sim.sync(worker, sim.mix(worker, [(reply, 1.0), (sent, -1.0)]), keep=1.0, weight=0.5)


def _partners(topology: Topology, worker: int, workers: int) -> Sequence[int]:
    """Return all workers to which a worker ever sends."""
    if topology.period(workers) == 1:
        return receivers_of(topology, worker, 0, workers)
    receivers = (receivers_of(topology, worker, iteration, workers) for iteration in range(topology.period(workers)))
    return sorted(set().union(*receivers))


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
        for round_number in count():
            yield from sim.local_steps(worker, self.period)
            yield from pairs.meet(worker, round_number)


class _Pairs:
    """The pairs of each round, and the workers that wait."""

    def __init__(self, sim: Simulation):
        self._sim = sim
        self._members: dict[int, dict[int, tuple[int, ...]]] = {}  # of each round, the pair of each worker
        self._waiting: dict[tuple[int, tuple[int, ...]], simpy.Event] = {}  # by round and pair: one member waits for the other
        self._rounds = [0] * sim.workers  # the last round of each worker

    def meet(self, worker: int, round_number: int) -> Process:
        """Wait until a worker's model has been averaged in a round."""
        sim, pair = self._sim, self._find_pair(worker, round_number)
        averaged = self._waiting.pop((round_number, pair), None)  # None: the worker is the first of its pair, or alone
        is_first = averaged is None and len(pair) == 2
        averaged = averaged or sim.env.event()
        if is_first:
            self._waiting[round_number, pair] = averaged
        else:
            operation = sim.allreduce(pair, awaited=pair)
            sim.later(operation.over, partial(self._average, pair, operation, averaged))
        yield from sim.wait(worker, averaged, f"its partner in round {round_number + 1}")

    def _average(self, pair: tuple[int, ...], operation: Operation, averaged: simpy.Event) -> None:
        sim = self._sim
        mean = sim.mix(pair[0], [(sim.own(worker), 1 / len(pair)) for worker in pair])
        for worker in pair:
            sim.sync(worker, mean, cost=operation.cost)
        averaged.succeed()

    def _find_pair(self, worker: int, round_number: int) -> tuple[int, ...]:
        """Return the pair of a worker in a round, itself included."""
        self._rounds[worker] = round_number
        if round_number not in self._members:
            # Rounds that no worker will meet in again are forgotten.
            self._members = {number: pair_of for number, pair_of in self._members.items() if number >= min(self._rounds)}
            words = numerics.words(self._sim.seed, "pairs", np.arange(self._sim.workers), round_number)
            permutation = np.argsort(words, kind="stable").tolist()
            pairs = [tuple(sorted(permutation[first : first + 2])) for first in range(0, len(permutation), 2)]
            self._members[round_number] = {member: pair for pair in pairs for member in pair}
        return self._members[round_number][worker]
