"""Synchronous gossip: D-PSGD, SGP and CHOCO-SGD.

| name             | source                                                                    |
|------------------|---------------------------------------------------------------------------|
| choco-sgd, choco | Koloskova, Stich, Jaggi 2019, arXiv:1902.00340, algorithm 2               |
| d-psgd           | Lian, Zhang, Zhang, Hsieh, Zhang, Liu 2017, arXiv:1705.09056, algorithm 1 |
| sgp              | Assran, Loizou, Ballas, Rabbat 2019, arXiv:1811.10792, algorithm 1        |

D-PSGD: a worker at 1, whose only neighbour is at 3; it averages, then steps with its gradient of 2 at rate 0.5:
    >>> import fred
    >>> import jax.numpy as jnp
    >>> server = fred.Server(learning_rate=0.5)
    >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
    >>> state = server.synchronize(state, {"w": jnp.array([3.0])}, keep=0.5, weight=0.5)
    >>> server.apply_update(state, {"w": jnp.array([2.0])}, timestamp=0, worker=0).params["w"].tolist()
    [1.0]

CHOCO-SGD sends compressed changes of models: a ring of four workers at 1 kB/s; changes of 2.6 kB without codec, and with 16
bits per number.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "compute": {"name": "constant", "seconds": 0.5}, "network": {"bandwidth": 1e3}},
    ...     "task": {"data": "digits", "model": "softmax", "batch_size": 8},
    ...     "stop": {"updates": 400},
    ... }
    >>> for codec in (None, "float"):
    ...     algorithm = {"name": "choco-sgd", "learning_rate": 0.1, "codec": codec}
    ...     summary = fred.run(fred.scenario(settings, algorithm=algorithm)).summary
    ...     summary[["virtual_seconds", "bytes_between_workers"]].iloc[0].tolist()
    [282.4, 1034800.0]
    [153.7, 517400.0]
"""

from __future__ import annotations

from itertools import count
from typing import Annotated, ClassVar

from pydantic import Field

from fred.base.imports import jax, jnp
from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components.one_of import OneOf
from fred.learning.models.model import Params
from fred.learning.server import Family, Message, Scalar, Server, State
from fred.protocols.gossip import Inbox, Ring, Topology, check_undirected, graphs_of, weights_of
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.simulation import Process, Simulation


class DPSGD(Server):
    """Decentralized SGD: each worker averages its model with its neighbours', and steps with its own gradient."""

    name = "d-psgd"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
w_i <- sum over j of W_ij w_j    (W: the protocol's weights, not 0 for neighbours and itself)"""
    protocol = "gossip"
    protocol_options = {"order": "mix-first"}


class SGP(Server):
    """Stochastic gradient push: push-sum gossip of models x and weights w; each worker steps x with its gradient at x / w.

    Weight decay applies to z = x / w as well, because it is part of the loss.

    Sending half of x and w away leaves z unchanged; with w = 1/2, a step of x by 1 moves z by 2:

        >>> from fred.systems.decentralized import SGP
        >>> import jax.numpy as jnp
        >>> sgp = SGP(learning_rate=1.0)
        >>> state = sgp.init({"bias": jnp.array([4.0])}, workers=2)
        >>> half = {"x": {"bias": jnp.array([2.0])}, "w": jnp.float32(0.5)}
        >>> sgp.model(half)["bias"].tolist()
        [4.0]
        >>> after = sgp.apply_update(state.replace(params=half), {"bias": jnp.array([1.0])}, timestamp=0, worker=0)
        >>> after.params["x"]["bias"].tolist(), sgp.model(after.params)["bias"].tolist()
        ([1.0], [2.0])
    """

    name = "sgp"
    family = Family.AVERAGED
    rule = """\
x_i <- x_i - step(g_i)    (g_i at z_i = x_i / w_i)
x_i <- sum over j of P_ij x_j
w_i <- sum over j of P_ij w_j"""
    protocol = "gossip"
    protocol_options = {"topology": {"name": "exponential"}}  # the graph of the paper's experiments

    divisible: ClassVar[bool] = False

    def init(self, params: Params, /, workers: int) -> State:
        """Return the state of one of `workers` before its first update: x is `params`, and w = 1."""
        state = super().init(params, workers)
        return state.replace(params={"x": params, "w": jnp.float32(1.0)})

    def model(self, params: Params, /) -> Params:
        """Return z = x / w, of `params` {"x": like the model, "w": []}."""
        return jax.tree.map(lambda x: x / params["w"], params["x"])

    def apply_update(self, state: State, grads: Params, /, timestamp: Scalar, worker: Scalar) -> State:
        """Step x with `grads`, like the model, which were computed at z; w stays as it is."""
        stepped = self.step(state.replace(params=state.params["x"]), grads, model=self.model(state.params))
        return stepped.replace(params={"x": stepped.params, "w": state.params["w"]})


class ChocoSGD(Server):
    """D-PSGD with compressed messages: workers send changes of their models, and carry compression errors over to the next.

    Each worker has a public copy of its model, the sum of all changes it has sent, which its neighbours store as well.

        >>> from fred.systems.decentralized import ChocoSGD
        >>> import jax.numpy as jnp
        >>> choco = ChocoSGD(learning_rate=0.5)
        >>> copy = choco.init({"w": jnp.array([1.0])}, workers=2)
        >>> choco.apply_round(copy, {"w": jnp.array([-0.25])}, timestamp=0, count=1).params["w"].tolist()
        [1.25]
    """

    name = "choco-sgd"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
h_i <- h_i + code(w_i - h_i)                        (sent; i and its neighbours store h_i)
w_i <- w_i + gamma (sum over j of W_ij (h_j - h_i))"""
    protocol = "choco"

    def apply_round(self, state: State, total: Message, /, timestamp: Scalar, count: Scalar) -> State:
        """Subtract `total`, the compressed error of a worker's public copy."""
        return state.replace(params=jax.tree.map(jnp.subtract, state.params, total), clock=state.clock + 1)


class ChocoGossip(Protocol):
    """Each worker sends its neighbours the compressed change of its model, and mixes the public copies of their models.

    A worker's public copy is the sum of all messages it has sent; its neighbours store it, too. After an update a worker sends
    its model less its public copy, and waits for its neighbours' messages. Then its model moves by `consensus` x the weighted
    sum of (the neighbour's public copy - its own). The weights are Metropolis's: 1 / (1 + the larger of both degrees).
    """

    name = "choco"
    has_allreduces = False
    faults: ClassVar[str] = (
        "A worker keeps its model and received models, and computes the lost gradient again; its neighbours wait, then theirs."
    )

    topology: Annotated[Topology, OneOf("topology")] = Field(
        default=Ring(), description="undirected graph of the neighbours, the same in all iterations"
    )
    consensus: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5, description="gamma: step size of the mixing; smaller for stronger compression"
    )

    def layout(self, cluster: Cluster) -> Layout:
        """Return the layout: each worker's model, then each worker's public copy."""
        return Layout(2 * cluster.size, range(cluster.size), range(0))

    def check(self, cluster: Cluster) -> None:
        if self.topology.period(cluster.size) > 1:
            raise ValueError(
                "`topology` changes from iteration to iteration; expected a constant graph: neighbours need all messages"
            )
        check_undirected(graphs_of(self.topology, cluster.size), "this protocol")

    def start(self, sim: Simulation) -> None:
        (graph,) = graphs_of(self.topology, sim.workers)
        inboxes = [Inbox(sim) for _ in graph]
        for worker, weights in enumerate(weights_of(graph, "metropolis")):
            sim.process(self._work(sim, worker, graph[worker], weights, inboxes))

    def _work(
        self, sim: Simulation, worker: int, receivers: list[int], weights: dict[int, float], inboxes: list[Inbox]
    ) -> Process:
        public_copy = sim.workers + worker  # number of its replica
        for iteration in count():
            yield from sim.present(worker)
            gradient = sim.compute(worker, sim.own(worker))
            yield gradient.finished
            sim.push(gradient, worker, NOTHING)
            change = sim.pseudo_gradient(worker, sim.read(worker, public_copy, sent=False), sim.own(worker))
            sim.add(change, public_copy, NOTHING)
            sim.commit(public_copy)
            # What is sent is the coded change; in the schedule, the copy that results at the receiver.
            own_copy = sim.publish(worker, len(receivers), size=sim.sizes.message.total, replica=public_copy)
            for receiver in receivers:
                inboxes[receiver].expect(sim.transfer(worker, receiver), iteration, worker, own_copy)
            yield from inboxes[worker].wait(worker, iteration, len(receivers))
            yield from sim.present(worker)
            copies = inboxes[worker].take(iteration) if receivers else {}
            # The sum over j of W_ij (h_j - h_i); weights sum to 1.
            own_weight = weights[worker] - 1.0
            parts = [(copies[other], weights[other]) for other in sorted(copies)]
            sim.sync(worker, sim.mix(worker, [(own_copy, own_weight), *parts]), keep=1.0, weight=self.consensus)
