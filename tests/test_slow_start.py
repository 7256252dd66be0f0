"""Slow start on shared cards, against a fluid in steps of time whose flows double their rates every round trip."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fred import Cluster
from fred.cluster.bandwidths import Connection
from fred.timing.fair_links import FairLinks
from fred.timing.loop import Loop
from tests.draws import Draws

BANDWIDTH, LATENCY, ROUND_TRIP = 1.25e9, 0.01, 0.02  # bytes/s of the card, s


def arrivals(sizes: Sequence[int], begins: Sequence[int], initial_window: float, **network: Any) -> list[float]:
    """Return when the messages of workers that share a server's card have arrived, s; they begin at `begins`, ns."""
    latency = {"name": "constant", "seconds": LATENCY}
    options = {
        "latency": latency,
        "server_bandwidth": BANDWIDTH,
        "sharing": "fair",
        "initial_window": initial_window,
        **network,
    }
    env = Loop()
    links = FairLinks(env, Cluster.model_validate({"workers": len(sizes), "network": options}), seed=0)
    ends = [0.0] * len(sizes)

    def upload(worker: int):
        yield begins[worker]
        yield from links.upload(worker, sizes[worker])
        ends[worker] = env.now / 1e9

    for worker in range(len(sizes)):
        env.process(upload(worker))
    env.run()
    return ends


def fluid(sizes: Sequence[int], begins: Sequence[float], window: float, step: float = ROUND_TRIP / 100) -> list[float]:
    """Return when flows end, s: in small steps, each gets its max-min fair share of the card, or window / round trip."""
    left, starts = np.array(sizes, float), np.array(begins) + LATENCY
    ends, time = np.zeros(len(sizes)), 0.0
    while (left > 0).any():
        age = np.floor((time - starts) / ROUND_TRIP + 1e-9)
        limits = np.where((age >= 0) & (left > 0), window / ROUND_TRIP * 2.0 ** np.clip(age, 0, 60), 0.0)
        rates, capacity = np.zeros(len(sizes)), BANDWIDTH
        for rank, flow in enumerate(order := np.argsort(limits)):  # the lowest limits first: max-min on one card
            rates[flow] = min(limits[flow], capacity / (len(order) - rank))
            capacity -= rates[flow]
        left -= rates * step
        time += step
        ends[(left <= 0) & (ends == 0)] = time
    return [*ends.tolist()]


@pytest.mark.parametrize("workers", [1, 4, 16, 64])
@pytest.mark.parametrize("window", [14_480, 89_490, 1_000_000])
def test_messages_on_one_card_take_a_round_trip_more_or_less_than_a_fluid_with_doubling_rates(workers, window):
    sizes = [10_000_000] * workers
    expected = fluid(sizes, [0.0] * workers, window)
    assert np.abs(np.array(arrivals(sizes, [0] * workers, window)) - expected).max() <= ROUND_TRIP


@pytest.mark.parametrize("seed", range(10))
def test_so_do_messages_of_different_sizes_that_begin_at_different_times(seed):
    draws = Draws(seed)
    workers, window = draws.choose(3, 10, 30), draws.choose(14_480, 200_000)
    sizes = [draws.choose(10_000, 10_000_000, draws.integer(1, 30_000_000)) for _ in range(workers)]
    begins = [draws.choose(0, draws.integer(0, 300_000_000)) for _ in range(workers)]
    expected = fluid(sizes, [begin / 1e9 for begin in begins], window)
    assert np.abs(np.array(arrivals(sizes, begins, window)) - expected).max() <= ROUND_TRIP


@pytest.mark.parametrize("workers", [25, 64])
def test_messages_whose_fair_share_is_always_below_their_window_lose_nothing(workers):
    """25 windows of 1 MB fill the card for one round trip."""
    size = 10_000_000
    expected = workers * size / BANDWIDTH + LATENCY
    assert arrivals([size] * workers, [0] * workers, 1_000_000) == pytest.approx([expected] * workers, abs=1e-8)
    assert arrivals([size] * 24, [0] * 24, 1_000_000)[0] > 24 * size / BANDWIDTH + LATENCY + 1e-4


def test_messages_that_leave_a_card_idle_wait_for_the_same_round_trips_as_one_alone():
    """Four windows of 1, 2, 4, 8 MB pass together in 3.2, 6.4, 12.8 and 25.6 ms; a round trip takes 20 ms."""
    size = 15_000_000
    expected = LATENCY + 3 * ROUND_TRIP + 4 * 8e6 / BANDWIDTH
    assert arrivals([size] * 4, [0] * 4, 1_000_000) == pytest.approx([expected] * 4, abs=1e-8)


@pytest.mark.parametrize("size", [500, 14_480, 14_481, 100_000, 3_000_000, 100_000_000])
@pytest.mark.parametrize("window", [None, 1_000_000])
def test_a_message_alone_loses_what_its_closed_form_says(size, window):
    connection = Connection(LATENCY, BANDWIDTH, window or np.inf, 14_480)
    expected = LATENCY + size / connection.rate + connection.startup_delay(size)
    assert arrivals([size], [0], 14_480, window=window) == [pytest.approx(expected, abs=1e-8)]


def test_a_message_that_others_held_back_has_a_grown_window_when_they_end():
    """Of two messages at first, the small one ends; the other one's window has grown in the meantime, by time."""
    window, round_trip_bytes = 5_000_000, BANDWIDTH * ROUND_TRIP
    sizes = [100_000_000, *[3_000_000] * 20]  # 21 shares of 1.19 MB per round trip, below the windows
    ends = arrivals(sizes, [0] * 21, window)
    assert 3 * round_trip_bytes > 21 * 3_000_000 > 2 * round_trip_bytes  # so the window is 20 MB when they end
    assert ends[1:] == pytest.approx([LATENCY + 21 * 3e6 / BANDWIDTH] * 20, abs=1e-8)
    assert ends[0] == pytest.approx(LATENCY + (100e6 + 20 * 3e6) / BANDWIDTH, abs=1e-8)
