"""Forward and backward passes for independent hidden Markov chains that share transitions [Baum et al. 1970; Rabiner 1989]."""

import math

import numpy as np

from fred.cluster.elementary import exp
from fred.prediction.lognormal import Floats


def predicted(state: Floats, transition: Floats) -> Floats:
    """Return the state probabilities one step later: [chains, states].

    Args:
        state: current probabilities [chains, states].
        transition: probability that the row's state is followed by the column's state [states, states].

        >>> import numpy as np
        >>> from fred.prediction.forward import predicted
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
        >>> from fred.prediction.forward import updated
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
