"""Words and numbers in messages, titles and tables.

Words in messages and titles: lists of names, such as columns, workers and operations; numbers and their nouns.

Numbers as JSON can represent them, and ratios as sentences and tables show them.
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


def briefly(names: Sequence[str], most: int = 4, between: str = ", ", number: int = 0) -> str:
    """Return the first names, and the number of the others.

    Args:
        names: names, such as those of operations, or longer texts.
        most: maximum number of names shown.
        between: text between two names.
        number: number of all names, if `names` has only the first ones.

    >>> briefly(["a", "b", "c"], most=2), briefly(["a = 1", "b = 2"], most=2, between="; ", number=7)
    ('a, b and 1 more', 'a = 1; b = 2; and 5 more')
    """
    more = max(len(names), number) - most
    others = f"{between.rstrip(', ')} and {more:,} more" if more > 0 else ""
    return between.join(names[:most]) + others


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
        return {str(key): finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def percent(times: float) -> str:
    """Return a ratio as a difference in per cent, with one decimal if it is small.

    Args:
        times: the ratio.
    >>> percent(1.25), percent(0.996), percent(1.0)
    ('+25', '-0.4', '+0')
    """
    more = 100 * (times - 1)
    return f"{more:+.1f}" if 0.05 <= abs(more) < 10 else f"{more + 0.0:+,.0f}".replace("-0", "+0")
