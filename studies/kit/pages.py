"""Tables and words of pages."""

from collections.abc import Callable, Iterable

from fred.base.intervals import Verdict
from reproductions.common import table

__all__ = ["by_case", "count", "table"]


def by_case(cases: Iterable[str], systems: Iterable[str], cell: Callable[[str, str], str], header: str = "system") -> str:
    """Return a table with a row for each system and a column for each case.

    Args:
        cases: names.
        systems: names.
        cell: returns the words for a case and a system.
        header: of the first column.
    """
    columns = list(cases)
    return table((header, *columns), ([system, *(cell(case, system) for case in columns)] for system in systems))


def count(verdicts: Iterable[Verdict]) -> str:
    """Return the number of each verdict in words.

    Args:
        verdicts: any number.

    >>> count([Verdict.YES, Verdict.OPEN, Verdict.YES])
    'yes in 2, no in 0, open in 1'
    """
    answers = list(verdicts)
    return ", ".join(f"{word.value} in {answers.count(word)}" for word in (Verdict.YES, Verdict.NO, Verdict.OPEN))
