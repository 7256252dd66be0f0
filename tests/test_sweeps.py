"""Sweeps: their runs, mistakes in them, the best point, the search for it; scenarios made in Python; studies' own search."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML

import fred
from fred import FredError, load
from fred.outcomes import tables
from fred.specification.sweep import Criterion, Point, Spaced, Sweep
from studies.kit.tuning import Tuned, tuned
from tests.program import fred_command
from tests.worlds import TASK, make_run

pytestmark = pytest.mark.usefixtures("undrawn")

TEXT = """\
seeds: [1, 2]
cluster: {workers: 2, compute: {name: exponential, scale: 0.1}}
task: {data: {name: synthetic-regression, examples: 60, evaluation: 12}, model: softmax}
stop: {updates: 12}
evaluate: {points: 2}
sweep:
  over:
    algorithm.learning_rate: {first: 0.001, last: 0.1, number: 3}
  best: loss
runs:
  asgd: {algorithm: asgd}
  fasgd:
    algorithm: fasgd
    sweep: {over: {task.batch_size: [2, 4], algorithm.learning_rate: [0.01]}}
  plain: {algorithm: {name: ssgd, learning_rate: 0.1}, sweep: null}
"""
FIRST = "algorithm.learning_rate: {first"
SETTINGS = {"cluster": {"workers": 2}, "algorithm": {"name": "asgd", "learning_rate": 0.1}, "stop": {"updates": 5}}


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "sweep.yaml").write_text(TEXT)
    return tmp_path / "sweep.yaml"


class TestRuns:
    def test_every_point_is_a_run_with_its_values(self, file):
        scenario = load(file)
        rates = {f"asgd,learning_rate={rate}": rate for rate in (0.001, 0.01, 0.1)} | {"plain": 0.1}
        rates |= {f"fasgd,learning_rate=0.01,batch_size={size}": 0.01 for size in (2, 4)}
        assert {name: run.algorithm.learning_rate for name, run in scenario.runs.items()} == rates
        assert [run.task.batch_size for run in list(scenario.runs.values())[3:5] if run.task] == [2, 4]
        assert {point.of for point in scenario.points.values()} == {"asgd", "fasgd"}
        points = "[{algorithm.learning_rate: 0.5, task.batch_size: 3}, {algorithm.learning_rate: 1, cluster.workers: 5}]"
        scenario = load(file, [f"sweep.over={points}"])
        assert "asgd,learning_rate=0.5,batch_size=3" in scenario.runs
        assert scenario.runs["asgd,learning_rate=1,workers=5"].cluster.size == 5

    def test_values_are_spaced_by_equal_ratios_or_differences(self):
        for spaced, values in (
            ({"first": 1, "last": 100, "number": 3}, [1, 10, 100]),
            ({"first": 100, "last": 1, "number": 2}, [100, 1]),
            ({"first": 0, "last": 1, "number": 5, "spacing": "linear"}, [0, 0.25, 0.5, 0.75, 1]),
            ({"first": 0.001, "last": 1, "number": 5}, [10 ** (-3 + 0.75 * i) for i in range(5)]),
        ):
            assert Spaced(**spaced).values() == pytest.approx(values, rel=5e-3)

    @pytest.mark.parametrize(
        ("before", "after", "message"),
        [
            ("0.001, last", "0, last", r"sweep.yaml:7: sweep.over: `spacing: log` needs `first` and `last` above 0"),
            ("number: 3", "number: 1", r"sweep.yaml:7: sweep.over.number: found 1; expected greater than or equal to 2"),
            ("{first: 0.001, last: 0.1, number: 3}", "[]", r"sweep.yaml:6: .*at least one key, and one value for it"),
            ("best: loss", "best: luck", r"yaml:9: sweep.best: found 'luck'; expected a column .*the columns are .*loss,"),
            ("best: loss", "best: highest throuhput", r"yaml:9: .*did you mean `throughput`\?; the columns are"),
            ("best: loss", "best: least loss", r"sweep.yaml:9: .*found 'least loss'; .*`lowest` or `highest`"),
            ("[0.01]}", "[0.01]}, best: seconds", r"sweep.yaml:14: .*found 'seconds'; another run's sweep has 'loss'"),
            ("[2, 4]", "[2, 2]", r"two points have the name fasgd,learning_rate=0.01,batch_size=2"),
            (FIRST, FIRST.replace("algorithm.learning_rate", "cluster.speeds.3"), r"sweep.over.cluster.speeds.3: `speeds` has no `3`$"),
            ("{task.batch_size: [2, 4], algorithm.learning_rate: [0.01]}", "[{stop.seconds: 1},\n  {stop.updates.x: 2}]",
             r"^\S*/sweep.yaml:15: runs.fasgd.sweep.over.1.stop.updates.x: `updates` has no `x`$"),
            ("[2, 4]", "[2, none]", r"sweep.yaml:14: .*task.*batch_size.*found 'none'"),
            (FIRST, FIRST.replace("learning_rate", "rate"), r"sweep.yaml:8: .*unknown key `rate`"),
            ("  best: loss", "  best: loss\n  start: 1", r"start: found 1; expected greater than or equal to 2"),
            (f"over:\n    {FIRST}: 0.001, last: 0.1, number: 3}}", "start: 3\n  over: [{stop.updates: 2}]",
             r"`start` needs a grid in `over`"),
        ],
    )  # fmt: skip
    def test_mistakes_are_reported_with_their_line(self, file, before, after, message):
        file.write_text(TEXT.replace(before, after))
        with pytest.raises(FredError, match=message):
            load(file)

    def test_a_point_that_is_named_beside_its_sweep_is_computed_once(self):
        scenario = fred.scenario(SETTINGS, sweep={"over": {"cluster.workers": [2, 3]}})
        names = [outcome.name for outcome in fred.run(scenario, only=["asgd", "asgd,workers=2"]).outcomes]
        assert names == ["asgd,workers=2", "asgd,workers=3"]

    def test_a_mistake_is_not_reported_at_a_swept_option_whose_name_begins_alike(self, file):
        text = TEXT.replace("model: softmax}", "model: softmax, division_seed: -1}")
        file.write_text(text.replace(f"{FIRST}: 0.001, last: 0.1, number: 3}}", "task.division: [divided, shared]"))
        with pytest.raises(FredError, match=r"sweep.yaml:3: task.division_seed: found -1"):
            load(file)

    def test_too_many_points_are_refused_however_they_are_given(self):
        for points in ({"stop.updates": list(range(1, 10_002))}, [{"stop.updates": n} for n in range(1, 10_002)]):
            with pytest.raises(FredError, match=r"^sweep\S*: the sweep has more than 10,000 points; expected fewer$"):
                fred.scenario(SETTINGS, sweep={"over": points})


class TestBest:
    def test_a_diverged_point_is_never_the_best(self):
        scenario = fred.scenario(runs=dict.fromkeys("abc", make_run()), seeds=[1, 2])
        points = {name: {"of": "all", "values": {"algorithm.learning_rate": rate}} for rate, name in enumerate("abc", 1)}
        losses = [0.1, np.nan, 0.5, 0.6, np.nan, np.nan]
        summary = pd.DataFrame({"name": list("aabbcc"), "seed": [1, 2] * 3, "loss": losses})
        table = tables.table(scenario.model_copy(update={"points": points}), summary)
        assert np.isinf(table["mean"]).tolist() == [True, False, True]
        assert tables.best_points(table)["point"].tolist() == ["b"] and tables.best_points(table[table["point"] != "b"]).empty

    def test_the_time_to_a_target_can_be_the_criterion(self, file):
        task = json.dumps(TASK)
        changes = ["sweep.best=seconds", "evaluate={every_updates: 1, target_loss: 1.36}", f"task={task}"]
        result = fred.run(load(file, changes), only="asgd")
        means = result.sweep.set_index("point")["mean"]
        assert np.isfinite(means).any() and np.isinf(means).any()
        for name, mean in means.items():
            metrics = result.metrics[result.metrics["run"] == name]
            first = [rows[rows["loss"] <= 1.36]["virtual_seconds"].min() for _, rows in metrics.groupby("seed")]
            assert mean == pytest.approx(np.mean([np.inf if np.isnan(seconds) else seconds for seconds in first]))

    def test_a_result_computes_its_points_once_and_gives_copies(self, monkeypatch, tmp_path):
        """Once while points are chosen, and once for the folder, whose files and figures need them dozens of times."""
        table = Mock(wraps=tables.table)
        monkeypatch.setattr(tables, "table", table)
        result = fred.run(fred.scenario(SETTINGS, sweep={"over": {"cluster.workers": [2, 4]}}), out=tmp_path / "swept")
        assert table.call_count <= 3
        for frame in (result.sweep, result.best):
            frame["mean"] = 0.0
        assert (result.sweep["mean"] > 0).all() and (result.best["mean"] > 0).all()


class TestInPython:
    def test_keywords_and_mappings_are_what_a_file_holds(self, file):
        document = YAML(typ="safe").load(TEXT)
        assert fred.scenario(**document) == fred.scenario(document) == load(file)
        with pytest.raises(FredError, match=r"^cluster.workers: found 0; expected"):
            fred.scenario({**SETTINGS, "cluster": {"workers": 0}})

    def test_settings_are_replaced_in_all_runs_or_in_one(self, file):
        scenario = load(file)
        changed = scenario.replace({"stop.updates": 7, "runs.plain.algorithm.learning_rate": 0.3, "seeds": [5]})
        assert {run.stop.updates for run in changed.runs.values()} == {7}
        assert changed.runs["plain"].algorithm.learning_rate == 0.3
        assert (changed.seeds, changed.points) == ((5,), scenario.points)
        assert scenario.runs["plain"].stop.updates == 12, "the old one is as it was"
        with pytest.raises(FredError, match=r"stop.updates=-1: found -1; expected"):
            scenario.replace({"stop.updates": -1})

    @pytest.mark.parametrize("path", ["sweep", "runs.asgd.sweep"])
    def test_a_sweep_that_is_set_later_is_the_sweep_of_a_file(self, path):
        sweep = {"over": {"cluster.workers": [2, 4]}, "best": "seconds"}
        assert fred.scenario(SETTINGS).replace({path: sweep}) == fred.scenario(SETTINGS, sweep=sweep)

    def test_arrays_are_data(self, tmp_path):
        rng = np.random.default_rng(0)
        inputs, answers = rng.normal(size=(50, 3)), rng.integers(0, 4, 50)
        data = fred.arrays(tmp_path / "mine", train=(inputs, answers), evaluation=(inputs[:10], answers[:10]))
        result = fred.run(fred.scenario(SETTINGS, task={"data": data, "model": "softmax"}), out=tmp_path / "out")
        assert np.isfinite(result.summary["loss"]).all() and fred_command("verify", tmp_path / "out").code == 0
        fred.arrays(tmp_path / "mine", train=(inputs + 1, answers), evaluation=(inputs, answers))
        assert fred_command("verify", tmp_path / "out").code == 2
        with pytest.raises(FredError, match="training data: 50 inputs and 49 answers"):
            fred.arrays(tmp_path / "other", train=(inputs, answers[1:]), evaluation=(inputs, answers))
        values = fred.arrays(tmp_path / "values", train=(inputs, inputs[:, 0]), evaluation=(inputs, inputs[:, 0])).load(0)
        assert (values.outputs, values.classifies) == (1, False)


def key(values: dict[str, Any]) -> str:
    return json.dumps(values)


class TestStart:
    """`start`: a few values in the middle first, then the neighbours of the best point."""

    def test_it_ends_at_a_point_that_is_better_than_its_neighbours(self):
        for seed in range(30):
            rng = np.random.default_rng(seed)
            knobs, start = ("a.x", "a.y", "a.z")[: rng.integers(1, 4)], int(rng.integers(2, 4))
            grid = {knob: sorted(rng.choice(100, rng.integers(1, 8), replace=False).tolist()) for knob in knobs}
            if max(map(len, grid.values())) <= start:
                continue  # refused: nothing is left for later
            sweep = Sweep(over=grid, start=start)
            values = {key(point): float(rng.choice([rng.normal(), np.inf], p=[0.8, 0.2])) for point in sweep.points()}
            visited = self.searched(sweep, values)
            finite = [point for point in visited if math.isfinite(values[point])]
            assert finite or len(visited) == len(values), "everything has been tried"
            best = json.loads(min(finite, key=values.__getitem__)) if finite else {}
            for point in sweep.points() if finite else ():
                if sum(abs(grid[knob].index(point[knob]) - grid[knob].index(best[knob])) for knob in knobs) == 1:
                    assert key(point) in visited and values[key(point)] >= values[key(best)]

    @staticmethod
    def searched(sweep: Sweep, values: dict[str, float]) -> list[str]:
        """Return the points that a search tries, as JSON."""
        points = {key(point): Point(of="run", values=point, later=sweep.comes_later(point)) for point in sweep.points()}
        scenario: Any = SimpleNamespace(points=points)
        visited: list[str] = []
        names = [name for name, point in points.items() if not point.later]
        while names:
            visited += names
            assert len(visited) == len(set(visited)), "no point is tried twice"
            table = pd.DataFrame({"run": "run", "point": visited, "mean": [values[name] for name in visited]})
            names = tables.find_next_points(scenario, table, tables.best_points(table))
        return visited

    @pytest.mark.slow
    def test_points_are_those_of_the_whole_sweep(self, tmp_path):
        out, grid = tmp_path / "some", {"cluster.workers": [1, 2, 3, 4, 6, 8, 12, 16, 24]}
        runs = {"asgd": {"sweep": {"over": grid, "start": 3, "best": "lowest throughput"}}, "plain": {}}
        scenario = fred.scenario(SETTINGS, seeds=[1, 2], report_seeds=[7, 8], runs=runs)
        result = fred.run(scenario, out=out)
        full = fred.run(scenario.replace({"title": "all"}), only=list(scenario.runs))
        searched, everything = (frame.set_index("point")["mean"] for frame in (result.sweep, full.sweep))
        assert 3 < len(searched) < len(everything) == 9 and searched.to_dict() == everything[searched.index].to_dict()
        assert result.best["point"].tolist() == full.best["point"].tolist() == ["asgd,workers=1"]
        assert set(result.summary[result.summary["seed"] == 7]["name"]) == {"asgd,workers=1", "plain"}
        assert fred.run(scenario, out=out).reused == len(result.outcomes)
        assert fred.load_result(out).sweep.equals(result.sweep) and fred_command("verify", out, "-q").code == 0
        single = fred.run(scenario, only="asgd,workers=24")
        assert [outcome.name for outcome in single.outcomes[:2]] == ["asgd,workers=24"] * 2
        assert set(single.summary["name"]) == {"asgd,workers=24"}, "a named point is all that is tried"

    @pytest.mark.slow
    @pytest.mark.parametrize("only", ["asgd", "plain"])
    def test_a_result_of_some_runs_can_be_verified_and_has_the_file_the_date_and_the_time(self, file, only, monkeypatch):
        monkeypatch.chdir(file.parent)
        file.write_text(TEXT.replace("task.batch_size: [2, 4]", "cluster.workers: [2, 4]"))
        timed = ("--set", "task=null", "--set", "sweep.best=throughput")
        assert fred_command("run", file, "--only", only, "--out", "here/out", "-q", *timed).code == 0
        assert fred_command("verify", "here/out", "-q").code == 0
        manifest = json.loads(Path("here/out/manifest.json").read_text())
        assert manifest["file"] == "../sweep.yaml" and manifest["date"].startswith("20")
        assert manifest["seconds"] > 0


class TestTuningOfStudies:
    def test_the_choice_is_by_the_mean_over_seeds_among_the_best_of_the_first_and_never_a_diverged_one(self):
        values = {1: [0.0, 9.0, 9.0], 2: [1.0, 1.0, 1.0], 3: [2.0, 0.0, 0.0], 4: [np.nan] * 3}  # by setting: with seeds 1, 2, 3

        def measure(points, seeds):
            return np.array([[values[settings["a"]][seed - 1] for seed in seeds] for settings in points])

        assert tuned(measure, {"a": [1, 2, 3]}, finalists=3) == Tuned({"a": 3}, 2 / 3, 3, ("a",))
        assert tuned(measure, {"a": [1, 2, 3]}, finalists=2) == Tuned({"a": 2}, 1.0, 3, ())
        assert tuned(measure, {"a": [4, 1, 2]}, finalists=3).settings == {"a": 2}


def test_a_way_that_is_named_counts_for_columns_of_either_kind():
    ways = {name: Criterion.from_name(name, []).way for name in ("throughput", "lowest throughput", "highest seconds")}
    assert ways == {"throughput": "highest", "lowest throughput": "lowest", "highest seconds": "highest"}
