"""MindFlayer and ATA: rounds in which each worker has its own number of gradients to compute.

| name                    | source                                                                                      |
|-------------------------|---------------------------------------------------------------------------------------------|
| mindflayer, TimeLimited | Maranjyan, Shaikh Omar, Richtarik 2024, "MindFlayer SGD", arXiv:2410.04285                  |
| ata, Bandit             | Maranjyan, Saad, Richtarik, Orabona 2025, "ATA: adaptive task allocation", arXiv:2502.00775 |

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... }
    >>> def measured(**protocol):
    ...     summary = fred.run(fred.scenario(settings, protocol=protocol)).summary
    ...     return summary[["updates", "gradients_applied", "gradients_dropped"]].iloc[0].tolist()
    >>> measured(name="time-limited", trials=2, limit=1.0)
    [29, 174, 59]
    >>> measured(name="bandit", gradients=3, width=0.1)
    [102, 306, 0]
"""

import heapq
import math
import operator
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import numpy as np
from pydantic import Field

from fred.cluster.cluster import Cluster
from fred.cluster.durations import NEVER
from fred.components.component import NANOSECONDS, Count, Duration, Natural, Positive
from fred.learning.server import Family, Server
from fred.protocols.protocol import Protocol
from fred.timing.copies import Gradient
from fred.timing.simulation import Process, Simulation

Allot = Callable[[], list[int]]  # returns each worker's number of trials in the next round
_POINTS = 10_000  # quantiles of a distribution, of which FRED counts those within a time limit


class MindFlayer(Server):
    """SGD with a time limit for each gradient: slow ones are aborted, and each update sums those in time."""

    name = "mindflayer"
    family = Family.FRESH
    rule = "w <- w - step(sum of the g at w that are ready in time / sum over i of p_i B_i)    (p_i: probability)"
    protocol = "time-limited"


class ATA(Server):
    """Synchronous SGD with B gradients per update, assigned to the workers that are estimated to be fastest."""

    name = "ata"
    family = Family.FRESH
    rule = "w <- w - step(mean of the B g at w, a_i of worker i)"
    protocol = "bandit"


class _Allotted(Protocol):
    """Rounds in which each worker has a number of trials; one update uses all gradients that were ready in time."""

    faults: ClassVar[str] = "A returning worker makes the rest of its trials; the round waits for them."

    @abstractmethod
    def _server(self, sim: Simulation) -> "_Server":
        """Return the server, which assigns trials and collects gradients."""

    def start(self, sim: Simulation) -> None:
        server = self._server(sim)
        for worker in range(sim.workers):
            sim.work(worker, partial(self._work, sim, server, worker))

    def _work(self, sim: Simulation, server: "_Server", worker: int) -> Process:
        limit = server.limits[worker]
        while True:
            if not server.remaining[worker]:
                yield from sim.wait(worker, server.released, "the others' trials")
                continue
            model = yield from sim.pull(worker)
            while server.remaining[worker] and model.timestamp == sim.clock():  # a round's last trial makes an update
                gradient = sim.begin(worker, model)
                in_time = gradient.end - sim.now <= limit
                yield min(gradient.end - sim.now, limit)
                if in_time:
                    yield from sim.send(gradient)
                    sim.add(gradient)
                else:
                    sim.abort(gradient)
                server.count_trial(gradient)


class TimeLimited(_Allotted):
    """Each worker begins `trials` gradients at the current parameters, and aborts each that exceeds its time limit.

    An update sums the finished gradients and divides by their expected number. Limits below the mean help if compute times
    have heavy tails. The probability of finishing in time follows from the worker's distribution of compute times (in a
    trace, from all workers' times), without contention.
    """

    name = "time-limited"

    trials: Count | tuple[Natural, ...] = Field(
        default=1,
        description="B: gradients that each worker begins in a round; or a list with one number per worker",
        examples=[4],
    )
    limit: Duration | tuple[Duration, ...] | None = Field(
        default=None,
        description="time limit of a gradient, s; or a list with one limit per worker; absent: the worker's median time",
    )

    def check(self, cluster: Cluster) -> None:
        for name, numbers in (("trials", self.trials), ("limit", self.limit)):
            if isinstance(numbers, tuple) and len(numbers) != cluster.size:
                raise ValueError(f"`{name}` has {len(numbers)} numbers; expected one for each of the {cluster.size} workers")
        if not any(self._expected(cluster)):
            raise ValueError("no gradient would ever be ready in time; raise `limit`, or give somebody `trials`")

    def _server(self, sim: Simulation) -> "_Server":
        trials = self._trials(sim.cluster)
        # In the sum of a round, a gradient counts with its worker's weight, that of its number of examples.
        expected = math.fsum(map(operator.mul, sim.weights, self._expected(sim.cluster)))
        return _Server(sim, self._limits(sim.cluster), lambda: list(trials), weight=1 / expected)

    def _trials(self, cluster: Cluster) -> list[int]:
        return list(self.trials) if isinstance(self.trials, tuple) else [self.trials] * cluster.size

    def _limits(self, cluster: Cluster) -> list[int]:
        """Return the time limit of each worker, ns."""
        limits = self.limit if isinstance(self.limit, tuple) else (self.limit,) * cluster.size
        medians = cluster.of_distributions(lambda latency: float(latency.sample(np.array([0.5]))[0]))
        of_workers = zip(limits, medians, cluster.worker_speeds(), strict=True)
        return [round((limit or median / speed) * NANOSECONDS) for limit, median, speed in of_workers]

    def _expected(self, cluster: Cluster) -> list[float]:
        """Return the expected number of each worker's gradients that are ready in time in a round."""
        probabilities = (np.arange(_POINTS) + 0.5) / _POINTS
        quantiles = cluster.of_distributions(lambda latency: latency.sample(probabilities))  # s at speed 1
        of_workers = zip(self._trials(cluster), self._limits(cluster), quantiles, cluster.worker_speeds(), strict=True)
        return [
            trials * float(np.mean(np.rint(seconds / speed * NANOSECONDS) <= limit))
            for trials, limit, seconds, speed in of_workers
        ]


class Bandit(_Allotted):
    """Each round assigns B gradients to workers by estimates of their compute times; workers without gradients are idle.

    Each worker has a lower confidence bound of its mean compute time: mean - width c (sqrt(q / N) + q / N), after N observed
    times, with q = ln(2 k^2) in round k. The next gradient goes to the worker that would finish first if all bounds were the
    true times. No gradient is wasted.
    """

    name = "bandit"

    gradients: Count | None = Field(
        default=None, description="B: gradients in each update; absent: as many as there are workers", examples=[5]
    )
    width: Positive = Field(
        default=4 * math.e, description="width of the confidence bounds; the default is the paper's, which explores much"
    )
    scale: Duration | None = Field(
        default=None, description="c: spread of compute times, s; usually the longest mean; absent: twice the worker's own mean"
    )

    def _server(self, sim: Simulation) -> "_Server":
        gradients = self.gradients or sim.workers
        bandit = Bounds(sim.workers, self.width, self.scale)
        return _Server(sim, [NEVER] * sim.workers, lambda: bandit.shares(gradients), bounds=bandit)


class Bounds:
    """Lower confidence bounds of the workers' mean compute times.

    Args:
        workers: number of workers.
        width, scale: as in `Bandit`.

    Example: narrow bounds, after one time of worker 0 (1 s) and one of worker 1 (4 s).
        >>> bounds = Bounds(workers=3, width=0.01, scale=None)
        >>> bounds.shares(2)
        [1, 1, 0]
        >>> bounds.observe(0, 1.0)
        >>> bounds.observe(1, 4.0)
        >>> bounds.shares(6)  # worker 2, not yet observed, has the bound 0
        [0, 0, 6]
        >>> bounds.observe(2, 2.0)
        >>> bounds.shares(7)
        [4, 1, 2]
    """

    def __init__(self, workers: int, width: float, scale: float | None):
        self._width, self._scale = width, scale
        self._rounds = 0
        self._counts, self._seconds = [0] * workers, [0.0] * workers  # N of each worker, and the sum of its times

    def observe(self, worker: int, seconds: float) -> None:
        """Record the `seconds` of one of a `worker`'s gradients."""
        self._counts[worker] += 1
        self._seconds[worker] += seconds

    def shares(self, gradients: int) -> list[int]:
        """Return the number of the next round's `gradients` that each worker computes."""
        self._rounds += 1
        q = math.log(2 * self._rounds**2)
        bounds = [self._bound(worker, q) for worker in range(len(self._counts))]
        shares = [0] * len(bounds)
        # A heap: when a worker would finish one more gradient if its bound were its true time. Ties: fewer gradients first.
        queue = [(bound, count, worker) for worker, (bound, count) in enumerate(zip(bounds, self._counts, strict=True))]
        heapq.heapify(queue)
        for _ in range(gradients):
            _, count, worker = queue[0]
            shares[worker] += 1
            heapq.heapreplace(queue, (bounds[worker] * (shares[worker] + 1), count + 1, worker))
        return shares

    def _bound(self, worker: int, q: float) -> float:
        """Return the lower confidence bound of a worker's mean compute time, s."""
        observations = self._counts[worker]
        if not observations:
            return 0.0
        mean, q_per_observation = self._seconds[worker] / observations, q / observations
        spread = self._scale or 2 * mean  # c
        return max(0.0, mean - self._width * spread * (math.sqrt(q_per_observation) + q_per_observation))


class _Server:
    """A server that collects the gradients of a round's trials.

    Args:
        sim: the run.
        limits: time limit of each worker, ns.
        allot: returns each worker's number of trials in the next round.
        weight: factor of a round's sum of gradients; None: their mean.
        bounds: receives each observed compute time, if given.
    """

    def __init__(
        self, sim: Simulation, limits: list[int], allot: Allot, weight: float | None = None, bounds: Bounds | None = None
    ):
        self._sim, self.limits, self._allot, self._weight, self._bounds = sim, limits, allot, weight, bounds
        self._begin_round()

    def _begin_round(self) -> None:
        self.remaining = self._allot()  # trials that each worker still has to make
        self._outstanding = sum(self.remaining)
        self.released = self._sim.env.event()  # happens when the next round begins

    def count_trial(self, gradient: Gradient) -> None:
        """Count a trial; the last one ends the round."""
        if self._bounds is not None:
            self._bounds.observe(gradient.worker, (gradient.end - gradient.begin) / NANOSECONDS)
        self.remaining[gradient.worker] -= 1
        self._outstanding -= 1
        if not self._outstanding:
            self._sim.commit(weight=self._weight)
            released = self.released
            self._begin_round()  # first, as workers look at their `remaining` trials when they wake
            released.succeed()
