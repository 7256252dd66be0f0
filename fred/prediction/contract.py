"""How many workers to wait for: rules that see the compute times of earlier rounds, those of dropped workers cut off.

Here is all that a rule has to know: what it is (`CutoffRule`, `Chooser`), and what comes of each round (`Round`). The protocol
`cutoff` (`protocols/cutoff.py`) drives rules in a simulation, `fred cutoffs` (`prediction/closed_loop.py`) on recorded rounds.
The rules that predict nothing are here, too: a fixed number, all, and the oracle. Those that predict are in `fred/prediction`,
a file each; what they have in common is in its `predictive.py`.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.contention import NodeOf
from fred.components.component import Component, Count
from fred.errors import FredError

Times = NDArray[np.int64]  # compute time of each worker in a round, ns
Progress = Callable[[float], None]
_ENOUGH = 0.4  # of the best rate of a round, where the long run is maximised
Objective = Literal["round", "throughput"]
Worth = Callable[[NDArray[np.float64]], NDArray[np.float64]]  # of numbers of gradients


class Chooser:
    """A rule at work in one run: asked before each round (`choose`), told of it afterwards (`observe`)."""

    def choose(self, times: Times) -> int:
        """How many workers the next round waits for. Only an oracle may look at its `times`."""
        raise NotImplementedError

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        """A round is over: each worker's time, which where it has not finished is only a lower bound."""


class CutoffRule(Component):
    """Chooses the cutoff c before each round."""

    @abstractmethod
    def start(self, node_of: NodeOf) -> Chooser:
        """The rule at work on workers of these nodes, [workers]. Raises ValueError if it cannot work there."""

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress = lambda share: None) -> Self:
        """The rule with what it learns from complete rounds, s [iterations, workers]; by default it has nothing to learn.

        `progress` is told the share that is done. Raises ValueError if there are too few iterations.
        """
        return self


class Round(NamedTuple):
    """What comes of a round's compute times, and of how many workers it waits for."""

    first: NDArray[np.intp]  # workers that are waited for, as they finish; at the same time first those of smaller numbers [c]
    cutoff: int  # x_(c), when the round ends, ns
    taken: NDArray[np.bool_]  # whose gradients are averaged; those of the others are dropped [workers]
    seen: Times  # what the rule observes: of who was dropped the time until then [workers]

    @classmethod
    def of(cls, times: Times, number: int) -> "Round":
        """A round of these compute times, ns [workers], that waits for `number` workers. Raises FredError if it cannot."""
        if not 1 <= number <= len(times):
            raise FredError(
                f"the cutoff rule wants to wait for {number} workers; expected 1 to {len(times)}, as many as there are"
            )
        first = np.argsort(times, kind="stable")[:number]
        cutoff, taken = int(times[first[-1]]), np.zeros(len(times), bool)
        taken[first] = True
        return cls(first, cutoff, taken, np.minimum(times, cutoff))


class StaticCutoff(CutoffRule):
    """The same number in every round."""

    workers: Count = Field(description="c: how many workers are waited for", examples=[1])

    def start(self, node_of: NodeOf) -> Chooser:
        if self.workers > len(node_of):
            raise ValueError(f"`workers` ({self.workers}) must not exceed the cluster's {len(node_of)}")
        return _Always(self.workers)


class AllWorkers(CutoffRule):
    """Everybody, as in synchronous SGD."""

    def start(self, node_of: NodeOf) -> Chooser:
        return _Always(len(node_of))


class _Always(Chooser):
    def __init__(self, number: int):
        self._number = number

    def choose(self, times: Times) -> int:
        return self._number


class Oracle(CutoffRule):
    """Knows the times of the round to come: what no rule can surpass in a round.

    `round` maximises c / x_(c), gradients per time of this round. `throughput` maximises c - rho x_(c), rho the gradients per
    time of the last rounds: over a long run that is the more gradients per time [Dinkelbach 1967].
    """

    objective: Objective = Field("round", description="what is maximised")

    def start(self, node_of: NodeOf) -> Chooser:
        return _Foresight(self.objective)


class _Foresight(Chooser):
    def __init__(self, objective: Objective):
        self._best = Best(objective)

    def choose(self, times: Times) -> int:
        return self._best.cutoff(np.maximum(np.sort(times), 1).astype(float))

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        self._best.came_to(finished.sum(), times.max())


class Best:
    """The best c of (expected) order statistics: of this round, c / x_(c), or in the long run, c - rho x_(c).

    rho, the gradients per time, is that of the rounds seen so far; old ones are forgotten, `memory` of them count. Where c
    gradients are not worth c, `worth` says what they are. However high rho, a round must do at least a share of what it can:
    who waits for very few sees of the others only that they are late, and would believe so for ever.
    """

    def __init__(self, objective: Objective, least: int = 1, memory: float = 200.0, worth: Worth = lambda counts: counts):
        self._long_run, self._least, self._kept, self._worth = objective == "throughput", least, 1 - 1 / memory, worth
        self._gradients = self._time = 0.0

    def cutoff(self, ordered: NDArray[np.float64]) -> int:
        """The best c, at least the smallest allowed; `ordered` is x_(1) .. x_(n) in the unit of `came_to`."""
        worth = self._worth(np.arange(1.0, len(ordered) + 1))
        gain = np.where(ordered > 0, worth / np.maximum(ordered, 1e-300), 0.0)[self._least - 1 :]
        if self._long_run and self._time:
            long_run = (worth - self._gradients / self._time * ordered)[self._least - 1 :]
            gain = np.where(gain >= min(_ENOUGH * gain.max(), gain.max()), long_run, -np.inf)
        return self._least + int(np.argmax(gain))

    def came_to(self, gradients: float, time: float) -> None:
        """What the last round came to."""
        self._gradients = self._kept * self._gradients + float(self._worth(np.array([gradients], float))[0])
        self._time = self._kept * self._time + time
