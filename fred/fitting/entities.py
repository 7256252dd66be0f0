"""A model of a cluster by entity: levels, regimes of the cluster, nodes and workers, and noise."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from fred.cluster.contention import Scope
from fred.fitting.description import Matrix, group_means
from fred.fitting.entity_regimes import Regime, Wanders, fit_regimes
from fred.fitting.moments import Noise, autocovariances, fit_noise

Groups = NDArray[np.int64]
_LEAST_SHARE = 0.5  # share of a regime's effect that a worker must show to follow it
_LEAST_FOLLOWERS = 0.8  # share of an entity's workers that must follow
_SIGNIFICANCE = 0.001  # significance level of a difference in scatter,
_LEAST_RATIO = 1.25  # and its least size
_LAGS = 10  # lags of the autocorrelation that makes a scatter less certain
_STANDARD_ERRORS = 3.0  # standard errors by which noise shared in a node must differ from 0
_LEAST_VARIANCE = 1e-8
_LEAST_NOISE = 0.1  # share of the deviation below which noise is left out
_LEAST_WHITE_SHARE = 0.1  # least share of a variance that is white noise


@dataclass(frozen=True)
class Shared:
    """Noise with the same parameters for all workers.

    Args:
        worker: persistent noise of each worker.
        node_white: deviation of the white noise shared by the workers of a node.
        node: persistent noise of each node.
    """

    worker: Noise | None = None
    node_white: float = 0.0
    node: Noise | None = None

    @property
    def variance(self) -> float:
        """Return the total variance of this noise in one worker's logarithms."""
        return self.node_white**2 + sum(noise.deviation**2 for noise in (self.worker, self.node) if noise)


@dataclass(frozen=True)
class Model:
    """A decomposition of a trace, entity by entity.

    Args:
        levels: level of each worker's logarithms without slowdowns [workers].
        regimes: regimes of the cluster, of nodes and of workers.
        noise: persistent and shared noise.
        rest: logarithms without levels and regimes [iterations, workers].
        white: deviation of each worker's logarithms without any other noise [workers].
        kind_of: kind of each worker; workers of one kind have the same scatter [workers].
    """

    levels: NDArray[np.float64]
    regimes: tuple[Regime, ...]
    noise: Shared
    rest: Matrix
    white: NDArray[np.float64]
    kind_of: Groups

    @property
    def noisy(self) -> bool:
        """Return True if some of the noise is not independent."""
        return self.noise.variance > 0 or any(isinstance(regime, Wanders) for regime in self.regimes)


def fit_model(seconds: Matrix, group_of: Groups, regimes: bool = True, noise: bool = True) -> Model:
    """Decompose compute times into parts of the whole cluster, then of its nodes, then of its workers.

    Args:
        seconds: compute times, s [iterations, workers].
        group_of: node number of each worker, from 0 [workers].
        regimes: True to look for regimes; otherwise all variation is noise.
        noise: True to look for persistent or shared noise; otherwise all noise is independent.

    Example: the last of four workers is three times slower.
        >>> seconds = np.random.default_rng(0).lognormal(sigma=0.1, size=(100, 4)) * [1, 1, 1, 3]
        >>> model = fit_model(seconds, np.zeros(4, int))
        >>> np.exp(model.levels).round(1).tolist(), model.white.round(1).tolist(), model.regimes
        ([1.0, 1.0, 1.0, 3.0], [0.1, 0.1, 0.1, 0.1], ())
    """
    logs = np.log(seconds)
    medians = np.median(logs, axis=0)
    rest, fitted = _subtract_regimes(logs - medians, seconds.max(1), group_of) if regimes else (logs - medians, [])
    levels = worker_levels(medians + rest)
    rest = medians + rest - levels
    wandering_variances = np.zeros(len(group_of))  # variance of workers with wandering speed
    for regime in fitted:
        if isinstance(regime, Wanders) and regime.of == "worker":
            wandering_variances[list(regime.entities)] = regime.deviation**2
    steady = wandering_variances == 0
    shared = (
        _fit_shared_noise(rest[:, steady], np.unique(group_of[steady], return_inverse=True)[1])
        if noise and steady.any()
        else Shared()
    )
    kind_of = kinds(rest)
    variances = np.array([rest[:, kind_of == kind].var() for kind in range(int(kind_of.max()) + 1)])[kind_of]
    white = np.maximum(variances - np.where(steady, shared.variance, wandering_variances), _LEAST_WHITE_SHARE * variances)
    return Model(levels, tuple(fitted), shared, rest, np.sqrt(np.maximum(white, _LEAST_VARIANCE)), kind_of)


def _subtract_regimes(rest: Matrix, rounds: NDArray[np.float64], group_of: Groups) -> tuple[Matrix, list[Regime]]:
    """Subtract regimes from the logarithms; return the rest, and the regimes."""
    regimes: list[Regime] = []
    for scope, entity_of in _scopes(group_of):
        series = rest if scope == "worker" else _medians(rest, entity_of)
        fitted = fit_regimes(series, rounds, scope, partial(_is_followed, rest, entity_of))
        regimes += fitted.regimes
        rest = rest - fitted.effect[:, entity_of]
        if scope == "cluster" and any(isinstance(regime, Wanders) for regime in fitted.regimes):
            rest = rest - (series - fitted.effect - (series - fitted.effect).mean())
    return rest, regimes


def _scopes(group_of: Groups) -> list[tuple[Scope, Groups]]:
    """Return the kinds of entities, the largest first, and the entity of each worker."""
    workers, nodes = len(group_of), int(group_of.max()) + 1
    scopes: list[tuple[Scope, Groups]] = [("worker", np.arange(workers))]
    if 1 < nodes < workers:
        scopes.insert(0, ("node", group_of))
    if workers > 1:
        scopes.insert(0, ("cluster", np.zeros_like(group_of)))
    return scopes


def _medians(rest: Matrix, entity_of: Groups) -> Matrix:
    """Return the median over the workers of each entity [iterations, entities]."""
    return np.stack([np.median(rest[:, entity_of == entity], axis=1) for entity in range(int(entity_of.max()) + 1)], 1)


def _is_followed(rest: Matrix, entity_of: Groups, entity: int, effect: NDArray[np.float64]) -> bool:
    """Return True if most workers of an entity show the regime's effect on it [iterations]."""
    centred = effect - effect.mean()
    logs = rest[:, entity_of == entity]
    slopes = centred @ (logs - logs.mean(0)) / (centred @ centred)
    return bool((slopes > _LEAST_SHARE).mean() >= _LEAST_FOLLOWERS)


def kinds(rest: Matrix) -> Groups:
    """Group workers by scatter; return the kind of each, numbered from 0, smallest scatter first [workers].

    Args:
        rest: logarithms less their level [iterations, workers].

    >>> kinds(np.random.default_rng(0).normal(size=(200, 4)) * [0.1, 0.3, 0.1, 0.1]).tolist()
    [0, 1, 0, 0]
    """
    kurtosis, persistent = _shape(rest)
    error = 0.5 * np.sqrt(max(kurtosis - 1, 0.0) * persistent / len(rest))  # standard error of a log deviation
    scatter = np.log(np.maximum(rest.std(0), 1e-12))
    kind_of = np.zeros(rest.shape[1], np.int64)
    for kind, members in enumerate(_split_by_scatter(np.argsort(scatter, kind="stable"), scatter, float(error))):
        kind_of[members] = kind
    return kind_of


def _shape(rest: Matrix) -> tuple[float, float]:
    """Return the kurtosis of the columns, and the factor by which persistence inflates the variance of a mean square."""
    standard = (rest - rest.mean(0)) / np.maximum(rest.std(0), 1e-300)
    lags = range(1, min(_LAGS, len(rest) // 4) + 1)
    return float((standard**4).mean()), 1 + 2 * sum(float((standard[lag:] * standard[:-lag]).mean()) ** 2 for lag in lags)


def _split_by_scatter(members: Groups, scatter: NDArray[np.float64], error: float) -> list[Groups]:
    """Split workers, sorted by scatter, where they differ most, as long as the difference is significant."""
    ordered = scatter[members]
    if len(ordered) < 2 or ((ordered - ordered.mean()) ** 2).sum() < error**2 * chi2.isf(_SIGNIFICANCE, len(ordered) - 1):
        return [members]
    misfits = [ordered[:cut].var() * cut + ordered[cut:].var() * (len(ordered) - cut) for cut in range(1, len(ordered))]
    cut = int(np.argmin(misfits)) + 1
    if ordered[cut:].mean() - ordered[:cut].mean() < np.log(_LEAST_RATIO):
        return [members]
    return [*_split_by_scatter(members[:cut], scatter, error), *_split_by_scatter(members[cut:], scatter, error)]


def _fit_shared_noise(rest: Matrix, groups: Groups) -> Shared:
    """Fit noise of workers within their node, and of nodes, to autocovariances."""
    iterations = len(rest)
    sizes = np.bincount(groups).astype(float)
    has_neighbours = sizes[groups] > 1
    rest = rest - rest.mean(0)
    means = group_means(rest, groups)
    deviations = (
        (rest - means[:, groups])[:, has_neighbours] / np.sqrt(1 - 1 / sizes[groups][has_neighbours])
        if has_neighbours.any()
        else means
    )
    variance, worker = fit_noise(autocovariances(deviations), iterations, deviations.shape[1])
    least = _LEAST_NOISE * float(rest.std())
    worker_noise = worker if worker and worker.deviation > least else None
    if not has_neighbours.any():
        return Shared(worker_noise)
    covariances = autocovariances(means)
    lags = np.arange(len(covariances))
    of_workers = (worker.deviation**2 * worker.persistence**lags if worker else 0 * lags) + variance * (lags == 0)
    node_variance, node = fit_noise(covariances - of_workers * (1 / sizes).mean(), iterations, len(sizes))
    if node_variance < _STANDARD_ERRORS * float(covariances[0]) * np.sqrt(2 / (iterations * len(sizes))):
        node_variance = 0.0
    return Shared(worker_noise, float(np.sqrt(node_variance)), node if node and node.deviation > least else None)


def worker_levels(logs: Matrix) -> NDArray[np.float64]:
    """Return each worker's mean, shrunk towards the overall mean as far as its two halves disagree [workers].

    If the means do not differ significantly, all are the same.

    Args:
        logs: logarithms of compute times [iterations, workers].

    >>> worker_levels(np.array([[0.0, 1.0], [0.0, 1.0]])).tolist()
    [0.0, 1.0]
    """
    mean = logs.mean()
    offsets = logs.mean(0) - mean
    half = len(logs) // 2
    first, second = logs[:half].mean(0), logs[half:].mean(0)
    agreement = float(((first - first.mean()) * (second - second.mean())).mean())
    variance = float((offsets**2).mean())
    chance_variance = float(logs.var(0).mean()) / len(logs) * chi2.isf(_SIGNIFICANCE, max(len(offsets) - 1, 1))
    if variance * len(offsets) <= chance_variance:
        return np.full_like(offsets, mean)
    return mean + offsets * np.clip(agreement / variance, 0, 1)
