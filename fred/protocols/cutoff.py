"""Cutoff SGD [Teng & Wood 2018, algorithm 1]: before each round a rule chooses a cutoff."""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.durations import check_median, durations
from fred.cluster.latency import AnyLatency
from fred.components.one_of import OneOf
from fred.prediction.contract import AllWorkers, CutoffRule, Round
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.simulation import Process, Simulation


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
        self.rule.start(cluster.node_of)
        if self.deciding:
            self.deciding.check(1)
            check_median(self.deciding, 1.0)

    def doubts(self) -> tuple[str, ...]:
        return self.rule.doubts()

    def start(self, sim: Simulation) -> None:
        sim.process(self._rounds(sim))

    def _rounds(self, sim: Simulation) -> Process:
        rule = self.rule.start(sim.node_of)
        deciding = self.deciding and durations(sim.seed, "deciding", [self.deciding], [1.0])[0]
        while True:
            if deciding:
                yield sim.env.after(deciding())
            if self.rule.needs_values:
                rule.hear(sim.statistic())
            began = sim.now
            gradients = [sim.begin(worker, sim.read(worker, sent=False)) for worker in range(sim.workers)]
            times = np.array([gradient.end - began for gradient in gradients])
            this = Round.of(times, rule.choose(times))
            yield sim.env.after(this.cutoff)
            operation = sim.add_up(sim.workers, awaited=this.first.tolist())
            for worker in np.flatnonzero(~this.taken).tolist():
                sim.drop(gradients[worker], during=operation)  # its worker takes part in the allreduce, without a gradient
            yield operation.over
            for worker in np.flatnonzero(this.taken).tolist():
                sim.add(gradients[worker], cost=operation.cost)
            sim.commit()
            rule.observe(this.seen, this.taken)
