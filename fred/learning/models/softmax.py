"""Softmax regression: a linear model; on regression data, linear regression."""

import math

import jax
import numpy as np

from fred.learning.models.model import Model, Params


class SoftmaxRegression(Model):
    """One linear layer; all parameters start at 0 (the loss is convex).

    Inputs of any shape are read as one row of numbers each:

        >>> import jax
        >>> from fred.learning.models.mlp import SoftmaxRegression
        >>> model = SoftmaxRegression()
        >>> params = model.init(jax.random.key(0), (8, 8), 10)
        >>> {name: array.shape for name, array in params.items()}
        {'biases': (10,), 'weights': (64, 10)}
        >>> model.apply(params, jax.numpy.ones((3, 8, 8))).shape
        (3, 10)
    """

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        weights, biases = np.zeros((math.prod(input_shape), outputs), np.float32), np.zeros(outputs, np.float32)
        return jax.device_put({"weights": weights, "biases": biases})

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        return inputs.reshape(len(inputs), -1) @ params["weights"] + params["biases"]
