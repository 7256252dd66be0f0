"""Staleness in gradients, R, by closed forms and walks through the tree of points; B-staleness [Odena 2016, eq. 3] by NumPy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred import Cluster, FredError, Result, Schedule, Verb, batch_indices
from fred.outcomes.outcome import Outcome
from fred.results.extra_measures import b_staleness, by_staleness
from fred.running.execution import execute
from fred.schedule.schedule import NONE
from fred.schedule.staleness import in_gradients
from fred.specification.loading import Scenario
from tests.cases import options
from tests.worlds import CLUSTERS, COMPUTE, PROTOCOLS, constant, fitting_protocol, make_run, record


def test_r_of_systems_is_known():
    cases = """ssgd: 5; ssgd / backup_workers=2: 3; rennala / batch=4: 3; rennala / batch=1: 0; ringmaster / threshold=3: 2;
     asgd / fixed-lag lag=7: 7; d-psgd: None; local-sgd: None; easgd: None; diloco: None; fedbuff: None; birch-local / total=20: 19;
     async-batch / steps=5 bound=3: 4; async-local / steps=5 bound=3: 4; cycle / group_size=6: 5"""
    cluster, stop = {"workers": 6, "compute": COMPUTE}, {"gradients": 200}
    for text, r in (case.split(": ") for case in cases.split(";")):
        algorithm, _, protocol = text.strip().partition(" / ")
        run = make_run(algorithm, protocol=options(protocol) or None, cluster=cluster, stop=stop, task=None)
        assert str(execute("run", run, 3).summary["staleness_in_gradients"]) == r, text


def distance(schedule: Schedule) -> int | None:
    """Return the distance of the newest node from that of each gradient, in a tree with one edge for each gradient."""
    newest, rounds, read, distances = [0] * schedule.blocks, {}, {}, list[int]()  # type: ignore[var-annotated]
    for row in schedule:
        if row.verb == Verb.PULL:
            read[row.mailbox, row.block] = newest[row.block]
        elif row.verb == Verb.ADD:
            rounds.setdefault(row.block, []).append(read[row.mailbox, row.block])
        elif row.verb in (Verb.PUSH, Verb.COMMIT):
            nodes = rounds.pop(row.block, []) if row.verb == Verb.COMMIT else [read[row.mailbox, row.block]]
            for node in nodes:
                distances.append(newest[row.block] - node)
                newest[row.block] += 1
        if row.verb in (Verb.MIX, Verb.SYNC) or row.replica > 0 or (row.verb == Verb.ADD and row.step == NONE):
            return None
    return max(distances, default=None)


SUMS = ("local-sums", "local-total", "in-turn", "accumulating")


def distance_by_steps(schedule: Schedule) -> int:
    """Each step of each worker is an edge; so is each of those that the server makes then, in the order in which they came."""
    parents, depths = [0], [0]  # of the points of the tree
    server, most = 0, 0
    current, steps = [0] * schedule.workers, [list[int]() for _ in range(schedule.workers)]  # where gradients were computed
    counts, arrived = dict[int, int](), list[list[int]]()  # a worker's steps when a model was read
    read = dict[int, int]()

    def child(point: int) -> int:
        parents.append(point)
        depths.append(depths[point] + 1)
        return len(parents) - 1

    def edges_between(first: int, second: int) -> int:
        """Return the edges from the farther of two points to their common ancestor."""
        edges = [0, 0]
        while first != second:
            deeper = depths[first] >= depths[second]
            first, second = (parents[first], second) if deeper else (first, parents[second])
            edges[not deeper] += 1
        return max(edges)

    for row in schedule:
        if row.verb == Verb.PULL:
            read[row.mailbox] = server if row.replica == schedule.workers else current[row.worker]
            counts[row.mailbox] = len(steps[row.worker])
        elif row.verb == Verb.SYNC:
            current[row.worker] = read[row.mailbox]
        elif row.verb == Verb.PUSH:
            steps[row.worker].append(current[row.worker])
            current[row.worker] = child(current[row.worker])
        elif row.verb == Verb.ADD:
            arrived.append(steps[row.worker][counts[row.source] : counts[row.mailbox]])
        elif row.verb == Verb.COMMIT:
            for point in (point for points in arrived for point in points):
                most = max(most, edges_between(server, point))
                server = child(server)
            arrived.clear()
    return most


def test_a_model_that_the_first_row_reads_counts_from_the_beginning():
    """Worker 0 sends 4 gradients after 4 s; the other has sent 36 by then, so its last is used 39 gradients after it was read."""
    cluster = Cluster(**constant(1.0, 0.1))
    assert in_gradients(record(fitting_protocol("local-sums", cluster), cluster, gradients=60)) == 39


@pytest.mark.parametrize("protocol", SUMS)
@given(cluster=CLUSTERS, seed=st.integers(0, 99))
def test_r_of_sums_is_the_distance_in_a_tree_of_all_steps(protocol, cluster, seed):
    schedule = record(fitting_protocol(protocol, cluster), cluster, gradients=60, seed=seed)
    assert (in_gradients(schedule) or 0) == distance_by_steps(schedule)


@given(protocol=PROTOCOLS, cluster=CLUSTERS, seed=st.integers(0, 99))
def test_r_is_the_distance_in_the_tree(protocol, cluster, seed):
    schedule = record(fitting_protocol(protocol, cluster), cluster, gradients=60, seed=seed)
    tree_distance, r = distance(schedule), in_gradients(schedule)
    assert tree_distance is None or r == tree_distance
    is_sum = protocol in SUMS or cluster.size == 1  # of one pseudo-gradient, the mean is the sum
    assert r is None or is_sum or not len(schedule.rows(Verb.SYNC))


LINEAR: dict[str, Any] = {
    "data": {"name": "synthetic-regression", "examples": 400, "evaluation": 50, "features": 5, "noise": 0.3},
    "model": "softmax",
    "batch_size": 4,
}


def closed_form(outcome: Outcome) -> dict[int, float]:
    """Return, by row, |H (theta_read - theta_now)|, H the Hessian of the minibatch's mean square, along asynchronous SGD."""
    assert outcome.run.task is not None
    data = outcome.run.task.data.load(outcome.seed).train
    theta = np.vstack([outcome.initial["weights"], outcome.initial["biases"]]).astype(float)
    read: dict[int, np.ndarray] = {}
    expected: dict[int, float] = {}
    for number, row in enumerate(outcome.schedule):
        if row.verb == Verb.PULL:
            read[row.mailbox] = theta
        elif row.verb == Verb.PUSH:
            sizes = outcome.run.task.batch_size
            indices = batch_indices(outcome.seed, row.worker, row.step, batch_size=sizes, examples=len(data))
            indices = indices[indices >= 0]  # without padding
            inputs = np.hstack([data.inputs[indices], np.ones((len(indices), 1))])
            hessian = 2 / len(indices) / data.answers.shape[1] * inputs.T @ inputs
            expected[number] = float(np.linalg.norm(hessian @ (read[row.mailbox] - theta)))
            gradient = hessian @ read[row.mailbox] - 2 / len(indices) / data.answers.shape[1] * inputs.T @ data.answers[indices]
            theta = theta - 0.05 * gradient
    return expected


@pytest.fixture(scope="module")
def linear() -> Outcome:
    cluster = {"workers": 5, "compute": COMPUTE}
    return execute("a", make_run({"name": "asgd", "learning_rate": 0.05}, task=LINEAR, cluster=cluster), 3)


def test_b_staleness_is_over_the_worker_s_number_of_examples():
    options: dict[str, Any] = {"cluster": {"workers": 3, "compute": COMPUTE}, "task": LINEAR | {"batch_size": [2, 5, 3]}}
    outcome = execute("a", make_run({"name": "asgd", "learning_rate": 0.05}, **options), 3)
    expected = np.array(list(closed_form(outcome).values()))
    assert b_staleness(outcome)["b_staleness"].to_numpy() == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_b_staleness_on_a_quadratic_is_the_hessian_times_the_change_of_the_parameters(linear):
    frame, expected, schedule = b_staleness(linear), closed_form(linear), linear.schedule
    assert frame["row"].tolist() == list(expected)
    assert frame["b_staleness"].to_numpy() == pytest.approx(np.array(list(expected.values())), rel=1e-3, abs=1e-6)
    fresh = frame["staleness"] == 0
    assert fresh.any(), "the first one"
    assert (frame["b_staleness"][fresh] == 0).all() and (frame["b_staleness"][~fresh] > 0).all()
    for name in ("worker", "staleness"):
        assert (frame[name].to_numpy() == schedule[name][frame["row"]]).all()
    assert b_staleness(linear, every=3).equals(frame.iloc[::3].reset_index(drop=True))
    table = by_staleness(frame)
    assert table["gradients"].sum() == len(frame)
    last_rows = frame[frame["staleness"] == table["staleness"].iloc[-1]]["b_staleness"]
    assert (table["mean"].iloc[-1], table["largest"].iloc[-1]) == pytest.approx((last_rows.mean(), last_rows.max()))


def test_in_synchronous_rounds_on_several_servers_nothing_is_stale():
    cluster = {"workers": 3, "compute": COMPUTE, "servers": 2}
    frame = b_staleness(execute("run", make_run("psp-sgd", cluster=cluster, stop={"gradients": 12}), 0))
    assert len(frame) == 2 * 12, "a row for each block"
    assert (frame["b_staleness"] == 0).all()


def test_a_result_draws_b_staleness_and_a_run_without_a_task_has_none(linear):
    timing = execute("timing", make_run("asgd", task=None), 3)
    with pytest.raises(FredError, match="run `timing` has no `task`"):
        Result(Scenario(runs={"a": linear.run, "timing": timing.run}, seeds=(3,)), [linear, timing]).plot_b_staleness()
    (line,) = Result(Scenario(runs={"a": linear.run}, seeds=(3,)), [linear]).plot_b_staleness(every=2).axes[0].get_lines()
    table = by_staleness(b_staleness(linear, every=2))
    assert np.array_equal(line.get_xydata(), table[["staleness", "mean"]].to_numpy())
