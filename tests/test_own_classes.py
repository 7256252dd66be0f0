"""Users' own classes and packages: imported only when asked for, refused where they do not fit, named when they fail."""

import importlib
import pickle
import re
import sys
import typing
from unittest.mock import Mock

import pydantic
import pytest

import fred
from fred.base.errors import FredError
from fred.commands import reference
from fred.components import registry
from fred.components.one_of import OneOf
from fred.learning.server import Server
from fred.running.execution import execute
from fred.specification.run_names import name_run_in_errors
from tests.worlds import COMPUTE, TASK, make_run

SOURCE = """
import numpy as np
from fred import ASGD, Contention, Latency, Protocol, Server
from fred.base.errors import FredError
from fred.learning.models.built_in_models import SoftmaxRegression
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.gossip import Ring

number = 3

def helper(u):
    return u if u.size == 1 else u["nothing"]

class Same(ASGD):
    "Nothing of its own."

class Fails(Server):
    "Fails when it is traced."
    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads["nothing"])

class Half(Latency):
    "Lacks its methods."

class Late(Latency):
    "Fails when more than one duration is drawn."
    mean = property(lambda self: 1.0)
    def sample(self, u):
        return helper(u)

class Careful(Asynchronous):
    "Fails in a process."
    def _work(self, sim, worker, *_):
        yield from sim.pull(worker)
        if worker == 1:
            raise LookupError("I do not know how")

class Polite(Asynchronous):
    "Refuses."
    def start(self, sim):
        raise FredError("this is never so")

class Greedy(Asynchronous):
    "Wants more memory than there is."
    def start(self, sim):
        np.zeros(2**62, np.int8)

class Innocent(Asynchronous):
    "Takes part in the faults of others."

class Unfinished(Protocol):
    "Lacks its method."

class Net(SoftmaxRegression):
    "Fails when it is traced."
    def apply(self, params, inputs):
        return inputs @ params["no such weights"]
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A folder of modules that can be imported; those in it are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def own_module(modules):
    (modules / "own.py").write_text(SOURCE)
    registry.allow_import(["own"])


def test_user_code_is_imported_only_when_asked_for(modules):
    (modules / "own.py").write_text(SOURCE)
    options = {"name": "own:Same", "learning_rate": 0.1}
    with pytest.raises(FredError, match="allow it with `--import own`"):
        make_run(options)
    assert "own" not in sys.modules
    registry.allow_import(["own"])
    outcome = execute("run", make_run(options, task=None), 0)
    assert outcome.schedule_digest == execute("run", make_run("asgd", task=None), 0).schedule_digest
    assert OneOf("algorithm").dump(outcome.run.algorithm)["name"] == "own:Same"


def test_both_cures_in_python_of_a_class_that_is_not_imported_work(modules, monkeypatch):
    (modules / "thirds.py").write_text("import fred\nclass Third(fred.Server):\n    'Nothing of its own.'\n")
    (modules / "thirds.yaml").write_text(
        "cluster: {workers: 2}\nalgorithm: {name: 'thirds:Third', learning_rate: 1}\nstop: {updates: 1}"
    )
    monkeypatch.chdir(modules)
    with pytest.raises(FredError, match=r"`fred.load\(path, imports=\['thirds'\]\)` or with the class itself"):
        fred.load("thirds.yaml")
    thirds = importlib.import_module("thirds")

    settings = {"cluster": {"workers": 2}, "stop": {"updates": 1}, "algorithm": {"name": thirds.Third, "learning_rate": 1}}
    assert fred.scenario(settings).runs == fred.load("thirds.yaml", imports=["thirds"]).runs


NO_TOPOLOGY = {"name": "gossip", "topology": "own:Late"}


@pytest.mark.usefixtures("own_module")
def test_a_class_that_does_not_fit_is_refused_with_its_place():
    for part, options, message in (
        ("algorithm", "own:number", "`own:number` is not a class derived from fred.Server, as every algorithm"),
        ("algorithm", "own:Half", "`own:Half` is not a class derived from .*, as every algorithm"),
        ("algorithm", "own:Fial", "cannot load `own:Fial`: `own` has no `Fial`; did you mean `Fails`?"),
        ("algorithm", "own:classes:Fails", "not of the form `module:Class`"),
        ("protocol", "own:Unfinished", "protocol.*: `own:Unfinished` lacks `start`"),
        ("protocol", NO_TOPOLOGY, "protocol.topology.*`own:Late` is not .*Topology, as every topology"),
        ("cluster", {"workers": 2, "contention": ["own:Contention"]}, "cluster.contention.0.*: `own:Contention` lacks `start`"),
        ("cluster", {"workers": 2, "compute": "own:Half"}, "`own:Half` lacks `mean`, `sample`"),
        ("task", {"data": "own:Net", "model": "mlp"}, "task.data.*is not a class derived from .*, as every data"),
    ):
        with pytest.raises(FredError, match=message):
            make_run(**{part: options if part != "algorithm" else {"name": options, "learning_rate": 0.1}})


def test_a_module_that_fails_is_refused_at_once_and_the_nearest_is_suggested(modules, monkeypatch):
    (modules / "own_broken.py").write_text("\n\nx = (\n")
    (modules / "own_failing.py").write_text("\nx = 1 / 0\n")
    (modules / "own_raising.py").write_text("raise GeneratorExit('so')")
    for module, message in (
        ("own_broken", "SyntaxError: .*own_broken.py, line 3"),
        ("own_failing", "ZeroDivisionError: .*own_failing.py, line 2"),
        ("own_raising", "GeneratorExit: so .*own_raising.py, line 1"),
        ("own_absent", "ModuleNotFoundError"),
    ):
        with pytest.raises(FredError, match=f"cannot import `{module}`: {message}"):
            registry.allow_import([module])
    (modules / "own_whole.py").touch()
    monkeypatch.chdir(modules)
    for module in ("own_whol", "own_whole.py"):
        with pytest.raises(FredError, match="did you mean `own_whole`"):
            registry.allow_import([module])


FAILS = {"name": "own:Fails", "learning_rate": 0.1}


def line_of(text: str) -> int:
    return 1 + [line.strip() for line in SOURCE.splitlines()].index(text)


@pytest.mark.parametrize(
    "cls, name",
    [("ASGD", "asgd"), ("Own", "Own"), ("own_server2", "own_server2"), ("_", "_")],
)
def test_a_run_whose_algorithm_is_an_object_has_its_registered_name_or_that_of_its_class(cls, name):
    algorithm_class = fred.ASGD if cls == "ASGD" else type(cls, (fred.Server,), {"__module__": "mine"})
    settings = {"cluster": {"workers": 1}, "stop": {"updates": 1}}
    assert list(fred.scenario(settings, algorithm=algorithm_class(learning_rate=0.1)).runs) == [name]


@pytest.mark.parametrize(
    ("attribute", "lines"),
    [
        ("seconds = 1.0", ["seconds: float = 1.0", "seconds: ClassVar[float] = 1.0"]),
        ("fast = True", ["fast: bool = True", "fast: ClassVar[bool] = True"]),
        ("learning_rate = 1", ["learning_rate: float = 1"]),  # the base class has this option
        ("times = [1, 2]", ["times: ClassVar[Any] = [1, 2]"]),
        ("seconds = Field(1.0)", ["seconds: float = Field(...)"]),
    ],
)
def test_an_attribute_without_a_type_is_refused_with_lines_that_are_possible(attribute, lines):
    names = vars(typing) | {"Server": Server, "Field": lambda value: pydantic.Field(1.0 if value is ... else value)}
    with pytest.raises(FredError) as refused:
        exec(f"class Mine(Server):\n    {attribute}", names)
    assert re.findall("`(.*?)`", str(refused.value))[1:] == lines
    for line in lines:
        exec(f"class Mine(Server):\n    {line}", names)
        assert names["Mine"](learning_rate=0.1)


def test_a_module_with_an_attribute_without_a_type_is_refused_with_its_line(modules):
    (modules / "untyped.py").write_text("import fred\nclass Mine(fred.Server):\n    scale = 0.5\n")
    with pytest.raises(FredError, match=r"Mine: `scale = 0.5` has no type; write .* \(.*untyped.py, line 2\)"):
        registry.allow_import(["untyped"])


@pytest.mark.usefixtures("own_module")
class TestBlame:
    def test_a_users_class_is_named_with_its_last_line(self):
        for name, options, error, line in (
            (
                "Late",
                {"cluster": {"workers": 2, "compute": "own:Late"}},
                "IndexError",
                'return u if u.size == 1 else u["nothing"]',
            ),
            ("Careful", {"protocol": "own:Careful"}, "LookupError: I do not", 'raise LookupError("I do not know how")'),
            ("Fails", {"algorithm": FAILS, "task": TASK}, "KeyError: 'nothing'", 'return self.step(state, grads["nothing"])'),
            ("Net", {"task": {**TASK, "model": "own:Net"}}, "KeyError: 'no such", 'return inputs @ params["no such weights"]'),
        ):
            run = make_run(**{"task": None} | options)
            for inline in (False, True):
                with pytest.raises(FredError) as caught:
                    execute("mine", run, 0, inline)
                assert str(caught.value).startswith(f"run `mine`, with `own:{name}`: {error}")
                assert str(caught.value).endswith(f"own.py, line {line_of(line)})")
                assert caught.value.__cause__ is not None, "the whole traceback is kept"

    def test_a_class_deep_inside_is_found_and_all_of_several_are_named(self):
        mixture = {"name": "mixture", "weights": [1.0], "components": [{"name": "own:Late"}]}
        cluster = {"groups": [{"workers": 2}, {"workers": 1, "compute": mixture}], "compute": COMPUTE}
        run = make_run(task=None, cluster=cluster, protocol="own:Innocent")
        line = line_of('return u if u.size == 1 else u["nothing"]')
        with pytest.raises(FredError, match=rf"^run `deep`, with `own:Innocent`, `own:Late`: IndexError.* line {line}\)$"):
            execute("deep", run, 0)

    def test_refusals_and_lack_of_memory_pass_as_they_are(self):
        with pytest.raises(FredError, match=r"^run `mine`: this is never so$"):
            execute("mine", make_run(task=None, protocol="own:Polite"), 0)
        with pytest.raises(FredError, match=r"^run `mine`: not enough memory; use fewer workers, less data"):
            execute("mine", make_run(task=None, protocol="own:Greedy"), 0)
        for error in (MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes")):
            with (
                pytest.raises(FredError, match=r"^run `plain`: not enough memory"),
                name_run_in_errors("plain", make_run(task=None)),
            ):
                raise error

    def test_faults_outside_the_users_code_have_no_line_and_freds_own_stay_what_they_are(self, monkeypatch):
        innocent, fault = make_run(task=None, protocol="own:Innocent"), KeyError("inner")
        monkeypatch.setattr("fred.running.recording.Simulation", Mock(side_effect=fault))
        with pytest.raises(FredError, match=r"^run `mine`, with `own:Innocent`: KeyError: 'inner'$"):
            execute("mine", innocent, 0)
        with pytest.raises(KeyError) as caught, name_run_in_errors("plain", make_run(task=None)):
            raise fault
        assert caught.value is fault
        with pytest.raises(KeyboardInterrupt), name_run_in_errors("mine", innocent):
            raise KeyboardInterrupt


HALVES = '''
"""Gradients, halved.

| name         | source      |
|--------------|-------------|
| Half, Rounds | Nobody 2031 |
"""

from fred import Server
from fred.systems.fedavg import FedAvg


class Half(Server):
    """A part of each step."""

    rule = "w <- w - step(g) / 2"
    protocol = "softsync"
    protocol_options = {"n": 2}

    part: float = 0.5

    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads, scale=self.part)


class Rounds(FedAvg):
    protocol = "asynchronous"
'''


def test_a_users_class_chooses_its_protocol_with_options_and_cites_its_source(modules):
    (modules / "own_halves.py").write_text(HALVES)
    registry.allow_import(["own_halves"])
    run = make_run({"name": "own_halves:Half", "learning_rate": 0.1})
    assert OneOf("algorithm").dump(run.algorithm)["name"] == "own_halves:Half"
    assert run.protocol == registry.lookup("protocol", "softsync")(n=2)
    assert pickle.loads(pickle.dumps(run.algorithm)) == run.algorithm
    assert reference.source(type(run.algorithm)) == "Nobody 2031"
    rounds = make_run({"name": "own_halves:Rounds", "learning_rate": 0.1})
    assert rounds.protocol == registry.lookup("protocol", "asynchronous")(), "options of FedAvg's protocol"


def test_a_protocol_that_is_no_name_is_refused_with_its_cure(modules):
    with pytest.raises(FredError, match=r"^class `Wrong`: `protocol`: expected the name of a protocol, .* `protocol_options`"):
        type("Wrong", (Server,), {"__module__": __name__, "protocol": {"name": "softsync", "n": 2}})


@pytest.fixture
def installed(modules):
    """Two installed distributions: the first offers `halving`, both offer `shared`."""
    for name, offered in {"one": "halving = ep_halves\nshared = ep_halves\n", "two": "shared = ep_other\n"}.items():
        folder = modules / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[fred.systems]\n{offered}")
    (modules / "ep_halves.py").write_text(HALVES)


@pytest.mark.usefixtures("installed")
def test_an_installed_package_offers_algorithms_and_is_imported_only_when_named():
    before = registry.imported()
    with pytest.raises(FredError, match="allow it with `--import halving`"):
        make_run({"name": "halving:Half", "learning_rate": 0.1})
    assert "ep_halves" not in sys.modules
    registry.allow_import(["halving"])
    run = make_run({"name": "halving:Half", "learning_rate": 0.1})
    assert OneOf("algorithm").dump(run.algorithm)["name"] == "ep_halves:Half"
    assert make_run({"name": "ep_halves:Half", "learning_rate": 0.1}) == run
    assert registry.lookup("algorithm", "halving:Half").__module__ == "ep_halves"
    assert registry.imported() == sorted({*before, "ep_halves"})
    with pytest.raises(FredError, match="`ep_halves` has no `third`"):
        registry.lookup("algorithm", "halving:third")
    with pytest.raises(FredError, match="several modules as `shared`: ep_halves, ep_other; name one of these"):
        registry.allow_import(["shared"])


@pytest.mark.usefixtures("installed")
def test_a_file_in_the_current_folder_precedes_an_entry_point(modules, monkeypatch):
    (modules / "here").mkdir()
    (modules / "here" / "halving.py").write_text(HALVES)
    monkeypatch.chdir(modules / "here")
    monkeypatch.syspath_prepend(modules / "here")
    for module in ("halving", "ep_halves"):
        registry.allow_import(["halving"])
        assert registry.lookup("algorithm", "halving:Half").__module__ == module
        sys.modules.pop(module)
        (modules / "here" / "halving.py").unlink(missing_ok=True)
