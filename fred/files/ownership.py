"""What is FRED's in a result's place, shown by a mark that it left there and by digests, never by a name."""

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

from fred.errors import FredError
from fred.files import inputs
from fred.files.contents import ASIDE, FIGURES, MANIFEST

UNFINISHED, REPLACED = MARKS = (".fred-unfinished", ".fred-replaced")  # files that say whose a folder is
_SAYING = b"In this folder of FRED's a result comes to be, or is being replaced. What FRED made here, it will remove.\n"
_FIELDS = {"format", "fred", "inline", "environment", "data", "scenario"}  # by which a manifest is known for FRED's


def manifest_of(path: Path) -> dict[str, Any]:
    """What a folder's manifest.json holds, if it is one of FRED's; else nothing."""
    try:
        manifest = json.loads(inputs.text(path / MANIFEST))
    except (FredError, ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) and manifest.keys() >= _FIELDS else {}


def has(result: Path, file: Path) -> bool:
    """Return True if the file is one that FRED wrote into the result in this folder.

    Args:
        result: a folder, of a result or not.
        file: of whatever name, there or not.
    """
    manifest, place = manifest_of(result), Path(os.path.realpath(file))
    if not manifest or not place.is_relative_to(os.path.realpath(result)):
        return False
    listed, name = manifest.get("files"), place.relative_to(os.path.realpath(result)).as_posix()
    return name == MANIFEST or (isinstance(listed, dict) and name in listed)


def is_marked(folder: Path, mark: str) -> bool:
    """Whether it is a folder, not a link to one, and FRED has left this mark there."""
    return not folder.is_symlink() and _content(folder / mark) == _SAYING


def mark(folder: Path, name: str) -> None:
    """Leave a mark. Raises FredError where something else has its name.

    Args:
        folder: one of FRED's.
        name: one of `MARKS`.
    """
    if is_marked(folder, name):
        return
    if _content(folder / name) == b"":  # of somebody who was killed just then
        (folder / name).unlink()
    try:
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except FileExistsError:
        raise FredError(f"{folder / name} is not FRED's, which needs the name: move it elsewhere") from None
    with os.fdopen(file, "wb") as written:
        written.write(_SAYING)


def unmark(folder: Path) -> None:
    """Take the marks away."""
    for name in MARKS:
        if _content(folder / name) in (_SAYING, b""):
            with suppress(OSError):
                (folder / name).unlink()


def check(folder: Path) -> None:
    """Refuse to work in a folder that FRED has not made. Raises FredError."""
    blank = {each.name for each in folder.iterdir()} <= {UNFINISHED} and not _content(folder / UNFINISHED)
    if not blank and not any(is_marked(folder, name) for name in MARKS):
        raise not_ours(folder)


def not_ours(place: Path) -> FredError:
    """That something lies where FRED would work."""
    return FredError(
        f"{place} was not made by FRED, which needs the name: move it elsewhere, or choose another folder with --out"
    )


def cut_links(folder: int) -> None:
    """Remove whatever links are in an open folder of FRED's: it makes none, and would write where they lead."""
    for _, folders, files, here in os.fwalk(".", dir_fd=folder):
        for name in (*folders, *files):
            if stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=here)


def keep_only(folder: Path, names: Iterable[str]) -> None:
    """Remove whatever is neither one of these files and folders, nor in one of them, nor a mark.

    Args:
        folder: one of FRED's.
        names: paths in it.
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
    """Remove empty folders of FRED's, and this one if there is nothing but marks in it."""
    for found in sorted(folder.rglob("*"), reverse=True):
        if found.is_dir() and not found.is_symlink():
            with suppress(OSError):
                found.rmdir()
    if {each.name for each in folder.iterdir()} <= set(MARKS):
        unmark(folder)
        with suppress(OSError):
            folder.rmdir()


def share(old: Path, new: Path) -> None:
    """What others have put into the old result is in the new one too, where the file system has a second name for it.

    Args:
        old: the folder that will be replaced,
        new: and the one that will replace it. Where a name is taken there, somebody's file goes into `set-aside`.
    """
    for name, found in _of_others(old):
        place = _place_for(name, found, new)
        if place is not None and not stat.S_ISDIR(found.st_mode):
            place.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError, NotImplementedError):
                os.link(old / name, place, follow_symlinks=False)


def hand_over(old: Path, new: Path) -> None:
    """What others have put into a replaced result, and is not in the new one yet, moves there; the rest is FRED's to remove."""
    for name, found in _of_others(old):
        place = _place_for(name, found, new)
        if place is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            if stat.S_ISDIR(found.st_mode):
                place.mkdir()
            else:
                (old / name).rename(place)


def _of_others(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """What of a result folder FRED did not write: files and links that are not listed or not the same, and empty folders."""
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
    """Where somebody's file goes: under its own name, or aside if that is taken. None: it is there already."""
    for number in itertools.count():
        folder = Path(f"{ASIDE}-{number}" if number > 1 else ASIDE if number else "")
        there = _in_the_way(new, folder / name)
        if there is None:
            return new / folder / name
        if os.path.samestat(there, found) or (stat.S_ISDIR(there.st_mode) and stat.S_ISDIR(found.st_mode)):
            return None
    raise AssertionError("there is always another number")


def _in_the_way(folder: Path, name: Path) -> os.stat_result | None:
    """What has the name, or stands where a folder on the way to it would be."""
    for part in (*reversed(name.parents[:-1]), name):
        try:
            there = (folder / part).lstat()
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(there.st_mode):
            return there
    return there


def _digest(file: Path) -> str | None:
    """SHA-256 of a file's bytes, if it is a file."""
    content = _opened(file)
    if content is None:
        return None
    with os.fdopen(content, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _content(file: Path) -> bytes | None:
    """The first bytes of a file, if it is a file."""
    content = _opened(file)
    if content is None:
        return None
    with os.fdopen(content, "rb") as opened:
        return opened.read(len(_SAYING) + 1)


def _opened(file: Path) -> int | None:
    """A file that can be read, if it is one: not a link, nor a pipe, at which one would wait."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    return None
