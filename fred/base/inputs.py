"""Safe reading of the user's files: regular files only, UTF-8 text, arrays of numbers. Errors do not quote their content."""

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fred.base.errors import FredError

REAL, ANY_NUMBER = "biuf", "biufc"  # NumPy's `dtype.kind` letters
_HEADERS: dict[tuple[int, int], Callable[[Any], tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}


@contextmanager
def opened(path: Path, piped: bool = False) -> Iterator[BufferedReader]:
    """Open a regular file for reading bytes. Raises FredError.

    Folders, devices and pipes are refused: a folder has no bytes, and reading the others might never end.

    Args:
        path: the file.
        piped: True to accept pipes, such as the shell's `<(...)`.
    """
    try:
        if path.exists() and not path.is_file() and not piped:
            kind = "it is a folder, not a file" if path.is_dir() else "it is not a file"
            raise FredError(f"cannot read {path}: {kind}")
        file = path.open("rb")
    except (OSError, ValueError) as error:  # such as a null byte in the name
        raise FredError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    with file:
        try:
            yield file
        except OSError as error:
            raise FredError(f"cannot read {path}: {error.strerror or error}") from None


def text(path: Path, piped: bool = False) -> str:
    """Return the content of a text file, without a byte order mark.

    Raises FredError; for a byte that is not UTF-8 it names the line.

    Args:
        path: the file.
        piped: True to accept pipes.
    """
    with opened(path, piped) as file:
        content = file.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content[: error.start].count(b"\n")
        raise FredError(f"cannot read {path}:{line}: it is not UTF-8 text") from None


def content(path: Path) -> bytes:
    """Return a file's bytes. Raises FredError."""
    with opened(path) as file:
        return file.read()


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal. Raises FredError."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def arrays(path: Path, kinds: str = REAL) -> dict[str, NDArray[Any]]:
    """Return the arrays in an NPZ file, by name. Raises FredError for other content or other kinds of numbers.

    Args:
        path: the file; its headers are checked before memory is allocated.
        kinds: allowed letters of NumPy's `dtype.kind`: `REAL` (without complex numbers) or `ANY_NUMBER`.

    >>> write_arrays(Path("two.npz"), {"a": np.arange(3), "b": np.ones((2, 2))})
    >>> {name: array.shape for name, array in arrays(Path("two.npz")).items()}
    {'a': (3,), 'b': (2, 2)}
    """
    with opened(path) as file:
        try:
            with ZipFile(file) as archive:
                return {member.filename.removesuffix(".npy"): _array(archive, member, kinds) for member in archive.infolist()}
        except (FredError, MemoryError):
            raise
        except Exception:  # damaged files raise many kinds: of zip, zlib, struct, Python's syntax
            raise FredError(f"cannot read {path}: it is damaged, or not an NPZ file; expected arrays of numbers") from None


def _array(archive: ZipFile, member: ZipInfo, kinds: str) -> NDArray[Any]:
    """Return one array of an archive; its header is checked before memory is allocated."""
    with archive.open(member) as content:
        shape, _, dtype = _HEADERS[npy.read_magic(content)](content)
        if dtype.kind not in kinds:
            raise FredError(f"cannot read {archive.filename}: `{member.filename}` holds {dtype}; expected numbers")
        if content.tell() + dtype.itemsize * math.prod(shape) != member.file_size:
            raise ValueError("not of the size that its header says")
        content.seek(0)
        return npy.read_array(content, allow_pickle=False)


def write_arrays(path: Path, named: Mapping[str, NDArray[Any]]) -> None:
    """Write an NPZ file atomically: whole or not at all. Raises FredError.

    Args:
        path: the file, in an existing folder; an existing file is replaced.
        named: arrays by name.
    """
    with replaced(path) as new, new.open("wb") as file:  # given a name, NumPy would append a suffix
        np.savez(file, allow_pickle=False, **named)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Replace a file atomically: yield a temporary path to write to, and rename it at the end. Raises FredError.

    Args:
        path: the file to replace, in an existing folder; it stays unchanged if an error occurs.
    """
    new = path.with_name(f".{os.getpid()}.{path.name}")  # same ending: matplotlib takes the format from it
    try:
        yield new
        new.replace(path)
    except OSError as error:
        raise FredError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        new.unlink(missing_ok=True)
