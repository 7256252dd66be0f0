"""Numbers as JSON can represent them, and ratios as sentences and tables show them."""

import math
from typing import Any


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
