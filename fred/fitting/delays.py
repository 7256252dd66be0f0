"""Rare delays on top of another model: single run-times far above those of the same node in the same iteration."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fred.cluster.latency import LogNormal
from fred.fitting.candidates import Composed, Groups, fit_composed
from fred.fitting.filtering import Matrix
from fred.fitting.latencies import log_density, lognormal

_FAR = 4.0  # deviations above the node's median
_FEWEST = 5  # delays that one can be fitted to; workers whose median tells what is usual


@dataclass(frozen=True)
class Delays:
    """When a run-time counts as delayed, how often that is, and by how much."""

    levels: NDArray[np.float64]  # median logarithm of each worker
    company: Groups  # whose median says what is usual in an iteration
    far: float  # above it, in the logarithm
    probability: float
    seconds: LogNormal

    def usual(self, seconds: Matrix) -> tuple[Matrix, NDArray[np.bool_]]:
        """What each run-time would be without a delay, and whether it is delayed."""
        return _usual(np.log(seconds), self.levels, self.company, self.far)


@dataclass(frozen=True)
class Delayed:
    """A model of the run-times without delays, and the delays.

    The likelihood is that of the run-times together with the decision which are delayed: never more than that of the mixture.
    """

    model: Composed
    delays: Delays

    @property
    def parameters(self) -> int:
        """How many there are beside the speeds: those of the model, how often there are delays, and how long they are."""
        return self.model.parameters + 3

    @property
    def parts(self) -> tuple[object, ...]:
        """What it consists of."""
        return (*self.model.parts, Delays)

    def log_likelihood(self, seconds: Matrix) -> NDArray[np.float64]:
        """Of each iteration given those before, summed over the workers."""
        usual, late = self.delays.usual(seconds)
        total = self.model.log_likelihood(np.where(late, usual, seconds))
        filled_in = -0.5 * np.log(2 * np.pi * self.model.white**2) - np.log(usual)  # the most that the filter can have given
        delay = log_density(self.delays.seconds, np.where(late, seconds - usual, 1.0)) - filled_in
        return total + np.where(late, np.log(self.delays.probability) + delay, np.log1p(-self.delays.probability)).sum(1)


def fit_delayed(seconds: Matrix, group_of: Groups, persistent: bool, of_nodes: bool, switching: bool) -> Composed | Delayed:
    """As `fit_composed`, with delays if there are enough."""
    delays = _fit_delays(seconds, group_of)
    if delays is None:
        return fit_composed(seconds, group_of, persistent, of_nodes, switching)
    usual, late = delays.usual(seconds)
    return Delayed(fit_composed(np.where(late, usual, seconds), group_of, persistent, of_nodes, switching), delays)


def _fit_delays(seconds: Matrix, group_of: Groups) -> Delays | None:
    logs = np.log(seconds)
    company = group_of if np.bincount(group_of).min() >= _FEWEST else np.zeros_like(group_of)
    if len(group_of) < _FEWEST:
        return None
    levels = np.median(logs, axis=0)
    rest = logs - levels
    far = _FAR * 1.4826 * float(np.median(np.abs(rest - _medians(rest, company))))
    usual, late = _usual(logs, levels, company, far)
    if late.sum() < _FEWEST or far == 0:
        return None
    return Delays(levels, company, far, float(late.mean()), lognormal(seconds[late] - usual[late]))


def _usual(logs: Matrix, levels: NDArray[np.float64], company: Groups, far: float) -> tuple[Matrix, NDArray[np.bool_]]:
    usual = levels + _medians(logs - levels, company)
    return np.exp(usual), logs - usual > far


def _medians(rest: Matrix, company: Groups) -> Matrix:
    """The median over each worker's company: [iterations, workers]."""
    return np.stack([np.median(rest[:, company == group], axis=1) for group in range(int(company.max()) + 1)], 1)[:, company]
