"""Parameters by path, as results store them, and back as the pytree of their model."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.learning.data.dataset import Data, loaded
from fred.learning.loss import CALIBRATED_BY
from fred.learning.models.model import Model, Params

Named = dict[str, NDArray[Any]]  # arrays by path, such as `layer0/weights`


def unify_nans(array: jax.Array) -> NDArray[Any]:
    """Return an array as NumPy has it, with one NaN for all: their signs and payloads depend on the order of operands.

    Args:
        array: a JAX array of any shape.
    """
    return np.where(np.isnan(array), np.float32(np.nan), array)


def name_arrays(params: Params) -> Named:
    """Return each parameter array under its path."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {_path(keys): unify_nans(leaf) for keys, leaf in leaves}


def to_pytree(named: Named, model: Model, data: Data, seed: int) -> Params:
    """Return parameters as the pytree that the model's `init` returns. Raises FredError if they belong to another model.

    Args:
        named: the arrays by path.
        model: the model.
        data: the data set, which fixes the shapes of inputs and outputs.
        seed: seed of generated data.
    """
    examples = loaded(data, seed)
    shapes = jax.eval_shape(lambda key: model.init(key, examples.train.inputs.shape[1:], examples.outputs), jax.random.key(0))
    leaves, structure = jax.tree_util.tree_flatten_with_path(shapes)
    paths = [_path(keys) for keys, _ in leaves]
    if sorted(paths) != sorted(named) or any(
        named[path].shape != leaf.shape for path, (_, leaf) in zip(paths, leaves, strict=True)
    ):
        raise FredError("the stored parameters are not those of this model: was its class changed since the run?")
    return jax.tree_util.tree_unflatten(structure, [jnp.asarray(named[path]) for path in paths])


def for_evaluation(params: Params, model: Model, data: Data, seed: int) -> Params:
    """Return what a model is evaluated with: its parameters, with means and variances for batch normalisation if it has any.

    Args:
        params: its parameters, as a pytree.
        model: the model.
        data: the training data, which gives the means and variances.
        seed: seed of generated data.
    """
    if not model.calibrates:
        return params
    return model.calibrated(params, jnp.asarray(loaded(data, seed).train.inputs[:CALIBRATED_BY]))


def predict(params: Params, model: Model, data: Data, seed: int, inputs: Any) -> NDArray[Any]:
    """Return a model's outputs for n examples, such as a score for each class: [n, outputs].

    Args:
        params: its parameters, from `for_evaluation`.
        model: the model.
        data: the training data, whose examples have the shape that the model takes.
        seed: seed of generated data.
        inputs: inputs of n examples [n, ...]; they are reshaped if each has as many numbers as a training example.

    Raises FredError if they have more or fewer.
    """
    shape, expected = np.shape(inputs), loaded(data, seed).train.inputs.shape[1:]
    if not shape or math.prod(shape[1:]) != math.prod(expected):
        raise FredError(f"found inputs of shape {list(shape)}; expected [n, {str(list(expected))[1:]}, as in the training data")
    inputs = jnp.asarray(inputs, jnp.float32).reshape(shape[0], *expected)
    return np.asarray(model.apply(params, inputs))


def _path(keys: Any) -> str:
    return jax.tree_util.keystr(keys, simple=True, separator="/") or "params"
