"""Every line of the registry buys these tests: an entry that breaks the contract cannot be added unnoticed."""

import ast
import copy
import importlib
import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections import Counter
from typing import Any

import jax
import numpy as np
import pytest

from fred.base.errors import FredError
from fred.commands import reference
from fred.components import pages, registry
from fred.components.component import Component, options_of
from fred.components.one_of import OneOf
from fred.learning.server import Server
from fred.outcomes.measures import summarise
from fred.protocols.gate_rules import Offer
from fred.running.execution import execute
from fred.specification.loading import revalidated
from tests import house
from tests.conftest import ROOT
from tests.worlds import TASK, make_run, same
from tests.writing import docstring_of

ENTRIES = [(kind, name) for kind, table in registry.REGISTRY.items() for name in table]


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
class TestEveryEntry:
    def test_it_is_a_documented_component(self, kind, name):
        cls = registry.lookup(kind, name)
        assert issubclass(cls, registry._load(registry.BASES[kind]))
        assert issubclass(cls, Component)
        assert registry.summary(registry.REGISTRY[kind][name]).endswith((".", ")"))
        missing = [field for field, info in cls.model_fields.items() if not info.description and field != "name"]
        assert not missing, f"fields without a description: {missing}"
        assert cls.model_config["frozen"] and cls.model_config["extra"] == "forbid" and not cls.model_config["allow_inf_nan"]

    def test_it_is_the_same_written_and_read_copied_and_pickled(self, kind, name):
        component = registry.lookup(kind, name).example()
        written = json.loads(json.dumps(OneOf(kind).dump(component)))
        assert written.pop("name") == name
        for another in (
            registry.lookup(kind, name).model_validate(written),
            component.model_copy(),
            copy.copy(component),
            copy.deepcopy(component),
            pickle.loads(pickle.dumps(component)),
            revalidated(component),
            type(component)(**options_of(component)),
        ):
            assert another == component
            assert hash(another) == hash(component)


@pytest.mark.parametrize("kind", registry.BASES)
def test_a_component_refuses_unknown_options_and_does_not_change(kind):
    name = next(iter(registry.REGISTRY[kind]))
    with pytest.raises(ValueError, match="unknown key `no_such_option`"):
        registry.lookup(kind, name).model_validate({"no_such_option": 1})
    component = registry.lookup(kind, name).example()
    with pytest.raises(ValueError, match="frozen"):
        setattr(component, next(iter(type(component).model_fields), "any"), None)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "fast"])
def test_algorithms_refuse_impossible_rates(rate):
    """The option is `Server`'s, and no algorithm has one of its own."""
    with pytest.raises(FredError, match="learning_rate"):
        make_run({"name": "asgd", "learning_rate": rate})
    for name in registry.REGISTRY["algorithm"]:
        field = registry.lookup("algorithm", name).model_fields["learning_rate"]
        assert repr(field) == repr(Server.model_fields["learning_rate"]), name


@pytest.mark.parametrize("name", registry.REGISTRY["algorithm"])
class TestAlgorithm:
    def test_it_states_its_rule_and_its_file_cites_its_source(self, name):
        cls = registry.lookup("algorithm", name)
        assert vars(cls).get("rule"), "no `rule`, which docs/algorithms.md prints"
        assert re.search(r"(19|20)\d\d", reference.source(cls)), "neither the first line nor a table of the file cites it"

    def test_its_state_is_arrays_that_keep_their_shapes(self, name):
        server: Server = registry.lookup("algorithm", name).example()
        params = {"w": jax.numpy.ones((3, 2)), "b": jax.numpy.zeros(2)}
        state = server.init(params, 3)
        message, _ = server.send(server.memory(params), params, params)
        after = server.apply_update(state, message, jax.numpy.int32(0), jax.numpy.int32(0))
        structures: list[Any] = [jax.tree.structure(each) for each in (state, after)]
        assert structures[0] == structures[1]
        shapes = [[(leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(each)] for each in (state, after)]
        assert shapes[0] == shapes[1]
        assert int(after.clock) == int(state.clock) + 1


@pytest.mark.parametrize("name", registry.REGISTRY["protocol"])
def test_protocols_run_with_any_number_of_workers(name):
    for workers in (1, 2, 16):  # powers of two, which some insist on
        run = make_run("asgd", protocol=name, cluster={"workers": workers}, task=TASK if workers == 1 else None)
        counts = execute("run", run, 0).schedule.counts()
        assert counts["gradients"] >= 60


@pytest.mark.parametrize("name", registry.REGISTRY["gate"])
class TestGate:
    def test_the_offer_and_the_options_decide(self, name):
        gate = registry.lookup("gate", name).example()
        offers = [Offer(number % 3, number, draw=number / 40, measured=0.05) for number in range(1, 40)]
        answers = [gate.passes(offer) for offer in offers]
        assert {type(answer) for answer in answers} == {bool}
        assert set(answers) == {True, False}
        assert [gate.passes(offer) for offer in offers[::-1]] == answers[::-1]

    @pytest.mark.parametrize("way", ["push", "fetch"])
    @pytest.mark.parametrize("protocol", ["gated", "dispatcher"])
    def test_it_saves_messages_of_its_way_and_inline_equals_replay(self, name, protocol, way):
        gate = {f"{way}_gate": OneOf("gate").dump(registry.lookup("gate", name).example())}
        run = make_run("b-fasgd", protocol={"name": protocol, **gate}, stop={"updates": 60})
        replayed, inline = (execute("run", run, 0, each) for each in (False, True))
        assert same(replayed, inline)
        counted = summarise(replayed)["copies"]
        other = {"push": "fetches", "fetch": "pushes"}[way]
        assert 0 < counted[{"push": "pushes", "fetch": "fetches"}[way]] < 0.9 * counted["potential"]
        assert counted[other] > 0


@pytest.mark.parametrize("name", [name for name in registry.REGISTRY["model"] if name != "quadratic"])  # which is its own loss
def test_models_have_finite_parameters_that_follow_the_key(name):
    model = registry.lookup("model", name).example()
    shape = (8, 8, 1)
    params = model.init(jax.random.key(0), shape, 5)
    outputs = model.apply(params, jax.random.normal(jax.random.key(1), (7, *shape)))
    assert outputs.shape == ((7, 64, 5) if name in ("transformer", "token-scores") else (7, 5))  # of sequences
    assert np.isfinite(outputs).all()
    again = model.init(jax.random.key(0), shape, 5)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(again), strict=True))
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(params))


NEW_LATENCY = '''
"""Triangular durations."""

from pydantic import Field

from fred.cluster.latency import Latency


class Triangular(Latency):
    """Sum of two uniform durations."""

    width: float = Field(gt=0, examples=[0.1], description="half the longest duration, s")

    def sample(self, u):
        return self.width * (u * 2) ** 0.5 * (u < 0.5) + self.width * (2 - (2 - 2 * u) ** 0.5) * (u >= 0.5)

    @property
    def mean(self):
        return self.width
'''
NEW_ALGORITHM = '''
"""Signs of asynchronous gradients [Bernstein et al. 2018, arXiv:1802.04434]."""

import jax
import jax.numpy as jnp

from fred.learning.server import Server

ALGORITHMS = {
    "new-sign": {"family": "as-they-come", "rule": "w <- w - 0.1 step(sign(g))", "server": "SignSGD"},
}


class SignSGD(Server):
    """One step of fixed length in each coordinate."""

    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, jax.tree.map(jnp.sign, grads), scale=0.1)
'''


NEW_RECOMPUTATION = '''
"""Signs of gradients."""

import numpy as np

from tests.plain.base import Plain


class PlainSigns(Plain):
    """Steps of one length."""

    def update(self, grads, staleness, count=0):
        self.params = {k: p - 0.1 * self.rate * np.sign(grads[k]) for k, p in self.params.items()}


PLAIN = {"new-entry": PlainSigns, "new-wrong": PlainSigns}
'''
NEW = {  # file -> its text, and what another one has in its place that breaks the contract
    "cluster/triangular.py": (NEW_LATENCY, ("self.width\n", "7.0\n")),
    "systems/sign.py": (NEW_ALGORITHM, ("scale=0.1", "scale=0.2")),
}


@pytest.mark.slow
def test_a_page_or_a_file_and_a_line_bring_an_entry_under_the_contract(tmp_path):
    """In a copy of the project: a new entry's contract tests are found and pass, and those of one that breaks it fail."""
    for folder in ("fred", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    (tmp_path / "tests" / "plain" / "sign.py").write_text(NEW_RECOMPUTATION.lstrip())
    table = tmp_path / "fred" / "components" / "registry.py"
    for path, (content, wrong) in NEW.items():
        file = tmp_path / "fred" / path
        for entry, text in (("entry", content), ("wrong", content.replace(*wrong)), ("untold", content)):
            own = file.with_stem(f"{file.stem}_{entry}")
            own.write_text(text.lstrip().replace("new-sign", f"new-{entry}"))
            if path.startswith("cluster/"):
                line = f'        "new-{entry}": "fred.cluster.{own.stem}:Triangular",\n'
                table.write_text(table.read_text().replace('    "latency": {\n', f'    "latency": {{\n{line}', 1))
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-rA", "-k", "new- and not pinned"]
    command += [f"tests/test_{name}.py" for name in ("contracts", "every_case", "latency")]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    results = re.findall(r"^(PASSED|FAILED) tests/test_(\w+)\.py.*(new-\w+)", said, re.MULTILINE)
    assert results.count(("PASSED", "every_case", "new-entry")) == 5, said
    assert results.count(("PASSED", "contracts", "new-entry")) >= 6, said
    assert results.count(("PASSED", "latency", "new-entry")) >= 5, said
    assert [file for result, file, entry in results if result == "FAILED" and entry == "new-wrong"] == [
        "every_case",
        "latency",
    ], said
    assert "FAILED" not in [result for result, _, entry in results if entry == "new-entry"], said
    assert ("FAILED", "every_case", "new-untold") in results, "nobody has told NumPy what it does"


ROOMS = (  # from the top: each imports only from those below it
    *("commands", "diagnosis", "results", "fitting", "views", "running", "replay", "outcomes", "specification", "systems"),
    *("protocols", "prediction", "learning", "timing", "cluster", "traces", "schedule", "components", "portable", "base"),
)
UNKNOWN = {  # room -> libraries that it must not know
    "specification": ("jax", "optax", "simpy"),
    "outcomes": ("jax", "optax", "simpy"),
    "traces": ("jax", "optax", "simpy"),
    "cluster": ("jax", "optax", "simpy"),
    "timing": ("jax", "optax"),
    "protocols": ("jax", "optax"),
    "fitting": ("jax", "optax", "simpy"),
    "diagnosis": ("jax", "optax", "simpy"),
    "prediction": ("simpy",),
    "learning": ("simpy",),
    "replay": ("simpy",),
}


def test_no_import_leads_upwards():
    """By the text of every file, also of what is imported inside functions; the face and the program stand above all."""
    found = house.imports()
    assert {house.room_of(each.file).removesuffix(".py") for each in found} <= {*ROOMS, "__init__", "__main__"}
    for each in found:
        here, there = (house.room_of(module).removesuffix(".py") for module in (each.file, each.other))
        if here in ROOMS and here != there and (here, there) != ("commands", "__init__"):
            assert ROOMS.index(here) < ROOMS.index(there), f"{each.file} imports {each.other}"
    assert not house.circles(house.of_files(found, lazy=True))


def test_the_house_stays_small():
    """Few arrows between rooms, no file name twice, no room of more than thirty files but for `systems`; the picture is drawn of it."""
    graph = house.rooms([each for each in house.imports() if not each.lazy])
    assert sum(map(len, graph.values())) < 110
    assert not house.twice()
    assert [room for room, size in house.sizes_of_rooms().items() if size > 30] == ["systems"]


def test_the_picture_of_the_rooms_is_drawn_from_the_code(tmp_path):
    house.draw_rooms(tmp_path / "rooms.svg")
    assert (tmp_path / "rooms.svg").read_bytes() == (ROOT / "docs" / "images" / "rooms.svg").read_bytes(), (
        "`make house` draws it"
    )


def test_each_room_knows_only_the_libraries_it_may():
    """By the text of every file, and by what really is loaded."""
    for room, forbidden in UNKNOWN.items():
        for path in (ROOT / "fred" / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not [name for name in names if name.startswith(forbidden)], path
    program = "import sys, importlib\nfor m in {modules}: importlib.import_module(m)\nprint('{other}' in sys.modules)"
    for other, rooms in (("jax", ("protocols", "specification", "outcomes")), ("simpy", ("learning", "replay"))):
        modules = [
            ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for room in rooms
            for path in (ROOT / "fred" / room).rglob("*.py")
            if path.name not in ("__init__.py", "adapters.py")
        ]
        loaded = subprocess.run(
            [sys.executable, "-c", program.format(modules=modules, other=other)], capture_output=True, text=True, check=True
        )
        assert loaded.stdout.strip() == "False", rooms


def test_pages_are_short_and_keep_timing_and_arithmetic_apart():
    """In the text of a page no `Server` names the simulation, and no `Protocol` JAX; what neither is derived from names both."""
    names = Counter(name for page in pages.known() for name in (*page.algorithms, *page.protocols.values()))
    assert not [name for name, times in names.items() if times > 1]
    for page in pages.known():
        path = house.files()[page.module]
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 300, path
        assert ">>>" in text, f"{path} has no example"
        module = importlib.import_module(page.module)
        for node in ast.parse(text).body:
            made = vars(module).get(node.name) if isinstance(node, ast.ClassDef) else None
            named = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            if isinstance(made, type) and issubclass(made, Server):
                assert not named & {"Simulation", "Process", "simpy", "sim"}, f"{path}: {made.__name__}"
            elif made:
                assert not named & {"jax", "jnp", "optax", "State"}, f"{path}: {made.__name__}"


def test_timing_alone_loads_no_jax(tmp_path):
    """Every algorithm and protocol with its usual options, and a scenario without a task, run and stored."""
    program = """
        import sys
        import fred
        from fred.components import registry
        for kind in ("algorithm", "protocol"):
            for name in registry.REGISTRY[kind]:
                registry.lookup(kind, name).example()
        names = ("asgd", "k-async", "noloco")
        scenario = fred.scenario({
            "cluster": {"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
            "stop": {"updates": 4},
            "runs": {name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in names},
        })
        fred.run(scenario, out="timing")
        print(sorted({"jax", "jaxlib", "optax"} & sys.modules.keys()))
        """
    command = [sys.executable, "-c", inspect.cleandoc(program)]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_files_and_functions_stay_short():
    """House rule: files mostly under 250 lines, functions mostly under 30, without docstrings. These are the outer limits."""
    for path in (ROOT / "fred").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        stated = [len(docstring_of(node)) for node in ast.walk(ast.parse(text))]
        table = sum(map(len, registry.REGISTRY.values())) if path.name == "registry.py" else 0  # a line for each entry
        assert text.count("\n") - sum(stated) - table <= 320, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno is not None
                length = node.end_lineno - node.lineno - len(docstring_of(node))
                assert length < 50, f"{path}:{node.lineno} {node.name}"


def test_every_public_name_has_a_docstring():
    for path in (ROOT / "fred").rglob("*.py"):
        module = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(module) or not module.body, path
        for node in module.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path}:{node.lineno} {node.name}"


def test_user_code_is_imported_only_when_asked_for(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "my_servers", raising=False)
    (tmp_path / "my_servers.py").write_text("from fred import ASGD\nclass Mine(ASGD):\n    'Mine.'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_importable", {})
    options = {"name": "my_servers:Mine", "learning_rate": 0.1}
    with pytest.raises(FredError, match="allow it with `--import my_servers`"):
        make_run(options)
    assert "my_servers" not in sys.modules
    registry.allow_import(["my_servers"])
    mine = execute("run", make_run(options), 0)
    assert mine.params_digest == execute("run", make_run("asgd"), 0).params_digest
    assert OneOf("algorithm").dump(mine.run.algorithm)["name"] == "my_servers:Mine"
    with pytest.raises(FredError, match="cannot load `my_servers:Other`"):
        make_run({"name": "my_servers:Other", "learning_rate": 0.1})


OWN_ROWS = '''
"""Gradients, halved [Nobody 2031]."""

import jax

from fred import Server

ALGORITHMS = {
    "half": {"family": "answered", "rule": "w <- w - step(g) / 2", "server": "Half"},
    "half-in-rounds": {"about": "Halves rounds.", "server": "Half", "protocol": {"name": "softsync", "n": 2}, "defaults": {"part": 0.25}},
}


class Half(Server):
    """A part of each step."""

    part: float = 0.5

    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads, scale=self.part)
'''


def test_rows_of_a_users_own_module_are_algorithms(tmp_path, monkeypatch):
    (tmp_path / "own_rows.py").write_text(OWN_ROWS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_importable", {})
    registry.allow_import(["own_rows"])
    run = make_run({"name": "own_rows:half-in-rounds", "learning_rate": 0.1})
    assert OneOf("algorithm").dump(run.algorithm)["name"] == "own_rows:half-in-rounds"
    assert (run.algorithm.part, run.protocol) == (0.25, registry.lookup("protocol", "softsync")(n=2))
    assert pickle.loads(pickle.dumps(run.algorithm)) == run.algorithm
    half = registry.lookup("algorithm", "own_rows:half")
    assert (half.__doc__, reference.source(half), half(learning_rate=0.1).part) == ("A part of each step.", "Nobody 2031", 0.5)
    registry.allow_import(["own_rows"])
    assert registry.lookup("algorithm", "own_rows:half") is half


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Two installed distributions: the first offers `halving`, both offer `shared`."""
    offers = {"one": "halving = ep_rows\nshared = ep_rows\n", "two": "shared = ep_other\n"}
    for name, offered in offers.items():
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[fred.systems]\n{offered}")
    (tmp_path / "ep_rows.py").write_text(OWN_ROWS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_importable", {})
    yield
    sys.modules.pop("ep_rows", None)


@pytest.mark.usefixtures("installed")
def test_an_installed_package_offers_algorithms_and_is_imported_only_when_named():
    with pytest.raises(FredError, match="allow it with `--import halving`"):
        make_run({"name": "halving:half", "learning_rate": 0.1})
    assert "ep_rows" not in sys.modules
    registry.allow_import(["halving"])
    run = make_run({"name": "halving:half", "learning_rate": 0.1})
    assert OneOf("algorithm").dump(run.algorithm)["name"] == "ep_rows:half"
    assert make_run({"name": "ep_rows:half", "learning_rate": 0.1}) == run
    assert registry.lookup("algorithm", "halving:Half").__module__ == "ep_rows"
    assert registry.imported() == ["ep_rows"]
    with pytest.raises(FredError, match="`ep_rows` has no `third`"):
        registry.lookup("algorithm", "halving:third")


@pytest.mark.usefixtures("installed")
def test_a_file_in_the_current_folder_precedes_an_entry_point(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    (here / "halving.py").write_text(OWN_ROWS)
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(here)
    registry.allow_import(["halving"])
    assert registry.lookup("algorithm", "halving:Half").__module__ == "halving"
    sys.modules.pop("halving")
    (here / "halving.py").unlink()
    registry.allow_import(["halving"])
    assert registry.lookup("algorithm", "halving:Half").__module__ == "ep_rows"


@pytest.mark.usefixtures("installed")
def test_an_entry_point_of_two_packages_is_refused():
    with pytest.raises(FredError, match="several modules as `shared`: ep_other, ep_rows; name one of these"):
        registry.allow_import(["shared"])
    registry.allow_import(["ep_rows"])
    assert registry.imported() == ["ep_rows"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"sever": "Half"}, "unknown key `sever`; expected about, .*; did you mean `server`?"),
        ({"family": "stale"}, "unknown family `stale`; expected one of fresh,"),
        ({"server": "Halves"}, "`server`: `own_rows_wrong` has no class `Halves` that is derived from `Server`"),
        ({"server": "jax"}, "`server`: `own_rows_wrong` has no class `jax`"),
        ({"server": "Half", "defaults": {"prat": 1}}, "`defaults`: no option `prat`; did you mean `part`?"),
        ({"server": "Half", "defaults": {"part": "half"}}, "`defaults`: `part`: Input should be a valid number.*, got 'half'"),
        ({"protocol": {"n": 2}}, "`protocol`: expected the name of a protocol, or a mapping with the key `name`"),
    ],
)
def test_a_wrong_row_of_a_users_own_module_is_refused(tmp_path, monkeypatch, row, message):
    (tmp_path / "own_rows_wrong.py").write_text(OWN_ROWS + f"\n\nALGORITHMS['wrong'] = {row}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_rows_wrong", raising=False)
    monkeypatch.setattr(registry, "_importable", {})
    with pytest.raises(FredError, match=f"^own_rows_wrong: `ALGORITHMS`: row `wrong`: {message.replace('?', '[?]')}"):
        registry.allow_import(["own_rows_wrong"])


def test_tables_of_pages_are_read_however_they_are_assigned(tmp_path):
    (tmp_path / "page.py").write_text("ALGORITHMS: dict = {'a': {}}  # annotated\nPROTOCOLS = {'b': 'B'}; x = 1\n")
    assert pages.read("page", tmp_path / "page.py") == pages.Page("page", {"a": {}}, {"b": "B"})
    (tmp_path / "page.py").write_text("x = 1\nALGORITHMS = dict(a={})\n")
    with pytest.raises(FredError, match=r"page.py, line 2: `ALGORITHMS` must be a literal"):
        pages.read("page", tmp_path / "page.py")


OWN = """
from fred import Latency, Server
X = 3
class Mine(Server):
    "Fails."
    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads["nothing"])
class Half(Latency):
    "Lacks its methods."
"""


class TestUsersOwnClasses:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path, monkeypatch):
        (tmp_path / "own_classes.py").write_text(OWN)
        (tmp_path / "own_broken.py").write_text("\n\nx = (\n")
        (tmp_path / "own_failing.py").write_text("\nx = 1 / 0\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(registry, "_importable", {})
        monkeypatch.delitem(sys.modules, "own_classes", raising=False)
        registry.allow_import(["own_classes"])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"algorithm": {"name": "own_classes:X"}},
                "`own_classes:X` is not a class derived from fred.learning.server.Server",
            ),
            (
                {"algorithm": {"name": "own_classes:Half"}},
                "`own_classes:Half` is not a class derived from .*, as every algorithm",
            ),
            ({"protocol": "own_classes:Mine"}, "`own_classes:Mine` is not a class derived from .*Protocol"),
            ({"cluster": {"workers": 2, "compute": "own_classes:Mine"}}, "is not a class derived from .*Latency"),
            ({"cluster": {"workers": 2, "compute": "own_classes:Half"}}, "`own_classes:Half` lacks `mean`, `sample`"),
            ({"algorithm": {"name": "own_classes:Main"}}, "`own_classes` has no `Main`; did you mean `Mine`?"),
            ({"algorithm": {"name": "own:classes:Mine"}}, "not of the form `module:Class`"),
        ],
    )
    def test_one_of_the_wrong_kind_is_refused(self, options, message):
        with pytest.raises(FredError, match=message):
            make_run(**options)

    @pytest.mark.parametrize(
        ("module", "message"),
        [
            ("own_broken", "cannot import `own_broken`: SyntaxError: .*own_broken.py, line 3"),
            ("own_failing", "cannot import `own_failing`: ZeroDivisionError: .*own_failing.py, line 2"),
            ("own_absent", "cannot import `own_absent`: ModuleNotFoundError"),
        ],
    )
    def test_a_module_that_fails_is_refused_at_once(self, module, message):
        with pytest.raises(FredError, match=message):
            registry.allow_import([module])

    @pytest.mark.parametrize("inline", [False, True])
    def test_an_error_inside_names_the_run_the_class_and_the_line(self, inline):
        run = make_run({"name": "own_classes:Mine", "learning_rate": 0.1})
        with pytest.raises(FredError, match=r"run `here`, with `own_classes:Mine`: .*own_classes.py, line 7\)") as error:
            execute("here", run, 0, inline)
        assert error.value.__cause__


@pytest.mark.parametrize("library", ["flax", pytest.param("equinox", marks=pytest.mark.slow)])
def test_users_can_bring_a_flax_or_equinox_model(tmp_path, monkeypatch, library):
    """A two-layer network in either library, trained by FRED, is what the same arithmetic in NumPy says."""
    sources = {
        "flax": """
            from flax import linen as nn
            from fred import FlaxModel
            class Net(FlaxModel):
                "Two dense layers."
                width: int = 5
                def module(self):
                    return nn.Sequential([nn.Dense(self.width), nn.relu, nn.Dense(4)])
            """,
        "equinox": """
            import equinox as eqx, jax
            from fred import EquinoxModel
            class Net(EquinoxModel):
                "Two dense layers."
                width: int = 5
                def module(self, key):
                    return eqx.nn.MLP(8, 4, self.width, 1, activation=jax.nn.relu, key=key)
            """,
    }
    module = f"my_{library}_models"
    (tmp_path / f"{module}.py").write_text(inspect.cleandoc(sources[library]))
    monkeypatch.syspath_prepend(tmp_path)
    registry.allow_import([module])
    run = make_run("asgd", task={**TASK, "model": {"name": f"{module}:Net", "width": 6}}, stop={"gradients": 400})
    outcome = execute("run", run, 0)
    losses = outcome.metrics["loss"].tolist()
    assert losses[-1] < 0.5 * losses[0]
    arrays = list(outcome.final.values())
    assert run.task is not None
    inputs = run.task.data.load(0).evaluation.inputs
    matrices = [a if library == "flax" else a.T for a in arrays if a.ndim == 2]
    vectors = [a for a in arrays if a.ndim == 1]
    matrices.sort(key=lambda m: m.shape[0] != 8)
    vectors.sort(key=lambda v: v.size != 6)
    scores = np.maximum(inputs @ matrices[0] + vectors[0], 0) @ matrices[1] + vectors[1]
    error = (scores.argmax(1) != run.task.data.load(0).evaluation.answers).mean()
    assert error == pytest.approx(outcome.metrics["error"].iloc[-1], abs=1e-6)
