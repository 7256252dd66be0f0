"""What pydantic's validation errors mean, in FRED's words."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, get_args

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

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


def problems(
    errors: Iterable[Any], model: type[BaseModel], prefix: Keys = (), in_python: bool = False
) -> Iterator[tuple[Keys, str]]:
    """Yield the keys and the message of each pydantic error; errors inside a component are yielded one by one.

    Args:
        errors: pydantic's errors.
        model: class whose validation failed; its options have the examples of messages.
        prefix: keys that lead to the validated value.
        in_python: True for options of a constructor, which examples write as `key=value`, not as in a file.
    """
    yield from _joined(_described(list(errors), model, prefix, in_python))


def _described(errors: list[Any], model: type[BaseModel], prefix: Keys, in_python: bool) -> Iterator[tuple[Keys, str]]:
    """Yield the keys and the message of each error."""
    bounded = {_keys_of_user(error) for error in errors if error["type"] in _BOUNDS}
    for error in errors:
        context = error.get("ctx", {})
        keys = (*prefix, *_keys_of_user(error), *([context["key"]] if "key" in context else []))
        if "nested" in context:  # `OneOf` validates a component by itself, and packs its errors into one
            yield from problems(context["nested"], context["model"], prefix=keys, in_python=in_python and not keys)
        elif error["type"] == "too_short" and error["ctx"]["actual_length"] < len(error["input"]):
            continue  # invalid items were not counted; each has an error of its own
        elif error["type"] == "tuple_type" and _keys_of_user(error) in bounded:
            continue  # a number that is too large or small was meant as a number
        elif error["type"] == "missing":
            example = _option(model, keys, prefix, in_python).example()
            thing = "item" if isinstance(keys[-1], int) else f"key `{keys[-1]}`"
            yield keys, f"missing {thing}{example and ', such as ' + example}"
        elif error["type"] in ("unknown_key", "component"):
            yield keys, error["msg"]
        else:
            finding = "" if isinstance(error["input"], (dict, list)) else f"found {quoted(error['input'])}; "
            yield keys, finding + _expectation(error, _option(model, keys, prefix, in_python))


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


class _Option(NamedTuple):
    """The option that a refused value is, or is a part of, such as an item of a list.

    Args:
        name: its name; empty for the whole model.
        field: its definition; None for the whole model.
        is_whole: True if the value is the whole option.
        in_python: True for an option that a constructor takes itself, not one in a mapping that it takes.
    """

    name: str
    field: FieldInfo | None
    is_whole: bool
    in_python: bool

    def example(self) -> str:
        """Return the whole option as it is written, with a usual value; empty if there is none."""
        return _example(self.name, self._usual_value(), self.in_python)

    def _usual_value(self) -> Any:
        examples = self.field.examples if self.field else None
        return _SUCH_AS.get(self.name, examples[0] if examples else None)

    def as_list(self, value: Any) -> str:
        """Return the option with a list of one value, or with a usual one if it does not take that list."""
        is_single = self.is_whole and isinstance(value, int | float) and self.name not in _SUCH_AS
        if is_single and self._takes([value]):
            return _example(self.name, [value], self.in_python)
        return self.example() if isinstance(self._usual_value(), list | tuple) else ""

    def _takes(self, value: Any) -> bool:
        if self.field is None:
            return False
        annotation: Any = Annotated[self.field.annotation, Field(), *self.field.metadata]
        try:
            TypeAdapter(annotation).validate_python(value)
        except ValidationError:
            return False
        return True


def _option(model: type[BaseModel], keys: Keys, prefix: Keys, in_python: bool) -> _Option:
    """Return the innermost option on the way to a value, of a model that the prefix of the keys leads to."""
    option, models = _Option(str(keys[-1]) if keys else "", None, True, in_python), [model]
    keys = keys[len(prefix) :]
    for depth, key in enumerate(keys, 1):
        field = next((cls.model_fields[key] for cls in models if key in cls.model_fields), None)
        if field is not None:
            option = _Option(str(key), field, is_whole=depth == len(keys), in_python=in_python and depth == 1)
            models = list(_models(field.annotation))
    return option


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a type, such as that of a list of settings."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _expectation(error: Any, option: _Option) -> str:
    """Return the expected value of an option, or of a part of it, in words."""
    example = option.example()
    if error["type"] == "model_type":
        usual = f"`{option.name}: {{key: value}}`" if option.is_whole else "`{key: value}`"
        return f"expected settings, such as {example or usual}"
    if error["type"] == "tuple_type":
        example = option.as_list(error["input"])
        return f"expected a list{example and ', such as ' + example}"
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


def _keys_of_user(error: Any) -> Keys:
    """Return the keys of the refused value as the user wrote them."""
    return tuple(key for key in error["loc"] if not _is_added_by_pydantic(key))


def _example(name: str, value: Any, in_python: bool) -> str:
    """Return an option as it is written, with this value; empty if there is none.

    >>> _example("stop", {"seconds": 30}, False), _example("median", 0.1, True), _example("x", None, True)
    ('`stop: {seconds: 30}`', '`median=0.1`', '')
    """
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
