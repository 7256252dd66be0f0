"""Numbers that JSON can represent."""

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
