"""Lists of names in messages, such as columns, workers and operations."""

from collections.abc import Sequence


def listed(names: Sequence[str]) -> str:
    """Return all names, separated by commas.

    Args:
        names: names, such as those of columns.

    >>> listed(["step", "rank"]), listed([])
    ('step, rank', 'none')
    """
    return ", ".join(names) or "none"


def briefly(names: Sequence[str], most: int = 4) -> str:
    """Return the first names, and the number of the others.

    Args:
        names: names, such as those of operations.
        most: maximum number of names shown.

    >>> briefly(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
