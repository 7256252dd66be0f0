"""Tables of values between pairs of places: rows of numbers, with or without names, or a row for each pair."""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fred.base.errors import FredError, listed, quoted
from fred.tables import quantities
from fred.tables.content import Content, read_content
from fred.tables.named_units import Unit, split_unit, to_snake_case
from fred.tables.opening import open_table
from fred.tables.small_tables import unit_seconds

_SENDERS = ("from", "source", "src", "sender", "origin", "from_region", "source_region", "src_region", "a")
_RECEIVERS = ("to", "destination", "dest", "dst", "receiver", "target", "to_region", "destination_region", "dst_region", "b")
_RULE = re.compile(r"[-=+|:\s]*[-=][-=+|:\s]*")  # such as |---|---|
_EXPECTED = "rows of numbers with commas between them, such as 1e8, 2.5e6; or names above and beside them; or from,to,{}"


def read_square(path: Path, names: Sequence[str], factor: Unit, units: Mapping[str, float]) -> list[list[float]]:
    """Return a square table; a missing value is NaN.

    Args:
        path: the file.
        names: names of a column with the values, if a row is a pair.
        factor: function that returns the factor of a unit in that name.
        units: factors of units in cells; empty: those of time, s.

    Raises FredError.
    """
    file = read_content(path)
    expected = _EXPECTED.format(names[0])
    lines = [
        (number, line)
        for number, line in enumerate(file.text.splitlines(), 1)
        if line.strip() and line.lstrip()[0] != "#" and not _RULE.fullmatch(line)
    ]
    if not lines:
        raise FredError(f"{path} is empty; expected {expected}")
    delimiter = next((mark for mark in "\t;,|" if mark in lines[0][1]), None)
    rows = [(number, _split_cells(line, delimiter)) for number, line in lines]
    if all(len(cells) > 1 and not cells[-1] for _, cells in rows):
        rows = [(number, cells[:-1]) for number, cells in rows]
    if {to_snake_case(cell) for cell in rows[0][1]} & {*_SENDERS, *_RECEIVERS} and len(rows[0][1]) < 6:
        return _read_pairs(file, names, factor, units)
    header, unit_factor = list[str](), 1.0
    if not any(map(_is_number, rows[0][1])):
        header, rows = [cell for cell in rows[0][1] if cell], rows[1:]
    if header and len(rows) and len(rows[0][1]) == len(header) and not _is_number(rows[0][1][0]):
        unit_factor = [number for _, number in split_unit(header[0], factor)][-1]
        header = header[1:]  # words above the names of the rows, such as `latency (ms)`
    table = []
    for place, (number, cells) in enumerate(rows):
        if header and len(cells) == len(header) + 1:
            if cells[0] != header[min(place, len(header) - 1)]:
                raise FredError(f"{path}:{number}: expected the row of {quoted(header[min(place, len(header) - 1)])}, as above")
            cells = cells[1:]
        try:
            numbers = quantities.parse_numbers(cells, units or None, delimiter != ",")
            table.append((numbers.values * (1.0 if numbers.unit else unit_factor)).tolist())
        except quantities.CellError as error:
            raise FredError(f"{path}:{number}: found {quoted(cells[error.row])}; expected {expected}") from None
    return table


def _read_pairs(file: Content, names: Sequence[str], factor: Unit, units: Mapping[str, float]) -> list[list[float]]:
    """Return the table of which each row is a pair. Raises FredError."""
    table = open_table(file, f"from,to,{names[0]}")
    matches = {
        name: (header, value)
        for header in table.header
        for stem, value in split_unit(header, factor)
        for name, headers in (("from", _SENDERS), ("to", _RECEIVERS), ("value", names))
        if stem in headers
    }
    if len(matches) < 3:
        raise FredError(f"{file.path} has the columns {listed(table.header)}; expected from, to, {names[0]}")
    senders, receivers = table.texts(matches["from"][0]), table.texts(matches["to"][0])
    header, value = matches["value"]
    if units:
        values = table.quantities(header, units)
    else:
        values = table.columns([], [header])[1][header]
        value = unit_seconds(table, header, value)
    places = {name: place for place, name in enumerate(dict.fromkeys([*senders, *receivers]))}
    square = np.full((len(places), len(places)), math.nan)
    for row, (sender, receiver) in enumerate(zip(senders, receivers, strict=True)):
        pair = places[sender], places[receiver]
        if not math.isnan(square[pair]):
            raise FredError(
                f"{table.describe_row(row)}: the pair {sender}, {receiver} stands twice; expected one row: take their mean"
            )
        square[pair] = values[row] * value
    mirrored = np.isnan(square) & ~np.isnan(square.T)
    square[mirrored] = square.T[mirrored]  # a pair in one direction counts for both
    rows: list[list[float]] = square.tolist()
    return rows


def _split_cells(line: str, delimiter: str | None) -> list[str]:
    text = line.strip().strip("|") if delimiter == "|" else line
    cells = text.split() if delimiter is None else next(csv.reader([text], delimiter=delimiter))
    return [cell.strip(" *`") for cell in cells]  # without the emphasis of Markdown


def _is_number(cell: str) -> bool:
    return bool(re.match(r"[-+]?\.?\d", cell)) or (quantities.is_missing(cell) and bool(cell))
