"""What every model is: a pure function of a parameter pytree."""

from abc import abstractmethod
from typing import Any, Literal

import jax

from fred.components.component import Component, Count

Params = Any  # pytree of float32 arrays

Initialisation = Literal["he_normal", "glorot_normal", "lecun_normal", "standard_normal"]
Width = Count


class Model(Component):
    """Maps inputs to outputs (unnormalised class scores, or values), given parameters."""

    @abstractmethod
    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        """Fresh parameters for inputs of `input_shape` (one example's) and this many outputs."""

    @abstractmethod
    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Outputs [batch, outputs] for inputs [batch, ...]."""


def initialiser(name: Initialisation) -> jax.nn.initializers.Initializer:
    """Weights' distribution by name; `standard_normal` is N(0, 1), unscaled."""
    if name == "standard_normal":
        return jax.nn.initializers.normal(1.0)
    return getattr(jax.nn.initializers, name)()
