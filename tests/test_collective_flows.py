"""Collective operations on links that messages share fairly: alone as their closed forms, together as max-min fair rates."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fred
from fred.cluster import patterns
from fred.cluster.cluster import Cluster
from fred.cluster.network import Network
from fred.running.execution import execute
from fred.schedule.layout import Layout
from fred.schedule.schedule import What
from fred.timing.recorder import Recorder
from fred.timing.simulation import Operation, Simulation
from tests import max_min
from tests.collective_programs import PROGRAMS
from tests.draws import Draws
from tests.worlds import make_run

SIZE = 1_000_000
LINK: dict[str, Any] = {"latency": {"name": "constant", "seconds": 0.01}, "bandwidth": 1e7}
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
    """Return how long operations take that have begun, s."""
    sim.env.run()
    return [operation.cost.nanoseconds / 1e9 for operation in operations]


class TestAlone:
    """Where nothing else is on the links, operations take the time of their closed forms."""

    @pytest.mark.parametrize("kind", ["allreduce", "allgather"])
    @pytest.mark.parametrize("algorithm", [*PROGRAMS, "nccl", "gloo"])
    @pytest.mark.parametrize(("workers", "nodes"), [*((n, None) for n in range(1, 18)), (8, 2), (9, 3), (12, 2), (10, 5)])
    @pytest.mark.parametrize("windows", [{}, {"window": 1e5, "initial_window": 1e4}])
    def test_closed_forms_hold(self, kind, algorithm, workers, nodes, windows):
        levels: dict[str, Any] = (
            {"within": {"latency": {"name": "constant", "seconds": 1e-4}, "bandwidth": 1e8}} if nodes else {}
        )
        sim = simulation(workers, nodes=nodes, collective=algorithm, **LINK, **windows, **levels)
        sim.sizes = sim.sizes._replace(summable=kind == "allreduce")
        operation = sim.add_up(workers)
        network = Network.model_validate({"sharing": "fair", "collective": algorithm, **LINK, **windows, **levels})
        expected = getattr(network, kind)(Counter(sim.node_of.tolist()).values() if nodes else workers, SIZE)
        assert durations(sim, [operation]) == [pytest.approx(expected.nanoseconds / 1e9, abs=1e-7)]
        assert operation.cost[1:3] == expected[1:3]
        assert operation.cost.moving == operation.cost.nanoseconds

    @pytest.mark.parametrize("kind", ["allreduce", "allgather"])
    @pytest.mark.parametrize("collective", ["ring", "hierarchical"])
    @pytest.mark.parametrize("members", [range(9), [0, 1, 2], [0, 3, 6], [0, 1, 4, 8], [4]])
    @pytest.mark.parametrize("latency", [REGIONS["latency"], None])
    def test_between_regions(self, kind, collective, members, latency):
        regions = REGIONS | {"collective": collective, "latency": latency}
        sim = simulation(9, regions=regions, latency={"name": "constant", "seconds": 0.04})
        sim.sizes = sim.sizes._replace(summable=kind == "allreduce")
        operation = sim.add_up(list(members))
        assert sim.network is not None
        there = [sum(worker // 3 == region for worker in members) for region in range(3)]
        expected = getattr(sim.network, kind)(there, SIZE)
        assert durations(sim, [operation]) == [pytest.approx(expected.nanoseconds / 1e9, abs=1e-7)]

    @pytest.mark.parametrize("algorithm", ["allreduce-sgd", "local-sgd", "diloco", "wagma-sgd", "sparta", "eager-sgd"])
    @pytest.mark.parametrize("buckets", [1, 3])
    def test_runs_are_those_with_queues(self, algorithm, buckets):
        """If no two operations overlap, a run is the same, but for roundings of single nanoseconds."""
        runs = [
            make_run(
                algorithm,
                cluster={
                    "workers": 4,
                    "compute": {"name": "constant", "seconds": 0.5},
                    "network": LINK | {"sharing": sharing, "message_bytes": SIZE, "buckets": buckets},
                },
                task=None,
                stop={"seconds": 30.0},
                evaluate={"points": 1},
            )
            for sharing in ("queue", "fair")
        ]
        queued, fair = (execute("run", run, 0).schedule for run in runs)
        assert len(fair) == len(queued) > 100
        for name in ("verb", "worker", "replica", "bytes", "messages"):
            assert fair[name].tolist() == queued[name].tolist(), name
        assert fair["time_ns"] == pytest.approx(queued["time_ns"], abs=5_000)


def test_buckets_that_are_all_over_when_they_are_asked_for():
    """Groups begin an activation message after their gradients; by then an idle network has sent all buckets."""
    runs = [
        make_run(
            "wagma-sgd",
            cluster={
                "workers": 4,
                "compute": {"name": "constant", "seconds": 0.5},
                "network": {"latency": LINK["latency"], "bandwidth": 1e9, "sharing": sharing, "message_bytes": 3, "buckets": 3},
            },
            task=None,
            stop={"seconds": 10.0},
            evaluate={"points": 1},
        )
        for sharing in ("queue", "fair")
    ]
    queued, fair = (execute("run", run, 0).schedule for run in runs)
    assert fair["verb"].tolist() == queued["verb"].tolist()
    assert fair["time_ns"] == pytest.approx(queued["time_ns"], abs=100)


@pytest.mark.parametrize("members", [2, 4, 8, 16])
@pytest.mark.parametrize("algorithm", PROGRAMS)
def test_who_sends_what_to_whom(algorithm, members):
    """The messages are those of programs that are simulated step by step to see that all get everybody's contribution."""
    programs, chunks = PROGRAMS[algorithm](members)
    expected = Counter[tuple[int, int]]()
    for rank, program in enumerate(programs):
        for step in program:
            if step.to is not None:
                expected[rank, step.to] += len(step.chunks)
    found = Counter[tuple[int, int]]()
    for phase in patterns.flat(algorithm, range(members)):
        for sender, receiver, volume in phase.messages:
            found[sender, receiver] += round(volume * chunks)
    assert found == expected


class TestTogether:
    """Operations and messages that share links slow each other down."""

    def test_two_groups_share_an_uplink(self):
        """Two rings of two, each across one switch's uplink of the speed of a card: both take twice as long."""
        between = {"between": [[0, 1], [2, 3]], "through": ["uplink"]}
        back = {"between": [[2, 3], [0, 1]], "through": ["-uplink"]}
        options: dict[str, Any] = {"bandwidth": 1e7, "links": {"uplink": 1e7}, "routes": [between, back]}
        sim = simulation(4, **options)
        assert durations(sim, [sim.allreduce([0, 2])]) == [pytest.approx(0.1)]
        sim = simulation(4, **options)
        assert durations(sim, [sim.allreduce([0, 2]), sim.allreduce([1, 3])]) == [pytest.approx(0.2)] * 2

    def test_one_that_begins_later(self):
        """The first has the uplink alone for half of its time, then both share it, and then the second has it alone."""
        routes = [{"between": [[0, 1], [2, 3]], "through": ["uplink"]}]
        sim = simulation(4, bandwidth=1e7, links={"uplink": 1e7}, routes=routes)
        first, second = sim.allreduce([0, 2]), sim.allreduce([1, 3], begin=50_000_000)
        assert durations(sim, [first, second]) == [pytest.approx(0.15), pytest.approx(0.15)]

    def test_an_upload_to_a_server_takes_half_of_a_workers_link(self):
        sim = simulation(4, bandwidth=1e7)
        operation, links = sim.allreduce(4), sim.links
        assert links is not None
        ended = list[float]()

        def upload():
            yield from links.upload(0, SIZE)
            ended.append(sim.now / 1e9)

        sim.process(upload())
        # The ring sends 1.5 MB over each link: 1 MB beside the upload in 0.2 s, and the rest alone.
        assert durations(sim, [operation]) == [pytest.approx(0.25)]
        assert ended == [pytest.approx(0.2)]

    def test_buckets_are_sent_while_the_rest_is_computed(self):
        """The backward pass takes 2/3 s; its two halves are sent after 2/3 and 1 s, 0.15 s each, if nothing else is sent."""
        text: dict[str, Any] = {
            "cluster": {
                "workers": 4,
                "compute": {"name": "constant", "seconds": 1.0},
                "network": {"bandwidth": 1e7, "message_bytes": 2 * SIZE, "sharing": "fair", "buckets": 2},
            },
            "stop": {"updates": 3},
            "algorithm": {"name": "allreduce-sgd", "learning_rate": 0.1},
        }
        assert fred.run(fred.scenario(text)).summary["virtual_seconds"].iloc[0] == pytest.approx(3 * 1.15)
        text["cluster"]["network"]["bandwidth"] = 2e6  # the first half takes 0.75 s, until 1.417 s
        slow = fred.scenario(text)
        assert fred.run(slow).summary["virtual_seconds"].iloc[0] == pytest.approx(3 * (2 / 3 + 1.5), abs=1e-5)

    @pytest.mark.parametrize("seed", range(40))
    def test_random_operations_end_as_by_progressive_filling(self, seed):
        """Several groups at random times on nodes with narrow cards, phase by phase, against rates recomputed at every event."""
        draws = Draws(seed)
        workers, nodes = draws.one(8, 12), draws.one(2, 4)
        network = {
            "latency": {"name": "constant", "seconds": draws.one(0.0, 0.01)},
            "bandwidth": 1e7,
            "node_bandwidth": draws.one(1e7, 2e7),
            "collective": draws.one(*PROGRAMS, "nccl"),
        }
        sim = simulation(workers, nodes=nodes, **network)
        groups = [sorted(draws.some(*range(workers))) for _ in range(draws.between(2, 4))]
        begins = [draws.between(0, 10**8) for _ in groups]
        operations = [sim.allreduce(group, begin=begin) for group, begin in zip(groups, begins, strict=True)]
        sim.env.run()
        assert sim.network is not None
        expected = reference(sim.network, sim.node_of.tolist(), groups, begins)
        ends = [begin + operation.cost.nanoseconds for begin, operation in zip(begins, operations, strict=True)]
        assert ends == pytest.approx(expected, abs=2 + 2 * 2 * 20)  # each phase begins at a whole nanosecond


def reference(network: Network, node_of: list[int], groups: list[list[int]], begins: list[int]) -> list[float]:
    """Return when operations end, ns, by the rates of all messages under way at every moment."""
    latency, workers, nodes = network.latency.mean * 1e9, len(node_of), max(node_of) + 1
    capacities = [(network.bandwidth or 0) / 1e9] * 2 * workers + [(network.node_bandwidth or 0) / 1e9] * 2 * nodes

    def path(a: int, b: int) -> tuple[int, ...]:
        own = (a, workers + b)
        return own if node_of[a] == node_of[b] else (*own, 2 * workers + node_of[a], 2 * workers + nodes + node_of[b])

    def by_node(group: list[int]) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for worker in group:
            found.setdefault(node_of[worker], []).append(worker)
        return list(found.values())

    stages = []
    for group in groups:
        parts = patterns.stages(network, "allreduce", by_node(group), None, SIZE)
        stages.append(
            [
                [[(phase.waits.rounds * latency, phase.messages) for phase in chain] for chain in stage if chain]
                for stage in parts
            ]
        )
    flows: dict[tuple[int, int], list[list]] = {}  # operation, chain: its messages under way: path, bytes left
    waiting: dict[tuple[int, int], float] = {}  # operation, chain: when its next phase begins
    ends, now = [float(begin) for begin in begins], 0.0
    open_chains: list[list] = [[] for _ in groups]

    def begin_stage(number: int, time: float) -> None:
        while stages[number]:
            open_chains[number] = stages[number].pop(0)
            if open_chains[number]:
                for chain, phases in enumerate(open_chains[number]):
                    waiting[number, chain] = time + phases[0][0]
                return
        ends[number] = time

    pending = sorted(range(len(groups)), key=lambda number: begins[number])
    while pending or waiting or flows:
        under_way = [message for some in flows.values() for message in some]
        messages = [max_min.Message(0, way, size) for way, size in under_way]
        rate = max_min.rates(messages, capacities).tolist() if messages else []
        first = min((now + each[1] / speed for each, speed in zip(under_way, rate, strict=True)), default=np.inf)
        following = min([first, *waiting.values(), *(float(begins[number]) for number in pending[:1])])
        for each, speed in zip(under_way, rate, strict=True):
            each[1] -= speed * (following - now)
        now = following
        while pending and begins[pending[0]] <= now:
            begin_stage(number := pending.pop(0), float(begins[number]))
        for key in [key for key, time in waiting.items() if time <= now]:
            del waiting[key]
            flows[key] = [[path(a, b), volume * SIZE] for a, b, volume in open_chains[key[0]][key[1]][0][1]]
        for key in list(flows):
            flows[key] = [each for each in flows[key] if each[1] > 1e-6]
            if not flows[key]:
                del flows[key]
                number, chain = key
                open_chains[number][chain].pop(0)
                if open_chains[number][chain]:
                    waiting[key] = now + open_chains[number][chain][0][0]
                elif not any(open_chains[number]):
                    begin_stage(number, now)
    return ends


@pytest.mark.parametrize("algorithm", ["allreduce-sgd", "local-sgd", "cutoff-sgd", "dropcompute"])
@pytest.mark.parametrize("crashes", [True, False])
def test_crashes_and_dropped_gradients(algorithm, crashes):
    """An operation that a crash ends begins again; a worker whose gradient is dropped takes part. As with queues, if idle."""
    faults = [{"name": "crashes", "mean_up": 3.0, "away": {"name": "constant", "seconds": 1.0}}] if crashes else []
    runs = [
        make_run(
            algorithm,
            cluster={
                "workers": 4,
                "compute": {"name": "lognormal", "median": 0.3, "sigma": 0.5},
                "network": {"bandwidth": 1e7, "message_bytes": 4 * SIZE, "sharing": sharing},
                "faults": faults,
            },
            task=None,
            stop={"seconds": 60.0},
            evaluate={"points": 1},
        )
        for sharing in ("queue", "fair")
    ]
    queued, fair = (execute("run", run, 1).schedule for run in runs)
    assert fair["verb"].tolist() == queued["verb"].tolist()
    assert fair["time_ns"] == pytest.approx(queued["time_ns"], abs=1_000)
    for what in (What.COLLECTIVE, What.LOST):
        own, other = (np.array(schedule.intervals.only(what)).T.tolist() for schedule in (fair, queued))
        assert len(own) > 3 or not crashes
        assert np.sort(own, axis=0) == pytest.approx(np.sort(other, axis=0), abs=1_000)
