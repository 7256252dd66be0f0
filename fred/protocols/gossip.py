"""Synchronous gossip: workers send models to their neighbours in a graph, and mix those that they receive.

| name   | source                                                                |
|--------|-----------------------------------------------------------------------|
| gossip | Lian et al. 2017, algorithm 1; Assran et al. 2019, algorithms 1 and 2 |

Topologies are the graphs along which workers send models. Some change from iteration to iteration.

>>> [Ring().receivers(worker, 0, 4) for worker in range(4)]
[[1, 3], [0, 2], [1, 3], [0, 2]]
>>> [Star().receivers(worker, 0, 4) for worker in range(4)]
[[1, 2, 3], [0], [0], [0]]
>>> [list(Bipartite().receivers(worker, 0, 5)) for worker in range(5)]
[[1, 3], [0, 2, 4], [1, 3], [0, 2, 4], [1, 3]]
>>> [Hypercube().receivers(worker, 0, 5) for worker in range(5)]
[[1, 2, 4], [0, 3], [0, 3], [1, 2], [0]]
>>> [Complete().receivers(worker, 0, 3) for worker in range(3)]
[[1, 2], [0, 2], [0, 1]]
>>> [Exponential().receivers(0, iteration, 8) for iteration in range(4)]
[[1], [2], [4], [1]]
>>> [Edges(edges=((0, 1), (1, 2))).receivers(worker, 0, 4) for worker in range(4)]
[[1], [0, 2], [1], []]

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

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import simpy
from pydantic import Field, model_validator

from fred.base.errors import quoted
from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components import own_code
from fred.components.component import Component, Count, Natural, is_user_class
from fred.components.one_of import OneOf
from fred.protocols.exchanges import Exchanges, check_exchanges
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Copy
from fred.timing.simulation import Process, Simulation

Graph = list[list[int]]  # receivers of each worker
Number = Natural  # of a worker
_MOST_EDGES = 10_000_000


class Inbox:
    """The models that a worker has received, by number and sender; a sender may be iterations ahead.

    Example: worker 1's first model arrives at once, worker 2's never.
        >>> import fred
        >>> from fred.timing.recorder import Recorder
        >>> sim = fred.Simulation(fred.Cluster(workers=3), Recorder(3, fred.Layout.peers(3)), seed=0)
        >>> inbox = Inbox(sim)
        >>> inbox.put(number=0, sender=1, model=sim.own(1))
        >>> [(number, sender) for number, sender, _ in inbox.take_all()]
        [(0, 1)]
        >>> _ = sim.process(inbox.wait(worker=0, number=0, senders=2))
        >>> sim.run()
        Traceback (most recent call last):
        fred.FredError: nothing can happen any more after 0 s: worker 0 waits for models of iteration 0 from its ...
    """

    def __init__(self, sim: Simulation):
        self._sim = sim
        self._models: dict[int, dict[int, Copy]] = {}  # not yet taken
        self._arrived: Counter[int] = Counter()  # taken or not
        self._changed = sim.env.event()

    def expect(self, arrival: simpy.Event, number: int, sender: int, model: Copy) -> None:
        """Put a `model` into the inbox when `arrival` happens. For `number` and `sender` see `put`."""
        assert arrival.callbacks is not None
        arrival.callbacks.append(lambda _: self.put(number, sender, model))

    def put(self, number: int, sender: int, model: Copy) -> None:
        """Store a `model` that has arrived; `number` is its `sender`'s count of models, from 0."""
        self._models.setdefault(number, {})[sender] = model
        self._arrived[number] += 1
        self._changed.succeed()
        self._changed = self._sim.env.event()

    def wait(self, worker: int, number: int, senders: int) -> Process:
        """Let the `worker` wait until models of that `number` have arrived from `senders` workers."""
        while self._arrived[number] < senders:
            yield from self._sim.wait(worker, self._changed, f"models of iteration {number} from its neighbours")
        del self._arrived[number]  # it is waited for once

    def take(self, number: int) -> dict[int, Copy]:
        """Remove and return the models of one `number`, by sender."""
        return self._models.pop(number)

    def take_all(self) -> list[tuple[int, int, Copy]]:
        """Remove all models and return (number, sender, model) of each, sorted by number and sender."""
        models, self._models = self._models, {}
        return [
            (number, sender, model)
            for number, by_sender in sorted(models.items())
            for sender, model in sorted(by_sender.items())
        ]


class Senders:
    """The outgoing models of every worker, sent along one graph after the other, cyclically."""

    def __init__(self, sim: Simulation, graphs: list[Graph], exchanges: int | Literal["global"]):
        self._sim, self._graphs = sim, graphs
        self.inboxes = [Inbox(sim) for _ in range(sim.workers)]
        self.sent = [0] * sim.workers  # by each worker
        self._exchanges = None if exchanges == 1 else Exchanges(sim, graphs, exchanges)

    def send(self, worker: int, share: float | None = None) -> None:
        """Send a worker's current model to all its receivers, and put it into the worker's own inbox.

        With `share`, the worker's model is first multiplied by it, and its own inbox holds that part.
        """
        number = self.sent[worker]
        self.sent[worker] += 1
        receivers = self._graphs[number % len(self._graphs)][worker]
        if self._exchanges:
            model = self._sim.publish(worker, len(receivers), self._exchanges.parts)
            self._exchanges.begin(worker, number, model, self.inboxes[worker].put)
            return
        model = self._sim.publish(worker, len(receivers))
        own_model = model if share is None else self._sim.mix(worker, [(model, share)])
        if share is not None:  # the worker has given the rest away: receivers multiply the whole model by their weights
            self._sim.sync(worker, own_model)
        self.inboxes[worker].put(number, worker, own_model)
        for receiver in receivers:
            self.inboxes[receiver].expect(self._sim.transfer(worker, receiver), number, worker, model)


class Topology(Component):
    """A directed graph on the workers for each iteration; every worker also keeps its own model.

    Example:
        >>> import fred
        >>> class Swing(fred.Topology):
        ...     '''To the right in even iterations, to the left in odd ones.'''
        ...     def receivers(self, worker, iteration, workers):
        ...         return [(worker + 1) % workers if iteration % 2 == 0 else (worker - 1) % workers]
        ...     def period(self, workers):
        ...         return 2
        >>> [Swing().receivers(worker=0, iteration=iteration, workers=4) for iteration in range(3)]
        [[1], [3], [1]]
    """

    @abstractmethod
    def receivers(self, worker: int, iteration: int, workers: int) -> Sequence[int]:
        """Return the workers to which a worker sends in this iteration, never itself.

        Args:
            worker: number of the sender, from 0.
            iteration: the sender's own count of iterations, from 0.
            workers: number of workers.
        """

    def period(self, workers: int) -> int:
        """Return the number of iterations after which the graphs on that number of `workers` repeat."""
        return 1


def receivers_of(topology: Topology, worker: int, iteration: int, workers: int) -> list[int]:
    """Return the receivers of a worker in an iteration. Raises ValueError for those of a user's class that are impossible.

    Args:
        topology: the graph.
        worker: number of the sender.
        iteration: the sender's own count of iterations.
        workers: number of workers.

    >>> receivers_of(Ring(), 0, 0, 4)
    [1, 3]
    """
    receivers = topology.receivers(worker, iteration, workers)
    if not is_user_class(type(topology)):
        return list(receivers)
    numbers = list(receivers) if isinstance(receivers, Iterable) else [-1]  # no worker, so it is refused
    other_workers = {*range(workers)} - {worker}
    if len({*numbers} & other_workers) < len(numbers):  # also if a number occurs twice
        raise ValueError(
            f"`receivers` of {type(topology).__name__} returns {quoted(receivers)} for worker {worker} in iteration "
            f"{iteration}; expected a list of other workers, each once: of 0 to {workers - 1} without {worker}"
        )
    return [int(number) for number in numbers]


class Ring(Topology):
    """Every worker sends to both neighbours on a ring."""

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        return sorted({(worker + 1) % workers, (worker - 1) % workers} - {worker})


class Complete(Topology):
    """Every worker sends to all others."""

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        return [other for other in range(workers) if other != worker]


class Star(Topology):
    """Worker 0 sends to all others, which send to worker 0 only: the most unequal degrees."""

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        return list(range(1, workers)) if worker == 0 else [0]


class Exponential(Topology):
    """Worker i sends to i + 2^k, k = 0, 1, 2, ... in turn [Assran et al. 2019, appendix A]."""

    neighbours: Count = Field(default=1, description="receivers in each iteration, at consecutive distances 2^k")

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        phases = self.period(workers)
        distances = {2 ** ((iteration + k) % phases) for k in range(min(self.neighbours, phases))}
        return sorted({(worker + distance) % workers for distance in distances} - {worker})

    def period(self, workers: int) -> int:
        return max(1, math.ceil(math.log2(workers)))


class Bipartite(Topology):
    """Even workers send to all odd ones, odd workers to all even ones."""

    def receivers(self, worker: int, iteration: int, workers: int) -> Sequence[int]:
        return range(1 - worker % 2, workers, 2)


class Hypercube(Topology):
    """Every worker sends to all workers whose numbers differ from its own in one bit: a bipartite graph."""

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        bits = range((workers - 1).bit_length())
        return sorted(other for other in (worker ^ 1 << bit for bit in bits) if other < workers)


class Edges(Topology):
    """Any graph: the two ends of each edge send to each other."""

    edges: tuple[tuple[Number, Number], ...] = Field(description="pairs of workers' numbers", examples=[[[0, 1], [1, 2]]])

    @model_validator(mode="after")
    def _no_loops(self) -> "Edges":
        if loops := [left for left, right in self.edges if left == right]:
            raise ValueError(f"`edges` joins worker {loops[0]} with itself; remove it: every worker keeps its own model")
        return self

    @cached_property
    def _neighbours(self) -> dict[int, set[int]]:
        neighbours: dict[int, set[int]] = {}
        for left, right in self.edges:
            neighbours.setdefault(left, set()).add(right)
            neighbours.setdefault(right, set()).add(left)
        return neighbours

    def receivers(self, worker: int, iteration: int, workers: int) -> list[int]:
        if max(self._neighbours, default=0) >= workers:
            raise ValueError(f"`edges` names worker {max(self._neighbours)}; there are {workers}, numbered from 0")
        return sorted(self._neighbours.get(worker, ()))


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
    has_allreduces = False
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
    overlap: Natural = Field(default=0, description="tau: iterations that models may take to arrive; 0: workers wait for them")

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def check(self, cluster: Cluster) -> None:
        try:
            usual_worker = 1 % cluster.size  # not worker 0, which may be the hub of a star
            edges = cluster.size * len(receivers_of(self.topology, usual_worker, 0, cluster.size))
            if is_user_class(type(self.topology)):
                graphs_of(self.topology, cluster.size)
        except ValueError:
            raise
        except Exception as error:  # raised by a user's own class
            place = own_code.line_of(error)
            raise ValueError(f"`topology`: {type(error).__name__}: {error}{place and f' ({place})'}") from error
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
            weights_of_worker = [matrix[worker] for matrix in weights]
            sim.process(work(sim, worker, weights_of_worker, senders, senders.inboxes[worker]))

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
            number = senders.sent[worker]  # of this iteration's model
            own_weights = weights[number % len(weights)]  # by sender, the worker itself included
            senders.send(worker)
            if self.order == "mix-first":
                yield gradient.finished
            yield from inbox.wait(worker, number, len(own_weights))
            yield from sim.present(worker)
            models = inbox.take(number)
            sim.sync(worker, sim.mix(worker, [(models[sender], own_weights[sender]) for sender in sorted(own_weights)]))
            if self.order != "update-first":
                sim.push(gradient, worker, NOTHING)

    def _overlapped(
        self, sim: Simulation, worker: int, weights: list[dict[int, float]], senders: Senders, inbox: Inbox
    ) -> Process:
        def share(number: int, sender: int) -> float:  # the worker's weight of a sender's model of that number
            return weights[number % len(weights)][sender]

        while True:
            for iteration in range(self.overlap):
                gradient = sim.compute(worker, sim.own(worker))
                yield gradient.finished
                sim.push(gradient, worker, NOTHING)
                models = [] if iteration == 0 else [(sim.own(worker), 1.0)]  # `send` puts the worker's model into its inbox
                if iteration == 0:
                    previous = senders.sent[worker] - 1  # number of the models sent tau iterations ago, which must be here now
                    senders.send(worker, share(previous + 1, worker))
                    if previous >= 0:
                        yield from inbox.wait(worker, previous, len(weights[previous % len(weights)]))
                        yield from sim.present(worker)
                arrived = inbox.take_all()
                if arrived:  # the worker's model has been multiplied by its share already
                    models += [(model, 1.0 if sender == worker else share(number, sender)) for number, sender, model in arrived]
                    sim.sync(worker, sim.mix(worker, models))


def check_undirected(graphs: list[Graph], subject: str) -> None:
    """Raise ValueError for graphs in which a worker receives from another without sending back.

    Args:
        graphs: receivers of each worker, for each graph.
        subject: the option or protocol that needs undirected graphs, named in the error.
    """
    for graph in graphs:
        neighbours = [set(receivers) for receivers in graph]
        if any(worker not in neighbours[other] for worker, receivers in enumerate(graph) for other in receivers):
            raise ValueError(f"{subject} needs an undirected topology: each worker sends to every worker that it receives from")


def graphs_of(topology: Topology, workers: int) -> list[Graph]:
    """Return the receivers of each worker, for each iteration of a period.

    Args:
        topology: the graph in each iteration.
        workers: number of workers.

    >>> graphs_of(Ring(), 3)
    [[[1, 2], [0, 2]...
    """
    iterations = range(topology.period(workers))
    return [[receivers_of(topology, worker, iteration, workers) for worker in range(workers)] for iteration in iterations]


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
        equal_share = 1 / (1 + len(receivers))
        result[worker][worker] = equal_share if rule == "column" else 1 - sum(result[worker].values())
    return result
