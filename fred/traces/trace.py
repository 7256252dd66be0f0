"""A recorded trace: the time of each worker of a cluster for each iteration, its nodes, and groups that slow down together."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from fred.base.errors import briefly
from fred.traces.waiting import Waiting, find_waiting


def spread_workers(nodes: int | Sequence[int], workers: int) -> NDArray[np.int64]:
    """Return the node of each worker, [workers]: spread evenly over a number of `nodes`, in order, or by sizes.

    Raises ValueError if the workers cannot be spread this way.

    Args:
        nodes: number of nodes, or number of workers on each [nodes].
        workers: number of workers.

    >>> spread_workers(2, 5).tolist(), spread_workers([1, 4], 5).tolist()
    ([0, 0, 0, 1, 1], [0, 1, 1, 1, 1])
    """
    if isinstance(nodes, int):
        if not 1 <= nodes <= workers:
            raise ValueError(f"`nodes` is {nodes}; expected 1 to {workers}, the number of workers")
        return np.arange(workers) * nodes // workers
    if min(nodes, default=0) < 1 or sum(nodes) != workers:
        sizes = ", ".join(map(str, nodes)) or "none"
        raise ValueError(f"`nodes` ({sizes}) must be sizes that add up to the {workers} workers")
    return np.repeat(np.arange(len(nodes)), nodes)


@dataclass(frozen=True, eq=False)
class Trace:
    """The step times of complete iterations, in chronological order.

    Args:
        seconds: step times, s [iterations, workers], all positive and finite.
        workers: names of the workers.
        node_of: node number of each worker, from 0 [workers]; None if unknown.
        source: name of the trace in messages.
        repairs: repairs made on reading, in words.
        nodes: names of the nodes, by number; empty if they have none.
        notes: how the files were read, in words: units, columns, rows left out.
        steps: names of the iterations in the files, by number; empty if they have none.
        collective: name of the communication or waiting whose times these are; empty for compute times.

    `fred.traces.reading.read` makes a trace from files.

    >>> seconds = np.array([[1.0, 1.5], [0.5, 2.0], [1.0, 1.0]])
    >>> trace = Trace(seconds, ("7", "gpu-b"), np.array([0, 1]), nodes=("rack-a", "rack-b"))
    >>> trace.iterations, trace.worker(0), trace.worker(1), trace.node(1)
    (3, 'worker 7', 'gpu-b', 'rack-b')
    """

    seconds: NDArray[np.float64]
    workers: tuple[str, ...]
    node_of: NDArray[np.int64] | None = None
    source: str = "the trace"
    repairs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    collective: str = ""

    @property
    def iterations(self) -> int:
        """Return the number of iterations."""
        return len(self.seconds)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the notes and repairs that a user should know, one line each."""
        return (*(f"read: {note}" for note in self.notes), *(f"mended: {repair}" for repair in self.repairs))

    @cached_property
    def waiting(self) -> Waiting:
        """Return the signs of waiting for other workers in the times."""
        return find_waiting(self.seconds)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a sentence if the times contain waiting, or may; or if some workers count as one.

        >>> rng = np.random.default_rng(0)
        >>> pairs = rng.lognormal(sigma=0.1, size=(50, 3)).repeat(2, axis=1) * rng.lognormal(sigma=0.001, size=(50, 6))
        >>> Trace(pairs, tuple("abcdef")).warnings[0].partition(".")[0]
        'Workers a, b wait for each other; so do c, d; e, f'
        """
        if self.collective:
            return (
                f"The times are those of `{self.collective}`, in which quick workers wait for slow ones, not compute times.",
            )
        signs = self.waiting
        if signs.state == "groups":
            names = [briefly([self.workers[worker] for worker in group]) for group in signs.groups]
            further_groups = f"; so do {briefly(names[1:], 2, '; ')}" if names[1:] else ""
            advice = "Times within a group are equal in every iteration, so it counts as one worker: use one of each group."
            return (f"Workers {names[0]} wait for each other{further_groups}. {advice}",)
        doubt = {"certain": "contain", "possible": "may contain"}.get(signs.state)
        return (f"The times {doubt} waiting for the slowest worker. {signs.evidence}",) if doubt else ()

    def worker(self, number: int) -> str:
        """Return the name of a worker in a sentence: its own, or `worker 7` if that is a number.

        Args:
            number: number of the worker, from 0.
        """
        return _name_in_sentence("worker", self.workers[number])

    def node(self, number: int) -> str:
        """Return the name of a node in a sentence: its own, or `node 7` if that is a number or unknown.

        Args:
            number: number of the node, from 0, as in `node_of`; or of a group that was found.
        """
        return _name_in_sentence("node", self.nodes[number] if number < len(self.nodes) else str(number))

    def step(self, number: int) -> str:
        """Return the name of an iteration: that of the files, or its number.

        Args:
            number: number of the iteration, from 0.

        >>> Trace(np.ones((2, 1)), ("a",), steps=("1000", "1010")).step(1), Trace(np.ones((2, 1)), ("a",)).step(1)
        ('1010', '1')
        """
        return self.steps[number] if self.steps else str(number)

    @property
    def node_names(self) -> str:
        """Return the names of the nodes, shortened if they are many; empty if they are numbers or unknown."""
        return briefly([name for name in self.nodes if not name.isdigit()])

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the step times and their shape.

        Names, nodes and the source do not count.
        """
        numbers = np.ascontiguousarray(self.seconds, "<f8")
        return hashlib.sha256(f"{numbers.shape}".encode() + numbers.tobytes()).hexdigest()


def _name_in_sentence(kind: str, name: str) -> str:
    return f"{kind} {name}" if name[:1].isdigit() or name.startswith("-") else name


_FEWEST_ITERATIONS = 8  # with fewer, nothing is significant
_FALSE_ALARM_RATE = 0.01  # probability of finding a group among independent workers
_LAGS = 10  # lags of the autocorrelation that remains after whitening


def find_groups(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the group of each worker, numbered in the order of their first workers: [workers].

    Workers that correlate with no others form their own groups. If no workers correlate, as with too few iterations, all
    are in one group, which means that nothing is known.

    Args:
        seconds: compute times, s [iterations, workers], all positive.

    >>> rng = np.random.default_rng(0)
    >>> groups, workers = rng.lognormal(sigma=0.5, size=(200, 2)), rng.lognormal(sigma=0.1, size=(200, 4))
    >>> find_groups(groups[:, [0, 1, 1, 0]] * workers).tolist()
    [0, 1, 1, 0]
    """
    iterations, workers = seconds.shape
    if iterations < _FEWEST_ITERATIONS or workers < 3:
        return np.zeros(workers, np.int64)
    # Two clusterings compete. A slowdown of the whole cluster correlates all workers, which hides smaller groups, so the first
    # is that of residuals without the common part. But where one group is most of the cluster, the common part is the group's,
    # and only the second, of the innovations themselves, shows it. The one whose groups agree more with the correlations wins.
    innovations = _normal_scores(_whiten(np.log(seconds)))
    correlation = innovations.T @ innovations / len(innovations)
    residual_groups = _cluster(_remove_common_part(innovations))
    if not residual_groups.any():  # any remaining groups may be workers that follow the whole cluster more or less closely
        return residual_groups
    return max(residual_groups, _cluster(innovations), key=lambda group_of: _contrast(group_of, correlation))


def _cluster(innovations: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return each worker's group, by average linkage on significant correlations; one group if no two workers correlate.

    Args:
        innovations: what whitening leaves, of mean 0 and deviation 1 [iterations - 1, workers].
    """
    workers = innovations.shape[1]
    correlation = np.round(innovations.T @ innovations / len(innovations), 9)  # the last digits depend on the machine
    tree = scipy.cluster.hierarchy.linkage(1 - correlation[np.triu_indices(workers, 1)], "average")
    group_of = _cut_tree(tree, workers, _significant_correlation(innovations))
    return group_of if group_of.max() < workers - 1 else np.zeros(workers, np.int64)


def _contrast(group_of: NDArray[np.int64], correlation: NDArray[np.float64]) -> float:
    """Return the correlation of "in the same group" with the workers' correlation, over pairs: -1 to 1, 0 for one group."""
    pairs = np.triu_indices(len(group_of), 1)
    together = (group_of[pairs[0]] == group_of[pairs[1]]).astype(float)
    centred_together = together - together.mean()
    centred_correlation = correlation[pairs] - correlation[pairs].mean()
    scale = math.sqrt(float(centred_together @ centred_together) * float(centred_correlation @ centred_correlation))
    return float(centred_together @ centred_correlation) / scale if scale else 0.0


def _whiten(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the part of each log time that the worker's previous one does not predict: [iterations - 1, workers]."""
    centred = logs - logs.mean(0)
    previous, current = centred[:-1], centred[1:]
    return current - previous * ((previous * current).sum(0) / np.maximum((previous**2).sum(0), 1e-300))


def _normal_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return normal scores of the ranks of each worker's values, so that rare delays do not look like correlation."""
    return _standardize(scipy.special.ndtri(scipy.stats.rankdata(values, axis=0) / (len(values) + 1)))


def _standardize(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standardise to mean 0 and deviation 1 for each worker; a worker that never varies gets zeros."""
    centred = values - values.mean(0)
    deviation = centred.std(0)
    return centred / np.where(deviation > 1e-12, deviation, math.inf)


def _remove_common_part(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return residuals of each worker's regression on the cluster's mean, weighted by how closely workers follow it."""
    weights = np.maximum(values.mean(1) @ values, 0)  # covariance of each worker with the plain mean
    mean = values @ weights
    return _standardize(values - np.outer(mean, mean @ values / max(float(mean @ mean), 1e-300)))


def _significant_correlation(innovations: NDArray[np.float64]) -> float:
    """Return the correlation that is significant however the two series were selected [Fisher 1921; Bartlett 1946]."""
    # Fisher's transformation makes a correlation nearly normal, with a deviation of 1 / sqrt(number of independent pairs). What
    # autocorrelation whitening leaves over reduces that number (Bartlett). The clustering picks the largest of many
    # correlations, so the probability of chance is divided by the cube of the number of workers.
    iterations, workers = innovations.shape
    lags = range(1, min(_LAGS, iterations // 4) + 1)
    persistence = sum(float((innovations[:-lag] * innovations[lag:]).mean()) ** 2 for lag in lags)
    independent_pairs = max(iterations / (1 + 2 * persistence) - 4, 1.0)  # a little stricter than Fisher, who subtracts 3
    return math.tanh(float(-scipy.special.ndtri(_FALSE_ALARM_RATE / workers**3)) / math.sqrt(independent_pairs))


def _cut_tree(tree: NDArray[np.float64], workers: int, threshold: float) -> NDArray[np.int64]:
    """Cut the tree into the largest clusters whose two halves belong together.

    The halves' averages must correlate significantly. Members of different halves must correlate at least half as much as
    members of the same half.
    """
    # Members of each cluster, and the sum of their correlations: of each with itself, 1, and of each with every other, twice.
    sizes, sums = np.ones(2 * workers - 1), np.ones(2 * workers - 1)
    group_of = np.arange(workers)
    members = [[worker] for worker in range(workers)]
    for cluster, (left, right, distance, _) in enumerate(tree, start=workers):
        halves = [int(left), int(right)]
        cross_sum = (1 - distance) * sizes[halves].prod()  # the distance is 1 - the mean correlation across the halves
        pairs = (sizes[halves] * (sizes[halves] - 1)).sum()
        mean_within = (sums[halves] - sizes[halves]).sum() / pairs if pairs else 0.0
        sizes[cluster], sums[cluster] = sizes[halves].sum(), sums[halves].sum() + 2 * cross_sum
        members.append(members[halves[0]] + members[halves[1]])
        correlation = cross_sum / math.sqrt(max(sums[halves].prod(), 1e-300))  # of the halves' averages
        if correlation > threshold and 1 - distance >= mean_within / 2:
            group_of[members[cluster]] = min(members[cluster])
    return np.unique(group_of, return_inverse=True)[1].astype(np.int64)
