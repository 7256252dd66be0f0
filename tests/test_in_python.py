"""FRED called from Python: the first commands of a user, and users' classes in every place where a scenario takes one."""

import html
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import optax
import pytest
from matplotlib.figure import Figure

import fred
from fred.views.notebook import timing_html
from fred.views.verdict import answer
from tests.test_own_models import NNX, Equinox, Linen, Normalised

SETTINGS: dict[str, Any] = {
    "cluster": {"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    "stop": {"updates": 6},
    "algorithm": {"name": "asgd", "learning_rate": 0.1},
}
TASK = {"data": "digits", "model": "softmax"}


class Scaled(fred.Server):
    """Steps that are scaled."""

    scale: float = 1.0

    def apply_update(self, state: fred.State, message: fred.Message, timestamp: int, worker: int) -> fred.State:
        return self.step(state, {name: self.scale * array for name, array in message.items()})


class Fixed(fred.Latency):
    """Always the same."""

    seconds: float = 0.5

    def sample(self, u: Any) -> Any:
        return np.full_like(u, self.seconds)

    @property
    def mean(self) -> float:
        return self.seconds


class TestReplace:
    def test_a_scenario_with_classes_of_ones_own_can_be_changed_in_every_part(self):
        scenario = fred.scenario(SETTINGS, algorithm=Scaled(learning_rate=0.1), task=TASK)
        changed = scenario.replace({"algorithm.scale": 2.0, "cluster.workers": 3}, seeds=[1, 2])
        assert changed == fred.scenario(
            SETTINGS | {"cluster": SETTINGS["cluster"] | {"workers": 3}},
            algorithm=Scaled(learning_rate=0.1, scale=2.0),
            task=TASK,
            seeds=[1, 2],
        )
        assert scenario.replace() == scenario and scenario.runs["Scaled"].algorithm == Scaled(learning_rate=0.1)

    def test_parts_can_be_objects_and_classes(self):
        scenario = fred.scenario(SETTINGS, algorithm=Scaled(learning_rate=0.1))
        changed = scenario.replace({"cluster.compute": Fixed(seconds=2.0), "algorithm": Scaled, "algorithm.learning_rate": 0.5})
        run = changed.runs["Scaled"]
        assert (run.cluster.compute, run.algorithm) == (Fixed(seconds=2.0), Scaled(learning_rate=0.5))

    def test_another_algorithm_gets_its_own_protocol(self):
        scenario = fred.scenario(SETTINGS, algorithm=Scaled(learning_rate=0.1))
        changed = scenario.replace(algorithm={"name": "ssgd", "learning_rate": 0.1})
        assert (
            changed.runs["Scaled"].protocol
            == fred.scenario(SETTINGS, algorithm=changed.runs["Scaled"].algorithm).runs["ssgd"].protocol
        )

    def test_a_sweep_is_added_and_changed_as_in_a_file(self):
        sweep = {
            "over": {"algorithm.learning_rate": [0.1, 0.2, 0.4], "cluster.workers": [2, 3]},
            "start": 2,
            "best": "throughput",
        }
        swept = fred.scenario(SETTINGS, sweep=sweep)
        assert fred.scenario(fred.scenario(SETTINGS), sweep=sweep) == fred.scenario(SETTINGS).replace(sweep=sweep) == swept
        for change in ({"stop.updates": 7}, {"runs.asgd.stop.updates": 7}):
            assert swept.replace(change) == fred.scenario(SETTINGS | {"stop": {"updates": 7}}, sweep=sweep)
        shorter = swept.replace({"sweep.over": {"algorithm.learning_rate": [0.3]}, "sweep.start": None})
        assert list(shorter.runs) == ["asgd,learning_rate=0.3"]
        for grid in (
            [{"stop.updates": 3}, {"stop.updates": 4, "cluster.workers": 5}],
            [{"stop.updates": 3}, {"cluster.workers": 5}],
            [{"protocol.clocks": "each"}, {"cluster.network.message_bytes": 9, "cluster.workers": 3}],
        ):
            listed = fred.scenario(SETTINGS, sweep={"over": grid})
            assert listed.replace() == listed

    def test_a_class_of_ones_own_can_be_swept(self):
        result = fred.run(
            SETTINGS
            | {"algorithm": Scaled(learning_rate=0.1), "task": TASK, "sweep": {"over": {"algorithm.scale": [0.0, 1.0]}}}
        )
        frozen, moved = (result.metrics[result.metrics["run"] == f"Scaled,scale={scale}"]["loss"] for scale in (0, 1))
        assert frozen.nunique() == 1 and moved.nunique() > 1


class TestFirstCalls:
    def test_run_takes_a_mapping_a_name_and_a_path(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("mine.yaml").write_text("algorithm: {name: asgd, learning_rate: 0.1}\ncluster: {workers: 2}\nstop: {updates: 6}\n")
        for scenario in ("mine.yaml", Path("mine.yaml"), fred.load("mine.yaml"), {**SETTINGS, "cluster": {"workers": 2}}):
            assert fred.run(scenario).summary["updates"].tolist() == [6]
        assert fred.run("quickstart", only="asgd", seeds=[7]).summary["seed"].tolist() == [7]

    def test_seeds_replace_those_of_the_scenario(self):
        assert fred.run(SETTINGS, seeds=(3, 4)).summary["seed"].tolist() == [3, 4]

    def test_settings_of_a_file_can_be_a_mapping(self):
        assert fred.load("quickstart", {"seeds": [4], "stop.seconds": 2}).seeds == (4,)

    def test_a_scenario_and_keywords_make_another_scenario(self):
        assert fred.scenario(fred.scenario(SETTINGS), seeds=[4]) == fred.scenario(SETTINGS, seeds=[4])

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda: fred.run(None), "found None; expected a scenario: "),  # type: ignore[arg-type]
            (lambda: fred.run("quickstrat"), "did you mean `quickstart`"),
            (lambda: fred.run(SETTINGS, jobs="many"), "jobs='many': expected a number of processes, or 'all'"),  # type: ignore[arg-type]
            (lambda: fred.run(SETTINGS, jobs=0), "jobs=0: expected a number of processes"),
            (lambda: fred.run(SETTINGS, seeds=3), r"seeds=3: found 3; expected a list, such as `seeds: \[1, 2, 3\]`"),  # type: ignore[arg-type]
            (lambda: fred.scenario("mine.yaml"), "expected a mapping of settings; `fred.load` reads a file"),  # type: ignore[arg-type]
            (lambda: fred.ASGD(lr=0.1), "ASGD.lr: unknown key `lr`; did you mean `learning_rate`?"),  # type: ignore[call-arg]
            (lambda: fred.ASGD(), "ASGD.learning_rate: missing key `learning_rate`"),  # type: ignore[call-arg]
            (lambda: cast(Any, fred.ASGD)(0.1), "ASGD: options are given by name, such as `learning_rate=0.1`"),
            (lambda: fred.ASGD(learning_rate=0.1, optimizer=optax.adam), r"expected its result, such as `optax.adam\(1e-3\)`"),
            (
                lambda: fred.scenario(SETTINGS, runs={"a": fred.ASGD(learning_rate=0.1)}),
                r"expected settings with their names, such as `{'a': {'algorithm': ...}}`",
            ),
            (
                lambda: fred.scenario(SETTINGS, runs=[fred.ASGD(learning_rate=0.1)]),
                r"runs: found a list of 1; .* such as `{'mine': ",
            ),
            (
                lambda: fred.scenario(SETTINGS, seeds=[]),
                r"seeds: found 0 items; expected at least 1, such as `seeds: \[1, 2, 3\]`",
            ),
            (lambda: fred.scenario(SETTINGS, seeds=[3, 4, 3]), "must differ from each other; 3 is given twice"),
            (lambda: fred.scenario(SETTINGS, workers=3), "unknown key `workers`; did you mean `cluster.workers`?"),
            (lambda: fred.scenario(SETTINGS).replace(workers=3), "unknown key `workers`; did you mean `cluster.workers`?"),
            (
                lambda: setattr(fred.scenario(SETTINGS), "workers", 3),
                r"`.replace\({'cluster.workers': ...}\)` returns a changed copy",
            ),
            (
                lambda: setattr(Fixed(), "seconds", 1.0),
                "components do not change; `.model_copy",
            ),
            (lambda: fred.ASGD(), "missing key `learning_rate`, such as `learning_rate=0.1`$"),  # type: ignore[call-arg]
            (lambda: fred.Cluster(workers=2, compute="lognormal"), "missing key `median`, such as `median: 0.1`"),
            (lambda: fred.Cluster(workers=2, compute=0.2), r"`fred.latency.Constant\(seconds=0.2\)`$"),
            (lambda: fred.Cluster(workers=2, compute=lambda u: u), "write a class derived from `fred.Latency` with `sample"),
            (lambda: fred.Stop(epochs=3), "unknown key `epochs`; an epoch has as many gradients"),  # type: ignore[call-arg]
            (lambda: fred.models.MLP(hidden=32), r"MLP.hidden: found 32; expected a list, such as `hidden=\[32\]`"),
            (lambda: fred.Task(data="digits", model="mlp", batch_size=0), r"^Task.batch_size: found 0; [^\n]* equal to 1$"),
            (lambda: fred.Task(data="a.csv", model="mlp"), r"read a table in Python, and give its numbers as `data=\(X, y\)`"),
            (lambda: fred.Task(data="a.npz", model="mlp"), "is `data: {name: arrays, file: a.npz}`"),
            (
                lambda: fred.scenario(fred.scenario(SETTINGS), task={"data": "digits", "model": "mpl"}),
                "^task.model.name: .* `mlp`",
            ),
            (lambda: fred.Cluster(workers=0), "Cluster.workers: found 0; expected greater than or equal to 1"),
        ],
    )
    def test_mistakes_are_refused_with_what_was_expected(self, call, words):
        with pytest.raises(fred.FredError, match=words):
            call()

    def test_a_misspelt_class_of_a_namespace_is_refused_with_the_nearest_one_and_dir_lists_classes_alone(self):
        with pytest.raises(AttributeError, match="'Lognormal'; did you mean 'LogNormal'"):
            cast(Any, fred.latency).Lognormal(median=0.1, sigma=0.5)
        codecs = cast(Any, fred).__getattr__(
            "codecs"
        )  # as at its first use; an import statement elsewhere may have come before
        assert dir(codecs) == ["DCT", "E3M0", "Float", "LowBit", "PowerSGD", "QSGD", "RandomK", "Sign", "TopK"]


def evaluate_once(model: Any) -> Any:
    """Return the outcome of a short run of a model, and the inputs and answers of some examples."""
    task = {
        "data": {"name": "synthetic-classification", "examples": 64, "evaluation": 16, "features": 8, "classes": 4},
        "model": model,
    }
    outcome = fred.run(SETTINGS | {"task": task})["asgd"]
    assert outcome.run.task is not None
    return outcome, outcome.run.task.data.load(outcome.seed).evaluation


class TestModels:
    def test_parameters_are_the_pytree_of_the_model_and_predictions_have_the_measured_error(self):
        outcome, evaluation = evaluate_once({"name": "mlp", "hidden": [4]})
        by_hand = outcome.run.task.model.apply(outcome.params, evaluation.inputs)
        scores = outcome.predict(evaluation.inputs)
        assert np.array_equal(scores, by_hand)
        assert np.mean(scores.argmax(axis=1) != evaluation.answers) == pytest.approx(outcome.metrics["error"].iloc[-1])
        with pytest.raises(fred.FredError, match=r"found inputs of shape \[3, 5\]; expected \[n, 8\]"):
            outcome.predict(np.zeros((3, 5)))
        with pytest.raises(fred.FredError, match=r"is not made from a module of Flax or Equinox: use `\.predict"):
            outcome.module()

    def test_modules_of_every_library_come_back_with_the_trained_parameters(self):
        for model in (Linen(), NNX(), Normalised(), Equinox()):
            outcome, evaluation = evaluate_once(model)
            module = outcome.module()
            if isinstance(model, Equinox):
                scores = np.array([module(row) for row in evaluation.inputs])
            else:
                scores = module(evaluation.inputs)
            error = np.mean(np.argmax(scores, axis=1) != evaluation.answers)
            assert error == pytest.approx(outcome.metrics["error"].iloc[-1]), type(model)
            assert np.allclose(scores, outcome.predict(evaluation.inputs), atol=1e-6)

    def test_without_a_task_there_is_no_model(self):
        assert repr(fred.run(SETTINGS)["asgd"]) == "<Outcome of asgd with seed 0: 6 updates>"
        with pytest.raises(fred.FredError, match="run `asgd` trains no model"):
            _ = fred.run(SETTINGS)["asgd"].params


class TestNotebook:
    RESULT = SETTINGS | {"task": TASK, "title": "<b>", "sweep": {"over": {"algorithm.learning_rate": [0.001, 0.01, 0.1]}}}

    def test_a_result_shows_verdict_notes_table_and_curve_and_escapes_titles(self):
        result = fred.run(self.RESULT)
        markup = result._repr_html_()
        assert "at an end of the swept range, so extend it: learning_rate 0.1 of asgd" in result.notes[0]
        assert html.escape(result.notes[0]) in markup and html.escape(answer(result)) in markup
        assert markup.count("<svg") == 1 and markup.count("<table") == 1 and "<b>" not in markup
        assert "srcdoc=" in result.report()._repr_html_()
        for text in (markup, timing_html(result)):  # on a dark page, too: the colours of text are the page's
            figure = re.search("<div class='figure'>.*?</svg>", text, re.S)
            assert figure is not None and figure[0].count("currentColor") > 10
            assert not re.search("#fff|#000000", text)
        assert "learning_rate" in result.scenario._repr_html_()

    def test_notes_name_runs_that_miss_their_target(self):
        reached = {"evaluate": {"target_error": 0.8}, "stop": {"updates": 100}}
        runs = {"short": {"evaluate": {"target_error": 0.01}}, "long": reached}
        assert fred.run(SETTINGS | {"task": TASK, "runs": runs}, seeds=[1, 2]).notes == [
            "short did not reach error 0.01 with 2 of 2 seeds."
        ]

    def test_figures_go_into_given_axes_with_labels_and_keep_their_colours(self):
        result = fred.run(SETTINGS | {"task": TASK, "runs": {"a": {}, "b": {"cluster": {"workers": 3}}}})
        figure = Figure()
        axes = figure.subplots()
        result.plot("loss", ax=axes, runs=["b"], labels={"b": "Three workers"})
        (line,) = [line for line in axes.get_lines() if line.get_label() == "Three workers"]
        lines = result.plot("loss", against="updates").axes[0].get_lines()
        assert [line.get_color()] == [other.get_color() for other in lines if other.get_label() == "b"]
        size = figure.get_size_inches().tolist()
        for name in ("workers-time", "throughput", "error"):
            result.plot(name, ax=figure.add_subplot())
        assert figure.get_size_inches().tolist() == size
        for draw in (lambda: result.plot("timeline", ax=axes), lambda: result.plot("loss", ("updates", "seconds"), ax=axes)):
            with pytest.raises(fred.FredError, match="do not fit into one `ax`"):
                draw()
        with pytest.raises(fred.FredError, match="no run `c` here"):
            result.plot("loss", runs=["c"])

    def test_results_are_compared_in_memory_and_from_folders(self, tmp_path):
        single = fred.run(SETTINGS)
        fred.run(SETTINGS | {"cluster": {"workers": 4}}, out=tmp_path / "four")
        compared = fred.compare(tmp_path / "four", two=single)
        assert list(compared.results) == ["four", "two"] and "<table" in compared._repr_html_()
        with pytest.raises(fred.FredError, match="expected two or more different results"):
            fred.compare(single)

    def test_an_error_is_one_line_in_ipython(self):
        with pytest.raises(fred.FredError) as raised:
            fred.run("quickstrat")
        (line,) = raised.value._render_traceback_()
        assert line == f"FredError: {raised.value}"

    def test_a_scenario_is_written_as_yaml_but_for_classes_that_no_file_can_name(self, tmp_path):
        scenario = fred.scenario(SETTINGS)
        scenario.to_yaml(tmp_path / "mine.yaml")
        assert fred.load(tmp_path / "mine.yaml") == scenario
        local_class = type("Mine", (Scaled,), {"__module__": "__main__"})
        with pytest.raises(fred.FredError, match=r"a file cannot name `Mine`, .* move it to a module"):
            fred.scenario(SETTINGS, algorithm=local_class(learning_rate=0.1)).to_yaml(tmp_path / "other.yaml")
        assert not (tmp_path / "other.yaml").exists()


def test_an_interrupt_does_not_promise_to_keep_units_of_own_classes():
    seeds: list[int] = []

    def interrupt(_: str, seed: int, share: float) -> None:
        seeds.extend([seed] if share == 0 else [])
        if seeds == [1, 2]:
            raise KeyboardInterrupt

    scenario = fred.scenario(SETTINGS, seeds=[1, 2, 3]).replace({"cluster.compute": Fixed()})
    with pytest.raises(KeyboardInterrupt) as raised:
        fred.run(scenario, progress=interrupt)
    line = "nothing is stored; 1 finished with classes of your own, which may change, so the same call computes them again"
    assert raised.value.__notes__ == [line]
    assert fred.run(scenario).reused == 0


def test_results_are_read_by_run_and_seed_and_wrong_axes_and_folders_are_refused():
    result = fred.run(SETTINGS, seeds=[1, 2])
    assert (result["asgd"].seed, result["asgd", 2].seed) == (1, 2)
    with pytest.raises(fred.FredError, match="no run `asgd` with seed 3 here; there are seeds"):
        result["asgd", 3]
    with pytest.raises(fred.FredError, match=r"ax: found a ndarray; expected axes for one panel, such as `axes\[0\]`"):
        result.plot("throughput", ax=np.array([1, 2]))  # type: ignore[arg-type]
    with pytest.raises(fred.FredError, match="out=5: expected a folder, such as 'results/mine'"):
        fred.run(SETTINGS, out=5)  # type: ignore[arg-type]


def test_a_scenario_shows_itself_in_one_line_and_its_yaml_leaves_out_the_usual_protocol():
    scenario = fred.scenario(SETTINGS, seeds=[1, 2])
    assert repr(scenario) == str(scenario) == "<Scenario of 1 run with seeds 1, 2; `print(scenario.to_yaml())` shows it>"
    assert "protocol" not in scenario.to_yaml()
    changed = scenario.replace({"protocol": {"name": "softsync", "n": 2}})
    assert "softsync" in changed.to_yaml()


def test_an_interrupted_run_in_memory_goes_on_after_its_finished_seeds():
    seeds: list[int] = []

    def interrupt(_: str, seed: int, share: float) -> None:
        seeds.extend([seed] if share == 0 else [])
        if seeds == [1, 2]:
            seeds.append(0)
            raise KeyboardInterrupt

    scenario = fred.scenario(SETTINGS, seeds=[1, 2, 3])
    with pytest.raises(KeyboardInterrupt) as raised:
        fred.run(scenario, progress=interrupt)
    line = "1 of 3 units are done; the same call continues after them"
    assert raised.value.__notes__ == [line]
    assert raised.value._render_traceback_() == [f"interrupted; {line}"]  # type: ignore[attr-defined]
    seeds[:] = [1]
    with pytest.raises(KeyboardInterrupt) as other:
        fred.run(scenario.replace({"stop.updates": 7}, seeds=[2]), progress=interrupt)
    assert other.value.__notes__ == ["nothing is stored"], "the finished unit is another scenario's"
    seeds.clear()
    result = fred.run(scenario, progress=lambda _, seed, share: seeds.extend([seed] if share == 0 else []))
    assert seeds == [2, 3] and result.reused == 1
    assert fred.run(scenario, seeds=[1]).reused == 0, "a complete call leaves nothing behind"
    assert result.summary.equals(fred.run(scenario, fresh=True).summary)


PROGRAM = """
import fred


class Half(fred.Server):
    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, {name: grad / 2 for name, grad in grads.items()})


if __name__ == "__main__":
    cluster = {"workers": 2, "compute": {"name": "constant", "seconds": 0.5}}
    task = {"data": "digits", "model": "softmax"}
    one = fred.scenario(cluster=cluster, stop={"updates": 30}, task=task, algorithm=Half(learning_rate=0.2), seeds=[1, 2])
    losses = [fred.run(one, jobs=jobs).summary["loss"].tolist() for jobs in (1, 2)]
    plain = fred.run(one.replace({"algorithm": {"name": "asgd", "learning_rate": 0.1}})).summary["loss"].tolist()
    assert losses == [plain, plain], (losses, plain)
"""


@pytest.mark.slow
def test_a_class_of_a_program_runs_in_several_processes(tmp_path):
    (tmp_path / "mine.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, check=True)
