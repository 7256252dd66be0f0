"""A recorder that goes back to a checkpoint: rows after it leave the schedule, as the work that they stand for is lost.

The times of checkpoints: given ones, and those that the network needs to carry them to a store or to peers, and back.

A job that fails and starts again: checkpoints, failures, and the way back to the last checkpoint.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, NamedTuple

from fred.base.errors import FredError
from fred.cluster.bandwidths import Member
from fred.cluster.durations import NANOSECONDS, NEVER
from fred.cluster.failing import Failing
from fred.cluster.failures import Checkpoint, Failures
from fred.cluster.faults import MOST_TRIES
from fred.schedule.layout import Layout
from fred.schedule.schedule import NONE, UNENDING, Schedule, What
from fred.timing.copies import Gradient
from fred.timing.links import Links
from fred.timing.loop import Loop
from fred.timing.recorder import Recorder
from fred.timing.simulation import Simulation
from fred.timing.world import Process

_EACH_COUNTS = (What.DETECTING, What.SKIPPED)  # intervals that matter even if they take no time


class Kept(NamedTuple):
    """A point of the recording to which `restore` goes back.

    Args:
        time, over: when the checkpoint began, and when the job went on, ns.
        lengths: of rows and intervals, bytes.
        counts: updates of blocks, applied gradients, and mailboxes.
        clocks: of each block of each replica.
        steps: of each worker: number of gradients that its next one follows.
        begun: worker, beginning and end (ns) of gradients that were not used yet, which are lost too.
    """

    time: int
    over: int
    lengths: tuple[int, int]
    counts: tuple[int, int, int]
    clocks: list[int]
    steps: list[int]
    begun: list[tuple[int, int, int]]


class Restorable(Recorder):
    """A recorder whose schedule holds only work that is never lost; lost time is in intervals.

    Args:
        workers, layout, limits: as of `Recorder`.
        rows_from: time from which the limit on rows counts, ns: rows before it may still be lost.
    """

    def __init__(self, workers: int, layout: Layout, *, rows_from: int = 0, **limits: Any):
        super().__init__(workers, layout, **limits)
        self.rows_from, self._wanted_then = rows_from, self._bytes_wanted
        self._bytes_wanted = UNENDING
        self.updated: Callable[[], None] = lambda: None  # called after each update of a block
        self._of_job: list[list[int]] = []  # intervals of the whole job
        self._none_begun = list(self.latest)

    def arm(self) -> None:
        """Let the limit on rows count from now on."""
        self._bytes_wanted = self._wanted_then

    @property
    def between_rounds(self) -> bool:
        """Return True if no round is open."""
        return not any(self._joined)

    def checkpoint(self, now: int, over: int) -> Kept:
        """Return the present point, at `now`; the job goes on at `over`, ns."""
        unused = {(each.worker, each.step): each for each in self._in_flight() if not each.applied}
        steps = [_first_unused(worker, step, unused) for worker, step in enumerate(self.steps)]
        ends = [(each, over if _is_delayed(each, now) else each.end) for each in unused.values()]
        begun = [(each.worker, each.begin, end) for each, end in ends if each.begin < min(now, end)]
        lengths, counts = (len(self._rows), len(self._intervals)), (self.changes, self.gradients, self._mailboxes)
        return Kept(now, over, lengths, counts, list(self.clocks), steps, begun)

    def restore(self, kept: Kept) -> None:
        """Go back: everything recorded since then is lost."""
        rows, intervals = kept.lengths
        del self._rows[rows:], self._intervals[intervals:]
        self.changes, self.gradients, self._mailboxes = kept.counts
        self.clocks[:], self.steps[:] = kept.clocks, kept.steps
        self.latest[:] = self._none_begun
        self._unsettled, self._joined = [], [[] for _ in self._joined]
        self._totals = [0.0] * len(self._joined)
        for worker, begin, end in kept.begun:
            self.of_job(What.LOST, begin, end, worker)
        kept.begun.clear()  # once only, however often the job goes back

    def skip(self, kept: Kept, now: int) -> None:
        """Let each worker go on with the minibatch after the last one that it began, once the recording is at `kept` again.

        Args:
            kept: the point to which `restore` will go back.
            now: time of the failure, ns.
        """
        for worker, (begun, left) in enumerate(zip(self.steps, kept.steps, strict=True)):
            if begun > left:
                self.of_job(What.SKIPPED, now, now, worker, begun - left)

    def of_job(self, what: What, begin: int, end: int, worker: int = NONE, other: int = NONE) -> None:
        """Record an interval of the whole job, ns; see `Intervals` for the rest."""
        self._of_job.append([what, begin, end, worker, other])

    def lose(self, since: int, now: int) -> None:
        """Record that the job has failed at `now`: everything `since` the checkpoint, ns, is undone, but failures count."""
        later = []
        while self._of_job and (self._of_job[-1][1] >= since or self._of_job[-1][2] > now):  # it may fail while it loads
            later.append(self._of_job.pop())
        for what, begin, end, worker, other in reversed(later):
            if what == What.BROKEN:
                self._of_job.append([what, begin, end, worker, other])
            elif begin < since or what in (What.LOST, What.SKIPPED):
                self._of_job.append([what, begin, min(end, now), worker, other])
            elif what == What.DETECTING:
                self._of_job.append([what, begin, begin, worker, other])
        self.of_job(What.UNDONE, since, now)

    def pause(self, now: int, lasts: int) -> None:
        """Delay all gradients that are being computed, ns."""
        for each in self._in_flight():
            if _is_delayed(each, now):
                each.begin += lasts if each.begin >= now else 0
                each.end += lasts
                each.ready = tuple(end + lasts if end > now else end for end in each.ready)

    def schedule(self, end_ns: int, standstill: str = "", others: Iterable[tuple[int, ...]] = ()) -> Schedule:
        """Return the schedule of everything that was not lost, until the simulation stopped at `end_ns`."""
        found = [
            (what, begin, min(end, end_ns), NONE, worker, other)
            for what, begin, end, worker, other in self._of_job
            if begin < min(end, end_ns) or (what in _EACH_COUNTS and begin <= end_ns)
        ]
        return super().schedule(end_ns, standstill, (*others, *found))

    def _changed(self, cell: int) -> None:
        super()._changed(cell)
        if not self.full:
            self.updated()


def _is_delayed(gradient: Gradient, now: int) -> bool:
    """Return True if a pause that begins `now` (ns) delays a gradient: it is being computed, or its end is still to happen."""
    return gradient.end > now or (gradient.end == now and not gradient.underway and not gradient.applied)


def _first_unused(worker: int, step: int, unused: dict[tuple[int, int], Gradient]) -> int:
    """Return the step after the worker's last gradient that was used: later ones are lost, and their steps are used again."""
    while (worker, step - 1) in unused:
        step -= 1
    return step


class Saving:
    """The checkpoints of one run on their way: each owner of a part of the model sends its share, all at the same time.

    Owners are the servers, or else the workers. While the job is stopped, nothing else is on the network. While it goes on,
    shares and the messages of training are on the same links.

    Args:
        sim: the run, before any process has started.
        checkpoint: options.

    Example: two workers write 1 MB each to a store of 10 MB/s, which needs 0.2 s.
        >>> import fred
        >>> saved = {"every_updates": 1, "to": "store", "bytes": 2_000_000, "store_bandwidth": 1e7, "blocking": True}
        >>> failures = {"recorded": [(0, 1, 2)], "checkpoint": saved}
        >>> cluster = fred.Cluster(workers=2, network={}, failures=failures)
        >>> sim = fred.Simulation(cluster, fred.Recorder(2, fred.Layout.shared()), seed=0)
        >>> saving = Saving(sim, cluster.failures.checkpoint)
        >>> saving.stops(now=0) / 1e9, saving.load(begin=0) / 1e9
        (0.2, 0.2)
    """

    def __init__(self, sim: Simulation, checkpoint: Checkpoint):
        self._sim, self._to, self._blocking = sim, checkpoint.to, checkpoint.blocking
        self._pause, self._write = (round(each * NANOSECONDS) for each in (checkpoint.pause, checkpoint.write))
        servers = bool(sim.record.layout.on_servers)
        self._owners: list[Member] = (
            [("servers", server) for server in range(sim.servers)]
            if servers
            else [("workers", worker) for worker in range(sim.workers)]
        )
        self._share = math.ceil((checkpoint.bytes or 0) / len(self._owners))  # bytes
        self._without: set[int] = set()  # workers whose memory does not hold the checkpoint
        if sim.links is not None and self._to:
            self._idle = Loop()
            self._idle_links = type(sim.links)(self._idle, sim.cluster, sim.seed)

    def stops(self, now: int) -> int:
        """Return for how long (ns) the job stops for a checkpoint that is made `now`, ns."""
        return self._pause + (self._alone(now + self._pause, self._writes) if self._to and self._blocking else 0)

    def send(self, begin: int, done: Callable[[], None]) -> None:
        """Send a checkpoint.

        Args:
            begin: when the job goes on, ns.
            done: called once the checkpoint can be used.
        """
        if self._to and not self._blocking:
            self._sim.env.at(begin, partial(self._start_sending, done))
        elif begin + self._write > self._sim.now:
            self._sim.env.at(begin + self._write, done)
        else:
            done()

    def lose(self, failed: Collection[int]) -> bool:
        """Return True if the last checkpoint is lost, because both workers that have a share in their memory failed.

        Args:
            failed: workers that fail now.
        """
        self._without.update(failed)
        return self._to == "peers" and any(self._next(worker) in self._without for worker in self._without)

    def load(self, begin: int) -> int:
        """Return how long (ns) the network needs from `begin` (ns) on until all owners have their shares again."""
        return self._alone(begin, self._reads) if self._to else 0

    def loaded(self) -> None:
        """Note that all workers have their shares again."""
        self._without.clear()

    def _next(self, worker: int, step: int = 1) -> int:
        return (worker + step) % self._sim.workers

    def _writes(self, links: Links) -> list[Process]:
        """Return the messages of a new checkpoint."""
        if self._to == "store":
            return [links.to_store(owner, self._share) for owner in self._owners]
        return [links.across(worker, self._next(worker), self._share) for _, worker in self._owners]

    def _reads(self, links: Links) -> list[Process]:
        """Return the messages of a restart; peers send a worker its own share, and the one that it holds for another."""
        if self._to == "store":
            return [links.from_store(owner, self._share) for owner in self._owners]
        neighbours = [(self._next(worker, step), worker) for step in (1, -1) for worker in sorted(self._without)]
        return [links.across(sender, worker, self._share) for sender, worker in neighbours]

    def _start_sending(self, done: Callable[[], None]) -> None:
        assert self._sim.links is not None
        messages = [self._sim.process(message) for message in self._writes(self._sim.links)]
        self._sim.later(self._sim.env.all_of(messages), done)

    def _alone(self, begin: int, messages: Callable[[Links], list[Process]]) -> int:
        """Return how long (ns) messages take that begin at `begin` (ns) on an idle network."""
        env, links = self._idle, self._idle_links
        env._queue.clear()
        env._now = begin
        links.clear()
        env.run(env.all_of([env.process(message) for message in messages(links)]))
        return env._now - begin


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
