"""The user's own code: the files that it consists of, and what it reads while it is imported, each by a digest.

What belongs neither to Python nor to an installed package nor to FRED is the user's. From the first import that was allowed on,
an audit hook hears of every file that the user's functions open, and `os.environ` of every variable that they ask for. What is
read while modules are imported is known before a run begins, and tells, with everything else, whether it has been done before.
What is read later, and what comes from other programs, the network or lists of files, is not known then.
"""

import hashlib
import importlib.util
import os
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

_OUTSIDE = {  # audit events of what has no digest
    "ctypes.dlopen": "a library",
    "os.exec": "another program",
    "os.listdir": "a list of files",
    "os.posix_spawn": "another program",
    "os.scandir": "a list of files",
    "os.system": "another program",
    "socket.connect": "the network",
    "sqlite3.connect": "a database",
    "subprocess.Popen": "another program",
}
_MAIN = ("__main__", "__mp_main__")  # as the program is called, also in the processes that it starts
_FRED = f"{os.path.realpath(Path(__file__).parents[1])}{os.sep}"
_JAX = ("/jax/_src/compiler.py", "/jax/_src/xla_bridge.py")  # what these read is their own affair


@dataclass
class _Seen:
    """What has been seen in this process."""

    files: dict[str, str] = field(default_factory=dict)  # by path
    variables: dict[str, str] = field(default_factory=dict)
    late: str = ""  # the first thing that is not known before a run
    importing: int = 0  # imports that are going on, one inside the other
    covered: int = 0  # what is read now has a digest of its own
    busy: bool = False  # making a digest, for which files are opened too


_seen = _Seen()


@contextmanager
def importing() -> Iterator[None]:
    """While it lasts, what the user's code reads counts as a part of it."""
    _listen()
    _seen.importing += 1
    try:
        yield
    finally:
        _seen.importing -= 1
        _add_loaded()


@contextmanager
def covered() -> Iterator[None]:
    """While it lasts, nothing that the user's code reads counts: what it makes of that will be told by a digest."""
    _seen.covered += 1
    try:
        yield
    finally:
        _seen.covered -= 1


def facts() -> dict[str, str]:
    """The modules of the user's that are loaded, and what was read while they were imported: names and digests."""
    modules, named = _add_loaded(), dict[str, str]()
    for file, digest in sorted(_seen.files.items()):
        name = f"module {modules[file]}" if file in modules else f"file {Path(file).name}"
        named[name] = named.get(name, "") + digest
    return named | {f"variable {name}": digest for name, digest in sorted(_seen.variables.items())}


def installed() -> list[str]:
    """The packages, with their versions, that the user's code can import."""
    return sorted({found.name for place in sys.path for found in Path(place).glob("*.dist-info")})


def unknown() -> str:
    """Why it cannot be known what the user's code does, if so."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main is None:
        return "an interactive session can change its code; with `fred run --import` it would be kept"
    if os.path.realpath(main).startswith(_FRED) or (Path(main).stem == "fred" and not is_own(main)):
        return _seen.late
    return f"a program ({Path(main).name}) can change what it has imported; with `fred run --import` it would be kept"


def late() -> str:
    """What the user's code did whose outcome is not known before a run, if anything."""
    return _seen.late


def line_of(error: BaseException | None) -> str:
    """Where in the user's code an error, or what caused it, arose: its file and line; empty if it passed none of it."""
    place = ""
    while error is not None:
        for frame, line in traceback.walk_tb(error.__traceback__):
            file = frame.f_code.co_filename
            if is_own(file) or frame.f_globals.get("__name__") in _MAIN:
                place = f"{file}, line {line}"
        error = error.__cause__
    return place


def place_of(function: Any) -> str:
    """Where in the user's code a function begins: its file and line; empty for what is not the user's."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    own = code is not None and (is_own(code.co_filename) or function.__module__ in _MAIN)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code and own else ""


@cache
def is_own(file: str) -> bool:
    """Whether a file is the user's."""
    return not file.startswith("<") and not os.path.realpath(file).startswith(_places())


@cache
def _places() -> tuple[str, ...]:
    """Where Python, what is installed, and FRED lie."""
    known = sysconfig.get_paths()
    folders = [known[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return _FRED, *(f"{os.path.realpath(folder)}{os.sep}" for folder in folders)


def _add_loaded() -> dict[str, str]:
    """The files of the user's modules, and the modules' names; those of which nothing was known yet are added."""
    loaded = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    modules = {os.path.realpath(file): name for name, file in loaded if file and name not in _MAIN and is_own(file)}
    for file, name in modules.items():
        if not Path(file).is_file():
            _too_late(f"the module {name} is not in a file of its own")
        elif file not in _seen.files:
            _add(file)
    return modules


def _add(file: str) -> None:
    """A file is a part of the user's code."""
    _seen.busy = True
    try:
        _seen.files[file] = hashlib.sha256(Path(file).read_bytes()).hexdigest() if Path(file).is_file() else "absent"
    except OSError:
        _seen.files[file] = "unreadable"
    finally:
        _seen.busy = False


def _too_late(what: str) -> None:
    _seen.late = _seen.late or what


def _listen() -> None:
    """From now on, hear of what is read."""
    if not isinstance(os.environ, _Environment):
        sys.addaudithook(_heard)
        os.environ.__class__ = _Environment


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    """The audit hook."""
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes) and flags & os.O_ACCMODE != os.O_WRONLY and _by_the_user(sys._getframe(1)):
            _opened(os.path.realpath(os.fsdecode(path)))
    elif event in _OUTSIDE and not _imports(caller := sys._getframe(1)) and _by_the_user(caller):
        _too_late(f"its code asks for {_OUTSIDE[event]}")


def _opened(file: str) -> None:
    if file.endswith(".pyc") and Path(file).parent.name == "__pycache__":
        with suppress(ValueError):
            file = importlib.util.source_from_cache(file)
    if not is_own(file):
        return
    if Path(file).exists() and not Path(file).is_file():
        _too_late(f"its code reads {file}")
    elif _seen.importing:
        _add(file)
    elif file not in _seen.files:
        _too_late(f"its code reads {Path(file).name} while it runs")


class _Environment(type(os.environ)):  # type: ignore[misc]
    """`os.environ`, which notes for which variables the user's code asks."""

    def __getitem__(self, name: str) -> str:
        if _by_the_user(sys._getframe(1)):
            _asked(name, self._data.get(self.encodekey(name)))
        return str(super().__getitem__(name))

    def __iter__(self) -> Iterator[str]:
        if _by_the_user(sys._getframe(1)):
            for name, value in self._data.items():
                _asked(self.decodekey(name), value)
        return super().__iter__()


def _asked(name: str, value: bytes | None) -> None:
    if _seen.importing:
        _seen.variables.setdefault(name, hashlib.sha256(value or b"").hexdigest() if value is not None else "unset")
    elif name not in _seen.variables:
        _too_late(f"its code asks for the variable {name} while it runs")


def _imports(frame: FrameType) -> bool:
    """Whether this is Python looking for a module."""
    return frame.f_code.co_filename.startswith("<frozen importlib")


def _by_the_user(frame: FrameType | None) -> bool:
    """Whether this is done for the user's code: by itself or by what it calls, but not by a package that it imports."""
    while frame is not None and not (_seen.busy or _seen.covered):
        file = frame.f_code.co_filename
        if is_own(file):
            return True
        if file.endswith(_JAX) or (frame.f_code.co_name == "<module>" and not file.startswith("<")):
            return False
        frame = frame.f_back
    return False
