"""Sums of several workers' gradients: Softsync, k-async, k-batch-async and Cycle SGD.

| name                   | source                                                                 |
|------------------------|------------------------------------------------------------------------|
| softsync-sgd, Softsync | Zhang, Gupta, Lian, Liu 2016, arXiv:1511.05950, section 2              |
| k-async, k-batch-async | Dutta, Joshi, Ghosh, Dube, Nagpurkar 2018, arXiv:1803.01113, section 2 |
| cycle                  | Birch SGD 2025, arXiv:2505.09218                                       |
| InTurn                 | Cycle SGD of Birch SGD 2025, arXiv:2505.09218                          |

In Softsync, k-async and k-batch-async SGD, each update averages a number of gradients of any staleness: a minute in which three
workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "gradients_applied", "staleness_mean"]].round(2).iloc[0].tolist()
    >>> measured(name="softsync", n=1)
    [96.0, 384.0, 0.74]
    >>> measured(name="softsync", n=4)
    [386.0, 386.0, 2.96]

In Cycle SGD, groups of workers send their sums to the server in turn: four workers that take 0.5 s for each gradient, in two
groups that take turns.
    >>> import fred
    >>> scenario = fred.scenario({
    ...     "cluster": {"workers": 4, "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "protocol": {"name": "in-turn", "group_size": 2},
    ...     "algorithm": {"name": "cycle", "learning_rate": 0.1},
    ... })
    >>> fred.run(scenario).summary[["gradients_applied", "messages_to_servers"]].iloc[0].tolist()
    [476, 238]
"""

from functools import partial
from typing import ClassVar, Literal

import simpy
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.components.component import Count
from fred.learning.server import Family, Moved, Server
from fred.protocols.protocol import Central, Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Process, Simulation


class SoftsyncSGD(Server):
    """n-softsync SGD: each update averages the next floor(workers / n) gradients, whatever their staleness."""

    name = "softsync-sgd"
    family = Family.AS_THEY_COME
    rule = "w <- w - step(mean of the last c g)    (c = floor(workers / n))"
    protocol = "softsync"


class KAsync(Server):
    """k-async SGD: each update averages the next gradients of k different workers, whatever their staleness."""

    name = "k-async"
    family = Family.AS_THEY_COME
    rule = "w <- w - step(mean of the last k g, of k workers)"
    protocol = "softsync"
    protocol_options = {"afterwards": "wait"}


class KBatchAsync(Server):
    """k-batch-async SGD: each update averages the next k gradients from any workers, whatever their staleness."""

    name = "k-batch-async"
    family = Family.AS_THEY_COME
    rule = "w <- w - step(mean of the last k g)"
    protocol = "softsync"


class Softsync(Central):
    """A server updates with the mean of the next c = floor(workers / n) gradients that arrive, from any workers.

    After a push a worker continues at once with the servers' parameters, so the mean staleness is about n. With
    `afterwards: wait` it waits for the update with its gradient [Odena 2016, section 3]. With n = 1, waiting gives synchronous
    SGD; with n = the number of workers, both are asynchronous. `gradients: k` replaces c: waiting gives k-async, not waiting
    k-batch-async [Dutta et al. 2018, arXiv:1803.01113].
    """

    name = "softsync"
    faults: ClassVar[str] = (
        "A returning worker reads the newest model; a round takes the available workers, and waits if they are too few."
    )

    n: Count = Field(
        default=1,
        description="number of updates in the time in which each worker computes one gradient; 1: one update per round",
        examples=[2],
    )
    gradients: Count | None = Field(default=None, description="k: gradients in each update, instead of floor(workers / n)")
    afterwards: Literal["go-on", "wait"] = Field(
        default="go-on", description="what a worker does when its gradient has arrived"
    )

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        if self.gradients and self.n > 1:
            raise ValueError("`n` and `gradients` both set the number of gradients in an update; give one of them")
        if self.gradients and self.afterwards == "wait" and self.gradients > cluster.size:
            raise ValueError(
                f"`gradients` ({self.gradients}) must not exceed the number of workers ({cluster.size}), each of which waits "
                "after one: take fewer, or `afterwards: go-on`"
            )
        if self.n > cluster.size:
            raise ValueError(f"`n` ({self.n}) must not exceed the number of workers ({cluster.size})")
        if self.clocks == "each" and self.afterwards == "wait" and 1 < self._gradients_per_update(cluster.size) < cluster.size:
            raise ValueError(
                "with `clocks: each`, workers that wait for each server's round may all wait for each other: take "
                "`afterwards: go-on`"
            )

    def start(self, sim: Simulation) -> None:
        servers = [_Server(sim, block, self._gradients_per_update(sim.workers)) for block in range(sim.blocks)]
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, worker, servers))

    def _gradients_per_update(self, workers: int) -> int:
        """Return the number of gradients in each update."""
        return self.gradients or workers // self.n

    def _work(self, sim: Simulation, worker: int, servers: "list[_Server]") -> Process:
        """Compute one gradient after the other, and send each to all servers; wait for its updates, with `wait`."""
        updates: list[simpy.Event] = []

        def accept(gradient: Gradient, block: int) -> None:
            updates.append(servers[block].accept(gradient))

        fetch, compute, deliver = self.fetch, self.compute, self.deliver
        while True:
            updates.clear()
            model = yield from fetch(sim, worker)
            gradient = yield from compute(sim, worker, model)
            yield from deliver(sim, gradient, accept)
            del model, gradient  # or they would be held until the next ones are there
            for update in updates if self.afterwards == "wait" else ():
                if not update.triggered:
                    yield from sim.wait(worker, update, f"{self._gradients_per_update(sim.workers)} gradients to arrive")


class _Server:
    """A server of a block, which updates when it has enough gradients."""

    def __init__(self, sim: Simulation, block: int, gradients_per_update: int):
        self._sim, self._block, self._gradients_per_update = sim, block, gradients_per_update
        self._arrived = 0  # in the open round
        self._update = sim.env.event()

    def accept(self, gradient: Gradient) -> simpy.Event:
        """Accept one more gradient; return the event of the update with it."""
        update = self._update
        if self._gradients_per_update == 1:  # asynchronous SGD, whose updates are no rounds
            self._sim.push(gradient, block=self._block)
        else:
            self._sim.add(gradient, block=self._block)
        self._arrived += 1
        if self._arrived == self._gradients_per_update:
            if self._gradients_per_update > 1:
                self._sim.commit(block=self._block)
            self._arrived, self._update = 0, self._sim.env.event()
            update.succeed()  # the event that was returned for all gradients of this round
        return update


class CycleSGD(Moved):
    """Local SGD in turns: one group of workers at a time synchronizes with the server, the others keep computing."""

    name = "cycle"
    family = Family.AS_THEY_COME
    rule = """\
w_i <- w_i - step(g_i)           (all the time)
w <- w - sum over a group of (w when it was read - w_i);  w_i <- w    (one group after the other)"""
    protocol = "in-turn"


class InTurn(Protocol):
    """Workers make local steps; groups of s workers take turns to send their pseudo-gradients and read the server model.

    The k-th group first sends after k steps, and later after as many steps as there are groups. Workers wait for the others of
    their group only. So at most s workers send at once if all are about equally fast. With a single group it is synchronous
    SGD with sums instead of means.
    """

    name = "in-turn"
    faults: ClassVar[str] = "A worker keeps its model, and computes the lost gradient again; its group waits for it."

    group_size: Count | None = Field(
        default=None,
        description="s: workers in a group; the last group may be smaller; absent: the square root of the number of workers",
    )

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.centred(cluster.size)

    def start(self, sim: Simulation) -> None:
        size = self.group_size or max(1, round(sim.workers**0.5))
        groups = [range(first, min(first + size, sim.workers)) for first in range(0, sim.workers, size)]
        for turn, members in enumerate(groups):
            sim.process(self._run_group(sim, members, first_steps=turn + 1, later_steps=len(groups)))

    def _run_group(self, sim: Simulation, members: range, first_steps: int, later_steps: int) -> Process:
        """Run the rounds of a group, with `first_steps` in the first round and `later_steps` in the others."""
        steps = first_steps
        while True:
            pseudo_gradients = list[Gradient]()
            turns = [sim.process(self._turn(sim, worker, steps, pseudo_gradients)) for worker in members]
            yield from sim.wait(f"the group of worker {members[0]}", sim.env.all_of(turns), "all of it")
            for pseudo_gradient in pseudo_gradients:
                sim.add(pseudo_gradient, sim.global_replica)
            sim.commit(sim.global_replica, weight=1.0)
            steps = later_steps

    def _turn(self, sim: Simulation, worker: int, steps: int, pseudo_gradients: list[Gradient]) -> Process:
        """Make a worker's local steps of one round, and add their pseudo-gradient to those that have arrived."""
        yield from sim.present(worker)
        start_model: Copy = yield from sim.pull(worker, sim.global_replica)
        yield from sim.present(worker)
        sim.sync(worker, start_model)
        yield from sim.local_steps(worker, steps)
        pseudo_gradient = sim.pseudo_gradient(worker, start_model, sim.own(worker))
        yield from sim.send(pseudo_gradient)
        pseudo_gradients.append(pseudo_gradient)
