"""The base class of all parts of a scenario: a frozen, validated set of options that scenarios choose by name."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fred.base.errors import FredError, quoted
from fred.components import own_code, registry
from fred.components.input_path import InputPath, UnreadError
from fred.components.problems import Keys, problems

NANOSECONDS = 1_000_000_000  # per second
LONGEST = 9e9  # s, 285 years: about the range of 64-bit nanoseconds
MOST_GRADIENTS = 200_000_000  # of one run: they take an hour, and more memory than most machines have
MOST_BYTES = 1 << 48  # of one model or message
MOST_POINTS = 1_000_000  # evaluations of a run


if TYPE_CHECKING:  # type checkers know the options of a class by pydantic's metaclass only
    from pydantic._internal._model_construction import ModelMetaclass as ComponentType
else:
    from fred.components.component_type import ComponentType

C = TypeVar("C", bound="Component")
_LATEST: ContextVar[dict[type, Any] | None] = ContextVar("_LATEST", default=None)  # the last valid component of each class
Count = Annotated[int, Field(ge=1, lt=2**31)]  # all numbers of things in scenarios are below 2^31
Natural = Annotated[int, Field(ge=0, lt=2**31)]  # the same, or 0
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Time = Annotated[float, Field(ge=0, le=LONGEST)]  # a time of the clock, s
Duration = Annotated[float, Field(ge=1e-9, le=LONGEST)]  # s, at least 1 ns, the clock's unit
Price = Annotated[float, Field(ge=0, le=1e12)]  # of a machine for an hour, of a GB, of a kWh, in any currency
Power = Annotated[float, Field(ge=0, le=1e12)]  # W


def _remember(component: Any) -> None:
    """Keep a valid component for `checked`.

    cloudpickle copies a class of a notebook or program together with the functions that pydantic keeps in it, and with their
    globals. It cannot copy a ContextVar. So `Component._refused` names this function, which is copied as a reference, instead.
    """
    if (latest := _LATEST.get()) is not None:
        latest[type(component)] = component


def without_example(docstring: str) -> str:
    """Return a docstring without its example and the paragraph that introduces the example.

    >>> without_example("Takes its time.\\n\\nA second:\\n\\n    >>> Constant(seconds=1.0)")
    'Takes its time.'
    """
    text, example, _ = docstring.partition(">>>")
    paragraphs = text.rstrip().split("\n\n")
    return "\n\n".join(paragraphs[:-1] if example and paragraphs[-1].endswith(":") else paragraphs)


class Component(BaseModel, metaclass=ComponentType):
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
        fred.FredError: Backoff.facter: unknown key `facter`; did you mean `factor`?; expected first, factor
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=False)

    def __init__(self, /, *positional: Any, **options: Any):
        """Validate the options, which are given by name. Raises FredError."""
        if positional:
            option = next(iter(type(self).model_fields), "name")
            raise FredError(
                f"{type(self).__name__}: options are given by name, such as `{option}={quoted(positional[0])[:40]}`"
            )
        try:
            super().__init__(**options)
        except ValidationError as error:
            refusals = problems(error.errors(), type(self), in_python=True)
            lines = [f"{'.'.join((type(self).__name__, *map(str, keys)))}: {line}" for keys, line in refusals]
            raise FredError(*dict.fromkeys(lines)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to set an option of an existing component. Raises FredError."""
        try:
            super().__setattr__(name, value)
        except ValidationError:
            raise FredError(f"{type(self).__name__}: `{name}` cannot be set: {self._instead_of_setting(name)}") from None

    def default_of(self, option: str) -> Any:
        """Return an option's value if it is not given.

        Args:
            option: the option's name.
        """
        return type(self).model_fields[option].default

    def given_options(self) -> dict[str, Any]:
        """Return the options from which the component can be made again, by name: all, or those that are not `default_of`."""
        return options_of(self)

    def _instead_of_setting(self, name: str) -> str:
        """Return the way to change an attribute, in words."""
        if name in type(self).model_fields:
            return f"components do not change; `.model_copy(update={{'{name}': ...}})` returns a changed copy"
        return f"options are fields of the class, such as `{name}: float = 1.0`, without `__init__`"

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # pydantic need not call it for nested components

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
            component = validate(options)
            _remember(component)
            return component
        except (FredError, ValueError, AssertionError):
            raise
        except Exception as error:
            if not (place := own_code.line_of(error)):
                raise
            raise ValueError(f"{type(error).__name__}: {error} ({place})") from error

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, options: Any) -> Any:
        """Refuse unknown keys, and true or false for a number. Otherwise return the options."""
        if isinstance(options, dict) and cls.model_config["extra"] == "forbid":  # `Unimported` allows all keys
            if options.get("name") is cls:  # a class instead of its name, as from `settings_of`
                options = {key: option for key, option in options.items() if key != "name"}
            for key in options:
                if key not in cls.model_fields:
                    raise PydanticCustomError(
                        "unknown_key",
                        "unknown key `{key}`{hint}; expected {known}",
                        {
                            "key": key,
                            "hint": registry.nearest(str(key), cls.model_fields) or nearest_inside(cls, key),
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
        options = {name: field.examples[0] for name, field in cls.model_fields.items() if field.examples}
        return cls.model_validate(options)


class Object(Component):
    """The base class of components that hold an object of another library, which only a program can give.

    Files and results have a description of it: its kind, and a digest of its content. Objects with equal digests are equal.
    """

    name: Literal["object"]
    content: Any = Field(exclude=True, repr=False, description="the object; it must not change")
    kind: str = Field(description="the object's class")
    digest: str = Field(description="SHA-256 of its content; empty: FRED cannot read its content")
    users: tuple[Any, ...] = Field(
        default=(), exclude=True, repr=False, description="the user's own classes and functions in it"
    )

    @classmethod
    def wrap(cls, content: Any) -> Self:
        """Return the component that holds an object. Raises FredError for an unsuitable one.

        Args:
            content: the object.
        """
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """Compare the objects, or their content if it can be read."""
        if type(self) is not type(other) or not isinstance(other, Object):
            return False
        facts = [(item.kind, item.digest, item.users) for item in (self, other)]
        return self.content is other.content or (self.digest != "" and facts[0] == facts[1])

    __hash__ = Component.__hash__

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any = None) -> Self:
        """Return the same object: points of a sweep share it."""
        return self


def options_of(component: Component) -> dict[str, Any]:
    """Return all options of `component` by name; components among them are not converted.

    >>> from fred.cluster.latency import Uniform
    >>> options_of(Uniform(low=1, high=2))
    {'low': 1.0, 'high': 2.0}
    """
    return {name: getattr(component, name) for name in type(component).model_fields} | (component.model_extra or {})


def nearest_inside(cls: type[Component], key: Any) -> str:
    """Return a suggestion to append to a message: the path of an option in a part of a component, or an empty text.

    Args:
        cls: the component's class.
        key: the name of the option.

    >>> from fred.specification.shape import Run
    >>> nearest_inside(Run, "workers"), nearest_inside(Run, "nothing")
    ('; did you mean `cluster.workers`?', '')
    """
    for name, field in cls.model_fields.items():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, Component) and key in part.model_fields:
                return f"; did you mean `{name}.{key}`?"
    return ""


def settings_of(value: Any, keys: tuple[str | int, ...] = ()) -> Any:
    """Return a component as settings, all the way down: mappings and lists that can be changed and validated again.

    A class of the user's stands for its own name, so that it need not be imported again. Objects of other libraries become
    components. Raises FredError for unsuitable ones.

    Args:
        value: a component, or settings with components and objects in them.
        keys: the keys that lead to the value.

    >>> from fred.cluster.latency import Constant
    >>> settings_of([Constant(seconds=2)])
    [{'name': 'constant', 'seconds': 2.0}]
    """
    if isinstance(value, Object):
        return value
    if isinstance(value, Component):
        bases = {f"{base.__module__}:{base.__qualname__}" for base in type(value).__mro__}
        kind = next((kind for kind, base in registry.BASES.items() if base in bases), None)
        name = registry.name_of(kind, value) if kind else ""
        named = {"name": type(value) if ":" in name else name} if name else {}  # `:` is only in the names of users' classes
        return {**named, **settings_of(value.given_options())}
    try:
        if (component := registry.object_of(value, _are_data(keys))) is not None:
            return component
    except FredError as error:
        raise FredError(f"{_path_of(keys)}: {error}") from None
    if isinstance(value, Mapping):
        return {key: settings_of(option, (*keys, key)) for key, option in value.items()}
    if isinstance(value, list | tuple):
        return [settings_of(item, (*keys, number)) for number, item in enumerate(value)]
    return value


def _path_of(keys: tuple[str | int, ...]) -> str:
    return ".".join(key if isinstance(key, str) else quoted(key) for key in keys)


def _are_data(keys: tuple[str | int, ...]) -> bool:
    """Return True for the keys of a task's data, also as a value of a sweep.

    >>> _are_data(("task", "data")), _are_data(("sweep", "over", "task.data")), _are_data(("sweep", "over", "task.data", 0))
    (True, False, True)
    """
    path = _path_of(keys)
    # A sweep has a list of values for an option, so only its items are data.
    if re.search(r"sweep\.over\.task\.data(\.\d+)?$", path):
        return isinstance(keys[-1], int)
    return path == "task.data" or path.endswith(".task.data")


def checked(cls: type[C], validate: Callable[[], C]) -> C:
    """Return a validated component. When a result is read, skip checks that need an input file or own code.

    The first such check and all later ones are skipped. The run that wrote the result has made them.

    Args:
        cls: the component's class.
        validate: function that makes the component.
    """
    # `_refused` stores a component as soon as its fields are valid, and before pydantic calls the validators of subclasses
    # (`mode="after"`). So if one of these needs an input that must not be read, the component exists already, without that
    # check and later ones.
    latest: dict[type, C] = {}
    token = _LATEST.set(latest)
    try:
        return validate()
    except UnreadError:
        if cls not in latest:
            raise
        return latest[cls]
    finally:
        _LATEST.reset(token)


def checked_as(cls: type[C]) -> WrapValidator:
    """Return the annotation of a field of this class, so that reading a result skips checks that need inputs or own code.

    Fields with `OneOf` do not need it: `OneOf` calls `checked` itself.

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
    return {path: None for item in parts for path in inputs_of(item)}


def is_user_class(cls: type) -> bool:
    """Return True for a class of the user's."""
    return not cls.__module__.startswith("fred.")


def objects_of(part: Any) -> list[Object]:
    """Return the objects of other libraries in a component, or in a mapping or tuple of components.

    Args:
        part: the component, or anything.
    """
    if isinstance(part, Object):
        return [part]
    part = options_of(part) if isinstance(part, Component) else part
    parts = part.values() if isinstance(part, Mapping) else part if isinstance(part, tuple | list) else ()
    return [item for member in parts for item in objects_of(member)]


def own_classes(part: Any) -> set[str]:
    """Return the user's own classes among the parts of a run, as `module:Class`; also the functions in objects."""
    if isinstance(part, Object):
        return {f"{function.__module__}:{function.__qualname__}" for function in part.users}
    if isinstance(part, Component):
        cls = type(part)
        names = {f"{cls.__module__}:{cls.__qualname__}"} if is_user_class(cls) else set()
        return names.union(*map(own_classes, options_of(part).values()))
    return set().union(*map(own_classes, part)) if isinstance(part, tuple | list) else set()


def _holds_truth(value: Any) -> bool:
    """Return True for a boolean, or a list with a boolean, which Python would accept as a number."""
    return isinstance(value, bool) or (isinstance(value, (list, tuple)) and any(map(_holds_truth, value)))


def _is_number(annotation: str) -> bool:
    """Return True if an option of this type, written as text, takes numbers but no booleans."""
    return re.search(r"\b(int|float)\b", annotation) is not None and "bool" not in annotation


class Rule(NamedTuple, Generic[C]):
    """Options of a component that a fact about the component excludes.

    Args:
        options: paths of the options, with spaces between them; `*` stands for each item of a list. The rule applies to options
            that are not at their default. Empty: it always applies.
        excluded: returns the fact that excludes the option, or anything false; called with the component and the option's
            value.
        message: the problem and its whole cure, a format string in which `fact` and `value` are these two, `option` is the last
            key of the option's path, and `self` is the component.
        part: key of the component's part that messages name instead of the component.

    Example: a rule for clusters of one worker:

        >>> import fred
        >>> lonely = Rule("workers", lambda cluster, number: number < 2, "`{option}` is {value}; expected 2 or more")
        >>> check_rules(fred.Cluster(workers=1), [lonely])
        Traceback (most recent call last):
        ValueError: `workers` is 1; expected 2 or more
    """

    options: str
    excluded: Callable[[C, Any], object]
    message: str
    part: str = ""

    def objection(self, component: C, keys: Keys, value: Any) -> str:
        """Return the message if the component's fact excludes an option; else nothing.

        Args:
            component: the component.
            keys, value: keys and value of one of the rule's options that is set.
        """
        fact = self.excluded(component, value)
        return self.message.format(self=component, fact=fact, value=value, option=keys[-1] if keys else "") if fact else ""


def check_rules(component: C, rules: Iterable[Rule[C]]) -> None:
    """Raise an error for the first broken rule, as a validator of the component.

    Args:
        component: the component, with valid parts.
        rules: its rules; a rule may rely on those before it.
    """
    for rule in rules:
        for keys, value in set_options(component, rule.options):
            if message := rule.objection(component, keys, value):
                raise error_at(rule.part, message) if rule.part else ValueError(message)


def set_options(component: Component, paths: str) -> Iterator[tuple[Keys, Any]]:
    """Yield the keys and the value of each option that is not its default.

    Args:
        component: the component.
        paths: paths of options as in `Rule`; empty: the component itself.
    """
    for path in paths.split() or [""]:
        yield from _set_values(component, tuple(path.split(".")) if path else (), ())


def _set_values(part: Any, path: tuple[str, ...], keys: Keys) -> Iterator[tuple[Keys, Any]]:
    """Yield the keys and values at the rest of a path, below a part that `keys` lead to."""
    if not path:
        yield keys, part
    elif path[0] == "*":
        for number, item in enumerate(part):
            yield from _set_values(item, path[1:], (*keys, number))
    elif isinstance(part, Component) and path[0] in type(part).model_fields:
        value = getattr(part, path[0])
        if value is not None and value != part.default_of(path[0]):
            yield from _set_values(value, path[1:], (*keys, path[0]))


def error_at(part: str, message: str) -> PydanticCustomError:
    """Return the error of a validator whose message names the line of a part.

    Args:
        part: key of the part.
        message: the message.
    """
    return PydanticCustomError("component", "{reason}", {"reason": message, "key": part})
