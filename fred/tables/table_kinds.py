"""Kinds of small tables: their columns, and the column that a header means."""

from dataclasses import dataclass, field

from fred.tables import quantities
from fred.tables.columns import File
from fred.tables.common_names import MACHINES, VAGUE_NAMES
from fred.tables.named_units import Unit, split_unit, to_snake_case

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
    factor: Unit = quantities.seconds_in
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
    for is_short in (False, True):
        for column in kind.columns:
            for stem, factor in split_unit(header, column.factor):
                word = _shorten(stem, header, column) if is_short else stem
                matches = word == column.name or word in column.synonyms or (is_dated and word in column.if_dates)
                if matches and not (is_dated and column.holds == "lengths"):
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
