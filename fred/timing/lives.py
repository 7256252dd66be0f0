"""Main processes of workers that may crash: a crash ends the process; it starts again when the worker rejoins."""

from collections.abc import Callable, Generator
from typing import Any

import simpy

from fred.base.errors import FredError
from fred.cluster.durations import NEVER
from fred.cluster.faults import MOST_TRIES, Faults
from fred.timing.copies import Gradient
from fred.timing.loop import Loop

_Process = Callable[[], Generator[Any, Any, Any]]


class Lives:
    """The lifetimes of all workers whose main processes end when they crash.

    Each gradient lost in a crash is passed to `lose`. `updates` returns the number of updates so far; it tells whether the run
    still makes progress.
    """

    def __init__(self, env: Loop, faults: Faults, lose: Callable[[Gradient], None], updates: Callable[[], int]):
        self._env, self._faults, self._lose, self._updates = env, faults, lose, updates
        self._wasted: dict[int, tuple[int, int]] = {}  # each worker: number of updates, and crashes since then
        self._processes: dict[int, simpy.Process | None] = {}  # None: offline
        self._gone: dict[int, Callable[[], None]] = {}  # called when the worker goes offline
        self._others: dict[int, list[simpy.Process]] = {}  # sending processes, which end with the main process
        self._held: dict[int, dict[int, Gradient]] = {}  # unused gradients, by step
        self.expected = 0  # crashes and returns still scheduled

    def start(self, worker: int, process: _Process, gone: Callable[[], None]) -> None:
        """Start `process` of `worker` once the worker is available; call it again after each crash, when the worker rejoins."""
        self._gone[worker] = gone
        self._processes[worker], self._others[worker], self._held[worker] = None, [], {}
        if (back := self._faults.back("worker", worker, 0)) > 0:
            gone()
        self._come_back(worker, process, back)

    def lives(self, worker: int) -> bool:
        """Return True if `worker` has a main process, which a crash ends together with all that it is sending."""
        return worker in self._processes

    def process(self, worker: int) -> simpy.Process | None:
        """Return the main process of `worker`; None if the worker is offline."""
        return self._processes[worker]

    def share(self, worker: int, process: simpy.Process) -> None:
        """Let another `process` of `worker` end when the worker crashes."""
        if worker in self._others:
            self._others[worker] = [*(each for each in self._others[worker] if each.is_alive), process]

    def hold(self, gradient: Gradient) -> bool:
        """Register a begun `gradient`. Return False if its worker has no main process, which a crash would end."""
        if gradient.worker not in self._processes:
            return False
        self._held[gradient.worker][gradient.step] = gradient
        return True

    def used(self, gradient: Gradient) -> None:
        """Forget a `gradient` that has reached a server or was dropped."""
        self._held.get(gradient.worker, {}).pop(gradient.step, None)

    def _come_back(self, worker: int, process: _Process, when: int) -> None:
        self._at(when, lambda: self._live(worker, process))

    def _live(self, worker: int, process: _Process) -> None:
        self._processes[worker] = self._env.process(process())
        begin, back = self._faults.away("worker", worker, self._env._now)
        self._at(begin, lambda: self._crash(worker, process, back))

    def _crash(self, worker: int, process: _Process, back: int) -> None:
        self._check_progress(worker)
        running, self._processes[worker] = self._processes[worker], None
        for each in (running, *self._others[worker]):
            if each is not None and each.is_alive:
                _abandon(each)
        self._others[worker] = []
        for gradient in list(self._held[worker].values()):
            self._lose(gradient)
        self._gone[worker]()
        self._come_back(worker, process, back)

    def _check_progress(self, worker: int) -> None:
        """Raise FredError if a worker crashes again and again without any update."""
        updates = self._updates()
        before, crashes = self._wasted.get(worker, (updates, 0))
        crashes = crashes + 1 if before == updates else 1
        self._wasted[worker] = updates, crashes
        if crashes > MOST_TRIES:
            raise FredError(
                f"`cluster.faults`: worker {worker} has gone offline {MOST_TRIES:,} times since the last update: "
                f"{self._faults.cure}, several times what a gradient takes"
            )

    def _at(self, when: int, action: Callable[[], None]) -> None:
        def happens() -> None:
            self.expected -= 1
            action()

        if when < NEVER:
            self.expected += 1
            self._env.later(when - self._env._now, happens)


def _abandon(process: simpy.Process) -> None:
    """End a process where it waits."""
    target = process.target
    if target is not None and target.callbacks is not None:
        target.callbacks.remove(process._resume)
    process._generator.close()
