"""A hidden Markov model of nodes that become slow and fast again, with times censored at the cutoff.

| name | source       |
|------|--------------|
| HMM  | Rabiner 1989 |

All nodes switch between common levels, and each worker has a median of its own. Training is expectation maximisation
[Baum et al. 1970].
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.special import log_ndtr, ndtr

from fred.base.numerics import exp, log
from fred.base.types import Floats, OnProgress
from fred.cluster.contention import NodeOf
from fred.components.component import Count, Positive
from fred.prediction.contract import Chooser, Objective
from fred.prediction.following import Watched
from fred.prediction.predictive import VARIANCE_PER_MEDIAN, Predictor, between_ranks

_LEAST_DEVIATION = 1e-3
_STAYING, _LEAVING = 0.9, 0.1  # initial weights of staying in a state, as slowdowns last for several rounds, and of a new draw
_TAIL = 0.005  # the initial levels are spread evenly between this quantile of the chains' means and its opposite
_SETTLING = 20  # rounds in which an untrained rule learns each worker's median and deviation
_REACH, _POINTS = 4.5, 256  # grid of times: deviations beyond the outermost means; number of points
Row = tuple[Annotated[float, Field(ge=0, le=1)], ...]


@dataclass(frozen=True)
class Switching:
    """A switching model: log x = worker offset + level of the chain's state + normal noise; `transition` is between states."""

    levels: Floats  # [states], ascending; the most common is 0
    transition: Floats  # [states, states]
    offsets: Floats  # [workers]
    deviations: Floats  # [workers]


def fit(logs: Floats, chain_of: NodeOf, states: int, passes: int, progress: OnProgress) -> Switching:
    """Fit the model to logs of times in complete rounds [iterations, workers], given the chain of each worker [workers].

    Raises ValueError if there are too few iterations.
    """
    if len(logs) < 2 * states:
        raise ValueError(f"{len(logs)} iterations to train on; at least {2 * states} are needed for {states} states")
    model = _initial(logs, chain_of, states)
    for number in range(passes):
        model = _improved(model, logs, chain_of)
        progress((number + 1) / passes)
    return model


def _initial(logs: Floats, chain_of: NodeOf, states: int) -> Switching:
    """Return the model before the first pass: its levels are spread evenly over the chains' means, and states last."""
    offsets, variances = _median_and_variance(logs)
    deviations = np.maximum(np.sqrt(variances), _LEAST_DEVIATION)
    means = np.sort(_chain_means(offsets, deviations, logs, chain_of)[0].ravel())  # of all iterations and chains
    low, high = means[int(_TAIL * len(means))], means[int((1 - _TAIL) * (len(means) - 1))]
    transition = np.full((states, states), _LEAVING / states) + _STAYING * np.eye(states)
    return Switching(np.linspace(low, high, states), transition, offsets, deviations)


def _median_and_variance(logs: Floats) -> tuple[Floats, Floats]:
    """Return the (upper) median along the first axis, and a variance that a few slow rounds or workers do not change."""
    median = np.sort(logs, axis=0)[len(logs) // 2]
    return median, VARIANCE_PER_MEDIAN * np.sort((logs - median) ** 2, axis=0)[len(logs) // 2]


def _improved(model: Switching, logs: Floats, chain_of: NodeOf) -> Switching:
    """Return the model after one pass of expectation maximisation."""
    # Variance: of the residuals, plus the posterior variance of the level.
    # Levels are known up to a constant: the most common one becomes 0, and the offsets take the rest.
    means, weights = _chain_means(model.offsets, model.deviations, logs, chain_of)
    squared_distances = (means[:, :, None] - model.levels) ** 2  # [iterations, chains, states]
    posterior, transition_counts = smoothed(likelihood(-weights[:, None] * squared_distances / 2), model.transition)
    levels = _new_levels(posterior, means, weights)
    expected_level, expected_square = (over_states(posterior * value) for value in (levels, levels**2))
    residuals = logs - np.take(expected_level, chain_of, axis=1)
    offsets = np.add.reduce(residuals, axis=0) / len(logs)
    squares = (residuals - offsets) ** 2 + np.take(expected_square - expected_level**2, chain_of, axis=1)
    variance = np.add.reduce(squares, axis=0) / len(logs)
    counts = transition_counts + 1 / len(levels)  # so each row has one pseudo-count
    usual_level = levels[np.argmax(np.add.reduce(posterior.reshape(-1, len(levels)), axis=0))]
    return Switching(
        levels - usual_level,
        counts / over_states(counts)[:, None],
        offsets + usual_level,
        np.maximum(np.sqrt(np.maximum(variance, 0.0)), _LEAST_DEVIATION),  # cancellation may give a value below 0
    )


def _new_levels(posterior: Floats, means: Floats, weights: Floats) -> Floats:
    """Return the levels [states]: means of the chains' means, weighted by posterior and precision."""
    shares = posterior.reshape(-1, posterior.shape[2]) * np.broadcast_to(weights, means.shape).reshape(-1, 1)
    return np.add.reduce(shares * means.reshape(-1, 1), axis=0) / np.maximum(np.add.reduce(shares, axis=0), 1e-9)


def _chain_means(offsets: Floats, deviations: Floats, logs: Floats, chain_of: NodeOf) -> tuple[Floats, Floats]:
    """Return, without worker offsets, each chain's weighted mean [iterations, chains] and sum of weights [chains].

    Args:
        offsets: each worker's log time in the most common state [workers].
        deviations: each worker's deviation of log times [workers].
        logs: logs of times [iterations, workers].
        chain_of: chain of each worker [workers].
    """
    precision = 1 / deviations**2
    weights = np.asarray(np.bincount(chain_of, precision), np.float64)
    sums = np.zeros((len(weights), len(logs)))  # [chains, iterations]; a number without workers has a weight of 0
    np.add.at(sums, chain_of, ((logs - offsets) * precision).T)
    return np.ascontiguousarray((sums / np.maximum(weights, 1e-9)[:, None]).T), weights


def predicted(state: Floats, transition: Floats) -> Floats:
    """Return the state probabilities one step later: [chains, states].

    Args:
        state: current probabilities [chains, states].
        transition: probability that the row's state is followed by the column's state [states, states].

        >>> import numpy as np
        >>> from fred.prediction.hmm import predicted
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
        >>> from fred.prediction.hmm import updated
        >>> updated(np.array([[0.5, 0.5]]), np.log([[3.0, 1.0]])).round(3).tolist()
        [[0.75, 0.25]]
    """
    return _normalised(state * likelihood(np.where(state > 0, log_likelihood, -math.inf)))


def likelihood(logarithms: Floats) -> Floats:
    """Return the likelihood of each state relative to the most likely one [..., states]."""
    return exp(logarithms - logarithms.max(axis=-1, keepdims=True))


def smoothed(likelihoods: Floats, transition: Floats) -> tuple[Floats, Floats]:
    """Return the state probabilities given all observations [times, chains, states], and expected transition counts.

    `likelihoods` are [times, chains, states]; a chain starts in any state with equal probability. The counts are [states,
    states].
    """
    times, _, states = likelihoods.shape
    probabilities = np.empty_like(likelihoods)  # given the observations up to t; after the backward pass, given all
    state = np.full(likelihoods.shape[1:], 1 / states)
    for t in range(times):
        probabilities[t] = state = _normalised(state * likelihoods[t])
        state = predicted(state, transition)
    counts, backward = np.zeros((states, states)), np.ones(state.shape)  # backward: likelihood of what follows t, by state
    for t in reversed(range(times - 1)):
        ahead = likelihoods[t + 1] * backward  # likelihood of the observations from t + 1 on, given the state then
        pairs = probabilities[t][:, :, None] * transition * ahead[:, None, :]  # of the states at t and t + 1
        total = over_states(over_states(pairs))
        counts += np.add.reduce(pairs / total[:, None, None], axis=0)
        backward = over_states(transition * ahead[:, None, :])
        backward /= backward.max(axis=-1, keepdims=True)  # only ratios matter; without this, it would underflow
        probabilities[t] = _normalised(probabilities[t] * backward)
    return probabilities, counts


def _normalised(weights: Floats) -> Floats:
    return weights / over_states(weights)[..., None]


def over_states(array: Floats) -> Floats:
    """Sum over the last axis one by one: along contiguous numbers NumPy may sum in another order."""
    return np.add.reduce(np.ascontiguousarray(np.moveaxis(array, -1, 0)), axis=0)


class HMM(Watched):
    """The best count by a hidden Markov model of slowdowns, in which every node switches between a few states.

    An exact filter predicts the next states. log x of a worker is normal around its own median plus its node's log
    slowdown. A dropped worker's time is only known to exceed the cutoff. Training fits all of it by expectation
    maximisation. Without training, the first rounds set the workers' medians. The model knows no slowness other than that
    of its states. So averages of recent times (`ewma`) take over while they do better.
    """

    of: Literal["worker", "node"] = Field(default="node", description="unit that becomes slow or fast as a whole")
    states: int = Field(default=3, ge=1, le=12, description="number of states that training fits")
    passes: Count = Field(default=20, description="number of training passes over the rounds")
    slowdowns: tuple[Positive, ...] = Field(default=(1.0, 2.0), min_length=1, description="factor on times in each state")
    transition: tuple[Row, ...] = Field(
        default=((0.98, 0.02), (0.1, 0.9)),
        description="probability, per round, that the row's state is followed by the column's",
    )
    medians: tuple[Positive, ...] = Field(
        default=(), description="usual time of each worker, s; empty: learned from the first rounds"
    )
    deviations: tuple[Positive, ...] = Field(
        default=(), description="deviation of each worker's log time; as many as `medians`"
    )

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if [len(row) for row in self.transition] != [len(self.slowdowns)] * len(self.slowdowns):
            raise ValueError(f"`transition` must have {len(self.slowdowns)} rows and columns, as many as there are `slowdowns`")
        if any(abs(math.fsum(row) - 1) > 1e-6 for row in self.transition):
            raise ValueError("every row of `transition` must add up to 1")
        if len(self.medians) != len(self.deviations):
            raise ValueError("`medians` and `deviations` must be as many")
        return self

    def for_cluster(self, same_cluster: bool, objective: Objective) -> Self:
        """Return the rule with an objective; without `same_cluster`, the workers' medians are learned again."""
        return self.model_copy(update={"objective": objective} | ({} if same_cluster else {"medians": (), "deviations": ()}))

    def start(self, node_of: NodeOf) -> Chooser:
        model = self.filter(node_of)
        return self.with_averages(model, node_of, self.objective) if self._watched else model

    def filter(self, node_of: NodeOf) -> Predictor:
        """Return the model at work, without a fallback. Raises ValueError if it was trained for another number of workers.

        Args:
            node_of: node number of each worker [workers].
        """
        if self.medians and len(self.medians) != len(node_of):
            raise ValueError(f"`medians` are of {len(self.medians)} workers; the cluster has {len(node_of)}")
        return _Filter(self, node_of)

    def trained(self, seconds: Floats, node_of: NodeOf, progress: OnProgress = lambda share: None) -> Self:
        model = fit(log(seconds), self.chains(node_of), self.states, self.passes, progress)
        return self.model_copy(
            update={
                "slowdowns": tuple(exp(model.levels).tolist()),
                "transition": tuple(map(tuple, model.transition.tolist())),
                "medians": tuple(exp(model.offsets).tolist()),
                "deviations": tuple(model.deviations.tolist()),
            }
        )

    def chains(self, node_of: NodeOf) -> NodeOf:
        """Return the chain of states that each worker follows: [workers]."""
        return node_of if self.of == "node" else np.arange(len(node_of))


class _Filter(Predictor):
    """The probabilities of each chain's states, and, in an untrained rule, the workers' medians and deviations."""

    def __init__(self, rule: HMM, node_of: NodeOf):
        super().__init__(rule, len(node_of))
        self._levels, self._transition = log(np.array(rule.slowdowns)), np.array(rule.transition)
        self._chain_of = rule.chains(node_of)
        chains, states = int(self._chain_of.max()) + 1, len(self._levels)
        self.state = np.full((chains, states), 1 / states)
        self._rounds, self._settling = 0, 0 if rule.medians else _SETTLING  # first rounds that also set the medians
        self._offsets, self._deviations = log(np.array(rule.medians)), np.array(rule.deviations)
        if rule.medians:
            self._tabulate()

    def expected(self) -> Floats:
        return between_ranks(
            np.add.reduce(self._expected_passed * self.state.reshape(-1, 1), axis=0), self._grid_seconds, self.workers
        )

    def learn(self, seconds: Floats, finished: NDArray[np.bool_]) -> None:
        logs = log(seconds)
        self._rounds += 1
        if self._rounds == 1 and self._settling:
            self._begin(logs)
        self.state = updated(self.state, self.log_likelihood(logs, finished))
        if self._rounds <= self._settling:
            self._settle(logs, finished)
        self.state = predicted(self.state, self._transition)

    def log_likelihood(self, logs: Floats, finished: NDArray[np.bool_]) -> Floats:
        """Return the log-likelihood of each chain's states, up to a constant per chain: [chains, states].

        Args:
            logs: logarithms of times; of dropped workers that of the cutoff [workers].
            finished: True for workers that were not dropped [workers].
        """
        chain_sums = np.empty((len(self._levels), len(self.state)))
        for state, level in enumerate(self._levels):
            z = (logs - self._offsets - level) / self._deviations
            of_worker = -z * z / 2  # the rest of the log density is the same in all states
            # A dropped worker took longer than the round, and nothing else is known of it. The density at the round's end, in
            # place of this probability, would take each slow worker for one that has just finished.
            of_worker[~finished] = log_ndtr(-z[~finished])
            chain_sums[state] = np.bincount(self._chain_of, of_worker, len(self.state))
        return chain_sums.T

    def _begin(self, logs: Floats) -> None:
        """Begin with the median and the deviation of the first round for all workers."""
        median, variance = _median_and_variance(logs)
        self._offsets, self._deviations = np.full(len(logs), median), np.full(len(logs), np.sqrt(np.maximum(variance, 1e-6)))

    def _settle(self, logs: Floats, finished: NDArray[np.bool_]) -> None:
        """Move each finished worker's median and deviation towards the mean over the rounds so far."""
        level = over_states(self.state * self._levels)[self._chain_of]
        error = logs - self._offsets - level
        variance = self._deviations**2
        weight = finished / (self._rounds + 1)  # the initial values count as a round
        self._offsets = self._offsets + weight * error
        self._deviations = np.sqrt(variance + weight * (error**2 - variance))
        self._tabulate()

    def _tabulate(self) -> None:
        """Tabulate, for each chain and state, the expected number of workers that finish by each time of a grid."""
        low = (self._offsets - _REACH * self._deviations).min() + self._levels.min()
        high = (self._offsets + _REACH * self._deviations).max() + self._levels.max()
        grid = np.linspace(low, high, _POINTS)
        expected_passed = np.zeros((*self.state.shape, _POINTS))
        for state, level in enumerate(self._levels):
            z = (grid - self._offsets[:, None] - level) / self._deviations[:, None]
            np.add.at(expected_passed[:, state], self._chain_of, ndtr(z))
        self._grid_seconds, self._expected_passed = exp(grid), expected_passed.reshape(-1, _POINTS)
