"""FRED's dispatcher [Odena 2016, section 3]: a selection rule draws the next worker, without a clock.

Example: the four workers' gradients arrive in random order, and no virtual time passes.
    >>> import fred
    >>> scenario = fred.scenario({
    ...     "cluster": {"workers": 4},
    ...     "stop": {"updates": 10},
    ...     "protocol": "dispatcher",
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... })
    >>> schedule = fred.run(scenario).outcomes[0].schedule
    >>> pushes = schedule.rows(fred.Verb.PUSH)
    >>> schedule["worker"][pushes].tolist(), schedule["staleness"][pushes].tolist(), schedule.end_ns
    ([0, 3, 0, 0, 0, 0, 3, 1, 2, 1], [0, 1, 1, 0, 0, 0, 4, 7, 8, 1], 0)
"""

from typing import Annotated

from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.components.one_of import OneOf
from fred.protocols.gates import Gates
from fred.protocols.selection import Selection, Uniform
from fred.timing.copies import Copy
from fred.timing.simulation import Process, Simulation


class Dispatcher(Gates):
    """One worker after another is selected, pushes the gradient at its copy of the parameters, and gets a new copy.

    The compute times and the network of the cluster are not used: only the order of events matters. Pushes and fetches
    pass through the gates of `gated`, which are open by default.
    """

    name = "dispatcher"

    has_clock = False

    selection: Annotated[Selection, OneOf("selection")] = Field(
        default=Uniform(), description="rule that draws the next worker"
    )

    def check(self, cluster: Cluster) -> None:
        self.selection.check(cluster)

    def start(self, sim: Simulation) -> None:
        sim.process(self._dispatch(sim))

    def _dispatch(self, sim: Simulation) -> Process:
        workers, models = range(sim.workers), dict[int, Copy]()
        ways, outboxes = [self.fetches(sim, worker) for worker in workers], [self.pushes(sim, worker) for worker in workers]

        def fetch(worker: int) -> None:
            model = models.get(worker)
            passes = ways[worker].passes(model)
            models[worker] = sim.read(worker) if passes or model is None else self.unfetched(sim, model)

        for worker in workers:
            fetch(worker)
        for worker in self.selection.choices(sim.seed, sim.workers):
            gradient = sim.compute(worker, models[worker], duration=0)
            yield gradient.finished
            outboxes[worker].update(outboxes[worker].put(gradient, outboxes[worker].sends(gradient)))
            fetch(worker)
