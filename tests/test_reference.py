"""`fred list`, the pages of the reference and docstrings: complete, and true to the classes that they describe."""

import doctest
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from io import StringIO
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from ruamel.yaml import YAML

import fred
from fred.commands import documentation, listing, reference
from fred.components import registry
from fred.learning.server import Family, Server
from tests import house
from tests.conftest import ROOT
from tests.program import fred_command, refusal

EXAMPLES = sorted(name for name, path in house.files().items() if ">>>" in path.read_text(encoding="utf-8"))
STUDIED = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("reproductions", "studies")
    for path in (ROOT / folder).rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)
COSTLY = """adapters async_mesh choco codec dbw dct delays edit entity_regimes fadas findings first_weights fitted folder
 loss loss_functions model optimizers ormo pipelines power_sgd quadratic result ringleader ringmaster rounding sentences sparse
 transformer"""  # they compile programs, or fit
ALIASES = {"Params", "Message", "Scalar", "Process"}  # types, and NOTHING a value: explained where they are defined
DRIVEN = {"Recorder"}  # by the simulation, whose verbs are what protocols call
SOURCE = '''"""Mine [Nobody 2031]."""
from typing import ClassVar, Literal
from pydantic import Field
from fred import Server
from fred.protocols.asynchronous import Asynchronous

class Mine(Server):
    """Steps twice."""
    rule: ClassVar[str] = "w <- w - 2 step(g)"
    how: Literal["a", "b"] = Field("a", description="what | does")
    much: int = Field(2, ge=1, description="how much, updates")
    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads)

class Patient(Asynchronous):
    "Waits."
    faults: ClassVar[str] = "waits on"
'''


def list_components(*arguments: str) -> str:
    code, out, error = fred_command("list", *arguments, columns=80)
    assert (code, error) == (0, "")
    return out


@pytest.mark.parametrize(
    "module",
    [
        *(pytest.param(name, marks=[pytest.mark.slow] * (name.rpartition(".")[2] in COSTLY.split())) for name in EXAMPLES),
        *STUDIED,
    ],
)
def test_examples_of_docstrings_run(module, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    failed, attempted = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert attempted and not failed


def test_each_component_has_its_sentence_options_and_an_example_that_is_one():
    for kind, name in [(kind, name) for kind, names in registry.REGISTRY.items() for name in names]:
        text, cls = reference.reference(kind, name).text(), registry.lookup(kind, name)
        assert registry.summary(registry.REGISTRY[kind][name]) in " ".join(text.split()), name
        options = text.partition("options:")[2].partition("example:")[0]
        assert re.findall(r"^  ([a-z]\w*) +\S", options, re.M) == list(cls.model_fields), name
        (example_text,) = re.findall(r"^example: +(.*)$", text, re.M)
        parts = components_in(YAML(typ="safe").load(StringIO(example_text)))
        example = next(part for part in parts if part.get("name") == name)
        assert TypeAdapter(cls).validate_python({k: v for k, v in example.items() if k != "name"}) == cls.example()


def components_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield whatever may be a component in a piece of a scenario, the outermost first."""
    if isinstance(value, str):
        yield {"name": value}
    if isinstance(value, dict):
        yield dict(value)
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from components_in(part)


def test_limits_units_and_defaults_are_listed():
    text = list_components("contention", "rare-delays")
    probability = r"probability +number, above 0, at most 1; required, such as 0.01\n +probability that a gradient is delayed\n"
    assert re.search(probability, text)
    assert re.search(r"seconds +latency, by name or with options; required.*\n +delay, s\n", text)
    assert "below 16777216;" in list_components("data", "grammar"), "large limits are written out"
    assert list_components("fasgd") == list_components("systems", "fasgd"), "a name that only one kind has is enough"
    assert re.findall(r"^  (\S+) ", list_components("topology"), re.M) == list(registry.REGISTRY["topology"])


def test_algorithms_are_listed_by_family_and_in_it_by_name():
    parts = re.split(r"^systems, (.*):$", list_components("systems"), flags=re.M)
    assert {family.casefold() for family in parts[1::2]} == {family.casefold() for family in Family if family is not Family.OWN}
    for family, text in zip(parts[1::2], parts[2::2], strict=True):
        names = re.findall(r"^  (\S+) ", text, re.M)
        members = [
            name
            for name in registry.REGISTRY["algorithm"]
            if registry.lookup("algorithm", name).family.casefold() == family.casefold()
        ]
        assert names == sorted(members)


def test_what_is_missing_is_refused_with_what_may_be_meant():
    for arguments, message in (
        ("latencies", "did you mean `latency`?"),
        ("fasdg", "did you mean `fasgd`?"),
        ("psp", "did you mean `psp-sgd`?"),
        ("exponential", "`exponential` is an algorithm and a topology and a latency; choose one"),
        ("algorithm", "there is no kind `algorithm`: `fred list systems`; known: systems, codecs,"),
        ("protocol gossip", "there is no kind `protocol`: `fred list protocols`"),
        ("latncy uniform", "there is no kind `latncy`; did you mean `latency`?"),
        ("latency unifrom", "did you mean `uniform`?"),
        ("latency fasgd", "there is an algorithm `fasgd`: `fred list systems fasgd`"),
        ("latency mine:Slow", "allow it with `--import mine`"),
        ("python Layot", "there is no `fred.Layot`; did you mean `Layout`?"),
    ):
        assert message in refusal("list", *arguments.split())


@pytest.mark.slow
def test_the_page_of_algorithms_is_current_and_complete(monkeypatch):
    page = ROOT / "docs" / "algorithms.md"
    text = page.read_text(encoding="utf-8")
    monkeypatch.chdir(page.parent)
    monkeypatch.setattr(registry, "imported", lambda: [])  # which other tests may have added to
    assert list_components("--markdown", "../scenarios") == text, "run: make golden"
    sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^### |\Z)", text, re.M | re.S))
    other_defaults = {"psp-sgd": {"scaling"}, "ringmaster-lmo": {"optimizer"}, "muloco": {"optimizer"}}
    other_defaults |= {"sparseloco": {"codec"}, "demo": {"codec"}, "des-loc": {"optimizer"}}
    for name in registry.REGISTRY["algorithm"]:
        cls, section = registry.lookup("algorithm", name), sections[name]
        assert cls.family is not Family.OWN and f"```text\n{vars(cls)['rule']}\n```" in section
        assert re.search(r"^- source: .*(19|20)\d\d", section, re.M), name
        assert f"- protocol: [{cls.protocol}](#{cls.protocol})" in section
        scenario = re.search(r"^- scenario: \[.*\]\((.*)\), look for: \S", section, re.M)
        assert scenario and (page.parent / scenario[1]).is_file(), f"{name}: no scenario with `# Look for: ...` at its top"
        of_all = set(Server.model_fields) - other_defaults.get(name, set())
        assert set(re.findall(r"^\| `(\w+)` \|", section, re.M)) == set(cls.model_fields) - of_all
    for name in registry.REGISTRY["protocol"]:
        assert re.search(r"^- source: \w", sections[name], re.M), name
        assert set(re.findall(r"^\| `(\w+)` \|", sections[name], re.M)) == set(registry.lookup("protocol", name).model_fields)


def test_a_users_classes_are_described_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_reference.py").write_text(SOURCE)
    text = list_components("systems", "own_reference:Mine", "--import", "own_reference")
    assert "Steps twice." in text
    assert re.search(r"much +whole number, at least 1; default: 2\n +how much, updates", text)
    page = documentation.components_page(tmp_path)
    description = (
        "Steps twice.\n\n```text\nw <- w - 2 step(g)\n```\n\n- source: Nobody 2031\n- protocol: [asynchronous](#asynchronous)\n"
    )
    assert f"### own_reference:Mine\n\n{description}" in page
    assert "| `how` | `a` | what \\| does: `a`, `b` |" in page
    assert "### own_reference:Patient\n\nWaits.\n\n- source: Nobody 2031\n- faults: waits on\n" in page
    assert "own_reference:Server" not in page


def test_all_public_names_are_listed_with_what_they_take():
    lines = [line.split() for line in list_components("python").splitlines()[1:]]
    assert sorted(line[0] for line in lines) == dir(fred)
    assert all(len(line) > 2 for line in lines), "a description is missing"
    for name in dir(fred):
        text = listing.describe(name)
        assert text.startswith(f"fred.{name}")
        assert ".model_dump(" not in text.replace("both.model_dump(", ""), f"{name}: a method of pydantic's"
        assert " object at 0x" not in text, name
    central = list_components("python", "Central")
    assert ".fetch(self, sim: Simulation, worker: int" in central
    assert ".layout(self, cluster: Cluster) -> Layout" in central and "model_dump" not in central


def test_every_public_name_has_an_example_of_public_names_and_explains_its_parameters():
    for name in set(dir(fred)) - ALIASES - {"NOTHING"}:
        value = getattr(fred, name)
        assert ">>>" in (inspect.getdoc(value) or ""), f"fred.{name} has no example"
        if inspect.ismodule(value):
            continue
        ours = [cls for cls in reversed(getattr(value, "__mro__", ())) if cls.__module__.startswith("fred.")]
        methods = {
            key: getattr(method, "__func__", method) for cls in ours for key, method in vars(cls).items() if key[0] != "_"
        }
        functions = [] if name in DRIVEN else [method for method in methods.values() if inspect.isfunction(method)]
        without_call = inspect.isclass(value) and issubclass(value, (BaseModel, Enum))  # whose fields have descriptions
        without_call |= getattr(value, "_is_protocol", False)  # an interface, which nobody calls
        for function in [value, *functions]:
            text = inspect.getdoc(function) or ""
            assert not re.findall(r">>> .*\b(?:from|import) fred\.\S+", text), f"{name}: the example needs more than `fred`"
            if inspect.isclass(function):  # the first sentence and examples name things without explaining them
                text = text.partition("\n")[2].partition(">>>")[0]
            names = (
                () if function is value and without_call else inspect.signature(function).parameters.keys() - {"self", "cls"}
            )
            assert all(re.search(rf"\b{parameter}\b", text) for parameter in names), f"{name}, {function}: {names}"


def test_whatever_a_scenario_can_name_can_be_made_of_public_names():
    assert {registry.base(kind) for kind in registry.BASES} <= {getattr(fred, name) for name in dir(fred)}


@pytest.mark.parametrize("kind", registry.REGISTRY)
def test_a_namespace_has_the_classes_that_fred_list_and_scenarios_name(kind):
    """`exponential` in a scenario is `fred.latency.Exponential`: no name of a class leaves out the word of scenarios."""
    word = registry.NAMESPACES[kind]
    namespace, entries = getattr(fred, word), {name: registry.lookup(kind, name) for name in registry.REGISTRY[kind]}
    assert word in dir(fred) and importlib.import_module(f"fred.{word}") is namespace
    classes = {name: value for name in dir(namespace) if inspect.isclass(value := getattr(namespace, name))}
    assert classes == {cls.__name__: cls for cls in entries.values()}, f"fred/{word}.py or fred/{word}/__init__.pyi differs"
    assert sorted(re.findall(r"^  (\S+) ", list_components(word), re.M)) == sorted(entries), "systems are listed by family"
    assert [name for name, cls in entries.items() if name.replace("-", "") not in cls.__name__.lower()] == []


def test_stubs_list_what_is_there_and_directories_show_it_alone():
    stubs = list(house.SOURCE.rglob("__init__.pyi"))
    assert {path.parent.name for path in stubs} == {"fred", "systems", "protocols", "cluster"}
    for path in stubs:
        package = importlib.import_module(".".join(path.relative_to(ROOT).parts[:-1]))
        text = path.read_text(encoding="utf-8")
        names = re.findall(r"^from (\S+) import (\w+) as \2$", text, re.M)
        assert text == "".join(f"from {module} import {name} as {name}\n" for module, name in names)
        assert dir(package) == package.__all__ == sorted(name for _, name in names if name[0] != "_")
        for module, name in names:
            value = getattr(package, name)
            assert not inspect.isclass(value) or name in ALIASES or value.__module__ in (module, "fred"), (
                f"{path}: {name} is defined in {value.__module__}"
            )
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'asdg'"):
            package.asdg  # noqa: B018


def test_import_is_fast_and_loads_no_jax(tmp_path):
    program = "import time; begin = time.process_time(); import fred; print(time.process_time() - begin)"
    checked = f"import sys; {program}; print(sorted({{'jax', 'pydantic', 'pandas', 'numpy'}} & sys.modules.keys()))"
    command = [sys.executable, "-c", checked]
    seconds, loaded = zip(
        *(
            subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split("\n")[:2]
            for _ in range(3)
        ),
        strict=True,
    )
    assert min(map(float, seconds)) < 0.2 and set(loaded) == {"[]"}
