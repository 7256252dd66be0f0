"""The norm of the gradient: compared with NumPy; as a target and as a criterion; in figures and tables."""

from typing import Any

import numpy as np
import pytest

import fred
from fred.base.errors import FredError
from fred.running.execution import execute
from tests.recompute import gradient
from tests.worlds import LAYERS, TASK, make_run

SOFTMAX: dict[str, Any] = {
    "cluster": {"workers": 2, "compute": {"name": "exponential", "scale": 0.1}},
    "task": TASK,
    "algorithm": {"name": "asgd", "learning_rate": 0.1},
    "stop": {"updates": 100},
    "seeds": [1, 2],
}


@pytest.mark.parametrize(("task", "inline"), [(TASK, False), pytest.param(LAYERS, True, marks=pytest.mark.slow)])
def test_it_is_that_of_all_evaluation_examples_and_changes_nothing_else(task, inline):
    runs = (make_run(task=task, evaluate={"points": 3, "gradient_norm": norm}) for norm in (False, True))
    unmeasured, single = (execute("run", run, 3, inline) for run in runs)
    assert single.run.task is not None
    examples = single.run.task.data.load(3).evaluation
    for point, params in ((0, single.initial), (-1, single.final)):
        grads = gradient({k: v.astype(float) for k, v in params.items()}, examples.inputs, examples.answers)
        norm = np.sqrt(sum(np.square(array).sum() for array in grads.values()))
        assert single.metrics["gradient_norm"].iloc[point] == pytest.approx(norm, rel=1e-5)
    assert len(set(single.metrics["gradient_norm"])) == 4, "of the start, and of three points"
    assert single.params_digest == unmeasured.params_digest
    assert single.metrics.drop(columns="gradient_norm").equals(unmeasured.metrics)


def test_of_a_quadratic_it_is_the_root_of_the_error():
    task = {"data": {"name": "noise", "features": 8, "deviation": 0.1}, "model": {"name": "quadratic", "dimension": 8}}
    run = make_run(task={**task, "loss": "value", "batch_size": 1}, evaluate={"every_updates": 5, "gradient_norm": True})
    assert run.task and not run.task.data.load(3).evaluation.inputs.any(), "evaluated without noise"
    metrics = execute("run", run, 3).metrics
    assert np.allclose(metrics["gradient_norm"] ** 2, metrics["error"], rtol=1e-4)


def test_a_target_is_reached_at_the_first_point_that_is_as_low():
    result = fred.run(fred.scenario(SOFTMAX, evaluate={"every_updates": 3, "target_gradient_norm": 0.4}))
    for _, row in result.summary.iterrows():
        metrics = result.metrics[result.metrics["seed"] == row["seed"]]
        first = metrics[metrics["gradient_norm"] <= 0.4].iloc[0]
        assert 0 < row["target_updates"] == first["updates"]
        assert row["target_seconds"] == pytest.approx(first["virtual_seconds"])
        assert row["gradient_norm"] == metrics["gradient_norm"].iloc[-1]
        assert row["target_gradient_norm"] == 0.4


def test_of_two_targets_of_the_loss_the_reported_one_is_that_of_the_evaluations():
    scenario = fred.scenario(SOFTMAX, evaluate={"target_loss": 2.0}, stop={"updates": 9, "target_loss": 0.5})
    assert [run.targets for run in scenario.runs.values()] == [{"loss": 2.0}] * len(scenario.runs)


def test_points_of_a_sweep_are_chosen_by_it():
    sweep = {"over": {"algorithm.learning_rate": [0.001, 0.2]}, "best": "gradient_norm"}
    result = fred.run(fred.scenario(SOFTMAX, evaluate={"gradient_norm": True}, sweep=sweep))
    means = result.summary.groupby("name")["gradient_norm"].mean()
    assert result.best["mean"].item() == pytest.approx(means.min())
    assert means.max() > 1.1 * means.min()


def test_runs_are_compared_by_it_and_drawn_if_they_measure_it():
    slow, other = {"algorithm": {"learning_rate": 0.001}}, {"evaluate": {"gradient_norm": False}}
    runs = {"slow": slow, "fast": {}, "other": other}
    result = fred.run(fred.scenario({**SOFTMAX, "runs": runs}, evaluate={"gradient_norm": True}))
    labels = {line.get_label() for axes in result.plot("gradient-norm").axes for line in axes.lines}
    assert "fast" in labels and "other" not in labels
    assert result.metrics["gradient_norm"].isna().any()
    ends = result.summary.pivot(index="seed", columns="name", values="gradient_norm")
    ratio = np.exp(np.log(ends["fast"] / ends["slow"]).mean())
    paired = result.paired.set_index(["run", "quantity"])
    assert paired.loc[("fast", "gradient_norm"), "mean"] == pytest.approx(ratio)
    assert ratio < 0.9


def test_it_is_refused_where_it_is_not_measured():
    for change, message in (
        ({"evaluate": {"target_gradient_norm": 0}}, "greater than 0"),
        ({"task": None, "evaluate": {"gradient_norm": True}}, "`evaluate.gradient_norm` needs a `task`"),
        ({"task": None, "evaluate": {"target_gradient_norm": 0.1}}, "a target needs a `task`"),
        ({"sweep": {"over": {"algorithm.learning_rate": [0.1]}, "best": "gradient_norm"}}, "needs `evaluate.gradient_norm`"),
        ({"seeds": [1]}, r"evaluate\.gradient_norm: true"),
    ):
        with pytest.raises(FredError, match=message):
            fred.run(fred.scenario({**SOFTMAX, **change})).plot("gradient-norm")
