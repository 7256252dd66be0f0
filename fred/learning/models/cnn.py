"""A convolutional network."""

import jax
import numpy as np
from jax import lax
from pydantic import Field

from fred.base.errors import FredError
from fred.learning.keys import split
from fred.learning.models.model import Initialisation, Model, Params, Width, initialiser


class CNN(Model):
    """Blocks of convolution, ReLU and 2 x 2 max-pooling, then one hidden layer; for images [height, width, channels].

    Kernels are stored as matrices [kernel x kernel x input maps, output maps]. Images without a channel axis have one channel:

        >>> import jax
        >>> from fred.learning.models.cnn import CNN
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
            key, own = split(key)
            weights = draw(own, (self.kernel**2 * depth, maps))
            params[f"convolution{i}"] = {"weights": weights, "biases": np.zeros(maps, np.float32)}
            height, width, depth = height // 2, width // 2, maps
        for name, sizes in (("hidden", (height * width * depth, self.hidden)), ("outputs", (self.hidden, outputs))):
            key, own = split(key)
            params[name] = {"weights": draw(own, sizes), "biases": np.zeros(sizes[1], np.float32)}
        return jax.device_put(params)

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        x = inputs if inputs.ndim == 4 else inputs[..., None]
        for i in range(len(self.channels)):
            layer = params[f"convolution{i}"]
            kernel = layer["weights"].reshape(self.kernel, self.kernel, x.shape[-1], -1)
            x = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = _max_pool(jax.nn.relu(x + layer["biases"]))
        x = x.reshape(len(x), -1)
        x = jax.nn.relu(x @ params["hidden"]["weights"] + params["hidden"]["biases"])
        return x @ params["outputs"]["weights"] + params["outputs"]["biases"]


def _max_pool(x: jax.Array) -> jax.Array:
    """Return the maximum of each 2 x 2 square; an odd last row or column is dropped."""
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(batch, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))
