"""What jax has compiled, kept for later processes: files in the user's cache folder, which may be lost and are never wrong.

jax's own folder will not do: it writes in place, so that others read what is half written; it complains of what is damaged, and
never replaces it; and it would run on one CPU what was compiled for another.
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
_LIMIT = 256 * 2**20  # bytes of all programs together, a thousand scenarios' or so
_SUFFIX = ".program"
_OUR_FOLDER, _OUR_FILE = re.compile(r"[0-9a-f]{64}"), re.compile(rf"[0-9a-f]{{64}}(-\w+)?{_SUFFIX}")
_DIGEST = 32  # bytes, with which an entry begins
_OURS = "kept by FRED"  # what jax is told of a folder, which is a part of no key
_CHANGING = threading.Lock()
_BEFORE: list[str | None] = []  # what the setting was, once for everybody who leaves the folder unused


def folder() -> Path | None:
    """Where programs are kept: `$FRED_CACHE`, or `fred` in the user's cache folder; None if they are not to be, or nowhere."""
    told = os.environ.get(_SETTING, "").strip()
    if told.casefold() == _OFF:
        return None
    try:
        if told:
            return Path(told).expanduser().absolute() / "compiled"
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))  # which counts for nothing if it is relative, as its standard says
        return (base if base.is_absolute() else Path.home() / ".cache") / "fred" / "compiled"
    except (RuntimeError, OSError):  # there is no home, or no current folder
        return None


@contextmanager
def unused() -> Iterator[None]:
    """While it lasts nothing is read or kept, here and in processes that begin meanwhile."""
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
    """From now on jax keeps what it compiles, unless it does so already in a folder of the user's. Imports jax.

    Args:
        facts: whatever must be the same where a program may be run, beside what jax looks at itself.
    """
    import jax
    from jax._src import compilation_cache

    if compilation_cache.is_persistent_cache_enabled():
        return
    internals: Any = compilation_cache
    ours, usual = Programs(facts), internals.get_file_cache
    internals.get_file_cache = lambda path: (ours, path) if path == _OURS else usual(path)
    jax.config.update("jax_compilation_cache_dir", _OURS)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # files of XLA's own, in the folder
    jax.config.update(
        "jax_persistent_cache_min_compile_time_secs", 0.0
    )  # small programs are many, and read in a tenth of the time
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")  # it is compiled, then


class Programs:
    """Compiled programs by jax's key. Whatever the disk refuses, and whatever is damaged there, counts as not kept.

    Args:
        facts: all that must be the same where a program may be run.
        limit: bytes; where there are more, those go that have not been used for longest.

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
        self._unseen = limit  # bytes written since the folder was looked through: it is after the first program
        self._path = _OURS  # jax names it in a log

    def get(self, key: str) -> bytes | None:
        """What was kept under this key; None if nothing was that is whole."""
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
        """Keep a program, in place of whatever is there: jax brings only what it found missing, or could not use."""
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
        """Bind a program to its key and to the machine and software, whose folder somebody could rename."""
        return hashlib.sha256(f"{self._name} {key}".encode() + b"\0" + program).digest()

    def _file(self, key: str) -> Path | None:
        root = folder()
        return root and root / self._name / (hashlib.sha256(key.encode()).hexdigest() + _SUFFIX)


def _check_ours(place: Path) -> None:
    """Raises OSError where somebody else could have put what would be run."""
    facts = place.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "others may write there", str(place))


def _read(file: Path) -> bytes:
    """What is in a file of ours. Raises OSError for whatever else is there."""
    _check_ours(file.parent)
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise FileNotFoundError(errno.ENOENT, "no file", str(file))
        return opened.read()


def _write(file: Path, content: bytes) -> None:
    """Whole or not at all, whoever reads or writes it meanwhile. Raises OSError."""
    number, name = tempfile.mkstemp(prefix=file.stem + "-", suffix=_SUFFIX, dir=file.parent)
    written = Path(name)
    try:
        with os.fdopen(number, "wb") as opened:
            opened.write(content)
        written.replace(file)
    finally:
        written.unlink(missing_ok=True)


def _prune(root: Path, limit: int) -> None:
    """Where there is too much, remove what was used last longest ago, of all machines and versions."""
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
