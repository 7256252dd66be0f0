"""The layout of a table in text: its delimiter, the line of its header, and the lines that are no rows."""

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fred.base.errors import FredError
from fred.tables.content import Content
from fred.tables.quantities import BANDWIDTHS, is_missing, is_moment, is_number, parse_numbers, unit_in

_SAMPLE_LINES = 120  # lines that tell the layout
_DELIMITERS = ("\t", ";", ",", "|")
TRACE_HEADER = "iteration,worker,seconds"  # columns that messages show if a reader names no others
SPACES = ""  # delimiter: any number of spaces
_COMMENT = re.compile(r"\s*(#|%|//)")
_RULE = re.compile(r"[-=+|:\s]*[-=][-=+|:\s]*")  # such as |---|---|
_DIRT = re.compile(rb"\n[ \t]*(#|%|//|[-=+|:][-=+|: \t]{2,}[\r\n])")
_PAGE = "see `From a log to a table` in the documentation"
RECORDING_CURE = "record the own time of each rank with `fred record` (page `Record step times`)"


@dataclass(frozen=True)
class Layout:
    """The places of the cells of a table in text.

    Args:
        delimiter: character between two cells; `SPACES`: spaces.
        header: number of the header's line, from 1.
        names: names of the columns.
        units: units of columns, from a row of units below the header.
        samples: first cells of each column.
        has_only_rows: True if each line below the header and the units is a row.
        is_truncated: True if the last line is cut off.
        notes: description of the lines left out.
    """

    delimiter: str
    header: int
    names: list[str]
    units: dict[str, str]
    samples: dict[str, list[str]]
    has_only_rows: bool
    is_truncated: bool
    notes: tuple[str, ...]

    @property
    def skipped(self) -> int:
        """Return the number of lines above the first row of a plain table."""
        return self.header + bool(self.units)

    def rows(self, file: Content) -> Iterator[tuple[int, list[str]]]:
        """Yield the line and the cells of each row. Raises FredError for a row with too few or too many.

        Args:
            file: the content that has this layout.
        """
        lines = _lines_of_cells(file.text, self.delimiter)
        rows = ((line, fields) for line, fields in lines if line > self.header and not _is_outside(fields, self.names))
        for row, ((line, fields), is_last) in enumerate(_mark_end(rows)):
            if (row == 0 and self.units) or (is_last and self.is_truncated):
                continue
            if len(fields) != len(self.names):
                raise FredError(
                    f"{file.path}:{line}: found {len(fields)} fields; expected {len(self.names)}, as many as the header "
                    "names; a decimal comma needs another delimiter, such as a semicolon"
                )
            yield line, fields

    def line(self, file: Content, row: int) -> int:
        """Return the line of a row.

        Args:
            file: the content that has this layout.
            row: number of the row, from 0.
        """
        return next(itertools.islice(self.rows(file), row, None))[0]


def find_layout(file: Content, example: str = TRACE_HEADER) -> Layout:
    """Return the layout of the table in a text. Raises FredError for a text without a table.

    Args:
        file: the text.
        example: names of columns that messages show.
    """
    sample = [*itertools.islice(file.head.splitlines(keepends=True), _SAMPLE_LINES)]
    lines = [line for line in sample if line.strip() and not _COMMENT.match(line) and not _RULE.fullmatch(line.rstrip())]
    delimiter, width = _find_delimiter(lines)
    fields = [(line, cells) for line, cells in _lines_of_cells("".join(sample), delimiter) if cells]
    header, names, has_comments = _find_header(fields, width)
    below = [cells for line, cells in fields if line > header and not _is_outside(cells, names)]
    if not below:
        raise FredError(f"{file.path} has no rows" if names else _no_table_message(file, example))
    units = _find_units(names, below[0]) if len(below) > 1 else {}
    rows = below[1:] if units else below
    if not any(_is_row(cells, len(names)) for cells in rows):
        raise FredError(_no_table_message(file, example))
    above = [line for line, cells in fields if line < header and not _is_outside(cells, names)]
    repetitions = _count_repetitions(file, header, sample)
    is_truncated = not file.data.endswith(b"\n") and _is_truncated(file, delimiter, len(names))
    notes = [f"{len(above)} line{'s' if len(above) > 1 else ''} above the table left out"] if above else []
    notes += [f"the header stands {repetitions + 1} times"] if repetitions else []
    notes += ["the last line is cut off, and left out"] if is_truncated else []
    # Arrow may read the table only if every line below the header is a row. The sample does not show that, so the whole file is
    # searched for comments, rules, repeated headers and a last line that is cut off; with one of them, Python reads row by row.
    header_end = max(file.data.find(b"\n", _header_offset(sample, header)), 0)
    dirt = _DIRT.search(file.data, header_end)
    return Layout(
        delimiter,
        header,
        names,
        units,
        {name: [cells[i] for cells in rows if i < len(cells)] for i, name in enumerate(names)},
        not (has_comments or repetitions or is_truncated or dirt or delimiter in (SPACES, "|")),
        is_truncated,
        tuple(notes),
    )


def _lines_of_cells(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of each line that is not empty."""
    if delimiter == SPACES:
        yield from ((number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip())
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for cells in reader:
            if delimiter == "|" and len(cells) > 2 and not cells[0].strip() and not cells[-1].strip():
                cells = cells[1:-1]
            if cells:
                yield reader.line_num, [cell.strip() for cell in cells] if delimiter == "|" else cells
    except csv.Error as error:
        raise FredError(f"cannot read line {reader.line_num} of the table: {error}") from None


def _find_delimiter(lines: Sequence[str]) -> tuple[str, int]:
    """Return the delimiter that cuts the most lines alike, and the number of cells of such a line."""
    best_count, best_width, best_delimiter = 0, 1, ","
    for delimiter in _DELIMITERS:
        widths = Counter(len(cells) for _, cells in _lines_of_cells("".join(lines), delimiter))
        width, count = max(widths.items(), key=lambda entry: (entry[0] > 1, entry[1]), default=(1, 0))
        if width > 1 and (count, width) > (best_count, best_width):
            best_count, best_width, best_delimiter = count, width, delimiter
    if best_count * 2 >= len(lines):
        return best_delimiter, best_width
    if len(lines) > 1 and len(lines[0].split()) == 1 and all(_is_quantity(line.strip()) for line in lines[1:]):
        return ",", 1  # one column, in which units stand after spaces
    word_counts = Counter(len(line.split()) for line in lines)
    width, count = word_counts.most_common(1)[0] if word_counts else (1, 0)
    if width > 1 and count > best_count and count * 2 >= len(lines):
        return SPACES, width
    return best_delimiter, best_width


def _find_header(fields: Sequence[tuple[int, list[str]]], width: int) -> tuple[int, list[str], bool]:
    """Return line and names of the header, and True if there are comments below it."""
    is_outside = [bool(_COMMENT.match(cells[0])) or bool(_RULE.fullmatch("".join(cells))) for _, cells in fields]
    lines = [field for field, outside in zip(fields, is_outside, strict=True) if not outside]
    if not lines:
        return 0, [], False
    usual = [i for i, (_, cells) in enumerate(lines) if len(cells) == width]
    # Spreadsheets write a title as a line of cells that are mostly empty.
    titles = [i for i in usual if sum(map(is_missing, lines[i][1])) * 2 >= width > 1]
    headers = [i for i in usual if i not in titles and not _is_row(lines[i][1], width)]
    # The header is the first line of the usual width, but not a title above a header.
    header = next(iter(headers if usual[:1] == titles[:1] and headers else usual), 0)
    while header and _is_row(lines[header][1], width) and not _is_row(lines[header - 1][1], len(lines[header - 1][1])):
        header -= 1  # words above a row: a header with another number of cells; the rows' error says so
    line, names = lines[header]
    if _is_row(names, len(names)) and (comment := _commented_header(fields, line, len(names))):
        line, names = comment
    has_comments = any(outside and number > line for (number, _), outside in zip(fields, is_outside, strict=True))
    return line, [name.strip() for name in names], has_comments


def _commented_header(fields: Sequence[tuple[int, list[str]]], line: int, width: int) -> tuple[int, list[str]] | None:
    """Return a header that is written as a comment above the first row."""
    above = [(number, cells) for number, cells in fields if number < line]
    if not above:
        return None
    number, cells = above[-1]
    names = [_COMMENT.sub("", cells[0]).strip(), *cells[1:]]
    names = names if names[0] else names[1:]  # the mark of the comment may be a cell alone
    return (number, names) if len(names) == width and not _is_row(names, width) else None


def _find_units(names: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """Return the units of columns, if the cells are a row of units."""
    if len(cells) != len(names) or any(is_number(cell) for cell in cells):
        return {}
    units: dict[str, str] = {name: unit for name, cell in zip(names, cells, strict=True) if (unit := unit_in(cell))}
    has_only_units = all(unit_in(cell) or is_missing(cell) or re.fullmatch(r"\s*[\[(].*[\])]\s*", cell) for cell in cells)
    return units if has_only_units else {}


def _is_outside(fields: Sequence[str], names: Sequence[str]) -> bool:
    """Return True for cells that are a comment, a rule between rows, or the header again."""
    text = "".join(fields)  # dashes alone are a rule, but one dash is a missing value
    return (bool(_COMMENT.match(fields[0]) or _RULE.fullmatch(text)) and not is_missing(text)) or [
        cell.strip() for cell in fields
    ] == list(names)


def _count_repetitions(file: Content, header: int, sample: Sequence[str]) -> int:
    """Return the number of lines below the header that repeat it."""
    line = sample[header - 1].strip().encode() if header else b""
    if not line or file.data.count(line) < 2:  # a pattern is slow in large files
        return 0
    lines = re.findall(rb"^[ \t]*" + re.escape(line) + rb"[ \t]*\r?$", file.data, re.MULTILINE)
    return max(len(lines) - 1, 0)


def _header_offset(sample: Sequence[str], header: int) -> int:
    return len("".join(sample[: header - 1]).encode())


def _is_truncated(file: Content, delimiter: str, width: int) -> bool:
    last = file.data[file.data.rfind(b"\n") + 1 :].decode(errors="replace")
    return bool(last.strip()) and all(len(cells) < width for _, cells in _lines_of_cells(last, delimiter))


def _mark_end(rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[tuple[int, list[str]], bool]]:
    """Yield the rows, with True for the last one."""
    previous = next(rows, None)
    for row in rows:
        if previous:
            yield previous, False
        previous = row
    if previous:
        yield previous, True


def _is_row(fields: Sequence[str], columns: int) -> bool:
    """Return True for a row, False for names: all cells are values, or some are and there is one for each column."""
    are_values = [*map(is_value, fields)]
    return all(are_values) or (any(are_values) and len(fields) == columns)


def is_value(text: str) -> bool:
    """Return True for a number, a date, a quantity with its unit, or a missing one; False for words.

    Args:
        text: a cell.
    """
    return is_number(text) or is_missing(text) or is_moment(text) or _is_quantity(text)


def _is_quantity(text: str) -> bool:
    """Return True for a duration, or a bandwidth."""
    for units in (None, BANDWIDTHS):
        try:
            return bool(parse_numbers([text], units, comma=True).values.size)
        except ValueError:
            continue
    return False


def _no_table_message(file: Content, example: str) -> str:
    if not file.head.strip():
        return f"{file.path} is empty; expected a line with the names of the columns, and rows below it"
    first = next((number for number, line in enumerate(file.head.splitlines(), 1) if line.strip()), 1)
    return (
        f"{file.path}:{first}: no table begins here; expected a row with numbers, below a line with the names of columns, such "
        f"as {example}; for a log, {_PAGE}{f'; or {RECORDING_CURE}' if example == TRACE_HEADER else ''}"
    )
