"""Progress of long tasks: bars on a terminal, one updated line in a notebook, and occasional lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from fred.base import signals
from fred.base.tally import COMPILED, Tally

Show = Callable[[str, float], None]  # reports a task's name, and the share of it that is done
OfRuns = Callable[[str, int, float], None]  # reports a run, a seed, and the share of it that is done
Measured = list[dict[str, float]]  # the measurements at each evaluation, by name
OfMeasurements = Callable[[str, int, Measured], None]  # receives a run, a seed, and its measurements so far
_QUIET = 10.0  # seconds between two lines
PATIENCE = 2.0  # seconds before a notebook shows anything
_LISTENERS: list[Callable[[str], None]] = []  # they receive the text of `doing`
_WATCHERS: list[OfMeasurements] = []
_BAR = 10  # columns of a terminal


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
def doing(what: str) -> Iterator[None]:
    """Show a text next to this process's current tasks during a `with` block, on a terminal.

    Args:
        what: an activity without progress of the task, such as "compiling".
    """
    for listener in _LISTENERS:
        listener(what)
    try:
        yield
    finally:
        for listener in _LISTENERS:
            listener("")


@contextmanager
def compiling() -> Iterator[None]:
    """Show the number of the program that is compiled in a `with` block, next to the current tasks."""
    with COMPILED.counted():
        number, about = COMPILED.number, COMPILED.expected
        with doing(f"compiling program {number} of about {about}" if number <= about > 1 else "compiling"):
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
    """Progress as lines of text, at a limited rate."""

    def __init__(self, parts: int, say: Callable[[str], None], every: float = 0.5):
        self._tally, self._say, self._every = Tally(parts), say, every
        self._next = time.monotonic() + max(every, PATIENCE)

    def tell(self, what: str, share: float) -> None:
        """Record the share of a task that is done, and print a line if it is time for one."""
        self._tally.note(what, share)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            self._say(self._tally.words())


@contextmanager
def _on_terminal(console: Console, parts: int) -> Iterator[Show]:
    signals.begun()
    name = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # on a narrow terminal only names are cut
    columns = (
        TextColumn("{task.description}", table_column=name),
        BarColumn(bar_width=_BAR),
        TextColumn("{task.percentage:>3.0f}%", table_column=Column(no_wrap=True, min_width=4)),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as shown:
        tasks: dict[str, TaskID] = {}
        tally = Tally(parts)
        whole = shown.add_task("all", total=1.0, left="", visible=parts > 1)

        def show(what: str, done: float) -> None:
            tally.note(what, done)
            shown.update(whole, completed=tally.share, left=tally.words().split(" (")[0])
            if what not in tasks:
                tasks[what] = shown.add_task(what, total=1.0, left="")
            shown.update(tasks[what], completed=done, visible=done < 1)

        def say(word: str) -> None:
            for what in tally.under_way:
                shown.update(tasks[what], description=f"{what}, {word}" if word else what)

        with _listening(say):
            yield show


@contextmanager
def _listening(listener: Callable[[str], None]) -> Iterator[None]:
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
