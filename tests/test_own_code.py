"""Results of other code are never served: what users' modules import, read and ask for; scripts; globals that change."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fred
from fred.cluster.latency import Latency
from fred.learning.servers.plain import ASGD
from tests.conftest import ROOT
from tests.folders import idx

FORKS = """
import contextlib, json, os, runpy, sys
import fred.commands.cli, fred.results.experiment, fred.learning.servers.plain, fred.protocols.asynchronous, scipy.special
fred.results.figures.drawn = lambda result, folder: contextlib.nullcontext()
sys.modules["__main__"].__file__ = fred.commands.cli.__file__  # as with `python -m fred`
for line in sys.stdin:
    told = json.loads(line)
    if os.fork() == 0:
        os.chdir(told["folder"])
        os.environ.update(told["environment"])
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
{above}
class Own(Latency):
    'Always the same.'
    def sample(self, u):
        return np.full_like(u, {value})
    @property
    def mean(self):
        return 1.0
"""
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
        scenario = TEN | {"cluster": {"workers": 1, "compute": f"{module}:Own"}}
        (self.path / "ten.yaml").write_text(json.dumps(scenario))
        return self._told(
            arguments=["run", "ten.yaml", "--import", module, "--out", "out"], path=[path] * bool(path), environment=environment
        )

    def script(self) -> tuple[float, str]:
        """The same of `script.py`, which writes the folder itself."""
        return self._told(script="script.py")

    def _told(self, **what: Any) -> tuple[float, str]:
        told = {"folder": str(self.path), "arguments": [], "script": "", "environment": {}, "path": [], **what}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(told), file=self._process.stdin, flush=True)
        self._process.stdout.readline()
        said = (self.path / "said").read_text()
        assert (self.path / "out" / "summary.json").exists(), said
        return json.loads((self.path / "out" / "summary.json").read_text())[0]["virtual_seconds"], said


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
        {"pkg__servers": OWN.format(above="import helper", value="helper.f()"), "helper": "def f(): return 1.0"},
        "helper",
        "",
    ),
    "a package below and one beside it": (
        "pkg.sub.servers",
        {
            "pkg__sub__servers": OWN.format(above="from common import helper", value="helper.F"),
            "common__helper": "F = 1.0",
        },
        "common__helper",
        "",
    ),
    "what a helper imports": (
        "mine",
        {
            "mine": OWN.format(above="from one import f", value="f()"),
            "one": "import two\ndef f(): return two.F",
            "two": "F = 1.0",
        },
        "two",
        "",
    ),
    "a base class": (
        "mine",
        {"mine": "from base import Own as Base\nclass Own(Base):\n    'Own.'", "base": OWN.format(above="", value="1.0")},
        "base",
        "",
    ),
    "a class that comes from elsewhere": (
        "mine",
        {"mine": "from there import Own", "there": OWN.format(above="", value="1.0")},
        "there",
        "",
    ),
    "a library elsewhere": (
        "mine",
        {"mine": OWN.format(above="import library", value="library.F"), "..__elsewhere__library": "F = 1.0"},
        "..__elsewhere__library",
        "../elsewhere",
    ),
    "a file that is read": (
        "mine",
        {"mine": OWN.format(above="F = float(open('scale.txt').read())", value="F"), "scale.txt": "1.0"},
        "scale.txt",
        "",
    ),
    "a file that is executed": (
        "mine",
        {"mine": OWN.format(above="exec(open('scale.py').read())", value="F"), "scale": "F = 1.0"},
        "scale",
        "",
    ),
    "a file that is read by a package": (
        "mine",
        {"mine": OWN.format(above="F = np.loadtxt('scale.txt')", value="float(F)"), "scale.txt": "1.0"},
        "scale.txt",
        "",
    ),
    "a module that is loaded without being named": (
        "mine",
        {
            "mine": OWN.format(above="import runpy\nF = runpy.run_path('scale.py')['F']", value="F"),
            "scale": "F = 1.0",
        },
        "scale",
        "",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_modules_are_made_of_tells_whether_a_run_has_been_done(folder, case):
    module, files, changing, path = CASES[case]
    folder.write(**files)
    path = str((folder.path / path).resolve()) if path else ""
    seconds, said = folder.run(module, path)
    assert (seconds, "kept" in said) == (10.0, False)
    seconds, said = folder.run(module, path)
    assert seconds == 10.0
    assert "1 of 1 were done before and kept" in said
    folder.write(**{changing: files[changing].replace("1.0", "2.0")})
    seconds, said = folder.run(module, path)
    assert (seconds, "kept" in said) == (20.0, False)


@pytest.mark.parametrize("asks", ["getenv('SCALE')", "environ.copy()['SCALE']"])
def test_variables_that_modules_ask_for_do_too(folder, asks):
    folder.write(mine=OWN.format(above=f"import os\nF = float(os.{asks})", value="F"))
    assert [folder.run("mine", SCALE=scale)[0] for scale in ("1.0", "1.0", "2.0")] == [10.0, 10.0, 20.0]
    if "copy" not in asks:
        assert "1 of 1 were done before and kept" in folder.run("mine", SCALE="2.0", ANOTHER="variable")[1]


@pytest.mark.parametrize(
    ("above", "value", "reason"),
    [
        ("", "float(open('scale.txt').read())", "its code reads scale.txt while it runs"),
        ("", "float(__import__('os').environ['SCALE'])", "its code asks for the variable SCALE while it runs"),
        ("", "__import__('scale').F", "its code reads scale.py while it runs"),
        (
            "import subprocess\nF = float(subprocess.check_output(['cat', 'scale.txt']))",
            "F",
            "its code asks for another program",
        ),
        ("import os\nF = 1.0 + sum('2' in name for name in os.listdir())", "F", "its code asks for a list of files"),
    ],
)
def test_what_is_not_known_beforehand_is_computed_anew(folder, above, value, reason):
    folder.write(**{"mine": OWN.format(above=above, value=value), "scale.txt": "1.0", "scale": "F = 1.0"})
    assert folder.run("mine", SCALE="1.0")[0] == 10.0
    folder.write(**{"scale.txt": "2.0", "scale": "F = 2.0", "2": ""})
    seconds, said = folder.run("mine", SCALE="2.0")
    assert seconds == 20.0
    assert f"compute with seed 0 computed anew: {reason}".replace("compute", "asgd", 1) in said


@pytest.mark.parametrize(
    "files",
    [
        {"script": "import fred\ndef f(): return 1.0\n" + OWN.format(above="", value="f()") + SCRIPT},
        {"script": "import fred\n" + OWN.format(above="", value="1.0") + "class Own(Own):\n    'Own.'\n" + SCRIPT},
        {"script": "import fred\nfrom mine import Own\n" + SCRIPT, "mine": OWN.format(above="", value="1.0")},
    ],
    ids=["a function of the same script", "a base class", "a class of another module"],
)
def test_a_script_is_computed_anew_and_told_why(folder, files):
    folder.write(**files)
    assert folder.script()[0] == 10.0
    folder.write(**{name: content.replace("1.0", "2.0") for name, content in files.items()})
    seconds, said = folder.script()
    assert seconds == 20.0
    assert "computed anew: a program (script.py) can change what it has imported; with `fred run --import` it would be" in said


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
    with pytest.warns(UserWarning, match="asgd with seed 0 computed anew: "):
        again = fred.run(scenario, out=tmp_path / "out")
    assert again.summary["virtual_seconds"].tolist() == [20.0]


def test_what_is_not_known_is_not_said_to_be_kept(monkeypatch, tmp_path):
    def stopped(name: str, seed: int, done: float) -> None:
        if seed == 2:
            raise KeyboardInterrupt

    scenario = fred.scenario(TEN | {"cluster": {"workers": 1, "compute": Timed()}, "seeds": [1, 2]})
    with pytest.raises(KeyboardInterrupt) as raised:
        fred.run(scenario, out=tmp_path / "out", progress=stopped)
    assert raised.value.__notes__[0].startswith("what was done will be computed anew: ")


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
        assert results[1].kept == 0
        assert results[0].summary["loss"].tolist() == results[1].summary["loss"].tolist()
        end = results[0].outcome("asgd").final
        logits = (pixels.reshape(30, 16) / 255) @ end["weights"] + end["biases"]
        expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(30), np.arange(30) % 10]
        losses.append(results[0].metrics["loss"].iloc[-1])
        assert losses[-1] == pytest.approx(expected.mean(), rel=1e-5)
    assert losses[0] != losses[1]
    assert fred.run(scenario, out=tmp_path / "out").kept == 1
