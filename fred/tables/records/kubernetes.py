"""Events of Kubernetes' nodes from `kubectl get events -o json`: a node is down from `NodeNotReady` to `NodeReady`.

The machine is `involvedObject.name`; `metadata.name` is the event's. Kubernetes counts repetitions in one event, of which it
keeps the first and the last time [`Event` v1 core, Kubernetes API reference].
"""

import re
from typing import Any

from fred.base.errors import FredError, briefly
from fred.tables import quantities
from fred.tables.content import Content, parse_json
from fred.tables.records.record import Change, Record, record_changes

NAME = "Kubernetes' events of nodes"
KINDS = ("failures", "sessions")
_STATES = {"NodeNotReady": False, "NodeReady": True}
_TIMES = ("firstTimestamp", "lastTimestamp", "eventTime")
_MARK = re.compile(r'\s*\{.*"involvedObject"\s*:', re.DOTALL)


def sniff(file: Content) -> bool:
    """Return True for JSON of events.

    Args:
        file: content of the file.
    """
    return bool(_MARK.match(file.head)) and '"items"' in file.head and '"reason"' in file.head


def read(file: Content, kind: str) -> Record:
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
    for place, event in enumerate(events):
        subject = event.get("involvedObject") or {}
        if event.get("reason") not in _STATES or subject.get("kind", "Node") != "Node":
            continue
        changes += [
            Change(str(subject.get("name")), moment, _STATES[event["reason"]]) for moment in _moments(file, place, event)
        ]
        repeated += int(event.get("count") or 1) > 2
    if not changes:
        reasons = list(dict.fromkeys(str(event.get("reason")) for event in events))
        raise FredError(
            f"{file.path}: no event of a node is NodeNotReady or NodeReady, so there are no {kind}; it has {briefly(reasons)}; "
            "Kubernetes deletes events after an hour: record them with `kubectl get events -A "
            "--field-selector involvedObject.kind=Node -o custom-columns=MACHINE:.involvedObject.name,"
            "TIME:.lastTimestamp,STATE:.reason > events.txt`"
        )
    record = record_changes(file, kind, changes)
    other_events = len(events) - sum(event.get("reason") in _STATES for event in events)
    record.table.notes += (
        [f"{other_events} of {len(events)} events are none of NodeNotReady and NodeReady"] if other_events else []
    )
    record.table.notes += [f"of {repeated} events that are repeated, only the first and last time is known"] if repeated else []
    return record


def _moments(file: Content, place: int, event: dict[str, Any]) -> list[float]:
    """Return the first and the last time of an event, s since 1970. Raises FredError."""
    texts = [str(event[name]) for name in _TIMES if event.get(name)] or [str(event["metadata"].get("creationTimestamp"))]
    if not all(map(quantities.is_moment, texts)):
        raise FredError(f"{file.path}, item {place}: expected a date as `lastTimestamp`; found {briefly(texts)}")
    return sorted({float(moment) for moment in quantities.parse_moments(texts)})
