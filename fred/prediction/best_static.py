"""The one number, or deadline, that would have been best on recorded rounds [Chen et al. 2016; Giladi et al. 2023]."""

from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.contention import NodeOf
from fred.cluster.durations import NANOSECONDS, nanoseconds
from fred.components.component import Count
from fred.prediction.contract import Chooser, CutoffRule, Objective, Progress, StaticCutoff, Times
from fred.prediction.deadlines import FixedDeadline
from fred.prediction.lognormal import Floats


class BestStatic(CutoffRule):
    """The same number in every round, the best one of the rounds that it was trained on [Chen et al. 2016].

    Of four workers the last is always late; three gradients in 2.4 s are more per second than any other number:

        >>> import numpy as np
        >>> from fred.prediction.best_static import BestStatic
        >>> seconds = np.array([[1.0, 1.1, 1.2, 4.0], [1.1, 4.5, 1.0, 1.2]])
        >>> BestStatic().trained(seconds, node_of=np.zeros(4, np.int64)).workers
        3
    """

    objective: Objective = Field("throughput", description="what was best: the mean of c / x_(c), or sum c / sum x_(c)")
    by: Literal["count", "either"] = Field("count", description="what ends a round: its c-th worker, or a deadline as well")
    workers: Count | None = Field(None, description="c, what training found", examples=[1])
    seconds: float | None = Field(None, gt=0, description="the deadline, likewise, for this c", examples=[1.0])

    def start(self, node_of: NodeOf) -> Chooser:
        if self.workers is None or (self.by == "either" and self.seconds is None):
            raise ValueError(
                "`best-static` must be trained first (`fred cutoffs` does), or `workers` be given (and, by either, `seconds`)"
            )
        if self.by == "count" or self.seconds is None:
            return StaticCutoff(workers=self.workers).start(node_of)
        return FixedDeadline(seconds=self.seconds, workers=self.workers).start(node_of)

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress = lambda share: None) -> Self:
        """The rule with the best number for `seconds` [iterations, workers]; `node_of` makes no difference."""
        if len(seconds) == 0:
            raise ValueError("no iterations to find the best static cutoff of")
        ordered = np.sort(seconds, axis=1)
        counts = np.arange(1, seconds.shape[1] + 1)
        if self.objective == "throughput":
            rates = counts / np.add.reduce(ordered, axis=0)
        else:
            rates = np.add.reduce(counts / ordered, axis=0)
        workers = 1 + int(np.argmax(rates))
        progress(1.0)
        return self.model_copy(update={"workers": workers, "seconds": self._deadline(ordered[:, :workers])})

    def _deadline(self, ordered: NDArray[np.float64]) -> float | None:
        """The best one, s, of rounds that end with the last of these times [iterations, c]."""
        return None if self.by == "count" else _best_deadline(ordered)


class BestStaticDeadline(CutoffRule):
    """The same deadline in every round, the best one of the rounds that it was trained on [Giladi et al. 2023, DropCompute].

    Best is what gives most gradients per time over all rounds. Between two times of workers a later deadline takes nobody
    more, so the best one is at one of those times; training tries each.

    Sometimes one of four workers is late and sometimes two are:

        >>> import numpy as np
        >>> from fred.prediction.best_static import BestStaticDeadline
        >>> seconds = np.array([[1.0, 1.1, 1.2, 4.0], [1.1, 4.5, 1.0, 4.2]])
        >>> BestStaticDeadline().trained(seconds, node_of=np.zeros(4, np.int64)).seconds
        1.2
    """

    seconds: float | None = Field(None, gt=0, description="of a round, from its start, what training found", examples=[1.0])

    def start(self, node_of: NodeOf) -> Chooser:
        if self.seconds is None:
            raise ValueError("`static-deadline` must be trained first (`fred cutoffs` does), or `seconds` be given")
        return FixedDeadline(seconds=self.seconds).start(node_of)

    def trained(self, seconds: NDArray[np.float64], node_of: NodeOf, progress: Progress = lambda share: None) -> Self:
        """The rule with the best deadline for `seconds` [iterations, workers]; `node_of` makes no difference."""
        if len(seconds) == 0:
            raise ValueError("no iterations to find the best static deadline of")
        found = _best_deadline(seconds)
        progress(1.0)
        return self.model_copy(update={"seconds": found})


def _best_deadline(seconds: NDArray[np.float64]) -> float:
    """The deadline, s, with most gradients per time in rounds that end when all are there: [iterations, workers]."""
    deadlines, rates = _rates(np.maximum(nanoseconds(seconds), 1))
    return int(deadlines[np.argmax(rates)]) / NANOSECONDS


def _rates(times: Times) -> tuple[Times, Floats]:
    """Every time as a deadline, ascending, and gradients per ns by it: [rounds x workers]; `times`: ns [rounds, workers]."""
    deadlines, first, last = np.sort(times, axis=None), np.sort(times.min(axis=1)), np.sort(times.max(axis=1))
    begun, complete = (np.searchsorted(each, deadlines, side="right") for each in (first, last))  # rounds, by each deadline
    until_first, until_last = (np.append(0, np.cumsum(each)) for each in (first, last))
    alone = len(times) - begun  # rounds that nobody makes: they wait for the first
    gradients = np.searchsorted(deadlines, deadlines, side="right") + alone
    time = until_last[complete] + deadlines * (begun - complete) + until_first[-1] - until_first[begun]
    return deadlines, gradients / time
