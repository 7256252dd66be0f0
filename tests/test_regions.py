"""Networks of regions: closed forms, all rings, another simulator's clock, and today's network where all is alike."""

import math
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred import Cluster, FredError, Verb
from fred.cluster.network import Network
from fred.cluster.regions import Regions
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.local_steps import LocalSteps, OuterSteps
from fred.systems.ad_psgd import Pairwise
from fred.systems.halos import LocalServers
from tests.worlds import CLUSTERS, PROTOCOLS, fitting_protocol, make_run, record, rows_of

GBIT = 1.25e8  # bytes/s
HALOS = [[100, 0.537, 0.935, 0.202], [0.537, 100, 0.386, 0.117], [0.935, 0.386, 100, 0.127], [0.202, 0.117, 0.127, 100]]
SPEEDS = [*(0.232, 0.907, 0.828, 0.347, 0.574, 0.531, 0.722, 0.194), *(0.852, 0.132, 0.896, 0.107, 0.827, 0.515, 0.527, 0.788)]
OTHERWISE = {  # protocols that need not be the same
    *("gossip", "pairwise", "choco"),  # a worker sends to one region while it sends to another
    "group-averaging",  # which asks for another collective
}
MB = 1_000_000


def times(schedule: Any, verb: Verb) -> list[float]:
    return np.unique(schedule["time_ns"][schedule.rows(verb)] / 1e9).tolist()


class TestHALoS:
    """Its four regions of four workers, 70,426,624 parameters, and 32 local steps of 238.391 ms at speed 1."""

    BANDWIDTH = [[GBIT * width for width in row] for row in HALOS]
    SIZE = 4 * 70_426_624  # bytes

    def cluster(self, number: int = 1, **regions: Any) -> Cluster:
        network = {"regions": {"bandwidth": self.BANDWIDTH, **regions}, "message_bytes": self.SIZE}
        compute: Any = {"name": "constant", "seconds": 0.238391}
        return Cluster(workers=16, servers=number, speeds=SPEEDS, compute=compute, network=network)

    @pytest.mark.parametrize(("protocol", "verb"), [(OuterSteps(period=32), Verb.COMMIT), (LocalSteps(period=32), Verb.SYNC)])
    def test_a_round_of_diloco_takes_as_long(self, protocol, verb):
        rounds = times(record(protocol, self.cluster(), seconds=320), verb)
        assert len(rounds) == 3 and rounds[0] == pytest.approx(71.295 + 33.272, abs=1e-3)
        assert 192 * rounds[0] / 3600 == pytest.approx(5.58, abs=0.005)

    def test_models_come_from_where_the_server_is(self):
        """A quarter of a gigabyte over .202 Gbit/s takes 11 s, over .117 Gbit/s 19 s."""
        for servers, seconds in ((0, 11.157), (1, 19.262)):
            schedule = record(Asynchronous(), self.cluster(servers=servers), seconds=100)
            first: Any = next(row for row in rows_of(schedule) if row.verb == "PUSH" and row.worker == 15)
            assert first.begin_ns / 1e9 == pytest.approx(seconds, abs=1e-3)
            assert (first.time_ns - first.end_ns) / 1e9 == pytest.approx(seconds, abs=1e-3)

    @pytest.mark.slow
    @pytest.mark.parametrize("pace", [None, 0.238391])
    def test_servers_of_servers_have_its_clock(self, pace):
        """The system is HALoS: H = 8 paced, and after 32 pseudo-gradients of a region one message to region 0 and one back.

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
        arrivals = []
        for region in range(4):
            speeds, inner_seconds = SPEEDS[4 * region : 4 * region + 4], self.SIZE / self.BANDWIDTH[region][region]
            turns = [2 * inner_seconds + math.ceil(8 * speed / largest) * 0.238391 / speed for speed in speeds]
            pushed = sorted(turn * (number + 1) for turn in turns for number in range(int(seconds / turn)))
            to, back = self.SIZE / self.BANDWIDTH[region][0], self.SIZE / self.BANDWIDTH[0][region]
            merged = 0.0
            while len(since := [time for time in pushed if time > merged]) >= 32:
                arrivals.append(since[31] + to)
                merged = arrivals[-1] + back
        return sorted(time for time in arrivals if time < seconds)


@given(st.integers(2, 5), st.lists(st.integers(1, 99), min_size=25, max_size=25))
def test_the_best_ring_is_the_best_of_all(number, seconds):
    """Each link takes this number of seconds for a part."""
    regions, table = tuple(range(number)), [seconds[5 * row : 5 * row + number] for row in range(number)]
    slowest, ring = Regions(bandwidth=[[1 / seconds for seconds in row] for row in table]).best_ring(regions, part=1.0)

    slowest_of = lambda way: max(table[a][b] for a, b in pairwise((*way, 0)))  # noqa: E731
    best = min(slowest_of((0, *way)) for way in permutations(regions[1:]))
    assert slowest == pytest.approx(best) and ring[0] == 0
    assert slowest_of(ring) == best and sorted(ring) == list(regions)


def test_rings_and_trees_have_their_closed_forms():
    """Two regions of three and one, 1 MB: 1 s inside, 10 s between, and half a second of latency everywhere.

    Trees: two rounds of 1.5 s to the leaders of three, two of 0.5 + 5 s between regions, and two rounds back.
    """
    table: dict[str, Any] = {"bandwidth": [[1e6, 1e5], [1e5, 1e6]]}
    options = table | {"latency": [[0.5, 0.5], [0.5, 0.5]]}
    ring, trees = Regions(**options), Regions(**options, collective="hierarchical")
    assert ring.seconds([3, 1], MB) == pytest.approx(6 * (0.5 + 2.5))
    assert ring.allgather_seconds([3, 1], MB) == pytest.approx(3 * 10.5)
    assert ring.seconds([3, 0], 900_000) == pytest.approx(4 * (0.5 + 0.3)), "in one region it is a ring there"
    assert ring.seconds([1, 0], 900_000) == 0
    assert trees.seconds([3, 1], MB) == pytest.approx(2 * 1.5 + 2 * 5.5 + 2 * 1.5)
    assert trees.mean_traffic([3, 1]) == ((2 + 2 * 2 + 2) / 4, (2 + 2 * 2 * 0.5 + 2) / 4)
    explicit, networks = Network(regions=options), Network(regions=table, latency={"name": "constant", "seconds": 0.5})
    for operation in ("allreduce", "allgather"):
        assert getattr(networks, operation)([3, 1], MB) == getattr(explicit, operation)([3, 1], MB), "without a table"


@given(protocol=PROTOCOLS.filter(lambda name: name not in OTHERWISE), cluster=CLUSTERS, seed=st.integers(0, 99))
def test_where_all_is_alike_it_is_the_usual_network(protocol, cluster, seed):
    common: dict[str, Any] = {"latency": {"name": "constant", "seconds": 0.05}, "message_bytes": 5000}
    regions = Regions(bandwidth=((1e5,) * 3,) * 3, latency=((0.05,) * 3,) * 3, servers=2)
    usual, uniform = (
        cluster.model_copy(update={"network": Network(**common, **options)})
        for options in ({"bandwidth": 1e5}, {"regions": regions})
    )
    first, second = (
        record(fitting_protocol(protocol, machines), machines, gradients=60, seed=seed) for machines in (usual, uniform)
    )
    assert first.digest() == second.digest()


def test_tables_may_be_files(tmp_path):
    (tmp_path / "widths.csv").write_text("1e6, 2e5\n3e5,1e6\n")
    network = {"regions": {"bandwidth": str(tmp_path / "widths.csv")}}
    read = make_run(cluster={"workers": 4, "network": network}).cluster.network
    assert read is not None and read.regions is not None
    assert read.regions.bandwidth == ((1e6, 2e5), (3e5, 1e6))
    (tmp_path / "widths.csv").write_text("1e6, 2e5\n3e5,narrow\n")
    with pytest.raises(FredError, match=r"widths.csv:2: found 'narrow'; expected rows of numbers with commas"):
        make_run(cluster={"workers": 4, "network": network})


@pytest.mark.parametrize(
    ("network", "message"),
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
def test_impossible_regions_are_refused(network, message):
    with pytest.raises(FredError, match=message):
        make_run(cluster={"workers": 4, "network": network})


@pytest.mark.parametrize("protocol", [Asynchronous(), OuterSteps(), Pairwise()])
def test_links_that_reach_a_part_of_their_width_are_narrower_by_that_factor(protocol):
    def digest(**network: Any) -> str:
        options = {"latency": {"name": "constant", "seconds": 0.05}, "message_bytes": 10_000, **network}
        cluster = Cluster(workers=4, compute={"name": "exponential", "scale": 0.1}, network=options)
        return record(protocol, cluster, gradients=60).digest()

    assert digest(bandwidth=1e5, efficiency=0.5) == digest(bandwidth=5e4) != digest(bandwidth=1e5)
    regions, halves = ({"bandwidth": [[2 * width, width], [width, 2 * width]]} for width in (1e5, 5e4))
    assert digest(regions=regions, efficiency=0.5) == digest(regions=halves)
