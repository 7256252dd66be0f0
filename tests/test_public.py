"""`fred list python`: all that is public, with what its docstrings say."""

import pytest

import fred
from fred.commands.cli import main
from fred.commands.public import text


def test_all_names_are_listed(capsys):
    assert main(["list", "python"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert sorted(line.split()[0] for line in lines) == sorted(fred.__all__)
    assert all(len(line.split()) > 2 for line in lines), "each says something"


@pytest.mark.parametrize("name", fred.__all__)
def test_everything_can_be_read(name):
    said = text(name)
    assert said.startswith(f"fred.{name}")
    assert ".model_dump(" not in said.replace("both.model_dump(", ""), "nothing of pydantic's"
    assert " object at 0x" not in said


def test_methods_are_there_with_what_they_take_also_those_of_bases(capsys):
    assert main(["list", "python", "Central"]) == 0
    said = capsys.readouterr().out
    assert ".fetch(self, sim: Simulation, worker: int" in said
    assert ".layout(self, cluster: Cluster) -> Layout" in said
    assert "model_dump" not in said


def test_what_is_not_there_is_said_with_what_was_meant(capsys):
    assert main(["list", "python", "Layot"]) == 2
    assert "there is no `fred.Layot`; did you mean `Layout`?" in capsys.readouterr().err
