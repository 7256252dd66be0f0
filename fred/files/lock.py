"""A folder that one process holds: the system lets go of it when the process ends, however that happens."""

import fcntl
import os
from pathlib import Path


def held(folder: Path) -> int | None:
    """What holds the folder, made if need be, until it is closed: a file descriptor. None if somebody else holds it.

    Raises OSError for anything else of that name; a link, whatever it leads to, included.

    Args:
        folder: which need not be there yet.

    >>> lock = held(Path("mine"))
    >>> held(Path("mine")) is None  # here, too: whoever opens it anew is somebody else
    True
    >>> os.close(lock)
    """
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except (FileNotFoundError, FileExistsError):  # whoever held it has removed it just now
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                raise
            continue
        if _taken(lock):
            os.close(lock)
            return None
        if is_still(lock, folder):
            return lock
        os.close(lock)


def is_still(lock: int, folder: Path) -> bool:
    """Whether what is held is what lies there: it may have been removed, or have become a result, since.

    Args:
        lock: what `held` gave.
        folder: the place.
    """
    try:
        return os.path.samestat(os.fstat(lock), folder.lstat())
    except FileNotFoundError:
        return False


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
