"""Adapters for Flax and Equinox models: subclass an adapter, return the module, and name the class in a scenario.

FRED does not depend on these libraries, so install the one that you use. If a module has dropout or other randomness, each
gradient has its own random key, and evaluations are deterministic.

Modules of Flax and Equinox that a program gives as a model, by the adapters for classes; and digests of their content.
"""

import dataclasses
import hashlib
import inspect
import sys
from abc import abstractmethod
from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fred.base import cached
from fred.base.errors import FredError
from fred.components import own_code, registry
from fred.components.component import Object
from fred.learning.models.model import Model, Params

# Arguments of Flax modules that select the mode, and their values in training; evaluations pass the opposite.
_TRAINING_ARGUMENTS = {"train": True, "training": True, "deterministic": False}


class FlaxModel(Model):
    """A flax.linen module that maps inputs [batch, ...] to outputs [batch, outputs].

    If `__call__` takes `train`, `training` or `deterministic`, the adapter passes the mode, and in training also random numbers
    for `nn.Dropout`.

    >>> import fred
    >>> import jax
    >>> from flax import linen
    >>> class Net(fred.FlaxModel):
    ...     width: int = 64
    ...     def module(self):
    ...         return linen.Sequential([linen.Dense(self.width), linen.relu, linen.Dense(10)])
    >>> net = Net(width=3)
    >>> params = net.init(jax.random.key(0), (5,), outputs=10)
    >>> sorted(layer["kernel"].shape for layer in params["params"].values())
    [(3, 10), (5, 3)]
    >>> net.apply(params, jax.numpy.ones((2, 5))).shape
    (2, 10)
    """

    @abstractmethod
    def module(self) -> Any:
        """Return the flax.linen module. Its number of outputs must fit the data. Options are fields of the class."""

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        """Return the module's variables, initialised with one example of zeros.

        Args:
            key: a JAX random key.
            input_shape: shape of one example's inputs.
            outputs: ignored; the module itself has the right number of outputs.
        """
        module, mode = self.module(), self._mode_arguments(training=False)
        variables = module.init(key, jnp.zeros((1, *input_shape)), **mode)
        _refuse_state(self, [kind for kind in variables if kind != "params"])
        return variables

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Return outputs [batch, outputs] of the module with `params` for `inputs` [batch, ...], without random numbers."""
        return self.module().apply(params, inputs, **self._mode_arguments(training=False))

    def with_params(self, params: Params) -> Any:
        """Return the module bound to `params`."""
        return self.module().bind(params)

    def training(self, params: Params, inputs: jax.Array, key: jax.Array) -> jax.Array:
        """Return outputs [batch, outputs] in training mode with `params` for a minibatch's `inputs`, drawing from `key`."""
        return self.module().apply(params, inputs, **self._mode_arguments(training=True), rngs={"dropout": key})

    @property
    def draws(self) -> bool:
        """True if the module has a training mode."""
        return bool(self._mode_arguments(training=True))

    def _mode_arguments(self, training: bool) -> dict[str, bool]:
        """Return the arguments that select the mode, of those that the module's `__call__` takes."""
        parameters = inspect.signature(self.module().__call__).parameters
        return {name: value if training else not value for name, value in _TRAINING_ARGUMENTS.items() if name in parameters}


class NNXModel(Model):
    """A flax.nnx module that maps inputs [batch, ...] to outputs [batch, outputs].

    Dropout (`nnx.Dropout(rate, rngs=rngs)`) draws from `nnx.Rngs(key)`, with a key for each gradient. For evaluations the
    adapter calls `eval()`. Batch normalisation (`nnx.BatchNorm`) has no running averages. In training it normalises by the
    worker's minibatch; in evaluations, by at most the first 1024 training examples, at the parameters that are evaluated.

    >>> import fred
    >>> import jax
    >>> from flax import nnx
    >>> class Net(fred.NNXModel):
    ...     width: int = 64
    ...     rate: float = 0.5
    ...     def module(self, rngs):
    ...         hidden, outputs = nnx.Linear(5, self.width, rngs=rngs), nnx.Linear(self.width, 10, rngs=rngs)
    ...         return nnx.Sequential(hidden, nnx.relu, nnx.Dropout(self.rate, rngs=rngs), outputs)
    >>> net = Net(width=3)
    >>> params = net.init(jax.random.key(0), (5,), outputs=10)
    >>> sorted(leaf.shape for leaf in jax.tree.leaves(params))
    [(3,), (3, 10), (5, 3), (10,)]
    >>> net.apply(params, jax.numpy.ones((2, 5))).shape, net.draws
    ((2, 10), True)
    """

    @abstractmethod
    def module(self, rngs: Any) -> Any:
        """Return the flax.nnx module with parameters drawn from `rngs`. Its number of outputs must fit the data."""

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        """Return the module's initial parameters, as nested dictionaries.

        Args:
            key: a JAX random key, from which the module's `rngs` are made.
            input_shape: ignored; the module itself fits the data's inputs.
            outputs: ignored; the module itself has the right number of outputs.
        """
        from flax import nnx

        module = self.module(nnx.Rngs(key))
        other_state = nnx.state(module, nnx.Not(nnx.Any(nnx.Param, nnx.RngState, nnx.BatchStat)))
        _refuse_state(self, [type(leaf).__name__ for leaf in jax.tree.leaves(other_state, is_leaf=_is_variable)])
        return nnx.to_pure_dict(nnx.state(module, nnx.Param))

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Return outputs [batch, outputs] of the module with `params` for `inputs` [batch, ...], without random numbers."""
        return self.with_params(params)(inputs)

    def with_params(self, params: Params) -> Any:
        """Return the module with these `params`, without dropout."""
        module = self._bind(params, jax.random.key(0))  # any key: without dropout nothing is drawn
        module.eval()
        return module

    def training(self, params: Params, inputs: jax.Array, key: jax.Array) -> jax.Array:
        """Return outputs [batch, outputs] in training mode with `params` for a minibatch's `inputs`, drawing from `key`."""
        module = self._bind(params, key)
        module.train()
        return module(inputs)

    def calibrated(self, params: Params, inputs: jax.Array) -> Params:
        """Return the `params`, and the means and variances of these `inputs` for `nnx.BatchNorm`, computed without dropout."""
        from flax import nnx

        module = self._bind(params, jax.random.key(0))
        module.eval()
        # With momentum 0 the "running" averages are those of the last call alone, whose inputs are `inputs`.
        for _, part in nnx.iter_modules(module):
            if isinstance(part, nnx.BatchNorm):
                part.use_running_average, part.momentum = False, 0.0
        module(inputs)
        return nnx.to_pure_dict(nnx.state(module, nnx.Any(nnx.Param, nnx.BatchStat)))

    @property
    def calibrates(self) -> bool:
        """True if the module has batch normalisation."""
        return _nnx_has(self, "BatchStat")

    @property
    def draws(self) -> bool:
        """True if the module has dropout or batch normalisation, so that `training` differs from `apply`."""
        return _nnx_has(self, "RngState") or self.calibrates

    def _bind(self, params: Params, key: jax.Array) -> Any:
        """Return the module with these parameters. In compiled functions JAX removes its initial ones."""
        from flax import nnx

        module = self.module(nnx.Rngs(key))
        nnx.update(module, params)
        return module


class EquinoxModel(Model):
    """An equinox module that maps one input [...] to outputs [outputs].

    If it has dropout, or another part with an `inference` flag, each example has its own `key` in training.

    >>> import equinox
    >>> import fred
    >>> import jax
    >>> class Net(fred.EquinoxModel):
    ...     width: int = 64
    ...     def module(self, key):
    ...         return equinox.nn.MLP(5, 10, self.width, depth=1, key=key)
    >>> net = Net(width=3)
    >>> params = net.init(jax.random.key(0), (5,), outputs=10)
    >>> [leaf.shape for leaf in jax.tree.leaves(params)]
    [(3, 5), (3,), (10, 3), (10,)]
    >>> net.apply(params, jax.numpy.ones((2, 5))).shape
    (2, 10)
    """

    @abstractmethod
    def module(self, key: jax.Array) -> Any:
        """Return the equinox module with parameters drawn from `key`. Its number of outputs must fit the data."""

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        """Return the module's float arrays. The rest, such as arrays of integers, is made again at each call, with a fixed key.

        Args:
            key: a JAX random key.
            input_shape: ignored; the module itself fits the data's inputs.
            outputs: ignored; the module itself has the right number of outputs.
        """
        import equinox

        return equinox.filter(self.module(key), equinox.is_inexact_array)

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Return outputs [batch, outputs] of the module with `params` for `inputs` [batch, ...], without random numbers."""
        return jax.vmap(self.with_params(params))(inputs)

    def with_params(self, params: Params) -> Any:
        """Return the module with these `params`, without dropout. It maps one input."""
        import equinox

        module = self._bind(params)
        return equinox.nn.inference_mode(module) if self.draws else module

    def training(self, params: Params, inputs: jax.Array, key: jax.Array) -> jax.Array:
        """Return outputs [batch, outputs] in training mode with `params` for a minibatch's `inputs`, drawing from `key`."""
        module = self._bind(params)
        return jax.vmap(lambda x, x_key: module(x, key=x_key))(inputs, jax.random.split(key, len(inputs)))

    @property
    def draws(self) -> bool:
        """True if a part of the module differs in training, which an `inference` flag shows."""
        return _equinox_draws(self)

    def _bind(self, params: Params) -> Any:
        """Return the module with these parameters, in training mode; all that `init` leaves out comes from a new module."""
        import equinox

        module = self.module(jax.random.key(0))  # compiled functions do not compute its initial parameters
        return equinox.combine(params, equinox.filter(module, equinox.is_inexact_array, inverse=True))


def _equinox_shapes(model: EquinoxModel) -> Any:
    """Return the module with shapes instead of arrays."""
    import equinox

    return equinox.filter_eval_shape(model.module, jax.random.key(0))


@cached.code(16)
def _equinox_draws(model: EquinoxModel) -> bool:
    import equinox

    nodes: list[Any] = []

    def collect(node: Any) -> bool:
        nodes.append(node)
        return False  # no node is a leaf, so JAX goes on to the parts of each

    jax.tree.leaves(_equinox_shapes(model), is_leaf=collect)
    return any(isinstance(node, equinox.Module) and hasattr(node, "inference") for node in nodes)


@cached.code(16)
def _nnx_has(model: NNXModel, kind: str) -> bool:
    """Return True if the module has variables of this kind, the name of a class in `nnx`."""
    from flax import nnx

    module = nnx.eval_shape(lambda: model.module(nnx.Rngs(0)))
    return bool(jax.tree.leaves(nnx.state(module, getattr(nnx, kind))))


def _is_variable(leaf: Any) -> bool:
    from flax import nnx

    return isinstance(leaf, nnx.Variable)


def _refuse_state(model: Model, kinds: list[str]) -> None:
    """Raise FredError if a model has state other than parameters."""
    if kinds:
        raise FredError(
            f"model `{registry.name_of('model', model)}` has state beside its parameters (`{kinds[0]}`, as batch normalisation "
            "does), which asynchronous workers cannot share: use layer or group normalisation, or `fred.NNXModel`, which "
            "calibrates batch normalisation at each evaluation"
        )


_HASHED_BY_REPR = (str, bytes, bool, int, float, complex, type(None), np.dtype, np.generic, Enum)


class _Module(Object):
    """A module of another library."""

    @classmethod
    def wrap(cls, content: Any) -> Self:
        """Return the component.

        Args:
            content: the module.
        """
        parts, module_class = Content(), type(content)
        parts.add(cls.parts(content))
        library = cls.__name__.removesuffix("Object").lower()
        class_name = module_class.__qualname__
        kind = class_name if own_code.is_users(module_class) else f"{library}.{class_name}"
        return cls(name="object", content=cls.copied(content), kind=kind, digest=parts.digest, users=tuple(parts.users))

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
    >>> from fred.learning.models.adapters import FlaxObject
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
    >>> from fred.learning.models.adapters import NNXObject
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
    >>> from fred.learning.models.adapters import EquinoxObject
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
        if isinstance(value, _HASHED_BY_REPR):
            self._hash_text(f"{type(value).__name__} {value!r}")
        elif id(value) in self._seen:
            self._hash_text(f"again {self._seen[id(value)][0]}")
        else:
            self._seen[id(value)] = len(self._seen), value
            self._add_parts(value)

    def _add_parts(self, value: Any) -> None:
        if isinstance(value, type) or _is_importable(value):
            self._hash_text(f"{value.__module__} {value.__qualname__}")
            self.users += [value] if own_code.is_users(value) else []
        elif hasattr(value, "dtype") and hasattr(value, "shape"):
            self._add_array(value)
        elif inspect.isfunction(value):
            self._hash_text(f"{value.__module__} {value.__qualname__} {value.__code__.co_firstlineno}")
            self.users += [value] if own_code.is_users(value) else []
            self.add([value.__defaults__, value.__kwdefaults__, inspect.getclosurevars(value).nonlocals])
        elif isinstance(value, partial):
            self.add([value.func, value.args, value.keywords])
        elif inspect.ismethod(value):
            self.add([value.__func__, value.__self__])
        elif isinstance(value, Mapping):
            self._hash_text(f"{type(value).__name__} {len(value)}")
            self.add([*value.items()])
        elif isinstance(value, list | tuple):
            self._hash_text(f"{type(value).__name__} {len(value)}")
            for item in value:
                self.add(item)
        elif dataclasses.is_dataclass(value):
            fields = {entry.name: getattr(value, entry.name, None) for entry in dataclasses.fields(value)}
            # `parent` is the linen module that contains this one, on which its outputs do not depend.
            self.add([type(value), {name: field for name, field in fields.items() if name != "parent"}])
        elif isinstance(value, jax.tree_util.PyTreeDef) and " at 0x" not in str(value):  # an address differs in each process
            self._hash_text(str(value))
        else:
            self._readable = False

    def _hash_text(self, text: str) -> None:
        self._sha.update(f"{text}\0".encode())

    def _add_array(self, value: Any) -> None:
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value)
        self._hash_text(f"{array.dtype.str} {array.shape}")
        self._sha.update(np.ascontiguousarray(array).tobytes())


def _is_importable(value: Any) -> bool:
    """Return True for a function, compiled or not, that is imported by its name."""
    resolved = sys.modules.get(getattr(value, "__module__", None) or "")
    for name in getattr(value, "__qualname__", "").split("."):
        resolved = getattr(resolved, name, None)
    return callable(value) and resolved is value
