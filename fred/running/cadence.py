"""Evaluation points: where in a schedule the parameters are looked at, and how far the run has come there."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fred.errors import FredError
from fred.scenario.shape import Unit
from fred.schedule import Schedule, Verb
from fred.timing.durations import NANOSECONDS, nanoseconds
from fred.timing.simulation import MOST_POINTS


@dataclass(frozen=True)
class Points:
    """Points at 0, at every multiple of `spacing`, and at the end of the run. Arrays have one item per point."""

    rows: NDArray[np.int64]  # rows of the schedule before the point
    updates: NDArray[np.int64]
    gradients: NDArray[np.int64]  # that took part in those updates
    seconds: NDArray[np.float64]  # virtual time

    @classmethod
    def of(cls, schedule: Schedule, unit: Unit, spacing: float) -> "Points":
        """The points of a schedule: after the update that reaches a count, or just before a moment."""
        updates = schedule.rows(Verb.PUSH, Verb.COMMIT)
        gradients = np.cumsum(schedule.gradients_per_update())
        times = schedule["time_ns"]
        if unit == "seconds":
            moments = np.append(threshold_times(spacing, schedule.end_ns), schedule.end_ns)
            rows = np.append(np.searchsorted(times, moments[:-1], side="left"), len(schedule))
        else:
            reached = np.arange(1, len(updates) + 1) // schedule.blocks if unit == "updates" else gradients
            last = reached[-1] if len(reached) else 0
            thresholds = spacing * np.arange(1, last // spacing + 2)
            at = np.unique(np.searchsorted(reached, thresholds[thresholds <= last], side="left"))
            rows = np.append(updates[at] + 1, len(schedule))
            moments = np.append(times[updates[at]], schedule.end_ns)
        rows, moments = np.insert(rows, 0, 0), np.insert(moments, 0, 0)
        done = np.searchsorted(updates, rows, side="left")
        changes = np.searchsorted(schedule.rows(Verb.PUSH, Verb.COMMIT, Verb.SYNC), rows, side="left")
        if len(done) > 1 and unit != "seconds" and changes[-1] == changes[-2]:  # the end adds nothing to the last point
            rows, moments, done = rows[:-1], moments[:-1], done[:-1]
        return cls(rows, done // schedule.blocks, np.insert(gradients, 0, 0)[done], moments / NANOSECONDS)


def threshold_times(spacing: float, end_ns: int) -> NDArray[np.int64]:
    """Multiples of `spacing` seconds before the end, ns. Raises FredError if there are too many to look at."""
    if end_ns / NANOSECONDS / spacing > MOST_POINTS:
        raise FredError(f"`every_seconds` ({spacing:g}) asks for more than {MOST_POINTS:,} points; look less often")
    times = nanoseconds(spacing * np.arange(1, end_ns / NANOSECONDS / spacing + 1))
    return times[times < end_ns]
