"""Messages: transfer times, and the queue at a server's card against queueing theory."""

import numpy as np
import pytest
import simpy

from fred.schedule import Verb
from fred.timing.cluster import Cluster
from fred.timing.network import Card, Links, Network
from fred.timing.protocols.asynchronous import Asynchronous
from fred.timing.protocols.synchronous import Synchronous
from tests.worlds import record


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_card_queues_like_m_d_1(load):
    """Mean wait of Poisson arrivals at a server of constant speed: load / (2 (1 - load)) services."""
    service = 1_000_000  # ns
    card = Card(bandwidth=1e9)
    arrivals = np.cumsum(np.random.default_rng(1).exponential(service / load, 400_000)).astype(int)
    waits = np.array([card.passes(int(now), size=service) - int(now) - service for now in arrivals])
    assert waits.mean() / service == pytest.approx(load / (2 * (1 - load)), rel=0.06)


def transfer_times(network: Network, size: int) -> tuple[float, float]:
    """Seconds of one upload and of one download, alone on the network."""
    env = simpy.Environment()
    links = Links(env, network, workers=1, servers=1, seed=0)
    down = links.arrival(0, size)
    env.run(env.process(links.upload(0, size)))
    return env.now / 1e9, down / 1e9


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({}, 0.01),
        ({"bandwidth": 1e6}, 0.01 + 0.5),
        ({"server_bandwidth": 2e6}, 0.01 + 0.25),
        ({"bandwidth": 1e6, "server_bandwidth": 2e6}, 0.01 + 0.5),
        ({"bandwidth": 4e6, "server_bandwidth": 2e6}, 0.01 + 0.25),
    ],
)
def test_unhindered_message_takes_latency_plus_the_slower_of_link_and_card(options, seconds):
    network = Network(latency={"name": "constant", "seconds": 0.01}, **options)
    assert transfer_times(network, 500_000) == pytest.approx((seconds, seconds))


def test_many_workers_share_the_servers_card():
    """With compute times near zero the card is all that matters: one gradient per service time."""
    cluster = Cluster(
        workers=20,
        compute={"name": "constant", "seconds": 1e-6},
        network={"server_bandwidth": 1e5, "message_bytes": 1000},
    )
    schedule = record(Asynchronous(), cluster, gradients=500)
    gaps = np.diff(schedule["time_ns"][schedule.rows(Verb.PUSH)])[50:] / 1e9
    assert gaps == pytest.approx(np.full(len(gaps), 0.01), rel=1e-3)
    assert schedule["bytes"].sum() == 1000 * np.isin(schedule["verb"], (Verb.PULL, Verb.PUSH)).sum()


def test_synchronous_round_pays_for_both_ways():
    cluster = Cluster(
        workers=4,
        compute={"name": "constant", "seconds": 1.0},
        network={"latency": {"name": "constant", "seconds": 0.1}, "server_bandwidth": 1e4, "message_bytes": 1000},
    )
    schedule = record(Synchronous(), cluster, gradients=40)
    rounds = np.diff(schedule["time_ns"][schedule.rows(Verb.COMMIT)]) / 1e9
    # The last of four replies leaves after 4 services and takes 0.1 s; its gradient comes back as the last, through a card
    # that the others' gradients have left by then.
    assert rounds == pytest.approx(np.full(9, 4 * 0.1 + 0.1 + 1.0 + 0.1 + 0.1))


@pytest.mark.parametrize(
    ("collective", "members", "seconds", "messages", "moved"),
    [
        ("ring", 8, 14 * 0.01 + 14 / 8 * 0.5, 14, 14 / 8 * 500_000),
        ("recursive-doubling", 8, 3 * (0.01 + 0.5), 3, 3 * 500_000),
        ("rabenseifner", 8, 6 * 0.01 + 14 / 8 * 0.5, 6, 14 / 8 * 500_000),
        ("ring", 1, 0, 0, 0),
        ("recursive-doubling", 5, 3 * (0.01 + 0.5), 3, 3 * 500_000),
    ],
)
def test_collectives_cost_what_the_formulas_say(collective, members, seconds, messages, moved):
    network = Network(latency={"name": "constant", "seconds": 0.01}, bandwidth=1e6, collective=collective)
    cost = network.allreduce(members, 500_000)
    assert cost.nanoseconds == pytest.approx(seconds * 1e9)
    assert (cost.messages, cost.bytes) == (messages, moved)


def test_messages_to_several_servers_pass_their_cards_at_the_same_time():
    """Half of 500 kB through each card of 1 MB/s."""
    network = Network(server_bandwidth=1e6)
    env = simpy.Environment(initial_time=0)
    links = Links(env, network, 1, 2, seed=0)
    assert links.arrival(0, 500_000) == 0.25e9
    env.run(env.process(links.upload(0, 500_000)))
    assert env.now == 0.25e9
    assert links.arrival(0, 250_000, server=1) == (0.25 + 0.25) * 1e9, "a message to one server is not shared"


def test_what_a_worker_sends_to_others_leaves_it_one_after_the_other():
    network = Network(latency={"name": "constant", "seconds": 0.1}, bandwidth=1e6)
    links = Links(simpy.Environment(initial_time=0), network, 2, 1, seed=0)
    assert [links.across(0, 500_000), links.across(0, 500_000), links.across(1, 500_000)] == [0.6e9, 1.1e9, 0.6e9]
