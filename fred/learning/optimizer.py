"""Optax gradient transformations and learning-rate schedules by name: `adam`, `{name: sgd, momentum: 0.9}`, or a list.

Names and options are checked against optax's signatures (`FromOptax`, which learning-rate schedules share). In Python, an
optimizer can also be optax's own object, such as `optax.adam(1e-3)`.

| rule                                    | schedule                                                                    |
|-----------------------------------------|-----------------------------------------------------------------------------|
| exponential decay, in steps or smoothly | `{name: exponential_decay, decay_rate: 0.94, transition_steps: 2000}`       |
| linear anneal to zero at the end        | `{name: linear_schedule, end_value: 0, transition_begin: 9000,`             |
|                                         | `transition_steps: 1000}`                                                   |
| warm-up                                 | `{name: linear_schedule, init_value: 0, end_value: 1, transition_steps: 500}` |
| 1 / (updates + 1)^0.75                  | `{name: inverse_power_schedule, power: 0.75}` (FRED's own)                  |
| x 0.1 at given points                   | `{name: piecewise_constant_schedule, boundaries_and_scales: {30: .1, 60: .1}}` |

The schedules of a list are multiplied: for a warm-up and a decay, give a list of two. Each schedule is a factor of the base
rate. If optax requires an initial (or peak) value, it is 1 by default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    SerializeAsAny,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fred.base.errors import FredError
from fred.base.imports import jax, optax
from fred.components import own_code, registry
from fred.components.component import Component, Object
from fred.components.input_path import UnreadError
from fred.components.one_of import is_recorded
from fred.components.registry import nearest


class FromOptax(Component):
    """A function of optax by name, with its options.

    The function is in `optax`, in `optax.contrib` (the name may begin with `contrib.`) or in `beyond_optax`.
    """

    model_config = ConfigDict(extra="allow")

    reserved: ClassVar[str] = ""  # option of the function that FRED sets itself

    name: str

    @property
    def factory(self) -> Callable[..., Any]:
        """The function of optax."""
        return find_function(self.name)

    @property
    def arguments(self) -> dict[str, Any]:
        """The options given for the function, by name."""
        return dict(self.model_extra or {})

    def check_options(self) -> None:
        """Raise ValueError for an option that the function does not have, and for a number that is not finite."""
        options = inspect.signature(self.factory).parameters
        for option, value in self.arguments.items():
            if option not in options:
                names = [option_name for option_name in options if option_name != self.reserved]
                raise ValueError(f"`{self.name}` has no option `{option}` here{nearest(option, names)}")
            numbers = np.ravel(list(value.values()) if isinstance(value, Mapping) else value).tolist()
            if not np.isfinite([number for number in numbers if isinstance(number, float)]).all():
                raise ValueError(f"option `{option}` of `{self.name}`: found {value}; expected a finite number")


def find_function(name: str) -> Any:
    """Return the object called `name` in `optax`, `optax.contrib` or `beyond_optax`, searched in this order.

    Return None if none of them has it.

    >>> find_function("adam") is optax.adam, find_function("adamm")
    (True, None)
    >>> find_function("muon") is find_function("contrib.muon") is optax.contrib.muon
    True
    >>> from fred.learning import beyond_optax
    >>> find_function("inverse_power_ema") is beyond_optax.inverse_power_ema
    True
    """
    from fred.learning import beyond_optax

    short_name = name.removeprefix("contrib.")
    return getattr(optax, name, None) or getattr(optax.contrib, short_name, None) or getattr(beyond_optax, name, None)


def public_names() -> list[str]:
    """Return all public names in the modules that `find_function` searches."""
    from fred.learning import beyond_optax

    return [name for module in (optax, optax.contrib, beyond_optax) for name in dir(module) if not name.startswith("_")]


def refused(name: str, error: Exception) -> ValueError:
    """Return the ValueError that reports an `error` raised by the function called `name`, by its first line."""
    return ValueError(f"{name} cannot be used with these options: {str(error).partition(chr(10))[0]}")


def as_list(value: Any) -> list[Any]:
    """Return the parts of an option that takes one function of optax or several; names become mappings.

    Args:
        value: a name, a mapping, an object of optax, or a list of them.
    """
    parts = value if isinstance(value, list) or type(value) is tuple else [value]  # optax's objects are named tuples
    for part in parts:
        if inspect.isfunction(part):
            raise ValueError(
                f"found the function `{part.__name__}`; expected its result, such as `optax.{part.__name__}(1e-3)`, or its name"
            )
    return [{"name": part} if isinstance(part, str) else part for part in parts]


_SINGLE = [{"type": "string"}, {"type": "object", "properties": {"name": {"type": "string"}}}]
ONE_OR_SEVERAL = (  # annotations of a field: a name, a mapping of name and options, or a list of them
    BeforeValidator(as_list),
    WithJsonSchema({"anyOf": [*_SINGLE, {"type": "array", "items": {"anyOf": _SINGLE}}]}),
)


_VALIDATED: set[tuple[Any, str]] = set()  # transformations that have been tried, with their options

_OF_MATRICES = {"muon", "scale_by_muon", "galore", "scale_by_galore"}
_NOT_ANNOTATED = ("dog", "dowg", "hutchinson_estimator_diag_hessian")  # of optax.contrib
_NEEDS_VALUES = "it needs the loss, or a function of the parameters, at each update, and servers receive only gradients"
_ELSEWHERE = "its state holds the parameters to evaluate, and averaging and modulated steps do not change that state"
_OTHER_BITS = "compiled in a loop it gives other last bits than alone, so a shared or resumed run would differ; take `adagrad`"
_REFUSED = {
    **dict.fromkeys(("momo", "momo_adam", "reduce_on_plateau", "lbfgs", "scale_by_polyak", "polyak_sgd"), _NEEDS_VALUES),
    **dict.fromkeys(("sophia", "hutchinson_estimator_diag_hessian", "sam", "scale_by_backtracking_linesearch"), _NEEDS_VALUES),
    **dict.fromkeys(("schedule_free", "schedule_free_adamw", "schedule_free_sgd"), _ELSEWHERE),
    **dict.fromkeys(("madgrad", "scale_by_madgrad"), _OTHER_BITS),
}
_REFUSED_STATES = {
    "ScheduleFreeState": _ELSEWHERE,
    "SAMState": _NEEDS_VALUES,
    "MadgradState": _OTHER_BITS,
}  # of objects, whose names are unknown


class Transformation(FromOptax):
    """One optax gradient transformation: its name in the optax namespace, and its options.

    Names and options that optax does not have are refused here, before anything runs:

        >>> from fred.learning.optimizer import Transformation
        >>> Transformation(name="sgd", momentum=0.9).takes_rate, Transformation(name="clip", max_delta=1.0).takes_rate
        (True, False)
        >>> Transformation(name="sgd", momentun=0.9)
        Traceback (most recent call last):
            ...
        fred.FredError: Transformation: `sgd` has no option `momentun` here; did you mean `momentum`?
    """

    reserved: ClassVar[str] = "learning_rate"

    @classmethod
    def unchecked(cls, name: str, **options: Any) -> Transformation:
        """Return a transformation without checks, for defaults: FRED makes them before it loads optax.

        Tests check these defaults instead.

        Args:
            name: name in the optax namespace.
            options: the transformation's options.

        >>> Transformation.unchecked("sgd", momentum=0.9) == Transformation(name="sgd", momentum=0.9)
        True
        """
        return cls.model_construct(name=name, **options)

    @model_validator(mode="after")
    def _check_name(self) -> Transformation:
        if not _transforms(find_function(self.name)):
            # Optax may have a function of this very name, which returns no transformation: that is no hint.
            hint = nearest(self.name, [name for name in public_names() if name != self.name])
            raise ValueError(f"optax has no gradient transformation `{self.name}`{hint}")
        if reason := _REFUSED.get(self.name.removeprefix("contrib.")):
            raise ValueError(f"optax.{self.name} cannot be used: {reason}")
        if "learning_rate" in self.arguments:
            raise ValueError(f"the learning rate is the algorithm's own option `learning_rate`, not one of `{self.name}`")
        self.check_options()
        key = (self.factory, self.model_dump_json())
        if key not in _VALIDATED:  # all runs of a sweep may have the same one
            _check_step(f"optax.{self.name}", self.build)
            _VALIDATED.add(key)
        return self

    @property
    def of_matrices(self) -> bool:
        """True if it treats two-dimensional arrays as matrices and must receive them whole, not in blocks."""
        return self.name.removeprefix("contrib.") in _OF_MATRICES

    def build(self, learning_rate: Any) -> optax.GradientTransformation:
        """Return the optax transformation. It receives the learning rate if it takes one.

        Args:
            learning_rate: a number, or an array without dimensions.
        """
        rate = {"learning_rate": learning_rate} if self.takes_rate else {}
        return self.factory(**rate, **self.arguments)

    @property
    def takes_rate(self) -> bool:
        """True if the transformation takes the learning rate."""
        return _takes_rate(self.factory)


class OptaxObject(Object):
    """A gradient transformation that a program has made with optax. Its learning rate is in it.

    >>> import optax
    >>> from fred.learning.optimizer import OptaxObject
    >>> OptaxObject.wrap(optax.adam(1e-3)).kind
    'optax.chain'
    """

    of_matrices: ClassVar[bool] = True  # for all that FRED knows
    takes_rate: ClassVar[bool] = False

    @classmethod
    def wrap(cls, content: optax.GradientTransformation) -> OptaxObject:
        """Return the component. Raises FredError for a transformation that cannot make a step from one mean gradient.

        Args:
            content: the transformation.
        """
        # The function that made the object is in the name of its `update`, such as `chain.<locals>.update_fn`.
        update = content.update
        library = getattr(update, "__module__", "optax").partition(".")[0]
        kind = f"{library}.{getattr(update, '__qualname__', type(update).__name__).partition('.')[0]}"
        try:
            _check_step(kind, lambda _: content)
        except ValueError as error:
            raise FredError(str(error)) from error
        users = tuple(function for function in content if own_code.place_of(function))
        return cls(name="object", content=content, kind=kind, digest="", users=users)

    @model_validator(mode="after")
    def _check_content(self, info: ValidationInfo) -> OptaxObject:
        if self.content is None and not is_recorded(info):
            raise PydanticCustomError("component", "{reason}", {"reason": registry.ONLY_DESCRIBED})
        return self

    def build(self, learning_rate: Any) -> optax.GradientTransformation:
        """Return the transformation. Raises UnreadError if only its description is there.

        Args:
            learning_rate: ignored.
        """
        if self.content is None:
            raise UnreadError(registry.ONLY_DESCRIBED)
        return self.content


def _validate_part(value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Transformation | OptaxObject:
    """Return a part of an optimizer: a transformation by name, or a program's object.

    Where a result is read, a description stands for such an object.
    """
    try:
        value = registry.object_of(value) or value
        if isinstance(value, Object) and not isinstance(value, OptaxObject):
            raise FredError(f"found {value.kind}; expected a gradient transformation of optax, or its name")
        is_description = isinstance(value, Mapping) and value.get("name") == registry.OBJECT
        if is_description and not is_recorded(info):
            raise FredError(registry.not_in_files("optimizer"))
    except FredError as error:
        raise PydanticCustomError("component", "{reason}", {"reason": str(error)}) from error
    if isinstance(value, OptaxObject):
        return value
    if is_description:
        return OptaxObject.model_validate({"content": None, **value}, context=info.context)
    transformation: Transformation = validate(value)
    return transformation


def _check_rate(parts: tuple[Transformation | OptaxObject, ...]) -> tuple[Transformation | OptaxObject, ...]:
    """Return the parts. Raises ValueError unless one takes the learning rate, or none, as an object has its own."""
    takers = sum(part.takes_rate for part in parts)
    if takers > 1 or (takers == 0 and not any(isinstance(part, OptaxObject) for part in parts)):
        raise ValueError("exactly one transformation must take the learning rate (sgd, adam, rmsprop, ...)")
    return parts


Part = Annotated[SerializeAsAny[Transformation], WrapValidator(_validate_part)]
if TYPE_CHECKING:
    Optimizer = Any  # checkers cannot know what `ONE_OR_SEVERAL` takes: names, mappings, objects of optax, and lists of them
else:
    Optimizer = Annotated[tuple[Part, ...], *ONE_OR_SEVERAL, AfterValidator(_check_rate)]


def has_own_rate(optimizer: Any) -> bool:
    """Return True for objects of optax whose learning rate is in them: no named transformation takes one.

    Args:
        optimizer: the option, also as given in a scenario.

        >>> import optax
        >>> has_own_rate(optax.adam(1e-3)), has_own_rate("adam"), has_own_rate([optax.clip(1.0), "adam"])
        (True, False, False)
    """
    parts = [vars(part) if isinstance(part, Transformation) else part for part in as_list(optimizer)]
    names = [part.get("name", registry.OBJECT) if isinstance(part, Mapping) else registry.OBJECT for part in parts]
    if registry.OBJECT not in names:
        return False  # without loading optax
    factories = [find_function(name) for name in names if isinstance(name, str)]
    return not any(callable(factory) and _takes_rate(factory) for factory in factories)


def _transforms(factory: Any) -> bool:
    """Return True if a function of optax returns a gradient transformation."""
    if not inspect.isfunction(factory.func if isinstance(factory, partial) else factory):  # nadam is adam with an option
        return False
    returned = inspect.signature(factory).return_annotation
    return "GradientTransformation" in str(returned) or factory in [getattr(optax.contrib, name) for name in _NOT_ANNOTATED]


def _takes_rate(factory: Callable[..., Any]) -> bool:
    return "learning_rate" in inspect.signature(factory).parameters


def _check_step(name: str, build: Callable[[Any], optax.GradientTransformation]) -> None:
    """Raise ValueError for a transformation that cannot make a step, or not from one mean gradient."""

    def step(params: Any, rate: Any) -> Any:
        transformation = build(rate)
        before = transformation.init(params)
        updates, after = transformation.update(params, before, params)
        return updates, before, after

    params = {"weights": jax.ShapeDtypeStruct((2, 2), np.float32)}  # a matrix, which some transformations need
    try:
        build(0.1)  # servers build it with a number in `init`, and with a traced rate in `step`
        updates, before, after = jax.eval_shape(step, params, jax.ShapeDtypeStruct((), np.float32))
    except Exception as error:
        raise refused(name, error) from error
    for state in jax.tree.leaves(before, is_leaf=lambda node: type(node).__name__ in _REFUSED_STATES):
        if reason := _REFUSED_STATES.get(type(state).__name__):
            raise ValueError(f"{name} cannot be used: {reason}")
    if _shapes(updates) != _shapes(params):
        raise ValueError(f"{name} cannot be used: it needs each example's gradient, and servers get the mean")
    if _shapes(before) != _shapes(after):
        raise ValueError(f"{name} cannot be used: its state changes shapes or types at an update")


def _shapes(tree: Any) -> Any:
    return jax.tree.structure(tree), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]


def build(optimizer: Optimizer, learning_rate: Any) -> optax.GradientTransformation:
    """Return the chain of transformations as one optax transformation.

    Args:
        optimizer: the transformations, in the order in which they are applied to a gradient.
        learning_rate: learning rate, for the transformation that takes it. If none does, it is a factor of the updates.

    Clip each number to 1, then step against the gradient with a learning rate of 0.1:

        >>> import jax.numpy as jnp
        >>> from fred.learning.optimizer import Transformation, build
        >>> chain = build((Transformation(name="clip", max_delta=1.0), Transformation(name="sgd")), 0.1)
        >>> gradient = jnp.array([0.5, -7.0])
        >>> updates, memory = chain.update(gradient, chain.init(gradient))
        >>> [round(float(update), 3) for update in updates]
        [-0.05, 0.1]
    """
    chain = [part.build(learning_rate) for part in optimizer]
    if not any(part.takes_rate for part in optimizer):
        chain.append(optax.scale(learning_rate))
    return optax.chain(*chain)


_EXCLUDED = ("constant_schedule", "join_schedules", "sgdr_schedule")  # the base rate itself; combinations: here, lists
_TRIAL_COUNTS = (0, 1, 1000, 10**6, 2**31 - 1)  # counts at which a schedule is tried


class RateSchedule(FromOptax):
    """One optax schedule: its name in the optax namespace, and its options.

    A factor that halves every 100 counts:

        >>> from fred.learning.optimizer import RateSchedule
        >>> halving = RateSchedule(name="exponential_decay", decay_rate=0.5, transition_steps=100)
        >>> [round(float(halving.factor(count)), 3) for count in (0, 50, 100, 200)]
        [1.0, 0.707, 0.5, 0.25]
    """

    @model_validator(mode="before")
    @classmethod
    def _whole_boundaries(cls, options: Any) -> Any:
        """Convert boundaries to whole numbers. They may be text, because JSON has only text as keys."""
        boundaries = options.get("boundaries_and_scales") if isinstance(options, dict) else None
        if not isinstance(boundaries, dict):
            return options
        if not all(str(boundary).isdecimal() for boundary in boundaries):
            raise ValueError(f"`boundaries_and_scales`: found {boundaries}; expected whole numbers, each with a factor")
        return {**options, "boundaries_and_scales": {int(boundary): scale for boundary, scale in boundaries.items()}}

    @model_validator(mode="after")
    def _check_name(self) -> RateSchedule:
        if not _is_schedule(self.name):
            names = [name for name in public_names() if _is_schedule(name)]
            raise ValueError(f"optax has no schedule `{self.name}`{nearest(self.name, names)}; it has {', '.join(names)}")
        self.check_options()
        # With a number of steps that is not positive, optax makes the schedule constant, and only logs it.
        for option, value in self.arguments.items():
            if option.endswith("_steps") and not (isinstance(value, int | float) and value > 0):
                raise ValueError(f"option `{option}` of `{self.name}`: found {value}; expected a positive number")
        try:
            values = np.array([self.factor(jax.numpy.int32(count)) for count in _TRIAL_COUNTS])
        except Exception as error:
            raise refused(f"optax.{self.name}", error) from error
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise ValueError(f"`{self.name}` comes to {values.min()}; expected finite factors of at least 0")
        return self

    def factor(self, count: Any) -> Any:
        """Return the factor of the base rate after `count` updates or gradients.

        Args:
            count: number of updates or gradients so far [].
        """
        options = inspect.signature(self.factory).parameters
        # The option whose value stands for the base rate: a warm-up has an `init_value`, too, but rises to its peak.
        base_option = "peak_value" if "peak_value" in options else "init_value"
        return self.factory(**{base_option: 1.0} | self.arguments)(count)


Schedule = Annotated[tuple[RateSchedule, ...], *ONE_OR_SEVERAL]


def factor(schedule: Schedule, count: Any) -> Any:
    """Return the product of several schedules.

    Args:
        schedule: any number of schedules; without any, the product is 1.
        count: number of updates or gradients so far [].

        >>> from fred.learning.optimizer import RateSchedule, factor
        >>> warm_up = RateSchedule(name="linear_schedule", init_value=0, end_value=1, transition_steps=4)
        >>> drop = RateSchedule(name="piecewise_constant_schedule", boundaries_and_scales={"8": 0.5})
        >>> [float(factor((warm_up, drop), count)) for count in (0, 2, 4, 8, 10)]
        [0.0, 0.5, 1.0, 0.5, 0.5]
    """
    product = 1.0
    for part in schedule:
        product = product * part.factor(count)
    return product


def _is_schedule(name: str) -> bool:
    function = find_function(name)
    if not inspect.isfunction(function) or name in _EXCLUDED:
        return False
    return inspect.signature(function).return_annotation == optax.Schedule
