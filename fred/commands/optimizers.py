"""The Markdown page of optimizers that a scenario can name, from optax and FRED, generated from their signatures."""

import inspect
from collections.abc import Iterator
from typing import Any

import optax

from fred.base.errors import FredError
from fred.learning import beyond_optax
from fred.learning.from_optax import found
from fred.learning.optimizer import Transformation

_HEAD = """# Optimizers

This page is generated from optax {version} and FRED's own additions. It lists the names that
`optimizer: {{name: ..., options}}` of an algorithm accepts, alone or in a list. The learning rate belongs to the algorithm, so
exactly one optimizer in a list must take it: those that do are marked with a star.
[optax's reference](https://optax.readthedocs.io) describes its optimizers.
"""


def page() -> str:
    """Return the page: a table each for optax, `optax.contrib`, and FRED's own."""
    blocks = [_HEAD.format(version=optax.__version__)]
    for title, module in (("optax", optax), ("optax.contrib", optax.contrib), ("FRED's own", beyond_optax)):
        rows = "\n".join(_row(name) for name in named(module))
        blocks.append(f"## {title}\n\n| name | options, with their defaults |\n|---|---|\n{rows}\n")
    return "\n".join(blocks)


def named(module: Any) -> Iterator[str]:
    """Yield the names of a module's optimizers and transformations that a scenario file can express with their options.

    Args:
        module: optax, optax.contrib, or the module of FRED's own additions.

        >>> import optax
        >>> from fred.commands.optimizers import named
        >>> "muon" in named(optax.contrib), "adam" in named(optax), "lbfgs" in named(optax)
        (True, True, False)
    """
    for name in sorted(vars(module)):
        if callable(found(name)) and not inspect.isclass(found(name)) and not name.startswith("_"):
            try:
                Transformation(name=name, **dict.fromkeys(_needed(name), 1.0))
            except (FredError, ValueError):
                continue
            yield name


def _needed(name: str) -> list[str]:
    """Return the names of the options without a default, except the learning rate."""
    options = inspect.signature(found(name)).parameters.values()
    return [each.name for each in options if each.default is each.empty and each.name != Transformation.reserved]


def _row(name: str) -> str:
    options = inspect.signature(found(name)).parameters.values()
    said = [_option(each) for each in options if each.name != Transformation.reserved]
    star = " *" if any(each.name == Transformation.reserved for each in options) else ""
    return f"| `{name}`{star} | {', '.join(said) or 'none'} |"


def _option(option: inspect.Parameter) -> str:
    """Return an option as `name = default`; a default that a file cannot express, such as a function, appears as `...`."""
    if option.default is option.empty:
        return f"`{option.name}`, required"
    simple = option.default is None or isinstance(option.default, int | float | str | tuple)
    return f"`{option.name} = {option.default if simple else '...'}`"
