"""The atomic exchange of two folders' names, on systems that support it."""

import ctypes
import errno
import os
import sys
from pathlib import Path

_HERE = -100  # AT_FDCWD on Linux
_EXCHANGE = 2  # RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS
_LACKING = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


def exchanged(one: Path, other: Path) -> bool:
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
            failed = library.renameat2(_HERE, first, _HERE, second, ctypes.c_uint(_EXCHANGE))
    except AttributeError:  # a C library without the call
        return False
    number = ctypes.get_errno()
    if failed and number not in _LACKING:
        raise OSError(number, os.strerror(number), str(one), None, str(other))
    return not failed
