"""Synchronous SGD with backup workers [Chen, Pan, Monga, Bengio, Jozefowicz 2017, algorithms 3-4].

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "gradients_dropped", "workers_time_waiting"]].round(2).iloc[0].tolist()
    >>> measured(name="synchronous")
    [29.0, 0.0, 0.55]
    >>> measured(name="synchronous", backup_workers=1)
    [119.0, 29.0, 0.0]
    >>> measured(name="synchronous", backup_workers=1, late="interrupt")
    [119.0, 119.0, 0.0]
"""

from functools import partial
from typing import ClassVar, Literal

import simpy
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.durations import NANOSECONDS
from fred.components.component import Time, Whole
from fred.protocols.protocol import Protocol
from fred.timing.copies import Gradient
from fred.timing.simulation import Process, Simulation


class Synchronous(Protocol):
    """Each update averages the first N gradients computed at the current version; later ones are dropped.

    N is the number of workers minus `backup_workers`. A late worker finishes its gradient, which is dropped on arrival, and
    then reads the newest version (`late: finish`, as in the paper). With `late: interrupt` it aborts its gradient as soon as
    the round is complete. With a `timeout` rounds are elastic: workers that are away do not count, so an update averages fewer
    gradients, until they are back.
    """

    name = "synchronous"
    faults: ClassVar[str] = (
        "A returning worker reads the newest model. A round waits until it has N gradients, so backup workers stand in; "
        "with a `timeout` it goes on without workers that are away."
    )

    backup_workers: Whole = Field(default=0, description="b: number of workers for which a round does not wait")
    late: Literal["finish", "interrupt"] = Field(default="finish", description="what a late worker does with its gradient")
    timeout: Time | None = Field(
        default=None,
        description="time after which rounds go on without a worker that has gone offline, s; absent: they wait for it",
    )

    def check(self, cluster: Cluster) -> None:
        if self.backup_workers >= cluster.size:
            raise ValueError(f"`backup_workers` ({self.backup_workers}) must be below the number of workers ({cluster.size})")

    def start(self, sim: Simulation) -> None:
        server = _Server(sim, sim.workers - self.backup_workers, interrupts=self.late == "interrupt")
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, server, worker), partial(self._gone, sim, server, worker))

    def _gone(self, sim: Simulation, server: "_Server", worker: int) -> None:
        if self.timeout is not None:
            sim.later(round(self.timeout * NANOSECONDS), partial(server.leave_out, worker))

    def _work(self, sim: Simulation, server: "_Server", worker: int) -> Process:
        server.absent.discard(worker)
        while True:
            gradient = None
            if worker in server.present:  # it has crashed since it sent its gradient
                yield from sim.wait(worker, server.released, "the round to be complete")
            try:
                model = yield from sim.pull(worker)
                gradient = sim.compute(worker, model)
                yield gradient.finished
                yield from sim.send(gradient)
            except simpy.Interrupt:
                if gradient:
                    sim.abort(gradient)
                continue
            if model.timestamp < sim.clock():
                sim.drop(gradient)
            elif not server.accept(gradient):
                yield from sim.wait(worker, server.released, f"round {model.timestamp} to be complete")


class _Server:
    """The server, which collects the gradients of one round after another."""

    def __init__(self, sim: Simulation, needed: int, interrupts: bool):
        self._sim = sim
        self._needed = needed  # gradients per round, if no worker is left out
        self._interrupts = interrupts
        self.present: set[int] = set()  # workers whose gradients have arrived in this round
        self.absent: set[int] = set()  # workers that rounds leave out
        self.released = sim.env.event()  # triggered when the open round is committed

    def accept(self, gradient: Gradient) -> bool:
        """Add the gradient to the open round; return True if that completed the round."""
        self._sim.add(gradient)
        self.present.add(gradient.worker)
        return len(self.present) + len(self.absent) >= self._needed and self._completed()  # most often the first is false

    def leave_out(self, worker: int) -> None:
        """Go on without a worker, if it is still offline."""
        if self._sim.back(worker, self._sim.now) > self._sim.now:
            self.absent.add(worker)
            self._completed()

    def _completed(self) -> bool:
        """Commit the open round if it waits for no worker; return True if it did."""
        if len(self.present | self.absent) < self._needed or not self.present:
            return False
        self._sim.commit()
        if self._interrupts and len(self.present) < self._sim.workers:
            for worker in range(self._sim.workers):
                if worker not in self.present:
                    self._sim.interrupt(worker)
        self.present.clear()
        self.released.succeed()
        self.released = self._sim.env.event()
        return True
