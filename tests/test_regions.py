"""Networks of regions: closed forms, all rings, another simulator's clock, and today's network where all is alike."""

import math
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.network import Network
from fred.cluster.regions import Regions, _best_ring
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.local_steps import LocalSteps
from fred.protocols.outer_steps import OuterSteps
from fred.schedule.schedule import Verb
from fred.systems.ad_psgd import Pairwise
from fred.systems.halos import LocalServers
from tests.worlds import CLUSTERS, PROTOCOLS, fitting, make_run, record, rows_of

GBIT = 1.25e8  # bytes/s
HALOS = [[100, 0.537, 0.935, 0.202], [0.537, 100, 0.386, 0.117], [0.935, 0.386, 100, 0.127], [0.202, 0.117, 0.127, 100]]
SPEEDS = [
    *(0.232, 0.907, 0.828, 0.347, 0.574, 0.531, 0.722, 0.194),
    *(0.852, 0.132, 0.896, 0.107, 0.827, 0.515, 0.527, 0.788),
]
OTHERWISE = {  # protocols that need not be the same
    *("gossip", "pairwise"),  # a worker sends to one region while it sends to another
    "group-averaging",  # which asks for another collective
}
TABLE = st.integers(2, 5).flatmap(
    lambda n: st.lists(st.lists(st.integers(1, 99), min_size=n, max_size=n), min_size=n, max_size=n)
)


def times(schedule: Any, verb: Verb) -> list[float]:
    return np.unique(schedule["time_ns"][schedule.rows(verb)] / 1e9).tolist()


class TestHALoS:
    """Its four regions of four workers, 70,426,624 parameters, and 32 local steps of 238.391 ms at speed 1."""

    BANDWIDTH = [[GBIT * each for each in row] for row in HALOS]

    def cluster(self, number: int = 1, **regions: Any) -> Cluster:
        network = {"regions": {"bandwidth": self.BANDWIDTH, **regions}, "message_bytes": 4 * 70_426_624}
        compute: Any = {"name": "constant", "seconds": 0.238391}
        return Cluster(workers=16, servers=number, speeds=SPEEDS, compute=compute, network=network)

    @pytest.mark.parametrize(("protocol", "verb"), [(OuterSteps(period=32), Verb.COMMIT), (LocalSteps(period=32), Verb.SYNC)])
    def test_a_round_of_diloco_takes_as_long(self, protocol, verb):
        schedule = record(protocol, self.cluster(), seconds=320)
        rounds = times(schedule, verb)
        assert len(rounds) == 3
        assert rounds[0] == pytest.approx(71.295 + 33.272, abs=1e-3)
        assert 192 * rounds[0] / 3600 == pytest.approx(5.58, abs=0.005)

    def test_a_ring_through_the_regions_in_their_order_avoids_the_slowest_link(self):
        """0, 1, 2, 3 has links of .537, .386, .127, .202; both other rings have one of .117."""
        links = tuple(tuple(1 / each for each in row) for row in HALOS)
        assert _best_ring(links)[0] == 1 / 0.127

    def test_models_come_from_where_the_server_is(self):
        """A quarter of a gigabyte over .202 Gbit/s takes 11 s, over .117 Gbit/s 19 s."""
        for servers, seconds in ((0, 11.157), (1, 19.262)):
            schedule = record(Asynchronous(), self.cluster(servers=servers), seconds=100)
            first: Any = next(row for row in rows_of(schedule) if row.verb == "PUSH" and row.worker == 15)
            assert first.begin_ns / 1e9 == pytest.approx(seconds, abs=1e-3)
            assert (first.time_ns - first.end_ns) / 1e9 == pytest.approx(seconds, abs=1e-3)

    @pytest.mark.parametrize("pace", [None, 0.238391])
    def test_servers_of_servers_have_its_clock(self, pace):
        """Of HALoS itself: H = 8 paced, and after 32 differences of a region one message to region 0 and one back.

        By the largest of all speeds, .907, as in the paper; or by a speed of 1, as in its published simulator.
        """
        cluster = self.cluster(5, servers=[0, 1, 2, 3, 0])
        schedule = record(LocalServers(pace_seconds=pace), cluster, seconds=600)
        rows = schedule.rows(Verb.COMMIT)
        last = schedule["time_ns"][rows][schedule["replica"][rows] == 20] / 1e9
        assert last.tolist() == pytest.approx(self.walk(600, 1.0 if pace else max(SPEEDS)), abs=1e-5)
        assert len(last) > 50

    def walk(self, seconds: float, largest: float) -> list[float]:
        """Return the times at which the global server hears of others: each worker, and each exchange, is a row of times."""
        size, heard = 4 * 70_426_624, []
        for region in range(4):
            there, within = SPEEDS[4 * region : 4 * region + 4], size / self.BANDWIDTH[region][region]
            turns = [2 * within + math.ceil(8 * speed / largest) * 0.238391 / speed for speed in there]
            pushed = sorted(turn * (number + 1) for turn in turns for number in range(int(seconds / turn)))
            to, back = size / self.BANDWIDTH[region][0], size / self.BANDWIDTH[0][region]
            merged = 0.0
            while len(since := [time for time in pushed if time > merged]) >= 32:
                heard.append(since[31] + to)
                merged = heard[-1] + back
        return sorted(time for time in heard if time < seconds)


@given(table=TABLE)
def test_the_best_ring_is_the_best_of_all(table):
    links = tuple(map(tuple, table))
    others = range(1, len(links))

    def slowest(way):
        return max(links[a][b] for a, b in pairwise((*way, 0)))

    found, order = _best_ring(links)
    assert found == slowest(order) == min(slowest((0, *way)) for way in permutations(others))
    assert sorted(order) == list(range(len(links)))


class TestCollectives:
    """Two regions of three and one, 1 MB: 1 s inside, 10 s between, and half a second of latency everywhere."""

    REGIONS = Regions(bandwidth=[[1e6, 1e5], [1e5, 1e6]], latency=[[0.5, 0.5], [0.5, 0.5]])

    def test_a_ring_is_as_slow_as_its_slowest_link(self):
        assert self.REGIONS.seconds([3, 1], 1_000_000) == pytest.approx(6 * (0.5 + 2.5))

    def test_in_one_region_it_is_a_ring_there(self):
        assert self.REGIONS.seconds([3, 0], 900_000) == pytest.approx(4 * (0.5 + 0.3))
        assert self.REGIONS.seconds([1, 0], 900_000) == 0

    def test_without_a_table_latencies_are_the_networks(self):
        table = {"bandwidth": [[1e6, 1e5], [1e5, 1e6]]}
        given = Network.model_validate({"regions": table | {"latency": [[0.5, 0.5], [0.5, 0.5]]}})
        same = Network.model_validate({"regions": table, "latency": {"name": "constant", "seconds": 0.5}})
        for operation in ("allreduce", "allgather"):
            assert getattr(same, operation)([3, 1], 10**6) == getattr(given, operation)([3, 1], 10**6)

    def test_trees_and_a_ring_of_regions(self):
        """Two rounds of 1.5 s to the leaders of three, two of 0.5 + 5 s between regions, and two rounds back."""
        found = self.REGIONS.model_copy(update={"collective": "hierarchical"})
        assert found.seconds([3, 1], 1_000_000) == pytest.approx(2 * 1.5 + 2 * 5.5 + 2 * 1.5)
        messages, models = found.sent([3, 1])
        assert 4 * messages == 2 + 2 * 2 + 2
        assert 4 * models == 2 + 2 * 2 * 0.5 + 2

    def test_what_all_have_is_gathered_in_a_ring(self):
        assert self.REGIONS.gathering([3, 1], 1_000_000) == pytest.approx(3 * 10.5)


@given(protocol=PROTOCOLS.filter(lambda name: name not in OTHERWISE), cluster=CLUSTERS, seed=st.integers(0, 99))
def test_where_all_is_alike_it_is_the_usual_network(protocol, cluster, seed):
    """The same times: links of 100 kB/s, and a latency of 50 ms."""
    latency = {"name": "constant", "seconds": 0.05}
    usual = cluster.model_copy(update={"network": Network(latency=latency, bandwidth=1e5, message_bytes=5000)})
    regions = Regions(bandwidth=((1e5,) * 3,) * 3, latency=((0.05,) * 3,) * 3, servers=2)
    network = Network(latency=latency, regions=regions, message_bytes=5000)
    alike = cluster.model_copy(update={"network": network})
    one, two = (record(fitting(protocol, each), each, gradients=60, seed=seed) for each in (usual, alike))
    assert one.digest() == two.digest()


def test_models_between_workers_take_the_way_between_their_regions():
    """10 kB at 10 kB/s inside regions, and at 1 kB/s between them; workers 0 and 1, and 2 and 3, are together."""
    regions = {"bandwidth": [[1e4, 1e3], [1e3, 1e4]]}
    cluster = Cluster(
        workers=4,
        compute={"name": "constant", "seconds": 100.0},
        network={"regions": regions, "message_bytes": 10_000},
    )
    for edges, seconds in (([[0, 1], [2, 3]], 1.0), ([[0, 2], [1, 3]], 10.0)):
        protocol = Pairwise(topology={"name": "edges", "edges": edges})
        assert times(record(protocol, cluster, seconds=90), Verb.SYNC) == [seconds, 2 * seconds]


def test_tables_may_be_files(tmp_path):
    (tmp_path / "widths.csv").write_text("1e6, 2e5\n3e5,1e6\n")
    network = {"regions": {"bandwidth": str(tmp_path / "widths.csv")}}
    found = make_run(cluster={"workers": 4, "network": network}).cluster.network
    assert found is not None and found.regions is not None
    assert found.regions.bandwidth == ((1e6, 2e5), (3e5, 1e6))
    (tmp_path / "widths.csv").write_text("1e6, 2e5\n3e5,narrow\n")
    with pytest.raises(FredError, match=r"widths.csv:2: expected numbers with commas"):
        make_run(cluster={"workers": 4, "network": network})


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ({"regions": {"bandwidth": [[1.0, 2.0], [1.0]]}}, r"`bandwidth` has rows of \[1, 2\] numbers; expected 2 of 2"),
        ({"regions": {"bandwidth": [[1.0]], "servers": 1}}, "`servers` names region 1; expected 0 to 0"),
        ({"regions": {"bandwidth": [[1.0]], "workers": [0, 0]}}, "gives the regions of 2 workers; expected 4"),
        ({"regions": {"bandwidth": [[0.0]]}}, "greater than 0"),
        ({"regions": {"bandwidth": [[1.0]]}, "bandwidth": 1e6}, "leave out `bandwidth`"),
        ({"regions": {"bandwidth": [[1.0]]}, "collective": "tree"}, "leave out `collective`"),
        ({"regions": {"bandwidth": [[1.0] * 13] * 13}}, "there are 13 regions; expected 1 to 12"),
        ({"efficiency": 1.5}, "efficiency"),
    ],
)
def test_what_cannot_be_is_refused(network, said):
    with pytest.raises(FredError, match=said):
        make_run(cluster={"workers": 4, "network": network})


@pytest.mark.parametrize("protocol", [Asynchronous(), OuterSteps(), Pairwise()])
def test_links_that_reach_a_part_of_their_width_are_so_much_narrower(protocol):
    def schedule(**network: Any) -> Any:
        options = {"latency": {"name": "constant", "seconds": 0.05}, "message_bytes": 10_000, **network}
        cluster = Cluster(workers=4, compute={"name": "exponential", "scale": 0.1}, network=options)
        return record(protocol, cluster, gradients=60)

    assert schedule(bandwidth=1e5, efficiency=0.5).digest() == schedule(bandwidth=5e4).digest()
    assert schedule(bandwidth=1e5, efficiency=0.5).digest() != schedule(bandwidth=1e5).digest()
    regions = [[2e5, 1e5], [1e5, 2e5]]
    halves = [[1e5, 5e4], [5e4, 1e5]]
    assert schedule(regions={"bandwidth": regions}, efficiency=0.5).digest() == schedule(regions={"bandwidth": halves}).digest()
