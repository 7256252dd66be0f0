"""What is learned: a model's loss on a data set, as pure functions of parameters and example indices."""

import math
import os
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import fred.portable  # noqa: F401  it decides the bits of all that follows
from fred.errors import FredError
from fred.learning.data.dataset import Dataset, Examples
from fred.learning.models.model import Model, Params
from fred.process import remembered

Arrays = tuple[jax.Array, jax.Array]  # inputs [n, ...], answers [n] or [n, outputs]


@dataclass(frozen=True)
class Loss:
    """Mean cross-entropy for class numbers, mean squared error for values; hashable, so compiled code is shared.

    Of a model that knows nothing the cross-entropy is the logarithm of the number of classes:

        >>> import fred
        >>> import jax.numpy as jnp
        >>> from fred.learning.loss import Loss
        >>> from fred.learning.models.softmax import SoftmaxRegression
        >>> loss = Loss(SoftmaxRegression(), classifies=True)
        >>> params = {"weights": jnp.zeros((2, 4)), "biases": jnp.zeros(4)}
        >>> examples = jnp.eye(2), jnp.array([1, 3])
        >>> [round(float(value), 4) for value in loss.evaluate(params, examples)]  # log 4, and all are wrong: it says 0
        [1.3863, 1.0]
        >>> loss.gradient(params, examples, jnp.array([0]))["biases"].tolist()  # what it says less what is right
        [0.25, -0.75, 0.25, 0.25]
    """

    model: Model
    classifies: bool

    def gradient(self, params: Params, examples: Arrays, indices: jax.Array, count: jax.Array | None = None) -> Params:
        """Gradient of the mean loss over examples[indices]; with `count`, over the first `count` indices only.

        Args:
            params: of the model, where the gradient is taken.
            examples: inputs [n, ...] and answers.
            indices: of a minibatch [members], from 0 to n - 1.
            count: of these that are real [].

        Returns:
            A pytree like `params`.
        """
        inputs, answers = examples[0][indices], examples[1][indices]

        def mean(params: Params) -> jax.Array:
            losses = self._losses(self.model.apply(params, inputs), answers)
            if count is None:
                return losses.mean()
            return jnp.where(jnp.arange(len(losses)) < count, losses, 0.0).sum() / count

        return jax.grad(mean)(params)

    @partial(jax.jit, static_argnums=0)
    def evaluate(self, params: Params, examples: Arrays) -> jax.Array:
        """[loss, error]: error is the fraction misclassified, or the root mean square.

        Args:
            params: of the model.
            examples: inputs [n, ...] and answers, all of which are evaluated on at once.
        """
        outputs = self.model.apply(params, examples[0])
        loss = self._losses(outputs, examples[1]).mean()
        error = (outputs.argmax(-1) != examples[1]).mean() if self.classifies else jnp.sqrt(loss)
        return jnp.stack((loss, error))

    def _losses(self, outputs: jax.Array, answers: jax.Array) -> jax.Array:
        if not self.classifies:
            return jnp.square(outputs - answers).mean(-1)
        chosen = jax.nn.one_hot(answers, outputs.shape[-1])
        return jax.nn.logsumexp(outputs, axis=-1) - (chosen * outputs).sum(-1)


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
        shapes = jax.eval_shape(lambda key: model.init(key, data.train.inputs.shape[1:], data.outputs), jax.random.key(0))
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


@remembered.code(1)  # for the runs of a scenario, which are all tried with one seed
def initial_params(model: Model, data: Dataset, seed: int) -> Params:
    """The parameters every run with this seed starts from.

    Args:
        model: which draws them.
        data: whose inputs and outputs it is made for.
        seed: of the run.

    Returns:
        A pytree of float32 arrays, whatever types the model made.
    """
    params = model.init(jax.random.key(np.uint32(seed)), data.train.inputs.shape[1:], data.outputs)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
