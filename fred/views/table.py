"""Tables of text, and their output on a terminal and in LaTeX. `page_tables.py` writes them as HTML."""

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Drawn
from rich.text import Text

WIDTH = 80  # columns, if there is no terminal
_LONGEST_WORD = 20  # letters of a heading's word, which is broken if it is longer
_MOST_TURNED = 8  # a table with more rows than this is not transposed
NONE = "–"
_ESCAPED = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "…": r"\dots{}",
}
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


class _Wrapper(textwrap.TextWrapper):
    """Wraps a heading at spaces, and after the commas in the names of runs."""

    wordsep_re = re.compile(r"(\s+)|(?<=,)(?=\S)")


class Cell(NamedTuple):
    """A cell of a table.

    Args:
        text: the text that is shown.
        value: the number that the page sorts by; None: it sorts by the text.
        strong: True for bold text.
    """

    text: str
    value: float | None = None
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table of text.

    Args:
        columns: headings of the columns.
        rows: rows with a cell for each column.
        title: title above the table.
        caption: explanation below the table.
        words: number of leading columns with words. They are left-aligned, and repeated in each part of a wide table.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    title: str = ""
    caption: str = ""
    words: int = 1

    @property
    def cells(self) -> list[list[Cell]]:
        """Return the rows with every cell as a `Cell`."""
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]

    def without_empty(self) -> "Table":
        """Return the table without empty columns, that is, with only dashes. The first column always stays."""
        cells = self.cells
        columns = [i for i in range(len(self.columns)) if i == 0 or any(row[i].text not in ("", NONE) for row in cells)]
        words = sum(i < self.words for i in columns)
        return replace(
            self, columns=[self.columns[i] for i in columns], rows=[[row[i] for i in columns] for row in cells], words=words
        )


def terminal() -> Console:
    """Return the console to print to. Its width is that of the terminal, or `COLUMNS`, or 80 columns.

    A file has colours only if FORCE_COLOR asks for them, unless Jupyter has set it, as it does for all shells that it starts,
    and only without NO_COLOR.
    """
    colourless = not sys.stdout.isatty() and bool(os.environ.get("NO_COLOR") or "JPY_PARENT_PID" in os.environ)
    forced = False if colourless else None  # None: rich decides
    console = Console(force_terminal=forced)
    return console if console.is_terminal or os.environ.get("COLUMNS") else Console(force_terminal=forced, width=WIDTH)


def say(console: Console, lines: Iterable[str], **how: Any) -> None:
    """Print lines as they are, without rich's markup and highlighting.

    Args:
        console: the console to print to.
        lines: the lines.
        how: further options of rich's `print`, such as `style`.
    """
    for line in lines:
        console.print(line, highlight=False, markup=False, **how)


def show(table: Table, console: Console) -> None:
    """Print a table so that it fits the console.

    If it is too wide, headings are wrapped, intervals go below their numbers, the table is transposed, or it is split.

    Args:
        table: the table.
        console: the console to print to.
    """
    if table.title:
        console.print(Text(table.title, style="bold"))
    for number, part in enumerate(_fitting(table, console)):
        if number:
            console.print()
        console.print(part)
    if table.caption:
        console.print(Text(table.caption, style="dim"))
    console.print()


def _fitting(table: Table, console: Console) -> Iterator[Drawn]:
    """Yield the table in the first form that fits."""
    if table.words == len(table.columns):  # words wrap
        yield _rich_table(table)
        return
    narrow = _with_brackets_below(table)
    forms = [_rich_table(table), _rich_table(table, wrapped=True), _rich_table(narrow, wrapped=True)]
    if len(table.rows) <= _MOST_TURNED < 2 * len(table.columns):  # few rows, and many columns
        forms += [_rich_table(_transposed(table), wrapped=True), _rich_table(_transposed(narrow), wrapped=True)]
    for form in forms:
        if _fits(form, console):
            yield form
            return
    yield from (_rich_table(part, wrapped=True) for part in _parts(narrow, console))


def _fits(table: Drawn, console: Console) -> bool:
    # measured as if the console were very wide, because rich would shrink the table to the console
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum <= console.width


def _rich_table(table: Table, wrapped: bool = False) -> Drawn:
    """Return the table for rich; if `wrapped`, headings are no wider than their cells or their longest word."""
    cells = table.cells
    headings = [[heading] for heading in table.columns]
    if wrapped:
        headings = [_lines(heading, [row[i].text for row in cells]) for i, heading in enumerate(table.columns)]
    most_lines = max(map(len, headings), default=0)
    rich_table = Drawn(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), show_header=any(table.columns)
    )
    for i, lines in enumerate(headings):
        words = i < table.words
        heading = "\n".join([""] * (most_lines - len(lines)) + lines)  # the last lines of all headings are level
        rich_table.add_column(Text(heading), justify="left" if words else "right", overflow="fold", no_wrap=not words)
    for row in cells:
        rich_table.add_row(*(Text(cell.text, "bold" if cell.strong else "") for cell in row))
    return rich_table


def _lines(heading: str, cells: Sequence[str]) -> list[str]:
    """Return a heading as lines that are no longer than the widest cell or the heading's longest word."""
    widest = max((len(line) for cell in cells for line in cell.split("\n")), default=0)
    longest = max(map(len, re.split(r"\s+|(?<=,)", heading)))
    return _Wrapper(max(widest, min(_LONGEST_WORD, longest), 1)).wrap(heading) or [heading]


def _with_brackets_below(table: Table) -> Table:
    """Return the table with brackets on a line below their number."""
    rows = [
        [cell._replace(text=cell.text.replace(" (", "\n(")) if i >= table.words else cell for i, cell in enumerate(row)]
        for row in table.cells
    ]
    return replace(table, rows=rows)


def _transposed(table: Table) -> Table:
    cells = table.cells
    columns = [table.columns[0], *(row[0].text for row in cells)]
    rows = [[Cell(heading), *(row[i] for row in cells)] for i, heading in enumerate(table.columns) if i]
    return replace(table, columns=columns, rows=rows, words=1)


def _parts(table: Table, console: Console) -> Iterator[Table]:
    """Yield parts of the table that fit, each with the leading columns of words and as many others as possible."""
    cells, begin = table.cells, table.words
    while begin < len(table.columns):
        end = len(table.columns)
        while end > begin + 1 and not _fits(_rich_table(_part(table, cells, begin, end), wrapped=True), console):
            end -= 1
        yield _part(table, cells, begin, end)
        begin = end


def _part(table: Table, cells: Sequence[Sequence[Cell]], begin: int, end: int) -> Table:
    columns = [*range(table.words), *range(begin, end)]
    rows = [[row[i] for i in columns] for row in cells]
    return replace(table, columns=[table.columns[i] for i in columns], rows=rows, words=table.words)


def tabular(table: Table) -> str:
    """Return a table as a LaTeX `tabular` with rules of the package booktabs; title and caption become comments.

    Args:
        table: the table.

    >>> from fred.views.table import Cell, Table
    >>> print(tabular(Table(["run", "loss_at_end"], [["a & b", Cell("0.3 ± 0.1", strong=True)]], "Six ways", "in %")))
    % Six ways
    % in %
    \\begin{tabular}{lr}
    \\toprule
    run & loss\\_at\\_end \\\\
    \\midrule
    a \\& b & \\textbf{0.3 $\\pm$ 0.1} \\\\
    \\bottomrule
    \\end{tabular}
    """
    notes = [line for text in (table.title, table.caption) for line in text.splitlines()]
    rows = [" & ".join(map(_latex_cell, row)) + r" \\" for row in table.cells]
    sides = "".join("l" if i < table.words else "r" for i in range(len(table.columns)))
    headings = " & ".join(map(escaped, table.columns)) + r" \\"
    begin = [f"\\begin{{tabular}}{{{sides}}}", r"\toprule", headings, r"\midrule"]
    return "\n".join([*(f"% {note}" for note in notes), *begin, *rows, r"\bottomrule", r"\end{tabular}"])


def escaped(text: str) -> str:
    """Return text with LaTeX's special characters escaped, and with minus signs instead of hyphens before numbers.
    >>> print(escaped(r"50 % of a_b ~ {x^2} \\ $5 #1"))
    50 \\% of a\\_b \\textasciitilde{} \\{x\\textasciicircum{}2\\} \\textbackslash{} \\$5 \\#1
    >>> print(escaped("asgd-0.5: × 2, -0.3"))
    asgd-0.5: $\\times$ 2, $-$0.3
    """
    return _MINUS.sub("$-$", "".join(_ESCAPED.get(letter, letter) for letter in text))


def _latex_cell(cell: Cell) -> str:
    return f"\\textbf{{{escaped(cell.text)}}}" if cell.strong else escaped(cell.text)
