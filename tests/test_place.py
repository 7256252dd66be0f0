"""A result's place: nothing of somebody else's is written, followed or removed there, and a kill hides nothing."""

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fred.base import exchange, staging
from fred.base.contents import MANIFEST
from fred.base.errors import FredError
from fred.base.ownership import REPLACED, UNFINISHED
from tests.conftest import ROOT
from tests.places import NEW, OLD, complete, fill, put, tree


def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "exchanged", lambda *_: False)


@pytest.fixture
def elsewhere(tmp_path):
    """A folder of somebody's, to which links lead."""
    folder = tmp_path / "elsewhere"
    fill(folder, {"thesis.tex": "mine", "asgd/seed-0/thesis.tex": "mine", ".fred-unfinished": "mine"})
    yield folder
    assert tree(folder) == {"thesis.tex": "mine", "asgd/seed-0/thesis.tex": "mine", ".fred-unfinished": "mine"}


class TestWhatIsNotFredsOwn:
    @pytest.mark.parametrize("there", [False, True])
    def test_a_link_where_fred_works_is_refused(self, elsewhere, tmp_path, there):
        if there:
            put(tmp_path / "r", OLD)
        link = tmp_path / ".r.unfinished"
        link.symlink_to("elsewhere")
        with pytest.raises(FredError, match=r"\.r\.unfinished was not made by FRED, .* move it elsewhere, or choose another"):
            put(tmp_path / "r", NEW)
        assert link.is_symlink()
        assert (tmp_path / "r").exists() == there

    @pytest.mark.parametrize("make", [lambda path: path.symlink_to("nothing"), Path.touch, os.mkfifo])
    def test_whatever_else_has_the_name_is_refused_too(self, make, tmp_path):
        make(tmp_path / ".r.unfinished")
        with pytest.raises(FredError, match="was not made by FRED"):
            put(tmp_path / "r", NEW)
        assert os.path.lexists(tmp_path / ".r.unfinished")

    @pytest.mark.parametrize("name", ["notes.md", "asgd/seed-0/unit.json", UNFINISHED])
    def test_a_folder_of_somebodys_is_refused(self, name, tmp_path):
        fill(tmp_path, {f".r.unfinished/{name}": "mine"})
        with pytest.raises(FredError, match="was not made by FRED"):
            put(tmp_path / "r", NEW)
        assert tree(tmp_path) == {f".r.unfinished/{name}": "mine"}

    def test_a_copy_of_a_result_under_the_name_is_somebodys(self, tmp_path):
        complete(tmp_path / ".r.unfinished", OLD)
        put(tmp_path / "s", OLD)
        with pytest.raises(FredError, match="was not made by FRED"):
            put(tmp_path / "r", NEW)
        assert (tmp_path / ".r.unfinished" / "summary.json").read_text() == "old"

    @pytest.mark.parametrize("link", [".at-work", ".at-work/asgd.seed-0", "asgd", "asgd/seed-0", ".fred-old", "manifest.json"])
    def test_links_in_freds_own_folder_are_not_followed(self, link, elsewhere, tmp_path):
        with staging.opened(tmp_path / "r") as stage:
            fill(stage, {"ssgd/seed-0/unit.json": "{}"})
        (stage / link).parent.mkdir(exist_ok=True)
        (stage / link).symlink_to(elsewhere)
        with staging.opened(tmp_path / "r") as stage:
            assert not os.path.lexists(stage / link)
            assert (stage / "ssgd/seed-0/unit.json").exists()
            complete(stage, NEW)
            staging.publish(stage, tmp_path / "r")

    def test_names_that_were_used_once_are_anybodys(self, elsewhere, tmp_path):
        (tmp_path / ".s.old").symlink_to("elsewhere")
        fill(tmp_path, {".r.old/notes.md": "mine"})
        for name in ("r", "s"):
            put(tmp_path / name, OLD)
            put(tmp_path / name, NEW)
        assert (tmp_path / ".r.old/notes.md").read_text() == "mine"
        assert (tmp_path / ".s.old").is_symlink()

    @pytest.mark.parametrize("content", [None, ""])
    def test_of_somebody_who_was_killed_at_once_there_is_an_empty_folder(self, content, tmp_path):
        (tmp_path / ".r.unfinished").mkdir()
        if content is not None:
            fill(tmp_path / ".r.unfinished", {UNFINISHED: content})
        put(tmp_path / "r", NEW)
        assert [each.name for each in tmp_path.iterdir()] == ["r"]


@pytest.mark.parametrize("way", ["exchange", "two renames"])
class TestFilesOfOthers:
    @pytest.fixture(autouse=True)
    def _way(self, way, monkeypatch):
        if way != "exchange":
            without_exchange(monkeypatch)

    def test_whatever_it_is_it_stays(self, tmp_path):
        path = tmp_path / "r"
        put(path, OLD)
        mine = {"notes.md": "mine", "asgd/seed-9/a.csv": "mine", "asgd/seed-0/params.txt": "mine", "ssgd/best.txt": "mine"}
        fill(path, mine)
        (path / "link").symlink_to("notes.md")
        (path / "away").symlink_to(tmp_path)
        (path / "empty" / "inner").mkdir(parents=True)
        os.mkfifo(path / "pipe")
        numbers = {name: (path / name).stat().st_ino for name in mine}
        put(path, NEW)
        others = {"link": "-> notes.md", "away": f"-> {tmp_path}", "empty/inner": "empty", "pipe": "fifo"}
        assert tree(path) == {**NEW, **mine, **others, MANIFEST: "manifest"}
        assert {name: (path / name).stat().st_ino for name in mine} == numbers, "the very files, no copies"
        assert [each.name for each in tmp_path.iterdir()] == ["r"]

    def test_a_name_that_the_result_needs_itself_is_set_aside(self, tmp_path):
        path = tmp_path / "r"
        put(path, OLD)
        fill(path, {"sweep.csv": "mine", "b/seed-0/metrics.csv": "mine", "set-aside/sweep.csv": "mine, too"})
        put(path, NEW)
        aside = {"sweep.csv": "mine, too", "b/seed-0/metrics.csv": "mine"}
        expected = {**NEW, MANIFEST: "manifest", **{f"set-aside/{name}": content for name, content in aside.items()}}
        for _ in range(2):
            assert tree(path) == {**expected, "set-aside-2/sweep.csv": "mine"}
            put(path, NEW)  # and so it stays

    def test_aside_is_somewhere_else_where_that_is_somebodys_file(self, tmp_path):
        path = tmp_path / "r"
        put(path, OLD)
        fill(path, {"sweep.csv": "mine", "set-aside": "mine, too"})
        put(path, NEW)
        assert tree(path) == {**NEW, MANIFEST: "manifest", "set-aside": "mine, too", "set-aside-2/sweep.csv": "mine"}

    def test_a_file_where_the_result_needs_a_folder_is_set_aside_and_the_other_way_round(self, tmp_path):
        path = tmp_path / "r"
        put(path, OLD)
        fill(path, {"b": "mine", "sweep.csv/notes.md": "mine"})
        put(path, NEW)
        assert tree(path) == {**NEW, MANIFEST: "manifest", "set-aside/b": "mine", "set-aside/sweep.csv/notes.md": "mine"}

    def test_what_fred_wrote_and_somebody_changed_is_theirs(self, tmp_path):
        path = tmp_path / "r"
        put(path, OLD)
        fill(path, {"asgd/seed-0/metrics.csv": "changed", "ssgd/seed-0/metrics.csv": "changed"})
        put(path, NEW)
        changed = {"set-aside/asgd/seed-0/metrics.csv": "changed", "ssgd/seed-0/metrics.csv": "changed"}
        assert tree(path) == {**NEW, MANIFEST: "manifest", **changed}

    def test_what_is_listed_and_is_no_file_is_theirs(self, tmp_path):
        path = tmp_path / "r"
        put(path, OLD)
        fill(tmp_path, {"thesis.tex": "old"})
        (path / "ssgd/seed-0/metrics.csv").unlink()
        (path / "ssgd/seed-0/metrics.csv").symlink_to(tmp_path / "thesis.tex")
        put(path, NEW)
        assert (path / "ssgd/seed-0/metrics.csv").is_symlink()

    def test_a_mark_of_somebodys_is_no_mark(self, tmp_path):
        path = tmp_path / "r"
        put(path, OLD)
        fill(path, {REPLACED: "mine"})
        with pytest.raises(FredError, match=r"\.fred-replaced is not FRED's"):
            put(path, NEW)
        assert tree(path) == {**OLD, MANIFEST: "manifest", REPLACED: "mine"}


def test_two_folders_exchange_their_names(tmp_path):
    fill(tmp_path, {"one/a": "1", "other/b": "2"})
    if not exchange.exchanged(tmp_path / "one", tmp_path / "other"):
        pytest.skip("this system or file system has no such step")
    assert tree(tmp_path) == {"one/b": "2", "other/a": "1"}
    with pytest.raises(FileNotFoundError):
        exchange.exchanged(tmp_path / "one", tmp_path / "none")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS])
def test_where_there_is_no_such_step_nothing_is_done(number, tmp_path, monkeypatch):
    class Library:
        def renameat2(self, *_: Any) -> int:
            ctypes.set_errno(number)
            return -1

        renamex_np = renameat2

    for library in (Library(), object()):
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, library=library, **__: library)
        assert not exchange.exchanged(tmp_path / "one", tmp_path / "other")


def test_a_replacement_that_fails_leaves_the_old_result(tmp_path, monkeypatch):
    put(tmp_path / "r", OLD)
    rename = Path.rename

    def failing(self: Path, to: Path) -> Path:
        if self.name == ".r.unfinished":
            raise OSError(5, "Input/output error")
        return rename(self, to)

    without_exchange(monkeypatch)
    with monkeypatch.context() as patch, pytest.raises(FredError, match=r"cannot write .*Input/output error"):
        patch.setattr(Path, "rename", failing)
        put(tmp_path / "r", NEW)
    assert tree(tmp_path / "r") == {**OLD, MANIFEST: "manifest"}
    put(tmp_path / "r", NEW)
    assert tree(tmp_path / "r") == {**NEW, MANIFEST: "manifest"}
    assert [each.name for each in tmp_path.iterdir()] == ["r"]


def test_a_result_that_may_not_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    put(tmp_path / "r", OLD)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(FredError, match=r"cannot write .*: Permission denied"), staging.opened(tmp_path / "r"):
        raise AssertionError("the work has begun")


def test_what_has_come_into_the_place_meanwhile_stays(tmp_path):
    with staging.opened(tmp_path / "r") as stage:
        complete(stage, NEW)
        fill(tmp_path / "r", {"notes.md": "mine"})
        with pytest.raises(FredError, match="exists and is not a result folder"):
            staging.publish(stage, tmp_path / "r")
    assert tree(tmp_path / "r") == {"notes.md": "mine"}
    assert (stage / "sweep.csv").exists(), "what was done is kept"


_KILLED = '''
import os, shutil, sys
from pathlib import Path
from fred.base import staging
from fred.base import ownership
from fred.base.contents import MANIFEST
from tests import places

CHANGES = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "ctypes.dlsym")

def killed_at(step, path):
    """Just before so many changes to the disk, each of which the interpreter announces."""
    left = step
    def hook(event, arguments):
        nonlocal left
        left -= event in CHANGES or (event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) != 0)
        if left < 0:
            os._exit(9)
    child = os.fork()
    if not child:
        sys.addaudithook(hook)
        places.put(path, places.NEW)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

way, top = sys.argv[1], Path(sys.argv[2])
if way != "exchange":
    staging.exchanged = lambda *_: False
mine = {"notes.md": "mine", "asgd/seed-0/params.txt": "mine", "sweep.csv": "mine"}
aside = {"notes.md": "mine", "asgd/seed-0/params.txt": "mine", "set-aside/sweep.csv": "mine", "empty": "empty"}
step, seen, more = 0, set(), True
while more:
    folder = top / str(step)
    path = folder / "r"
    places.put(path, places.OLD)
    places.fill(path, mine)
    (path / "empty").mkdir()
    more = killed_at(step, path)
    if way == "exchange":
        found = places.tree(path)
        assert staging.is_result(path), f"step {step}: neither the old result nor the new one is there"
        assert all(found.get(name) == "mine" for name in ("notes.md", "asgd/seed-0/params.txt")), (step, found)
        assert "mine" in (found["sweep.csv"], found.get("set-aside/sweep.csv")), (step, found)
        seen.add(found["summary.json"])
    with staging.opened(path) as stage:
        assert staging.is_result(path), f"step {step}: and nothing brings it back"
    places.put(path, places.NEW)
    found = places.tree(path)
    assert found == {**places.NEW, **aside, MANIFEST: "manifest"}, (step, found)
    left = [each.name for each in folder.iterdir()]
    assert left == ["r"], (step, left)
    shutil.rmtree(folder)
    step += 1
assert way != "exchange" or seen == {"old", "new"}
print(step)
'''


@pytest.mark.parametrize("way", ["exchange", "two renames"])
def test_wherever_somebody_is_killed_the_next_one_finishes(way, tmp_path):
    """With an exchange of names a result can be seen at every moment, and others' files in it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _KILLED, way, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 20, "places at which it was killed"
