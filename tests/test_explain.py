"""`fred run --explain`: what several processes would gain, without a result."""

import pytest

from fred.commands.cli import main
from fred.running.sharing import PROCESSES, sharing
from tests.cases import CASES, SEED

TASK = """
task: {data: digits, model: softmax, batch_size: 4}
cluster: {workers: 4, compute: {name: constant, seconds: 1}}
stop: {updates: 20}
"""
RUNS = """
runs:
  apart: {algorithm: {name: asgd, learning_rate: 0.1}}
  together: {algorithm: {name: ssgd, learning_rate: 0.1}}
  gated: {algorithm: {name: b-fasgd, learning_rate: 0.1}, protocol: {name: gated, c_fetch: 0.1}}
"""


def explained(tmp_path, capsys, text, *more):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    code = main(["run", str(file), "--explain", *more])
    return code, capsys.readouterr(), sorted(each.name for each in tmp_path.iterdir())


def test_it_prints_a_row_for_each_run_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    code, printed, files = explained(tmp_path, capsys, TASK + RUNS)
    rows = {line.split()[0]: line.split()[1:] for line in printed.out.splitlines() if line.split()}
    assert (code, files) == (0, ["mine.yaml"])
    assert rows["apart"][:5] == ["20", "–", "<", "1", "no"]  # gradients, of no time to speak of
    assert rows["together"][0] == "80"
    assert " ".join(rows["gated"]).startswith("– – – timing needs values –")


def test_it_refuses_what_trains_nothing(tmp_path, capsys):
    text = "cluster: {workers: 4}\nalgorithm: {name: asgd, learning_rate: 0.1}\nstop: {updates: 20}\n"
    code, printed, _ = explained(tmp_path, capsys, text)
    assert code == 2
    assert "no run has a `task`" in printed.err


@pytest.mark.parametrize("name", ["asgd", "local-sgd"])
def test_more_processes_are_never_predicted_to_be_much_slower(name):
    run = next(case.run for case in CASES if case.name == name)
    assert run.task is not None
    found = sharing(run, run.task, SEED)
    speeds = [found.speed_ups[number] for number in PROCESSES]
    assert found.gradients > 0
    assert not found.used
    assert all(speed <= number for number, speed in found.speed_ups.items())
    assert speeds[-1] >= 0.95 * max(speeds)
