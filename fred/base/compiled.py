"""A persistent cache of jax's compiled programs, in the user's cache folder. Its files may be deleted at any time.

It replaces jax's own cache, which has three faults. jax writes files in place, so other processes may read incomplete ones. It
warns of damaged files but never replaces them. It may run a program that was compiled for a different CPU.
"""

import errno
import hashlib
import json
import os
import re
import stat
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_SETTING, _OFF = "FRED_CACHE", "off"
_LIMIT = 256 * 2**20  # bytes of all programs together, of about a thousand scenarios
_SUFFIX = ".program"
_OUR_FOLDER, _OUR_FILE = re.compile(r"[0-9a-f]{64}"), re.compile(rf"[0-9a-f]{{64}}(-\w+)?{_SUFFIX}")
_DIGEST = 32  # bytes at the start of a file
_OURS = "kept by FRED"  # the folder's name for jax, which is not part of its keys
_CHANGING = threading.Lock()
_BEFORE: list[str | None] = []  # earlier values of the setting, one for each active `unused` block


def folder() -> Path | None:
    """Return the cache folder: in `$FRED_CACHE`, or in `fred` in the user's cache folder.

    Return None if `$FRED_CACHE` is `off`, or if there is no such folder.
    """
    told = os.environ.get(_SETTING, "").strip()
    if told.casefold() == _OFF:
        return None
    try:
        if told:
            return Path(told).expanduser().absolute() / "compiled"
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))  # ignored if it is relative, as its standard requires
        return (base if base.is_absolute() else Path.home() / ".cache") / "fred" / "compiled"
    except (RuntimeError, OSError):  # there is no home, or no current folder
        return None


@contextmanager
def unused() -> Iterator[None]:
    """Disable the cache in a `with` block, in this process and in processes that start during the block."""
    with _CHANGING:
        _BEFORE.append(os.environ.get(_SETTING))
        os.environ[_SETTING] = _OFF
    try:
        yield
    finally:
        with _CHANGING:
            before = _BEFORE.pop()
            os.environ.pop(_SETTING) if before is None else os.environ.update({_SETTING: before})


def keep(facts: Mapping[str, str]) -> None:
    """Make jax use this cache from now on, unless the user has set a cache folder of jax's. Imports jax.

    Args:
        facts: properties of the machine and software that must be equal to reuse a program, in addition to jax's key.
    """
    import jax
    from jax._src import compilation_cache

    if compilation_cache.is_persistent_cache_enabled():
        return
    internals: Any = compilation_cache
    ours, usual = Programs(facts), internals.get_file_cache
    internals.get_file_cache = lambda path: (ours, path) if path == _OURS else usual(path)
    jax.config.update("jax_compilation_cache_dir", _OURS)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # these would be files of XLA in the folder
    jax.config.update(
        "jax_persistent_cache_min_compile_time_secs", 0.0
    )  # there are many small programs, and reading one takes a tenth of the time of compiling
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")  # jax compiles then


class Programs:
    """A cache of compiled programs by jax's key. Disk errors and damaged files count as missing entries.

    Args:
        facts: properties of the machine and software that must be equal to reuse a program.
        limit: size of all programs in bytes; beyond it, the least recently used programs are removed.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as path:
    ...     os.environ["FRED_CACHE"] = path
    ...     Programs({"cpu": "this"}).put("jit_f-0", b"code")
    ...     Programs({"cpu": "this"}).get("jit_f-0"), Programs({"cpu": "other"}).get("jit_f-0")
    ...     del os.environ["FRED_CACHE"]
    (b'code', None)
    """

    def __init__(self, facts: Mapping[str, str], limit: int = _LIMIT):
        self._name = hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode()).hexdigest()
        self._limit = limit
        self._unseen = limit  # bytes written since the last check of the size; the first program causes one
        self._path = _OURS  # jax writes it to its log

    def get(self, key: str) -> bytes | None:
        """Return the program with this key, or None if there is none or it is damaged."""
        file = self._file(key)
        if file is None:
            return None
        try:
            entry = _read(file)
        except OSError:
            return None
        program = entry[_DIGEST:]
        if entry[:_DIGEST] != self._digest(key, program):
            return None
        with suppress(OSError):
            os.utime(file)
        return program

    def put(self, key: str, program: bytes) -> None:
        """Store a program, and replace an existing file: jax stores only programs that were missing or unusable."""
        file = self._file(key)
        if file is None:
            return
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_ours(file.parent)
            _write(file, self._digest(key, program) + program)
            self._unseen += _DIGEST + len(program)
            if self._unseen > self._limit // 16:
                self._unseen = 0
                _prune(file.parent.parent, self._limit)
        except OSError:
            return

    def _digest(self, key: str, program: bytes) -> bytes:
        """Return a digest of a program, its key, and the machine and software, so that renamed folders are not used."""
        return hashlib.sha256(f"{self._name} {key}".encode() + b"\0" + program).digest()

    def _file(self, key: str) -> Path | None:
        root = folder()
        return root and root / self._name / (hashlib.sha256(key.encode()).hexdigest() + _SUFFIX)


def _check_ours(place: Path) -> None:
    """Raise OSError if another user could have written programs into the folder, which FRED would run."""
    facts = place.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "others may write there", str(place))


def _read(file: Path) -> bytes:
    """Return the content of a file of the cache. Raises OSError for anything but a regular file in a safe folder."""
    _check_ours(file.parent)
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise FileNotFoundError(errno.ENOENT, "no file", str(file))
        return opened.read()


def _write(file: Path, content: bytes) -> None:
    """Write a file atomically, even if other processes read or write it. Raises OSError."""
    number, name = tempfile.mkstemp(prefix=file.stem + "-", suffix=_SUFFIX, dir=file.parent)
    written = Path(name)
    try:
        with os.fdopen(number, "wb") as opened:
            opened.write(content)
        written.replace(file)
    finally:
        written.unlink(missing_ok=True)


def _prune(root: Path, limit: int) -> None:
    """Remove the least recently used programs of all machines and versions, if the cache exceeds its limit."""
    found = []
    for file in root.glob(f"*/*{_SUFFIX}"):
        with suppress(OSError):
            facts = file.lstat()
            ours = _OUR_FOLDER.fullmatch(file.parent.name) and _OUR_FILE.fullmatch(file.name)
            if ours and stat.S_ISREG(facts.st_mode) and not file.parent.is_symlink():
                found.append((facts.st_mtime, facts.st_size, file))
    size = sum(each for _, each, _ in found)
    if size <= limit:
        return
    for _, each, file in sorted(found):
        if size <= limit * 3 // 4:
            break
        with suppress(OSError):
            file.unlink()
            size -= each
    for emptied in {file.parent for _, _, file in found}:
        with suppress(OSError):
            emptied.rmdir()
