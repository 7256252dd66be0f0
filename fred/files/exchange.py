"""Two folders that change names with each other in one step, where the system has such a step."""

import ctypes
import errno
import os
import sys
from pathlib import Path

_HERE = -100  # AT_FDCWD of Linux
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_LACKING = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


def exchanged(one: Path, other: Path) -> bool:
    """Give each the other's name; False, and nothing done, where the system or the file system cannot. Raises OSError.

    Args:
        one: a folder or file,
        other: and another one on the same file system.
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
