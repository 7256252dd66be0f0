"""A worst-case quadratic for comparisons of asynchronous methods [Tyurin, Richtarik 2023, arXiv:2305.12387]."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from fred.base.errors import FredError
from fred.components.component import Count
from fred.learning.models.model import Model, Params


class Quadratic(Model):
    """The quadratic (x - x*)' A (x - x*) / 2 with A = tridiag(-1, 2, -1) / 4, from x = sqrt(d) e_1, plus gradient noise.

    Here x* solves A x* = -e_1 / 4, and the function is L-smooth with L < 1. There are two outputs. The first is the value plus
    the inner product of the input z and x, so that z is added to the gradient; a z of one number is added to all coordinates.
    The second is the squared norm of the gradient without noise. Use it with `loss: value` and the data `noise`.

        >>> import jax
        >>> from fred.learning.models.quadratic import Quadratic
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
        away = params["x"] + jnp.arange(self.dimension, 0, -1, dtype=jnp.float32) / (self.dimension + 1)
        steps = jnp.diff(away, prepend=0.0, append=0.0)
        value, gradient = jnp.square(steps).sum() / 8, -jnp.diff(steps) / 4
        noise = (inputs.reshape(len(inputs), -1) * params["x"]).sum(-1)
        length = jnp.full(len(inputs), jax.lax.stop_gradient(jnp.square(gradient).sum()))
        return jnp.stack((value + noise, length), axis=-1)
