"""Results of other code are never served: users' modules, what they say they read, what they do not say; scripts; globals."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fred
from fred.cluster.latency import Latency
from fred.systems.asgd import ASGD
from tests.conftest import ROOT
from tests.folders import idx

FORKS = """
import contextlib, json, os, runpy, sys
import fred.commands.cli, fred.results.experiment, fred.systems.rows, fred.protocols.asynchronous, scipy.special
from fred.running import checkpoints
save, load = checkpoints.save, checkpoints.load
def save_and_stop(*what):
    save(*what)
    raise KeyboardInterrupt
def load_and_say(*what):
    found = load(*what)
    print("goes on from a checkpoint" if found else "from the start")
    return found
checkpoints.load = load_and_say
fred.results.figure_files.drawn = lambda result, folder: contextlib.nullcontext()
sys.modules["__main__"].__file__ = fred.commands.cli.__file__  # as with `python -m fred`
for line in sys.stdin:
    told = json.loads(line)
    if os.fork() == 0:
        os.chdir(told["folder"])
        os.environ.update(told["environment"])
        if told["stopped"]:
            checkpoints.EVERY, checkpoints.save = -1, save_and_stop
        sys.path[:0] = told["path"]
        with open("said", "w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        if told["script"]:
            runpy.run_path(told["script"], run_name="__main__")
        else:
            fred.commands.cli.main(told["arguments"])
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    print(flush=True)
"""
OWN = """
import numpy as np
from fred import Latency
fred_inputs = {inputs}
{above}
class Own(Latency):
    'Always the same.'
    def sample(self, u):
        return np.full_like(u, {value})
    @property
    def mean(self):
        return 1.0
"""
NONE = "fred_inputs = []\n"


def own(value: str = "1.0", above: str = "", inputs: Any = ()) -> str:
    """A module with a latency that always takes so long."""
    return OWN.format(above=above, value=value, inputs=list(inputs))


TEN = {"cluster": {"workers": 1}, "algorithm": {"name": "asgd", "learning_rate": 1}, "stop": {"updates": 10}}
SCRIPT = (
    f"scenario = fred.scenario({TEN!r} | {{'cluster': {{'workers': 1, 'compute': Own()}}}})\nfred.run(scenario, out='out')\n"
)


class Folder:
    """A folder of the user's, and new processes in it."""

    def __init__(self, path: Path, process: subprocess.Popen):
        self.path, self._process = path, process

    def write(self, **files: str) -> None:
        """Files by name, with `__` for a slash and without `.py`."""
        for name, content in files.items():
            file = self.path / name.replace("__", "/")
            file = file if file.suffix else file.with_suffix(".py")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)

    def run(self, module: str, path: str = "", **environment: str) -> tuple[float, str]:
        """`fred run --import module` in a process of its own: the virtual time of ten gradients, and what was printed."""
        said = self.told(module, path, environment=environment)
        assert (self.path / "out" / "summary.json").exists(), said
        return self.summary["virtual_seconds"], said

    def told(self, module: str, path: str = "", stopped: bool = False, task: Any = None, environment: Any = ()) -> str:
        """Return the output, with or without a result; `stopped`: interrupted after its first checkpoint."""
        scenario = TEN | {"cluster": {"workers": 1, "compute": f"{module}:Own"}} | ({"task": task} if task else {})
        (self.path / "ten.yaml").write_text(json.dumps(scenario))
        arguments = ["run", "ten.yaml", "--import", module, "--out", "out", "--no-report"]
        return self._told(arguments=arguments, path=[path] * bool(path), environment=dict(environment), stopped=stopped)

    @property
    def summary(self) -> dict[str, Any]:
        """The only run's."""
        row: dict[str, Any] = json.loads((self.path / "out" / "summary.json").read_text())[0]
        return row

    def script(self) -> tuple[float, str]:
        """The same of `script.py`, which writes the folder itself."""
        said = self._told(script="script.py")
        return self.summary["virtual_seconds"], said

    def _told(self, **what: Any) -> str:
        told = {
            "folder": str(self.path),
            "arguments": [],
            "script": "",
            "environment": {},
            "path": [],
            "stopped": False,
            **what,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(told), file=self._process.stdin, flush=True)
        self._process.stdout.readline()
        return (self.path / "said").read_text()


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


CASES: dict[str, tuple[str, dict[str, str], str, str]] = {  # module to import; files; which to change, from 1.0 to 2.0
    "a package without __init__ and a helper of the current folder": (
        "pkg.servers",
        {"pkg__servers": own("helper.f()", "import helper"), "helper": NONE + "def f(): return 1.0"},
        "helper",
        "",
    ),
    "a package below, whose __init__ is empty, and one beside it": (
        "pkg.sub.servers",
        {
            "pkg____init__": "",
            "pkg__sub__servers": own("helper.F", "from common import helper"),
            "common__helper": NONE + "F = 1.0",
        },
        "common__helper",
        "",
    ),
    "what a helper imports": (
        "mine",
        {
            "mine": own("f()", "from one import f"),
            "one": NONE + "import two\ndef f(): return two.F",
            "two": NONE + "F = 1.0",
        },
        "two",
        "",
    ),
    "a base class": (
        "mine",
        {"mine": NONE + "from base import Own as Base\nclass Own(Base):\n    'Own.'", "base": own()},
        "base",
        "",
    ),
    "a class that comes from elsewhere": ("mine", {"mine": NONE + "from there import Own", "there": own()}, "there", ""),
    "a library elsewhere": (
        "mine",
        {"mine": own("library.F", "import library"), "..__elsewhere__library": NONE + "F = 1.0"},
        "..__elsewhere__library",
        "../elsewhere",
    ),
    "a file that is read while the module is imported": (
        "mine",
        {"mine": own("F", "F = float(open('scale.txt').read())", ["scale.txt"]), "scale.txt": "1.0"},
        "scale.txt",
        "",
    ),
    "a file that is read while it runs": (
        "mine",
        {"mine": own("float(open('scale.txt').read())", "", ["scale.txt"]), "scale.txt": "1.0"},
        "scale.txt",
        "",
    ),
    "a file that a helper in another folder reads": (
        "mine",
        {
            "mine": own("F", "from data.helper import F"),
            "data__helper": "fred_inputs = ['../scale.txt']\nF = float(open('scale.txt').read())",
            "scale.txt": "1.0",
        },
        "scale.txt",
        "",
    ),
    "a file that no event tells of": (
        "mine",
        {
            "mine": own("float(F)", "import pyarrow.csv\nF = pyarrow.csv.read_csv('scale.csv')['f'][0].as_py()", ["scale.csv"]),
            "scale.csv": "f\n1.0\n",
        },
        "scale.csv",
        "",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_modules_are_made_of_and_say_they_read_tells_whether_a_run_has_been_done(folder, case):
    module, files, changing, path = CASES[case]
    folder.write(**files)
    path = str((folder.path / path).resolve()) if path else ""
    seconds, said = folder.run(module, path)
    assert (seconds, "kept" in said) == (10.0, False)
    seconds, said = folder.run(module, path)
    assert seconds == 10.0
    assert "1 of 1 runs were finished before and reused" in said
    folder.write(**{changing: files[changing].replace("1.0", "2.0")})
    seconds, said = folder.run(module, path)
    assert (seconds, "kept" in said) == (20.0, False)


def test_a_variable_is_read_like_a_file(folder):
    folder.write(mine=own("float(os.environb.get(b'SCALE', b'3'))", "import os", ["$SCALE"]))
    assert [folder.run("mine", SCALE=scale)[0] for scale in ("1.0", "2.0")] == [10.0, 20.0]
    assert "1 of 1 runs were finished before and reused" in folder.run("mine", SCALE="2.0", ANOTHER="variable")[1]
    assert folder.run("mine")[0] == 30.0


UNSAID = {  # files, of which scale.txt changes; what is said
    "nothing is said": (
        {"mine": own("F", "import os\nF = 1.0 + os.stat('scale.txt').st_size - 3").replace("fred_inputs", "inputs")},
        "mine does not say what it reads: write `fred_inputs = []` into mine.py, or its files and $VARIABLES",
    ),
    "a helper says nothing": (
        {"mine": own("F", "from helper import F"), "helper": "F = float(open('scale.txt').read())"},
        "helper does not say what it reads: write `fred_inputs = []` into helper.py, or its files and $VARIABLES",
    ),
    "only what it imports says something": (
        {
            "mine": own("F", "from helper import *\nF = float(open('scale.txt').read())").replace("fred_inputs = []", ""),
            "helper": NONE,
        },
        "helper and mine share one `fred_inputs`: write a separate list into each",
    ),
    "a module that is imported while it runs": (
        {"mine": own("__import__('helper').F if u.size > 1 else 1.0"), "helper": NONE + "F = 1.0\n"},
        "its code imports helper while it runs",
    ),
    "a file that changes while it runs": (
        {"mine": own("[float(open('scale.txt').read()), open('log.txt', 'a').write('1')][0]", "", ["log.txt"]), "log.txt": ""},
        "what mine reads changed while it ran",
    ),
    "a module in an archive": (
        {"mine": own("F", "import sys\nsys.path.append('library.zip')\nfrom helper import F")},
        "the module helper is not in a file",
    ),
}


@pytest.mark.parametrize("case", UNSAID)
def test_what_nobody_can_tell_is_computed_again(folder, case):
    files, reason = UNSAID[case]
    folder.write(**files, **{"scale.txt": "1.0"})
    with zipfile.ZipFile(folder.path / "library.zip", "w") as archive:
        archive.writestr("helper.py", NONE + "F = float(open('scale.txt').read())")
    assert folder.run("mine")[0] == 10.0
    files = {name: content.replace("F = 1.0\n", "F = 2.0\n") for name, content in files.items()}
    folder.write(**files, **{"scale.txt": "2.00" if "stat" in files["mine"] else "2.0"})
    seconds, said = folder.run("mine")
    assert seconds == 20.0
    assert f"asgd with seed 0 computed again: {reason}\n" in said


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("['nowhere.csv']", r"mine\.py: `fred_inputs` names .*nowhere\.csv, which is not a file; expected paths relative to"),
        ("['.']", r"mine\.py: `fred_inputs` names .*, which is not a file"),
        ("'scale.txt'", r"mine\.py: `fred_inputs` is 'scale\.txt'; expected a list of paths and \$VARIABLES"),
        ("[1]", r"mine\.py: `fred_inputs` is \[1\]; expected a list of paths and \$VARIABLES"),
    ],
)
def test_wrong_declarations_are_refused(folder, declared, said):
    folder.write(mine=own().replace("fred_inputs = []", f"fred_inputs = {declared}"))
    assert re.fullmatch(rf"fred: .*{said}.*\n", folder.told("mine"))
    assert not (folder.path / "out").exists()


LEARNING = {"data": {"name": "synthetic-regression", "examples": 50}, "model": "softmax"}


@pytest.mark.parametrize("case", ["unchanged", "changed", "unsaid"])
def test_a_checkpoint_counts_under_the_same_rule_as_a_unit(folder, case):
    module = own("float(open('scale.txt').read())", "", ["scale.txt"])
    folder.write(**{"mine": module.replace("fred_inputs", "inputs") if case == "unsaid" else module, "scale.txt": "1.0"})
    assert "from the start" in folder.told("mine", task=LEARNING)
    expected = folder.summary
    shutil.rmtree(folder.path / "out")
    assert "1 of 1 units" not in folder.told("mine", stopped=True, task=LEARNING)
    if case == "changed":
        folder.write(**{"scale.txt": "2.0"})
    said = folder.told("mine", task=LEARNING)
    assert ("goes on from a checkpoint" in said) == (case == "unchanged")
    assert folder.summary["virtual_seconds"] == (20.0 if case == "changed" else 10.0)
    assert folder.summary["digests"]["params"] == expected["digests"]["params"], "times change no gradient of one worker"


@pytest.mark.parametrize(
    "files",
    [
        {"script": "import fred\ndef f(): return 1.0\n" + own("f()") + SCRIPT},
        {"script": "import fred\n" + own() + "class Own(Own):\n    'Own.'\n" + SCRIPT},
        {"script": "import fred\nfrom mine import Own\n" + SCRIPT, "mine": own()},
    ],
    ids=["a function of the same script", "a base class", "a class of another module"],
)
def test_a_script_is_computed_anew_and_told_why(folder, files):
    folder.write(**files)
    assert folder.script()[0] == 10.0
    folder.write(**{name: content.replace("1.0", "2.0") for name, content in files.items()})
    seconds, said = folder.script()
    assert seconds == 20.0
    assert "computed again: a program (script.py) can change imported modules; use `fred run --import` to cache results" in said


STEP = 1.0


class Globally(ASGD):
    """Steps as long as a global says."""

    def apply_update(self, state, grads, timestamp, worker):
        return self.step(state, grads, scale=STEP)


class Timed(Latency):
    """As long as a global says."""

    def sample(self, u):
        return np.full_like(u, STEP)

    @property
    def mean(self):
        return 1.0


def test_a_global_that_changes_in_one_process_changes_what_is_computed(monkeypatch):
    """With steps half as long everything comes out as with half the rate, to the last bit."""
    settings: dict[str, Any] = {
        "task": {"data": {"name": "synthetic-regression", "examples": 50}, "model": "softmax"},
        "cluster": {"workers": 2},
        "stop": {"updates": 5},
    }

    def losses(rate: float) -> list[float]:
        own = fred.scenario({**settings, "algorithm": Globally(learning_rate=rate)})
        return fred.run(own).metrics["loss"].tolist()

    before = losses(0.25), losses(0.125)
    monkeypatch.setattr(sys.modules[__name__], "STEP", 0.5)
    assert losses(0.25) == before[1] != before[0]


def test_a_global_that_changes_in_one_process_is_not_served_from_a_folder(monkeypatch, tmp_path):
    scenario = fred.scenario(TEN | {"cluster": {"workers": 1, "compute": Timed()}})
    assert fred.run(scenario, out=tmp_path / "out").summary["virtual_seconds"].tolist() == [10.0]
    monkeypatch.setattr(sys.modules[__name__], "STEP", 2.0)
    with pytest.warns(UserWarning, match="asgd with seed 0 computed again: "):
        again = fred.run(scenario, out=tmp_path / "out")
    assert again.summary["virtual_seconds"].tolist() == [20.0]


def test_what_is_not_known_is_not_said_to_be_kept(monkeypatch, tmp_path):
    def stopped(name: str, seed: int, done: float) -> None:
        if seed == 2:
            raise KeyboardInterrupt

    scenario = fred.scenario(TEN | {"cluster": {"workers": 1, "compute": Timed()}, "seeds": [1, 2]})
    with pytest.raises(KeyboardInterrupt) as raised:
        fred.run(scenario, out=tmp_path / "out", progress=stopped)
    assert raised.value.__notes__[0].startswith("finished units will be computed again: ")


@pytest.mark.slow
def test_data_files_that_change_in_one_process_are_read_again(tmp_path):
    """The same file names, other digits: what another process makes of them."""
    data = {"name": "mnist", "directory": str(tmp_path), "canonical": False}
    scenario = fred.scenario(
        task={"data": data, "model": "softmax"},
        cluster={"workers": 1},
        algorithm={"name": "asgd", "learning_rate": 0.1},
        stop={"updates": 2},
    )
    losses = []
    for number in (1, 2):
        pixels = np.random.default_rng(number).integers(0, 256, (30, 4, 4))
        for part in ("train", "t10k"):
            idx(tmp_path / f"{part}-images-idx3-ubyte", pixels)
            idx(tmp_path / f"{part}-labels-idx1-ubyte", np.arange(30) % 10)
        results = [fred.run(scenario), fred.run(scenario, out=tmp_path / "out")]
        assert results[1].reused == 0
        assert results[0].summary["loss"].tolist() == results[1].summary["loss"].tolist()
        end = results[0].outcome("asgd").final
        logits = (pixels.reshape(30, 16) / 255) @ end["weights"] + end["biases"]
        expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(30), np.arange(30) % 10]
        losses.append(results[0].metrics["loss"].iloc[-1])
        assert losses[-1] == pytest.approx(expected.mean(), rel=1e-5)
    assert losses[0] != losses[1]
    assert fred.run(scenario, out=tmp_path / "out").reused == 1
