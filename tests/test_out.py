"""Files that commands write with --out: only FRED's own are replaced, and only by complete ones."""

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import fred
from fred.base.disk import write_arrays
from fred.commands.cli import main
from fred.views.figures import Picture
from tests.program import fred_command, refusal

SCENARIO = "algorithm: {name: ssgd, learning_rate: 0.1}\ncluster: {workers: 2}\nstop: {updates: 4}\n"
TRACE = "a,b\n" + "".join(f"{1 + 0.1 * (k % 7)},{2 - 0.1 * (k % 5)}\n" for k in range(12))
COMMANDS = {name: [name, "result"] for name in ("report", "export")} | {"plan": ["plan", "result", "--iterations", "1=4,2=3"]}
FULL = "File too large"  # by a limit on the size of files, which acts like a full disk


@pytest.fixture(scope="module")
def results_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "a.yaml").write_text(SCENARIO)
    (folder / "times.csv").write_text(TRACE)
    assert main(["run", str(folder / "a.yaml"), "--out", str(folder / "result")]) == 0
    return folder


@pytest.fixture
def workspace(results_folder, tmp_path, monkeypatch, capsys) -> Path:  # capsys: the output goes to memory, not to a file
    shutil.copytree(results_folder, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@contextmanager
def full_disk() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def check_nothing_changes_on_a_full_disk(folder: Path, *arguments: str) -> None:
    before = content(folder)
    with full_disk():
        answer = fred_command(*arguments)
    assert answer.code == 2 and FULL in answer.err
    assert content(folder) == before


@pytest.mark.parametrize("command", COMMANDS)
class TestFiles:
    def test_files_of_users_and_of_results_stay(self, command, workspace):
        Path("mine.svg").write_text("<svg>by hand</svg>")
        Path("link.svg").symlink_to("mine.svg")
        Path("lost.svg").symlink_to("nowhere")
        shutil.copytree("result", "other")
        Path("way").symlink_to("other")
        before = content(workspace)
        expected = "is there already, and not what this command writes; choose another place with --out, or remove it\n"
        for file in ("mine.svg", "link.svg", "lost.svg"):
            assert refusal(*COMMANDS[command], "--out", file).endswith(expected)
        files = ["result/manifest.json", "other/report.html", "way/report.html", "other/figures/throughput.svg"]
        files += ["result/../other/ssgd/seed-0/schedule.parquet", *["result/report.html"] * (command != "report")]
        for file in files:
            is_refused_for_its_ending = command == "plan" and not file.endswith(".svg")
            message = refusal(*COMMANDS[command], "--out", file)
            assert is_refused_for_its_ending or "which `fred verify` checks; choose another place" in message
        assert content(workspace) == before and Path("lost.svg").is_symlink()

    def test_a_full_disk_leaves_what_was_there_and_an_own_file_is_replaced(self, command, workspace):
        arguments = [*COMMANDS[command], "--out", "new/one.svg"]
        check_nothing_changes_on_a_full_disk(workspace, *arguments)
        assert not list(workspace.rglob("*one.svg*"))
        assert main(arguments) == 0
        before = content(workspace)
        if command == "plan":  # nothing distinguishes its picture from others
            assert "is there already" in refusal(*arguments)
        else:
            check_nothing_changes_on_a_full_disk(workspace, *arguments)
            assert main(arguments) == 0
        assert content(workspace) == before


def test_a_results_own_page_is_replaced_and_listed(workspace):
    check_nothing_changes_on_a_full_disk(workspace, "report", "result")
    assert main(["report", "result", "--out", "result/report.html"]) == 0
    assert main(["verify", "result"]) == 0


def test_a_figure_is_replaced_whole_and_not_one_of_another_result(workspace):
    draw = ["draw", "result", "throughput"]
    assert main([*draw, "--out", "drawn"]) == 0
    check_nothing_changes_on_a_full_disk(workspace, *draw, "--out", "drawn", "--replace")
    shutil.copytree("result", "other")
    before = content(workspace)
    assert "other/figures/throughput.svg is part of the result in" in refusal(*draw, "--out", "other/figures", "--replace")
    assert content(workspace) == before


@pytest.mark.slow
def test_comparisons_fits_and_new_scenarios_are_whole_or_absent(workspace):
    shutil.copytree("result", "other")
    fit = ["fit", "times.csv", "--unit", "s", "--out", "fitted"]
    assert main(fit) == 0
    for command in (["compare", "result", "other", "--out", "compared"], ["new", "mine.yaml"], fit):
        check_nothing_changes_on_a_full_disk(workspace, *command)
        assert command == fit or main(command) == 0
    assert {"comparison.csv", "throughput.svg"} <= {file.name for file in Path("compared").iterdir()}


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
