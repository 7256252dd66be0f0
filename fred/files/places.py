"""Where commands write: asked before the work is done, so that hours are not lost to a misspelt folder."""

import tempfile
from pathlib import Path

from fred.errors import FredError


def check_places(*files: Path) -> None:
    """Refuse files that could not be written, whose folders need not exist yet. Raises FredError.

    Args:
        files: places that a command will write to.

    >>> Path("results").mkdir()
    >>> check_places(Path("results/new/times.csv"))
    >>> check_places(Path("results"))
    Traceback (most recent call last):
    ...
    fred.errors.FredError: cannot write results: it is a folder; choose another place with --out
    """
    for file in files:
        if file.is_dir():
            raise FredError(f"cannot write {file}: it is a folder; choose another place with --out")
        there = next(folder for folder in file.absolute().parents if folder.exists())
        if not there.is_dir():
            raise FredError(f"cannot write {file}: {there} is not a folder; choose another place with --out")
        try:
            with tempfile.TemporaryFile(dir=there):
                pass
        except OSError as error:
            raise FredError(f"cannot write {file}: {error.strerror or error}; choose another place with --out") from error
