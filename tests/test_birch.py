"""R of a run, in gradients: closed forms, and a walk through the tree of points."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred.outcomes.staleness import in_gradients
from fred.running.execution import execute
from fred.schedule.schedule import NONE, Schedule, Verb
from tests.worlds import CLUSTERS, COMPUTE, PROTOCOLS, fitting, make_run, record

CLUSTER = {"workers": 6, "compute": COMPUTE}


def measured(algorithm: Any, protocol: Any = None, **options: Any) -> Any:
    run = make_run(algorithm, protocol=protocol, cluster=CLUSTER, stop={"gradients": 200}, **options)
    return execute("run", run, 3).summary["staleness_in_gradients"]


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
    ],
)
def test_it_is_known(algorithm, protocol, known):
    assert measured(algorithm, protocol) == known


def walked(schedule: Schedule) -> int | None:
    """By nodes of a tree with one edge for each gradient: how far the newest is from where the gradient was computed."""
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


@given(protocol=PROTOCOLS, cluster=CLUSTERS, seed=st.integers(0, 99))
def test_it_is_the_distance_in_the_tree(protocol, cluster, seed):
    schedule = record(fitting(protocol, cluster), cluster, gradients=60, seed=seed)
    known, found = walked(schedule), in_gradients(schedule)
    assert known is None or found == known
    assert found is None or not len(schedule.rows(Verb.SYNC))
