"""Pages of `fred/systems`: the rows in each, read from its text, so that nothing is imported to list them."""

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "systems"
_TABLE = re.compile(r"^(ALGORITHMS|PROTOCOLS) = (\{[^\n]*\}|\{\n.*?\n\})$", re.MULTILINE | re.DOTALL)

Row = Mapping[str, Any]  # of an algorithm: what `fred.systems.rows` makes its class of


class Page(NamedTuple):
    """The tables of one file.

    Args:
        module: the file's, as in an import statement.
        algorithms: rows by the names that scenarios use.
        protocols: classes in the file, by such names.
    """

    module: str
    algorithms: Mapping[str, Row]
    protocols: Mapping[str, str]


@cache
def known() -> tuple[Page, ...]:
    """Return the pages of FRED that have rows, in the order of their names.

    >>> from fred.components import pages
    >>> {page.module: list(page.algorithms) for page in pages.known()}["fred.systems.asgd"]
    ['asgd']
    """
    pages = (read(f"fred.systems.{path.stem}", path) for path in sorted(FOLDER.glob("*.py")))
    return tuple(page for page in pages if page.algorithms or page.protocols)


@cache
def of_algorithms() -> dict[str, tuple[Row, str]]:
    """Return the row of each algorithm and the module of its page, by the algorithm's name."""
    return {name: (row, page.module) for page in known() for name, row in page.algorithms.items()}


def read(module: str, path: Path) -> Page:
    """Return the tables in a file: `ALGORITHMS` and `PROTOCOLS`, which are literals.

    Args:
        module: the file's, as in an import statement.
        path: the file.
    """
    tables = {name: ast.literal_eval(text) for name, text in _TABLE.findall(path.read_text(encoding="utf-8"))}
    return Page(module, tables.get("ALGORITHMS", {}), tables.get("PROTOCOLS", {}))
