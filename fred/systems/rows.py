"""The class of each algorithm, under its name in scenarios, made from the row of its page when it is first asked for."""

import importlib
from collections.abc import Mapping
from functools import cache
from types import new_class
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fred.base.errors import FredError
from fred.components import pages
from fred.components.pages import Row
from fred.components.registry import nearest
from fred.learning.server import Family, Server

FAMILIES = {family.name.lower().replace("_", "-"): family for family in Family}
_KEYS = ("about", "family", "rule", "server", "protocol", "defaults")


def __getattr__(name: str) -> Any:
    if name not in pages.of_algorithms():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _made(name)


@cache
def _made(name: str) -> type[Server]:
    row, page = pages.of_algorithms()[name]
    return made_of(name, row, page, __name__)


def made_of(name: str, row: Row, page: str, module: str) -> type[Server]:
    """Return the class of an algorithm. Raises FredError if the row is wrong.

    Args:
        name: name of the algorithm, as in scenarios.
        row: the algorithm's row on its page.
        page: module of the page, which defines the `server` of the row.
        module: module in which the class appears under this name.

        >>> from fred.systems.rows import made_of
        >>> row = {"about": "Steps with means.", "protocol": {"name": "softsync", "n": 2}, "defaults": {"average": 0.9}}
        >>> cls = made_of("mine", row, "fred.systems.asgd", "here")
        >>> cls.protocol, cls.protocol_options, cls(learning_rate=0.1).average
        ('softsync', {'n': 2}, 0.9)
    """
    where = f"{page}: `ALGORITHMS`: row `{name}`"
    if unknown := [key for key in row if key not in _KEYS]:
        raise FredError(f"{where}: unknown key `{unknown[0]}`; expected {', '.join(_KEYS)}{nearest(unknown[0], _KEYS)}")
    if (family := row.get("family", "own")) not in FAMILIES:
        raise FredError(f"{where}: unknown family `{family}`; expected one of {', '.join(FAMILIES)}")
    base = _server(page, row["server"], where) if "server" in row else Server
    options = row.get("protocol", Server.protocol)
    options = {"name": options} if isinstance(options, str) else dict(options)
    if not isinstance(options.get("name"), str):
        raise FredError(f"{where}: `protocol`: expected the name of a protocol, or a mapping with the key `name`")
    facts = {
        "__module__": module,
        "__qualname__": name,
        "__doc__": row.get("about", base.__doc__),
        "family": FAMILIES[family],
        "rule": row.get("rule", ""),
        "protocol": options.pop("name"),
        "protocol_options": options,
        "page": page,
    }
    made = new_class(name, (base,), exec_body=lambda namespace: namespace.update(facts))
    return _with_defaults(made, row.get("defaults", {}), where)


def _server(page: str, name: str, where: str) -> type[Server]:
    """Return the class of a page, or of another module (`module:Class`), that a row is made from."""
    module, _, own = name.rpartition(":")
    found = getattr(importlib.import_module(module or page), own, None)
    if not (isinstance(found, type) and issubclass(found, Server)):
        raise FredError(f"{where}: `server`: `{module or page}` has no class `{own}` that is derived from `Server`")
    return found


def _with_defaults(made: type[Server], defaults: Mapping[str, Any], where: str) -> type[Server]:
    """Return the class with these defaults of its options; nothing else is validated, so that JAX is not loaded."""
    for option, value in defaults.items():
        if option not in made.model_fields:
            raise FredError(f"{where}: `defaults`: no option `{option}`{nearest(option, made.model_fields)}")
        field = made.model_fields[option]
        try:
            field.default = TypeAdapter(field.rebuild_annotation()).validate_python(value)
        except ValidationError as error:
            raise FredError(f"{where}: `defaults`: `{option}`: {error.errors()[0]['msg']}, got {value!r}") from None
    if defaults:
        made.model_rebuild(force=True)
    return made


ASGD = _made("asgd")  # what `import fred` offers, for users' own algorithms
