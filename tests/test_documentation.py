"""docs/algorithms.md says what the classes say; what users' own classes say is printed likewise."""

import re

import pytest

from fred.commands import documentation
from fred.commands.cli import main
from fred.components import registry
from fred.learning.server import Family, Server
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "algorithms.md"


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """The committed page, by heading."""
    _, *parts = re.split(r"^### ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


def test_the_page_is_what_the_classes_say(monkeypatch, capsys):
    monkeypatch.chdir(PAGE.parent)
    monkeypatch.setattr(registry, "imported", lambda: [])  # which other tests may have added to
    assert main(["list", "--markdown", "../scenarios"]) == 0
    assert capsys.readouterr().out == PAGE.read_text(encoding="utf-8"), "run: make golden"


@pytest.mark.parametrize("name", registry.REGISTRY["algorithm"])
def test_each_algorithm_has_a_rule_a_source_a_protocol_options_and_a_scenario(name, sections):
    cls, text = registry.lookup("algorithm", name), sections[name]
    assert f"```text\n{cls.rule}\n```" in text
    assert re.search(r"^- source: .*(19|20)\d\d", text, re.MULTILINE), text
    assert f"- protocol: [{cls.protocol}](#{cls.protocol})" in text
    scenario = re.search(r"^- scenario: \[.*\]\((.*)\), look for: \S", text, re.MULTILINE)
    assert scenario, "no scenario of it, or none whose first line is `# Look for: ...`"
    assert (PAGE.parent / scenario[1]).is_file()
    other_defaults = {"psp-sgd": {"scaling"}, "ringmaster-lmo": {"optimizer"}, "muloco": {"optimizer"}}
    other_defaults |= {"sparseloco": {"codec"}, "demo": {"codec"}, "des-loc": {"optimizer"}}
    of_all = set(Server.model_fields) - other_defaults.get(name, set())
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(cls.model_fields) - of_all


@pytest.mark.parametrize("name", registry.REGISTRY["algorithm"])
def test_each_algorithm_is_of_a_family(name):
    assert registry.lookup("algorithm", name).family is not Family.OWN


@pytest.mark.parametrize("name", registry.REGISTRY["protocol"])
def test_each_protocol_has_a_source_and_its_options(name, sections):
    cls, text = registry.lookup("protocol", name), sections[name]
    assert re.search(r"^- source: \w", text, re.MULTILINE), text
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(cls.model_fields)


def test_a_users_classes_are_printed_with_what_they_say(tmp_path, monkeypatch):
    (tmp_path / "own_algorithms.py").write_text(
        '"""Mine [Nobody 2031]."""\n'
        "from typing import ClassVar, Literal\nfrom pydantic import Field\n"
        "from fred import Server\nfrom fred.protocols.asynchronous import Asynchronous\n"
        "class Mine(Server):\n"
        '    "Steps twice."\n'
        '    rule: ClassVar[str] = "w <- w - 2 step(g)"\n'
        '    how: Literal["a", "b"] = Field("a", description="what | does")\n'
        "class Patient(Asynchronous):\n"
        '    "Waits."\n'
        '    faults: ClassVar[str] = "waits on"\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_importable", {})
    registry.allow_import(["own_algorithms"])
    text = documentation.page(tmp_path)
    mine = (
        "Steps twice.\n\n```text\nw <- w - 2 step(g)\n```\n\n- source: Nobody 2031\n- protocol: [asynchronous](#asynchronous)\n"
    )
    assert f"### own_algorithms:Mine\n\n{mine}" in text
    assert "| `how` | `a` | what \\| does: `a`, `b` |" in text
    assert "### own_algorithms:Patient\n\nWaits.\n\n- source: Nobody 2031\n- faults: waits on\n" in text
    assert "own_algorithms:Server" not in text
