"""Topologies: who sends to whom, and who is anybody's neighbour."""

import pytest

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.protocols.gossip import Gossip
from fred.protocols.topology import Complete, Edges, Exponential, Hypercube, Ring, Star, Topology
from tests.worlds import make_run, record


@pytest.mark.parametrize("workers", [1, 2, 5, 8])
@pytest.mark.parametrize("topology", [Ring(), Complete(), Star(), Exponential(), Exponential(neighbours=2), Hypercube()])
def test_workers_are_linked_with_whom_they_send_to_and_who_sends_to_them(topology: Topology, workers):
    edges = {
        frozenset((worker, receiver))
        for iteration in range(2 * topology.period(workers))
        for worker in range(workers)
        for receiver in topology.receivers(worker, iteration, workers)
    }
    found = topology.linked(workers)
    assert {frozenset((worker, other)) for worker in range(workers) for other in found[worker]} == edges
    assert all(worker in found[other] for worker in range(workers) for other in found[worker])
    assert all(len(edge) == 2 for edge in edges), "nobody is its own neighbour"


def test_graphs_that_can_be_written_down():
    assert Exponential().linked(8)[0] == [1, 2, 4, 6, 7], "it sends to 1, 2, 4; 7, 6, 4 send to it"
    assert Hypercube().linked(8)[5] == [1, 4, 7]
    assert Hypercube().linked(6)[2] == [0, 3], "there is no 6"
    assert Edges(edges=[[0, 1], [2, 1], [1, 2]]).linked(4) == [[1], [0, 2], [1], []]


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
