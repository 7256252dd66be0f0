"""What replicas of the parameters there are, into how many blocks each is cut, and which of them is the answer."""

from typing import Literal, NamedTuple

Cut = Literal["parts", "layers"]


class Layout(NamedTuple):
    """Replicas are numbered: replica w is worker w's own, where workers have replicas; those on servers come after them."""

    replicas: int
    answer: range  # the replicas whose mean is what the run has come to
    on_servers: range  # the others lie on workers
    blocks: int = 1  # into which each is cut; 1: not at all
    cut: Cut = "parts"  # equal parts of every array, or whole layers

    @classmethod
    def central(cls, blocks: int = 1, cut: Cut = "parts") -> "Layout":
        """One replica, on a server, or cut into blocks of which several servers hold one each."""
        return cls(1, range(1), range(1), blocks, cut)

    @classmethod
    def shared(cls) -> "Layout":
        """One replica for all workers: each has the same, and makes the same changes."""
        return cls(1, range(1), range(0))

    @classmethod
    def peers(cls, workers: int) -> "Layout":
        """Each worker has a replica of its own, and there is no server."""
        return cls(workers, range(workers), range(0))

    @classmethod
    def centred(cls, workers: int) -> "Layout":
        """Each worker has a replica of its own, and a server has one more, which is the answer."""
        return cls(workers + 1, range(workers, workers + 1), range(workers, workers + 1))
