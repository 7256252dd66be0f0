"""What commands write with --out: only what they have written before is replaced, and only by something whole."""

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import fred
from fred.base.inputs import write_arrays
from fred.commands.cli import main
from fred.views.figures import Picture

LINES = ["algorithm: {name: ssgd, learning_rate: 0.1}", "cluster: {workers: 2}", "stop: {updates: 4}"]
TRACE = "a,b\n" + "".join(f"{1 + 0.1 * (k % 7)},{2 - 0.1 * (k % 5)}\n" for k in range(12))
COMMANDS = {  # with which --out is a file
    "report": ["report", "result"],
    "export": ["export", "result"],
    "plan": ["plan", "result", "--iterations", "1=4,2=3"],
}
ONCE = ("plan",)  # by nothing is its picture told from others


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with a result and a trace."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "a.yaml").write_text("\n".join(LINES))
    (folder / "times.csv").write_text(TRACE)
    assert main(["run", str(folder / "a.yaml"), "--out", str(folder / "result")]) == 0
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch, capsys) -> Path:  # whose words are kept in memory, not in a file
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@contextmanager
def full_disk() -> Iterator[None]:
    """While it lasts no file may grow beyond a few bytes, which the system says as it says that a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
class TestFiles:
    def test_somebodys_own_is_left(self, command, here, capsys):
        Path("mine.svg").write_text("<svg>by hand</svg>")
        Path("link.svg").symlink_to("mine.svg")
        Path("lost.svg").symlink_to("nowhere")
        before = content(here)
        for file in ("mine.svg", "link.svg", "lost.svg"):
            capsys.readouterr()
            assert main([*COMMANDS[command], "--out", file]) == 2
            said = capsys.readouterr().err
            assert said.endswith(
                "is there already, and not what this command writes; choose another place with --out, or remove it\n"
            )
        assert content(here) == before
        assert Path("lost.svg").is_symlink()

    def test_a_result_is_left_whole(self, command, here, capsys):
        """Its own or another one's, whichever of its files, by whatever way."""
        shutil.copytree("result", "other")
        Path("way").symlink_to("other")
        before = content(here)
        own = () if command == "report" else ("result/report.html",)
        ends = ".svg" if command in ONCE else ""  # what has another ending is refused for that
        files = [
            "result/manifest.json",
            "result/summary.csv",
            "other/report.html",
            "way/report.html",
            "other/figures/throughput.svg",
        ]
        for file in (*files, *own, "result/../other/ssgd/seed-0/schedule.parquet"):
            capsys.readouterr()
            assert main([*COMMANDS[command], "--out", file]) == 2
            said = capsys.readouterr().err
            assert "which `fred verify` checks; choose another place" in said or not file.endswith(ends)
        assert content(here) == before

    def test_a_full_disk_leaves_what_was_there(self, command, here, capsys):
        out = "new.svg"
        with full_disk():
            assert main([*COMMANDS[command], "--out", out]) == 2
        assert "cannot write new.svg: File too large" in capsys.readouterr().err
        assert not list(here.glob("*new.svg*")) + list(here.glob(".*new*"))
        assert main([*COMMANDS[command], "--out", out]) == 0
        before = content(here)
        with full_disk():
            assert main([*COMMANDS[command], "--out", out]) == 2
        assert content(here) == before

    def test_its_own_is_replaced(self, command, here):
        assert main([*COMMANDS[command], "--out", "new/one.svg"]) == 0
        before = content(here)
        assert main([*COMMANDS[command], "--out", "new/one.svg"]) == (2 if command in ONCE else 0)
        assert content(here) == before


def test_a_results_own_page_is_written_there_and_listed(here):
    assert main(["report", "result", "--out", "result/report.html"]) == 0
    assert main(["verify", "result"]) == 0


def test_a_full_disk_leaves_a_results_own_page_as_it_was(here):
    before = content(here)
    with full_disk():
        assert main(["report", "result"]) == 2
    assert content(here) == before


class TestFolders:
    def test_drawn_again_on_a_full_disk_a_figure_stays_as_it_was(self, here, capsys):
        draw = ["draw", "result", "throughput", "--out", "drawn"]
        assert main(draw) == 0
        before = content(here)
        with full_disk():
            assert main([*draw, "--replace"]) == 2
        assert "cannot write drawn/throughput.svg: File too large" in capsys.readouterr().err
        assert content(here) == before

    def test_a_figure_of_another_result_is_not_drawn_again(self, here, capsys):
        shutil.copytree("result", "other")
        before = content(here)
        assert main(["draw", "result", "throughput", "--out", "other/figures", "--replace"]) == 2
        assert "other/figures/throughput.svg is part of the result in" in capsys.readouterr().err
        assert content(here) == before

    def test_a_comparison_is_there_whole_or_not_at_all(self, here):
        shutil.copytree("result", "other")
        with full_disk():
            assert main(["compare", "result", "other", "--out", "compared"]) == 2
        assert not list(Path("compared").iterdir())
        assert main(["compare", "result", "other", "--out", "compared"]) == 0
        assert {"comparison.csv", "throughput.svg"} <= {file.name for file in Path("compared").iterdir()}

    def test_what_a_fit_wrote_stays_whole(self, here):
        assert main(["fit", "times.csv", "--unit", "s", "--out", "fitted"]) == 0
        before = content(here)
        with full_disk():
            assert main(["fit", "times.csv", "--unit", "s", "--out", "fitted"]) == 2
        assert content(here) == before

    def test_a_scenario_begun_on_a_full_disk_is_not_there(self, here):
        before = content(here)
        with full_disk():
            assert main(["new", "mine.yaml"]) == 2
        assert content(here) == before
        assert main(["new", "mine.yaml"]) == 0


def test_pictures_and_arrays_are_replaced_by_whole_ones(tmp_path):
    picture, file = Picture(figsize=(1, 1)), tmp_path / "one.svg"
    picture.save(file)
    write_arrays(tmp_path / "one.npz", {"a": np.zeros(3)})
    before = content(tmp_path)
    with full_disk():
        for write in (lambda: picture.save(file), lambda: write_arrays(tmp_path / "one.npz", {"a": np.ones(30)})):
            with pytest.raises(fred.FredError, match=r"cannot write .*one\.(svg|npz): File too large"):
                write()
    assert content(tmp_path) == before
