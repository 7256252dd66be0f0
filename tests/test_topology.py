"""Topologies: who sends to whom, and who is anybody's neighbour."""

import pytest

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.protocols.gossip import Gossip
from fred.protocols.topology import Complete, Edges, Exponential, Hypercube, Ring, Star, Topology
from tests.worlds import make_run, record


def linked(topology: Topology, workers: int) -> list[list[int]]:
    """For each worker, the sorted numbers of all that ever send to it or receive from it."""
    others: list[set[int]] = [set() for _ in range(workers)]
    for iteration in range(topology.period(workers)):
        for worker in range(workers):
            for receiver in topology.receivers(worker, iteration, workers):
                others[worker].add(receiver)
                others[receiver].add(worker)
    return [sorted(own) for own in others]


@pytest.mark.parametrize("workers", [1, 2, 5, 8])
@pytest.mark.parametrize("topology", [Ring(), Complete(), Star(), Exponential(), Exponential(neighbours=2), Hypercube()])
def test_nobody_sends_to_itself_and_graphs_repeat_after_their_period(topology: Topology, workers):
    period = topology.period(workers)
    for worker in range(workers):
        sent = [sorted(topology.receivers(worker, iteration, workers)) for iteration in range(2 * period)]
        assert sent[:period] == sent[period:]
        assert all(worker not in each and set(each) <= set(range(workers)) for each in sent)


def test_graphs_that_can_be_written_down():
    assert linked(Exponential(), 8)[0] == [1, 2, 4, 6, 7], "it sends to 1, 2, 4; 7, 6, 4 send to it"
    assert linked(Hypercube(), 8)[5] == [1, 4, 7]
    assert linked(Hypercube(), 6)[2] == [0, 3], "there is no 6"
    assert linked(Edges(edges=[[0, 1], [2, 1], [1, 2]]), 4) == [[1], [0, 2], [1], []]


def test_custom_edges_can_be_any_other_topology():
    ring = [[worker, (worker + 1) % 6] for worker in range(6)]
    cluster = Cluster(workers=6, compute={"name": "exponential", "scale": 1.0}, network={"bandwidth": 1e4})
    one, other = (record(Gossip(topology=topology), cluster, gradients=60) for topology in (Ring(), Edges(edges=ring)))
    assert one.digest() == other.digest()


@pytest.mark.parametrize(
    ("edges", "message"),
    [([[0, 4]], "`edges` names worker 4; there are 4, numbered from 0"), ([[2, 2]], "joins worker 2 with itself")],
)
def test_impossible_edges_are_refused(edges, message):
    with pytest.raises(FredError, match=message):
        make_run("d-psgd", protocol={"name": "gossip", "topology": {"name": "edges", "edges": edges}})
