"""The folder in which jax keeps compiled programs from one process to the next. It may be deleted at any time.

Each kind of machine, with its software, has a folder of its own: jax may run a program that was compiled for another CPU.
"""

import errno
import hashlib
import json
import os
import re
import stat
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

_SETTING, _DISABLED = "FRED_CACHE", "off"
_LIMIT = 256 * 2**20  # bytes of all programs together, of about a thousand scenarios
_OUR_FOLDER = re.compile(r"[0-9a-f]{64}")
_CHANGING = threading.Lock()
_BEFORE: list[str | None] = []  # earlier values of the setting, one for each active `disabled` block


def folder() -> Path | None:
    """Return the cache folder: in `$FRED_CACHE`, or in `fred` in the user's cache folder.

    Return None if `$FRED_CACHE` is `off`, or if there is no such folder.
    """
    return _folder(os.environ.get(_SETTING))


def _folder(setting: str | None) -> Path | None:
    location = (setting or "").strip()
    if location.casefold() == _DISABLED:
        return None
    try:
        if location:
            return Path(location).expanduser().absolute() / "compiled"
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))  # ignored if it is relative, as its standard requires
        return (base if base.is_absolute() else Path.home() / ".cache") / "fred" / "compiled"
    except (RuntimeError, OSError):  # there is no home, or no current folder
        return None


@contextmanager
def disabled() -> Iterator[None]:
    """Disable the cache in a `with` block, in this process and in processes that start during the block."""
    with _CHANGING:
        _BEFORE.append(os.environ.get(_SETTING))
        os.environ[_SETTING] = _DISABLED
        _switch()
    try:
        yield
    finally:
        with _CHANGING:
            setting = _BEFORE.pop()
            os.environ.pop(_SETTING) if setting is None else os.environ.update({_SETTING: setting})
            _switch()


def keep(facts: Mapping[str, str], limit: int = _LIMIT) -> None:
    """Make jax use this cache from now on, unless the user has set a cache folder of jax's. Imports jax.

    Args:
        facts: properties of the machine and software that must be equal to reuse a program, in addition to jax's key.
        limit: size of all programs in bytes; beyond it, the least recently used programs are removed.
    """
    import jax

    root = _folder(_BEFORE[0] if _BEFORE else os.environ.get(_SETTING))  # the user's, also in a `disabled` block
    if jax.config.values["jax_compilation_cache_dir"] or root is None:
        return
    machine_folder = root / hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode()).hexdigest()
    try:
        machine_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_ours(machine_folder)
        _prune(root, limit)
    except OSError:  # a full or read-only disk: everything is compiled
        return
    jax.config.update("jax_compilation_cache_dir", str(machine_folder))
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # these would be files of XLA in the folder
    jax.config.update(
        "jax_persistent_cache_min_compile_time_secs", 0.0
    )  # there are many small programs, and reading one takes a tenth of the time of compiling
    # jax writes files in place. It compiles what another process has written in part, and what cannot be written.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    if _BEFORE:
        _switch()


def _switch() -> None:
    """Let jax use its cache if it is FRED's and not disabled. jax asks only once, unless it is reset."""
    jax = sys.modules.get("jax")
    if jax is None or not _OUR_FOLDER.fullmatch(Path(jax.config.values["jax_compilation_cache_dir"] or "").name):
        return
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    jax.config.update("jax_enable_compilation_cache", folder() is not None)
    reset_cache()


def _check_ours(place: Path) -> None:
    """Raise OSError if another user could have written programs into the folder, which FRED would run."""
    facts = place.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "others may write there", str(place))


def _prune(root: Path, limit: int) -> None:
    """Remove the least recently used programs of all machines and versions, if the cache exceeds its limit."""
    programs = []
    for file in root.glob("*/*-cache"):  # as jax names them
        with suppress(OSError):
            facts = file.lstat()
            if _OUR_FOLDER.fullmatch(file.parent.name) and stat.S_ISREG(facts.st_mode) and not file.parent.is_symlink():
                programs.append((max(facts.st_atime, facts.st_mtime), facts.st_size, file))
    size = sum(file_size for _, file_size, _ in programs)
    if size <= limit:
        return
    for _, file_size, file in sorted(programs):
        if size <= limit * 3 // 4:  # so that the next runs need not prune again
            break
        with suppress(OSError):
            file.unlink()
            size -= file_size
