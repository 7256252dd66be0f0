"""Streaming DiLoCo: the model is synchronized in fragments, while workers keep computing.

| name                        | source                                                                   |
|-----------------------------|--------------------------------------------------------------------------|
| streaming-diloco, Streaming | Douillard et al. 2025, "Streaming DiLoCo", arXiv:2501.18512, algorithm 2 |

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s; a message takes 0.5 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {
    ...         "workers": 4,
    ...         "speeds": [1.0, 1.0, 1.0, 0.25],
    ...         "compute": {"name": "constant", "seconds": 0.5},
    ...         "network": {"latency": {"name": "constant", "seconds": 0.5}},
    ...     },
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "streaming-diloco", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "messages_between_workers"]].iloc[0].tolist()
    >>> measured(name="outer-steps", period=8)
    [112, 72]
    >>> measured(name="streaming", period=8, fragments=2, delay=2)
    [125, 168]
"""

from functools import partial
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components.component import Count, Whole
from fred.learning.server import Family
from fred.protocols.outer_steps import OuterSteps, Synchronizations, whole, with_global
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Cut, Layout
from fred.systems.diloco import DiLoCo
from fred.timing.simulation import Process, Simulation


class StreamingDiLoCo(DiLoCo):
    """DiLoCo that synchronizes one fragment of the model at a time, while workers keep computing.

    With one fragment, no delay and no mixing it is DiLoCo.
    """

    name = "streaming-diloco"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
D <- mean of w_p - w_p,i                             (fragment p, `delay` updates before its turn; every H / P the next p)
w_p <- w_p - outer step(D)                           (at its turn)
w_p,i <- (1 - alpha) w_p + alpha w_p,i"""
    protocol = "streaming"


class Streaming(Protocol):
    """Like `outer-steps`, but the model is synchronized in fragments, one at a time, while workers keep computing.

    A fragment's allreduce begins `delay` updates before its outer step is due, with the pseudo-gradients of that moment. A
    worker that reaches the outer step before the allreduce is over waits. Its fragment becomes (1 - alpha) x the global one +
    alpha x its own. With `elastic`, no worker waits for a crashed one. A returning worker copies the model and the count of
    updates of another worker, but has its own optimizer's state, as if on disk.
    """

    name = "streaming"
    faults: ClassVar[str] = (
        f"{OuterSteps.faults} With `elastic` the others continue, and a returning worker copies another one's model."
    )

    period: Count = Field(default=8, description="H: updates of each worker between two outer steps of a fragment")
    fragments: Count = Field(default=2, description="P: number of fragments; the next one is synchronized every H / P updates")
    delay: Whole = Field(default=0, description="number of updates that overlap a fragment's allreduce; less than H / P")
    mixing: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="alpha: weight of a worker's own fragment when it is merged with the global one"
    )
    cut: Cut = Field(default="parts", description="fragments are equal `parts` of every array, or whole `layers`")
    elastic: bool = Field(default=False, description="whether the others continue without a crashed worker")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.period % self.fragments:
            raise ValueError(f"`period` ({self.period}) must be a multiple of `fragments` ({self.fragments})")
        if self.delay >= self._between:
            raise ValueError(f"`delay` ({self.delay}) must be less than `period` / `fragments` ({self._between})")
        return self

    @property
    def _between(self) -> int:
        """Return the number of updates between the outer steps of two successive fragments."""
        return self.period // self.fragments

    def layout(self, cluster: Cluster) -> Layout:
        return with_global(cluster.size, self.fragments, self.cut)

    def start(self, sim: Simulation) -> None:
        synchronizations, made = Synchronizations(sim), [0] * sim.workers
        for worker in range(sim.workers):
            if self.elastic:
                sim.work(worker, partial(self._live, sim, worker, synchronizations, made))
            else:
                sim.process(self._work(sim, worker, synchronizations, made))

    def _live(self, sim: Simulation, worker: int, synchronizations: "Synchronizations", made: list[int]) -> Process:
        """Run a worker from its return, with a copy of another one's model, to its crash."""
        peers = synchronizations.others(worker) if sim.now else []
        if peers:
            for block in range(sim.blocks):
                sim.publish(peers[0], 1, block=block)
                yield sim.transfer(peers[0], worker)
            for block in range(sim.blocks):
                sim.sync(worker, sim.read(worker, peers[0], sent=False, block=block), block=block)
            made[worker] = made[peers[0]]
        synchronizations.join(worker, (made[worker] + self.delay) // self._between)
        try:
            yield from self._work(sim, worker, synchronizations, made)
        finally:
            synchronizations.leave(worker)

    def _work(self, sim: Simulation, worker: int, synchronizations: "Synchronizations", updates: list[int]) -> Process:
        """Make updates, counted in `updates`, and synchronize fragments."""
        while True:
            gradient = sim.compute(worker, whole(sim, worker, worker))
            yield gradient.finished
            for block in range(self.fragments):
                sim.push(gradient, worker, NOTHING, block)
            made = updates[worker] = updates[worker] + 1
            if (made + self.delay) % self._between == 0:
                common, own = whole(sim, worker, sim.workers), whole(sim, worker, worker)
                synchronizations.bring((made + self.delay) // self._between - 1, sim.pseudo_gradient(worker, common, own))
            if made % self._between == 0:
                number = made // self._between - 1
                yield from synchronizations.over(number, worker)
                block = number % self.fragments
                common = sim.read(worker, sim.workers, sent=False, block=block)
                sim.sync(worker, common, keep=self.mixing, weight=1 - self.mixing, block=block)
