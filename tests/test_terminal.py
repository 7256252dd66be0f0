"""What commands print at 60, 80 and 120 columns, with none of the words and numbers cut; and what they print with --quiet."""

import re
import shutil

import pytest

from fred.commands import cli
from tests.conftest import ROOT

COMMANDS = {
    "run": ["run", "small.yaml", "--out", "again", "--no-report"],
    "show": ["show", "small"],
    "compare": ["compare", "small", "other"],
    "plan": ["plan", "small", "--iterations", "2=900,16=100"],
    "scenarios": ["scenarios"],
    "list": ["list", "latency", "lognormal"],
    "list algorithm": ["list", "algorithm", "fasgd"],
    "verify": ["verify", "small"],
    "draw": ["draw", "small", "timeline", "--replace", "--out", "drawn"],
    "export": ["export", "small", "--only", "asgd", "--seed", "1", "--out", "asgd.pftrace"],
    "report": ["report", "small", "--out", "page.html"],
    "schema": ["schema"],
    "fit": ["fit", "example", "--out", "fitted"],
    "fit-network": ["fit-network", "gloo-allreduce.csv"],
    "cutoffs": ["cutoffs", "example", "--train", "30", "--warm-up", "10"],
    "diagnose": ["diagnose", "example", "--out", "diagnosis"],
}
SETTINGS = ["--no-report", "--set", "stop.seconds=2", "--set", "evaluate.points=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("terminal")
    (place / "small.yaml").write_text((ROOT / "scenarios" / "quickstart.yaml").read_text().replace("seconds: 40", "seconds: 2"))
    (place / "gloo-allreduce.csv").write_text("nodes,megabytes,seconds\n4,1,0.05\n4,8,0.2\n4,32,0.7\n4,64,1.2\n")
    for name, seed in (("small", []), ("other", ["--seed", "2"])):
        assert cli.main(["run", str(place / "small.yaml"), "--out", str(place / name), *SETTINGS, *seed]) == 0
    return place


@pytest.mark.parametrize("command", COMMANDS)
def test_no_word_or_number_is_cut_at_any_width(folder, command, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    said = {}
    for width in (60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        capsys.readouterr()
        assert cli.main(COMMANDS[command] + (["--fresh"] if command == "run" else [])) == 0
        out = capsys.readouterr().out
        assert "…" not in out
        assert all(len(line) <= width for line in out.splitlines() if set(line.strip()) == {"─"})
        said[width] = _words(out)
    assert said[60] == said[80] == said[120]


def _words(out: str) -> set[str]:
    """Return all words and numbers but times of decisions in ms, which vary: numbers with two decimals."""
    words = {word for line in out.splitlines() for word in line.split()}
    return {word for word in words if not set(word) <= {"─"} and not re.fullmatch(r"\d\.\d\d", word)}


QUIET = {  # command -> the only line that it prints
    "run": (["run", "small.yaml", "--out", "again", "--no-report"], "again"),
    "verify": (["verify", "small"], "small: 18 runs, all digests the same"),
    "compare": (["compare", "small", "other", "-o", "both"], "both"),
    "fit": (["fit", "example", "-o", "fitted"], "fitted"),
    "diagnose": (["diagnose", "example", "-o", "diagnosis"], "diagnosis"),
    "train-cutoff": (
        ["train-cutoff", "example", "--steps", "50", "--even-if-worse", "-o", "model.npz"],
        "model.npz",
    ),
}


@pytest.mark.parametrize("command", QUIET)
def test_quiet_commands_print_only_where_the_files_are(folder, command, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("fred.base.progress._QUIET", 0.0)
    arguments, line = QUIET[command]
    capsys.readouterr()
    assert cli.main([*arguments, "--quiet"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{line}\n"
    assert command == "train-cutoff" or not said.err
    assert "done" not in said.err
    if command != "verify":
        shutil.rmtree(folder / line, ignore_errors=True)


def test_quiet_runs_still_warn(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    wild = ["--only", "asgd", "--set", "algorithm.learning_rate=1e30", "--seed", "1", "--out", "wild"]
    assert cli.main(["run", "small.yaml", "-q", *SETTINGS, *wild]) == 0
    said = capsys.readouterr()
    assert said.out == "wild\n"
    assert said.err.startswith("fred: asgd diverged: ")


@pytest.mark.parametrize("command", [*cli._ELSEWHERE, "run", "compare"])
def test_every_out_has_a_short_form(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    said = capsys.readouterr().out
    assert ("--out " in said) == ("-o " in said)


def test_options_are_not_abbreviated(capsys):
    with pytest.raises(SystemExit):
        cli.main(["plan", "quickstart", "--seed", "3"])
    assert "unrecognized arguments: --seed 3; did you mean `--seeds`" in capsys.readouterr().err
