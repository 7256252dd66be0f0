"""Losses: functions of a model's outputs and the correct answers, and their mean over examples, with its gradient.

A `LossFunction` gives a loss for each example. `Loss` combines one with a model to pure functions of parameters and indices of
examples.
"""

import math
import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
from pydantic import Field

import fred.portable  # noqa: F401  it determines the bits of all later computations
from fred.base import cached
from fred.base.errors import FredError
from fred.components import registry
from fred.components.component import Component
from fred.learning.data.dataset import Dataset, Examples
from fred.learning.keys import GENERATOR, key_of
from fred.learning.models.model import Model, Params
from fred.schedule.minibatches import KEY_WORDS

CALIBRATED_BY = 1024  # training examples
Arrays = tuple[jax.Array, jax.Array]  # inputs [n, ...], answers [n] or [n, outputs]


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
        >>> from fred.learning.loss import CrossEntropy
        >>> silent, right = jnp.zeros((1, 4)), jnp.array([2])
        >>> [round(float(loss.losses(silent, right)[0]), 4) for loss in (CrossEntropy(), CrossEntropy(smoothing=0.1))]
        [1.3863, 1.3863]
    """

    smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="label smoothing: the share of each label that is spread evenly over all classes"
    )

    def losses(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        targets = jax.nn.one_hot(answers, outputs.shape[-1])
        if self.smoothing:
            targets = (1 - self.smoothing) * targets + self.smoothing / outputs.shape[-1]
        losses = jax.nn.logsumexp(outputs, axis=-1) - (targets * outputs).sum(-1)
        if losses.ndim == 1:
            return losses
        return losses.reshape(len(losses), -1).mean(-1)  # a sequence's loss is the mean over its tokens

    def check(self, data: Dataset) -> None:
        if not data.classifies:
            name = registry.name_of("loss", self)
            raise FredError(f"loss `{name}` needs classes, and these data are values to predict: use `squared-error`")


class SquaredError(LossFunction):
    """Squared error, averaged over the outputs. Class numbers are compared as one-hot vectors.

    >>> import jax.numpy as jnp
    >>> from fred.learning.loss import SquaredError
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
    >>> from fred.learning.loss import Value
    >>> outputs, answers = jnp.array([[3.0, 5.0], [1.0, 5.0]]), jnp.zeros((2, 2))
    >>> Value().losses(outputs, answers).tolist(), float(Value().error(outputs, answers))
    ([3.0, 1.0], 5.0)
    """

    def losses(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        return outputs[:, 0]

    def error(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        return outputs[:, -1].mean()


def default_loss(classifies: bool) -> LossFunction:
    """Return the default loss function of a task that names none.

    Args:
        classifies: True if answers are class numbers.

        >>> default_loss(classifies=True), default_loss(classifies=False)
        (CrossEntropy(smoothing=0.0), SquaredError())
    """
    return CrossEntropy() if classifies else SquaredError()


@dataclass(frozen=True)
class Loss:
    """The mean of a loss function over a model's outputs. It is hashable, so that runs share compiled code.

    A model whose outputs are all equal has a cross-entropy of the logarithm of the number of classes:

        >>> import fred
        >>> import jax.numpy as jnp
        >>> from fred.learning.loss import Loss
        >>> from fred.learning.loss import CrossEntropy
        >>> from fred.learning.models.built_in_models import SoftmaxRegression
        >>> loss = Loss(SoftmaxRegression(), CrossEntropy())
        >>> params = {"weights": jnp.zeros((2, 4)), "biases": jnp.zeros(4)}
        >>> examples = jnp.eye(2), jnp.array([1, 3])
        >>> [round(float(value), 4) for value in loss.evaluate(params, examples)]  # log 4, and all are wrong: it says 0
        [1.3863, 1.0]
        >>> loss.gradient(params, examples, jnp.array([0]))["biases"].tolist()  # what it says less what is right
        [0.25, -0.75, 0.25, 0.25]
        >>> round(float(loss.gradient_norm(params, examples)), 4)  # of all examples, weights and biases
        0.7906
    """

    model: Model
    function: LossFunction
    l2: float = 0.0

    @classmethod
    def for_data(cls, model: Model, function: LossFunction | None, data: Dataset, l2: float = 0.0) -> "Loss":
        """Return the loss of a task, with a default loss function that fits the data.

        Args:
            model: the model to train.
            function: the loss function to minimise; None for the default: cross-entropy for classes, squared error for values.
            data: the data set, of classes or of values to predict.
            l2: weight of the penalty: the loss contains l2 / 2 times the squared Euclidean norm of the parameters.
        """
        return cls(model, function or default_loss(data.classifies), l2)

    def width(self, batch_size: int) -> int:
        """Return how many integers describe a minibatch of `batch_size` examples.

        These are the examples' indices and, if the model draws random numbers in training, the words of a key.
        """
        return batch_size + KEY_WORDS * self.model.draws

    def gradient(
        self,
        params: Params,
        examples: Arrays,
        minibatch: jax.Array,
        count: jax.Array | None = None,
        members: int = 1,
        padded: bool = False,
    ) -> Params:
        """Return the gradient of the mean loss over a minibatch. With `count`, only its first `count` examples enter.

        Args:
            params: the model's parameters, at which the gradient is taken.
            examples: inputs [n, ...] and answers.
            minibatch: indices of examples, from 0 to n - 1, of one or several minibatches (`members`) in a row. If the model
                draws random numbers, each member's indices are followed by the two words of its key.
            count: number of examples that are not padding [].
            members: number of minibatches.
            padded: True if a minibatch by itself may end with -1, where there are no examples.

        Returns:
            A pytree like `params`.
        """
        indices, outputs = self._training_function(minibatch, members)
        # The losses of padding are masked below. But their gradients are multiplied by 0, and 0 x infinity is NaN. So padding
        # repeats the minibatch's first example, whose gradient is infinite only if that of the minibatch is.
        if padded:
            count, indices = (indices >= 0).sum(), jnp.where(indices >= 0, indices, indices[0])
        inputs, answers = examples[0][indices], examples[1][indices]

        def mean_loss(params: Params) -> jax.Array:
            losses = self.function.losses(outputs(params, inputs), answers)
            if count is None:
                return self._with_penalty(losses.mean(), params)
            masked = jnp.where(jnp.arange(len(losses)) < count, losses, 0.0)
            return self._with_penalty(masked.sum() / count, params)

        return jax.grad(mean_loss)(params)

    @partial(jax.jit, static_argnums=0)
    def evaluate(self, params: Params, examples: Arrays, calibration: jax.Array | None = None) -> jax.Array:
        """Return [loss, error].

        The error is the misclassified fraction or the root mean square error, unless the loss function defines another.

        Args:
            params: the model's parameters.
            examples: inputs [n, ...] and answers; the model is evaluated on all of them at once.
            calibration: inputs of training examples for models that calibrate before an evaluation; None for other models.
        """
        model = params if calibration is None else self.model.calibrated(params, calibration)
        outputs = self.model.apply(model, examples[0])
        loss = self._with_penalty(self.function.losses(outputs, examples[1]).mean(), params)
        return jnp.stack((loss, self.function.error(outputs, examples[1])))

    @partial(jax.jit, static_argnums=0)
    def gradient_norm(self, params: Params, examples: Arrays, calibration: jax.Array | None = None) -> jax.Array:
        """Return the Euclidean norm [] of the gradient of the loss that `evaluate` returns, over all parameters.

        Args:
            params: the model's parameters.
            examples: inputs [n, ...] and answers; the loss is the mean over all of them.
            calibration: inputs of training examples, as for `evaluate`; the gradient includes the effect of the parameters on
                calibration.
        """
        gradient = jax.grad(lambda params: self.evaluate(params, examples, calibration)[0])(params)
        return jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(gradient)))

    def _with_penalty(self, loss: jax.Array, params: Params) -> jax.Array:
        """Return the loss [] plus the L2 penalty of the parameters."""
        if not self.l2:
            return loss
        return loss + self.l2 / 2 * sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(params))

    def _training_function(
        self, minibatch: jax.Array, members: int
    ) -> tuple[jax.Array, Callable[[Params, jax.Array], jax.Array]]:
        """Return the examples' indices, and the function that the model computes in training.

        The function maps parameters and these examples' inputs to outputs [examples, outputs].
        """
        if not self.model.draws:
            return minibatch, self.model.apply
        rows = minibatch.reshape(members, -1)  # of each member: its examples' indices, then the words of its key
        keys = jax.random.wrap_key_data(jax.lax.bitcast_convert_type(rows[:, -KEY_WORDS:], jnp.uint32), impl=GENERATOR)

        def outputs(params: Params, inputs: jax.Array) -> jax.Array:
            if members == 1:
                return self.model.training(params, inputs, keys[0])
            parts = inputs.reshape(members, -1, *inputs.shape[1:])
            results = jax.vmap(self.model.training, in_axes=(None, 0, 0))(params, parts, keys)
            return results.reshape(-1, *results.shape[2:])

        return rows[:, :-KEY_WORDS].reshape(-1), outputs


def on_device(examples: Examples) -> Arrays:
    """Copy the arrays of `examples` to jax's device: inputs [n, ...] float32, answers [n] int32 or [n, outputs] float32."""
    return jax.device_put((examples.inputs, examples.answers))


def machine_memory() -> float:
    """Return the memory of this machine, bytes; infinity if it is not known."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else math.inf


def check_memory(model: Model, data: Dataset, replicas: int) -> None:
    """Raise FredError if the replicas of a model and one gradient do not fit into this machine's memory.

    Args:
        model: the model; its parameters are counted, not created.
        data: the data set, which fixes the shapes of inputs and outputs.
        replicas: number of copies of the parameters that a run holds.
    """
    try:
        shapes = jax.eval_shape(lambda key: model.init(key, data.train.inputs.shape[1:], data.outputs), key_of(0))
    except FredError:
        raise
    except Exception:  # a user's model that cannot be traced; if it is wrong, calling it will show the error
        return
    size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    required = 4 * size * (replicas + 1)  # bytes; parameters are float32
    if required > (available := machine_memory()):
        raise FredError(
            f"the model has {size:,} parameters: {replicas} replica(s) and one gradient take {required / 1e9:,.0f} GB, and "
            f"this machine has {available / 1e9:,.0f} GB; use a smaller model"
        )


@cached.code(1)  # the runs of a scenario are checked with the same seed, one after the other
def initial_params(model: Model, data: Dataset, seed: int) -> Params:
    """Return the initial parameters of all runs with this seed.

    Args:
        model: the model, which draws them.
        data: the data set, which fixes the shapes of inputs and outputs.
        seed: seed of the run.

    Returns:
        A pytree of float32 arrays; arrays of other types are converted.
    """
    params = model.init(key_of(seed), data.train.inputs.shape[1:], data.outputs)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
