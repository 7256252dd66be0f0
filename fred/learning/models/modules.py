"""Modules of Flax and Equinox that a program gives as a model, by the adapters for classes; and digests of their content."""

import dataclasses
import hashlib
import inspect
import sys
from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fred.components import own_code
from fred.components.component import Object
from fred.learning.models.adapters import EquinoxModel, FlaxModel, NNXModel

_PLAIN = (str, bytes, bool, int, float, complex, type(None), np.dtype, np.generic, Enum)


class _Module(Object):
    """A module of another library."""

    @classmethod
    def wrap(cls, content: Any) -> Self:
        """Return the component.

        Args:
            content: the module.
        """
        reading, kind = Content(), type(content)
        reading.add(cls.parts(content))
        library = cls.__name__.removesuffix("Object").lower()
        name = kind.__qualname__ if own_code.is_users(kind) else f"{library}.{kind.__qualname__}"
        return cls(name="object", content=cls.copied(content), kind=name, digest=reading.digest, users=tuple(reading.users))

    @classmethod
    def parts(cls, content: Any) -> Any:
        """Return everything on which the module's outputs depend."""
        return content

    @classmethod
    def copied(cls, content: Any) -> Any:
        """Return the module, or a copy if it can change."""
        return content


class FlaxObject(_Module, FlaxModel):
    """A flax.linen module. Each seed draws its initial parameters.

    >>> import jax
    >>> from flax import linen
    >>> from fred.learning.models.modules import FlaxObject
    >>> model = FlaxObject.wrap(linen.Dense(3))
    >>> model.kind, model.init(jax.random.key(0), (5,), 3)["params"]["kernel"].shape
    ('flax.Dense', (5, 3))
    """

    def module(self) -> Any:
        """Return the module."""
        return self.content


class NNXObject(_Module, NNXModel):
    """A flax.nnx module with its initial parameters, which all seeds share.

    >>> import jax
    >>> from flax import nnx
    >>> from fred.learning.models.modules import NNXObject
    >>> module = nnx.Linear(5, 3, rngs=nnx.Rngs(0))
    >>> params = NNXObject.wrap(module).init(jax.random.key(7), (5,), 3)
    >>> bool((params["kernel"] == module.kernel[...]).all())
    True
    """

    has_parameters: ClassVar[bool] = True

    @classmethod
    def parts(cls, content: Any) -> Any:
        """Return the structure and the arrays of the module."""
        from flax import nnx

        graph, state = nnx.split(content)
        return graph, nnx.to_pure_dict(state)

    @classmethod
    def copied(cls, content: Any) -> Any:
        """Return a copy of the module, which a program can change."""
        from flax import nnx

        return nnx.clone(content)

    def module(self, rngs: Any) -> Any:
        """Return a copy of the module that draws random numbers from `rngs`."""
        from flax import nnx

        module = nnx.clone(self.content)
        nnx.update(module, jax.tree.map(lambda _: rngs(), nnx.state(module, nnx.RngKey)))
        nnx.update(module, jax.tree.map(jnp.zeros_like, nnx.state(module, nnx.RngCount)))
        return module


class EquinoxObject(_Module, EquinoxModel):
    """An equinox module with its initial parameters, which all seeds share.

    >>> import equinox
    >>> import jax
    >>> from fred.learning.models.modules import EquinoxObject
    >>> module = equinox.nn.Linear(5, 3, key=jax.random.key(0))
    >>> params = EquinoxObject.wrap(module).init(jax.random.key(7), (5,), 3)
    >>> bool((params.weight == module.weight).all())
    True
    """

    has_parameters: ClassVar[bool] = True

    def module(self, key: jax.Array) -> Any:
        """Return the module; `key` is not needed."""
        return self.content


class Content:
    """A digest of values: arrays, plain values, functions by name, and what they consist of.

    >>> content = Content()
    >>> content.add({"width": 3, "activation": jax.nn.relu})
    >>> len(content.digest), content.users
    (64, [])
    >>> content.add(object())
    >>> content.digest
    ''
    """

    def __init__(self) -> None:
        self.users: list[Any] = []  # the user's classes and functions
        self._sha, self._readable = hashlib.sha256(), True
        self._seen: dict[int, tuple[int, Any]] = {}  # number and value by identity, which holds as long as the value

    @property
    def digest(self) -> str:
        """The SHA-256 of the values; empty if one of them cannot be read."""
        return self._sha.hexdigest() if self._readable else ""

    def add(self, value: Any) -> None:
        """Add a value and all that it consists of.

        Args:
            value: anything.
        """
        if isinstance(value, _PLAIN):
            self._note(f"{type(value).__name__} {value!r}")
        elif id(value) in self._seen:
            self._note(f"again {self._seen[id(value)][0]}")
        else:
            self._seen[id(value)] = len(self._seen), value
            self._add_parts(value)

    def _add_parts(self, value: Any) -> None:
        if isinstance(value, type) or _is_named(value):
            self._note(f"{value.__module__} {value.__qualname__}")
            self.users += [value] if own_code.is_users(value) else []
        elif hasattr(value, "dtype") and hasattr(value, "shape"):
            self._add_array(value)
        elif inspect.isfunction(value):
            self._note(f"{value.__module__} {value.__qualname__} {value.__code__.co_firstlineno}")
            self.users += [value] if own_code.is_users(value) else []
            self.add([value.__defaults__, value.__kwdefaults__, inspect.getclosurevars(value).nonlocals])
        elif isinstance(value, partial):
            self.add([value.func, value.args, value.keywords])
        elif inspect.ismethod(value):
            self.add([value.__func__, value.__self__])
        elif isinstance(value, Mapping):
            self._note(f"{type(value).__name__} {len(value)}")
            self.add([*value.items()])
        elif isinstance(value, list | tuple):
            self._note(f"{type(value).__name__} {len(value)}")
            for item in value:
                self.add(item)
        elif dataclasses.is_dataclass(value):
            fields = {each.name: getattr(value, each.name, None) for each in dataclasses.fields(value)}
            self.add([type(value), {name: field for name, field in fields.items() if name != "parent"}])  # of linen modules
        elif isinstance(value, jax.tree_util.PyTreeDef) and " at 0x" not in str(value):
            self._note(str(value))
        else:
            self._readable = False

    def _note(self, text: str) -> None:
        self._sha.update(f"{text}\0".encode())

    def _add_array(self, value: Any) -> None:
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value)
        self._note(f"{array.dtype.str} {array.shape}")
        self._sha.update(np.ascontiguousarray(array).tobytes())


def _is_named(value: Any) -> bool:
    """Return True for a function, compiled or not, that is imported by its name."""
    found = sys.modules.get(getattr(value, "__module__", None) or "")
    for name in getattr(value, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    return callable(value) and found is value
