"""Digests of the user's own modules, and of the inputs that they declare; comparison of all code and settings in two processes.

A module is the user's if it belongs neither to Python nor to an installed package nor to FRED. One that imports nothing but
libraries that compute, and names no function that reads, has no inputs. FRED cannot find out what any other code reads, so
such a module declares it. Its list `fred_inputs` names files, relative to the module's folder, and environment variables as
`$NAME`; `[]` means none.
"""

import ast
import hashlib
import os
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fred.base import environment
from fred.base.environment import __version__
from fred.base.errors import FredError

MAIN = ("__main__", "__mp_main__")  # names of the main program, in its own and in its worker processes
_FRED = f"{os.path.realpath(Path(__file__).parents[1])}{os.sep}"
_INSTALLED = {"site-packages", "dist-packages"}  # folders of installed packages in all environments
_STARTUP_MODULES = ("sitecustomize", "usercustomize")  # Python imports them itself, and users can rarely change them
_DECLARATION = "fred_inputs"
_COMPUTE = {  # libraries of which only the functions in `_READ` depend on anything but their arguments
    *("__future__", "abc", "bisect", "collections", "copy", "dataclasses", "decimal", "enum", "fractions", "functools"),
    *("heapq", "itertools", "math", "operator", "re", "statistics", "string", "typing", "typing_extensions"),
    *("chex", "einops", "equinox", "flax", "fred", "jax", "numpy", "numpyro", "optax", "pydantic", "scipy", "simpy"),
}
_READ = {
    *("open", "input", "exec", "eval", "__import__", "globals", "vars", "breakpoint", "io", "datasets", "misc"),
    *(
        "load",
        "load_result",
        "loadtxt",
        "genfromtxt",
        "fromfile",
        "memmap",
        "open_memmap",
        "DataSource",
        "loadmat",
        "fromregex",
    ),
    *("read", "load_checkpoint", "restore_checkpoint", "tree_deserialise_leaves", "pure_callback", "io_callback"),
}


class _Digests(NamedTuple):
    """A module's digests at its import."""

    spec: Any  # the module's `__spec__`, another one after each import
    code: str  # digest of the module's file
    inputs: dict[str, str]  # digests of its declared inputs


_DIGESTS: dict[str, _Digests] = {}  # by the module's name


def facts() -> dict[str, str]:
    """Return the digests of the user's modules and of their declared inputs, at their import. Raises FredError."""
    digest_of = dict[str, str]()
    for name, module in _modules():
        if not _is_recorded(name, module):
            _DIGESTS[name] = _Digests(getattr(module, "__spec__", None), _digest(Path(str(module.__file__))), _inputs(module))
        digests = _DIGESTS[name]
        digest_of[f"module {name}"] = digests.code
        digest_of |= {f"input {source} of {name}": digest for source, digest in digests.inputs.items()}
    return digest_of


def why_unknown(modules: Iterable[str]) -> str:
    """Return the reason why `facts` does not identify the user's code, such as an interactive session; empty if it does.

    Args:
        modules: names of the modules whose classes take part in a run.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)  # of a command, a file of FRED or its installed script
    if main is None:
        return "an interactive session can change its code; `fred run --import MODULE` reuses results of classes in a module"
    if not os.path.realpath(main).startswith(_FRED) and (Path(main).stem != "fred" or is_user_file(main)):
        return f"a program ({Path(main).name}) can change imported modules; `fred run --import MODULE` reuses results"
    user_modules = dict(_modules())
    for name in {*modules, *user_modules}:
        if not Path(getattr(sys.modules.get(name), "__file__", None) or "/").is_file():  # `/` is no file
            return f"the module {name} is not in a file"
    return _undeclared(user_modules)


def late_change() -> str:
    """Return a sentence about a change in the user's code or its inputs since `facts` was called; empty if there is none."""
    for name, module in _modules():
        if not _is_recorded(name, module):
            return f"its code imports {name} while it runs"
        try:
            if _inputs(module) != _DIGESTS[name].inputs:
                return f"what {name} reads changed while it ran"
        except FredError as error:
            return str(error)
    return ""


def installed() -> list[str]:
    """Return the packages, with their versions, that the user's code can import."""
    return sorted({folder.name for path in sys.path for folder in Path(path).glob("*.dist-info")})


def line_of(error: BaseException | None) -> str:
    """Return the file and line of the user's code that raised an error or its cause; empty if there is none."""
    place = ""  # innermost frame in the user's code; that of the cause, if there is one, is nearer to the mistake
    while error is not None:
        for frame, line in traceback.walk_tb(error.__traceback__):
            file = frame.f_code.co_filename
            if is_user_file(file) or frame.f_globals.get("__name__") in MAIN:
                place = f"{file}, line {line}"
        error = error.__cause__
    return place


def place_of(function: Any) -> str:
    """Return the file and first line of a function in the user's code; empty for other functions."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    in_user_code = code is not None and (is_user_file(code.co_filename) or function.__module__ in MAIN)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code and in_user_code else ""


def is_users(value: Any) -> bool:
    """Return True for a class or function of the user's, also of an interactive session.

    Args:
        value: the class or function.
    """
    module = sys.modules.get(value.__module__)
    file = getattr(module, "__file__", None)
    return value.__module__ in MAIN or (file is not None and is_user_file(file))


@cache
def is_user_file(file: str) -> bool:
    """Return True if a file is the user's code."""
    real = os.path.realpath(file)
    # Code without a file has a name such as `<string>`. A package may be installed in an environment that is not this one.
    return not (file.startswith("<") or real.startswith(_places()) or _INSTALLED & {*Path(real).parts})


@cache
def _places() -> tuple[str, ...]:
    """Return the folders of FRED, of Python and of installed packages."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return _FRED, *(f"{os.path.realpath(folder)}{os.sep}" for folder in folders)


def _modules() -> Iterator[tuple[str, ModuleType]]:
    """Yield the names and objects of the user's modules that are loaded. A package without a file has no code."""
    for name, module in sorted(sys.modules.items()):
        if name not in MAIN and (file := getattr(module, "__file__", None)) and is_user_file(file):
            yield name, module


def _undeclared(modules: Mapping[str, ModuleType]) -> str:
    """Return a sentence about a module that does not declare its inputs, and how to do so; empty if all modules do."""
    owners = dict[int, str]()  # the first module that has each list, by the identity of the list
    for name, module in modules.items():
        file, declared = Path(str(module.__file__)), vars(module).get(_DECLARATION)
        if declared is None and name not in _STARTUP_MODULES and not _only_computes(file, frozenset(modules)):
            return (
                f"{name} does not say what it reads: write `{_DECLARATION} = []` into {file.name}, or its files and $VARIABLES"
            )
        owner = owners.setdefault(id(declared), name) if declared is not None else name
        # `from owner import *` also imports its list. But this module reads files of its own, relative to its own folder.
        if modules[owner] is not module:  # one module may have two names
            return f"{owner} and {name} share one `{_DECLARATION}`: write a separate list into each"
    return ""


@cache
def _only_computes(file: Path, modules: frozenset[str]) -> bool:
    """Return True for a file that imports only libraries that compute, and names no function that reads.

    Args:
        file: a file in Python.
        modules: names of the user's modules, each of which is judged by itself.
    """
    names, imports = set[str](), set[str]()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imports |= {node.module or ""} if not node.level else set()  # a relative import is of a user's module
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    names |= {name for path in imports for name in path.split(".")}
    # Of FRED only the package itself is in `_COMPUTE`: its modules have functions that read.
    libraries = {path if path.startswith("fred.") else path.partition(".")[0] for path in imports}
    return not names & _READ and libraries <= _COMPUTE | {name.partition(".")[0] for name in modules}


def _is_recorded(name: str, module: ModuleType) -> bool:
    """Return True if a module's digests are those of its last import: each import makes another spec, also a reload."""
    return name in _DIGESTS and _DIGESTS[name].spec is getattr(module, "__spec__", None)


def _inputs(module: ModuleType) -> dict[str, str]:
    """Return the digests of the files and variables that a module declares as inputs. Raises FredError."""
    declared, file = vars(module).get(_DECLARATION, []), str(module.__file__)
    if not isinstance(declared, list) or not all(isinstance(entry, str | Path) for entry in declared):
        raise FredError(f"{file}: `{_DECLARATION}` is {declared!r}; expected a list of paths and $VARIABLES")
    return {
        str(entry): _digest_of_variable(str(entry)[1:]) if str(entry)[:1] == "$" else _digest_of_file(entry, file)
        for entry in declared
    }


def _digest_of_variable(name: str) -> str:
    """Return the SHA-256 of an environment variable, or "unset"."""
    value = os.environ.get(name)
    return "unset" if value is None else hashlib.sha256(os.fsencode(value)).hexdigest()


def _digest_of_file(path: str | Path, module: str) -> str:
    """Return the SHA-256 of a file, whose path is relative to the module's folder. Raises FredError."""
    file = Path(module).parent / path
    if not file.is_file():
        raise FredError(
            f"{module}: `{_DECLARATION}` names {file}, which is not a file; expected paths relative to the module's folder"
        )
    return _digest(file)


def _digest(file: Path) -> str:
    """Return the SHA-256 of a file's bytes, or "absent" if it does not exist. Raises FredError if it cannot be read."""
    try:
        status = file.stat()
        return _digest_of(file, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except OSError as error:
        raise FredError(f"cannot read {file}: {error.strerror or error}") from None


@lru_cache(1024)
def _digest_of(file: Path, _: tuple[int, ...]) -> str:
    """Return the digest of a file's bytes. Its status is a part of the cache's key: a file is read again once it changes."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def local_facts() -> dict[str, str]:
    """Return everything that determines the bits in this process, except the user's own code."""
    return {"FRED": code_of_fred(), **environment.describe()}


def objection(expected: dict[str, str], code: dict[str, str]) -> str:
    """Return the differences between another process and this one, in words; empty if both would compute the same bits.

    A user reads the words in the other process. So they call that one `here`, and this one `there`.

    Args:
        expected: the result of `local_facts` in the other process.
        code: digests of the user's own code there; only parts that both processes have are compared.

    >>> objection(local_facts(), {})
    ''
    """
    local, local_code = local_facts(), facts()
    differing = [name for name in expected | local if expected.get(name) != local.get(name)]
    reasons = [_difference(name, expected.get(name, "usual"), local.get(name, "usual")) for name in differing]
    reasons += [f"the {name} is not the same" for name in code if local_code.get(name, code[name]) != code[name]]
    return "; ".join(reasons)


def code_of_fred() -> str:
    """Return FRED's version, and the SHA-256 of its sources."""
    return f"{__version__} {_digest_of_fred()}"


@cache
def _digest_of_fred() -> str:
    sha, folder = hashlib.sha256(), Path(__file__).parents[1]
    for file in sorted(folder.rglob("*.py")):
        sha.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return sha.hexdigest()


def _difference(name: str, expected: str, local: str) -> str:
    """Return a sentence on a fact that differs; `here` is the other process, as in `objection`."""
    if name == "FRED":  # the digest would tell the user nothing
        return f"FRED's code is not the same (version {local.split()[0]} there, {expected.split()[0]} here)"
    return f"{name} is {local!r} there, {expected!r} here"
