"""The public face: everything that users' own systems need, documented by name, with examples that run."""

import ast
import doctest
import importlib
import inspect
import re
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

import fred
from fred.components import registry
from tests import house

EXAMPLES = sorted(name for name, path in house.files().items() if ">>>" in path.read_text(encoding="utf-8"))
ALIASES = {"Params", "Message", "Scalar", "Process"}  # types, and NOTHING a value: explained where they are defined
DRIVEN = {"Recorder"}  # by the simulation, whose verbs are what protocols call
DOCUMENTED = [name for name in fred.__all__ if name not in ALIASES | {"NOTHING"}]


def parts_of(name: str) -> list[tuple[str, Any]]:
    """A public function, or a class and its own public methods."""
    public = getattr(fred, name)
    if not inspect.isclass(public):
        return [(name, public)]
    ours = [each for each in public.__mro__ if each.__module__.startswith("fred.")]
    methods = {key: value for each in reversed(ours) for key, value in vars(each).items() if not key.startswith("_")}
    functions = {key: getattr(value, "__func__", value) for key, value in methods.items()}
    return [(name, public), *((f"{name}.{key}", value) for key, value in functions.items() if inspect.isfunction(value))]


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_run(module, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    failed, attempted = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert attempted
    assert not failed


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_has_an_example_and_says_what_its_parameters_are(name):
    (_, public), *methods = parts_of(name)
    assert ">>>" in (inspect.getdoc(public) or ""), f"fred.{name} has no example"
    of_pydantic = inspect.isclass(public) and issubclass(public, (BaseModel, Enum))  # whose fields have descriptions
    unnamed = [
        f"{part}: {parameter}"
        for part, function in (() if of_pydantic else ((name, public),)) + (() if name in DRIVEN else tuple(methods))
        for parameter in inspect.signature(function).parameters
        if parameter not in ("self", "cls") and not re.search(rf"\b{parameter}\b", said_of(function))
    ]
    assert not unnamed


def said_of(public: Any) -> str:
    """Its docstring; of a class without its first sentence and its examples, which name things without explaining them."""
    said = inspect.getdoc(public) or ""
    return said.partition("\n")[2].partition(">>>")[0] if inspect.isclass(public) else said


def test_whatever_a_scenario_can_name_can_be_made_of_what_is_public():
    public = {getattr(fred, name) for name in fred.__all__}
    assert {registry.base(kind) for kind in registry.BASES} <= public


@pytest.mark.parametrize("name", DOCUMENTED)
def test_examples_of_public_names_import_from_fred_alone(name):
    assert not re.findall(
        r">>> .*\b(?:from|import) fred\.\S+", "\n".join(inspect.getdoc(each) or "" for _, each in parts_of(name))
    )


def test_what_is_said_to_be_public_is_there_for_type_checkers_too():
    tree = ast.parse(house.files()["fred"].read_text(encoding="utf-8"))
    told = {alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert told - {None, "__version__"} == set(fred.__all__)
    assert set(fred.__all__) <= set(dir(fred))
