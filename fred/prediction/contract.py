"""How many workers to wait for, or until when: rules that see the compute times of earlier rounds, of dropped workers cut off.

Here is all that a rule has to know: what it is (`CutoffRule`, `Chooser`), what it may choose (`Choice`), and what comes of each
round (`Round`). The protocol `cutoff` (`protocols/cutoff.py`) drives rules in a simulation, `closed_loop.py` on recorded times.
The two limits are here, too: all, and the oracle. Rules that never change are in `fixed.py`, those that predict have a file
each; what they have in common is in `predictive.py`.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.contention import NodeOf
from fred.cluster.durations import NANOSECONDS
from fred.components.component import Component
from fred.errors import FredError
from fred.schedule.layout import is_whole

Times = NDArray[np.int64]  # compute time of each worker in a round, ns
Progress = Callable[[float], None]
_ENOUGH = 0.4  # of the best rate of a round, where the long run is maximised
Objective = Literal["round", "throughput"]
By = Literal["count", "deadline", "count-or-deadline"]
Worth = Callable[[NDArray[np.float64]], NDArray[np.float64]]  # of numbers of gradients


@dataclass(frozen=True)
class Deadline:
    """When a round ends that waits by time, not by count: who has finished by then is taken.

    Where all are there earlier, or so many `workers`, the round ends with the last of them; where nobody is there, it waits for
    the first (at the same time, that of the smallest number), so that every round has a gradient.

    Args:
        ns: from the round's start, ns, at least 0.
        workers: so many end the round before, from 1 to as many as there are; None: only all do.

        >>> import fred
        >>> fred.Deadline.after(1.5)
        Deadline(ns=1500000000, workers=None)
    """

    ns: int  # from the round's start
    workers: int | None = None  # that end it before

    @classmethod
    def after(cls, seconds: float, workers: int | None = None) -> Self:
        """The deadline so many seconds after the round's start, in whole nanoseconds.

        Args:
            seconds: at least 0.
            workers: so many end the round before; None: only all do.
        """
        return cls(round(seconds * NANOSECONDS), workers)


Choice = int | Deadline  # how many workers a round waits for, or until when


class Chooser:
    """A rule at work in one run: asked before each round (`choose`), told of it afterwards (`observe`).

    One that waits for as many as came within a second in the round before, and at first for all of four workers:

        >>> import fred
        >>> import numpy as np
        >>> class WithinASecond(fred.Chooser):
        ...     number = 4
        ...     def choose(self, times):
        ...         return self.number
        ...     def observe(self, times, finished):
        ...         self.number = max(1, int((finished & (times <= 10**9)).sum()))
        >>> chooser = WithinASecond()
        >>> first = chooser.choose(np.array([], np.int64))
        >>> chooser.observe(np.array([5, 8, 9, 30]) * 10**8, finished=np.ones(4, bool))
        >>> first, chooser.choose(np.array([], np.int64))
        (4, 3)
    """

    @property
    def ready(self) -> bool:
        """Whether it knows enough to choose; until then it waits for all, and is not to be judged by that."""
        return True

    def choose(self, times: Times) -> Choice:
        """How many workers the next round waits for, or until when. Only an oracle may look at its `times`.

        Args:
            times: what each worker's gradient of the round to come will take, ns [workers].

        Returns:
            c, from 1 to the number of workers, or a `Deadline`.
        """
        raise NotImplementedError

    def hear(self, statistic: float) -> None:
        """What gradients say before each round, where the rule `needs_values`; by default nothing comes of it.

        Args:
            statistic: of the algorithm (`Server.statistic`).
        """

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        """A round is over: each worker's time, which where it has not finished is only a lower bound.

        Args:
            times: compute time of each worker, of those dropped the time until they were, ns [workers].
            finished: whose gradients made the cutoff [workers].
        """


class CutoffRule(Component):
    """Chooses the cutoff before each round: how many workers it waits for, or until when.

    The rule is a set of options, and what goes on in a run is its chooser's. One that waits for a share of the workers; in a
    scenario it is `protocol={"name": "cutoff", "rule": Share()}`:

        >>> import fred
        >>> import numpy as np
        >>> class Always(fred.Chooser):
        ...     def __init__(self, number):
        ...         self.number = number
        ...     def choose(self, times):
        ...         return self.number
        >>> class Share(fred.CutoffRule):
        ...     share: float = 0.5
        ...     def start(self, node_of):
        ...         return Always(max(1, int(self.share * len(node_of))))
        >>> Share().start(np.zeros(7, np.int64)).choose(np.arange(7))
        3
    """

    holds_back: ClassVar[bool] = False  # whether training learns nothing of the last quarter of rounds, but for a choice by it

    @abstractmethod
    def start(self, node_of: NodeOf) -> Chooser:
        """The rule at work on workers of these nodes, [workers]. Raises ValueError if it cannot work there.

        Args:
            node_of: number of the node that each worker is on [workers]; all 0 where the cluster has no nodes.
        """

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress = lambda share: None) -> Self:
        """The rule with what it learns from complete rounds, s [iterations, workers]; by default it has nothing to learn.

        `progress` is told the share that is done. Raises ValueError if there are too few iterations.

        Args:
            seconds: compute times of rounds in which nobody was dropped [iterations, workers].
            node_of: number of the node that each worker is on [workers].
            progress: called from time to time, with a share from 0 to 1.
        """
        return self

    def unwatched(self) -> Self:
        """Return the rule as others watch it: without what it may itself have beside it; by default it has nothing."""
        return self

    @property
    def needs_values(self) -> bool:
        """Whether it depends on what gradients say, not on times alone: then its chooser is told (`hear`)."""
        return False

    def doubts(self) -> tuple[str, ...]:
        """In words, what is known that speaks against the rule; by default nothing."""
        return ()


class Round(NamedTuple):
    """What comes of a round's compute times, and of how many workers it waits for, or until when.

    >>> import numpy as np
    >>> from fred.prediction.contract import Deadline, Round
    >>> round = Round.of(np.array([40, 10, 30, 20]), 3)
    >>> round.first.tolist(), round.cutoff, round.taken.tolist(), round.seen.tolist()
    ([1, 3, 2], 30, [False, True, True, True], [30, 10, 30, 20])
    >>> round = Round.of(np.array([40, 10, 30, 20]), Deadline(25))
    >>> round.first.tolist(), round.cutoff, round.taken.tolist(), round.seen.tolist()
    ([1, 3], 25, [False, True, False, True], [25, 10, 25, 20])
    >>> [Round.of(np.array([40, 10, 30, 20]), Deadline(ns, workers=2)).cutoff for ns in (15, 25)]
    [15, 20]
    """

    first: NDArray[np.intp]  # workers that are taken, as they finish; at the same time first those of smaller numbers [c]
    cutoff: int  # when the round ends, ns: x_(c), or at a deadline
    taken: NDArray[np.bool_]  # whose gradients are averaged; those of the others are dropped [workers]
    seen: Times  # what the rule observes: of who was dropped the time until then [workers]

    @classmethod
    def of(cls, times: Times, choice: Choice) -> "Round":
        """A round of these compute times, ns [workers]. Raises FredError if it cannot wait so.

        By a deadline all are taken who finish by it, and it ends the round, but no earlier than x_(1), with the first worker
        alone if there is nobody before, and no later than x_(n), or x_(c) if c workers end it before.

        Args:
            times: of each worker, ns [workers].
            choice: c, of workers that are waited for, or a deadline.
        """
        arrivals = np.argsort(times, kind="stable")
        first = arrivals[: _taken(times, choice)]
        cutoff, taken = int(times[first[-1]]), np.zeros(len(times), bool)
        if isinstance(choice, Deadline):
            last = arrivals[(choice.workers or len(times)) - 1]
            cutoff = max(cutoff, int(min(choice.ns, times[last])))
        taken[first] = True
        return cls(first, cutoff, taken, np.minimum(times, cutoff))


def _taken(times: Times, choice: Choice) -> int:
    """How many of a round's gradients are taken."""
    if isinstance(choice, Deadline):
        if not is_whole(choice.ns) or choice.ns < 0:
            raise FredError(
                f"the cutoff rule announces a deadline {choice.ns!r} ns after the round's start; expected 0 or more"
            )
        there = max(1, int((times <= choice.ns).sum()))
        return there if choice.workers is None else min(there, _possible(choice.workers, len(times)))
    return _possible(choice, len(times))


def _possible(workers: int, most: int) -> int:
    """A number of workers that can be waited for. Raises FredError for another."""
    if not is_whole(workers) or not 1 <= workers <= most:
        raise FredError(f"the cutoff rule wants to wait for {workers!r} workers; expected 1 to {most}, as many as there are")
    return workers


class AllWorkers(CutoffRule):
    """Everybody, as in synchronous SGD.

    >>> import numpy as np
    >>> from fred.prediction.contract import AllWorkers
    >>> AllWorkers().start(np.zeros(4, np.int64)).choose(np.arange(4))
    4
    """

    def start(self, node_of: NodeOf) -> Chooser:
        return Always(len(node_of))


class Always(Chooser):
    """Makes the same choice before every round.

    Args:
        choice: a number of workers, or a deadline.
    """

    def __init__(self, choice: Choice):
        self._choice = choice

    def choose(self, times: Times) -> Choice:
        return self._choice


class Oracle(CutoffRule):
    """Knows the times of the round to come: what no rule can surpass in a round.

    `round` maximises c / x_(c), gradients per time of this round. `throughput` maximises c - rho x_(c), rho the gradients per
    time of the last rounds: over a long run that is the more gradients per time [Dinkelbach 1967].

    Of times 1, 1.1, 1.2 and 4, three are best, as 3 / 1.2 is more than 2 / 1.1 and 4 / 4:

        >>> import numpy as np
        >>> from fred.prediction.contract import Oracle
        >>> Oracle().start(np.zeros(4, np.int64)).choose(np.array([12, 40, 10, 11]))
        3
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

    Args:
        objective: `round` or `throughput`.
        least: the smallest c allowed.
        memory: rounds that count for rho, where the long run is maximised.
        worth: what numbers of gradients are worth, [n] for [n].

        >>> import numpy as np
        >>> from fred.prediction.contract import Best
        >>> ordered = np.array([1.0, 1.1, 3.0, 3.9])
        >>> best = Best("throughput")
        >>> best.came_to(gradients=4, time=40.0)  # so far 0.1 per s: it pays to wait for the last ones
        >>> Best("round").cutoff(ordered), Best("round", least=3).cutoff(ordered), best.cutoff(ordered)
        (2, 4, 4)
    """

    def __init__(self, objective: Objective, least: int = 1, memory: float = 50.0, worth: Worth = lambda counts: counts):
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
        """What the last round came to.

        Args:
            gradients: that it took.
            time: that it took them, in the unit of `cutoff`.
        """
        self._gradients = self._kept * self._gradients + float(self._worth(np.array([gradients], float))[0])
        self._time = self._kept * self._time + time
