"""Refusals of tables whose columns are missing or unknown, with commands that write a table that can be read."""

import difflib
import itertools
from collections.abc import Mapping, Sequence

from fred.base.errors import FredError
from fred.base.words import listed
from fred.components import registry
from fred.tables import quantities
from fred.tables.columns import File
from fred.tables.common_names import MACHINES, VAGUE
from fred.tables.content import Content
from fred.tables.named_units import plain, split_name
from fred.tables.records import transitions
from fred.tables.table_commands import without_columns, written
from fred.tables.table_kinds import Column, Kind

_CUT = 0.75  # similarity from which on a name may be a typing error
_WAITS = {"lat", "latency", "ping", "rtt", "jitter", "delay"}  # times that are not those of work
Matches = Mapping[str, tuple[str, float]]  # header and factor of each column of a kind


def renamed(file: File, kind: Kind, source: Content, matches: Matches, unknown: Sequence[str]) -> str:
    """Return a command that writes a table with the columns it lacks, from those that may be meant.

    Args:
        file: the table.
        kind: kind of the table.
        source: content of its file.
        matches: header and factor of the columns that it has.
        unknown: its other headers.
    """
    if states := transitions.columns_of_states(file):
        machine, time, state = states
        change = (
            f".rename(columns={dict(zip(states, ('machine', 'time', 'state'), strict=True))})[['machine', 'time', 'state']]"
        )
        return f"if `{state}` is the state of `{machine}` from `{time}` on: {written(source, change)}"
    texts = {header: [text for text in file.texts(header) if text] for header in unknown}
    dates = [header for header in unknown if any(map(quantities.is_date, texts[header]))]
    machines = [header for header in unknown if plain(header).endswith(MACHINES) and header not in dates]
    machines.sort(key=lambda header: plain(header.rpartition("/")[2]) in VAGUE)
    words = [
        header
        for header in unknown
        if header not in dates and not any(quantities.is_number(text) or " " in text for text in texts[header])
    ]
    numeric = [header for header in unknown if texts[header] and all(map(quantities.is_number, texts[header]))]
    fits = {"names": machines + words, "times": dates, "numbers": numeric if len(numeric) == 1 else []}
    names: dict[str, str] = {}
    end = kind.names_of("times")[1:]
    lacking = [column for column in kind.columns if column.needed and column.name not in matches]
    lacking = [column for column in lacking if not ("length" in matches and column.name in end)]
    for column in lacking:
        if free := [header for header in fits[column.holds] if header not in names]:
            names[free[0]] = column.name
    values: dict[str, str] = {}
    parts = [f"`{header}` is `{name}`" for header, name in names.items()]
    for column in lacking:
        if column.name in names.values():
            continue
        if column.holds == "names":
            values[column.name], part = "0", "all rows are of one machine"
        elif [column.name] == end:
            values[column.name], part = "None", f"`{column.name}` is open, until the end"
        else:
            return "write a table with these columns"
        parts.append(part)
    columns = [*(header for header, _ in matches.values()), *names.values(), *values]
    change = f".rename(columns={names})" if names else ""
    change += f".assign({', '.join(f'{name}={value}' for name, value in values.items())})" if values else ""
    return f"if {' and '.join(parts)}: {written(source, f'{change}[{columns}]')}"


def unknown_columns(file: File, kind: Kind, source: Content, matches: Matches, unknown: Sequence[str]) -> FredError:
    """Return the error for columns that a table of a kind does not have; no command drops a column that may be one of them.

    Args:
        file: the table.
        kind: kind of the table.
        source: content of its file.
        matches: header and factor of the columns that it has.
        unknown: its other headers.
    """
    hints = [_hint(name, kind) for name in unknown]
    place = f"{file.path} has a column {listed(hints)}; {kind.expected}"
    kept = [header for header, _ in matches.values()]
    names: dict[str, str] = {}
    for column in kind.columns:
        free = [header for header in unknown if column.name not in matches and header not in names]
        if meant := next(((header, name) for header in free if (name := _meant(header, column))), None):
            names |= [meant]
    if names:
        parts = " and ".join(f"`{header}` is `{name}`" for header, name in names.items())
        return FredError(f"{place}; if {parts}: {written(source, f'.rename(columns={names})[{[*kept, *names.values()]}]')}")
    for column, header in itertools.product(kind.columns, unknown):
        words, change = _relative(header, column)
        if change and column.name not in matches:
            relative = f"`{header}` is no `{column.name}`, which is relative; {words}"
            return FredError(f"{file.path}: {relative}: {written(source, f'{change}[{[*kept, column.name]}]')}")
    if not {*matches} & {*kind.names_of("numbers"), *kind.names_of("times")}:
        return FredError(f"{place}; write a table with these columns")
    return FredError(f"{place}; leave it out: {without_columns(source, unknown)}")


def _meant(header: str, column: Column) -> str:
    """Return the name that an unknown column has if it is meant as this one, with its unit; an empty text if it is not."""
    if column.holds == "names":
        return ""
    readings = [(stem, unit) for stem, unit in split_name(header) if column.factor(unit) or column.factor(unit.lower())]
    for stem, unit in [*readings, (header, "")]:
        initials = {part[0] for part in plain(stem).split("_") if part and unit and column.units}
        if difflib.get_close_matches(plain(stem), (column.name, *column.others), 1, _CUT) or column.name[0] in initials:
            known = unit if column.factor(unit) else unit.lower()
            return f"{column.name}_{known}" if unit else column.name
    return ""


def _relative(header: str, column: Column) -> tuple[str, str]:
    """Return how a relative column follows from an absolute one, or from times of the same work: in words, and as a change."""
    words = plain(header).split("_")
    ratio = f"t['{header}'] / t['{header}'].median()"
    if words[-1] in column.absolute:
        return "divide it by that of the median", f".assign({column.name}=lambda t: {ratio})"
    if (
        column.is_inverse_of_time
        and any(quantities.seconds_in(unit) for _, unit in split_name(header))
        and not _WAITS & {*words}
    ):
        return "divide the median of these times by it", f".assign({column.name}=lambda t: 1 / ({ratio}))"
    return "", ""


def _hint(header: str, kind: Kind) -> str:
    """Describe an unknown column: the nearest name, or a unit that is not known."""
    names = [column.name for column in kind.columns]
    for name in names:
        if plain(header).startswith(f"{name}_"):
            return f"`{header}`, whose `{header[len(name) + 1 :]}` is no unit of `{name}`"
    return f"`{header}`{registry.nearest(plain(header), names) or ', which nothing reads'}"
