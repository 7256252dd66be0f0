"""Bring your own Flax or Equinox model: subclass an adapter, return the module, name the class in a scenario.

Neither library is a dependency of FRED's; whoever uses an adapter has it installed. Where a module has dropout, or draws in
another way, gradients are computed with a key each, and what is evaluated draws nothing.
"""

import inspect
from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from fred.base import cached
from fred.base.errors import FredError
from fred.components import registry
from fred.learning.models.model import Model, Params

_TRAINING = {"train": True, "training": True, "deterministic": False}  # what Flax's modules call the same thing


class FlaxModel(Model):
    """A flax.linen module that maps inputs [batch, ...] to outputs [batch, outputs].

    One whose `__call__` takes `train`, `training` or `deterministic` is told whether a gradient is computed, and has random
    numbers for `nn.Dropout` then.

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
        """The flax.linen module; its number of outputs must fit the data. Options are fields of the class."""

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        """The module's own variables for one example of zeros; `outputs` is not asked.

        Args:
            key: of JAX's random numbers.
            input_shape: of one example's inputs.
            outputs: what the module's must fit.
        """
        module, told = self.module(), self._told(training=False)
        variables = module.init(key, jnp.zeros((1, *input_shape)), **told)
        _refuse_state(self, [kind for kind in variables if kind != "params"])
        return variables

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Outputs [batch, outputs] of the module with these `params` for `inputs` [batch, ...]; nothing is drawn."""
        return self.module().apply(params, inputs, **self._told(training=False))

    def training(self, params: Params, inputs: jax.Array, key: jax.Array) -> jax.Array:
        """Outputs [batch, outputs] in training, of these `params` for one minibatch's `inputs`, drawing by this `key`."""
        return self.module().apply(params, inputs, **self._told(training=True), rngs={"dropout": key})

    @property
    def draws(self) -> bool:
        """Whether the module can be told that it is trained."""
        return bool(self._told(training=True))

    def _told(self, training: bool) -> dict[str, bool]:
        """What the module's `__call__` takes of it."""
        known = inspect.signature(self.module().__call__).parameters
        return {name: value == training for name, value in _TRAINING.items() if name in known}


class NNXModel(Model):
    """A flax.nnx module that maps inputs [batch, ...] to outputs [batch, outputs].

    Where it has dropout (`nnx.Dropout(rate, rngs=rngs)`) its random numbers in training are `nnx.Rngs(key)` of a gradient's
    key; to be evaluated it is `eval()`. Batch normalisation (`nnx.BatchNorm`) keeps no running averages: a gradient normalises
    by its worker's minibatch, and what is evaluated by the first training examples, 1024 at most, at these very parameters.

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
        """The flax.nnx module with fresh parameters drawn by `rngs`; its number of outputs must fit the data."""

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        """The module's parameters, as nested dictionaries.

        Args:
            key: of JAX's random numbers, of which the module's `rngs` are made.
            input_shape: of one example's inputs, which the module's must fit.
            outputs: what the module's must fit.
        """
        from flax import nnx

        module = self.module(nnx.Rngs(key))
        others = nnx.state(module, nnx.Not(nnx.Any(nnx.Param, nnx.RngState, nnx.BatchStat)))
        _refuse_state(self, [type(leaf).__name__ for leaf in jax.tree.leaves(others, is_leaf=_is_variable)])
        return nnx.to_pure_dict(nnx.state(module, nnx.Param))

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Outputs [batch, outputs] of the module with these `params` for `inputs` [batch, ...]; nothing is drawn."""
        module = self._with(params, jax.random.key(0))
        module.eval()
        return module(inputs)

    def training(self, params: Params, inputs: jax.Array, key: jax.Array) -> jax.Array:
        """Outputs [batch, outputs] in training, of these `params` for one minibatch's `inputs`, drawing by this `key`."""
        module = self._with(params, key)
        module.train()
        return module(inputs)

    def calibrated(self, params: Params, inputs: jax.Array) -> Params:
        """The `params`, and beside them the means and variances of these `inputs` in `nnx.BatchNorm`, without dropout."""
        from flax import nnx

        module = self._with(params, jax.random.key(0))
        module.eval()
        for _, part in nnx.iter_modules(module):
            if isinstance(part, nnx.BatchNorm):
                part.use_running_average, part.momentum = False, 0.0
        module(inputs)
        return nnx.to_pure_dict(nnx.state(module, nnx.Any(nnx.Param, nnx.BatchStat)))

    @property
    def calibrates(self) -> bool:
        """Whether the module has batch normalisation."""
        return _nnx_has(self, "BatchStat")

    @property
    def draws(self) -> bool:
        """Whether the module keeps random numbers, as dropout does, or looks at minibatches, as batch normalisation does."""
        return _nnx_has(self, "RngState") or self.calibrates

    def _with(self, params: Params, key: jax.Array) -> Any:
        """The module with these parameters: what is drawn for its first ones is not computed, as nobody looks at it."""
        from flax import nnx

        module = self.module(nnx.Rngs(key))
        nnx.update(module, params)
        return module


class EquinoxModel(Model):
    """An equinox module that maps one input [...] to outputs [outputs].

    Where it has dropout (or another part with an `inference` flag) it is called with a `key` of each example's own in training.

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
        """The equinox module with fresh parameters drawn by `key`; its number of outputs must fit the data."""

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        """The module's float arrays; the rest of it is made again when it is applied.

        Args:
            key: of JAX's random numbers.
            input_shape: of one example's inputs, which the module's must fit.
            outputs: what the module's must fit.
        """
        import equinox

        return equinox.filter(self.module(key), equinox.is_inexact_array)

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Outputs [batch, outputs] of the module with these `params` for `inputs` [batch, ...]; nothing is drawn."""
        import equinox

        module = equinox.combine(params, equinox.filter(_equinox_shapes(self), _is_static))
        return jax.vmap(equinox.nn.inference_mode(module) if self.draws else module)(inputs)

    def training(self, params: Params, inputs: jax.Array, key: jax.Array) -> jax.Array:
        """Outputs [batch, outputs] in training, of these `params` for one minibatch's `inputs`, drawing by this `key`."""
        import equinox

        module = equinox.combine(params, equinox.filter(_equinox_shapes(self), _is_static))
        return jax.vmap(lambda one, own: module(one, key=own))(inputs, jax.random.split(key, len(inputs)))

    @property
    def draws(self) -> bool:
        """Whether a part of the module is another in training: whether one has an `inference` flag."""
        return _equinox_draws(self)


def _equinox_shapes(model: EquinoxModel) -> Any:
    """The module, with shapes in the place of arrays."""
    import equinox

    return equinox.filter_eval_shape(model.module, jax.random.key(0))


def _is_static(leaf: Any) -> bool:
    return not isinstance(leaf, jax.ShapeDtypeStruct)


@cached.code(16)
def _equinox_draws(model: EquinoxModel) -> bool:
    import equinox

    found: list[Any] = []

    def parts(node: Any) -> bool:
        found.append(node)
        return False

    jax.tree.leaves(_equinox_shapes(model), is_leaf=parts)
    return any(isinstance(node, equinox.Module) and hasattr(node, "inference") for node in found)


@cached.code(16)
def _nnx_has(model: NNXModel, kind: str) -> bool:
    from flax import nnx

    module = nnx.eval_shape(lambda: model.module(nnx.Rngs(0)))
    return bool(jax.tree.leaves(nnx.state(module, getattr(nnx, kind))))


def _is_variable(leaf: Any) -> bool:
    from flax import nnx

    return isinstance(leaf, nnx.Variable)


def _refuse_state(model: Model, kinds: list[str]) -> None:
    """Nothing but parameters is trained. Raises FredError."""
    if kinds:
        raise FredError(
            f"model `{registry.name_of('model', model)}` has state beside its parameters (`{kinds[0]}`, as batch normalisation "
            "does), on which workers with parameters of several ages would not agree: take layer or group normalisation, or "
            "`fred.NNXModel`, whose batch normalisation is calibrated when it is evaluated"
        )
