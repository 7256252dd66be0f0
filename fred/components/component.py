"""The base class of all parts of a scenario: a frozen, validated set of options that scenarios choose by name."""

import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache, cached_property
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    SerializationInfo,
    ValidationError,
    ValidationInfo,
    WrapValidator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema, to_jsonable_python

from fred.base.errors import FredError
from fred.components import own_code, registry
from fred.components.input_path import InputPath, UnreadError

C = TypeVar("C", bound="Component")
_MADE: ContextVar[dict[type, Any] | None] = ContextVar("_MADE", default=None)  # the last valid component of each class
Count = Annotated[int, Field(ge=1, lt=2**31)]  # all numbers of things in scenarios are below 2^31
Whole = Annotated[int, Field(ge=0, lt=2**31)]  # the same, or 0


def without_example(docstring: str) -> str:
    """Return a docstring without its example and the paragraph that introduces the example.

    >>> without_example("Takes its time.\\n\\nA second:\\n\\n    >>> Constant(seconds=1.0)")
    'Takes its time.'
    """
    text, example, _ = docstring.partition(">>>")
    paragraphs = text.rstrip().split("\n\n")
    return "\n\n".join(paragraphs[:-1] if example and paragraphs[-1].endswith(":") else paragraphs)


class Component(BaseModel):
    """A set of options with behaviour. It is hashable and comparable, and refuses unknown keys, NaN and infinity.

    Each required field has `examples`, from which documentation, editors and the contract tests build instances.

    Fields are those of pydantic, with a type, a default, and a description with unit. The constructor refuses invalid options:

        >>> import fred
        >>> from pydantic import Field
        >>> class Backoff(fred.Component):
        ...     first: float = Field(gt=0, examples=[0.5], description="wait before the second attempt, s")
        ...     factor: float = Field(2.0, ge=1, description="of each further wait")
        ...     def wait(self, attempt):
        ...         return self.first * self.factor**attempt
        >>> Backoff.example().wait(3), Backoff(first=0.5) == Backoff.example()
        (4.0, True)
        >>> Backoff(first=0.5, facter=3)
        Traceback (most recent call last):
            ...
        pydantic_core._pydantic_core.ValidationError: 1 validation error for Backoff
          unknown key `facter`; did you mean `factor`?; expected first, factor ...
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=False)

    def __eq__(self, other: object) -> bool:
        """Compare class and options. Cached properties do not count."""
        return type(self) is type(other) and isinstance(other, Component) and options_of(self) == options_of(other)

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), self.model_dump_json()))

    def __hash__(self) -> int:
        return self._hash

    @model_validator(mode="wrap")
    @classmethod
    def _refused(cls, options: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Validate options, and turn errors of the user's own code into ValueErrors. Errors of FRED's code are not changed."""
        try:
            made = validate(options)
            if (waiting := _MADE.get()) is not None:
                waiting[cls] = made
            return made
        except (FredError, ValueError, AssertionError):
            raise
        except Exception as error:
            if not (place := own_code.line_of(error)):
                raise
            raise ValueError(f"{type(error).__name__}: {error} ({place})") from error

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, options: Any) -> Any:
        if isinstance(options, dict) and cls.model_config["extra"] == "forbid":
            for key in options:
                if key not in cls.model_fields:
                    raise PydanticCustomError(
                        "unknown_key",
                        "unknown key `{key}`{hint}; expected {known}",
                        {
                            "key": key,
                            "hint": registry.nearest(str(key), cls.model_fields),
                            "known": ", ".join(cls.model_fields) or "no options",
                        },
                    )
                if _holds_truth(options[key]) and _is_number(str(cls.model_fields[key].annotation)):
                    raise PydanticCustomError(
                        "truth",
                        "found true or false; expected: {meaning}",
                        {"key": key, "meaning": cls.model_fields[key].description or "another kind of value"},
                    )
        return options

    def model_copy(self: C, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> C:
        """Return a copy with other options, which are validated.

        Args:
            update: new values, by option name; all other options stay the same.
            deep: ignored, because components are immutable.
        """
        return type(self).model_validate({**options_of(self), **(update or {})})

    @classmethod
    def example(cls: type[C]) -> C:
        """Return an instance with the fields' first examples and defaults."""
        given = {name: field.examples[0] for name, field in cls.model_fields.items() if field.examples}
        return cls.model_validate(given)


def options_of(component: Component) -> dict[str, Any]:
    """Return all options of `component` by name; components among them are not converted.

    >>> from fred.cluster.latency import Uniform
    >>> options_of(Uniform(low=1, high=2))
    {'low': 1.0, 'high': 2.0}
    """
    return {name: getattr(component, name) for name in type(component).model_fields} | (component.model_extra or {})


def checked(cls: type[C], validate: Callable[[], C]) -> C:
    """Return a validated component. When a result is read, skip checks that need an input file or own code.

    The first such check and all later ones are skipped. The run that wrote the result has made them.

    Args:
        cls: the component's class.
        validate: function that makes the component.
    """
    made: dict[type, C] = {}
    before = _MADE.set(made)
    try:
        return validate()
    except UnreadError:
        if cls not in made:
            raise
        return made[cls]
    finally:
        _MADE.reset(before)


def checked_as(cls: type[C]) -> WrapValidator:
    """Return the field annotation that applies `checked` to a component without `OneOf`.

    Args:
        cls: the component's class.
    """
    return WrapValidator(lambda value, validate: checked(cls, lambda: validate(value)))


def inputs_of(part: Any) -> dict[InputPath, None]:
    """Return the input paths in a component, or in a mapping or tuple of components, each once.

    >>> from fred.cluster.cluster import Cluster
    >>> list(inputs_of(Cluster(workers=8, compute={"name": "trace", "file": "example"})))
    ['example']
    """
    if isinstance(part, InputPath):
        return {part: None}
    if isinstance(part, Component):
        part = options_of(part)
    parts = part.values() if isinstance(part, Mapping) else part if isinstance(part, tuple | list) else ()
    return {path: None for each in parts for path in inputs_of(each)}


class Unimported(Component):
    """A component of the user's own in a result that is read without importing its class: only the recorded options.

    Each class has a subclass of the same name. The result can be shown, but its runs cannot be repeated.
    """

    model_config = ConfigDict(extra="allow")

    def doubts(self) -> tuple[str, ...]:
        """Return no warnings: only the class knows them."""
        return ()

    @model_validator(mode="before")
    @classmethod
    def _only_recorded(cls, options: Any, info: ValidationInfo) -> Any:
        if not is_recorded(info):
            raise PydanticCustomError("component", "{reason}", {"reason": registry.needs_import(cls.__module__), "key": "name"})
        return options

    def __getattr__(self, name: str) -> Any:
        """Return a recorded option. Raises UnreadError for anything that needs the class."""
        if name.startswith("_") or name in (self.__pydantic_extra__ or {}):
            return super().__getattr__(name)  # type: ignore[misc]  # pydantic hides it from type checkers
        raise UnreadError(registry.needs_import(type(self).__module__))


@cache
def _unimported(name: str) -> type[Unimported]:
    """Return the class that stands for `name`, `module:Class`."""
    module, _, own = name.partition(":")
    return type(own, (Unimported,), {"__module__": module, "__qualname__": own})


def is_recorded(info: ValidationInfo) -> bool:
    """Return True if pydantic validates the specification in a result's manifest."""
    return bool((info.context or {}).get("recorded"))


def _is_own(cls: type) -> bool:
    return not cls.__module__.startswith("fred.")


def own_classes(part: Any) -> set[str]:
    """Return the user's own classes among the parts of a run, as `module:Class`."""
    if isinstance(part, Component):
        cls = type(part)
        here = {f"{cls.__module__}:{cls.__qualname__}"} if _is_own(cls) else set()
        return here.union(*map(own_classes, options_of(part).values()))
    return set().union(*map(own_classes, part)) if isinstance(part, tuple | list) else set()


def _holds_truth(value: Any) -> bool:
    """Return True for a boolean, or a list with a boolean, which Python would accept as a number."""
    return isinstance(value, bool) or (isinstance(value, (list, tuple)) and any(map(_holds_truth, value)))


def _is_number(annotation: str) -> bool:
    return re.search(r"\b(int|float)\b", annotation) is not None and "bool" not in annotation


ONE_OF = "x-one-of"


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
        return {ONE_OF: self.kind}  # a placeholder, which fred.specification.schema replaces by a reference

    def dump(self, component: Component, briefly: bool = False, context: Any = None) -> dict[str, Any]:
        """Return the `component` as a scenario writes it: its name and options, or (`briefly`) those that are not default.

        Of a user's own class only the defaults of its kind's base class count: a result can be read without the class.
        """
        own = _is_own(type(component))
        options = component.model_dump(exclude_defaults=briefly and not own, context=context)
        if briefly and own:
            usual = {name: field.default for name, field in registry.base(self.kind).model_fields.items()}
            options = {name: value for name, value in options.items() if name not in usual or not _same(value, usual[name])}
        return {"name": registry.name_of(self.kind, component), **options}

    def _serialized(self, component: Component, info: SerializationInfo) -> dict[str, Any]:
        return self.dump(component, info.exclude_defaults, info.context)

    def _with_protocols(self, error: Any, usual: Any) -> Any:
        """Return the error for an unknown key, with protocols that have an option of this name: the `usual` one, if it has."""
        if error["type"] != "unknown_key" or error["loc"] or self.kind not in ("algorithm", "protocol"):
            return error
        key = error["ctx"]["key"]
        if not (names := registry.protocols_with(key)):
            return error
        owner = usual if usual in names else names[0]
        owners = f"`protocol: {{name: {owner}}}`" + " and others" * (len(names) > 1)
        return error | {"msg": error["msg"].replace(f"`{key}`", f"`{key}`, which is an option of {owners}", 1)}

    def _validate(self, value: Any, info: ValidationInfo) -> Component:
        if isinstance(value, Component):
            return value
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            raise PydanticCustomError("component", "expected a name or a mapping with the key `name`")
        options = {key: option for key, option in value.items() if key != "name"}
        try:
            unimported = is_recorded(info) and registry.is_unimported(value["name"])
            cls = _unimported(value["name"]) if unimported else registry.lookup(self.kind, value["name"])
            return checked(cls, lambda: cls.model_validate(options, context=info.context))
        except FredError as error:
            raise PydanticCustomError("component", "{reason}", {"reason": str(error), "key": "name"}) from error
        except ValidationError as error:
            nested = [self._with_protocols(each, getattr(cls, "protocol", "")) for each in error.errors()]
            said = "; ".join(f"{'.'.join(map(str, line['loc'])) or value['name']}: {line['msg']}" for line in nested)
            raise PydanticCustomError("component", "{said}", {"said": said, "nested": nested}) from error


def _same(value: Any, default: Any) -> bool:
    """Return True if an option has its default, both as JSON."""
    one, other = (to_jsonable_python(each, fallback=str) for each in (value, default))
    return bool(one == other)
