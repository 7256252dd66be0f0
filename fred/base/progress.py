"""Progress of long tasks: bars on a terminal, one updated line in a notebook, and occasional lines elsewhere.

`Tally` estimates the remaining time from the pace so far, and from the programs that are still to be compiled (`Compiled`).
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from fred.base import process

Show = Callable[[str, float], None]  # reports a task's name, and the share of it that is done
OfRuns = Callable[[str, int, float], None]  # reports a run, a seed, and the share of it that is done
Measured = list[dict[str, float]]  # the measurements at each evaluation, by name
OfMeasurements = Callable[[str, int, Measured], None]  # receives a run, a seed, and its measurements so far
_SETTLED = 60.0  # seconds until estimates no longer suffer from starting
_PAUSED = 3  # most times slower than on average that the remaining tasks are assumed to be
_QUIET = 10.0  # seconds between two lines
PATIENCE = 2.0  # seconds before a notebook shows anything
_LISTENERS: list[Callable[[str], None]] = []  # they receive the text of `show_activity`
_WATCHERS: list[OfMeasurements] = []
_BAR = 10  # columns of a terminal


class Compiled:
    """The programs that this process has compiled for an experiment, and the time that this took."""

    def __init__(self) -> None:
        self.number = self.expected = 0  # of programs in this experiment
        self._seconds = self._earlier_seconds = 0.0  # in this process, and before this experiment
        self._since: float | None = None  # start of the compilation under way

    def expect(self, programs: int) -> None:
        """Start counting for a new experiment with this number of programs."""
        self.number, self.expected, self._earlier_seconds = 0, programs, self.seconds

    @property
    def seconds(self) -> float:
        """Return the time that this process has spent compiling."""
        return self._seconds + (0.0 if self._since is None else time.monotonic() - self._since)

    def remaining_seconds(self, share: float) -> float:
        """Return the expected time of further compilations when this share of the work is left.

        Other processes may compile the last programs, so their number falls with the work.
        """
        programs = min(self.expected - self.number, self.expected * share)
        return max(0.0, programs) * (self.seconds - self._earlier_seconds) / max(1, self.number)

    @contextmanager
    def count_program(self) -> Iterator[None]:
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
    >>> tally.share, tally.completed, tally.running
    (0.75, 1, {'second': 0.5})
    """

    def __init__(self, parts: int):
        self.parts = parts
        self._began = _running()
        self._marks = deque[tuple[float, float]]()  # times and work done, from half of the elapsed time on
        self._first = (self._began, 0.0)  # the first time and work
        self._shares: dict[str, float] = {}
        self._stored = 0  # tasks that were done at their first report: their results were stored before

    def note(self, task: str, share: float) -> None:
        """Record the share of a task that is done."""
        if task not in self._shares and share == 1.0:
            self._stored += 1
        self._shares[task] = share
        if self._worked:
            self._marks.append((_running(), self._worked))
            self._first = self._marks[0] if not self._first[1] else self._first

    @property
    def _worked(self) -> float:
        """Number of tasks done since the start, including shares of running ones."""
        return sum(self._shares.values()) - self._stored

    @property
    def completed(self) -> int:
        """Number of finished tasks."""
        return sum(share == 1.0 for share in self._shares.values())

    @property
    def running(self) -> dict[str, float]:
        """Running tasks, with the share of each that is done."""
        return {task: share for task, share in self._shares.items() if share < 1.0}

    @property
    def share(self) -> float:
        """Share of all tasks that is done."""
        return sum(self._shares.values()) / max(self.parts, len(self._shares), 1)

    def words(self) -> str:
        """Return the progress in one line."""
        count = max(self.parts, len(self._shares))
        left = self._format_remaining(count - self._stored - self._worked)
        running = "; ".join(f"{task}: {share:.0%}" for task, share in self.running.items())
        if count == 1:
            return f"{running or next(iter(self._shares), '')}{left}"
        return f"{self.completed} of {count} done{left}" + (f" ({running})" if running else "")

    def _format_remaining(self, work: float) -> str:
        """Return the estimated time for this much work, in tasks; empty if it is too early to tell.

        The estimate uses the pace of the last half of the elapsed time, after the first progress and without compilations.
        A pause, such as for processes to start, makes this pace too slow: at least a third of the mean pace is assumed.
        Expected compilations are added.
        """
        now, worked = _running(), self._worked
        if worked - self._first[1] <= (0.1 if now - self._began < _SETTLED else 0.02):
            return ""
        while len(self._marks) > 1 and 2 * self._marks[1][0] <= self._began + now:  # is of the first half of the time
            self._marks.popleft()
        mark_time, mark_work = self._marks[0] if worked > self._marks[0][1] else self._first
        slowness = min((now - mark_time) / (worked - mark_work), _PAUSED * (now - self._began) / worked)  # s a task
        seconds = slowness * work + COMPILED.remaining_seconds(work / (work + worked))
        return f", about {_duration(seconds)} left"


def _running() -> float:
    """Return the monotonic time without compilations, s."""
    return time.monotonic() - COMPILED.seconds


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    decimals = 1 if seconds < 600 else 0
    return f"{seconds / 60:.{decimals}f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def bars(parts: int = 0, quiet: bool = False) -> AbstractContextManager[Show]:
    """Show the progress of tasks in a `with` block, which receives a function to report it.

    Args:
        parts: number of tasks, including those that turn out to be done already; 0 if unknown.
        quiet: True to show nothing.
    """
    if quiet:
        return nullcontext(lambda *_: None)
    if sys.stderr.isatty():  # not rich's `is_terminal`: Jupyter sets FORCE_COLOR for the shells that it starts
        return _on_terminal(Console(stderr=True), parts)
    if in_notebook():
        return _in_notebook(parts)
    return nullcontext(_Words(parts, lambda words: print(f"fred: {words}", file=sys.stderr, flush=True), _QUIET).tell)


@contextmanager
def of_runs(units: int = 0, quiet: bool = False) -> Iterator[OfRuns]:
    """Show the progress of runs in a `with` block, which receives a function to report it.

    Args:
        units: number of pairs of run and seed, including those that turn out to be done already; 0 if unknown.
        quiet: True to show nothing.
    """
    with bars(units, quiet) as show:
        yield lambda run, seed, done: show(f"{run}, seed {seed}", done)


def in_notebook() -> bool:
    """Return True if output appears in a notebook."""
    return "ipykernel" in sys.modules and Console().is_jupyter


@contextmanager
def show_activity(activity: str) -> Iterator[None]:
    """Show a text next to this process's current tasks during a `with` block, on a terminal.

    Args:
        activity: an activity without progress of the task, such as "compiling".
    """
    for listener in _LISTENERS:
        listener(activity)
    try:
        yield
    finally:
        for listener in _LISTENERS:
            listener("")


@contextmanager
def compiling() -> Iterator[None]:
    """Show the number of the program that is compiled in a `with` block, next to the current tasks."""
    with COMPILED.count_program():
        number, expected = COMPILED.number, COMPILED.expected
        with show_activity(f"compiling program {number} of about {expected}" if number <= expected > 1 else "compiling"):
            yield


def report_measurements(run: str, seed: int, measured: Measured) -> None:
    """Pass the measurements of one of this process's runs to all functions that `watched` has registered.

    Args:
        run: its name.
        seed: its seed.
        measured: loss, error and others, by name, at each evaluation so far.
    """
    for watcher in _WATCHERS:
        watcher(run, seed, measured)


@contextmanager
def watched(watcher: OfMeasurements) -> Iterator[None]:
    """Pass the measurements of all runs of this process to a function during a `with` block.

    Args:
        watcher: called after each evaluation with run, seed and the measurements at each evaluation so far.
    """
    _WATCHERS.append(watcher)
    try:
        yield
    finally:
        _WATCHERS.remove(watcher)


class _Words:
    """Progress as lines of text, at most one every `every` seconds."""

    def __init__(self, parts: int, say: Callable[[str], None], every: float = 0.5):
        self._tally, self._say, self._every = Tally(parts), say, every
        self._next = time.monotonic() + max(every, PATIENCE)  # time of the next line

    def tell(self, task: str, share: float) -> None:
        """Record the share of a task that is done, and print a line if it is time for one."""
        self._tally.note(task, share)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            self._say(self._tally.words())


@contextmanager
def _on_terminal(console: Console, parts: int) -> Iterator[Show]:
    process.require_cleanup()
    name = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # on a narrow terminal only names are cut
    columns = (
        TextColumn("{task.description}", table_column=name),
        BarColumn(bar_width=_BAR),
        TextColumn("{task.percentage:>3.0f}%", table_column=Column(no_wrap=True, min_width=4)),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as display:
        tasks: dict[str, TaskID] = {}
        tally = Tally(parts)
        total = display.add_task("all", total=1.0, left="", visible=parts > 1)

        def show(task: str, done: float) -> None:
            tally.note(task, done)
            summary, *_ = tally.words().split(" (")  # without the running tasks, which have lines of their own
            display.update(total, completed=tally.share, left=summary)
            if task not in tasks:
                tasks[task] = display.add_task(task, total=1.0, left="")
            display.update(tasks[task], completed=done, visible=done < 1)

        def show_word(word: str) -> None:
            for task in tally.running:
                display.update(tasks[task], description=f"{task}, {word}" if word else task)

        with _listen(show_word):
            yield show


@contextmanager
def _listen(listener: Callable[[str], None]) -> Iterator[None]:
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


@contextmanager
def _in_notebook(parts: int) -> Iterator[Show]:
    from IPython.display import HTML, Pretty, display

    handle: Any = None

    def say(words: str) -> None:
        nonlocal handle
        if handle is None:
            handle = display(Pretty(words), display_id=True)
        else:
            handle.update(Pretty(words))

    yield _Words(parts, say).tell
    if handle is not None:
        handle.update(HTML(""))  # as on a terminal, progress leaves nothing behind; the site shows nothing for it
