"""Summary statistics of a trace: length, spread, persistence, correlation, and the cost of waiting for all."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import percent

Matrix = NDArray[np.float64]
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
LAGS = (1, 2, 5, 10)
_TAIL = 0.02  # share of the compute times used to estimate the tail exponent


@dataclass(frozen=True)
class Description:
    """Summary statistics of a trace, with times in s; autocorrelations and correlations are of log times."""

    iterations: int
    workers: int
    groups: int
    mean: float
    deviation: float
    quantiles: dict[float, float]
    longest: float
    tail_exponent: float  # of a power law through the longest times [Hill 1975]; below about 4: a heavy tail
    spread_of_workers: float  # standard deviation of the workers' mean log times
    worker_persistence: dict[int, float]  # autocorrelation at each lag: of workers relative to their groups,
    group_persistence: dict[int, float]  # of the groups' means
    within_groups: float  # mean correlation of two workers of the same group,
    between_groups: float  # and of different groups; NaN if there are none
    lost_waiting: float  # share of workers' time spent waiting for the slowest: 1 - mean / E[max]
    slowdown: float  # mean time of rounds, relative to rounds with all workers as fast as the median one
    oracle_speedup: float  # throughput with the best cutoff of each round, relative to waiting for all
    best_static: int  # the best constant cutoff,
    static_speedup: float  # and its throughput relative to waiting for all

    @property
    def cost(self) -> str:
        """Return the cost of waiting for all, with the quantities of `fred diagnose`, in words."""
        return (
            f"In all {self.iterations} iterations, waiting for all loses {100 - 100 / self.slowdown:.0f} % of the time: rounds "
            f"take {self.slowdown:.2f} times as long as if all were as the median worker. Workers wait for the slowest "
            f"{100 * self.lost_waiting:.0f} % of their time. Always waiting for {self.best_static} of {self.workers}: "
            f"{percent(self.static_speedup)} % gradients per second; with each round's best number: "
            f"{percent(self.oracle_speedup)} %."
        )


def describe(seconds: Matrix, group_of: NDArray[np.int64]) -> Description:
    """Compute summary statistics of compute times, s [iterations, workers], and the group of each worker.

    Args:
        seconds: compute times, s [iterations, workers].
        group_of: group number of each worker, from 0 [workers].

    >>> look = describe(np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]]), np.array([0, 1]))
    >>> look.mean, round(look.lost_waiting, 2), look.best_static
    (2.0, 0.25, 1)
    """
    logs = np.log(seconds)
    centred = logs - logs.mean(0)
    means = group_means(centred, group_of)
    ordered = np.sort(seconds, axis=1)
    full_throughput = seconds.size / ordered[:, -1].sum()
    static_rates = static_throughput(ordered)
    within_groups, between_groups = correlations(centred, group_of)
    return Description(
        iterations=len(seconds),
        workers=len(group_of),
        groups=int(group_of.max()) + 1,
        mean=float(seconds.mean()),
        deviation=float(seconds.std()),
        quantiles=dict(zip(QUANTILES, np.quantile(seconds, QUANTILES).tolist(), strict=True)),
        longest=float(seconds.max()),
        tail_exponent=_tail_exponent(seconds),
        spread_of_workers=float(logs.mean(0).std()),
        worker_persistence=_persistence(centred - means[:, group_of]),
        group_persistence=_persistence(means),
        within_groups=within_groups,
        between_groups=between_groups,
        slowdown=float(ordered[:, -1].mean() / np.median(seconds, axis=1).mean()),
        lost_waiting=1 - float(seconds.mean() / ordered[:, -1].mean()),
        oracle_speedup=oracle_throughput(ordered) / full_throughput,
        best_static=int(static_rates.argmax()) + 1,
        static_speedup=float(static_rates.max() / full_throughput),
    )


def static_throughput(ordered: Matrix) -> NDArray[np.float64]:
    """Return the gradients per second if each round waits for c workers, by c: [workers]; rounds are sorted.

    Args:
        ordered: compute times, s [rounds, workers], each round in ascending order.

    >>> static_throughput(np.array([[1.0, 4.0], [1.0, 6.0]])).tolist()
    [1.0, 0.4]
    """
    return np.arange(1, ordered.shape[1] + 1) / ordered.mean(0)


def oracle_throughput(ordered: Matrix) -> float:
    """Return the gradients per second if each round waits for its own best c = argmax c / x_(c); rounds are sorted.

    Args:
        ordered: compute times, s [rounds, workers], each round in ascending order.

    >>> rounds = np.array([[1.0, 1.5], [1.0, 6.0]])
    >>> oracle_throughput(rounds), float(static_throughput(rounds).max())
    (1.2, 1.0)
    """
    best = (np.arange(1, ordered.shape[1] + 1) / ordered).argmax(1)
    return float((best + 1).sum() / np.take_along_axis(ordered, best[:, None], 1).sum())


def group_means(values: Matrix, group_of: NDArray[np.int64]) -> Matrix:
    """Return the mean over each group's workers: [iterations, groups].

    Args:
        values: value of each worker [iterations, workers].
        group_of: group number of each worker, from 0 [workers].

    >>> group_means(np.array([[1.0, 3.0, 10.0]]), np.array([0, 0, 1])).tolist()
    [[2.0, 10.0]]
    """
    members = np.eye(int(group_of.max()) + 1)[group_of]
    return values @ (members / members.sum(0))


def autocovariance(centred: Matrix, lag: int) -> NDArray[np.float64]:
    """Return the autocovariance of each column of centred values: [columns].

    Args:
        centred: values less their mean [iterations, columns].
        lag: lag, in iterations.
    """
    return (centred[lag:] * centred[: len(centred) - lag]).mean(0)


def correlations(centred: Matrix, group_of: NDArray[np.int64]) -> tuple[float, float]:
    """Return the mean correlation of two workers of the same group, and of different groups; NaN if there are none.

    Args:
        centred: values of each worker less their mean [iterations, workers].
        group_of: group number of each worker, from 0 [workers].
    """
    deviation = np.sqrt((centred**2).mean(0))
    standard = centred / np.where(deviation > 0, deviation, np.inf)
    sizes = np.bincount(group_of)
    sums = group_means(standard, group_of) * sizes
    workers, pairs = len(group_of), float((sizes * (sizes - 1)).sum())
    # The mean square of a sum of standard series is the sum of the correlations of all pairs, and 1 for each series.
    within_sum = float((sums**2).mean(0).sum())
    total = float((sums.sum(1) ** 2).mean())
    other_pairs = workers * (workers - 1) - pairs
    return (within_sum - workers) / pairs if pairs else np.nan, (total - within_sum) / other_pairs if other_pairs else np.nan


def _persistence(series: Matrix) -> dict[int, float]:
    """Return the autocorrelation of all columns together, by lag; NaN if they are constant."""
    centred = series - series.mean(0)
    variance = autocovariance(centred, 0).sum()
    lags = [lag for lag in LAGS if lag < len(series) / 2]
    return {lag: float(autocovariance(centred, lag).sum() / variance) if variance else np.nan for lag in lags}


def _tail_exponent(seconds: Matrix) -> float:
    """Return Hill's estimate: the inverse mean logarithm of the longest times, relative to the shortest of them."""
    longest = np.sort(seconds, axis=None)[-max(2, int(_TAIL * seconds.size)) :]
    return float(1 / max(np.log(longest[1:] / longest[0]).mean(), 1e-12))
