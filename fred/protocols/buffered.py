"""Workers with models of their own, and one more on a server, which pseudo-gradients move.

| class    | source                                                                                                     |
|----------|------------------------------------------------------------------------------------------------------------|
| Buffered | Nguyen et al. 2022, "FedBuff", arXiv:2106.06639, algorithm 1; Wang et al. 2024, "FADAS", arXiv:2407.18365; |
|          | `paced`: Liu et al. 2024, "Asynchronous local-SGD training", arXiv:2401.09135                              |

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s; no message is ever waited for.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "fedbuff", "learning_rate": 0.1},
    ... }
    >>> def told(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "messages_to_servers", "messages_to_workers"]].iloc[0].tolist()
    >>> told(name="buffered", period=4)
    [386, 94, 98]
    >>> told(name="buffered", period=4, paced=True)
    [386, 116, 120]
"""

from functools import partial
from itertools import count
from typing import Annotated, ClassVar

import simpy
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.durations import NANOSECONDS
from fred.cluster.network import NOTHING
from fred.components.component import Count
from fred.protocols.pacing import Paced
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Copy
from fred.timing.simulation import Process, Simulation


class Centred(Protocol):
    """The server model is the replica behind the workers' own."""

    faults: ClassVar[str] = (
        "A returning worker starts from the server model, and what it had not sent is lost; no worker waits."
    )

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.centred(cluster.size)

    def start(self, sim: Simulation) -> None:
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, worker))

    def _work(self, sim: Simulation, worker: int) -> Process:
        raise NotImplementedError

    def _fetch(self, sim: Simulation, worker: int) -> Process:
        """Fetch the server's model, which becomes the worker's own, and return it."""
        model = yield from sim.pull(worker, sim.workers)
        sim.sync(worker, model)
        return model

    def _step(self, sim: Simulation, worker: int, model: Copy) -> Process:
        """Update the worker's own model with a gradient at this one."""
        gradient = sim.compute(worker, model)
        yield gradient.finished
        sim.push(gradient, worker, NOTHING)


class Buffered(Centred, Paced):
    """A worker makes H steps from the server model and sends their pseudo-gradient; the mean of M of these moves that model.

    No worker waits: a worker that has sent its pseudo-gradient starts again from the current server model. All workers are
    always at work. `paced` is DyLU of Liu et al. 2024, by mean speeds, contention left out: the fastest worker makes H steps,
    all take about as long. `grace` is an oracle, as in that paper's simulator: who waits for nobody has not waited, its first
    step began at once.
    """

    period: Count = Field(4, description="H: updates of each worker before it sends what they have changed")
    buffer: Count = Field(4, description="M: pseudo-gradients in each update of the server model, whichever workers sent them")
    grace: Annotated[float, Field(gt=0)] | None = Field(
        None, description="seconds after somebody's difference in which others' may come: all of them start with the last's"
    )

    def start(self, sim: Simulation) -> None:
        arrived = count(1)
        company = None if self.grace is None else _Company(sim, round(self.grace * NANOSECONDS))
        for worker, steps in enumerate(self.updates(sim.cluster)):
            sim.work(worker, partial(self._turns, sim, worker, steps, arrived, company))

    def _turns(self, sim: Simulation, worker: int, steps: int, arrived: "count[int]", company: "_Company | None") -> Process:
        waited = 0
        while True:
            before: Copy = yield from self._fetch(sim, worker)
            for step in range(steps):
                if step == 0 and company:
                    yield from self._step_begun(sim, worker, waited)
                else:
                    yield from self._step(sim, worker, sim.own(worker))
            difference = sim.difference(worker, before, sim.own(worker))
            yield from sim.send(difference)
            sim.add(difference, sim.workers)
            if next(arrived) % self.buffer == 0:
                sim.commit(sim.workers)
            if company:
                waited = yield from company.join(worker)

    def _step_begun(self, sim: Simulation, worker: int, done: int) -> Process:
        """Make an update of which so much is done, ns, as far as that is less than it takes."""
        duration = sim.duration(worker)
        gradient = sim.begin(worker, sim.own(worker), duration, min(done, duration))
        yield gradient.end - sim.now
        sim.push(gradient, worker, NOTHING)


class _Company:
    """Who starts together. When the last of them has come is known only when the time of grace is over: an oracle."""

    def __init__(self, sim: Simulation, grace: int):
        self._sim, self._grace = sim, grace
        self._complete: simpy.Event | None = None
        self._last = 0  # when somebody came, ns

    def join(self, worker: int) -> Process:
        """Wait until nobody more can come; return how long ago the last one came, ns."""
        self._last = self._sim.now
        if self._complete is None:
            self._complete = self._sim.env.event()
            self._sim.later(self._grace, self._end)
        yield from self._sim.wait(worker, self._complete, "others to start with")
        return self._sim.now - self._last

    def _end(self) -> None:
        complete, self._complete = self._complete, None
        assert complete is not None
        complete.succeed()
