"""Locks on folders. The operating system releases a lock when its process ends, even if it is killed."""

import fcntl
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fred.base.errors import FredError

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
