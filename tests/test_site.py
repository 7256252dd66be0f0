"""README, site, gallery and notebooks: their examples run, and their generated parts are complete."""

import itertools
import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

import fred
from fred.commands import cli
from fred.components import registry
from fred.specification.loading import load
from fred.views.view import FIGURES
from tests import browsers
from tests.conftest import ROOT
from tests.program import fred_command, refusal

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYPI = (DOCS / "pypi.md").read_text(encoding="utf-8")
BUILT = DOCS / "_build" / "html"
GALLERY: dict[str, Any] = runpy.run_path(str(DOCS / "gallery.py"))


def block(page: str, language: str, containing: str = "") -> str:
    return next(text for text in re.findall(rf"```{language}\n(.*?)```", page, re.S) if containing in text)


@pytest.mark.slow
class TestReadme:
    @pytest.fixture
    def folder(self, tmp_path, monkeypatch) -> Path:
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "my_servers", raising=False)
        (tmp_path / "scenario.yaml").write_text(block(README, "yaml", "one-backup"))
        (tmp_path / "my_servers.py").write_text(block(README, "python", "class Patient"))
        return tmp_path

    def test_the_scenario_and_the_algorithm_run(self, folder, undrawn):
        brief = ["--set", "seeds=[1]", "--set", "stop.seconds=1"]
        answer = fred_command("run", "scenario.yaml", *brief)
        assert answer.code == 0 and "one-backup" in answer.out
        assert (folder / "results" / "scenario" / "summary.json").is_file()
        (folder / "mine.yaml").write_text((folder / "scenario.yaml").read_text().split("runs:")[0])
        arguments = ["run", "mine.yaml", *brief, "--set", "algorithm={name: my_servers:Patient, learning_rate: 0.1}"]
        assert "--import my_servers" in refusal(*arguments) and fred_command(*arguments, "--import", "my_servers").code == 0
        assert fred_command("verify", "results/mine", "--import", "my_servers").code == 0

    def test_the_scenario_in_python_runs(self, folder):
        names: dict[str, Any] = {}
        text = block(README, "python", "fred.scenario(").replace("updates=500", "updates=20").replace('jobs="all"', "jobs=1")
        exec(compile(text, "README.md", "exec"), names)
        assert len(names["result"].summary) == 3
        assert fred.load_result("results/mine").summary.equals(names["result"].summary)

    def test_the_table_is_the_beginning_of_what_the_command_prints(self, folder, undrawn):
        answer = fred_command("run", ROOT / "scenarios" / "quickstart.yaml", "--no-report", "--out", "out", columns=80)
        assert answer.code == 0
        quoted, printed = (
            [line.rstrip() for line in text.splitlines()] for text in (block(README, "text", "sync"), answer.out)
        )
        assert printed[: len(quoted)] == quoted


@pytest.mark.slow
def test_commands_scenario_and_python_of_pypis_page_run(tmp_path):
    for command in re.findall(r"^fred ([^#\n]*)", PYPI, re.MULTILINE):
        assert cli._parser(command.split()).parse_args(command.split()).command
    (tmp_path / "page.yaml").write_text(block(PYPI, "yaml"))
    assert list(load(tmp_path / "page.yaml").runs) == ["wait-for-all", "one-backup"]
    text = block(PYPI, "python")
    brief = ["seeds=[1]", "stop={updates: 4}", "evaluate={points: 2}"]
    names: dict[str, Any] = {}
    exec(compile(text.replace('"quickstart"', f'"quickstart", {brief}'), "pypi.md", "exec"), names)
    assert names["result"].summary["name"].tolist() == ["asgd", "fasgd"]
    assert len(names["result"].schedule("asgd")) > 0
    (figures,) = re.findall(r"# or (.*), \.\.\.", text)
    assert {figure.strip('"') for figure in figures.split(", ")} <= set(FIGURES)


def test_links_lead_to_files_of_the_repository_or_to_parts_of_the_reference():
    """The pages of the reference that `make docs` makes are not in git: links to them go by way of its index."""
    pages = [*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if not {"_build", ".ipynb_checkpoints"} & {*page.parts})]
    index = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
    generated = {*re.findall(r"^[a-z-]+$", index, re.M)} - {"results"}
    assert {*registry.NAMESPACES.values(), "python"} < generated
    for page in pages:
        if page.parent.name == "reference" and page.stem in generated:
            continue
        for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, part = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page}: {link}"
            assert target.parent.name != "reference" or target.stem not in generated, f"{page}: {link}"
            assert target != DOCS / "reference" / "index.md" or not part or part.partition(".")[0] in generated, (
                f"{page}: {link}"
            )


class TestGallery:
    @pytest.mark.parametrize("name", ["faults", pytest.param("ssgd", marks=pytest.mark.slow)])
    def test_a_picture_of_timing_is_drawn_again_as_it_is(self, name, tmp_path):
        assert GALLERY["draw"](name, tmp_path).read_bytes() == (DOCS / "images" / f"gallery-{name}.svg").read_bytes()

    @pytest.mark.slow
    def test_scenarios_of_pictures_have_their_runs(self):
        for picture in GALLERY["PICTURES"].values():
            assert {*picture.runs} <= {*fred.load(picture.scenario, picture.settings).runs}


NOTEBOOKS = {  # the number of figures in each
    "quickstart": 4,
    "your-algorithm": 1,
    "explore": 1,
    "from-a-trace": 1,
    "stragglers": 4,
    "fasgd": 2,
    "backup-workers": 4,
    "psp": 3,
    "cutoff": 2,
    "wagma": 4,
}


def test_notebooks_are_listed_on_the_site_and_stored_without_outputs():
    files = {path.stem: nbformat.read(path, as_version=4) for path in (ROOT / "notebooks").glob("*.ipynb")}
    listed = re.findall(r"^\.\./notebooks/(.*)$", (DOCS / "tutorial" / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [*NOTEBOOKS] and {*files} == {*NOTEBOOKS}
    cells = [cell for notebook in files.values() for cell in notebook.cells if cell.cell_type == "code"]
    assert not [cell.source for cell in cells if cell.outputs or cell.execution_count]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == "quickstart" else pytest.mark.nightly) for name in NOTEBOOKS],
)
def test_notebook_runs(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # for cells of `%%bash`
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("stop.seconds=20", "stop.seconds=5")
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/svg+xml" in output.get("data", {}) for output in outputs) == NOTEBOOKS[name]
    assert any("text/html" in output.get("data", {}) for output in outputs)
    errors = [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    assert not [text for text in errors if "Very slow compile" not in text]  # which XLA says on a busy machine


CUT = """() => [...document.querySelectorAll("article img")].filter((image) => {
    if (image.getBoundingClientRect().right <= innerWidth) return false;
    for (let each = image.parentElement; each; each = each.parentElement)
        if (["auto", "scroll"].includes(getComputedStyle(each).overflowX)) return false;
    return true;
}).map((image) => image.src)"""
SCROLLED = "[...document.querySelectorAll('.cell_output pre')].filter((each) => each.scrollWidth > each.clientWidth).length"


PAGES = ["index", "numerics", "tutorial/first-run", "tutorial/comparison", "reference/latency"]


@pytest.mark.slow
@pytest.mark.skipif(not (BUILT / "index.html").is_file(), reason="needs the site: `make docs`, which runs this test")
def test_a_built_page_opens_from_disk_and_fits():
    with browsers.browser() as browser:
        for page, width in itertools.product(PAGES, (1280, 360)):
            messages, addresses = list[str](), list[str]()
            view = browser.new_page(viewport={"width": width, "height": 800})
            view.on("console", lambda message, messages=messages: messages.append(message.text))
            view.on("request", lambda request, addresses=addresses: addresses.append(request.url))
            view.goto((BUILT / f"{page}.html").as_uri())
            assert view.locator("h1").count() == 1
            assert view.evaluate("document.documentElement.scrollWidth") == width, page
            assert not view.evaluate(CUT), f"{page}: pictures that reach beyond the page and do not scroll"
            assert width < 1280 or view.evaluate(SCROLLED) == 0, f"{page}: outputs that one has to scroll"
            assert not messages, page
            assert all(url.startswith("file:") for url in addresses), addresses
            view.close()
