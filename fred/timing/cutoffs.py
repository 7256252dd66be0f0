"""How many workers to wait for: rules that see the compute times of earlier rounds, those of dropped workers cut off."""

import math
from abc import abstractmethod
from collections import deque
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtri

from fred.component import Component

Times = NDArray[np.int64]  # compute time of each worker in a round, ns


class Chooser:
    """A rule at work in one run."""

    def choose(self, times: Times) -> int:
        """How many workers the next round waits for. Only an oracle may look at its `times`."""
        raise NotImplementedError

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        """A round is over: each worker's time, which where it has not finished is only a lower bound."""


class CutoffRule(Component):
    """Chooses the cutoff c before each round."""

    @abstractmethod
    def start(self, workers: int) -> Chooser:
        """The rule at work. Raises ValueError if it cannot work with so many workers."""


class StaticCutoff(CutoffRule):
    """The same number in every round."""

    workers: int = Field(ge=1, description="c: how many workers are waited for", examples=[1])

    def start(self, workers: int) -> Chooser:
        if self.workers > workers:
            raise ValueError(f"`workers` ({self.workers}) must not exceed the cluster's {workers}")
        return _Always(self.workers)


class AllWorkers(CutoffRule):
    """Everybody, as in synchronous SGD."""

    def start(self, workers: int) -> Chooser:
        return _Always(workers)


class _Always(Chooser):
    def __init__(self, number: int):
        self._number = number

    def choose(self, times: Times) -> int:
        return self._number


class Elfving(CutoffRule):
    """The c that maximises c / E[x_(c)] for independent normal times [Elfving 1947; Teng & Wood 2018, eq. 3].

    E[x_(j)] is about mu + sigma z_j, z_j = Phi^-1((j - pi/8) / (n - pi/4 + 1)) (docs/errata.md, item 1). Mean and deviation
    are those of the line through the observed order statistics and z, so that dropped workers do not bias them; averaged over
    the last rounds. Where sigma is large the first order statistics would be expected near or below 0, and c = 1 would always
    look best; so at least the share `at_least` of the workers is waited for.
    """

    window: int = Field(20, ge=1, description="rounds that mean and deviation are averaged over")
    at_least: Annotated[float, Field(gt=0, le=1)] = Field(0.5, description="smallest share of the workers to wait for")

    def start(self, workers: int) -> Chooser:
        return _OrderStatistics(self, workers)


def expected_normal_order_statistics(n: int) -> NDArray[np.float64]:
    """Elfving's approximation to the expected order statistics of n standard normal variables: [n], ascending."""
    return ndtri((np.arange(1, n + 1) - math.pi / 8) / (n - math.pi / 4 + 1))


class _OrderStatistics(Chooser):
    def __init__(self, rule: Elfving, workers: int):
        self._z = expected_normal_order_statistics(workers)
        self._least = math.ceil(rule.at_least * workers)
        self._fits: deque[tuple[float, float]] = deque(maxlen=rule.window)  # mean, deviation

    def choose(self, times: Times) -> int:
        if not self._fits:
            return len(self._z)
        mean, deviation = np.mean(self._fits, axis=0)
        expected = mean + deviation * self._z
        counts = np.arange(1, len(expected) + 1)
        rate = np.where(expected > 0, counts / np.maximum(expected, 1e-300), 0.0)
        return self._least + int(np.argmax(rate[self._least - 1 :]))

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        observed = np.sort(times[finished]).astype(float)
        z = self._z[: len(observed)]
        mean, centred = math.fsum(z) / len(z), z - math.fsum(z) / len(z)  # fsum: the same bits on every machine
        slope = math.fsum(centred * observed) / math.fsum(centred**2) if len(observed) > 1 else 0.0
        self._fits.append((math.fsum(observed) / len(observed) - slope * mean, slope))


class Oracle(CutoffRule):
    """Knows the times of the round to come: what no rule can surpass.

    `round` maximises c / x_(c), gradients per time of this round. `throughput` maximises c - rho x_(c), rho the gradients per
    time of all rounds so far: over a long run that is the more gradients per time [Dinkelbach 1967].
    """

    objective: Literal["round", "throughput"] = Field("round", description="what is maximised")

    def start(self, workers: int) -> Chooser:
        return _Foresight(self.objective == "throughput")


class _Foresight(Chooser):
    def __init__(self, long_run: bool):
        self._long_run = long_run
        self._gradients = 0
        self._time = 0

    def choose(self, times: Times) -> int:
        ordered = np.maximum(np.sort(times), 1).astype(float)
        counts = np.arange(1, len(ordered) + 1)
        if self._long_run and self._time:
            return int(np.argmax(counts - self._gradients / self._time * ordered)) + 1
        return int(np.argmax(counts / ordered)) + 1

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        self._gradients += int(finished.sum())
        self._time += int(times.max())
