"""What the README shows works as shown."""

import re
import sys
from typing import Any

import numpy as np
import pytest

import fred
from fred.commands import cli
from fred.components import registry
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, containing: str) -> str:
    return next(text for text in re.findall(rf"```{language}\n(.*?)```", README, re.S) if containing in text)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_importable", {})
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
    assert block("python", "class Patient").count("\n") <= 15


def test_the_table_is_the_beginning_of_what_the_command_prints(capsys, tmp_path):
    assert cli.main(["run", str(ROOT / "scenarios" / "quickstart.yaml"), "--no-report", "--out", str(tmp_path / "out")]) == 0
    shown, printed = (
        [line.rstrip() for line in text.splitlines()] for text in (block("text", "sync"), capsys.readouterr().out)
    )
    assert printed[: len(shown)] == shown


def test_every_path_and_command_it_names_exists():
    for path in re.findall(r"\]\(((?:docs|results|notebooks)[^)]*)\)", README):
        assert (ROOT / path).exists(), path
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z]+)", README):
        assert f"\n{target}:" in makefile


def test_the_scenario_in_python_runs(folder):
    rng = np.random.default_rng(0)
    inputs, answers = rng.normal(size=(40, 5)), rng.integers(0, 3, 40)
    names: dict[str, Any] = {"fred": fred, "inputs": inputs, "answers": answers, "others": inputs, "their_answers": answers}
    text = block("python", "fred.arrays").replace("500", "20").replace("jobs=2", "jobs=1")
    exec(compile(text, "README.md", "exec"), names)
    assert len(names["result"].summary) == 3
    assert fred.load_result("results/mine").summary.equals(names["result"].summary)


def test_the_figure_is_made_by_a_command_that_is_named():
    made = (ROOT / "docs" / "background" / "claims.md").read_text()
    assert "`fred quickstart`: `results/quickstart/figures/error.svg`" in made
    assert "/figures/error.svg docs/images/quickstart.svg" in (ROOT / "Makefile").read_text()
    assert set(re.findall(r"docs/images/(\w+).svg", README)) == {"quickstart"}


def test_it_is_two_screens_long():
    assert README.count("\n") <= 150
