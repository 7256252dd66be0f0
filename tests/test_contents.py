"""The names that FRED writes into a result: all are known in one place, and no run can have one."""

from pathlib import Path

import pytest

import fred
from fred.base.contents import WRITTEN, is_taken
from fred.base.errors import FredError
from fred.commands.cli import main
from tests.worlds import TASK

SETTINGS = {
    "cluster": {"workers": 2},
    "task": TASK,
    "stop": {"updates": 4},
    "algorithm": {"name": "asgd", "learning_rate": 0.1},
}


@pytest.fixture(scope="module")
def top(tmp_path_factory) -> set[str]:
    """The names in a result that has all that one can have, and is written again over somebody's own files."""
    folder = tmp_path_factory.mktemp("results") / "out"
    runs = {"swept": {"sweep": {"over": {"algorithm.learning_rate": [0.1, 0.2]}}}, "plain": {}}
    fred.run(fred.scenario(SETTINGS, seeds=[1, 2], runs=runs), out=folder)
    (folder / "summary.csv").write_text("mine")
    (folder / "best.csv").write_text("mine")
    fred.run(fred.scenario(SETTINGS, seeds=[1, 2], runs=runs), out=folder)
    for file in (folder / "set-aside").iterdir():
        file.write_text("another")
    (folder / "summary.csv").write_text("mine again")
    fred.run(fred.scenario(SETTINGS, seeds=[1, 2], runs=runs), out=folder)
    return {each.name for each in folder.iterdir()}


@pytest.mark.slow
def test_every_name_is_known_and_comes_up(top):
    own = {name for name in top if name.startswith(("swept,", "plain"))}
    assert {name for name in top - own if not is_taken(name)} == set()
    assert {name for name in top - own if not name.startswith("set-aside-")} == set(WRITTEN)
    assert "set-aside-2" in top


@pytest.mark.parametrize("name", [*WRITTEN, "set-aside-2", ".hidden"])
@pytest.mark.parametrize("change", [str, str.upper, str.title])
def test_no_run_can_have_one(name, change, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = change(name)
    with pytest.raises(FredError, match="reserved"):
        fred.scenario(SETTINGS, runs={name: {}})
    run = fred.scenario(SETTINGS).runs["asgd"]
    with pytest.raises(ValueError, match="reserved"):
        fred.scenario(SETTINGS).model_copy(update={"runs": {name: run}})
    Path("a.yaml").write_text(f"{SETTINGS | {'runs': {name: {}}}}")
    assert main(["run", "a.yaml", "--out", "out"]) == 2
    assert [each.name for each in tmp_path.iterdir()] == ["a.yaml"]
