"""The class of each algorithm, under its name in scenarios, made from the row of its page when it is first asked for."""

import importlib
from collections.abc import Mapping
from functools import cache
from types import new_class
from typing import Any

from pydantic import TypeAdapter

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
    """Return the class of an algorithm. Raises FredError for a key that rows do not have.

    Args:
        name: the algorithm's, as in scenarios.
        row: what its page says of it.
        page: the page's module, which has the `server` of the row.
        module: where the class will be found under this name.

        >>> from fred.systems.rows import made_of
        >>> row = {"about": "Steps with means.", "protocol": {"name": "softsync", "n": 2}, "defaults": {"average": 0.9}}
        >>> cls = made_of("mine", row, "fred.systems.asgd", "here")
        >>> cls.protocol, cls.protocol_options, cls(learning_rate=0.1).average
        ('softsync', {'n': 2}, 0.9)
    """
    if unknown := [key for key in row if key not in _KEYS]:
        raise FredError(f"{page}: row `{name}`: unknown key `{unknown[0]}`; expected {', '.join(_KEYS)}")
    if (family := row.get("family", "own")) not in FAMILIES:
        raise FredError(f"{page}: row `{name}`: unknown family `{family}`; expected one of {', '.join(FAMILIES)}")
    base = _server(page, row["server"]) if "server" in row else Server
    options = row.get("protocol", Server.protocol)
    options = {"name": options} if isinstance(options, str) else dict(options)
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
    return _with_defaults(made, row.get("defaults", {}))


def _server(page: str, name: str) -> type[Server]:
    """Return the class of a page, or of another module (`module:Class`), that a row is made from."""
    module, _, own = name.rpartition(":")
    found: type[Server] = getattr(importlib.import_module(module or page), own)
    return found


def _with_defaults(made: type[Server], defaults: Mapping[str, Any]) -> type[Server]:
    """Return the class with these defaults of its options; nothing else is validated, so that JAX is not loaded."""
    for option, value in defaults.items():
        if option not in made.model_fields:
            raise FredError(f"row `{made.__name__}`: there is no option `{option}`{nearest(option, made.model_fields)}")
        field = made.model_fields[option]
        field.default = TypeAdapter(field.rebuild_annotation()).validate_python(value)
    if defaults:
        made.model_rebuild(force=True)
    return made


ASGD = _made("asgd")  # what `import fred` offers, for users' own algorithms
