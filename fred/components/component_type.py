"""The class of component classes: it refuses an option without a type when the class is defined."""

import inspect
from typing import Any

from pydantic import PydanticUserError
from pydantic._internal._model_construction import ModelMetaclass
from pydantic.fields import FieldInfo

from fred.base.errors import FredError, quoted

_UNTYPED = ("model-field-missing-annotation", "model-field-overridden")  # pydantic's codes
_SIMPLE = (bool, int, float, str)
_LONGEST_VALUE = 40  # characters of a value


class ComponentType(ModelMetaclass):
    """Makes classes of components from their definitions."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        """Return a new class. Raises FredError for an attribute without a type."""
        members = dict(namespace)  # pydantic changes the other one
        try:
            return super().__new__(cls, name, bases, namespace, **options)
        except PydanticUserError as error:
            if error.code not in _UNTYPED:
                raise
            # pydantic's messages quote the attribute as `name = value` or as Field 'name'
            untyped = next(key for key in members if f"`{key} = " in error.message or f"Field '{key}'" in error.message)
            raise FredError(_refusal(name, untyped, members[untyped], bases)) from None

    def __call__(cls, *values: Any, **options: Any) -> Any:
        """Return an instance. Raises FredError for a class that lacks a method."""
        if missing := sorted(getattr(cls, "__abstractmethods__", ())):
            raise FredError(f"{cls.__name__} lacks {', '.join(_described(cls, name) for name in missing)}")
        return super().__call__(*values, **options)


def _described(cls: type, name: str) -> str:
    """Return an abstract method or property with the first sentence about it."""
    member: Any = getattr(cls, name)
    kind = "property" if isinstance(member, property) else "method"
    function: Any = member.fget if isinstance(member, property) else member
    sentence = (inspect.getdoc(function) or "").partition("\n")[0].rstrip(".")
    signature = "" if isinstance(member, property) else f"({', '.join(inspect.signature(function).parameters)})"
    return f"the {kind} `{name}{signature}`{sentence and ': ' + sentence}"


def _refusal(name: str, attribute: str, value: Any, bases: tuple[type, ...]) -> str:
    """Return the message that refuses an attribute of the class `name` without a type, with possible lines instead.

    The lines have the type of the option that the attribute overrides, or else that of its value, if it is a simple one.
    """
    is_field = isinstance(value, FieldInfo)
    text = "Field(...)" if is_field else quoted(value)
    text = text if len(text) <= _LONGEST_VALUE else "..."
    fields = [getattr(base, "model_fields", {}) for base in bases]
    inherited: FieldInfo | None = next((base_fields[attribute] for base_fields in fields if attribute in base_fields), None)
    option_type = type(value.default if is_field else value)
    if inherited is not None:
        type_name = inherited.annotation.__name__ if isinstance(inherited.annotation, type) else str(inherited.annotation)
    else:
        type_name = option_type.__name__ if option_type in _SIMPLE else ""  # of `Field()`, any example will do
    lines = [f"`{attribute}: {type_name or 'float'} = {text}` for an option"] if type_name or is_field else []
    if not is_field and inherited is None:
        lines.append(f"`{attribute}: ClassVar[{type_name or 'Any'}] = {text}` (from typing) for a constant of the class")
    return f"{name}: `{attribute} = {text}` has no type; write {', or '.join(lines)}"
