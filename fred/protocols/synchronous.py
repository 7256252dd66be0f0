"""Synchronous SGD: with backup workers, with a cutoff that a rule chooses before each round, and with allreduces.

| name        | source                                                      |
|-------------|-------------------------------------------------------------|
| allreduce   | Li et al. 2021, section 2; Thakur, Rabenseifner, Gropp 2005 |
| cutoff      | Teng & Wood 2018, algorithm 1                               |
| synchronous | Chen, Pan, Monga, Bengio, Jozefowicz 2017, algorithms 3-4   |

Backup workers: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
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

Allreduce: four workers compute for 1 s per step. A ring allreduce then moves 6/4 of a model of 1 MB at 1 MB/s.
    >>> import fred
    >>> scenario = fred.scenario({
    ...     "cluster": {
    ...         "workers": 4,
    ...         "compute": {"name": "constant", "seconds": 1.0},
    ...         "network": {"bandwidth": 1e6, "message_bytes": 1_000_000},
    ...     },
    ...     "stop": {"updates": 10},
    ...     "protocol": "allreduce",
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... })
    >>> fred.run(scenario).summary[["virtual_seconds", "workers_time_network"]].round(2).iloc[0].tolist()
    [25.0, 0.6]
"""

from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
import simpy
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.durations import check_median, durations
from fred.cluster.latency import AnyLatency
from fred.components.component import NANOSECONDS, Natural, Time
from fred.components.one_of import OneOf
from fred.prediction.contract import AllWorkers, CutoffRule, Round
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
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

    backup_workers: Natural = Field(default=0, description="b: number of workers for which a round does not wait")
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
            sim.work(worker, partial(self._work, sim, server, worker), partial(self._announce_crash, sim, server, worker))

    def _announce_crash(self, sim: Simulation, server: "_Server", worker: int) -> None:
        if self.timeout is not None:
            sim.later(round(self.timeout * NANOSECONDS), partial(server.leave_out, worker))

    def _work(self, sim: Simulation, server: "_Server", worker: int) -> Process:
        server.left_out.discard(worker)
        while True:
            gradient = None
            if worker in server.arrived:  # it has crashed since it sent its gradient
                yield from sim.wait(worker, server.released, "the round to be complete")
            try:
                model = yield from sim.pull(worker)
                gradient = sim.compute(worker, model)
                yield gradient.finished
                yield from sim.send(gradient)
            except simpy.Interrupt:  # the round is complete, and late workers are interrupted
                if gradient:  # None: the pull was interrupted
                    sim.abort(gradient)
                continue
            if model.timestamp < sim.clock():  # its round is over
                sim.drop(gradient)
            elif not server.accept(gradient):
                yield from sim.wait(worker, server.released, f"round {model.timestamp} to be complete")


class _Server:
    """The server, which collects the gradients of one round after another."""

    def __init__(self, sim: Simulation, gradients: int, interrupts: bool):
        self._sim = sim
        self._quorum = gradients  # gradients per round, if no worker is left out
        self._interrupts = interrupts
        self.arrived: set[int] = set()  # workers whose gradients have arrived in this round
        self.left_out: set[int] = set()  # workers that rounds leave out
        self.released = sim.env.event()  # triggered when the open round is committed

    def accept(self, gradient: Gradient) -> bool:
        """Add the gradient to the open round; return True if that completed the round."""
        self._sim.add(gradient)
        self.arrived.add(gradient.worker)
        # the first condition, which is quick, is most often false
        return len(self.arrived) + len(self.left_out) >= self._quorum and self._commit_if_complete()

    def leave_out(self, worker: int) -> None:
        """Go on without a worker, if it is still offline."""
        if self._sim.back(worker, self._sim.now) > self._sim.now:
            self.left_out.add(worker)
            self._commit_if_complete()

    def _commit_if_complete(self) -> bool:
        """Commit the open round if it waits for no worker; return True if it did."""
        if len(self.arrived | self.left_out) < self._quorum or not self.arrived:
            return False
        self._sim.commit()
        if self._interrupts and len(self.arrived) < self._sim.workers:
            for worker in range(self._sim.workers):
                if worker not in self.arrived:
                    self._sim.interrupt(worker)
        self.arrived.clear()
        self.released.succeed()
        self.released = self._sim.env.event()
        return True


class Cutoff(Protocol):
    """A round averages the first c gradients; the others are dropped at that moment, and all begin the next round together.

    Before each round a rule chooses a count c, a deadline, or both. A deadline averages the gradients that are finished by
    then, at least one. With both, the round ends with whichever is first. The rule sees the compute times of earlier rounds,
    where those of dropped workers are censored at the end of the round. A rule may also ask for the algorithm's statistic.
    """

    name = "cutoff"
    faults: ClassVar[str] = (
        "A round waits for an offline worker only if the rule's count needs it; a lost gradient is computed again, and the "
        "allreduce waits for every worker whose gradient it averages."
    )

    rule: Annotated[CutoffRule, OneOf("cutoff")] = Field(
        default=AllWorkers(), description="rule that chooses the number of workers or the deadline of each round"
    )
    deciding: AnyLatency | None = Field(
        default=None, description="virtual time that the rule takes before each round; absent: none"
    )

    @property
    def needs_values(self) -> bool:
        """Return True if the rule asks for the algorithm's statistic, so that timing depends on learning."""
        return self.rule.needs_values

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.shared()

    def check(self, cluster: Cluster) -> None:
        self.rule.start(cluster.node_of)  # raises ValueError for options that do not fit the cluster
        if self.deciding:
            self.deciding.check(1)
            check_median(self.deciding, 1.0)

    def doubts(self) -> tuple[str, ...]:
        return self.rule.doubts()

    def start(self, sim: Simulation) -> None:
        sim.process(self._rounds(sim))

    def _rounds(self, sim: Simulation) -> Process:
        rule = self.rule.start(sim.node_of)
        draw_deciding_time = self.deciding and durations(sim.seed, "deciding", [self.deciding], [1.0])[0]  # ns
        while True:
            if draw_deciding_time:
                yield sim.env.after(draw_deciding_time())
            if self.rule.needs_values:
                rule.hear(sim.statistic())
            begin = sim.now
            gradients = [sim.begin(worker, sim.read(worker, sent=False)) for worker in range(sim.workers)]
            times = np.array([gradient.end - begin for gradient in gradients])
            outcome = Round.from_choice(times, rule.choose(times))
            yield sim.env.after(outcome.cutoff)
            operation = sim.add_up(sim.workers, awaited=outcome.first.tolist())
            for worker in np.flatnonzero(~outcome.in_time).tolist():
                sim.drop(gradients[worker], during=operation)  # its worker takes part in the allreduce, without a gradient
            yield operation.over
            for worker in np.flatnonzero(outcome.in_time).tolist():
                sim.add(gradients[worker], cost=operation.cost)
            sim.commit()
            rule.observe(outcome.observed, outcome.in_time)


class Allreduce(Protocol):
    """All workers compute at the same parameters; an allreduce averages the gradients, and all make the same update."""

    name = "allreduce"
    faults: ClassVar[str] = (
        "All workers wait: the lost gradient is computed again, and the allreduce begins when all workers are available."
    )

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.shared()

    def start(self, sim: Simulation) -> None:
        sim.process(self._rounds(sim))

    def _rounds(self, sim: Simulation) -> Process:
        while True:
            gradients = [sim.begin(worker, sim.read(worker, sent=False)) for worker in range(sim.workers)]
            last = max(gradient.end for gradient in gradients)
            operation = sim.add_up(sim.workers, begin=last, awaited=range(sim.workers))
            yield operation.over
            for gradient in gradients:
                sim.add(gradient, cost=operation.cost)
            sim.commit()
