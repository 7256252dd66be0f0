"""Protocols whose workers take local steps: they average their models, or move a global model by pseudo-gradients.

| class      | source                                                                                                      |
|------------|-------------------------------------------------------------------------------------------------------------|
| LocalSteps | Stich 2018, arXiv:1805.09767, algorithm 1; Lin et al. 2018, arXiv:1808.07217, algorithm 1                   |
| OuterSteps | DiLoCo, arXiv:2311.08105, algorithm 1; `every`: A-EDiT, arXiv:2412.07210; `pulls`: PALSGD, arXiv:2504.18454 |
| Paced      | DyLU, Liu et al. 2024, arXiv:2401.09135: local steps in proportion to workers' speeds                       |

With `adapt_every`, the period follows the loss: AdaComm [Wang & Joshi 2019, arXiv:1810.08313, section 4], with a constant
learning rate.

Local SGD: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "workers_time_waiting"]].round(2).iloc[0].tolist()
    >>> measured(name="local-steps", period=1)
    [119.0, 0.55]
    >>> measured(name="local-steps", period=8)
    [125.0, 0.5]

DiLoCo: the same cluster; a message takes 0.5 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {
    ...         "workers": 4,
    ...         "speeds": [1.0, 1.0, 1.0, 0.25],
    ...         "compute": {"name": "constant", "seconds": 0.5},
    ...         "network": {"latency": {"name": "constant", "seconds": 0.5}},
    ...     },
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "diloco", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["gradients_applied", "messages_between_workers"]].iloc[0].tolist()
    >>> measured(name="outer-steps", period=8)
    [112, 72]
    >>> measured(name="outer-steps", period=8, paced=True)
    [230, 192]
    >>> measured(name="outer-steps", every=16.0)
    [328, 72]
"""

import math
from collections import defaultdict
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

import simpy
from pydantic import Field, model_validator

from fred.base import numerics
from fred.cluster.cluster import Cluster
from fred.cluster.durations import NEVER
from fred.cluster.network import NOTHING
from fred.components.component import NANOSECONDS, Count, Natural
from fred.protocols.protocol import Protocol
from fred.schedule.layout import Cut, Layout
from fred.timing.copies import Copy, Gradient
from fred.timing.simulation import Operation, Process, Simulation


class LocalSteps(Protocol):
    """Every worker makes `period` updates of its own model; after a barrier, an allreduce averages the models.

    Post-local SGD [Lin et al. 2018, section 3] averages after every update at first (`start_after`), then once per period.
    AdaComm (`adapt_every`) averages rarely at first, and more and more often later. At the first averaging of each interval, H
    becomes ceil(H_0 x square root of F / F_0), F being the loss then and F_0 at the start. If that is not below H, H becomes
    ceil(H / 2). F is the loss of evaluations, where the paper has the training loss; to compute it takes no virtual time.
    """

    name = "local-steps"
    asks_for: ClassVar[Literal["statistic", "loss"]] = "loss"

    faults: ClassVar[str] = (
        "A worker keeps its model, and computes the lost gradient again; an averaging begins when all workers are available."
    )

    period: Count = Field(default=8, description="H: updates of each worker between two averagings")
    start_after: Natural = Field(
        default=0, description="number of updates at the start after each of which models are averaged"
    )

    adapt_every: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="T_0: seconds between two changes of the period, which follows the loss; absent: constant period",
    )

    @property
    def needs_values(self) -> bool:
        return self.adapt_every is not None

    def layout(self, cluster: Cluster) -> Layout:
        return Layout.peers(cluster.size)

    def start(self, sim: Simulation) -> None:
        averaging = _Averaging(sim, self)
        for worker in range(sim.workers):
            sim.process(self._work(sim, worker, averaging))

    def _work(self, sim: Simulation, worker: int, averaging: "_Averaging") -> Process:
        while True:
            gradient = sim.compute(worker, sim.own(worker))
            yield gradient.finished
            sim.push(gradient, worker, NOTHING)
            yield from averaging.enter(worker)


class _Averaging:
    """The barrier at which all workers meet, and the averaging that follows it."""

    def __init__(self, sim: Simulation, protocol: LocalSteps):
        self._sim, self._protocol = sim, protocol
        self._pace = _Pace(sim, protocol)
        self._updates = [0] * sim.workers  # of each worker
        self._updates_since = [0] * sim.workers  # updates since the last averaging
        self._arrived = 0  # number of workers at the barrier
        self._averages = 0  # number of averagings begun
        self._end = sim.env.event()  # happens when the next averaging is over

    def enter(self, worker: int) -> Process:
        """Count one more update of a worker; if an averaging follows it, wait until that is over."""
        self._updates[worker] += 1
        self._updates_since[worker] += 1
        if self._updates[worker] > self._protocol.start_after and self._updates_since[worker] < self._pace.period:
            return
        self._updates_since[worker] = 0
        self._arrived += 1
        if self._arrived == self._sim.workers:
            everybody = range(self._sim.workers)
            operation = self._sim.allreduce(everybody, awaited=everybody, size=self._sim.sizes.average(self._averages))
            self._averages += 1
            self._sim.later(operation.over, partial(self._average, operation))
        yield from self._sim.wait(worker, self._end, f"all to make {self._updates[worker]} updates")

    def _average(self, operation: Operation) -> None:
        everybody = range(self._sim.workers)
        mean = self._sim.mix(0, [(self._sim.own(worker), 1 / self._sim.workers) for worker in everybody])
        for worker in everybody:
            self._sim.sync(worker, mean, cost=operation.cost)
        self._pace.adapt()
        self._arrived = 0
        end, self._end = self._end, self._sim.env.event()
        end.succeed()


class _Pace:
    """The number of updates between two averagings."""

    def __init__(self, sim: Simulation, protocol: LocalSteps):
        self._sim, self._first_period = sim, protocol.period  # H_0
        self.period = protocol.period
        self._interval = NEVER if protocol.adapt_every is None else max(1, round(protocol.adapt_every * NANOSECONDS))
        self._next_change = self._interval  # ns
        self._first_loss = math.nan if protocol.adapt_every is None else sim.loss()  # F_0

    def adapt(self) -> None:
        """Change the period after an averaging, at most once per interval."""
        if self._sim.now < self._next_change:
            return
        self._next_change = (self._sim.now // self._interval + 1) * self._interval
        period_by_loss, half = self._period_by_loss(), math.ceil(self.period / 2)
        self.period = period_by_loss if period_by_loss < self.period else half  # AdaComm: it shrinks at each change

    def _period_by_loss(self) -> int:
        """Return the period that the loss asks for, or the current one if the loss ratio is negative or not finite."""
        loss = self._sim.loss()
        root = math.sqrt(loss / self._first_loss) if self._first_loss > 0 and 0 <= loss < math.inf else math.inf
        return max(1, math.ceil(self._first_period * root)) if root < math.inf else self.period


class Paced(Protocol):
    """A protocol whose slower workers may make fewer updates before they send, so that all take about as long.

    Speeds are means, without contention. In the paper the fastest worker makes H updates. The published simulator of HALoS
    paces relative to a speed of 1 instead, which no worker needs to have: `pace_seconds`.

    Example: the faster worker makes 4 updates of 0.5 s, the other 4 x 0.5 / 0.9, rounded up to 3.

        >>> import fred
        >>> from fred.protocols.local_steps import OuterSteps
        >>> cluster = fred.Cluster(workers=2, speeds=[2, 1 / 0.9])
        >>> OuterSteps(period=4, paced=True).updates(cluster)
        [4, 3]
        >>> OuterSteps(period=4, paced=True, pace_seconds=0.25).updates(cluster)
        [2, 2]
    """

    period: Count = Field(default=8, description="H: updates of each worker, or with `paced` of the fastest, before it sends")
    paced: bool = Field(
        default=False, description="whether slower workers make fewer updates: H x speed / largest speed, rounded up"
    )
    pace_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="seconds per gradient of a worker that makes H updates, if `paced`; absent: the fastest worker's mean",
    )

    @model_validator(mode="after")
    def _paced_at_all(self) -> Self:
        if self.pace_seconds is not None and not self.paced:
            raise ValueError("`pace_seconds` needs `paced: true`")
        return self

    def updates(self, cluster: Cluster) -> list[int]:
        """Return the number of updates that each worker makes before it sends.

        Args:
            cluster: the cluster, whose mean compute times determine the speeds.
        """
        rates = cluster.worker_rates()
        if not self.paced:
            return [self.period] * len(rates)
        pace = max(rates) if self.pace_seconds is None else 1 / self.pace_seconds
        return [max(1, math.ceil(self.period * rate / pace - 1e-9)) for rate in rates]  # 1e-9: rounding adds none


def with_global(workers: int, blocks: int = 1, cut: Cut = "parts") -> Layout:
    """Return the layout with a model for each worker, and a global model that is on no server.

    Args:
        workers: number of workers.
        blocks: number of blocks of each model.
        cut: how models are cut into blocks: equal parts of every array, or whole layers.

        >>> layout = with_global(4)
        >>> layout.replicas, list(layout.answer)
        (5, [4])
    """
    return Layout(workers + 1, range(workers, workers + 1), range(0), blocks, cut)


def pull_weight(share: float) -> float:
    """Return the weight of a pull, (1 - p) / p: a server's `synchronize` gets it as `weight`, with `keep` = 1.

    Args:
        share: p, the share of updates that are pulls.

        >>> pull_weight(0.2)
        4.0
    """
    return (1 - share) / share


class OuterSteps(Paced):
    """Every worker makes `period` updates of its own model; an allreduce then averages the pseudo-gradients.

    The global model makes a step with their mean, and all workers continue from it. With `every` instead of `period`, a worker
    waits for the others at its first end of an update after that number of seconds, so faster workers make more updates. With
    `pulls`, some updates draw the worker's model towards its own copy of the global one, instead of applying a gradient. A
    pull sends nothing and takes no time.
    """

    name = "outer-steps"
    pulls_models: ClassVar[bool] = True
    faults: ClassVar[str] = (
        "A worker keeps its model, and computes the lost gradient again; an outer step begins when all workers are available."
    )

    period: Count = Field(
        default=8, description="H: updates of each worker, or with `paced` of the fastest, between two outer steps"
    )
    every: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="seconds between two outer steps, instead of `period`; each worker makes at least one update",
    )
    pulls: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="p: share of updates that draw a worker's model to the global one, without a gradient; for `palsgd`",
    )

    @model_validator(mode="after")
    def _by_number_or_time(self) -> Self:
        if self.paced and self.every is not None:
            raise ValueError("`paced` and `every` both set the number of updates of each worker: give one of them")
        return self

    @property
    def needs_pulls(self) -> str:
        return f"`pulls: {self.pulls:g}`" if self.pulls else ""

    def layout(self, cluster: Cluster) -> Layout:
        return with_global(cluster.size)

    def start(self, sim: Simulation) -> None:
        synchronizations = Synchronizations(sim)
        for worker, updates in enumerate(self.updates(sim.cluster)):
            sim.process(self._work(sim, worker, updates, synchronizations))

    def _work(self, sim: Simulation, worker: int, updates: int, synchronizations: "Synchronizations") -> Process:
        outer_step, updates_made = 0, 0  # numbers in the whole run, from 0
        global_model = sim.read(worker, sim.global_replica, sent=False)
        while True:
            first_update, end = updates_made, NEVER if self.every is None else sim.now + round(self.every * NANOSECONDS)
            while updates_made == first_update or (  # at least one
                updates_made - first_update < updates if self.every is None else sim.now < end
            ):
                yield from self._update(sim, worker, updates_made, global_model)
                updates_made += 1
            synchronizations.add(outer_step, sim.pseudo_gradient(worker, global_model, sim.own(worker)))
            yield from synchronizations.wait(outer_step, worker)
            global_model = sim.read(worker, sim.global_replica, sent=False)
            sim.sync(worker, global_model)
            outer_step += 1

    def _update(self, sim: Simulation, worker: int, updates_made: int, global_model: Copy) -> Process:
        """Make one update of the worker's model: a gradient step, or a pull towards the global model."""
        if self.pulls and int(numerics.words(sim.seed, "pull", worker, updates_made)) < self.pulls * 2**32:  # words: 32 bits
            sim.sync(worker, global_model, keep=1.0, weight=pull_weight(self.pulls))  # `synchronize` pulls: `pulls_models`
            return
        gradient = sim.compute(worker, sim.own(worker))
        yield gradient.finished
        sim.push(gradient, worker, NOTHING)


def compose_replica(sim: Simulation, worker: int, replica: int) -> Copy:
    """Return a whole replica, composed of its blocks, as a worker reads it without a message.

    Args:
        sim: the run.
        worker: number of the worker that reads it.
        replica: number of the replica.
    """
    copies = [sim.read(worker, replica, sent=False, block=block) for block in range(sim.blocks)]
    return copies[0] if sim.blocks == 1 else sim.compose(worker, copies)


class Synchronizations:
    """Allreduces of pseudo-gradients, each followed by a step of the global model; number n is of block n, cyclically."""

    def __init__(self, sim: Simulation):
        self._sim = sim
        self._first = dict.fromkeys(range(sim.workers), 0)  # of each available worker, the first outer step that awaits it
        self._pseudo_gradients: defaultdict[int, dict[int, Gradient]] = defaultdict(dict)  # by outer step and worker
        self._started: set[int] = set()  # outer steps whose allreduce has begun
        self._ends: defaultdict[int, simpy.Event] = defaultdict(sim.env.event)  # by outer step

    def available_peers(self, worker: int) -> list[int]:
        """Return the other workers that are available."""
        return sorted(set(self._first) - {worker})

    def join(self, worker: int, number: int) -> None:
        """Await a worker at this outer step and at all later ones."""
        self._first[worker] = number

    def leave(self, worker: int) -> None:
        """Remove a crashed worker and drop its pseudo-gradients; begin the outer steps that waited for it alone."""
        self._first.pop(worker, None)
        if self._sim.record.full:  # the schedule has ended, and its processes are closed
            return
        for number in sorted(set(self._pseudo_gradients) - self._started):
            if pseudo_gradient := self._pseudo_gradients[number].pop(worker, None):
                self._sim.drop(pseudo_gradient, self._sim.global_replica, NOTHING, number % self._sim.blocks)
            self._begin_if_complete(number)

    def add(self, number: int, pseudo_gradient: Gradient) -> None:
        """Add a worker's pseudo-gradient to an outer step; the allreduce begins when all have been added."""
        self._pseudo_gradients[number][pseudo_gradient.worker] = pseudo_gradient
        self._begin_if_complete(number)

    def _begin_if_complete(self, number: int) -> None:
        pseudo_gradients, sim = self._pseudo_gradients[number], self._sim
        if not pseudo_gradients or any(  # a worker awaited at this step has not added its own
            number >= first and worker not in pseudo_gradients for worker, first in self._first.items()
        ):
            return
        self._started.add(number)
        block = number % sim.blocks if sim.blocks > 1 else None  # None: the whole message
        operation = sim.add_up(sorted(pseudo_gradients), awaited=sorted(pseudo_gradients), block=block)
        sim.later(operation.over, partial(self._step, number, operation))

    def wait(self, number: int, worker: int) -> Process:
        """Wait until an outer step is over."""
        yield from self._sim.wait(worker, self._ends[number], f"all workers at outer step {number + 1}")

    def _step(self, number: int, operation: Operation) -> None:
        sim, block = self._sim, number % self._sim.blocks
        self._started.discard(number)
        for _, pseudo_gradient in sorted(self._pseudo_gradients.pop(number).items()):
            sim.add(pseudo_gradient, sim.global_replica, operation.cost, block)
        sim.commit(sim.global_replica, block)
        self._ends[number].succeed()
