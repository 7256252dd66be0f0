"""The field annotation `OneOf`: a component by its name in a registry table, or a class of the user's own, which is checked."""

import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from pydantic import (
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializationInfo,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema, to_jsonable_python

from fred.base.errors import FredError, quoted
from fred.components import own_code, registry
from fred.components.component import Component, Object, checked, is_user_class
from fred.components.input_path import UnreadError


@cache
def check_members(cls: type[Any]) -> None:
    """Raise FredError for a method with wrong parameters, or a public method or option that neither FRED nor the user names.

    Python cannot tell who will call a method. So a name counts as used if it occurs in the code of the class or of its module.

    Args:
        cls: a class derived from one of FRED's components.

    >>> import fred
    >>> class Mine(fred.Server):
    ...     def aply_update(self, state, message, timestamp, worker):
    ...         return state
    >>> Mine.__module__ = "mine"
    >>> fred.scenario(algorithm=Mine(learning_rate=0.1), cluster={"workers": 2}, stop={"updates": 4})
    Traceback (most recent call last):
    ...
    fred.FredError: algorithm.name: nothing uses `aply_update` of Mine; did you mean `apply_update`?; ...
    """
    fred_bases = [part for part in cls.__mro__ if not is_user_class(part)]
    user_bases = [part for part in cls.__mro__ if is_user_class(part)]  # and pydantic's, whose members FRED's bases have too
    methods = [name for part in user_bases for name, member in vars(part).items() if inspect.isfunction(member)]
    for name in methods:
        _check_parameters(cls, name, [part for part in fred_bases if inspect.isfunction(vars(part).get(name))])
    options = [name for name in cls.model_fields if not any(name in getattr(part, "model_fields", ()) for part in fred_bases)]
    new_names = [
        name for name in (*methods, *options) if name[0] != "_" and not any(hasattr(part, name) for part in fred_bases)
    ]
    if not new_names:
        return
    used = {name for part in user_bases for name in _names_in(part)}
    for name in new_names:
        if name not in used:
            hooks = [
                hook
                for part in fred_bases
                for hook, member in vars(part).items()
                if inspect.isfunction(member) and hook[0] != "_"
            ]
            raise FredError(
                f"nothing uses `{name}` of {cls.__qualname__}{registry.nearest(name, hooks)}; FRED calls the methods of its "
                f"base classes only; begin a name that your own program uses with `_`"
            )


def _check_parameters(cls: type[Any], name: str, overridden: list[type[Any]]) -> None:
    """Raise FredError if a method cannot be called as FRED calls the one that it overrides, with arguments by position."""
    if not overridden:
        return
    parameters = inspect.signature(vars(overridden[0])[name]).parameters.values()
    arguments = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    method = getattr(cls, name)
    try:
        inspect.signature(method).bind(*arguments)
    except TypeError as error:
        expectation = f"`{name}` of {cls.__qualname__} must take ({', '.join(arguments)})"
        raise FredError(f"{expectation}: {error} ({own_code.place_of(method)})") from None


def _names_in(cls: type[Any]) -> Iterator[str]:
    """Yield the names in the code of a class and of its module."""
    module = sys.modules.get(cls.__module__)
    for member in (*vars(cls).values(), *(vars(module).values() if module else ())):
        if isinstance(member, type) and member.__module__ == cls.__module__:
            for function in vars(member).values():
                yield from _names_of(function)
        yield from _names_of(member)


def _names_of(member: Any) -> Iterator[str]:
    """Yield the names of attributes and the texts in a function's code, and in that of functions within."""
    # the function of a property, a cached property, a decorated function, or a class or static method
    member = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__wrapped__", member)
    member = getattr(member, "__func__", member)
    codes = [member.__code__] if isinstance(member, FunctionType) else []
    while codes:
        code = codes.pop()
        yield from code.co_names
        yield from (constant for constant in code.co_consts if isinstance(constant, str))
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


KIND_KEY = "x-one-of"
_PYTHON_FORMS = {"data": ", or arrays `(X, y)`", "model": ", or a module of Flax or Equinox"}
_CALL_METHODS = {  # methods of a class that calls the user's function
    "model": "`init(self, key, input_shape, outputs)`, which returns parameters, and `apply(self, params, inputs)`",
    "latency": "`sample(self, u)`, which returns durations in s for numbers between 0 and 1, and a property `mean`",
    "algorithm": "`apply_update(self, state, grads, timestamp, worker)`",
    "loss": "`losses(self, outputs, answers)`",
}


class OneOf:
    """Field annotation for a component of one registry table, written as `{name: ..., options}` or as its name.

    Args:
        kind: the table's name in `registry.REGISTRY`.

    A component that contains another:

        >>> from typing import Annotated
        >>> from fred.cluster.latency import Latency
        >>> class Twice(Component):
        ...     of: Annotated[Latency, OneOf("latency")]
        ...     def mean(self):
        ...         return 2 * self.of.mean
        >>> Twice(of={"name": "constant", "seconds": 1.5}).mean()
        3.0
    """

    def __init__(self, kind: str):
        self.kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            self._validate, serialization=core_schema.plain_serializer_function_ser_schema(self._serialized, info_arg=True)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {KIND_KEY: self.kind}  # a placeholder, which fred.specification.schema replaces by a reference

    def dump(self, component: Component, briefly: bool = False, context: Any = None) -> dict[str, Any]:
        """Return the `component` as a scenario writes it: its name and options, or (`briefly`) those that are not default.

        Of a user's own class only the defaults of its kind's base class count: a result can be read without the class.
        """
        is_users = is_user_class(type(component))
        options = component.model_dump(exclude_defaults=briefly and not is_users, context=context)
        if briefly and is_users:
            defaults = {name: field.default for name, field in registry.base(self.kind).model_fields.items()}
            options = {
                name: value for name, value in options.items() if name not in defaults or not _is_default(value, defaults[name])
            }
        return {"name": registry.name_of(self.kind, component), **options}

    def _serialized(self, component: Component, info: SerializationInfo) -> dict[str, Any]:
        return self.dump(component, info.exclude_defaults, info.context)

    def _with_protocols(self, error: Any, default: Any) -> Any:
        """Return an error with a protocol that has the unknown key as an option: the `default` one, or else the first.

        Other errors stay the same.
        """
        if error["type"] != "unknown_key" or error["loc"] or self.kind not in ("algorithm", "protocol"):
            return error
        key = error["ctx"]["key"]
        if not (names := registry.protocols_with(key)):
            return error
        owner = default if default in names else names[0]
        owners = f"`protocol: {{name: {owner}}}`" + " and others" * (len(names) > 1)
        return error | {"msg": error["msg"].replace(f"`{key}`", f"`{key}`, which is an option of {owners}", 1)}

    def _validate(self, value: Any, info: ValidationInfo) -> Component:
        """Return the component that a value describes. Raises PydanticCustomError."""
        try:  # a file cannot have a tuple
            value = registry.object_of(value, are_arrays=self.kind == "data" and isinstance(value, tuple)) or value
        except FredError as error:
            raise PydanticCustomError("component", "{reason}", {"reason": str(error)}) from error
        if isinstance(value, Object) and not isinstance(value, registry.base(self.kind)):
            raise PydanticCustomError(
                "component", "found {kind}; expected {expected}", {"kind": value.kind, "expected": self._expectation}
            )
        if isinstance(value, Component):
            if is_user_class(type(value)):
                check_members(type(value))
            return value
        if isinstance(value, str | type):
            value = {"name": value}
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str | type):
            raise PydanticCustomError(
                "component",
                "{value}expected {expected}",
                {"value": _describe_type(value), "expected": self._expectation + self._cure(value)},
            )
        options = {key: option for key, option in value.items() if key != "name"}
        try:
            if value["name"] == registry.OBJECT and is_recorded(info):
                return Absent.model_validate(dict(value), context=info.context)
            cls: type[Component] = self._class_of(value["name"], info)
            if is_user_class(cls) and not issubclass(cls, Unimported):
                check_members(cls)
            return checked(cls, lambda: cls.model_validate(options, context=info.context))
        except FredError as error:
            raise PydanticCustomError("component", "{reason}", {"reason": str(error), "key": "name"}) from error
        except ValidationError as error:
            nested = [self._with_protocols(problem, getattr(cls, "protocol", "")) for problem in error.errors()]
            reason = "; ".join(f"{'.'.join(map(str, line['loc'])) or cls.__name__}: {line['msg']}" for line in nested)
            # `problems` reads `nested` and `model`; other readers of the error see `reason`
            raise PydanticCustomError("component", "{reason}", {"reason": reason, "nested": nested, "model": cls}) from error

    @property
    def _expectation(self) -> str:
        """Return a description of the values that a scenario may have here."""
        base, objects = registry.BASES[self.kind].partition(":")[2], _PYTHON_FORMS.get(self.kind, "")
        return f"a name or a mapping with the key `name`, or in Python an instance of `fred.{base}`{objects}"

    def _cure(self, value: Any) -> str:
        """Return how to give what a value of the wrong kind probably means; empty for an unknown one."""
        if self.kind == "latency" and isinstance(value, int | float):
            constant = f"`{{name: constant, seconds: {value:g}}}`, in Python `fred.latency.Constant(seconds={value:g})`"
            return f"; a constant time in s is {constant}"
        if callable(value) and (methods := _CALL_METHODS.get(self.kind)):
            base = registry.BASES[self.kind].partition(":")[2]
            return f"; to use a function, write a class derived from `fred.{base}` with {methods}"
        if self.kind == "data" and hasattr(value, "columns"):
            return "; of a data frame, name the column with the answers: `data=(frame.drop(columns='y'), frame['y'])`"
        return ""

    def _class_of(self, name_or_class: Any, info: ValidationInfo) -> type[Component]:
        """Return the class with this name, or the class that a program gives instead of a name. Raises FredError."""
        if isinstance(name_or_class, type):
            return registry.complete(self.kind, name_or_class, name_or_class.__qualname__)
        if is_recorded(info) and registry.is_unimported(name_or_class):
            return _unimported(name_or_class)  # a result is read without the user's code: a stand-in holds its options
        return registry.lookup(self.kind, name_or_class)


def _describe_type(value: Any) -> str:
    """Return the beginning of a message that refuses a value; empty for values too long to show."""
    if isinstance(value, str | int | float):
        return f"found {quoted(value)}; "
    return f"found a {type(value).__name__}; " if value is not None and not isinstance(value, Mapping | list | tuple) else ""


def _is_default(value: Any, default: Any) -> bool:
    """Return True if an option has its default, both as JSON."""
    return bool(to_jsonable_python(value, fallback=str) == to_jsonable_python(default, fallback=str))


class UnimportedError(UnreadError, AttributeError):
    """Error of access to an attribute that needs a class of the user's; `hasattr` returns False."""


class Unimported(Component):
    """A component of the user's own in a result that is read without importing its class: only the recorded options.

    Each class has a subclass of the same name. The result can be shown, but its runs cannot be repeated.
    """

    model_config = ConfigDict(extra="allow")

    def doubts(self) -> tuple[str, ...]:
        """Return no warnings: only the class knows them."""
        return ()

    @classmethod
    def cure(cls) -> str:
        """Return the message for anything that needs the class."""
        return registry.needs_import(cls.__module__)

    @model_validator(mode="before")
    @classmethod
    def _only_recorded(cls, options: Any, info: ValidationInfo) -> Any:
        if not is_recorded(info):
            raise PydanticCustomError("component", "{reason}", {"reason": cls.cure(), "key": "name"})
        return options

    def __getattr__(self, name: str) -> Any:
        """Return a recorded option. Raises UnimportedError for anything that needs the class."""
        if name.startswith("_") or name in (self.__pydantic_extra__ or {}):
            return super().__getattr__(name)  # type: ignore[misc]  # pydantic hides it from type checkers
        raise UnimportedError(self.cure())


class Absent(Unimported):
    """An object of a program in a result that is read: only its description."""

    @classmethod
    def cure(cls) -> str:
        """Return the message for anything that needs the object."""
        return registry.ONLY_DESCRIBED


@cache
def _unimported(name: str) -> type[Unimported]:
    """Return the class that stands for `name`, `module:Class`."""
    module, _, class_name = name.partition(":")
    return type(class_name, (Unimported,), {"__module__": module, "__qualname__": class_name})


def is_recorded(info: ValidationInfo) -> bool:
    """Return True if pydantic validates the specification in a result's manifest.

    Args:
        info: what pydantic tells a validator.
    """
    return bool((info.context or {}).get("recorded"))
