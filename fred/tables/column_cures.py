"""Refusals of tables whose columns are missing or unknown, with commands that write a table that can be read."""

import difflib
import itertools
from collections.abc import Mapping, Sequence

from fred.base.errors import FredError
from fred.base.words import listed
from fred.components import registry
from fred.tables import quantities
from fred.tables.columns import File
from fred.tables.common_names import MACHINES, VAGUE_NAMES
from fred.tables.content import Content
from fred.tables.failure_counts import count_cure
from fred.tables.named_units import split_name, to_snake_case
from fred.tables.records import transitions
from fred.tables.row_choices import choice_cure, find_choices, is_choice
from fred.tables.table_commands import drop_columns_command, rewrite_command
from fred.tables.table_kinds import Column, Kind

_LEAST_SIMILARITY = 0.75  # of a name that may be a typing error
_WAITING_TIMES = {"lat", "latency", "ping", "rtt", "jitter", "delay"}  # times that are not those of work
Matches = Mapping[str, tuple[str, float]]  # header and factor of each column of a kind


def renaming_cure(file: File, kind: Kind, source: Content, matches: Matches, unknown: Sequence[str]) -> str:
    """Return a command that writes a table with the columns it lacks, from those that may be meant.

    Args:
        file: the table.
        kind: kind of the table.
        source: content of its file.
        matches: header and factor of the columns that it has.
        unknown: its other headers.
    """
    if kind.name == "failures" and not {*matches} & {*kind.column_names("times")} and (advice := count_cure(file)):
        return advice
    if states := transitions.find_state_columns(file):
        machine, time, state = states
        change = (
            f".rename(columns={dict(zip(states, ('machine', 'time', 'state'), strict=True))})[['machine', 'time', 'state']]"
        )
        return f"if `{state}` is the state of `{machine}` from `{time}` on: {rewrite_command(source, change)}"
    texts = {header: [text for text in file.texts(header) if text] for header in unknown}
    dates = [header for header in unknown if any(map(quantities.is_date, texts[header]))]
    machines = [header for header in unknown if to_snake_case(header).endswith(MACHINES) and header not in dates]
    machines.sort(key=lambda header: to_snake_case(header.rpartition("/")[2]) in VAGUE_NAMES)
    words = [
        header
        for header in unknown
        if header not in dates
        and not is_choice(header)
        and not any(quantities.is_number(text) or " " in text for text in texts[header])
    ]
    numeric = [header for header in unknown if texts[header] and all(map(quantities.is_number, texts[header]))]
    candidates_by_content = {"names": machines + words, "times": dates, "numbers": numeric if len(numeric) == 1 else []}
    names: dict[str, str] = {}
    end = kind.column_names("times")[1:]
    missing = [column for column in kind.columns if column.required and column.name not in matches]
    missing = [column for column in missing if not ("length" in matches and column.name in end)]
    for column in missing:
        if candidates := [header for header in candidates_by_content[column.holds] if header not in names]:
            names[candidates[0]] = column.name
    values: dict[str, str] = {}
    parts = [f"`{header}` is `{name}`" for header, name in names.items()]
    for column in missing:
        if column.name in names.values():
            continue
        if column.holds == "names":
            values[column.name], part = "0", "all rows are of one machine"
        elif [column.name] == end:
            values[column.name], part = "None", f"`{column.name}` is open, until the end"
        else:
            return "write a table with these columns"
        parts.append(part)
    choices = find_choices(file, [header for header in unknown if header not in names])
    columns = [*(header for header, _ in matches.values()), *names.values(), *values, *choices]
    change = f".rename(columns={names})" if names else ""
    change += f".assign({', '.join(f'{name}={value}' for name, value in values.items())})" if values else ""
    return f"if {' and '.join(parts)}: {rewrite_command(source, f'{change}[{columns}]')}"


def unknown_columns_error(file: File, kind: Kind, source: Content, matches: Matches, unknown: Sequence[str]) -> FredError:
    """Return the error for columns that a table of a kind does not have.

    No command drops a column that may be one of them, nor one that tells which rows are meant.

    Args:
        file: the table.
        kind: kind of the table.
        source: content of its file.
        matches: header and factor of the columns that it has.
        unknown: its other headers.
    """
    hints = [_describe_unknown(name, kind) for name in unknown]
    place = f"{file.path} has a column {listed(hints)}; {kind.expected}"
    headers = [header for header, _ in matches.values()]
    names: dict[str, str] = {}
    for column in kind.columns:
        candidates = [header for header in unknown if column.name not in matches and header not in names]
        if match := next(((header, name) for header in candidates if (name := _match_unknown(header, column))), None):
            names |= [match]
    if names:
        parts = " and ".join(f"`{header}` is `{name}`" for header, name in names.items())
        choices = find_choices(file, [header for header in unknown if header not in names])
        change = f".rename(columns={names})[{[*headers, *names.values(), *choices]}]"
        return FredError(f"{place}; if {parts}: {rewrite_command(source, change)}")
    for column, header in itertools.product(kind.columns, unknown):
        advice, change = _derive_relative(header, column)
        if change and column.name not in matches:
            relative = f"`{header}` is no `{column.name}`, which is relative; {advice}"
            columns = [*headers, column.name, *find_choices(file, [name for name in unknown if name != header])]
            return FredError(f"{file.path}: {relative}: {rewrite_command(source, f'{change}[{columns}]')}")
    if not {*matches} & {*kind.column_names("numbers"), *kind.column_names("times")}:
        return FredError(f"{place}; write a table with these columns")
    if choices := find_choices(file, unknown):
        return FredError(f"{file.path}: {choice_cure(file, kind, source, choices, matches)}")
    return FredError(f"{place}; leave it out: {drop_columns_command(source, unknown)}")


def _match_unknown(header: str, column: Column) -> str:
    """Return the name that an unknown column has if it is meant as this one, with its unit; an empty text if it is not."""
    if column.holds == "names":
        return ""
    readings = [(stem, unit) for stem, unit in split_name(header) if column.factor(unit) or column.factor(unit.lower())]
    for stem, unit in [*readings, (header, "")]:
        initials = {part[0] for part in to_snake_case(stem).split("_") if part and unit and column.units}
        similar = difflib.get_close_matches(to_snake_case(stem), (column.name, *column.synonyms), 1, _LEAST_SIMILARITY)
        if similar or column.name[0] in initials:
            unit_name = unit if column.factor(unit) else unit.lower()
            return f"{column.name}_{unit_name}" if unit else column.name
    return ""


def _derive_relative(header: str, column: Column) -> tuple[str, str]:
    """Return how a relative column follows from this one, absolute or a time of the same work: in words, and as a change."""
    words = to_snake_case(header).split("_")
    ratio = f"t[{header!r}] / t[{header!r}].median()"
    if words[-1] in column.absolute:
        return "divide it by that of the median", f".assign({column.name}=lambda t: {ratio})"
    if (
        column.is_inverse_of_time
        and any(quantities.seconds_in(unit) for _, unit in split_name(header))
        and not _WAITING_TIMES & {*words}
    ):
        return "divide the median of these times by it", f".assign({column.name}=lambda t: 1 / ({ratio}))"
    return "", ""


def _describe_unknown(header: str, kind: Kind) -> str:
    """Describe an unknown column: the nearest name, or a unit that is not known."""
    names = [column.name for column in kind.columns]
    for name in names:
        if to_snake_case(header).startswith(f"{name}_"):
            return f"`{header}`, whose `{header[len(name) + 1 :]}` is no unit of `{name}`"
    return f"`{header}`{registry.nearest(to_snake_case(header), names) or ', which nothing reads'}"
