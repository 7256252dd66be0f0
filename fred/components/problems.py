"""What pydantic's validation errors mean, in FRED's words."""

from collections.abc import Iterable, Iterator
from typing import Any

from fred.base.errors import quoted

Keys = tuple[str | int, ...]  # of a value in nested settings
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
            yield keys, f"missing key `{keys[-1]}`"
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
            found = "" if isinstance(error["input"], (dict, list)) else f"found {quoted(error['input'])}; "
            yield keys, found + expectation


def _of_pydantic(key: str | int) -> bool:
    """Return True if pydantic added this key to name the type that it tried, so that the user did not write it.
    >>> [key for key in ("times", "literal['i']", "tuple[float, ...]", 1, "[key]") if not _of_pydantic(key)]
    ['times', 1]
    """
    return isinstance(key, str) and key.endswith("]") and key.startswith(("[", "literal[", "tuple[", "list[", "function-"))
