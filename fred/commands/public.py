"""`fred list python`: what `import fred` offers to code of one's own, made of signatures and docstrings."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import fred
from fred.components.registry import nearest
from fred.errors import FredError

_MODULES = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(\w+)")  # before the names of types


def listed() -> str:
    """Every public name, and the first sentence about it.

    >>> next(line for line in listed().splitlines() if "Contention" in line)
    '  Contention        A regime; several may be at work at once.'
    """
    names = sorted(fred.__all__, key=str.lower)
    return "\n".join(["python:", *(f"  {name:<18}{_first_line(name)}".rstrip() for name in names)])


def text(name: str) -> str:
    """All about one public name: its docstring, and those of its methods and attributes. Raises FredError if there is none.

    Args:
        name: as in `fred.NAME`.
    """
    if name not in fred.__all__:
        known = ", ".join(sorted(fred.__all__, key=str.lower))
        raise FredError(f"there is no `fred.{name}`{nearest(name, fred.__all__)}; known: {known}")
    public = getattr(fred, name)
    if not _is_freds(public):
        return f"fred.{name} = {public}"
    blocks = [_described(f"fred.{name}", public)]
    if inspect.isclass(public):
        blocks += [textwrap.indent(_described(f".{each}", member), "    ") for each, member in _members(public)]
    return "\n\n".join(blocks)


def _first_line(name: str) -> str:
    public = getattr(fred, name)
    return (inspect.getdoc(public) or "").split("\n")[0] if _is_freds(public) else f"= {public}"


def _is_freds(public: Any) -> bool:
    return (inspect.isclass(public) or inspect.isfunction(public)) and public.__module__.startswith("fred.")


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties with docstrings that FRED's own classes bring, those of the class itself first."""
    found: dict[str, Any] = {}
    for each in filter(_is_freds, cls.__mro__):
        own = {name: member for name, member in vars(each).items() if not name.startswith("_")}
        found |= {name: member for name, member in own.items() if name not in found}
    yield from ((name, member) for name, member in found.items() if _is_documented(member))


def _is_documented(member: Any) -> bool:
    member = getattr(member, "__func__", member)
    return bool(inspect.getdoc(member)) and (inspect.isroutine(member) or isinstance(member, property))


def _described(name: str, thing: Any) -> str:
    return f"{name}{_signature(thing)}\n{textwrap.indent(inspect.getdoc(thing) or '', '    ')}"


def _signature(thing: Any) -> str:
    call: Callable[..., Any] = getattr(thing, "__func__", thing)
    if isinstance(thing, property) or (inspect.isclass(thing) and hasattr(thing, "model_fields")):
        return ""
    try:
        return _MODULES.sub(r"\1", str(inspect.signature(call)))
    except (TypeError, ValueError):
        return ""
