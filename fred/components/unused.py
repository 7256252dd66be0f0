"""Methods and options of the user's classes that nothing uses, or that FRED cannot call: mostly misspelt hooks."""

import inspect
import sys
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from fred.base.errors import FredError
from fred.components import own_code, registry
from fred.components.component import is_user_class


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
    user_bases, fred_bases = ([part for part in cls.__mro__ if is_user_class(part) is is_users] for is_users in (True, False))
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
    member = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__wrapped__", member)
    member = getattr(member, "__func__", member)
    codes = [member.__code__] if isinstance(member, FunctionType) else []
    while codes:
        code = codes.pop()
        yield from code.co_names
        yield from (constant for constant in code.co_consts if isinstance(constant, str))
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
