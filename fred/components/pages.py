"""The tables of algorithms and protocols in `fred/systems`, read from the files' text without importing them."""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fred.base.errors import FredError

FOLDER = Path(__file__).parents[1] / "systems"

Row = Mapping[str, Any]  # definition of an algorithm, from which `fred.systems.rows` makes its class


class Page(NamedTuple):
    """The tables of one file.

    Args:
        module: name of the file's module, as in an import statement.
        algorithms: rows by the algorithm's name in scenarios.
        protocols: names of classes in the file, by the protocol's name in scenarios.
    """

    module: str
    algorithms: Mapping[str, Row]
    protocols: Mapping[str, str]


@cache
def known() -> tuple[Page, ...]:
    """Return FRED's files with tables, in the order of their names.

    >>> from fred.components import pages
    >>> {page.module: list(page.algorithms) for page in pages.known()}["fred.systems.asgd"]
    ['asgd']
    """
    pages = (read(f"fred.systems.{path.stem}", path) for path in sorted(FOLDER.glob("*.py")))
    return tuple(page for page in pages if page.algorithms or page.protocols)


@cache
def of_algorithms() -> dict[str, tuple[Row, str]]:
    """Return the row of each algorithm and the module that holds it, by the algorithm's name."""
    return {name: (row, page.module) for page in known() for name, row in page.algorithms.items()}


def read(module: str, path: Path) -> Page:
    """Return the tables in a file: `ALGORITHMS` and `PROTOCOLS`. Raises FredError if one is not a literal.

    Args:
        module: name of the file's module, as in an import statement.
        path: the file.
    """
    tables: dict[str, Mapping[str, Any]] = {"ALGORITHMS": {}, "PROTOCOLS": {}}
    for node in ast.parse(path.read_text(encoding="utf-8"), path).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and target.id in tables:
                try:
                    tables[target.id] = ast.literal_eval(node.value)
                except (ValueError, TypeError):
                    raise FredError(
                        f"{path}, line {node.lineno}: `{target.id}` must be a literal: it is read, not run"
                    ) from None
    return Page(module, tables["ALGORITHMS"], tables["PROTOCOLS"])
