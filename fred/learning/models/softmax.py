"""Softmax regression: a linear model; on regression data, linear regression."""

import math

import jax
import jax.numpy as jnp

from fred.learning.models.model import Model, Params


class SoftmaxRegression(Model):
    """One linear layer; all parameters start at 0 (the loss is convex)."""

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        return {"weights": jnp.zeros((math.prod(input_shape), outputs)), "biases": jnp.zeros(outputs)}

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        return inputs.reshape(len(inputs), -1) @ params["weights"] + params["biases"]
