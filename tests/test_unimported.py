"""Results of the user's own code are shown, drawn and compared without importing it; only running them again needs it."""

import os
import subprocess
import sys

import pytest

import fred
from fred import FredError
from fred.commands import cli
from fred.components import registry
from tests.conftest import ROOT

OWN = """
import numpy as np
from pydantic import Field
import fred
from fred import ASGD
from fred.learning.codecs.floats import Float
from fred.learning.loss_functions import CrossEntropy
from fred.learning.models.mlp import SoftmaxRegression
from fred.prediction.fixed import FixedCount
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.dispatcher import Dispatcher

fred_inputs = []


class Patient(ASGD):
    "Patient."
    patience: int = Field(10, ge=1, description="updates")


class Leash(Asynchronous):
    "Leash."
    length: int = 3


class Clockless(Dispatcher):
    "Without a clock."


class Always(fred.Latency):
    "Always as long."
    seconds: float = 0.5

    def sample(self, u):
        return np.full_like(u, self.seconds)

    @property
    def mean(self):
        return self.seconds


class Entropy(CrossEntropy):
    "Cross-entropy."


class Softmax(SoftmaxRegression):
    "Softmax."


class Half(Float):
    "Half."


class Two(FixedCount):
    "Two."


class Digits(fred.Data):
    "Digits."
    def load(self, seed):
        return __import__("fred.learning.data.images", fromlist=["Digits"]).Digits().load(seed)
"""
SCENARIO = """
title: Own parts
seeds: [1, 2]
task: {data: digits, model: "own_parts:Softmax", loss: "own_parts:Entropy"}
cluster:
  groups:
  - {workers: 2}
  - {workers: 1, speed: 0.5, compute: {name: mixture, weights: [1], components: ["own_parts:Always"]}}
  compute: {name: own_parts:Always, seconds: 0.25}
  contention: [{name: job, nodes: [0], slowdown: 2.0, begin: 1.0}]
stop: {seconds: 4}
evaluate: {target_error: 0.5}
algorithm: {name: asgd, learning_rate: 0.1}
runs:
  asgd:
  patient:
    algorithm: {name: own_parts:Patient, codec: {name: own_parts:Half}}
    sweep: {over: {algorithm.learning_rate: [0.05, 0.1]}}
  leash:
    protocol: {name: own_parts:Leash, length: 2}
  cutoff:
    algorithm: {name: ssgd, learning_rate: 0.1}
    protocol: {name: cutoff, rule: {name: own_parts:Two, workers: 2}}
"""
CLOCKLESS = """
task: {data: "own_parts:Digits", model: softmax}
cluster: {workers: 2}
stop: {updates: 10}
algorithm: {name: asgd, learning_rate: 0.1}
protocol: own_parts:Clockless
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of two scenarios that another process wrote with the user's own parts."""
    place = tmp_path_factory.mktemp("own")
    (place / "own_parts.py").write_text(OWN)
    for name, text in (("timed", SCENARIO), ("clockless", CLOCKLESS)):
        (place / f"{name}.yaml").write_text(text)
        _fred(place, "run", f"{name}.yaml", "--import", "own_parts")
    return place


def _fred(place, *arguments):
    command = [sys.executable, "-m", "fred", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["timed", "clockless"])
def test_everything_stored_is_the_same_without_the_import(folder, name, tmp_path, monkeypatch):
    script = (
        "import fred; fred.load({file!r}, imports=['own_parts']); result = fred.load_result({result!r}); "
        "print(result.summary.to_json()); print([(each.schedule_digest, each.params_digest) for each in result.outcomes]); "
        "print(result.metrics.to_json()); print([each.schedule.digest() for each in result.outcomes])"
    )
    result = folder / "results" / name
    command = [sys.executable, "-c", script.format(file=f"{name}.yaml", result=str(result))]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    expected = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
    read = fred.load_result(result)
    assert "own_parts" not in sys.modules
    digests = [(each.schedule_digest, each.params_digest) for each in read.outcomes]
    timing = [each.schedule.digest() for each in read.outcomes]
    assert "\n".join([read.summary.to_json(), str(digests), read.metrics.to_json(), str(timing), ""]) == expected
    drawn = {path.stem for path in (result / "figures").iterdir()}
    assert set(read.pictures()) == drawn
    assert ("timeline" in drawn) == (name == "timed")
    for draw in read.pictures().values():
        draw()
    monkeypatch.chdir(tmp_path)
    page = (result / "report.html").read_bytes()
    assert cli.main(["report", str(result), "--out", "page.html"]) == 0
    assert (tmp_path / "page.html").read_bytes() == page


def test_commands_that_read_results_need_no_import(folder, tmp_path, capsys):
    result, other = (str(folder / "results" / name) for name in ("timed", "clockless"))
    assert cli.main(["show", result]) == 0
    assert "leash" in capsys.readouterr().out
    assert cli.main(["compare", result, other, "--out", str(tmp_path / "compared")]) == 0
    assert cli.main(["draw", result, "timeline", "--only", "leash", "--out", str(tmp_path / "drawn")]) == 0
    assert cli.main(["export", result, "--only", "leash", "--seed", "1", "--out", str(tmp_path / "trace")]) == 0
    assert fred.load_result(result).run_times("leash").shape[1] == 4


def test_running_again_needs_the_import(folder, monkeypatch):
    result = folder / "results" / "timed"
    read = fred.load_result(result)
    needed = "allow it with `--import own_parts`"
    with pytest.raises(FredError, match=needed) as raised:
        fred.run(read.scenario)
    assert len(raised.value.args) == 1
    with pytest.raises(FredError, match=needed):
        read.scenario.replace({"seeds": [3]})
    with pytest.raises(FredError, match=needed):
        read.b_staleness("patient")
    with pytest.raises(FredError, match=needed):
        read.outcome("leash").run.protocol.layout(read.outcome("leash").run.cluster)
    assert cli.main(["verify", str(result)]) == 2
    assert "all digests the same" in _fred(folder, "verify", str(result), "--import", "own_parts")


def test_a_class_that_is_imported_is_used(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(registry, "_importable", {})
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    registry.allow_import(["own_parts"])
    protocol = fred.load_result(folder / "results" / "timed").outcome("leash").run.protocol
    assert isinstance(protocol, fred.Protocol)
    assert protocol.model_dump()["length"] == 2


def test_attributes_that_need_the_class_are_missing(folder):
    protocol = fred.load_result(folder / "results" / "timed").outcome("leash").run.protocol
    assert hasattr(protocol, "length")
    assert not hasattr(protocol, "doubted")
    assert getattr(protocol, "doubted", "unknown") == "unknown"


@pytest.mark.parametrize("module", ["own_part", "own_parts.py"])
def test_the_nearest_module_is_suggested(folder, module, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(FredError, match="did you mean `own_parts`"):
        registry.allow_import([module])
