"""A job that fails and starts again from its last checkpoint.

`Restorable` is a recorder that goes back to a checkpoint: the rows after it leave the schedule, because their work is lost.
`Saving` determines how long a checkpoint takes: given times, and those of its messages to a store or to peers, and back.
`Restarts` runs the job: it makes checkpoints, lets machines fail, and starts the protocol again.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, NamedTuple

from fred.base.errors import FredError
from fred.cluster.bandwidths import Member
from fred.cluster.durations import NEVER
from fred.cluster.failing import Failing
from fred.cluster.failures import Checkpoint, Failures
from fred.cluster.faults import MOST_TRIES
from fred.components.component import NANOSECONDS
from fred.schedule.layout import Layout
from fred.schedule.schedule import NONE, UNENDING, Schedule, What
from fred.timing.copies import Gradient
from fred.timing.links import Links
from fred.timing.loop import Loop
from fred.timing.recorder import Recorder
from fred.timing.simulation import Simulation
from fred.timing.world import Process

_INSTANT_KINDS = (What.DETECTING, What.SKIPPED, What.DEFERRED)  # intervals that matter even if they take no time


class RestorePoint(NamedTuple):
    """A point of the recording to which `restore` goes back.

    Args:
        time, resumed_at: when the checkpoint began, and when the job went on, ns.
        lengths: of rows and intervals, bytes.
        counts: updates of blocks, applied gradients, and mailboxes.
        clocks: of each block of each replica.
        steps: of each worker: number of gradients that its next one follows.
        lost_gradients: worker, beginning and end (ns) of gradients that no update has used yet: going back loses them, too.
    """

    time: int
    resumed_at: int
    lengths: tuple[int, int]
    counts: tuple[int, int, int]
    clocks: list[int]
    steps: list[int]
    lost_gradients: list[tuple[int, int, int]]


class Restorable(Recorder):
    """A recorder whose schedule holds only work that is never lost; lost time is in intervals.

    Args:
        workers, layout, limits: as of `Recorder`.
        rows_from: time from which the limit on rows counts, ns: rows before it may still be lost.
    """

    def __init__(self, workers: int, layout: Layout, *, rows_from: int = 0, **limits: Any):
        super().__init__(workers, layout, **limits)
        self.rows_from, self._final_byte_limit = rows_from, self._byte_limit
        self._byte_limit = UNENDING
        self.updated: Callable[[], None] = lambda: None  # called after each update of a block
        self._job_intervals: list[list[int]] = []  # of the whole job: kind, begin, end (ns), worker, other
        self._placeholders = list(self.latest)  # of workers that have begun no gradient

    def arm(self) -> None:
        """Let the limit on rows count from now on."""
        self._byte_limit = self._final_byte_limit

    @property
    def between_rounds(self) -> bool:
        """Return True if no round is open."""
        return not any(self._rounds)

    def checkpoint(self, now: int, resumed_at: int) -> RestorePoint:
        """Return the present point, at `now`; the job goes on at `resumed_at`, ns."""
        pending = {(gradient.worker, gradient.step): gradient for gradient in self._in_flight() if not gradient.applied}
        steps = [_next_step(worker, step, pending) for worker, step in enumerate(self.steps)]
        # A gradient that the checkpoint delays counts as lost until `resumed_at`: from then on, a failure records UNDONE.
        ends = [(gradient, resumed_at if _is_delayed(gradient, now) else gradient.end) for gradient in pending.values()]
        lost_gradients = [(gradient.worker, gradient.begin, end) for gradient, end in ends if gradient.begin < min(now, end)]
        lengths, counts = (len(self._rows), len(self._intervals)), (self.changes, self.gradients, self._mailboxes)
        return RestorePoint(now, resumed_at, lengths, counts, list(self.clocks), steps, lost_gradients)

    def restore(self, point: RestorePoint) -> None:
        """Go back: everything recorded since then is lost."""
        rows, intervals = point.lengths
        del self._rows[rows:], self._intervals[intervals:]
        self.changes, self.gradients, self._mailboxes = point.counts
        self.clocks[:], self.steps[:] = point.clocks, point.steps
        self.latest[:] = self._placeholders
        self._unsettled, self._rounds = [], [[] for _ in self._rounds]
        self._totals = [0.0] * len(self._rounds)
        for worker, begin, end in point.lost_gradients:
            self.record_job_interval(What.LOST, begin, end, worker)
        point.lost_gradients.clear()  # once only, however often the job goes back

    def skip(self, point: RestorePoint, now: int) -> None:
        """Let each worker go on with the minibatch after the last one that it began, once the recording is at `point` again.

        Args:
            point: the point to which `restore` will go back.
            now: time of the failure, ns.
        """
        for worker, (step, restored_step) in enumerate(zip(self.steps, point.steps, strict=True)):
            if step > restored_step:
                self.record_job_interval(What.SKIPPED, now, now, worker, step - restored_step)

    def record_job_interval(self, kind: What, begin: int, end: int, worker: int = NONE, other: int = NONE) -> None:
        """Record an interval of the whole job, ns; see `Intervals` for the rest."""
        self._job_intervals.append([kind, begin, end, worker, other])

    def lose(self, since: int, now: int) -> None:
        """Record that the job has failed at `now`: everything `since` the checkpoint, ns, is undone, but failures count."""
        later_intervals = []  # those that begin at the checkpoint or later, or end after now
        # The job may also fail while it loads. Repairs go on; what began before the checkpoint, lost attempts and skips end now
        # at the latest; detections and deferred checkpoints stay as instants, because they are counted; UNDONE covers all else.
        while self._job_intervals and (self._job_intervals[-1][1] >= since or self._job_intervals[-1][2] > now):
            later_intervals.append(self._job_intervals.pop())
        for kind, begin, end, worker, other in reversed(later_intervals):
            if kind == What.BROKEN:
                self._job_intervals.append([kind, begin, end, worker, other])
            elif begin < since or kind in (What.LOST, What.SKIPPED):
                self._job_intervals.append([kind, begin, min(end, now), worker, other])
            elif kind in (What.DETECTING, What.DEFERRED):
                self._job_intervals.append([kind, begin, begin, worker, other])
        self.record_job_interval(What.UNDONE, since, now)

    def pause(self, now: int, duration: int) -> None:
        """Delay all gradients that are being computed, ns."""
        for gradient in self._in_flight():
            if _is_delayed(gradient, now):
                gradient.begin += duration if gradient.begin >= now else 0
                gradient.end += duration
                gradient.ready = tuple(end + duration if end > now else end for end in gradient.ready)

    def schedule(self, end_ns: int, standstill: str = "", extra: Iterable[tuple[int, ...]] = ()) -> Schedule:
        """Return the schedule of everything that was not lost, until the simulation stopped at `end_ns`."""
        intervals = [
            (kind, begin, min(end, end_ns), NONE, worker, other)
            for kind, begin, end, worker, other in self._job_intervals
            if begin < min(end, end_ns) or (kind in _INSTANT_KINDS and begin <= end_ns)
        ]
        return super().schedule(end_ns, standstill, (*extra, *intervals))

    def _count_update(self, cell: int) -> None:
        super()._count_update(cell)
        if not self.full:
            self.updated()


def _is_delayed(gradient: Gradient, now: int) -> bool:
    """Return True if a pause that begins `now` (ns) delays a gradient: it is being computed, or its end is still to happen."""
    return gradient.end > now or (gradient.end == now and not gradient.underway and not gradient.applied)


def _next_step(worker: int, step: int, pending: dict[tuple[int, int], Gradient]) -> int:
    """Return the step after the worker's last gradient that was used: later ones are lost, and their steps are used again."""
    while (worker, step - 1) in pending:
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
        >>> saving.stop_time(now=0) / 1e9, saving.load(begin=0) / 1e9
        (0.2, 0.2)
    """

    def __init__(self, sim: Simulation, checkpoint: Checkpoint):
        self._sim, self._to, self._blocking = sim, checkpoint.to, checkpoint.blocking
        # ns: the job stops for `_pause`; then, while it works, the checkpoint takes `_write` until it can be used.
        self._pause, self._write = (round(seconds * NANOSECONDS) for seconds in (checkpoint.pause, checkpoint.write))
        servers = bool(sim.record.layout.on_servers)
        self._owners: list[Member] = (
            [("servers", server) for server in range(sim.servers)]
            if servers
            else [("workers", worker) for worker in range(sim.workers)]
        )
        self._share = math.ceil((checkpoint.bytes or 0) / len(self._owners))  # bytes
        self._missing: set[int] = set()  # workers whose memory does not hold the checkpoint
        if sim.links is not None and self._to:
            self._idle_env = Loop()
            self._idle_links = type(sim.links)(self._idle_env, sim.cluster, sim.seed)

    def stop_time(self, now: int) -> int:
        """Return for how long (ns) the job stops for a checkpoint that is made `now`, ns."""
        return self._pause + (self._idle_time(now + self._pause, self._writes) if self._to and self._blocking else 0)

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
        else:  # at once: an event would come after the present one, in which the next checkpoint may already be made
            done()

    def loses_checkpoint(self, failed: Collection[int]) -> bool:
        """Note that workers failed; return True if a share is lost: its owner and the neighbour with a copy failed.

        Args:
            failed: workers that fail now.
        """
        self._missing.update(failed)
        owner_and_neighbour_failed = any(self._neighbour(worker) in self._missing for worker in self._missing)
        return self._to == "peers" and owner_and_neighbour_failed

    def load(self, begin: int) -> int:
        """Return how long (ns) the network needs from `begin` (ns) on until all owners have their shares again."""
        return self._idle_time(begin, self._reads) if self._to else 0

    def loaded(self) -> None:
        """Note that all workers have their shares again."""
        self._missing.clear()

    def _neighbour(self, worker: int, distance: int = 1) -> int:
        """Return the worker that holds this worker's share; for a distance of -1, the one whose share this worker holds."""
        return (worker + distance) % self._sim.workers

    def _writes(self, links: Links) -> list[Process]:
        """Return the messages of a new checkpoint."""
        if self._to == "store":
            return [links.to_store(owner, self._share) for owner in self._owners]
        return [links.send_between_workers(worker, self._neighbour(worker), self._share) for _, worker in self._owners]

    def _reads(self, links: Links) -> list[Process]:
        """Return the messages of a restart; peers send a worker its own share, and the one that it holds for another."""
        if self._to == "store":
            return [links.from_store(owner, self._share) for owner in self._owners]
        failed = sorted(self._missing)
        pairs = [(self._neighbour(worker, distance), worker) for distance in (1, -1) for worker in failed]
        return [links.send_between_workers(sender, worker, self._share) for sender, worker in pairs]

    def _start_sending(self, done: Callable[[], None]) -> None:
        assert self._sim.links is not None
        messages = [self._sim.process(message) for message in self._writes(self._sim.links)]
        self._sim.later(self._sim.env.all_of(messages), done)

    def _idle_time(self, begin: int, messages: Callable[[Links], list[Process]]) -> int:
        """Return how long (ns) messages take that begin at `begin` (ns) on an idle network."""
        # While the job is stopped, nothing else is on the network. So these messages run in an event loop of their own, as if
        # in no time of the run. Its clock begins where the run's stands, because slowdowns of links depend on the time.
        env, links = self._idle_env, self._idle_links
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
        self._every_changes = (checkpoint.every_updates or 0) * sim.blocks
        self._every_seconds = checkpoint.every_seconds or 0.0
        self._saving, self._skips = Saving(sim, checkpoint), failures.minibatches == "next"
        self._failing = Failing(failures, sim.cluster, sim.seed)
        self._at_updates = sorted(failures.at_updates, reverse=True)  # updates, worker, time to repair (s); last first
        self._initial = self._last = record.checkpoint(0, 0)  # checkpoint: the initial parameters
        self._furthest = self._last  # the last checkpoint with more updates than all before
        self._writing = False  # True while the newest checkpoint cannot be used yet
        self._is_deferred = False  # True while another one is due, and waits for it
        self._began = 0  # when the job last went on, ns
        self._tries = 0  # failures since `_furthest`
        self._due = 0, 0  # the next checkpoint needs both: this number of changes, and this time, ns
        self._time_limit = math.inf  # s
        record.updated = self._updated

    def run(self, seconds: float = math.inf) -> None:
        """Run until the schedule is full or `seconds` are over. Raises FredError on a standstill."""
        self._time_limit = seconds
        self._set_limits()
        self._resume(0, 0)
        self._sim.run(seconds)

    def _set_limits(self) -> None:
        """Schedule when the limit on rows begins to count; `halt` removes this event with all others."""
        if self._record.rows_from >= self._sim.now:
            self._sim.env.at(self._record.rows_from, self._record.arm)

    def _resume(self, complete: int, loaded: int) -> None:
        """Go on: machines can fail from `complete` on, and the protocol starts at `loaded`, ns."""
        self._failing.resume(complete)
        if (when := self._failing.next_failure()) < NEVER:
            self._sim.env.at(when, self._fail)
        self._sim.env.at(loaded, self._start_work)

    def _start_work(self) -> None:
        self._began = self._sim.now
        self._saving.loaded()
        self._plan(self._began)
        self._start(self._sim)

    def _plan(self, begin: int) -> None:
        """Set when the next checkpoint is due, if work begins at `begin`, ns."""
        self._due = self._record.changes + self._every_changes, begin + round(self._every_seconds * NANOSECONDS)
        self._is_deferred = False

    def _updated(self) -> None:
        """Make a checkpoint if it is due; it waits while a round is open, or the last one cannot be used yet."""
        if self._at_updates and self._record.changes >= self._at_updates[-1][0] * self._sim.blocks:
            self._strike(self._sim.now)  # before a checkpoint that is due after the same update
            return
        changes, time = self._due
        is_due = self._record.changes >= changes and self._sim.now >= time
        if not (is_due and self._record.between_rounds):
            return
        if not self._writing:
            self._checkpoint(self._sim.now)
        elif not self._is_deferred:
            self._is_deferred = True
            self._record.record_job_interval(What.DEFERRED, self._sim.now, self._sim.now)

    def _strike(self, now: int) -> None:
        """Let all machines fail that do so after this number of updates; those with the same time to repair fail as one."""
        update = self._at_updates[-1][0]
        workers_by_repair = defaultdict[float, list[int]](list)  # time to repair, s
        while self._at_updates and self._at_updates[-1][0] == update:
            _, worker, seconds = self._at_updates.pop()
            workers_by_repair[seconds].append(worker)
        for seconds, workers in workers_by_repair.items():
            self._failing.add(now, workers, round(seconds * NANOSECONDS))
        self._sim.env.at(now, self._fail)

    def _checkpoint(self, now: int) -> None:
        resumed_at = now + self._saving.stop_time(now)
        point = self._record.checkpoint(now, resumed_at)
        self._plan(resumed_at)
        self._writing = True
        if resumed_at > now:
            self._record.record_job_interval(What.SAVING, now, resumed_at)
            self._sim.env.at(now, partial(self._stop, resumed_at - now))  # once the present event is over
        self._saving.send(resumed_at, partial(self._use, point))

    def _stop(self, duration: int) -> None:
        """Stop everything for as long as a checkpoint takes, ns: work, messages, and waiting."""
        self._record.pause(self._sim.now, duration)
        self._sim.env.pause(duration)
        if self._sim.links is not None:
            self._sim.links.pause(duration)

    def _use(self, point: RestorePoint) -> None:
        """Let failures go back to this checkpoint from now on."""
        self._last, self._writing = point, False
        if point.counts[0] > self._furthest.counts[0]:  # more updates: the job makes progress
            self._furthest, self._tries = point, 0

    def _fail(self) -> None:
        """Lose everything since the last checkpoint, and go on when all workers have loaded it."""
        now, record = self._sim.now, self._record
        self._check_tries()
        outage = self._failing.fail(now)
        can_resume, loaded = outage.complete < NEVER, outage.loaded
        record.lose(self._go_back(outage.workers), now)
        if self._skips:
            record.skip(self._last, now)
        record.restore(self._last)
        if can_resume and self._last is not self._initial:  # no checkpoint holds the initial parameters
            loaded += self._saving.load(loaded)
        record.record_job_interval(What.DETECTING, now, outage.detected, outage.workers[0])
        for worker, repaired_at in zip(outage.workers, outage.ready_times, strict=False):
            record.record_job_interval(What.BROKEN, now, repaired_at, worker)
        record.record_job_interval(What.REPAIRING, outage.detected, outage.complete)
        record.record_job_interval(What.LOADING, outage.complete, loaded)
        self._sim.halt(self._time_limit, {} if can_resume else {"the job": "a machine: too few are left"})
        self._set_limits()
        self._began, self._writing = loaded, False
        if can_resume:
            self._resume(outage.complete, loaded)

    def _go_back(self, failed: list[int]) -> int:
        """Choose the checkpoint to go back to when these workers have failed; return the time since which work is lost, ns."""
        if self._saving.loses_checkpoint(failed):
            self._last, self._began = self._initial, 0
        return max(self._last.resumed_at, self._began)

    def _check_tries(self) -> None:
        self._tries += 1
        if self._tries > MOST_TRIES:
            raise FredError(
                f"`cluster.failures`: {MOST_TRIES:,} failures since the checkpoint at {self._furthest.time / NANOSECONDS:g} s: "
                "give longer times between failures, or more frequent checkpoints"
            )
