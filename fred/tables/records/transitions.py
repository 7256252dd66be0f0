"""Logs in which machines go down and come up: a row with the machine, the time and the new state, as monitors write them.

A failure lasts from a machine's first row that is down to its next that is up, a session the other way round. A table whose
states are other words is none of these [Nagios, `HOST ALERT`: DOWN, UP; Kubernetes, node conditions: NotReady, Ready].
"""

from collections.abc import Sequence

from fred.base.errors import FredError, briefly
from fred.tables.columns import File
from fred.tables.common_names import MACHINES
from fred.tables.content import Content
from fred.tables.named_units import split_unit, to_snake_case
from fred.tables.opening import open_table
from fred.tables.quantities import seconds_in
from fred.tables.records.record import Change, Record, record_changes
from fred.tables.table_commands import rewrite_command

NAME = "machines that go down and come up"
KINDS = ("failures", "sessions")
_STATES = ("state", "new_state", "status", "event", "event_type", "transition", "condition", "what", "reason", "alert")
_TIMES = ("timestamp", "time", "date", "datetime", "at", "when", "ts", "moment", "event_time", "changed_at")
_DOWN = {
    *("down", "offline", "off", "fail", "failed", "failure", "error", "critical", "unreachable", "lost", "dead", "preempt"),
    *("preempted", "evicted", "terminated", "stopped", "firing", "left", "leave", "discharging"),
}
_UP = {
    *("up", "online", "on", "ok", "ready", "recovered", "recovery", "repaired", "restored", "running", "available", "healthy"),
    *("started", "start", "resolved", "joined", "join", "back", "plugged", "charging"),
    *("connected", "reachable", "active", "alive"),
}
_DOWN |= {f"{no}{state}" for state in _UP for no in ("not_", "not", "un", "in", "dis")}
_SPELLS = {  # what begins and ends -> True if the machine is up meanwhile
    **dict.fromkeys(("fault", "failure", "outage", "downtime", "incident", "error"), False),
    **dict.fromkeys(("session", "charge", "charging", "availability", "uptime"), True),
}
_SUBJECTS = ("node", "host", "instance", "machine", "worker", "client", "device", "vm", "gpu")
_FIRST, _LAST = {"start", "started", "begin", "began"}, {"end", "ended", "stop", "stopped", "cleared", "resolved"}
_LEAST_DATE = 9e8  # s since 1970: smaller times are those of a record's own clock


def sniff(file: Content) -> bool:
    """Return True for a table of machines, times and states that are all known words.

    Args:
        file: content of the file.
    """
    if not any(name in file.head.lower() for name in _STATES):
        return False
    try:
        table = open_table(file)
        names = _find_columns(table)
        states = {is_up(text) for text in table.texts(names[2])} if len(names) == 3 else {None}
        return None not in states or {True, False} <= states
    except FredError:
        return False


def is_up(state: str) -> bool | None:
    """Return True for a word that means that a machine is up, False for down, None for another one.

    Args:
        state: the word, or several, such as `NodeNotReady`.

    >>> [is_up(word) for word in ("NodeNotReady", "NodeReady", "fault_start", "session_end", "unplugged", "reboot")]
    [False, True, False, False, False, None]
    """
    words = to_snake_case(state).split("_")
    if len(words) == 2 and words[0] in _SPELLS and words[1] in _FIRST | _LAST:
        return _SPELLS[words[0]] == (words[1] in _FIRST)
    word = "_".join(words[1:] if words[0] in _SUBJECTS else words)
    return True if word in _UP else False if word in _DOWN else None


def find_state_columns(table: File) -> tuple[str, str, str] | None:
    """Return columns that may hold machines, times and states, by their contents; None if no column has both states.

    Args:
        table: a table in which machines go down and come up, under any names.
    """
    states = [name for name in table.header if {True, False} <= {is_up(text) for text in table.texts(name)}]
    rest = [name for name in table.header if name not in states]
    times = [name for name in rest if table.has_moments(name)] or [name for name in rest if _last_part(name) in _TIMES]
    machines = [name for name in rest if _last_part(name) in MACHINES and name not in times]
    return (machines[0], times[0], states[0]) if states and times and machines else None


def _last_part(name: str) -> str:
    return to_snake_case(name.rpartition("/")[2])


def read(file: Content, kind: str) -> Record:
    """Return the failures, worker, down, up; or the sessions, member, begin, end. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures` or `sessions`.
    """
    table = open_table(file)
    machine, time, state = _find_columns(table)
    _, *units = [factor for _, factor in split_unit(time, seconds_in)]
    times = table.columns([], [time])[1][time]
    units = [seconds_in(table.unit(time)) or 1.0] if table.unit(time) else units
    moments = (times * (units[-1] if units else 1.0)).tolist()
    if max(moments, default=0.0) < _LEAST_DATE and not units:
        cure = rewrite_command(file, f".rename(columns={{{time!r}: {time + '_s'!r}}})")
        raise FredError(
            f"{file.path}: `{time}` has neither dates nor a unit; add it, such as `{time}_hours`; if it is s: {cure}"
        )
    machines, states = table.texts(machine), table.texts(state)
    if unknown_states := sorted({text for text in states if is_up(text) is None}):
        valid_states = sorted({*states} - {*unknown_states})
        cure = rewrite_command(file, f"[lambda t: t[{state!r}].isin({valid_states})]")
        raise FredError(
            f"{file.path}: states in `{state}` that are neither up nor down: {briefly(unknown_states)}; leave them out: {cure}"
        )
    changes = [Change(*row) for row in zip(machines, moments, [bool(is_up(text)) for text in states], strict=True)]
    return record_changes(file, kind, changes, table.describe_row)


def _find_columns(table: File) -> Sequence[str]:
    """Return the columns of machines, times and states; fewer if one is missing or not the only one."""
    kinds = [[name for name in table.header if _last_part(name) in words] for words in (MACHINES, (), _STATES)]
    kinds[1] = [name for name in table.header if any(stem in _TIMES for stem, _ in split_unit(name, seconds_in))]
    return [names[0] for names in kinds if len(names) == 1]
