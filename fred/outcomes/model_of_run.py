"""The trained model of a run: its parameters as the model's pytree, its module, and its outputs."""

from typing import Any

from numpy.typing import NDArray

from fred.base.errors import FredError
from fred.components.one_of import UnimportedError
from fred.outcomes.outcome import Outcome
from fred.specification.task import Task


class ModelOfRun:
    """What outcomes in memory and on disk offer of the trained model."""

    def __repr__(self: Outcome) -> str:
        losses = self.metrics.get("loss")
        loss = "" if losses is None else f", loss {losses.iloc[-1]:.4g}"
        return f"<Outcome of {self.name} with seed {self.seed}: {self.summary['updates']:,} updates{loss}>"

    @property
    def params(self: Outcome) -> Any:
        """Return the final parameters as the pytree that the model's `init` returns. Raises FredError without a task.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     task={"data": "digits", "model": {"name": "mlp", "hidden": [4]}},
        ...     cluster={"workers": 2},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 4},
        ... )
        >>> import jax
        >>> jax.tree.map(lambda array: array.shape, fred.run(scenario)["asgd"].params)["layer0"]
        {'biases': (4,), 'weights': (64, 4)}
        """
        from fred.learning.models.named import to_pytree

        task = _task_of(self)
        return to_pytree(self.final, task.model, task.data, self.seed)

    def module(self: Outcome) -> Any:
        """Return the Flax or Equinox module with the final parameters, ready for evaluation.

        Raises FredError for a model that is not made from such a module: use `params` or `predict`.
        """
        from fred.learning.models.named import for_evaluation

        model = _task_of(self).model
        try:
            with_params = model.with_params
        except UnimportedError:
            raise
        except AttributeError:
            raise FredError(
                f"model `{type(model).__name__}` is not made from a module of Flax or Equinox: use `.predict(inputs)`, or "
                "`.run.task.model.apply(.params, inputs)`"
            ) from None
        return with_params(for_evaluation(self.params, model, _task_of(self).data, self.seed))

    def predict(self: Outcome, inputs: Any) -> NDArray[Any]:
        """Return the trained model's outputs [n, outputs], such as a score for each class, computed as in evaluations.

        Args:
            inputs: inputs of n examples [n, ...], in the form of the training data.

        Raises FredError without a task.

        >>> import fred
        >>> import numpy as np
        >>> scenario = fred.scenario(
        ...     task={"data": "digits", "model": "softmax"},
        ...     cluster={"workers": 2},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"updates": 40},
        ... )
        >>> fred.run(scenario)["asgd"].predict(np.zeros((3, 64))).shape
        (3, 10)
        """
        from fred.learning.models.named import for_evaluation, predict

        task = _task_of(self)
        return predict(for_evaluation(self.params, task.model, task.data, self.seed), task.model, task.data, self.seed, inputs)


def _task_of(outcome: Outcome) -> Task:
    if outcome.run.task is None:
        raise FredError(f"run `{outcome.name}` trains no model: its scenario has no `task`")
    return outcome.run.task
