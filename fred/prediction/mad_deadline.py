"""A deadline by the median of recent times and their median deviation from it [Hampel 1974; Leys et al. 2013]."""

from collections import deque
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.contention import NodeOf
from fred.components.component import Count
from fred.prediction.censored import Distribution
from fred.prediction.contract import Choice, Chooser, CutoffRule, Deadline, Times

_BACK_OFF = 2  # the factor by which a deadline is extended that was too early, as RFC 6298 (5.5) does a retransmission's
_FEWEST = 0.25  # of the workers: half of those that are there by the median


class MADDeadline(CutoffRule):
    """Waits for `k` median absolute deviations more than the median of recent times [Hampel 1974; Leys et al. 2013].

    The deviations (MAD) are used as they are: Hampel multiplies them by 1.4826, so that they are standard deviations of normal
    times. There k = 3 is 2.0 standard deviations, and 4.45 is 3. Times of dropped workers are bounds [Kaplan & Meier 1958].

    `pooled`: all workers' times are one sample, as in Spark's speculative execution (a multiple of the median over a stage's
    tasks). `worker`: every worker has a deadline by its own times, as every connection has its retransmission timeout
    [Jacobson 1988; RFC 6298]; the round ends at the latest of them, since nobody is late before its own.

    No rule by recent times sees what lies beyond its own deadlines, and one that believed them would drop ever more. So where
    the median was not seen, or where less than a quarter of the workers made the last deadline, the next is at least twice as
    late as the last round ended (RFC 6298, 5.5), until enough are there. A faster cluster is seen at once.

    The median of these times is 11, and half of them are within 1 of it:

        >>> import numpy as np
        >>> from fred.prediction.mad_deadline import MADDeadline
        >>> chooser = MADDeadline(k=3).start(np.zeros(5, np.int64))
        >>> first = chooser.choose(np.array([], np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 9, 40]), finished=np.ones(5, bool))
        >>> first, chooser.choose(np.array([], np.int64))
        (5, Deadline(ns=14, workers=None))
    """

    of: Literal["pooled", "worker"] = Field(
        "pooled", description="whose times tell a deadline: everybody's, or each worker's own"
    )
    window: Count = Field(20, description="rounds that are remembered")
    k: float = Field(3.0, gt=0, description="median absolute deviations beyond the median, not scaled to standard ones")

    def start(self, node_of: NodeOf) -> Chooser:
        return _Remembering(self, len(node_of))


class _Remembering(Chooser):
    def __init__(self, rule: MADDeadline, workers: int):
        self._rule, self._workers = rule, workers
        self._times: deque[Times] = deque(maxlen=rule.window)
        self._finished: deque[NDArray[np.bool_]] = deque(maxlen=rule.window)

    def choose(self, times: Times) -> Choice:
        """Return all until a round was seen, then a deadline; `times` are not looked at."""
        if not self._times:
            return self._workers
        columns = self._workers if self._rule.of == "worker" else 1
        recent = Distribution.of(np.reshape(self._times, (-1, columns)), np.reshape(self._finished, (-1, columns)))
        deadlines = recent.quantile(0.5) + self._rule.k * recent.mad()
        seen = np.isfinite(deadlines)
        latest = int(deadlines[seen].max(initial=0.0))
        if not seen.all() or self._finished[-1].sum() < _FEWEST * self._workers:
            latest = max(latest, _BACK_OFF * int(self._times[-1].max()))
        return Deadline(latest)

    def observe(self, times: Times, finished: NDArray[np.bool_]) -> None:
        self._times.append(times)
        self._finished.append(finished)
