"""Availability of clients as a table: a row for each time, a column for each client, with 1 or 0, or on or off.

The values of a row hold until the next one. Those of the last row hold as long as those of the row before.
"""

import math

from fred.base.errors import FredError
from fred.tables.content import Content
from fred.tables.named_units import to_snake_case
from fred.tables.opening import open_table
from fred.tables.quantities import is_date, parse_moments
from fred.tables.records.record import Record, rows_table
from fred.tables.table_commands import rewrite_command

NAME = "availability at some times, a column for each client"
KINDS = ("sessions",)
_TIMES = ("time", "timestamp", "date", "datetime", "t", "seconds", "time_s", "time_seconds")
_ONLINE = ("1", "1.0", "true", "on", "yes", "up", "available")
_OFFLINE = ("0", "0.0", "false", "off", "no", "down", "unavailable")


def sniff(file: Content) -> bool:
    """Return True for a text whose first column is a time, above rows of 1 and 0.

    Args:
        file: content of the file.
    """
    lines = [line.replace("\t", ",").replace(";", ",").split(",") for line in file.head.splitlines()[:2]]
    if len(lines) < 2 or len(lines[0]) != len(lines[1]) or to_snake_case(lines[0][0]) not in _TIMES:
        return False
    return len(lines[1]) > 1 and all(cell.strip().lower() in _ONLINE + _OFFLINE for cell in lines[1][1:])


def read(file: Content, kind: str) -> Record:
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
    end = 2 * times[-1] - times[-2]
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
    return Record(
        rows_table(file, ("member", "begin", "end"), rows), times[0] if has_dates else None, end - times[0] * has_dates
    )
