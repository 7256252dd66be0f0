"""Collective operations as messages: senders, receivers and sizes, phase by phase. Their closed forms are in `collectives.py`.

Rounds in which all members repeat the same messages, as in a ring, form one phase.

    >>> for phase in flat("rabenseifner", range(4)):
    ...     print(phase.waits.rounds, phase.messages)
    1 ((0, 2, 0.5), (1, 3, 0.5), (2, 0, 0.5), (3, 1, 0.5))
    1 ((0, 1, 0.25), (1, 0, 0.25), (2, 3, 0.25), (3, 2, 0.25))
    1 ((0, 1, 0.25), (1, 0, 0.25), (2, 3, 0.25), (3, 2, 0.25))
    1 ((0, 2, 0.5), (1, 3, 0.5), (2, 0, 0.5), (3, 1, 0.5))
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from fred.cluster.collectives import LIBRARIES, AnyCollective, Collective, Effort, Operation
from fred.cluster.network import Network
from fred.cluster.regions import Regions

Messages = tuple[tuple[int, int, float], ...]  # sender, receiver, volume in models (or messages)
STORE = -1  # the object store, in place of a worker's number


class Phase(NamedTuple):
    """Messages that are sent at the same time, each after its sender has waited.

    Args:
        waits: what a message waits for: latencies, and the beginnings of connections.
        messages: sender, receiver, and volume relative to a model (or to a member's message).
    """

    waits: Effort
    messages: Messages

    def times(self, factor: float) -> "Phase":
        """Return the same phase with messages `factor` times as large."""
        larger = tuple((sender, receiver, factor * volume) for sender, receiver, volume in self.messages)
        return Phase(self.waits.times(factor), larger)


Chain = list[Phase]  # one phase after the other
Stages = list[list[Chain]]  # one stage after the other; the chains of a stage run at the same time


def stages(
    network: Network, operation: Operation, groups: Sequence[Sequence[int]], algorithm: Collective | None, size: float
) -> Stages:
    """Return the messages of a collective operation.

    Args:
        network: its levels and regions, and its `collective`.
        operation: `allreduce` or `allgather`.
        groups: workers on each node, or in each region; a single group if the network has one level.
        algorithm: algorithm of an allreduce; default: the network's.
        size: size of the model (or of a member's message), bytes.
    """
    if network.regions is not None:
        return _between_regions(network.regions, operation, groups, size, network.latency_without_table)
    name = network.collective if operation == "allgather" or algorithm is None else algorithm
    if len(groups) == 1 and not (name == "store" and network.two_levels):
        return [_exchanged(operation, name, groups[0])]
    between_leaders = _exchanged(operation, name, [group[0] for group in groups])
    if operation == "allreduce":
        return [[_reduction(group) for group in groups], between_leaders, [_broadcast(group) for group in groups]]
    largest, workers = max(map(len, groups)), sum(map(len, groups))
    gathers = [[Phase(_latencies(len(group) - 1), tuple((other, group[0], 1.0) for other in group[1:]))] for group in groups]
    broadcasts = [[phase.times(workers) for phase in _broadcast(group)] for group in groups]
    # A leader sends the messages of its node; all send as many as the leader of the largest node.
    return [gathers, [[phase.times(largest) for phase in chain_of_leaders] for chain_of_leaders in between_leaders], broadcasts]


def _exchanged(operation: Operation, collective: AnyCollective, members: Sequence[int]) -> list[Chain]:
    """Return the messages among members of which none leads others, in chains that run at the same time."""
    if collective != "store":
        return [flat(collective, members) if operation == "allreduce" else gathered(collective, members)]
    return [_through_store(member, members) for member in members]


def _through_store(sender: int, members: Sequence[int]) -> Chain:
    """Return the messages that bring a member's update to all others: they download it as soon as it is in the store.

    >>> [phase.messages for phase in _through_store(1, range(3))]
    [((1, -1, 1.0),), ((-1, 0, 1.0), (-1, 2, 1.0))]
    """
    if len(members) == 1:
        return []
    downloads = tuple((STORE, member, 1.0) for member in members if member != sender)
    return [Phase(_latencies(1), ((sender, STORE, 1.0),)), Phase(_latencies(1), downloads)]


def flat(algorithm: Collective, members: Sequence[int]) -> Chain:
    """Return the messages of an allreduce among members that are all alike.

    Args:
        algorithm: its name.
        members: workers, by number; their order is that of a ring.
    """
    if algorithm in LIBRARIES:
        return _as_library(LIBRARIES[algorithm]["allreduce"](len(members)), members)
    return _FLAT[algorithm](members)


def gathered(algorithm: Collective, members: Sequence[int]) -> Chain:
    """Return the messages of an allgather: in a ring, or by doubling [Bruck et al. 1997].

    Args:
        algorithm: that of the network's allreduces.
        members: workers, by number; their order is that of a ring.

    >>> [phase.messages for phase in gathered("tree", range(3))]
    [((0, 2, 1.0), (1, 0, 1.0), (2, 1, 1.0)), ((0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0))]
    """
    number = len(members)
    if algorithm in LIBRARIES:
        return _as_library(LIBRARIES[algorithm]["allgather"](number).times(number), members)
    if algorithm == "ring":
        return _ring_phase(members, _latencies(number - 1), float(number - 1))
    distances = [1 << k for k in range((number - 1).bit_length())]
    return [_shifted(members, distance, min(distance, number - distance)) for distance in distances]


def _latencies(rounds: float) -> Effort:
    return Effort(rounds, 0.0, 0, 0.0)


def _ring_phase(members: Sequence[int], waits: Effort, volume: float) -> Chain:
    """Return the messages of all rounds in a ring: each member sends this volume to the next one."""
    if len(members) == 1:
        return []
    successors = (*members[1:], members[0])
    return [Phase(waits, tuple((member, successor, volume) for member, successor in zip(members, successors, strict=True)))]


def _shifted(members: Sequence[int], distance: int, volume: float) -> Phase:
    """Return the messages of all members to those `distance` places before them; the first ones send to the last ones."""
    receivers = (*members[-distance:], *members[:-distance])
    return Phase(_latencies(1), tuple((a, b, float(volume)) for a, b in zip(members, receivers, strict=True)))


def _as_library(effort: Effort, members: Sequence[int]) -> Chain:
    """Return a library's operation as messages in a ring, with the waits and the volume that were measured."""
    return _ring_phase(members, effort._replace(volume=0.0), effort.volume)


def _ring(members: Sequence[int]) -> Chain:
    rounds = 2 * (len(members) - 1)
    return _ring_phase(members, _latencies(rounds), rounds / len(members))


def _recursive_doubling(members: Sequence[int]) -> Chain:
    core, folding, unfolding = _fold(members)
    return folding + [_exchange(core, 1 << k, 1.0) for k in range(len(core).bit_length() - 1)] + unfolding


def _rabenseifner(members: Sequence[int]) -> Chain:
    core, folding, unfolding = _fold(members)
    distances = [len(core) >> k for k in range(1, len(core).bit_length())]
    halvings = [_exchange(core, distance, distance / len(core)) for distance in distances]
    return folding + halvings + halvings[::-1] + unfolding  # the doublings are the halvings backwards


def _tree(members: Sequence[int]) -> Chain:
    return _reduction(members) + _broadcast(members)


_FLAT: dict[str, Callable[[Sequence[int]], Chain]] = {
    "ring": _ring,
    "recursive-doubling": _recursive_doubling,
    "rabenseifner": _rabenseifner,
    "tree": _tree,
}


def _fold(members: Sequence[int]) -> tuple[Sequence[int], Chain, Chain]:
    """Return the largest power of two of members, and what those beyond it send to them first and get from them last."""
    core_size = 1 << (len(members).bit_length() - 1)
    core, excess = members[:core_size], members[core_size:]
    if not excess:
        return core, [], []
    inward = tuple((member, partner, 1.0) for partner, member in zip(core, excess, strict=False))
    outward = tuple((receiver, sender, volume) for sender, receiver, volume in inward)
    return core, [Phase(_latencies(1), inward)], [Phase(_latencies(1), outward)]


def _exchange(members: Sequence[int], distance: int, volume: float) -> Phase:
    """Return the messages between partners whose places differ in one bit, that of `distance`."""
    return Phase(_latencies(1), tuple((member, members[place ^ distance], volume) for place, member in enumerate(members)))


def _reduction(members: Sequence[int]) -> Chain:
    """Return the messages of a reduction to the first member, along a binomial tree: those of a broadcast, backwards."""
    return [Phase(phase.waits, tuple((b, a, volume) for a, b, volume in phase.messages)) for phase in _broadcast(members)[::-1]]


def _broadcast(members: Sequence[int]) -> Chain:
    """Return the messages of a broadcast from the first member, along a binomial tree."""
    distances = [1 << k for k in reversed(range((len(members) - 1).bit_length()))]
    sender_places = [range(0, len(members) - distance, 2 * distance) for distance in distances]
    return [
        Phase(_latencies(1), tuple((members[place], members[place + distance], 1.0) for place in places))
        for distance, places in zip(distances, sender_places, strict=True)
    ]


def _exchange_all(members: Sequence[int], operation: Operation) -> Chain:
    """Return the messages of an operation in which every member sends to all others at once; an allreduce does so twice."""
    part = 1 / len(members) if operation == "allreduce" else 1.0
    phase = Phase(_latencies(1), tuple((a, b, part) for a in members for b in members if a != b))
    return [phase] * (2 if operation == "allreduce" else 1)


def _between_regions(
    regions: Regions, operation: Operation, groups: Sequence[Sequence[int]], size: float, latency: float
) -> Stages:
    """Return the messages of an operation by the `collective` of the regions. FRED's rings pass them in the best order.

    `groups` has the workers of each region, `size` is in bytes, and `latency` (s) holds between regions that give none.
    """
    if regions.collective == "nccl" or regions.collective == "gloo":
        list_messages = flat if operation == "allreduce" else gathered
        return [[list_messages(regions.collective, list(chain.from_iterable(groups)))]]
    if regions.collective == "all-to-all":
        return [[_exchange_all(list(chain.from_iterable(groups)), operation)]]
    occupied = tuple(region for region, group in enumerate(groups) if group)
    workers = sum(map(len, groups))

    def order_groups(message_bytes: float) -> list[Sequence[int]]:
        """Return the groups in the order in which a ring for messages of this size passes them."""
        return [groups[region] for region in regions.best_ring(occupied, message_bytes, latency)[1]]

    if operation == "allgather":
        return [[gathered("ring", list(chain.from_iterable(order_groups(size))))]]
    if regions.collective == "ring":
        return [[_ring(list(chain.from_iterable(order_groups(size / workers))))]]
    occupied_groups = [groups[region] for region in occupied]  # hierarchical: a tree in each, and a ring of their leaders
    leaders = [group[0] for group in order_groups(size / len(occupied))]
    reductions, broadcasts = list(map(_reduction, occupied_groups)), list(map(_broadcast, occupied_groups))
    return [reductions, [_ring(leaders)], broadcasts]
