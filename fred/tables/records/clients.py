r"""Records of federated clients: when they are available, and the capacities of their devices.

Availability of clients as a table: a row for each time, a column for each client, with 1 or 0, or on or off.
The values of a row hold until the next one. Those of the last row hold as long as those of the row before.

Availability of clients: a state and the times at which it changes, as Plato's traces or FedScale's have it.
Plato [TL-System/plato, issue 101]: `{"0": ["off", [54, 890]]}`, off until 54 s. FedScale [`client_behave_trace`]:
`{"0": {"active": [54], "inactive": [890], "finish_time": 1000}}`. Sessions may also stand as pairs: `{"0": [[54, 890]]}`.

States of phones with dates, as FLASH has them: `{"0": {"messages": "2020-01-02 10:00:00\tbattery_charged_on\n..."}}`.
Yang et al., "Characterizing impacts of heterogeneity in federated learning upon large-scale smartphone data", WWW 2021. A
phone is available while its screen is off or locked, it charges, and has wifi [`Timer` in PKU-Chengxu/FLASH].

Capacities of devices from FedScale: `computation` in ms a sample, `communication` in kbit/s, for each client.
Lai et al., "FedScale", ICML 2022; the file `client_device_capacity`, `{1: {"computation": 67.0, "communication": 5648.1}}`,
as JSON or as a table. A speed divides compute times, so the median device has speed 1.
"""

import math
import re
from typing import Any

import numpy as np

from fred.base.errors import FredError
from fred.tables import quantities
from fred.tables.content import Content, parse_json
from fred.tables.opening import open_table
from fred.tables.quantities import MACHINES, is_date, parse_moments, to_snake_case
from fred.tables.records.record import Record, RecordFormat, objects_by_name, rows_table
from fred.tables.table_commands import rewrite_command

_TIMES = ("time", "timestamp", "date", "datetime", "t", "seconds", "time_s", "time_seconds")
_ONLINE = ("1", "1.0", "true", "on", "yes", "up", "available")
_OFFLINE = ("0", "0.0", "false", "off", "no", "down", "unavailable")


def sniff_availability(file: Content) -> bool:
    """Return True for a text whose first column is a time, above rows of 1 and 0.

    Args:
        file: content of the file.
    """
    lines = [line.replace("\t", ",").replace(";", ",").split(",") for line in file.head.splitlines()[:2]]
    if len(lines) < 2 or len(lines[0]) != len(lines[1]) or to_snake_case(lines[0][0]) not in _TIMES:
        return False
    return len(lines[1]) > 1 and all(cell.strip().lower() in _ONLINE + _OFFLINE for cell in lines[1][1:])


def read_availability(file: Content, kind: str) -> Record:
    """Return the sessions: member, begin, end. Raises FredError.

    Args:
        file: content of the file.
        kind: `sessions`.
    """
    table = open_table(file, "time,client-0,client-1")
    first, *clients = table.header
    texts = table.texts(first)
    has_dates = is_date(texts[0])
    times = (parse_moments(texts) if has_dates else table.columns([], [first])[1][first]).tolist()
    for row, (previous, time) in enumerate(zip([-math.inf, *times], times, strict=False)):
        if not previous < time:
            raise FredError(f"{table.describe_row(row)}: expected increasing times; found {texts[row]}")
    if len(times) < 2:
        raise FredError(f"{table.path} has one time; expected two or more")
    end = 2 * times[-1] - times[-2]  # the last row lasts as long as the one before
    rows = []
    for client in clients:
        states = [state.lower() for state in table.texts(client)]
        for row, state in enumerate(states):
            if state not in _ONLINE + _OFFLINE:
                cure = f"; if an empty cell means 0: {rewrite_command(file, '.fillna(0)')}" if not state else ""
                raise FredError(f"{table.describe_row(row)}: expected 1 or 0 in column `{client}`; found {state!r}{cure}")
            if state in _ONLINE and (row == 0 or states[row - 1] not in _ONLINE):
                remaining = zip(times[row:], states[row:], strict=True)
                rows.append((client, times[row], next((time for time, state in remaining if state in _OFFLINE), end)))
    sessions = rows_table(file, ("member", "begin", "end"), rows)
    # Without dates, times count from the begin of the record, which may be before the first row.
    return Record(sessions, first=times[0], length=end - times[0]) if has_dates else Record(sessions, length=end)


AVAILABILITY = RecordFormat(
    "availability at some times, a column for each client", ("sessions",), sniff_availability, read_availability
)


_PAIRS = re.compile(r'\{\s*"[^"]*"\s*:\s*\[\s*\[')


def sniff_on_off(file: Content) -> bool:
    """Return True for JSON with `on` and `off`, or `active` and `inactive`, by client.

    Args:
        file: content of the file.
    """
    text = file.head.lstrip()
    if _PAIRS.match(text):
        return True
    return text[:1] in ("{", "[") and ('"inactive"' in text or '"off"' in text or '"on"' in text)


def read_on_off(file: Content, kind: str) -> Record:
    """Return the sessions: member, begin, end; the record lasts until the last change. Raises FredError.

    Args:
        file: content of the file.
        kind: `sessions`.
    """
    document = parse_json(file)
    if isinstance(document, list):
        document = {str(client): value for client, value in enumerate(document)}
    changes = {name: _read_changes(file, name, value) for name, value in document.items()} if isinstance(document, dict) else {}
    ends = [float(value.get("finish_time", 0)) for value in document.values() if isinstance(value, dict)] if changes else []
    last = max([*ends, *(time for _, times in changes.values() for time in times)], default=0.0)
    rows = []
    for name, (is_on, times) in changes.items():
        spans = list(zip([0.0, *times], [*times, last], strict=True))  # on and off alternate
        rows += [(name, begin, end) for begin, end in spans[0 if is_on else 1 :: 2] if begin < end]
    return Record(rows_table(file, ("member", "begin", "end"), rows), length=last)


def _read_changes(file: Content, name: str, value: Any) -> tuple[bool, list[float]]:
    """Return the first state of a client, and the times at which it changes. Raises FredError."""
    try:
        if isinstance(value, dict):
            begins, ends = ([float(time) for time in value[key]] for key in ("active", "inactive"))
            is_on = bool(ends) and (not begins or ends[0] < begins[0])
            times = sorted({*begins} ^ {*ends})  # an end at which the next session begins is no change
            are_begins = [time in {*begins} for time in times]
            is_valid = are_begins == [(i % 2 == 1) == is_on for i in range(len(times))]  # begins and ends alternate
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


ON_OFF = RecordFormat("times at which clients come and go", ("sessions",), sniff_on_off, read_on_off)


_STATES = {
    **{"screen_off": ("off", True), "screen_on": ("off", False), "screen_lock": ("locked", True)},
    **{"screen_unlock": ("locked", False), "battery_charged_on": ("charges", True), "battery_charged_off": ("charges", False)},
    **{"wifi": ("wifi", True), "wifi_on": ("wifi", True), "wifi_off": ("wifi", False)},
    **dict.fromkeys(("unknown", "2g", "3g", "4g", "5g"), ("wifi", False)),
}
_DATES, _EVENTS = ("time", "timestamp", "date", "datetime"), ("state", "event", "message", "status")
_IGNORED_STATES = ("battery_low", "battery_okay", "phone_off", "phone_on")


def sniff_client_behaviour(file: Content) -> bool:
    """Return True for a file with states of batteries or screens.

    Args:
        file: content of the file.
    """
    return "battery_charged_o" in file.head or ('"messages"' in file.head and "screen_o" in file.head)


def read_client_behaviour(file: Content, kind: str) -> Record:
    """Return the sessions: member, begin, end, as dates in s since 1970. Raises FredError.

    Args:
        file: content of the file.
        kind: `sessions`.
    """
    rows, times = [], list[float]()
    for name, events in _events(file).items():
        state, begin = dict.fromkeys(("off", "locked", "charges", "wifi"), False), None
        for i, (moment, event) in enumerate(events):
            if event not in _STATES and event not in _IGNORED_STATES and not event.endswith("%"):
                raise FredError(f"{file.path}: client {name} has the state `{event}`; expected one of {', '.join(_STATES)}")
            field, value = _STATES.get(event, ("", False))
            state |= {field: value} if field else {}
            if i + 1 < len(events) and events[i + 1][0] == moment:
                continue  # events at one moment take effect together
            is_available = (state["off"] or state["locked"]) and state["charges"] and state["wifi"]
            if is_available and begin is None:
                begin = moment
            elif begin is not None and (not is_available or i + 1 == len(events)):
                rows.append((name, begin, moment))
                begin = None
        times += [moment for moment, _ in events]
    if not rows:
        raise FredError(f"{file.path}: no phone is ever available: screen off or locked, charging, with wifi")
    record = rows_table(file, ("member", "begin", "end"), rows)
    record.notes.append("available while the screen is off or locked, the battery charges, and there is wifi")
    return Record(record, first=min(times), length=max(times) - min(times))


def _events(file: Content) -> dict[str, list[tuple[float, str]]]:
    """Return dates, s since 1970, and states of each phone, in order. Raises FredError."""
    if file.head.lstrip().startswith("{"):
        phones = {name: phone.get("messages", "") for name, phone in objects_by_name(file).items()}
        texts = {name: "".join(text) if isinstance(text, list) else str(text) for name, text in phones.items()}
        lines = [
            (name, *line.strip().split("\t")) for name, text in texts.items() for line in text.splitlines() if line.strip()
        ]
    else:
        table = open_table(file, "client,time,state")
        columns = {to_snake_case(name): name for name in table.header}
        headers = [next((columns[name] for name in names if name in columns), "") for names in (MACHINES, _DATES, _EVENTS)]
        if not all(headers):
            raise FredError(f"{file.path} has the columns {', '.join(table.header)}; expected client, time, state")
        lines = list(zip(*map(table.texts, headers), strict=True))
    if malformed := [line for line in lines if len(line) != 3 or not quantities.is_moment(line[1])]:
        name, *fields = malformed[0]
        raise FredError(f"{file.path}: expected a date and a state of each client; client {name} has {tuple(fields)}")
    moments = quantities.parse_moments([line[1] for line in lines]).tolist()
    events: dict[str, list[tuple[float, str]]] = {}
    for (name, _, state), moment in zip(lines, moments, strict=True):
        events.setdefault(name, []).append((moment, state.strip().lower()))
    return {name: sorted(states, key=lambda event: event[0]) for name, states in events.items()}


CLIENT_BEHAVIOUR = RecordFormat("FLASH", ("sessions",), sniff_client_behaviour, read_client_behaviour)


_BYTES = 125.0  # in a kbit


def sniff_fedscale(file: Content) -> bool:
    """Return True for a file with `computation` and `communication`.

    Args:
        file: content of the file.
    """
    return "computation" in file.head and "communication" in file.head


def read_fedscale(file: Content, kind: str) -> Record:
    """Return the devices: speed, upload, download in bytes/s. Raises FredError.

    Args:
        file: content of the file.
        kind: `devices`.
    """
    names = ("computation", "communication")
    if file.head.lstrip().startswith("{"):
        clients = objects_by_name(file)
        try:
            times, rates = (np.array([float(client[name]) for client in clients.values()]) for name in names)
        except (KeyError, TypeError, ValueError):
            raise FredError(f"{file.path}: expected the numbers computation and communication of each client") from None
    else:
        table = open_table(file, "client,computation,communication")
        if missing := [name for name in names if name not in table.header]:
            raise FredError(f"{file.path} has no column `{missing[0]}`; expected {', '.join(names)}")
        times, rates = (table.quantities(name, {"x": 1.0}) for name in names)
    if not len(times) or not (np.all(times > 0) and np.all(rates > 0)):
        raise FredError(f"{file.path}: expected positive numbers of computation (ms a sample) and communication (kbit/s)")
    speeds, bandwidths = (np.median(times) / times).tolist(), (rates * _BYTES).tolist()
    record = rows_table(file, ("speed", "upload", "download"), list(zip(speeds, bandwidths, bandwidths, strict=True)))
    record.notes.append("`computation` in ms, so that the median device has speed 1; `communication` in kbit/s, both ways")
    return Record(record)


FEDSCALE = RecordFormat("FedScale's device capacities", ("devices",), sniff_fedscale, read_fedscale)
