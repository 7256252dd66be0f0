"""The contract of every entry of the registry and of its options; and the house: circles of imports, how long files are."""

import ast
import contextlib
import copy
import importlib
import inspect
import itertools
import json
import math
import os
import pickle
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.components.component import Component, options_of
from fred.components.one_of import OneOf
from fred.learning.server import Server
from fred.protocols.gates import Offer
from fred.running.execution import execute
from fred.schedule.traffic import copies
from fred.specification.loading import revalidated
from tests import house, mutants
from tests.conftest import ROOT
from tests.worlds import COMPUTE, TASK, make_run, record

ENTRIES = [(kind, name) for kind, table in registry.REGISTRY.items() for name in table]


def test_every_entry_is_a_documented_component():
    for kind, name in ENTRIES:
        cls = registry.lookup(kind, name)
        assert issubclass(cls, registry.base(kind)) and issubclass(cls, Component), name
        assert f"{cls.__module__}:{cls.__name__}" == registry.REGISTRY[kind][name]
        assert registry.summary(registry.REGISTRY[kind][name]).endswith((".", ")")), name
        undescribed = [field for field, info in cls.model_fields.items() if not info.description and field != "name"]
        assert not undescribed, f"{name}: fields without a description"
        assert cls.model_config["frozen"] and cls.model_config["extra"] == "forbid" and not cls.model_config["allow_inf_nan"]


def test_every_entry_is_the_same_written_and_read_copied_and_pickled_and_does_not_change():
    for kind, name in ENTRIES:
        component = registry.lookup(kind, name).example()
        assert registry.name_of(kind, component) == name
        options = json.loads(json.dumps(OneOf(kind).dump(component)))
        assert options.pop("name") == name
        with pytest.raises(ValueError, match="unknown key `no_such_option`"):
            type(component).model_validate({"no_such_option": 1})
        with pytest.raises(FredError, match="cannot be set"):
            setattr(component, next(iter(options), "any"), None)
        clones = copy.deepcopy(component), pickle.loads(pickle.dumps(component)), revalidated(component)
        for other in (*clones, type(component).model_validate(options), type(component)(**options_of(component))):
            assert (other, hash(other)) == (component, hash(component)), name


def values_of(cls: type[Component]) -> Iterator[tuple[str, Any]]:
    """Yield each option with its default, examples and choices, and values near its bounds."""
    for option, schema in cls.model_json_schema()["properties"].items():
        values = [schema[key] for key in ("default",) if key in schema] + schema.get("examples", [])
        for part in (schema, *schema.get("anyOf", [])):
            if part.get("type") in ("number", "integer"):
                low = part.get("minimum", part.get("exclusiveMinimum", 0))
                values += [low + 1, low + 2, low + 5] + ([low + 0.25, low + 1.5] if part["type"] == "number" else [])
            values += [True, False] if part.get("type") == "boolean" else []
            values += part.get("enum", []) + ([None] if part.get("type") == "null" else [])
        yield from ((option, value) for value in values)


def simplify(value: Any) -> Any:
    if isinstance(value, Component):
        return type(value).__name__, tuple((name, simplify(option)) for name, option in sorted(options_of(value).items()))
    if isinstance(value, dict):
        return tuple((key, simplify(item)) for key, item in sorted(value.items()))
    return tuple(map(simplify, value)) if isinstance(value, (list, tuple)) else value


def test_changing_an_option_makes_another_component_that_is_read_as_it_was_written():
    changes = [(*entry, *change) for entry in ENTRIES for change in values_of(registry.lookup(*entry))]
    kinds = Counter[bool]()
    for kind, name, option, value in random.Random(0).sample(changes, 400):
        component = registry.lookup(kind, name).example()
        before = simplify(component)
        with contextlib.suppress(ValidationError):  # the options do not go together
            changed = component.model_copy(update={option: value})
            fresh = type(component).model_validate({**options_of(component), option: value})
            assert (simplify(changed), hash(changed)) == (simplify(fresh), hash(fresh)), (name, option, value)
            unchanged = simplify(changed) == before
            assert (changed == component) == (hash(changed) == hash(component)) == unchanged, (name, option, value)
            assert len({component, changed}) == (1 if unchanged else 2)
            assert simplify(component) == before, "the old one stays as it is"
            options = OneOf(kind).dump(changed)
            text = json.dumps(options, allow_nan=False, default=str)
            defaults = set(options_of(changed)) - {"from"}  # from which date a file counts: its contents are written instead
            assert options.keys() - {"name"} == defaults, "defaults are written, too"
            reread = type(changed).model_validate({key: option for key, option in json.loads(text).items() if key != "name"})
            assert (simplify(reread), reread, hash(reread)) == (simplify(changed), changed, hash(changed))
            assert json.dumps(OneOf(kind).dump(reread), default=str) == text
            kinds[unchanged] += 1
    assert min(kinds[False], kinds[True]) > 50


def test_numbers_and_lists_are_the_same_however_written_and_classes_with_the_same_options_are_different():
    constant, mlp = registry.lookup("latency", "constant"), registry.lookup("model", "mlp")
    for left, right in ((constant(seconds=1), constant(seconds=1.0)), (mlp(hidden=[3, 4]), mlp(hidden=(3, 4)))):
        assert (left, hash(left)) == (right, hash(right))
    algorithms = [registry.lookup("algorithm", name)(learning_rate=0.1) for name in ("asgd", "ssgd", "ssp", "cutoff-sgd")]
    assert len(set(algorithms)) == 4
    assert all(left != right for left, right in itertools.combinations(algorithms, 2))


def test_a_copy_is_refused_what_a_new_one_would_be():
    cluster = Cluster.model_validate({"workers": 3, "compute": COMPUTE})
    for update, message in (
        ({"workers": 0}, "greater than or equal to 1"),
        ({"wrkers": 3}, "unknown key `wrkers`; did you mean `workers`?"),
        ({"speeds": [1, 2]}, "3 workers need as many `speeds`, not 2"),
        ({"speeds": "i^2"}, "'1/i' or '1/sqrt(i)'"),
        ({"speeds": "1/i", "devices": {"kinds": [{}]}}, "give one of `speeds`, `devices`"),
        ({"compute": "pareto"}, "Field required"),
        ({"compute": {"name": "constant", "seconds": math.nan}}, "finite number"),
        ({"compute": "nothing"}, "expected one of constant, uniform"),
        ({"compute": {"seconds": 3}}, "expected a name or a mapping with the key `name`"),
        ({"speeds": [1, True, 1]}, "found true or false; expected: speed of each worker"),
    ):
        with pytest.raises(ValidationError, match=re.escape(message)):
            cluster.model_copy(update=update)
        with pytest.raises(ValidationError, match=re.escape(message)):
            Cluster.model_validate({"workers": 3, **update})
    assert cluster.model_copy(update={"workers": 4}).size == 4, "what was derived from the old options is derived again"
    assert cluster.size == 3


def test_speeds_divide_the_compute_time_of_each_worker():
    for speeds, factors in (("1/i", [1, 2, 3]), ("1/sqrt(i)", [1, 2**0.5, 3**0.5]), ([1, 1 / 7, 1 / 49], [1, 7, 49])):
        cluster = {"workers": 3, "compute": {"name": "constant", "seconds": 0.5}, "speeds": speeds}
        schedule = execute("run", make_run("ssgd", task=None, cluster=cluster, stop={"updates": 1}), 1).schedule
        pushes = schedule.frame().query("verb == 'ADD'").sort_values("worker")
        assert pushes["time_ns"].tolist() == [round(5e8 * factor) for factor in factors], speeds


def test_what_went_around_validation_deep_inside_is_found_with_its_place():
    run = make_run(task=None, cluster={"workers": 2, "compute": {"name": "mixture", "components": [COMPUTE], "weights": [1]}})
    assert revalidated(run) == run
    object.__setattr__(run.cluster.compute.components[0], "sigma", -1.0)  # type: ignore[attr-defined]
    with pytest.raises(
        FredError, match=r"^cluster\.compute\.components\.0\.sigma: found -1.0; expected greater than or equal to 0$"
    ):
        revalidated(run)


def test_unknown_names_get_the_nearest():
    for kind, name, message in (
        ("algorithm", "asdg", "names that `fred list systems` lists, or `module:Class`; did you mean `asgd`\\?"),
        ("data", "zzzzz", "or `module:Class`$"),
        ("model", ":Net", "`:Net` is not of the form `module:Class`"),
        ("model", "nets:", "`nets:` is not of the form `module:Class`"),
        ("model", "nets:a.b", "`nets:a.b` is not of the form `module:Class`"),
        ("model", "os:path", "a scenario alone never makes FRED import code: allow it with `--import os`"),
    ):
        with pytest.raises(FredError, match=message):
            registry.lookup(kind, name)


def test_algorithms_refuse_impossible_rates():
    for rate in (0, -1, float("nan"), float("inf"), "fast"):
        with pytest.raises(FredError, match="learning_rate"):
            make_run({"name": "asgd", "learning_rate": rate})
    for name in registry.REGISTRY["algorithm"]:
        field = registry.lookup("algorithm", name).model_fields["learning_rate"]
        assert repr(field) == repr(Server.model_fields["learning_rate"]), name


def test_the_result_of_an_average_depends_only_on_the_average_unless_an_algorithm_pulls_models():
    """A quarter of 4 and three quarters of 8 give what 7 gives that replaces the model."""
    params = {"w": jnp.array([4.0, -4.0]), "v": jnp.full((2, 2), 4.0)}
    for name in registry.REGISTRY["algorithm"]:
        server = registry.lookup("algorithm", name).example()
        state = server.init(params, 4).replace(**{"words": jnp.zeros(2, jnp.uint32)} if server.draws else {})
        other, mean = (jax.tree.map(lambda leaf, factor=factor: factor * leaf, state.params) for factor in (2, 1.75))
        averaged, replaced = (
            server.synchronize(state, mixed, keep=keep, weight=weight).params
            for mixed, keep, weight in ((other, 0.25, 0.75), (mean, 0.0, 1.0))
        )
        same = jax.tree.map(np.allclose, averaged, replaced)
        assert all(jax.tree.leaves(same)) != server.pulls_models, name


def test_pulls_need_an_algorithm_that_pulls_and_such_an_algorithm_their_protocol():
    with pytest.raises(
        FredError, match=r"`pulls: 0\.2` needs an algorithm that pulls models: use `palsgd`, or leave `pulls` out"
    ):
        make_run("diloco", protocol={"name": "outer-steps", "pulls": 0.2})
    with pytest.raises(FredError, match="this algorithm pulls models only in the protocol `outer-steps`"):
        make_run("palsgd", protocol="elastic")


def test_protocols_run_with_any_number_of_workers():
    for name in registry.REGISTRY["protocol"]:
        for workers in (1, 2, 16):  # powers of two, which some insist on
            run = make_run("asgd", protocol=name, cluster={"workers": workers}, task=None)
            assert execute("run", run, 0).schedule.counts()["gradients"] >= 60, (name, workers)


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.REGISTRY["protocol"])
def test_a_protocol_trains_with_one_worker(name):
    losses = execute("run", make_run("asgd", protocol=name, cluster={"workers": 1}, task=TASK), 0).metrics["loss"]
    assert losses.iloc[-1] < losses.iloc[0] or name == "local-servers", "whose servers average later"


@pytest.mark.parametrize("name", registry.REGISTRY["gate"])
def test_a_gate_decides_by_offer_and_options_and_saves_messages_of_its_direction_alone(name):
    gate = registry.lookup("gate", name).example()
    offers = [Offer(number % 3, number, draw=number / 40, measured=0.05) for number in range(1, 40)]
    answers = [gate.passes(offer) for offer in offers]
    assert {type(answer) for answer in answers} == {bool}
    assert set(answers) == {True, False}
    assert [gate.passes(offer) for offer in offers[::-1]] == answers[::-1]
    for protocol, (gated, saved, other) in itertools.product(
        ("gated", "dispatcher"), (("push", "pushes", "fetches"), ("fetch", "fetches", "pushes"))
    ):
        protocol = registry.lookup("protocol", protocol)(**{f"{gated}_gate": gate})
        last = copies(record(protocol, Cluster(workers=4, compute=COMPUTE), gradients=80)).iloc[-1]
        assert 0 < last[saved] < 0.9 * last["potential"], (protocol, gated)
        assert last[other] > 0


def test_models_have_parameters_in_single_precision_and_an_output_for_each_class():
    inputs = jax.ShapeDtypeStruct((7, 8, 8, 1), np.float32)
    for name in registry.REGISTRY["model"].keys() - {"quadratic"}:  # which is its own loss
        model = registry.lookup("model", name).example()
        params = jax.eval_shape(lambda key, model=model: model.init(key, (8, 8, 1), 5), jax.random.key(0))
        outputs = jax.eval_shape(model.apply, params, inputs)
        assert outputs.shape == ((7, 64, 5) if name in ("transformer", "token-scores") else (7, 5)), name  # of sequences
        assert {leaf.dtype for leaf in jax.tree.leaves((params, outputs))} == {np.dtype(np.float32)}, name


def test_no_file_imports_itself_by_way_of_others_and_only_commands_import_what_users_import():
    """`make lint` checks the order of the rooms (`pyproject.toml`). Imports inside functions count."""
    imports = house.imports()
    assert not house.circles(house.graph_of_files(imports, lazy=True))
    assert {house.room_of(entry.file) for entry in imports if entry.other == "fred"} <= {"commands", "__main__.py"}


def test_the_house_stays_small_and_its_picture_is_drawn_from_the_code(tmp_path):
    arrows = house.rooms([entry for entry in house.imports() if not entry.lazy])
    assert sum(len(targets) for room, targets in arrows.items() if (house.SOURCE / room).is_dir()) < 116
    assert not house.twice()
    assert [room for room, size in house.sizes_of_rooms().items() if size > 30] == []
    house.draw_rooms(tmp_path / "rooms.svg")
    picture = (ROOT / "docs" / "images" / "rooms.svg").read_bytes()
    assert (tmp_path / "rooms.svg").read_bytes() == picture, "`make house` draws it"


def test_files_and_functions_stay_short_and_documented():
    """House rule: files mostly under 250 lines of code, functions mostly under 30; these are the outer limits."""
    for path, tree in house.trees().items():
        documented = {*house.docstring_of(tree)}
        for node, _ in house.statements(tree.body):
            length = len(house.docstring_of(node))
            documented |= {*house.docstring_of(node)}
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno - length < 50, f"{path}:{node.lineno} {node.name}"
        table = sum(map(len, registry.REGISTRY.values())) if path.name == "registry.py" else 0  # a line for each entry
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        code = [line for number, line in lines if not line.lstrip().startswith("#") and number not in documented]
        assert len(code) - table <= 320, path
        public = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name[0] != "_"]
        assert all(map(ast.get_docstring, [tree] * bool(tree.body) + public)), f"{path}: a docstring is missing"  # type: ignore[operator]


def test_every_mutant_still_has_its_place_in_the_code():
    for mutant in mutants.mutants():
        mutant.statement(ROOT)


def test_pages_are_short_and_keep_timing_and_arithmetic_apart():
    """Pages are read as text: a `Server` does not name the simulation, and no other class names JAX."""
    for part in ("kind", "name"), ("cls",):
        keys = [tuple(getattr(entry, key) for key in part) for entry in registry.entries()]
        assert len(set(keys)) == len(keys)
    for name in sorted({entry.module for entry in registry.entries() if entry.module.startswith("fred.systems.")}):
        path, module = house.files()[name], importlib.import_module(name)
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 320, path
        assert ">>>" in text, f"{path} has no example"
        for node in house.trees()[path].body:
            cls: Any = vars(module).get(node.name) if isinstance(node, ast.ClassDef) else None
            words = {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
            timing, arithmetic = {"Simulation", "Process", "simpy", "sim"}, {"jax", "jnp", "optax", "State"}
            assert not cls or not words & (timing if issubclass(cls, Server) else arithmetic), f"{path}: {cls}"


def test_help_the_list_and_timing_alone_load_no_jax(tmp_path):
    """Every algorithm and protocol with its usual options, and a scenario without a task, run and stored."""
    program = """
        import contextlib, importlib, sys
        import fred
        from fred.commands import cli
        from fred.components import registry
        for arguments in (["--help"], ["list"], ["run", "--help"], ["--version"]):
            with contextlib.suppress(SystemExit):
                cli.main(arguments)
        for kind in ("algorithm", "protocol"):
            for name in registry.REGISTRY[kind]:
                registry.lookup(kind, name).example()
        for module in {modules}:
            importlib.import_module(module)
        runs = {{name: {{"algorithm": {{"name": name, "learning_rate": 0.1}}}} for name in ("asgd", "k-async", "noloco")}}
        fred.run(fred.scenario({{"cluster": {{"workers": 2}}, "stop": {{"updates": 4}}, "runs": runs}}), out="timing")
        print(sorted({{"jax", "jaxlib", "optax"}} & sys.modules.keys()))
        """
    rooms = "protocols", "specification", "outcomes"
    modules = [name for name, path in house.files().items() if path.relative_to(house.SOURCE).parts[0] in rooms]
    command = [sys.executable, "-c", inspect.cleandoc(program.format(modules=modules))]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    process = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert process.stdout.splitlines()[-1] == "[]"


def test_the_registry_has_the_classes_that_python_finds_in_the_files():
    """It reads them without parsing them as Python."""
    for folder in registry.FOLDERS:
        for path in sorted((house.SOURCE / folder).glob("*.py")):
            expected = []
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                lines = [line for line in getattr(node, "body", ()) if isinstance(line, ast.Assign)]
                values = {ast.unparse(line.targets[0]): line.value for line in lines}
                if isinstance(node, ast.ClassDef) and isinstance(name := values.get("name"), ast.Constant):
                    family = getattr(values.get("family"), "attr", "")
                    expected.append(
                        registry.Entry("algorithm" if family else "protocol", str(name.value), "m", node.name, family)
                    )
            assert list(registry.read_entries("m", path)) == expected, path


def test_a_run_loads_matplotlib_only_for_figures_and_scipys_slow_modules_not_at_all():
    """Otherwise each run takes a second longer, and no other process draws figures: a notebook may have changed matplotlib."""
    program = """
import sys, fred
task, algorithm = {"data": {"name": "synthetic-classification"}, "model": {"name": "softmax"}}, {"name": "asgd", "learning_rate": 0.1}
fred.run(fred.scenario(task=task, cluster={"workers": 2}, stop={"updates": 4}, algorithm=algorithm))
print(sorted({"matplotlib", "scipy.cluster", "scipy.optimize", "scipy.stats"} & sys.modules.keys()))
"""
    command = [sys.executable, "-c", program]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout == "[]\n"


@pytest.mark.slow
def test_another_process_draws_figures_of_a_run_by_two(tmp_path):
    program = """
import fred
from fred.results import folder
begin_drawing = folder._start_drawing
def count(result, place):
    futures = begin_drawing(result, place)
    print(len(futures))
    return futures
folder._start_drawing = count
fred.run("quickstart", only=["asgd", "sync"], seeds=[1], out="out", jobs=2)
"""
    command = [sys.executable, "-c", program]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert process.stdout == "1\n"
