"""The base class of models: pure functions of a parameter pytree."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

from fred.base.imports import jax
from fred.components.component import Component, Count
from fred.learning.keys import Draw, normal, scaled

Params = Any  # pytree of float32 arrays

Initialisation = Literal["he_normal", "glorot_normal", "lecun_normal", "standard_normal"]
Width = Count


class Model(Component):
    """A function of parameters and inputs that returns outputs: unnormalised class scores, or values.

    A line through the origin. A scenario names it as `module:Line`, or contains an instance, `task={"model": Line(), ...}`:

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
        """Return initial parameters.

        Args:
            key: a JAX random key; the same key gives the same parameters.
            input_shape: shape of one example's inputs, without the batch axis.
            outputs: number of classes, or of values to predict.

        Returns:
            A pytree of float32 arrays, which `apply` receives.
        """

    @abstractmethod
    def apply(self, params: Params, inputs: jax.Array) -> jax.Array:
        """Return outputs [batch, outputs] for inputs [batch, ...].

        Args:
            params: parameters, from `init` or after training.
            inputs: inputs of several examples [batch, *input_shape], float32.
        """

    def training(self, params: Params, inputs: jax.Array, key: jax.Array) -> jax.Array:
        """Return outputs [batch, outputs] for one minibatch in training, where they differ from those of `apply`.

        Override it for dropout, for other randomness in training, and for operations on the whole minibatch. If it is not
        overridden, FRED makes no keys. A line with dropout of its inputs:

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
            ...         mask = jax.random.bernoulli(key, 1 - self.rate, inputs.shape)
            ...         return self.apply(params, jnp.where(mask, inputs / (1 - self.rate), 0.0))
            >>> scenario = fred.scenario({
            ...     "task": {"data": "synthetic-regression", "model": Forgetful(rate=0.2), "batch_size": 4},
            ...     "cluster": {"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
            ...     "stop": {"updates": 4},
            ...     "algorithm": {"name": "asgd", "learning_rate": 0.01},
            ... })
            >>> fred.run(scenario).summary["updates"].tolist()
            [4]

        Args:
            params: parameters, as for `apply`.
            inputs: inputs of one worker's minibatch [batch, *input_shape], float32.
            key: a JAX random key, different for each worker and step (`fred.key_words`).
        """
        return self.apply(params, inputs)

    def calibrated(self, params: Params, inputs: jax.Array) -> Params:
        """Return the `params` that `apply` receives in an evaluation, with statistics that are computed beforehand.

        This allows batch normalisation without state that workers and servers would have to share. A gradient normalises by its
        own minibatch (`training`). Each evaluation normalises by training examples, with statistics at the parameters that are
        evaluated [Wu & Johnson 2021, arXiv:2105.07576, "precise BN"].

        Args:
            params: the parameters to evaluate.
            inputs: inputs of the first training examples, at most 1024 [n, *input_shape].
        """
        return params

    @property
    def calibrates(self) -> bool:
        """True if the model computes statistics before an evaluation (`calibrated`)."""
        return type(self).calibrated is not Model.calibrated

    @property
    def draws(self) -> bool:
        """True if gradients use `training`, with a random key each."""
        return type(self).training is not Model.training


_INITIALISERS: dict[Initialisation, Draw] = {
    "he_normal": scaled(lambda inputs, outputs: 2 / inputs),
    "glorot_normal": scaled(lambda inputs, outputs: 2 / (inputs + outputs)),
    "lecun_normal": scaled(lambda inputs, outputs: 1 / inputs),
    "standard_normal": normal,
}


def initialiser(name: Initialisation) -> Draw:
    """Return the initialiser of weights with this name.

    Args:
        name: name of a JAX initialiser, or `standard_normal` for N(0, 1), unscaled.

    Returns:
        A function of a key and a shape, [inputs, outputs]:

        >>> import jax
        >>> initialiser("he_normal")(jax.random.key(0), (3, 5)).shape
        (3, 5)
    """
    return _INITIALISERS[name]
