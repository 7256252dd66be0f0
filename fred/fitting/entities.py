"""A model of a cluster by entity: levels, regimes of the cluster, nodes and workers, and noise; in sentences, too."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from fred.cluster.contention import Scope
from fred.fitting.description import Matrix, group_means
from fred.fitting.entity_regimes import InSpells, InWaves, Regime, Wanders, fit_regimes
from fred.fitting.series import Noise, autocovariances, fit_noise

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
    levels = worker_levels(medians + rest)  # medians resist regimes; without these, means are exact
    rest = medians + rest - levels
    wandering_variances = np.zeros(len(group_of))  # variance of workers with wandering speed; 0: steady ones
    for regime in fitted:
        if isinstance(regime, Wanders) and regime.scope == "worker":
            wandering_variances[list(regime.entities)] = regime.deviation**2
    steady = wandering_variances == 0
    shared = (
        _fit_shared_noise(rest[:, steady], np.unique(group_of[steady], return_inverse=True)[1])
        if noise and steady.any()
        else Shared()
    )
    kind_of = kinds(rest)
    variances = np.array([rest[:, kind_of == kind].var() for kind in range(int(kind_of.max()) + 1)])[kind_of]  # [workers]
    white = np.maximum(variances - np.where(steady, shared.variance, wandering_variances), _LEAST_WHITE_SHARE * variances)
    return Model(levels, tuple(fitted), shared, rest, np.sqrt(np.maximum(white, _LEAST_VARIANCE)), kind_of)


def _subtract_regimes(rest: Matrix, rounds: NDArray[np.float64], group_of: Groups) -> tuple[Matrix, list[Regime]]:
    """Subtract regimes from the logarithms; return the rest, and the regimes.

    Args:
        rest: logarithms of compute times, less their medians [iterations, workers].
        rounds: duration of each iteration, s [iterations].
        group_of: node number of each worker, from 0 [workers].
    """
    regimes: list[Regime] = []
    for scope, entity_of in _scopes(group_of):
        series = rest if scope == "worker" else _medians(rest, entity_of)
        fitted = fit_regimes(series, rounds, scope, partial(_is_followed, rest, entity_of))
        regimes += fitted.regimes
        rest = rest - fitted.effect[:, entity_of]
        # Wandering has no part in `effect`. That of the cluster is taken out as a whole, or each node and worker would show it.
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
    slopes = centred @ (logs - logs.mean(0)) / (centred @ centred)  # least squares; 1: the whole effect
    return bool((slopes > _LEAST_SHARE).mean() >= _LEAST_FOLLOWERS)


def kinds(rest: Matrix) -> Groups:
    """Group workers by scatter; return the kind of each, numbered from 0, smallest scatter first [workers].

    Args:
        rest: logarithms less their level [iterations, workers].

    >>> kinds(np.random.default_rng(0).normal(size=(200, 4)) * [0.1, 0.3, 0.1, 0.1]).tolist()
    [0, 1, 0, 0]
    """
    kurtosis, inflation = _measure_shape(rest)
    error = 0.5 * np.sqrt(max(kurtosis - 1, 0.0) * inflation / len(rest))  # standard error of a log deviation
    log_scatter = np.log(np.maximum(rest.std(0), 1e-12))
    kind_of = np.zeros(rest.shape[1], np.int64)
    for kind, members in enumerate(_split_by_scatter(np.argsort(log_scatter, kind="stable"), log_scatter, float(error))):
        kind_of[members] = kind
    return kind_of


def _measure_shape(rest: Matrix) -> tuple[float, float]:
    """Return the kurtosis of the columns, and the factor by which persistence inflates the variance of a mean square."""
    standard = (rest - rest.mean(0)) / np.maximum(rest.std(0), 1e-300)
    lags = range(1, min(_LAGS, len(rest) // 4) + 1)
    return float((standard**4).mean()), 1 + 2 * sum(float((standard[lag:] * standard[:-lag]).mean()) ** 2 for lag in lags)


def _split_by_scatter(members: Groups, log_scatter: NDArray[np.float64], error: float) -> list[Groups]:
    """Split workers, sorted by scatter, where they differ most, as long as the difference is significant."""
    ordered = log_scatter[members]
    # With the same scatter, the squares divided by that of the standard error follow a chi-squared distribution.
    if len(ordered) < 2 or ((ordered - ordered.mean()) ** 2).sum() < error**2 * chi2.isf(_SIGNIFICANCE, len(ordered) - 1):
        return [members]
    misfits = [ordered[:cut].var() * cut + ordered[cut:].var() * (len(ordered) - cut) for cut in range(1, len(ordered))]
    cut = int(np.argmin(misfits)) + 1
    if ordered[cut:].mean() - ordered[:cut].mean() < np.log(_LEAST_RATIO):
        return [members]
    return [*_split_by_scatter(members[:cut], log_scatter, error), *_split_by_scatter(members[cut:], log_scatter, error)]


def _fit_shared_noise(rest: Matrix, groups: Groups) -> Shared:
    """Fit noise of workers within their node, and of nodes, to autocovariances."""
    iterations = len(rest)
    sizes = np.bincount(groups).astype(float)
    has_neighbours = sizes[groups] > 1
    rest = rest - rest.mean(0)
    means = group_means(rest, groups)
    # Subtracting the mean of n workers leaves 1 - 1 / n of their variance. Workers alone in a node show none of their noise;
    # if all are alone, a node's noise counts as its worker's.
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
    worker_covariances = (worker.deviation**2 * worker.persistence**lags if worker else 0 * lags) + variance * (lags == 0)
    # The mean of n workers has 1 / n of the covariances of their independent noise.
    node_variance, node = fit_noise(covariances - worker_covariances * (1 / sizes).mean(), iterations, len(sizes))
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
    agreement = float(((first - first.mean()) * (second - second.mean())).mean())  # covariance: offsets that last
    variance = float((offsets**2).mean())
    # The largest sum of squares that chance explains: the variance of a mean, times a quantile of chi-squared.
    chance_squares = float(logs.var(0).mean()) / len(logs) * chi2.isf(_SIGNIFICANCE, max(len(offsets) - 1, 1))
    if variance * len(offsets) <= chance_squares:
        return np.full_like(offsets, mean)
    return mean + offsets * np.clip(agreement / variance, 0, 1)


_SLOWER = 1.15  # time relative to the median worker from which a worker gets a sentence
_MOST_NAMES = 4
_MOST_LINES = 8


def sentences(
    model: Model, workers: Sequence[str], group_of: Groups, nodes_given: bool, nodes: Sequence[str] = ()
) -> list[str]:
    """Return sentences on slow workers and nodes, by how much and when, costliest first.

    Args:
        model: model fitted to the trace.
        workers: names of the workers.
        group_of: node number of each worker, from 0 [workers].
        nodes_given: True if the trace gives the nodes; otherwise they were found.
        nodes: names of the nodes; if empty, a node is named by its workers.

    >>> from fred.fitting.entities import fit_model
    >>> seconds = np.random.default_rng(0).lognormal(sigma=0.1, size=(100, 4)) * [1, 1, 1, 3]
    >>> sentences(fit_model(seconds, np.zeros(4, int)), ["a", "b", "c", "d"], np.zeros(4, int), nodes_given=False)
    ['Worker d is always 3.0 times slower than the median worker.']
    """
    relative = np.exp(model.levels - np.median(model.levels))
    spells = [regime for regime in model.regimes if isinstance(regime, InSpells) and regime.scope == "worker"]
    in_spells = {worker for regime in spells for worker in regime.entities}
    slow_workers = np.flatnonzero(relative > _SLOWER).tolist()
    effects = [  # cost of an effect, by which sentences are sorted, and its sentence
        (float(relative[worker]), _level_sentence(workers[worker], relative[worker], worker in in_spells))
        for worker in slow_workers
    ]
    if len(slow_workers) > len(workers) / 4:  # too many to name
        spread = float(relative.max() / relative.min())
        effects = [(spread, f"Workers differ: the slowest takes {spread:.1f} times as long as the fastest.")]
    effects += [_regime_sentence(regime, workers, group_of, nodes) for regime in model.regimes]
    if len(set(group_of.tolist())) > 1:
        effects.append((0.0, f"{int(group_of.max()) + 1} nodes, {'given by' if nodes_given else 'found in'} the trace."))
    effects.sort(key=lambda effect: -effect[0])
    lines = [line for _, line in effects[:_MOST_LINES]]
    if len(effects) > _MOST_LINES:
        lines.append(f"{len(effects) - _MOST_LINES} smaller effects are in the cluster, too.")
    return lines or ["No worker is slow for long."]


def _level_sentence(name: str, slowdown: float, in_spells: bool) -> str:
    """Return the sentence on a worker that is usually slow; a worker with spells is not always as slow."""
    if in_spells:
        return f"Worker {name} is {slowdown:.1f} times slower than the median worker outside its spells."
    return f"Worker {name} is always {slowdown:.1f} times slower than the median worker."


def _regime_sentence(regime: Regime, workers: Sequence[str], group_of: Groups, nodes: Sequence[str]) -> tuple[float, str]:
    """Return the cost of a regime, relative to others, and the sentence on it."""
    subject, verb = _subject(regime, workers, group_of, nodes)
    if isinstance(regime, InSpells):
        spells = f"in spells of about {regime.iterations:.0f} iterations, {regime.share:.0%} of the time"
        return regime.slowdown * regime.share, f"{subject} {verb} {regime.slowdown:.1f} times slower {spells}."
    if isinstance(regime, InWaves):
        if regime.drift:
            change = "becomes" if verb == "is" else "become"
            direction = "slower" if regime.peak > regime.period / 4 else "faster"  # peak at the end, or at the begin
            return regime.slowdown, f"{subject} {change} {regime.slowdown:.1f} times {direction} in the course of the trace."
        return regime.slowdown, f"{subject} {verb} up to {regime.slowdown:.1f} times slower in a wave of {regime.period:.4g} s."
    return regime.deviation, f"{subject} wander{'s' if verb == 'is' else ''} by about {np.expm1(regime.deviation):.0%}."


def _subject(regime: Regime, workers: Sequence[str], group_of: Groups, nodes: Sequence[str]) -> tuple[str, str]:
    """Return the subject of a sentence, and its verb."""
    if regime.scope == "cluster":
        return "The whole cluster", "is"
    if not regime.entities:
        return f"Each {regime.scope}, by itself,", "is"
    if regime.scope == "worker":
        names = [workers[entity] for entity in regime.entities]
        return (f"Worker {names[0]}", "is") if len(names) == 1 else (f"Workers {_join_names(names)}", "are")
    if nodes:
        names = [nodes[node] for node in regime.entities]
        return (f"Node {names[0]}", "is") if len(names) == 1 else (f"Nodes {_join_names(names)}", "are")
    node_members = [np.flatnonzero(group_of == node).tolist() for node in regime.entities]
    subject = " and ".join(f"the node of {_join_names([workers[worker] for worker in members])}" for members in node_members)
    return subject[0].upper() + subject[1:], "is" if len(node_members) == 1 else "are"


def _join_names(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return ", ".join(names[: _MOST_NAMES - 1]) + f" ... {names[-1]} ({len(names)})"
