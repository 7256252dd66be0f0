"""Which optimizers of optax, and of FRED's own, a scenario can name, and their options, as a page made of signatures."""

import inspect
from collections.abc import Iterator
from typing import Any

import optax
from pydantic import ValidationError

from fred.learning import beyond_optax
from fred.learning.from_optax import found
from fred.learning.optimizer import Transformation

_HEAD = """# Optimizers

Made from optax {version} and FRED's own additions: what `optimizer: {{name: ..., options}}` of an algorithm can name, alone or
in a list. The learning rate is the algorithm's own, so exactly one of a list must take it: those marked with a star. What
optax's do is in
[optax's reference](https://optax.readthedocs.io).
"""


def page() -> str:
    """All of them, those of `optax.contrib` in a table of their own, as Markdown."""
    blocks = [_HEAD.format(version=optax.__version__)]
    for title, module in (("optax", optax), ("optax.contrib", optax.contrib), ("FRED's own", beyond_optax)):
        rows = "\n".join(_row(name) for name in named(module))
        blocks.append(f"## {title}\n\n| name | options, with their defaults |\n|---|---|\n{rows}\n")
    return "\n".join(blocks)


def named(module: Any) -> Iterator[str]:
    """The names of what can be an optimizer, or a part of one, as it is or with options that a file can say.

    Args:
        module: optax, optax.contrib, or what FRED has beside them.

        >>> import optax
        >>> from fred.commands.optimizers import named
        >>> "muon" in named(optax.contrib), "adam" in named(optax), "lbfgs" in named(optax)
        (True, True, False)
    """
    for name in sorted(vars(module)):
        if callable(found(name)) and not inspect.isclass(found(name)) and not name.startswith("_"):
            try:
                Transformation(name=name, **dict.fromkeys(_needed(name), 1.0))
            except (ValidationError, ValueError):
                continue
            yield name


def _needed(name: str) -> list[str]:
    """The options without a default."""
    options = inspect.signature(found(name)).parameters.values()
    return [each.name for each in options if each.default is each.empty and each.name != Transformation.reserved]


def _row(name: str) -> str:
    options = inspect.signature(found(name)).parameters.values()
    said = [_option(each) for each in options if each.name != Transformation.reserved]
    star = " *" if any(each.name == Transformation.reserved for each in options) else ""
    return f"| `{name}`{star} | {', '.join(said) or 'none'} |"


def _option(option: inspect.Parameter) -> str:
    """As `name = default`; a function or the like by its kind alone, as a file cannot say it."""
    if option.default is option.empty:
        return f"`{option.name}`, required"
    simple = option.default is None or isinstance(option.default, int | float | str | tuple)
    return f"`{option.name} = {option.default if simple else '...'}`"
