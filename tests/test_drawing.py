"""`fred draw` and `fred show --latex`: files as they were asked for, colours that stay, what cannot be is refused before anything is."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from PIL import Image

import fred
from fred.commands import cli, printing
from fred.results import folder
from fred.results.result import Result
from fred.views.latex import tabular
from fred.views.pictures import coloured
from fred.views.view import View
from tests.worlds import COMPUTE

SMALL = {
    "title": "50 % of {a_b} & more",
    "seeds": [1, 2],
    "task": {"data": "digits", "model": {"name": "mlp", "hidden": [4]}, "batch_size": 2},
    "cluster": {"workers": 3, "compute": COMPUTE},
    "stop": {"seconds": 2.0},
    "evaluate": {"points": 3},
}


def runs_of(*names: str) -> dict[str, dict]:
    return {name: {"algorithm": {"name": name.split("_")[0], "learning_rate": 0.1}} for name in names}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs, one of them synchronous."""
    place = tmp_path_factory.mktemp("results") / "three"
    folder.save(fred.run(fred.scenario(SMALL | {"runs": runs_of("ssgd_1", "asgd_1", "fasgd_1")})), place)
    return place


@pytest.fixture(scope="module")
def swept() -> Result:
    """Two runs over two rates; and one that is not swept between them."""
    runs = runs_of("ssgd", "asgd", "fasgd")
    for name in ("ssgd", "fasgd"):
        runs[name]["sweep"] = {"over": {"algorithm.learning_rate": [0.1, 0.2]}}
    return fred.run(fred.scenario(SMALL | {"runs": runs}))


def draw(source: Path, words: str, out: Path) -> int:
    return cli.main(["draw", str(source), *words.split(), "--out", str(out)])


@pytest.mark.slow
def test_all_figures_of_a_folder_are_drawn_as_they_are_there(drawn, tmp_path, capsys):
    assert draw(drawn, "", tmp_path / "out") == 0
    there = sorted((drawn / "figures").iterdir())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [path.name for path in there]
    for path in there:
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path.name
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "out" / f"{name}.svg")
        for name in ("loss", "error", "paired", "traffic", "staleness", "throughput", "workers-time", "timeline")
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "inches"), [("one", 3.5), ("two", 7.2)])
def test_pages_have_columns_of_a_known_width_and_no_title(drawn, tmp_path, width, inches):
    result = folder.load_result(drawn)
    for name, picture in result.pictures(View(width=width)).items():
        assert picture().get_figwidth() == inches, name
        assert picture().get_suptitle() == "", name
    assert draw(drawn, f"error --format svg --width {width}", tmp_path) == 0
    root = ElementTree.parse(tmp_path / "error.svg").getroot()
    assert root.get("width") == f"{72 * inches:g}pt"
    assert draw(drawn, f"error --format png --width {width}", tmp_path) == 0
    assert Image.open(tmp_path / "error.png").width == round(200 * inches)
    assert draw(drawn, f"error --format pdf --width {width}", tmp_path) == 0
    assert f"/MediaBox [ 0 0 {72 * inches:g} ".encode() in (tmp_path / "error.pdf").read_bytes()


@pytest.mark.parametrize("form", ["svg", "pdf", "png"])
def test_the_same_bytes_each_time_and_no_date(drawn, tmp_path, form):
    for out in ("a", "b"):
        assert draw(drawn, f"loss timeline --format {form}", tmp_path / out) == 0
    for name in (f"loss.{form}", f"timeline.{form}"):
        data = (tmp_path / "a" / name).read_bytes()
        assert data == (tmp_path / "b" / name).read_bytes()
        assert b"CreationDate" not in data
        assert b"dc:date" not in data
        assert b"/Type3" not in data, "fonts that publishers refuse"


def test_some_runs_have_the_colours_that_they_have_among_all(drawn, tmp_path):
    result = folder.load_result(drawn)
    every = {line.get_label(): to_hex(line.get_color()) for line in result.plot("loss").axes[0].get_lines()}
    some = Result(result.scenario, [each for each in result.outcomes if each.name == "fasgd_1"])
    (line,) = some.pictures(coloured(result, View()))["loss"]().axes[0].get_lines()
    assert (line.get_label(), to_hex(line.get_color())) == ("fasgd_1", every["fasgd_1"])
    assert draw(drawn, "loss --only fasgd_1", tmp_path) == 0
    svg = (tmp_path / "loss.svg").read_text().lower()
    assert every["fasgd_1"] in svg
    assert every["asgd_1"] not in svg


def test_a_best_point_has_the_colour_of_its_run(swept):
    pictures = swept.pictures()
    of_runs = {line.get_label(): to_hex(line.get_color()) for line in pictures["sweep"]().axes[0].get_lines()}
    del of_runs["_best"]
    assert list(of_runs) == ["ssgd", "fasgd"]
    lines = pictures["loss"]().axes[0].get_lines()
    found = {str(line.get_label()).split(",")[0]: to_hex(line.get_color()) for line in lines}
    assert list(found) == ["ssgd", "asgd", "fasgd"]
    assert {name: found[name] for name in of_runs} == of_runs
    assert len(set(found.values())) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("los", "these runs have no figure `los`; did you mean `loss`?; there are loss, error, paired"),
        ("loss copies", "these runs have no figure `copies`"),
        ("timeline --workers 1-3", "no worker 3 on the timeline; workers are numbered 0 to 2"),
        ("timeline --begin 2", "the timeline cannot begin at 2 s: the last run ends at 2 s"),
        ("timeline --begin 1 --end 0.5", "the timeline cannot end at 0.5 s; expected more than its beginning, 1 s"),
        ("loss --begin 1", "--begin is for the timeline, which is not among these figures: loss"),
        ("loss --workers 1", "--workers is for the timeline"),
        ("timeline --against gradients", "--against is for loss, error"),
        ("loss --only asgd", "no run `asgd`"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line_and_nothing_is_written(drawn, tmp_path, capsys, words, said):
    assert draw(drawn, words, tmp_path / "out") == 2
    assert not (tmp_path / "out").exists()
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize("text", ["3-1", "a", "", "1,,2", "-1", "1-2-3", "٣"])
def test_numbers_of_workers_are_read_with_care(drawn, tmp_path, capsys, text):
    with pytest.raises(SystemExit):
        cli.main(["draw", str(drawn), "timeline", f"--workers={text}", "--out", str(tmp_path / "out")])
    assert f"found {text!r}; expected numbers of workers, such as 0-7,12" in capsys.readouterr().err


def test_files_that_are_there_are_replaced_only_if_one_says_so_and_the_results_own_never(drawn, tmp_path, capsys):
    (tmp_path / "loss.svg").write_text("mine")
    assert draw(drawn, "error loss", tmp_path) == 2
    assert "loss.svg already exists; choose another folder with --out, or replace it with --replace" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["loss.svg"]
    assert draw(drawn, "loss --replace", tmp_path) == 0
    assert (tmp_path / "loss.svg").read_text().startswith("<?xml")
    assert draw(drawn, "loss", tmp_path / "loss.png") == 2
    assert "expected a folder" in capsys.readouterr().err and not (tmp_path / "loss.png").exists()
    assert draw(drawn, "loss --replace --width one", drawn / "figures") == 2
    assert "is part of the result, which `fred verify` checks" in capsys.readouterr().err


def test_latex_has_the_cells_of_what_is_printed(drawn, swept, capsys):
    result = folder.load_result(drawn)
    table, pairs = printing.tables(result, drawn)
    assert cli.main(["show", str(drawn), "--latex"]) == 0
    text = capsys.readouterr().out
    assert text.strip() == f"{tabular(table)}\n\n{tabular(pairs)}"
    text = tabular(table)
    comments, lines = text.splitlines()[:2], text.splitlines()[2:]
    assert comments[0] == "% 50 % of {a_b} & more"
    assert "Means over 2 seeds, ± half the range" in comments[1]
    assert lines[0] == f"\\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}"
    body = [line.removesuffix(" \\\\").split(" & ") for line in lines if line.endswith("\\\\")]
    printed = [list(table.columns), *([cell.text for cell in row] for row in table.cells)]
    plain = [[cell.replace("$\\pm$", "±").replace("\\_", "_") for cell in row] for row in body]
    assert plain == printed
    assert text.count("\\toprule") == text.count("\\midrule") == text.count("\\bottomrule") == 1
    points, best, _ = map(tabular, printing.tables(swept, drawn))
    assert points.count("\\textbf{") == 2, "the best point of each run that was swept"
    assert "asgd" in best
