"""The layout of a result folder: the names of its files and folders, and which of the files there are FRED's.

FRED recognises a folder that it made by a marker file, and the files of a result by the manifest that lists them.
"""

import json
import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fred.base import inputs
from fred.base.errors import FredError
from fred.base.words import briefly

MANIFEST = "manifest.json"  # written last: a folder that has one is complete
SUMMARY, SUMMARY_TABLE = "summary.json", "summary.csv"
SWEEP, BEST, PAIRED = "sweep.csv", "best.csv", "paired.csv"
REPORT = "report.html"
FIGURES = "figures"  # folder
WRITTEN = (MANIFEST, SUMMARY, SUMMARY_TABLE, SWEEP, BEST, PAIRED, REPORT, FIGURES)

UNIT = "unit.json"  # in the folder of a unit; written last
SCHEDULE, RUN_TIMES, PARAMS = "schedule.parquet", "run-times.parquet", "params.npz"
METRICS, METRICS_TABLE = "metrics.parquet", "metrics.csv"

WORK = ".at-work"  # in an unfinished result: a folder for each unit that is being computed
TIMINGS = f"{WORK}/timings"  # a folder for each timing
CHECKPOINT = "checkpoint.npz"  # in the folder of a unit that is being computed

UNFINISHED, REPLACED = MARKS = (".fred-unfinished", ".fred-replaced")  # marker files: FRED made the folder
OLD = ".fred-old"  # folder in a result that is being replaced, on systems without an atomic exchange
_MARK = b"In this folder of FRED's a result comes to be, or is being replaced. What FRED made here, it will remove.\n"
_FIELDS = {"format", "fred", "inline", "environment", "data", "scenario"}  # fields that every manifest of FRED has
_OF_DESKTOPS = {".DS_Store", "Thumbs.db", "desktop.ini"}  # written by file managers into every folder that is looked at


def is_reserved(name: str) -> bool:
    """Return True if no run can have this name. Case is ignored, as some file systems do.

    FRED's other files begin with a dot, so such names are reserved too.

    >>> is_reserved("Report.HTML"), is_reserved(".hidden"), is_reserved("asgd")
    (True, True, False)
    """
    return name.casefold() in WRITTEN or name.startswith(".")


def unit_folder(name: str, seed: int) -> str:
    """Return the path of a unit's files in a result folder.

    >>> unit_folder("asgd", 1)
    'asgd/seed-1'
    """
    return f"{name}/seed-{seed}"


def work_folder(name: str, seed: int) -> str:
    """Return the path of the folder, in an unfinished result, in which a unit is computed."""
    return f"{WORK}/{name}.seed-{seed}"


def read_facts(path: Path) -> dict[str, Any]:
    """Return the content of a folder's manifest.json; empty if there is none or FRED did not write it."""
    try:
        manifest = json.loads(inputs.text(path / MANIFEST))
    except (FredError, ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) and manifest.keys() >= _FIELDS else {}


def has(result: Path, file: Path) -> bool:
    """Return True if a file belongs to the result in a folder: it is the manifest, or listed there.

    Args:
        result: any folder.
        file: any path; the file need not exist.
    """
    folder, place = os.path.realpath(result), Path(os.path.realpath(file))
    return place.is_relative_to(folder) and place.relative_to(folder).as_posix() in _listed_files(result)


def foreign_files(path: Path) -> list[str]:
    """Return the files, links and pipes in a folder that are not the result's. Empty folders do not count.

    The result's files are those that its manifest lists, even if someone has changed them since.

    Args:
        path: a folder with a result of FRED.
    """
    known = {*_listed_files(path), *(name for name in MARKS if _read_mark(path / name) in (_MARK, b""))}
    replaced = path / OLD if is_marked(path / OLD, REPLACED) else None
    files = [file for file in sorted(path.rglob("*")) if file.is_symlink() or not file.is_dir()]
    names = [file.relative_to(path).as_posix() for file in files if replaced is None or replaced not in file.parents]
    return [name for name in names if name not in known and name.rpartition("/")[2] not in _OF_DESKTOPS]


def check_files(path: Path) -> None:
    """Raise FredError if a folder with a result holds files that are not the result's.

    Args:
        path: a folder with a result of FRED.
    """
    if names := foreign_files(path):
        raise FredError(
            f"{path} holds files that are not the result's: {briefly(names)}; move them, or choose another folder with --out"
        )


def is_marked(folder: Path, mark: str) -> bool:
    """Return True if FRED has put this marker file into the folder. A link to a folder is not accepted."""
    return not folder.is_symlink() and _read_mark(folder / mark) == _MARK


def mark(folder: Path, name: str) -> None:
    """Write a marker file. Raises FredError if another file has its name.

    Args:
        folder: a folder that FRED made.
        name: the marker file, one of `MARKS`.
    """
    if is_marked(folder, name):
        return
    if _read_mark(folder / name) == b"":  # its process was killed while writing it
        (folder / name).unlink()
    try:
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except FileExistsError:
        raise FredError(f"{folder / name} is not FRED's, which needs the name: move it elsewhere") from None
    with os.fdopen(file, "wb") as new:
        new.write(_MARK)


def unmark(folder: Path) -> None:
    """Remove the marker files."""
    for name in MARKS:
        if _read_mark(folder / name) in (_MARK, b""):
            with suppress(OSError):
                (folder / name).unlink()


def check_marked(folder: Path) -> None:
    """Raise FredError if FRED has not made this folder."""
    is_blank = {file.name for file in folder.iterdir()} <= {UNFINISHED} and not _read_mark(folder / UNFINISHED)
    if not is_blank and not any(is_marked(folder, name) for name in MARKS):
        raise not_ours(folder)


def not_ours(place: Path) -> FredError:
    """Return the error for a place that FRED needs but did not make."""
    return FredError(
        f"{place} was not made by FRED, which needs the name: move it elsewhere, or choose another folder with --out"
    )


def cut_links(folder: int) -> None:
    """Remove all links from an open work folder. FRED makes none, and would write to wherever they lead.

    Args:
        folder: file descriptor of the folder.
    """
    for _, folders, files, place in os.fwalk(".", dir_fd=folder):
        for name in (*folders, *files):
            if stat.S_ISLNK(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=place)


def keep_only(folder: Path, names: Iterable[str]) -> None:
    """Remove everything from a folder except the given files and folders and the marker files.

    Args:
        folder: a folder that FRED made.
        names: paths in it to keep.
    """
    wanted = {Path(name) for name in (*names, *MARKS)}
    above = {parent for name in wanted for parent in name.parents}
    for path in sorted(folder.rglob("*"), key=lambda path: len(path.parts)):
        name = path.relative_to(folder)
        if name in above or not wanted.isdisjoint((name, *name.parents)):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def prune(folder: Path) -> None:
    """Remove empty subfolders, and the folder itself if only marker files are left in it."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                path.rmdir()
    if {file.name for file in folder.iterdir()} <= set(MARKS):
        unmark(folder)
        with suppress(OSError):
            folder.rmdir()


def _listed_files(path: Path) -> set[str]:
    """Return the files of the result in a folder, the manifest included; empty if there is none."""
    facts = read_facts(path)
    files = facts.get("files")
    return {MANIFEST, *files} if isinstance(files, dict) else {MANIFEST} if facts else set()


def _read_mark(file: Path) -> bytes | None:
    """Return the first bytes of a file, one more than a marker file has; None if it is not a regular file.

    A link would lead elsewhere, and a pipe would wait for a writer, so neither is opened.
    """
    try:
        number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(number, len(_MARK) + 1) if stat.S_ISREG(os.fstat(number).st_mode) else None
    finally:
        os.close(number)
