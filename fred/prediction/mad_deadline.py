"""A deadline from the median of recent times and the median absolute deviation [Hampel 1974; Leys et al. 2013]."""

from collections import deque
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fred.cluster.contention import NodeOf
from fred.components.component import Count
from fred.prediction.censored import Distribution
from fred.prediction.contract import Choice, Chooser, CutoffRule, Deadline, Times

_BACK_OFF = 2  # factor by which a deadline that was too early is extended, as in RFC 6298 (5.5)
_FEWEST = 0.25  # share of the workers: half of those expected by the median


class MADDeadline(CutoffRule):
    """A deadline at the median of recent times plus `k` median absolute deviations [Hampel 1974; Leys et al. 2013].

    The median absolute deviations (MAD) are unscaled. Hampel multiplies them by 1.4826 to get standard deviations of normal
    times. So k = 3 is 2.0 standard deviations, and k = 4.45 is 3. Times of dropped workers are bounds [Kaplan & Meier
    1958].

    `pooled`: all workers' times form one sample, as in Spark's speculative execution (a multiple of the median over a
    stage's tasks). `worker`: every worker has a deadline from its own times, as every connection has its retransmission
    timeout [Jacobson 1988; RFC 6298]. The round ends at the latest of these deadlines, since no worker is late before its
    own.

    A rule based on recent times sees nothing beyond its own deadlines; if it trusted them, it would drop more and more
    workers. So sometimes the next deadline is at least twice as late as the last round's end (RFC 6298, 5.5). This happens
    if the median was not observed, or if less than a quarter of the workers made the last deadline, until enough workers
    finish. The rule notices a faster cluster at once.

    Here the median time is 11, and half of the times are within 1 of it:

        >>> import numpy as np
        >>> from fred.prediction.mad_deadline import MADDeadline
        >>> chooser = MADDeadline(k=3).start(np.zeros(5, np.int64))
        >>> first = chooser.choose(np.array([], np.int64))
        >>> chooser.observe(np.array([10, 11, 12, 9, 40]), finished=np.ones(5, bool))
        >>> first, chooser.choose(np.array([], np.int64))
        (5, Deadline(ns=14, workers=None))
    """

    of: Literal["pooled", "worker"] = Field(
        default="pooled", description="sample that a deadline is taken from: all workers' times, or each worker's own"
    )
    window: Count = Field(default=20, description="number of last rounds that are used")
    k: float = Field(
        default=3.0, gt=0, description="median absolute deviations beyond the median, not scaled to standard deviations"
    )

    def start(self, node_of: NodeOf) -> Chooser:
        return _FromWindow(self, len(node_of))


class _FromWindow(Chooser):
    def __init__(self, rule: MADDeadline, workers: int):
        self._rule, self._workers = rule, workers
        self._times: deque[Times] = deque(maxlen=rule.window)
        self._finished: deque[NDArray[np.bool_]] = deque(maxlen=rule.window)

    def choose(self, times: Times) -> Choice:
        """Return all workers until a round was observed, then a deadline; `times` are ignored."""
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
