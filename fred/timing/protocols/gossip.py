"""Gossip in step [Lian et al. 2017, algorithm 1; Assran et al. 2019, algorithm 1]: wait for your neighbours' models only."""

from functools import partial
from typing import Annotated, Literal

import simpy
from pydantic import Field

from fred.component import OneOf
from fred.layout import Layout
from fred.timing.cluster import Cluster
from fred.timing.held import Copy
from fred.timing.network import NOTHING
from fred.timing.protocol import Protocol
from fred.timing.simulation import Process, Simulation
from fred.timing.topology import Ring, Topology

_MOST_EDGES = 10_000_000


class Gossip(Protocol):
    """In each iteration every worker sends its model to its receivers, and mixes those that it gets with its own.

    `update-first`: the gradient is applied, then models are sent and mixed. `mix-first`: models are sent and mixed while the
    gradient, at the model before, is being computed. Weights: a sender divides itself equally among its receivers and itself
    (`column`: the columns sum to 1, the rows only where degrees are equal), or 1 / (1 + the larger of both degrees) for each
    edge and the rest for itself (`metropolis`: rows and columns sum to 1; the graph must be undirected).
    """

    topology: Annotated[Topology, OneOf("topology")] = Field(Ring(), description="who sends to whom")
    weights: Literal["column", "metropolis"] = Field("column", description="of the models that are mixed")
    order: Literal["update-first", "mix-first"] = Field("update-first", description="what is done with a gradient when")

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def check(self, cluster: Cluster) -> None:
        try:
            edges = cluster.size * len(self.topology.receivers(1 % cluster.size, 0, cluster.size))
        except Exception as error:  # in a user's own class
            raise ValueError(f"`topology`: {type(error).__name__}: {error}") from error
        if edges > _MOST_EDGES:
            raise ValueError(f"`topology` has about {edges:.1g} edges, more than {_MOST_EDGES:g}; take a sparser one")
        for graph in _graphs(self.topology, cluster.size) if self.weights == "metropolis" else ():
            hears = [set(receivers) for receivers in graph]
            if any(worker not in hears[other] for worker, receivers in enumerate(graph) for other in receivers):
                raise ValueError("`weights: metropolis` needs a topology in which everybody sends to those it hears from")

    def start(self, sim: Simulation) -> None:
        graphs = _graphs(self.topology, sim.workers)
        weights = [_weights(graph, self.weights) for graph in graphs]
        inboxes = [_Inbox(sim) for _ in range(sim.workers)]
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, worker, graphs, weights, inboxes))

    def _work(
        self,
        sim: Simulation,
        worker: int,
        graphs: list[list[list[int]]],
        weights: list[list[dict[int, float]]],
        inboxes: "list[_Inbox]",
    ) -> Process:
        iteration = 0
        while True:
            phase = iteration % len(graphs)
            gradient = sim.compute(worker, sim.own(worker))
            if self.order == "update-first":
                yield gradient.finished
                sim.push(gradient, worker, NOTHING)
            model = sim.publish(worker, len(graphs[phase][worker]))
            inboxes[worker].put(iteration, worker, model)
            for receiver in graphs[phase][worker]:
                inboxes[receiver].expect(sim.transfer(worker, receiver), iteration, worker, model)
            if self.order == "mix-first":
                yield gradient.finished
            mine = weights[phase][worker]
            models = yield from inboxes[worker].collect(worker, iteration, len(mine))
            sim.sync(worker, sim.mix(worker, [(models[sender], mine[sender]) for sender in sorted(mine)]))
            if self.order == "mix-first":
                sim.push(gradient, worker, NOTHING)
            iteration += 1


class _Inbox:
    """The models that a worker has got, by iteration and sender: a sender may be ahead."""

    def __init__(self, sim: Simulation):
        self._sim = sim
        self._models: dict[int, dict[int, Copy]] = {}
        self._changed = sim.env.event()

    def expect(self, arrival: simpy.Event, iteration: int, sender: int, model: Copy) -> None:
        """A model is on its way."""
        assert arrival.callbacks is not None
        arrival.callbacks.append(lambda _: self.put(iteration, sender, model))

    def put(self, iteration: int, sender: int, model: Copy) -> None:
        """A model is here."""
        self._models.setdefault(iteration, {})[sender] = model
        self._changed.succeed()
        self._changed = self._sim.env.event()

    def collect(self, worker: int, iteration: int, number: int) -> Process:
        """Wait for so many models of an iteration; returns them by sender."""
        while len(self._models[iteration]) < number:
            yield from self._sim.wait(worker, self._changed, f"models of iteration {iteration} from its neighbours")
        return self._models.pop(iteration)


def _graphs(topology: Topology, workers: int) -> list[list[list[int]]]:
    """Receivers of each worker, for each iteration of a period."""
    iterations = range(topology.period(workers))
    return [[topology.receivers(worker, iteration, workers) for worker in range(workers)] for iteration in iterations]


def _weights(graph: list[list[int]], rule: str) -> list[dict[int, float]]:
    """For each worker the weight of each sender's model, its own included."""
    result: list[dict[int, float]] = [{} for _ in graph]
    for sender, receivers in enumerate(graph):
        for receiver in receivers:
            degree = len(receivers) if rule == "column" else max(len(receivers), len(graph[receiver]))
            result[receiver][sender] = 1 / (1 + degree)
    for worker, receivers in enumerate(graph):
        equal = 1 / (1 + len(receivers))
        result[worker][worker] = equal if rule == "column" else 1 - sum(result[worker].values())
    return result
