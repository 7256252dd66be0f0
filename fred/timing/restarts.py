"""A job that fails and starts again: checkpoints, failures, and the way back to the last checkpoint."""

import math
from collections.abc import Callable

from fred.base.errors import FredError
from fred.cluster.durations import NANOSECONDS, NEVER
from fred.cluster.failing import Failing
from fred.cluster.failures import Failures
from fred.cluster.faults import MOST_TRIES
from fred.schedule.schedule import What
from fred.timing.restorable import Kept, Restorable
from fred.timing.simulation import Simulation


class Restarts:
    """The life of a job that goes back to its last checkpoint whenever machines fail.

    A failure ends all processes of the protocol. The protocol starts again, from the checkpoint's state, when all workers
    have loaded it. So every protocol with one model can do this, and need not know of it.

    Args:
        sim: the run, before any process has started.
        record: its recorder.
        failures: options.
        start: starts the protocol's processes.
    """

    def __init__(self, sim: Simulation, record: Restorable, failures: Failures, start: Callable[[Simulation], None]):
        self._sim, self._record, self._start = sim, record, start
        checkpoint = failures.checkpoint
        self._updates, self._seconds = (checkpoint.every_updates or 0) * sim.blocks, checkpoint.every_seconds or 0.0
        self._pause, self._write = (round(each * NANOSECONDS) for each in (checkpoint.pause, checkpoint.write))
        self._failing = Failing(failures, sim.cluster, sim.seed)
        self._last = record.checkpoint(0, 0)  # checkpoint: the initial parameters
        self._began = 0  # when the job last went on, ns
        self._tries = 0  # failures since the last checkpoint
        self._due = 0, 0  # changes and time (ns) of the next checkpoint
        self._end = math.inf
        record.updated = self._updated

    def run(self, seconds: float = math.inf) -> None:
        """Run until the schedule is full or `seconds` are over. Raises FredError on a standstill."""
        self._end = seconds
        self._set_limits()
        self._resume(0, 0)
        self._sim.run(seconds)

    def _set_limits(self) -> None:
        if self._record.rows_from >= self._sim.now:
            self._sim.env.at(self._record.rows_from, self._record.arm)

    def _resume(self, complete: int, loaded: int) -> None:
        """Go on: machines can fail from `complete` on, and the protocol starts at `loaded`, ns."""
        self._failing.resume(complete)
        if (when := self._failing.next()) < NEVER:
            self._sim.env.at(when, self._fail)
        self._sim.env.at(loaded, self._go)

    def _go(self) -> None:
        self._began = self._sim.now
        self._plan(self._began)
        self._start(self._sim)

    def _plan(self, begin: int) -> None:
        """Set when the next checkpoint is due, if work begins at `begin`, ns."""
        self._due = self._record.changes + self._updates, begin + round(self._seconds * NANOSECONDS)

    def _updated(self) -> None:
        """Make a checkpoint if it is due; while a round is open, it waits."""
        changes, time = self._due
        if self._record.changes >= changes and self._sim.now >= time and self._record.between_rounds:
            self._checkpoint(self._sim.now)

    def _checkpoint(self, now: int) -> None:
        over, usable = now + self._pause, now + self._pause + self._write
        kept = self._record.checkpoint(now, over)
        self._plan(over)
        self._due = self._due[0], max(self._due[1], usable)
        if over > now:
            self._record.of_job(What.SAVING, now, over)
            self._sim.env.at(now, self._stop)  # once the present event is over
        if usable > now:
            self._sim.env.at(usable, lambda: self._use(kept))
        else:
            self._use(kept)

    def _stop(self) -> None:
        """Stop everything for as long as a checkpoint takes: work, messages, and waiting."""
        self._record.pause(self._sim.now, self._pause)
        self._sim.env.pause(self._pause)
        if self._sim.links is not None:
            self._sim.links.pause(self._pause)

    def _use(self, kept: Kept) -> None:
        self._last, self._tries = kept, 0

    def _fail(self) -> None:
        """Lose everything since the last checkpoint, and go on when all workers have loaded it."""
        now, record, last = self._sim.now, self._record, self._last
        self._check_tries()
        outage = self._failing.fail(now)
        since = max(last.over, self._began)
        record.lose(since, now)
        record.restore(last)
        record.of_job(What.DETECTING, now, outage.detected, outage.worker)
        record.of_job(What.REPAIRING, outage.detected, outage.complete)
        record.of_job(What.LOADING, outage.complete, outage.loaded)
        enough = outage.complete < NEVER
        self._sim.halt(self._end, {} if enough else {"the job": "a machine: too few are left"})
        self._set_limits()
        self._began = outage.loaded
        if enough:
            self._resume(outage.complete, outage.loaded)

    def _check_tries(self) -> None:
        self._tries += 1
        if self._tries > MOST_TRIES:
            raise FredError(
                f"`cluster.failures`: {MOST_TRIES:,} failures since the checkpoint at {self._last.time / NANOSECONDS:g} s: "
                "give longer times between failures, or more frequent checkpoints"
            )
