"""A result's figures as files, each drawn by the first process that takes it: this one, or a worker process."""

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fred.components.component import own_classes
from fred.results.result import Result
from fred.running import pool

if TYPE_CHECKING:
    from fred.views.figures import Picture


@contextmanager
def figures_drawn(result: Result, folder: Path) -> Iterator[None]:
    """Let worker processes draw figures during this context; at its end, draw the rest here.

    Args:
        result: the result to draw.
        folder: folder for an SVG file of each figure.
    """
    folder.mkdir(exist_ok=True)
    futures = _start(result, folder)
    try:
        yield
        _finish(result, folder, futures)
    finally:
        if not all(future.done() or future.cancel() for future in futures):
            pool.end()  # otherwise they would draw in the folder of a later result


def _start(result: Result, folder: Path) -> list[Future[list[str]]]:
    """Let idle worker processes draw; no more than they, as this process draws as well."""
    with suppress(Exception):  # they have just died: continue without them
        number = pool.number() if _same_everywhere(result) else 0
        return pool.submit(_draw, [(result, folder, k / (number + 1)) for k in range(number)])
    return []


def _same_everywhere(result: Result) -> bool:
    """Return True if another process would draw the same: a notebook may have changed matplotlib's settings."""
    return "matplotlib" not in sys.modules and not any(own_classes(outcome.run) for outcome in result.outcomes)


def _finish(result: Result, folder: Path, futures: Sequence[Future[list[str]]]) -> None:
    pictures, names = result.pictures(), {*_draw(result, folder, 1.0)}
    running = as_completed([future for future in futures if not future.cancel()])
    while pictures.keys() - names and (future := next(running, None)):
        with suppress(Exception):  # figures that it has taken are drawn here
            names |= {*future.result()}
    for name in pictures.keys() - names:
        _save(pictures[name], _file(folder, name))


def _draw(result: Result, folder: Path, share: float) -> list[str]:
    """Draw figures that no process has begun, from this share of the list on, then the earlier ones; return their names."""
    names, pictures = [], [*result.pictures().items()]
    first = round(share * len(pictures))
    for name, draw in [*pictures[first:], *reversed(pictures[:first])]:
        try:
            _file(folder, name).touch(exist_ok=False)
        except FileExistsError:
            continue
        _save(draw, _file(folder, name))
        names.append(name)
    return names


def _save(draw: "Callable[[], Picture]", file: Path) -> None:
    from fred.views.figures import save_or_note  # loads matplotlib

    save_or_note(draw, file)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.svg"
