"""Bring your own Flax or Equinox model: subclass an adapter, return the module, name the class in a scenario.

    class Net(FlaxModel):
        width: int = 64

        def module(self):
            return nn.Sequential([nn.Dense(self.width), nn.relu, nn.Dense(10)])

Neither library is a dependency of FRED's; whoever uses an adapter has it installed.
"""

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from fred.learning.models.model import Model, Params


class FlaxModel(Model):
    """A flax.linen module that maps inputs [batch, ...] to outputs [batch, outputs]."""

    @abstractmethod
    def module(self) -> Any:
        """The flax.linen module; its number of outputs must fit the data."""

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        return self.module().init(key, jnp.zeros((1, *input_shape)))

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        return self.module().apply(params, inputs)


class EquinoxModel(Model):
    """An equinox module that maps one input [...] to outputs [outputs]."""

    @abstractmethod
    def module(self, key: jax.Array) -> Any:
        """The equinox module with fresh parameters; its number of outputs must fit the data."""

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        import equinox

        return equinox.filter(self.module(key), equinox.is_inexact_array)

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        import equinox

        shapes = equinox.filter_eval_shape(self.module, jax.random.key(0))
        static = equinox.filter(shapes, lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct))
        return jax.vmap(equinox.combine(params, static))(inputs)
