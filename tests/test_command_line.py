"""The program as its users meet it: exit codes, output, and the files that it writes or must not write."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fred.base.errors import FredError
from fred.results import verify
from fred.running import stored
from fred.schedule.schedule import Schedule
from fred.views import charts
from tests.conftest import ROOT
from tests.folders import resign
from tests.program import fred_command, refusal

SMALL = """
title: small
seeds: [1, 2]
task: {data: {name: synthetic-classification, examples: 600, evaluation: 100, features: 8, classes: 4}, model: softmax, batch_size: 4}
cluster: {workers: 3, compute: {name: exponential, scale: 0.1}}
stop: {gradients: 50}
evaluate: {points: 4, target_error: 0.8}
runs:
  asgd: {algorithm: {name: asgd, learning_rate: 0.1}}
  ssgd: {algorithm: {name: ssgd, learning_rate: 0.1}}
"""
TIMED = "\n".join(line for line in SMALL.split("\n") if not line.startswith(("task", "evaluate")))
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("done")
    (base / "small.yaml").write_text(SMALL)
    command = [sys.executable, "-m", "fred", "run", "small.yaml"]
    process = subprocess.run(command, cwd=base, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "asgd" in process.stdout
    assert "results/small" in process.stdout
    return base


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    (tmp_path / "small.yaml").write_text(TIMED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_result_folder_has_the_stable_format(workspace):
    out = workspace / "results" / "small"
    names = ["asgd", "figures", "manifest.json", "paired.csv", "report.html", "ssgd", "summary.csv", "summary.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    rows = json.loads((out / "summary.json").read_text())
    assert [(row["name"], row["seed"]) for row in rows] == [("asgd", 1), ("asgd", 2), ("ssgd", 1), ("ssgd", 2)]
    for row in rows:
        files = out / row["name"] / f"seed-{row['seed']}"
        assert Schedule.load(files / "schedule.parquet").digest() == row["digests"]["schedule"]
        frame, metrics = pd.read_parquet(files / "schedule.parquet"), pd.read_parquet(files / "metrics.parquet")
        assert row["gradients"]["applied"] == frame["verb"].isin(["PUSH", "ADD"]).sum()
        assert (row["loss"], row["error"]) == tuple(metrics[["loss", "error"]].iloc[-1])
        np.testing.assert_allclose(pd.read_csv(files / "metrics.csv"), metrics)
        with np.load(files / "params.npz", allow_pickle=False) as params:
            assert {name.split("/")[0] for name in params.files} == {"initial", "final"}
    figures = {path.name for path in (out / "figures").iterdir()}
    figure_names = ("loss", "error", "paired", "staleness", "throughput", "timeline", "traffic", "workers-time")
    assert figures == {f"{name}.svg" for name in figure_names}
    environment = json.loads((out / "manifest.json").read_text())["environment"]
    assert {"jax", "numpy", "PJRT_NPROC", "XLA_FLAGS", "backend"} <= environment.keys()


@pytest.mark.slow
def test_running_again_gives_the_same_bytes_but_for_dates_and_times(workspace, tmp_path):
    assert fred_command("run", workspace / "small.yaml", "--out", tmp_path / "again").code == 0
    first, second = (
        json.loads((out / "manifest.json").read_text()) for out in (workspace / "results/small", tmp_path / "again")
    )
    differing = dict(first["files"].items() ^ second["files"].items())
    assert differing.keys() == {name for name in first["files"] if "unit.json" in name}
    assert all(first[name] == second[name] for name in ("scenario", "data", "environment", "fred", "inline"))


@pytest.mark.usefixtures("undrawn")
def test_options_choose_seed_run_and_mode(workspace, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    options = ["--seed", "2", "--only", "ssgd", "--inline", "--set", "title=x"]
    assert fred_command("run", workspace / "small.yaml", *options).code == 0
    (row,) = json.loads((tmp_path / "results/small.ssgd/summary.json").read_text())
    rows = json.loads((workspace / "results/small/summary.json").read_text())
    assert row == next(entry for entry in rows if (entry["name"], entry["seed"]) == ("ssgd", 2))


def test_what_the_user_can_mend_is_refused_in_one_line_and_costs_nothing(folder, monkeypatch):
    monkeypatch.setenv("FRED_DATA", "")
    os.mkfifo(folder / "pipe.yaml")
    (folder / "learned.yaml").write_text(SMALL)
    for arguments, message in (
        ("run nowhere.yaml", "cannot read nowhere.yaml"),
        ("run pipe.yaml", "fred: cannot read pipe.yaml: it is not a file\n"),
        ("run small.yaml --set cluster.workers=0", "--set cluster.workers=0: found 0"),
        ("run small.yaml --only sgd", "no run `sgd`; did you mean `ssgd`?; there are asgd, ssgd"),
        (
            "run learned.yaml --set task.data=mnist",
            "and set the variable FRED_DATA to the folder that holds it, or `directory:` in the scenario",
        ),
        ("run small.yaml --out .", "exists and is not a result folder"),
        ("run small.yaml --jobs none", "found 'none'; expected a number of processes, or `all`"),
        ("run small.yaml --out small.yaml/sub", "cannot write small.yaml/sub: Not a directory; choose another"),
        ("run small.yaml --out /proc/x", "cannot write /proc/x"),
        (f"run small.yaml --out {'x' * 250}", "File name too long"),
        ("verify nowhere", "nowhere is not a result folder"),
    ):
        assert message in refusal(*arguments.split())
    monkeypatch.setattr("fred.commands.listing.run", lambda _: np.zeros(2**62, np.int8))
    assert refusal("list").startswith("fred: not enough memory: Unable to allocate")
    assert sorted(path.name for path in folder.iterdir()) == ["learned.yaml", "pipe.yaml", "small.yaml"]


def test_a_reader_may_leave_early():
    pipe = f"{sys.executable} -m fred list | true; exit ${{PIPESTATUS[0]}}"
    full = f"{sys.executable} -m fred list > /dev/full"
    for command, code, error in ((pipe, 141, ""), (full, 2, "fred: cannot write: No space left on device\n")):
        process = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (process.returncode, process.stderr) == (code, error)


@pytest.mark.usefixtures("undrawn")
def test_odd_titles_names_and_places_are_taken_as_they_are(folder, monkeypatch):
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    monkeypatch.chdir(folder / "real")
    title = "$_{$ a [red] b [/x]"
    command = ["run", "../small.yaml", "--seed", "1", "--only", "asgd", "--only", "asgd", "--set", "stop.gradients=5"]
    answer = fred_command(*command, "--set", f"title={title}", "--out", ".")
    assert answer.code == 0
    assert title in answer.out
    assert Path.cwd().samefile(os.curdir)  # not in the folder that was replaced
    assert fred_command(*command, "--out", folder / "link").code == 0
    assert Path.cwd().samefile(os.curdir)
    assert len(json.loads((folder / "real/summary.json").read_text())) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["link", "real", "small.yaml"]


def test_every_run_is_named_at_the_end_of_its_line_or_in_a_legend():
    for number in (1, 8, 9):
        names = [f"_odd-{i}" for i in range(number)]
        metrics = {"seed": 0, "virtual_seconds": [0.0, 1.0], "updates": [0, 1], "loss": [2.0, 1.0]}
        picture = charts.learning(pd.concat([pd.DataFrame({"run": name, **metrics}) for name in names]), "loss", "")
        texts = picture.legends[0].get_texts() if picture.legends else picture.axes[-1].texts
        assert sorted(text.get_text() for text in texts if text.get_text()) == names
        assert bool(picture.legends) == (number > 8)


@pytest.mark.slow
def test_interrupting_a_long_run_leaves_nothing(folder):
    (folder / "small.yaml").write_text(SMALL)
    command = [sys.executable, "-m", "fred", "run", "small.yaml", "--set", "stop.gradients=3000000"]
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits what its parent ignores
    process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE)
    signal.signal(signal.SIGINT, handler)
    while process.poll() is None and not list(folder.glob("results/.*")):
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted; nothing was " in error
    assert [path.name for path in folder.iterdir()] == ["small.yaml"]


class TestVerify:
    @pytest.fixture
    def copy(self, workspace, tmp_path) -> Path:
        return Path(shutil.copytree(workspace / "results" / "small", tmp_path / "small"))

    def test_the_same_machine_gives_the_same_bits(self, workspace, monkeypatch):
        monkeypatch.chdir(workspace)
        assert fred_command("verify", "results/small") == (0, "results/small: 4 runs, all digests the same\n", "")

    @pytest.mark.usefixtures("undrawn")
    def test_a_difference_in_timing_is_reported_with_its_first_row(self, copy):
        files = copy / "ssgd" / "seed-1"
        schedule = Schedule.load(files / "schedule.parquet")
        times = schedule["time_ns"] + 5 * (np.arange(len(schedule)) == 17)
        changed = dataclasses.replace(schedule, columns={**schedule.columns, "time_ns": times})
        changed.save(files / "schedule.parquet")
        rows = json.loads((copy / "summary.json").read_text())
        next(row for row in rows if (row["name"], row["seed"]) == ("ssgd", 1))["digests"]["schedule"] = changed.digest()
        (copy / "summary.json").write_text(json.dumps(rows))
        resign(copy)
        code, _, error = fred_command("verify", copy)
        assert code == 1
        assert "ssgd/seed-1: timing differs: first at row 17" in error

    def test_other_environments_can_be_compared_other_data_and_formats_cannot(self, copy, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setenv("PJRT_NPROC", "2")
            code, output, _ = fred_command("verify", copy)
        assert code == 0
        assert "all digests the same; in another numeric environment:\n  PJRT_NPROC: recorded '1', here '2'" in output
        manifest = json.loads((copy / "manifest.json").read_text())
        manifest["data"]["asgd/seed-1"] = "0" * 64
        (copy / "manifest.json").write_text(json.dumps(manifest))
        resign(copy)
        code, _, error = fred_command("verify", copy)
        assert code == 2
        assert "the data are not the recorded ones" in error
        (copy / "manifest.json").write_text('{"format": 99}')
        assert "this version reads format 8" in refusal("verify", copy)

    @pytest.mark.parametrize(
        ("file", "content", "message"),
        [
            ("manifest.json", "[]", "not a whole result folder: Manifest"),
            ("manifest.json", '{"format": 8}', "Manifest fred: Field required"),
            ("manifest.json", "[" * 100_000, "is not a result folder"),
            ("summary.json", "[]", "do not name the same runs"),
        ],
        ids=str,
    )
    def test_a_damaged_folder_is_refused(self, copy, file, content, message):
        (copy / file).write_text(content)
        with pytest.raises(FredError, match=message):
            verify.verify(copy)

    def test_whatever_file_is_changed_cut_or_removed_is_named_before_anything_runs(self, copy, monkeypatch):
        monkeypatch.setattr(verify, "execute", None)
        files = [file for file in sorted(copy.rglob("*")) if file.is_file() and file.name != "summary.json"]
        assert len(files) > 20
        for file in files:
            content = file.read_bytes()
            for other in (content[:-3], content[:-1] + bytes([content[-1] ^ 1]), None):
                file.unlink() if other is None else file.write_bytes(other)
                with pytest.raises(FredError) if file.name == "manifest.json" else contextlib.nullcontext():
                    verdict, message = verify.verify(copy)
                    assert verdict == verify.Verdict.CANNOT
                    assert file.name in message
                file.write_bytes(content)
        schedule = copy / "ssgd" / "seed-1" / "schedule.parquet"
        loaded = Schedule.load(schedule)
        dataclasses.replace(loaded, started=loaded.started + 1).save(schedule)
        message = f"{schedule} is not the file that was written (its digest differs): {stored.RESTORE}"
        assert verify.verify(copy) == (verify.Verdict.CANNOT, message)
