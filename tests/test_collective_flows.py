"""Collective operations on links that messages share fairly: alone as their closed forms, together as max-min fair rates."""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

import fred
from fred import Cluster, Layout, Recorder, Schedule, Simulation, Verb
from fred.cluster import patterns
from fred.cluster.bandwidths import Connection
from fred.protocols.synchronous import Allreduce
from fred.schedule.schedule import What
from fred.timing.links import Links
from fred.timing.simulation import Operation
from tests import max_min
from tests.collective_programs import PROGRAMS
from tests.draws import Draws
from tests.worlds import constant, outcome, record

SIZE = 1_000_000
LATENCY = {"name": "constant", "seconds": 0.01}
LINK: dict[str, Any] = {"latency": LATENCY, "bandwidth": 1e7}
REGIONS: dict[str, Any] = {
    "bandwidth": [[1e8, 1e6, 3e6], [2e6, 1e8, 5e6], [4e6, 1e6, 1e8]],
    "latency": [[0.001, 0.03, 0.02], [0.03, 0.001, 0.05], [0.02, 0.05, 0.002]],
}


def simulation(workers: int, size: int = SIZE, nodes: int | None = None, **network: Any) -> Simulation:
    """Return a simulation of workers who share links fairly, without a protocol."""
    cluster = Cluster.model_validate(
        {"workers": workers, "network": {"sharing": "fair", **network}} | ({"nodes": nodes} if nodes else {})
    )
    return Simulation(cluster, Recorder(workers, Layout.peers(workers)), seed=0, sizes=size)


def durations(sim: Simulation, operations: Sequence[Operation]) -> list[float]:
    sim.env.run()
    return [operation.cost.nanoseconds / 1e9 for operation in operations]


def check_alone(sim: Simulation, kind: str, joining: Any, members: Any, row: Any) -> None:
    """Raise AssertionError unless an operation takes the time, messages and bytes of its closed form."""
    sim.sizes = sim.sizes._replace(summable=kind == "allreduce")
    operation = sim.add_up(joining)
    assert sim.network is not None
    expected = getattr(sim.network, kind)(members, SIZE)
    assert durations(sim, [operation]) == [pytest.approx(expected.nanoseconds / 1e9, abs=1e-7)], row
    assert operation.cost[1:3] == expected[1:3], row
    assert operation.cost.moving == operation.cost.nanoseconds, row


@pytest.mark.parametrize("algorithm", [*PROGRAMS, "nccl", "gloo", "store"])
def test_alone_operations_take_the_time_of_their_closed_forms(algorithm):
    sizes: list[tuple[int, Any]] = [(workers, None) for workers in (1, 2, 3, 4, 5, 7, 8, 11, 16, 17)]
    sizes += [(8, 2), (9, 3), (12, 2), (10, 5)]  # workers, nodes
    inner = {"within": {"latency": {"name": "constant", "seconds": 1e-4}, "bandwidth": 1e8}}
    windows = {"window": 1e5, "initial_window": 1e4}
    for (workers, nodes), options, kind in product(sizes, ({}, windows), ("allreduce", "allgather")):
        sim = simulation(workers, nodes=nodes, **{"collective": algorithm, **LINK, **options, **(inner if nodes else {})})
        members = Counter(sim.node_of.tolist()).values() if nodes else workers
        check_alone(sim, kind, workers, members, (workers, nodes, options, kind))


@pytest.mark.parametrize("network", [{}, {"store_bandwidth": 1.5e7}, {"bandwidth": None}, {"download": 4e7, "window": 1e5}])
def test_alone_through_a_store_too(network):
    for workers, kind in product((1, 2, 3, 8, 17), ("allreduce", "allgather")):
        options = {"collective": "store", "latency": LATENCY, "bandwidth": 1e7, **network}
        check_alone(simulation(workers, **options), kind, workers, workers, (workers, kind))


def test_an_update_is_downloaded_as_soon_as_it_is_in_the_store():
    """The last worker's upload takes 1 s, those of the others 0.1 s; all messages but the last one have arrived by then."""
    kinds = [{"upload": bandwidth, "download": 1e7} for bandwidth in (1e7, 1e7, 1e6)]
    network = {"sharing": "fair", "collective": "store"}
    cluster = Cluster(workers=3, devices={"kinds": kinds, "assignment": "in-order"}, network=network)
    sim = Simulation(cluster, Recorder(3, Layout.peers(3)), seed=0, sizes=SIZE)
    assert durations(sim, [sim.allreduce(3)]) == [pytest.approx(1.1)]


def test_operations_share_a_store_and_the_way_to_it():
    """Two pairs, each worker with 1 MB: alone .2 s, half as fast together, through the store or through one site's link."""
    routes = [{"between": [[0, 1, 2, 3], "store"], "through": ["site"]}]
    for network in ({"store_bandwidth": 2e7}, {"links": {"site": 2e7}, "routes": routes}):
        for begins, expected in (([0], [0.2]), ([0, 0], [0.4, 0.4])):
            sim = simulation(4, bandwidth=1e7, collective="store", **network)
            operations = [sim.allreduce([place, place + 2], begin=begin) for place, begin in enumerate(begins)]
            assert durations(sim, operations) == pytest.approx(expected), network


def test_checkpoints_pass_the_links_on_the_way_to_a_store_in_both_directions():
    """1 MB takes 1 s over the site's link, which the other worker does not pass."""
    routes = [{"between": [[0], "store"], "through": ["site"]}]
    failures = {"causes": [{"mean_up": 1e9}], "checkpoint": {"every_seconds": 10.0, "to": "store", "bytes": SIZE}}
    network = {"sharing": "fair", "bandwidth": 1e7, "links": {"site": 1e6}, "routes": routes}
    cluster = Cluster(workers=2, failures=failures, network=network)
    for worker, seconds in ((0, 1.0), (1, 0.1)):
        for way in ("to_store", "from_store"):
            sim = Simulation(cluster, Recorder(2, Layout.peers(2)), seed=0, sizes=SIZE)
            sim.process(getattr(sim.links, way)(("workers", worker), SIZE))
            sim.env.run()
            assert sim.now / 1e9 == pytest.approx(seconds), (worker, way)


@pytest.mark.parametrize("sharing", ["queue", "fair"])
@pytest.mark.parametrize("codec", [{"name": "top-k", "share": 0.05}, {"name": "low-bit", "bits": 4}])
def test_messages_in_a_store_have_the_size_of_their_codes(codec, sharing):
    """Each of 1 MB of parameters: the largest 5 % with their positions, or 4 bits for each number and scales."""
    links = {"upload": 1e6, "download": 4e6, "latency": LATENCY, "collective": "store", "message_bytes": SIZE}
    cluster = constant(1, 1, 1, 1, network=links | {"sharing": sharing})
    task = {"data": "digits", "model": {"name": "mlp", "hidden": [8]}, "batch_size": 4}
    system = {"name": "sparseloco", "learning_rate": 0.01, "codec": codec}
    run = fred.scenario(cluster=cluster, task=task, algorithm=system, protocol={"period": 2}, stop={"gradients": 24}, seeds=[1])
    schedule = fred.run(run).outcomes[0].schedule
    rows = schedule.rows(Verb.ADD)
    size = schedule["bytes"][rows][0] / 4
    assert set(schedule["messages"][rows].tolist()) == {4}
    assert 0.05 * SIZE < size < 0.14 * SIZE
    _, begins, ends, *_ = np.array(schedule.intervals.select(What.COLLECTIVE))
    assert (ends - begins) / 1e9 == pytest.approx(2 * 0.01 + size / 1e6 + 3 * size / 4e6, abs=1e-6)


@pytest.mark.parametrize("collective", ["ring", "hierarchical", "all-to-all", "nccl", "gloo"])
@pytest.mark.parametrize("latency", [REGIONS["latency"], None])
def test_alone_between_regions_too(collective, latency):
    options = {"regions": REGIONS | {"collective": collective, "latency": latency}, "latency": LATENCY}
    for members, kind in product(([*range(9)], [0, 1, 2], [0, 3, 6], [0, 1, 4, 8], [4]), ("allreduce", "allgather")):
        sim = simulation(9, **options)  # type: ignore[arg-type]
        by_region = [sum(worker // 3 == region for worker in members) for region in range(3)]
        check_alone(sim, kind, members, by_region, (members, kind))


def record_queued_and_fair(algorithm: str, network: dict[str, Any], seconds: float, **cluster: Any) -> list[Schedule]:
    machines: dict[str, Any] = {"workers": 4, "compute": {"name": "constant", "seconds": 0.5}, **cluster}
    clusters = [machines | {"network": network | {"sharing": sharing}} for sharing in ("queue", "fair")]
    return [outcome(algorithm, None, cluster, 1, task=None, stop={"seconds": seconds}).schedule for cluster in clusters]


@pytest.mark.parametrize("algorithm", ["allreduce-sgd", "local-sgd", "diloco", "wagma-sgd", "sparta", "eager-sgd"])
@pytest.mark.parametrize("buckets", [1, 3])
def test_runs_whose_operations_do_not_overlap_are_those_with_queues(algorithm, buckets):
    """But for roundings of single nanoseconds."""
    queued, fair = record_queued_and_fair(algorithm, LINK | {"message_bytes": SIZE, "buckets": buckets}, 30.0)
    assert len(fair) == len(queued) > 100
    for name in ("verb", "worker", "replica", "bytes", "messages"):
        assert fair[name].tolist() == queued[name].tolist(), name
    assert fair["time_ns"] == pytest.approx(queued["time_ns"], abs=5_000)


def test_buckets_may_all_have_been_sent_when_they_are_asked_for():
    """Groups begin an activation message after their gradients; by then an idle network has sent all buckets."""
    queued, fair = record_queued_and_fair("wagma-sgd", LINK | {"bandwidth": 1e9, "message_bytes": 3, "buckets": 3}, 10.0)
    assert fair["verb"].tolist() == queued["verb"].tolist()
    assert fair["time_ns"] == pytest.approx(queued["time_ns"], abs=100)


@pytest.mark.parametrize("algorithm", ["allreduce-sgd", "local-sgd", "cutoff-sgd", "dropcompute"])
@pytest.mark.parametrize("crashes", [True, False])
def test_an_operation_that_a_crash_ends_begins_again_as_with_queues(algorithm, crashes):
    """And a worker whose gradient is dropped takes part."""
    faults = [{"name": "crashes", "mean_up": 3.0, "away": {"name": "constant", "seconds": 1.0}}] if crashes else []
    compute = {"name": "lognormal", "median": 0.3, "sigma": 0.5}
    queued, fair = record_queued_and_fair(
        algorithm, {"bandwidth": 1e7, "message_bytes": 4 * SIZE}, 60.0, compute=compute, faults=faults
    )
    assert fair["verb"].tolist() == queued["verb"].tolist()
    assert fair["time_ns"] == pytest.approx(queued["time_ns"], abs=1_000)
    for kind in (What.COLLECTIVE, What.LOST):
        fair_rows, queued_rows = (np.array(schedule.intervals.select(kind)).T.tolist() for schedule in (fair, queued))
        assert len(fair_rows) > 3 or not crashes
        assert np.sort(fair_rows, axis=0) == pytest.approx(np.sort(queued_rows, axis=0), abs=1_000)


@pytest.mark.parametrize("algorithm", PROGRAMS)
def test_messages_are_those_of_programs_after_which_all_have_everybodys_contribution(algorithm):
    for members in (2, 4, 8, 16):
        programs, chunks = PROGRAMS[algorithm](members)
        expected, messages = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for rank, program in enumerate(programs):
            for step in program:
                if step.to is not None:
                    expected[rank, step.to] += len(step.chunks)
        for phase in patterns.flat(algorithm, range(members)):
            for sender, receiver, volume in phase.messages:
                messages[sender, receiver] += round(volume * chunks)
        assert messages == expected, members


class TestTogether:
    def test_groups_share_an_uplink(self):
        """Two rings of two, each across one switch's uplink of the speed of a card: alone, together, and one after 50 ms."""
        routes = [{"between": [[0, 1], [2, 3]], "through": ["uplink"]}]
        for begins, expected in (([0], [0.1]), ([0, 0], [0.2, 0.2]), ([0, 50_000_000], [0.15, 0.15])):
            sim = simulation(4, bandwidth=1e7, links={"uplink": 1e7}, routes=routes)
            operations = [sim.allreduce([place, place + 2], begin=begin) for place, begin in enumerate(begins)]
            assert durations(sim, operations) == pytest.approx(expected)

    def test_an_upload_to_a_server_takes_half_of_a_workers_link(self):
        sim = simulation(4, bandwidth=1e7)
        operation, links = sim.allreduce(4), sim.links
        assert links is not None
        end_times = list[float]()

        def upload():
            yield from links.upload(0, SIZE)
            end_times.append(sim.now / 1e9)

        sim.process(upload())
        # The ring sends 1.5 MB over each link: 1 MB beside the upload in 0.2 s, and the rest alone.
        assert durations(sim, [operation]) == [pytest.approx(0.25)]
        assert end_times == [pytest.approx(0.2)]

    @pytest.mark.parametrize(("upload", "download"), [(1e7, 3e7), (3e7, 1e7)])
    @pytest.mark.parametrize("collective", [*PROGRAMS, "nccl", "gloo"])
    def test_directions_of_a_link_are_apart(self, collective, upload, download):
        """An operation takes the slower direction, so a message in the faster one does not delay it, and others do."""
        network = {"upload": upload, "download": download, "collective": collective, "latency": LATENCY}
        check_alone(simulation(4, **network), "allreduce", 4, 4, network)
        sim, alone = simulation(4, **network), simulation(4, **network)
        assert sim.links is not None
        if download < upload:
            sim.process(sim.links.upload(0, SIZE))
        else:
            sim.links.download(0, SIZE)
        assert durations(sim, [sim.allreduce(4)]) == pytest.approx(durations(alone, [alone.allreduce(4)]))
        traffic = [Traffic(kind, 10**7 * worker, worker, 0) for worker, kind in enumerate(("up", "down", "peer"))]
        check_together(simulation(4, **network), [[0, 1, 2, 3]], [[0]], traffic)

    def test_buckets_are_sent_while_the_rest_is_computed(self):
        """The backward pass takes 2/3 s; its two halves are sent after 2/3 and 1 s, 0.15 s each, if nothing else is sent.

        At 2 MB/s the first half takes 0.75 s, until 1.417 s.
        """
        for bandwidth, seconds in ((1e7, 1.15), (2e6, 2 / 3 + 1.5)):
            network = {"bandwidth": bandwidth, "message_bytes": 2 * SIZE, "sharing": "fair", "buckets": 2}
            schedule = record(Allreduce(), Cluster(**constant(1, 1, 1, 1, network=network)), gradients=12)
            assert schedule.end_ns / 1e9 == pytest.approx(3 * seconds, abs=1e-5)

    @pytest.mark.parametrize("seed", range(40))
    def test_random_operations_end_as_by_progressive_filling(self, seed):
        """Several groups at random times on nodes with narrow cards, phase by phase, against rates recomputed at every event."""
        draws = Draws(seed)
        workers, nodes = draws.choose(8, 12), draws.choose(2, 4)
        network = {
            "latency": {"name": "constant", "seconds": draws.choose(0.0, 0.01)},
            "bandwidth": 1e7,
            "node_bandwidth": draws.choose(1e7, 2e7),
            "collective": draws.choose(*PROGRAMS, "nccl"),
        }
        sim = simulation(workers, nodes=nodes, **network)
        groups = [sorted(draws.choose_some(*range(workers))) for _ in range(draws.integer(2, 4))]
        begins = [draws.integer(0, 10**8) for _ in groups]
        operations = [sim.allreduce(group, begin=begin) for group, begin in zip(groups, begins, strict=True)]
        sim.env.run()
        expected = reference(sim, groups, [[begin] for begin in begins])[0]
        ends = [begin + operation.cost.nanoseconds for begin, operation in zip(begins, operations, strict=True)]
        assert ends == pytest.approx(expected, abs=2 + 2 * 2 * 20)  # each phase begins at a whole nanosecond

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("algorithm", [*PROGRAMS, "nccl", "gloo", "store"])
    def test_operations_and_other_messages_slow_each_other_as_by_progressive_filling(self, algorithm, seed):
        """Two groups that share workers or cards, next to messages to and from a server and between workers."""
        draws = Draws(seed)
        nodes = draws.choose(1, 2)
        cards: dict[str, Any] = {"bandwidth": 1e7, "server_bandwidth": 2e7} | ({"node_bandwidth": 1.5e7} if nodes > 1 else {})
        sim = simulation(8, nodes=nodes, latency=LATENCY, collective=algorithm, **cards)
        groups = [[0, 1, 4, 5], sorted(draws.choose_some(*range(8)))]
        begins = [0, draws.integer(0, 10**8)]
        pairs = [(worker := draws.integer(0, 7), (worker + draws.integer(1, 7)) % 8) for _ in range(9)]
        traffic = [Traffic(draws.choose("up", "down", "peer"), draws.integer(0, 3 * 10**8), *pair) for pair in pairs]
        check_together(sim, groups, [[begin] for begin in begins], traffic)

    @pytest.mark.parametrize("algorithm", [*PROGRAMS, "nccl", "gloo", "store"])
    def test_buckets_and_pulls_slow_each_other_as_by_progressive_filling(self, algorithm):
        """Three buckets are computed after 5/9, 7/9 and 1 s; a worker pulls 1 MB after .5, .6, ... 1.3 s."""
        sim = simulation(4, latency=LATENCY, bandwidth=1e7, buckets=3, collective=algorithm)
        for worker in range(4):
            assert sim.begin(worker, sim.own(worker)).end == 10**9
        ready = [round(10**9 * (1 - 2 / 3 * (1 - part / 3))) for part in (1, 2, 3)]
        check_together(
            sim, [[0, 1, 2, 3]], [ready], [Traffic("down", begin, 2, 2) for begin in range(5 * 10**8, 14 * 10**8, 10**8)]
        )

    @pytest.mark.parametrize(
        ("collective", "volume"), [("ring", 1.0), ("recursive-doubling", 1.0), ("nccl", 1.011), ("gloo", 1.02)]
    )
    def test_groups_of_wagma_share_an_uplink(self, collective, volume):
        """Pairs are inside racks and across the uplink in turn; across, both pairs share it. Gradients take 1 s."""
        routes = [{"between": [[0, 1], [2, 3]], "through": ["uplink"]}]
        network = {"bandwidth": 1e7, "message_bytes": SIZE, "sharing": "fair", "links": {"uplink": 1e7}, "routes": routes}
        options = {"group_size": 2, "group_waits": True, "period": None, "group_collective": collective}
        stop = {"seconds": 30.0}
        schedule = outcome("wagma-sgd", options, constant(1, 1, 1, 1, network=network), 1, task=None, stop=stop).schedule
        times = np.unique(schedule["time_ns"][schedule.rows(Verb.SYNC)]) / 1e9
        assert sorted(np.diff(times)[:2]) == pytest.approx([1 + 0.1 * volume, 1 + 0.2 * volume], abs=1e-6)


class Traffic(NamedTuple):
    """A message of 1 MB: `up` to a server, `down` from it, or to a `peer`; when it is sent, ns."""

    kind: str
    begin: int
    worker: int
    other: int


def check_together(sim: Simulation, groups: list[list[int]], ready: list[list[int]], traffic: list[Traffic]) -> None:
    """Raise AssertionError unless operations and messages end as `reference` says, and slow each other."""
    arrived = [0] * len(traffic)
    assert sim.links is not None

    def send(links: Links, number: int, message: Traffic):
        yield message.begin
        if message.kind == "down":
            yield links.download(message.worker, SIZE)
        elif message.kind == "up":
            yield from links.upload(message.worker, SIZE)
        else:
            yield from links.send_between_workers(message.worker, message.other, SIZE)
        arrived[number] = sim.now

    for number, message in enumerate(traffic):
        sim.process(send(sim.links, number, message))
    operations = [sim.allreduce(group, begin=times[-1]) for group, times in zip(groups, ready, strict=True)]
    sim.env.run()
    ends = [times[-1] + operation.cost.nanoseconds for times, operation in zip(ready, operations, strict=True)]
    expected = reference(sim, groups, ready, traffic)
    assert ends == pytest.approx(expected[0], abs=300)  # each phase begins at a whole nanosecond
    assert arrived == pytest.approx(expected[1], abs=300)
    alone = [reference(sim, groups, ready)[0], reference(sim, [], [], traffic)[1]]
    assert max(expected[0][0] - alone[0][0], max(np.subtract(expected[1], alone[1]))) > 10**6, "they have not met"


Steps = list[
    tuple[float, list[tuple[tuple[int, ...], float]]]
]  # successive waits, ns, and the messages after them: path, bytes


class Machines:
    """The cards of a simulation as numbered links, and the paths and phases of what is sent."""

    def __init__(self, sim: Simulation):
        assert sim.network is not None
        self.network, self.node_of = sim.network, sim.node_of.tolist()
        self.latency = self.network.latency.mean * 1e9
        workers, nodes = len(self.node_of), max(self.node_of) + 1
        self.into_worker, self.out_of_node, self.into_node, self.server = (
            workers,
            2 * workers,
            2 * workers + nodes,
            2 * (workers + nodes),
        )
        cards = [
            (self.network.upload or self.network.bandwidth, workers),
            (self.network.download or self.network.bandwidth, workers),
            (self.network.node_bandwidth, 2 * nodes),
            (self.network.server_bandwidth, 2),
            (self.network.store_bandwidth, 2),
        ]
        self.capacities = [(bandwidth or np.inf) / 1e9 for bandwidth, number in cards for _ in range(number)]

    def path(self, a: int, b: int) -> tuple[int, ...]:
        if b == patterns.STORE:
            return (a, self.out_of_node + self.node_of[a], self.server + 2)
        if a == patterns.STORE:
            return (self.server + 3, self.into_node + self.node_of[b], self.into_worker + b)
        links, nodes = (a, self.into_worker + b), (self.node_of[a], self.node_of[b])
        return links if nodes[0] == nodes[1] else (*links, self.out_of_node + nodes[0], self.into_node + nodes[1])

    def connection(self, messages: patterns.Messages) -> Connection:
        """Return the connection of all messages of a phase, which pass equal links."""
        (a, b, _), *_ = messages
        return Connection(self.latency / 1e9, 1e9 * min(self.capacities[link] for link in self.path(a, b)))

    def message(self, message: Traffic) -> Steps:
        worker, node = message.worker, self.node_of[message.worker]
        paths = {
            "up": (worker, self.out_of_node + node, self.server),
            "down": (self.into_worker + worker, self.into_node + node, self.server + 1),
            "peer": self.path(worker, message.other),
        }
        return [(self.latency, [(paths[message.kind], SIZE)])]

    def stages(self, group: list[int], size: int) -> list[list[Steps]]:
        """Return the messages of an allreduce."""
        by_node = [[worker for worker in group if self.node_of[worker] == node] for node in dict.fromkeys(self.node_of)]
        groups = [of_node for of_node in by_node if of_node] if self.network.two_levels else [group]
        return [
            [
                [
                    (
                        1e9 * phase.waits.seconds(size, self.connection(phase.messages)),
                        [(self.path(a, b), volume * size) for a, b, volume in phase.messages],
                    )
                    for phase in chain
                ]
                for chain in stage
            ]
            for stage in patterns.stages(self.network, "allreduce", groups, None, size)
        ]


def reference(
    sim: Simulation, groups: list[list[int]], ready: list[list[int]], traffic: Sequence[Traffic] = ()
) -> tuple[list[float], list[float]]:
    """Return when operations and other messages end, ns, by the rates of all messages under way at every moment.

    Each operation sends as many buckets as it has times in `ready`, ns, one after the other and not before these times.
    """
    machines = Machines(sim)
    stages = [
        [(time, stage) for time in times for stage in machines.stages(group, SIZE // len(times))]
        for group, times in zip(groups, ready, strict=True)
    ]
    stages += [[(message.begin, [machines.message(message)])] for message in traffic]
    ends = ends_of([times[0] for times in ready] + [message.begin for message in traffic], stages, machines.capacities)
    return ends[: len(ready)], ends[len(ready) :]


def ends_of(begins: list[int], stages: list[list[tuple[int, list[Steps]]]], capacities: list[float]) -> list[float]:
    """Return when operations end, ns: of stages that begin after a time, whose chains of phases run at the same time."""
    flows: dict[tuple[int, int], list[list]] = {}  # operation, chain: its messages under way: path, bytes left
    waiting: dict[tuple[int, int], float] = {}  # operation, chain: when its next phase begins
    ends, now = [float(begin) for begin in begins], 0.0
    open_chains: list[list] = [[] for _ in begins]

    def begin_stage(number: int, time: float) -> None:
        while stages[number]:
            ready_at, chains = stages[number].pop(0)
            time, open_chains[number] = max(time, ready_at), [chain for chain in chains if chain]
            if open_chains[number]:
                waiting.update({(number, chain): time + phases[0][0] for chain, phases in enumerate(open_chains[number])})
                return
        ends[number] = time

    pending = sorted(range(len(begins)), key=lambda number: begins[number])
    while pending or waiting or flows:
        under_way = [message for flow in flows.values() for message in flow]
        messages = [max_min.Message(0, way, size) for way, size in under_way]
        rate = max_min.rates(messages, capacities).tolist() if messages else []
        first = min((now + message[1] / speed for message, speed in zip(under_way, rate, strict=True)), default=np.inf)
        following = min([first, *waiting.values(), *(float(begins[number]) for number in pending[:1])])
        for message, speed in zip(under_way, rate, strict=True):
            message[1] -= speed * (following - now)
        now = following
        while pending and begins[pending[0]] <= now:
            begin_stage(number := pending.pop(0), float(begins[number]))
        for key in [key for key, time in waiting.items() if time <= now]:
            del waiting[key]
            flows[key] = [[*message] for message in open_chains[key[0]][key[1]][0][1]]
        for key in list(flows):
            flows[key] = [message for message in flows[key] if message[1] > 1e-6]
            if not flows[key]:
                del flows[key]
                chains, chain = open_chains[key[0]], open_chains[key[0]][key[1]]
                chain.pop(0)
                if chain:
                    waiting[key] = now + chain[0][0]
                elif not any(chains):
                    begin_stage(key[0], now)
    return ends
