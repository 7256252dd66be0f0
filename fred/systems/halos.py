"""HALoS: local servers near the workers, and a global server above them.

| name                | source                                                                                             |
|---------------------|----------------------------------------------------------------------------------------------------|
| halos, LocalServers | Kim et al. 2025, "HALoS: hierarchical asynchronous local SGD over slow networks", arXiv:2506.04531 |

Example: a minute of two regions with two workers and a local server each; gradients take 0.5 s.
    >>> import fred
    >>> regions = {"bandwidth": [[1e9, 1e6], [1e6, 1e9]], "servers": [0, 1, 0]}
    >>> scenario = fred.scenario({
    ...     "cluster": {
    ...         "workers": 4,
    ...         "servers": 3,
    ...         "compute": {"name": "constant", "seconds": 0.5},
    ...         "network": {"regions": regions, "message_bytes": 1_000_000},
    ...     },
    ...     "stop": {"seconds": 60.0},
    ...     "protocol": {"name": "local-servers", "period": 8, "pushes": 4},
    ...     "algorithm": {"name": "halos", "learning_rate": 0.1},
    ... })
    >>> fred.run(scenario).summary[["gradients_applied", "messages_to_servers", "messages_to_workers"]].iloc[0].tolist()
    [476, 70, 74]
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field

from fred.base.imports import jnp
from fred.cluster.cluster import Cluster
from fred.components.component import Count
from fred.learning.server import Decay, Family, Rate, State
from fred.protocols.local_steps import Paced
from fred.schedule.layout import Layout
from fred.systems.delayed_nesterov import DelayedNesterov
from fred.timing.copies import Gradient
from fred.timing.simulation import Process, Simulation


class HALoS(DelayedNesterov):
    """Hierarchical asynchronous local SGD: delayed Nesterov momentum on local servers, and on a global server above them.

    A pseudo-gradient of 1 moves the models of two local servers by 3.2 / 16, and that of the global server by 0.3 / 2:

        >>> from fred.systems.halos import HALoS
        >>> import jax.numpy as jnp
        >>> server = HALoS(learning_rate=0.1)
        >>> state = server.init({"w": jnp.array([1.0])}, workers=2)
        >>> states = [server.place(state, replica, replicas=5) for replica in range(5)]
        >>> moved = [server.apply_round(state, {"w": jnp.array([1.0])}, timestamp=0, count=1) for state in states]
        >>> [round(float(state.params["w"][0]), 2) for state in moved[2:]]
        [0.8, 0.8, 0.85]
    """

    name = "halos"
    family = Family.ANSWERED
    rule = """\
w_i <- w_i - step(g_i)                   (H times, from w_s on; s: the worker's server)
w_s <- delayed Nesterov step of (w_s when it was read - w_i)
w <- delayed Nesterov step of (w_s when it was last mixed - w_s)    (after K of these)
w_s <- (1 - a) w_s + a w                 (when w has come)"""
    protocol = "local-servers"

    outer_rate: Rate = Field(default=3.2, description="learning rate of local servers")
    gathered: Count | None = Field(
        default=16, description="N: pseudo-gradients per update of a local server's momentum; absent: the number of workers"
    )
    global_rate: Rate = Field(default=0.3, description="learning rate of the global server")
    global_momentum: Decay = Field(default=0.5, description="mu: decay of the global server's momentum")
    global_gathered: Count = Field(default=2, description="N: pseudo-gradients per update of the global server's momentum")

    def _numbers(self, workers: int) -> tuple[int, ...]:
        return (self.gathered or workers, self.global_gathered)

    def place(self, state: State, /, replica: int, replicas: int) -> State:
        """Return the state of a replica: the last one of all `replicas` has the global constants."""
        if replica < replicas - 1:
            return state
        constants = {"every": jnp.int32(self.global_gathered), "outer_rate": jnp.float32(self.global_rate)}
        return state.replace(**constants, momentum=jnp.float32(self.global_momentum))


class LocalServers(Paced):
    """Workers send pseudo-gradients of H steps to a local server; local servers send theirs to a global server.

    After K pseudo-gradients a local server sends the change of its model to the global server, the last one. The global model
    comes back and is mixed with the local one. In the meantime the local server serves its workers; these changes are never
    sent to the global server. A worker's local server is the first one in its region; without regions, workers are divided
    equally. A single server is both. Messages between servers count as messages to and from servers.
    """

    name = "local-servers"

    faults = "A returning worker starts from its server's model, and its unsent work is lost; no worker waits."

    paced: bool = Field(
        default=True, description="whether slower workers make fewer updates: H x speed / largest speed, rounded up"
    )
    pushes: Count = Field(
        default=32, description="K: pseudo-gradients that a local server applies before it sends the change of its model"
    )
    mixing: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.25, description="a: weight of the global model when a local server mixes it with its own"
    )

    def check(self, cluster: Cluster) -> None:
        if None in _local_servers(cluster):
            raise ValueError("needs a server in each worker's region, besides the last one: see `network.regions.servers`")

    def layout(self, cluster: Cluster) -> Layout:
        workers, replicas = cluster.size, cluster.size + _count_local(cluster) + 1
        return Layout(replicas, range(replicas - 1, replicas), range(workers, replicas))

    def start(self, sim: Simulation) -> None:
        server_of_workers, updates = _local_servers(sim.cluster), self.updates(sim.cluster)
        numbers = {number for number in server_of_workers if number is not None}
        servers = {number: _LocalServer(sim, self, number, server_of_workers) for number in numbers}
        for worker, number in enumerate(server_of_workers):
            assert number is not None  # `check` refuses it
            sim.work(worker, partial(self._work, sim, worker, servers[number], updates[worker]))

    def _work(self, sim: Simulation, worker: int, server: _LocalServer, steps: int) -> Process:
        while True:
            start_model = yield from sim.pull(worker, server.replica, server=server.number)
            sim.sync(worker, start_model)
            yield from sim.local_steps(worker, steps)
            pseudo_gradient = sim.pseudo_gradient(worker, start_model, sim.own(worker))
            yield from sim.send(pseudo_gradient, server=server.number)
            sim.add(pseudo_gradient, server.replica)
            sim.commit(server.replica, weight=1.0)
            server.count_push(worker)


class _LocalServer:
    """A local server, which exchanges models with the global server on behalf of one of its available workers."""

    def __init__(self, sim: Simulation, protocol: LocalServers, number: int, server_of_workers: list[int | None]):
        self._sim, self.number, self.replica = sim, number, sim.workers + number
        self._global_server, self._global_replica = sim.servers - 1, sim.workers + _count_local(sim.cluster)
        self._workers = [worker for worker, server in enumerate(server_of_workers) if server == number]
        self._every, self._mixing = protocol.pushes, protocol.mixing
        self._mixed = sim.read(self._workers[0], self._global_replica, sent=False)  # its model when it was last mixed
        self._pushes = 0  # since then

    def count_push(self, worker: int) -> None:
        """Count one more pseudo-gradient, from this worker; after K, start an exchange."""
        self._pushes += 1
        if self._pushes == self._every:
            model = self._sim.read(worker, self.replica, sent=False)
            self._sim.process(self._exchange(self._sim.pseudo_gradient(worker, before=self._mixed, after=model)))

    def _exchange(self, pseudo_gradient: Gradient) -> Process:
        sim, global_replica = self._sim, self._global_replica
        yield from sim.send_between(pseudo_gradient, self.number, self._global_server)
        sim.add(pseudo_gradient, global_replica)
        sim.commit(global_replica, weight=1.0)
        worker = yield from self._representative()
        model = yield from sim.pull_between(worker, global_replica, self._global_server, self.number)
        worker = yield from self._representative()
        sim.sync(worker, model, keep=1 - self._mixing, weight=self._mixing, replica=self.replica)
        mixed = sim.read(worker, self.replica, sent=False)
        # With the age of what has come: a mixture is as old as its first part.
        self._mixed, self._pushes = sim.mix(worker, [(model, 0.0), (mixed, 1.0)]), 0

    def _representative(self) -> Process:
        """Return an available worker; if all are offline, the first that rejoins."""
        sim = self._sim
        worker = min(self._workers, key=lambda worker: sim.back(worker, sim.now))
        yield from sim.present(worker)
        return worker


def _count_local(cluster: Cluster) -> int:
    """Return the number of local servers: all but the last, or the only one."""
    return max(1, cluster.servers - 1)


def _local_servers(cluster: Cluster) -> list[int | None]:
    """Return the local server of each worker: the first one in its region, or None."""
    local, workers = _count_local(cluster), cluster.size
    if cluster.network is None or cluster.network.regions is None:
        return [worker * local // workers for worker in range(workers)]
    regions = cluster.network.regions
    region_of_servers = regions.of_servers(cluster.servers)[:local]
    return [region_of_servers.index(region) if region in region_of_servers else None for region in regions.of_workers(workers)]
