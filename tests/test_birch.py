"""R of a run, in gradients: closed forms, and a walk through the tree of points."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred.cluster.cluster import Cluster
from fred.outcomes.staleness import in_gradients
from fred.running.execution import execute
from fred.schedule.schedule import NONE, Schedule, Verb
from tests.worlds import CLUSTERS, COMPUTE, PROTOCOLS, fitting, make_run, record

CLUSTER = {"workers": 6, "compute": COMPUTE}


def measured(algorithm: Any, protocol: Any = None, **options: Any) -> Any:
    run = make_run(algorithm, protocol=protocol, cluster=CLUSTER, stop={"gradients": 200}, **options)
    return execute("run", run, 3).summary["staleness_in_gradients"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "protocol", "known"),
    [
        ("ssgd", None, 5),
        ("ssgd", {"name": "synchronous", "backup_workers": 2}, 3),
        ("rennala", {"batch": 4}, 3),
        ("rennala", {"batch": 1}, 0),
        ("ringmaster", {"threshold": 3}, 2),
        ("asgd", {"name": "fixed-lag", "lag": 7}, 7),
        ("d-psgd", None, None),
        ("local-sgd", None, None),
        ("easgd", None, None),
        ("diloco", None, None),
        ("fedbuff", None, None),
        ("birch-local", {"total": 20}, 19),
        ("async-batch", {"steps": 5, "bound": 3}, 4),
        ("async-local", {"steps": 5, "bound": 3}, 4),
        ("cycle", {"group_size": 6}, 5),
    ],
)
def test_it_is_known(algorithm, protocol, known):
    assert measured(algorithm, protocol) == known


def walked(schedule: Schedule) -> int | None:
    """Return the distance of the newest node from that of each gradient, in a tree with one edge for each gradient."""
    newest, rounds, read, far = [0] * schedule.blocks, {}, {}, list[int]()  # type: ignore[var-annotated]
    for row in schedule:
        if row.verb == Verb.PULL:
            read[row.mailbox, row.block] = newest[row.block]
        elif row.verb == Verb.ADD:
            rounds.setdefault(row.block, []).append(read[row.mailbox, row.block])
        elif row.verb in (Verb.PUSH, Verb.COMMIT):
            nodes = rounds.pop(row.block, []) if row.verb == Verb.COMMIT else [read[row.mailbox, row.block]]
            for node in nodes:
                far.append(newest[row.block] - node)
                newest[row.block] += 1
        if row.verb in (Verb.MIX, Verb.SYNC) or row.replica > 0 or (row.verb == Verb.ADD and row.step == NONE):
            return None
    return max(far, default=None)


class Tree:
    """Points, each with its parent and how many edges it is away from the first one."""

    def __init__(self) -> None:
        self.parents, self.depths = [0], [0]

    def child(self, point: int) -> int:
        self.parents.append(point)
        self.depths.append(self.depths[point] + 1)
        return len(self.parents) - 1

    def apart(self, one: int, other: int) -> int:
        """Edges from the farther of two points to what both come from."""
        far = [0, 0]
        while one != other:
            deeper = self.depths[one] >= self.depths[other]
            one, other = (self.parents[one], other) if deeper else (one, self.parents[other])
            far[not deeper] += 1
        return max(far)


SUMS = ("local-sums", "local-total", "in-turn", "accumulating")


def walked_by_steps(schedule: Schedule) -> int:
    """Each step of each worker is an edge; so is each of those that the server makes then, in the order in which they came."""
    tree, server, most = Tree(), 0, 0
    own, made = [0] * schedule.workers, [list[int]() for _ in range(schedule.workers)]  # where gradients were computed
    at, arrived = dict[int, int](), list[list[int]]()  # how many a worker has made when a model was read
    read = dict[int, int]()
    for row in schedule:
        if row.verb == Verb.PULL:
            read[row.mailbox] = server if row.replica == schedule.workers else own[row.worker]
            at[row.mailbox] = len(made[row.worker])
        elif row.verb == Verb.SYNC:
            own[row.worker] = read[row.mailbox]
        elif row.verb == Verb.PUSH:
            made[row.worker].append(own[row.worker])
            own[row.worker] = tree.child(own[row.worker])
        elif row.verb == Verb.ADD:
            arrived.append(made[row.worker][at[row.source] : at[row.mailbox]])
        elif row.verb == Verb.COMMIT:
            for point in (point for points in arrived for point in points):
                most = max(most, tree.apart(server, point))
                server = tree.child(server)
            arrived.clear()
    return most


def test_a_model_that_the_first_row_reads_counts_from_the_beginning():
    """Worker 0 sends 4 gradients after 4 s; the other has sent 36 by then, so its last is used 39 gradients after it was read."""
    cluster = Cluster(workers=2, speeds=[0.1, 1.0], compute={"name": "constant", "seconds": 0.1})
    assert in_gradients(record(fitting("local-sums", cluster), cluster, gradients=60, seed=0)) == 39


@pytest.mark.parametrize("protocol", SUMS)
@given(cluster=CLUSTERS, seed=st.integers(0, 99))
def test_of_sums_it_is_the_distance_in_a_tree_of_all_steps(protocol, cluster, seed):
    schedule = record(fitting(protocol, cluster), cluster, gradients=60, seed=seed)
    found = in_gradients(schedule)
    assert (found or 0) == walked_by_steps(schedule)


@given(protocol=PROTOCOLS, cluster=CLUSTERS, seed=st.integers(0, 99))
def test_it_is_the_distance_in_the_tree(protocol, cluster, seed):
    schedule = record(fitting(protocol, cluster), cluster, gradients=60, seed=seed)
    known, found = walked(schedule), in_gradients(schedule)
    assert known is None or found == known
    assert found is None or protocol in SUMS or not len(schedule.rows(Verb.SYNC))
