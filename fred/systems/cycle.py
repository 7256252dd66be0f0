"""Cycle SGD: groups of workers send their sums to the server in turn.

| name    | source                                        |
|---------|-----------------------------------------------|
| cycle   | Birch SGD 2025, arXiv:2505.09218              |
| InTurn  | Cycle SGD of Birch SGD 2025, arXiv:2505.09218 |

Example: four workers that take 0.5 s for each gradient, in two groups that take turns.
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

from typing import ClassVar

from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.components.component import Count
from fred.learning.server import Family, Moved
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Process, Simulation


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
        for number, members in enumerate(groups):
            sim.process(self._group(sim, members, number + 1, len(groups)))

    def _group(self, sim: Simulation, members: range, first: int, steps: int) -> Process:
        """Run the rounds of a group; the first round has `first` steps, the others `steps`."""
        due = first
        while True:
            brought = list[Gradient]()
            turns = [sim.process(self._turn(sim, worker, due, brought)) for worker in members]
            yield from sim.wait(f"the group of worker {members[0]}", sim.env.all_of(turns), "all of it")
            for pseudo_gradient in brought:
                sim.add(pseudo_gradient, sim.workers)
            sim.commit(sim.workers, weight=1.0)
            due = steps

    def _turn(self, sim: Simulation, worker: int, steps: int, brought: list[Gradient]) -> Process:
        yield from sim.present(worker)
        before: Copy = yield from sim.pull(worker, sim.workers)
        yield from sim.present(worker)
        sim.sync(worker, before)
        yield from sim.local_steps(worker, steps)
        pseudo_gradient = sim.pseudo_gradient(worker, before, sim.own(worker))
        yield from sim.send(pseudo_gradient)
        brought.append(pseudo_gradient)
