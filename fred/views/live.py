"""The losses of runs under way, in a notebook: when the figure is drawn, and when it disappears."""

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fred.base import progress
from fred.views.loss_figure import LossFigure, SeedLosses
from fred.views.view import lines

_INTERVAL = 0.5  # least number of seconds between two drawings
_RUNS = 10  # number of runs shown: the last ones


@contextmanager
def live_losses(runs: Iterable[str]) -> Iterator[None]:
    """Show the losses of runs in a notebook while a `with` block computes them, and remove the figure at its end.

    Nothing is shown in the first two seconds. If the block raises an exception, the figure stays.

    Args:
        runs: the names of all runs, in the order of their colours.
    """
    figure = _LiveFigure(runs)
    with progress.watched(figure.note):
        yield
    figure.remove()


class _LiveFigure:
    """The figure in the notebook, and the time from which it may be drawn again."""

    def __init__(self, runs: Iterable[str]):
        self._looks = dict(zip(runs, itertools.cycle(lines()), strict=False))
        self._latest: dict[str, tuple[int, progress.Measured]] = {}  # by run; the one under way is the last
        self._next = time.monotonic() + progress.PATIENCE
        self._handle: Any = None

    def note(self, run: str, seed: int, measured: progress.Measured) -> None:
        """Record the measurements of a run so far, and draw if it is time."""
        self._latest.pop(run, None)
        self._latest[run] = seed, measured
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL
        recent = list(self._latest)[-_RUNS:]
        self._show(LossFigure({name: self._losses_of(name) for name in self._looks if name in recent}))

    def _losses_of(self, run: str) -> SeedLosses:
        seed, measured = self._latest[run]
        return SeedLosses(seed, [point["loss"] for point in measured], self._looks[run])

    def _show(self, content: Any) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)

    def remove(self) -> None:
        """Replace the figure by nothing, if there is one."""
        from IPython.display import HTML

        if self._handle is not None:
            self._handle.update(HTML(""))
