"""`fred new`: write a scenario to start from, and the schema with which editors complete and check it.

The schema lies next to the scenario, which refers to it by a relative path. So both can be moved, shared, or committed to a
repository. An absolute path into the local installation of FRED would break.
"""

import argparse
import filecmp
import os
import re
from pathlib import Path

from fred.base import disk
from fred.base.errors import FredError
from fred.specification import shipped

SCHEMA = "fred.schema.json"
_TEMPLATE = Path(__file__).with_suffix(".yaml")
_POINTER = re.compile(r"^# yaml-language-server: .*$", re.MULTILINE)  # the comment by which editors find the schema


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the output file and the scenario to copy."""
    parser.add_argument("file", type=Path, help="file to write, such as mine.yaml; an existing file is not overwritten")
    parser.add_argument("--from", dest="name", metavar="NAME", help="copy this shipped scenario: see `fred scenarios`")


def run(options: argparse.Namespace) -> int:
    """Write the scenario, the files that it names, and the schema.

    Raises FredError if the scenario or a file that it names exists already. An existing schema stays as it is.
    """
    file: Path = options.file
    if file.suffix not in (".yaml", ".yml"):
        raise FredError(f"{file}: expected a name that ends with .yaml, such as {file.name or 'mine'}.yaml")
    source = shipped.file_of(options.name) if options.name else _TEMPLATE
    text = _POINTER.sub(f"# yaml-language-server: $schema={SCHEMA}", source.read_text(encoding="utf-8"))
    copies = {file.parent / original.name: original for original in _data_files(source, text)} if options.name else {}
    for place in (file, *copies):
        if os.path.lexists(place) and not _is_copy(place, copies.get(place)):
            raise FredError(f"{place} exists and is not overwritten; choose another name or folder")
    schema = file.parent / SCHEMA
    for place, original in (copies | ({} if os.path.lexists(schema) else {schema: shipped.SCHEMA})).items():
        disk.write(place, original.read_bytes())
    disk.write(file, text.encode())
    print(f"wrote {', '.join(map(str, (file, *copies)))}; editors complete it with {schema}", end="")
    print(
        ""
        if _is_copy(schema, shipped.SCHEMA)
        else f", which is from another version of FRED: `fred schema > {schema}` updates it"
    )
    print(f"`fred run {file}` runs it; `fred list` lists what it can name")
    return 0


def _is_copy(place: Path, source: Path | None) -> bool:
    return source is not None and place.is_file() and filecmp.cmp(place, source, shallow=False)


def _data_files(source: Path, text: str) -> list[Path]:
    """Return the data files that a shipped scenario names: `NAME.npz` and every other file in its folder called `NAME`."""
    names = {Path(name).stem for name in re.findall(r"[\w-]+\.npz", text)}
    return sorted(file for file in source.parent.iterdir() if file.stem in names)
