"""The models that are tried on a trace, and how well each predicts iterations that it has not seen."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fred.cluster.latency import Latency, LogNormal
from fred.fitting.description import group_means
from fred.fitting.filtering import Matrix, Noise, Series, Switching, log_likelihood
from fred.fitting.latencies import FITS, log_density
from fred.fitting.moments import autocovariances, fit_noise
from fred.fitting.switching import fit_switching

Groups = NDArray[np.int64]
_LEAST_VARIANCE = 1e-8
_DEVIATIONS = 3.0  # by which what workers of a node share must stand out of its sampling error


@dataclass(frozen=True)
class Independent:
    """Times of one distribution, divided by the workers' speeds."""

    latency: Latency
    speeds: NDArray[np.float64]

    @property
    def parameters(self) -> int:
        """How many there are beside the speeds: all that are fitted have a scale and a shape."""
        return 2

    @property
    def parts(self) -> tuple[object, ...]:
        """What it consists of: two models of the same parts are the same model."""
        return (type(self.latency),)

    def log_likelihood(self, seconds: Matrix) -> NDArray[np.float64]:
        """Of each iteration, summed over the workers."""
        return (log_density(self.latency, seconds * self.speeds) + np.log(self.speeds)).sum(1)


@dataclass(frozen=True)
class Composed:
    """Log-normal times, with persistent noise of workers, noise of nodes, and slow states of nodes on top.

    Within a node, workers differ by their levels only; so the node's mean and the workers' deviations from it are independent,
    and each has an exact filter.
    """

    levels: NDArray[np.float64]  # of the logarithm, in the fast state
    group_of: Groups
    white: float  # deviation of the logarithm, of each gradient
    worker: Noise | None = None
    node_white: float = 0.0
    node: Noise | None = None
    switching: Switching | None = None
    slow: Matrix = field(default_factory=lambda: np.zeros((0, 0)))  # how surely each node was slow, where it was fitted

    @property
    def parameters(self) -> int:
        """How many there are beside the speeds: the level and what is white, two of each noise, three of states."""
        noises = 2 * sum(noise is not None for noise in (self.worker, self.node)) + (self.node_white > 0)
        return 2 + noises + (3 if self.switching else 0)

    @property
    def parts(self) -> tuple[object, ...]:
        """What it consists of; groups matter only to what they share."""
        shared = self.node_white > 0, self.node is not None, self.switching is not None
        groups = tuple(self.group_of.tolist()) if any(shared) else ()
        return (LogNormal, *(("noise",) if self.worker else ()), *((*shared, groups) if groups else ()))

    def log_likelihood(self, seconds: Matrix) -> NDArray[np.float64]:
        """Of each iteration given those before, summed over the workers."""
        logs = np.log(seconds)
        rest = logs - self.levels
        means = group_means(rest, self.group_of)
        sizes = np.bincount(self.group_of).astype(float)
        worker = ((self.worker, 1 / sizes),) if self.worker else ()
        node = ((self.node, np.ones_like(sizes)),) if self.node else ()
        of_nodes = Series((*worker, *node), self.white**2 / sizes + self.node_white**2, self.switching)
        total = log_likelihood(means, of_nodes) - 0.5 * np.log(sizes).sum() - logs.sum(1)
        company = sizes[self.group_of] > 1
        if company.any():
            share = 1 - 1 / sizes[self.group_of][company]
            alike = np.ones(int(company.sum()))
            noises = ((self.worker, alike),) if self.worker else ()
            deviations = (rest - means[:, self.group_of])[:, company]
            total += log_likelihood(deviations, Series(noises, alike * self.white**2, dimensions=share))
        return total


def fit_independent(name: str, seconds: Matrix) -> Independent:
    """One of the latencies that have a likelihood, with the workers' speeds."""
    levels = worker_levels(np.log(seconds))
    speeds = np.exp(levels.mean() - levels)
    return Independent(FITS[name]((seconds * speeds).ravel()), speeds)


def fit_composed(seconds: Matrix, group_of: Groups, persistent: bool, of_nodes: bool, switching: bool) -> Composed:
    """Log-normal times with what is asked for on top; without anything of nodes, workers are independent."""
    logs = np.log(seconds)
    groups = group_of if of_nodes or switching else np.arange(len(group_of))
    levels = worker_levels(logs)
    means = group_means(logs - levels, groups)
    states, shift, slow = fit_switching(means) if switching else (None, means.mean(0), np.zeros_like(means))
    levels = levels + shift[groups]
    means = means - shift - (states.slowdown * slow if states else 0)
    white, worker, node_white, node = _noises(logs - levels, means, slow * (states.slowdown if states else 0), groups, of_nodes)
    if not persistent and worker:
        white, worker = float(np.hypot(white, worker.deviation)), None
    return Composed(levels, groups, white, worker, node_white, node, states, slow)


def _noises(
    rest: Matrix, means: Matrix, slowed: Matrix, groups: Groups, of_nodes: bool
) -> tuple[float, Noise | None, float, Noise | None]:
    """White and persistent noise of workers, and of nodes: deviations and noises."""
    iterations = len(rest)
    sizes = np.bincount(groups).astype(float)
    company = sizes[groups] > 1
    means = means - means.mean(0)
    if company.any():
        deviations = (rest - slowed[:, groups] - means[:, groups])[:, company] / np.sqrt(1 - 1 / sizes[groups][company])
        deviations -= deviations.mean(0)
        variance, worker = fit_noise(autocovariances(deviations), iterations, deviations.shape[1])
    else:
        variance, worker = fit_noise(autocovariances(means), iterations, means.shape[1])
    white = float(np.sqrt(max(variance, _LEAST_VARIANCE)))
    if not of_nodes or not company.any():
        return white, worker, 0.0, None
    covariances = autocovariances(means)
    lags = np.arange(len(covariances))
    of_workers = (worker.deviation**2 * worker.persistence**lags if worker else 0 * lags) + variance * (lags == 0)
    node_variance, node = fit_noise(covariances - of_workers * (1 / sizes).mean(), iterations, len(sizes))
    if node_variance < _DEVIATIONS * float(covariances[0]) * np.sqrt(2 / (iterations * len(sizes))):
        node_variance = 0.0
    return white, worker, float(np.sqrt(node_variance)), node


def worker_levels(logs: Matrix) -> NDArray[np.float64]:
    """Mean logarithm of each worker, drawn towards that of all as far as its two halves do not agree: [workers]."""
    centre = logs.mean()
    own = logs.mean(0) - centre
    half = len(logs) // 2
    first, second = logs[:half].mean(0), logs[half:].mean(0)
    agreement = float(((first - first.mean()) * (second - second.mean())).mean())
    variance = float((own**2).mean())
    return centre + own * (np.clip(agreement / variance, 0, 1) if variance > 0 else 0.0)
