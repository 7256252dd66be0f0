"""States of phones with dates, as FLASH has them: `{"0": {"messages": "2020-01-02 10:00:00\\tbattery_charged_on\\n..."}}`.

Yang et al., "Characterizing impacts of heterogeneity in federated learning upon large-scale smartphone data", WWW 2021. A
phone is available while its screen is off or locked, it charges, and has wifi [`Timer` in PKU-Chengxu/FLASH].
"""

from fred.base.errors import FredError
from fred.tables import quantities
from fred.tables.common_names import MACHINES
from fred.tables.content import Content
from fred.tables.named_units import to_snake_case
from fred.tables.opening import open_table
from fred.tables.records.record import Record, objects_by_name, rows_table

NAME = "FLASH"
KINDS = ("sessions",)
_STATES = {
    **{"screen_off": ("off", True), "screen_on": ("off", False), "screen_lock": ("locked", True)},
    **{"screen_unlock": ("locked", False), "battery_charged_on": ("charges", True), "battery_charged_off": ("charges", False)},
    **{"wifi": ("wifi", True), "wifi_on": ("wifi", True), "wifi_off": ("wifi", False)},
    **dict.fromkeys(("unknown", "2g", "3g", "4g", "5g"), ("wifi", False)),
}
_DATES, _EVENTS = ("time", "timestamp", "date", "datetime"), ("state", "event", "message", "status")
_IGNORED_STATES = ("battery_low", "battery_okay", "phone_off", "phone_on")


def sniff(file: Content) -> bool:
    """Return True for a file with states of batteries or screens.

    Args:
        file: content of the file.
    """
    return "battery_charged_o" in file.head or ('"messages"' in file.head and "screen_o" in file.head)


def read(file: Content, kind: str) -> Record:
    """Return the sessions: member, begin, end, as dates in s since 1970. Raises FredError.

    Args:
        file: content of the file.
        kind: `sessions`.
    """
    rows, times = [], list[float]()
    for name, events in _events(file).items():
        state, begin = dict.fromkeys(("off", "locked", "charges", "wifi"), False), None
        for place, (moment, event) in enumerate(events):
            if event not in _STATES and event not in _IGNORED_STATES and not event.endswith("%"):
                raise FredError(f"{file.path}: client {name} has the state `{event}`; expected one of {', '.join(_STATES)}")
            field, value = _STATES.get(event, ("", False))
            state |= {field: value} if field else {}
            if place + 1 < len(events) and events[place + 1][0] == moment:
                continue
            is_available = (state["off"] or state["locked"]) and state["charges"] and state["wifi"]
            if is_available and begin is None:
                begin = moment
            elif begin is not None and (not is_available or place + 1 == len(events)):
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
