"""Built-in models: dense, convolutional and transformer networks, and a worst-case quadratic.

| name        | source                                   |
|-------------|------------------------------------------|
| Quadratic   | Tyurin, Richtarik 2023, arXiv:2305.12387 |
| Transformer | Vaswani et al. 2017, arXiv:1706.03762    |

A convolutional network.

Models of dense layers: softmax regression and the multilayer perceptron.

A worst-case quadratic for comparisons of asynchronous methods.

A small decoder-only transformer, and a linear next-token model.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pydantic import Field, model_validator

from fred.base.errors import FredError
from fred.components.component import Count
from fred.learning.keys import normal, split
from fred.learning.models.model import Initialisation, Model, Params, Width, initialiser
from fred.portable.barriers import stored
from fred.portable.products import patches


class CNN(Model):
    """Blocks of convolution, ReLU and 2 x 2 max-pooling, then one hidden layer; for images [height, width, channels].

    Kernels are stored as matrices [kernel x kernel x input maps, output maps]. Images without a channel axis have one channel:

        >>> import jax
        >>> from fred.learning.models.built_in_models import CNN
        >>> cnn = CNN(channels=(4, 8), hidden=16)
        >>> params = jax.eval_shape(lambda key: cnn.init(key, (8, 8), 10), jax.random.key(0))
        >>> {name: layer["weights"].shape for name, layer in params.items()}
        {'convolution0': (9, 4), 'convolution1': (36, 8), 'hidden': (32, 16), 'outputs': (16, 10)}
    """

    channels: tuple[Width, ...] = Field(default=(8, 16), min_length=1, description="feature maps of each convolution")
    kernel: int = Field(default=3, ge=1, le=31, description="side of the square kernels; borders are padded with zeros")
    hidden: Width = Field(default=32, description="width of the fully connected layer")
    initialisation: Initialisation = Field(default="he_normal", description="distribution of the initial weights")

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        """Return initial parameters. Raises FredError for inputs that are not images, or too small for the convolutions.

        Args:
            key: a JAX random key.
            input_shape: [height, width] or [height, width, channels], pixels.
            outputs: number of classes, or of values.
        """
        if len(input_shape) not in (2, 3):
            raise FredError(f"model `cnn` needs images, [height, width(, channels)]; the data's inputs are {list(input_shape)}")
        if min(input_shape[:2]) < 2 ** len(self.channels):
            raise FredError(
                f"model `cnn`: each of {len(self.channels)} `channels` halves the image, of which nothing would be left "
                f"({input_shape[0]} x {input_shape[1]} pixels); use fewer"
            )
        height, width, depth = input_shape if len(input_shape) == 3 else (*input_shape, 1)
        draw = initialiser(self.initialisation)
        params = {}
        for i, maps in enumerate(self.channels):
            key, weight_key = split(key)
            weights = draw(weight_key, (self.kernel**2 * depth, maps))
            params[f"convolution{i}"] = {"weights": weights, "biases": np.zeros(maps, np.float32)}
            height, width, depth = height // 2, width // 2, maps
        for name, sizes in (("hidden", (height * width * depth, self.hidden)), ("outputs", (self.hidden, outputs))):
            key, weight_key = split(key)
            params[name] = {"weights": draw(weight_key, sizes), "biases": np.zeros(sizes[1], np.float32)}
        return jax.device_put(params)

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        x = inputs if inputs.ndim == 4 else inputs[..., None]
        for i in range(len(self.channels)):
            layer = params[f"convolution{i}"]
            x = _max_pool(jax.nn.relu(_patches(x, self.kernel) @ layer["weights"] + layer["biases"]))
        x = x.reshape(len(x), -1)
        x = jax.nn.relu(x @ params["hidden"]["weights"] + params["hidden"]["biases"])
        return x @ params["outputs"]["weights"] + params["outputs"]["biases"]


def _patches(x: jax.Array, kernel: int) -> jax.Array:
    """Return the inputs of each pixel's kernel [batch, height, width, kernel x kernel x maps], zeros beyond the borders.

    They are built here rather than by `lax.conv`, so that the gradient of the weights reads those of the forward pass again.
    """
    margin = (kernel - 1) // 2, kernel // 2
    padded = jnp.pad(x, ((0, 0), margin, margin, (0, 0)))
    return patches(padded, x.shape[1:3], (kernel, kernel), (1, 1), (1, 1)).reshape(*x.shape[:3], -1)


def _max_pool(x: jax.Array) -> jax.Array:
    """Return the maximum of each 2 x 2 square; an odd last row or column is dropped."""
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(batch, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


class SoftmaxRegression(Model):
    """One linear layer; all parameters start at 0 (the loss is convex).

    Inputs of any shape are flattened:

        >>> import jax
        >>> from fred.learning.models.built_in_models import SoftmaxRegression
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
        >>> from fred.learning.models.built_in_models import MLP
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


class Quadratic(Model):
    """The quadratic (x - x*)' A (x - x*) / 2 with A = tridiag(-1, 2, -1) / 4, from x = sqrt(d) e_1, plus gradient noise.

    Here x* solves A x* = -e_1 / 4, and the function is L-smooth with L < 1. There are two outputs. The first is the value plus
    the inner product of the input z and x, so that z is added to the gradient; a z of one number is added to all coordinates.
    The second is the squared norm of the gradient without noise. Use it with `loss: value` and the data `noise`.

        >>> import jax
        >>> from fred.learning.models.built_in_models import Quadratic
        >>> model = Quadratic(dimension=3)
        >>> params = model.init(jax.random.key(0), (1,), 2)
        >>> [round(float(x), 4) for x in params["x"]]
        [1.7321, 0.0, 0.0]
        >>> at_the_minimum = {"x": jax.numpy.array([-0.75, -0.5, -0.25])}
        >>> model.apply(at_the_minimum, jax.numpy.zeros((1, 1))).tolist()
        [[0.0, 0.0]]
    """

    dimension: Count = Field(default=1729, description="d: number of parameters", examples=[32])
    start: float | None = Field(
        default=None, description="initial value of the first parameter; the others are 0; absent: sqrt(d)"
    )

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        start = math.sqrt(self.dimension) if self.start is None else self.start
        return {"x": jax.device_put(np.array([start, *[0] * (self.dimension - 1)], np.float32))}

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        if inputs[0].size not in (1, self.dimension):
            raise FredError(
                f"model `quadratic` of dimension {self.dimension} has inputs of {inputs[0].size} numbers; expected 1, which is "
                f"added to all coordinates, or {self.dimension}: set `features` of the data `noise`"
            )
        # x - x*, as x*_i = -(d + 1 - i) / (d + 1). The value and A (x - x*) are sums and differences of its steps.
        distance = params["x"] + jnp.arange(self.dimension, 0, -1, dtype=jnp.float32) / (self.dimension + 1)
        steps = jnp.diff(distance, prepend=0.0, append=0.0)
        value, gradient = jnp.square(steps).sum() / 8, -jnp.diff(steps) / 4
        noise = (inputs.reshape(len(inputs), -1) * params["x"]).sum(-1)
        squared_norm = jnp.full(len(inputs), jax.lax.stop_gradient(jnp.square(gradient).sum()))  # a metric only
        return jnp.stack((value + noise, squared_norm), axis=-1)


_HIDDEN = -1e30  # score of masked tokens
_TINY = 1e-5  # added to variances


class Transformer(Model):
    """A decoder-only transformer: layers of causal self-attention and a perceptron predict each next token.

    Layers are pre-normalised, positions are learned, and perceptrons are four times as wide as the layer. Initial matrices are
    normal with standard deviation 1 / sqrt(number of inputs), divided by sqrt(2 x layers) for the last matrix of each part. The
    output weights start at 0.

    Inputs are token numbers [batch, context]; outputs are scores [batch, context, tokens]:

        >>> import jax
        >>> from fred.learning.models.built_in_models import Transformer
        >>> model = Transformer(layers=1, width=8, heads=2)
        >>> params = model.init(jax.random.key(0), (6,), 10)
        >>> sorted(params), params["layer0"]["attention"].shape
        (['embedding', 'layer0', 'output'], (8, 24))
        >>> model.apply(params, jax.numpy.zeros((3, 6))).shape
        (3, 6, 10)
    """

    layers: Count = Field(default=2, description="number of layers, of attention and a perceptron each")
    width: Width = Field(default=64, description="numbers that represent a token")
    heads: Count = Field(default=4, description="attention heads; the width must be a multiple of them")
    activation: Literal["gelu", "relu"] = Field(default="gelu", description="activation of the perceptrons")

    @model_validator(mode="after")
    def _divisible(self) -> "Transformer":
        if self.width % self.heads:
            raise ValueError(f"`width` ({self.width}) must be a multiple of `heads` ({self.heads})")
        return self

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        context = math.prod(input_shape)
        token_key, place_key, *layer_keys = split(key, 2 + self.layers)
        params = {
            "embedding": {
                "tokens": normal(token_key, (outputs, self.width)),
                "places": 0.1 * normal(place_key, (context, self.width)),
            },
            **{f"layer{i}": self._init_layer(layer_key) for i, layer_key in enumerate(layer_keys)},
            "output": {
                "scale": np.ones(self.width, np.float32),
                "weights": np.zeros((self.width, outputs), np.float32),
                "biases": np.zeros(outputs, np.float32),
            },
        }
        return jax.device_put(params)

    def _init_layer(self, key: jax.Array) -> dict[str, jax.Array]:
        # The two matrices whose outputs are added to the residual stream start smaller, as all layers add to it.
        width, residual_share = self.width, 1 / math.sqrt(2 * self.layers)
        shapes = {
            "attention": ((width, 3 * width), 1.0),
            "joining": ((width, width), residual_share),
            "widening": ((width, 4 * width), 1.0),
            "narrowing": ((4 * width, width), residual_share),
        }
        keys = split(key, len(shapes))
        weights = {
            name: share * normal(weight_key, shape) / math.sqrt(shape[0])
            for weight_key, (name, (shape, share)) in zip(keys, shapes.items(), strict=True)
        }
        scales = {name: np.ones(width, np.float32) for name in ("attention_scale", "perceptron_scale")}
        biases = {"widening_biases": np.zeros(4 * width, np.float32), "narrowing_biases": np.zeros(width, np.float32)}
        return weights | scales | biases

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        tokens = inputs.reshape(len(inputs), -1)
        table = params["embedding"]["tokens"]
        x = jax.nn.one_hot(tokens, len(table)) @ table + params["embedding"]["places"]
        for i in range(self.layers):
            layer = params[f"layer{i}"]
            # `stored`: otherwise XLA computes x again from the first layer on in each operation that reads it.
            x = stored(x + self._attention(layer, _normalised(x, layer["attention_scale"])))
            x = stored(x + self._perceptron(layer, _normalised(x, layer["perceptron_scale"])))
        output = params["output"]
        return _normalised(x, output["scale"]) @ output["weights"] + output["biases"]

    def _attention(self, layer: Params, x: jax.Array) -> jax.Array:
        """Return the output of causal self-attention: each token attends to itself and to earlier tokens."""
        batch, context, width = x.shape
        parts = (
            part.reshape(batch, context, self.heads, -1) for part in lax.split(x @ layer["attention"], [width] * 3, axis=-1)
        )
        queries, keys, values = (part.swapaxes(1, 2) for part in parts)  # [batch, heads, context, part]
        scores = queries @ keys.swapaxes(-1, -2) / math.sqrt(width // self.heads)
        causal_mask = jnp.tril(jnp.ones((context, context), bool))
        shares = jax.nn.softmax(jnp.where(causal_mask, scores, _HIDDEN), axis=-1)
        return (shares @ values).swapaxes(1, 2).reshape(batch, context, width) @ layer["joining"]

    def _perceptron(self, layer: Params, x: jax.Array) -> jax.Array:
        wide = getattr(jax.nn, self.activation)(x @ layer["widening"] + layer["widening_biases"])
        return wide @ layer["narrowing"] + layer["narrowing_biases"]


def _normalised(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Normalise to mean 0 and variance 1 over the last axis, and multiply by the scale."""
    centred = x - x.mean(-1, keepdims=True)
    return scale * centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + _TINY)


class TokenScores(Model):
    """A linear next-token model: a table of scores of each token after each other, which starts at 0.

    >>> import jax
    >>> from fred.learning.models.built_in_models import TokenScores
    >>> params = TokenScores().init(jax.random.key(0), (6,), 10)
    >>> params["weights"].shape, TokenScores().apply(params, jax.numpy.zeros((3, 6))).shape
    ((10, 10), (3, 6, 10))
    """

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        return {"weights": jax.device_put(np.zeros((outputs, outputs), np.float32))}

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        return jax.nn.one_hot(inputs.reshape(len(inputs), -1), len(params["weights"])) @ params["weights"]
