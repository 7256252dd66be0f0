"""Gossip in step [Lian et al. 2017, algorithm 1; Assran et al. 2019, algorithms 1 and 2]: wait for your neighbours only.

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def told(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "workers_time_waiting"]].round(2).iloc[0].tolist()
    >>> told(name="gossip", topology="complete")
    [119.0, 0.55]
    >>> told(name="gossip", overlap=8)
    [168.0, 0.45]
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components.component import Count, OneOf, Whole
from fred.protocols.exchanges import check_exchanges
from fred.protocols.inbox import Graph, Inbox, Senders
from fred.protocols.protocol import Protocol
from fred.protocols.topology import Ring, Topology
from fred.schedule.layout import Layout
from fred.timing.simulation import Process, Simulation

_MOST_EDGES = 10_000_000


class Gossip(Protocol):
    """In each iteration every worker sends its model to its receivers, and mixes those that it gets with its own.

    `update-first`: the gradient is applied, then models are sent and mixed. `mix-first`: models are sent and mixed while the
    gradient, at the model before, is being computed. `compute-first`: as that, but only once it has been computed.

    Weights: a sender divides itself equally among its receivers and itself (`column`: the columns sum to 1, the rows only
    where degrees are equal), or 1 / (1 + the larger of both degrees) for each edge and the rest for itself (`metropolis`: rows
    and columns sum to 1; the graph must be undirected).

    With several `exchanges` a model is sent in as many parts, and a part only after the neighbours' parts before it have
    arrived: who is late holds up those so many edges away within the same iteration. With `overlap` nobody waits for what was
    just sent: models are sent every so many iterations, and each is added to its receiver's when it arrives, at the latest
    after so many. What a sender gives away it no longer has: weights then sum to 1 only together with what is on its way, which
    push-sum (SGP) accounts for.
    """

    faults: ClassVar[str] = (
        "A worker keeps its model and what it is sent, and computes the lost gradient anew; its neighbours wait, then theirs."
    )

    topology: Annotated[Topology, OneOf("topology")] = Field(Ring(), description="who sends to whom")
    weights: Literal["column", "metropolis"] = Field("column", description="of the models that are mixed")
    order: Literal["update-first", "mix-first", "compute-first"] = Field(
        "update-first", description="what is done with a gradient when; where D-PSGD is the algorithm: mix-first"
    )
    exchanges: Count | Literal["global"] = Field(
        1, description="in how many one after the other a model is sent, such as one for each tensor; global: all wait for all"
    )
    overlap: Whole = Field(0, description="tau: iterations that models may be on their way; 0: all wait for them")

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def check(self, cluster: Cluster) -> None:
        try:
            edges = cluster.size * len(self.topology.receivers(1 % cluster.size, 0, cluster.size))
        except Exception as error:  # in a user's own class
            raise ValueError(f"`topology`: {type(error).__name__}: {error}") from error
        if edges > _MOST_EDGES:
            raise ValueError(f"`topology` has about {edges:.1g} edges, more than {_MOST_EDGES:g}; take a sparser one")
        if self.weights == "metropolis":
            check_undirected(graphs_of(self.topology, cluster.size), "`weights: metropolis`")
        if self.overlap and (self.exchanges != 1 or self.order != "update-first"):
            raise ValueError("`overlap` goes with one exchange and `order: update-first` only: its models are never waited for")
        if self.exchanges != 1:
            check_exchanges(cluster)

    def start(self, sim: Simulation) -> None:
        graphs = graphs_of(self.topology, sim.workers)
        weights = [weights_of(graph, self.weights) for graph in graphs]
        senders = Senders(sim, graphs, self.exchanges)
        work = self._overlapped if self.overlap else self._in_step
        for worker in range(sim.workers):
            own = [each[worker] for each in weights]
            sim.process(work(sim, worker, own, senders, senders.inboxes[worker]))

    def _in_step(
        self, sim: Simulation, worker: int, weights: list[dict[int, float]], senders: Senders, inbox: Inbox
    ) -> Process:
        while True:
            yield from sim.present(worker)
            gradient = sim.compute(worker, sim.own(worker))
            if self.order != "mix-first":
                yield gradient.finished
            if self.order == "update-first":
                sim.push(gradient, worker, NOTHING)
            number, mine = senders.sent[worker], weights[senders.sent[worker] % len(weights)]
            senders.send(worker)
            if self.order == "mix-first":
                yield gradient.finished
            yield from inbox.wait(worker, number, len(mine))
            yield from sim.present(worker)
            models = inbox.take(number)
            sim.sync(worker, sim.mix(worker, [(models[sender], mine[sender]) for sender in sorted(mine)]))
            if self.order != "update-first":
                sim.push(gradient, worker, NOTHING)

    def _overlapped(
        self, sim: Simulation, worker: int, weights: list[dict[int, float]], senders: Senders, inbox: Inbox
    ) -> Process:
        def share(number: int, sender: int) -> float:
            return weights[number % len(weights)][sender]

        while True:
            for iteration in range(self.overlap):
                gradient = sim.compute(worker, sim.own(worker))
                yield gradient.finished
                sim.push(gradient, worker, NOTHING)
                models = [] if iteration == 0 else [(sim.own(worker), 1.0)]
                if iteration == 0:
                    last = senders.sent[worker] - 1
                    senders.send(worker, share(last + 1, worker))
                    if last >= 0:
                        yield from inbox.wait(worker, last, len(weights[last % len(weights)]))
                        yield from sim.present(worker)
                arrived = inbox.take_all()
                if arrived:
                    models += [(model, 1.0 if sender == worker else share(number, sender)) for number, sender, model in arrived]
                    sim.sync(worker, sim.mix(worker, models))


def check_undirected(graphs: list[Graph], who: str) -> None:
    """Refuse, with ValueError, graphs in which somebody does not send to those it hears from.

    Args:
        graphs: receivers of each worker.
        who: needs to send both ways.
    """
    for graph in graphs:
        hears = [set(receivers) for receivers in graph]
        if any(worker not in hears[other] for worker, receivers in enumerate(graph) for other in receivers):
            raise ValueError(f"{who} needs a topology in which everybody sends to those it hears from")


def graphs_of(topology: Topology, workers: int) -> list[Graph]:
    """Receivers of each worker, for each iteration of a period.

    Args:
        topology: who sends to whom.
        workers: how many there are.

    >>> graphs_of(Ring(), 3)
    [[[1, 2], [0, 2]...
    """
    iterations = range(topology.period(workers))
    return [[list(topology.receivers(worker, iteration, workers)) for worker in range(workers)] for iteration in iterations]


def weights_of(graph: Graph, rule: str) -> list[dict[int, float]]:
    """For each worker the weight of each sender's model, its own included.

    Args:
        graph: receivers of each worker.
        rule: `column` or `metropolis`.

    >>> weights_of([[1], [0]], "metropolis")
    [{1: 0.5, 0: 0.5}, {0: 0.5, 1: 0.5}]
    """
    result: list[dict[int, float]] = [{} for _ in graph]
    for sender, receivers in enumerate(graph):
        for receiver in receivers:
            degree = len(receivers) if rule == "column" else max(len(receivers), len(graph[receiver]))
            result[receiver][sender] = 1 / (1 + degree)
    for worker, receivers in enumerate(graph):
        equal = 1 / (1 + len(receivers))
        result[worker][worker] = equal if rule == "column" else 1 - sum(result[worker].values())
    return result
