"""Numbers as JSON has them."""

import math
from typing import Any


def finite(value: Any) -> Any:
    """Return the same mappings, lists and values, with None for each number that is not finite.

    Args:
        value: of what JSON knows.

    >>> finite({"a": [1.0, math.inf], "b": math.nan})
    {'a': [1.0, None], 'b': None}
    """
    if isinstance(value, dict):
        return {str(key): finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
