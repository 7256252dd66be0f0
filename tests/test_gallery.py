"""The gallery: each family of algorithms has a picture, and each picture can be drawn again."""

import re
import runpy
import subprocess
import sys
from typing import Any

import pytest

import fred
from fred.learning.server import Family
from tests.conftest import ROOT

DOCS = ROOT / "docs"
PAGE = (DOCS / "gallery.md").read_text(encoding="utf-8")
MADE: dict[str, Any] = runpy.run_path(str(DOCS / "gallery.py"))
CARDS = re.findall(
    r"^:::\{figure\} images/gallery-(\S+)\.svg\n:alt: \S.*\n:target: _images/gallery-\1\.svg\n\n(.+?)\n\n`fred run (\S+)`: `(\S+)`\n:::$",
    PAGE,
    re.M | re.S,
)


@pytest.mark.parametrize("family", [family for family in Family if family is not Family.OWN])
def test_each_family_has_a_picture(family):
    _, found, rest = PAGE.partition(f"\n## {family}\n")
    assert found
    assert ":::{figure}" in rest.partition("\n## ")[0]


def test_the_page_says_of_each_picture_what_it_is_drawn_from():
    assert {name: (scenario, figure) for name, _, scenario, figure in CARDS} == {
        name: (each.scenario, each.figure) for name, each in MADE["PICTURES"].items()
    }
    assert sorted(path.stem for path in (DOCS / "images").glob("gallery-*")) == sorted(f"gallery-{name}" for name, *_ in CARDS)
    assert all(said.endswith((".", ").")) for _, said, *_ in CARDS)


@pytest.mark.parametrize("name", MADE["PICTURES"])
def test_a_picture_is_small_and_its_scenario_has_its_runs(name):
    each = MADE["PICTURES"][name]
    assert (DOCS / "images" / f"gallery-{name}.svg").stat().st_size < 150_000
    assert {*each.runs} <= {*fred.load(each.scenario, each.settings).runs}


def test_letters_of_pictures_can_be_read():
    """At least 10 px as pages show them: the site is 736 px wide, two cards are 356 px each, a page of GitHub is 838 px."""
    for path in [*(DOCS / "images").glob("*.svg"), *(ROOT / "results").glob("*/*.svg")]:
        svg = path.read_text(encoding="utf-8")
        shown = 838 if "results" in path.parts else 356 if path.stem.startswith("gallery-") else 736
        found = re.search(r'viewBox="0 0 ([\d.]+)', svg)
        assert found, path.name
        sizes = re.findall(r"font(?:-size=\"|-size: |: )(?:bold )?([\d.]+)", svg)
        assert min(float(size) for size in sizes) * shown / float(found[1]) >= 9.95, path.name


@pytest.mark.parametrize("name", ["ssgd", "faults"])
def test_a_picture_of_timing_is_drawn_again_as_it_is(name, tmp_path):
    assert MADE["draw"](name, tmp_path).read_bytes() == (DOCS / "images" / f"gallery-{name}.svg").read_bytes()


def test_an_unknown_picture_is_refused():
    command = [sys.executable, str(DOCS / "gallery.py"), "faults", "nothing"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.partition(";")[0]) == (1, "no picture nothing")
