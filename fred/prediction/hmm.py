"""A hidden Markov model of nodes that become slow and fast again, with times censored at the cutoff [Rabiner 1989]."""

import math
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.special import log_ndtr, ndtr

from fred.base.elementary import exp, log
from fred.cluster.contention import NodeOf
from fred.components.component import Count
from fred.prediction import baum_welch
from fred.prediction.contract import Chooser, Objective, Progress
from fred.prediction.following import Watched
from fred.prediction.lognormal import Floats, between_ranks
from fred.prediction.predictive import Predictor

_SETTLING = 20  # rounds in which an untrained rule learns each worker's median and deviation
_REACH, _POINTS = 4.5, 256  # grid of times: deviations beyond the outermost means; number of points

Row = tuple[Annotated[float, Field(ge=0, le=1)], ...]
Positive = Annotated[float, Field(gt=0)]


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
    def _fitting(self) -> Self:
        if [len(row) for row in self.transition] != [len(self.slowdowns)] * len(self.slowdowns):
            raise ValueError(f"`transition` must have {len(self.slowdowns)} rows and columns, as many as there are `slowdowns`")
        if any(abs(math.fsum(row) - 1) > 1e-6 for row in self.transition):
            raise ValueError("every row of `transition` must add up to 1")
        if len(self.medians) != len(self.deviations):
            raise ValueError("`medians` and `deviations` must be as many")
        return self

    def on(self, same: bool, objective: Objective) -> Self:
        """Return the rule with an objective; on another cluster (not `same`), the workers' medians are learned again."""
        return self.model_copy(update={"objective": objective} | ({} if same else {"medians": (), "deviations": ()}))

    def start(self, node_of: NodeOf) -> Chooser:
        model = self.filter(node_of)
        return self.beside_averages(model, node_of, self.objective) if self._watched else model

    def filter(self, node_of: NodeOf) -> Predictor:
        """Return the model at work, without a fallback. Raises ValueError if it was trained for another number of workers.

        Args:
            node_of: node number of each worker [workers].
        """
        if self.medians and len(self.medians) != len(node_of):
            raise ValueError(f"`medians` are of {len(self.medians)} workers; the cluster has {len(node_of)}")
        return _Filter(self, node_of)

    def trained(self, seconds: Floats, node_of: NodeOf, progress: Progress = lambda share: None) -> Self:
        found = baum_welch.fit(log(seconds), self.chains(node_of), self.states, self.passes, progress)
        return self.model_copy(
            update={
                "slowdowns": tuple(exp(found.levels).tolist()),
                "transition": tuple(map(tuple, found.transition.tolist())),
                "medians": tuple(exp(found.offsets).tolist()),
                "deviations": tuple(found.deviations.tolist()),
            }
        )

    def chains(self, node_of: NodeOf) -> NodeOf:
        """Return the chain of states that each worker follows: [workers]."""
        return node_of if self.of == "node" else np.arange(len(node_of))


class _Filter(Predictor):
    def __init__(self, rule: HMM, node_of: NodeOf):
        super().__init__(rule, len(node_of))
        self._levels, self._transition = log(np.array(rule.slowdowns)), np.array(rule.transition)
        self._chain_of = rule.chains(node_of)
        chains, states = int(self._chain_of.max()) + 1, len(self._levels)
        self.state = np.full((chains, states), 1 / states)
        self._rounds, self._settling = 0, 0 if rule.medians else _SETTLING
        self._offsets, self._deviations = log(np.array(rule.medians)), np.array(rule.deviations)
        if rule.medians:
            self._tabulate()

    def expected(self) -> Floats:
        return between_ranks(np.add.reduce(self._over * self.state.reshape(-1, 1), axis=0), self._times, self.workers)

    def learn(self, seconds: Floats, finished: NDArray[np.bool_]) -> None:
        logs = log(seconds)
        self._rounds += 1
        if self._rounds == 1 and self._settling:
            self._begin(logs)
        self.state = baum_welch.updated(self.state, self.log_likelihood(logs, finished))
        if self._rounds <= self._settling:
            self._settle(logs, finished)
        self.state = baum_welch.predicted(self.state, self._transition)

    def log_likelihood(self, logs: Floats, finished: NDArray[np.bool_]) -> Floats:
        """Return the log-likelihood of each chain's states, up to a constant per chain: [chains, states]."""
        each = np.empty((len(self._levels), len(self.state)))
        for state, level in enumerate(self._levels):
            z = (logs - self._offsets - level) / self._deviations
            value = -z * z / 2
            value[~finished] = log_ndtr(-z[~finished])
            each[state] = np.bincount(self._chain_of, value, len(self.state))
        return each.T

    def _begin(self, logs: Floats) -> None:
        middle = np.sort(logs)[len(logs) // 2]
        spread = max(2.2 * np.sort((logs - middle) ** 2)[len(logs) // 2], 1e-6)  # normal variance: 2.2 times the median square
        self._offsets, self._deviations = np.full(len(logs), middle), np.full(len(logs), np.sqrt(spread))

    def _settle(self, logs: Floats, finished: NDArray[np.bool_]) -> None:
        """Move each finished worker's median and deviation towards the mean over the rounds so far."""
        level = baum_welch.over_states(self.state * self._levels)[self._chain_of]
        error = logs - self._offsets - level
        variance = self._deviations**2
        weight = finished / (self._rounds + 1)
        self._offsets = self._offsets + weight * error
        self._deviations = np.sqrt(variance + weight * (error**2 - variance))
        self._tabulate()

    def _tabulate(self) -> None:
        """Tabulate, for each chain and state, the expected number of workers that finish by each time of a grid."""
        low = (self._offsets - _REACH * self._deviations).min() + self._levels.min()
        high = (self._offsets + _REACH * self._deviations).max() + self._levels.max()
        grid = np.linspace(low, high, _POINTS)
        over = np.zeros((*self.state.shape, _POINTS))
        for state, level in enumerate(self._levels):
            z = (grid - self._offsets[:, None] - level) / self._deviations[:, None]
            np.add.at(over[:, state], self._chain_of, ndtr(z))
        self._times, self._over = exp(grid), over.reshape(-1, _POINTS)
