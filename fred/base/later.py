"""JAX and optax, imported at their first use: reading and recording a scenario needs neither."""

import importlib
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
