"""The work folder in which a result is written, and locks on folders, which the operating system releases with their process.

It lies next to the result's place, survives interruptions, and becomes the result when it is complete.

A result that is there already is replaced in one step: Linux (`renameat2`) and macOS (`renamex_np`) exchange the names of two
folders, so that there is a result at every moment; then the old one is removed. Some systems and file systems have no such call
(NFS, some of FUSE, some C libraries). There, the old result is renamed into the new one, which then takes the place; a process
that is killed between these two steps leaves no visible result. Marker files tell the next run how far a killed process came:
it completes the replacement before anything else (`_recover`). The lock of the old folder stays on it while it is renamed, so
that no other run replaces it at the same time.
"""

import ctypes
import errno
import fcntl
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fred.base import disk, process
from fred.base.disk import MANIFEST, OLD, REPLACED, UNFINISHED, UNIT, is_marked, read_facts
from fred.base.errors import FredError, briefly

_PAUSE = 0.02  # seconds between two attempts


class TakenError(FredError):
    """An error: another process has locked a folder."""


def lock_folder(folder: Path) -> int | None:
    """Lock a folder, and create it if it does not exist. Return the lock, a file descriptor; close it to release the lock.

    Return None if the folder is locked already. Raises OSError if the path is a file or a link, even a link to a folder.

    Args:
        folder: the folder.
    >>> lock = lock_folder(Path("mine"))
    >>> lock_folder(Path("mine")) is None  # also in this process: each opened file has its own lock
    True
    >>> os.close(lock)
    """
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except (FileNotFoundError, FileExistsError):  # another process has just removed it: try again
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                raise
            continue
        if not _try_lock(lock):
            os.close(lock)
            return None
        # Between opening and locking, another process may have removed the folder, or renamed it to become a result. Then the
        # lock is on a folder that no other process will open at this path, so it excludes none of them: try again.
        if is_in_place(lock, folder):
            return lock
        os.close(lock)


@contextmanager
def locked(folder: Path, patience: float = math.inf) -> Iterator[None]:
    """Lock a folder during a `with` block. Raises TakenError if another process has it locked for longer than `patience`, s.

    Args:
        folder: the folder, which is created if it does not exist.
        patience: time to wait for another process, such as one that is about to end because its parent was killed.
    """
    deadline = time.monotonic() + patience
    while (lock := lock_folder(folder)) is None:
        if time.monotonic() > deadline:
            raise TakenError(f"another process is still at work in {folder}; wait for it")
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        os.close(lock)


def is_in_place(lock: int, folder: Path) -> bool:
    """Return True if the locked folder is still at this path. It may have been removed, or renamed to become a result.

    Args:
        lock: the lock that `lock_folder` returned.
        folder: the path.
    """
    try:
        return os.path.samestat(os.fstat(lock), folder.lstat())
    except FileNotFoundError:
        return False


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_CURRENT_FOLDER = -100  # AT_FDCWD on Linux
_EXCHANGE = 2  # RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS
# Errors of a system, or of a file system, without the call:
_LACKING = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """Open and lock the work folder of a result, with everything that an interrupted run has left in it.

    If the folder is empty at the end, it is removed. Raises FredError if the place cannot be written, holds anything but a
    result of FRED and its files, or is used by another run.

    Args:
        path: the place of the result. The work folder lies next to it, as `.NAME.unfinished`.
    """
    process.require_cleanup()
    check_free(path)
    path = Path(os.path.realpath(path))
    created = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    with convert_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stage, lock = _lock_stage(path)
        try:
            yield stage
        finally:
            if is_in_place(lock, stage):
                disk.prune(stage)
            for folder in created:  # innermost first; one that holds a result stays
                with suppress(OSError):
                    folder.rmdir()
            os.close(lock)


def publish(stage: Path, path: Path) -> None:
    """Move a complete work folder to its place. Raises FredError if the place holds files that are not the result's.

    Args:
        stage: the folder that `opened` yielded, with a manifest in it.
        path: its place. An existing result is replaced, atomically if the system supports it.
    """
    check_free(path)
    path = Path(os.path.realpath(path))
    with convert_errors(path), _keep_current_folder():
        try:
            if is_result(path):
                _replace(path, stage)
            else:
                stage.rename(path)
        finally:
            disk.unmark(path)


@contextmanager
def _keep_current_folder() -> Iterator[None]:
    """Keep the current folder valid: if it is replaced, change to the new folder of the same name."""
    try:
        folder = Path.cwd()
    except FileNotFoundError:  # the current folder was removed before
        folder = Path()
    yield
    if not folder.samefile(os.curdir):
        os.chdir(folder)


def check_free(path: Path) -> None:
    """Raise FredError if the place cannot be written, or holds anything but a result of FRED and its files."""
    with convert_errors(path):
        path = Path(os.path.realpath(path))
        if path.exists() and not is_result(path) and (not path.is_dir() or any(path.iterdir())):
            raise FredError(f"{path} exists and is not a result folder; choose another with --out, or remove it")
        if is_result(path):
            disk.check_files(path)
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        parent = next(folder for folder in path.parents if folder.exists())
        with suppress(FileNotFoundError):
            (parent / _stage(path).name).lstat()  # raises OSError if the name is too long
        with tempfile.TemporaryFile(dir=parent):  # raises OSError if no file can be written there
            pass


def is_result(path: Path) -> bool:
    """Return True if a folder has a manifest of FRED."""
    return bool(read_facts(path))


def is_vacant(path: Path) -> bool:
    """Return True if there is neither a result nor the work folder of an interrupted run.

    Args:
        path: the place of the result.
    """
    path = Path(os.path.realpath(path))
    return not any(os.path.lexists(place) for place in (path, _stage(path)))


def title_of(path: Path) -> tuple[str, str]:
    """Return the file and the title of the scenario whose result is at this place; empty if unknown or if there is none."""
    manifest = read_facts(path)
    scenario = manifest.get("scenario")
    return str(manifest.get("file", "")), str(scenario.get("title", "")) if isinstance(scenario, dict) else ""


def describe_remains(path: Path) -> str:
    """Return a sentence that says what an interrupted run has left of the result.

    Args:
        path: the place of the result.
    """
    stage = _stage(Path(os.path.realpath(path)))
    units = len(list(stage.glob(f"*/seed-*/{UNIT}"))) if is_marked(stage, UNFINISHED) else 0
    units_are = "1 unit is" if units == 1 else f"{units} units are"
    return f"nothing new was written; {units_are} kept in {stage} from an earlier run" if units else "nothing was written"


@contextmanager
def convert_errors(path: Path) -> Iterator[None]:
    """Turn the OSErrors of a `with` block into FredErrors that name the place."""
    try:
        yield
    except OSError as error:
        raise FredError(f"cannot write {path}: {error.strerror or error}; choose another folder with --out") from error


def _stage(path: Path) -> Path:
    return path.parent / f".{path.name}.unfinished"


def _lock_stage(path: Path) -> tuple[Path, int]:
    """Return the work folder and its lock, which holds as long as this process lives. Raises FredError."""
    stage = _stage(path)
    if stage.is_symlink() or (stage.exists() and not stage.is_dir()):
        raise disk.not_ours(stage)
    while True:
        lock = _lock_or_refuse(stage, path)
        try:
            disk.check_marked(stage)
            _recover(path, stage)
            if is_in_place(lock, stage):  # otherwise `_recover` has moved it: try again with a new folder
                disk.cut_links(lock)
                disk.mark(stage, UNFINISHED)
                return stage, lock
        except BaseException:
            with suppress(OSError):
                stage.rmdir()  # succeeds only if it is still empty
            os.close(lock)
            raise
        os.close(lock)


def _lock_or_refuse(folder: Path, path: Path) -> int:
    """Lock a folder and return the lock. Raises FredError, with the place of the result, if another run has locked it."""
    lock = lock_folder(folder)
    if lock is None:
        raise FredError(f"another run is at work on {path}; wait for it, or choose another folder with --out")
    return lock


def _replace(path: Path, stage: Path) -> None:
    """Replace the old result by the new one, atomically if the system supports it, so that there always is a result."""
    lock = _lock_or_refuse(path, path)  # the lock stays on the old folder when it is renamed
    try:
        disk.mark(path, REPLACED)
        if exchange(path, stage):
            old_result = stage
        else:  # the old result moves into the new one's folder, which then takes its name
            path.rename(stage / OLD)
            try:
                stage.rename(path)
            except BaseException:
                with suppress(OSError):
                    (stage / OLD).rename(path)
                raise
            old_result = path / OLD
        _remove(old_result)
    finally:
        os.close(lock)


def _remove(old_result: Path) -> None:
    """Remove a replaced result. Raises FredError, and leaves them, if it has files that came after the check of the place."""
    foreign = disk.foreign_files(old_result)
    # The manifest goes last: it lists FRED's files, so a process that is killed here can go on.
    for names in ([*foreign, MANIFEST], foreign):
        disk.keep_only(old_result, names)
    disk.prune(old_result)
    if foreign:
        raise FredError(f"{old_result} holds files that came while the result was replaced: {briefly(foreign)}; move them")


def _recover(path: Path, stage: Path) -> None:
    """Finish a replacement that was killed halfway. The work folder may be gone afterwards."""
    old_result = stage / OLD
    if is_marked(old_result, REPLACED) and not is_result(path):  # killed between the two renames: do the second
        (stage if is_result(stage) else old_result).rename(path)
    elif is_marked(stage, REPLACED) and not is_result(path):  # exchanged, but the new result is gone: restore the old one
        stage.rename(path)
    elif is_marked(stage, REPLACED) or is_marked(old_result, REPLACED):  # the new result is in its place
        _remove(old_result if is_marked(old_result, REPLACED) else stage)
    elif is_marked(path / OLD, REPLACED):  # killed after the second rename, before the old result was removed
        lock = _lock_or_refuse(path, path)
        try:
            _remove(path / OLD)
        finally:
            os.close(lock)
    disk.unmark(path)


def exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step. Raises OSError.

    Return True if it is done, and False if the system or the file system does not support it; then nothing has changed.

    Args:
        one: a folder or file.
        other: another folder or file on the same file system.
    """
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            failed = library.renamex_np(first, second, ctypes.c_uint(_EXCHANGE))
        else:
            failed = library.renameat2(_CURRENT_FOLDER, first, _CURRENT_FOLDER, second, ctypes.c_uint(_EXCHANGE))
    except AttributeError:  # a C library without the call
        return False
    code = ctypes.get_errno()
    if failed and code not in _LACKING:
        raise OSError(code, os.strerror(code), str(one), None, str(other))
    return not failed
