"""Functions that find the user's copies of data files and check their content."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path

from fred.base import inputs
from fred.base.errors import FredError
from fred.components.input_path import InputPath

Size = Callable[[bytes, Path], int]  # returns the largest size of a file, given its first bytes
_BEGINNING, _PIECE = 16, 1 << 20  # bytes


_FILES = {
    "mnist": "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz",
    "cifar10": "data_batch_1.bin to data_batch_5.bin and test_batch.bin (the binary version)",
}


def folder(given: InputPath | None, name: str) -> Path:
    """Return the folder of a data set's files: the given one, or else $FRED_DATA/<name>. Raises FredError."""
    if given is None and not os.environ.get("FRED_DATA"):
        raise FredError(
            f"data `{name}`: no folder given; FRED downloads nothing: put {_FILES.get(name, 'its files')} into a folder "
            f"`{name}/`, and set the variable FRED_DATA to the folder that holds it, or `directory:` in the scenario to itself"
        )
    found = Path(os.environ["FRED_DATA"]) / name if given is None else given.located()
    try:
        found.is_dir()
    except OSError as error:
        raise FredError(f"cannot read {found}: {error.strerror}") from None
    return found


def read(directory: Path, name: str, size: Size, md5: str | None = None) -> bytes:
    """Return the content of `directory/name`, or of `directory/name.gz` unpacked. Raises FredError.

    The unpacked bytes must have the MD5 digest `md5`, if it is given. `size` returns the largest valid size, given the first
    bytes of the content, because a small file may unpack to any size.
    """
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():  # neither a folder nor a pipe
            content = _content(path, size)
            if md5 is not None and hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
                raise FredError(f"{path} is not the canonical file: its unpacked bytes should have MD5 {md5}")
            return content
    raise FredError(f"missing data: put `{name}` or `{name}.gz` into {directory.resolve()}")


def _content(path: Path, size: Size) -> bytes:
    """Return the unpacked bytes of a file."""
    with inputs.opened(path) as file:
        stream: BufferedIOBase = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        try:
            content = bytearray(stream.read(_BEGINNING))
            most = size(bytes(content), path)
            while len(content) <= most and (piece := stream.read(_PIECE)):
                content += piece
        except (OSError, EOFError, zlib.error) as error:
            raise FredError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}; get a fresh copy") from error
    if len(content) > most:
        raise FredError(f"{path} is too long: expected {most:,} bytes (unpacked) at most")
    return bytes(content)
