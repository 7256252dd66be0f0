"""Groups of workers that slow down together: their deviations from the cluster's common behaviour are correlated."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.special import ndtri
from scipy.stats import norm, rankdata

_FEWEST_ITERATIONS = 8  # with fewer, nothing is significant
_BY_CHANCE = 0.01  # probability of finding a group among independent workers
_LAGS = 10  # lags of the autocorrelation that remains after whitening


def find_groups(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the group of each worker, numbered in the order of their first workers: [workers].

    Workers that correlate with no others form their own groups. If no workers correlate, as with too few iterations, all
    are in one group, which means that nothing is known.

    Args:
        seconds: compute times, s [iterations, workers], all positive.

    >>> rng = np.random.default_rng(0)
    >>> shared, own = rng.lognormal(sigma=0.5, size=(200, 2)), rng.lognormal(sigma=0.1, size=(200, 4))
    >>> find_groups(shared[:, [0, 1, 1, 0]] * own).tolist()
    [0, 1, 1, 0]
    """
    iterations, workers = seconds.shape
    if iterations < _FEWEST_ITERATIONS or workers < 3:
        return np.zeros(workers, np.int64)
    surprises = _scores(_whitened(np.log(seconds)))
    correlation = surprises.T @ surprises / len(surprises)
    beside = _clusters(_without_what_all_share(surprises))
    if not beside.any():  # any remaining groups may be workers that follow the whole cluster more or less closely
        return beside
    return max(beside, _clusters(surprises), key=lambda group_of: _contrast(group_of, correlation))


def _clusters(surprises: NDArray[np.float64]) -> NDArray[np.int64]:
    """Cluster by average linkage on correlations, as long as they are significant; return one group if there is none."""
    workers = surprises.shape[1]
    correlation = np.round(surprises.T @ surprises / len(surprises), 9)  # the last digits depend on the machine
    tree = linkage(1 - correlation[np.triu_indices(workers, 1)], "average")
    group_of = _cut(tree, workers, _significant(surprises))
    return group_of if group_of.max() < workers - 1 else np.zeros(workers, np.int64)


def _contrast(group_of: NDArray[np.int64], correlation: NDArray[np.float64]) -> float:
    """Return the correlation of "in the same group" with the workers' correlation, over pairs: -1 to 1, 0 for one group."""
    pairs = np.triu_indices(len(group_of), 1)
    together = (group_of[pairs[0]] == group_of[pairs[1]]).astype(float)
    centred = together - together.mean()
    each = correlation[pairs] - correlation[pairs].mean()
    scale = math.sqrt(float(centred @ centred) * float(each @ each))
    return float(centred @ each) / scale if scale else 0.0


def _whitened(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the part of each log time that the worker's previous one does not predict: [iterations - 1, workers]."""
    centred = logs - logs.mean(0)
    before, after = centred[:-1], centred[1:]
    return after - before * ((before * after).sum(0) / np.maximum((before**2).sum(0), 1e-300))


def _scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return normal scores of the ranks of each worker's values, so that rare delays do not look like correlation."""
    return _standard(ndtri(rankdata(values, axis=0) / (len(values) + 1)))


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standardise to mean 0 and deviation 1 for each worker; a worker that never varies gets zeros."""
    centred = values - values.mean(0)
    deviation = centred.std(0)
    return centred / np.where(deviation > 1e-12, deviation, math.inf)


def _without_what_all_share(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return residuals of each worker's regression on the cluster's mean, weighted by how closely workers follow it."""
    mean = values @ np.maximum(values.mean(1) @ values, 0)
    return _standard(values - np.outer(mean, mean @ values / max(float(mean @ mean), 1e-300)))


def _significant(surprises: NDArray[np.float64]) -> float:
    """Return the correlation that is significant however the two series were selected [Fisher 1921; Bartlett 1946]."""
    iterations, workers = surprises.shape
    lags = range(1, min(_LAGS, iterations // 4) + 1)
    persistence = sum(float((surprises[:-lag] * surprises[lag:]).mean()) ** 2 for lag in lags)
    independent = max(iterations / (1 + 2 * persistence) - 4, 1.0)
    return math.tanh(float(norm.isf(_BY_CHANCE / workers**3)) / math.sqrt(independent))


def _cut(tree: NDArray[np.float64], workers: int, significant: float) -> NDArray[np.int64]:
    """Cut the tree into the largest clusters whose two halves belong together.

    The halves' averages must correlate significantly. Members of different halves must correlate at least half as much as
    members of the same half.
    """
    size, total = np.ones(2 * workers - 1), np.ones(2 * workers - 1)  # members of each cluster, sum of their correlations
    group_of = np.arange(workers)
    members = [[worker] for worker in range(workers)]
    for cluster, (left, right, distance, _) in enumerate(tree, start=workers):
        halves = [int(left), int(right)]
        across = (1 - distance) * size[halves].prod()
        pairs = (size[halves] * (size[halves] - 1)).sum()
        within = (total[halves] - size[halves]).sum() / pairs if pairs else 0.0
        size[cluster], total[cluster] = size[halves].sum(), total[halves].sum() + 2 * across
        members.append(members[halves[0]] + members[halves[1]])
        averages = across / math.sqrt(max(total[halves].prod(), 1e-300))
        if averages > significant and 1 - distance >= within / 2:
            group_of[members[cluster]] = min(members[cluster])
    return np.unique(group_of, return_inverse=True)[1].astype(np.int64)
