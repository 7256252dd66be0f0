"""A recorder that goes back to a checkpoint: rows after it leave the schedule, as the work that they stand for is lost."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fred.schedule.layout import Layout
from fred.schedule.schedule import NONE, UNENDING, Schedule, What
from fred.timing.copies import Gradient
from fred.timing.recorder import Recorder

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
