"""Content of files: unpacked bytes, text converted to UTF-8, and the members of archives and folders."""

import bz2
import gzip
import io
import json
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tarfile import TarError, TarFile
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import pyarrow as pa

from fred.base import disk
from fred.base.errors import FredError, briefly

_MOST_BYTES = 2**33  # bytes after unpacking; more is a mistake or an attack
_MOST_RATIO, _ANY_RATIO_BYTES = 300, 2**28  # times as many bytes after unpacking; up to so many bytes any ratio will do
_TAR = slice(257, 262)  # where a tape archive has its mark
_TRIAL_MARKER, _REPORTS = "params.json", ("progress.csv", "result.json")  # files in the folder of a trial of Ray
_STEP_WORDS = re.compile(rb"step|iter|epoch", re.IGNORECASE)
_HEAD = 2**15  # bytes that tell what a file is
_PACKED: dict[bytes, tuple[str, Callable[[IO[bytes]], Any]]] = {  # first bytes -> ending, reader
    b"\x1f\x8b": (".gz", lambda file: gzip.GzipFile(fileobj=file)),
    b"BZh": (".bz2", bz2.BZ2File),
    b"\xfd7zXZ\0": (".xz", lzma.LZMAFile),
    b"\x28\xb5\x2f\xfd": (".zst", lambda file: pa.CompressedInputStream(file, "zstd")),
}
_ENCODINGS = ((b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_BINARY = {  # first bytes -> kind of a file that is no text
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"SQLite format 3\0": "sqlite",
    b"\x89HDF": "hdf5",
    b"\x93NUMPY": "npy",
    b"\x80\x04": "pickle",
    b"\x80\x05": "pickle",
}
_IGNORED_ENDINGS = (".old", ".bak", ".tmp", ".md", ".yaml", ".yml", ".py", ".png", ".svg", ".html")  # of no log in a folder
_PANDAS_READERS = {"hdf5": "read_hdf", "pickle": "read_pickle", "xlsx": "read_excel"}
_Packed = tuple[Callable[[Any], Any], int, Any]  # function that opens a member, its packed bytes, the function's argument


@dataclass(frozen=True)
class Content:
    """The bytes of a file, or of a member of an archive.

    Args:
        path: the file as messages name it; for a member, such as `logs.zip/rank0.csv`.
        data: bytes without compression; those of a text are in UTF-8 and have no byte order mark.
        kind: `text`, or the kind that the first bytes show, such as `parquet`.
        notes: how the bytes were read, in words.
        encoding: name of the file's encoding for Python; empty: UTF-8, or no text.
    """

    path: Path
    data: bytes = field(repr=False)
    kind: str = "text"
    notes: tuple[str, ...] = ()
    encoding: str = ""

    @property
    def name(self) -> str:
        """Return the file's name in lower case, without the ending of a compressed file."""
        name = self.path.name.lower()
        return next((name.removesuffix(ending) for ending, _ in _PACKED.values() if name.endswith(ending)), name)

    @cached_property
    def head(self) -> str:
        """Return the begin of a text, whole lines only unless the first one is longer; empty for other kinds."""
        if self.kind != "text":
            return ""
        begin = self.data[:_HEAD]
        if len(begin) < len(self.data):
            begin = begin[: begin.rfind(b"\n") + 1] or begin
        return begin.decode(errors="replace")

    @cached_property
    def text(self) -> str:
        """Return the whole text; empty for other kinds."""
        return self.data.decode(errors="replace") if self.kind == "text" else ""


def parse_json(file: Content) -> Any:
    """Return a document of JSON. Raises FredError.

    Args:
        file: the file that holds it.
    """
    try:
        return json.loads(file.data)
    except (ValueError, RecursionError) as error:
        reason, text = f"it is not JSON ({type(error).__name__})", file.text.rstrip()
        if text[:1] in ("[", "{") and (text[-1:] not in ("]", "}") or getattr(error, "pos", 0) >= len(text)):
            reason = "its JSON is cut off; copy it again, record it again, or name the other files without it"
        raise FredError(f"cannot read {file.path}: {reason}") from None


def read_contents(paths: Sequence[Path]) -> list[Content]:
    """Return the content of files, and of the members of archives and folders among them, in the order of their names.

    Args:
        paths: files, zip or tar archives, or folders, of which the files that are not hidden count.

    Raises FredError for a file that cannot be read, and for a folder without files.
    """
    members: list[Content] = []
    for path in paths:
        files, notes = _files_with_times(path)
        contents, stream_notes = _select_stream([member for file in files for member in _members(file)])
        notes = (*notes, *stream_notes)
        members += [replace(member, notes=(*notes, *member.notes)) for member in contents[:1]] + contents[1:]
    return members


def read_content(path: Path) -> Content:
    """Return the content of one file. Raises FredError, also for an archive with several members.

    Args:
        path: the file.
    """
    members = list(_members(path))
    if len(members) != 1:
        names = briefly([member.path.name for member in members])
        raise FredError(f"{path} holds {len(members)} files: {names}; expected one: unpack it, and name the file")
    return members[0]


def _files_with_times(path: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Return the files that a path means, and a note about those of a folder that are left out.

    Of a folder these are the reports of Ray's trials in it or up to two folders below, or else its own files, or else those of
    all folders below it.
    """
    try:
        if not path.is_dir():
            return [path], ()
        trial_folders = [marker.parent for depth in ("", "*/", "*/*/") for marker in path.glob(depth + _TRIAL_MARKER)]
        reports = _trial_reports([file for folder in trial_folders for file in folder.iterdir()])
        for entries in (reports, path.iterdir(), path.rglob("*")):
            files, notes = _select_files(path, sorted(entry for entry in entries if entry.is_file()))
            if files:
                return files, notes
    except (OSError, ValueError):  # an impossible name; opening the file reports the reason
        return [path], ()
    raise FredError(f"cannot read {path}: the folder has no files of times; expected one of each worker, or one of all")


def _select_stream(members: list[Content]) -> tuple[list[Content], tuple[str, ...]]:
    """Return the stream with the steps if a launcher wrote two files for each process, and a note about the other."""
    streams: dict[str, list[Content]] = {"stdout": [], "stderr": []}
    for member in members:
        streams["stderr" if member.path.stem == "stderr" or member.path.suffix == ".err" else "stdout"].append(member)
    if not all(streams.values()):
        return members, ()
    step_counts = {name: sum(len(_STEP_WORDS.findall(member.data)) for member in stream) for name, stream in streams.items()}
    name = max(step_counts, key=lambda name: step_counts[name])
    other_name = "stderr" if name == "stdout" else "stdout"
    return streams[name], (f"files of {other_name} left out",)


def _select_files(path: Path, files: Sequence[Path]) -> tuple[list[Path], tuple[str, ...]]:
    """Return the files of a folder or archive with the most frequent ending, and a note about the others."""
    if reports := _trial_reports(files):
        return reports, ()
    visible = [file for file in files if not _is_hidden(_relative_path(path, file))]
    endings = Counter(_ending(file) for file in visible if _ending(file) not in _IGNORED_ENDINGS or len(visible) == 1)
    if not endings:
        return [], ()
    # Among equally frequent endings, those of notes come last.
    ending = max(endings, key=lambda ending: (endings[ending], ending not in (".txt", ".md", "")))
    excluded = [file.name for file in visible if _ending(file) != ending]
    notes = (f"files of {path} with other endings than {ending or 'none'} left out: {briefly(excluded)}",) if excluded else ()
    return [file for file in visible if _ending(file) == ending], notes


def _trial_reports(files: Sequence[Path]) -> list[Path]:
    """Return the reports of Ray's trials, which lie next to files of their state."""
    trial_folders = {file.parent for file in files if file.name == _TRIAL_MARKER}
    reports = ([file for file in files if file.name == name and file.parent in trial_folders] for name in _REPORTS)
    return next((group for group in reports if group), [])


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in path.parts)


def _relative_path(path: Path, file: Path) -> Path:
    return file.relative_to(path) if file.is_relative_to(path) else file


def _ending(path: Path) -> str:
    if ".tfevents." in path.name:  # a host and numbers follow
        return ".tfevents"
    if path.suffix == ".err":  # next to `.out`
        return ".out"
    packed = {ending for ending, _ in _PACKED.values()}
    ending = next((suffix for suffix in reversed(path.suffixes) if suffix.lower() not in packed), "").lower()
    return ".N" if ending[1:].isdigit() else ending  # `workerlog.0`, `workerlog.1`: a series


def _members(path: Path) -> Iterator[Content]:
    """Yield the file, or the members of an archive."""
    with disk.opened(path) as file:
        data = file.read()
    try:
        if data.startswith(b"PK\x03\x04"):  # a zip archive
            with ZipFile(io.BytesIO(data)) as archive:
                zipped = {Path(member.filename): member for member in archive.infolist() if not member.is_dir()}
                if Path("xl/workbook.xml") in zipped:  # an Excel file is one
                    raise _pandas_error(path, "xlsx")
                packed: Mapping[Path, _Packed] = {
                    name: (archive.open, member.compress_size, member) for name, member in zipped.items()
                }
                yield from _archive_members(path, packed)
        elif (data := _unpack(path, data))[_TAR] == b"ustar":
            with TarFile(fileobj=io.BytesIO(data)) as tape:
                taped = {Path(member.name): member for member in tape if member.isfile()}
                packed = {name: (tape.extractfile, member.size, member) for name, member in taped.items()}
                yield from _archive_members(path, packed)
        else:
            yield _decode(path, data)
    except (BadZipFile, TarError, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise FredError(f"cannot read {path}: it is a damaged or locked archive ({type(error).__name__})") from None


def _archive_members(path: Path, members: Mapping[Path, _Packed]) -> Iterator[Content]:
    """Yield the members of an archive.

    Args:
        path: the archive.
        members: packed members by name.
    """
    names, notes = _select_files(path, sorted(members))
    for i, name in enumerate(names):
        open_member, packed_bytes, member = members[name]
        with open_member(member) as file:
            data = _unpack(path / name, _read_limited(path, file, packed_bytes))
        content = _decode(path / name, data)
        yield replace(content, notes=(*notes, *content.notes)) if i == 0 else content


def _unpack(path: Path, data: bytes) -> bytes:
    """Return the bytes without compression, which their first bytes show."""
    reader = next((reader for magic, (_, reader) in _PACKED.items() if data.startswith(magic)), None)
    if reader is None:
        return data
    try:
        return _read_limited(path, reader(io.BytesIO(data)), packed_bytes=len(data))
    except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise FredError(f"cannot read {path}: its compressed bytes are damaged or cut off ({type(error).__name__})") from None


def _read_limited(path: Path, file: IO[bytes], packed_bytes: int) -> bytes:
    # A few kilobytes can unpack to terabytes. So unpacking stops at `_MOST_RATIO` times the packed bytes, or at 8 GiB, before
    # the memory is full. Up to 256 MiB any ratio is accepted.
    limit = min(_MOST_BYTES, max(_ANY_RATIO_BYTES, _MOST_RATIO * packed_bytes))
    data = file.read(limit + 1)
    if len(data) > limit:
        raise FredError(f"cannot read {path}: unpacked it has more than {limit:,} bytes; unpack it, and name the file")
    return data


def _decode(path: Path, data: bytes) -> Content:
    """Return the content with its kind, and text in UTF-8. Raises FredError for kinds that only pandas reads."""
    kind = next((kind for magic, kind in _BINARY.items() if data.startswith(magic)), "text")
    if kind in _PANDAS_READERS:
        raise _pandas_error(path, kind)
    if kind == "npy":
        is_member = path.parent.suffix.lower() == ".npz"  # a zip archive of arrays
        load = f"numpy.load('{path.parent}')['{path.stem}']" if is_member else f"numpy.load('{path}')"
        raise FredError(f"cannot read {path}: it is an array without names; {matrix_command(load, path.stem)}")
    if kind != "text":
        return Content(path, data, kind)
    encoding = next((name for mark, name in _ENCODINGS if data.startswith(mark)), "utf-8-sig")
    if encoding == "utf-8-sig" and b"\0" in data[:_HEAD]:
        # UTF-16 without a byte order mark: in Latin text, nearly every second byte is zero. Other zeros are of binary files.
        pairs = data[: _HEAD // 2 * 2]
        zeros = [pairs[first::2].count(0) / max(len(pairs) // 2, 1) for first in (0, 1)]
        if max(zeros) < 0.4 or min(zeros) > 0.1:
            return Content(path, data, "binary")
        encoding = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    try:
        if encoding == "utf-8-sig" and data.isascii():
            return Content(path, data)
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8-sig":
            raise FredError(f"cannot read {path}: its text is cut off or damaged ({encoding})") from None
        line = 1 + data[: error.start].count(b"\n")
        text, encoding = data.decode("cp1252", errors="replace"), "cp1252"
        return Content(path, text.encode(), "text", (f"text in Windows-1252, because line {line} is not UTF-8",), encoding)
    is_utf_8 = encoding == "utf-8-sig"
    return Content(path, text.encode(), "text", () if is_utf_8 else (f"text in {encoding}",), "" if is_utf_8 else encoding)


def matrix_command(load: str, stem: str) -> str:
    """Return commands that write a matrix of times as a table with a column for each worker.

    Args:
        load: expression in Python that loads the matrix.
        stem: name of the table's file, without its ending.
    """
    command = f"import numpy, pandas; pandas.DataFrame({load}).add_prefix('worker').to_csv('{stem}.csv', index=False)"
    return f'if its rows are iterations, write `python -c "{command}"`; if they are workers, with `.T` before `.add_prefix`'


def _pandas_error(path: Path, kind: str) -> FredError:
    load, name = f"pandas.{_PANDAS_READERS[kind]}('{path}')", path.stem or path.name
    command, form = f"{load}.to_csv('{name}.csv')", "CSV"
    if kind == "pickle":  # of a table, or of dicts, as FedScale's
        dump = f"json.dump(d, open('{name}.json', 'w'), default=float)"
        command, form = f"import json; d = {load}; d.to_json('{name}.json') if hasattr(d, 'to_json') else {dump}", "JSON"
    return FredError(f'cannot read {path}: it is a file of {kind}; write it as {form}: `python -c "import pandas; {command}"`')
