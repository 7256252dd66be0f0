"""`fred new`: a scenario of one's own to begin with, and the schema by which editors complete and check it.

The schema lies beside the scenario, which names it by a relative path: so both may be moved, shared, or kept in a repository,
which a path into one computer's installation of FRED may not.
"""

import argparse
import filecmp
import os
import re
from pathlib import Path

from fred.errors import FredError
from fred.files import places
from fred.specification import shipped

SCHEMA = "fred.schema.json"
_TEMPLATE = Path(__file__).with_suffix(".yaml")
_POINTER = re.compile(r"^# yaml-language-server: .*$", re.MULTILINE)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where to, and what to begin with."""
    parser.add_argument("file", type=Path, help="file to be written, such as mine.yaml; none is overwritten")
    parser.add_argument("--from", dest="name", metavar="NAME", help="copy this shipped scenario: see `fred scenarios`")


def run(options: argparse.Namespace) -> int:
    """Write the scenario, the files that it names, and the schema. Raises FredError where one of the former exists."""
    file: Path = options.file
    if file.suffix not in (".yaml", ".yml"):
        raise FredError(f"{file}: expected a name that ends with .yaml, such as {file.name or 'mine'}.yaml")
    source = shipped.file_of(options.name) if options.name else _TEMPLATE
    text = _POINTER.sub(f"# yaml-language-server: $schema={SCHEMA}", source.read_text(encoding="utf-8"))
    copies = {file.parent / each.name: each for each in _beside(source, text)} if options.name else {}
    for place in (file, *copies):
        if os.path.lexists(place) and not _same(place, copies.get(place)):
            raise FredError(f"{place} exists and is not overwritten; choose another name or folder")
    schema = file.parent / SCHEMA
    for place, each in (copies | ({} if os.path.lexists(schema) else {schema: shipped.SCHEMA})).items():
        places.write(place, each.read_bytes())
    places.write(file, text.encode())
    print(f"wrote {', '.join(map(str, (file, *copies)))}; editors complete it by {schema}", end="")
    print("" if _same(schema, shipped.SCHEMA) else f", which is of another version of FRED: `fred schema > {schema}` renews it")
    print(f"`fred run {file}` runs it; `fred list` says what it can name")
    return 0


def _same(place: Path, source: Path | None) -> bool:
    return source is not None and place.is_file() and filecmp.cmp(place, source, shallow=False)


def _beside(source: Path, text: str) -> list[Path]:
    """The files of a shipped scenario: those in its folder that it names, with what belongs to them under the same name."""
    named = {Path(name).stem for name in re.findall(r"[\w-]+\.npz", text)}
    return sorted(each for each in source.parent.iterdir() if each.stem in named)
