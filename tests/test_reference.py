"""`fred list KIND NAME` and the pages of the reference say of each component what its class says."""

import re
from io import StringIO

import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from fred.commands import cli, reference
from fred.components import registry

COMPONENTS = [(kind, name) for kind, names in registry.REGISTRY.items() for name in names]


def told(capsys, *arguments: str) -> str:
    assert cli.main(["list", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("kind", "name"), COMPONENTS, ids=lambda part: part)
def test_each_component_has_its_sentence_options_and_an_example_that_is_one(kind, name, capsys):
    text, cls = told(capsys, kind, name), registry.lookup(kind, name)
    assert registry.summary(registry.REGISTRY[kind][name]) in " ".join(text.split())
    assert re.findall(r"^  ([a-z]\w*) +\S", text.partition("options:")[2].partition("example:")[0], re.M) == list(
        cls.model_fields
    )
    (shown,) = re.findall(r"^example: +(.*)$", text, re.M)
    example = within(YAML(typ="safe").load(StringIO(shown)))
    options = {key: value for key, value in example.items() if key != "name"}
    assert TypeAdapter(cls).validate_python(options) == cls.example()
    assert example["name"] == name


def within(value):
    """The component in a piece of a scenario: what has no further component in it that takes its place."""
    while True:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, list):
            (value,) = value
            continue
        inner = [
            each for key, each in value.items() if key in ("rule", "topology", "selection", "fetch_gate") or "name" not in value
        ]
        if not inner:
            return value
        (value,) = inner


@pytest.mark.parametrize("kind", registry.REGISTRY)
def test_the_page_of_a_kind_has_a_section_for_each(kind):
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", reference.page(kind), re.M | re.S))
    assert list(sections) == list(registry.REGISTRY[kind])
    for name, text in sections.items():
        fields = registry.lookup(kind, name).model_fields
        assert re.findall(r"^\| `(\w+)` \|", text, re.M) == list(fields)
        assert all(re.search(rf"^\| `{key}` \| \S.* \| .* \| \S.* \|$", text, re.M) for key in fields), text


def test_limits_units_and_defaults_are_told(capsys):
    text = told(capsys, "contention", "rare-delays")
    assert re.search(
        r"probability +number, above 0, at most 1; required, such as 0.01\n +probability that a gradient is delayed\n", text
    )
    assert re.search(r"seconds +latency, by name or with options; required.*\n +delay, s\n", text)


def test_a_name_that_only_one_kind_has_is_enough(capsys):
    assert told(capsys, "fasgd") == told(capsys, "algorithm", "fasgd")


def test_a_kind_alone_is_listed(capsys):
    assert re.findall(r"^  (\S+) ", told(capsys, "topology"), re.M) == list(registry.REGISTRY["topology"])


def test_a_class_of_ones_own_is_explained_too(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_importable", {})
    (tmp_path / "own_rules.py").write_text(
        "from pydantic import Field\nfrom fred import Server\n\n\nclass Mine(Server):\n"
        '    """Steps as it likes."""\n\n    much: int = Field(2, ge=1, description="how much, updates")\n'
        "    def apply_update(self, state, grads, timestamp, worker):\n        return self.step(state, grads)\n"
    )
    text = told(capsys, "algorithm", "own_rules:Mine", "--import", "own_rules")
    assert "Steps as it likes." in text
    assert re.search(r"much +whole number, at least 1; default: 2\n +how much, updates", text)


def test_large_limits_are_written_out(capsys):
    assert "below 16777216;" in told(capsys, "data", "grammar")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["latencies"], "did you mean `latency`?"),
        (["fasdg"], "did you mean `fasgd`?"),
        (["exponential"], "`exponential` is an algorithm and a topology and a latency; choose one"),
        (["latncy", "uniform"], "there is no kind `latncy`; did you mean `latency`?"),
        (["latency", "unifrom"], "did you mean `uniform`?"),
        (["latency", "fasgd"], "there is an algorithm `fasgd`: `fred list algorithm fasgd`"),
        (["latency", "mine:Slow"], "allow it with `--import mine`"),
    ],
)
def test_what_is_not_there_is_refused_with_what_may_be_meant(arguments, message, capsys):
    assert cli.main(["list", *arguments]) == 2
    out, error = capsys.readouterr()
    assert message in error
    assert not out
    assert error.count("\n") == 1
