"""Failures of machines at Los Alamos: a row for each, with `nodenum`, `Prob Started` and `Prob Fixed`.

Bianca Schroeder and Garth Gibson, "A large-scale study of failures in high-performance computing systems", DSN 2006. The
header of the published table is the one that Derek Jones quotes in ESEUR-code-data, `reliability/LANL-node-total-fail.R`.
"""

import re

from fred.base.errors import FredError, briefly
from fred.tables.content import Content
from fred.tables.named_units import to_snake_case
from fred.tables.opening import open_table
from fred.tables.records.record import Record, rows_table
from fred.tables.table_commands import select_rows_command

NAME = "failures at Los Alamos (LANL)"
KINDS = ("failures",)
_DATE = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")  # the month comes first


def sniff(file: Content) -> bool:
    """Return True for a table with the column `Prob Started`.

    Args:
        file: content of the file.
    """
    return "prob started" in file.head.lower()


def read(file: Content, kind: str) -> Record:
    """Return the failures: worker, down, up. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures`.
    """
    table = open_table(file, "nodenum,Prob Started,Prob Fixed")
    headers = {to_snake_case(name): name for name in reversed(table.header)}
    begins = ("nodenum", "prob_started", "prob_fixed")
    node, down, up = (next((headers[name] for name in headers if name.startswith(begin)), "") for begin in begins)
    if not node or not up:
        raise FredError(f"{table.path}: expected the columns nodenum, Prob Started and Prob Fixed")
    systems = set(table.texts(headers["system"])) if "system" in headers else {""}
    if len(systems) > 1:
        problem = f"{table.path} has {len(systems)} systems, {briefly(sorted(systems))}"
        raise FredError(f"{problem}; expected one: {select_rows_command(file, {headers['system']: min(systems)})}")
    dates = ([_DATE.sub(_iso, text) for text in table.texts(name)] for name in (down, up))
    rows = [(name, *pair) for name, *pair in zip(table.texts(node), *dates, strict=True)]
    complete = [place for place, row in enumerate(rows) if row[0] and row[1]]
    failures = [rows[place] for place in complete]
    return Record(rows_table(file, ("worker", "down", "up"), failures, lambda row: table.describe_row(complete[row])))


def _iso(date: re.Match[str]) -> str:
    return f"{date[3]}-{int(date[1]):02}-{int(date[2]):02}"
