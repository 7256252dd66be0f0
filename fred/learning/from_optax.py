"""Functions of optax that a scenario names, with options that are checked against optax's signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import BeforeValidator, ConfigDict, WithJsonSchema

from fred.base.later import optax
from fred.components.component import Component
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
        return found(self.name)

    @property
    def given(self) -> dict[str, Any]:
        """The options given for the function, by name."""
        return dict(self.model_extra or {})

    def check_options(self) -> None:
        """Raise ValueError for an option that the function does not have, and for a number that is not finite."""
        options = inspect.signature(self.factory).parameters
        for option, value in self.given.items():
            if option not in options:
                known = [each for each in options if each != self.reserved]
                raise ValueError(f"`{self.name}` has no option `{option}` here{nearest(option, known)}")
            if not np.isfinite([each for each in _numbers(value) if isinstance(each, float)]).all():
                raise ValueError(f"option `{option}` of `{self.name}`: found {value}; expected a finite number")


def found(name: str) -> Any:
    """Return the object called `name` in `optax`, `optax.contrib` or `beyond_optax`, searched in this order.

    Return None if none of them has it.

    >>> found("adam") is optax.adam, found("muon") is found("contrib.muon") is optax.contrib.muon, found("adamm")
    (True, True, None)
    >>> from fred.learning import beyond_optax
    >>> found("inverse_power_ema") is beyond_optax.inverse_power_ema
    True
    """
    from fred.learning import beyond_optax

    own = name.removeprefix("contrib.")
    return getattr(optax, name, None) or getattr(optax.contrib, own, None) or getattr(beyond_optax, name, None)


def known() -> list[str]:
    """Return all public names in the modules that `found` searches."""
    from fred.learning import beyond_optax

    return [name for module in (optax, optax.contrib, beyond_optax) for name in dir(module) if not name.startswith("_")]


def refused(name: str, error: Exception) -> ValueError:
    """Return the ValueError that reports an `error` raised by the function called `name`, by its first line."""
    return ValueError(f"{name} cannot be used with these options: {str(error).partition(chr(10))[0]}")


def _numbers(value: Any) -> list[Any]:
    parts = list(value.values()) if isinstance(value, Mapping) else value
    return np.ravel(parts).tolist()


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


_ONE = [{"type": "string"}, {"type": "object", "properties": {"name": {"type": "string"}}}]
ONE_OR_SEVERAL = (  # annotations of a field: a name, a mapping of name and options, or a list of them
    BeforeValidator(as_list),
    WithJsonSchema({"anyOf": [*_ONE, {"type": "array", "items": {"anyOf": _ONE}}]}),
)
