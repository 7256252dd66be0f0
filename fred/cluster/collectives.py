"""Costs of collective operations: in closed form by algorithm, and fitted to measurements by library.

**Algorithms** [Thakur, Rabenseifner, Gropp 2005, as in MPICH]: a message of m bytes takes alpha + beta m. A worker sends one
and receives one at a time, both at once. Reductions take no time.

    >>> for name, effort in ALLREDUCE.items():  # eight members; with alpha = 1 and beta m = 10 or 0.1
    ...     print(f"{name:18} {effort(8).rounds + 10 * effort(8).volume:6.1f} {effort(8).rounds + 0.1 * effort(8).volume:6.1f}")
    ring                 31.5   14.2
    recursive-doubling   33.0    3.3
    rabenseifner         23.5    6.2
    tree                 66.0    6.6

**Libraries**, fitted to measurements (`results/reproductions/measured.md`): NCCL passes small chunks on while it still receives
others, so few latencies add up, whatever the number of members. Gloo's ring waits for each segment of 1 MiB, which the receiver
must have asked for; its broadcast sends whole models down a tree. `in use` is one synchronization by a data-parallel program:
operations on parts of the model, one after the other, and other work at the same time. `textbook` has MPICH's
algorithms for long messages, for libraries that were not measured, and a round with one server, as `ssgd` has it.

Sizes are those of the whole result (allgather, gather) or of the whole input (reduce-scatter, scatter, all-to-all).
"""

from collections.abc import Callable
from typing import NamedTuple

from fred.cluster.bandwidths import Connection

SEGMENT = 2**20  # bytes
NCCL_VOLUME = 1.011  # bytes on the wire per byte of a model, in a collective operation
NCCL_ROUNDS = 4  # latencies of an allreduce of 4 to 32 members
GLOO_VOLUME = 1.25  # the same for Gloo's rings, in which requests for segments wait behind segments
GLOO_ALL_TO_ALL = 1.5  # the same where all send to all at once
GLOO_PAIR = 1.5  # factor on both where only two members gather, or send all to all
PARTS_IN_USE = 18.2  # allreduces of one synchronization in use
RING_IN_USE = 16  # members from which such allreduces go around a ring
SERVERS_VOLUME, SERVERS_ROUNDS = 1.31, 3.0  # of sharded servers in use; latencies for each other member
_FIRST_WINDOW = 10 * 8949  # bytes of a connection's first window on Linux: ten segments, with jumbo frames
_WINDOW = 3 * 2**20  # bytes: half of the largest receive buffer on Linux by default, 6 MiB
_SOCKETS = 16  # connections of NCCL between two machines of Amazon's cloud


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
        return waits + self.volume * size / connection.rate + self.starts * connection.startup_delay(size)

    def times(self, factor: float) -> "Effort":
        """Return the same operation with messages `factor` times as large.

        Args:
            factor: factor on the size of a message.

        >>> one_way(4).times(3)[:4]
        (2, 6, 3, 9)
        """
        return self._replace(volume=factor * self.volume, sent=factor * self.sent, segments=factor * self.segments)

    def followed_by(self, other: "Effort") -> "Effort":
        """Return this operation followed by another.

        Args:
            other: operation that begins when this one ends.

        Example:
            >>> one_way(4).followed_by(one_way(4)) == tree(4)
            True
        """
        rounds, volume, messages, sent, segments, starts = (a + b for a, b in zip(self, other, strict=True))
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
    return Effort(phases, phases, phases * core, phases * core).followed_by(_folded(excess))


def rabenseifner(members: int) -> Effort:
    """Reduce-scatter by recursive halving, then allgather by recursive doubling; members beyond a power of two fold in and out.

    >>> rabenseifner(4)[:4]
    (4, 1.5, 16, 6.0)
    """
    phases, excess = _butterfly(members)
    core = members - excess
    moved = 2 * (core - 1)
    return Effort(2 * phases, moved / core, 2 * phases * core, moved).followed_by(_folded(excess))


def tree(members: int) -> Effort:
    """Reduce to a root and broadcast from it, each along a binomial tree.

    >>> tree(4)[:4]
    (4, 4, 6, 6)
    """
    return one_way(members).followed_by(one_way(members))


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


def one_server(workers: int) -> Effort:
    """Send all gradients to one server, then all models back: all messages share the server's card, in either direction.

    Args:
        workers: number of workers that send; one on the server's machine does not count.

    >>> one_server(4)[:4]
    (2, 8.0, 8, 8.0)
    """
    messages = 2 * workers
    return Effort(2, float(messages), messages, float(messages))


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


def nccl_allreduce(members: int, volume: float = NCCL_VOLUME, rounds: float = NCCL_ROUNDS) -> Effort:
    """Allreduce in chunks along trees.

    Args:
        members: number of members.
        volume: bytes on the wire per byte of the model.
        rounds: latencies, from four members on.

    >>> effort = nccl_allreduce(4)
    >>> effort.rounds, round(effort.volume, 4)
    (4, 1.5165)
    """
    return _exchange_parts(members, min(rounds, 2 * _depth(members)), volume, passes=2)


def gloo_allreduce(members: int, volume: float = GLOO_VOLUME) -> Effort:
    """Reduce-scatter, then allgather, in a ring, segment by segment.

    Args:
        members: number of members.
        volume: bytes on the wire per byte of the model.

    >>> gloo_allreduce(4).volume, gloo_allreduce(4).segments
    (1.875, 1.5)
    """
    return _exchange_parts(members, 4 * (members - 1), volume, passes=2)._replace(segments=2 * (members - 1) / members)


def allreduce_in_use(members: int, parts: float = PARTS_IN_USE) -> Effort:
    """Allreduce parts of a model one after the other.

    Args:
        members: number of members.
        parts: number of parts.

    >>> allreduce_in_use(4).rounds, allreduce_in_use(16).rounds
    (72.8, 546.0)
    """
    rounds = nccl_allreduce(members).rounds if members < RING_IN_USE else 2 * (members - 1)
    return nccl_allreduce(members)._replace(rounds=parts * rounds)


def servers_in_use(members: int, volume: float = SERVERS_VOLUME, rounds: float = SERVERS_ROUNDS) -> Effort:
    """Send every part of a gradient to the member that serves it (all-to-all), and gather the new model (allgather).

    Args:
        members: number of members.
        volume: bytes on the wire per byte of a model.
        rounds: latencies for each other member.

    >>> servers_in_use(4)[:2]
    (9.0, 1.965)
    """
    return _exchange_parts(members, rounds * (members - 1), volume, passes=2)


LIBRARIES: dict[str, dict[str, Callable[[int], Effort]]] = {  # library -> operation -> its cost for a number of members
    "nccl": {
        "allreduce": nccl_allreduce,
        "broadcast": lambda members: _root_operation(members, 2, NCCL_VOLUME),
        "reduce": lambda members: _root_operation(members, 2, NCCL_VOLUME),
        "allgather": lambda members: _exchange_parts(members, 2 * _depth(members), NCCL_VOLUME),
        "reduce-scatter": lambda members: _exchange_parts(members, 2 * _depth(members), NCCL_VOLUME),
        "all-to-all": lambda members: _exchange_parts(members, 2, NCCL_VOLUME),
        "gather": lambda members: _root_operation_on_parts(members, 2, NCCL_VOLUME),
        "scatter": lambda members: _root_operation_on_parts(members, 2, NCCL_VOLUME),
        "point-to-point": lambda members: Effort(1, 1.0, 1, 1.0, starts=1),
    },
    "gloo": {
        "allreduce": gloo_allreduce,
        "broadcast": lambda members: _root_operation(members, 2 * _depth(members), _depth(members), starts=_depth(members)),
        "reduce": lambda members: _gloo_reduce(members),
        "allgather": lambda members: _gloo_exchange(members, 4 * (members - 1), GLOO_VOLUME),
        "reduce-scatter": lambda members: _exchange_parts(members, 2 * (members - 1), GLOO_VOLUME)._replace(
            segments=(members - 1) / members
        ),
        "all-to-all": lambda members: _gloo_exchange(members, 2, GLOO_ALL_TO_ALL),
        "gather": lambda members: _root_operation_on_parts(members, 2, 1.0)._replace(starts=1),
        "scatter": lambda members: _root_operation_on_parts(members, 2, 1.0)._replace(starts=1),
        "point-to-point": lambda members: Effort(2, 1.0, 1, 1.0, starts=1),
    },
    "textbook": {
        "allreduce": rabenseifner,
        "broadcast": lambda members: _exchange_parts(members, _depth(members) + members - 1, 1.0, passes=2),
        "reduce": lambda members: _exchange_parts(members, 2 * _depth(members), 1.0, passes=2),
        "allgather": lambda members: _exchange_parts(members, _depth(members), 1.0),
        "reduce-scatter": lambda members: _exchange_parts(members, _depth(members), 1.0),
        "all-to-all": lambda members: _exchange_parts(members, members - 1, 1.0),
        "gather": lambda members: _root_operation_on_parts(members, _depth(members), 1.0),
        "scatter": lambda members: _root_operation_on_parts(members, _depth(members), 1.0),
        "point-to-point": lambda members: Effort(1, 1.0, 1, 1.0),
        "one-server": one_server,
        "worker-as-server": lambda members: one_server(members - 1),
    },
    "in use": {"allreduce": allreduce_in_use, "sharded-servers": servers_in_use},
}
CONNECTIONS = {  # library -> windows of its connections
    "nccl": Connection(window=_SOCKETS * _WINDOW, initial_window=_SOCKETS * _FIRST_WINDOW),
    "gloo": Connection(window=_WINDOW, initial_window=_FIRST_WINDOW),
    "textbook": Connection(),
    "in use": Connection(),
}


def _depth(members: int) -> int:
    """Return the depth of a binary tree of all members."""
    return (members - 1).bit_length()


def _exchange_parts(members: int, rounds: float, volume: float, passes: int = 1) -> Effort:
    """Return the cost of an operation in which every member sends all of a model but its own part, `passes` times."""
    peers = members - 1
    return Effort(rounds, passes * volume * peers / members, passes * peers * members, float(passes * peers))


def _gloo_exchange(members: int, rounds: float, volume: float) -> Effort:
    """Return the cost of an allgather or all-to-all, which takes longer than its volume says between two members."""
    return _exchange_parts(members, rounds, volume * (GLOO_PAIR if members == 2 else 1.0))


def _root_operation(members: int, rounds: float, volume: float, starts: int = 0) -> Effort:
    """Return the cost of an operation between one member and all others."""
    return Effort(rounds, float(volume), members - 1, float(members - 1), starts=starts)


def _root_operation_on_parts(members: int, rounds: float, volume: float) -> Effort:
    """Return the cost of an operation between one member and all others, of whom each has a part."""
    share = (members - 1) / members
    return Effort(rounds, volume * share, members - 1, share)


def _gloo_reduce(members: int) -> Effort:
    """Return the cost of a reduce-scatter in a ring, from which the root then gathers the parts."""
    peers = members - 1
    return Effort(
        2 * members, GLOO_VOLUME + peers / members, peers * (members + 1), peers * (1 + 1 / members), segments=1.0, starts=1
    )
