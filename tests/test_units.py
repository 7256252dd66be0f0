"""Units in a result folder: which are computed again, refusals, the files of a killed run; checkpoints."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fred
from fred import FredError, load_result
from fred.base import staging
from fred.base.disk import CHECKPOINT
from fred.replay.memory import Snapshot
from fred.results.folder import read_manifest
from fred.running import checkpoints, execution, stored
from fred.running.checkpoints import Checkpoint, Following
from fred.running.execution import execute
from fred.running.units import Unit
from tests.conftest import ROOT
from tests.folders import digests
from tests.places import names
from tests.program import fred_command, refusal
from tests.unit_counter import UnitCounter
from tests.worlds import make_run, same_outcome

pytestmark = pytest.mark.usefixtures("undrawn")

RUNS: dict[str, Any] = {name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")}
SETTINGS: dict[str, Any] = {
    "seeds": [1, 2],
    "cluster": {"workers": 3, "compute": {"name": "exponential", "scale": 0.1}},
    "stop": {"gradients": 40},
    "runs": RUNS,
}
SCENARIO = fred.scenario(SETTINGS)


@pytest.fixture
def out(tmp_path) -> Path:
    fred.run(SCENARIO, out=tmp_path / "out")
    return tmp_path / "out"


class TestReuse:
    def test_finished_units_of_an_interrupted_run_are_not_computed_again(self, out, monkeypatch, tmp_path):
        parts, stage = tmp_path / "parts", tmp_path / ".parts.unfinished"
        for interrupt_at, finished_units, error in ((1, 1, KeyboardInterrupt), (2, 3, FredError)):
            with monkeypatch.context() as patch:
                UnitCounter(patch, interrupt_at, error)
                with pytest.raises(error) as raised:
                    fred.run(SCENARIO, out=parts)
            assert raised.value.__notes__ == [f"{finished_units} of 4 units are kept; the same command goes on from there"]
            assert names(tmp_path) == [stage.name, "out"]
        (stage / "asgd" / "seed-1" / "mine.txt").write_text("a user's")
        rest = UnitCounter(monkeypatch)
        result = fred.run(SCENARIO, out=parts)
        assert (rest.units, result.reused) == (["ssgd/seed-2"], 3) and names(tmp_path) == ["out", "parts"]
        assert digests(parts) == digests(out) and result.summary.equals(load_result(out).summary)
        assert "asgd/seed-1/mine.txt" not in read_manifest(parts)[0].files

    def test_only_units_that_depend_on_a_change_are_computed_again(self, out, monkeypatch):
        a1, a2, s1, s2 = digests(out)
        for settings, computed_units, fresh in (
            ({}, [], False),
            ({}, [a1, a2, s1, s2], True),
            ({"title": "another"}, [], False),
            ({"seeds": [1, 2, 3]}, ["asgd/seed-3", "ssgd/seed-3"], False),
            ({"runs.ssgd.algorithm.learning_rate": 0.2}, [s1, s2], False),
            ({"stop.gradients": 41}, [a1, a2, s1, s2], False),
        ):
            with monkeypatch.context() as patch:
                count, changed_scenario = UnitCounter(patch), SCENARIO.replace(settings)
                fred.run(changed_scenario, out=out, fresh=fresh)
            assert count.units == computed_units, settings
            assert load_result(out).scenario == changed_scenario

    def test_units_with_any_difference_have_other_identities(self):
        unit = Unit("asgd", SCENARIO.runs["asgd"], 1)
        for change in ({"name": "another"}, {"seed": 9}, {"inline": True}, {"run": SCENARIO.runs["ssgd"]}):
            assert dataclasses.replace(unit, **change).identity != unit.identity, change

    @pytest.mark.parametrize(
        "damage",
        [
            None,
            lambda record: record["summary"]["gradients"].update(applied=41),
            pytest.param(lambda record: record.update(files={}), marks=pytest.mark.slow),
            pytest.param(lambda record: record.update(seconds="long"), marks=pytest.mark.slow),
            pytest.param(lambda record: record.pop("digest"), marks=pytest.mark.slow),
        ],
    )
    def test_a_damaged_unit_is_noticed_and_computed_again(self, out, monkeypatch, damage):
        summary, folder = load_result(out).summary, out / "asgd" / "seed-2"
        if damage is None:
            (folder / "schedule.parquet").write_bytes((folder / "schedule.parquet").read_bytes()[:-1])
        else:
            record = json.loads((folder / "unit.json").read_text())
            damage(record)
            (folder / "unit.json").write_text(json.dumps(record))
            with pytest.raises(FredError, match=r"asgd/seed-2"):
                load_result(out)
        count = UnitCounter(monkeypatch)
        with pytest.warns(UserWarning, match="asgd with seed 2 computed again: the stored result is damaged"):
            result = fred.run(SCENARIO, out=out)
        assert count.units == ["asgd/seed-2"]
        assert result.summary.equals(summary) and load_result(out).summary.equals(summary)


class TestPlace:
    def test_files_that_are_not_the_results_are_refused_before_anything_is_computed(self, out, monkeypatch):
        (out / "asgd" / "notes.md").write_text("mine")
        count = UnitCounter(monkeypatch)
        with pytest.raises(FredError, match=r"out holds files that are not the result's: asgd/notes.md; move them, or choose"):
            fred.run(SCENARIO, out=out, fresh=True)
        assert not count.units and (out / "asgd" / "notes.md").read_text() == "mine"
        (out / "asgd" / "notes.md").rename(out.parent / "notes.md")
        fred.run(SCENARIO, out=out, fresh=True)
        assert len(count.units) == 4

    def test_another_scenarios_result_is_never_replaced(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for folder in ("one", "two"):
            Path(folder).mkdir()
            Path(folder, "same.yaml").write_text(json.dumps({**SETTINGS, "seeds": [1], "title": folder}))
        assert fred_command("run", "one/same.yaml").code == 0
        before = Path("results/same/manifest.json").read_bytes()
        message = "results/same holds the result of another scenario (../one/same.yaml, 'one'); choose another folder with"
        assert message in refusal("run", "two/same.yaml")
        assert Path("results/same/manifest.json").read_bytes() == before

    def test_a_second_run_at_the_same_place_is_refused(self, tmp_path):
        with staging.opened(tmp_path / "out"), pytest.raises(FredError, match=r"another run is at work on .*out"):
            fred.run(SCENARIO, out=tmp_path / "out")
        fred.run(SCENARIO, only="asgd", out=tmp_path / "out")
        assert names(tmp_path) == ["out"]

    @pytest.mark.slow
    def test_a_killed_run_is_continued_and_leaves_nothing(self, tmp_path):
        """It has the digests of an undisturbed one; `make kills` does it 200 times, with other signals too."""
        settings = {**SETTINGS, "stop": {"gradients": 10_000}}
        (tmp_path / "four.yaml").write_text(json.dumps(settings))
        command = [sys.executable, "-m", "fred", "run", "four.yaml", "--out", "out"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen([*command, "--jobs", "2"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
        signal.signal(signal.SIGINT, handler)
        stage = tmp_path / ".out.unfinished"
        while process.poll() is None and not list(stage.glob("*/seed-*/unit.json")):
            time.sleep(0.02)
        process.kill()
        assert process.wait(timeout=60) in (-signal.SIGKILL, 0) and len(list(stage.glob("*/seed-*"))) >= 1
        completed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert "were finished before and reused" in completed.stdout and names(tmp_path) == ["four.yaml", "out"]
        for outcome in fred.run(fred.scenario(settings), only="ssgd").outcomes:
            assert digests(tmp_path / "out")[f"ssgd/seed-{outcome.seed}"]["schedule"] == outcome.schedule.digest()


def from_a_file(checkpoint: Checkpoint, folder: Path) -> Checkpoint | None:
    checkpoints.save(folder, "unit", checkpoint)
    assert checkpoints.load(folder, "another") is None
    return checkpoints.load(folder, "unit")


class TestCheckpoints:
    """tests/test_every_case.py resumes every algorithm, at evaluations by gradients."""

    @pytest.mark.parametrize("inline", [False, True])
    def test_a_resumed_run_reaches_its_target_where_the_whole_one_does(self, inline, tmp_path):
        decay = {"name": "exponential_decay", "transition_steps": 100, "decay_rate": 0.5}
        algorithm = {"name": "asgd", "learning_rate": 0.1, "schedule": decay, "average": 0.9}
        run = make_run(algorithm, stop={"gradients": 400, "target_loss": 0.6}, evaluate={"every_seconds": 0.1})
        saved: list[Checkpoint] = []
        uninterrupted = execute("run", run, 3, inline, Following(save=saved.append))
        assert 5 < len(uninterrupted.metrics) < 80
        assert same_outcome(uninterrupted, execute("run", run, 3, inline)), "saving checkpoints changes nothing"
        for checkpoint in (saved[1], saved[len(saved) // 2], from_a_file(saved[-1], tmp_path)):
            assert checkpoint is not None
            shares: list[float] = []
            assert same_outcome(uninterrupted, execute("run", run, 3, inline, Following(shares.append, resumed=checkpoint)))
            assert len(shares) <= len(uninterrupted.metrics) - len(checkpoint.measured) + 1, "nothing is measured twice"

    def test_a_unit_resumes_from_its_last_one(self, tmp_path, monkeypatch):
        unit = Unit("asgd", make_run(stop={"updates": 40}, evaluate={"points": 8}), 5)
        monkeypatch.setattr(checkpoints, "INTERVAL", 0.0)
        shares: list[float] = []

        def note(share: float) -> None:
            shares.append(share)
            if len(shares) == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            execution.complete(unit, tmp_path, note)
        assert execution.has_checkpoint(unit, tmp_path)
        execution.complete(unit, tmp_path, note)
        assert min(shares[5:]) > shares[2]
        outcome = stored.find_unchecked(unit, tmp_path / unit.folder)
        assert outcome is not None and same_outcome(outcome, execute("asgd", unit.run, 5))
        assert names(tmp_path) == [".at-work", "asgd"] and names(tmp_path / ".at-work") == []

    def test_a_damaged_one_is_deleted_with_a_message(self, tmp_path, capsys):
        checkpoint = Checkpoint([{"loss": 0.1, "error": np.nan}], Snapshot({"row": 3}, [np.arange(300.0)]))
        loaded = from_a_file(checkpoint, tmp_path)
        assert loaded is not None and repr(loaded) == repr(checkpoint)
        file = tmp_path / CHECKPOINT
        content = file.read_bytes()
        for damaged in (content[:-200], b"", b"PK" + content[4:]):
            file.write_bytes(damaged)
            assert checkpoints.load(tmp_path, "unit") is None
            assert "damaged or from another version: this run starts from the beginning" in capsys.readouterr().err
            assert not file.exists()
