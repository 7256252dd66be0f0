"""What replicas of the parameters there are, into how many blocks each is cut, and how many bytes are sent of them."""

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal, NamedTuple

from fred.components.limits import MOST_BYTES
from fred.errors import FredError

Cut = Literal["parts", "layers"]


class Layout(NamedTuple):
    """Replicas are numbered: replica w is worker w's own, where workers have replicas; those on servers come after them.

    Args:
        replicas: how many there are, 1 or more.
        answer: numbers of the replicas whose mean is what the run has come to: one at least.
        on_servers: numbers of the replicas that lie on servers; the others lie on workers.
        blocks: into how many each replica is cut; 1: not at all.
        cut: `parts`: blocks are equal parts of every array; `layers`: whole layers.

    Example:
        >>> import fred
        >>> fred.Layout.central(blocks=2)
        Layout(replicas=1, answer=range(0, 1), on_servers=range(0, 1), blocks=2, cut='parts')
        >>> fred.Layout.peers(3).answer, fred.Layout.centred(3).answer
        (range(0, 3), range(3, 4))
    """

    replicas: int
    answer: range  # the replicas whose mean is what the run has come to
    on_servers: range  # the others lie on workers
    blocks: int = 1  # into which each is cut; 1: not at all
    cut: Cut = "parts"  # equal parts of every array, or whole layers

    @classmethod
    def central(cls, blocks: int = 1, cut: Cut = "parts") -> "Layout":
        """One replica, on a server, or `cut` into so many `blocks` of which several servers hold one each."""
        return cls(1, range(1), range(1), blocks, cut)

    @classmethod
    def shared(cls) -> "Layout":
        """One replica for all workers: each has the same, and makes the same changes."""
        return cls(1, range(1), range(0))

    @classmethod
    def peers(cls, workers: int) -> "Layout":
        """Each of so many `workers` has a replica of its own, and there is no server."""
        return cls(workers, range(workers), range(0))

    @classmethod
    def centred(cls, workers: int) -> "Layout":
        """Each of so many `workers` has a replica of its own, and a server has one more, which is the answer."""
        return cls(workers + 1, range(workers, workers + 1), range(workers, workers + 1))

    def local(self, workers: int) -> bool:
        """Whether each of so many `workers` steps a model of its own, so that its gradients are not sent.

        >>> Layout.peers(3).local(3), Layout.centred(3).local(3), Layout.shared().local(3), Layout.central().local(3)
        (True, True, False, False)
        """
        own = self.replicas - len(self.on_servers)
        return own >= workers and self.replicas > 1

    def models_only(self, workers: int) -> bool:
        """Whether so many `workers`, each with a model of its own, have nothing to bring their messages to, and send models.

        >>> Layout.peers(3).models_only(3), Layout.centred(3).models_only(3)
        (True, False)
        """
        return self.local(workers) and self.replicas == workers


class Size(NamedTuple):
    """Bytes of something that is sent: of all of it, and of each block by itself."""

    whole: int
    blocks: tuple[int, ...]

    @classmethod
    def cut(cls, whole: int, shares: Sequence[float]) -> "Size":
        """Of blocks that are these parts of the whole, rounded up.

        Shares add up to 1; what is left of a byte counts as one:
            >>> Size.cut(1000, (0.5, 0.25, 0.25)), Size.cut(10, (1 / 3,) * 3).blocks
            (Size(whole=1000, blocks=(500, 250, 250)), (4, 4, 4))
        """
        return cls(whole, tuple(math.ceil(whole * share - 1e-6) for share in shares))  # 3,000 x 1/3 may come out above 1,000


class Sizes(NamedTuple):
    """Bytes of what is usually sent."""

    shares: tuple[float, ...]  # of the parameters, in each block
    model: Size  # as it is published
    message: Size  # as a worker sends it: made of a gradient, or of a difference
    summable: bool = True  # messages can be added up on their way
    averages: tuple[int, ...] = ()  # of each average in turn; empty: of a model

    def average(self, number: int) -> int | None:
        """Bytes of an average of models by its `number`, from 0; None: the usual ones.

        >>> Sizes.alike(100, (1.0,))._replace(averages=(100, 100, 300)).average(5)
        300
        """
        return self.averages[number % len(self.averages)] if self.averages else None

    @classmethod
    def alike(cls, size: int, shares: Sequence[float]) -> "Sizes":
        """Everything is as large."""
        usual = Size.cut(size, shares)
        return cls(tuple(shares), usual, usual)


def size_in_bytes(said: Any, who: str) -> int:
    """What somebody says that something's size is. Raises FredError if it cannot be one.

    Example:
        >>> size_in_bytes(1.5, "`send`")
        Traceback (most recent call last):
        fred.errors.FredError: `send` says that something has 1.5 bytes, of type float; expected a whole number, 0 to 2**48
    """
    if not is_whole(said) or not 0 <= said <= MOST_BYTES:
        kind = "" if type(said) is int else f", of type {type(said).__name__}"
        raise FredError(f"{who} says that something has {said!r} bytes{kind}; expected a whole number, 0 to 2**48")
    return int(said)


def is_whole(number: Any) -> bool:
    """Whether it is a whole `number`; true and false are none.

    >>> is_whole(2), is_whole(2.0), is_whole(True)
    (True, False, False)
    """
    return isinstance(number, Integral) and not isinstance(number, bool)
