"""The site is whole: every page can be reached, every link leads somewhere, every example is one that the build executes."""

import json
import re
import runpy
from functools import cache
from os.path import normpath
from pathlib import Path
from typing import Any

import pytest

import fred
from fred.components import registry
from tests import browsers
from tests.conftest import ROOT

DOCS = ROOT / "docs"
GENERATED = {*registry.REGISTRY, "command-line", "optimizers", "python"}  # pages of the reference, by conf.py
PAGES = sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md") if "_build" not in path.parts)
WRITTEN = [page for page in PAGES if page != "pypi" and page.removeprefix("reference/") not in GENERATED]
BUILT = DOCS / "_build" / "html"
WIDTH = 97  # letters of a line of code that fit the page


def text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def contents(page: str) -> list[str]:
    """Return the targets of a page's tables of contents."""
    found = [line for block in re.findall(r"```\{toctree\}\n(.*?)```", text(page), re.S) for line in block.split("\n")]
    folder = (DOCS / page).parent
    pages = [normpath(folder / line) for line in found if line and not line.startswith(":")]  # not what a link leads to
    return [Path(page).relative_to(DOCS).as_posix() for page in pages]


def test_every_page_can_be_reached_from_the_first_and_once():
    reached, new = ["index"], ["index"]
    while new:
        new = [each for page in new if page in WRITTEN for each in contents(page)]
        reached += new
    notebooks = [f"notebooks/{path.stem}" for path in (DOCS / "notebooks").glob("*.ipynb")]
    assert sorted(reached) == sorted([*WRITTEN, *notebooks, *(f"reference/{name}" for name in GENERATED)])


@pytest.mark.parametrize("page", WRITTEN)
def test_a_page_has_one_title_and_code_as_wide_as_the_page(page):
    assert len(re.findall(r"^# ", re.sub(r"^```.*?^```$", "", text(page), flags=re.M | re.S), re.M)) == 1
    for code in re.findall(r"^```[^\n]*\n(.*?)^```$", text(page), re.M | re.S) if page != "algorithms" else ():
        assert max(map(len, code.splitlines())) <= WIDTH, code


def test_notebooks_have_code_as_wide_as_the_page():
    for path in (DOCS / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            lines = "".join(cell["source"]).splitlines() if cell["cell_type"] == "code" else []
            assert max(map(len, lines), default=0) <= WIDTH, cell["source"]


def test_docstrings_of_properties_are_not_read_as_types():
    """Sphinx takes what stands before a colon in the first line of a property's docstring as its type, and puts it last."""
    for name in fred.__all__:
        for key, value in vars(getattr(fred, name)).items() if isinstance(getattr(fred, name), type) else ():
            if isinstance(value, property) and value.__doc__:
                assert ": " not in value.__doc__.splitlines()[0], f"{name}.{key}"


@pytest.mark.parametrize("page", WRITTEN)
def test_links_lead_somewhere(page):
    folder = (DOCS / page).parent
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", re.sub(r"```.*?```", "", text(page), flags=re.S)):
        if not target.startswith("http"):
            place = (folder / target).resolve()
            assert place.exists() or place.relative_to(DOCS).with_suffix("").as_posix().removeprefix("reference/") in GENERATED


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.startswith(("tutorial/", "how-to/"))])
def test_what_looks_like_an_example_is_executed(page):
    languages = set(re.findall(r"^```(\S*)\n.*?^```$", text(page), re.M | re.S))
    assert languages <= {"{code-cell}", "{toctree}", "sh"}
    assert ("{code-cell}" in languages) == text(page).startswith("---\nfile_format: mystnb\n")


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.startswith("tutorial/")])
def test_examples_import_from_the_face_alone(page):
    assert not re.findall(r"^(?:from|import) fred\.", text(page), re.M)


@cache
def configuration() -> dict[str, Any]:
    pytest.importorskip("sphinx", reason="needs sphinx, as the extra `docs` has it")
    return runpy.run_path(str(DOCS / "conf.py"))


def test_the_pages_of_the_command_line_and_of_python_are_complete(monkeypatch):
    for name in ("PATH", "COLUMNS", "IPYTHONDIR"):
        monkeypatch.setenv(name, "")  # set by conf.py: put back afterwards
    made = configuration()
    sections = re.findall(r"^## fred (\S+)\n\n```text\nusage: fred \1 ", made["_command_line"](), re.M)
    assert {"run", "verify", "list", "fit", "schema"} <= set(sections)
    assert re.findall(r"^## (\S+)$", made["_python"](), re.M) == sorted(fred.__all__, key=str.lower)


@pytest.fixture(scope="module")
def browser():
    if not (BUILT / "index.html").is_file():
        pytest.skip("needs the site: `make docs`, which runs this file")
    with browsers.browser() as one:
        yield one


CUT = """() => [...document.querySelectorAll("article img")].filter((image) => {
    if (image.getBoundingClientRect().right <= innerWidth) return false;
    for (let each = image.parentElement; each; each = each.parentElement)
        if (["auto", "scroll"].includes(getComputedStyle(each).overflowX)) return false;
    return true;
}).map((image) => image.src)"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize(
    "page",
    ["index", "numerics", "tutorial/first-run", "tutorial/comparison", "reference/latency", "reference/python"],
)
def test_a_built_page_opens_from_disk_and_fits(page, width, browser):
    said, asked = list[str](), list[str]()
    view = browser.new_page(viewport={"width": width, "height": 800})
    view.on("console", lambda message: said.append(message.text))
    view.on("request", lambda request: asked.append(request.url))
    view.goto((BUILT / f"{page}.html").as_uri())
    assert view.locator("h1").count() == 1
    assert view.evaluate("document.documentElement.scrollWidth") == width
    assert not view.evaluate(CUT), "pictures that reach beyond the page and do not scroll"
    if width == 1280:
        wide = "[...document.querySelectorAll('.cell_output pre')].filter((each) => each.scrollWidth > each.clientWidth).length"
        assert view.evaluate(wide) == 0, "outputs that one has to scroll"
    assert not said
    assert all(url.startswith("file:") for url in asked), asked
    view.close()
