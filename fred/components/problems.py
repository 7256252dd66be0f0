"""What pydantic's validation errors mean, in FRED's words."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fred.base.errors import quoted

Keys = tuple[str | int, ...]  # of a value in nested settings
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(rf"([0-9]{{1,15}}(?:\.[0-9]{{1,15}})?) ?({'|'.join(_SECONDS)})")
_EXPECTED = "; expected "
_BOUNDS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")  # pydantic's codes
_SUCH_AS: dict[str, Any] = {
    "algorithm": {"name": "asgd", "learning_rate": 0.1},
    "learning_rate": 0.1,
    "stop": {"seconds": 30},
    "cluster": {"workers": 8},
    "network": {"bandwidth": "10GbE"},
    "task": {"data": "digits", "model": "mlp"},
    "evaluate": {"points": 40},
    "seeds": [1, 2, 3],
    "report_seeds": [11, 12],
}


def problems(errors: Iterable[Any], prefix: Keys = (), in_python: bool = False) -> Iterator[tuple[Keys, str]]:
    """Yield the keys and the message of each pydantic error; errors inside a component are yielded one by one.

    Args:
        errors: pydantic's errors; `with_examples` adds examples of missing options.
        prefix: keys that lead to the validated value.
        in_python: True for options of a constructor, which examples write as `key=value`, not as in a file.
    """
    yield from _joined(_described(list(errors), prefix, in_python))


def _described(errors: list[Any], prefix: Keys, in_python: bool) -> Iterator[tuple[Keys, str]]:
    """Yield the keys and the message of each error."""
    bounded = {_place(error) for error in errors if error["type"] in _BOUNDS}
    for error in errors:
        context = error.get("ctx", {})
        keys = (*prefix, *_place(error), *([context["key"]] if "key" in context else []))
        name = str(keys[-1]) if keys else ""
        if "nested" in context:
            yield from problems(context["nested"], keys, in_python and not keys)
        elif error["type"] == "too_short" and error["ctx"]["actual_length"] < len(error["input"]):
            continue  # invalid items were not counted; each has an error of its own
        elif error["type"] == "tuple_type" and _place(error) in bounded:
            continue  # a number that is too large or small was meant as a number
        elif error["type"] == "missing":
            example = _example(name, error["example"], in_python) if "example" in error else _example(name, None, in_python)
            yield keys, f"missing key `{name}`{example and ', such as ' + example}"
        elif error["type"] in ("unknown_key", "component"):
            yield keys, error["msg"]
        else:
            finding = "" if isinstance(error["input"], (dict, list)) else f"found {quoted(error['input'])}; "
            yield keys, finding + _expectation(error, name, in_python)


def _joined(lines: Iterable[tuple[Keys, str]]) -> Iterator[tuple[Keys, str]]:
    """Yield messages about one value, of which each names one of the kinds that would do, as one.

    >>> list(_joined([(("n",), "found 0; expected 'all'"), (("n",), "found 0; expected a list"), (("m",), "unknown key")]))
    [(('n',), "found 0; expected 'all', or a list"), (('m',), 'unknown key')]
    """
    last: tuple[Keys, str] | None = None
    for keys, text in lines:
        finding, mark, expectation = text.partition(_EXPECTED)
        if last is not None and mark and last[0] == keys and last[1].startswith(finding + mark):
            last = keys, f"{last[1]}, or {expectation}"
            continue
        if last is not None:
            yield last
        last = keys, text
    if last is not None:
        yield last


def with_examples(errors: Iterable[Any], fields: Mapping[str, Any]) -> list[Any]:
    """Return pydantic's errors with an `example` of each missing option.

    Args:
        errors: the errors.
        fields: the class's fields by name, some with `examples`.
    """
    examples = {name: field.examples[0] for name, field in fields.items() if field.examples}
    return [
        error | {"example": examples[error["loc"][0]]}
        if error["type"] == "missing" and len(error["loc"]) == 1 and error["loc"][0] in examples
        else error
        for error in errors
    ]


def _expectation(error: Any, name: str, in_python: bool) -> str:
    """Return the expected value of the option `name`, in words."""
    example = _example(name, None, in_python)
    if error["type"] == "model_type":
        return f"expected settings, such as {example or f'`{name}: {{key: value}}`'}"
    if error["type"] == "tuple_type":
        single = [error["input"]] if isinstance(error["input"], int | float) else None
        like = example or (_example(name, single, in_python) if single else "")
        return f"expected a list{like and ', such as ' + like}"
    if error["type"] in ("too_short", "too_long"):
        context = error["ctx"]
        is_short = error["type"] == "too_short"
        bound = f"at {'least' if is_short else 'most'} {context['min_length' if is_short else 'max_length']}"
        return f"found {context['actual_length']} items; expected {bound}{example and ', such as ' + example}"
    if error["type"] == "int_parsing_size":
        return "expected a smaller number"
    if error["type"] in ("float_parsing", "int_parsing", "int_from_float"):
        return f"expected a {'whole ' * error['type'].startswith('int')}number{_without_unit(error['input'])}"
    words: str = error["msg"]
    return words.removeprefix("Value error, ").replace("Input should be", "expected").replace("a valid tuple", "a list")


def _place(error: Any) -> Keys:
    return tuple(key for key in error["loc"] if not _is_added_by_pydantic(key))


def _example(name: str, value: Any, in_python: bool) -> str:
    """Return an option as it is written, with this value or a usual one; empty if there is none.

    >>> _example("stop", None, False), _example("stop", None, True), _example("median", 0.1, True), _example("x", None, True)
    ('`stop: {seconds: 30}`', "`stop={'seconds': 30}`", '`median=0.1`', '')
    """
    value = _SUCH_AS.get(name) if value is None else value
    return "" if value is None else f"`{name}{'=' if in_python else ': '}{_format(value, in_python)}`"


def _format(value: Any, in_python: bool) -> str:
    """Return a value of settings as Python or as a file writes it."""
    if in_python:
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_format(item, in_python)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_format(item, in_python) for item in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _without_unit(value: object) -> str:
    """Return how a time with a unit is written in seconds; empty for other texts.

    >>> _without_unit("100ms"), _without_unit("2 h"), _without_unit("many")
    ('; times are in seconds, without a unit: 0.1', '; times are in seconds, without a unit: 7200', '')
    """
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    return f"; times are in seconds, without a unit: {float(match[1]) * _SECONDS[match[2]]:g}" if match else ""


def _is_added_by_pydantic(key: str | int) -> bool:
    """Return True if pydantic added this key to name the type that it tried, so that the user did not write it.

    >>> keys = ("times", "literal['i']", "tuple[float, ...]", 1, "[key]", "constrained-int")
    >>> [key for key in keys if not _is_added_by_pydantic(key)]
    ['times', 1]
    """
    if key in ("constrained-int", "constrained-float"):
        return True
    return isinstance(key, str) and key.endswith("]") and key.startswith(("[", "literal[", "tuple[", "list[", "function-"))
