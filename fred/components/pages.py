"""The algorithms and protocols in `fred/systems` and `fred/protocols`, read from the files' text without importing them.

A class whose body has a line such as `name = "gossip"` is a protocol, or an algorithm if it has a `family`, too.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDERS = ("protocols", "systems")
_SOURCE = Path(__file__).parents[1]


class Entry(NamedTuple):
    """A class that scenarios can name.

    Args:
        kind: table of the registry, `algorithm` or `protocol`.
        name: its name in scenarios.
        module: its module, as in an import statement.
        cls: its name in Python.
        family: name of an algorithm's family, a member of `Family`; empty for protocols.
    """

    kind: str
    name: str
    module: str
    cls: str
    family: str


@cache
def entries() -> tuple[Entry, ...]:
    """Return the algorithms and protocols, in the order of the files' names.

    >>> from fred.components import pages
    >>> [entry for entry in pages.entries() if entry.name == "asgd"]
    [Entry(kind='algorithm', name='asgd', module='fred.systems.asgd', cls='ASGD', family='AS_THEY_COME')]
    """
    paths = [path for folder in FOLDERS for path in sorted((_SOURCE / folder).glob("*.py"))]
    return tuple(entry for path in paths for entry in read_entries(f"fred.{path.parent.name}.{path.stem}", path))


def targets(kind: str) -> dict[str, str]:
    """Return the classes of this `kind` as `module:Class`, by their names in scenarios."""
    return {entry.name: f"{entry.module}:{entry.cls}" for entry in entries() if entry.kind == kind}


def read_entries(module: str, path: Path) -> Iterator[Entry]:
    """Yield the algorithms and protocols in a file.

    Args:
        module: name of the file's module, as in an import statement.
        path: the file.
    """
    for node in ast.parse(path.read_text(encoding="utf-8"), path).body:
        lines = [line for line in getattr(node, "body", ()) if isinstance(line, ast.Assign)]
        values = {target.id: line.value for line in lines for target in line.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef) and isinstance(name := values.get("name"), ast.Constant):
            family = getattr(values.get("family"), "attr", "")
            yield Entry("algorithm" if family else "protocol", str(name.value), module, node.name, family)
