"""Rules by time: a round ends at a deadline that is announced at its start, a fixed one or one that recent times tell."""

from abc import abstractmethod
from collections import deque
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.contention import NodeOf
from fred.components.component import Count
from fred.prediction.censored import Distribution
from fred.prediction.contract import Choice, Chooser, CutoffRule, Deadline, Times
from fred.prediction.lognormal import Floats

_BACK_OFF = 2  # the factor by which a deadline is extended that was too early, as RFC 6298 (5.5) does a retransmission's


class FixedDeadline(CutoffRule):
    """The same deadline in every round, which may also end with so many workers.

    >>> import numpy as np
    >>> from fred.prediction.deadlines import FixedDeadline
    >>> FixedDeadline(seconds=1.5).start(np.zeros(4, np.int64)).choose(np.arange(4))
    Deadline(ns=1500000000, workers=None)
    """

    seconds: float = Field(description="of a round, from its start", gt=0, examples=[1.0])
    workers: Count | None = Field(None, description="that end a round before, if so many are there; absent: only all do")

    def start(self, node_of: NodeOf) -> Chooser:
        if self.workers and self.workers > len(node_of):
            raise ValueError(f"`workers` ({self.workers}) must not exceed the cluster's {len(node_of)}")
        return _Always(Deadline.after(self.seconds, self.workers))


class _Always(Chooser):
    def __init__(self, deadline: Deadline):
        self._deadline = deadline

    def choose(self, times: Times) -> Choice:
        return self._deadline


class RecentTimes(CutoffRule):
    """A deadline that the times of the last rounds tell, those of dropped workers as lower bounds [Kaplan & Meier 1958].

    `pooled`: all workers' times are one sample, as in Spark's speculative execution (a multiple of the median over a stage's
    tasks) and Cassandra's (a percentile over a table's requests). `worker`: every worker has a deadline by its own times, as
    every connection has its retransmission timeout [Jacobson 1988; RFC 6298]; the round ends at the latest of them, since
    nobody is late before its own.

    No rule by recent times sees what lies beyond its own deadlines, and one that believed them would drop ever more. So where
    the times sought were not seen, or where less than half of those expected made the last deadline, the next is at least
    twice as late as the last round ended (RFC 6298, 5.5), until enough are there. A faster cluster is seen at once.
    """

    of: Literal["pooled", "worker"] = Field(
        "pooled", description="whose times tell a deadline: everybody's, or each worker's own"
    )
    window: Count = Field(20, description="rounds that are remembered")

    def start(self, node_of: NodeOf) -> Chooser:
        return _Remembering(self, len(node_of))

    @abstractmethod
    def deadlines(self, recent: Distribution) -> Floats:
        """The deadline of each column of recent times: ns [columns]; inf where it was not seen."""

    @property
    @abstractmethod
    def expected(self) -> float:
        """Share of the workers that make the deadline, at least, while times stay as they are."""


class _Remembering(Chooser):
    def __init__(self, rule: RecentTimes, workers: int):
        self._rule, self._workers = rule, workers
        self._times: deque[Times] = deque(maxlen=rule.window)
        self._finished: deque[NDArray[np.bool_]] = deque(maxlen=rule.window)

    def choose(self, times: Times) -> Choice:
        """Until a round was seen, all; `times` are not looked at."""
        if not self._times:
            return self._workers
        columns = self._workers if self._rule.of == "worker" else 1
        recent = Distribution.of(np.reshape(self._times, (-1, columns)), np.reshape(self._finished, (-1, columns)))
        deadlines = self._rule.deadlines(recent)
        seen = np.isfinite(deadlines)
        latest = int(deadlines[seen].max(initial=0.0))
        if not seen.all() or self._finished[-1].sum() < self._rule.expected / 2 * self._workers:
            latest = max(latest, _BACK_OFF * int(self._times[-1].max()))
        return Deadline(latest)

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        self._times.append(times)
        self._finished.append(finished)


class MADDeadline(RecentTimes):
    """A worker is late that takes `k` median absolute deviations longer than the median [Hampel 1974; Leys et al. 2013].

    The deviations (MAD) are used as they are: Hampel multiplies them by 1.4826, so that they are standard deviations of normal
    times. There k = 3 is 2.0 standard deviations, and 4.45 is 3.

    The median of these times is 11, and half of them are within 1 of it:

        >>> import numpy as np
        >>> from fred.prediction.deadlines import MADDeadline
        >>> chooser = MADDeadline(k=3).start(np.zeros(5, np.int64))
        >>> first = chooser.choose(np.array([], np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 9, 40]), finished=np.ones(5, bool))
        >>> first, chooser.choose(np.array([], np.int64))
        (5, Deadline(ns=14, workers=None))
    """

    k: float = Field(3.0, gt=0, description="median absolute deviations beyond the median, not scaled to standard ones")

    def deadlines(self, recent: Distribution) -> Floats:
        return recent.quantile(0.5) + self.k * recent.mad()

    @property
    def expected(self) -> float:
        return 0.5


class QuantileDeadline(RecentTimes):
    """The time by which a share of the recent ones was there; .95 is when hedged requests are sent [Dean & Barroso 2013].

    >>> import numpy as np
    >>> from fred.prediction.deadlines import QuantileDeadline
    >>> chooser = QuantileDeadline(share=0.8).start(np.zeros(5, np.int64))
    >>> first = chooser.choose(np.array([], np.int64))
    >>> chooser.observe(np.array([10, 11, 12, 9, 40]), finished=np.ones(5, bool))
    >>> first, chooser.choose(np.array([], np.int64))
    (5, Deadline(ns=12, workers=None))
    """

    share: float = Field(0.95, gt=0, le=1, description="of recent times that lie before the deadline")

    def deadlines(self, recent: Distribution) -> Floats:
        return recent.quantile(self.share)

    @property
    def expected(self) -> float:
        return self.share
