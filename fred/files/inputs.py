"""Files of the user's, opened with care: regular ones only, text in UTF-8, arrays of numbers. What is in them is not quoted."""

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

from fred.errors import FredError

REAL, ANY_NUMBER = "biuf", "biufc"  # kinds of NumPy's types
_HEADERS: dict[tuple[int, int], Callable[[Any], tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}


@contextmanager
def opened(path: Path, piped: bool = False) -> Iterator[BufferedReader]:
    """The bytes of a file; a folder has none, and a device, or a pipe that is none of the shell's, no end. Raises FredError.

    Args:
        path: the file.
        piped: whether a pipe will do, too, as the shell's `<(...)` is one.
    """
    try:
        if path.exists() and not path.is_file() and not piped:
            raise FredError(f"cannot read {path}: it is not a file")
        file = path.open("rb")
    except (OSError, ValueError) as error:  # a name may hold what none can
        raise FredError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    with file:
        try:
            yield file
        except OSError as error:
            raise FredError(f"cannot read {path}: {error.strerror or error}") from None


def text(path: Path, piped: bool = False) -> str:
    """What a text file holds, without a byte order mark. Raises FredError, with the line of a byte that is not UTF-8.

    Args:
        path: the file.
        piped: whether a pipe will do, too.
    """
    with opened(path, piped) as file:
        content = file.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content[: error.start].count(b"\n")
        raise FredError(f"cannot read {path}:{line}: it is not UTF-8 text") from None


def content(path: Path) -> bytes:
    """A file's bytes. Raises FredError."""
    with opened(path) as file:
        return file.read()


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes. Raises FredError."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def arrays(path: Path, kinds: str = REAL) -> dict[str, NDArray[Any]]:
    """The arrays in an NPZ file, all of them of these kinds of numbers. Raises FredError for anything else.

    Args:
        path: the file; memory is asked for only once its headers are known to be right.
        kinds: letters of NumPy's `dtype.kind`: `REAL` without complex numbers, or `ANY_NUMBER`.

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
        except Exception:  # a damaged file has an error for each of its bytes: of zip, zlib, struct, Python's syntax
            raise FredError(f"cannot read {path}: it is damaged, or no NPZ file; expected arrays of numbers") from None


def _array(archive: ZipFile, member: ZipInfo, kinds: str) -> NDArray[Any]:
    """One of its arrays; memory is only asked for once the header is known to be right."""
    with archive.open(member) as content:
        shape, _, dtype = _HEADERS[npy.read_magic(content)](content)
        if dtype.kind not in kinds:
            raise FredError(f"cannot read {archive.filename}: `{member.filename}` holds {dtype}; expected numbers")
        if content.tell() + dtype.itemsize * math.prod(shape) != member.file_size:
            raise ValueError("not of the size that its header says")
        content.seek(0)
        return npy.read_array(content, allow_pickle=False)


def write_arrays(path: Path, named: Mapping[str, NDArray[Any]]) -> None:
    """Write an NPZ file, whole or not at all. Raises FredError.

    Args:
        path: the file, in a folder that is there; what it held is replaced.
        named: arrays by name.
    """
    with replaced(path) as new, new.open("wb") as file:  # by its name NumPy would add to it
        np.savez(file, allow_pickle=False, **named)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file to be written meanwhile, which takes the place of another when it is whole. Raises FredError.

    Args:
        path: the other, in a folder that is there; left as it is where something fails.
    """
    new = path.with_name(f".{os.getpid()}.{path.name}")  # with its ending, by which some know what to write
    try:
        yield new
        new.replace(path)
    except OSError as error:
        raise FredError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        new.unlink(missing_ok=True)
