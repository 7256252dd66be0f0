"""What every model is: a pure function of a parameter pytree."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

from fred.base.later import jax
from fred.components.component import Component, Count
from fred.learning.models.first_weights import Draw, normal, scaled

Params = Any  # pytree of float32 arrays

Initialisation = Literal["he_normal", "glorot_normal", "lecun_normal", "standard_normal"]
Width = Count


class Model(Component):
    """Maps inputs to outputs (unnormalised class scores, or values), given parameters.

    A line through the origin. A scenario names it as `module:Line`, or has it as it is, `task={"model": Line(), ...}`:

        >>> import fred
        >>> import jax.numpy as jnp
        >>> class Line(fred.Model):
        ...     def init(self, key, input_shape, outputs):
        ...         return {"slope": jnp.zeros((*input_shape, outputs))}
        ...     def apply(self, params, inputs):
        ...         return inputs @ params["slope"]
        >>> Line().apply({"slope": jnp.array([[2.0]])}, jnp.array([[1.0], [3.0]])).tolist()
        [[2.0], [6.0]]
    """

    @abstractmethod
    def init(self, key: jax.Array, input_shape: tuple[int, ...], outputs: int) -> Params:
        """Fresh parameters for inputs of `input_shape` (one example's) and this many outputs.

        Args:
            key: of JAX's random numbers; the same key gives the same parameters.
            input_shape: of one example's inputs, without the batch.
            outputs: number of classes, or of values to predict.

        Returns:
            A pytree of float32 arrays, of which `apply` makes use.
        """

    @abstractmethod
    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Outputs [batch, outputs] for inputs [batch, ...].

        Args:
            params: as `init` made them, or training has changed them.
            inputs: of several examples [batch, *input_shape], float32.
        """

    def training(self, params: Params, inputs: jax.Array, key: jax.Array) -> jax.Array:
        """Outputs [batch, outputs] for one minibatch while a gradient is computed, where these are not those of `apply`.

        Dropout is here, and whatever else is random in training, or looks at the minibatch as a whole. A model that does
        not override it costs nothing: no key is made. A line whose inputs are dropped half the time:

            >>> import fred
            >>> import jax
            >>> import jax.numpy as jnp
            >>> class Forgetful(fred.Model):
            ...     rate: float = 0.5
            ...     def init(self, key, input_shape, outputs):
            ...         return {"slope": jnp.ones((*input_shape, outputs))}
            ...     def apply(self, params, inputs):
            ...         return inputs @ params["slope"]
            ...     def training(self, params, inputs, key):
            ...         kept = jax.random.bernoulli(key, 1 - self.rate, inputs.shape)
            ...         return self.apply(params, jnp.where(kept, inputs / (1 - self.rate), 0.0))
            >>> scenario = fred.scenario({
            ...     "task": {"data": "synthetic-regression", "model": Forgetful(rate=0.2), "batch_size": 4},
            ...     "cluster": {"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
            ...     "stop": {"updates": 4},
            ...     "algorithm": {"name": "asgd", "learning_rate": 0.01},
            ... })
            >>> fred.run(scenario).summary["updates"].tolist()
            [4]

        Args:
            params: as for `apply`.
            inputs: of one worker's minibatch [batch, *input_shape], float32.
            key: of JAX's random numbers, another one for each worker and step (`fred.key_words`).
        """
        return self.apply(params, inputs)

    def calibrated(self, params: Params, inputs: jax.Array) -> Params:
        """What `apply` is told of when the model is evaluated: `params`, and what is to be gathered at them beforehand.

        So batch normalisation is possible without state that workers and servers would have to agree on: a gradient normalises
        by its own minibatch (`training`), and each evaluation by examples of the training data, at the very parameters that
        are evaluated [Wu & Johnson 2021, arXiv:2105.07576, "precise BN"].

        Args:
            params: that are evaluated.
            inputs: of the first training examples, at most 1024 [n, *input_shape].
        """
        return params

    @property
    def calibrates(self) -> bool:
        """Whether something is gathered before an evaluation."""
        return type(self).calibrated is not Model.calibrated

    @property
    def draws(self) -> bool:
        """Whether gradients are computed by `training`, and keys drawn for it."""
        return type(self).training is not Model.training


_DRAWN: dict[Initialisation, Draw] = {
    "he_normal": scaled(lambda inputs, outputs: 2 / inputs),
    "glorot_normal": scaled(lambda inputs, outputs: 2 / (inputs + outputs)),
    "lecun_normal": scaled(lambda inputs, outputs: 1 / inputs),
    "standard_normal": normal,
}


def initialiser(name: Initialisation) -> Draw:
    """Weights' distribution by name; `standard_normal` is N(0, 1), unscaled.

    Args:
        name: JAX's own name for it, or `standard_normal`.

    Returns:
        A function of a key and a shape, [inputs, outputs]:

        >>> import jax
        >>> initialiser("he_normal")(jax.random.key(0), (3, 5)).shape
        (3, 5)
    """
    return _DRAWN[name]
