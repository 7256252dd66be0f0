"""What commands print at 60, 80 and 120 columns: the same words and numbers, none of them cut."""

import re

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
    "fit": ["fit", "example", "--out", "fitted"],
    "cutoffs": ["cutoffs", "example", "--train", "30", "--warm-up", "10"],
    "diagnose": ["diagnose", "example", "--out", "diagnosis"],
}
SETTINGS = ["--no-report", "--set", "stop.seconds=2", "--set", "evaluate.points=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("terminal")
    (place / "small.yaml").write_text((ROOT / "scenarios" / "quickstart.yaml").read_text().replace("seconds: 40", "seconds: 2"))
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
