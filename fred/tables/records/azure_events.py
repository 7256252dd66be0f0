"""Evicted and restarted machines of Azure, from answers of its Scheduled Events service, one or many, as a script wrote them.

An event is repeated in each answer until it has passed. Its machines are down from `NotBefore` on; the service does not tell
when they are up again, unless the event has a duration [learn.microsoft.com, "Scheduled Events for Linux VMs"].
"""

import json
import re
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

from fred.base.errors import FredError
from fred.tables import quantities
from fred.tables.content import Content
from fred.tables.records.record import Record, rows_table

NAME = "Azure's scheduled events"
KINDS = ("failures",)
_DOWN = ("Preempt", "Reboot", "Redeploy", "Terminate")
_MARK = re.compile(rf'"EventType"\s*:\s*"(?:{"|".join(_DOWN)}|Freeze)"')


def sniff(file: Content) -> bool:
    """Return True for a file with such an event.

    Args:
        file: content of the file.
    """
    return _MARK.search(file.head) is not None


def read(file: Content, kind: str) -> Record:
    """Return the failures: worker, down, up. Raises FredError.

    Args:
        file: content of the file.
        kind: `failures`.
    """
    rows: dict[tuple[str, str], tuple[str, float, float | None]] = {}
    for event in _events(list(_answers(file.text))):
        if event.get("EventType") in _DOWN and (text := str(event.get("NotBefore") or "")):
            down, length = _moment(file, text), event.get("DurationInSeconds")
            up = down + length if isinstance(length, int) and length > 0 else None
            for machine in event.get("Resources") or ():
                rows.setdefault((str(event.get("EventId", text)), str(machine)), (str(machine), down, up))
    record = rows_table(file, ("worker", "down", "up"), list(rows.values()))
    record.notes.append("a machine is down for the event's duration; without one, to the end")
    return Record(record)


def _answers(text: str) -> Iterator[Any]:
    """Yield the documents of JSON in a text, with or without other text between them."""
    decoder, place = json.JSONDecoder(), 0
    while (place := text.find("{", place)) >= 0:
        try:
            answer, place = decoder.raw_decode(text, place)
            yield answer
        except (ValueError, RecursionError):
            place += 1


def _events(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the events in a document."""
    if isinstance(value, dict) and "EventType" in value:
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _events(part)


def _moment(file: Content, text: str) -> float:
    try:
        if quantities.is_moment(text):
            return float(quantities.parse_moments([text])[0])
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        raise FredError(
            f"{file.path}: `NotBefore` is {text!r}; expected a date such as Tue, 09 Aug 2022 17:07:32 GMT"
        ) from None
