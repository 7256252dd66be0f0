"""Ownership of files in a result folder. FRED recognizes its own by marker files and digests, never by name."""

import hashlib
import itertools
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fred.base import inputs
from fred.base.contents import ASIDE, FIGURES, MANIFEST
from fred.base.errors import FredError

UNFINISHED, REPLACED = MARKS = (".fred-unfinished", ".fred-replaced")  # marker files: FRED made the folder
_SAYING = b"In this folder of FRED's a result comes to be, or is being replaced. What FRED made here, it will remove.\n"
_FIELDS = {"format", "fred", "inline", "environment", "data", "scenario"}  # fields that every manifest of FRED has


def manifest_of(path: Path) -> dict[str, Any]:
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
    manifest, place = manifest_of(result), Path(os.path.realpath(file))
    if not manifest or not place.is_relative_to(os.path.realpath(result)):
        return False
    listed, name = manifest.get("files"), place.relative_to(os.path.realpath(result)).as_posix()
    return name == MANIFEST or (isinstance(listed, dict) and name in listed)


def is_marked(folder: Path, mark: str) -> bool:
    """Return True if FRED has put this marker file into the folder. A link to a folder is not accepted."""
    return not folder.is_symlink() and _content(folder / mark) == _SAYING


def mark(folder: Path, name: str) -> None:
    """Write a marker file. Raises FredError if another file has its name.

    Args:
        folder: a folder that FRED made.
        name: the marker file, one of `MARKS`.
    """
    if is_marked(folder, name):
        return
    if _content(folder / name) == b"":  # its process was killed while writing it
        (folder / name).unlink()
    try:
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except FileExistsError:
        raise FredError(f"{folder / name} is not FRED's, which needs the name: move it elsewhere") from None
    with os.fdopen(file, "wb") as written:
        written.write(_SAYING)


def unmark(folder: Path) -> None:
    """Remove the marker files."""
    for name in MARKS:
        if _content(folder / name) in (_SAYING, b""):
            with suppress(OSError):
                (folder / name).unlink()


def check(folder: Path) -> None:
    """Raise FredError if FRED has not made this folder."""
    blank = {each.name for each in folder.iterdir()} <= {UNFINISHED} and not _content(folder / UNFINISHED)
    if not blank and not any(is_marked(folder, name) for name in MARKS):
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
    for _, folders, files, here in os.fwalk(".", dir_fd=folder):
        for name in (*folders, *files):
            if stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=here)


def keep_only(folder: Path, names: Iterable[str]) -> None:
    """Remove everything from a folder except the given files and folders and the marker files.

    Args:
        folder: a folder that FRED made.
        names: paths in it to keep.
    """
    wanted = {Path(name) for name in (*names, *MARKS)}
    above = {parent for name in wanted for parent in name.parents}
    for found in sorted(folder.rglob("*"), key=lambda each: len(each.parts)):
        name = found.relative_to(folder)
        if name in above or not wanted.isdisjoint((name, *name.parents)):
            continue
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)


def prune(folder: Path) -> None:
    """Remove empty subfolders, and the folder itself if only marker files are left in it."""
    for found in sorted(folder.rglob("*"), reverse=True):
        if found.is_dir() and not found.is_symlink():
            with suppress(OSError):
                found.rmdir()
    if {each.name for each in folder.iterdir()} <= set(MARKS):
        unmark(folder)
        with suppress(OSError):
            folder.rmdir()


def share(old: Path, new: Path) -> None:
    """Hard-link the user's files from the old result into the new one, if the file system supports it.

    Args:
        old: the folder that will be replaced.
        new: the folder that will replace it. If a name is taken there, the user's file goes into `set-aside`.
    """
    for name, found in _of_others(old):
        place = _place_for(name, found, new)
        if place is not None and not stat.S_ISDIR(found.st_mode):
            place.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError, NotImplementedError):
                os.link(old / name, place, follow_symlinks=False)


def hand_over(old: Path, new: Path) -> None:
    """Move the user's files that the new result lacks from the replaced result. Only FRED's own files are left there.

    Args:
        old: the replaced folder.
        new: the folder that replaced it.
    """
    for name, found in _of_others(old):
        place = _place_for(name, found, new)
        if place is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISDIR(found.st_mode):
                place.mkdir()
            else:
                (old / name).rename(place)


def _of_others(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield everything in a result folder that FRED did not write, with its status.

    These are files and links that the manifest does not list, files that have changed, and empty folders.
    """
    listed = manifest_of(path).get("files")
    written = listed if isinstance(listed, dict) else {}
    folders = {Path(FIGURES), *(parent for file in written for parent in Path(file).parents)}
    for found in sorted(path.rglob("*")):
        name, about = found.relative_to(path), found.lstat()
        if stat.S_ISDIR(about.st_mode):
            mine = any(found.iterdir()) or name in folders
        elif name.as_posix() in MARKS:
            mine = _content(found) == _SAYING
        else:
            mine = name.as_posix() == MANIFEST or (name.as_posix() in written and _digest(found) == written[name.as_posix()])
        if not mine:
            yield name, about


def _place_for(name: Path, found: os.stat_result, new: Path) -> Path | None:
    """Return the new path of a user's file: its own name, or one in `set-aside` if that is taken. None: it is there already."""
    for number in itertools.count():
        folder = Path(f"{ASIDE}-{number}" if number > 1 else ASIDE if number else "")
        there = _in_the_way(new, folder / name)
        if there is None:
            return new / folder / name
        if os.path.samestat(there, found) or (stat.S_ISDIR(there.st_mode) and stat.S_ISDIR(found.st_mode)):
            return None
    raise AssertionError("there is always another number")


def _in_the_way(folder: Path, name: Path) -> os.stat_result | None:
    """Return the status of the file that has this name, or that blocks a folder on the way to it; None if the name is free."""
    for part in (*reversed(name.parents[:-1]), name):
        try:
            there = (folder / part).lstat()
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(there.st_mode):
            return there
    return there


def _digest(file: Path) -> str | None:
    """Return the SHA-256 of a file's bytes; None if it is not a regular file."""
    content = _opened(file)
    if content is None:
        return None
    with os.fdopen(content, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _content(file: Path) -> bytes | None:
    """Return the first bytes of a file, one more than a marker file has; None if it is not a regular file."""
    content = _opened(file)
    if content is None:
        return None
    with os.fdopen(content, "rb") as opened:
        return opened.read(len(_SAYING) + 1)


def _opened(file: Path) -> int | None:
    """Return a file descriptor of a regular file; None for anything else, such as a link, or a pipe that would block."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    return None
