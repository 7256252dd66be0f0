"""Expectation maximisation for nodes that switch between common levels, with a median per worker [Baum et al. 1970]."""

import math
from dataclasses import dataclass, replace

import numpy as np

from fred.base.elementary import exp
from fred.cluster.contention import NodeOf
from fred.prediction.contract import Progress
from fred.prediction.lognormal import Floats

_LEAST_DEVIATION = 1e-3
_TAIL = 0.005  # the initial levels are spread evenly between this quantile of the chains' means and its opposite


@dataclass(frozen=True)
class Switching:
    """A switching model: log x = worker offset + level of the chain's state + normal noise; `transition` is between states."""

    levels: Floats  # [states], ascending; the most common is 0
    transition: Floats  # [states, states]
    offsets: Floats  # [workers]
    deviations: Floats  # [workers]


def fit(logs: Floats, chain_of: NodeOf, states: int, passes: int, progress: Progress) -> Switching:
    """Fit the model to logs of times in complete rounds [iterations, workers], given the chain of each worker [workers].

    Raises ValueError if there are too few iterations.
    """
    if len(logs) < 2 * states:
        raise ValueError(f"{len(logs)} iterations to train on; at least {2 * states} are needed for {states} states")
    model = _first(logs, chain_of, states)
    for number in range(passes):
        model = _improved(model, logs, chain_of)
        progress((number + 1) / passes)
    return model


def _first(logs: Floats, chain_of: NodeOf, states: int) -> Switching:
    offsets = np.sort(logs, axis=0)[len(logs) // 2]
    spread = np.sort((logs - offsets) ** 2, axis=0)[len(logs) // 2]
    deviations = np.maximum(np.sqrt(2.2 * spread), _LEAST_DEVIATION)  # a normal variance is 2.2 times the median square
    model = Switching(np.zeros(1), np.ones((1, 1)), offsets, deviations)
    means = np.sort(_chain_means(model, logs, chain_of)[0].ravel())
    low, high = means[int(_TAIL * len(means))], means[int((1 - _TAIL) * (len(means) - 1))]
    transition = np.full((states, states), 0.1 / states) + 0.9 * np.eye(states)
    return replace(model, levels=np.linspace(low, high, states), transition=transition)


def _improved(model: Switching, logs: Floats, chain_of: NodeOf) -> Switching:
    means, weights = _chain_means(model, logs, chain_of)
    misses = (means[:, :, None] - model.levels) ** 2
    states, followed = smoothed(likelihood(-weights[:, None] * misses / 2), model.transition)
    flat = states.reshape(-1, states.shape[2])
    weight = np.broadcast_to(weights, means.shape).reshape(-1, 1)
    weighted = flat * weight
    levels = np.add.reduce(weighted * means.reshape(-1, 1), axis=0) / np.maximum(np.add.reduce(weighted, axis=0), 1e-9)
    level, square = (over_states(states * each) for each in (levels, levels**2))
    own = logs - np.take(level, chain_of, axis=1)
    offsets = np.add.reduce(own, axis=0) / len(logs)
    variance = np.add.reduce((own - offsets) ** 2 + np.take(square - level**2, chain_of, axis=1), axis=0) / len(logs)
    counts = followed + 1 / len(levels)
    common = levels[np.argmax(np.add.reduce(flat, axis=0))]
    return Switching(
        levels - common,
        counts / over_states(counts)[:, None],
        offsets + common,
        np.maximum(np.sqrt(np.maximum(variance, 0.0)), _LEAST_DEVIATION),  # cancellation may give a value below 0
    )


def _chain_means(model: Switching, logs: Floats, chain_of: NodeOf) -> tuple[Floats, Floats]:
    """Return, without worker offsets, each chain's weighted mean [iterations, chains] and sum of weights [chains]."""
    precision = 1 / model.deviations**2
    weights = np.asarray(np.bincount(chain_of, precision), np.float64)
    sums = np.zeros((len(weights), len(logs)))
    np.add.at(sums, chain_of, ((logs - model.offsets) * precision).T)
    return np.ascontiguousarray((sums / np.maximum(weights, 1e-9)[:, None]).T), weights


def predicted(state: Floats, transition: Floats) -> Floats:
    """Return the state probabilities one step later: [chains, states].

    Args:
        state: current probabilities [chains, states].
        transition: probability that the row's state is followed by the column's state [states, states].

        >>> import numpy as np
        >>> from fred.prediction.baum_welch import predicted
        >>> predicted(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.9, 0.1], [0.5, 0.5]])).round(3).tolist()
        [[0.9, 0.1], [0.7, 0.3]]
    """
    return over_states(state[:, None, :] * transition.T)


def updated(state: Floats, log_likelihood: Floats) -> Floats:
    """Return the state probabilities given an observation; its likelihood needs to be known only up to a factor per chain.

    Args:
        state: probabilities before the observation [chains, states].
        log_likelihood: log-likelihood of the observation in each state [chains, states].

        >>> import numpy as np
        >>> from fred.prediction.baum_welch import updated
        >>> updated(np.array([[0.5, 0.5]]), np.log([[3.0, 1.0]])).round(3).tolist()
        [[0.75, 0.25]]
    """
    return _normal(state * likelihood(np.where(state > 0, log_likelihood, -math.inf)))


def likelihood(logarithms: Floats) -> Floats:
    """Return the likelihood of each state relative to the most likely one [..., states]."""
    return exp(logarithms - logarithms.max(axis=-1, keepdims=True))


def smoothed(likelihoods: Floats, transition: Floats) -> tuple[Floats, Floats]:
    """Return the state probabilities given all observations [times, chains, states], and expected transition counts.

    `likelihoods` are [times, chains, states]; a chain starts in any state with equal probability. The counts are [states,
    states].
    """
    times, _, states = likelihoods.shape
    forward = np.empty_like(likelihoods)
    state = np.full(likelihoods.shape[1:], 1 / states)
    for t in range(times):
        forward[t] = state = _normal(state * likelihoods[t])
        state = predicted(state, transition)
    followed, later = np.zeros((states, states)), np.ones(state.shape)
    for t in reversed(range(times - 1)):
        ahead = likelihoods[t + 1] * later  # likelihood of the observations from t + 1 on, given the state then
        pairs = forward[t][:, :, None] * transition * ahead[:, None, :]
        total = over_states(over_states(pairs))
        followed += np.add.reduce(pairs / total[:, None, None], axis=0)
        later = over_states(transition * ahead[:, None, :])
        later /= later.max(axis=-1, keepdims=True)
        forward[t] = _normal(forward[t] * later)
    return forward, followed


def _normal(weights: Floats) -> Floats:
    return weights / over_states(weights)[..., None]


def over_states(array: Floats) -> Floats:
    """Sum over the last axis one by one: along contiguous numbers NumPy may sum in another order."""
    return np.add.reduce(np.ascontiguousarray(np.moveaxis(array, -1, 0)), axis=0)
