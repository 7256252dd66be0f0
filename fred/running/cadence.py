"""Evaluation points of a run: the start, every multiple of a count or a time, and the end.

A run with a target ends at the first of these points, except the start, at which the target has been reached. That is after
the update that reached the count, or just before the events at that time, for both ways to compute a run.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.cluster.latency import nanoseconds
from fred.components.component import MOST_POINTS, NANOSECONDS
from fred.schedule.schedule import Row, Schedule, Verb
from fred.specification.stopping import Measure
from fred.timing.recorder import Listener, Recorder


@dataclass(frozen=True)
class Points:
    """The points of a schedule. Arrays have one item per point."""

    rows: NDArray[np.int64]  # rows of the schedule before the point
    updates: NDArray[np.int64]
    gradients: NDArray[np.int64]  # gradients that took part in those updates
    seconds: NDArray[np.float64]  # virtual time


@dataclass(frozen=True)
class Cadence:
    """Points after the update that reaches a multiple of a count, or just before the events at a multiple of a time.

    Args:
        unit: updates, gradients, or seconds of virtual time.
        spacing: distance of two points, in this unit.
    """

    unit: Measure
    spacing: float

    def points(self, schedule: Schedule) -> Points:
        """Return the points of a finished schedule. Raises FredError for too many points.

        Args:
            schedule: the schedule.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> points = Cadence("updates", 2).points(fred.run(scenario).outcome("asgd").schedule)
        >>> points.updates.tolist(), points.seconds.tolist()
        ([0, 2, 4], [0.0, 0.5, 1.0])
        """
        updates = schedule.ledger.every_update
        gradients = np.cumsum(schedule.ledger.gradients_per_update())
        times = schedule["time_ns"]
        if self.unit == "seconds":
            moments = np.append(self._moments(schedule.end_ns), schedule.end_ns)
            rows = np.append(np.searchsorted(times, moments[:-1], side="left"), len(schedule))
        else:
            reached = np.arange(1, len(updates) + 1) // schedule.blocks if self.unit == "updates" else gradients
            last = reached[-1] if len(reached) else 0
            thresholds = self.spacing * np.arange(1, last // self.spacing + 2)
            at = np.unique(np.searchsorted(reached, thresholds[thresholds <= last], side="left"))
            rows = np.append(updates[at] + 1, len(schedule))
            moments = np.append(times[updates[at]], schedule.end_ns)
        rows, moments = np.insert(rows, 0, 0), np.insert(moments, 0, 0)
        done = np.searchsorted(updates, rows, side="left")
        changes = np.searchsorted(schedule.rows(Verb.PUSH, Verb.COMMIT, Verb.SYNC), rows, side="left")
        if len(done) > 1 and self.unit != "seconds" and changes[-1] == changes[-2]:  # the end adds nothing to the last point
            rows, moments, done = rows[:-1], moments[:-1], done[:-1]
        return Points(rows, done // schedule.blocks, np.insert(gradients, 0, 0)[done], moments / NANOSECONDS)

    def moment(self, number: int) -> int:
        """Return the time of a point, ns.

        Args:
            number: number of the point, from 1; only for a cadence in seconds.
        """
        return int(nanoseconds(self.spacing * np.array([number]))[0])

    def _moments(self, end_ns: int) -> NDArray[np.int64]:
        """Return the multiples of the spacing before the end, ns."""
        self.check(end_ns)
        times = nanoseconds(self.spacing * np.arange(1, end_ns / NANOSECONDS / self.spacing + 1))
        return times[times < end_ns]

    def check(self, end_ns: int) -> None:
        """Raise FredError for a spacing that makes more points than the limit."""
        if self.unit == "seconds" and end_ns / NANOSECONDS / self.spacing > MOST_POINTS:
            raise FredError(f"`every_seconds` ({self.spacing:g}) asks for more than {MOST_POINTS:,} points; increase it")


class Watch:
    """A listener that evaluates at the points while rows are recorded. When `look` returns True, the recording ends.

    A point in time has passed when the first row at or after it comes, or the run is over. If the run ends at a point
    because of another limit, that point is evaluated as the end. So the recording only ends with the first row after the
    point at which `look` returned True.

    Args:
        cadence: the points.
        listener: receives every row.
        look: called at each point; returns True to stop.
    """

    def __init__(self, cadence: Cadence, listener: Listener, look: Callable[[], bool]):
        self._cadence, self._listener, self._look = cadence, listener, look
        self.recorder: Recorder | None = None  # its counters determine the points
        self._number = 1  # of the next point
        self._moment = cadence.moment(1) if cadence.unit == "seconds" else math.inf  # ns
        self._reached_at = math.inf  # ns
        self.statistic = listener.statistic
        self.forget_mailbox, self.forget_message = listener.forget_mailbox, listener.forget_message

    def execute(self, row: Row) -> None:
        """Process one more row."""
        assert self.recorder is not None
        self._pass(row.time_ns)
        if row.time_ns > self._reached_at:
            self.recorder.stop()
            return
        self._listener.execute(row)
        if self._cadence.unit != "seconds" and row.verb in (Verb.PUSH, Verb.COMMIT):
            reached = self.recorder.updates if self._cadence.unit == "updates" else self.recorder.gradients
            if reached >= self._number * self._cadence.spacing:
                while reached >= self._number * self._cadence.spacing:
                    self._number += 1
                if self._look():
                    self.recorder.stop()

    def finish(self, end_ns: int) -> None:
        """Evaluate at the remaining points before the end of the recording."""
        self._pass(end_ns - 1)

    def _pass(self, time_ns: int) -> None:
        """Evaluate at the points until this time."""
        if time_ns >= self._moment:
            self._cadence.check(time_ns)
        while self._moment <= time_ns and math.isinf(self._reached_at):
            if self._look():
                self._reached_at = self._moment
            self._number += 1
            self._moment = self._cadence.moment(self._number)
