"""Results of other code are never served, and those of the user's own code are shown, drawn and compared without importing it."""

import inspect
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fred
from fred import ASGD, FredError, Latency
from tests.conftest import ROOT
from tests.folders import idx
from tests.places import fill
from tests.program import fred_command

FORKS = """
import contextlib, json, os, runpy, sys
import fred.commands.cli, fred.results.experiment, fred.systems.asgd, fred.protocols.asynchronous, scipy.special
from fred.running import checkpoints  # imports only: after a run, threads of pyarrow would block the children
save, load = checkpoints.save, checkpoints.load
def save_and_stop(*what):
    save(*what)
    raise KeyboardInterrupt
def load_and_say(*what):
    if found := load(*what):
        print("goes on from a checkpoint")
    return found
checkpoints.load = load_and_say
fred.results.folder.figures_drawn = lambda result, folder: contextlib.nullcontext()
sys.modules["__main__"].__file__ = fred.commands.cli.__file__  # as with `python -m fred`
for line in sys.stdin:
    order = json.loads(line)
    if os.fork() == 0:
        os.chdir(order["folder"])
        os.environ.update(order["environment"])
        if order["stopped"]:
            checkpoints.INTERVAL, checkpoints.save = -1, save_and_stop
        sys.path[:0] = order["path"]
        with open("output", "w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        if order["script"]:
            runpy.run_path(order["script"], run_name="__main__")
        else:
            fred.commands.cli.main(order["arguments"])
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    print(flush=True)
"""
TEMPLATE = """
import numpy as np
from fred import Latency
fred_inputs = {inputs}
{above}
class Own(Latency):
    'Always the same.'
    def sample(self, u):
        return np.full_like(u, {value})
    mean = property(lambda self: 1.0)
"""
NONE = "fred_inputs = []\n"
TEN = {"cluster": {"workers": 1}, "algorithm": {"name": "asgd", "learning_rate": 1}, "stop": {"updates": 10}}
LEARNING = {"data": {"name": "synthetic-regression", "examples": 50, "evaluation": 10}, "model": "softmax"}
REUSED = "1 of 1 runs were finished before and reused"


def own_module(value: str = "1.0", above: str = "", inputs: Any = ()) -> str:
    return TEMPLATE.format(above=above, value=value, inputs=list(inputs))


class Folder:
    def __init__(self, path: Path, process: subprocess.Popen):
        self.path, self._process = path, process

    def write(self, **files: str) -> None:
        fill(self.path, {name if Path(name).suffix else f"{name}.py": content for name, content in files.items()})

    def run(self, module: str, path: str = "", **environment: str) -> tuple[float, str]:
        """`fred run --import module` in a process of its own: the virtual time of ten gradients, and the output."""
        output = self.output(module, path=[path] * bool(path), environment=environment)
        assert (self.path / "out" / "summary.json").exists(), output
        return self.summary["virtual_seconds"], output

    def output(self, module: str, task: Any = None, **order: Any) -> str:
        """Return the output, with or without a result; `stopped`: interrupted after its first checkpoint."""
        scenario = TEN | {"cluster": {"workers": 1, "compute": f"{module}:Own"}} | ({"task": task} if task else {})
        (self.path / "ten.yaml").write_text(json.dumps(scenario))
        return self.fork(arguments=["run", "ten.yaml", "--import", module, "--out", "out", "--no-report"], **order)

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.path / "out" / "summary.json").read_text())[0]

    def fork(self, **order: Any) -> str:
        """Return the output of a new process, which runs a command with `arguments`, or a `script`."""
        usual = {"folder": str(self.path), "arguments": [], "script": "", "environment": {}, "path": [], "stopped": False}
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(usual | order), file=self._process.stdin, flush=True)
        self._process.stdout.readline()
        return (self.path / "output").read_text()


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen]:
    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen([sys.executable, "-c", FORKS], env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.communicate()


@pytest.fixture
def folder(tmp_path, forks) -> Folder:
    (tmp_path / "here").mkdir()
    return Folder(tmp_path / "here", forks)


@pytest.mark.slow
def test_what_modules_are_made_of_and_say_they_read_tells_whether_a_run_has_been_done(folder):
    """Each of these files has a factor of the virtual time: when it changes from 1 to 2, nothing is reused."""
    value = "1.0 * one.f() * library.F * G * float(open('while_it_runs.txt').read())"
    files = {
        "pkg/sub/__init__": "",  # and none in `pkg`
        "pkg/sub/servers": NONE + "from base import Own as Base\nclass Own(Base):\n    'Own.'",
        "base": own_module(value, "import library, one\nfrom data.helper import G", ["while_it_runs.txt"]),
        "one": NONE + "import two\ndef f(): return two.F",
        "two": NONE + "F = 1.0",
        "../elsewhere/library": NONE + "F = 1.0",
        "data/helper": "fred_inputs = ['../at_import.txt']\nG = float(open('at_import.txt').read())",
        "at_import.txt": "1.0",
        "while_it_runs.txt": "1.0",
    }
    folder.write(**files)
    elsewhere = str(folder.path.parent / "elsewhere")
    seconds, output = folder.run("pkg.sub.servers", elsewhere)
    assert (seconds, "reused" in output) == (10.0, False)
    seconds, output = folder.run("pkg.sub.servers", elsewhere)
    assert (seconds, REUSED in output) == (10.0, True)
    for number, name in enumerate(("base", "two", "../elsewhere/library", "at_import.txt", "while_it_runs.txt"), 1):
        folder.write(**{name: files[name].replace("1.0", "2.0")})
        seconds, output = folder.run("pkg.sub.servers", elsewhere)
        assert (seconds, "reused" in output) == (10.0 * 2**number, False), name


@pytest.mark.slow
def test_a_variable_is_read_like_a_file(folder):
    folder.write(mine=own_module("float(os.environb.get(b'SCALE', b'3'))", "import os", ["$SCALE"]))
    assert [folder.run("mine", **scale)[0] for scale in ({"SCALE": "1.0"}, {"SCALE": "2.0"}, {})] == [10.0, 20.0, 30.0]
    assert REUSED in folder.run("mine", ANOTHER="variable")[1]


def test_code_that_only_computes_declares_nothing_and_counts_by_its_text(folder):
    module = own_module("2 * G", "from helper import G").replace("fred_inputs", "inputs")
    folder.write(mine=module, helper="import math\nG = math.sqrt(0.25)\n")
    assert [folder.run("mine")[0], REUSED in folder.run("mine")[1]] == [10.0, True]
    folder.write(helper="import math\nG = math.sqrt(1.0)\n")
    assert folder.run("mine")[0] == 20.0


SIZE = "import os\nF = 1.0 + os.stat('scale.txt').st_size - 3"
READ = "from helper import *\nF = float(open('scale.txt').read())"
ARCHIVE = "import sys\nsys.path.append('library.zip')\nfrom helper import F"
LATE = "__import__('helper').F if u.size > 1 else 1.0"
LOG = "[float(open('scale.txt').read()), open('log.txt', 'a').write('1')][0]"
UNSAID = {  # files, of which scale.txt changes; the reason
    "nothing is said": (
        {"mine": own_module("F", SIZE).replace("fred_inputs", "inputs")},
        "mine does not say what it reads: write `fred_inputs = []` into mine.py, or its files and $VARIABLES",
    ),
    "only what it imports says something": (
        {"mine": own_module("F", READ).replace("fred_inputs = []", ""), "helper": NONE},
        "helper and mine share one `fred_inputs`: write a separate list into each",
    ),
    "a late import": ({"mine": own_module(LATE), "helper": NONE + "F = 1.0\n"}, "its code imports helper while it runs"),
    "a file that changes": ({"mine": own_module(LOG, "", ["log.txt"]), "log.txt": ""}, "what mine reads changed while it ran"),
    "a module in an archive": ({"mine": own_module("F", ARCHIVE)}, "the module helper is not in a file"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", UNSAID)
def test_what_nobody_can_tell_is_computed_again(folder, case):
    files, reason = UNSAID[case]
    folder.write(**files, **{"scale.txt": "1.0"})
    with zipfile.ZipFile(folder.path / "library.zip", "w") as archive:
        archive.writestr("helper.py", NONE + "F = float(open('scale.txt').read())")
    assert folder.run("mine")[0] == 10.0
    files = {name: content.replace("F = 1.0\n", "F = 2.0\n") for name, content in files.items()}
    folder.write(**files, **{"scale.txt": "2.00" if "stat" in files["mine"] else "2.0"})
    seconds, output = folder.run("mine")
    assert seconds == 20.0
    assert f"asgd with seed 0 computed again: {reason}\n" in output


def test_a_script_is_computed_again_and_told_why(folder):
    cluster = "{'workers': 1, 'compute': Own()}"
    script = f"import fred\ndef f(): return 1.0\n{own_module('f()')}fred.run(fred.scenario({TEN!r} | {{'cluster': {cluster}}}), out='out')\n"
    for seconds in (1.0, 2.0):
        folder.write(script=script.replace("1.0", str(seconds), 1))
        output = folder.fork(script="script.py")
        assert folder.summary["virtual_seconds"] == 10 * seconds
    reason = "a program (script.py) can change imported modules; `fred run --import MODULE` reuses results"
    assert f"computed again: {reason}" in output


def test_wrong_declarations_are_refused(folder):
    expected = r"expected a list of paths and \$VARIABLES"
    for declared, message in (
        ("['nowhere.csv']", r"names .*nowhere\.csv, which is not a file; expected paths relative to"),
        ("['.']", r"names .*, which is not a file"),
        ("'scale.txt'", rf"is 'scale\.txt'; {expected}"),
        ("[1]", rf"is \[1\]; {expected}"),
    ):
        folder.write(mine=own_module().replace("fred_inputs = []", f"fred_inputs = {declared}"))
        assert re.fullmatch(rf"fred: .*mine\.py: `fred_inputs` {message}.*\n", folder.output("mine"))
        assert not (folder.path / "out").exists()


@pytest.mark.slow
def test_a_checkpoint_counts_under_the_same_rule_as_a_unit(tmp_path, forks):
    digests = set()
    for case in ("unchanged", "changed", "unsaid"):
        folder = Folder(tmp_path / case, forks)
        module = own_module("float(open('scale.txt').read())", "", ["scale.txt"])
        folder.write(**{"mine": module.replace("fred_inputs", "inputs") if case == "unsaid" else module, "scale.txt": "1.0"})
        assert "1 of 1 units" not in folder.output("mine", LEARNING, stopped=True)
        if case == "changed":
            folder.write(**{"scale.txt": "2.0"})
        output = folder.output("mine", LEARNING)
        assert ("goes on from a checkpoint" in output) == (case == "unchanged")
        assert folder.summary["virtual_seconds"] == (20.0 if case == "changed" else 10.0)
        digests.add(folder.summary["digests"]["params"])
    assert len(digests) == 1, "times change no gradient of one worker"


STEP = 1.0


class Globally(ASGD):
    """Steps as long as a global is."""

    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads, scale=STEP)


class Timed(Latency):
    """As long as a global says."""

    def sample(self, u):
        return np.full_like(u, STEP)

    @property
    def mean(self):
        return 1.0


@pytest.mark.slow
def test_a_global_that_changes_in_one_process_changes_what_is_computed_and_served(monkeypatch, tmp_path):
    """Steps of half the length have the bits of half the rate."""

    def losses(rate: float) -> list[float]:
        scenario = fred.scenario(TEN | {"task": LEARNING, "algorithm": Globally(learning_rate=rate)})
        return fred.run(scenario).metrics["loss"].tolist()

    before = losses(0.25), losses(0.125)
    timed = fred.scenario(TEN | {"cluster": {"workers": 1, "compute": Timed()}})
    assert fred.run(timed, out=tmp_path / "out").summary["virtual_seconds"].tolist() == [10.0]
    monkeypatch.setattr(sys.modules[__name__], "STEP", 0.5)
    assert losses(0.25) == before[1] != before[0]
    with pytest.warns(UserWarning, match="asgd with seed 0 computed again: "):
        second = fred.run(timed, out=tmp_path / "out")
    assert second.summary["virtual_seconds"].tolist() == [5.0]


def test_what_is_not_known_is_not_said_to_be_kept(monkeypatch, tmp_path):
    def interrupt(name: str, seed: int, done: float) -> None:
        if seed == 2:
            raise KeyboardInterrupt

    scenario = fred.scenario(TEN | {"cluster": {"workers": 1, "compute": Timed()}, "seeds": [1, 2]})
    with pytest.raises(KeyboardInterrupt) as raised:
        fred.run(scenario, out=tmp_path / "out", progress=interrupt)
    assert raised.value.__notes__[0].startswith("finished units will be computed again: ")


@pytest.mark.slow
def test_data_files_that_change_in_one_process_are_read_again(tmp_path):
    data = {"name": "mnist", "directory": str(tmp_path), "canonical": False}
    scenario = fred.scenario(TEN | {"task": {"data": data, "model": "softmax"}, "stop": {"updates": 2}})
    losses = []
    for number in (1, 2):
        for part in ("train", "t10k"):
            idx(tmp_path / f"{part}-images-idx3-ubyte", np.random.default_rng(number).integers(0, 256, (30, 4, 4)))
            idx(tmp_path / f"{part}-labels-idx1-ubyte", np.arange(30) % 10)
        in_memory, stored = fred.run(scenario), fred.run(scenario, out=tmp_path / "out")
        assert stored.reused == 0
        losses.append(in_memory.summary["loss"].tolist())
        assert losses[-1] == stored.summary["loss"].tolist()
    assert losses[0] != losses[1]
    assert fred.run(scenario, out=tmp_path / "out").reused == 1


PARTS = """
import numpy as np
from pydantic import Field
import fred
from fred import ASGD
from fred.components.registry import lookup
from fred.learning.codecs.codec import Float
fred_inputs = []
class Patient(ASGD):
    patience: int = Field(10, ge=1, description="updates")
    def check(self, workers):
        assert self.patience
class Leash(lookup("protocol", "asynchronous")):
    length: int = 3
    def check(self, cluster):
        assert self.length
class Always(fred.Latency):
    seconds: float = 0.5
    def sample(self, u):
        return np.full_like(u, self.seconds)
    mean = property(lambda self: self.seconds)
class Digits(fred.Data):
    def load(self, seed):
        return lookup("data", "digits")().load(seed)
class Clockless(lookup("protocol", "dispatcher")): pass
class Entropy(lookup("loss", "cross-entropy")): pass
class Softmax(lookup("model", "softmax")): pass
class Half(Float): pass
class Two(lookup("cutoff", "count")): pass
"""
SCENARIOS = {
    "timed": """
title: Own parts
seeds: [1]
task: {data: digits, model: "own_parts:Softmax", loss: "own_parts:Entropy"}
cluster:
  groups: [{workers: 2}, {workers: 1, speed: 0.5, compute: {name: mixture, weights: [1], components: ["own_parts:Always"]}}]
  compute: {name: own_parts:Always, seconds: 0.25}
  contention: [{name: job, nodes: [0], slowdown: 2.0, begin: 1.0}]
stop: {seconds: 2}
evaluate: {target_error: 0.5}
algorithm: {name: asgd, learning_rate: 0.1}
runs:
  patient: {algorithm: {name: own_parts:Patient, codec: own_parts:Half}, sweep: {over: {algorithm.learning_rate: [0.05, 0.1]}}}
  leash: {protocol: {name: own_parts:Leash, length: 2}}
  cutoff: {algorithm: {name: ssgd, learning_rate: 0.1}, protocol: {name: cutoff, rule: {name: own_parts:Two, workers: 2}}}
""",
    "clockless": """
task: {data: "own_parts:Digits", model: softmax}
cluster: {workers: 2}
stop: {updates: 10}
algorithm: {name: asgd, learning_rate: 0.1}
protocol: own_parts:Clockless
""",
}


def content(result):
    digests = [(outcome.schedule_digest, outcome.params_digest, outcome.schedule.digest()) for outcome in result.outcomes]
    return "\n".join([result.summary.to_json(), str(digests), result.metrics.to_json()])


WRITING = f"""
import fred
from fred.commands.cli import main
{inspect.getsource(content)}
for name in {tuple(SCENARIOS)}:
    fred.load(name + ".yaml", imports=["own_parts"])
    assert main(["run", name + ".yaml", "--import", "own_parts", *["--no-report"] * (name == "clockless")]) == 0
    open(name + ".txt", "w").write(content(fred.load_result("results/" + name)))
assert main(["verify", "results/timed", "--import", "own_parts"]) == 0
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of two scenarios that another process wrote with the user's own parts, and their contents."""
    place = tmp_path_factory.mktemp("own")
    (place / "own_parts.py").write_text(PARTS)
    for name, text in SCENARIOS.items():
        (place / f"{name}.yaml").write_text(text)
    environment, command = {**os.environ, "PYTHONPATH": str(ROOT)}, [sys.executable, "-c", WRITING]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "all digests the same" in done.stdout
    return place


@pytest.mark.slow
class TestStoredResults:
    @pytest.mark.parametrize("name", SCENARIOS)
    def test_everything_stored_is_the_same_without_the_import(self, results, name):
        result = fred.load_result(results / "results" / name)
        assert content(result) == (results / f"{name}.txt").read_text()
        assert ("timeline" in result.pictures()) == (name == "timed")
        for draw in result.pictures().values():
            draw()
        assert "own_parts" not in sys.modules

    def test_commands_that_read_results_need_no_import(self, results, tmp_path):
        result, other = (results / "results" / name for name in SCENARIOS)
        assert {path.stem for path in (result / "figures").iterdir()} == set(fred.load_result(result).pictures())
        for command in (
            ("report", result, "--out", tmp_path / "page.html"),
            ("compare", result, other, "--out", tmp_path / "compared"),
            ("draw", result, "timeline", "--only", "leash", "--out", tmp_path / "drawn"),
            ("export", result, "--only", "leash", "--seed", "1", "--out", tmp_path / "trace"),
        ):
            assert fred_command(*command).code == 0, command
        assert (tmp_path / "page.html").read_bytes() == (result / "report.html").read_bytes()
        assert "leash" in fred_command("show", result).out
        assert fred.load_result(result).run_times("leash").shape[1] == 4

    def test_running_again_needs_the_import(self, results):
        """The result verifies with the import: see `results`."""
        read = fred.load_result(results / "results" / "timed")
        leash = read.outcome("leash").run
        for action in (
            lambda: fred.run(read.scenario),
            lambda: read.scenario.replace({"seeds": [3]}),
            lambda: read.b_staleness("patient"),
            lambda: leash.protocol.layout(leash.cluster),
        ):
            with pytest.raises(FredError, match="allow it with `--import own_parts`") as raised:
                action()
            assert len(raised.value.args) == 1
        assert hasattr(leash.protocol, "length") and not hasattr(leash.protocol, "doubted")
        assert getattr(leash.protocol, "doubted", "unknown") == "unknown", "attributes that need the class are missing"
        assert fred_command("verify", results / "results" / "timed").code == 2
