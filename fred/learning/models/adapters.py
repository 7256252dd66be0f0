"""Bring your own Flax or Equinox model: subclass an adapter, return the module, name the class in a scenario.

Neither library is a dependency of FRED's; whoever uses an adapter has it installed.
"""

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from fred.learning.models.model import Model, Params


class FlaxModel(Model):
    """A flax.linen module that maps inputs [batch, ...] to outputs [batch, outputs].

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
        return self.module().init(key, jnp.zeros((1, *input_shape)))

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Outputs [batch, outputs] of the module with these `params` for `inputs` [batch, ...]."""
        return self.module().apply(params, inputs)


class EquinoxModel(Model):
    """An equinox module that maps one input [...] to outputs [outputs].

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
        """Outputs [batch, outputs] of the module with these `params` for `inputs` [batch, ...], one after the other."""
        import equinox

        shapes = equinox.filter_eval_shape(self.module, jax.random.key(0))
        static = equinox.filter(shapes, lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct))
        return jax.vmap(equinox.combine(params, static))(inputs)
