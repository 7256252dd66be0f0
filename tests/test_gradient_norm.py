"""The norm of the gradient: what NumPy says of it, when it first came down to a target, and where it is shown."""

from typing import Any

import numpy as np
import pytest

import fred
from fred.base.errors import FredError
from fred.commands.cli import main
from fred.running.execution import execute
from tests.recompute import gradient
from tests.worlds import make_run

SOFTMAX: dict[str, Any] = {
    "cluster": {"workers": 2, "compute": {"name": "exponential", "scale": 0.1}},
    "task": {"data": "digits", "model": "softmax", "batch_size": 16},
    "algorithm": {"name": "asgd", "learning_rate": 0.1},
    "stop": {"updates": 100},
    "seeds": [1, 2],
}


def norm(arrays: dict[str, Any]) -> float:
    return float(np.sqrt(sum(np.square(array).sum() for array in arrays.values())))


@pytest.mark.slow
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("model", ["softmax", {"name": "mlp", "hidden": [5]}])
def test_it_is_that_of_all_evaluation_examples(model, inline):
    task = {"data": "digits", "model": model, "batch_size": 4}
    found = execute("run", make_run(task=task, evaluate={"points": 3, "gradient_norm": True}), 3, inline)
    assert found.run.task is not None
    examples = found.run.task.data.load(3).evaluation
    measured = found.metrics["gradient_norm"]
    for point, params in ((0, found.initial), (-1, found.final)):
        known = norm(gradient({k: v.astype(float) for k, v in params.items()}, examples.inputs, examples.answers))
        assert measured.iloc[point] == pytest.approx(known, rel=1e-5)
    assert len(set(measured)) == 4, "of the start, and of three points"


def test_of_a_quadratic_it_is_known():
    """Its error is the squared length of the gradient without noise."""
    task = {"data": {"name": "noise", "features": 8, "deviation": 0.1}, "model": {"name": "quadratic", "dimension": 8}}
    run = make_run(task={**task, "loss": "value", "batch_size": 1}, evaluate={"every_updates": 5, "gradient_norm": True})
    metrics = execute("run", run, 3).metrics
    noise = run.task.data.load(3).evaluation.inputs.mean() if run.task else 0.0  # evaluated with the noise of no example
    assert noise == 0
    assert np.allclose(metrics["gradient_norm"] ** 2, metrics["error"], rtol=1e-4)


def test_to_measure_it_changes_nothing_else():
    plain, measured = (execute("run", make_run(evaluate={"points": 3, "gradient_norm": each}), 3) for each in (False, True))
    assert measured.params_digest == plain.params_digest
    assert measured.metrics.drop(columns="gradient_norm").equals(plain.metrics)


def test_a_target_is_reached_at_the_first_point_that_is_as_low():
    result = fred.run(fred.scenario(SOFTMAX, evaluate={"every_updates": 3, "target_gradient_norm": 0.4}))
    for _, row in result.summary.iterrows():
        metrics = result.metrics[result.metrics["seed"] == row["seed"]]
        first = metrics[metrics["gradient_norm"] <= 0.4].iloc[0]
        assert 0 < row["target_updates"] == first["updates"]
        assert row["target_seconds"] == pytest.approx(first["virtual_seconds"])
        assert row["gradient_norm"] == metrics["gradient_norm"].iloc[-1]
        assert row["target_gradient_norm"] == 0.4


def test_points_of_a_sweep_are_chosen_by_it():
    sweep = {"over": {"algorithm.learning_rate": [0.001, 0.2]}, "best": "gradient_norm"}
    result = fred.run(fred.scenario(SOFTMAX, evaluate={"gradient_norm": True}, sweep=sweep))
    means = result.summary.groupby("name")["gradient_norm"].mean()
    assert result.best["mean"].item() == pytest.approx(means.min())
    assert means.max() > 1.1 * means.min()


@pytest.mark.slow
def test_it_is_in_tables_figures_and_comparisons_and_kept(tmp_path, capsys):
    file, folder = tmp_path / "mine.yaml", tmp_path / "out"
    runs = {"slow": {"algorithm": {"name": "asgd", "learning_rate": 0.01}}, "fast": {}, "not-measured": {"evaluate": {}}}
    file.write_text(str({**SOFTMAX, "runs": runs, "evaluate": {"target_gradient_norm": 0.4}}), encoding="utf-8")
    assert main(["run", str(file), "--out", str(folder)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "gradient norm" in shown
    assert (folder / "figures" / "gradient-norm.svg").is_file()
    assert "norm of the gradient" in (folder / "report.html").read_text(encoding="utf-8")
    result = fred.load_result(folder)
    assert result.metrics["gradient_norm"].notna().all()
    paired = result.paired.set_index(["run", "quantity"])
    ends = result.summary.pivot(index="seed", columns="name", values="gradient_norm")
    ratio = np.exp(np.log(ends["fast"] / ends["slow"]).mean())
    assert paired.loc[("fast", "gradient_norm"), "mean"] == pytest.approx(ratio)
    assert ratio < 0.9


def test_runs_that_do_not_measure_it_are_not_drawn():
    runs = {"one": {}, "other": {"evaluate": {"gradient_norm": False}}}
    result = fred.run(fred.scenario({**SOFTMAX, "runs": runs}, evaluate={"gradient_norm": True}))
    drawn = {line.get_label() for axes in result.plot("gradient-norm").axes for line in axes.lines}
    assert "one" in drawn
    assert "other" not in drawn
    assert result.metrics["gradient_norm"].isna().any()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"evaluate": {"target_gradient_norm": 0}}, "greater than 0"),
        ({"task": None, "evaluate": {"gradient_norm": True}}, "`evaluate.gradient_norm` needs a `task`"),
        ({"task": None, "evaluate": {"target_gradient_norm": 0.1}}, "a target needs a `task`"),
        ({"sweep": {"over": {"algorithm.learning_rate": [0.1]}, "best": "gradient_norm"}}, "needs `evaluate.gradient_norm`"),
    ],
)
def test_what_cannot_be_is_refused(change, said):
    with pytest.raises(FredError, match=said):
        fred.scenario({**SOFTMAX, **change})


def test_without_it_there_is_nothing_to_draw():
    with pytest.raises(FredError, match=r"evaluate\.gradient_norm: true"):
        fred.run(fred.scenario(SOFTMAX)).plot("gradient-norm")
