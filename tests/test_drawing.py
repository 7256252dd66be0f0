"""Files of figures: `fred draw`, `fred show --latex`, and the folder that several processes draw together."""

import os
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

import fred
from fred.commands import printing
from fred.results import folder
from fred.results import folder as figure_files
from fred.results.result import Result
from fred.running import pool
from fred.views.figures import FORMATS, Picture
from fred.views.pictures import coloured
from fred.views.table import tabular
from fred.views.view import View
from tests.folders import undrawn_results
from tests.program import Answer, fred_command, refusal
from tests.worlds import COMPUTE, TASK

SMALL = {
    **{"title": "50 % of {a_b} & more", "seeds": [1, 2], "task": TASK, "evaluate": {"points": 3}},
    **{"cluster": {"workers": 4, "compute": COMPUTE}, "stop": {"seconds": 2.0}},
}


def runs_of(*names: str) -> dict[str, dict]:
    return {name: {"algorithm": {"name": name.split("_")[0], "learning_rate": 0.1}} for name in names}


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("results") / "three"
    with undrawn_results():
        folder.save(fred.run(fred.scenario(SMALL | {"runs": runs_of("ssgd_1", "asgd_1", "asgd_2")})), place)
    return place


@pytest.fixture(scope="module")
def swept() -> Result:
    runs = runs_of("ssgd", "asgd", "asgd_2")
    for name in ("ssgd", "asgd_2"):
        runs[name]["sweep"] = {"over": {"algorithm.learning_rate": [0.1, 0.2]}}
    return fred.run(fred.scenario(SMALL | {"runs": runs}))


def draw(source: Path, words: str, out: Path) -> Answer:
    return fred_command("draw", source, *words.split(), "--out", out)


@pytest.mark.slow
def test_all_figures_of_a_folder_are_drawn_as_they_are_there(tmp_path):
    settings = {**SMALL, "task": None, "evaluate": {}, "runs": runs_of("ssgd", "asgd")}
    folder.save(fred.run(fred.scenario(settings)), tmp_path / "result")
    answer = draw(tmp_path / "result", "", tmp_path / "out")
    names = ("paired", "staleness", "throughput", "workers-time", "timeline")
    assert answer.out.splitlines() == [str(tmp_path / "out" / f"{name}.svg") for name in names]
    contents = [{path.name: path.read_bytes() for path in (tmp_path / f).iterdir()} for f in ("out", "result/figures")]
    assert contents[0] == contents[1]


@pytest.mark.slow
def test_papers_have_columns_of_a_known_width_no_title_and_the_same_bytes_each_time(stored, tmp_path):
    result = folder.load_result(stored)
    for width, inches in (("one", 3.5), ("two", 7.2)):
        for name, picture in result.pictures(View(width=width)).items():
            figure = picture()
            assert (figure.get_figwidth(), figure.get_suptitle()) == (inches, ""), name
        for form in ("svg", "png", "pdf"):
            for out in (tmp_path, tmp_path / "again"):
                assert draw(stored, f"error --format {form} --width {width} --replace", out).code == 0
            data = (tmp_path / f"error.{form}").read_bytes()
            assert data == (tmp_path / "again" / f"error.{form}").read_bytes()
            assert not [word for word in (b"CreationDate", b"dc:date", b"/Type3") if word in data], "dates, refused fonts"
        assert ElementTree.parse(tmp_path / "error.svg").getroot().get("width") == f"{72 * inches:g}pt"
        assert Image.open(tmp_path / "error.png").width == round(200 * inches)
        assert f"/MediaBox [ 0 0 {72 * inches:g} ".encode() in (tmp_path / "error.pdf").read_bytes()


@pytest.mark.slow
def test_some_runs_have_the_colours_that_they_have_among_all(stored, tmp_path):
    result = folder.load_result(stored)
    colours = {line.get_label(): to_hex(line.get_color()) for line in result.plot("loss").axes[0].get_lines()}
    subset = Result(result.scenario, [outcome for outcome in result.outcomes if outcome.name == "asgd_2"])
    (line,) = subset.pictures(coloured(result, View()))["loss"]().axes[0].get_lines()
    assert (line.get_label(), to_hex(line.get_color())) == ("asgd_2", colours["asgd_2"])
    assert draw(stored, "loss --only asgd_2", tmp_path).code == 0
    svg = (tmp_path / "loss.svg").read_text().lower()
    assert colours["asgd_2"] in svg
    assert colours["asgd_1"] not in svg


def test_a_best_point_has_the_colour_of_its_run(swept):
    lines = {name: swept.pictures()[name]().axes[0].get_lines() for name in ("sweep", "loss")}
    runs, best = ({str(a.get_label()).split(",")[0]: to_hex(a.get_color()) for a in lines[name]} for name in lines)
    del runs["_best"]
    assert (list(runs), list(best)) == (["ssgd", "asgd_2"], ["ssgd", "asgd", "asgd_2"])
    assert runs.items() <= best.items()
    assert len(set(best.values())) == 3


def test_what_cannot_be_drawn_is_refused_in_one_line_and_nothing_is_written(stored, tmp_path):
    for words, message in {
        "los": "these runs have no figure `los`; did you mean `loss`?; there are loss, error, paired",
        "timeline --workers 1-4": "no worker 4 on the timeline; workers are numbered 0 to 3",
        "timeline --begin 2": "the timeline cannot begin at 2 s: the last run ends at 2 s",
        "timeline --begin 1 --end 0.5": "the timeline cannot end at 0.5 s; expected more than its beginning, 1 s",
        "loss --begin 1": "--begin is for the timeline, which is not among these figures: loss",
        "timeline --against gradients": "--against is for loss, error",
        "loss --only asgd": "no run `asgd`",
    }.items():
        assert message in refusal("draw", stored, *words.split(), "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()
    for text in ("3-1", "a", "", "1,,2", "1-2-3", "٣"):
        answer = draw(stored, f"timeline --workers={text}", tmp_path / "out")
        assert f"found {text!r}; expected numbers of workers, such as 0-7,12" in answer.err
        assert answer.code == 2


def test_files_are_replaced_only_if_one_says_so_and_those_of_a_result_never(stored, tmp_path):
    (tmp_path / "loss.svg").write_text("mine")
    line = refusal("draw", stored, "error", "loss", "--out", tmp_path)
    assert "loss.svg already exists; choose another folder with --out, or replace it with --replace" in line
    assert [path.name for path in tmp_path.iterdir()] == ["loss.svg"]
    assert draw(stored, "loss --replace", tmp_path).code == 0
    assert (tmp_path / "loss.svg").read_text().startswith("<?xml")
    assert "expected a folder" in refusal("draw", stored, "loss", "--out", tmp_path / "loss.png")
    assert not (tmp_path / "loss.png").exists()
    line = refusal("draw", stored, "loss", "--replace", "--width", "one", "--out", stored / "figures")
    assert "is part of the result, which `fred verify` checks" in line


def test_latex_has_the_cells_of_what_is_printed(stored, swept):
    table, pairs = printing.tables(folder.load_result(stored), stored)
    assert fred_command("show", stored, "--latex").out.strip() == f"{tabular(table)}\n\n{tabular(pairs)}"
    text = tabular(table)
    title, means, begin, *lines = text.splitlines()
    assert title == "% 50 % of {a_b} & more"
    assert "Means over 2 seeds, ± half the range" in means
    assert begin == f"\\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}"
    body = [line.removesuffix(" \\\\").split(" & ") for line in lines if line.endswith("\\\\")]
    texts = [[cell.replace("$\\pm$", "±").replace("\\_", "_") for cell in row] for row in body]
    assert texts == [list(table.columns), *([cell.text for cell in row] for row in table.cells)]
    assert text.count("\\toprule") == text.count("\\midrule") == text.count("\\bottomrule") == 1
    points, best, _ = map(tabular, printing.tables(swept, stored))
    assert points.count("\\textbf{") == 2, "the best point of each run that was swept"
    assert "asgd" in best


NAMES = ["loss", "error", "paired", "timeline", "pace"]


FIGURE = SimpleNamespace(save=lambda file: file.write_text(f"of {file.stem}"))  # quickly
QUICK: Any = SimpleNamespace(outcomes=[], pictures=lambda: dict.fromkeys(NAMES, lambda: FIGURE))
CONTENTS = {f"{name}.svg": f"of {name}".encode() for name in NAMES}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def unloaded(monkeypatch) -> None:
    monkeypatch.setattr(figure_files, "sys", SimpleNamespace(modules={}))


@pytest.mark.parametrize("end", ["dies", "waits", "has drawn", "cannot start"])
def test_whatever_happens_to_another_all_are_drawn(unloaded, tmp_path, monkeypatch, end):
    folder, other = tmp_path / "figures", Future[list[str]]()

    def submit(*_: Any) -> list[Future[list[str]]]:
        if end == "cannot start":
            raise OSError("no more processes")
        if end != "waits":
            other.set_running_or_notify_cancel()
            (folder / "loss.svg").write_bytes(CONTENTS["loss.svg"] if end == "has drawn" else b"half")
            other.set_result(["loss"]) if end == "has drawn" else other.set_exception(RuntimeError("killed"))
        return [other]

    monkeypatch.setattr(pool, "submit", submit)
    with figure_files.figures_drawn(QUICK, folder):
        pass
    assert contents(folder) == CONTENTS


def test_only_this_process_draws_where_matplotlib_is_loaded_and_may_be_configured(monkeypatch, tmp_path):
    monkeypatch.setattr(pool, "number", lambda: pytest.fail("another process would draw"))
    with figure_files.figures_drawn(QUICK, tmp_path / "figures"):
        assert not contents(tmp_path / "figures")
    assert contents(tmp_path / "figures") == CONTENTS


def wait_for(folder: Path, number: int) -> None:
    """Wait until another process has begun to draw this number of figures."""
    deadline = time.monotonic() + 60
    while len([file for file in folder.iterdir() if not file.name.startswith(".")]) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
class TestAnotherProcess:
    @pytest.fixture(autouse=True)
    def use_drawer(self, unloaded) -> Iterator[None]:
        pool.end()
        with pool.ended():
            pool.begin(1)
            pool.submit(os.getpid, [()])[0].result()  # it is alive
            assert pool.number() == 1
            yield

    def test_it_draws_the_same_and_is_waited_for(self, swept, tmp_path):
        (tmp_path / "alone").mkdir()
        for name, draw in swept.pictures().items():
            draw().save(tmp_path / "alone" / f"{name}.svg")
        expected = contents(tmp_path / "alone")
        for number in (1, len(expected)):
            with figure_files.figures_drawn(swept, tmp_path / f"{number}"):
                wait_for(tmp_path / f"{number}", number)
            assert contents(tmp_path / f"{number}") == expected

    def test_it_does_not_draw_on_after_an_error(self, swept, tmp_path):
        with pytest.raises(KeyboardInterrupt), figure_files.figures_drawn(swept, tmp_path / "figures"):
            wait_for(tmp_path / "figures", 1)
            raise KeyboardInterrupt
        number = len(contents(tmp_path / "figures"))
        time.sleep(0.5)  # in which it would draw some more
        assert len(contents(tmp_path / "figures")) == number < len(swept.pictures())


@pytest.mark.slow
def test_a_picture_is_laid_out_once_and_is_what_it_would_be_if_it_were_drawn_twice(swept, tmp_path, monkeypatch):
    for number, (name, draw) in enumerate(swept.pictures().items()):
        ending = FORMATS[number % len(FORMATS)]
        single, twice = tmp_path / f"once.{ending}", tmp_path / f"twice.{ending}"
        draw().save(single)
        with monkeypatch.context() as patched:
            patched.setattr(Picture, "draw", Figure.draw)
            draw().save(twice)
        assert single.read_bytes() == twice.read_bytes(), name
