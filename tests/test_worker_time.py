"""Where workers' time went: worked out by hand, and looked up moment by moment."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fred.outcomes.measures import summarise
from fred.outcomes.worker_time import KINDS, shares
from fred.running.execution import execute
from fred.schedule import Schedule, Verb
from tests.worlds import CLUSTERS, PROTOCOLS, fitting, make_run, record, rows_of


def of(protocol="asynchronous", cluster=None, stop=None, algorithm=None) -> dict:
    """The shares of a run without arithmetic."""
    whole = {"task": None, "evaluate": {}, "cluster": {"compute": {"name": "constant", "seconds": 1.0}, **(cluster or {})}}
    run = make_run(algorithm or "asgd", protocol=protocol, stop=stop or {"seconds": 50}, **whole)
    return summarise(execute("run", run, 1))["workers_time"]


def test_who_is_twice_as_fast_waits_half_of_the_time():
    cluster = {"workers": 2, "speeds": [1.0, 0.5]}
    assert of("synchronous", cluster, algorithm="ssgd") == pytest.approx(
        {"computing": 0.75, "in_vain": 0.0, "network": 0.0, "waiting": 0.25}, abs=0.01
    )


def test_a_backup_worker_who_is_interrupted_computes_in_vain():
    cluster = {"workers": 2, "speeds": [1.0, 0.5]}
    protocol = {"name": "synchronous", "backup_workers": 1, "late": "interrupt"}
    assert of(protocol, cluster, algorithm="ssgd") == pytest.approx(
        {"computing": 0.5, "in_vain": 0.5, "network": 0.0, "waiting": 0.0}, abs=0.01
    )


def test_messages_to_and_from_the_server_are_on_the_network():
    """1 s of computing, 0.2 s up and, of a message of 1 MB at 10 MB/s, 0.1 s more; 0.4 s and 0.1 s down."""
    latency = {"latency": {"name": "constant", "seconds": 0.2}, "pull_latency": {"name": "constant", "seconds": 0.4}}
    cluster = {"workers": 1, "network": {**latency, "bandwidth": 1e7, "message_bytes": 10**6}}
    found = of(cluster=cluster, stop={"updates": 20})
    assert found == pytest.approx({"computing": 1 / 1.8, "in_vain": 0.0, "network": 0.8 / 1.8, "waiting": 0.0})


def test_an_allreduce_is_on_the_network_and_the_rest_is_waiting():
    """Four workers' ring: six messages of 0.05 s; the fast ones wait for the slow one, 2 s a round."""
    cluster = {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.5], "network": {"latency": {"name": "constant", "seconds": 0.05}}}
    found = of("allreduce", cluster, stop={"updates": 40}, algorithm="allreduce-sgd")
    assert found == pytest.approx(
        {"computing": 5 / 4 / 2.3, "in_vain": 0.0, "network": 0.3 / 2.3, "waiting": 0.75 / 2.3}, abs=0.01
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
        {"computing": updates / whole, "in_vain": 0, "network": seconds / whole, "waiting": 0}, abs=0.02
    )


def test_who_is_dropped_takes_part_in_the_collective_all_the_same():
    """1 s of computing, in vain for two of four; then all are in a ring of six messages of 0.5 s."""
    cluster = {"workers": 4, "network": {"latency": {"name": "constant", "seconds": 0.5}}}
    rule = {"name": "static", "workers": 2}
    found = of({"name": "cutoff", "rule": rule}, cluster, stop={"updates": 200}, algorithm="cutoff-sgd")
    assert found == pytest.approx({"computing": 0.125, "in_vain": 0.125, "network": 0.75, "waiting": 0}, abs=0.005)


def test_who_waits_for_one_that_is_away_is_not_on_the_network():
    """In 20 s, ten allreduces of 0.3 s; at one of them worker 1 is away for 7 s after it has computed."""
    cluster = {
        "workers": 4,
        "network": {"latency": {"name": "constant", "seconds": 0.05}},
        "faults": [{"name": "outage", "workers": [1], "begin": 1.1, "end": 8.0}],
    }
    found = of("allreduce", cluster, stop={"updates": 10}, algorithm="allreduce-sgd")
    whole = 8.0 + 0.3 + 9 * 1.3
    assert found == pytest.approx({"computing": 10 / whole, "in_vain": 0, "network": 3 / whole, "waiting": 7 / whole}, abs=1e-6)


def test_who_gets_models_from_neighbours_waits_for_them():
    """Each iteration: 1 s of computing, and 0.25 s until the neighbours' models are here."""
    network = {"latency": {"name": "constant", "seconds": 0.25}}
    found = of("gossip", {"workers": 4, "network": network}, stop={"updates": 400}, algorithm="sgp")
    assert found == pytest.approx({"computing": 0.8, "in_vain": 0.0, "network": 0.0, "waiting": 0.2}, abs=0.01)


def test_without_a_clock_nothing_is_said():
    run = make_run(task=None, evaluate={}, protocol="dispatcher", stop={"updates": 10})
    assert summarise(execute("run", run, 1))["workers_time"] == dict.fromkeys(KINDS)


@given(CLUSTERS, PROTOCOLS, st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_shares_are_those_found_by_looking_moment_by_moment(cluster, name, seed):
    protocol = fitting(name, cluster)
    schedule = record(protocol, cluster, gradients=12, seconds=50, seed=seed)
    on_servers = protocol.layout(cluster).on_servers
    found = shares(schedule, on_servers)
    assume(schedule.end_ns)
    assert sum(found[kind] or 0 for kind in KINDS) == pytest.approx(1.0)
    looked = moment_by_moment(schedule, on_servers)
    assert [found[kind] for kind in KINDS] == pytest.approx(looked, abs=0.02)


def moment_by_moment(schedule: Schedule, on_servers) -> list[float]:
    """What each worker is at in the middle of each of many equal steps."""
    totals = np.zeros(4)
    spans: list[list[tuple[int, int, int]]] = [[] for _ in range(schedule.workers)]
    until = [0] * schedule.workers
    collectives = {row: span for row, *span in schedule.collectives.tolist()}
    for number, row in enumerate(rows_of(schedule)):
        verb, worker = Verb[row.verb], row.worker
        if worker < 0:
            continue
        until[worker] = min(max(until[worker], row.time_ns, row.end_ns), schedule.end_ns)
        if verb in (Verb.PUSH, Verb.ADD, Verb.DROP):
            spans[worker].append((int(verb == Verb.DROP), row.begin_ns, row.end_ns))
        if verb == Verb.PULL:
            spans[worker].append((2, row.begin_ns, row.end_ns))
        elif row.messages and row.replica in on_servers:
            spans[worker].append((2, row.end_ns, row.time_ns))
        elif number in collectives:
            spans[worker].append((2, *collectives[number]))
    for own, end in zip(spans, until, strict=True):
        moments = (np.arange(4000) + 0.5) * end / 4000
        at = np.full(4000, 3)
        for kind, begin, stop in sorted(own, reverse=True):
            at[(moments >= begin) & (moments < stop)] = kind
        totals += np.bincount(at, minlength=4) * end / 4000
    return list(totals / totals.sum())


def test_many_workers_have_more_time_than_64_bits_of_nanoseconds():
    """Three compute, wait and compute again, 1, 2 and 1 billion seconds, while one computes twice for 3 billion."""
    cluster = {"workers": 4, "compute": {"name": "constant", "seconds": 1e9}, "speeds": [1.0, 1.0, 1.0, 1.0 / 3]}
    found = of("synchronous", cluster, stop={"updates": 2}, algorithm="ssgd")
    assert found == pytest.approx({"computing": 12 / 18, "in_vain": 0.0, "network": 0.0, "waiting": 6 / 18})
