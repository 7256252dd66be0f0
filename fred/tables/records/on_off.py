"""Availability of clients: a state and the times at which it changes, as Plato's traces or FedScale's have it.

Plato [TL-System/plato, issue 101]: `{"0": ["off", [54, 890]]}`, off until 54 s. FedScale [`client_behave_trace`]:
`{"0": {"active": [54], "inactive": [890], "finish_time": 1000}}`. Sessions may also stand as pairs: `{"0": [[54, 890]]}`.
"""

import math
import re
from typing import Any

from fred.base.errors import FredError
from fred.tables.content import Content, parse_json
from fred.tables.records.record import Record, rows_table

NAME = "times at which clients come and go"
KINDS = ("sessions",)
_PAIRS = re.compile(r'\{\s*"[^"]*"\s*:\s*\[\s*\[')


def sniff(file: Content) -> bool:
    """Return True for JSON with `on` and `off`, or `active` and `inactive`, by client.

    Args:
        file: content of the file.
    """
    text = file.head.lstrip()
    if _PAIRS.match(text):
        return True
    return text[:1] in ("{", "[") and ('"inactive"' in text or '"off"' in text or '"on"' in text)


def read(file: Content, kind: str) -> Record:
    """Return the sessions: member, begin, end; the record lasts until the last change. Raises FredError.

    Args:
        file: content of the file.
        kind: `sessions`.
    """
    document = parse_json(file)
    if isinstance(document, list):
        document = {str(place): value for place, value in enumerate(document)}
    changes = {name: _changes(file, name, value) for name, value in document.items()} if isinstance(document, dict) else {}
    ends = [float(value.get("finish_time", 0)) for value in document.values() if isinstance(value, dict)] if changes else []
    last = max([*ends, *(time for _, times in changes.values() for time in times)], default=0.0)
    rows = []
    for name, (is_on, times) in changes.items():
        spans = list(zip([0.0, *times], [*times, last], strict=True))[0 if is_on else 1 :: 2]
        rows += [(name, begin, end) for begin, end in spans if begin < end]
    return Record(rows_table(file, ("member", "begin", "end"), rows), length=last)


def _changes(file: Content, name: str, value: Any) -> tuple[bool, list[float]]:
    """Return the first state of a client, and the times at which it changes. Raises FredError."""
    try:
        if isinstance(value, dict):
            begins, ends = ([float(time) for time in value[key]] for key in ("active", "inactive"))
            is_on = bool(ends) and (not begins or ends[0] < begins[0])
            times = sorted({*begins} ^ {*ends})
            states = [time in {*begins} for time in times]
            is_valid = all(state == (place % 2 == is_on) for place, state in enumerate(states))
        else:
            is_on, changes = False, [time for pair in value for time in pair]
            if value[0] in ("on", "off"):
                is_on, changes = value[0] == "on", value[1]
            times = [float(time) for time in changes]
            is_valid = times == sorted(times) and (value[0] in ("on", "off") or all(len(pair) == 2 for pair in value))
    except (IndexError, KeyError, TypeError, ValueError):
        is_valid, times = False, []
    if not is_valid or not all(0 <= time < math.inf for time in times):
        raise FredError(
            f'{file.path}: expected of client {name} a state and increasing times of its changes in s, ["off", [54, 890]], or '
            '{"active": [54], "inactive": [890], "finish_time": 1000}; or give a CSV with the columns member, begin, end'
        )
    return is_on, times
