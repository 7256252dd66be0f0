"""The virtual world of a run: time, available workers, waiting processes, and detection of a standstill.

A crash ends the main process of a worker, which starts again when the worker rejoins (`Lives`).
"""

import gc
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import simpy

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.durations import NEVER
from fred.cluster.faults import MOST_TRIES, Faults
from fred.components.component import MOST_GRADIENTS, NANOSECONDS
from fred.schedule.schedule import NONE, UNENDING, Schedule, What
from fred.timing.copies import Gradient
from fred.timing.loop import Loop, Wait
from fred.timing.recorder import Recorder

Process = Generator[Wait, Any, Any]
_Process = Callable[[], Generator[Any, Any, Any]]
_MANY_EVENTS = 1_000_000  # more than ever happen at one instant, or between two updates
_EVENTS_PER_BLOCK = 100  # per worker and block
_FEW_COLLECTIONS = 200_000  # objects created between two of Python's garbage collections


class Lives:
    """The lifetimes of all workers whose main processes end when they crash.

    Each gradient lost in a crash is passed to `lose`. `updates` returns the number of updates so far; it tells whether the run
    still makes progress.
    """

    def __init__(self, env: Loop, faults: Faults, lose: Callable[[Gradient], None], updates: Callable[[], int]):
        self._env, self._faults, self._lose, self._updates = env, faults, lose, updates
        self._crashes: dict[int, tuple[int, int]] = {}  # of each worker: number of updates, and crashes since then
        self._processes: dict[int, simpy.Process | None] = {}  # None: offline
        self._on_leave: dict[int, Callable[[], None]] = {}  # called when the worker goes offline
        self._senders: dict[int, list[simpy.Process]] = {}  # sending processes, which end with the main process
        self._gradients: dict[int, dict[int, Gradient]] = {}  # unused gradients, by step
        self.expected = 0  # crashes and returns still scheduled

    def start(self, worker: int, process: _Process, on_leave: Callable[[], None]) -> None:
        """Start `process` of `worker` once the worker is available; call it again after each crash, when the worker rejoins."""
        self._on_leave[worker] = on_leave
        self._processes[worker], self._senders[worker], self._gradients[worker] = None, [], {}
        if (rejoin := self._faults.next_available("worker", worker, 0)) > 0:
            on_leave()
        self._schedule_return(worker, process, rejoin)

    def lives(self, worker: int) -> bool:
        """Return True if `worker` has a main process, which a crash ends together with all that it is sending."""
        return worker in self._processes

    def process(self, worker: int) -> simpy.Process | None:
        """Return the main process of `worker`; None if the worker is offline."""
        return self._processes[worker]

    def share(self, worker: int, process: simpy.Process) -> None:
        """Let another `process` of `worker` end when the worker crashes."""
        if worker in self._senders:
            self._senders[worker] = [*(sender for sender in self._senders[worker] if sender.is_alive), process]

    def hold(self, gradient: Gradient) -> bool:
        """Register a begun `gradient`. Return False if its worker has no main process, which a crash would end."""
        if gradient.worker not in self._processes:
            return False
        self._gradients[gradient.worker][gradient.step] = gradient
        return True

    def release(self, gradient: Gradient) -> None:
        """Forget a `gradient` that has reached a server or was dropped."""
        self._gradients.get(gradient.worker, {}).pop(gradient.step, None)

    def _schedule_return(self, worker: int, process: _Process, time: int) -> None:
        self._schedule_at(time, lambda: self._start_life(worker, process))

    def _start_life(self, worker: int, process: _Process) -> None:
        """Start the main process, and schedule the crash that ends it."""
        self._processes[worker] = self._env.process(process())
        begin, rejoin = self._faults.offline_interval("worker", worker, self._env._now)
        self._schedule_at(begin, lambda: self._crash(worker, process, rejoin))

    def _crash(self, worker: int, process: _Process, rejoin: int) -> None:
        self._check_progress(worker)
        main, self._processes[worker] = self._processes[worker], None
        for running in (main, *self._senders[worker]):
            if running is not None and running.is_alive:
                _abandon(running)
        self._senders[worker] = []
        for gradient in list(self._gradients[worker].values()):
            self._lose(gradient)
        self._on_leave[worker]()
        self._schedule_return(worker, process, rejoin)

    def _check_progress(self, worker: int) -> None:
        """Raise FredError if a worker crashes again and again without any update."""
        updates = self._updates()
        last_updates, crashes = self._crashes.get(worker, (updates, 0))
        crashes = crashes + 1 if last_updates == updates else 1
        self._crashes[worker] = updates, crashes
        if crashes > MOST_TRIES:
            raise FredError(
                f"`cluster.faults`: worker {worker} has gone offline {MOST_TRIES:,} times since the last update: "
                f"{self._faults.cure}, several times what a gradient takes"
            )

    def _schedule_at(self, time: int, action: Callable[[], None]) -> None:
        """Schedule a crash or return, and count it in `expected` until it happens."""

        def happen() -> None:
            self.expected -= 1
            action()

        if time < NEVER:
            self.expected += 1
            self._env.later(time - self._env._now, happen)


def _abandon(process: simpy.Process) -> None:
    """End a process where it waits; the event that it waits for must not resume it any more."""
    target = process.target
    if target is not None and target.callbacks is not None:
        target.callbacks.remove(process._resume)
    process._generator.close()


class World:
    """The clock and the processes of a run. Time is integer nanoseconds; simultaneous events happen in the order of scheduling.

    It has no parameters and no messages; `Simulation` adds these.

        >>> import fred
        >>> sim = fred.Simulation(fred.Cluster(workers=2), fred.Recorder(2, fred.Layout.central()), seed=0)
        >>> def metronome():
        ...     for _ in range(3):
        ...         yield sim.env.after(500_000_000)
        ...         print(sim.now)
        >>> _ = sim.process(metronome())
        >>> sim.run(seconds=2.0)
        500000000
        1000000000
        1500000000
    """

    standstill = ""  # why no event was left when the time was over

    def __init__(self, cluster: Cluster, recorder: Recorder, seed: int):
        self.env = Loop()
        self.record = recorder
        self.seed = seed
        self.cluster = cluster  # for protocols that use the mean duration of gradients
        self.workers, self.servers = cluster.size, cluster.servers
        self._most_events = max(_MANY_EVENTS, _EVENTS_PER_BLOCK * cluster.size * recorder.layout.blocks)
        self.node_of = cluster.node_of
        self.faultless = not cluster.faults
        self._faults = Faults(cluster.fault_processes(seed)) if cluster.faults else None
        self._lives = None if self._faults is None else Lives(self.env, self._faults, self._lose, lambda: recorder.changes)
        self._processes: dict[int, simpy.Process] = {}  # main processes of workers, without faults
        self._waiting: dict[str, str] = {}  # name of the waiting process -> what it waits for

    @property
    def now(self) -> int:
        """Return the virtual time, ns."""
        return self.env._now

    def process(self, generator: Process, worker: int | None = None) -> simpy.Process:
        """Start a process. If its worker has a main process, both end when the worker crashes.

        Args:
            generator: the process: it yields events, and resumes when they have happened.
            worker: its owner; default: none, so that it never crashes.
        """
        process = self.env.process(generator)
        if worker is not None and self._lives is not None:
            self._lives.share(worker, process)
        return process

    def work(self, worker: int, process: Callable[[], Process], gone: Callable[[], None] = lambda: None) -> None:
        """Start a worker's main process. A crash ends it and loses its gradients; it starts again when the worker rejoins.

        Gradients of a worker without a main process are only delayed: each is computed again from the same copy.

        Args:
            worker: its number, from 0.
            process: called once for each life of the worker; returns the process.
            gone: called whenever the worker goes offline.
        """
        if self._lives is None:
            self._processes[worker] = self.env.process(process())
        else:
            self._lives.start(worker, process, gone)

    def interrupt(self, worker: int) -> None:
        """Interrupt the main process of `worker`, if the worker is available: `simpy.Interrupt` is raised where it waits."""
        process = self._processes[worker] if self._lives is None else self._lives.process(worker)
        if process is not None:
            process.interrupt()

    def back(self, worker: int, time: int) -> int:
        """Return the time (ns) from which `worker` is available: `time` itself, unless the worker is offline then."""
        return time if self._faults is None else self._faults.next_available("worker", worker, time)

    def present(self, worker: int) -> Process:
        """Wait until `worker` is available: `yield from` it."""
        rejoin = self.back(worker, self.now)
        if rejoin > self.now:
            yield from self.wait(worker, self.env.after(rejoin - self.now), "its own return")

    def later(self, wait: Wait, action: Callable[[], None]) -> None:
        """Call `action`, without arguments, in a number of nanoseconds, or when an event happens.

        Args:
            wait: nanoseconds, or an event that has not happened.
            action: what to call.
        """
        if isinstance(wait, simpy.Event):
            wait.callbacks.append(lambda _: action())
        else:
            self.env.later(wait, action)

    def wait(self, who: int | str, event: simpy.Event, reason: str) -> Process:
        """Wait for an `event`: `yield from` it, which returns nothing.

        Args:
            who: number of the waiting worker, or a name.
            event: one that may never happen.
            reason: name of the event, reported with `who` if no event is left that could happen.

        Example:
            >>> import fred
            >>> sim = fred.Simulation(fred.Cluster(workers=2), fred.Recorder(2, fred.Layout.central()), seed=0)
            >>> _ = sim.process(sim.wait(1, sim.env.event(), "a model that never comes"))
            >>> sim.run()
            Traceback (most recent call last):
            fred.FredError: nothing can happen any more after 0 s: worker 1 waits for a model that never comes
        """
        name = f"worker {who}" if isinstance(who, int) else who
        self._waiting[name] = reason
        try:
            yield event
        finally:
            self._waiting.pop(name, None)

    def _lose(self, gradient: Gradient) -> None:
        """Handle the loss of a gradient whose worker has crashed."""
        raise NotImplementedError

    def run(self, seconds: float = math.inf) -> None:
        """Process events until the schedule is full or `seconds` of virtual time are over (default: no limit).

        Raises FredError on a standstill.
        """
        self._end_at(seconds)
        thresholds = gc.get_threshold()
        gc.set_threshold(_FEW_COLLECTIONS, *thresholds[1:])  # processes' garbage would take up to a third of the time
        try:
            while not self.record.full:
                self._advance(seconds)
        finally:
            gc.set_threshold(*thresholds)

    def halt(self, seconds: float, waiting: dict[str, str]) -> None:
        """End all processes; the run still ends after `seconds`.

        Args:
            seconds: limit on virtual time, s; infinity: no limit.
            waiting: events that are awaited from now on, by the name of the waiting process.
        """
        self.env._queue.clear()
        self._processes.clear()
        self._waiting = dict(waiting)
        self._end_at(seconds)

    def _end_at(self, seconds: float) -> None:
        if seconds < math.inf:
            self.env.at(round(seconds * NANOSECONDS), self._time_is_over)

    def schedule(self) -> Schedule:
        """Return the schedule recorded so far."""
        return self.record.schedule(self.now, self.standstill, (*self._open_intervals(), *self._absences()))

    def _open_intervals(self) -> Iterable[tuple[int, ...]]:
        """Return intervals that are not in any row yet."""
        raise NotImplementedError

    def _absences(self) -> Iterator[tuple[int, ...]]:
        """Yield the intervals in which workers and servers have been offline until now."""
        if self._faults is None:
            return
        for worker in range(self.workers):
            for begin, end in self._faults.absences("worker", worker, self.now):
                yield What.AWAY, begin, min(end, UNENDING), NONE, worker, NONE
        for server in range(self.servers):
            for begin, end in self._faults.absences("server", server, self.now):
                yield What.SERVER_AWAY, begin, min(end, UNENDING), NONE, NONE, server

    def _advance(self, seconds: float) -> None:
        """Process many events. Raises FredError if they make no progress."""
        begin, rows, changes = self.now, len(self.record), self.record.changes
        if not self.env.happen(self._most_events, self.record):
            raise FredError(self._standstill(self.now))
        if self.record.started > MOST_GRADIENTS:
            raise FredError(f"more than {MOST_GRADIENTS:,} gradients were begun; stop the run earlier")
        if self.record.full:
            return
        # So many events never happen between two updates. Crashes and rejoins go on for ever, so with faults the clock may move
        # although nothing is updated any more.
        if self.now > begin:
            if self._faults is not None and self.record.changes == changes:
                raise FredError(self._standstill(self.record.last_ns))
            return
        # The clock stands still. Without a limit of time, further rows may still lead to a limit of updates or gradients.
        if seconds < math.inf:
            raise FredError(
                f"virtual time stands still at {begin / NANOSECONDS:g} s, so it will never reach {seconds:g} s: "
                "some latency must be above 0, or give `stop` a number of updates or gradients"
            )
        if len(self.record) == rows:
            raise FredError(
                f"virtual time stands still at {begin / NANOSECONDS:g} s, and events there add no row to the schedule"
            )

    def _time_is_over(self) -> None:
        self.record.stop()
        # Crashes and returns go on for ever. If no other event is left, nothing could have happened any more.
        if len(self.env._queue) == (self._lives.expected if self._lives else 0):
            self.standstill = self._standstill(self.record.last_ns)

    def _standstill(self, since: int) -> str:
        """Return the message about a standstill since this time, ns: some of the waiting processes, or a guess at the cause."""
        waiting = [f"{name} waits for {reason}" for name, reason in list(self._waiting.items())[:8]]
        if self._faults is not None:
            waiting += self._faults.describe_losses(self.workers, self.servers, self.now)[:8]
        hint = "" if len(self.record) else "; was each process started (`sim.process`, `sim.work`)?"
        reason_unknown = (
            f"no worker is waiting{hint}" if self.faultless else "`cluster.faults` leave workers no time to finish a gradient"
        )
        return f"nothing can happen any more after {since / NANOSECONDS:g} s: {'; '.join(waiting) or reason_unknown}"
