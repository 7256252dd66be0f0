"""The training examples of each gradient: a function of (seed, worker, step), which anyone can recompute."""

import heapq
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from fred.base import numerics
from fred.base.errors import FredError

Sampling = Literal["replacement", "shuffled", "sequential"]
Division = Literal["shared", "divided", "by-label", "by-quantity", "by-owner", "dirichlet"]
KEY_WORDS = 2  # 32-bit words in a JAX key

_LEAST_VARIATE = 1e-300  # a small concentration may give zeros only, and their sum must stay above 0


class Parts(NamedTuple):
    """The part of the training examples that each worker has: consecutive examples in some order."""

    order: NDArray[np.int32]  # [examples]
    begins: NDArray[np.int64]  # [workers + 1]: position in `order` where each worker's part begins, and where the last one ends


def divide(seed: int, examples: int, workers: int, labels: ArrayLike | None = None) -> Parts:
    """Divide the examples into disjoint random parts, of equal size up to one example.

    With `labels` [examples], parts follow the order of the labels.

    Example: ten examples with these labels; each of three workers has mostly one label.
        >>> labels = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
        >>> order, begins = divide(seed=0, examples=10, workers=3, labels=labels)
        >>> [labels[part].tolist() for part in np.split(order, begins[1:-1])]
        [[0, 0, 0], [0, 1, 1], [1, 2, 2, 2]]
    """
    order = np.argsort(numerics.words(seed, "division", 0, np.arange(examples)), kind="stable")
    if labels is not None:
        order = order[np.argsort(np.asarray(labels)[order], kind="stable")]
    return Parts(order.astype(np.int32), np.arange(workers + 1) * examples // workers)


def divide_by_shares(seed: int, labels: ArrayLike, workers: int, concentration: float) -> Parts:
    """Divide the examples into disjoint parts; a Dirichlet distribution draws each class's shares among the workers.

    The smaller the concentration, the fewer workers share most of a class [Hsu, Qi, Brown 2019, arXiv:1909.06335]. A worker
    without any example gets one from the worker with the most.

    Args:
        seed: the run's seed.
        labels: class numbers [examples].
        workers: number of workers, at most the number of examples.
        concentration: alpha, the same for all workers.

    Example: a hundred examples of each of two classes, divided among three workers.
        >>> labels = np.arange(200) % 2
        >>> for concentration in (0.1, 100.0):
        ...     order, begins = divide_by_shares(0, labels, 3, concentration)
        ...     print([np.bincount(labels[part], minlength=2).tolist() for part in np.split(order, begins[1:-1])])
        [[1, 0], [0, 99], [99, 1]]
        [[34, 30], [31, 38], [35, 32]]
    """
    labels = np.asarray(labels)
    shuffled, _ = divide(seed, len(labels), 1)
    parts: list[list[int]] = [[] for _ in range(workers)]
    for label in np.unique(labels):
        # Gamma variates divided by their sum have a Dirichlet distribution.
        variates = scipy.special.gammaincinv(concentration, numerics.uniforms(seed, "shares", label, 0, workers))
        variates = np.maximum(variates, _LEAST_VARIATE)
        members, cumulative_shares = shuffled[labels[shuffled] == label], np.cumsum(variates) / variates.sum()
        ends = np.rint(cumulative_shares[:-1] * len(members)).astype(np.int64)
        for part, added_members in zip(parts, np.split(members, ends), strict=True):
            part.extend(added_members.tolist())
    _give_to_empty(parts)
    order = np.array([example for part in parts for example in part], np.int32)
    return Parts(order, np.cumsum([0, *map(len, parts)]))


def _give_to_empty(parts: list[list[int]]) -> None:
    """Move an example from the largest part at that moment, the first of several, to each empty part."""
    largest_first = [(-len(part), index) for index, part in enumerate(parts)]
    heapq.heapify(largest_first)
    for part in parts:
        if not part:
            negative_size, index = largest_first[0]
            part.append(parts[index].pop())
            heapq.heapreplace(largest_first, (negative_size + 1, index))


def divide_by_quantity(seed: int, examples: int, workers: int, concentration: float) -> Parts:
    """Divide the examples into disjoint random parts, whose sizes a Dirichlet distribution draws.

    Every worker gets at least one example. The smaller the concentration, the more the sizes differ [Li et al. 2022,
    arXiv:2102.02079: quantity skew].

    Args:
        seed: the run's seed.
        examples: number of examples, at least that of workers.
        workers: number of workers.
        concentration: alpha, the same for all workers.

    Example: a hundred examples, divided among four workers.
        >>> for concentration in (0.5, 100.0):
        ...     print(np.diff(divide_by_quantity(0, 100, 4, concentration).begins).tolist())
        [2, 4, 25, 69]
        [22, 23, 26, 29]
    """
    # Dirichlet, as in `divide_by_shares`; here the least variate is added.
    variates = _LEAST_VARIATE + scipy.special.gammaincinv(concentration, numerics.uniforms(seed, "quantities", 0, 0, workers))
    extra_examples = np.rint(np.cumsum(variates) / variates.sum() * (examples - workers)).astype(np.int64)  # cumulative
    order, _ = divide(seed, examples, 1)
    return Parts(order, np.concatenate(([0], extra_examples + np.arange(1, workers + 1))))  # one more for each worker


def divide_by_owner(owners: ArrayLike) -> Parts:
    """Divide the examples into the parts of their owners, in the order of their numbers.

    Args:
        owners: number of the owner of each example [examples].

    Example: three owners, of whom the second has two examples.
        >>> order, begins = divide_by_owner([7, 12, 12, 3])
        >>> order.tolist(), begins.tolist()
        ([3, 0, 1, 2], [0, 1, 2, 4])
    """
    counts = np.unique(owners, return_counts=True)[1]
    return Parts(np.argsort(owners, kind="stable").astype(np.int32), np.concatenate(([0], np.cumsum(counts))))


def batch_indices(
    seed: int,
    worker: ArrayLike,
    step: ArrayLike,
    *,
    batch_size: int | Sequence[int],
    examples: int,
    sampling: Sampling = "replacement",
    workers: int = 1,
    ordinal: ArrayLike = 0,
    parts: Parts | None = None,
) -> NDArray[np.int32]:
    """Return the indices of the training examples in each minibatch: shape of worker and step + [batch_size].

    `replacement`: uniform and independent. `shuffled`: every step takes the next workers x batch_size examples from an endless
    sequence of random orders; each worker takes its own part. `sequential`: minibatch number `ordinal` (the gradient's rank in
    the order of use) modulo the number of whole minibatches, in file order, shared by all workers.

    Worker w's minibatch is the part [w x batch_size, (w + 1) x batch_size) of the step's examples. So n workers with batches
    of m together use the same examples as one worker with batches of n x m. With a list of sizes, each part begins where the
    worker before it ends. All minibatches are then as long as the largest; smaller ones end with -1.

    With `parts` (`divide`), `replacement` draws from the worker's own part, and `shuffled` goes through it in one random order
    after another.

    Args:
        seed, workers, examples: the run's seed; the numbers of workers and of training examples.
        worker, step, ordinal: numbers from 0; their shapes broadcast.
        batch_size: examples in each minibatch; or a list of them, one per worker.
        sampling: how they are chosen. Raises FredError for `sequential` with a list of different sizes.

    Example: the first minibatches of two workers, and those of one worker that computes both.
        >>> import fred
        >>> fred.batch_indices(0, [0, 1], 0, batch_size=3, examples=100).tolist()
        [[35, 89, 15], [99, 21, 13]]
        >>> fred.batch_indices(0, 0, 0, batch_size=6, examples=100).tolist()
        [35, 89, 15, 99, 21, 13]
        >>> fred.batch_indices(0, [0, 1], 0, batch_size=[4, 2], examples=100).tolist()
        [[35, 89, 15, 99], [21, 13, -1, -1]]
    """
    worker, step, ordinal = np.broadcast_arrays(*(np.asarray(x, np.int64) for x in (worker, step, ordinal)))
    sizes = np.asarray(batch_size, np.int64)
    width, offsets = int(sizes.max()), np.arange(sizes.max())
    # The worker's examples in a step: their number, the position of the first one, and the number of all workers' examples.
    if sizes.ndim:
        size, begin, total = sizes[worker], (np.cumsum(sizes) - sizes)[worker], sizes.sum()
    else:
        size, begin, total = sizes, worker * width, np.int64(workers * width)
    if sampling == "sequential":
        if sizes.min() < width:
            raise FredError("`sampling: sequential` needs one size for all workers: give `batch_size` one number")
        indices = (ordinal % max(1, examples // width) * width)[..., None] + offsets
        return (indices % examples).astype(np.int32)
    if parts is not None:
        indices = _draw_from_parts(seed, worker, step, size, begin, width, sampling, parts)
    elif sampling == "shuffled":
        indices = _shuffled(seed, (step * total + begin)[..., None] + offsets, examples)
    else:
        word = numerics.word_runs(seed, "minibatch", step, begin, width)  # 32 bits, scaled to 0 .. examples - 1
        indices = (word * np.uint64(examples) >> np.uint64(32)).astype(np.int32)
    return np.where(offsets < size[..., None], indices, np.int32(-1)) if sizes.ndim else indices


def key_words(seed: int, worker: ArrayLike, step: ArrayLike) -> NDArray[np.uint32]:
    """Return the JAX key that a model may use to draw random numbers for a gradient: shape of worker and step + [2].

    Like a minibatch, it depends only on the seed, the worker and its step. So `jax.random.wrap_key_data` makes the same
    masks from it whatever the order of events, and however often the gradient is used.

    Args:
        seed: the run's seed.
        worker: its number, from 0.
        step: the worker's own count of gradients, from 0.

    Example: the first dropout mask of the first worker.
        >>> import fred
        >>> import jax
        >>> key = jax.random.wrap_key_data(fred.key_words(0, worker=0, step=0))
        >>> jax.random.bernoulli(key, 0.5, (6,)).tolist()
        [True, True, True, True, True, False]
    """
    step = np.asarray(step, np.int64)[..., None] * KEY_WORDS + np.arange(KEY_WORDS)
    return numerics.words(seed, "training", np.asarray(worker)[..., None], step).astype(np.uint32)


class Minibatches:
    """The minibatches of one run: indices of examples; with `keys`, each minibatch ends with the two words of its key."""

    _BLOCK = 64  # steps of a worker drawn ahead when minibatches are requested one at a time

    def __init__(
        self,
        seed: int,
        batch_size: int | Sequence[int],
        examples: int,
        sampling: Sampling,
        workers: int,
        parts: Parts | None = None,
        keys: bool = False,
    ):
        self.width = int(np.max(batch_size)) + KEY_WORDS * keys  # numbers in a minibatch
        self.seed = seed
        self._key_words = partial(key_words, seed) if keys else None
        self._sampling = sampling
        draw = partial(batch_indices, batch_size=batch_size, sampling=sampling, workers=workers, parts=parts)
        self._draw = partial(draw, seed, examples=examples)
        self._ahead: dict[int, tuple[int, NDArray[np.int32]]] = {}  # worker -> first step drawn ahead, indices

    def indices(self, worker: ArrayLike, step: ArrayLike, ordinal: ArrayLike) -> NDArray[np.int32]:
        """Return the example indices of many minibatches at once: shape of the arguments + [width]."""
        indices = self._draw(worker, step, ordinal=ordinal)
        if self._key_words is None:
            return indices
        return np.concatenate((indices, self._key_words(worker, step).view(np.int32)), axis=-1)

    def minibatch(self, worker: int, step: int, ordinal: int) -> NDArray[np.int32]:
        """Return the example indices of one minibatch [width]; fast if a worker's steps are requested in order."""
        if self._sampling == "sequential":
            return self.indices(worker, step, ordinal)
        first_step, block = self._ahead.get(worker, (0, None))
        if block is None or not first_step <= step < first_step + self._BLOCK:
            first_step, block = step, self.indices(worker, step + np.arange(self._BLOCK), 0)
            self._ahead[worker] = first_step, block
        return block[step - first_step]


def _shuffled(seed: int, position: NDArray[np.int64], examples: int) -> NDArray[np.int32]:
    """Return the example at each position in the endless sequence of random orders."""
    epoch, rank = position // examples, position % examples
    indices = np.empty(position.shape, np.int32)
    for epoch_number in np.unique(epoch):
        order = np.argsort(numerics.words(seed, "shuffle", epoch_number, np.arange(examples)), kind="stable")
        indices[epoch == epoch_number] = order[rank[epoch == epoch_number]]
    return indices


def _draw_from_parts(
    seed: int,
    worker: NDArray[np.int64],
    step: NDArray[np.int64],
    size: NDArray[np.int64],
    begin: NDArray[np.int64],
    width: int,
    sampling: Sampling,
    parts: Parts,
) -> NDArray[np.int32]:
    """Return minibatches of `width` examples drawn from each worker's own part: [..., width].

    Args:
        seed: the run's seed.
        worker: numbers of the workers [...].
        step: each worker's own count of gradients [...].
        size: number of examples that the worker takes in a step [...], or one number for all.
        begin: position of the worker's examples among those of all workers in a step [...].
        width: examples in each minibatch; those beyond `size` are for padding.
        sampling: how they are chosen.
        parts: the workers' parts.
    """
    examples = np.diff(parts.begins)[worker][..., None]
    if sampling == "shuffled":
        position = (step * size)[..., None] + np.arange(width)
        epoch, rank = position // examples, position % examples
        return _in_own_order(seed, np.broadcast_to(worker[..., None], position.shape), epoch, rank, parts)
    word = numerics.word_runs(seed, "minibatch", step, begin, width)
    rank = (word * examples.astype(np.uint64) >> np.uint64(32)).astype(np.int64)
    return parts.order[parts.begins[worker][..., None] + rank]


def _in_own_order(
    seed: int, worker: NDArray[np.int64], epoch: NDArray[np.int64], rank: NDArray[np.int64], parts: Parts
) -> NDArray[np.int32]:
    """Return the rank-th example of a worker's part, in the random order of the part's epoch: [...], as the three arguments."""
    indices = np.empty(rank.size, np.int32)
    workers = len(parts.begins) - 1
    key = (epoch * workers + worker).ravel()  # positions of the same worker's same epoch have the same key
    by_key = np.argsort(key, kind="stable")
    group_begins = np.flatnonzero(np.diff(key[by_key], prepend=-1))
    for group in np.split(by_key, group_begins)[1:]:  # the first piece, before position 0, is empty
        epoch_number, owner = divmod(int(key[group[0]]), workers)
        part = parts.order[parts.begins[owner] : parts.begins[owner + 1]]
        order = np.argsort(numerics.words(seed, "shuffle", epoch_number, part), kind="stable")
        indices[group] = part[order[rank.ravel()[group]]]
    return indices.reshape(rank.shape)
