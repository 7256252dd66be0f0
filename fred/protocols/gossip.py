"""Synchronous gossip between neighbours [Lian et al. 2017, algorithm 1; Assran et al. 2019, algorithms 1 and 2].

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "workers_time_waiting"]].round(2).iloc[0].tolist()
    >>> measured(name="gossip", topology="complete")
    [119.0, 0.55]
    >>> measured(name="gossip", overlap=8)
    [168.0, 0.45]
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components.component import Count, Whole
from fred.components.one_of import OneOf
from fred.protocols.exchanges import check_exchanges
from fred.protocols.inbox import Graph, Inbox, Senders
from fred.protocols.protocol import Protocol
from fred.protocols.topology import Ring, Topology
from fred.schedule.layout import Layout
from fred.timing.simulation import Process, Simulation

_MOST_EDGES = 10_000_000


class Gossip(Protocol):
    """In each iteration every worker sends its model to its neighbours and mixes the models it receives with its own.

    The order is one of three. `update-first`: a worker applies its gradient, then sends and mixes. `mix-first`: models are on
    their way while the gradient is being computed at the model before mixing. `compute-first`: a worker sends its model once
    the gradient is computed, mixes, and applies the gradient last.

    The weights are one of two kinds. `column`: a sender divides itself equally among its receivers and itself. The columns of
    the weight matrix sum to 1; the rows do so only if all degrees are equal. `metropolis`: each edge has the weight
    1 / (1 + the larger of both degrees), and the worker itself the rest. Rows and columns sum to 1; the graph must be
    undirected.

    With K `exchanges` a model is sent in K parts, each only after the neighbours' previous parts have arrived. A late worker
    then delays workers up to K edges away within the same iteration. With `overlap`, tau > 0, no worker waits for the models
    just sent. Models are sent every tau iterations; each is added to its receiver's on arrival, at the latest after tau
    iterations. A sender gives its shares away. So the weights sum to 1 only together with the models on the network, which
    push-sum (SGP) accounts for.
    """

    name = "gossip"
    faults: ClassVar[str] = (
        "A worker keeps its model and received models, and computes the lost gradient again; its neighbours wait, then theirs."
    )

    topology: Annotated[Topology, OneOf("topology")] = Field(default=Ring(), description="graph along which models are sent")
    weights: Literal["column", "metropolis"] = Field(
        default="column", description="mixing weights: equal shares of a sender, or Metropolis weights"
    )
    order: Literal["update-first", "mix-first", "compute-first"] = Field(
        default="update-first",
        description="order of applying the gradient, sending and mixing; absent: that of the algorithm's paper",
    )
    exchanges: Count | Literal["global"] = Field(
        default=1,
        description="K: parts in which a model is sent, one after the other, such as its tensors; `global`: all wait for all",
    )
    overlap: Whole = Field(default=0, description="tau: iterations that models may take to arrive; 0: workers wait for them")

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def check(self, cluster: Cluster) -> None:
        try:
            edges = cluster.size * len(self.topology.receivers(1 % cluster.size, 0, cluster.size))
        except Exception as error:  # raised by a user's own class
            raise ValueError(f"`topology`: {type(error).__name__}: {error}") from error
        if edges > _MOST_EDGES:
            raise ValueError(f"`topology` has about {edges:.1g} edges, more than {_MOST_EDGES:g}; take a sparser one")
        if self.weights == "metropolis":
            check_undirected(graphs_of(self.topology, cluster.size), "`weights: metropolis`")
        if self.overlap and (self.exchanges != 1 or self.order != "update-first"):
            raise ValueError("`overlap` needs `exchanges: 1` and `order: update-first`")
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
    """Raise ValueError for graphs in which a worker receives from another without sending back.

    Args:
        graphs: receivers of each worker, for each graph.
        who: the option or protocol that needs undirected graphs, named in the error.
    """
    for graph in graphs:
        hears = [set(receivers) for receivers in graph]
        if any(worker not in hears[other] for worker, receivers in enumerate(graph) for other in receivers):
            raise ValueError(f"{who} needs an undirected topology: each worker sends to every worker that it receives from")


def graphs_of(topology: Topology, workers: int) -> list[Graph]:
    """Return the receivers of each worker, for each iteration of a period.

    Args:
        topology: the graph in each iteration.
        workers: number of workers.

    >>> graphs_of(Ring(), 3)
    [[[1, 2], [0, 2]...
    """
    iterations = range(topology.period(workers))
    return [[list(topology.receivers(worker, iteration, workers)) for worker in range(workers)] for iteration in iterations]


def weights_of(graph: Graph, rule: str) -> list[dict[int, float]]:
    """Return, for each worker, the weight of each sender's model, its own included.

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
