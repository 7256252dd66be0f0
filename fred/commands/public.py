"""`fred list python`: the public names of `import fred`, from their signatures and docstrings."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import fred
from fred.base.errors import FredError
from fred.components.registry import nearest

_MODULES = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(\w+)")  # qualifies the name of a type


def listed() -> str:
    """Return a list of all public names, each with the first line of its docstring.

    >>> next(line for line in listed().splitlines() if "Contention" in line)
    '  Contention        A regime; several may be at work at once.'
    """
    names = sorted(dir(fred), key=str.lower)
    return "\n".join(["python:", *(f"  {name:<18}{_first_line(name)}".rstrip() for name in names)])


def text(name: str) -> str:
    """Return the signature and docstring of a public name, and those of its methods and properties.

    Raises FredError if there is no such name.

    Args:
        name: the name, as in `fred.NAME`.
    """
    if name not in dir(fred):
        known = ", ".join(sorted(dir(fred), key=str.lower))
        raise FredError(f"there is no `fred.{name}`{nearest(name, dir(fred))}; known: {known}")
    public = getattr(fred, name)
    if inspect.ismodule(public):
        members = ", ".join(member for member in dir(public) if not member.startswith("_"))
        return f"fred.{name}\n{textwrap.indent(inspect.getdoc(public) or '', '    ')}\n\n{textwrap.fill(members)}"
    if not _is_freds(public):
        return f"fred.{name} = {public}"
    blocks = [_described(f"fred.{name}", public)]
    if inspect.isclass(public):
        blocks += [textwrap.indent(_described(f".{each}", member), "    ") for each, member in _members(public)]
    return "\n\n".join(blocks)


def _first_line(name: str) -> str:
    public = getattr(fred, name)
    return (inspect.getdoc(public) or "").split("\n")[0] if _is_freds(public) or inspect.ismodule(public) else f"= {public}"


def _is_freds(public: Any) -> bool:
    return (inspect.isclass(public) or inspect.isfunction(public)) and public.__module__.startswith("fred.")


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield public methods and properties that have docstrings: those of the class, then those of its bases in FRED."""
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
