"""Where workers' time went, worked out by hand."""

import pytest

from fred.outcomes.measures import summarise
from fred.outcomes.spans import KINDS
from fred.running.execution import execute
from tests.worlds import make_run


def of(protocol="asynchronous", cluster=None, stop=None, algorithm=None) -> dict:
    """The shares of a run without arithmetic, of those who are never away."""
    whole = {"task": None, "evaluate": {}, "cluster": {"compute": {"name": "constant", "seconds": 1.0}, **(cluster or {})}}
    run = make_run(algorithm or "asgd", protocol=protocol, stop=stop or {"seconds": 50}, **whole)
    found = summarise(execute("run", run, 1))["workers_time"]
    assert found.pop("away") == 0 or cluster["faults"]
    return found


def test_who_is_twice_as_fast_waits_half_of_the_time():
    cluster = {"workers": 2, "speeds": [1.0, 0.5]}
    assert of("synchronous", cluster, algorithm="ssgd") == pytest.approx(
        {"computing": 0.75, "wasted": 0.0, "network": 0.0, "waiting": 0.25}, abs=0.01
    )


def test_a_backup_worker_who_is_interrupted_computes_for_nothing():
    cluster = {"workers": 2, "speeds": [1.0, 0.5]}
    protocol = {"name": "synchronous", "backup_workers": 1, "late": "interrupt"}
    assert of(protocol, cluster, algorithm="ssgd") == pytest.approx(
        {"computing": 0.5, "wasted": 0.5, "network": 0.0, "waiting": 0.0}, abs=0.015
    )  # gradients under way at the end are not wasted


def test_messages_to_and_from_the_server_are_on_the_network():
    """1 s of computing, 0.2 s up and, of a message of 1 MB at 10 MB/s, 0.1 s more; 0.4 s and 0.1 s down."""
    latency = {"latency": {"name": "constant", "seconds": 0.2}, "pull_latency": {"name": "constant", "seconds": 0.4}}
    cluster = {"workers": 1, "network": {**latency, "bandwidth": 1e7, "message_bytes": 10**6}}
    found = of(cluster=cluster, stop={"updates": 20})
    assert found == pytest.approx({"computing": 1 / 1.8, "wasted": 0.0, "network": 0.8 / 1.8, "waiting": 0.0})


def test_an_allreduce_is_on_the_network_and_the_rest_is_waiting():
    """Four workers' ring: six messages of 0.05 s; the fast ones wait for the slow one, 2 s a round."""
    cluster = {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.5], "network": {"latency": {"name": "constant", "seconds": 0.05}}}
    found = of("allreduce", cluster, stop={"updates": 40}, algorithm="allreduce-sgd")
    assert found == pytest.approx(
        {"computing": 5 / 4 / 2.3, "wasted": 0.0, "network": 0.3 / 2.3, "waiting": 0.75 / 2.3}, abs=0.01
    )


@pytest.mark.parametrize(
    ("protocol", "algorithm", "updates"),
    [("allreduce", "allreduce-sgd", 1), ("local-steps", "local-sgd", 8), ("eager", "eager-sgd", 1)],
)
@pytest.mark.parametrize(
    ("network", "seconds"),
    [
        ({"collective": "ring"}, 6 * 0.05),
        ({"collective": "tree"}, 4 * 0.05),
        ({"within": {"latency": {"name": "constant", "seconds": 0.01}}}, 2 * 0.05 + 2 * 0.01),
        ({"node_bandwidth": 1e6, "message_bytes": 10**5}, 2 * 0.05 + 2 * 0.05 + 2 * 0.5 * 0.1),
        ({"contention": [{"regime": {"name": "job", "nodes": [1], "slowdown": 3.0}}]}, 3 * 6 * 0.05),
    ],
)
def test_a_collective_is_on_the_network_for_as_long_as_it_takes(protocol, algorithm, updates, network, seconds):
    """Four workers on two nodes: between these, and inside each by a tree, or all in one ring; after so many seconds of work."""
    cluster = {"workers": 4, "nodes": 2, "network": {"latency": {"name": "constant", "seconds": 0.05}, **network}}
    found = of(protocol, cluster, stop={"gradients": 4 * 160}, algorithm=algorithm)
    whole = updates + seconds
    assert found == pytest.approx(
        {"computing": updates / whole, "wasted": 0, "network": seconds / whole, "waiting": 0}, abs=0.02
    )


def test_who_is_dropped_takes_part_in_the_collective_all_the_same():
    """1 s of computing, wasted by two of four; then all are in a ring of six messages of 0.5 s."""
    cluster = {"workers": 4, "network": {"latency": {"name": "constant", "seconds": 0.5}}}
    rule = {"name": "count", "workers": 2}
    found = of({"name": "cutoff", "rule": rule}, cluster, stop={"updates": 200}, algorithm="cutoff-sgd")
    assert found == pytest.approx({"computing": 0.125, "wasted": 0.125, "network": 0.75, "waiting": 0}, abs=0.005)


def test_who_waits_for_one_that_is_away_is_not_on_the_network():
    """In 20 s, ten allreduces of 0.3 s; at one of them worker 1 is away for 6.9 s, 0.1 s after it has computed."""
    cluster = {
        "workers": 4,
        "network": {"latency": {"name": "constant", "seconds": 0.05}},
        "faults": [{"name": "outage", "workers": [1], "begin": 1.1, "end": 8.0}],
    }
    found = of("allreduce", cluster, stop={"updates": 10}, algorithm="allreduce-sgd")
    whole = 8.0 + 0.3 + 9 * 1.3
    waiting = (3 * 7 + 0.1) / 4 / whole
    assert found == pytest.approx({"computing": 10 / whole, "wasted": 0, "network": 3 / whole, "waiting": waiting}, abs=1e-6)


def test_models_from_neighbours_are_on_the_network():
    """Each iteration: 1 s of computing, and 0.25 s until the neighbours' models are here."""
    network = {"latency": {"name": "constant", "seconds": 0.25}}
    found = of("gossip", {"workers": 4, "network": network}, stop={"updates": 400}, algorithm="sgp")
    assert found == pytest.approx({"computing": 0.8, "wasted": 0.0, "network": 0.2, "waiting": 0.0}, abs=0.01)


def test_without_a_clock_nothing_is_said():
    run = make_run(task=None, evaluate={}, protocol="dispatcher", stop={"updates": 10})
    assert summarise(execute("run", run, 1))["workers_time"] == dict.fromkeys(KINDS)


def test_many_workers_have_more_time_than_64_bits_of_nanoseconds():
    """Three compute, wait and compute again, 1, 2 and 1 billion seconds, while one computes twice for 3 billion."""
    cluster = {"workers": 4, "compute": {"name": "constant", "seconds": 1e9}, "speeds": [1.0, 1.0, 1.0, 1.0 / 3]}
    found = of("synchronous", cluster, stop={"updates": 2}, algorithm="ssgd")
    assert found == pytest.approx({"computing": 12 / 18, "wasted": 0.0, "network": 0.0, "waiting": 6 / 18})
