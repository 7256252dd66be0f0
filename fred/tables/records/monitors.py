"""Records of monitors: machines that go down and come up, as Kubernetes, Prometheus and logs of states have them.

Events of Kubernetes' nodes from `kubectl get events -o json`: a node is down from `NodeNotReady` to `NodeReady`.
The machine is `involvedObject.name`; `metadata.name` is the event's. Kubernetes counts repetitions in one event, of which it
keeps the first and the last time [`Event` v1 core, Kubernetes API reference].

Prometheus' answer to a query of a range of `up`: a machine is down from its first 0 to its next 1.
`up` is 1 if the last scrape of an instance succeeded [prometheus.io, "Jobs and instances"]. A value holds until the next one.

Logs in which machines go down and come up: a row with the machine, the time and the new state, as monitors write them.
A failure lasts from a machine's first row that is down to its next that is up, a session the other way round. A table whose
states are other words is none of these [Nagios, `HOST ALERT`: DOWN, UP; Kubernetes, node conditions: NotReady, Ready].
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fred.base.errors import FredError, briefly, listed
from fred.tables import quantities
from fred.tables.columns import File
from fred.tables.content import Content, parse_json
from fred.tables.opening import open_table
from fred.tables.quantities import MACHINES, seconds_in, split_unit, to_snake_case
from fred.tables.records.record import Change, Record, RecordFormat, record_changes
from fred.tables.table_commands import rewrite_command

_KUBERNETES_STATES = {"NodeNotReady": False, "NodeReady": True}
_KUBERNETES_TIMES = ("firstTimestamp", "lastTimestamp", "eventTime")
_KUBERNETES_MARK = re.compile(r'\s*\{.*"involvedObject"\s*:', re.DOTALL)


def sniff_kubernetes(file: Content) -> bool:
    """Return True for JSON of events.

    Args:
        file: content of the file.
    """
    return bool(_KUBERNETES_MARK.match(file.head)) and '"items"' in file.head and '"reason"' in file.head


def read_kubernetes(file: Content, kind: str) -> Record:
    """Return the failures, worker, down, up; or the sessions, member, begin, end. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures` or `sessions`.
    """
    document = parse_json(file)
    events = document.get("items") if isinstance(document, dict) else None
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise FredError(f"{file.path}: expected events as from `kubectl get events -A -o json`")
    changes, repeated = list[Change](), 0
    for item, event in enumerate(events):
        subject = event.get("involvedObject") or {}
        if event.get("reason") not in _KUBERNETES_STATES or subject.get("kind", "Node") != "Node":
            continue
        changes += [
            Change(str(subject.get("name")), moment, _KUBERNETES_STATES[event["reason"]])
            for moment in _parse_moments(file, item, event)
        ]
        repeated += int(event.get("count") or 1) > 2  # of two, both times are known
    if not changes:
        reasons = list(dict.fromkeys(str(event.get("reason")) for event in events))
        raise FredError(
            f"{file.path}: no event of a node is NodeNotReady or NodeReady, so there are no {kind}; it has {briefly(reasons)}; "
            "Kubernetes deletes events after an hour: record them with `kubectl get events -A "
            "--field-selector involvedObject.kind=Node -o custom-columns=MACHINE:.involvedObject.name,"
            "TIME:.lastTimestamp,STATE:.reason > events.txt`"
        )
    record = record_changes(file, kind, changes)
    other_events = len(events) - sum(event.get("reason") in _KUBERNETES_STATES for event in events)
    record.table.notes += (
        [f"{other_events} of {len(events)} events are none of NodeNotReady and NodeReady"] if other_events else []
    )
    record.table.notes += [f"of {repeated} events that are repeated, only the first and last time is known"] if repeated else []
    return record


def _parse_moments(file: Content, item: int, event: dict[str, Any]) -> list[float]:
    """Return the first and the last time of an event, s since 1970. Raises FredError."""
    texts = [str(event[name]) for name in _KUBERNETES_TIMES if event.get(name)] or [
        str(event["metadata"].get("creationTimestamp"))
    ]
    if not all(map(quantities.is_moment, texts)):
        raise FredError(f"{file.path}, item {item}: expected a date as `lastTimestamp`; found {briefly(texts)}")
    return sorted({float(moment) for moment in quantities.parse_moments(texts)})


KUBERNETES = RecordFormat("Kubernetes' events of nodes", ("failures", "sessions"), sniff_kubernetes, read_kubernetes)


_PROMETHEUS_MARK = re.compile(r'\s*\{.*"resultType"\s*:', re.DOTALL)
_MACHINES = ("node", "instance", "host", "hostname", "Hostname", "nodename", "kubernetes_node", "exported_instance")
_MOST_STEPS = 3  # shortest intervals between samples without a gap
_QUERY = "`/api/v1/query_range?query=up&start=BEGIN&end=END&step=60`"


def sniff_prometheus(file: Content) -> bool:
    """Return True for an answer of Prometheus.

    Args:
        file: content of the file.
    """
    return bool(_PROMETHEUS_MARK.match(file.head))


def read_prometheus(file: Content, kind: str) -> Record:
    """Return the failures, worker, down, up; or the sessions, member, begin, end. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures` or `sessions`.
    """
    try:
        data = parse_json(file)["data"]
        series = [  # labels and samples
            ({**answer["metric"]}, [(float(time), str(value)) for time, value in answer["values"]]) for answer in data["result"]
        ]
    except (KeyError, TypeError, ValueError):
        raise FredError(f"{file.path}: expected Prometheus' answer for a range of times, as from {_QUERY}") from None
    if not series:
        raise FredError(f"{file.path}: Prometheus' answer is empty; expected a series of each machine, as from {_QUERY}")
    shared_labels = [label for label in _MACHINES if all(label in labels for labels, _ in series)]
    # The label that names the machine has another value in each series.
    label = next((label for label in shared_labels if len({labels[label] for labels, _ in series}) == len(series)), "")
    if not label and shared_labels:
        (name, count), *_ = Counter(labels[shared_labels[0]] for labels, _ in series).most_common(1)
        other_labels = sorted({label for labels, _ in series for label in labels} - {*shared_labels, "__name__"})
        raise FredError(
            f"{file.path}: {count} series of the machine {name}, which differ in {listed(other_labels)}: expected one; "
            f'choose it in the query, as in `up{{{other_labels[0] if other_labels else "job"}="VALUE"}}`'
        )
    if not label:
        names = listed(sorted({label for labels, _ in series for label in labels}))
        raise FredError(f"{file.path}: no label names the machine; expected `instance` or `node`; it has {names}")
    changes = []
    for labels, samples in series:
        if wrong := [value for _, value in samples if value not in ("0", "1")]:
            metric = labels.get("__name__", "the query")
            raise FredError(f"{file.path}: values of {metric} such as {briefly(wrong, 2)}; expected 1 or 0, as from {_QUERY}")
        changes += [Change(labels[label], time, value == "1") for time, value in samples]
    if all(change.is_up for change in changes) and kind == "failures":
        raise FredError(f"{file.path}: all {len(series)} machines are up at all times, so there are no failures")
    record = record_changes(file, kind, changes)
    if gaps := [labels[label] for labels, samples in series if _has_gap([time for time, _ in samples], changes)]:
        record.table.notes.append(f"series with gaps, in which the last value holds: {briefly(gaps)}")
    return record


def _has_gap(times: list[float], changes: list[Change]) -> bool:
    """Return True if samples of a series are missing, within it or at the end of the record."""
    record_end = max(change.moment for change in changes)
    steps = [after - before for before, after in itertools.pairwise([*times, record_end])]
    return max(steps) > _MOST_STEPS * min((step for step in steps if step > 0), default=math.inf)


PROMETHEUS = RecordFormat("Prometheus' `up` of machines", ("failures", "sessions"), sniff_prometheus, read_prometheus)


_TRANSITIONS_STATES = (
    "state",
    "new_state",
    "status",
    "event",
    "event_type",
    "transition",
    "condition",
    "what",
    "reason",
    "alert",
)
_TRANSITIONS_TIMES = ("timestamp", "time", "date", "datetime", "at", "when", "ts", "moment", "event_time", "changed_at")
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


def sniff_transitions(file: Content) -> bool:
    """Return True for a table of machines, times and states that are all known words.

    Args:
        file: content of the file.
    """
    if not any(name in file.head.lower() for name in _TRANSITIONS_STATES):
        return False
    try:
        table = open_table(file)
        names = _find_columns(table)
        states = {is_up(text) for text in table.texts(names[2])} if len(names) == 3 else {None}
        return None not in states or {True, False} <= states  # then reading refuses other words, with a command
    except FredError:
        return False


def is_up(state: str) -> bool | None:
    """Return True for a word that means that a machine is up, False for down, None for another one.

    Args:
        state: the word, or several, such as `NodeNotReady`.

    >>> [is_up(word) for word in ("NodeNotReady", "NodeReady", "fault_start", "session_end", "unplugged", "reboot")]
    [False, True, False, False, False, None]
    """
    words = to_snake_case(state).split("_")  # `fault_start`, then `node_ready` or `ready`
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
    other_columns = [name for name in table.header if name not in states]
    times = [name for name in other_columns if table.has_moments(name)] or [
        name for name in other_columns if _last_part(name) in _TRANSITIONS_TIMES
    ]
    machines = [name for name in other_columns if _last_part(name) in MACHINES and name not in times]
    return (machines[0], times[0], states[0]) if states and times and machines else None


def _last_part(name: str) -> str:
    return to_snake_case(name.rpartition("/")[2])


def read_transitions(file: Content, kind: str) -> Record:
    """Return the failures, worker, down, up; or the sessions, member, begin, end. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures` or `sessions`.
    """
    table = open_table(file)
    machine, time, state = _find_columns(table)
    _, *factors = [factor for _, factor in split_unit(time, seconds_in)]  # the first reading is the name without a unit
    times = table.columns([], [time])[1][time]
    factors = [seconds_in(table.unit(time)) or 1.0] if table.unit(time) else factors  # cells with units count before the name
    moments = (times * (factors[-1] if factors else 1.0)).tolist()
    if max(moments, default=0.0) < _LEAST_DATE and not factors:
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
    kinds = [[name for name in table.header if _last_part(name) in words] for words in (MACHINES, (), _TRANSITIONS_STATES)]
    kinds[1] = [name for name in table.header if any(stem in _TRANSITIONS_TIMES for stem, _ in split_unit(name, seconds_in))]
    return [names[0] for names in kinds if len(names) == 1]


TRANSITIONS = RecordFormat("machines that go down and come up", ("failures", "sessions"), sniff_transitions, read_transitions)
