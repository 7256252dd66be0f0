"""Local steps on models of the workers' own; their pseudo-gradients update a server model asynchronously.

| class    | source                                                                                                     |
|----------|------------------------------------------------------------------------------------------------------------|
| Buffered | Nguyen et al. 2022, "FedBuff", arXiv:2106.06639, algorithm 1; Wang et al. 2024, "FADAS", arXiv:2407.18365; |
|          | `paced`: Liu et al. 2024, "Asynchronous local-SGD training", arXiv:2401.09135                              |

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s; messages take no time.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "fedbuff", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "messages_to_servers", "messages_to_workers"]].iloc[0].tolist()
    >>> measured(name="buffered", period=4)
    [386, 94, 98]
    >>> measured(name="buffered", period=4, paced=True)
    [386, 116, 120]
"""

from functools import partial
from itertools import count
from typing import Annotated, Any, ClassVar, Self

import simpy
from pydantic import Field, model_validator

from fred.base import numerics
from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components.component import NANOSECONDS, Count, Natural
from fred.protocols.local_steps import Paced
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.copies import Copy
from fred.timing.simulation import Process, Simulation


class Centred(Protocol):
    """A protocol with a model for each worker and a server model, which is the last replica."""

    faults: ClassVar[str] = "A returning worker starts from the server model, and its unsent work is lost; no worker waits."

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.centred(cluster.size)

    def start(self, sim: Simulation) -> None:
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, worker))

    def _work(self, sim: Simulation, worker: int) -> Process:
        raise NotImplementedError

    def _fetch(self, sim: Simulation, worker: int) -> Process:
        """Fetch the server model, copy it into the worker's own model, and return it."""
        model = yield from sim.pull(worker, sim.global_replica)
        sim.sync(worker, model)
        return model

    def _step(self, sim: Simulation, worker: int, model: Copy) -> Process:
        """Update the worker's own model with a gradient computed at `model`."""
        gradient = sim.compute(worker, model)
        yield gradient.finished
        sim.push(gradient, worker, NOTHING)


class Buffered(Centred, Paced):
    """A worker makes H steps from the server model and sends their pseudo-gradient; the mean of M of these moves that model.

    No worker waits: a worker that has sent its pseudo-gradient starts again from the current server model. `paced` is DyLU
    of Liu et al. 2024: the fastest worker makes H steps, slower ones fewer, so that all take about as long. It uses mean
    speeds, without contention.

    FedBuff's server lets only some clients work at once, its `concurrency`. When one of them is done, the server draws the
    next one from all that do not work, uniformly.

    With `grace`, workers whose pseudo-gradients arrive within that time of the first one start again together. As in that
    paper's simulator this is an oracle: the members' first steps count as begun when the last member arrived. So a worker
    without company loses no time, unless its step takes less than the grace time.
    """

    name = "buffered"

    period: Count = Field(default=4, description="H: updates of each worker before it sends their pseudo-gradient")
    buffer: Count = Field(default=4, description="M: pseudo-gradients in each update of the server model, from any workers")
    grace: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="seconds to wait for others after a pseudo-gradient arrives; those workers start together"
    )
    concurrency: Count | None = Field(default=None, description="largest number of workers at work at once; absent: all")
    max_staleness: Natural | None = Field(
        default=None,
        description="updates of the server model after which a pseudo-gradient is dropped; absent: none is dropped",
    )

    @model_validator(mode="after")
    def _start_together_or_in_turn(self) -> Self:
        if self.grace is not None and self.concurrency is not None:
            raise ValueError("`grace` lets workers start together, `concurrency` in turn: give one of them")
        return self

    def check(self, cluster: Cluster) -> None:
        if (self.concurrency or 0) > cluster.size:
            raise ValueError(f"`concurrency` ({self.concurrency}) must be at most the number of workers ({cluster.size})")

    def start(self, sim: Simulation) -> None:
        arrivals = count(1)  # of pseudo-gradients from all workers
        group = None if self.grace is None else _StartingGroup(sim, round(self.grace * NANOSECONDS))
        places = None if self.concurrency is None else _Places(sim, self.concurrency)
        for worker, steps in enumerate(self.updates(sim.cluster)):
            turns = partial(self._turns, sim, worker, steps, arrivals, group, places)
            if places:
                sim.work(worker, turns, partial(places.leave, worker))
            else:
                sim.work(worker, turns)

    def _turns(
        self,
        sim: Simulation,
        worker: int,
        steps: int,
        arrivals: "count[int]",
        group: "_StartingGroup | None",
        places: "_Places | None",
    ) -> Process:
        elapsed = 0  # ns since the last member of the worker's starting group arrived
        while True:
            if places:
                yield from places.take(worker)
            start_model: Copy = yield from self._fetch(sim, worker)
            for step in range(steps):
                if step == 0 and group:
                    yield from self._finish_step(sim, worker, elapsed)
                else:
                    yield from self._step(sim, worker, sim.own(worker))
            pseudo_gradient = sim.pseudo_gradient(worker, start_model, sim.own(worker))
            yield from sim.send(pseudo_gradient)
            if self.max_staleness is not None and sim.clock(sim.global_replica) - start_model.timestamp > self.max_staleness:
                sim.drop(pseudo_gradient, sim.global_replica)
            else:
                sim.add(pseudo_gradient, sim.global_replica)
                if next(arrivals) % self.buffer == 0:
                    sim.commit(sim.global_replica)
            if group:
                elapsed = yield from group.join(worker)
            if places:
                places.leave(worker)

    def _finish_step(self, sim: Simulation, worker: int, elapsed: int) -> Process:
        """Make an update that began `elapsed` ns ago; one that takes no longer than that ends at once."""
        duration = sim.duration(worker)
        gradient = sim.begin(worker, sim.own(worker), duration, min(elapsed, duration))
        yield gradient.end - sim.now
        sim.push(gradient, worker, NOTHING)


class _Places:
    """The places of the workers that may work at once. A free one goes to a worker drawn from those that wait."""

    def __init__(self, sim: Simulation, limit: int):
        self._sim, self._limit, self._draw_numbers = sim, limit, count()
        self._working = set[int]()
        self._waiting = dict[int, simpy.Event]()  # by worker; happens when it gets a place

    def take(self, worker: int) -> Process:
        """Wait for a place."""
        self._waiting[worker] = self._sim.env.event()
        self._sim.later(0, self._fill)  # once all that begin to wait now do so
        yield from self._sim.wait(worker, self._waiting[worker], "a place among the workers at work")

    def leave(self, worker: int) -> None:
        """Give the place back, or no longer wait for one."""
        self._waiting.pop(worker, None)
        if worker in self._working:
            self._working.remove(worker)
            self._sim.later(0, self._fill)

    def _fill(self) -> None:
        while self._waiting and len(self._working) < self._limit:
            draw = numerics.uniforms(self._sim.seed, "clients at work", 0, start=next(self._draw_numbers), count=1)
            worker = sorted(self._waiting)[int(float(draw[0]) * len(self._waiting))]
            self._working.add(worker)
            self._waiting.pop(worker).succeed()


class _StartingGroup:
    """The workers that start together, once the grace time since the first arrival is over.

    Their first steps count as begun at the last arrival, which is known only then: hence the oracle of `Buffered`.
    """

    def __init__(self, sim: Simulation, grace: int):
        self._sim, self._grace = sim, grace
        self._complete: simpy.Event | None = None
        self._last = 0  # time of the latest arrival, ns

    def join(self, worker: int) -> Process:
        """Wait until the grace time is over; return the time since the last arrival, ns."""
        self._last = self._sim.now
        if self._complete is None:
            self._complete = self._sim.env.event()
            self._sim.later(self._grace, self._end)
        complete = self._complete
        yield from self._sim.wait(worker, complete, "others to start with")
        time_since_last: Any = complete.value
        return int(time_since_last)

    def _end(self) -> None:
        complete, self._complete = self._complete, None
        assert complete is not None
        complete.succeed(self._sim.now - self._last)  # known now: another group may begin before its members go on
