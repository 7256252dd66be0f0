"""Cutoff SGD [Teng & Wood 2018, algorithm 1]: before each round it is decided for how many workers, or how long, to wait."""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.durations import check_median, durations
from fred.cluster.latency import AnyLatency
from fred.components.component import OneOf
from fred.prediction.contract import AllWorkers, CutoffRule, Round
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Layout
from fred.timing.simulation import Process, Simulation


class Cutoff(Protocol):
    """A round averages the first c gradients; the others are dropped at that moment, and all begin the next round together.

    Before the round a rule chooses c, or a deadline: then c is how many are there by it, at least one; or both, and the round
    ends with whichever is first. It sees the compute times of earlier rounds, those of dropped workers cut off when their
    round ended, and may ask for what the gradients say: the algorithm's statistic.
    """

    faults: ClassVar[str] = (
        "A round waits for who is away only if the rule waits for so many; whose gradient was lost computes it anew, and whose "
        "gradient is to be averaged is waited for."
    )

    rule: Annotated[CutoffRule, OneOf("cutoff")] = Field(
        AllWorkers(), description="how many workers a round waits for, or until when"
    )
    deciding: AnyLatency | None = Field(None, description="virtual time of choosing, before each round; absent: none")

    @property
    def needs_values(self) -> bool:
        """Where the rule asks for the algorithm's statistic."""
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
            cost = sim.add_up(sim.workers, awaited=this.first.tolist())
            for worker in np.flatnonzero(~this.taken).tolist():
                sim.drop(gradients[worker], cost=cost)  # it takes part in the allreduce, with nothing to add
            yield sim.env.after(cost.nanoseconds)
            for worker in np.flatnonzero(this.taken).tolist():
                sim.add(gradients[worker], cost=cost)
            sim.commit()
            rule.observe(this.seen, this.taken)
