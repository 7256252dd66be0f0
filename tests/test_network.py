"""Messages by hand, on links where they queue and on links that they share; a card against queueing theory; devices."""

import re
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from fred import Cluster, FredError, Schedule, Verb
from fred.cluster.devices import Devices
from fred.cluster.faults import Faults
from fred.cluster.network import Network
from fred.cluster.regimes import Diurnal
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.local_steps import LocalSteps
from fred.protocols.synchronous import Allreduce
from fred.systems.wagma_sgd import GroupAveraging
from fred.timing.fair_links import FairLinks
from fred.timing.links import Card, SlowCard, Slowness
from fred.timing.loop import Loop
from fred.timing.queued_links import QueuedLinks
from tests.worlds import constant, make_run, record

_WAY = re.compile(r"(?P<kind>\w+) (?P<ends>\d+(?: \d+)?)(?: of (?P<size>[\d.]+))?(?: at (?P<begin>[\d.]+))?")


def arrivals(network: dict[str, Any], ways: str, **cluster: Any) -> list[float]:
    """Return when messages arrive, s; "upload 1, across 0 2 of 3 at 0.5": 1 MB from worker 1, 3 MB from 0 to 2 at 0.5 s."""
    machines = Cluster(**{"workers": 4, "network": network, **cluster})
    faults = Faults(machines.fault_processes(0)) if machines.faults else None
    env = Loop()
    links = (FairLinks if network.get("sharing") == "fair" else QueuedLinks)(env, machines, 0, faults)
    times: dict[int, float] = {}

    def send(number: int, kind: str, ends: str, size: str | None, begin: str | None):
        yield round(float(begin or 0) * 1e9)
        sender, *receiver = map(int, ends.split())
        count = round(float(size or 1) * 1e6)
        names = {"across": "send_between_workers", "between": "send_between_servers"}
        method = getattr(links, names.get(kind, kind))
        way = method(sender, count, *receiver) if kind in ("upload", "download") else method(sender, *receiver, count)
        if isinstance(way, int | simpy.Event):
            yield way
        else:
            yield from way
        times[number] = env.now / 1e9

    for number, text in enumerate(ways.split(", ")):
        way = _WAY.fullmatch(text)
        assert way is not None, text
        env.process(send(number, *way.groups()))
    env.run()
    return [times[number] for number in range(len(times))]


def job(**options: Any) -> dict[str, Any]:
    return {"name": "job", "nodes": [0], "slowdown": 3.0, **options}


LATENCY: dict[str, Any] = {"latency": {"name": "constant", "seconds": 0.1}}
LINK = LATENCY | {"bandwidth": 2e6}
NODES = LINK | {"within": {"bandwidth": 2e7}, "node_bandwidth": 2e6}
REGIONS = {"regions": {"bandwidth": [[8e6, 1e6], [2e6, 8e6]], "servers": 1}}
OUT = {"bandwidth": 2e6, "node_bandwidth": 2e6}
SLOW_SERVER = {"servers": [1], "latency": {"name": "constant", "seconds": 0.4}, "bandwidth": 1e6}
UNLIKE = LATENCY | {"server_bandwidth": 2e6, "servers": [SLOW_SERVER]}
SLOW_LINK = {"bandwidth": 2e6, "contention": [{"of": "workers", "regime": job(begin=0.25, end=10.0)}]}
LOADED = LATENCY | {"server_bandwidth": 2e6, "contention": [{"of": "servers", "regime": job(nodes=[1])}]}
DELAYS = {"name": "rare-delays", "probability": 1.0, "seconds": {"name": "constant", "seconds": 2.0}}
Row = tuple[dict[str, Any], str, list[float], dict[str, Any]]
QUEUED: list[Row] = [
    # alone, a message takes its latency and the time of the slower of its link and the server's card
    (LATENCY, "upload 0, download 0", [0.1, 0.1], {}),
    (LINK, "upload 0, download 0", [0.6, 0.6], {}),
    (LATENCY | {"server_bandwidth": 4e6}, "upload 0, download 0", [0.35, 0.35], {}),
    (LINK | {"bandwidth": 8e6, "server_bandwidth": 4e6}, "upload 0, download 0", [0.35, 0.35], {}),
    # parts pass the cards of several servers at the same time; a message to one server is not shared
    ({"server_bandwidth": 2e6}, "download 0, upload 0, download 0 1 of 0.5 at 0.25", [0.25, 0.25, 0.5], {"servers": 2}),
    # messages leave their sender and reach their receiver one after the other, or at once without bandwidths
    (LINK, "across 0 2, across 0 3, across 1 2", [0.6, 1.1, 1.1], {}),
    (LATENCY, "across 0 2, across 0 3, across 1 2", [0.1] * 3, {}),
    # worker 0 sends its second message to 3 at 0.5 s: by then 2's, sent later but begun at 0.2 s, is passing
    (LINK, "across 0 1, across 0 3, across 2 3 at 0.2", [0.6, 1.3, 0.8], {}),
    # inside a node its links count; others pass the cards of the senders' and of the receivers' node
    (NODES, "across 0 1, across 1 0", [0.05, 0.05], {"nodes": 2}),
    (NODES, "across 0 2, across 1 3", [0.6, 1.1], {"nodes": 2}),
    (NODES, "across 0 3, across 1 3", [0.6, 1.1], {"nodes": [1, 1, 2]}),
    (NODES | {"node_bandwidth": 4e6}, "across 0 2, across 1 3", [0.6, 0.85], {"nodes": 2}),
    (OUT, "download 0, download 1, download 2, upload 0, upload 1", [0.5, 1, 0.5, 0.5, 1], {"workers": 3, "nodes": [2, 1]}),
    # regions have their bandwidths in each direction
    (REGIONS, "upload 0, download 0, across 2 0 of 4, across 2 3 of 8", [1.0, 0.5, 2.5, 1.0], {}),
    # one of two servers has other links; of parts to both, the slower counts
    (UNLIKE, "upload 0 0, download 0 0", [0.6, 0.6], {"servers": 2}),
    (UNLIKE, "upload 0 1, download 0 1", [1.4, 1.4], {"servers": 2}),
    (UNLIKE, "upload 0, download 0", [0.9, 0.9], {"servers": 2}),
    # half of 0.5 s is done when the job comes, the other half takes 3 x 0.25 s; latencies are drawn out, too
    (SLOW_LINK, "across 0 1, across 2 3", [1.0, 0.5], {"nodes": 4}),
    (SLOW_LINK | LATENCY, "across 0 1 at 1, across 2 3 at 1", [2.8, 1.6], {"nodes": 4}),
    # one of two servers is slow
    (LOADED, "download 0 1, upload 0 1", [1.8, 1.8], {"servers": 2}),
    (LOADED, "download 0 0, upload 0 0", [0.6, 0.6], {"servers": 2}),
    (LOADED, "download 0, upload 0", [1.05, 1.05], {"servers": 2}),
    # a delay is added once
    (LINK | {"contention": [{"of": "servers", "regime": DELAYS}]}, "download 0", [2.6], {}),
]
CARDS = {"bandwidth": 3e6, "server_bandwidth": 4e6}
HALF = {"bandwidth": 1e6, "node_bandwidth": 1e6, "within": {"bandwidth": 2e6}}
DISTANT = {"bandwidth": [[1e9, 1e6], [2e6, 1e9]], "latency": [[0, 0.5], [0.5, 0]], "servers": [0, 1]}
FAR = {"regions": DISTANT, "window": 1e9, "initial_window": 1e9}
SLOW_PART = CARDS | {"bandwidth": 4e6, "contention": [{"regime": job(slowdown=4.0, begin=0.5, end=1.5, only=[0])}]}
LATE_JOB = {"server_bandwidth": 4e6, "contention": [{"of": "servers", "regime": job(slowdown=2.0, begin=1.0)}]}
UPLINK = {"links": {"a": 1e6}, "routes": [{"between": [[0, 1], "servers"], "through": ["a"]}]}
FAIR: list[Row] = [
    # uploads share the server's card; directions are apart, and latency comes first
    (CARDS, "upload 0, upload 1 of 3", [0.5, 0.5 + 2 / 3], {}),
    (LINK, "upload 0, download 0", [0.6, 0.6], {}),
    # each of several servers has its part and its card; and they send to each other
    (CARDS | {"server_bandwidth": 1e6}, "upload 0, upload 1 1, download 2", [1.0, 1.5, 0.5], {"servers": 2}),
    ({"server_bandwidth": 1e6}, "between 0 2, between 1 2, between 1 1", [2.0, 2.0, 0.0], {"servers": 3}),
    # messages between nodes share their cards; regions have their bandwidths
    (HALF, "across 0 2, across 1 3, across 0 1", [2.0, 2.0, 0.5], {"nodes": 2}),
    (REGIONS, "upload 0, download 0, across 2 0 of 4, across 2 3 of 8", [1.0, 1.0, 2.5, 1.0], {}),
    # servers of two regions share the link between these; the other direction has its own
    (FAR, "between 0 1, between 0 1, between 1 0", [2.5, 2.5, 1.0], {"servers": 2}),
    # a window limits messages over long distances
    (LINK | {"window": 1e5}, "upload 0", [2.1], {}),
    # a slow link, of 1 MB/s from 0.5 s to 1.5 s, leaves its part of the server's card to others; a slow server slows all down
    (SLOW_PART, "upload 0 of 4, upload 1 of 4", [2.0, 1.5], {}),
    (LATE_JOB, "upload 0 of 4, download 1 of 8", [1.0, 3.0], {}),
    # a shared link divides its bandwidth in each direction; worker 2 does not pass it
    (UPLINK, "upload 0, upload 1, upload 2, download 0, download 1", [2.0, 2.0, 0.0, 2.0, 2.0], {}),
]


@pytest.mark.parametrize(("sharing", "rows"), [("queue", QUEUED), ("fair", FAIR)])
def test_messages_arrive(sharing, rows):
    for network, ways, expected, cluster in rows:
        times = arrivals(network | {"sharing": sharing}, ways, **cluster)
        assert times == pytest.approx(expected, abs=1e-8), (network, ways, cluster)


@pytest.mark.parametrize("load", [0.3, 0.9])
def test_card_queues_like_m_d_1(load):
    """Mean wait of Poisson arrivals at a server of constant speed: load / (2 (1 - load)) services."""
    service = 1_000_000  # ns
    card = Card(bandwidth=1e9)
    times = np.cumsum(np.random.default_rng(1).exponential(service / load, 400_000)).astype(int).tolist()
    waits = np.array([card.passes(now, size=service) - now - service for now in times])
    assert waits.mean() / service == pytest.approx(load / (2 * (1 - load)), rel=0.06)


def test_noise_stretches_a_message_as_it_does_in_a_queue():
    noise = {"name": "persistent-noise", "deviation": 0.3, "persistence": 0.5}
    network = {"bandwidth": 1e6, "contention": [{"regime": noise}]}
    fair, queued = (arrivals(network | {"sharing": sharing}, "upload 2") for sharing in ("fair", "queue"))
    assert fair == pytest.approx(queued) and fair != [1.0]


def test_routes_make_the_tree_that_cards_of_nodes_are():
    """Each of the four workers sends to each other, and to and from the server: all arrive at the same time, to the bit."""
    inward = {"between": [[0, 1], "servers"], "through": ["a"]}, {"between": [[2, 3], "servers"], "through": ["b"]}
    route = {"between": [[0, 1], [2, 3]], "through": ["a", "-b"]}
    tree = {"links": {"a": 1e6, "b": 1e6}, "routes": [*inward, route]}
    pairs = [(sender, receiver) for sender in range(4) for receiver in range(4) if sender != receiver]
    ways = [f"across {sender} {receiver} of {0.1 * (1 + sender):.1f}" for sender, receiver in pairs]  # inside nodes, too
    ways += [f"{way} {worker} of {size}" for way, size in (("upload", 1), ("download", 2)) for worker in range(4)]
    options = {"bandwidth": 3e6, "server_bandwidth": 2e6, "sharing": "fair"}
    cards, links = (arrivals(options | layout, ", ".join(ways), nodes=2) for layout in ({"node_bandwidth": 1e6}, tree))
    assert cards == links and len(set(cards)) > 5


def test_messages_sent_again_keep_their_rate():
    """The timeout of a lost message is no latency: the window of 1 MB still gives 50 MB/s at 10 ms."""
    network = {"latency": {"name": "constant", "seconds": 0.01}, "window": 1e6, "sharing": "fair"}
    fault = {"name": "lost-messages", "share": 0.5, "again_after": 1.0, "ways": ["to-servers"]}
    ends = arrivals(network, ", ".join(["upload 0 of 10"] * 8), faults=[fault])
    assert {round(end % 1.0, 6) for end in ends} == {0.21} and max(ends) > 1


def test_too_many_changes_of_links_are_refused():
    noise = {"name": "markov-switching", "slowdown": 2.0, "fast_seconds": 0.001, "slow_seconds": 0.001}
    network = {"bandwidth": 1e6, "contention": [{"regime": noise}], "sharing": "fair"}
    with pytest.raises(FredError, match="`contention` of links changes more than 10,000 times while one message is sent"):
        arrivals(network, "upload 0 of 20")


def commits(protocol: Any, cluster: dict[str, Any], **limits: Any) -> tuple[list[float], Schedule]:
    schedule = record(protocol, Cluster(**cluster), **limits)
    return (schedule["time_ns"][schedule.rows(Verb.COMMIT)] / 1e9).tolist(), schedule


def test_a_slow_server_draws_from_a_stream_that_no_other_server_has():
    latency, slow = ({"name": "exponential", "scale": scale} for scale in (0.1, 0.3))

    def draw(**options: Any) -> list[list[int]]:
        links = QueuedLinks(Loop(), Cluster(workers=1, servers=3, network={"latency": latency, **options}), seed=0)
        return [[links.download(0, 1, server) for _ in range(50)] for server in (2, 1, 0)]

    slowed, usual = draw(servers=[{"servers": [2], "latency": slow}]), draw()
    assert slowed[1] + slowed[2] == usual[0] + usual[1]
    assert slowed[0] != usual[0]


def test_a_collective_waits_for_its_slowest_link():
    """Two steps of a ring of 0.25 s and 1 s of computing; from 2 s on worker 1's link is slow by 4."""
    slow = {"of": "workers", "regime": job(nodes=[1], slowdown=4.0, begin=2.5)}
    network = {"bandwidth": 4e3, "message_bytes": 1000, "contention": [slow]}
    times, _ = commits(Allreduce(), {"workers": 2, "nodes": 2, "network": network}, gradients=8)
    assert times == pytest.approx([1.25, 2.5, 4.5, 6.5])


TO_7 = {"links": {"a": 1e6}, "routes": [{"between": [[7], "servers"], "through": ["a"]}]}
THROUGH_A = {"links": {"a": 1e6}, "routes": [{"between": ["workers", "servers"], "through": ["a"]}]}


def test_impossible_networks_are_refused():
    for options, message in (
        ({"servers": [{"servers": [4], "bandwidth": 1e6}]}, "`network.servers` names server 4; there are 4, numbered from 0"),
        (
            {"servers": [{"servers": [1, 2], "bandwidth": 1e6}, {"servers": [2], "bandwidth": 9e6}]},
            "`servers` names 2 more than once",
        ),
        ({"contention": [{"regime": job(nodes=[7])}]}, "there are 1 nodes, numbered from 0; `nodes` names 7"),
        ({"contention": [{"of": "servers", "regime": job(nodes=[7])}]}, "there are 4 nodes, .* `nodes` names 7"),
        ({"collective": "star"}, "collective"),
        ({"bandwidth": "10G"}, "unknown card `10G`; expected bytes/s, or one of 1GbE, 10GbE"),
        ({"bandwidth": 1e6, "upload": 1e6, "download": 2e6}, "`upload` and `download` replace `bandwidth`: leave out `bandw"),
        ({"regions": {"bandwidth": [[1e6]]}, "upload": 1e6}, "`regions` define bandwidths .*: leave out `upload`"),
        ({"window": 1e6}, "`window` needs `sharing: fair`"),
        ({"initial_window": 1e6}, "`initial_window` needs `sharing: fair`"),
        (THROUGH_A, "`links` needs `sharing: fair`"),
        ({"sharing": "fair", "links": {"a": 1e6}}, "no route goes through the link `a`"),
        ({"sharing": "fair", "routes": THROUGH_A["routes"]}, "goes through `a`, which is not in `links`: none"),
        ({**TO_7, "sharing": "fair"}, "`network.routes` names worker 7; there are 4, numbered from 0"),
    ):
        with pytest.raises(FredError, match=message):
            make_run("asgd", cluster={"workers": 4, "servers": 4, "network": options})


class TestBehindTheBackwardPass:
    """Two workers that take 0.9 s for a gradient, 0.6 of them backwards; a ring of two sends twice half of 60 kB."""

    def test_rounds_wait_for_messages_that_do_not_fit_and_parts_for_the_slowest(self):
        for bandwidth, buckets, other, first in (
            (6e4, 1, 0.9, 1.9),  # 1 s, after all of it
            (6e4, 2, 0.9, 1.6),  # from 0.6 s on, without a break
            (6e4, 3, 0.9, 1.5),  # from 0.5 s on
            (6e5, 2, 0.9, 0.95),  # the second half of 0.1 s is what does not fit
            (6e4, 2, 1.8, 2.3),  # the other has half of its gradient after 1.2 s; the second half of 0.5 s begins at 1.8 s
        ):
            network = {"bandwidth": bandwidth, "buckets": buckets, "message_bytes": 60_000}
            times, schedule = commits(Allreduce(), constant(0.9, other, network=network), seconds=5)
            assert times[:2] == pytest.approx([first, 2 * first])
            adds = schedule.rows(Verb.ADD)
            assert {*schedule["bytes"][adds]} == {60_000} and {*schedule["messages"][adds]} == {2 * buckets}

    @pytest.mark.parametrize("protocol", [LocalSteps(period=3), GroupAveraging(group_size=2, period=4)])
    def test_averages_of_models_hide_as_well(self, protocol):
        def end(**network: Any) -> float:
            options = {"latency": {"name": "constant", "seconds": 0.001}, "bandwidth": 1e5, "message_bytes": 10_000, **network}
            cluster = Cluster(workers=4, compute={"name": "uniform", "low": 0.2, "high": 0.3}, network=options)
            return record(protocol, cluster, gradients=60).end_ns / 1e9

        assert end(buckets=4) < 0.97 * end() and end(buckets=1) == end()


def test_cards_have_names_which_say_gbit_per_second():
    network = Network(bandwidth="25GbE", server_bandwidth="HDR", node_bandwidth="10GbE")
    assert (network.bandwidth, network.server_bandwidth, network.node_bandwidth) == (25e9 / 8, 200e9 / 8, 10e9 / 8)


SECOND, LAW = {"name": "constant", "seconds": 1.0}, {"name": "lognormal", "median": 2.0, "sigma": 1.0}
KINDS = [{"speed": 1.0, "upload": 1e3, "download": 4e3}, {"speed": 0.5, "upload": 2e3, "download": 8e3}]


def cluster_with_devices(devices, sharing: str = "queue", **network) -> Cluster:
    return Cluster(workers=4, compute=SECOND, devices=devices, network={"sharing": sharing, **network})


@pytest.mark.parametrize("sharing", ["queue", "fair"])
def test_a_gradient_takes_the_times_of_its_worker(sharing):
    schedule = record(Asynchronous(), cluster_with_devices({"kinds": KINDS, "assignment": "in-order"}, sharing), seconds=20.0)
    for worker in range(4):
        pull, push = (next(row for row in schedule if (row.worker, row.verb) == (worker, v)) for v in (Verb.PULL, Verb.PUSH))
        kind = KINDS[worker % 2]
        down, compute, up = 1000 / kind["download"], 1 / kind["speed"], 1000 / kind["upload"]
        assert (pull.end_ns, push.time_ns) == pytest.approx((down * 1e9, (down + compute + up) * 1e9), abs=2)


def test_links_without_bandwidths_have_the_networks_and_all_have_its_efficiency():
    links = cluster_with_devices({"kinds": [{"upload": 1e3}, {}], "assignment": "in-order"}, bandwidth=5e3, efficiency=0.5)
    assert links.bandwidths("upload") == [500.0, 2500.0, 500.0, 2500.0] and links.bandwidths("download") == [2500.0] * 4
    assert Cluster(workers=2).bandwidths("upload") == [None, None]


@given(workers=st.integers(1, 40))
def test_more_workers_leave_the_devices_of_the_others_as_they_are(workers):
    for devices in (Devices(kinds=KINDS), Devices(speed=LAW, upload=LAW)):
        for many in (workers + 1, 99):
            assert devices.speeds(workers) == devices.speeds(many)[:workers]
            assert devices.bandwidths("upload", workers) == devices.bandwidths("upload", many)[:workers]


def test_draws_follow_their_distributions_and_are_independent():
    devices = Devices(speed=LAW, download=LAW)
    speeds, widths = np.log(devices.speeds(4000)), np.log(np.array(devices.bandwidths("download", 4000), float))
    for sample in (speeds, widths):
        assert (np.median(sample), sample.std()) == (pytest.approx(np.log(2), abs=0.06), pytest.approx(1, rel=0.05))
    assert abs(np.corrcoef(speeds, widths)[0, 1]) < 0.06
    assert Devices(kinds=KINDS).speeds(4000).count(1.0) / 4000 == pytest.approx(0.5, abs=0.04)


def test_a_file_is_the_table_that_it_holds(tmp_path):
    (tmp_path / "phones.csv").write_text("upload,speed,download\n1000,1,4000\n2000,0.5,8000\n")
    assert Devices(file=tmp_path / "phones.csv") == Devices(kinds=KINDS)


def test_wrong_files_and_options_are_refused(tmp_path):
    for options, message in (
        ("speed,a\n1,2\n", "column `a`, which nothing reads; expected speed, upload, download"),
        ("speed\n0\n", "expected positive numbers; found 0"),
        ("speed\n", "no devices|no rows|empty"),
        ({"devices": {}}, "expected `kinds`"),
        ({"devices": {"kinds": KINDS, "speed": SECOND}, "network": {}}, "and not both"),
        ({"devices": {"kinds": KINDS}}, "give a `network`, too"),
        ({"devices": {"speed": SECOND}, "speeds": [1.0] * 4}, "give one of `speeds`, `devices`"),
        ({"devices": {"speed": {"name": "constant", "seconds": 0.0}}}, "not positive and finite"),
    ):
        if isinstance(options, str):
            (tmp_path / "phones.csv").write_text(options)
            options = {"devices": {"file": tmp_path / "phones.csv"}, "network": {}}
        with pytest.raises(FredError, match=message):
            Cluster(workers=4, **options)


def test_a_collective_needs_links_that_messages_share():
    with pytest.raises(FredError, match=r"links alike, or `network: \{sharing: fair\}`"):
        record(Allreduce(), cluster_with_devices({"kinds": KINDS}), seconds=9.0)
    equal_links = record(Allreduce(), cluster_with_devices({"kinds": [{"upload": 1e3, "download": 1e3}]}, "fair"), seconds=9.0)
    usual = record(Allreduce(), Cluster(workers=4, compute=SECOND, network={"sharing": "fair", "bandwidth": 1e3}), seconds=9.0)
    assert equal_links.digest() == usual.digest()


def test_messages_queue_at_a_link_that_can_be_slow_as_at_any_other():
    """A link without slowdowns is a card; one that is always 1.5 times slower is a card of less bandwidth."""
    slow = Diurnal(slowdown=2.0, period=2e9, steps=2).start(0, "contention 0", np.zeros(1, int))  # 1.5 for half of a long day
    arrivals = np.cumsum(np.random.default_rng(2).exponential(1_200_000, 200)).astype(int).tolist()
    for loads, bandwidth in (([], 1e9), ([slow], 1e9 / 1.5)):
        card, link = Card(bandwidth), SlowCard(1e9, Slowness(Loop(), loads, 1), 0)
        expected = [card.passes(now, 1_000_000) for now in arrivals]
        assert [link.passes(now, 1_000_000) for now in arrivals] == expected
