"""The first minutes of somebody who has installed FRED: its scenarios by name, one of their own, and help where they are lost."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

import fred
from fred.commands import cli
from fred.specification import shipped
from fred.specification.loading import load
from fred.views.view import FIGURES
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "pypi.md").read_text(encoding="utf-8")
BRIEF = ("--seed", "1", "--set", "stop={updates: 4}", "--set", "task=null", "--set", "evaluate={points: 2}")
OWN = "title: mine\ncluster: {workers: 2}\nalgorithm: {name: asgd, learning_rate: 0.1}\nstop: {updates: 4}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names_in(folder: str | Path = ".") -> list[str]:
    """Return the names in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


def model_in(scenario: str) -> Path:
    """The file of the model by which the run `cutoff` chooses."""
    protocol: Any = load(scenario).runs["cutoff"].protocol
    return Path(protocol.rule.model)


def refusal(capsys, *arguments: str) -> str:
    """The one line with which FRED refuses this."""
    with pytest.raises(SystemExit) as ended:
        sys.exit(cli.main(arguments))  # unless argparse does
    assert ended.value.code == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    return error


@pytest.mark.usefixtures("undrawn")
class TestScenariosByName:
    def test_a_name_is_the_file_of_the_wheel_or_the_checkout(self):
        assert fred.load("systems/ssp") == fred.load(ROOT / "scenarios" / "systems" / "ssp.yaml")

    def test_the_quickstart_is_run_under_both_names_into_the_same_folder(self, folder, capsys):
        assert cli.main(["quickstart", "--only", "asgd", *BRIEF]) == 0
        assert cli.main(["run", "quickstart", "--only", "asgd", *BRIEF]) == 0
        assert cli.main(["run", str(ROOT / "scenarios" / "quickstart.yaml"), "--only", "asgd", *BRIEF]) == 0
        assert capsys.readouterr().out.count("results: results/quickstart.asgd") == 3
        assert names_in("results") == ["quickstart.asgd"]
        assert json.loads((folder / "results/quickstart.asgd/manifest.json").read_text())["file"] == "quickstart"

    def test_a_file_goes_before_a_name_but_a_folder_does_not(self, folder):
        (folder / "quickstart").mkdir()
        assert load("quickstart").title.startswith("Six ways")
        (folder / "quickstart").rmdir()
        (folder / "quickstart").write_text(OWN)
        assert load("quickstart").title == "mine"

    def test_files_that_a_scenario_names_are_found_from_anywhere(self, folder):
        assert model_in("cutoff-sgd/figure4") == shipped.FOLDER / "cutoff-sgd" / "cluster158.npz"
        assert model_in("cutoff-sgd/figure4").is_file()

    @pytest.mark.parametrize(
        ("word", "meant"),
        [
            ("quikstart", "`quickstart`"),
            ("quickstart.yaml", "`quickstart`"),
            ("ssp", "`systems/ssp`"),
            ("sytems/sgp", "`systems/sgp`"),
            ("scenarios/quickstart.yaml", "`quickstart`"),
            ("figure10", "`wagma-sgd/figure10`"),
            ("min.yaml", "`mine.yaml`"),
        ],
    )
    def test_of_what_is_neither_the_nearest_is_suggested(self, folder, capsys, word, meant):
        (folder / "mine.yaml").write_text(OWN)
        said = refusal(capsys, "run", word)
        assert said.startswith(f"fred: cannot read {word}: No such file")
        assert f"did you mean {meant}?" in said
        assert names_in() == ["mine.yaml"]


class TestTheList:
    def test_it_has_each_scenario_with_its_first_line(self, capsys):
        assert cli.main(["scenarios"]) == 0
        printed = capsys.readouterr().out
        for path in (ROOT / "scenarios").rglob("*.yaml"):
            name = path.relative_to(ROOT / "scenarios").with_suffix("").as_posix()
            promise = path.read_text().split("\n")[0].removeprefix("# Look for: ")
            assert re.search(rf"^{re.escape(name)} +{re.escape(promise)}", printed, re.MULTILINE), name

    def test_one_is_printed_as_it_is(self, capsys):
        assert cli.main(["scenarios", "systems/ssp"]) == 0
        assert capsys.readouterr().out == (ROOT / "scenarios" / "systems" / "ssp.yaml").read_text()

    def test_one_that_is_not_there_is_refused(self, capsys):
        assert "no scenario of this name comes with FRED; did you mean `systems/ssp`?" in refusal(capsys, "scenarios", "ssp")


class TestOneOfYourOwn:
    def test_it_can_be_run_and_is_what_the_schema_beside_it_allows(self, folder, capsys):
        assert cli.main(["new", "mine.yaml"]) == 0
        assert names_in() == ["fred.schema.json", "mine.yaml"]
        assert "`fred run mine.yaml` runs it" in capsys.readouterr().out
        pointer = re.search(r"^# yaml-language-server: \$schema=(.*)$", (folder / "mine.yaml").read_text(), re.MULTILINE)
        assert pointer
        jsonschema.validate(YAML(typ="safe").load(folder / "mine.yaml"), json.loads((folder / pointer[1]).read_text()))
        assert list(load("mine.yaml").runs) == ["wait-for-all", "backup-workers", "wait-for-none"]

    def test_its_lines_that_are_commented_out_can_be_used(self, folder):
        cli.main(["new", "mine.yaml"])
        text = (folder / "mine.yaml").read_text()
        whole, lines = re.subn(r"^( *)# (?= *[\w.]+:)", r"\1", text, flags=re.MULTILINE)
        assert lines == 5
        (folder / "all.yaml").write_text(whole)
        scenario = load("all.yaml")
        assert len(scenario.runs) == 3 * 5
        assert all(run.cluster.contention and run.cluster.faults for run in scenario.runs.values())

    def test_a_copy_of_a_shipped_one_is_the_same_with_the_files_it_names(self, folder):
        assert cli.main(["new", "own/cutoffs.yaml", "--from", "cutoff-sgd/figure4"]) == 0
        assert names_in("own") == ["cluster158.json", "cluster158.npz", "cutoffs.yaml", "fred.schema.json"]
        source = (shipped.FOLDER / "cutoff-sgd" / "figure4.yaml").read_text()
        assert (folder / "own" / "cutoffs.yaml").read_text() == source.replace("../schema.json", "fred.schema.json")
        assert model_in("own/cutoffs.yaml") == Path("own/cluster158.npz")
        assert cli.main(["new", "own/again.yaml", "--from", "cutoff-sgd/figure4"]) == 0  # those files are there already

    def test_nothing_is_overwritten(self, folder, capsys):
        (folder / "mine.yaml").write_text(OWN)
        assert "mine.yaml exists and is not overwritten" in refusal(capsys, "new", "mine.yaml")
        (folder / "cluster158.npz").write_text("mine")
        assert "cluster158.npz exists and is not overwritten" in refusal(
            capsys, "new", "a.yaml", "--from", "cutoff-sgd/figure4"
        )
        assert names_in() == ["cluster158.npz", "mine.yaml"]
        (folder / "fred.schema.json").write_text("{}")
        assert cli.main(["new", "b.yaml"]) == 0
        assert "from another version of FRED: `fred schema > fred.schema.json` updates it" in capsys.readouterr().out
        assert (folder / "fred.schema.json").read_text() == "{}"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["mine"], "mine: expected a name that ends with .yaml, such as mine.yaml"),
            (["mine.yaml", "--from", "quikstart"], "did you mean `quickstart`?"),
            (["/proc/mine.yaml"], "cannot write /proc/fred.schema.json"),
        ],
    )
    def test_what_cannot_be_written_is_refused(self, folder, capsys, arguments, message):
        assert message in refusal(capsys, "new", *arguments)
        assert names_in() == []


class TestHelp:
    def test_without_arguments_the_first_steps_are_shown(self, capsys):
        assert cli.main([]) == 2
        out, error = capsys.readouterr()
        assert out == ""
        assert re.findall(r"^  (fred \w+)", error, re.MULTILINE) == ["fred quickstart", "fred scenarios", "fred new"]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["rnu", "x.yaml"], "there is no command `rnu`; did you mean `run`?"),
            (["mine.yaml"], "there is no command `mine.yaml`; did you mean `fred run mine.yaml`?"),
            (["systems/ssp"], "did you mean `fred run systems/ssp`?"),
            (["run"], "as in `fred run quickstart`; `fred scenarios` lists these"),
            (["verify"], "fred verify: the following arguments are required: folder; see `fred verify --help`"),
            (
                ["run", "x.yaml", "--seeds=1"],
                "fred run: unrecognized arguments: --seeds=1; did you mean `--seed`; see `fred run --help`",
            ),
            (["run", "x.yaml", "1"], "fred run: unrecognized arguments: 1; see `fred run --help`"),
            (["list", "latencies"], "there is no kind and no component `latencies`; did you mean `latency`?"),
        ],
    )
    def test_what_is_mistaken_is_told_in_one_line(self, capsys, arguments, message):
        assert message in refusal(capsys, *arguments)

    def test_the_commands_of_the_page_are_there_and_its_scenario_is_one(self, folder):
        for command in re.findall(r"^fred ([^#\n]*)", PAGE, re.MULTILINE):
            words = command.split()
            assert cli._parser(words).parse_args(words).command
        (scenario,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
        (folder / "page.yaml").write_text(scenario)
        assert list(load("page.yaml").runs) == ["wait-for-all", "one-backup"]


def test_the_python_of_the_page_runs():
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    brief = ["seeds=[1]", "stop={updates: 4}", "evaluate={points: 2}"]
    names: dict[str, Any] = {}
    exec(compile(text.replace('"quickstart"', f'"quickstart", {brief}'), "pypi.md", "exec"), names)
    assert names["result"].summary["name"].tolist() == ["asgd", "fasgd"]
    assert len(names["result"].schedule("asgd")) > 0
    (drawn,) = re.findall(r"# or (.*), \.\.\.", text)
    assert {each.strip('"') for each in drawn.split(", ")} <= set(FIGURES)


@pytest.fixture(scope="module")
def completed(tmp_path_factory) -> Callable[[str], list[str]]:
    """Return bash's completions of a line, in a folder with a scenario, by the script of `fred completion bash`."""
    place = tmp_path_factory.mktemp("bash")
    (place / "mine.yaml").touch()
    program = place / "bin" / "fred"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fred "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    asked = "COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9; _python_argcomplete fred"
    script = f'eval "$(fred completion bash)"; {asked}; echo "${{COMPREPLY[*]}}"'

    def ask(line: str) -> list[str]:
        command = ["bash", "-c", script, "bash", line]
        return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=True).stdout.split()

    return ask


class TestCompletion:
    @pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("fred q", ["quickstart"]),
            ("fred run systems/ss", ["systems/ssgd", "systems/ssp"]),
            ("fred run m", ["mine.yaml"]),
            ("fred fit --uni", ["--unit"]),  # of a command that is imported when it is asked for
            ("fred new x.yaml --from quick", ["quickstart"]),
            ("fred list late", ["latency"]),
            ("fred list latency shif", ["shifted-exponential"]),
            ("fred rnu ", []),
        ],
    )
    def test_bash_completes(self, completed, line, expected):
        assert completed(line) == expected

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_the_scripts_are_ones_that_the_shells_can_read(self, shell, capsys):
        assert cli.main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert "_ARGCOMPLETE" in script
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=script, text=True, check=True)
