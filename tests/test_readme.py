"""What the README shows works as shown."""

import re
import sys

import numpy as np
import pytest

import fred
from fred.commands import cli
from fred.components import registry
from fred.specification.loading import load
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, containing: str) -> str:
    return next(text for text in re.findall(rf"```{language}\n(.*?)```", README, re.S) if containing in text)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_importable", set())
    monkeypatch.delitem(sys.modules, "my_servers", raising=False)
    (tmp_path / "scenario.yaml").write_text(block("yaml", "one-backup").replace("seconds: 30", "seconds: 3"))
    (tmp_path / "my_servers.py").write_text(block("python", "class Patient"))
    return tmp_path


def test_the_scenario_runs(folder, capsys):
    assert cli.main(["run", "scenario.yaml"]) == 0
    assert "one-backup" in capsys.readouterr().out
    assert (folder / "results" / "scenario" / "summary.json").is_file()


def test_the_algorithm_runs_when_its_import_is_allowed(folder, capsys):
    scenario = folder / "mine.yaml"
    scenario.write_text((folder / "scenario.yaml").read_text().split("runs:")[0])
    mine = ["--set", "algorithm={name: my_servers:Patient, learning_rate: 0.1}"]
    assert cli.main(["run", "mine.yaml", *mine]) == 2
    assert "--import my_servers" in capsys.readouterr().err
    assert cli.main(["run", "mine.yaml", *mine, "--import", "my_servers"]) == 0
    assert cli.main(["verify", "results/mine", "--import", "my_servers"]) == 0
    assert block("python", "class Patient").count("\n") <= 20


def test_the_scenario_with_a_trace_runs(folder, capsys):
    scenario = (
        block("yaml", "name: trace").replace("times.csv}", "example}").replace("{name: dmm, model: predictor.npz}", "ewma")
    )
    (folder / "traced.yaml").write_text(scenario.replace("updates: 500", "updates: 5"))
    assert cli.main(["run", "traced.yaml"]) == 0
    assert "dmm" in capsys.readouterr().out


def test_the_comparison_of_rules_is_what_the_command_prints(capsys):
    command = re.search(r"^fred (cutoffs example [^#]*)", block("sh", "--warm-up"), re.M)
    assert command
    assert cli.main(command[1].split()) == 0
    shown, printed = (re.sub(r"\d\.\d\d *\n|\s", "", text) for text in (block("text", "gradients/s"), capsys.readouterr().out))
    assert shown == printed


def test_every_path_and_command_it_names_exists():
    for path in re.findall(r"\]\(((?:docs|results|notebooks)[^)]*)\)", README):
        assert (ROOT / path).exists(), path
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z]+)", README):
        assert f"\n{target}:" in makefile


def test_the_sweep_is_of_sixteen_points_for_each_run(folder):
    (folder / "sweep.yaml").write_text(block("yaml", "sweep:"))
    assert len(load("sweep.yaml").runs) == 32


def test_the_scenario_in_python_runs(folder):
    rng = np.random.default_rng(0)
    inputs, answers = rng.normal(size=(40, 5)), rng.integers(0, 3, 40)
    names = {"fred": fred, "inputs": inputs, "answers": answers, "others": inputs, "their_answers": answers}
    text = block("python", "fred.arrays").replace("2000", "20").replace("jobs=2", "jobs=1")
    exec(compile(text.replace("fred.load_result", "same = fred.load_result"), "README.md", "exec"), names)
    assert names["same"] is True


def test_each_figure_is_made_by_a_command_that_is_named():
    made = (ROOT / "docs" / "background" / "claims.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for image, command, file in (
        ("quickstart", "fred quickstart", "figures/error.svg"),
        ("sweep", "fred run learning-rates", "figures/sweep.svg"),
        ("trace", "fred fit example --out results/fit", "trace.svg"),
    ):
        assert command in README
        assert re.search(rf"`{command}`: `results/[\w-]+/{file}`", made)
        assert f"/{file} docs/images/{image}.svg" in makefile
    assert set(re.findall(r"docs/images/(\w+).svg", README)) == {"quickstart", "sweep", "trace"}
