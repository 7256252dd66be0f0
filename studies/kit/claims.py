"""Claims: a page's sentences, each with the rows of a table that carry it, and its verdict."""

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from fred.base.intervals import Interval, Verdict, verdict
from reproductions.common import table


class Claim(NamedTuple):
    """A sentence that a mean over the seeds carries, or not.

    Args:
        sentence: in words.
        rows: query for the rows that carry it, as pandas reads it; a reader can check the claim with these alone.
        value: what was measured, as a table has it.
        interval: of the measured mean.
        low: lower bound of the claim.
        high: upper bound.
    """

    sentence: str
    rows: str
    value: str
    interval: Interval
    low: float = float("-inf")
    high: float = 0.0

    @property
    def answer(self) -> Verdict:
        """Return whether the whole interval lies between the bounds."""
        return verdict(self.interval, self.low, self.high)


def claims_table(claims: Iterable[Claim], measured: pd.DataFrame) -> str:
    """Return the table of a page's claims.

    Args:
        claims: in the order of the page.
        measured: the table that the queries are for.

    >>> measured = pd.DataFrame({"system": ["a", "b", "b"]})
    >>> print(claims_table([Claim("b is faster.", "system == 'b'", "0.8", (-0.3, -0.1))], measured))
    | claim | measured | verdict | rows that carry it |
    | --- | ---: | --- | ---: |
    | b is faster. | 0.8 | yes | 2: `system == 'b'` |
    """
    return table(("claim", "measured", "verdict", "rows that carry it"), (_row(claim, measured) for claim in claims))


def _row(claim: Claim, measured: pd.DataFrame) -> list[str]:
    rows = measured.query(claim.rows)
    if rows.empty:
        raise ValueError(f"no row carries {claim.sentence!r}: {claim.rows}")
    return [claim.sentence, claim.value, claim.answer.value, f"{len(rows)}: `{claim.rows}`"]
