"""Options of every entry of the registry: copied, compared, hashed, written and read; and whose fault an error is."""

import itertools
import json
import math
import sys
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.components.component import Component, options_of
from fred.components.one_of import OneOf
from fred.running.execution import execute
from fred.specification.blame import blamed
from fred.specification.loading import revalidated
from tests.worlds import COMPUTE, make_run

ENTRIES = [(kind, name) for kind, table in registry.REGISTRY.items() for name in table]


def values_of(kind: str, name: str) -> dict[str, list]:
    """Yield, for each option, its default, examples, bounds, values between them, and all choices."""
    cls = registry.lookup(kind, name)
    result: dict[str, list] = {}
    for option, schema in cls.model_json_schema()["properties"].items():
        tried = [schema[key] for key in ("default",) if key in schema] + schema.get("examples", [])
        for part in (schema, *schema.get("anyOf", [])):
            if part.get("type") in ("number", "integer"):
                low = part.get("minimum", part.get("exclusiveMinimum", 0))
                tried += [low + 1, low + 2, low + 5] + ([low + 0.25, low + 1.5] if part["type"] == "number" else [])
            tried += [True, False] if part.get("type") == "boolean" else []
            tried += part.get("enum", []) + ([None] if part.get("type") == "null" else [])
        result[option] = tried
    return result


VALUES = {entry: values_of(*entry) for entry in ENTRIES}


@st.composite
def components(draw: st.DrawFn, entry: tuple[str, str] | None = None) -> Component:
    """One of the registry's, or of this entry's, with options of which some are given."""
    kind, name = entry or draw(st.sampled_from(ENTRIES))
    cls = registry.lookup(kind, name)
    tried = VALUES[kind, name]
    chosen = [option for option, values in tried.items() if len(values) and draw(st.booleans())]
    required = [option for option, field in cls.model_fields.items() if field.is_required()]
    given_ = {option: draw(st.sampled_from(tried[option])) for option in chosen}
    given_ |= {option: cls.model_fields[option].examples[0] for option in required if option not in given_}
    try:
        return cls.model_validate(given_)
    except ValidationError:  # they do not go together
        assume(False)
        raise


def kind_of(component: Component) -> str:
    return next(kind for kind, table in registry.REGISTRY.items() if registry.name_of(kind, component) in table)


def plainly(value: Any) -> Any:
    """Options as nested tuples that Python itself compares."""
    if isinstance(value, Component):
        return type(value).__name__, tuple((name, plainly(option)) for name, option in sorted(options_of(value).items()))
    if isinstance(value, dict):
        return tuple((key, plainly(each)) for key, each in sorted(value.items()))
    return tuple(map(plainly, value)) if isinstance(value, (list, tuple)) else value


@settings(max_examples=150)
@given(component=components())
def test_what_is_written_is_read_as_the_same_and_written_the_same(component):
    kind = kind_of(component)
    written = OneOf(kind).dump(component)
    text = json.dumps(written, allow_nan=False, default=str)
    assert written["name"] in registry.REGISTRY[kind]
    assert written.keys() - {"name"} == set(options_of(component)), "defaults are written, too"
    options = {key: option for key, option in json.loads(text).items() if key != "name"}
    again = type(component).model_validate(options)
    assert plainly(again) == plainly(component)
    assert json.dumps(OneOf(kind).dump(again), default=str) == text
    assert again == component
    assert hash(again) == hash(component)


@settings(max_examples=150)
@given(two=st.sampled_from(ENTRIES).flatmap(lambda entry: st.tuples(components(entry), components(entry) | components())))
def test_components_are_equal_and_hashed_alike_when_their_options_are_and_only_then(two):
    one, other = two
    if type(other) is not type(one):
        assert one != other
    same = plainly(one) == plainly(other)
    assert (one == other) == same
    assert (hash(one) == hash(other)) == same
    assert len({one, other}) == (1 if same else 2)


@settings(max_examples=150)
@given(component=components(), data=st.data())
def test_changing_one_option_makes_another_component_and_leaves_the_old_one(component, data):
    entry = kind_of(component), registry.name_of(kind_of(component), component)
    changeable = {option: values for option, values in VALUES[entry].items() if values}
    assume(changeable)
    option = data.draw(st.sampled_from(sorted(changeable)))
    value = data.draw(st.sampled_from(changeable[option]))
    before, mark = plainly(component), hash(component)
    try:
        changed = component.model_copy(update={option: value})
    except ValidationError:
        assume(False)
        raise
    fresh = type(component).model_validate({**options_of(component), option: value})
    assert plainly(changed) == plainly(fresh)
    assert hash(changed) == hash(fresh)
    assert (changed == component) == (plainly(changed) == before)
    assert (hash(changed) == mark) == (plainly(changed) == before)
    assert plainly(component) == before


def test_a_number_is_the_same_whether_it_was_written_as_whole_or_not_and_a_list_as_list_or_tuple():
    lookup = registry.lookup
    assert lookup("latency", "constant")(seconds=1) == lookup("latency", "constant")(seconds=1.0)
    one, other = lookup("model", "mlp")(hidden=[3, 4]), lookup("model", "mlp")(hidden=(3, 4))
    assert (one, hash(one)) == (other, hash(other))
    assert {one: "found"}[other] == "found"


def test_classes_with_the_same_options_are_different():
    """Two algorithms with one and the same option; several topologies without any."""
    algorithms = [registry.lookup("algorithm", name)(learning_rate=0.1) for name in ("asgd", "ssgd", "ssp", "cutoff-sgd")]
    topologies = [registry.lookup("topology", name)() for name in ("ring", "complete", "star")]
    for some in (algorithms, topologies):
        assert len(set(some)) == len(some)
        assert all(one != other for one, other in itertools.combinations(some, 2))


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"workers": 0}, "greater than or equal to 1"),
        ({"wrkers": 3}, "unknown key `wrkers`; did you mean `workers`?"),
        ({"speeds": [1, 2]}, "3 workers need as many `speeds`, not 2"),
        ({"times": [1, 2]}, "3 workers need as many `times`, not 2"),
        ({"times": [1, 2, 0]}, "greater than 0"),
        ({"times": "i^2"}, "'i' or 'sqrt(i)'"),
        ({"times": "i", "speeds": [1, 1, 1]}, "give one of `speeds`, `times`"),
        ({"compute": "pareto"}, "Field required"),
        ({"compute": {"name": "constant", "seconds": math.nan}}, "finite number"),
        ({"compute": "nothing"}, "expected one of constant, uniform"),
        ({"compute": 3}, "expected a name or a mapping with the key `name`"),
        ({"compute": {"seconds": 3}}, "expected a name or a mapping with the key `name`"),
        ({"servers": True}, "found true or false; expected: parameter servers"),
        ({"speeds": [1, True, 1]}, "found true or false; expected: speed of each worker"),
    ],
)
def test_a_copy_is_refused_what_a_new_one_would_be(update, message):
    cluster = Cluster.model_validate({"workers": 3, "compute": COMPUTE})
    for change in (lambda: cluster.model_copy(update=update), lambda: Cluster.model_validate({"workers": 3, **update})):
        with pytest.raises(ValidationError) as error:
            change()
        assert message in str(error.value)
    assert cluster.model_copy(update={"workers": 4}).size == 4, "what was derived from the old options is derived again"
    assert cluster.size == 3


@pytest.mark.parametrize(
    ("times", "seconds"), [("i", [0.5, 1, 1.5]), ("sqrt(i)", [0.5, 0.5 * 2**0.5, 0.5 * 3**0.5]), ([1, 7, 49], [0.5, 3.5, 24.5])]
)
def test_times_say_how_much_longer_each_worker_computes(times, seconds):
    cluster = {"workers": 3, "compute": {"name": "constant", "seconds": 0.5}, "times": times}
    schedule = execute("run", make_run("ssgd", task=None, cluster=cluster, stop={"updates": 1}), 1).schedule
    pushes = schedule.frame().query("verb == 'ADD'").sort_values("worker")
    assert pushes["time_ns"].tolist() == [round(1e9 * each) for each in seconds]


def test_what_went_around_validation_deep_inside_is_found_with_its_place():
    run = make_run(task=None, cluster={"workers": 2, "compute": {"name": "mixture", "components": [COMPUTE], "weights": [1]}})
    assert revalidated(run) == run
    object.__setattr__(run.cluster.compute.components[0], "sigma", -1.0)  # type: ignore[attr-defined]
    with pytest.raises(FredError, match=r"^cluster\.compute\.components\.0\.sigma: found -1.0; expected greater than 0$"):
        revalidated(run)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (
            "algorithm",
            "asdg",
            "expected one of the names that `fred list algorithm` lists, or `module:Class`; did you mean `asgd`\\?",
        ),
        ("latency", "log-normal", "; did you mean `lognormal`\\?"),
        ("topology", "rings", "; did you mean `ring`\\?"),
        ("contention", "random-delay", "; did you mean `random-delays`\\?"),
        ("data", "zzzzz", "or `module:Class`$"),
        ("model", ":Net", "`:Net` is not of the form `module:Class`"),
        ("model", "nets:", "`nets:` is not of the form `module:Class`"),
        ("model", "nets:a.b", "`nets:a.b` is not of the form `module:Class`"),
        ("model", "os:path", "a scenario alone never makes FRED import code: allow it with `--import os`"),
    ],
)
def test_unknown_names_get_the_nearest(kind, name, message):
    with pytest.raises(FredError, match=message):
        registry.lookup(kind, name)


def test_names_lead_to_classes_and_back():
    for kind, name in ENTRIES:
        cls = registry.lookup(kind, name)
        assert f"{cls.__module__}:{cls.__name__}" == registry.REGISTRY[kind][name]
        assert registry.name_of(kind, cls.example()) == name


OWN = """
import numpy as np
from fred.base.errors import FredError
from fred.learning.models.mlp import SoftmaxRegression
from fred.cluster.contention import Contention
from fred.cluster.latency import Constant, Latency
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.protocol import Protocol
from fred.protocols.topology import Ring

def helper(u):
    if u.size == 1:
        return u
    return u["nothing"]

class Late(Latency):
    "Fails when more than one duration is drawn."
    def sample(self, u):
        return helper(u)
    @property
    def mean(self):
        return 1.0

class Careful(Asynchronous):
    "Fails in a process."
    def _work(self, sim, worker, *_):
        yield from sim.pull(worker)
        if worker == 1:
            raise LookupError("I do not know how")

class Polite(Asynchronous):
    "Says what is wrong."
    def start(self, sim):
        raise FredError("this is never so")

class Greedy(Asynchronous):
    "Wants more memory than there is."
    def start(self, sim):
        np.zeros(2**62, np.int8)

class Innocent(Asynchronous):
    "Takes part in what goes wrong elsewhere."

class Hollow(Asynchronous):
    "Lacks nothing."

class Unfinished(Protocol):
    "Lacks its method."

class Circle(Ring):
    "Fails when it is asked."
    def receivers(self, worker, iteration, workers):
        return [workers + iteration]

class Net(SoftmaxRegression):
    "Fails when it is traced."
    def apply(self, params, inputs):
        return inputs @ params["no such weights"]

number = 3
"""


def line_of(text: str) -> int:
    return 1 + OWN.splitlines().index(text)


class TestBlame:
    @pytest.fixture(autouse=True)
    def module(self, tmp_path, monkeypatch):
        (tmp_path / "blamed_classes.py").write_text(OWN)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(registry, "_importable", {})
        monkeypatch.delitem(sys.modules, "blamed_classes", raising=False)
        registry.allow_import(["blamed_classes"])

    @pytest.mark.parametrize(
        ("options", "own", "error", "line"),
        [
            ({"cluster": {"workers": 2, "compute": "Late"}}, "Late", "IndexError", '    return u["nothing"]'),
            ({"protocol": "Careful"}, "Careful", "LookupError: I do not", '            raise LookupError("I do not know how")'),
            ({"task": "Net"}, "Net", "KeyError: 'no such weights'", '        return inputs @ params["no such weights"]'),
        ],
    )
    @pytest.mark.parametrize("inline", [False, True])
    def test_a_users_class_is_named_with_its_last_line(self, options, own, error, line, inline):
        def full(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: full(each) for key, each in value.items()}
            return f"blamed_classes:{value}" if isinstance(value, str) else value

        options = full(options)
        if "task" in options:
            options["task"] = {"data": "digits", "model": options["task"]}
        else:
            options["task"] = None
        run = make_run(**options)
        with pytest.raises(FredError) as caught:
            execute("mine", run, 0, inline)
        said = str(caught.value)
        assert said.startswith(f"run `mine`, with `blamed_classes:{own}`: {error}")
        assert said.endswith(f"blamed_classes.py, line {line_of(line)})")
        assert caught.value.__cause__ is not None, "the whole traceback is kept"

    def test_one_deep_inside_is_found_and_all_of_several_are_named(self):
        line = line_of('    return u["nothing"]')
        late = {"name": "blamed_classes:Late"}
        mixture = {"name": "mixture", "weights": [1.0], "components": [late]}
        cluster = {"groups": [{"workers": 2}, {"workers": 1, "compute": mixture}], "compute": COMPUTE}
        run = make_run(task=None, cluster=cluster, protocol="blamed_classes:Innocent")
        expected = r"^run `deep`, with `blamed_classes:Innocent`, `blamed_classes:Late`: IndexError.*, line \d+\)$"
        with pytest.raises(FredError, match=expected) as caught:
            execute("deep", run, 0)
        assert str(caught.value).endswith(f"blamed_classes.py, line {line})")

    def test_what_a_users_class_says_itself_is_told_as_it_is(self):
        run = make_run(task=None, protocol="blamed_classes:Polite")
        with pytest.raises(FredError, match=r"^run `mine`: this is never so$"):
            execute("mine", run, 0)

    def test_too_little_memory_is_nobodys_fault(self):
        run = make_run(task=None, protocol="blamed_classes:Greedy")
        with pytest.raises(FredError, match=r"^run `mine`: not enough memory; use fewer workers, less data"):
            execute("mine", run, 0)
        for error in (MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes")):
            with pytest.raises(FredError, match=r"^run `plain`: not enough memory"), blamed("plain", make_run(task=None)):
                raise error

    def test_freds_own_faults_stay_what_they_are(self):
        fault = KeyError("inner")
        with pytest.raises(KeyError) as caught, blamed("plain", make_run(task=None)):
            raise fault
        assert caught.value is fault

    def test_an_error_that_never_was_in_the_users_code_names_the_class_without_a_line(self, monkeypatch):
        run = make_run(task=None, protocol="blamed_classes:Innocent")
        monkeypatch.setattr("fred.running.recording.Simulation", Mock(side_effect=KeyError("inner")))
        with pytest.raises(FredError, match=r"^run `mine`, with `blamed_classes:Innocent`: KeyError: 'inner'$"):
            execute("mine", run, 0)

    def test_an_interrupted_run_is_interrupted(self):
        run = make_run(task=None, protocol="blamed_classes:Innocent")
        with pytest.raises(KeyboardInterrupt), blamed("mine", run):
            raise KeyboardInterrupt

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"protocol": "blamed_classes:number"}, "`blamed_classes:number` is not a class derived from .*Protocol, as every"),
            ({"protocol": "blamed_classes:helper"}, "`blamed_classes:helper` is not a class derived from"),
            ({"protocol": "blamed_classes:Protocol"}, "`blamed_classes:Protocol` lacks `start`"),
            ({"protocol": "blamed_classes:Unfinished"}, "protocol.*: `blamed_classes:Unfinished` lacks `start`"),
            ({"protocol": "blamed_classes:Unfinishd"}, "has no `Unfinishd`; did you mean `Unfinished`?"),
            (
                {"protocol": {"name": "gossip", "topology": "blamed_classes:Late"}},
                "protocol.topology.*`blamed_classes:Late` is not a class derived from .*Topology, as every topology is",
            ),
            (
                {"cluster": {"workers": 2, "contention": ["blamed_classes:Contention"]}},
                "cluster.contention.0.*: `blamed_classes:Contention` lacks `start`",
            ),
            ({"cluster": {"workers": 2, "compute": "blamed_classes:Ring"}}, "is not a class derived from .*Latency"),
            (
                {"task": {"data": "blamed_classes:Net", "model": "mlp"}},
                "task.data.*is not a class derived from .*, as every data",
            ),
        ],
    )
    def test_one_of_the_wrong_kind_or_an_unfinished_one_is_refused_with_its_place(self, options, message):
        with pytest.raises(FredError, match=message):
            make_run(**options)

    def test_a_users_class_is_dumped_under_its_own_name_and_read_again(self):
        run = make_run(task=None, protocol="blamed_classes:Innocent", cluster={"workers": 2, "compute": "blamed_classes:Late"})
        written = json.loads(json.dumps(run.model_dump(mode="json")))
        assert written["protocol"]["name"] == "blamed_classes:Innocent"
        assert written["cluster"]["compute"] == {"name": "blamed_classes:Late"}
        again = type(run).model_validate(written)
        assert again == run
        assert hash(again) == hash(run)
        other = make_run(task=None, protocol="blamed_classes:Hollow", cluster={"workers": 2, "compute": "blamed_classes:Late"})
        assert (run == other, hash(run) == hash(other)) == (False, False)
