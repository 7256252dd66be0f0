"""Streaming and eager DiLoCo: synchronization while workers keep computing.

| name                           | source                                                                   |
|--------------------------------|--------------------------------------------------------------------------|
| eager-diloco, overlapped-steps | Kale, Douillard, Donchev 2025, arXiv:2502.12996                          |
| streaming-diloco, Streaming    | Douillard et al. 2025, "Streaming DiLoCo", arXiv:2501.18512, algorithm 2 |

Streaming DiLoCo synchronizes the model in fragments: a minute in which three workers take 0.5 s for each gradient, and the
fourth 2 s; a message takes 0.5 s.
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

In eager DiLoCo an allreduce may last as long as the next local steps: a minute in which workers take 0.5 s for each gradient,
and an allreduce 3 s: it hides behind eight of them.
    >>> import fred
    >>> settings = {
    ...     "cluster": {
    ...         "workers": 4,
    ...         "compute": {"name": "constant", "seconds": 0.5},
    ...         "network": {"bandwidth": 1e6, "message_bytes": 2_000_000},
    ...     },
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "eager-diloco", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "messages_between_workers"]].iloc[0].tolist()
    >>> measured(name="overlapped-steps", period=8)
    [476, 336]
    >>> measured(name="outer-steps", period=8)
    [284, 192]
"""

from collections import defaultdict
from functools import partial
from itertools import count
from typing import Annotated, ClassVar, Self

import simpy
from pydantic import Field, model_validator

from fred.cluster.cluster import Cluster
from fred.cluster.network import NOTHING
from fred.components.component import Count, Natural
from fred.learning.server import Family
from fred.protocols.local_steps import OuterSteps, Synchronizations, compose_replica, with_global
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Cut, Layout
from fred.systems.diloco import DiLoCo
from fred.timing.copies import Gradient
from fred.timing.simulation import Operation, Process, Simulation


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
    delay: Natural = Field(default=0, description="number of updates that overlap a fragment's allreduce; less than H / P")
    mixing: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="alpha: weight of a worker's own fragment when it is merged with the global one"
    )
    cut: Cut = Field(default="parts", description="fragments are equal `parts` of every array, or whole `layers`")
    elastic: bool = Field(default=False, description="whether the others continue without a crashed worker")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.period % self.fragments:
            raise ValueError(f"`period` ({self.period}) must be a multiple of `fragments` ({self.fragments})")
        if self.delay >= self._spacing:
            raise ValueError(f"`delay` ({self.delay}) must be less than `period` / `fragments` ({self._spacing})")
        return self

    @property
    def _spacing(self) -> int:
        """Return the number of updates between the outer steps of two successive fragments."""
        return self.period // self.fragments

    def layout(self, cluster: Cluster) -> Layout:
        return with_global(cluster.size, self.fragments, self.cut)

    def start(self, sim: Simulation) -> None:
        synchronizations, updates = Synchronizations(sim), [0] * sim.workers
        for worker in range(sim.workers):
            if self.elastic:
                sim.work(worker, partial(self._live, sim, worker, synchronizations, updates))
            else:
                sim.process(self._work(sim, worker, synchronizations, updates))

    def _live(self, sim: Simulation, worker: int, synchronizations: "Synchronizations", updates: list[int]) -> Process:
        """Run a worker from its return, with a copy of another one's model, to its crash."""
        # At time 0 all have the same model already.
        peers = synchronizations.available_peers(worker) if sim.now else []
        if peers:
            for block in range(sim.blocks):
                sim.publish(peers[0], 1, block=block)
                yield sim.transfer(peers[0], worker)
            for block in range(sim.blocks):
                sim.sync(worker, sim.read(worker, peers[0], sent=False, block=block), block=block)
            updates[worker] = updates[peers[0]]
        next_number = (updates[worker] + self.delay) // self._spacing  # of the synchronization that it will begin
        synchronizations.join(worker, next_number)
        try:
            yield from self._work(sim, worker, synchronizations, updates)
        finally:
            synchronizations.leave(worker)

    def _work(self, sim: Simulation, worker: int, synchronizations: "Synchronizations", updates: list[int]) -> Process:
        """Make updates, counted in `updates`, and synchronize fragments."""
        while True:
            gradient = sim.compute(worker, compose_replica(sim, worker, worker))
            yield gradient.finished
            for block in range(self.fragments):
                sim.push(gradient, worker, NOTHING, block)
            made_updates = updates[worker] = updates[worker] + 1
            if (made_updates + self.delay) % self._spacing == 0:
                number = (made_updates + self.delay) // self._spacing - 1
                global_model = compose_replica(sim, worker, sim.global_replica)
                local_model = compose_replica(sim, worker, worker)
                synchronizations.add(number, sim.pseudo_gradient(worker, global_model, local_model))
            if made_updates % self._spacing == 0:
                number = made_updates // self._spacing - 1
                yield from synchronizations.wait(number, worker)
                block = number % self.fragments
                global_model = sim.read(worker, sim.global_replica, sent=False, block=block)
                sim.sync(worker, global_model, keep=self.mixing, weight=1 - self.mixing, block=block)


class EagerDiLoCo(DiLoCo):
    """DiLoCo with an allreduce that overlaps the next round; a worker applies its own pseudo-gradient at once.

    So every worker has an outer model of its own. With one worker it is DiLoCo.
    """

    name = "eager-diloco"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)                                   (H times, from x_i on)
D_i = (x_i - w_i) / n + sum over j != i of (D_j of the round before) / n
x_i <- x_i - outer step(D_i)                             (each worker has its own x_i and outer momentum)"""
    protocol = "overlapped-steps"


class OverlappedSteps(Protocol):
    """Like `outer-steps`, but each allreduce overlaps the next `period` local updates.

    So the other workers' pseudo-gradients are applied one round late. With `eager` a worker applies its own at once, and has an
    outer model of its own; otherwise its own is as late as the others', and all outer models are equal. The first outer step
    uses no pseudo-gradients of others. A worker that ends a round before the last allreduce is over waits for it.
    """

    name = "overlapped-steps"
    faults: ClassVar[str] = (
        "A worker keeps its model, and computes the lost gradient again; an allreduce begins when all workers are available."
    )

    period: Count = Field(default=8, description="H: updates of each worker between two outer steps")
    eager: bool = Field(
        default=True, description="whether a worker applies its own pseudo-gradient at once, not one round late"
    )

    def layout(self, cluster: Cluster) -> Layout:
        workers = cluster.size
        return Layout(2 * workers, range(workers, 2 * workers), range(0))

    def start(self, sim: Simulation) -> None:
        rounds = _Rounds(sim, self.eager)
        for worker in range(sim.workers):
            sim.process(self._work(sim, worker, rounds))

    def _work(self, sim: Simulation, worker: int, rounds: "_Rounds") -> Process:
        outer_model = sim.workers + worker  # number of its replica
        for round_number in count(1):
            start_model = sim.read(worker, outer_model, sent=False)
            sim.sync(worker, start_model)
            yield from sim.local_steps(worker, self.period)
            yield from rounds.wait(round_number - 1, worker)
            pseudo_gradient = sim.pseudo_gradient(worker, start_model, sim.own(worker))
            if self.eager:
                sim.add(pseudo_gradient, outer_model, NOTHING)
            sim.commit(outer_model, weight=1 / sim.workers)
            rounds.add(round_number, pseudo_gradient)


class _Rounds:
    """Successive allreduces, which add the workers' pseudo-gradients to the outer models' rounds."""

    def __init__(self, sim: Simulation, eager: bool):
        self._sim, self._eager = sim, eager
        self._pseudo_gradients: list[Gradient] = []
        self._ends: defaultdict[int, simpy.Event] = defaultdict(sim.env.event)

    def add(self, number: int, pseudo_gradient: Gradient) -> None:
        """Add a worker's pseudo-gradient; the allreduce begins when all have been added."""
        self._pseudo_gradients.append(pseudo_gradient)
        if len(self._pseudo_gradients) == self._sim.workers:
            operation = self._sim.add_up(self._sim.workers, awaited=range(self._sim.workers))
            self._sim.later(operation.over, partial(self._end, number, operation))

    def wait(self, number: int, worker: int) -> Process:
        """Wait until the allreduce of this number is over; the first has number 1, so for 0 there is no wait."""
        if number:
            yield from self._sim.wait(worker, self._ends[number], f"allreduce {number}")
            yield from self._sim.present(worker)

    def _end(self, number: int, operation: Operation) -> None:
        sim, pseudo_gradients = self._sim, sorted(self._pseudo_gradients, key=lambda entry: entry.worker)
        self._pseudo_gradients = []
        for pseudo_gradient in pseudo_gradients:
            cost = operation.cost  # of its worker, which only the first row with its pseudo-gradient reports
            for worker in range(sim.workers):
                if not self._eager or worker != pseudo_gradient.worker:
                    sim.add(pseudo_gradient, sim.workers + worker, cost)  # to the worker's outer model
                    cost = NOTHING
        self._ends[number].succeed()
