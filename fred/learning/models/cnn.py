"""Convolutional network, its convolutions written as patches times weights.

`lax.conv` inside a compiled loop is many times slower on the CPU than outside it, and its bits change with the number of
cores; patches and a matrix product are fast and the same everywhere (docs/architecture.md, "Measured").
"""

import jax
import jax.numpy as jnp
from pydantic import Field

from fred.errors import FredError
from fred.learning.models.model import Initialisation, Model, Params, Width, initialiser


class CNN(Model):
    """Blocks of convolution, ReLU and 2 x 2 max-pooling, then one hidden layer; for images [height, width, channels]."""

    channels: tuple[Width, ...] = Field((8, 16), min_length=1, description="feature maps of each convolution")
    kernel: int = Field(3, ge=1, le=31, description="side of the square kernels; borders are padded with zeros")
    hidden: Width = Field(32, description="width of the fully connected layer")
    initialisation: Initialisation = Field("he_normal", description="distribution of the first weights")

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        if len(input_shape) not in (2, 3):
            raise FredError(f"model `cnn` needs images, [height, width(, channels)]; the data's inputs are {list(input_shape)}")
        if min(input_shape[:2]) < 2 ** len(self.channels):
            raise FredError(
                f"model `cnn`: each of {len(self.channels)} `channels` halves the image, of which nothing would be left "
                f"({input_shape[0]} x {input_shape[1]} pixels); give fewer"
            )
        height, width, depth = input_shape if len(input_shape) == 3 else (*input_shape, 1)
        draw = initialiser(self.initialisation)
        params = {}
        for i, maps in enumerate(self.channels):
            key, own = jax.random.split(key)
            params[f"convolution{i}"] = {"weights": draw(own, (self.kernel**2 * depth, maps)), "biases": jnp.zeros(maps)}
            height, width, depth = height // 2, width // 2, maps
        for name, sizes in (("hidden", (height * width * depth, self.hidden)), ("outputs", (self.hidden, outputs))):
            key, own = jax.random.split(key)
            params[name] = {"weights": draw(own, sizes), "biases": jnp.zeros(sizes[1])}
        return params

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        x = inputs if inputs.ndim == 4 else inputs[..., None]
        for i in range(len(self.channels)):
            layer = params[f"convolution{i}"]
            x = _max_pool(jax.nn.relu(_patches(x, self.kernel) @ layer["weights"] + layer["biases"]))
        x = x.reshape(len(x), -1)
        x = jax.nn.relu(x @ params["hidden"]["weights"] + params["hidden"]["biases"])
        return x @ params["outputs"]["weights"] + params["outputs"]["biases"]


def _patches(x: jax.Array, kernel: int) -> jax.Array:
    """The kernel x kernel neighbourhood of every pixel: [batch, height, width, kernel^2 x channels]."""
    height, width = x.shape[1:3]
    before, after = (kernel - 1) // 2, kernel // 2
    padded = jnp.pad(x, ((0, 0), (before, after), (before, after), (0, 0)))
    shifted = [padded[:, i : i + height, j : j + width] for i in range(kernel) for j in range(kernel)]
    return jnp.concatenate(shifted, axis=-1)


def _max_pool(x: jax.Array) -> jax.Array:
    """Largest of each 2 x 2 square; an odd last row or column is left out."""
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(batch, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))
