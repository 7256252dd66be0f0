"""Imports at first use: JAX and optax, which reading and recording a scenario do not need, and the public names of a package.

The `__init__.pyi` of a package lists its names, for editors and type checkers, too.
"""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["jax", "jnp", "optax"]

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    import optax
else:

    class _LazyModule:
        """A module that is imported when one of its attributes is first used."""

        def __init__(self, name: str):
            self._name = name

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # copies and pickles of this stand-in ask for such
                raise AttributeError(name)
            return getattr(importlib.import_module(self._name), name)

        def __dir__(self) -> list[str]:
            return dir(importlib.import_module(self._name))

    jax, jnp, optax = _LazyModule("jax"), _LazyModule("jax.numpy"), _LazyModule("optax")


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, from the import statements of its `__init__.pyi`.

    Args:
        package: name of the package, as in an import statement.
        file: its `__init__.py`.

        >>> import fred.cluster
        >>> find, listed, names = attach("fred.cluster", fred.cluster.__file__)
        >>> find("Group").__module__, "Group" in names, listed() == names
        ('fred.cluster.cluster', True, True)
    """
    tree = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: node.module or "" for node in imports for alias in node.names}
    names = sorted(name for name in modules if not name.startswith("_"))

    def find(name: str) -> Any:
        if name not in modules:
            raise _unknown(package, name, names)
        if modules[name] == package:
            return _complete_namespace(importlib.import_module(f"{package}.{name}"))
        return getattr(importlib.import_module(modules[name]), name)

    return find, lambda: names, names


def _complete_namespace(module: ModuleType) -> ModuleType:
    """Return a namespace after adding what `attach` gives a package: `dir` lists its names, and a misspelt one gets a hint.

    A `__getattr__` in its file would make type checkers accept any name.
    """
    if not hasattr(module, "__path__"):  # a package has called `attach` itself
        names = sorted(name for name in vars(module) if name[0].isalpha())  # not what pytest adds

        def find(name: str) -> Any:
            raise _unknown(module.__name__, name, names)

        vars(module).update({"__getattr__": find, "__dir__": lambda: names})
    return module


def _unknown(package: str, name: str, names: list[str]) -> AttributeError:
    import difflib  # for a message alone

    match = [other for other in names if other.lower() == name.lower()] or difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {match[0]!r}?" if match else ""
    return AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
