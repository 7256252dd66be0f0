"""Models of dense layers: softmax regression and the multilayer perceptron."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from fred.learning.keys import split
from fred.learning.models.model import Initialisation, Model, Params, Width, initialiser


class SoftmaxRegression(Model):
    """One linear layer; all parameters start at 0 (the loss is convex).

    Inputs of any shape are flattened:

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


class MLP(Model):
    """Fully connected layers; biases start at 0.

    The parameters of layer i are stored as `layer{i}`. The last layer has no activation:

        >>> import jax
        >>> from fred.learning.models.mlp import MLP
        >>> params = jax.eval_shape(lambda key: MLP(hidden=(16,)).init(key, (8, 8), 10), jax.random.key(0))
        >>> {name: layer["weights"].shape for name, layer in params.items()}
        {'layer0': (64, 16), 'layer1': (16, 10)}
    """

    hidden: tuple[Width, ...] = Field(default=(32,), description="width of each hidden layer")
    activation: Literal["relu", "tanh", "sigmoid", "gelu"] = Field(
        default="relu", description="activation of the hidden layers"
    )
    initialisation: Initialisation = Field(default="he_normal", description="distribution of the initial weights")

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        widths = (math.prod(input_shape), *self.hidden, outputs)
        draw = initialiser(self.initialisation)
        keys = split(key, len(widths) - 1)
        params = {
            f"layer{i}": {"weights": draw(keys[i], (widths[i], widths[i + 1])), "biases": np.zeros(widths[i + 1], np.float32)}
            for i in range(len(widths) - 1)
        }
        return jax.device_put(params)

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        activation = jnp.tanh if self.activation == "tanh" else getattr(jax.nn, self.activation)
        x = inputs.reshape(len(inputs), -1)
        for i in range(len(params)):
            x = x @ params[f"layer{i}"]["weights"] + params[f"layer{i}"]["biases"]
            if i < len(params) - 1:
                x = activation(x)
        return x
