"""How surely a trace tells what it tells, and whether a cluster that was made of it behaves like it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.cluster.cluster import Cluster
from fred.cluster.contention import Loads
from fred.cluster.durations import NANOSECONDS, durations
from fred.fitting.description import Matrix

_SEED = 0
_MOST_GRADIENTS = 400_000  # simulated: a second or two
_FEWEST_ROUNDS = 20
_DEVIATIONS = 2.0  # beyond which the cluster is told from the trace
_NEGLIGIBLE = 0.01  # relative; less than that is no matter, however surely it is known


@dataclass(frozen=True)
class Agreement:
    """Mean order statistics x_(c) of rounds that wait for all, of the trace and of the cluster simulated again."""

    cutoffs: NDArray[np.int64]  # c
    trace: NDArray[np.float64]  # mean x_(c), s
    cluster: NDArray[np.float64]
    error: NDArray[np.float64]  # standard error of the difference, s
    uncertainty: float  # standard error of the trace's own mean x_(n), relative

    @property
    def holds(self) -> bool:
        """Whether no order statistic is further off than chance, or 1 %, explains."""
        off = np.abs(self.cluster - self.trace)
        return bool((off <= np.maximum(_DEVIATIONS * self.error, _NEGLIGIBLE * self.trace)).all())


def standard_error(values: Matrix) -> NDArray[np.float64]:
    """Of the mean over the first axis, of values that may depend on those before, by means of batches.

    There are about as many batches as a batch has values. Of fewer than two values nothing is known: infinite.

    Args:
        values: one after the other along the first axis [iterations, ...].

    >>> standard_error(np.arange(16.0).reshape(8, 2)).round(2).tolist(), float(standard_error(np.ones(1)))
    ([4.0, 4.0], inf)
    """
    count = math.isqrt(len(values))
    if len(values) < 2:
        return np.full(values.shape[1:], math.inf)
    batches = np.array([part.mean(0) for part in np.array_split(values, max(2, count))])
    return batches.std(0, ddof=1) / math.sqrt(len(batches))


def agreement(seconds: Matrix, cluster: Cluster) -> Agreement:
    """Compare run-times s [iterations, workers] with those of a cluster of as many workers.

    Args:
        seconds: run-times of the trace, s [iterations, workers].
        cluster: simulated in rounds that wait for all, with the same draws each time.
    """
    workers = seconds.shape[1]
    rounds = max(_FEWEST_ROUNDS, min(_MOST_GRADIENTS // workers, max(1000, len(seconds))))
    cutoffs = np.unique(np.ceil(np.array([0.25, 0.5, 0.75, 0.9, 1.0]) * workers).astype(np.int64))
    own, again = (np.sort(times, 1)[:, cutoffs - 1] for times in (seconds, simulated(cluster, rounds)))
    errors = standard_error(own), standard_error(again)
    means = own.mean(0), again.mean(0)
    return Agreement(cutoffs, *means, np.hypot(*errors), float(errors[0][-1] / means[0][-1]))


def simulated(cluster: Cluster, rounds: int) -> Matrix:
    """Run-times s [rounds, workers] of a cluster whose rounds wait for all, each begun when the one before has ended.

    Args:
        cluster: of which compute times, speeds and contention count, and the network does not.
        rounds: how many.

    >>> from fred import Cluster
    >>> simulated(Cluster(workers=2, compute={"name": "constant", "seconds": 2}, speeds=[1, 4]), 2).tolist()
    [[2.0, 0.5], [2.0, 0.5]]
    """
    draws: Any = durations(_SEED, "compute", cluster.latencies(), cluster.worker_speeds())
    loads, now = Loads(cluster.loads(_SEED)), 0
    times = np.empty((rounds, cluster.size), np.int64)
    for step in range(rounds):
        times[step] = [loads.finish(worker, step, now, draw()) - now for worker, draw in enumerate(draws)]
        now += int(times[step].max())
    return times / NANOSECONDS
