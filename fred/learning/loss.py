"""What is learned: a model's loss on a data set, as pure functions of parameters and example indices."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

import fred.portable  # noqa: F401  it decides the bits of all that follows
from fred.base import cached
from fred.base.errors import FredError
from fred.learning.data.dataset import Dataset, Examples
from fred.learning.keys import DRAWN_BY, key_of
from fred.learning.loss_functions import LossFunction, usual
from fred.learning.models.model import Model, Params
from fred.schedule.minibatches import KEY_WORDS

CALIBRATED_BY = 1024  # training examples
Arrays = tuple[jax.Array, jax.Array]  # inputs [n, ...], answers [n] or [n, outputs]


@dataclass(frozen=True)
class Loss:
    """The mean of a loss function of a model's outputs; hashable, so compiled code is shared.

    Of a model that knows nothing the cross-entropy is the logarithm of the number of classes:

        >>> import fred
        >>> import jax.numpy as jnp
        >>> from fred.learning.loss import Loss
        >>> from fred.learning.loss_functions import CrossEntropy
        >>> from fred.learning.models.mlp import SoftmaxRegression
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
    def of(cls, model: Model, function: LossFunction | None, data: Dataset, l2: float = 0.0) -> "Loss":
        """What a task says, or leaves to its data.

        Args:
            model: which is fitted.
            function: which is minimised; None: what is usual for such data.
            data: classes, or values to predict.
            l2: half of it times the squared length of the parameters is added to the loss.
        """
        return cls(model, function or usual(data.classifies), l2)

    def width(self, batch_size: int) -> int:
        """Numbers in a minibatch of so many examples: their indices, and the words of its key where the model draws."""
        return batch_size + KEY_WORDS * self.model.draws

    def gradient(
        self, params: Params, examples: Arrays, minibatch: jax.Array, count: jax.Array | None = None, members: int = 1
    ) -> Params:
        """Gradient of the mean loss over a minibatch's examples; with `count`, over the first `count` of them only.

        Args:
            params: of the model, where the gradient is taken.
            examples: inputs [n, ...] and answers.
            minibatch: indices of examples, from 0 to n - 1, of several `members` one after the other; where the model
                draws, behind each member's indices the two words of its key.
            count: of the examples that are real [].
            members: how many minibatches these are.

        Returns:
            A pytree like `params`.
        """
        indices, outputs = self._trained(minibatch, members)
        inputs, answers = examples[0][indices], examples[1][indices]

        def mean(params: Params) -> jax.Array:
            losses = self.function.losses(outputs(params, inputs), answers)
            if count is None:
                return self._with_penalty(losses.mean(), params)
            real = jnp.where(jnp.arange(len(losses)) < count, losses, 0.0)
            return self._with_penalty(real.sum() / count, params)

        return jax.grad(mean)(params)

    @partial(jax.jit, static_argnums=0)
    def evaluate(self, params: Params, examples: Arrays, seen: jax.Array | None = None) -> jax.Array:
        """[loss, error]: error is the fraction misclassified, or the root mean square, if the loss function has no other.

        Args:
            params: of the model.
            examples: inputs [n, ...] and answers, all of which are evaluated on at once.
            seen: inputs of training examples, at which a model that calibrates does so; None for others.
        """
        model = params if seen is None else self.model.calibrated(params, seen)
        outputs = self.model.apply(model, examples[0])
        loss = self._with_penalty(self.function.losses(outputs, examples[1]).mean(), params)
        return jnp.stack((loss, self.function.error(outputs, examples[1])))

    @partial(jax.jit, static_argnums=0)
    def gradient_norm(self, params: Params, examples: Arrays, seen: jax.Array | None = None) -> jax.Array:
        """Euclidean length [] of the gradient of what `evaluate` says is the loss, in all parameters together.

        Args:
            params: of the model.
            examples: inputs [n, ...] and answers, of all of which it is the gradient.
            seen: inputs of training examples, as for `evaluate`; how calibration follows the parameters is in the gradient.
        """
        gradient = jax.grad(lambda params: self.evaluate(params, examples, seen)[0])(params)
        return jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(gradient)))

    def _with_penalty(self, loss: jax.Array, params: Params) -> jax.Array:
        """The loss [] with what long parameters add to it."""
        if not self.l2:
            return loss
        return loss + self.l2 / 2 * sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(params))

    def _trained(self, minibatch: jax.Array, members: int) -> tuple[jax.Array, Callable[[Params, jax.Array], jax.Array]]:
        """The examples' indices, and what makes outputs [examples, outputs] of parameters and their inputs in training."""
        if not self.model.draws:
            return minibatch, self.model.apply
        each = minibatch.reshape(members, -1)
        keys = jax.random.wrap_key_data(jax.lax.bitcast_convert_type(each[:, -KEY_WORDS:], jnp.uint32), impl=DRAWN_BY)

        def outputs(params: Params, inputs: jax.Array) -> jax.Array:
            if members == 1:
                return self.model.training(params, inputs, keys[0])
            parts = inputs.reshape(members, -1, *inputs.shape[1:])
            made = jax.vmap(self.model.training, in_axes=(None, 0, 0))(params, parts, keys)
            return made.reshape(-1, *made.shape[2:])

        return each[:, :-KEY_WORDS].reshape(-1), outputs


def on_device(examples: Examples) -> Arrays:
    """The arrays of `examples` where jax computes: inputs [n, ...] float32, answers [n] int32 or [n, outputs] float32."""
    return jax.device_put((examples.inputs, examples.answers))


def check_memory(model: Model, data: Dataset, replicas: int) -> None:
    """Refuse, with FredError, a model of which so many replicas and one gradient are more than this machine can hold.

    Args:
        model: whose parameters are counted, not made.
        data: whose inputs and outputs it is made for.
        replicas: copies of the parameters that a run holds.
    """
    try:
        shapes = jax.eval_shape(lambda key: model.init(key, data.train.inputs.shape[1:], data.outputs), key_of(0))
    except FredError:
        raise
    except Exception:  # a user's own that cannot be traced: what is wrong with it, if anything, will be seen when it is called
        return
    number = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    needed = 4 * number * (replicas + 1)
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else math.inf
    if needed > there:
        raise FredError(
            f"the model has {number:,} parameters: {replicas} of it and one gradient take {needed / 1e9:,.0f} GB, and this "
            f"machine has {there / 1e9:,.0f} GB; take a smaller one"
        )


@cached.code(1)  # for the runs of a scenario, which are all tried with one seed
def initial_params(model: Model, data: Dataset, seed: int) -> Params:
    """The parameters every run with this seed starts from.

    Args:
        model: which draws them.
        data: whose inputs and outputs it is made for.
        seed: of the run.

    Returns:
        A pytree of float32 arrays, whatever types the model made.
    """
    params = model.init(key_of(seed), data.train.inputs.shape[1:], data.outputs)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
