"""Which training examples each gradient sees: a function of (seed, worker, step), so that anyone can recompute it."""

from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fred import streams

Sampling = Literal["replacement", "shuffled", "sequential"]


def batch_indices(
    seed: int,
    worker: ArrayLike,
    step: ArrayLike,
    *,
    batch_size: int,
    examples: int,
    sampling: Sampling = "replacement",
    workers: int = 1,
    ordinal: ArrayLike = 0,
) -> NDArray[np.int32]:
    """Indices of the training examples of each worker's minibatch `step`: shape of worker and step + [batch_size].

    `replacement`: uniform and independent. `shuffled`: every step takes the next workers x batch_size examples of one
    random order after another, each worker its own part. `sequential`: minibatch number `ordinal` (the gradient's rank in
    the order of use) modulo the number of whole minibatches, in file order, shared by all workers.

    Worker w's minibatch is the part [w x batch_size, (w + 1) x batch_size) of the step's examples; so n workers with
    batches of m see together what one worker with batches of n x m sees.
    """
    worker, step, ordinal = np.broadcast_arrays(*(np.asarray(x, np.int64) for x in (worker, step, ordinal)))
    if sampling == "sequential":
        first = ordinal % max(1, examples // batch_size) * batch_size
        return ((first[..., None] + np.arange(batch_size)) % examples).astype(np.int32)
    if sampling == "shuffled":
        first = (step * workers + worker) * batch_size
        return _shuffled(seed, first[..., None] + np.arange(batch_size), examples)
    word = streams.word_runs(seed, "minibatch", step, worker * batch_size, batch_size)
    return (word * np.uint64(examples) >> np.uint64(32)).astype(np.int32)


class Minibatches:
    """The minibatches of one run."""

    _BLOCK = 64  # steps of a worker drawn ahead when minibatches are wanted one at a time

    def __init__(self, seed: int, batch_size: int, examples: int, sampling: Sampling, workers: int):
        self.batch_size = batch_size
        self._sampling = sampling
        self._draw = partial(batch_indices, seed, batch_size=batch_size, examples=examples, sampling=sampling, workers=workers)
        self._ahead: dict[int, tuple[int, NDArray[np.int32]]] = {}  # worker -> first step drawn ahead, indices

    def indices(self, worker: ArrayLike, step: ArrayLike, ordinal: ArrayLike) -> NDArray[np.int32]:
        """Example indices of many minibatches at once: shape of the arguments + [batch_size]."""
        return self._draw(worker, step, ordinal=ordinal)

    def one(self, worker: int, step: int, ordinal: int) -> NDArray[np.int32]:
        """Example indices of one minibatch [batch_size], quickly if the worker's steps are asked for in order."""
        if self._sampling == "sequential":
            return self.indices(worker, step, ordinal)
        first, block = self._ahead.get(worker, (step + 1, None))
        if block is None or not first <= step < first + self._BLOCK:
            first, block = step, self.indices(worker, step + np.arange(self._BLOCK), 0)
            self._ahead[worker] = first, block
        return block[step - first]


def _shuffled(seed: int, position: NDArray[np.int64], examples: int) -> NDArray[np.int32]:
    """Where each position of the endless sequence of random orders points."""
    epoch, rank = position // examples, position % examples
    indices = np.empty(position.shape, np.int32)
    for number in np.unique(epoch):
        order = np.argsort(streams.words(seed, "shuffle", number, np.arange(examples)), kind="stable")
        indices[epoch == number] = order[rank[epoch == number]]
    return indices
