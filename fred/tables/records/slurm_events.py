"""Events of Slurm's nodes, from `sacctmgr show event -P format=NodeName,TimeStart,TimeEnd,State`: nodes that are down.

Columns are those of Slurm's page `sacctmgr`, LIST/SHOW EVENT FORMAT OPTIONS. Drained nodes finish their
jobs, so they do not count.
"""

import re

from fred.base.errors import FredError
from fred.tables import quantities
from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.tables.records.record import Record, rows_table

NAME = "Slurm's node events"
KINDS = ("failures",)
_COMMAND = "`sacctmgr show event -P format=NodeName,TimeStart,TimeEnd,State > failures.txt`"
_DOWN = ("DOWN", "FAIL", "ERROR", "NO_RESPOND", "POWER")


def sniff(file: Content) -> bool:
    """Return True for a table with the columns `NodeName` and `TimeStart`.

    Args:
        file: content of the file.
    """
    first = file.head.lstrip().partition("\n")[0]
    return "NodeName" in first and "TimeStart" in first


def read(file: Content, kind: str) -> Record:
    """Return the failures: worker, down, up. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures`.
    """
    if not re.search("[|,]", file.head.lstrip().partition("\n")[0]):
        raise FredError(f"{file.path}: the output of sacctmgr cuts long names; write it with bars: {_COMMAND}")
    table = open_table(file, "NodeName|TimeStart|TimeEnd|State")
    if missing := [name for name in ("NodeName", "TimeStart", "TimeEnd", "State") if name not in table.header]:
        raise FredError(f"{file.path} has no column {missing[0]}; write it with {_COMMAND}")
    nodes, downs, ups, states = (table.texts(name) for name in ("NodeName", "TimeStart", "TimeEnd", "State"))
    failures = [row for row, state in enumerate(states) if nodes[row] and state.upper().startswith(_DOWN)]
    if not failures:
        raise FredError(f"{file.path}: no node is down, so there are no failures")
    rows = [(nodes[row], downs[row], ups[row] if quantities.is_moment(ups[row]) else None) for row in failures]
    record = rows_table(file, ("worker", "down", "up"), rows, lambda row: table.describe_row(failures[row]))
    record.notes.append(f"{len(failures)} of {len(states)} events are of nodes that are down")
    return Record(record)
