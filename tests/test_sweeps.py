"""Sweeps: which runs there are, how mistakes in them are told, which point is best; scenarios made and changed in Python."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fred
from fred.base.errors import FredError
from fred.commands import cli
from fred.outcomes import sweeps
from fred.specification.loading import load
from fred.specification.sweep import Point, Sweep
from tests.worlds import make_run

TEXT = """\
seeds: [1, 2]
cluster: {workers: 2, compute: {name: exponential, scale: 0.1}}
task: {data: {name: synthetic-regression, examples: 60}, model: softmax}
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


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "sweep.yaml").write_text(TEXT)
    return tmp_path / "sweep.yaml"


class TestRuns:
    def test_every_point_is_a_run_with_its_values(self, file):
        scenario = load(file)
        rates = {name: run.algorithm.learning_rate for name, run in scenario.runs.items()}
        assert rates == {
            "asgd,learning_rate=0.001": 0.001,
            "asgd,learning_rate=0.01": 0.01,
            "asgd,learning_rate=0.1": 0.1,
            "fasgd,learning_rate=0.01,batch_size=2": 0.01,
            "fasgd,learning_rate=0.01,batch_size=4": 0.01,
            "plain": 0.1,
        }
        assert [run.task.batch_size for run in list(scenario.runs.values())[3:5] if run.task] == [2, 4]
        assert {point.of for point in scenario.points.values()} == {"asgd", "fasgd"}

    def test_a_list_of_points_is_taken_as_it_is(self, file):
        over = (
            "sweep.over=[{algorithm.learning_rate: 0.5, task.batch_size: 3}, {algorithm.learning_rate: 1, cluster.workers: 5}]"
        )
        scenario = load(file, [over])
        assert "asgd,learning_rate=0.5,batch_size=3" in scenario.runs
        assert scenario.runs["asgd,learning_rate=1,workers=5"].cluster.size == 5

    @pytest.mark.parametrize(
        ("spaced", "values"),
        [
            ({"first": 1, "last": 100, "number": 3}, [1, 10, 100]),
            ({"first": 100, "last": 1, "number": 2}, [100, 1]),
            ({"first": 0, "last": 1, "number": 5, "spacing": "linear"}, [0, 0.25, 0.5, 0.75, 1]),
            ({"first": 0.001, "last": 1, "number": 5}, [10 ** (-3 + 0.75 * i) for i in range(5)]),
        ],
    )
    def test_spaced_values(self, spaced, values):
        scenario = (
            fred.scenario(
                cluster={"workers": 1},
                stop={"updates": 1},
                sweep={"over": {"algorithm.learning_rate": spaced}},
                algorithm="asgd",
            )
            if 0 not in values
            else None
        )
        found = sweeps_values(spaced) if scenario is None else [run.algorithm.learning_rate for run in scenario.runs.values()]
        assert found == pytest.approx(values, rel=5e-3)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (("0.001, last", "0, last"), r"sweep.yaml:7: sweep.over: `spacing: log` needs `first` and `last` above 0"),
            (("number: 3", "number: 1"), r"sweep.yaml:7: sweep.over.number: found 1; expected greater than or equal to 2"),
            (("{first: 0.001, last: 0.1, number: 3}", "[]"), r"sweep.yaml:6: .*at least one key, and one value for it"),
            (
                ("best: loss", "best: luck"),
                r"sweep.yaml:9: sweep.best: found 'luck'; expected a column .*the columns are .*loss,",
            ),
            (
                ("best: loss", "best: highest throuhput"),
                r"sweep.yaml:9: sweep.best: .*did you mean `throughput`\?; the columns are",
            ),
            (("best: loss", "best: least loss"), r"sweep.yaml:9: .*found 'least loss'; .*`lowest` or `highest`"),
            (("best: loss", "best: target_seconds"), r"sweep.yaml:9: sweep.best: found 'target_seconds'; it needs a target"),
            (("[0.01]}", "[0.01]}, best: seconds"), r"sweep.yaml:14: .*found 'seconds'; another run's sweep has 'loss'"),
            (("[2, 4]", "[2, 2]"), r"two points have the name fasgd,learning_rate=0.01,batch_size=2"),
            (
                ("algorithm.learning_rate: {first", "cluster.speeds.3: {first"),
                r"^\S*/sweep.yaml:8: sweep.over.cluster.speeds.3: `speeds` has no `3`$",
            ),
            (("task.batch_size: [2, 4]", "stop.updates.x: [2]"), r"^\S*/sweep.yaml:14: runs.fasgd.sweep.over.stop.updates.x: "),
            (
                ("{task.batch_size: [2, 4], algorithm.learning_rate: [0.01]}", "[{stop.seconds: 1},\n  {stop.updates.x: 2}]"),
                r"^\S*/sweep.yaml:15: runs.fasgd.sweep.over.1.stop.updates.x: `updates` has no `x`$",
            ),
            (("[2, 4]", "[2, none]"), r"sweep.yaml:14: .*task.*batch_size.*found 'none'"),
            (("algorithm.learning_rate: {first", "algorithm.rate: {first"), r"sweep.yaml:8: .*unknown key `rate`"),
        ],
    )
    def test_mistakes_are_told_with_their_line(self, file, change, message):
        file.write_text(TEXT.replace(*change))
        with pytest.raises(FredError, match=message):
            load(file)


@pytest.mark.parametrize("over", [{"stop.updates": list(range(1, 10_002))}, [{"stop.updates": n} for n in range(1, 10_002)]])
def test_too_many_points_are_refused_however_they_are_given(over):
    with pytest.raises(FredError, match=r"^sweep\S*: the sweep has more than 10,000 points; expected fewer$"):
        fred.scenario(cluster={"workers": 1}, algorithm={"name": "asgd", "learning_rate": 1}, sweep={"over": over})


def sweeps_values(spaced: dict[str, Any]) -> list[float]:
    from fred.specification.sweep import Spaced

    return Spaced(**spaced).values()


class TestBest:
    @pytest.mark.slow
    def test_the_table_and_the_best_are_those_of_the_summary(self, file, tmp_path):
        result = fred.run(load(file), out=tmp_path / "out")
        table: Any = result.sweep
        assert table["run"].tolist() == ["asgd"] * 3 + ["fasgd"] * 2
        for row in table.itertuples():
            losses = [float(each) for each in result.summary.loc[result.summary["name"] == row.point, "loss"]]
            assert (row.mean, row.least, row.largest) == (pytest.approx(math.fsum(losses) / 2), min(losses), max(losses))
        assert result.best["point"].tolist() == [
            min(table[table["run"] == run].itertuples(), key=lambda row: row.mean).point for run in ("asgd", "fasgd")
        ]
        best = result.with_its_best()
        assert [each.name for each in best.outcomes][::2] == [*result.best["point"], "plain"]
        written = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
        assert {"sweep.csv", "best.csv"} <= written
        assert (tmp_path / "out" / "figures" / "sweep.svg").exists()
        assert result.outcome("asgd").name == best.outcomes[0].name, "of a swept run, the best point's"
        again = fred.load_result(tmp_path / "out")
        assert again.best.equals(result.best)
        assert again.scenario == result.scenario

    def test_what_has_diverged_is_never_the_best(self):
        runs = {name: make_run() for name in ("a", "b", "c")}
        points = {
            name: {"of": "all", "values": {"algorithm.learning_rate": rate}}
            for name, rate in zip("abc", (1, 2, 3), strict=True)
        }
        scenario = fred.scenario(runs=runs, seeds=[1, 2])
        scenario = scenario.model_copy(update={"points": points})
        losses = [0.1, np.nan, 0.5, 0.6, np.nan, np.nan]
        summary = pd.DataFrame({"name": list("aabbcc"), "seed": [1, 2] * 3, "loss": losses})
        table = sweeps.table(scenario, summary)
        assert np.isinf(table["mean"]).tolist() == [True, False, True]
        assert sweeps.best(table)["point"].tolist() == ["b"]
        assert sweeps.best(table[table["point"] != "b"]).empty

    def test_the_time_to_a_target_can_be_what_counts(self, file, tmp_path):
        result = fred.run(load(file, ["sweep.best=seconds", "evaluate={every_updates: 1, target_loss: 0.9}"]), only="asgd")
        reached = result.sweep.set_index("point")["mean"]
        for name, mean in reached.items():
            own = result.metrics[result.metrics["run"] == name]
            first = [each[each["loss"] <= 0.9]["virtual_seconds"].min() for _, each in own.groupby("seed")]
            assert mean == pytest.approx(np.mean([np.inf if np.isnan(each) else each for each in first]))

    def test_the_command_shows_every_point_and_the_best(self, file, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert cli.main(["run", "sweep.yaml", "--only", "asgd"]) == 0
        said = capsys.readouterr().out
        assert "sweep: loss" in said
        assert "The best of each run's sweep by loss (the lowest)" in said.replace("\n", " ")
        best = fred.load_result("results/sweep.asgd").best["point"][0]
        assert said.count("asgd,") == 1
        assert best.split(",")[1] in said


class TestInPython:
    def test_keywords_are_what_a_file_would_hold(self, file):
        from ruamel.yaml import YAML

        document = YAML(typ="safe").load(TEXT)
        assert fred.scenario(**document) == fred.scenario(document) == load(file)

    def test_mistakes_are_told_with_their_key(self):
        with pytest.raises(FredError, match=r"^cluster.workers: found 0; expected"):
            fred.scenario(algorithm={"name": "asgd", "learning_rate": 1}, cluster={"workers": 0}, stop={"updates": 1})
        with pytest.raises(FredError, match=r"^algoritm: unknown key `algoritm`; did you mean `algorithm`\?"):
            fred.scenario(algoritm="asgd")

    def test_settings_are_replaced_in_all_runs_or_in_one(self, file):
        scenario = load(file)
        changed = scenario.replace({"stop.updates": 7, "runs.plain.algorithm.learning_rate": 0.3, "seeds": [5]})
        assert {run.stop.updates for run in changed.runs.values()} == {7}
        assert changed.runs["plain"].algorithm.learning_rate == 0.3
        assert changed.seeds == (5,)
        assert changed.points == scenario.points
        assert scenario.runs["plain"].stop.updates == 12, "the old one is as it was"
        with pytest.raises(FredError, match=r"stop.updates=-1: found -1; expected"):
            scenario.replace({"stop.updates": -1})

    def test_arrays_are_data(self, tmp_path):
        rng = np.random.default_rng(0)
        inputs, answers = rng.normal(size=(50, 3)), rng.integers(0, 4, 50)
        data = fred.arrays(tmp_path / "mine", train=(inputs, answers), evaluation=(inputs[:10], answers[:10]))
        scenario = fred.scenario(
            task={"data": data, "model": "softmax"},
            cluster={"workers": 2},
            algorithm={"name": "asgd", "learning_rate": 0.1},
            stop={"updates": 5},
        )
        result = fred.run(scenario, out=tmp_path / "out")
        assert np.isfinite(result.summary["loss"]).all()
        assert cli.main(["verify", str(tmp_path / "out")]) == 0
        fred.arrays(tmp_path / "mine", train=(inputs + 1, answers), evaluation=(inputs, answers))
        assert cli.main(["verify", str(tmp_path / "out")]) == 2
        with pytest.raises(FredError, match="training data: 50 inputs and 49 answers"):
            fred.arrays(tmp_path / "other", train=(inputs, answers[1:]), evaluation=(inputs, answers))
        values = fred.arrays(tmp_path / "values", train=(inputs, inputs[:, 0]), evaluation=(inputs, inputs[:, 0])).load(0)
        assert (values.outputs, values.classifies) == (1, False)


def test_the_manifest_says_when_and_how_long_and_the_file(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "sweep.yaml", "--only", "plain", "--out", "here/out"]) == 0
    manifest = json.loads(Path("here/out/manifest.json").read_text())
    assert manifest["file"] == "../sweep.yaml"
    assert manifest["date"].startswith("20")
    assert manifest["seconds"] > 0


class TestStart:
    """`start`: a few values in the middle first, then the neighbours of the best point."""

    KEYS = ("a.x", "a.y", "a.z")

    @pytest.mark.parametrize("seed", range(30))
    def test_it_ends_at_a_point_that_is_better_than_its_neighbours(self, seed):
        rng = np.random.default_rng(seed)
        keys, start = self.KEYS[: rng.integers(1, 4)], int(rng.integers(2, 4))
        sweep = Sweep(
            over={key: sorted(rng.choice(100, rng.integers(1, 8), replace=False).tolist()) for key in keys}, start=start
        )
        values = {json.dumps(each): float(rng.choice([rng.normal(), np.inf], p=[0.8, 0.2])) for each in sweep.points()}
        tried = self.searched(sweep, values)
        finite = [each for each in tried if math.isfinite(values[each])]
        if not finite:
            assert len(tried) == len(values), "everything has been tried"
            return
        best = json.loads(min(finite, key=lambda each: values[each]))
        for each in sweep.points():
            steps = [abs(self.place(sweep, key, each) - self.place(sweep, key, best)) for key in keys]
            if sum(steps) == 1:
                assert json.dumps(each) in tried
                assert values[json.dumps(each)] >= values[json.dumps(best)]

    def test_it_finds_the_best_of_a_bowl_and_tries_few_points(self):
        sweep = Sweep(over={"a.x": list(range(20)), "a.y": list(range(20))}, start=3)
        values = {json.dumps(each): float((each["a.x"] - 15) ** 2 + (each["a.y"] - 3) ** 2) for each in sweep.points()}
        tried = self.searched(sweep, values)
        assert min(tried, key=lambda each: values[each]) == json.dumps({"a.x": 15, "a.y": 3})
        assert len(tried) < 60

    @staticmethod
    def place(sweep: Sweep, key: str, values: dict[str, Any]) -> int:
        assert isinstance(sweep.over, dict)
        return list(sweep.over[key]).index(values[key])

    @staticmethod
    def searched(sweep: Sweep, values: dict[str, float]) -> list[str]:
        """Return the points that a search tries, as JSON."""
        scenario: Any = SimpleNamespace(
            points={json.dumps(each): Point(of="run", values=each, later=sweep.later(each)) for each in sweep.points()}
        )
        tried: list[str] = []
        more = [name for name, point in scenario.points.items() if not point.later]
        while more:
            tried += more
            assert len(tried) == len(set(tried)), "no point is tried twice"
            points = pd.DataFrame({"run": "run", "point": tried, "mean": [values[each] for each in tried]})
            more = sweeps.following(scenario, points, sweeps.best(points))
        return tried

    def test_points_are_those_of_the_whole_sweep(self, file, tmp_path):
        text = TEXT.replace("0.001, last: 0.1, number: 3", "0.001, last: 10, number: 9").replace(
            "best: loss", "best: loss\n  start: 3"
        )
        file.write_text("report_seeds: [7, 8]\n" + text)
        scenario = load(file)
        result = fred.run(scenario, out=tmp_path / "some", jobs=2)
        whole = fred.run(scenario.replace({"title": "all"}), only=list(scenario.runs), out=tmp_path / "all")
        some, everything = (frame.set_index("point")["mean"] for frame in (result.sweep, whole.sweep))
        assert 3 < len(some) < len(everything) == 11
        assert some.to_dict() == everything[some.index].to_dict()
        assert result.best["point"].tolist() == whole.best["point"].tolist(), "these losses have one least value"
        assert set(result.summary[result.summary["seed"] == 7]["name"]) == {*result.best["point"], "plain"}
        assert fred.run(scenario, out=tmp_path / "some").reused == len(result.outcomes)
        assert fred.load_result(tmp_path / "some").sweep.equals(result.sweep)
        assert cli.main(["verify", str(tmp_path / "some"), "-q"]) == 0
        alone = fred.run(scenario, only="asgd,learning_rate=10")
        assert [each.name for each in alone.outcomes[:2]] == ["asgd,learning_rate=10"] * 2, "a named point is all that is tried"
        assert set(alone.summary["name"]) == {"asgd,learning_rate=10"}

    @pytest.mark.parametrize("only", ["asgd", "plain"])
    def test_a_result_of_some_runs_can_be_verified(self, file, only, tmp_path):
        assert cli.main(["run", str(file), "--only", only, "--out", str(tmp_path / "some"), "-q"]) == 0
        assert cli.main(["verify", str(tmp_path / "some"), "-q"]) == 0

    @pytest.mark.parametrize(
        ("sweep", "said"),
        [
            ({"over": [{"algorithm.learning_rate": 0.1}], "start": 3}, "`start` needs a grid in `over`"),
            (
                {"over": {"algorithm.learning_rate": [0.1, 0.2]}, "start": 1},
                "start: found 1; expected greater than or equal to 2",
            ),
        ],
    )
    def test_mistakes(self, sweep, said):
        with pytest.raises(FredError, match=said):
            fred.scenario(cluster={"workers": 2}, algorithm="asgd", stop={"updates": 4}, sweep=sweep)
