"""A small decoder-only transformer [Vaswani et al. 2017, arXiv:1706.03762], and a linear next-token model."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from fred.components.component import Count
from fred.learning.keys import split
from fred.learning.models.first_weights import normal
from fred.learning.models.model import Model, Params, Width

_HIDDEN = -1e30  # score of masked tokens
_TINY = 1e-5  # added to variances


class Transformer(Model):
    """A decoder-only transformer: layers of causal self-attention and a perceptron predict each next token.

    Layers are pre-normalised, positions are learned, and perceptrons are four times as wide as the layer. Initial matrices are
    normal with standard deviation 1 / sqrt(number of inputs), divided by sqrt(2 x layers) for the last matrix of each part. The
    output weights start at 0.

    Inputs are token numbers [batch, context]; outputs are scores [batch, context, tokens]:

        >>> import jax
        >>> from fred.learning.models.transformer import Transformer
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
        tokens, places, *keys = split(key, 2 + self.layers)
        params = {
            "embedding": {
                "tokens": normal(tokens, (outputs, self.width)),
                "places": 0.1 * normal(places, (context, self.width)),
            },
            **{f"layer{number}": self._layer(own) for number, own in enumerate(keys)},
            "output": {
                "scale": np.ones(self.width, np.float32),
                "weights": np.zeros((self.width, outputs), np.float32),
                "biases": np.zeros(outputs, np.float32),
            },
        }
        return jax.device_put(params)

    def _layer(self, key: jax.Array) -> dict[str, jax.Array]:
        width, least = self.width, 1 / math.sqrt(2 * self.layers)
        shapes = {
            "attention": ((width, 3 * width), 1.0),
            "joining": ((width, width), least),
            "widening": ((width, 4 * width), 1.0),
            "narrowing": ((4 * width, width), least),
        }
        keys = split(key, len(shapes))
        drawn = {
            name: share * normal(own, shape) / math.sqrt(shape[0])
            for own, (name, (shape, share)) in zip(keys, shapes.items(), strict=True)
        }
        scales = {name: np.ones(width, np.float32) for name in ("attention_scale", "perceptron_scale")}
        biases = {"widening_biases": np.zeros(4 * width, np.float32), "narrowing_biases": np.zeros(width, np.float32)}
        return drawn | scales | biases

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        tokens = inputs.reshape(len(inputs), -1)
        table = params["embedding"]["tokens"]
        x = jax.nn.one_hot(tokens, len(table)) @ table + params["embedding"]["places"]
        for number in range(self.layers):
            own = params[f"layer{number}"]
            x = x + self._attention(own, _normalised(x, own["attention_scale"]))
            x = x + self._perceptron(own, _normalised(x, own["perceptron_scale"]))
        last = params["output"]
        return _normalised(x, last["scale"]) @ last["weights"] + last["biases"]

    def _attention(self, own: Params, x: jax.Array) -> jax.Array:
        """Return the output of causal self-attention: each token attends to itself and to earlier tokens."""
        batch, context, width = x.shape
        three = (x @ own["attention"]).reshape(batch, context, 3, self.heads, width // self.heads)
        asked, known, told = (three[:, :, which].swapaxes(1, 2) for which in range(3))  # [batch, heads, context, part]
        scores = asked @ known.swapaxes(-1, -2) / math.sqrt(width // self.heads)
        seen = jnp.tril(jnp.ones((context, context), bool))
        shares = jax.nn.softmax(jnp.where(seen, scores, _HIDDEN), axis=-1)
        return (shares @ told).swapaxes(1, 2).reshape(batch, context, width) @ own["joining"]

    def _perceptron(self, own: Params, x: jax.Array) -> jax.Array:
        wide = getattr(jax.nn, self.activation)(x @ own["widening"] + own["widening_biases"])
        return wide @ own["narrowing"] + own["narrowing_biases"]


def _normalised(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Normalise to mean 0 and variance 1 over the last axis, and multiply by the scale."""
    centred = x - x.mean(-1, keepdims=True)
    return scale * centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + _TINY)


class TokenScores(Model):
    """A linear next-token model: a table of scores of each token after each other, which starts at 0.

    >>> import jax
    >>> from fred.learning.models.transformer import TokenScores
    >>> params = TokenScores().init(jax.random.key(0), (6,), 10)
    >>> params["weights"].shape, TokenScores().apply(params, jax.numpy.zeros((3, 6))).shape
    ((10, 10), (3, 6, 10))
    """

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        return {"weights": jax.device_put(np.zeros((outputs, outputs), np.float32))}

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        return jax.nn.one_hot(inputs.reshape(len(inputs), -1), len(params["weights"])) @ params["weights"]
