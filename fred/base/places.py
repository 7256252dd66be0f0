"""Checks of output paths before the work starts, so that a misspelt folder does not cost hours."""

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from fred.base import contents
from fred.base.errors import FredError
from fred.base.inputs import replaced


def check_places(*files: Path, option: str = "--out") -> None:
    """Raise FredError for files that could not be written. Their folders need not exist yet.

    Args:
        files: paths that a command will write to.
        option: the command's option that names them.

    >>> Path("results").mkdir()
    >>> check_places(Path("results/new/times.csv"))
    >>> check_places(Path("results"))
    Traceback (most recent call last):
    ...
    fred.FredError: cannot write results: it is a folder; choose another place with --out
    """
    for file in files:
        if file.is_dir():
            raise FredError(f"cannot write {file}: it is a folder; choose another place with {option}")
        parent = next(folder for folder in file.absolute().parents if folder.exists())
        if not parent.is_dir():
            raise FredError(f"cannot write {file}: {parent} is not a folder; choose another place with {option}")
        try:
            with tempfile.TemporaryFile(dir=parent):
                pass
        except OSError as error:
            raise FredError(f"cannot write {file}: {error.strerror or error}; choose another place with {option}") from error


def check_free(file: Path, ours: Callable[[bytes], bool] = lambda beginning: False, option: str = "--out") -> None:
    """Raise FredError if a file cannot be written, belongs to a result, or exists and is not the command's own.

    Args:
        file: path that a command will write to.
        ours: function that returns True for the first bytes of a file that the command may replace; by default it
            replaces none.
        option: the command's option that names it.

    >>> _ = Path("mine.svg").write_text("drawn by hand")
    >>> check_free(Path("mine.svg"))
    Traceback (most recent call last):
    ...
    fred.FredError: mine.svg is there already, and not what this command writes; choose another place with --out, or ...
    """
    check_places(file, option=option)
    result = next((folder for folder in Path(os.path.realpath(file)).parents if contents.has(folder, file)), None)
    if result is not None:
        raise FredError(
            f"{file} is part of the result in {result}, which `fred verify` checks; choose another place with {option}"
        )
    if os.path.lexists(file) and not (file.is_file() and ours(_beginning(file))):
        raise FredError(
            f"{file} is there already, and not what this command writes; choose another place with {option}, or remove it"
        )


def check_together(first: Path, files: Iterable[Path], mark: str) -> None:
    """Raise FredError unless files can be written: each is new, or the first one begins with the mark of an earlier command.

    Args:
        first: the file that is written first, as a comment with the mark at its beginning identifies the others.
        files: the other files.
        mark: the beginning of the comment.
    """
    check_free(first, lambda beginning: beginning.startswith(f"# {mark}".encode()))
    for file in files:
        check_free(file, lambda _: first.exists())


def write(file: Path, content: bytes) -> None:
    """Write a file atomically, and create its folder if it does not exist. Raises FredError.

    Args:
        file: the path.
        content: the bytes of the file.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replaced(file) as new:
            new.write_bytes(content)
    except (OSError, FredError) as error:
        message = error if isinstance(error, FredError) else f"cannot write {file}: {error.strerror or error}"
        raise FredError(f"{message}; choose another place") from error


def _beginning(file: Path) -> bytes:
    with file.open("rb") as content:
        return content.read(1024)
