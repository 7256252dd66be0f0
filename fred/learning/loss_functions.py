"""Loss functions of a model's outputs and the correct answers."""

from abc import abstractmethod
from typing import Annotated

import jax
import jax.numpy as jnp
from pydantic import Field

from fred.base.errors import FredError
from fred.components import registry
from fred.components.component import Component
from fred.learning.data.dataset import Dataset


class LossFunction(Component):
    """A loss per example. Training minimises its mean; evaluations report the mean over the evaluation examples as `loss`.

    A scenario names your own class as `module:Class`, or contains an instance, `task={"loss": Huber(), ...}`. JAX traces and
    differentiates it, so its code must not branch on array values:

        >>> import fred
        >>> import jax.numpy as jnp
        >>> class Huber(fred.LossFunction):
        ...     delta: float = 1.0
        ...     def losses(self, outputs, answers):
        ...         apart = jnp.abs(outputs - answers)
        ...         near = jnp.minimum(apart, self.delta)
        ...         return (near * (apart - 0.5 * near)).sum(-1)
        >>> Huber().losses(jnp.array([[0.5], [3.0]]), jnp.array([[0.0], [0.0]])).tolist()
        [0.125, 2.5]
    """

    @abstractmethod
    def losses(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        """Return the loss of each example [batch].

        Args:
            outputs: the model's outputs [batch, outputs].
            answers: class numbers [batch] int32, for sequences [batch, context], or values [batch, outputs] float32.
        """

    def error(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        """Return the second metric of evaluations, `error` []: the misclassified fraction, or the root mean square error.

        Args:
            outputs: the model's outputs [batch, outputs].
            answers: class numbers [batch] int32, or values [batch, outputs] float32.
        """
        if jnp.issubdtype(answers.dtype, jnp.integer):
            return (outputs.argmax(-1) != answers).mean()
        return jnp.sqrt(jnp.square(outputs - answers).mean(-1).mean())

    def check(self, data: Dataset) -> None:
        """Raise FredError if the loss is not defined for the answers of a data set.

        Args:
            data: the data set.
        """


class CrossEntropy(LossFunction):
    """Softmax cross-entropy of class numbers.

    For equal outputs it is the logarithm of the number of classes, with or without label smoothing:

        >>> import jax.numpy as jnp
        >>> from fred.learning.loss_functions import CrossEntropy
        >>> silent, right = jnp.zeros((1, 4)), jnp.array([2])
        >>> [round(float(each.losses(silent, right)[0]), 4) for each in (CrossEntropy(), CrossEntropy(smoothing=0.1))]
        [1.3863, 1.3863]
    """

    smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="label smoothing: the share of each label that is spread evenly over all classes"
    )

    def losses(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        chosen = jax.nn.one_hot(answers, outputs.shape[-1])
        if self.smoothing:
            chosen = (1 - self.smoothing) * chosen + self.smoothing / outputs.shape[-1]
        each = jax.nn.logsumexp(outputs, axis=-1) - (chosen * outputs).sum(-1)
        return each if each.ndim == 1 else each.reshape(len(each), -1).mean(-1)  # a sequence's loss is the mean over its tokens

    def check(self, data: Dataset) -> None:
        if not data.classifies:
            name = registry.name_of("loss", self)
            raise FredError(f"loss `{name}` needs classes, and these data are values to predict: use `squared-error`")


class SquaredError(LossFunction):
    """Squared error, averaged over the outputs. Class numbers are compared as one-hot vectors.

    >>> import jax.numpy as jnp
    >>> from fred.learning.loss_functions import SquaredError
    >>> SquaredError().losses(jnp.array([[1.0, 3.0]]), jnp.array([[0.0, 0.0]])).tolist()
    [5.0]
    >>> SquaredError().losses(jnp.array([[0.0, 0.0]]), jnp.array([1])).tolist()
    [0.5]
    """

    def losses(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        if jnp.issubdtype(answers.dtype, jnp.integer):
            answers = jax.nn.one_hot(answers, outputs.shape[-1])
        return jnp.square(outputs - answers).mean(-1)


class Value(LossFunction):
    """A model's first output as the loss and its last as the error, for models that compute a function to minimise.

    The answers do not matter.

    >>> import jax.numpy as jnp
    >>> from fred.learning.loss_functions import Value
    >>> outputs, answers = jnp.array([[3.0, 5.0], [1.0, 5.0]]), jnp.zeros((2, 2))
    >>> Value().losses(outputs, answers).tolist(), float(Value().error(outputs, answers))
    ([3.0, 1.0], 5.0)
    """

    def losses(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        return outputs[:, 0]

    def error(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        return outputs[:, -1].mean()


def usual(classifies: bool) -> LossFunction:
    """Return the default loss function of a task that names none.

    Args:
        classifies: True if answers are class numbers.

        >>> usual(classifies=True), usual(classifies=False)
        (CrossEntropy(smoothing=0.0), SquaredError())
    """
    return CrossEntropy() if classifies else SquaredError()
