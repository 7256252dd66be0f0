"""Collectives: the closed forms against a simulation of every message, which checks that all members end with the whole sum."""

import math
from collections.abc import Callable

import pytest

from fred import Cluster, FredError
from fred.cluster.network import Network
from fred.protocols.synchronous import Allreduce
from tests.collective_programs import PROGRAMS, Programs, Step, reduce_and_broadcast, simulate
from tests.worlds import record

LATENCY, BANDWIDTH, SIZE = 0.01, 1e6, 500_000
INSIDE_LATENCY, INSIDE_BANDWIDTH = 0.002, 8e6
OUTER = {"latency": {"name": "constant", "seconds": LATENCY}, "bandwidth": BANDWIDTH}
INNER = {"latency": {"name": "constant", "seconds": INSIDE_LATENCY}, "bandwidth": INSIDE_BANDWIDTH}


@pytest.mark.parametrize("algorithm", PROGRAMS)
def test_closed_forms_are_what_a_simulation_of_the_messages_comes_to(algorithm):
    for members in range(1, 18):
        programs, chunks = PROGRAMS[algorithm](members)
        seconds, messages, models = simulate(programs, chunks, lambda a, b, part: LATENCY + part * SIZE / BANDWIDTH)
        cost = Network(**OUTER, collective=algorithm).allreduce(members, SIZE)
        assert cost.nanoseconds == pytest.approx(seconds * 1e9), members
        assert (cost.messages, cost.bytes) == (round(messages / members), round(models * SIZE / members)), members
        assert Network(**OUTER).allreduce(members, SIZE, algorithm) == cost, "the algorithm can be asked for"


@pytest.mark.parametrize("algorithm", PROGRAMS)
@pytest.mark.parametrize(("upload", "download"), [(BANDWIDTH, 3 * BANDWIDTH), (2 * BANDWIDTH, BANDWIDTH / 2)])
def test_collectives_take_the_slower_direction_of_links_that_send_and_receive_at_once(algorithm, upload, download):
    for members in (1, 2, 3, 5, 8):
        programs, chunks = PROGRAMS[algorithm](members)
        expected = simulate(programs, chunks, lambda a, b, part: LATENCY + max(part * SIZE / upload, part * SIZE / download))[0]
        for bandwidths in (
            {"upload": upload, "download": download},
            {"bandwidth": upload, "download": download},
            {"upload": upload, "bandwidth": download},
        ):
            cost = Network(**OUTER | {"bandwidth": None} | bandwidths, collective=algorithm).allreduce(members, SIZE)
            assert cost.nanoseconds == pytest.approx(expected * 1e9), (members, bandwidths)


def hierarchical(algorithm: str, nodes: int, per_node: int) -> tuple[Programs, int]:
    """Worker i x each leads node i: a tree in each node, `algorithm` among leaders, the tree again."""
    leaders, chunks = PROGRAMS[algorithm](nodes)
    inner, _ = reduce_and_broadcast(per_node)

    def moved(step: Step, place: Callable[[int], int], chunks: tuple[int, ...]) -> Step:
        to, source = (None if rank is None else place(rank) for rank in (step.to, step.source))
        return Step(to, () if to is None else chunks, source, step.adds)

    programs: Programs = []
    for node in range(nodes):
        for rank, steps in enumerate(inner):
            program = [moved(step, lambda other, node=node: node * per_node + other, tuple(range(chunks))) for step in steps]  # type: ignore[misc]
            if rank == 0:
                middle = len(program) // 2
                program[middle:middle] = [moved(step, lambda node: node * per_node, step.chunks) for step in leaders[node]]
            programs.append(program)
    return programs, chunks


@pytest.mark.parametrize("algorithm", PROGRAMS)
@pytest.mark.parametrize(("nodes", "per_node"), [(1, 4), (4, 1), (2, 3), (3, 4), (5, 2)])
def test_on_two_levels_collectives_are_hierarchical(algorithm, nodes, per_node):
    """Leaders' messages pass their node's card, here at half of the link's bandwidth."""

    def seconds(sender: int, receiver: int, part: float) -> float:
        if sender // per_node == receiver // per_node:
            return INSIDE_LATENCY + part * SIZE / INSIDE_BANDWIDTH
        return LATENCY + part * SIZE / (BANDWIDTH / 2)

    programs, chunks = PROGRAMS[algorithm](per_node) if nodes == 1 else hierarchical(algorithm, nodes, per_node)
    expected, messages, models = simulate(programs, chunks, seconds)
    network = Network(**OUTER, within=INNER, node_bandwidth=BANDWIDTH / 2, collective=algorithm)
    cost = network.allreduce([per_node] * nodes, SIZE)
    assert cost.nanoseconds == pytest.approx(expected * 1e9)
    assert cost.messages == round(messages / nodes / per_node)
    assert cost.bytes == pytest.approx(models * SIZE / nodes / per_node, abs=0.5)


def simulate_allgather(algorithm: str, n: int) -> tuple[list[int], int, int]:
    """An allgather, round by round: the longest message of each, in models; all messages; and all models that they carry."""
    owners = [[rank] for rank in range(n)]  # whose models, those that came last at the end
    longest: list[int] = []
    messages, models = 0, 0
    distance = 1
    while len(owners[0]) < n:
        number = 1 if algorithm == "ring" else min(distance, n - len(owners[0]))
        sent = [row[-number:] if algorithm == "ring" else row[:number] for row in owners]
        step = 1 if algorithm == "ring" else distance
        owners = [row + sent[(rank + step) % n] for rank, row in enumerate(owners)]
        longest, messages, models, distance = [*longest, number], messages + n, models + n * number, 2 * distance
    assert all(sorted(row) == list(range(n)) for row in owners), "everybody has everybody's, once"
    return longest, messages, models


@pytest.mark.parametrize("algorithm", PROGRAMS)
def test_messages_that_cannot_be_added_up_are_gathered(algorithm):
    for members in range(1, 18):
        longest, messages, models = simulate_allgather(algorithm, members)
        cost = Network(**OUTER, collective=algorithm).allgather(members, SIZE)
        assert cost.nanoseconds == pytest.approx(sum(LATENCY + most * SIZE / BANDWIDTH for most in longest) * 1e9), members
        assert (cost.messages, cost.bytes) == (messages / members, models * SIZE / members), members


@pytest.mark.parametrize("bandwidth", [None, 4 * BANDWIDTH])
@pytest.mark.parametrize("window", [None, SIZE / 100])
def test_a_store_gets_each_message_once_and_sends_it_to_all_others(bandwidth, window):
    """An upload of one message, then downloads of all others at once; members share the store, and each connection has a window."""
    links = {"upload": BANDWIDTH, "download": 6 * BANDWIDTH, "latency": OUTER["latency"]}
    limit = math.inf if window is None else window / (2 * LATENCY)
    for members in range(1, 18):
        network = Network(
            **links, collective="store", store_bandwidth=bandwidth, window=window, sharing="fair" if window else "queue"
        )
        share, others = (bandwidth or math.inf) / members, members - 1
        upload = min(BANDWIDTH, share, limit)
        download = min(6 * BANDWIDTH, share, others * limit)
        expected = 2 * LATENCY + SIZE / upload + others * SIZE / download if others else 0.0
        cost = network.allgather(members, SIZE)
        assert cost.nanoseconds == pytest.approx(expected * 1e9), members
        assert (cost.messages, cost.bytes) == ((members, members * SIZE) if others else (0, 0)), members
        assert network.allreduce(members, SIZE) == cost, "nothing adds up in a store"


def test_on_two_levels_one_worker_of_each_node_uses_the_store():
    """Trees of one and two levels in nodes of two and three, the store in between, over cards of half the links' bandwidth."""
    network = Network(**OUTER, within=INNER, node_bandwidth=BANDWIDTH / 2, collective="store")
    inside = 2 * (INSIDE_LATENCY + SIZE / INSIDE_BANDWIDTH)
    through = 2 * (LATENCY + SIZE / (BANDWIDTH / 2))
    assert network.allreduce([3, 2], SIZE).nanoseconds == pytest.approx((2 * inside + through) * 1e9)
    assert network.allreduce([3], SIZE).nanoseconds == pytest.approx(2 * inside * 1e9), "one node needs no store"
    gathered = 2 * (INSIDE_LATENCY + SIZE / INSIDE_BANDWIDTH) + 2 * (INSIDE_LATENCY + 5 * SIZE / INSIDE_BANDWIDTH)
    cost = network.allgather([3, 2], SIZE)
    assert cost.nanoseconds == pytest.approx((gathered + 2 * (LATENCY + 3 * SIZE / (BANDWIDTH / 2))) * 1e9)
    assert cost.bytes == (3 + 5 + 5 + 3 * 5) * SIZE / 5, "to leaders, to the store, from it, and to the others"


def test_a_share_of_the_bandwidth_that_links_reach_applies_to_the_store():
    network = Network(**OUTER, collective="store", store_bandwidth=BANDWIDTH, efficiency=0.5)
    assert network.effective.store_bandwidth == BANDWIDTH / 2
    assert network.effective.allgather(4, SIZE).nanoseconds == pytest.approx((2 * LATENCY + 16 * SIZE / (BANDWIDTH / 2)) * 1e9)


@pytest.mark.parametrize("library", ["nccl", "gloo"])
@pytest.mark.parametrize("members", [2, 3, 8])
def test_libraries_gather_every_message_at_every_member(library, members):
    """The n - 1 messages of the others must pass the link of each member, which also sends as many bytes on average."""
    cost = Network(**OUTER, collective=library).allgather(members, SIZE)
    assert cost.nanoseconds >= (members - 1) * SIZE / BANDWIDTH * 1e9
    most = 1.55 if (library, members) == ("gloo", 2) else 1.1  # as measured
    assert cost.nanoseconds <= (most * (members - 1) * SIZE / BANDWIDTH + 4 * members * LATENCY) * 1e9
    assert cost.bytes == pytest.approx((members - 1) * SIZE)


@pytest.mark.parametrize("algorithm", PROGRAMS)
@pytest.mark.parametrize(("nodes", "per_node"), [(1, 4), (4, 1), (2, 3), (3, 4)])
def test_on_two_levels_leaders_gather_what_their_nodes_have(algorithm, nodes, per_node):
    """One after the other to the leader, in bundles among leaders, all of it down a tree."""
    network = Network(**OUTER, within=INNER, node_bandwidth=BANDWIDTH / 2, collective=algorithm)
    cost, everybody = network.allgather([per_node] * nodes, SIZE), nodes * per_node
    if nodes == 1:
        longest, _, models = simulate_allgather(algorithm, per_node)
        seconds = sum(INSIDE_LATENCY + most * SIZE / INSIDE_BANDWIDTH for most in longest)
    else:
        longest, _, bundles = simulate_allgather(algorithm, nodes)
        depth, seconds = (per_node - 1).bit_length(), (per_node - 1) * (INSIDE_LATENCY + SIZE / INSIDE_BANDWIDTH)
        seconds += sum(LATENCY + most * per_node * SIZE / (BANDWIDTH / 2) for most in longest)
        seconds += depth * (INSIDE_LATENCY + everybody * SIZE / INSIDE_BANDWIDTH)
        models = nodes * (per_node - 1) + bundles * per_node + nodes * (per_node - 1) * everybody
    assert cost.nanoseconds == pytest.approx(seconds * 1e9)
    assert cost.bytes == pytest.approx(models * SIZE / everybody, abs=0.5)


def test_without_a_faster_way_inside_nodes_it_does_not_matter_where_workers_are():
    together, spread = (record(Allreduce(), Cluster(workers=8, nodes=nodes, network=OUTER), gradients=80) for nodes in (1, 4))
    assert together.digest() == spread.digest()


def test_members_of_one_node_do_without_the_others():
    """Allreduce-SGD on two nodes of two: 2 messages inside, a ring of two among the leaders, in every step."""
    network = {**OUTER, "within": INNER, "message_bytes": SIZE}
    schedule = record(Allreduce(), Cluster(workers=4, nodes=2, network=network), gradients=40)
    inside, outside = INSIDE_LATENCY + SIZE / INSIDE_BANDWIDTH, 2 * LATENCY + SIZE / BANDWIDTH
    assert schedule.end_ns / 1e9 == pytest.approx(10 * (1.0 + 2 * inside + outside))


def test_times_without_a_mean_cannot_be_averaged_with():
    """Alone one sends nothing, which takes no time; with others an averaging would take for ever."""
    network = {"latency": {"name": "pareto", "minimum": 0.1, "alpha": 0.9}}
    assert record(Allreduce(), Cluster(workers=1, network=network), gradients=5).end_ns == 5e9
    with pytest.raises(FredError, match="latency `pareto` has no finite mean"):
        record(Allreduce(), Cluster(workers=4, network=network), gradients=5)
