"""Which workers of a trace slow down together: those whose surprises, beside what the whole cluster shares, correlate."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.special import ndtri
from scipy.stats import norm, rankdata

_FEWEST_ITERATIONS = 8  # below, nothing is significant
_BY_CHANCE = 0.01  # probability that independent workers give a group
_LAGS = 10  # of the autocorrelation that remains after whitening


def find_groups(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """The group of each worker, numbered in the order of their first workers: [workers].

    Run-times are s [iterations, workers], all positive. Workers that go with no others are groups of their own; where nobody
    goes with anybody, as with too few iterations to tell, all are one group: nothing is known.

    Args:
        seconds: run-times, s [iterations, workers].

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
    if not beside.any():  # what is left may be workers that follow the whole cluster more or less closely
        return beside
    return max(beside, _clusters(surprises), key=lambda group_of: _contrast(group_of, correlation))


def _clusters(surprises: NDArray[np.float64]) -> NDArray[np.int64]:
    """Average linkage by correlation, as far up as it is significant; one group if there is none."""
    workers = surprises.shape[1]
    correlation = np.round(surprises.T @ surprises / len(surprises), 9)  # the last digits are the machine's
    tree = linkage(1 - correlation[np.triu_indices(workers, 1)], "average")
    group_of = _cut(tree, workers, _significant(surprises))
    return group_of if group_of.max() < workers - 1 else np.zeros(workers, np.int64)


def _contrast(group_of: NDArray[np.int64], correlation: NDArray[np.float64]) -> float:
    """How well it tells large correlations that two workers are of one group: -1 to 1, 0 if all are."""
    pairs = np.triu_indices(len(group_of), 1)
    together = (group_of[pairs[0]] == group_of[pairs[1]]).astype(float)
    centred = together - together.mean()
    each = correlation[pairs] - correlation[pairs].mean()
    scale = math.sqrt(float(centred @ centred) * float(each @ each))
    return float(centred @ each) / scale if scale else 0.0


def _whitened(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each worker's own last log-time does not predict: [iterations - 1, workers]."""
    centred = logs - logs.mean(0)
    before, after = centred[:-1], centred[1:]
    return after - before * ((before * after).sum(0) / np.maximum((before**2).sum(0), 1e-300))


def _scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each worker's values as normal scores of their ranks, so that rare delays cannot look like company."""
    return _standard(ndtri(rankdata(values, axis=0) / (len(values) + 1)))


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """With mean 0 and deviation 1 for each worker; a worker that never varies is all 0."""
    centred = values - values.mean(0)
    deviation = centred.std(0)
    return centred / np.where(deviation > 1e-12, deviation, math.inf)


def _without_what_all_share(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rest of each worker's regression on the cluster's mean, in which those that follow it closely count more."""
    mean = values @ np.maximum(values.mean(1) @ values, 0)
    return _standard(values - np.outer(mean, mean @ values / max(float(mean @ mean), 1e-300)))


def _significant(surprises: NDArray[np.float64]) -> float:
    """The correlation that is not by chance, however the two series were chosen [Fisher 1921; Bartlett 1946]."""
    iterations, workers = surprises.shape
    lags = range(1, min(_LAGS, iterations // 4) + 1)
    persistence = sum(float((surprises[:-lag] * surprises[lag:]).mean()) ** 2 for lag in lags)
    independent = max(iterations / (1 + 2 * persistence) - 4, 1.0)
    return math.tanh(float(norm.isf(_BY_CHANCE / workers**3)) / math.sqrt(independent))


def _cut(tree: NDArray[np.float64], workers: int, significant: float) -> NDArray[np.int64]:
    """The largest clusters of the tree whose two halves belong together.

    Their averages correlate significantly, and members of different halves at least half as much as those of one half.
    """
    size, total = np.ones(2 * workers - 1), np.ones(2 * workers - 1)  # of each cluster: members, sum of their correlations
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
