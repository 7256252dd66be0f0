"""Words and numbers in messages, titles and tables.

Lists of names, lines that do not break between a number and its noun, numbers that JSON can represent, and ratios in per cent.
"""

import math
import re
from collections.abc import Sequence
from typing import Any


def listed(names: Sequence[str]) -> str:
    """Return all names, separated by commas.

    Args:
        names: names, such as those of columns.

    >>> listed(["step", "rank"]), listed([])
    ('step, rank', 'none')
    """
    return ", ".join(names) or "none"


def briefly(names: Sequence[str], most: int = 4, separator: str = ", ", number: int = 0) -> str:
    """Return the first names, and the number of the others.

    Args:
        names: names, such as those of operations, or longer texts.
        most: maximum number of names shown.
        separator: text between two names.
        number: number of all names, if `names` has only the first ones.

    >>> briefly(["a", "b", "c"], most=2), briefly(["a = 1", "b = 2"], most=2, separator="; ", number=7)
    ('a, b and 1 more', 'a = 1; b = 2; and 5 more')
    """
    excess = max(len(names), number) - most
    rest = f"{separator.rstrip(', ')} and {excess:,} more" if excess > 0 else ""
    return separator.join(names[:most]) + rest


def unbroken(text: str) -> str:
    """Return text whose lines break before a number, not between the number and its noun.

    Args:
        text: such as a title.

    >>> unbroken("16 workers, 4 of them slow").replace("\\N{NO-BREAK SPACE}", "_")
    '16_workers, 4_of_them slow'
    """
    return re.sub(r"\b(\d[\d,.]*) (of )?(?=\w)", lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text)


def finite(value: Any) -> Any:
    """Return the value with None in place of every number that is not finite.

    Args:
        value: mappings, lists and values that JSON knows.

    >>> finite({"a": [1.0, math.inf], "b": math.nan})
    {'a': [1.0, None], 'b': None}
    """
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def percent(times: float) -> str:
    """Return a ratio as a difference in per cent, with one decimal if it is small.

    Args:
        times: the ratio.
    >>> percent(1.25), percent(0.996), percent(1.0)
    ('+25', '-0.4', '+0')
    """
    difference = 100 * (times - 1)
    return f"{difference:+.1f}" if 0.05 <= abs(difference) < 10 else f"{difference + 0.0:+,.0f}".replace("-0", "+0")
