"""Links that messages share fairly, against progressive filling in NumPy, SimGrid, and laws that any division obeys."""

import contextlib
import json
import math
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import simpy

import fred
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.contention import FOREVER
from fred.cluster.faults import Faults
from fred.cluster.network import Network
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import UNENDING, Verb, What
from fred.specification.loading import load
from fred.specification.shape import Run
from fred.timing import max_min as max_min_fair
from fred.timing.fair_links import FairLinks
from fred.timing.links import Links
from fred.timing.loop import Loop
from fred.timing.max_min import Flows, Slowdown
from fred.timing.queued_links import QueuedLinks
from tests import max_min
from tests.draws import Draws
from tests.laws import check_laws
from tests.max_min import Message
from tests.random_scenarios import document, write_files
from tests.worlds import make_run, same

SIMGRID = Path(__file__).parent / "simgrid_flows.py"


def world(seed: int, plain: bool = False) -> tuple[list[Message], list[float]]:
    """Return random messages, and the capacities of random links, bytes per ns; `plain`: equal weights, and no limits."""
    draws = Draws(seed)
    capacities = [draws.one(0.001, 0.01, 0.003, draws.real(0.001, 0.02)) for _ in range(draws.between(1, 10))]
    messages = [
        Message(
            begin=draws.one(0, 0, 10**8, draws.between(0, 10**9)),
            path=tuple(draws.some(*range(len(capacities)))[:4]),
            size=draws.one(10**5, 10**6, draws.between(1, 10**7)),
            weight=1.0 if plain else draws.one(1.0, 2.0, draws.real(0.3, 3)),
            limit=math.inf if plain else draws.one(math.inf, draws.real(0.0005, 0.02)),
        )
        for _ in range(draws.between(2, 30))
    ]
    return messages, capacities


def sent(messages: Sequence[Message], capacities: Sequence[float], slowed: Mapping[int, Slowdown] | None = None) -> list[int]:
    """Return when FRED's messages have passed, ns."""
    env = Loop()
    flows = Flows(env, capacities, slowed)
    done: list[int] = [0] * len(messages)

    def send(number: int, message: Message):
        yield message.begin
        yield flows.send(message.path, message.size, message.weight, message.limit)
        done[number] = env._now

    for number, message in enumerate(messages):
        env.process(send(number, message))
    env.run()
    return done


@pytest.mark.parametrize("seed", range(100))
def test_messages_end_as_by_progressive_filling_from_event_to_event(seed):
    messages, capacities = world(seed)
    assert np.abs(np.array(sent(messages, capacities)) - max_min.ends(messages, capacities)).max() <= 1


@pytest.mark.parametrize("seed", range(40))
def test_links_that_slow_down_at_times_change_the_rates(seed):
    messages, capacities = world(seed)
    draws = Draws(seed)
    spells = {link: sorted({draws.between(0, 10**9) for _ in range(20)}) for link in draws.some(*range(len(capacities)))}
    factors = {link: [1.0, *(draws.one(1.0, 2.0, draws.real(0.5, 5)) for _ in times)] for link, times in spells.items()}

    def slowdown(link: int, now: int) -> tuple[float, int]:
        spell = bisect_right(spells[link], now)
        return factors[link][spell], [*spells[link], FOREVER][spell]

    slowed = {link: partial(slowdown, link) for link in spells}
    changes = [(time, link, capacities[link] / slowdown(link, time)[0]) for link, times in spells.items() for time in times]
    expected = max_min.ends(messages, capacities, sorted(changes))
    assert np.abs(np.array(sent(messages, capacities, slowed)) - expected).max() <= 1


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_simultaneous_messages_does_not_matter(seed):
    messages, capacities = world(seed)
    forwards, backwards = sent(messages, capacities), sent(messages[::-1], capacities)[::-1]
    assert np.abs(np.array(forwards) - backwards).max() <= 1


@pytest.mark.parametrize("seed", range(20))
def test_rates_are_max_min_fair_at_every_moment(seed):
    """No link carries more than its capacity, and each message has its limit, or a full link where none is faster."""
    messages, capacities = world(seed)
    env = Loop()
    flows = Flows(env, capacities)
    events = {}

    def send(number: int, message: Message):
        yield message.begin
        events[number] = flows.send(message.path, message.size, message.weight, message.limit)
        yield events[number]

    for number, message in enumerate(messages):
        env.process(send(number, message))
    moved = np.zeros(len(messages))
    while env.peek() < math.inf:
        now = env.peek()
        while env.peek() == now:
            env.step()
        present = {flow.done: flow.weight * flow.group.level for on in flows._on for flow in on if flow.group}
        rate = {number: present[done] for number, done in events.items() if not done.triggered}
        for link, capacity in enumerate(capacities):
            assert sum(rate[number] for number in rate if link in messages[number].path) <= capacity * (1 + 1e-9)
        for number, own in rate.items():
            full = [
                link
                for link in messages[number].path
                if sum(rate[other] for other in rate if link in messages[other].path) >= capacities[link] * (1 - 1e-9)
            ]
            fastest = [
                link
                for link in full
                if all(
                    rate[other] / messages[other].weight <= own / messages[number].weight * (1 + 1e-9)
                    for other in rate
                    if link in messages[other].path
                )
            ]
            assert fastest or own >= messages[number].limit * (1 - 1e-9)
        following = env.peek()
        if following < math.inf:
            for number, own in rate.items():
                moved[number] += own * (following - now)
    assert moved == pytest.approx([message.size for message in messages], rel=1e-6, abs=0.1)


@cache
def simgrid() -> str:
    """Return the Python that has SimGrid, or an empty text."""
    for python in ("/usr/bin/python3", sys.executable):
        if Path(python).exists() and not subprocess.run([python, "-c", "import simgrid"], capture_output=True).returncode:
            return python
    return ""


def simulated(worlds: Sequence[tuple[list[Message], list[float]]], latencies: float = 0, gamma: float = 0) -> list[list[float]]:
    """Return when SimGrid's messages have arrived, s, in each world; link number n has n + 1 times the `latencies`, s."""
    if not simgrid():
        pytest.skip("needs Debian's python3-simgrid")
    asked = [
        {
            "capacities": [1e9 * each for each in capacities],
            "messages": [[message.begin / 1e9, message.path, message.size] for message in messages],
            "latencies": [latencies * (number + 1) for number in range(len(capacities))],
            "gamma": gamma,
        }
        for messages, capacities in worlds
    ]
    answer = subprocess.run([simgrid(), SIMGRID], input=json.dumps(asked), capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


@pytest.mark.parametrize(
    "seeds", [range(10), *(pytest.param(range(n, n + 38), marks=pytest.mark.slow) for n in range(10, 200, 38))]
)
def test_messages_arrive_when_simgrid_says(seeds):
    """200 random topologies and patterns of messages; links have no latency, as in FRED, where the sender waits for it."""
    worlds = [world(seed, plain=True) for seed in seeds]
    for (messages, capacities), arrived in zip(worlds, simulated(worlds), strict=True):
        assert np.array(sent(messages, capacities)) / 1e9 == pytest.approx(arrived, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("gamma", [0, 20_000])
def test_shares_by_latency_and_windows_are_simgrids(gamma):
    worlds = [world(seed, plain=True) for seed in range(300, 310)]
    for (messages, capacities), arrived in zip(worlds, simulated(worlds, 0.001, gamma), strict=True):
        waits = [10**6 * sum(link + 1 for link in message.path) for message in messages]
        own = [
            message._replace(begin=message.begin + wait, weight=1 / wait, limit=gamma / (2 * wait) if gamma else math.inf)
            for message, wait in zip(messages, waits, strict=True)
        ]
        assert np.array(sent(own, capacities)) / 1e9 == pytest.approx(arrived, rel=1e-9, abs=2e-9)


def links(**options: object) -> tuple[Loop, Links]:
    """Return the links of four workers on two nodes, fair unless the options say otherwise, and their clock."""
    servers = options.pop("of_servers", 1)
    network = Network.model_validate({"sharing": "fair", **options})
    env = Loop()
    kind = FairLinks if network.sharing == "fair" else QueuedLinks
    return env, kind(env, Cluster(workers=4, nodes=2, servers=servers, network=network), seed=0)


def arrivals(env: Loop, *ways: object) -> list[float]:
    """Return when each of these transfers, which begin together, has ended, s."""
    done = [0.0] * len(ways)

    def wait(number: int, way):
        if isinstance(way, int | simpy.Event):
            yield way
        else:
            yield from way
        done[number] = env.now / 1e9

    for number, way in enumerate(ways):
        env.process(wait(number, way))
    env.run()
    return done


class TestLinks:
    def test_uploads_share_the_servers_card(self):
        env, own = links(bandwidth=3e6, server_bandwidth=4e6)
        assert arrivals(env, own.upload(0, 10**6)) == [pytest.approx(1 / 3)]
        env, own = links(bandwidth=3e6, server_bandwidth=4e6)
        assert arrivals(env, own.upload(0, 10**6), own.upload(1, 3 * 10**6)) == [0.5, pytest.approx(0.5 + 2 / 3)]

    def test_both_directions_are_apart_and_latency_comes_first(self):
        env, own = links(bandwidth=1e6, latency={"name": "constant", "seconds": 0.25})
        assert arrivals(env, own.upload(0, 10**6), own.download(0, 10**6)) == [1.25, 1.25]

    def test_each_of_several_servers_has_its_part_and_its_card(self):
        env, own = links(of_servers=2, server_bandwidth=1e6, bandwidth=4e6)
        assert arrivals(env, own.upload(0, 10**6), own.upload(1, 10**6, server=1), own.download(2, 10**6)) == [1.0, 1.5, 0.5]

    def test_messages_between_nodes_share_their_cards(self):
        env, own = links(bandwidth=1e6, node_bandwidth=1e6, within={"bandwidth": 2e6})
        assert arrivals(env, own.across(0, 2, 10**6), own.across(1, 3, 10**6), own.across(0, 1, 10**6)) == [2.0, 2.0, 0.5]

    def test_regions_have_their_bandwidths(self):
        env, own = links(regions={"bandwidth": [[8e6, 1e6], [2e6, 8e6]], "servers": 1})
        ways = own.upload(0, 10**6), own.download(0, 10**6), own.across(2, 0, 4 * 10**6), own.across(2, 3, 8 * 10**6)
        assert arrivals(env, *ways) == [1.0, pytest.approx(1.0), pytest.approx(2.5), 1.0]

    def test_servers_send_to_each_other(self):
        env, own = links(of_servers=3, server_bandwidth=1e6)
        assert arrivals(env, own.between(0, 2, 10**6), own.between(1, 2, 10**6), own.between(1, 1, 10**6)) == [2.0, 2.0, 0.0]

    def test_a_window_limits_messages_over_long_distances(self):
        env, own = links(bandwidth=1e6, window=50_000, latency={"name": "constant", "seconds": 0.05})
        assert arrivals(env, own.upload(0, 10**6)) == [2.05]

    def test_a_slow_link_leaves_its_part_of_the_servers_card_to_others(self):
        """Worker 0's link has 1 MB/s from 0.5 s to 1.5 s, a quarter of the usual."""
        job = {"name": "job", "nodes": [0], "slowdown": 4.0, "begin": 0.5, "end": 1.5, "only": [0]}
        env, own = links(bandwidth=4e6, server_bandwidth=4e6, contention=[{"regime": job}])
        assert arrivals(env, own.upload(0, 4 * 10**6), own.upload(1, 4 * 10**6)) == [pytest.approx(2.0), 1.5]

    def test_a_server_that_slows_down_slows_all_messages_down(self):
        job = {"name": "job", "nodes": [0], "slowdown": 2.0, "begin": 1.0}
        env, own = links(server_bandwidth=4e6, contention=[{"of": "servers", "regime": job}])
        assert arrivals(env, own.upload(0, 4 * 10**6), own.download(1, 8 * 10**6)) == [1.0, 3.0]

    def test_noise_stretches_a_message_as_it_does_in_a_queue(self):
        noise = {"name": "persistent-noise", "deviation": 0.3, "persistence": 0.5}
        options = {"bandwidth": 1e6, "contention": [{"regime": noise}]}
        fair, queued = (
            arrivals(env, own.upload(2, 10**6)) for env, own in (links(**options), links(**options, sharing="queue"))
        )
        assert fair == pytest.approx(queued)
        assert fair != [1.0]

    def test_too_many_changes_are_refused(self, monkeypatch):
        monkeypatch.setattr(max_min_fair, "_MOST_CHANGES", 100)
        noise = {"name": "markov-switching", "slowdown": 2.0, "fast_seconds": 0.001, "slow_seconds": 0.001}
        env, own = links(bandwidth=1e6, contention=[{"regime": noise}])
        with pytest.raises(FredError, match="`contention` of links changes more than 100 times while one message is sent"):
            arrivals(env, own.upload(0, 10**6))

    def test_routes_make_the_tree_that_cards_of_nodes_are(self):
        """Each of the four workers sends to each other, and to and from the server: all arrive at the same time, to the bit."""
        up = {"between": [[0, 1], "servers"], "through": ["a"]}, {"between": [[2, 3], "servers"], "through": ["b"]}
        across = {"between": [[0, 1], [2, 3]], "through": ["a", "-b"]}
        tree = {"links": {"a": 1e6, "b": 1e6}, "routes": [*up, across]}
        ends = []
        for options in ({"node_bandwidth": 1e6}, tree):
            env, own = links(bandwidth=3e6, server_bandwidth=2e6, **options)
            pairs = [(sender, receiver) for sender in range(4) for receiver in range(4) if sender != receiver]
            # Inside a node, messages pass no card of the node in either case.
            ways: list[object] = [own.across(*pair, 10**5 * (1 + pair[0])) for pair in pairs]
            ways += [own.upload(worker, 10**6) for worker in range(4)]
            ways += [own.download(worker, 2 * 10**6) for worker in range(4)]
            ends.append(arrivals(env, *ways))
        assert ends[0] == ends[1]
        assert len(set(ends[0])) > 5

    def test_servers_of_two_regions_share_the_link_between_these(self):
        """Two messages of 1 MB from server 0 to server 1 over 1 MB/s; the other direction has its own."""
        regions = {"bandwidth": [[1e9, 1e6], [2e6, 1e9]], "latency": [[0, 0.5], [0.5, 0]], "servers": [0, 1]}
        env, own = links(of_servers=2, regions=regions, window=1e9, initial_window=1e9)
        ways = [own.between(*pair, 10**6) for pair in ((0, 1), (0, 1), (1, 0))]
        assert arrivals(env, *ways) == [2.5, 2.5, 1.0]

    def test_messages_sent_again_keep_their_rate(self):
        """The timeout of a lost message is no latency: the window of 1 MB still gives 50 MB/s at 10 ms."""
        options = {"latency": {"name": "constant", "seconds": 0.01}, "window": 1e6, "sharing": "fair"}
        faults = [{"name": "lost-messages", "share": 0.5, "again_after": 1.0, "ways": ["to-servers"]}]
        run = make_run("asgd", cluster={"workers": 2, "network": options, "faults": faults})
        env = Loop()
        own = FairLinks(env, run.cluster, 0, Faults(run.cluster.fault_processes(0)))
        ends = arrivals(env, *(own.upload(0, 10**7) for _ in range(8)))
        assert {round(end % 1.0, 6) for end in ends} == {0.21}
        assert max(ends) > 1

    def test_a_shared_link_divides_its_bandwidth_in_each_direction(self):
        """Two of three workers reach the server through a link of 1 MB/s: 1 MB each takes 2 s up, and at the same time 2 s down."""
        routes = [{"between": [[0, 1], "servers"], "through": ["uplink"]}]
        env, own = links(links={"uplink": 1e6}, routes=routes)
        ways = [own.upload(worker, 10**6) for worker in (0, 1, 2)] + [own.download(worker, 10**6) for worker in (0, 1)]
        assert arrivals(env, *ways) == [2.0, 2.0, 0.0, 2.0, 2.0]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"links": {"a": 1e6}}, "no route goes through the link `a`"),
            (
                {"routes": [{"between": ["workers", "servers"], "through": ["b"]}]},
                "goes through `b`, which is not in `links`: none",
            ),
            (
                {"links": {"a": 1e6}, "routes": [{"between": [[7], "servers"], "through": ["a"]}]},
                "`network.routes` names worker 7; there are 4, numbered from 0",
            ),
            (
                {"sharing": "queue", "links": {"a": 1e6}, "routes": [{"between": ["workers", "servers"], "through": ["a"]}]},
                "needs",
            ),
        ],
    )
    def test_wrong_routes_are_refused(self, options, said):
        with pytest.raises(FredError, match=said):
            make_run("asgd", cluster={"workers": 4, "network": {"sharing": "fair", **options}})

    def test_options_of_flows_are_refused_in_queues(self):
        with pytest.raises(FredError, match="`window` needs `sharing: fair`"):
            make_run("asgd", cluster={"workers": 2, "network": {"window": 1e6}})


def test_reads_end_when_the_model_has_arrived():
    """Reads whose end is not known when they begin: their rows say it in the end, and the run is replayed as it was recorded."""
    text = {
        "cluster": {
            "workers": 3,
            "compute": {"name": "constant", "seconds": 1.0},
            "network": {"server_bandwidth": 1e6, "message_bytes": 500_000, "sharing": "fair"},
        },
        "stop": {"updates": 6},
        "algorithm": {"name": "asgd", "learning_rate": 0.1},
    }
    schedule = fred.run(fred.scenario(text)).outcomes[0].schedule
    reads = [(row.begin_ns / 1e9, row.end_ns / 1e9) for row in schedule if row.verb == fred.Verb.PULL][:3]
    assert reads == [(0.0, 1.5)] * 3, "three models pass the card together"
    assert [row.time_ns / 1e9 for row in schedule if row.verb == fred.Verb.PUSH][:3] == [4.0] * 3


@pytest.mark.parametrize("sharing", ["queue", "fair"])
def test_a_read_that_never_ended_can_be_stored(sharing, tmp_path):
    """The last models are under way at the end, or lost for good."""
    text = {
        "cluster": {
            "workers": 3,
            "network": {"server_bandwidth": 1e6, "message_bytes": 500_000, "sharing": sharing},
            "faults": [{"name": "lost-messages", "share": 0.3}],
        },
        "stop": {"seconds": 5.2},
        "algorithm": {"name": "asgd", "learning_rate": 0.1},
    }
    result = fred.run(fred.scenario(text), out=tmp_path / "result")
    ends = result.outcomes[0].schedule["end_ns"]
    assert ends.max() == UNENDING
    assert fred.load_result(tmp_path / "result").outcomes[0].schedule["end_ns"].tolist() == ends.tolist()


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 60))])
def test_random_runs_are_the_same_again_and_inline_and_lawful(seed, tmp_path):
    """Workers that crash, servers that are offline, lost messages, aborted gradients, slow links, regions, nodes, blocks."""
    run = random_run(Draws(seed), tmp_path)
    replayed, again, inline = (outcome_of(run, seed, inline) for inline in (False, False, True))
    if isinstance(replayed, str) or isinstance(again, str) or isinstance(inline, str):
        assert replayed == again == inline
        return
    assert same(replayed, again)
    assert same(replayed, inline)
    check_laws(replayed)


def random_run(draws: Draws, folder: Path) -> Run:
    """Return a random run whose links are shared fairly."""
    draws.families |= {"network", "flows"}
    write_files(folder)
    while True:
        text = document(draws)
        with contextlib.suppress(FredError):
            if text["cluster"].get("network", {}).get("sharing") == "fair":
                (folder / "scenario.yaml").write_text(json.dumps(text))
                return next(iter(load(folder / "scenario.yaml").runs.values()))


def outcome_of(run: Run, seed: int, inline: bool) -> Outcome | str:
    """Return the run's outcome, or the message of its error."""
    try:
        return execute("run", run, seed, inline)
    except FredError as error:
        return str(error)


class Rules:
    """Messages of a run, and when they begin and end in its schedule; and their links."""

    def __init__(self, cluster: Cluster):
        network = cluster.network
        assert network is not None
        self.network, self.servers, self.node_of = network, cluster.servers, cluster.node_of.tolist()
        self.regions = network.regions
        self.region_of = self.regions.of(cluster.size) if self.regions else ()
        self.numbers: dict[tuple[str, int, int], int] = {}
        self.capacities: list[float] = []
        self.messages: list[Message] = []
        self.ends: list[tuple[int, list[int]]] = []  # in the schedule: of which messages the last one arrives then, ns

    def link(self, name: str, owner: int, bandwidth: float | None, other: int = 0) -> tuple[int, ...]:
        """Return the number of a link as a path; an empty one if it is unlimited."""
        if bandwidth is None:
            return ()
        if (name, owner, other) not in self.numbers:
            self.numbers[name, owner, other] = len(self.capacities)
            self.capacities.append(self.network.efficiency * bandwidth / 1e9)
        return (self.numbers[name, owner, other],)

    def of_worker(self, way: str, worker: int, region: int) -> tuple[int, ...]:
        """Return the links from a worker (`out`) or to it (`in`)."""
        if self.regions:
            sending, receiving = self.ends_of(way, worker, region)
            return self.link(way, worker, self.regions.bandwidth[sending][receiving], region)
        own = self.link(way, worker, self.network.bandwidth)
        return own + self.link(f"node's {way}", self.node_of[worker], self.network.node_bandwidth)

    def ends_of(self, way: str, worker: int, region: int) -> tuple[int, int]:
        """Return the regions from which and to which a worker sends (`out`) or gets (`in`) a message."""
        own = self.region_of[worker] if self.regions else 0
        return (own, region) if way == "out" else (region, own)

    def between(self, sending: int, receiving: int) -> int:
        """Return the latency of a message between two regions, ns."""
        table = self.regions.latency if self.regions else None
        return round(1e9 * table[sending][receiving]) if table else 50_000_000

    def served(self, way: str, worker: int, size: int, begin: int, end: int) -> None:
        """Add the parts of a message from a worker to all servers (`out`), or back (`in`)."""
        parts = []
        for server in range(self.servers):
            region = self.regions.of_servers(self.servers)[server] if self.regions else 0
            path = self.of_worker(way, worker, region) + self.link(f"server's {way}", server, self.network.server_bandwidth)
            parts.append(self.add(path, round(size / self.servers), begin, self.between(*self.ends_of(way, worker, region))))
        self.ends.append((end, parts))

    def across(self, sender: int, receiver: int, size: int, begin: int, end: int) -> None:
        """Add a message between workers."""
        if self.regions:
            path = self.of_worker("out", sender, self.region_of[receiver])
            path += self.of_worker("in", receiver, self.region_of[sender])
        elif self.node_of[sender] != self.node_of[receiver]:
            path = self.of_worker("out", sender, 0) + self.of_worker("in", receiver, 0)
        else:
            kind, bandwidth = ("inner ", within.bandwidth) if (within := self.network.within) else ("", self.network.bandwidth)
            path = self.link(f"{kind}out", sender, bandwidth) + self.link(f"{kind}in", receiver, bandwidth)
        latency = self.between(*self.ends_of("out", sender, self.region_of[receiver] if self.regions else 0))
        self.ends.append((end, [self.add(path, size, begin, latency)]))

    def add(self, path: tuple[int, ...], size: int, begin: int, latency: int) -> int:
        """Add a message; return its number."""
        weight = 1 / latency if self.network.weights == "latency" else 1.0
        limit = self.network.window / (2 * latency) if self.network.window else math.inf
        self.messages.append(Message(begin + latency, path, size, weight, limit))
        return len(self.messages) - 1

    def differences(self, end: int) -> list[float]:
        """Return by how much arrivals until the run's `end` differ from those by progressive filling, ns."""
        expected = max_min.ends(self.messages, self.capacities)
        found = [(said, max(expected[part] for part in parts)) for said, parts in self.ends]
        assert all(ours >= end - 1 for said, ours in found if said > end), "a message arrives only after the end"
        return [said - ours for said, ours in found if said < end]


def random_network(draws: Draws, workers: int) -> dict[str, object]:
    """Draw a cluster in which each message has the latency that `Rules` expects, and passes a link at least."""
    network: dict[str, object] = {"sharing": "fair", "message_bytes": 10**5}
    network |= {"latency": {"name": "constant", "seconds": 0.05}}
    network |= draws.one({}, {"window": 2e4}) | draws.one({}, {"weights": "latency"}) | draws.one({}, {"efficiency": 0.7})
    network |= draws.one({}, {"server_bandwidth": 2e6})
    if draws.one(True, False, False):
        table = {"bandwidth": [[9e5, 2e5], [3e5, 8e5]], "latency": [[0.01, 0.05], [0.03, 0.02]]}
        network["regions"] = table | {"servers": draws.one(0, 1)}
    else:
        within = {"within": {"latency": network["latency"], "bandwidth": 2e6}}
        network |= {"bandwidth": 1e6} | draws.one({}, {"node_bandwidth": 1.5e6}) | draws.one({}, within)
    compute = {"name": "lognormal", "median": 0.1, "sigma": 0.5}
    return {"workers": workers, "nodes": draws.one(1, 2, 3), "compute": compute, "network": network}


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("algorithm", ["asgd", "sgp"])
def test_messages_of_a_schedule_arrive_as_the_rules_say(algorithm, seed):
    """Only when they begin is taken from the schedule; all arrivals follow from that."""
    draws = Draws(seed)
    cluster = random_network(draws, draws.one(4, 6)) | ({"servers": draws.one(1, 1, 2, 3)} if algorithm == "asgd" else {})
    run = make_run(algorithm, cluster=cluster, task=None, stop={"gradients": 60}, evaluate={"points": 1})
    schedule = execute("run", run, seed).schedule
    rules = Rules(run.cluster)
    for row in schedule:
        if row.verb == Verb.PULL and row.replica in schedule.on_servers:
            rules.served("in", row.worker, row.bytes, row.begin_ns, row.end_ns)
        elif row.verb == Verb.PUSH and row.messages:
            rules.served("out", row.worker, row.bytes, row.end_ns, row.time_ns)
    for what, begin, end, _, worker, other in zip(*schedule.intervals, strict=True):
        if what == What.SENDING:
            rules.served("out", worker, 10**5, begin, UNENDING)
        elif what == What.TRIP:
            rules.across(worker, other, 10**5, begin, end if end < schedule.end_ns else UNENDING)
    differences = rules.differences(schedule.end_ns)
    assert len(differences) > 50
    assert np.abs(differences).max() <= 1
