"""Files on disk: safe reading of the user's, the layout of a result folder, and checks of output paths before the work starts.

FRED recognises a folder that it made by a marker file, and the files of a result by the manifest that lists them.
"""

import hashlib
import json
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fred.base.errors import FredError, briefly

REAL, ANY_NUMBER = "biuf", "biufc"  # NumPy's `dtype.kind` letters
# By version of NumPy's format: functions that read shape, order and type of an array.
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
        header_size = content.tell()
        if header_size + dtype.itemsize * math.prod(shape) != member.file_size:
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


MANIFEST = "manifest.json"  # written last: a folder that has one is complete
SUMMARY, SUMMARY_TABLE = "summary.json", "summary.csv"
SWEEP, BEST, PAIRED = "sweep.csv", "best.csv", "paired.csv"
REPORT = "report.html"
FIGURES = "figures"  # folder
WRITTEN = (MANIFEST, SUMMARY, SUMMARY_TABLE, SWEEP, BEST, PAIRED, REPORT, FIGURES)

UNIT = "unit.json"  # in the folder of a unit; written last
SCHEDULE, RUN_TIMES, PARAMS = "schedule.parquet", "run-times.parquet", "params.npz"
METRICS, METRICS_TABLE = "metrics.parquet", "metrics.csv"

WORK = ".at-work"  # in an unfinished result: a folder for each unit that is being computed
TIMINGS = f"{WORK}/timings"  # a folder for each timing
CHECKPOINT = "checkpoint.npz"  # in the folder of a unit that is being computed

UNFINISHED, REPLACED = MARKS = (".fred-unfinished", ".fred-replaced")  # marker files: FRED made the folder
OLD = ".fred-old"  # folder in a result that is being replaced, on systems without an atomic exchange
_MARK = b"In this folder of FRED's a result comes to be, or is being replaced. What FRED made here, it will remove.\n"
_FIELDS = {"format", "fred", "inline", "environment", "data", "scenario"}  # fields that every manifest of FRED has
_OF_DESKTOPS = {".DS_Store", "Thumbs.db", "desktop.ini"}  # written by file managers into every folder that is looked at


def is_reserved(name: str) -> bool:
    """Return True if no run can have this name. Case is ignored, as some file systems do.

    FRED's other files begin with a dot, so such names are reserved too.

    >>> is_reserved("Report.HTML"), is_reserved(".hidden"), is_reserved("asgd")
    (True, True, False)
    """
    return name.casefold() in WRITTEN or name.startswith(".")


def unit_folder(name: str, seed: int) -> str:
    """Return the path of a unit's files in a result folder.

    >>> unit_folder("asgd", 1)
    'asgd/seed-1'
    """
    return f"{name}/seed-{seed}"


def work_folder(name: str, seed: int) -> str:
    """Return the path of the folder, in an unfinished result, in which a unit is computed."""
    return f"{WORK}/{name}.seed-{seed}"


def read_facts(path: Path) -> dict[str, Any]:
    """Return the content of a folder's manifest.json; empty if there is none or FRED did not write it."""
    try:
        manifest = json.loads(text(path / MANIFEST))
    except (FredError, ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) and manifest.keys() >= _FIELDS else {}


def is_file_of_result(file: Path, result: Path) -> bool:
    """Return True if a file belongs to the result in a folder: it is the manifest, or listed there.

    Args:
        file: any path; the file need not exist.
        result: any folder.
    """
    folder, place = os.path.realpath(result), Path(os.path.realpath(file))
    return place.is_relative_to(folder) and place.relative_to(folder).as_posix() in _listed_files(result)


def foreign_files(path: Path) -> list[str]:
    """Return the files, links and pipes in a folder that are not the result's. Empty folders do not count.

    The result's files are those that its manifest lists, even if someone has changed them since.

    Args:
        path: a folder with a result of FRED.
    """
    # An empty marker file is that of a process that was killed while it wrote it.
    own_files = {*_listed_files(path), *(name for name in MARKS if _read_mark(path / name) in (_MARK, b""))}
    old_result = path / OLD if is_marked(path / OLD, REPLACED) else None
    files = [file for file in sorted(path.rglob("*")) if file.is_symlink() or not file.is_dir()]
    names = [file.relative_to(path).as_posix() for file in files if old_result is None or old_result not in file.parents]
    return [name for name in names if name not in own_files and name.rpartition("/")[2] not in _OF_DESKTOPS]


def check_files(path: Path) -> None:
    """Raise FredError if a folder with a result holds files that are not the result's.

    Args:
        path: a folder with a result of FRED.
    """
    if names := foreign_files(path):
        raise FredError(
            f"{path} holds files that are not the result's: {briefly(names)}; move them, or choose another folder with --out"
        )


def is_marked(folder: Path, mark: str) -> bool:
    """Return True if FRED has put this marker file into the folder. A link to a folder is not accepted."""
    return not folder.is_symlink() and _read_mark(folder / mark) == _MARK


def mark(folder: Path, name: str) -> None:
    """Write a marker file. Raises FredError if another file has its name.

    Args:
        folder: a folder that FRED made.
        name: the marker file, one of `MARKS`.
    """
    if is_marked(folder, name):
        return
    if _read_mark(folder / name) == b"":  # its process was killed while writing it
        (folder / name).unlink()
    try:
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except FileExistsError:
        raise FredError(f"{folder / name} is not FRED's, which needs the name: move it elsewhere") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(_MARK)


def unmark(folder: Path) -> None:
    """Remove the marker files."""
    for name in MARKS:
        if _read_mark(folder / name) in (_MARK, b""):
            with suppress(OSError):
                (folder / name).unlink()


def check_marked(folder: Path) -> None:
    """Raise FredError if FRED has not made this folder. An empty folder is accepted."""
    # A process that was killed before it wrote the marker leaves the folder, or also the marker file, empty.
    is_blank = {file.name for file in folder.iterdir()} <= {UNFINISHED} and not _read_mark(folder / UNFINISHED)
    if not is_blank and not any(is_marked(folder, name) for name in MARKS):
        raise not_ours(folder)


def not_ours(place: Path) -> FredError:
    """Return the error for a place that FRED needs but did not make."""
    return FredError(
        f"{place} was not made by FRED, which needs the name: move it elsewhere, or choose another folder with --out"
    )


def cut_links(folder: int) -> None:
    """Remove all links from an open work folder. FRED makes none, and would write to wherever they lead.

    Args:
        folder: file descriptor of the folder.
    """
    for _, folders, files, place in os.fwalk(".", dir_fd=folder):
        for name in (*folders, *files):
            if stat.S_ISLNK(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=place)


def keep_only(folder: Path, names: Iterable[str]) -> None:
    """Remove everything from a folder except the given files and folders and the marker files.

    Args:
        folder: a folder that FRED made.
        names: paths in it to keep.
    """
    kept_paths = {Path(name) for name in (*names, *MARKS)}
    parents = {parent for path in kept_paths for parent in path.parents}
    for path in sorted(folder.rglob("*"), key=lambda path: len(path.parts)):  # folders before their content
        inner = path.relative_to(folder)
        if inner in parents or not kept_paths.isdisjoint((inner, *inner.parents)):  # leads to a kept path, or lies in one
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def prune(folder: Path) -> None:
    """Remove empty subfolders, and the folder itself if only marker files are left in it."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                path.rmdir()
    if {file.name for file in folder.iterdir()} <= set(MARKS):
        unmark(folder)
        with suppress(OSError):
            folder.rmdir()


def _listed_files(path: Path) -> set[str]:
    """Return the files of the result in a folder, the manifest included; empty if there is none."""
    facts = read_facts(path)
    files = facts.get("files")
    return {MANIFEST, *files} if isinstance(files, dict) else {MANIFEST} if facts else set()


def _read_mark(file: Path) -> bytes | None:
    """Return the first bytes of a file, one more than a marker file has; None if it is not a regular file.

    So a file that only begins like a marker file differs from one. A link would lead elsewhere, and a pipe would wait for a
    writer, so neither is opened.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(descriptor, len(_MARK) + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)


def check_places(*files: Path, option: str = "--out") -> None:
    """Raise FredError for files that could not be written. Their folders need not exist yet.

    Args:
        files: paths that a command will write to.
        option: the command's option that names them.

    >>> Path("results").mkdir()
    >>> check_places(Path("results/new/times.csv"))
    >>> check_places(Path("results"))
    Traceback (most recent call last):
    ...
    fred.FredError: cannot write results: it is a folder; choose another place with --out
    """
    for file in files:
        if file.is_dir():
            raise FredError(f"cannot write {file}: it is a folder; choose another place with {option}")
        parent = next(folder for folder in file.absolute().parents if folder.exists())
        if not parent.is_dir():
            raise FredError(f"cannot write {file}: {parent} is not a folder; choose another place with {option}")
        try:
            with tempfile.TemporaryFile(dir=parent):
                pass
        except OSError as error:
            raise FredError(f"cannot write {file}: {error.strerror or error}; choose another place with {option}") from error


def check_free(file: Path, is_replaceable: Callable[[bytes], bool] = lambda beginning: False, option: str = "--out") -> None:
    """Raise FredError if a file cannot be written, belongs to a result, or exists and is not the command's own.

    Args:
        file: path that a command will write to.
        is_replaceable: function that returns True for the first bytes of a file that the command may replace; by default it
            replaces none.
        option: the command's option that names it.

    >>> _ = Path("mine.svg").write_text("drawn by hand")
    >>> check_free(Path("mine.svg"))
    Traceback (most recent call last):
    ...
    fred.FredError: mine.svg is there already, and not what this command writes; choose another place with --out, or ...
    """
    check_places(file, option=option)
    result = next((folder for folder in Path(os.path.realpath(file)).parents if is_file_of_result(file, folder)), None)
    if result is not None:
        raise FredError(
            f"{file} is part of the result in {result}, which `fred verify` checks; choose another place with {option}"
        )
    if os.path.lexists(file) and not (file.is_file() and is_replaceable(_beginning(file))):
        raise FredError(
            f"{file} is there already, and not what this command writes; choose another place with {option}, or remove it"
        )


def check_together(first: Path, files: Iterable[Path], mark: str) -> None:
    """Raise FredError unless files can be written: each is new, or the first one begins with the mark of an earlier command.

    Args:
        first: the file that is written first, as a comment with the mark at its beginning identifies the others.
        files: the other files.
        mark: the beginning of the comment.
    """
    check_free(first, lambda beginning: beginning.startswith(f"# {mark}".encode()))
    for file in files:  # if the first one exists, it has the mark, so the others are of the same command
        check_free(file, lambda _: first.exists())


def write(file: Path, content: bytes) -> None:
    """Write a file atomically, and create its folder if it does not exist. Raises FredError.

    Args:
        file: the path.
        content: the bytes of the file.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replaced(file) as new:
            new.write_bytes(content)
    except (OSError, FredError) as error:
        message = error if isinstance(error, FredError) else f"cannot write {file}: {error.strerror or error}"
        raise FredError(f"{message}; choose another place") from error


def _beginning(file: Path) -> bytes:
    """Return the first bytes of a file, enough for the mark of any command."""
    with file.open("rb") as content:
        return content.read(1024)
