"""What pydantic's validation errors mean, in FRED's words."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fred.base.errors import quoted

Keys = tuple[str | int, ...]  # of a value in nested settings
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(rf"([0-9]{{1,15}}(?:\.[0-9]{{1,15}})?) ?({'|'.join(_SECONDS)})")
_LIKE = {"learning_rate": ", such as `learning_rate: 0.1`"}
_SUCH_AS = {
    "stop": "{seconds: 30}",
    "cluster": "{workers: 8}",
    "evaluate": "{points: 40}",
    "seeds": "[1, 2, 3]",
    "report_seeds": "[11, 12]",
}


def problems(errors: Iterable[Any], prefix: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """Yield the keys and the message of each pydantic error; errors inside a component are yielded one by one."""
    for error in errors:
        context = error.get("ctx", {})
        place = (key for key in error["loc"] if not _of_pydantic(key))
        keys = (*prefix, *place, *([context["key"]] if "key" in context else []))
        if "nested" in context:
            yield from problems(context["nested"], keys)
        elif error["type"] == "too_short" and error["ctx"]["actual_length"] < len(error["input"]):
            continue  # invalid items were not counted; each has an error of its own
        elif error["type"] == "missing":
            yield keys, f"missing key `{keys[-1]}`{_LIKE.get(str(keys[-1]), '')}"
        elif error["type"] in ("unknown_key", "component"):
            yield keys, error["msg"]
        else:
            expectation = (
                error["msg"]
                .removeprefix("Value error, ")
                .replace("Input should be", "expected")
                .replace("a valid tuple", "a list")
            )
            if error["type"] == "model_type":
                expectation = f"expected settings, such as `{keys[-1]}: {_SUCH_AS.get(str(keys[-1]), '{key: value}')}`"
            if error["type"] == "tuple_type" and keys[-1] in _SUCH_AS:
                expectation = f"expected a list, such as `{keys[-1]}: {_SUCH_AS[str(keys[-1])]}`"
            if error["type"] == "int_parsing_size":
                expectation = "expected a smaller number"
            if error["type"] in ("float_parsing", "int_parsing", "int_from_float"):
                expectation = f"expected a {'whole ' * error['type'].startswith('int')}number{_without_unit(error['input'])}"
            found = "" if isinstance(error["input"], (dict, list)) else f"found {quoted(error['input'])}; "
            yield keys, found + expectation


def _without_unit(value: object) -> str:
    """Return how a time with a unit is written in seconds; empty for other texts.

    >>> _without_unit("100ms"), _without_unit("2 h"), _without_unit("many")
    ('; times are in seconds, without a unit: 0.1', '; times are in seconds, without a unit: 7200', '')
    """
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    return f"; times are in seconds, without a unit: {float(match[1]) * _SECONDS[match[2]]:g}" if match else ""


def _of_pydantic(key: str | int) -> bool:
    """Return True if pydantic added this key to name the type that it tried, so that the user did not write it.
    >>> [key for key in ("times", "literal['i']", "tuple[float, ...]", 1, "[key]", "constrained-int") if not _of_pydantic(key)]
    ['times', 1]
    """
    if key in ("constrained-int", "constrained-float"):
        return True
    return isinstance(key, str) and key.endswith("]") and key.startswith(("[", "literal[", "tuple[", "list[", "function-"))
