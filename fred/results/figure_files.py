"""A result's figures as files, each drawn by whoever takes it first: this process, or one of those that are beside it."""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path

from fred.components.component import own_classes
from fred.results.result import Result
from fred.running import companions


@contextmanager
def drawn(result: Result, folder: Path) -> Iterator[None]:
    """While it lasts the processes that are there draw; the rest is drawn here at its end, when nobody draws any more.

    Args:
        result: what is drawn.
        folder: for an SVG file of each picture.
    """
    folder.mkdir(exist_ok=True)
    others = _others(result, folder)
    try:
        yield
        _finish(result, folder, others)
    finally:
        if not all(other.done() or other.cancel() for other in others):
            companions.end()  # or they would draw where a later result comes to be


def _others(result: Result, folder: Path) -> list[Future[list[str]]]:
    with suppress(Exception):  # they have just died: it goes without them
        number = companions.number() if _same_everywhere(result) else 0
        return companions.told(_taken, [(result, folder, k / (number + 1)) for k in range(number)])
    return []


def _same_everywhere(result: Result) -> bool:
    """Whether another process would draw the same: a notebook may have told matplotlib how things are to look."""
    return "matplotlib" not in sys.modules and not any(own_classes(each.run) for each in result.outcomes)


def _finish(result: Result, folder: Path, others: Sequence[Future[list[str]]]) -> None:
    pictures, drawn = result.pictures(), {*_taken(result, folder, 1.0)}
    ended = as_completed([other for other in others if not other.cancel()])
    while pictures.keys() - drawn and (other := next(ended, None)):
        with suppress(Exception):  # what it has taken is drawn here, then
            drawn |= {*other.result()}
    for name in pictures.keys() - drawn:
        pictures[name]().save(_file(folder, name))


def _taken(result: Result, folder: Path, share: float) -> list[str]:
    """Draw what nobody else has begun, from this share of the pictures on and then those before; say what that was."""
    taken, pictures = [], [*result.pictures().items()]
    first = round(share * len(pictures))
    for name, draw in [*pictures[first:], *reversed(pictures[:first])]:
        try:
            _file(folder, name).touch(exist_ok=False)
        except FileExistsError:
            continue
        draw().save(_file(folder, name))
        taken.append(name)
    return taken


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.svg"
