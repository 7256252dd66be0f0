"""Tuning apart from reporting: points are chosen on some seeds, and what is reported are others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fred
from fred.base.errors import FredError
from fred.commands import cli
from fred.commands.printing import print_comparison, print_summary, save_comparison
from fred.results.compare import Compared
from fred.results.verify import Verdict, verify
from tests.counted import Counted

pytestmark = pytest.mark.usefixtures("undrawn")

SETTINGS: dict[str, Any] = {
    "seeds": [1, 2],
    "report_seeds": [11, 12, 13],
    "baseline": "ssgd",
    "cluster": {"workers": 3, "compute": {"name": "exponential", "scale": 0.1}},
    "stop": {"gradients": 40},
    "runs": {
        "asgd": {"algorithm": {"name": "asgd", "learning_rate": 0.1}, "sweep": {"over": {"cluster.workers": [2, 4, 3]}}},
        "ssgd": {"algorithm": {"name": "ssgd", "learning_rate": 0.1}},
    },
}
TUNED = [f"asgd,workers={workers}/seed-{seed}" for workers in (2, 4, 3) for seed in (1, 2)]
REPORTED = [f"{run}/seed-{seed}" for run in ("ssgd", "asgd,workers=4") for seed in (11, 12, 13)]


@pytest.fixture
def scenario() -> Any:
    return fred.scenario(SETTINGS)


def units(result: fred.Result) -> list[str]:
    return [f"{each.name}/seed-{each.seed}" for each in result.outcomes]


class TestWhatIsRun:
    def test_points_are_chosen_on_the_seeds_and_only_the_best_is_run_with_the_others(self, scenario):
        result = fred.run(scenario)
        assert sorted(units(result)) == sorted(TUNED + REPORTED)
        reported = result.with_its_best()
        assert sorted(units(reported)) == sorted(REPORTED)
        assert (reported.scenario.seeds, reported.scenario.baseline) == ((11, 12, 13), "ssgd")
        assert result.paired[["run", "baseline", "seeds"]].to_numpy().tolist() == [["asgd,workers=4", "ssgd", 3]]

    def test_the_choice_is_that_without_them_and_the_reported_runs_are_those_of_any_other_scenario(self, scenario):
        result, without = fred.run(scenario), fred.run(scenario.replace({"report_seeds": None}))
        assert result.sweep.equals(without.sweep)
        assert result.best.equals(without.best)
        alone = fred.run(scenario.replace({"report_seeds": None, "seeds": [12], "runs.ssgd.cluster.workers": 3}))
        for run in ("ssgd", "asgd,workers=4"):
            assert result.outcome(run, 12).schedule_digest == alone.outcome(run, 12).schedule_digest

    def test_what_would_be_best_on_the_reported_seeds_does_not_count(self):
        race = {
            "cluster": {"workers": 1, "compute": {"name": "pareto", "minimum": 0.1, "alpha": 1.1}},
            "algorithm": {"name": "asgd", "learning_rate": 0.1},
            "stop": {"updates": 5},
            "sweep": {
                "over": {
                    "cluster.compute": [{"name": "constant", "seconds": s} for s in (0.4, 0.3)]
                    + [{"name": "exponential", "scale": 0.35}]
                }
            },
        }
        both = [fred.run(fred.scenario(race, seeds=[seed])).best["point"].item() for seed in range(12)]
        one, other = 0, next(seed for seed in range(12) if both[seed] != both[0])
        result = fred.run(fred.scenario(race, seeds=[one], report_seeds=[other]))
        assert {each.name for each in result.with_its_best().outcomes} == {both[one]} != {both[other]}

    def test_a_swept_run_may_be_the_baseline_and_settings_may_change(self, scenario):
        other = scenario.replace({"baseline": "asgd", "report_seeds": [12]})
        assert fred.run(other.replace({"stop.gradients": 30})).paired[["run", "baseline"]].to_numpy().tolist() == [
            ["ssgd", "asgd,workers=4"]
        ]

    def test_one_run_alone_is_tuned_and_reported_too(self, scenario):
        assert units(fred.run(scenario, only="ssgd")) == REPORTED[:3]
        assert units(fred.run(scenario, only="asgd")) == TUNED + REPORTED[3:]

    def test_without_a_best_point_nothing_more_is_run(self):
        settings = {**SETTINGS, "runs": {"asgd": SETTINGS["runs"]["asgd"]}, "baseline": None}
        task = {"data": {"name": "synthetic-classification", "examples": 60, "evaluation": 20}, "model": "softmax"}
        never = fred.scenario(settings, task=task, evaluate={"target_loss": 1e-9}).replace({})
        result = fred.run(never.model_copy(update={"best": "target_seconds"}))
        assert units(result) == TUNED
        with pytest.raises(FredError, match="none is the best"):
            _ = result.paired


@pytest.mark.slow
class TestInAFolder:
    def test_it_is_what_comes_out_in_memory_and_is_verified(self, scenario, tmp_path):
        result, here = fred.run(scenario, out=tmp_path / "out"), fred.run(scenario)
        assert units(result) == units(here) == units(fred.load_result(tmp_path / "out"))
        assert result.summary.equals(here.summary)
        assert fred.load_result(tmp_path / "out").paired.equals(here.paired)
        assert (tmp_path / "out" / "paired.csv").read_text().splitlines()[0] == ",".join(map(str, here.paired))
        assert verify(tmp_path / "out")[0] == Verdict.SAME

    def test_wherever_it_is_interrupted_nothing_is_done_twice(self, scenario, monkeypatch, tmp_path):
        whole, done = fred.run(scenario), []
        for stopped_at in (4, 6, 1):  # while points are tuned, when one is chosen, then once more
            with monkeypatch.context() as patch:
                counted = Counted(patch, stopped_at)
                with pytest.raises(KeyboardInterrupt) as raised:
                    fred.run(scenario, out=tmp_path / "out")
            done += counted.units
            assert raised.value.__notes__ == [f"{len(done)} of 12 units are kept; the same command goes on from there"]
        rest = Counted(monkeypatch)
        result = fred.run(scenario, out=tmp_path / "out")
        assert sorted(done + rest.units) == sorted(TUNED + REPORTED)
        assert result.reused == len(done)
        assert result.summary.equals(whole.summary)

    def test_more_seeds_to_report_are_added_and_those_no_longer_wanted_go(self, scenario, monkeypatch, tmp_path):
        fred.run(scenario, out=tmp_path / "out")
        counted = Counted(monkeypatch)
        result = fred.run(scenario.replace({"report_seeds": [12, 14]}), out=tmp_path / "out")
        assert counted.units == ["ssgd/seed-14", "asgd,workers=4/seed-14"]
        assert (result.reused, result.recomputed) == (8, ())
        assert not (tmp_path / "out" / "ssgd" / "seed-11").exists()

    @pytest.mark.slow
    def test_in_several_processes_it_is_the_same(self, scenario, tmp_path):
        assert fred.run(scenario, out=tmp_path / "out", jobs=2).summary.equals(fred.run(scenario).summary)

    def test_a_result_of_other_runs_than_the_baseline_can_be_read(self, scenario, tmp_path):
        fred.run(scenario, only="asgd", out=tmp_path / "out")
        found = fred.load_result(tmp_path / "out")
        assert found.scenario.baseline is None
        assert found.paired.empty

    def test_folders_are_compared_by_what_is_reported(self, scenario, tmp_path, capsys):
        slower = scenario.replace({"cluster.compute.scale": 0.2})
        for name, each in (("first", scenario), ("same", scenario), ("slower", slower)):
            fred.run(each, out=tmp_path / name)
        assert Compared([tmp_path / "first", tmp_path / "same"]).paired().empty
        compared = Compared([tmp_path / "first", tmp_path / "slower"])
        pairs = compared.paired()
        assert pairs[["of", "run", "baseline", "seeds"]].to_numpy().tolist() == [
            [run, "slower", "first", 3] for run in ("ssgd", "asgd")
        ]
        np.testing.assert_allclose(pairs["mean"], 0.5, rtol=1e-6)
        assert set(compared.table()["run"]) == {"ssgd", "asgd,workers=4"}
        save_comparison(compared, tmp_path / "out")
        assert (tmp_path / "out" / "paired.svg").is_file()
        assert (tmp_path / "out" / "paired.csv").read_text().count("first") == 2
        print_comparison(compared)
        assert " ssgd × 0.500 " in " ".join(capsys.readouterr().out.split())


class TestRefusals:
    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"report_seeds": [2, 11]}, r"report_seeds: 2 also in `seeds`, on which the best points are chosen"),
            ({"report_seeds": [11, 11]}, "report_seeds: `report_seeds` must differ from each other"),
            ({"report_seeds": []}, "report_seeds: .*at least 1"),
            ({"report_seeds": [-1]}, r"report_seeds\.0: found -1; expected"),
            ({"baseline": "sgd"}, "baseline: found 'sgd'; expected one of asgd, ssgd; did you mean"),
            ({"baseline": "asgd,workers=4"}, "baseline: found 'asgd,workers=4'; expected one of asgd, ssgd"),
        ],
    )
    def test_what_is_wrong_is_said_with_its_place(self, more, words):
        with pytest.raises(FredError, match=words):
            fred.scenario({**SETTINGS, **more})

    def test_a_seed_of_the_command_line_may_not_be_a_reported_one(self, tmp_path, capsys):
        text = "algorithm: {name: asgd, learning_rate: 0.1}\ncluster: {workers: 2}\nstop: {updates: 3}\nreport_seeds: [7]\n"
        (tmp_path / "x.yaml").write_text(text)
        assert cli.main(["run", str(tmp_path / "x.yaml"), "--seed", "7", "--out", str(tmp_path / "out")]) == 2
        assert "x.yaml:4: report_seeds: 7 also in `seeds`" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_the_table_says_of_how_many_points_on_which_seeds(scenario, capsys):
    print_summary(fred.run(scenario), Path("results/here"))
    text = " ".join(capsys.readouterr().out.split())
    assert "best of" in text
    assert "run ssgd workers=4" in text
    assert "best of 1 3 " in text
    assert "by throughput (the highest), chosen on seeds 1-2, reported on seeds 11-13" in text
    assert "compared with ssgd, seed by seed" in text
    assert "In brackets: range of 3 seeds, too few for an interval" in text


def test_the_table_says_that_the_seeds_are_the_same_if_they_are(scenario, capsys):
    print_summary(fred.run(scenario.replace({"report_seeds": None})), Path("results/here"))
    assert "chosen on seeds 1-2, reported on the same seeds" in " ".join(capsys.readouterr().out.split())
