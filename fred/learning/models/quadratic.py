"""A quadratic by which asynchronous methods are compared [Tyurin, Richtarik 2023, arXiv:2305.12387]: a worst case."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from fred.base.errors import FredError
from fred.components.component import Count
from fred.learning.models.model import Model, Params


class Quadratic(Model):
    """f(x) - min f = (x - x*)' A (x - x*) / 2, A = tridiag(-1, 2, -1) / 4, from x = sqrt(d) e_1, plus what the inputs say.

    Here x* solves A x* = -e_1 / 4, and f is L-smooth with L < 1. Its outputs are two numbers: the value, to which an input z
    adds the sum of z times x, so that a gradient is off by z (a single number is off in all coordinates alike); and the
    squared length of the gradient without inputs. It goes with `loss: value` and the data `noise`.

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

    dimension: Count = Field(1729, description="d: numbers to be found", examples=[32])
    start: float | None = Field(None, description="the first of them at the beginning, where the others are 0; absent: sqrt(d)")

    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        start = math.sqrt(self.dimension) if self.start is None else self.start
        return {"x": jax.device_put(np.array([start, *[0] * (self.dimension - 1)], np.float32))}

    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        if inputs[0].size not in (1, self.dimension):
            raise FredError(
                f"model `quadratic` of dimension {self.dimension} has inputs of {inputs[0].size} numbers; expected 1, which is "
                f"added to all of a gradient, or {self.dimension}: give the data `noise` as many `features`"
            )
        away = params["x"] + jnp.arange(self.dimension, 0, -1, dtype=jnp.float32) / (self.dimension + 1)
        steps = jnp.diff(away, prepend=0.0, append=0.0)
        value, gradient = jnp.square(steps).sum() / 8, -jnp.diff(steps) / 4
        noise = (inputs.reshape(len(inputs), -1) * params["x"]).sum(-1)
        length = jnp.full(len(inputs), jax.lax.stop_gradient(jnp.square(gradient).sum()))
        return jnp.stack((value + noise, length), axis=-1)
