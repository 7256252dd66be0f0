"""A printed table as LaTeX."""

import re

from rich.table import Table
from rich.text import Text

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


def tabular(table: Table) -> str:
    """The same headings and cells as a `tabular` with the rules of the package booktabs; title and caption as comments.

    Args:
        table: as it is printed.

    >>> table = Table("run", "loss_at_end", title="Six ways", caption="in %")
    >>> table.add_row("a & b", Text("0.3 ± 0.1", "bold"))
    >>> print(tabular(table))
    % Six ways
    % in %
    \\begin{tabular}{ll}
    \\toprule
    run & loss\\_at\\_end \\\\
    \\midrule
    a \\& b & \\textbf{0.3 $\\pm$ 0.1} \\\\
    \\bottomrule
    \\end{tabular}
    """
    columns = [[_said(cell) for cell in column.cells] for column in table.columns]
    headings = [_said(column.header) for column in table.columns]
    notes = [line for each in (table.title, table.caption) for line in str(each or "").splitlines()]
    lines = [" & ".join(row) + r" \\" for row in zip(*columns, strict=True)]
    sides = "".join("r" if column.justify == "right" else "l" for column in table.columns)
    begin = [f"\\begin{{tabular}}{{{sides}}}", r"\toprule", " & ".join(headings) + r" \\", r"\midrule"]
    return "\n".join([*(f"% {note}" for note in notes), *begin, *lines, r"\bottomrule", r"\end{tabular}"])


def escaped(text: str) -> str:
    """As LaTeX prints it literally, with signs that are not hyphens.

    >>> print(escaped(r"50 % of a_b ~ {x^2} \\ $5 #1"))
    50 \\% of a\\_b \\textasciitilde{} \\{x\\textasciicircum{}2\\} \\textbackslash{} \\$5 \\#1
    >>> print(escaped("asgd-0.5: × 2, -0.3"))
    asgd-0.5: $\\times$ 2, $-$0.3
    """
    return _MINUS.sub("$-$", "".join(_ESCAPED.get(letter, letter) for letter in text))


def _said(cell: object) -> str:
    if isinstance(cell, Text):
        return f"\\textbf{{{escaped(cell.plain)}}}" if "bold" in str(cell.style) else escaped(cell.plain)
    return escaped(str(cell))
