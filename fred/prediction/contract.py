"""The interface of cutoff rules, which decide before each round how many workers to wait for, or until when.

A rule sees the compute times of earlier rounds, for dropped workers only a lower bound. This module defines rules
(`CutoffRule`, `Chooser`), their choices (`Choice`) and the outcome of a round (`Round`). The protocol `cutoff`
(`protocols/synchronous.py`) drives rules in a simulation, `closed_loop.py` on recorded times. The two limits are here too: all
workers, and the oracle. Constant rules are in `simple_rules.py`, predicting ones in `predictive.py`, `hmm.py` and `deep/`, and
the rule that chooses among them in `auto.py`.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.base.errors import FredError
from fred.base.types import OnProgress
from fred.cluster.contention import NodeOf
from fred.components.component import NANOSECONDS, Component
from fred.schedule.layout import is_whole_number

Times = NDArray[np.int64]  # compute time of each worker in a round, ns
_LEAST_RATE = 0.4  # least share of the best rate of a round that a choice must reach when maximising the long run
Objective = Literal["round", "throughput"]
By = Literal["count", "deadline", "count-or-deadline"]
Worth = Callable[[NDArray[np.float64]], NDArray[np.float64]]  # maps numbers of gradients to their worth


@dataclass(frozen=True)
class Deadline:
    """The end of a round by time instead of by count: workers that have finished by then are taken.

    The round ends earlier, with the last worker, if all finish before the deadline, or with the last of `workers` if that
    is given. If no worker has finished by the deadline, the round waits for the first one (of equal times, the worker with
    the smallest number). So every round has a gradient.

    Args:
        ns: deadline from the round's start, ns, at least 0.
        workers: number of workers that end the round before the deadline, from 1 to all; None: only all of them do.

        >>> import fred
        >>> fred.Deadline.after(1.5)
        Deadline(ns=1500000000, workers=None)
    """

    ns: int  # from the round's start
    workers: int | None = None  # number of workers that end it before

    @classmethod
    def after(cls, seconds: float, workers: int | None = None) -> Self:
        """Return a deadline in `seconds` after the round's start, rounded to whole nanoseconds.

        Args:
            seconds: deadline from the round's start, s, at least 0.
            workers: number of workers that end the round before the deadline; None: only all of them do.
        """
        return cls(round(seconds * NANOSECONDS), workers)


Choice = int | Deadline  # how many workers a round waits for, or until when


class UntrainedError(ValueError):
    """A rule lacks a number that is neither given nor found in training."""


class Chooser:
    """A rule at work in one run: `choose` is called before each round, `observe` after it.

    This one waits for the number of workers that finished within a second in the last round, and first for all four
    workers:

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
        """Return True if the rule knows enough to choose; before, it waits for all workers and should not be judged."""
        return True

    def choose(self, times: Times) -> Choice:
        """Return how many workers the next round waits for, or until when. Only an oracle may use `times`.

        Args:
            times: compute time of each worker's gradient in the coming round, ns [workers].

        Returns:
            c, from 1 to the number of workers, or a `Deadline`.
        """
        raise NotImplementedError

    def hear(self, statistic: float) -> None:
        """Receive the algorithm's statistic of the gradients before each round, if the rule `needs_values`.

        By default it is ignored.

        Args:
            statistic: current value of the algorithm's statistic (`Server.statistic`).
        """

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        """Learn from a finished round. For a dropped worker, the time is only a lower bound.

        Args:
            times: compute time of each worker, for dropped workers the time until they were dropped, ns [workers].
            finished: True for workers whose gradients made the cutoff [workers].
        """


class CutoffRule(Component):
    """A rule that chooses the cutoff before each round: how many workers to wait for, or until when.

    The rule holds the options; its `Chooser` holds the state of a run. This rule waits for a share of the workers. In a
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

    holds_back: ClassVar[bool] = False  # True if training uses the last quarter of rounds only to select, not to fit

    @abstractmethod
    def start(self, node_of: NodeOf) -> Chooser:
        """Return a chooser for workers on these nodes. Raises ValueError if the rule cannot work on them.

        Args:
            node_of: node number of each worker [workers]; all 0 where the cluster has no nodes.
        """

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: OnProgress = lambda share: None) -> Self:
        """Return the rule trained on complete rounds, s [iterations, workers]; by default there is nothing to train.

        Calls `progress` with the share that is done. Raises ValueError if there are too few iterations.

        Args:
            seconds: compute times of rounds without dropped workers, s [iterations, workers].
            node_of: node number of each worker [workers].
            progress: called from time to time with a share from 0 to 1.
        """
        return self

    def unwatched(self) -> Self:
        """Return the rule without a fallback that it may switch to; by default the rule itself."""
        return self

    @property
    def needs_values(self) -> bool:
        """Return True if the rule depends on statistics of the gradients; its chooser then receives them (`hear`)."""
        return False

    def doubts(self) -> tuple[str, ...]:
        """Return known warnings about the rule, in words; by default none."""
        return ()


class Round(NamedTuple):
    """The outcome of a round, given its compute times and the rule's choice.

    >>> import numpy as np
    >>> from fred.prediction.contract import Deadline, Round
    >>> round = Round.from_choice(np.array([40, 10, 30, 20]), 3)
    >>> round.first.tolist(), round.cutoff, round.in_time.tolist(), round.observed.tolist()
    ([1, 3, 2], 30, [False, True, True, True], [30, 10, 30, 20])
    >>> round = Round.from_choice(np.array([40, 10, 30, 20]), Deadline(25))
    >>> round.first.tolist(), round.cutoff, round.in_time.tolist(), round.observed.tolist()
    ([1, 3], 25, [False, True, False, True], [25, 10, 25, 20])
    >>> [Round.from_choice(np.array([40, 10, 30, 20]), Deadline(ns, workers=2)).cutoff for ns in (15, 25)]
    [15, 20]
    """

    first: NDArray[np.intp]  # workers taken, in order of finishing; ties in order of their numbers [c]
    cutoff: int  # when the round ends, ns: x_(c), or the deadline
    in_time: NDArray[np.bool_]  # True for workers whose gradients are averaged; the others are dropped [workers]
    observed: Times  # what the rule observes: for dropped workers the time until the round's end, ns [workers]

    @classmethod
    def from_choice(cls, times: Times, choice: Choice) -> "Round":
        """Return the outcome of a round with these compute times. Raises FredError if the choice is impossible.

        With a deadline, the round takes all workers that finish by it and ends at the deadline. It ends no earlier than
        x_(1): if no worker has finished by then, it takes the first one alone. It ends no later than x_(n), or x_(c) if the
        choice has a number c.

        Args:
            times: compute time of each worker, ns [workers].
            choice: number of workers to wait for, c, or a deadline.
        """
        arrivals = np.argsort(times, kind="stable")
        first = arrivals[: _count_taken(times, choice)]
        cutoff, in_time = int(times[first[-1]]), np.zeros(len(times), bool)
        if isinstance(choice, Deadline):
            last = arrivals[(choice.workers or len(times)) - 1]  # ends the round if it is in time
            cutoff = max(cutoff, int(min(choice.ns, times[last])))
        in_time[first] = True
        return cls(first, cutoff, in_time, np.minimum(times, cutoff))


def _count_taken(times: Times, choice: Choice) -> int:
    """Return the number of gradients that a round takes."""
    if isinstance(choice, Deadline):
        if not is_whole_number(choice.ns) or choice.ns < 0:
            raise FredError(
                f"the cutoff rule announces a deadline {choice.ns!r} ns after the round's start; expected 0 or more"
            )
        in_time = max(1, int((times <= choice.ns).sum()))
        return in_time if choice.workers is None else min(in_time, _check_workers(choice.workers, len(times)))
    return _check_workers(choice, len(times))


def _check_workers(workers: int, most: int) -> int:
    """Return `workers` if a round can wait for that many. Raises FredError otherwise."""
    if not is_whole_number(workers) or not 1 <= workers <= most:
        raise FredError(f"the cutoff rule wants to wait for {workers!r} workers; expected 1 to {most}, as many as there are")
    return workers


class AllWorkers(CutoffRule):
    """The cutoff of synchronous SGD: wait for all workers.

    >>> import numpy as np
    >>> from fred.prediction.contract import AllWorkers
    >>> AllWorkers().start(np.zeros(4, np.int64)).choose(np.arange(4))
    4
    """

    def start(self, node_of: NodeOf) -> Chooser:
        return Always(len(node_of))


class Always(Chooser):
    """A chooser that makes the same choice before every round.

    Args:
        choice: number of workers to wait for, or a deadline.
    """

    def __init__(self, choice: Choice):
        self._choice = choice

    def choose(self, times: Times) -> Choice:
        return self._choice


class Oracle(CutoffRule):
    """An oracle that knows the times of the coming round: no rule can beat it in a round.

    `round` maximises c / x_(c), the gradients per time of this round. `throughput` maximises c - rho x_(c), where rho is
    the gradients per time of recent rounds; over a long run this gives more gradients per time [Dinkelbach 1967].

    With times 1, 1.1, 1.2 and 4, three workers are best, as 3 / 1.2 is more than 2 / 1.1 and 4 / 4:

        >>> import numpy as np
        >>> from fred.prediction.contract import Oracle
        >>> Oracle().start(np.zeros(4, np.int64)).choose(np.array([12, 40, 10, 11]))
        3
    """

    objective: Objective = Field(
        default="round", description="quantity to maximise: c / x_(c) of the next round, or c - rho x_(c) of the long run"
    )

    def start(self, node_of: NodeOf) -> Chooser:
        return _Foresight(self.objective)


class _Foresight(Chooser):
    def __init__(self, objective: Objective):
        self._maximizer = Maximizer(objective)

    def choose(self, times: Times) -> int:
        return self._maximizer.cutoff(np.maximum(np.sort(times), 1).astype(float))

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        self._maximizer.record(finished.sum(), times.max())


class Maximizer:
    """A maximiser over c, given (expected) order statistics: c / x_(c) of this round, or c - rho x_(c) of the long run.

    rho is the gradients per time of the rounds so far, with an exponential memory of `memory` rounds. `worth` replaces c
    where c gradients are worth something else. However high rho is, a round must reach a minimum share of its own best
    rate. A rule that waits for very few workers learns only that the others are late, and would never find out otherwise.

    Args:
        objective: `round` or `throughput`.
        least: smallest c allowed.
        memory: number of rounds in the average rho, for the objective `throughput`.
        worth: function from numbers of gradients [n] to their worth [n].

        >>> import numpy as np
        >>> from fred.prediction.contract import Maximizer
        >>> ordered = np.array([1.0, 1.1, 3.0, 3.9])
        >>> best = Maximizer("throughput")
        >>> best.record(gradients=4, time=40.0)  # so far 0.1 per s: it pays to wait for the last ones
        >>> Maximizer("round").cutoff(ordered), Maximizer("round", least=3).cutoff(ordered), best.cutoff(ordered)
        (2, 4, 4)
    """

    def __init__(self, objective: Objective, least: int = 1, memory: float = 50.0, worth: Worth = lambda counts: counts):
        self._long_run, self._least, self._decay, self._worth = objective == "throughput", least, 1 - 1 / memory, worth
        self._gradients = self._time = 0.0

    def cutoff(self, ordered: NDArray[np.float64]) -> int:
        """Return the best allowed c; `ordered` is x_(1) .. x_(n) in the time unit of `record`."""
        worth = self._worth(np.arange(1.0, len(ordered) + 1))
        rates = np.where(ordered > 0, worth / np.maximum(ordered, 1e-300), 0.0)[self._least - 1 :]  # predictions may be below 0
        if not self._long_run or not self._time:
            return self._least + int(np.argmax(rates))
        least_rate = min(_LEAST_RATE * rates.max(), rates.max())  # the latter if all rates are negative, as worth is
        gains = (worth - self._gradients / self._time * ordered)[self._least - 1 :]
        return self._least + int(np.argmax(np.where(rates >= least_rate, gains, -np.inf)))

    def record(self, gradients: float, time: float) -> None:
        """Record the outcome of the last round.

        Args:
            gradients: number of gradients that the round took.
            time: duration of the round, in the time unit of `cutoff`.
        """
        self._gradients = self._decay * self._gradients + float(self._worth(np.array([gradients], float))[0])
        self._time = self._decay * self._time + time
