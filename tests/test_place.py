"""A result's place: FRED neither writes, follows nor removes files of others there, and a kill hides nothing; its names."""

import ctypes
import errno
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fred
from fred.base import disk, staging
from fred.base.disk import MANIFEST, REPLACED, UNFINISHED, WRITTEN, is_reserved
from fred.base.errors import FredError
from tests.conftest import ROOT
from tests.places import NEW, OLD, complete, fill, names, put, tree

A, B = "asgd/seed-0/metrics.csv", "ssgd/seed-0/metrics.csv"
RESULT = {**NEW, MANIFEST: "manifest"}


@pytest.fixture
def elsewhere(tmp_path):
    folder = tmp_path / "elsewhere"
    files = {"thesis.tex": "mine", "asgd/seed-0/thesis.tex": "mine", ".fred-unfinished": "mine"}
    fill(folder, files)
    yield folder
    assert tree(folder) == files


class TestWorkFolder:
    def test_a_link_of_its_name_is_refused(self, elsewhere, tmp_path):
        link, message = tmp_path / ".r.unfinished", r"\.r\.unfinished was not made by FRED, .* move it elsewhere, or choose"
        link.symlink_to("elsewhere")
        with pytest.raises(FredError, match=message):
            put(tmp_path / "r", NEW)
        assert link.is_symlink() and names(tmp_path) == [".r.unfinished", "elsewhere"]

    @pytest.mark.parametrize(
        "make",
        [
            *(lambda path: path.symlink_to("nothing"), Path.touch, os.mkfifo),
            *(partial(fill, files={name: "mine"}) for name in ("notes.md", "asgd/seed-0/unit.json", UNFINISHED)),
            partial(complete, files=OLD),  # a copy of a result
        ],
    )
    def test_anything_else_of_its_name_is_refused_and_left(self, make, tmp_path):
        make(tmp_path / ".r.unfinished")
        before = tree(tmp_path)
        with pytest.raises(FredError, match="was not made by FRED"):
            put(tmp_path / "r", NEW)
        assert tree(tmp_path) == before and names(tmp_path) == [".r.unfinished"]

    @pytest.mark.parametrize("link", [".at-work", ".at-work/asgd.seed-0", "asgd", "asgd/seed-0", ".fred-old", "manifest.json"])
    def test_links_in_it_are_not_followed(self, link, elsewhere, tmp_path):
        with staging.opened(tmp_path / "r") as stage:
            fill(stage, {"ssgd/seed-0/unit.json": "{}"})
        (stage / link).parent.mkdir(exist_ok=True)
        (stage / link).symlink_to(elsewhere)
        with staging.opened(tmp_path / "r") as stage:
            assert not os.path.lexists(stage / link)
            assert (stage / "ssgd/seed-0/unit.json").exists()
            complete(stage, NEW)
            staging.publish(stage, tmp_path / "r")

    def test_an_empty_one_is_that_of_a_run_killed_at_once(self, tmp_path):
        for files in ({}, {UNFINISHED: ""}):
            (tmp_path / ".r.unfinished").mkdir()
            fill(tmp_path / ".r.unfinished", files)
            put(tmp_path / "r", NEW)
            assert names(tmp_path) == ["r"]


@pytest.mark.parametrize(
    "add",
    [
        *(
            lambda path, name=name: fill(path, {name: "mine"})
            for name in ("notes.md", A.replace("csv", "txt"), "b/c/sweep.csv")
        ),
        lambda path: (path / "link").symlink_to("summary.json"),
        lambda path: (path / "folder").symlink_to(path.parent),
        lambda path: os.mkfifo(path / "pipe"),
        lambda path: fill(path, {REPLACED: "mine"}),
    ],
)
def test_files_that_are_not_the_results_are_refused_and_stay(add, tmp_path):
    """FRED refuses before the work begins; once the user has moved them away, it goes on."""
    path = tmp_path / "r"
    put(path, OLD)
    add(path)
    before = tree(path)
    with pytest.raises(FredError, match=r"r holds files that are not the result's: .*; move them, or choose another"):
        put(path, NEW)
    assert tree(path) == before and names(tmp_path) == ["r"]
    (tmp_path / "away").mkdir()
    for name in before.keys() - {*OLD, MANIFEST}:
        (path / name).rename(tmp_path / "away" / Path(name).name)
    put(path, NEW)
    assert tree(path) == RESULT


def test_the_results_files_are_replaced_even_if_changed_and_file_managers_may_add_theirs(tmp_path):
    path = tmp_path / "r"
    put(path, OLD)
    fill(path, {A: "changed", ".DS_Store": "icons", "asgd/.DS_Store": "icons"})
    (path / "summary.json").unlink()
    (path / "summary.json").symlink_to(tmp_path)
    (path / "empty" / "inner").mkdir(parents=True)
    put(path, NEW)
    assert tree(path) == RESULT and names(tmp_path) == ["r"]


@pytest.mark.parametrize("way", ["exchange", "two renames"])
def test_a_file_that_comes_while_the_result_is_replaced_stays_and_is_named(way, tmp_path, monkeypatch):
    path, check = tmp_path / "r", disk.check_files
    old = tmp_path / ".r.unfinished" if way == "exchange" else path / disk.OLD
    put(path, OLD)

    def add_file(folder: Path) -> None:
        check(folder)
        if (tmp_path / ".r.unfinished" / MANIFEST).exists():
            fill(path, {"asgd/notes.md": "mine"})

    if way != "exchange":
        monkeypatch.setattr(staging, "exchange", lambda *_: False)
    for check_files in (add_file, check):  # the next run finds the file, too
        monkeypatch.setattr(disk, "check_files", check_files)
        with pytest.raises(FredError, match=rf"{old.name} holds files that came while .*: asgd/notes\.md; move them"):
            put(path, NEW)
        assert (old / "asgd/notes.md").read_text() == "mine" and (path / "summary.json").read_text() == "new"
    (old / "asgd/notes.md").unlink()
    put(path, NEW)
    assert tree(path) == RESULT


def test_two_folders_exchange_their_names_where_the_system_can(tmp_path, monkeypatch):
    first, second = tmp_path / "one", tmp_path / "other"
    fill(tmp_path, {"one/a": "1", "other/b": "2"})
    if not staging.exchange(first, second):
        pytest.skip("this system or file system has no such step")
    assert tree(tmp_path) == {"one/b": "2", "other/a": "1"}
    with pytest.raises(FileNotFoundError):
        staging.exchange(first, tmp_path / "none")
    for number in (errno.EINVAL, errno.ENOSYS, None):

        def lacking(*_: Any, number: int | None = number) -> int:
            ctypes.set_errno(number or 0)
            return -1

        library = SimpleNamespace(renameat2=lacking, renamex_np=lacking) if number else object()
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, library=library, **__: library)
        assert not staging.exchange(first, second)


def test_a_replacement_that_fails_leaves_the_old_result(tmp_path, monkeypatch):
    put(tmp_path / "r", OLD)
    rename = Path.rename

    def failing(self: Path, to: Path) -> Path:
        if self.name == ".r.unfinished":
            raise OSError(5, "Input/output error")
        return rename(self, to)

    monkeypatch.setattr(staging, "exchange", lambda *_: False)
    with monkeypatch.context() as patch, pytest.raises(FredError, match=r"cannot write .*Input/output error"):
        patch.setattr(Path, "rename", failing)
        put(tmp_path / "r", NEW)
    assert tree(tmp_path / "r") == {**OLD, MANIFEST: "manifest"}
    put(tmp_path / "r", NEW)
    assert tree(tmp_path / "r") == RESULT and names(tmp_path) == ["r"]


def test_a_result_that_may_not_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    put(tmp_path / "r", OLD)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(FredError, match=r"cannot write .*: Permission denied"), staging.opened(tmp_path / "r"):
        raise AssertionError("the work has begun")


def test_files_that_come_to_the_place_during_the_work_stay(tmp_path):
    with staging.opened(tmp_path / "r") as stage:
        complete(stage, NEW)
        fill(tmp_path / "r", {"notes.md": "mine"})
        with pytest.raises(FredError, match="exists and is not a result folder"):
            staging.publish(stage, tmp_path / "r")
    assert tree(tmp_path / "r") == {"notes.md": "mine"} and (stage / "sweep.csv").exists(), "the finished work stays"


_KILLED = '''
import os, shutil, sys
from pathlib import Path
from fred.base import staging
from fred.base.disk import MANIFEST
from tests.places import NEW, OLD, fill, names, put, tree

CHANGES = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "ctypes.dlsym")

def is_killed_at(step, path):
    """Replace a result, and end just before this change of the disk; the interpreter announces each."""
    left = step
    def hook(event, arguments):
        nonlocal left
        left -= event in CHANGES or (event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) != 0)
        if left < 0:
            os._exit(9)
    child = os.fork()
    if not child:
        sys.addaudithook(hook)
        put(path, NEW)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

way, top = sys.argv[1], Path(sys.argv[2])
if way != "exchange":
    staging.exchange = lambda *_: False
step, seen, more = 0, set(), True
while more:
    folder = top / str(step)
    path = folder / "r"
    put(path, OLD)
    more = is_killed_at(step, path)
    if way == "exchange":
        files = tree(path)
        assert staging.is_result(path), f"step {step}: neither the old result nor the new one is there"
        seen.add(files["summary.json"])
    with staging.opened(path) as stage:
        assert staging.is_result(path), f"step {step}: and nothing brings it back"
    put(path, NEW)
    assert tree(path) == {**NEW, MANIFEST: "manifest"}, (step, tree(path))
    assert names(folder) == ["r"], (step, names(folder))
    shutil.rmtree(folder)
    step += 1
assert way != "exchange" or seen == {"old", "new"}
print(step)
'''


@pytest.mark.slow
@pytest.mark.parametrize("way", ["exchange", "two renames"])
def test_the_next_run_finishes_a_replacement_that_was_killed_at_any_step(way, tmp_path):
    """An exchange of names leaves a result in place at every moment."""
    environment, command = {**os.environ, "PYTHONPATH": str(ROOT)}, [sys.executable, "-c", _KILLED, way, str(tmp_path)]
    assert int(subprocess.check_output(command, env=environment)) > 20, "steps at which it was killed"


TIMED = {"cluster": {"workers": 2}, "stop": {"updates": 4}, "algorithm": {"name": "asgd", "learning_rate": 0.1}}


@pytest.mark.slow
def test_every_name_in_a_result_is_known_and_occurs(tmp_path):
    """A result with all that one can have."""
    out = tmp_path / "out"
    swept = {"sweep": {"over": {"algorithm.learning_rate": [0.1, 0.2]}}}
    fred.run(fred.scenario(TIMED, seeds=[1, 2], runs={"swept": swept, "plain": {}}), out=out)
    files = {name for name in names(out) if not name.startswith(("swept,", "plain"))}
    assert all(map(is_reserved, files)) and files == set(WRITTEN)


def test_no_run_can_have_a_name_of_freds_files():
    scenario = fred.scenario(TIMED)
    for name in (change(name) for name in (*WRITTEN, ".hidden") for change in (str, str.upper, str.title)):
        with pytest.raises(FredError, match="reserved"):
            fred.scenario(TIMED, runs={name: {}})
        with pytest.raises(ValueError, match="reserved"):
            scenario.model_copy(update={"runs": {name: scenario.runs["asgd"]}})
