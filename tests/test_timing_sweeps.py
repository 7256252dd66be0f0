"""The best points of sweeps, mostly of timing alone: how they are chosen, printed and drawn, also where none is the best."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fred
from fred import FredError, Result, Verb, load
from fred.commands import printing
from fred.outcomes.outcome import summarise
from fred.results import experiment
from fred.running.execution import execute
from fred.specification.summary import NUMBERS
from tests.program import fred_command
from tests.worlds import COMPUTE, make_run

TEXT = """\
seeds: [1, 2]
cluster: {compute: {name: lognormal, median: 0.1, sigma: 0.5}, network: {message_bytes: 1000}}
stop: {updates: 40}
sweep: {over: {cluster.workers: [2, 4, 8]}}
runs:
  waiting: {algorithm: {name: ssgd, learning_rate: 0.1}}
  at-once: {algorithm: {name: asgd, learning_rate: 0.1}}
"""
ASGD = {"name": "asgd", "learning_rate": 0.1}
LEARNED = "task: {data: {name: synthetic-regression, examples: 60, evaluation: 12}, model: softmax}\n"


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Result:
    path: Path = tmp_path_factory.mktemp("swept") / "timing.yaml"
    path.write_text(TEXT)
    return fred.run(load(path))


def values(result: Result, best: str) -> dict[str, dict[str, list[float]]]:
    """Return the criterion by run, point and seed, counted from the schedules."""
    table: dict[str, dict[str, list[float]]] = {}
    for outcome in result.outcomes:
        seconds, sent = outcome.schedule.end_ns / 1e9, outcome.schedule.rows(Verb.PUSH, Verb.ADD)
        gradients = {(row.worker, row.step) for row in outcome.schedule if row.verb in (Verb.PUSH, Verb.ADD)}
        number = {"seconds": seconds, "throughput": len(gradients) / seconds, "messages_to_servers": float(len(sent))}[best]
        table.setdefault(result.scenario.points[outcome.name].of, {}).setdefault(outcome.name, []).append(number)
    return table


@pytest.mark.slow
def test_the_best_point_has_the_lowest_or_the_highest_mean_of_any_column(swept):
    lowest, highest = ("seconds", "lowest throughput", "messages_to_servers"), ("throughput", "highest messages_to_servers")
    for best, choose in (dict.fromkeys(lowest, min) | dict.fromkeys(highest, max)).items():
        expected = values(swept, best.split()[-1])
        result = Result(swept.scenario.model_copy(update={"best": best}), swept.outcomes)
        for _, row in result.sweep.iterrows():
            seeds = expected[row["run"]][row["point"]]
            assert row[["mean", "least", "largest"]].tolist() == pytest.approx(
                [np.mean(seeds), min(seeds), max(seeds)], rel=1e-12
            )
        best_points = {run: choose(points, key=lambda point: np.mean(points[point])) for run, points in expected.items()}
        assert dict(zip(result.best["run"], result.best["point"], strict=True)) == best_points
        assert [outcome.name for outcome in result.with_its_best().outcomes][::2] == result.best["point"].tolist()
        assert result.outcome("at-once").name == best_points["at-once"], "of a swept run, the best point's"


def test_the_criterion_is_the_throughput_without_a_task_and_else_the_loss(swept, tmp_path):
    assert swept.scenario.criterion[1:3] == ("throughput", True)
    (tmp_path / "learned.yaml").write_text(LEARNED + TEXT)
    learned = load(tmp_path / "learned.yaml")
    assert learned.criterion[1:3] == ("loss", False) and learned.criterion.way == "lowest"
    assert learned.replace({"task": None}).criterion == swept.scenario.criterion
    seconds = learned.replace({"evaluate.target_loss": 0.1}).model_copy(update={"best": "seconds"})
    assert seconds.criterion.column == "target_seconds"
    for best, missing in (("loss", "a `task`"), ("target_updates", "a target")):
        (tmp_path / "sweep.yaml").write_text(TEXT.replace("[2, 4, 8]}}", f"[2, 4, 8]}}, best: {best}}}"))
        with pytest.raises(FredError, match=rf"sweep.yaml:4: sweep.best: found '{best}'; it needs {missing}"):
            load(tmp_path / "sweep.yaml")


def test_the_criteria_are_all_numbers_of_a_summary():
    targets = {"asgd": {"target_loss": 0.5}, "ssgd": {"target_gradient_norm": 0.5}, "d-psgd": {"target_error": 0.5}}
    prices = {"workers": [{"busy_watts": 400, "idle_watts": 80, "per_hour": 1.0}], "per_kwh": 0.2}
    machines = {"workers": 2, "prices": prices, "failures": {"causes": [{"mean_up": 9.0}], "checkpoint": {"every_updates": 1}}}
    options = {"asgd": {"cluster": machines}, "ssgd": {"cluster": machines}}
    runs = [make_run(name, evaluate=evaluate, **options.get(name, {})) for name, evaluate in targets.items()]
    summaries = pd.json_normalize([summarise(execute("run", run, 1)) for run in runs], sep="_")
    words = {"name", "algorithm", "protocol", "ended_by", "standstill", "staleness_by_block"}
    assert {column for column in summaries if not str(column).startswith("digests_")} - words == set(NUMBERS)
    assert summaries[list(NUMBERS)].apply(pd.to_numeric).shape[1] == len(NUMBERS)


@pytest.mark.slow
def test_the_command_prints_and_draws_the_best_and_prints_it_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("timing.yaml").write_text(TEXT)
    answer = fred_command("run", "timing.yaml", "--set", "seeds=[1]")
    result = fred.load_result("results/timing")
    assert answer.code == 0 and "sweep: throughput" in answer.out
    assert "sweep by throughput (the highest)" in answer.out.replace("\n", " ")
    assert all(point in answer.out or point.partition(",")[2] in answer.out for point in result.best["point"])
    assert fred_command("show", "results/timing").out == answer.out
    figures = {path.stem for path in Path("results/timing/figures").iterdir()}
    assert {"sweep", "sweep-timing", "traffic", "staleness", "workers-time", "timeline"} <= figures


def test_time_throughput_and_waiting_are_drawn_against_the_swept_values(swept):
    axes = swept.plot("sweep-timing").axes
    assert [axis.get_ylabel() for axis in axes] == ["virtual time, s", "gradients per second", "waiting, share of time"]
    summary = swept.summary.groupby("name")
    for axis, column in zip(axes, ("virtual_seconds", "throughput", "workers_time_waiting"), strict=True):
        assert [label.get_text() for label in axis.get_xticklabels()] == ["2", "4", "8"]
        for line, run in zip(axis.get_lines(), ("waiting", "at-once"), strict=True):
            assert line.get_label() == run
            means = [summary.get_group(f"{run},workers={workers}")[column].mean() for workers in (2, 4, 8)]
            np.testing.assert_allclose(np.asarray(line.get_data(), float), [[2, 4, 8], means])
    same_time = fred.run(swept.scenario.replace({"stop": {"seconds": 2}, "seeds": [1]}))
    assert same_time.plot("sweep-timing").axes[0].get_ylabel() == "gradients per second"


def test_values_that_are_no_numbers_are_drawn_in_panels_and_named_as_in_the_runs():
    networks = [None, {"latency": {"name": "constant", "seconds": 0.05}}]
    grid = {"cluster.network": networks, "algorithm.learning_rate": [0.1, "0.2"]}
    common: dict[str, Any] = {"cluster": {"workers": 2, "compute": COMPUTE}, "stop": {"updates": 10}, "algorithm": ASGD}
    panels = fred.run(fred.scenario(common, sweep={"over": grid})).plot("sweep").axes
    assert [panel.get_title() for panel in panels] == ["learning rate 0.1", "learning rate 0.2"]
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["–", "constant-0.05"]
    result = fred.run(fred.scenario(common, sweep={"over": dict(reversed(grid.items()))}))
    assert [label.get_text() for label in result.plot("sweep").axes[0].get_xticklabels()] == ["0.1", "0.2"]
    assert len(result.plot("sweep-timing").axes[0].get_lines()) == 2


NEVER = {
    "every point diverges": ("algorithm.learning_rate: [1.0e+20, 1.0e+30]", "loss", "evaluate: {points: 10}"),
    "none reaches the target": ("algorithm.learning_rate: [0.001, 0.002]", "seconds", "evaluate: {target_loss: 1.0e-9}"),
    "no clock": ("protocol.lag: [1, 2]", "throughput", "protocol: {name: fixed-lag, lag: 1}"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("grid", "best", "rest"), NEVER.values(), ids=NEVER)
def test_a_sweep_without_a_best_point_is_written_and_reported(grid, best, rest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    algorithm = "algorithm: {name: asgd, learning_rate: 0.1}\ncluster: {workers: 2}\nstop: {updates: 30}\n"
    Path("never.yaml").write_text(f"{LEARNED}{algorithm}{rest}\nsweep: {{over: {{{grid}}}, best: {best}}}\n")
    answer = fred_command("run", "never.yaml")
    assert answer.code == 0
    result = fred.load_result("results/never")
    expected = f"asgd: no point of its sweep has a finite {result.scenario.criterion.column}"
    assert expected in answer.out.replace("\n", " ")
    assert result.best.empty and pd.read_csv("results/never/best.csv").empty
    assert list(result.pictures()) == ["sweep"]
    with pytest.raises(FredError, match="so none is the best"):
        result.with_its_best()


def test_runs_that_are_not_swept_are_shown_where_no_point_is_the_best(swept, capsys):
    unswept = swept.scenario.runs["at-once,workers=4"]
    points = {"a": {"of": "all", "values": {"cluster.workers": 4}}}
    scenario = fred.scenario(runs={"plain": unswept, "a": unswept}).model_copy(update={"points": points, "best": "loss"})
    result = experiment.run(scenario)
    assert [outcome.name for outcome in result.with_its_best().outcomes] == ["plain"]
    printing.print_summary(result, Path("here"))
    assert "plain" in capsys.readouterr().out


def test_without_a_sweep_there_is_no_best_point():
    result = experiment.run(fred.scenario(runs={"run": make_run(task=None, evaluate={})}))
    for ask in (lambda: result.best, lambda: result.sweep, lambda: result.plot("sweep"), lambda: result.plot("sweep-timing")):
        with pytest.raises(FredError, match="the scenario has no `sweep`"):
            ask()
    assert result.with_its_best() is result
