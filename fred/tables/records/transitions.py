"""Logs in which machines go down and come up: a row with the machine, the time and the new state, as monitors write them.

A failure lasts from a machine's first row that is down to its next that is up, a session the other way round. A table whose
states are other words is none of these [Nagios, `HOST ALERT`: DOWN, UP; Kubernetes, node conditions: NotReady, Ready].
"""

from collections import defaultdict
from collections.abc import Sequence

from fred.base.errors import FredError
from fred.tables.columns import File
from fred.tables.common_names import MACHINES
from fred.tables.content import Content
from fred.tables.named_units import plain
from fred.tables.opening import opened
from fred.tables.records.record import Record, rows_table

NAME = "machines that go down and come up"
KINDS = ("failures", "sessions")
_STATES = ("state", "new_state", "status", "event", "event_type", "transition", "condition", "what")
_TIMES = ("timestamp", "time", "date", "datetime", "at", "when", "ts", "moment", "event_time", "changed_at")
_DOWN = (
    *("down", "offline", "fail", "failed", "failure", "error", "critical", "unreachable", "notready", "not_ready", "lost"),
    *(
        "dead",
        "preempt",
        "preempted",
        "evicted",
        "terminated",
        "stopped",
        "unavailable",
        "unhealthy",
        "firing",
        "left",
        "leave",
    ),
)
_UP = (
    *("up", "online", "ok", "ready", "recovered", "recovery", "repaired", "restored", "running", "available", "healthy"),
    *("started", "start", "resolved", "joined", "join", "back"),
)


def sniff(file: Content) -> bool:
    """Return True for a table of machines, times and states that are all known words.

    Args:
        file: content of the file.
    """
    first = file.head.lstrip().partition("\n")[0].lower()
    if not any(name in first for name in _STATES):
        return False
    try:
        table = opened(file)
        names = _names(table)
        return len(names) == 3 and {plain(text) for text in table.texts(names[2])} <= {*_DOWN, *_UP}
    except FredError:
        return False


def read(file: Content, kind: str) -> Record:
    """Return the failures, worker, down, up; or the sessions, member, begin, end. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures` or `sessions`.
    """
    table = opened(file)
    machine, time, state = _names(table)
    moments = table.columns([], [time])[1][time].tolist()
    machines, is_up = table.texts(machine), [plain(text) in _UP for text in table.texts(state)]
    rows_of = defaultdict[str, list[int]](list)
    for row in sorted(range(len(moments)), key=lambda row: (moments[row], row)):
        rows_of[machines[row]].append(row)
    begins_up, first = kind == "sessions", min(moments, default=0.0)
    spans, lines = list[tuple[str, float, float | None]](), list[int]()
    for name, rows in rows_of.items():
        begin = first if begins_up and not is_up[rows[0]] else None  # it was up before its first row
        for row in rows:
            if is_up[row] == begins_up:
                begin = moments[row] if begin is None else begin
            elif begin is not None:
                if moments[row] > begin:
                    spans.append((name, begin, moments[row]))
                    lines.append(row)
                begin = None
        if begin is not None:
            spans.append((name, begin, None))
            lines.append(rows[-1])
    columns = ("member", "begin", "end") if begins_up else ("worker", "down", "up")
    return Record(rows_table(file, columns, spans, lambda row: table.where(lines[row])), first=first)


def _names(table: File) -> Sequence[str]:
    """Return the columns of machines, times and states; fewer if one is missing or not the only one."""
    kinds = [[name for name in table.header if plain(name) in known] for known in (MACHINES, _TIMES, _STATES)]
    return [names[0] for names in kinds if len(names) == 1]
