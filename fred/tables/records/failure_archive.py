"""Event traces of the Failure Trace Archive: intervals in which nodes are available or not, on the clock of Unix.

Kondo, Javadi, Iosup, Epema, "The Failure Trace Archive", CCGrid 2010; `event_trace` in its page FTAFormat: `event_type` is 0
for unavailable and 1 for available, times are s since 1970.
"""

import math

from fred.base.errors import FredError
from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.tables.records.record import Record, rows_table

NAME = "the Failure Trace Archive"
KINDS = ("failures", "sessions")
_COLUMNS = {"failures": ("worker", "down", "up"), "sessions": ("member", "begin", "end")}
_TYPES = {"failures": "0", "sessions": "1"}
_ENDS = ("event_end_time", "event_stop_time")


def sniff(file: Content) -> bool:
    """Return True for a table with the columns `event_type` and `event_start_time`.

    Args:
        file: content of the file.
    """
    return "event_start_time" in file.head and "event_type" in file.head


def read(file: Content, kind: str) -> Record:
    """Return the intervals of nodes: those in which they are unavailable as failures, the others as sessions.

    Args:
        file: content of the file.
        kind: `failures` or `sessions`.

    Raises FredError.
    """
    table = open_table(file, "node_id,event_type,event_start_time,event_end_time")
    names = {name.lstrip("# "): name for name in table.header}
    node = next((names[name] for name in ("node_id", "node_name", "component_id") if name in names), "")
    end = next((names[name] for name in _ENDS if name in names), "")
    if not node or not end:
        raise FredError(f"{table.path}: expected the columns node_id, event_type, event_start_time and event_end_time")
    types = table.texts(names["event_type"])
    begins, ends = (table.columns([], [name])[1][name].tolist() for name in (names["event_start_time"], end))
    nodes = table.texts(node)
    events = [row for row, event_type in enumerate(types) if event_type == _TYPES[kind]]
    selected = [row for row in events if nodes[row] and not begins[row] >= ends[row]]
    if not selected:
        meaning = "failures are those of type 0, sessions those of type 1"
        raise FredError(f"{table.path} has no event of type {_TYPES[kind]}; {meaning}")
    rows = [(nodes[row], begins[row], ends[row]) for row in selected]
    record = rows_table(file, _COLUMNS[kind], rows, lambda row: table.describe_row(selected[row]))
    return Record(record, first=min(begins), length=max(end for end in (*begins, *ends) if not math.isnan(end)) - min(begins))
