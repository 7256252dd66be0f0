"""Concrete tasks: data, initial parameters, and the arithmetic of one run with one seed."""

import math

import jax
import numpy as np
from numpy.typing import NDArray

from fred.base import cached, numerics
from fred.learning.data.dataset import Dataset, loaded
from fred.learning.loss import CALIBRATED_BY, Arrays, CrossEntropy, Loss, initial_params, on_device
from fred.learning.models.named import unify_nans
from fred.learning.server import State
from fred.replay.arithmetic import Arithmetic
from fred.schedule.minibatches import Minibatches, Parts, divide, divide_by_owner, divide_by_quantity, divide_by_shares
from fred.specification.shape import Run
from fred.specification.task import Task

_JUDGEMENTS = 1 << 15  # examples at each point, summed over replicas


class Problem:
    """A task for one run with one seed, whose parts fit each other (`checks.py`). Raises FredError for missing data.

    Args:
        task: data, model, and how minibatches are drawn.
        run: its algorithm, protocol and cluster determine the replicas and their updates.
        seed: seed of initial parameters, minibatches and generated data.
    """

    def __init__(self, task: Task, run: Run, seed: int):
        self.data = loaded(task.data, seed)
        self.loss = Loss.for_data(task.model, task.loss, self.data, task.l2)
        self.layout = run.protocol.layout(run.cluster)
        self.models = [initial_params(task.model, self.data, number) for number in _initial_seeds(task, seed, run)]
        self.params = self.models[0]
        shapes = self.params, self.layout, run.cluster.size, task.batch_size, task.context or 1
        self.arithmetic = Arithmetic.build(run.algorithm, self.loss, *shapes)
        self.parts = parts = _parts(task, self.data, seed, run.cluster.size)
        self.sizes = self.arithmetic.sizes  # bytes of models and messages
        if parts is not None and run.protocol.needs_examples:
            self.sizes = self.sizes._replace(examples=tuple(np.diff(parts.begins).tolist()))
        self.examples, self.evaluation = _arrays(self.data)
        self.seen = self.examples[0][:CALIBRATED_BY] if task.model.calibrates else None
        self._norm = run.evaluate.measures_gradient_norm
        of_tokens = self.data.tokens and isinstance(self.loss.function, CrossEntropy)
        self._of_tokens = Loss(task.model, CrossEntropy()) if of_tokens else None  # its exponential is the perplexity
        self._judged = _judged(len(self.data.evaluation), len(self.layout.answer))
        workers, draws = run.cluster.size, task.model.draws
        self.batches = Minibatches(seed, task.batch_size, len(self.data.train), task.sampling, workers, parts, draws)

    def measure(self, states: list[State]) -> dict[str, float]:
        """Return loss and error on the evaluation examples; for several replicas also their own means and disagreement.

        If requested, the result includes the norm of the gradient over all these examples. Sequences with a cross-entropy
        loss have a perplexity, too: that of the tokens alone, without label smoothing and without `l2`.

        Args:
            states: states of the replicas that are the answer, in order.
        """
        arithmetic = self.arithmetic
        operands = arithmetic.answer(states), self.evaluation, self.seen
        values = dict(zip(("loss", "error"), unify_nans(self.loss.evaluate(*operands)).tolist(), strict=True))
        if self._of_tokens:
            nats = values["loss"] if self._of_tokens == self.loss else float(unify_nans(self._of_tokens.evaluate(*operands))[0])
            values["perplexity"] = math.exp(nats) if nats < 700 else math.inf
        if self._norm:
            values["gradient_norm"] = float(unify_nans(self.loss.gradient_norm(*operands)))
        if len(self.layout.answer) == 1:
            return values
        replicas = jax.vmap(lambda *blocks: arithmetic.blocks.join(blocks))(*(state.params for state in states))
        loss, error = unify_nans(arithmetic.mean_replica_loss(states, self.evaluation, self._judged, self.seen)).tolist()
        disagreement = float(unify_nans(arithmetic.disagreement(replicas)))
        return {**values, "disagreement": disagreement, "replicas_loss": loss, "replicas_error": error}


def _judged(examples: int, replicas: int) -> NDArray[np.int32]:
    """Return the evaluation examples of each replica: all if that is cheap, else a part each, which together cover all.

    So a point costs about the larger of one evaluation and `_JUDGEMENTS`, whatever the number of replicas.
    """
    number = min(examples, max(-(-examples // replicas), _JUDGEMENTS // replicas))
    begins = np.arange(replicas) * examples // replicas
    return ((begins[:, None] + np.arange(number)) % examples).astype(np.int32)


def _parts(task: Task, data: Dataset, seed: int, workers: int) -> Parts | None:
    """Return each worker's part of the examples, if they are divided."""
    if task.division == "shared":
        return None
    seed = seed if task.division_seed is None else task.division_seed
    if task.division == "dirichlet":
        return divide_by_shares(seed, data.train.answers, workers, task.concentration)
    if task.division == "by-owner":
        assert data.owners is not None
        return divide_by_owner(data.owners)
    if task.division == "by-quantity":
        return divide_by_quantity(seed, len(data.train), workers, task.concentration)
    return divide(seed, len(data.train), workers, data.train.answers if task.division == "by-label" else None)


def _initial_seeds(task: Task, seed: int, run: Run) -> list[int]:
    """Return the seeds of the replicas' initial parameters: the run's seed for all, unless replicas start apart."""
    replicas = run.protocol.layout(run.cluster).replicas if task.replicas_start == "apart" else 1
    return [seed, *(numerics.stream_key(seed, f"replica {number}")[0] for number in range(1, replicas))]


@cached.data(4)
def _arrays(data: Dataset) -> tuple[Arrays, Arrays]:
    return on_device(data.train), on_device(data.evaluation)
