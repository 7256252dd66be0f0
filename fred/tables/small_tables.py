"""Small tables that a scenario names: failures, sessions, prices, devices. Each names its columns; all share these checks."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from fred.base.errors import FredError
from fred.base.words import listed
from fred.components import registry
from fred.tables.columns import File, Floats, Labels
from fred.tables.opening import opened_path


class Table(NamedTuple):
    """A table's columns, and its file, which names the place of a row."""

    file: File
    labels: dict[str, Labels]
    numbers: dict[str, Floats]


def read_table(path: Path, labels: Sequence[str], numbers: Sequence[str], optional: Collection[str] = ()) -> Table:
    """Read a CSV file with these columns and no others.

    Args:
        path: the file.
        labels: columns of names.
        numbers: columns of numbers; times are in s from the begin of the run.
        optional: the columns among `numbers` that may be missing.

    Raises FredError for a missing or unknown column, and for dates in place of numbers.
    """
    file, expected = opened_path(path), [*labels, *numbers]
    for name in expected:
        if name not in file.header and name not in optional:
            raise FredError(f"{path} has no column `{name}`; it has {listed(file.header)}; expected {', '.join(expected)}")
    for name in file.header:
        if name not in expected:
            hint = registry.nearest(name, expected)
            raise FredError(f"{path} has a column `{name}`{hint or ', which nothing reads'}; expected {', '.join(expected)}")
    present = [name for name in numbers if name in file.header]
    if not present:
        raise FredError(f"{path} has the columns {listed(file.header)}; expected some of {', '.join(expected)}")
    for name in present:
        if file.has_moments(name):
            raise FredError(
                f"{path}: column `{name}` holds dates; expected s from the begin of the run: subtract the first date from all"
            )
    return Table(file, *file.columns(labels, present))
