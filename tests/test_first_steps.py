"""The first minutes of a new user: FRED's scenarios by name, one of the user's own, and help after mistakes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

import fred
from fred.specification import shipped
from fred.specification.loading import load
from tests.conftest import ROOT
from tests.program import fred_command, refusal

BRIEF = ("--seed", "1", "--set", "stop={updates: 4}", "--set", "task=null", "--set", "evaluate={points: 2}")
SCENARIO = "title: mine\ncluster: {workers: 2}\nalgorithm: {name: asgd, learning_rate: 0.1}\nstop: {updates: 4}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names_in(folder: str | Path = ".") -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def model_in(scenario: str) -> Path:
    protocol: Any = load(scenario).runs["cutoff"].protocol
    return Path(protocol.rule.model)


@pytest.mark.usefixtures("undrawn")
class TestScenariosByName:
    def test_the_quickstart_is_run_under_each_name_into_the_same_folder(self, folder):
        assert fred.load("systems/ssp") == fred.load(ROOT / "scenarios" / "systems" / "ssp.yaml")
        for command in (["quickstart"], ["run", "quickstart"], ["run", str(ROOT / "scenarios" / "quickstart.yaml")]):
            answer = fred_command(*command, "--only", "asgd", *BRIEF)
            assert answer.code == 0 and "results: results/quickstart.asgd" in answer.out
        assert names_in("results") == ["quickstart.asgd"]
        assert json.loads((folder / "results/quickstart.asgd/manifest.json").read_text())["file"] == "quickstart"

    def test_a_file_precedes_a_name_but_a_folder_does_not(self, folder):
        (folder / "quickstart").mkdir()
        assert load("quickstart").title.startswith("Six ways")
        (folder / "quickstart").rmdir()
        (folder / "quickstart").write_text(SCENARIO)
        assert load("quickstart").title == "mine"

    def test_the_nearest_of_files_and_names_is_suggested(self, folder):
        (folder / "mine.yaml").write_text(SCENARIO)
        for word, suggestion in {
            "quikstart": "quickstart",
            "quickstart.yaml": "quickstart",
            "ssp": "systems/ssp",
            "sytems/sgp": "systems/sgp",
            "scenarios/quickstart.yaml": "quickstart",
            "figure10": "wagma-sgd/figure10",
            "min.yaml": "mine.yaml",
        }.items():
            message = refusal("run", word)
            assert message.startswith(f"fred: cannot read {word}: No such file")
            assert f"did you mean `{suggestion}`?" in message
        assert names_in() == ["mine.yaml"]


def test_the_list_has_each_scenario_with_its_first_line():
    answer = fred_command("scenarios", columns=80)
    assert answer.code == 0
    for path in (ROOT / "scenarios").rglob("*.yaml"):
        name = path.relative_to(ROOT / "scenarios").with_suffix("").as_posix()
        promise = path.read_text().split("\n")[0].removeprefix("# Look for: ")
        assert re.search(rf"^{re.escape(name)} +{re.escape(promise)}", answer.out, re.MULTILINE), name
    printed = fred_command("scenarios", "systems/ssp")
    assert printed == (0, (ROOT / "scenarios" / "systems" / "ssp.yaml").read_text(), "")
    assert "no scenario of this name comes with FRED; did you mean `systems/ssp`?" in refusal("scenarios", "ssp")


class TestOneOfYourOwn:
    def test_it_can_be_run_and_is_what_the_schema_next_to_it_allows(self, folder):
        answer = fred_command("new", "mine.yaml")
        assert answer.code == 0 and "`fred run mine.yaml` runs it" in answer.out
        assert names_in() == ["fred.schema.json", "mine.yaml"]
        text = (folder / "mine.yaml").read_text()
        pointer = re.search(r"^# yaml-language-server: \$schema=(.*)$", text, re.MULTILINE)
        assert pointer
        jsonschema.validate(YAML(typ="safe").load(folder / "mine.yaml"), json.loads((folder / pointer[1]).read_text()))
        assert list(load("mine.yaml").runs) == ["wait-for-all", "backup-workers", "wait-for-none"]
        uncommented, lines = re.subn(r"^( *)# (?= *[\w.]+:)", r"\1", text, flags=re.MULTILINE)  # with what is commented out
        assert lines == 5
        (folder / "all.yaml").write_text(uncommented)
        runs = load("all.yaml").runs
        assert len(runs) == 3 * 5 and all(run.cluster.contention and run.cluster.faults for run in runs.values())

    def test_a_copy_of_a_shipped_one_is_the_same_with_the_files_it_names(self, folder):
        assert fred_command("new", "own/cutoffs.yaml", "--from", "cutoff-sgd/figure4").code == 0
        assert names_in("own") == ["cluster158.json", "cluster158.npz", "cutoffs.yaml", "fred.schema.json"]
        source = (shipped.FOLDER / "cutoff-sgd" / "figure4.yaml").read_text()
        assert (folder / "own" / "cutoffs.yaml").read_text() == source.replace("../schema.json", "fred.schema.json")
        assert model_in("cutoff-sgd/figure4") == shipped.FOLDER / "cutoff-sgd" / "cluster158.npz"
        assert model_in("own/cutoffs.yaml") == Path("own/cluster158.npz")
        assert fred_command("new", "own/again.yaml", "--from", "cutoff-sgd/figure4").code == 0, "those files are the same"

    def test_nothing_is_overwritten_and_what_cannot_be_written_refused(self, folder):
        (folder / "mine.yaml").write_text(SCENARIO)
        (folder / "cluster158.npz").write_text("mine")
        for arguments, message in (
            ("mine.yaml", "mine.yaml exists and is not overwritten"),
            ("a.yaml --from cutoff-sgd/figure4", "cluster158.npz exists and is not overwritten"),
            ("mine", "mine: expected a name that ends with .yaml, such as mine.yaml"),
            ("other.yaml --from quikstart", "did you mean `quickstart`?"),
            ("/proc/mine.yaml", "cannot write /proc/fred.schema.json"),
        ):
            assert message in refusal("new", *arguments.split())
        assert names_in() == ["cluster158.npz", "mine.yaml"]
        (folder / "fred.schema.json").write_text("{}")
        answer = fred_command("new", "b.yaml")
        assert "from another version of FRED: `fred schema > fred.schema.json` updates it" in answer.out and answer.code == 0
        assert (folder / "fred.schema.json").read_text() == "{}"


class TestHelp:
    def test_without_arguments_the_first_steps_are_shown(self):
        code, out, error = fred_command()
        assert (code, out) == (2, "")
        assert re.findall(r"^  (fred \w+)", error, re.MULTILINE) == ["fred quickstart", "fred scenarios", "fred new"]

    def test_mistakes_are_refused_with_what_may_be_meant(self):
        for arguments, message in (
            ("rnu x.yaml", "there is no command `rnu`; did you mean `run`?"),
            ("mine.yaml", "there is no command `mine.yaml`; did you mean `fred run mine.yaml`?"),
            ("systems/ssp", "did you mean `fred run systems/ssp`?"),
            ("run", "as in `fred run quickstart`; `fred scenarios` lists these"),
            ("verify", "fred verify: the following arguments are required: folder; see `fred verify --help`"),
            (
                "run x.yaml --seeds=1",
                "fred run: unrecognized arguments: --seeds=1; did you mean `--seed`; see `fred run --help`",
            ),
            ("run x.yaml 1", "fred run: unrecognized arguments: 1; see `fred run --help`"),
            ("list latencies", "there is no kind and no component `latencies`; did you mean `latency`?"),
        ):
            assert message in refusal(*arguments.split())


class TestCompletion:
    @pytest.mark.slow
    def test_words_files_and_names_are_completed(self, folder):
        (folder / "mine.yaml").touch()
        for line, words in {
            "fred q": ["quickstart"],
            "fred run systems/ss": ["systems/ssgd", "systems/ssp"],
            "fred run m": ["mine.yaml"],
            "fred fit --uni": ["--unit"],  # of a command that is imported when it is asked for
            "fred new x.yaml --from quick": ["quickstart"],
            "fred list late": ["latency"],
            "fred list latency shif": ["shifted-exponential"],
            "fred rnu ": [],
        }.items():
            complete = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": "answer"}
            environment = os.environ | complete | {"COMP_LINE": line, "COMP_POINT": str(len(line)), "PYTHONPATH": str(ROOT)}
            (folder / "answer").write_text("")
            subprocess.run([sys.executable, "-m", "fred"], env=environment, check=True)
            assert (folder / "answer").read_text().split() == words, line

    @pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
    def test_bash_completes_by_the_script(self, folder):
        program = folder / "bin" / "fred"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fred "$@"\n')
        program.chmod(0o755)
        line = 'COMP_LINE="fred q" COMP_POINT=6 COMP_TYPE=9; _python_argcomplete fred'
        script = f'eval "$(fred completion bash)"; {line}; echo "${{COMPREPLY[*]}}"'
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{program.parent}:{os.environ['PATH']}"}
        process = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
        assert process.stdout.split() == ["quickstart"]

    def test_the_scripts_are_ones_that_the_shells_can_read(self):
        for shell in ("bash", "zsh", "fish"):
            answer = fred_command("completion", shell)
            assert answer.code == 0 and "_ARGCOMPLETE" in answer.out
            if shutil.which(shell):
                subprocess.run([shell, "-n"], input=answer.out, text=True, check=True)
