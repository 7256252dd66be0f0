"""Tuning apart from reporting: points are chosen on some seeds, and others are reported."""

from typing import Any

import numpy as np
import pytest

import fred
from fred.base.errors import FredError
from fred.commands.printing import print_comparison, save_comparison
from fred.results.compare import compare
from fred.results.verify import Verdict, verify
from fred.specification.text import as_yaml
from tests.program import fred_command, refusal
from tests.unit_counter import UnitCounter
from tests.worlds import TASK

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
SCENARIO = fred.scenario(SETTINGS)
TUNED = [f"asgd,workers={workers}/seed-{seed}" for workers in (2, 4, 3) for seed in (1, 2)]
REPORTED = [f"{run}/seed-{seed}" for run in ("ssgd", "asgd,workers=4") for seed in (11, 12, 13)]


@pytest.fixture(scope="module")
def result() -> fred.Result:
    return fred.run(SCENARIO)


def units(result: fred.Result) -> list[str]:
    return [f"{outcome.name}/seed-{outcome.seed}" for outcome in result.outcomes]


class TestRuns:
    def test_points_are_chosen_on_the_seeds_and_only_the_best_is_run_with_the_others(self, result):
        assert sorted(units(result)) == sorted(TUNED + REPORTED)
        reported = result.with_its_best()
        assert sorted(units(reported)) == sorted(REPORTED)
        assert (reported.scenario.seeds, reported.scenario.baseline) == ((11, 12, 13), "ssgd")
        assert result.paired[["run", "baseline", "seeds"]].to_numpy().tolist() == [["asgd,workers=4", "ssgd", 3]]

    def test_the_choice_is_that_without_them_and_the_reported_runs_are_those_of_any_other_scenario(self, result):
        unreported = fred.run(SCENARIO.replace({"report_seeds": None}))
        assert result.sweep.equals(unreported.sweep) and result.best.equals(unreported.best)
        single = fred.run(SCENARIO.replace({"report_seeds": None, "seeds": [12], "runs.ssgd.cluster.workers": 3}))
        for run in ("ssgd", "asgd,workers=4"):
            assert result.outcome(run, 12).schedule_digest == single.outcome(run, 12).schedule_digest

    def test_the_best_on_the_reported_seeds_does_not_count(self):
        times: list[dict] = [{"name": "constant", "seconds": seconds} for seconds in (0.4, 0.3)]
        race = {
            "cluster": {"workers": 1, "compute": {"name": "pareto", "minimum": 0.1, "alpha": 1.1}},
            "algorithm": {"name": "asgd", "learning_rate": 0.1},
            "stop": {"updates": 5},
            "sweep": {"over": {"cluster.compute": [*times, {"name": "exponential", "scale": 0.35}]}},
        }
        best = [fred.run(fred.scenario(race, seeds=[seed])).best["point"].item() for seed in range(12)]
        tuned_seed, reported_seed = 0, next(seed for seed in range(12) if best[seed] != best[0])
        result = fred.run(fred.scenario(race, seeds=[tuned_seed], report_seeds=[reported_seed]))
        assert {outcome.name for outcome in result.with_its_best().outcomes} == {best[tuned_seed]} != {best[reported_seed]}

    def test_a_swept_run_may_be_the_baseline_and_one_run_alone_is_tuned_and_reported_too(self):
        pairs = fred.run(SCENARIO.replace({"baseline": "asgd", "report_seeds": [12], "stop.gradients": 30})).paired
        assert pairs[["run", "baseline"]].to_numpy().tolist() == [["ssgd", "asgd,workers=4"]]
        assert units(fred.run(SCENARIO, only="ssgd")) == REPORTED[:3]
        assert units(fred.run(SCENARIO, only="asgd")) == TUNED + REPORTED[3:]

    def test_without_a_best_point_nothing_more_is_run(self):
        swept = {"algorithm": {"name": "asgd"}, "sweep": {"over": {"algorithm.learning_rate": [0.1, 0.2]}, "best": "seconds"}}
        settings = {**SETTINGS, "runs": {"asgd": swept}, "baseline": None, "task": TASK, "evaluate": {"target_loss": 1e-9}}
        result = fred.run(fred.scenario(settings))
        assert units(result) == [f"asgd,learning_rate={rate}/seed-{seed}" for rate in (0.1, 0.2) for seed in (1, 2)]
        with pytest.raises(FredError, match="none is the best"):
            _ = result.paired


class TestFolder:
    @pytest.mark.slow
    def test_wherever_it_is_interrupted_nothing_is_computed_twice_and_it_holds_the_result_in_memory(
        self, result, monkeypatch, tmp_path
    ):
        done = []
        for interrupt_at in (4, 6, 1):  # while points are tuned, when one is chosen, then once more
            with monkeypatch.context() as patch:
                counter = UnitCounter(patch, interrupt_at)
                with pytest.raises(KeyboardInterrupt) as raised:
                    fred.run(SCENARIO, out=tmp_path / "out")
            done += counter.units
            assert raised.value.__notes__ == [f"{len(done)} of 12 units are kept; the same command goes on from there"]
        with monkeypatch.context() as patch:
            rest = UnitCounter(patch)
            resumed = fred.run(SCENARIO, out=tmp_path / "out")
        assert sorted(done + rest.units) == sorted(TUNED + REPORTED)
        assert resumed.reused == len(done) and resumed.summary.equals(result.summary)
        stored = fred.load_result(tmp_path / "out")
        assert units(stored) == units(result) and stored.paired.equals(result.paired)
        assert (tmp_path / "out" / "paired.csv").read_text().splitlines()[0] == ",".join(map(str, result.paired))
        assert verify(tmp_path / "out")[0] == Verdict.SAME

    def test_more_seeds_to_report_are_added_and_those_no_longer_wanted_go(self, monkeypatch, tmp_path):
        fred.run(SCENARIO, out=tmp_path / "out")
        counter = UnitCounter(monkeypatch)
        result = fred.run(SCENARIO.replace({"report_seeds": [12, 14]}), out=tmp_path / "out")
        assert counter.units == ["ssgd/seed-14", "asgd,workers=4/seed-14"]
        assert (result.reused, result.recomputed) == (8, ()) and not (tmp_path / "out" / "ssgd" / "seed-11").exists()

    @pytest.mark.slow
    def test_a_result_of_other_runs_than_the_baseline_can_be_read(self, tmp_path):
        fred.run(SCENARIO, only="asgd", out=tmp_path / "out")
        result = fred.load_result(tmp_path / "out")
        assert result.scenario.baseline is None and result.paired.empty

    @pytest.mark.slow
    def test_folders_are_compared_by_what_is_reported(self, tmp_path, capsys):
        slower = SCENARIO.replace({"cluster.compute.scale": 0.2})
        for name, scenario in (("first", SCENARIO), ("same", SCENARIO), ("slower", slower)):
            fred.run(scenario, out=tmp_path / name)
        assert compare(tmp_path / "first", tmp_path / "same").paired().empty
        compared = compare(tmp_path / "first", tmp_path / "slower")
        pairs = compared.paired()
        rows = [[run, "slower", "first", 3] for run in ("ssgd", "asgd")]
        assert pairs[["of", "run", "baseline", "seeds"]].to_numpy().tolist() == rows
        np.testing.assert_allclose(pairs["mean"], 0.5, rtol=1e-6)
        assert set(compared.table()["run"]) == {"ssgd", "asgd,workers=4"}
        save_comparison(compared, tmp_path / "out")
        assert (tmp_path / "out" / "paired.svg").is_file()
        assert (tmp_path / "out" / "paired.csv").read_text().count("first") == 2
        print_comparison(compared)
        assert " ssgd × 0.500 " in " ".join(capsys.readouterr().out.split())


def test_wrong_seeds_and_baselines_are_refused_with_their_place(tmp_path):
    for settings, message in (
        ({"report_seeds": [2, 11]}, r"report_seeds: 2 also in `seeds`, on which the best points are chosen"),
        ({"report_seeds": [11, 11]}, "report_seeds: `report_seeds` must differ from each other"),
        ({"report_seeds": []}, "report_seeds: .*at least 1"),
        ({"report_seeds": [-1]}, r"report_seeds\.0: found -1; expected"),
        ({"baseline": "sgd"}, "baseline: found 'sgd'; expected one of asgd, ssgd; did you mean"),
        ({"baseline": "asgd,workers=4"}, "baseline: found 'asgd,workers=4'; expected one of asgd, ssgd"),
    ):
        with pytest.raises(FredError, match=message):
            fred.scenario({**SETTINGS, **settings})
    text = "algorithm: {name: asgd, learning_rate: 0.1}\ncluster: {workers: 2}\nstop: {updates: 3}\nreport_seeds: [7]\n"
    (tmp_path / "x.yaml").write_text(text)
    line = refusal("run", tmp_path / "x.yaml", "--seed", "7", "--out", tmp_path / "out")
    assert "x.yaml:4: report_seeds: 7 also in `seeds`" in line and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_table_names_the_number_of_points_and_the_seeds(tmp_path):
    def words(scenario: Any, out: str) -> str:
        (tmp_path / "x.yaml").write_text(as_yaml(scenario))
        return " ".join(fred_command("run", tmp_path / "x.yaml", "--out", tmp_path / out, columns=80).out.split())

    text = words(SCENARIO, "apart")
    for part in (
        *("best", "asgd,workers=4 3 40", "ssgd 1 14", "compared with ssgd, seed by seed"),
        "by throughput (the highest), chosen on seeds 1-2, reported on seeds 11-13",
        "In brackets: range of 3 seeds, too few for an interval",
    ):
        assert part in text
    assert "chosen on seeds 1-2, reported on the same seeds" in words(SCENARIO.replace({"report_seeds": None}), "same")
