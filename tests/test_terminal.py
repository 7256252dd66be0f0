"""What commands print at 60, 80 and 120 columns, with no word or number cut; and what they print with --quiet."""

import contextlib
import json
import shutil

import pytest
from ruamel.yaml import YAML

from fred.commands import cli
from fred.prediction import closed_loop
from tests.conftest import ROOT
from tests.folders import undrawn_results
from tests.program import fred_command
from tests.worlds import TASK, mostly_slow

QUICK = """show small; compare small other; plan small --iterations 2=900,16=100; list latency lognormal; fit-network gloo-allreduce.csv;
 export small --only asgd --seed 1 --out asgd.pftrace"""
COMMANDS = f"""{QUICK}; run small.yaml --out again --no-report --fresh; scenarios; list systems fasgd; verify small; schema;
 draw small timeline --replace --out drawn; report small --out page.html; fit example --out fitted;
 cutoffs example --train 30 --warm-up 10; diagnose example --out diagnosis"""
SETTINGS = ["--no-report", "--set", "evaluate.points=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("terminal")
    scenario = YAML(typ="safe").load(ROOT / "scenarios" / "quickstart.yaml")
    runs = {name: scenario["runs"][name] for name in ("sync", "backup-workers", "asgd")}
    (place / "small.yaml").write_text(json.dumps({**scenario, "runs": runs, "task": TASK, "stop": {"seconds": 2}}))
    (place / "gloo-allreduce.csv").write_text("nodes,megabytes,seconds\n4,1,0.05\n4,8,0.2\n4,32,0.7\n4,64,1.2\n")
    with undrawn_results():
        for name, seed in (("small", []), ("other", ["--seed", "2"])):
            assert cli.main(["run", str(place / "small.yaml"), "--out", str(place / name), *SETTINGS, *seed]) == 0
    return place


@pytest.fixture
def workspace(folder, monkeypatch):
    monkeypatch.setattr("fred.results.folder.figures_drawn", lambda *_: contextlib.nullcontext())
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("command", mostly_slow(map(str.strip, COMMANDS.split(";")), map(str.strip, QUICK.split(";"))))
def test_no_word_or_number_is_cut_at_any_width(workspace, command, monkeypatch):
    monkeypatch.setattr(closed_loop, "perf_counter", lambda: 0.0)  # times of decisions vary
    words = []
    for width in (60, 80, 120):
        answer = fred_command(*command.split(), columns=width)
        assert answer.code == 0 and "…" not in answer.out
        assert all(len(line) <= width for line in answer.out.splitlines() if set(line.strip()) == {"─"})
        words.append(_words(answer.out))
    assert words[0] == words[1] == words[2]


def _words(out: str) -> set[str]:
    return {word for line in out.splitlines() for word in line.split() if not set(word) <= {"─"}}


QUIET = {  # command -> the only line that it prints
    "run small.yaml --no-report -o again": "again",
    "verify small": "small: 9 runs, all digests the same",
    "compare small other -o both": "both",
    "fit example -o fitted": "fitted",
    "diagnose example -o diagnosis": "diagnosis",
    "train-cutoff example --steps 50 --even-if-worse -o model.npz": "model.npz",
}


@pytest.mark.parametrize("command", mostly_slow(QUIET, list(QUIET)[:1]))
def test_quiet_commands_print_only_where_the_files_are(workspace, command, monkeypatch):
    monkeypatch.setattr("fred.base.progress._QUIET", 0.0)
    answer = fred_command(*command.split(), "--quiet")
    assert (answer.code, answer.out) == (0, f"{QUIET[command]}\n")
    assert "done" not in answer.err and (command.startswith("train-cutoff") or not answer.err)
    if not command.startswith("verify"):
        shutil.rmtree(workspace / QUIET[command], ignore_errors=True)


def test_quiet_runs_still_warn(workspace):
    wild = ["--set", "algorithm.learning_rate=1e30", "--set", "task.model={name: mlp, hidden: [6]}"]
    answer = fred_command("run", "small.yaml", "-q", *SETTINGS, *wild, "--only", "asgd", "--seed", "1", "--out", "wild")
    assert (answer.code, answer.out) == (0, "wild\n") and answer.err.startswith("fred: asgd diverged: ")


def test_every_out_has_a_short_form():
    for command in (*cli._LAZY_COMMANDS, "run", "compare"):
        usage = fred_command(command, "--help").out
        assert ("--out " in usage) == ("-o " in usage), command


def test_options_are_not_abbreviated():
    answer = fred_command("plan", "quickstart", "--seed", "3")
    assert "unrecognized arguments: --seed 3; did you mean `--seeds`" in answer.err
