"""Google's `machine_events` of 2011: a row of time, machine, event, platform, CPUs and memory, without a header.

Times are us, from 600 s before the trace; 0 means that the machine was there before. Events are 0 add, 1 remove, 2 update
[Reiss, Wilkes, Hellerstein, "Google cluster-usage traces: format + schema", 2011]. Only 0 and 1 are changes.
"""

import re

from fred.base.errors import FredError
from fred.tables.content import Content
from fred.tables.records.record import Change, Record, record_changes

NAME = "Google's machine_events"
KINDS = ("failures", "sessions")
_ROW = re.compile(r"(\d+),(\d+),([012]),[^,\d][^,]*,[\d.]*,[\d.]*")
_LEAST_ROWS = 3


def sniff(file: Content) -> bool:
    """Return True for rows of such events.

    Args:
        file: content of the file.
    """
    lines = file.head.splitlines()[:100]
    return len(lines) >= _LEAST_ROWS and all(map(_ROW.fullmatch, lines))


def read(file: Content, kind: str) -> Record:
    """Return the failures, worker, down, up; or the sessions, member, begin, end. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures` or `sessions`.
    """
    changes, places = list[Change](), list[int]()
    for line, text in enumerate(file.text.splitlines(), 1):
        time, machine, event, *_ = text.split(",")[:3] if _ROW.fullmatch(text) else ("", "", "")
        if not time:
            raise FredError(f"{file.path}:{line}: expected time, machine, event, platform, CPUs, memory, as in other rows")
        if event != "2":
            changes.append(Change(machine, int(time) / 1e6, event == "0"))
            places.append(line)
    record = record_changes(file, kind, changes, lambda row: f"{file.path}:{places[row]}", has_dates=False)
    record.table.notes.append("columns are time in us, machine, and event: 0 add, 1 remove, 2 update, which counts for nothing")
    return record
