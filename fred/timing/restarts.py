"""A job that fails and starts again: checkpoints, failures, and the way back to the last checkpoint."""

import math
from collections import defaultdict
from collections.abc import Callable
from functools import partial

from fred.base.errors import FredError
from fred.cluster.durations import NANOSECONDS, NEVER
from fred.cluster.failing import Failing
from fred.cluster.failures import Failures
from fred.cluster.faults import MOST_TRIES
from fred.schedule.schedule import What
from fred.timing.restorable import Kept, Restorable
from fred.timing.saving import Saving
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
        self._saving, self._skips = Saving(sim, checkpoint), failures.minibatches == "next"
        self._failing = Failing(failures, sim.cluster, sim.seed)
        self._at_updates = sorted(failures.at_updates, reverse=True)  # failures at numbers of updates, last first
        self._initial = self._last = record.checkpoint(0, 0)  # checkpoint: the initial parameters
        self._furthest = self._last  # the last checkpoint with more updates than all before
        self._writing = False
        self._began = 0  # when the job last went on, ns
        self._tries = 0  # failures since that checkpoint
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
        self._saving.loaded()
        self._plan(self._began)
        self._start(self._sim)

    def _plan(self, begin: int) -> None:
        """Set when the next checkpoint is due, if work begins at `begin`, ns."""
        self._due = self._record.changes + self._updates, begin + round(self._seconds * NANOSECONDS)

    def _updated(self) -> None:
        """Make a checkpoint if it is due; it waits while a round is open, or the last one cannot be used yet."""
        if self._at_updates and self._record.changes >= self._at_updates[-1][0] * self._sim.blocks:
            self._strike(self._sim.now)
            return
        changes, time = self._due
        due = self._record.changes >= changes and self._sim.now >= time
        if due and self._record.between_rounds and not self._writing:
            self._checkpoint(self._sim.now)

    def _strike(self, now: int) -> None:
        """Let all machines fail that do so after this number of updates; those with the same time to repair fail as one."""
        first = self._at_updates[-1][0]
        workers = defaultdict[float, list[int]](list)
        while self._at_updates and self._at_updates[-1][0] == first:
            _, worker, seconds = self._at_updates.pop()
            workers[seconds].append(worker)
        for seconds, some in workers.items():
            self._failing.add(now, some, round(seconds * NANOSECONDS))
        self._sim.env.at(now, self._fail)

    def _checkpoint(self, now: int) -> None:
        over = now + self._saving.stops(now)
        kept = self._record.checkpoint(now, over)
        self._plan(over)
        self._writing = True
        if over > now:
            self._record.of_job(What.SAVING, now, over)
            self._sim.env.at(now, partial(self._stop, over - now))  # once the present event is over
        self._saving.send(over, partial(self._use, kept))

    def _stop(self, lasts: int) -> None:
        """Stop everything for as long as a checkpoint takes, ns: work, messages, and waiting."""
        self._record.pause(self._sim.now, lasts)
        self._sim.env.pause(lasts)
        if self._sim.links is not None:
            self._sim.links.pause(lasts)

    def _use(self, kept: Kept) -> None:
        self._last, self._writing = kept, False
        if kept.counts[0] > self._furthest.counts[0]:
            self._furthest, self._tries = kept, 0

    def _fail(self) -> None:
        """Lose everything since the last checkpoint, and go on when all workers have loaded it."""
        now, record = self._sim.now, self._record
        self._check_tries()
        outage = self._failing.fail(now)
        enough, loaded = outage.complete < NEVER, outage.loaded
        record.lose(self._go_back(outage.workers), now)
        if self._skips:
            record.skip(self._last, now)
        record.restore(self._last)
        if enough and self._last is not self._initial:
            loaded += self._saving.load(loaded)
        record.of_job(What.DETECTING, now, outage.detected, outage.workers[0])
        for worker, ready in zip(outage.workers, outage.ready, strict=False):
            record.of_job(What.BROKEN, now, ready, worker)
        record.of_job(What.REPAIRING, outage.detected, outage.complete)
        record.of_job(What.LOADING, outage.complete, loaded)
        self._sim.halt(self._end, {} if enough else {"the job": "a machine: too few are left"})
        self._set_limits()
        self._began, self._writing = loaded, False
        if enough:
            self._resume(outage.complete, loaded)

    def _go_back(self, failed: list[int]) -> int:
        """Choose the checkpoint to go back to when these workers have failed; return the time since which work is lost, ns."""
        if self._saving.lose(failed):
            self._last, self._began = self._initial, 0
        return max(self._last.over, self._began)

    def _check_tries(self) -> None:
        self._tries += 1
        if self._tries > MOST_TRIES:
            raise FredError(
                f"`cluster.failures`: {MOST_TRIES:,} failures since the checkpoint at {self._furthest.time / NANOSECONDS:g} s: "
                "give longer times between failures, or more frequent checkpoints"
            )
