"""Validation of a cluster by its behaviour: arrivals, backup workers and cutoff rules, within the trace's own intervals.

Intervals are those of `fred.base.intervals.block_ratios`. A cluster that is off by more than 20 % counts as unlike the
trace, however wide the interval is.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import percent
from fred.base.intervals import block_ratios
from fred.cluster.cluster import Cluster
from fred.cluster.contention import Loads, NodeOf
from fred.cluster.durations import durations
from fred.components.component import NANOSECONDS
from fred.fitting.description import Matrix
from fred.prediction.closed_loop import Rounds, run
from fred.prediction.contract import CutoffRule
from fred.prediction.predictive import EWMA, Empirical
from fred.prediction.simple_rules import MADDeadline

RULES: dict[str, CutoffRule] = {
    "ewma": EWMA(of="worker", by="count"),
    "empirical": Empirical(by="count"),
    "mad-deadline": MADDeadline(),
}
_GAIN = "the gain of"  # name of a ratio of gradients per second
_SEED = 0
_MOST_GRADIENTS = 300_000  # most gradients to simulate: one or two seconds
_SIMULATED_ROUNDS = 20  # simulated rounds, as a multiple of the trace's, unless that is too many
_FAR = 0.6  # error of the logarithm after a few rounds from which more are not needed
_MOST_RULED = 1_200  # most rounds in which the rules run
_FEWEST_ROUNDS = 100
_WARM_UP = 20  # warm-up rounds; at most a quarter of all
_WIDEST = 1.2  # widest useful interval, as a ratio
_NEGLIGIBLE = 0.01  # relative error that never matters, however significant it is


@dataclass(frozen=True)
class Measure:
    """A statistic of the trace with its interval, and the same statistic of a cluster."""

    name: str
    trace: float
    low: float
    high: float
    cluster: float

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the ends of the interval, limited to 20 % around the trace's value; few spells would make it wider."""
        return max(self.low, self.trace / _WIDEST), min(self.high, self.trace * _WIDEST)

    @property
    def inside(self) -> bool:
        """Return True if the cluster's value is within these bounds, or off by at most 1 %."""
        low, high = self.bounds
        return low <= self.cluster <= high or abs(self.cluster / self.trace - 1) <= _NEGLIGIBLE

    @property
    def excess(self) -> float:
        """Return the relative distance of the cluster's value from the bounds; 0 inside."""
        low, high = self.bounds
        return 0.0 if self.inside else max(low / self.cluster, self.cluster / high) - 1

    def text(self, value: float) -> str:
        """Return a value of this statistic in words: a gain is in per cent.

        Args:
            value: the trace's, the cluster's, or an end of the interval.

        >>> Measure("the gain of 1 backup worker", 1.5, 1.25, 2.0, 1.5).text(1.25)
        '+25 %'
        """
        return f"{percent(value)} %" if self.name.startswith(_GAIN) else f"{value:.4g}"

    def __str__(self) -> str:
        low, high = map(self.text, self.bounds)
        return f"{self.name} is {self.text(self.cluster)}, in the trace {self.text(self.trace)} ({low} to {high})"


@dataclass(frozen=True)
class Behaviour:
    """A cluster compared with its trace: mean late arrivals, gains of backup workers, and throughputs of cutoff rules."""

    arrivals: tuple[Measure, ...]  # mean time of the n/2-th to the last arrival, s
    gains: tuple[Measure, ...]  # gradients/s with 1 to n/2 backup workers, relative to waiting for all
    rules: tuple[Measure, ...]  # throughput of each rule, gradients/s

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Return all measures."""
        return (*self.gains, *self.arrivals, *self.rules)

    @property
    def outside(self) -> list[Measure]:
        """Return the measures outside the trace's interval, furthest first."""
        return sorted((measure for measure in self.measures if not measure.inside), key=lambda measure: -measure.excess)

    @property
    def holds(self) -> bool:
        """Return True if all measures are inside."""
        return not self.outside


@dataclass(frozen=True)
class TraceMeasures:
    """The measures of a trace: values and 95 % intervals."""

    rounds: int
    names: tuple[str, ...]
    values: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def judge(self, cluster: Cluster) -> Behaviour:
        """Simulate a cluster with the same number of workers, and compare its measures.

        A clear mismatch ends the simulation early.

        Args:
            cluster: cluster, of which compute times, speeds and contention count, and the network does not.
        """
        rounds = max(
            _FEWEST_ROUNDS, min(_MOST_GRADIENTS // cluster.size, max(_SIMULATED_ROUNDS * self.rounds, 10 * _FEWEST_ROUNDS))
        )
        few_times = simulate_rounds(cluster, min(rounds, 2 * self.rounds + _FEWEST_ROUNDS))
        arrivals = np.sort(few_times, axis=1).mean(0)[-1 - cluster.size // 2 :]
        trace_arrivals = self.values[: len(arrivals)]  # the first measures
        if (np.abs(np.log(arrivals / trace_arrivals)) > _FAR).any():
            return self.compare(few_times, cluster.node_of)
        return self.compare(simulate_rounds(cluster, rounds), cluster.node_of)

    def compare(self, seconds: Matrix, node_of: NodeOf) -> Behaviour:
        """Compare the measures of other compute times with the same number of workers.

        Args:
            seconds: compute times, s [rounds, workers].
            node_of: node number of each worker, from 0 [workers].
        """
        values = np.concatenate([_ratios(part) for part in _sums(seconds, node_of, self.rounds)])
        columns = self.names, self.values.tolist(), self.low.tolist(), self.high.tolist(), values.tolist()
        measures = [Measure(*row) for row in zip(*columns, strict=True)]
        backups = seconds.shape[1] // 2
        arrivals, gains = measures[: backups + 1], measures[backups + 1 : 2 * backups + 1]
        return Behaviour(tuple(arrivals), tuple(gains), rules=tuple(measures[2 * backups + 1 :]))


def measure_trace(seconds: Matrix, node_of: NodeOf) -> TraceMeasures:
    """Measure a trace, with intervals.

    Args:
        seconds: compute times, s [iterations, workers].
        node_of: node number of each worker, from 0 [workers].

    Example: one of four workers is slow. A backup worker makes rounds 2.8 times as fast, with three quarters of the gradients.
        >>> seconds = np.random.default_rng(0).lognormal(sigma=0.1, size=(100, 4)) * [1, 1, 1, 3]
        >>> measures = measure_trace(seconds, np.zeros(4, int))
        >>> measures.names[3], measures.values[3].round(1).tolist()
        ('the gain of 1 backup worker', 2.1)
    """
    workers = seconds.shape[1]
    sums = _sums(seconds, node_of, episode=len(seconds))
    lows, highs = zip(*(block_ratios(part) for part in sums), strict=True)
    backups = workers // 2
    # In the order of `_sums`: arrivals, gains, rules.
    names = [f"the mean of arrival {k} of {workers}" for k in range(workers - backups, workers + 1)]
    names += [f"{_GAIN} {b} backup worker{'s' if b > 1 else ''}" for b in range(1, backups + 1)]
    names += [f"the throughput of `{rule}`" for rule in RULES]
    values = np.concatenate([_ratios(part) for part in sums])
    return TraceMeasures(len(seconds), tuple(names), values, np.concatenate(lows), np.concatenate(highs))


def simulate_rounds(cluster: Cluster, rounds: int, seed: int = _SEED) -> Matrix:
    """Return compute times, s [rounds, workers], of a cluster whose rounds wait for all, one after the other.

    Args:
        cluster: cluster, of which compute times, speeds and contention count, and the network does not.
        rounds: number of rounds.
        seed: seed of the draws.

    >>> from fred import Cluster
    >>> simulate_rounds(Cluster(workers=2, compute={"name": "constant", "seconds": 2}, speeds=[1, 4]), 2).tolist()
    [[2.0, 0.5], [2.0, 0.5]]
    """
    draws: Any = durations(seed, "compute", cluster.latencies(), cluster.worker_speeds())
    loads, now = Loads(cluster.loads(seed)), 0
    times = np.empty((rounds, cluster.size), np.int64)  # ns
    for step in range(rounds):
        times[step] = [loads.finish(worker, step, now, draw()) - now for worker, draw in enumerate(draws)]
        now += int(times[step].max())
    return times / NANOSECONDS


def _sums(seconds: Matrix, node_of: NodeOf, episode: int) -> list[NDArray[np.float64]]:
    """Return numerators and denominators by round, of arrivals, gains and rules: [2, rounds, measures] each.

    A measure is the ratio of the two sums over all rounds.

    Args:
        seconds: compute times, s [rounds, workers].
        node_of: node number of each worker, from 0 [workers].
        episode: rounds after which a cutoff rule starts again without a history.
    """
    ordered = np.sort(seconds, axis=1)
    workers = seconds.shape[1]
    backups = workers // 2
    late = ordered[:, workers - backups - 1 :]
    slowest = np.broadcast_to(ordered[:, -1:], (len(ordered), backups))
    arrivals = np.stack([late, np.ones_like(late)])
    share = np.arange(workers - 1, workers - backups - 1, -1) / workers  # of gradients that 1, 2, ... backup workers leave
    gains = np.stack([share * slowest, late[:, -2::-1]])  # rounds end with the last but one, last but two ... arrival
    episode = min(episode, _MOST_RULED)
    warm_up = min(_WARM_UP, episode // 4)
    count = max(1, min(_MOST_RULED, len(seconds)) // episode)  # rules restart as often as in the trace
    episodes = [seconds[i * episode : (i + 1) * episode] for i in range(count)]
    results = [Rounds.concatenate([run(rule, times, node_of, warm_up) for times in episodes]) for rule in RULES.values()]
    rules = np.stack([np.stack([rounds.cutoff, rounds.time / NANOSECONDS]) for rounds in results], axis=2)
    return [arrivals, gains, rules.astype(np.float64)]


def _ratios(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    numerators, denominators = sums.sum(1)
    return np.asarray(numerators / denominators, np.float64)
