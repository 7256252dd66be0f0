"""Archives of failures: of Los Alamos, of the Failure Trace Archive, and of Google's machines.

Failures of machines at Los Alamos: a row for each, with `nodenum`, `Prob Started` and `Prob Fixed`.
Bianca Schroeder and Garth Gibson, "A large-scale study of failures in high-performance computing systems", DSN 2006. The
header of the published table is the one that Derek Jones quotes in ESEUR-code-data, `reliability/LANL-node-total-fail.R`.

Event traces of the Failure Trace Archive: intervals in which nodes are available or not, on the clock of Unix.
Kondo, Javadi, Iosup, Epema, "The Failure Trace Archive", CCGrid 2010; `event_trace` in its page FTAFormat: `event_type` is 0
for unavailable and 1 for available, times are s since 1970.

Google's `machine_events` of 2011: a row of time, machine, event, platform, CPUs and memory, without a header.
Times are us, from 600 s before the trace; 0 means that the machine was there before. Events are 0 add, 1 remove, 2 update
[Reiss, Wilkes, Hellerstein, "Google cluster-usage traces: format + schema", 2011]. Only 0 and 1 are changes.
"""

import re

from fred.base.errors import FredError, briefly
from fred.tables.content import Content
from fred.tables.opening import open_table
from fred.tables.quantities import to_snake_case
from fred.tables.records.record import Change, Record, RecordFormat, drop_missing, record_changes, rows_table
from fred.tables.table_commands import select_rows_command

_DATE = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")  # the month comes first


def sniff_lanl(file: Content) -> bool:
    """Return True for a table with the column `Prob Started`.

    Args:
        file: content of the file.
    """
    return "prob started" in file.head.lower()


def read_lanl(file: Content, kind: str) -> Record:
    """Return the failures: worker, down, up. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures`.
    """
    table = open_table(file, "nodenum,Prob Started,Prob Fixed")
    headers: dict[str, str] = {}
    for name in table.header:  # of equal names, the first one counts
        headers.setdefault(to_snake_case(name), name)
    beginnings = ("nodenum", "prob_started", "prob_fixed")  # units may follow, as in `Prob Started (mm/dd/yy)`
    node, down, up = (next((headers[name] for name in headers if name.startswith(begin)), "") for begin in beginnings)
    if not (node and down and up):
        raise FredError(f"{table.path}: expected the columns nodenum, Prob Started and Prob Fixed")
    systems = set(table.texts(headers["system"])) if "system" in headers else {""}
    if len(systems) > 1:
        problem = f"{table.path} has {len(systems)} systems, {briefly(sorted(systems))}"
        raise FredError(f"{problem}; expected one: {select_rows_command(file, {headers['system']: min(systems)})}")
    dates = ([_DATE.sub(_iso, text) for text in table.texts(name)] for name in (down, up))
    rows = [(name, *pair) for name, *pair in zip(table.texts(node), *dates, strict=True)]
    failure_rows = [i for i, (name, begin, _) in enumerate(rows) if name and begin]  # without an end, a failure lasts
    failures = [rows[i] for i in failure_rows]
    return Record(rows_table(file, ("worker", "down", "up"), failures, lambda row: table.describe_row(failure_rows[row])))


def _iso(date: re.Match[str]) -> str:
    return f"{date[3]}-{int(date[1]):02}-{int(date[2]):02}"


LANL = RecordFormat("failures at Los Alamos (LANL)", ("failures",), sniff_lanl, read_lanl)


_COLUMNS = {"failures": ("worker", "down", "up"), "sessions": ("member", "begin", "end")}
_TYPES = {"failures": "0", "sessions": "1"}
_ENDS = ("event_end_time", "event_stop_time")


def sniff_failure_archive(file: Content) -> bool:
    """Return True for a table with the columns `event_type` and `event_start_time`.

    Args:
        file: content of the file.
    """
    return "event_start_time" in file.head and "event_type" in file.head


def read_failure_archive(file: Content, kind: str) -> Record:
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
    selected = [row for row in events if nodes[row] and not begins[row] >= ends[row]]  # a time may be missing: NaN
    if not selected:
        meaning = "failures are those of type 0, sessions those of type 1"
        raise FredError(f"{table.path} has no event of type {_TYPES[kind]}; {meaning}")
    rows = [(nodes[row], begins[row], ends[row]) for row in selected]
    record = rows_table(file, _COLUMNS[kind], rows, lambda row: table.describe_row(selected[row]))
    if not drop_missing(begins):
        raise FredError(f"{table.path}: no event has an event_start_time")
    first, last = min(drop_missing(begins)), max(drop_missing([*begins, *ends]))
    return Record(record, first=first, length=last - first)


FAILURE_ARCHIVE = RecordFormat(
    "the Failure Trace Archive", ("failures", "sessions"), sniff_failure_archive, read_failure_archive
)


_ROW = re.compile(r"(\d+),(\d+),([012]),[^,\d][^,]*,[\d.]*,[\d.]*")
_LEAST_ROWS = 3


def sniff_google_machines(file: Content) -> bool:
    """Return True for rows of such events.

    Args:
        file: content of the file.
    """
    lines = file.head.splitlines()[:100]
    return len(lines) >= _LEAST_ROWS and all(map(_ROW.fullmatch, lines))


def read_google_machines(file: Content, kind: str) -> Record:
    """Return the failures, worker, down, up; or the sessions, member, begin, end. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures` or `sessions`.
    """
    changes, lines = list[Change](), list[int]()
    for line, text in enumerate(file.text.splitlines(), 1):
        time, machine, event, *_ = text.split(",")[:3] if _ROW.fullmatch(text) else ("", "", "")
        if not time:
            raise FredError(f"{file.path}:{line}: expected time, machine, event, platform, CPUs, memory, as in other rows")
        if event != "2":
            changes.append(Change(machine, int(time) / 1e6, event == "0"))
            lines.append(line)
    record = record_changes(file, kind, changes, lambda row: f"{file.path}:{lines[row]}", has_dates=False)
    record.table.notes.append("columns are time in us, machine, and event: 0 add, 1 remove, 2 update, which counts for nothing")
    return record


GOOGLE_MACHINES = RecordFormat("Google's machine_events", ("failures", "sessions"), sniff_google_machines, read_google_machines)
