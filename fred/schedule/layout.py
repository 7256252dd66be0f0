"""Layouts: replicas of the parameters, their division into blocks, and the bytes sent for each."""

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal, NamedTuple

from fred.base.errors import FredError
from fred.components.component import MOST_BYTES

Cut = Literal["parts", "layers"]


class Layout(NamedTuple):
    """The numbered replicas of a run: if workers have replicas, worker w's own is replica w; those on servers come after them.

    Args:
        replicas: number of replicas, 1 or more.
        answer: numbers of the replicas whose mean is the run's result: at least one.
        on_servers: numbers of the replicas on servers; the others are on workers.
        blocks: number of blocks in each replica; 1: not split.
        cut: `parts`: each block is an equal part of every array; `layers`: blocks are whole layers.

    Example:
        >>> import fred
        >>> fred.Layout.central(blocks=2)
        Layout(replicas=1, answer=range(0, 1), on_servers=range(0, 1), blocks=2, cut='parts')
        >>> fred.Layout.peers(3).answer, fred.Layout.centred(3).answer
        (range(0, 3), range(3, 4))
    """

    replicas: int
    answer: range  # the replicas whose mean is the run's result
    on_servers: range  # the others are on workers
    blocks: int = 1  # in each replica; 1: not split
    cut: Cut = "parts"  # equal parts of every array, or whole layers

    @classmethod
    def central(cls, blocks: int = 1, cut: Cut = "parts") -> "Layout":
        """Return one replica on a server, or `cut` into `blocks` blocks, one on each of several servers."""
        return cls(1, range(1), range(1), blocks, cut)

    @classmethod
    def shared(cls) -> "Layout":
        """Return one replica for all workers, which all hold the same and apply the same changes."""
        return cls(1, range(1), range(0))

    @classmethod
    def peers(cls, workers: int) -> "Layout":
        """Return one replica for each of the `workers`, and no server."""
        return cls(workers, range(workers), range(0))

    @classmethod
    def centred(cls, workers: int) -> "Layout":
        """Return one replica for each of the `workers`, and one on a server, which is the answer."""
        return cls(workers + 1, range(workers, workers + 1), range(workers, workers + 1))

    @classmethod
    def clients(cls) -> "Layout":
        """Return two replicas: in the first, workers take their local steps one after the other; the second is on a server."""
        return cls(2, range(1, 2), range(1, 2))

    def local(self, workers: int) -> bool:
        """Return True if each of the `workers` updates its own model, so that its gradients are not sent.

        >>> Layout.peers(3).local(3), Layout.centred(3).local(3), Layout.shared().local(3), Layout.central().local(3)
        (True, True, False, False)
        >>> Layout.clients().local(3)
        True
        """
        on_workers = self.replicas - len(self.on_servers)  # one for each worker, or one that they use in turn (`clients`)
        return self.replicas > 1 and (on_workers >= workers or 0 < on_workers < self.replicas)

    def models_only(self, workers: int) -> bool:
        """Return True if each of the `workers` has its own model and there is no other replica: only models are sent.

        >>> Layout.peers(3).models_only(3), Layout.centred(3).models_only(3)
        (True, False)
        """
        return self.local(workers) and self.replicas == workers and not self.on_servers


class Size(NamedTuple):
    """Bytes of a message: in total, and for each block."""

    total: int
    blocks: tuple[int, ...]

    @classmethod
    def from_shares(cls, total: int, shares: Sequence[float]) -> "Size":
        """Return the sizes of a message of `total` bytes and of its blocks, which have these `shares` of it, rounded up.

        The shares sum to 1; a part of a byte counts as one:
            >>> Size.from_shares(1000, (0.5, 0.25, 0.25)), Size.from_shares(10, (1 / 3,) * 3).blocks
            (Size(total=1000, blocks=(500, 250, 250)), (4, 4, 4))
            >>> Size.from_shares(10, (0.7, 0.1, 0.2)).blocks, Size.from_shares(100, (0.07, 0.93)).blocks
            ((7, 1, 2), (7, 93))
        """
        # A product with a float share may exceed a whole number by its rounding error (100 x 0.07 > 7), and the ceiling would
        # then charge one byte too many. A real share of less than a millionth of a byte does not occur.
        return cls(total, tuple(math.ceil(total * share - 1e-6) for share in shares))


class Sizes(NamedTuple):
    """Bytes of the usual messages."""

    shares: tuple[float, ...]  # each block's share of the parameters
    model: Size  # a model as workers read it
    message: Size  # a worker's message: made of a gradient or a pseudo-gradient
    summable: bool = True  # messages can be summed on their way
    averages: tuple[int, ...] = ()  # of each average in turn; empty: those of a model
    examples: tuple[int, ...] = ()  # number of each worker's own examples, if the protocol asks; empty: all have as many
    params: int = 0  # bytes of the parameters as arrays; 0: unknown, without a task

    def average(self, number: int) -> int | None:
        """Return the bytes of the average of models with this `number`, from 0; None for the usual size.

        >>> Sizes.uniform(100, (1.0,))._replace(averages=(100, 100, 300)).average(5)
        300
        """
        return self.averages[number % len(self.averages)] if self.averages else None

    def scaled(self, params: int) -> "Sizes":
        """Return the sizes for parameters of `params` bytes: what a model and a message hold per parameter stays the same.

        A codec that halves messages halves them at any size. Without a task, every message is as large as the parameters:
            >>> half = Sizes((1.0,), Size(400, (400,)), Size(200, (200,)), params=400)
            >>> half.scaled(1_000_000).message.total, Sizes.uniform(0, (1.0,)).scaled(1_000_000).message.total
            (500000, 1000000)
        """
        if not self.params:
            return Sizes.uniform(params, self.shares)._replace(examples=self.examples)

        def scaled(size: int) -> int:
            return -(-size * params // self.params)  # rounded up

        def resized(size: Size) -> Size:
            if size.total == self.params:  # blocks of a dense message are rounded as those of the parameters
                return Size.from_shares(params, self.shares)
            return Size(scaled(size.total), tuple(map(scaled, size.blocks)))

        averages = tuple(map(scaled, self.averages))
        return self._replace(model=resized(self.model), message=resized(self.message), averages=averages, params=params)

    @classmethod
    def uniform(cls, size: int, shares: Sequence[float]) -> "Sizes":
        """Return sizes in which models and messages have the same `size`, in bytes; `shares` are those of the blocks."""
        usual = Size.from_shares(size, shares)
        return cls(tuple(shares), usual, usual)


def size_in_bytes(value: Any, source: str) -> int:
    """Return `value`, in bytes, which `source` gives as a size. Raises FredError if it is not a valid size.

    Example:
        >>> size_in_bytes(1.5, "`send`")
        Traceback (most recent call last):
        fred.FredError: `send` says that something has 1.5 bytes, of type float; expected a whole number, 0 to 2**48
    """
    if not is_whole_number(value) or not 0 <= value <= MOST_BYTES:
        kind = "" if type(value) is int else f", of type {type(value).__name__}"
        raise FredError(f"{source} says that something has {value!r} bytes{kind}; expected a whole number, 0 to 2**48")
    return int(value)


def is_whole_number(number: Any) -> bool:
    """Return True for a whole `number`; booleans do not count as numbers.

    >>> is_whole_number(2), is_whole_number(2.0), is_whole_number(True)
    (True, False, False)
    """
    return isinstance(number, Integral) and not isinstance(number, bool)
