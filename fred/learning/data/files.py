"""Finding the user's own copies of data files, and checking that they are what they claim to be."""

import gzip
import hashlib
import os
import zlib
from pathlib import Path

from fred.errors import FredError


def folder(given: Path | None, name: str) -> Path:
    """Where the files of a data set lie: the given folder, else $FRED_DATA/<name>."""
    if given is not None:
        return given
    if not os.environ.get("FRED_DATA"):
        raise FredError(
            f"data `{name}`: no folder given; set `directory:` in the scenario, or the variable FRED_DATA to a folder "
            f"that holds `{name}/`"
        )
    return Path(os.environ["FRED_DATA"]) / name


def read(directory: Path, name: str, md5: str | None = None) -> bytes:
    """The content of `directory/name`, or of `name.gz` unpacked; checked against the MD5 of the unpacked bytes if given."""
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():  # neither a folder nor a pipe
            content = _content(path)
            if md5 is not None and hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
                raise FredError(f"{path} is not the canonical file: its unpacked bytes should have MD5 {md5}")
            return content
    raise FredError(f"missing data: put `{name}` or `{name}.gz` into {directory.resolve()}")


def _content(path: Path) -> bytes:
    """The unpacked bytes of a file."""
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise FredError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}; get a fresh copy") from error
