"""Differences of studies that do not use the kit yet, with the kit's former names."""

from studies.kit import difference
from studies.kit.difference import bold

__all__ = ["Difference", "bold"]


class Difference(difference.Difference):
    """As the kit's."""

    __slots__ = ()

    def said(self, digits: int = 3) -> str:
        """Return the cell of a table.

        Args:
            digits: after the point.
        """
        return self.cell(digits)
