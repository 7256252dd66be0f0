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
others. In its allreduce few latencies add up, whatever the number of members; its other operations go around a ring or down a
chain of all members. Gloo's ring waits for segments of 1 MiB, two at a time, for which the receiver asks; its broadcast sends
whole models down a tree. `in use` is one synchronization by a data-parallel program:
operations on parts of the model, one after the other, and other work at the same time. `textbook` has MPICH's
algorithms for long messages, for libraries that were not measured, and a round with one server, as `ssgd` has it.

**Object store**: every member uploads its message once, and downloads those of all others [Lidin et al. 2026,
arXiv:2603.08163]. The store adds nothing up, so an allreduce is an allgather, after which each member adds up for itself.

Sizes are those of the whole result (allgather, gather) or of the whole input (reduce-scatter, scatter, all-to-all). With a
store they are those of a member's message.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from fred.cluster.bandwidths import Connection

Collective = Literal["ring", "recursive-doubling", "rabenseifner", "tree", "nccl", "gloo"]
AnyCollective = Literal[Collective, "store"]
Operation = Literal["allreduce", "allgather"]
Medium = Literal["inside", "between", "to-store", "from-store"]
SEGMENT = 2**20  # bytes
NCCL_VOLUME = 1.011  # bytes on the wire per byte of a model, in a collective operation
NCCL_ROUNDS = 4  # latencies of an allreduce of 4 to 32 members
GLOO_VOLUME = 1.02  # the same for Gloo's rings
GLOO_GATHER = 1.12  # for its allgather
GLOO_ALL_TO_ALL = 1.65  # where all send to all at once: confirmations of one direction wait behind data of the other
_GATHERED_AHEAD = 0.4  # share of the time of its transfers that hides latencies
GLOO_PAIR = 1.55  # where only two members gather, or send all to all
PARTS_IN_USE = 16.4  # allreduces of one synchronization in use
RING_IN_USE = 16  # members from which such allreduces go around a ring if their parts are small
_SMALL_PART = 2**25  # bytes; measured parts of models of 256 MB went around a ring, and those of 1 GB did not
SERVERS_VOLUME, SERVERS_ROUNDS = 1.31, 3.0  # of sharded servers in use; latencies for each other member
_FIRST_WINDOW = 10 * 8949  # bytes of a connection's first window on Linux: ten segments, with jumbo frames
_WINDOW = 2.7 * 2**20  # bytes: of a receive buffer of 6 MiB, Linux's default, 2.6 to 2.8 MiB are data, with any size of frames
_WINDOW_IN_USE = 5.5e6  # bytes that an operation in use has under way at most
_SOCKETS = 16  # connections of NCCL between two machines of Amazon's cloud


class Segments(NamedTuple):
    """Segments one after the other along the longest path, two at a time; a receiver asks for the next when it has the last.

    A request and its segment take two latencies, and the other segment is sent meanwhile. Between two members requests wait
    behind segments of the same connection, so that each segment costs a latency.

    Args:
        share: what they carry along the path, in models.
        number: least number of them.
        passes: how often the path goes around all members; each pass costs two latencies at least.
        ahead: share of their time of transfer that hides latencies.
        limited: whether a segment has at most 1 MiB.
        left_out: segments that the path would have, and that are not sent.
    """

    share: float
    number: int
    passes: int = 1
    ahead: float = 0.5
    limited: bool = True
    left_out: int = 0

    def waits(self, size: float, connection: Connection) -> float:
        """Return the time that the path waits for requests, less that of segments that are left out, s.

        Args:
            size: size of the model (or message), bytes.
            connection: between two members.
        """
        count = max(self.number, self.share * size / SEGMENT - self.left_out if self.limited else 0)
        latencies = count + (self.passes if self.ahead else 0)  # a segment costs one, and the first of a pass a second one
        hidden = self.ahead * self.share * size / connection.rate  # s, while another segment is sent
        segment_size = min(size / max(1, self.number + self.left_out), SEGMENT)
        saved = self.left_out * segment_size / connection.rate  # s: the volume of the operation includes what is left out
        return max(2 * self.passes * connection.latency, latencies * connection.latency - hidden) - saved


class Effort(NamedTuple):
    """The cost of an operation, along its longest path and in total. Volumes are in models (or messages).

    Args:
        rounds, volume: sequential messages of the longest path, and the volume they move.
        messages, sent: messages of all members, and the volume they send.
        segments: waits for segments, besides those for `rounds`.
        starts: sequential messages that begin with a connection's initial window.
        chunks: members one after the other that wait for the first MiB of the model before they pass it on.
        parts: operations one after the other, each on a part of the model and with `rounds`. Where windows limit the rate,
            the next part begins in the waits of the one before.
        small_rounds: `rounds` of parts below 32 MiB, where these differ.
        streams: connections at once, each with its own window.
    """

    rounds: float  # sequential messages of the longest path
    volume: float  # moved along that path
    messages: int  # of all members
    sent: float  # by all members
    segments: Segments | None = None
    starts: int = 0
    chunks: int = 0
    parts: float = 1.0
    small_rounds: float = 0.0
    streams: int = 1

    def seconds(self, size: float, connection: Connection) -> float:
        """Return the duration, s.

        Args:
            size: size of the model (or message), bytes.
            connection: between two members.

        >>> ring(4).seconds(1_000_000, Connection(latency=0.01, bandwidth=1e7))
        0.21
        """
        connection = connection.times(self.streams)
        rounds = self.small_rounds if self.small_rounds and size < self.parts * _SMALL_PART else self.rounds
        waits = self.parts * rounds * connection.latency + self.starts * connection.startup_delay(size)
        waits += self.chunks * min(size, SEGMENT) / connection.rate
        waits += self.segments.waits(size, connection) if self.segments else 0.0
        moving = self.volume * size / connection.rate
        if self.parts == 1:
            return waits + moving
        # The rate differs from the bandwidth only if windows limit it. Then the next part begins in the waits of the last.
        return max(waits + self.volume * size / connection.bandwidth, moving)

    def times(self, factor: float) -> "Effort":
        """Return the same operation with messages `factor` times as large.

        Args:
            factor: factor on the size of a message.

        >>> one_way(4).times(3)[:4]
        (2, 6, 3, 9)
        """
        segments = self.segments and self.segments._replace(share=factor * self.segments.share)
        return self._replace(volume=factor * self.volume, sent=factor * self.sent, segments=segments)

    def followed_by(self, other: "Effort") -> "Effort":
        """Return this operation followed by another.

        Args:
            other: operation that begins when this one ends; both have messages alone.

        Example:
            >>> one_way(4).followed_by(one_way(4)) == tree(4)
            True
        """
        rounds, volume, messages, sent = (a + b for a, b in zip(self[:4], other[:4], strict=True))
        return Effort(rounds, volume, int(messages), sent)


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
    sent = 2 * (core - 1)  # by all members of the core; each sends all but its own part, twice
    return Effort(2 * phases, sent / core, 2 * phases * core, sent).followed_by(_folded(excess))


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


def to_store(members: int) -> Effort:
    """Upload the messages of all members to an object store, all at once.

    >>> to_store(4)[:4]
    (1, 1.0, 4, 4.0)
    """
    return Effort(1, 1.0, members, float(members)) if members > 1 else NOTHING_DONE


def from_store(members: int) -> Effort:
    """Download the messages of all others from an object store, at each member, all at once.

    >>> from_store(4)[:4]
    (1, 3.0, 12, 12.0)
    """
    messages = (members - 1) * members
    return Effort(1, members - 1.0, messages, float(messages), streams=members - 1) if members > 1 else NOTHING_DONE


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
    """Return the sequential exchanges among the largest power of two of members, and the number of members beyond it."""
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
    (1.53, Segments(share=1.53, number=12, passes=2, ahead=0.5, limited=True, left_out=0))
    """
    return _gloo_ring(members, volume, passes=2)


def allreduce_in_use(members: int, parts: float = PARTS_IN_USE) -> Effort:
    """Allreduce parts of a model one after the other.

    Args:
        members: number of members.
        parts: number of parts.

    >>> allreduce_in_use(16).rounds, allreduce_in_use(16).small_rounds
    (8, 30)
    """
    small_rounds = 2 * (members - 1) if members >= RING_IN_USE else 0
    return nccl_allreduce(members)._replace(rounds=2 * _depth(members), parts=parts, small_rounds=small_rounds)


def servers_in_use(members: int, volume: float = SERVERS_VOLUME, rounds: float = SERVERS_ROUNDS) -> Effort:
    """Send every part of a gradient to the member that serves it (all-to-all), and gather the new model (allgather).

    Args:
        members: number of members.
        volume: bytes on the wire per byte of a model.
        rounds: latencies for each other member.

    >>> servers_in_use(4)[:2]
    (9.0, 1.965)
    """
    return _exchange_parts(members, rounds * (members - 1), volume, passes=2)._replace(streams=members - 1)


LIBRARIES: dict[str, dict[str, Callable[[int], Effort]]] = {  # library -> operation -> its cost for a number of members
    "nccl": {
        "allreduce": nccl_allreduce,
        "broadcast": lambda members: _nccl_chain(members),
        "reduce": lambda members: _nccl_chain(members),
        "allgather": lambda members: _exchange_parts(members, members - 1, NCCL_VOLUME),
        "reduce-scatter": lambda members: _exchange_parts(members, members - 1, NCCL_VOLUME),
        "all-to-all": lambda members: _exchange_parts(members, 2, NCCL_VOLUME),
        "gather": lambda members: _root_operation_on_parts(members, 2, NCCL_VOLUME),
        "scatter": lambda members: _root_operation_on_parts(members, 2, NCCL_VOLUME),
        "point-to-point": lambda members: Effort(1, 1.0, 1, 1.0, starts=1),
    },
    "gloo": {
        "allreduce": gloo_allreduce,
        "broadcast": lambda members: _gloo_broadcast(members),
        "reduce": lambda members: _gloo_reduce(members),
        "allgather": lambda members: _gloo_allgather(members),
        "reduce-scatter": lambda members: _gloo_ring(members, GLOO_VOLUME, passes=1),
        "all-to-all": lambda members: _exchange_parts(members, 2, GLOO_PAIR if members == 2 else GLOO_ALL_TO_ALL)._replace(
            streams=max(1, members - 1)
        ),
        "gather": lambda members: _root_operation_on_parts(members, 2, 1.0)._replace(streams=max(1, members - 1)),
        "scatter": lambda members: _root_operation_on_parts(members, 2, 1.0)._replace(streams=max(1, members - 1)),
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
    "in use": Connection(window=_WINDOW_IN_USE),
}


class Passage(NamedTuple):
    """A part of a collective operation.

    Args:
        effort: its cost.
        way: the links that its messages pass.
        sharers: number of members that share the store.
    """

    effort: Effort
    way: Medium
    sharers: int = 1


def list_passages(operation: Operation, collective: AnyCollective, members: int, way: Medium) -> list[Passage]:
    """Return the parts of an operation among members that are all alike, one after the other.

    Args:
        operation: `allreduce`, relative to a model, or `allgather`, relative to a member's message.
        collective: its algorithm.
        members: number of members.
        way: the links between members.
    """
    if collective == "store":  # it sums nothing: in both operations each member downloads the messages of all others
        return [Passage(to_store(members), "to-store", members), Passage(from_store(members), "from-store", members)]
    if collective not in LIBRARIES:
        return [Passage((ALLREDUCE if operation == "allreduce" else ALLGATHER)[collective](members), way)]
    effort = LIBRARIES[collective][operation](members)
    # A library's allgather is relative to the whole result, which is as large as the messages of all members.
    return [Passage(effort if operation == "allreduce" else effort.times(members), way)]


def _depth(members: int) -> int:
    """Return the depth of a binary tree of all members."""
    return (members - 1).bit_length()


def _exchange_parts(members: int, rounds: float, volume: float, passes: int = 1) -> Effort:
    """Return the cost of an operation in which every member sends all of a model but its own part, `passes` times.

    `volume` is the number of bytes on the wire per byte of a model.
    """
    peers = members - 1
    return Effort(rounds, passes * volume * peers / members, passes * peers * members, float(passes * peers))


def _root_operation(members: int, rounds: float, volume: float) -> Effort:
    """Return the cost of an operation between one member and all others."""
    return Effort(rounds, float(volume), members - 1, float(members - 1))


def _root_operation_on_parts(members: int, rounds: float, volume: float) -> Effort:
    """Return the cost of an operation between one member and all others, of whom each has a part."""
    share = (members - 1) / members
    return Effort(rounds, volume * share, members - 1, share)


def _nccl_chain(members: int) -> Effort:
    """Return the cost of NCCL's broadcast or reduce: chunks go down a chain of all members [NCCL, src/device/broadcast.h].

    Each member but the two ends waits for a first chunk before it passes it on.
    """
    return _root_operation(members, members - 1, NCCL_VOLUME)._replace(chunks=max(0, members - 2))


def _segments(members: int, share: float, passes: int = 1, left_out: int = 0) -> Segments | None:
    """Return the segments of a ring of all members: two or more of each member's part in each pass."""
    if members == 1:
        return None
    ahead = 0.0 if members == 2 else 0.5  # between two members, requests wait behind segments
    return Segments(share, number=2 * passes * (members - 1), passes=passes, ahead=ahead, left_out=left_out)


def _gloo_broadcast(members: int) -> Effort:
    """Return the cost of a broadcast down a binomial tree, in which a member sends to all its children at once.

    They share its card, so a member with k children needs the time of k models [gloo/broadcast.cc].
    """
    depth, volume = _slowest_branch(members)
    streams = max(1, round(volume / max(1, depth)))  # mean number of children to whom a member of this branch sends at once
    return _root_operation(members, depth + 1, volume)._replace(streams=streams)


def _slowest_branch(members: int, member: int = 0, first_bit: int = 0) -> tuple[int, int]:
    """Return the depth, and the models that the cards send one after the other, of the slowest branch below a member.

    The children of a member differ from it in one bit, `first_bit` or a higher one.
    """
    child_bits = [bit for bit in range(first_bit, members.bit_length()) if member + (1 << bit) < members]
    branches = [_slowest_branch(members, member + (1 << bit), bit + 1) for bit in child_bits]
    depth, volume = max(branches, key=lambda branch: branch[1], default=(-1, 0))  # -1: a leaf has depth 0
    return depth + 1, volume + len(child_bits)


def _gloo_allgather(members: int) -> Effort:
    """Return the cost of an allgather in a ring, of each part in two halves [gloo/allgather.cc]."""
    if members <= 2:
        return _exchange_parts(members, 2 * (members - 1), GLOO_PAIR)
    effort = _exchange_parts(members, 0, GLOO_GATHER)  # 0: the segments have all waits
    halves = Segments(effort.volume, number=2 * (members - 1), ahead=_GATHERED_AHEAD, limited=False)
    return effort._replace(segments=halves)


def _gloo_ring(members: int, volume: float, passes: int) -> Effort:
    """Return the cost of going around a ring in segments: once to reduce and scatter, twice to allreduce."""
    effort = _exchange_parts(members, 0, volume, passes)  # 0: the segments have all waits
    return effort._replace(segments=_segments(members, effort.volume, passes))


def _gloo_reduce(members: int) -> Effort:
    """Return the cost of a reduce: a ring all around but for two segments, then the root gathers all parts [gloo/reduce.cc]."""
    peers = members - 1
    return Effort(
        rounds=2,  # of the gather, as in Gloo's `gather`
        volume=GLOO_VOLUME + peers / members,
        messages=peers * (members + 1),  # `members` for each step of the ring, and one from each peer to the root
        sent=peers * (1 + 1 / members),
        segments=_segments(members, GLOO_VOLUME, left_out=2),
    )
