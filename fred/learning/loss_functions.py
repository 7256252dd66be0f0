"""Loss functions: what is minimised, given a model's outputs and the right answers."""

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
    """Says how wrong outputs are. A run minimises its mean, and measures the mean over the evaluation examples: `loss`.

    One's own is named in a scenario as `module:Class`, or given as it is, `task={"loss": Huber(), ...}`. Nothing in it may
    depend on Python branches on values, as JAX traces and differentiates it:

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
        """Of each example by itself [batch].

        Args:
            outputs: of the model [batch, outputs].
            answers: class numbers [batch] int32, or of sequences [batch, context], or values [batch, outputs] float32.
        """

    def error(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        """What is measured beside the loss, as `error` []: the fraction misclassified, or the root mean square difference.

        Args:
            outputs: of the model [batch, outputs].
            answers: class numbers [batch] int32, or values [batch, outputs] float32.
        """
        if jnp.issubdtype(answers.dtype, jnp.integer):
            return (outputs.argmax(-1) != answers).mean()
        return jnp.sqrt(jnp.square(outputs - answers).mean(-1).mean())

    def check(self, data: Dataset) -> None:
        """Refuse, with FredError, data of which it cannot say how wrong outputs are.

        Args:
            data: whose answers it will be told.
        """


class CrossEntropy(LossFunction):
    """Softmax cross-entropy of class numbers.

    Of outputs that say nothing it is the logarithm of the number of classes, however smooth the labels are:

        >>> import jax.numpy as jnp
        >>> from fred.learning.loss_functions import CrossEntropy
        >>> silent, right = jnp.zeros((1, 4)), jnp.array([2])
        >>> [round(float(each.losses(silent, right)[0]), 4) for each in (CrossEntropy(), CrossEntropy(smoothing=0.1))]
        [1.3863, 1.3863]
    """

    smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="label smoothing: the part of each label that is spread evenly over all classes"
    )

    def losses(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        chosen = jax.nn.one_hot(answers, outputs.shape[-1])
        if self.smoothing:
            chosen = (1 - self.smoothing) * chosen + self.smoothing / outputs.shape[-1]
        each = jax.nn.logsumexp(outputs, axis=-1) - (chosen * outputs).sum(-1)
        return each if each.ndim == 1 else each.reshape(len(each), -1).mean(-1)  # of sequences, over their tokens

    def check(self, data: Dataset) -> None:
        if not data.classifies:
            name = registry.name_of("loss", self)
            raise FredError(f"loss `{name}` needs classes, and these data are values to predict: take `squared-error`")


class SquaredError(LossFunction):
    """Mean over the outputs of their squared difference from the right values; of classes, from 1 for the right one and 0.

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
    """The first of a model's outputs, whatever the answers are; the error is the last one. For models that are their own loss.

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
    """What is minimised where a task names no loss.

    Args:
        classifies: whether answers are class numbers.

        >>> usual(classifies=True), usual(classifies=False)
        (CrossEntropy(smoothing=0.0), SquaredError())
    """
    return CrossEntropy() if classifies else SquaredError()
