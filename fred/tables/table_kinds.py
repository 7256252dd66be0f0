"""Kinds of small tables: their columns, the column that a header means, and refusals with commands that write a readable table.

Columns of text may tell which rows are meant, such as states and products: no command leaves them out.
"""

import difflib
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fred.base.errors import FredError, briefly, listed
from fred.components import registry
from fred.tables import quantities
from fred.tables.columns import File
from fred.tables.content import Content
from fred.tables.quantities import CHOICES, MACHINES, VAGUE_NAMES, UnitFactor, split_name, split_unit, to_snake_case
from fred.tables.records import monitors
from fred.tables.table_commands import drop_columns_command, rewrite_command, select_rows_command

_SAMPLE_ROWS = 20  # rows that tell whether a column has dates
_TIME_FILLERS = {"at", "ts", "timestamp", "date", "datetime", "utc", "went", "came"}  # words that change no meaning
_NUMBER_FILLERS, _RELATIVE_FILLERS = {"avg", "mean", "median", "average"}, {"rel", "relative"}


@dataclass(frozen=True)
class Column:
    """A column that a kind of table has.

    Args:
        name: its name.
        holds: `names`, `times` (s, or dates), `lengths` (durations), or `numbers`.
        synonyms: further names of it, in lower case.
        required: True if the table must have it.
        unit: unit of its numbers, as messages name it.
        factor: function that returns the factor of a unit in the column's name.
        units: factors of units in cells; empty: those of time.
        if_dates: names that mean it only if its cells are dates, because they are durations otherwise.
        absolute: last words of the names of quantities to which it is proportional.
        is_inverse_of_time: True if it is inversely proportional to times of the same work.
    """

    name: str
    holds: str
    synonyms: tuple[str, ...] = ()
    required: bool = True
    unit: str = ""
    factor: UnitFactor = quantities.seconds_in
    units: dict[str, float] = field(default_factory=dict)
    if_dates: tuple[str, ...] = ()
    absolute: tuple[str, ...] = ()
    is_inverse_of_time: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of table: its columns.

    Args:
        name: plural of what a row is, such as `failures`.
        columns: its columns.
        example: a row, as messages show it.
    """

    name: str
    columns: tuple[Column, ...]
    example: str

    def column_names(self, holds: str) -> list[str]:
        """Return the names of the columns with this content.

        Args:
            holds: `names`, `times`, `lengths`, or `numbers`.
        """
        return [column.name for column in self.columns if column.holds == holds]

    @property
    def header(self) -> str:
        """Return the names of the columns, apart from those that replace others."""
        return ",".join(column.name for column in self.columns if column.required or column.holds == "numbers")

    @property
    def expected(self) -> str:
        """Return what a table of this kind has, in words."""
        units: dict[str, list[str]] = {}
        for column in self.columns:
            if column.holds in ("numbers", "times"):
                unit = column.unit or "s from the begin of the run, or as dates"
                units.setdefault(unit, []).append(f"`{column.name}`")
        parts = [f"{' and '.join(names)} in {unit}" for unit, names in units.items()]
        return f"expected {self.header.replace(',', ', ')}: {', '.join(parts)}; a row is such as {self.example}"


def match_column(file: File, header: str, kind: Kind) -> tuple[str, float] | None:
    """Return the column that a header means, and the factor of its unit; None for another one.

    Dates decide between a time and a duration.

    Args:
        file: the table.
        header: name of one of its columns.
        kind: kind of the table.
    """
    is_dated = any(map(quantities.is_date, file.texts(header)[:_SAMPLE_ROWS]))
    for without_fillers in (False, True):  # a column that has the whole name comes first
        for column in kind.columns:
            for stem, factor in split_unit(header, column.factor):
                name = _shorten(stem, header, column) if without_fillers else stem
                is_match = name == column.name or name in column.synonyms or (is_dated and name in column.if_dates)
                if is_match and not (is_dated and column.holds == "lengths"):
                    return column.name, factor
    return None


def _shorten(stem: str, header: str, column: Column) -> str:
    """Return a name without fillers; of a machine in nested JSON, such as `detail/instance-id`, its last part."""
    last = to_snake_case(header.rpartition("/")[2])
    if column.holds == "names" and last in MACHINES and last not in VAGUE_NAMES:
        return last
    number_fillers = _RELATIVE_FILLERS if column.absolute else _NUMBER_FILLERS
    fillers = {"times": _TIME_FILLERS, "numbers": number_fillers}.get(column.holds, set())
    return "_".join(word for word in stem.split("_") if word not in fillers)


_LEAST_SIMILARITY = 0.75  # of a name that may be a typing error
_WAITING_TIMES = {"lat", "latency", "ping", "rtt", "jitter", "delay"}  # times that are not those of work
_MOST_VALUES = 6  # values of a column in a message
Values = Mapping[str, Sequence[str]]
_COUNTS = {"count", "counts", "number", "occurrences", "failures", "interruptions", "incidents", "crashes", "n", "num", "total"}
_MACHINES, _DAYS = 1000, 30  # of the example, to be replaced
Matches = Mapping[str, tuple[str, float]]  # header and factor of each column of a kind


def missing_columns_cure(file: File, kind: Kind, source: Content, matches: Matches, unknown: Sequence[str]) -> str:
    """Return a sentence with a command that adds the missing columns to the table, and what the command assumes.

    Args:
        file: the table.
        kind: kind of the table.
        source: content of its file.
        matches: header and factor of the columns that it has.
        unknown: its other headers.
    """
    if kind.name == "failures" and not {*matches} & {*kind.column_names("times")} and (advice := _count_cure(file)):
        return advice
    if states := monitors.find_state_columns(file):
        machine, time, state = states
        columns = ["machine", "time", "state"]
        change = f".rename(columns={dict(zip(states, columns, strict=True))})[{columns}]"
        return f"if `{state}` is the state of `{machine}` from `{time}` on: {rewrite_command(source, change)}"
    end_columns = kind.column_names("times")[1:]  # the first one is the begin
    replaced = end_columns if "length" in matches else ()
    missing = [column for column in kind.columns if column.required and column.name not in {*matches, *replaced}]
    names = _guess_names(file, missing, unknown)  # header -> missing column
    defaults: dict[str, str] = {}  # values of missing columns that no column can be
    assumptions = [f"`{header}` is `{name}`" for header, name in names.items()]
    for column in missing:
        if column.name in names.values():
            continue
        if column.holds == "names":
            defaults[column.name], assumption = "0", "all rows are of one machine"
        elif column.name in end_columns:
            defaults[column.name], assumption = "None", f"`{column.name}` is open, until the end"
        else:
            return "write a table with these columns"
        assumptions.append(assumption)
    kept_columns = [header for header, _ in matches.values()]
    row_selectors = _find_choices(file, [header for header in unknown if header not in names])
    change = f".rename(columns={names})" if names else ""
    change += f".assign({', '.join(f'{name}={value}' for name, value in defaults.items())})" if defaults else ""
    change += f"[{[*kept_columns, *names.values(), *defaults, *row_selectors]}]"
    return f"if {' and '.join(assumptions)}: {rewrite_command(source, change)}"


def _guess_names(file: File, missing: Sequence[Column], unknown: Sequence[str]) -> dict[str, str]:
    """Return the name of the missing column that an unknown one may be, by its header."""
    candidates_by_content = _candidates_by_content(file, unknown)
    names: dict[str, str] = {}
    for column in missing:
        if candidates := [header for header in candidates_by_content[column.holds] if header not in names]:
            names[candidates[0]] = column.name
    return names


def _candidates_by_content(file: File, unknown: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns that may hold names, times and numbers, by their contents; the likely ones first."""
    texts = {header: [text for text in file.texts(header) if text] for header in unknown}
    dates = [header for header in unknown if any(map(quantities.is_date, texts[header]))]
    machines = [header for header in unknown if to_snake_case(header).endswith(MACHINES) and header not in dates]
    machines.sort(key=lambda header: to_snake_case(header.rpartition("/")[2]) in VAGUE_NAMES)
    words = [
        header
        for header in unknown
        if header not in dates
        and not _is_choice(header)
        and not any(quantities.is_number(text) or " " in text for text in texts[header])
    ]
    numeric = [header for header in unknown if texts[header] and all(map(quantities.is_number, texts[header]))]
    return {"names": machines + words, "times": dates, "numbers": numeric if len(numeric) == 1 else []}


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
    matched_headers = [header for header, _ in matches.values()]
    names: dict[str, str] = {}  # unknown header -> column that it may mean, with its unit
    for column in kind.columns:
        candidates = [header for header in unknown if column.name not in matches and header not in names]
        for header in candidates:
            if name := _match_unknown(header, column):
                names[header] = name
                break
    if names:
        parts = " and ".join(f"`{header}` is `{name}`" for header, name in names.items())
        choices = _find_choices(file, [header for header in unknown if header not in names])
        change = f".rename(columns={names})[{[*matched_headers, *names.values(), *choices]}]"
        return FredError(f"{place}; if {parts}: {rewrite_command(source, change)}")
    for column, header in itertools.product(kind.columns, unknown):
        advice, change = _derive_relative(header, column)
        if change and column.name not in matches:
            relative = f"`{header}` is no `{column.name}`, which is relative; {advice}"
            columns = [*matched_headers, column.name, *_find_choices(file, [name for name in unknown if name != header])]
            return FredError(f"{file.path}: {relative}: {rewrite_command(source, f'{change}[{columns}]')}")
    if not {*matches} & {*kind.column_names("numbers"), *kind.column_names("times")}:
        return FredError(f"{place}; write a table with these columns")
    if choices := _find_choices(file, unknown):
        return FredError(f"{file.path}: {_choice_cure(file, kind, source, choices, matches)}")
    return FredError(f"{place}; leave it out: {drop_columns_command(source, unknown)}")


def _match_unknown(header: str, column: Column) -> str:
    """Return the name that an unknown column has if it is meant as this one, with its unit; an empty text if it is not."""
    if column.holds == "names":
        return ""
    readings = [(stem, unit) for stem, unit in split_name(header) if column.factor(unit) or column.factor(unit.lower())]
    for stem, unit in [*readings, (header, "")]:
        # One letter is enough before a unit that only such columns have, as in `ul_mbps` for `upload`.
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


def _find_choices(file: File, headers: Sequence[str]) -> dict[str, list[str]]:
    """Return the cells of columns that tell which rows are meant: text of which values repeat, and states and products.

    Args:
        file: the table.
        headers: names of columns that nothing reads.
    """
    choices = {}
    for header in headers:
        texts = file.texts(header)
        filled = [text for text in texts if text]
        values = {*filled}
        is_text = not any(map(quantities.is_date, filled)) and not all(map(quantities.is_number, filled))
        if len(values) > 1 and is_text and (len(values) < len(filled) or _is_choice(header)):
            choices[header] = texts
    return choices


def _is_choice(header: str) -> bool:
    """Return True for a name such as `state` or `skuName`, False for an identity, such as `event_id`.

    Args:
        header: name of a column.
    """
    words = to_snake_case(header.rpartition("/")[2]).split("_")
    return bool({*words} & {*CHOICES}) and words[-1] not in ("id", "time")


def _choice_cure(file: File, kind: Kind, source: Content, choices: Values, matches: Matches) -> str:
    """Return a clause that names the values of columns, with a command that keeps the rows with one.

    Args:
        file: the table.
        kind: kind of the table.
        source: content of its file.
        choices: the cells of the columns.
        matches: header and factor of the columns of the kind that the table has.
    """
    values = {header: list(dict.fromkeys(text for text in texts if text)) for header, texts in choices.items()}
    parts = [f"`{header}` has the values {briefly(names, _MOST_VALUES)}" for header, names in values.items()]
    selection = _choose_product(choices) if kind.name == "prices" else _choose_rows(kind, choices)
    command = select_rows_command(source, selection)
    cure = f"column {'; '.join(parts)}: keep the rows you mean, such as those of {', '.join(selection.values())}: {command}"
    products = list(zip(*choices.values(), strict=True))
    if kind.name == "prices" and "per_hour" in matches and len({*products}) == len(products):
        header, factor = matches["per_hour"]
        prices = file.quantities(header, {"USD": 1.0, "usd": 1.0, "EUR": 1.0, "eur": 1.0}) * factor
        examples = [
            f"`per_hour: {price:.10g}` of {', '.join(filter(None, product))}"
            for price, product in zip(prices.tolist(), products, strict=True)
        ]
        return f"there is one price of each product: write it instead of the file, {briefly(examples, 3)}; or {cure}"
    return f"{cure}; if all rows are meant, write the table without {'these columns' if choices.keys() - selection else 'it'}"


def _choose_product(choices: Values) -> dict[str, str]:
    """Return the values of the most frequent product: a combination of the columns' values."""
    (product, _), *_ = Counter(zip(*choices.values(), strict=True)).most_common(1)
    return {header: value for header, value in zip(choices, product, strict=True) if value}


def _choose_rows(kind: Kind, choices: Values) -> dict[str, str]:
    """Return a column, rather one whose name is that of a choice, and a value: of failures one that means a machine is down."""
    header = next((header for header in choices if _is_choice(header)), next(iter(choices)))
    counts = Counter(text for text in choices[header] if text)
    failed = [value for value in counts if kind.name == "failures" and monitors.is_up(value) is False]
    return {header: failed[0] if failed else counts.most_common(1)[0][0]}


def _count_cure(file: File) -> str:
    """Return how counts become causes of failures, with a command; an empty text for a table that has dates or no counts.

    Args:
        file: the table.
    """
    cells = {header: [text for text in file.texts(header) if text] for header in file.header}
    if any(quantities.is_date(text) for texts in cells.values() for text in texts):
        return ""
    columns = [
        header
        for header, texts in cells.items()
        if {*to_snake_case(header).split("_")} & _COUNTS and texts and all(map(quantities.is_count, texts))
    ]
    counts = [int(text) for text in cells[columns[0]] if int(text)] if columns else []
    if not counts:
        return ""
    count, seconds = counts[0], _DAYS * 86400  # for an example
    causes = f"print('causes:', [dict(mean_up=machines * days * 86400 / n) for n in {counts}])"
    return (
        f"`{columns[0]}` counts failures, and counts have no times: give `causes` in place of `file`. The mean time of each "
        f"machine is machines x seconds / count; for {count} failures of {_MACHINES:,} machines in {_DAYS} days, "
        f"{_MACHINES} x {seconds} / {count} is `mean_up: {_MACHINES * seconds / count:.0f}`. With your numbers of machines and "
        f'days: `python -c "machines, days = {_MACHINES}, {_DAYS}; {causes}"`'
    )
