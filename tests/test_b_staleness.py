"""B-staleness [Odena 2016, eq. 3]: zero where nothing has changed, a closed form on a quadratic, and NumPy's recomputation."""

from typing import Any

import numpy as np
import pytest

from fred import batch_indices
from fred.base.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.results.b_staleness import b_staleness, by_staleness
from fred.results.result import Result
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from fred.specification.loading import Scenario
from tests.worlds import COMPUTE, make_run

LINEAR: dict[str, Any] = {
    "data": {"name": "synthetic-regression", "examples": 400, "evaluation": 50, "features": 5, "noise": 0.3},
    "model": "softmax",
    "batch_size": 4,
}


def closed_form(outcome: Outcome) -> dict[int, float]:
    """Return, by row, |H (theta_read - theta_now)|, H the Hessian of the minibatch's mean square, along plain asynchronous
    SGD.
    """
    assert outcome.run.task is not None
    data = outcome.run.task.data.load(outcome.seed).train
    theta = np.vstack([outcome.initial["weights"], outcome.initial["biases"]]).astype(float)
    read: dict[int, np.ndarray] = {}
    expected: dict[int, float] = {}
    for number, row in enumerate(outcome.schedule):
        if row.verb == Verb.PULL:
            read[row.mailbox] = theta
        elif row.verb == Verb.PUSH:
            chosen = batch_indices(outcome.seed, row.worker, row.step, batch_size=4, examples=len(data))
            inputs = np.hstack([data.inputs[chosen], np.ones((4, 1))])
            hessian = 2 / 4 / data.answers.shape[1] * inputs.T @ inputs
            expected[number] = float(np.linalg.norm(hessian @ (read[row.mailbox] - theta)))
            gradient = hessian @ read[row.mailbox] - 2 / 4 / data.answers.shape[1] * inputs.T @ data.answers[chosen]
            theta = theta - 0.05 * gradient
    return expected


def test_on_a_quadratic_it_is_the_hessian_times_how_far_the_parameters_have_moved():
    run = make_run({"name": "asgd", "learning_rate": 0.05}, task=LINEAR, cluster={"workers": 5, "compute": COMPUTE})
    outcome = execute("run", run, 3)
    frame = b_staleness(outcome)
    expected = closed_form(outcome)
    assert frame["row"].tolist() == list(expected)
    assert frame["b_staleness"].to_numpy() == pytest.approx(np.array(list(expected.values())), rel=1e-3, abs=1e-6)
    fresh = frame["staleness"] == 0
    assert fresh.any(), "the first one"
    assert (frame["b_staleness"][fresh] == 0).all()
    assert (frame["b_staleness"][~fresh] > 0).all()
    schedule = outcome.schedule
    assert (frame["worker"].to_numpy() == schedule["worker"][frame["row"]]).all()
    assert (frame["staleness"].to_numpy() == schedule["staleness"][frame["row"]]).all()
    third = b_staleness(outcome, every=3)
    assert third.equals(frame.iloc[::3].reset_index(drop=True))
    table = by_staleness(frame)
    assert table["gradients"].sum() == len(frame)
    one = frame[frame["staleness"] == table["staleness"].iloc[-1]]["b_staleness"]
    assert (table["mean"].iloc[-1], table["largest"].iloc[-1]) == pytest.approx((one.mean(), one.max()))


def test_in_synchronous_rounds_on_several_servers_nothing_is_stale():
    cluster = {"workers": 3, "compute": COMPUTE, "servers": 2}
    outcome = execute("run", make_run("psp-sgd", cluster=cluster, stop={"gradients": 12}), 0)
    frame = b_staleness(outcome)
    assert len(frame) == 2 * 12, "a row for each block"
    assert (frame["b_staleness"] == 0).all()


def test_a_result_draws_it_and_a_run_without_a_task_has_none():
    runs = {
        "a": make_run({"name": "asgd", "learning_rate": 0.05}, task=LINEAR, cluster={"workers": 5, "compute": COMPUTE}),
        "timing": make_run("asgd", task=None),
    }
    outcomes = [execute(name, run, 3) for name, run in runs.items()]
    with pytest.raises(FredError, match="run `timing` has no `task`"):
        Result(Scenario(runs=runs, seeds=(3,)), outcomes).plot_b_staleness()
    learned = Result(Scenario(runs={"a": runs["a"]}, seeds=(3,)), outcomes[:1])
    (line,) = learned.plot_b_staleness(every=2).axes[0].get_lines()
    table = by_staleness(b_staleness(outcomes[0], every=2))
    assert np.array_equal(line.get_xydata(), table[["staleness", "mean"]].to_numpy())
