"""Tables in LaTeX."""

import re

from fred.views.table import Cell, Table

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
    notes = [line for each in (table.title, table.caption) for line in each.splitlines()]
    rows = [" & ".join(map(_said, row)) + r" \\" for row in table.cells]
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


def _said(cell: Cell) -> str:
    return f"\\textbf{{{escaped(cell.text)}}}" if cell.strong else escaped(cell.text)
