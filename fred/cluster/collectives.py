"""Closed-form costs of collective operations [Thakur, Rabenseifner, Gropp 2005, as in MPICH].

A message of m bytes takes alpha + beta m. A worker sends one and receives one at a time, both at once. Reductions take no
time.

    >>> for name, effort in ALLREDUCE.items():  # eight members; with alpha = 1 and beta m = 10 or 0.1
    ...     print(f"{name:18} {effort(8).rounds + 10 * effort(8).volume:6.1f} {effort(8).rounds + 0.1 * effort(8).volume:6.1f}")
    ring                 31.5   14.2
    recursive-doubling   33.0    3.3
    rabenseifner         23.5    6.2
    tree                 66.0    6.6
"""

from collections.abc import Callable
from typing import NamedTuple

from fred.cluster.tcp import Connection

SEGMENT = 2**20  # bytes


class Effort(NamedTuple):
    """The cost of an operation, along its longest path and in total. Volumes are in models (or messages).

    Args:
        rounds, volume: sequential messages of the longest path, and the volume they move.
        messages, sent: messages of all members, and the volume they send.
        segments: sequential messages of the longest path per MiB of the model, where these are more than `rounds`.
        starts: sequential messages that begin with a connection's initial window.
    """

    rounds: float  # sequential messages of the longest path
    volume: float  # moved along that path
    messages: int  # of all members
    sent: float  # by all members
    segments: float = 0.0
    starts: int = 0

    def seconds(self, size: float, connection: Connection) -> float:
        """Return the duration, s.

        Args:
            size: size of the model (or message), bytes.
            connection: between two members.

        >>> ring(4).seconds(1_000_000, Connection(latency=0.01, bandwidth=1e7))
        0.21
        """
        waits = max(self.rounds, self.segments * size / SEGMENT) * connection.latency
        return waits + self.volume * size / connection.rate + self.starts * connection.lost(size)

    def times(self, factor: float) -> "Effort":
        """Return the same operation with messages `factor` times as large.

        Args:
            factor: factor on the size of a message.

        >>> one_way(4).times(3)[:4]
        (2, 6, 3, 9)
        """
        return self._replace(volume=factor * self.volume, sent=factor * self.sent, segments=factor * self.segments)

    def then(self, other: "Effort") -> "Effort":
        """Return this operation followed by another.

        Args:
            other: operation that begins when this one ends.

        Example:
            >>> one_way(4).then(one_way(4)) == tree(4)
            True
        """
        rounds, volume, messages, sent, segments, starts = (own + others for own, others in zip(self, other, strict=True))
        return Effort(rounds, volume, int(messages), sent, segments, int(starts))


NOTHING_DONE = Effort(0, 0.0, 0, 0.0)


def ring(members: int) -> Effort:
    """Reduce-scatter, then allgather, in a ring: each takes n - 1 messages of 1 / n between neighbours.

    Args:
        members: number of members; the same for all operations here.

        >>> ring(4)[:4]
        (6, 1.5, 24, 6.0)
    """
    rounds = 2 * (members - 1)
    return Effort(rounds, rounds / members, rounds * members, float(rounds))


def recursive_doubling(members: int) -> Effort:
    """Exchange whole models in a butterfly, at distances 1, 2, 4, ...; members beyond a power of two fold in and out.

    >>> recursive_doubling(4)[:4], recursive_doubling(5)[:4]
    ((2, 2.0, 8, 8.0), (4, 4.0, 10, 10.0))
    """
    phases, excess = _butterfly(members)
    core = members - excess
    return Effort(phases, phases, phases * core, phases * core).then(_folded(excess))


def rabenseifner(members: int) -> Effort:
    """Reduce-scatter by recursive halving, then allgather by recursive doubling; members beyond a power of two fold in and out.

    >>> rabenseifner(4)[:4]
    (4, 1.5, 16, 6.0)
    """
    phases, excess = _butterfly(members)
    core = members - excess
    moved = 2 * (core - 1)
    return Effort(2 * phases, moved / core, 2 * phases * core, moved).then(_folded(excess))


def tree(members: int) -> Effort:
    """Reduce to a root and broadcast from it, each along a binomial tree.

    >>> tree(4)[:4]
    (4, 4, 6, 6)
    """
    return one_way(members).then(one_way(members))


def gathered_in_a_ring(members: int) -> Effort:
    """Allgather in a ring: every message goes from neighbour to neighbour until all members have it.

    >>> gathered_in_a_ring(4)[:4]
    (3, 3.0, 12, 12.0)
    """
    rounds = members - 1
    return Effort(rounds, float(rounds), rounds * members, float(rounds * members))


def gathered_by_doubling(members: int) -> Effort:
    """Allgather by doubling: at distances 1, 2, 4, ... every member sends the parts that the other lacks [Bruck et al. 1997].

    >>> gathered_by_doubling(4)[:4], gathered_by_doubling(5)[:4]
    ((2, 3.0, 8, 12.0), (3, 4.0, 15, 20.0))
    """
    rounds = (members - 1).bit_length()
    return Effort(rounds, float(members - 1), rounds * members, float((members - 1) * members))


def one_way(members: int) -> Effort:
    """Reduce to a root, or broadcast from it, along a binomial tree.

    >>> one_way(4)[:4]
    (2, 2, 3, 3)
    """
    rounds = (members - 1).bit_length()
    return Effort(rounds, rounds, members - 1, members - 1)


ALLREDUCE: dict[str, Callable[[int], Effort]] = {
    "ring": ring,
    "recursive-doubling": recursive_doubling,
    "rabenseifner": rabenseifner,
    "tree": tree,
}
ALLGATHER: dict[str, Callable[[int], Effort]] = {
    "ring": gathered_in_a_ring,
    "recursive-doubling": gathered_by_doubling,
    "rabenseifner": gathered_by_doubling,
    "tree": gathered_by_doubling,
}


def _butterfly(members: int) -> tuple[int, int]:
    """Return the exchanges among the largest power of two of members, and the number of members beyond it."""
    phases = members.bit_length() - 1
    return phases, members - (1 << phases)


def _folded(excess: int) -> Effort:
    """Return the cost for members beyond a power of two: each sends its model to another first, and gets the result last."""
    return Effort(2, 2.0, 2 * excess, 2.0 * excess) if excess else NOTHING_DONE
