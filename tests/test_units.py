"""Runs into a folder: what is kept, what is done again, who gets in whose way, and what is left of those who were killed."""

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
from fred.base import staging
from fred.base.errors import FredError
from fred.commands import cli, printing
from fred.results.folder import changed, load_result, read_manifest
from fred.results.verify import Verdict, verify
from fred.running import checkpoints, stored, work
from fred.running.checkpoints import Following
from fred.running.execution import execute
from fred.running.unit import Unit
from fred.running.units import units_of
from tests.conftest import ROOT
from tests.counted import Counted
from tests.worlds import make_run, same

pytestmark = pytest.mark.usefixtures("undrawn")

RUNS: dict[str, Any] = {name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")}
SETTINGS: dict[str, Any] = {
    "seeds": [1, 2],
    "cluster": {"workers": 3, "compute": {"name": "exponential", "scale": 0.1}},
    "stop": {"gradients": 40},
    "runs": RUNS,
}


@pytest.fixture
def scenario() -> Any:
    return fred.scenario(SETTINGS)


def digests(path: Path) -> dict[str, dict]:
    return {row.folder: row.digests.model_dump() for row in read_manifest(path)[1]}


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


class TestKept:
    def test_what_an_interrupted_run_has_done_is_not_done_again(self, scenario, monkeypatch, tmp_path):
        whole = fred.run(scenario, out=tmp_path / "whole")
        for stopped_at, kept, error in ((1, 1, KeyboardInterrupt), (2, 3, FredError)):
            with monkeypatch.context() as patch:
                Counted(patch, stopped_at, error)
                with pytest.raises(error) as raised:
                    fred.run(scenario, out=tmp_path / "parts")
            assert raised.value.__notes__ == [f"{kept} of 4 units are kept; the same command goes on from there"]
            assert names(tmp_path) == [".parts.unfinished", "whole"]
        with monkeypatch.context() as patch:
            rest = Counted(patch)
            result = fred.run(scenario, out=tmp_path / "parts")
        assert rest.units == ["ssgd/seed-2"]
        assert result.reused == 3
        assert names(tmp_path) == ["parts", "whole"]
        assert digests(tmp_path / "parts") == digests(tmp_path / "whole")
        assert result.summary.equals(whole.summary)

    @pytest.mark.parametrize(
        ("settings", "done_again"),
        [
            ({}, []),
            ({"seeds": [1, 2, 3]}, ["asgd/seed-3", "ssgd/seed-3"]),
            ({"runs.ssgd.algorithm.learning_rate": 0.2}, ["ssgd/seed-1", "ssgd/seed-2"]),
            ({"title": "another"}, []),
            ({"stop.gradients": 41}, ["asgd/seed-1", "asgd/seed-2", "ssgd/seed-1", "ssgd/seed-2"]),
        ],
    )
    def test_only_what_depends_on_a_change_is_done_again(self, scenario, monkeypatch, tmp_path, settings, done_again):
        fred.run(scenario, out=tmp_path / "out")
        again = Counted(monkeypatch)
        changed = scenario.replace(settings)
        fred.run(changed, out=tmp_path / "out")
        assert again.units == done_again
        assert load_result(tmp_path / "out").scenario == changed

    def test_fresh_does_everything_anew(self, scenario, monkeypatch, tmp_path):
        fred.run(scenario, out=tmp_path / "out")
        again = Counted(monkeypatch)
        fred.run(scenario, out=tmp_path / "out", fresh=True)
        assert len(again.units) == 4

    def test_a_damaged_unit_is_done_again(self, scenario, monkeypatch, tmp_path):
        fred.run(scenario, out=tmp_path / "out")
        file = tmp_path / "out" / "asgd" / "seed-2" / "schedule.parquet"
        file.write_bytes(file.read_bytes()[:-1])
        again = Counted(monkeypatch)
        with pytest.warns(UserWarning, match="asgd with seed 2 computed again: the stored result is damaged"):
            fred.run(scenario, out=tmp_path / "out")
        assert again.units == ["asgd/seed-2"]

    @pytest.mark.parametrize(
        "change",
        [
            lambda unit: dataclasses.replace(unit, name="another"),
            lambda unit: dataclasses.replace(unit, seed=9),
            lambda unit: dataclasses.replace(unit, inline=True),
            lambda unit: dataclasses.replace(unit, run=unit.run.model_copy(update={"stop": {"gradients": 41}})),
        ],
    )
    def test_units_that_may_come_out_differently_are_told_apart(self, scenario, change):
        unit = units_of(scenario)[0]
        assert change(unit).identity != unit.identity

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "damage",
        [
            lambda about: about["summary"]["gradients"].update(applied=41),
            lambda about: about["summary"].update(updates="forty"),
            lambda about: about.update(summary=[]),
            lambda about: about.update(files={}),
            lambda about: about.update(seconds="long"),
            lambda about: about.pop("digest"),
        ],
    )
    def test_a_units_record_that_was_changed_is_noticed_and_not_published(self, scenario, monkeypatch, tmp_path, damage):
        out = tmp_path / "out"
        before = fred.run(scenario, out=out).summary
        file = out / "asgd" / "seed-2" / "unit.json"
        about = json.loads(file.read_text())
        damage(about)
        file.write_text(json.dumps(about))
        with pytest.raises(FredError, match=r"asgd/seed-2"):
            load_result(out)
        again = Counted(monkeypatch)
        with pytest.warns(UserWarning, match="asgd with seed 2 computed again: the stored result is damaged"):
            result = fred.run(scenario, out=out)
        assert again.units == ["asgd/seed-2"]
        assert result.summary.equals(before)
        assert load_result(out).summary.equals(before)

    def test_a_run_that_was_renamed_with_its_folder_is_one_that_can_be_read(self, scenario, tmp_path):
        """What a user finds who renames a run to keep its results: a result that can be shown, and that verifies."""
        out = tmp_path / "out"
        fred.run(scenario, out=out)
        (out / "asgd").rename(out / "async")
        renamed = fred.scenario({**SETTINGS, "runs": {"async": RUNS["asgd"], "ssgd": RUNS["ssgd"]}})
        result = fred.run(renamed, out=out)
        assert result.reused == 2, "those of the other run"
        assert load_result(out).summary["name"].tolist() == ["async", "async", "ssgd", "ssgd"]
        assert verify(out) == (Verdict.SAME, f"{out}: 4 runs, all digests the same")


class TestPlace:
    def test_what_lies_beside_a_kept_units_files_is_not_taken_for_freds(self, scenario, monkeypatch, tmp_path):
        """A file of somebody's beside a kept unit's, in the unfinished folder of one who was killed shortly before the end."""
        with monkeypatch.context() as patch:
            Counted(patch, 1)
            with pytest.raises(KeyboardInterrupt):
                fred.run(scenario, out=tmp_path / "out")
        (tmp_path / ".out.unfinished" / "asgd" / "seed-1" / "mine.txt").write_text("")
        fred.run(scenario, out=tmp_path / "out")
        assert "asgd/seed-1/mine.txt" not in read_manifest(tmp_path / "out")[0].files

    def test_a_damaged_file_of_a_unit_is_set_aside(self, scenario, tmp_path, capsys):
        fred.run(scenario, out=tmp_path / "out")
        (tmp_path / "out" / "asgd" / "seed-2" / "metrics.csv").write_text("mine")
        printing.print_summary(fred.run(scenario, out=tmp_path / "out"), tmp_path / "out")
        assert (tmp_path / "out" / "set-aside" / "asgd" / "seed-2" / "metrics.csv").read_text() == "mine"
        assert "your files whose names the result needs were moved to" in capsys.readouterr().out
        assert not changed(tmp_path / "out", read_manifest(tmp_path / "out")[0])

    def test_files_that_others_put_there_stay(self, scenario, tmp_path):
        out = tmp_path / "out"
        fred.run(scenario, only="asgd", out=out)
        for name in ("notes.md", "figures/mine.svg", "asgd/seed-9/metrics.xlsx", "asgd/seed-1/params.txt"):
            (out / name).parent.mkdir(exist_ok=True, parents=True)
            (out / name).write_text(f"mine: {name}")
        (out / "link").symlink_to("notes.md")
        fred.run(scenario, out=out)
        for name in ("notes.md", "figures/mine.svg", "asgd/seed-9/metrics.xlsx", "asgd/seed-1/params.txt"):
            assert (out / name).read_text() == f"mine: {name}"
        assert (out / "link").is_symlink()
        assert digests(out).keys() == {"asgd/seed-1", "asgd/seed-2", "ssgd/seed-1", "ssgd/seed-2"}

    def test_anything_but_a_result_is_refused(self, scenario, tmp_path):
        (tmp_path / "web").mkdir()
        (tmp_path / "web" / "manifest.json").write_text('{"name": "app"}')
        with pytest.raises(FredError, match="exists and is not a result folder"):
            fred.run(scenario, out=tmp_path / "web")

    def test_another_scenarios_result_is_never_replaced(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        for folder in ("one", "two"):
            Path(folder).mkdir()
            Path(folder, "same.yaml").write_text(json.dumps({**SETTINGS, "seeds": [1], "title": folder}))
        assert cli.main(["run", "one/same.yaml"]) == 0
        before = Path("results/same/manifest.json").read_bytes()
        assert cli.main(["run", "two/same.yaml"]) == 2
        said = "results/same holds the result of another scenario (../one/same.yaml, 'one'); choose another folder with --out"
        assert said in capsys.readouterr().err
        assert Path("results/same/manifest.json").read_bytes() == before

    def test_two_at_the_same_place_are_told_of_each_other(self, scenario, tmp_path):
        with staging.opened(tmp_path / "out"), pytest.raises(FredError, match=r"another run is at work on .*out"):
            fred.run(scenario, out=tmp_path / "out")
        fred.run(scenario, only="asgd", out=tmp_path / "out")
        assert names(tmp_path) == ["out"]


class TestCheckpoints:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "options",
        [
            {"name": "fasgd", "learning_rate": 0.1},
            {"name": "sasgd", "learning_rate": 0.1, "optimizer": "noisy_sgd"},
            {"name": "wagma-sgd", "learning_rate": 0.1, "cluster": {"workers": 4}},
            {"name": "asgd", "learning_rate": 0.1, "cluster": {"workers": 3, "servers": 2}},
            {"name": "b-fasgd", "learning_rate": 0.1, "protocol": {"name": "gated", "c_push": 0.1, "c_fetch": 0.3}},
            {"name": "ssgd", "learning_rate": 0.1},
        ],
        ids=lambda options: options["name"],
    )
    @pytest.mark.parametrize("inline", [False, True])
    def test_from_a_file_at_any_point_the_rest_comes_out_the_same(self, options, inline, tmp_path):
        more = {key: options[key] for key in ("cluster", "protocol") if key in options}
        name, algorithm = options["name"], {key: value for key, value in options.items() if key not in more}
        run = make_run(algorithm, stop={"gradients": 60}, evaluate={"every_gradients": 7}, **more)
        kept: list[Path] = []

        def keep(checkpoint: Any) -> None:
            kept.append(tmp_path / str(len(kept)))
            kept[-1].mkdir()
            checkpoints.save(kept[-1], "unit", checkpoint)

        whole = execute(name, run, 3, inline, Following(save=keep))
        assert len(kept) >= 4
        for folder in (kept[0], kept[len(kept) // 2], kept[-1]):
            assert checkpoints.load(folder, "another") is None
            resumed = checkpoints.load(folder, "unit")
            assert resumed is not None
            looked: list[float] = []
            assert same(execute(name, run, 3, inline, Following(looked.append, resumed=resumed)), whole)
            assert len(looked) <= len(whole.metrics) - len(resumed.measured) + 1, "what was measured is not measured again"

    def test_a_unit_goes_on_from_its_last_one(self, tmp_path, monkeypatch):
        run = make_run("fasgd", stop={"updates": 40}, evaluate={"points": 8})
        unit = Unit("fasgd", run, 5)
        whole = execute("fasgd", run, 5)
        monkeypatch.setattr(checkpoints, "EVERY", 0.0)
        told: list[float] = []

        def stopped(share: float) -> None:
            told.append(share)
            if len(told) == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            work.do(unit, tmp_path, stopped)
        assert work.begun(unit, tmp_path)
        shares: list[float] = []
        work.do(unit, tmp_path, shares.append)
        assert min(shares) > told[2]
        found = stored.whole(unit, tmp_path / unit.folder)
        assert found is not None
        assert same(found, whole)
        assert names(tmp_path) == [".at-work", "fasgd"]
        assert not list((tmp_path / ".at-work").iterdir())

    @pytest.mark.parametrize(
        "damage", [lambda content: content[:-200], lambda content: b"", lambda content: b"PK" + content[4:]]
    )
    def test_a_damaged_one_is_no_one(self, tmp_path, damage):
        run = make_run("fasgd", stop={"updates": 8}, evaluate={"points": 4})
        execute("fasgd", run, 5, False, Following(save=lambda each: checkpoints.save(tmp_path, "unit", each)))
        file = tmp_path / checkpoints.FILE
        file.write_bytes(damage(file.read_bytes()))
        assert checkpoints.load(tmp_path, "unit") is None


def test_first_parameters_of_replicas_that_start_apart_are_kept(tmp_path):
    task = {"data": {"name": "synthetic-regression", "examples": 50}, "model": "mlp", "replicas_start": "apart"}
    run = {
        "task": task,
        "algorithm": {"name": "d-psgd", "learning_rate": 0.1},
        "cluster": {"workers": 3},
        "stop": {"updates": 2},
    }
    result = fred.run(fred.scenario(run), out=tmp_path / "out")
    initial = result.outcome("d-psgd").initial
    starts = [initial[f"replica-{number}/layer0/weights"] for number in range(3)]
    assert not np.array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[1], starts[2])


@pytest.mark.slow
def test_whoever_is_killed_goes_on_and_leaves_nothing(tmp_path):
    """With the same digests as one that nobody disturbs; `make kills` does it 200 times, with other signals too."""
    settings = {**SETTINGS, "seeds": [1, 2], "stop": {"gradients": 60_000}}
    (tmp_path / "eight.yaml").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "fred", "run", "eight.yaml", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    heeded = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen([*command, "--jobs", "2"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    signal.signal(signal.SIGINT, heeded)
    stage = tmp_path / ".out.unfinished"
    while process.poll() is None and not list(stage.glob("*/seed-*/unit.json")):
        time.sleep(0.02)
    process.kill()
    assert process.wait(timeout=60) in (-signal.SIGKILL, 0)
    assert len(list(stage.glob("*/seed-*"))) >= 1
    finished = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "were finished before and reused" in finished.stdout
    assert names(tmp_path) == ["eight.yaml", "out"]
    expected = fred.run(fred.scenario(settings), only="ssgd")
    for each in expected.outcomes:
        assert digests(tmp_path / "out")[f"ssgd/seed-{each.seed}"]["schedule"] == each.schedule.digest()
