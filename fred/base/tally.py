"""Estimates of the remaining time of long tasks, from their progress and from the programs that are still to be compiled."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_SETTLED = 60.0  # seconds until estimates no longer suffer from starting


class Compiled:
    """The programs that this process has compiled for an experiment, and the time that this took."""

    def __init__(self) -> None:
        self.number = self.expected = 0  # of programs in this experiment
        self._seconds = self._before = 0.0  # in this process, and before this experiment
        self._since: float | None = None  # start of the compilation under way

    def expect(self, programs: int) -> None:
        """Start counting for a new experiment with this number of programs."""
        self.number, self.expected, self._before = 0, programs, self.seconds

    @property
    def seconds(self) -> float:
        """Return the time that this process has spent compiling."""
        return self._seconds + (0.0 if self._since is None else time.monotonic() - self._since)

    def left(self, share: float) -> float:
        """Return the expected time of further compilations when this share of the work is left.

        Other processes may compile the last programs, so their number falls with the work.
        """
        programs = min(self.expected - self.number, self.expected * share)
        return max(0.0, programs) * (self.seconds - self._before) / max(1, self.number)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count one program, and the time of a `with` block."""
        self.number, self._since = self.number + 1, time.monotonic()
        try:
            yield
        finally:
            self._seconds, self._since = self.seconds, None


COMPILED = Compiled()  # of this process


class Tally:
    """The reported progress of all tasks, with an estimate of the remaining time.

    Args:
        parts: number of tasks; 0 if unknown.

    >>> tally = Tally(parts=2)
    >>> tally.note("first", 1.0)
    >>> tally.note("second", 0.5)
    >>> tally.share, tally.done, tally.under_way
    (0.75, 1, {'second': 0.5})
    """

    def __init__(self, parts: int):
        self.parts = parts
        self._began = _running()
        self._marks = deque[tuple[float, float]]()  # times and work done, from half of the elapsed time on
        self._first = (self._began, 0.0)  # the first time and work
        self._shares: dict[str, float] = {}
        self._before = 0  # tasks that were done at their first report

    def note(self, what: str, share: float) -> None:
        """Record the share of a task that is done."""
        if what not in self._shares and share == 1.0:
            self._before += 1
        self._shares[what] = share
        if self._worked:
            self._marks.append((_running(), self._worked))
            self._first = self._marks[0] if not self._first[1] else self._first

    @property
    def _worked(self) -> float:
        """Number of tasks done since the start, including shares of running ones."""
        return sum(self._shares.values()) - self._before

    @property
    def done(self) -> int:
        """Number of finished tasks."""
        return sum(share == 1.0 for share in self._shares.values())

    @property
    def under_way(self) -> dict[str, float]:
        """Running tasks, with the share of each that is done."""
        return {what: share for what, share in self._shares.items() if share < 1.0}

    @property
    def share(self) -> float:
        """Share of all tasks that is done."""
        return sum(self._shares.values()) / max(self.parts, len(self._shares), 1)

    def words(self) -> str:
        """Return the progress in one line."""
        count = max(self.parts, len(self._shares))
        left = self._left(count - self._before - self._worked)
        running = "; ".join(f"{what}: {share:.0%}" for what, share in self.under_way.items())
        if count == 1:
            return f"{running or next(iter(self._shares), '')}{left}"
        return f"{self.done} of {count} done{left}" + (f" ({running})" if running else "")

    def _left(self, work: float) -> str:
        """Return the estimated time for this much work; empty if it is too early to tell.

        The estimate uses the pace of the last half of the elapsed time, after the first progress and without compilations.
        Expected compilations are added.
        """
        now, worked = _running(), self._worked
        if worked - self._first[1] <= (0.1 if now - self._began < _SETTLED else 0.02):
            return ""
        while len(self._marks) > 1 and 2 * self._marks[1][0] <= self._began + now:
            self._marks.popleft()
        since, before = self._marks[0] if worked > self._marks[0][1] else self._first
        seconds = (now - since) / (worked - before) * work + COMPILED.left(work / (work + worked))
        return f", about {_duration(seconds)} left"


def _running() -> float:
    """Return the monotonic time without compilations, s."""
    return time.monotonic() - COMPILED.seconds


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.{int(seconds < 600)}f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
