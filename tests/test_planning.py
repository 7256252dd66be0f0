"""How many workers to wait for: expected arrivals against closed forms, plans against trying everything."""

import itertools
import json

import numpy as np
import pytest

from fred.cluster.cluster import Cluster
from fred.cluster.latency import Exponential
from fred.commands.cli import main
from fred.diagnosis.backup_workers import iterations_at, mean_arrivals, plan
from fred.diagnosis.result_rounds import arrivals
from fred.protocols.synchronous import Synchronous
from tests.worlds import record

RANKS = np.arange(1, 21)


@pytest.mark.parametrize("workers", [1, 2, 4, 6])
def test_fewer_workers_are_the_mean_over_all_choices_of_them(workers):
    seconds = np.random.default_rng(3).exponential(size=(5, 6))
    chosen = [np.sort(seconds[:, list(some)], axis=1).mean(axis=0) for some in itertools.combinations(range(6), workers)]
    np.testing.assert_allclose(mean_arrivals(seconds, workers), np.mean(chosen, axis=0))
    with pytest.raises(ValueError, match="1 to 6 workers"):
        mean_arrivals(seconds, 7)


def test_iterations_between_and_beyond_what_was_measured():
    table = {50: 137.5, 100: 76.2}
    np.testing.assert_allclose(iterations_at(np.array([49, 50, 60, 100, 101]), table), [np.nan, 137.5, 125.24, 76.2, np.nan])
    exact = {n: 30 + 400 / n for n in (4, 7, 20)}
    np.testing.assert_allclose(iterations_at(np.array([1, 10, 1000]), exact, "fitted"), [430, 70, 30.4])
    steeper = iterations_at(np.array([1, 4, 8]), {2: 100.0, 4: 20.0, 8: 10.0}, "fitted")
    assert (steeper > 0).all()
    assert (np.diff(steeper) < 0).all()
    for wrong in ({}, {3: 0.0}, {3: 10.0}):
        with pytest.raises(ValueError, match="expected a positive number of iterations"):
            iterations_at(RANKS, wrong, "fitted")


def test_the_best_plan_is_the_best_of_all():
    times, table = np.cumsum(np.random.default_rng(1).exponential(size=30)), {5: 900.0, 12: 500.0, 30: 260.0}
    found = plan(times, table)
    tried = {n: np.interp(n, [5, 12, 30], [900, 500, 260]) * times[n - 1] for n in range(5, 31)}
    best = min(tried, key=tried.__getitem__)
    assert (found.workers, found.waited_for[found.best]) == (30, best)
    np.testing.assert_allclose(found.seconds, list(tried.values()))
    with pytest.raises(ValueError, match="known for N = 5 to 30, but there are 4 workers"):
        plan(times[:4], table)


def test_arrivals_are_compute_times_where_nothing_else_takes_time():
    cluster = Cluster(workers=5, compute=Exponential(scale=1.0))
    schedule = record(Synchronous(), cluster, gradients=500, seed=4)
    rounds = arrivals(schedule)
    assert rounds.shape == (100, 5)
    spans = (schedule["end_ns"] - schedule["begin_ns"])[schedule["verb"] == 2] / 1e9
    np.testing.assert_allclose(rounds, np.sort(spans.reshape(100, 5), axis=1), atol=1e-8)
    with pytest.raises(ValueError, match="complete rounds"):
        arrivals(record(Synchronous(), cluster, seconds=0.01, seed=4))


SCENARIO = """
seeds: [1, 2]
task: {data: {name: synthetic-classification, examples: 600, evaluation: 100, features: 8, classes: 4}, model: softmax}
cluster: {workers: 4, compute: {name: pareto, minimum: 0.1, alpha: 1.2}}
algorithm: {name: ssgd, learning_rate: 0.2}
stop: {updates: 80}
evaluate: {every_updates: 1, target_loss: 0.9}
runs:
  all: {}
  but-2: {protocol: {backup_workers: 2}}
"""


def test_a_result_folder_says_how_long_everything_takes(tmp_path, capsys):
    scenario, out = tmp_path / "backup.yaml", tmp_path / "out"
    scenario.write_text(SCENARIO)
    assert main(["run", str(scenario), "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["plan", str(out), "--json", "--out", str(tmp_path / "plan.svg")]) == 0
    said = json.loads(capsys.readouterr().out)
    summary = json.loads((out / "summary.json").read_text())
    reached = {name: [row["target"]["updates"] for row in summary if row["name"] == name] for name in ("all", "but-2")}
    assert [each["waited_for"] for each in said["plans"]] == [2, 3, 4]
    assert said["plans"][0]["iterations"] == np.mean(reached["but-2"])
    assert said["plans"][2]["iterations"] == np.mean(reached["all"])
    assert said["best"] == min(said["plans"], key=lambda each: each["seconds"])
    seconds = [row["virtual_seconds"] / row["updates"] for row in summary if row["name"] == "all"]
    assert said["plans"][2]["arrival"] == pytest.approx(np.mean(seconds))  # the last arrival ends the round
    assert (tmp_path / "plan.svg").read_text().count("<svg") == 1


def test_iterations_are_given_where_the_result_has_no_target_and_the_table_marks_the_best(tmp_path, capsys):
    scenario, result = tmp_path / "timing.yaml", tmp_path / "out"
    scenario.write_text(
        "cluster: {workers: 8, compute: {name: trace, file: example}}\n"
        "algorithm: {name: ssgd, learning_rate: 0.1}\nstop: {updates: 60}\n"
    )
    assert main(["run", str(scenario), "--out", str(result)]) == 0
    capsys.readouterr()
    assert main(["plan", str(result), "--iterations", "2=1000,8=400"]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "best" in line and "of the best" not in line)
    assert "converges first" in out
    assert out.split("N = ")[1].split(",")[0] == row.split()[0]
    for arguments, message in (
        ([], "give --iterations"),
        (["--iterations", "2:1000"], "expected N=COUNT"),
        (["--iterations", "9=10"], "known for N = 9 to 9, but there are 8 workers"),
        (["--iterations", "2=10", "--workers", "9"], "expected 1 to 8 workers"),
    ):
        assert main(["plan", str(result), *arguments]) == 2
        assert message in capsys.readouterr().err
