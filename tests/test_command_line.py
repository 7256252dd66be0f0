"""The program as its users meet it: exit codes, files, what is written and above all what is not."""

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
import pandas as pd
import pytest

from fred.base.errors import FredError
from fred.commands import cli
from fred.outcomes.outcome import digest
from fred.results import figure_files, verify
from fred.results.experiment import run as fred_run
from fred.running import work
from fred.schedule.schedule import Schedule
from fred.specification.loading import load
from fred.views import curves
from tests.conftest import ROOT
from tests.folders import resigned

SMALL = """
title: small
seeds: [1, 2]
task: {data: {name: synthetic-classification, examples: 300, evaluation: 100}, model: {name: mlp, hidden: [5]}, batch_size: 4}
cluster: {workers: 3, compute: {name: exponential, scale: 0.1}}
stop: {gradients: 50}
evaluate: {points: 4, target_error: 0.8}
runs:
  asgd: {algorithm: {name: asgd, learning_rate: 0.1}}
  ssgd: {algorithm: {name: ssgd, learning_rate: 0.1}}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    """A folder in which the small scenario has been run, by a process of its own."""
    base = tmp_path_factory.mktemp("done")
    (base / "small.yaml").write_text(SMALL)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    finished = subprocess.run(
        [sys.executable, "-m", "fred", "run", "small.yaml"],
        cwd=base,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "asgd" in finished.stdout
    assert "results/small" in finished.stdout
    return base


def test_result_folder_has_the_stable_format(done):
    out = done / "results" / "small"
    assert sorted(path.name for path in out.iterdir()) == [
        "asgd",
        "figures",
        "manifest.json",
        "paired.csv",
        "report.html",
        "ssgd",
        "summary.csv",
        "summary.json",
    ]
    rows = json.loads((out / "summary.json").read_text())
    assert [(row["name"], row["seed"]) for row in rows] == [("asgd", 1), ("asgd", 2), ("ssgd", 1), ("ssgd", 2)]
    for row in rows:
        files = out / row["name"] / f"seed-{row['seed']}"
        schedule = Schedule.load(files / "schedule.parquet")
        assert schedule.digest() == row["digests"]["schedule"]
        frame, metrics = pd.read_parquet(files / "schedule.parquet"), pd.read_parquet(files / "metrics.parquet")
        assert row["gradients"]["applied"] == frame["verb"].isin(["PUSH", "ADD"]).sum()
        assert row["staleness"]["max"] == frame["staleness"].max()
        assert row["virtual_seconds"] == pytest.approx(frame["time_ns"].max() / 1e9)
        assert (row["loss"], row["error"]) == tuple(metrics[["loss", "error"]].iloc[-1])
        reached = metrics[metrics["error"] <= 0.8]
        assert row["target"]["updates"] == reached["updates"].iloc[0]
        assert metrics["updates"].is_monotonic_increasing
        np.testing.assert_allclose(pd.read_csv(files / "metrics.csv"), metrics)
        with np.load(files / "params.npz", allow_pickle=False) as params:
            assert {name.split("/")[0] for name in params.files} == {"initial", "final"}
    figures = {path.name for path in (out / "figures").iterdir()}
    drawn = ("loss", "error", "paired", "staleness", "throughput", "timeline", "traffic", "workers-time")
    assert figures == {f"{name}.svg" for name in drawn}
    environment = json.loads((out / "manifest.json").read_text())["environment"]
    assert {"jax", "numpy", "PJRT_NPROC", "XLA_FLAGS", "backend"} <= environment.keys()


def test_running_again_gives_the_same_bytes_but_for_dates_and_times(done, tmp_path):
    assert cli.main(["run", str(done / "small.yaml"), "--out", str(tmp_path / "again")]) == 0
    first, again = (json.loads((out / "manifest.json").read_text()) for out in (done / "results/small", tmp_path / "again"))
    assert first["files"].keys() == again["files"].keys()
    same = {name for name, digest in first["files"].items() if again["files"][name] == digest}
    assert {name for name in first["files"] if name not in same} == {name for name in first["files"] if "unit.json" in name}
    assert all(first[name] == again[name] for name in ("scenario", "data", "environment", "fred", "inline"))


@pytest.mark.usefixtures("undrawn")
def test_options_choose_seed_run_and_mode(done, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", str(done / "small.yaml"), "--seed", "2", "--only", "ssgd", "--inline", "--set", "title=x"]) == 0
    (row,) = json.loads((tmp_path / "results/small.ssgd/summary.json").read_text())
    whole = json.loads((done / "results/small/summary.json").read_text())
    assert row == next(each for each in whole if (each["name"], each["seed"]) == ("ssgd", 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere.yaml"], "cannot read nowhere.yaml"),
        (["run", "small.yaml", "--set", "cluster.workers=0"], "--set cluster.workers=0: found 0"),
        (["run", "small.yaml", "--only", "sgd"], "no run `sgd`; did you mean `ssgd`?; there are asgd, ssgd"),
        (["run", "small.yaml", "--set", "task.data=mnist"], "set `directory:` in the scenario, or the variable FRED_DATA"),
        (["run", "small.yaml", "--out", "."], "exists and is not a result folder"),
        (["run", "small.yaml", "--jobs", "none"], "found 'none'; expected a number of processes, or `all`"),
        (["run", "small.yaml", "--out", "small.yaml/sub"], "cannot write small.yaml/sub: Not a directory; choose another"),
        (["run", "small.yaml", "--out", "/proc/x"], "cannot write /proc/x"),
        (["run", "small.yaml", "--out", "x" * 250], "File name too long"),
        (["verify", "nowhere"], "nowhere is not a result folder"),
    ],
)
def test_what_the_user_can_mend_is_said_in_one_line_and_costs_nothing(monkeypatch, tmp_path, capsys, arguments, message):
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRED_DATA", "")
    with pytest.raises(SystemExit) as ended:
        sys.exit(cli.main(arguments))  # unless argparse does
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert message in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.yaml"], "something was written"


@pytest.mark.usefixtures("undrawn")
def test_divergence_is_told(done, tmp_path, capsys):
    rates = ["--set", "runs.asgd.algorithm.learning_rate=1e30"]
    assert cli.main(["run", str(done / "small.yaml"), "--seed", "1", *rates, "--out", str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "loss diverged" in said
    assert "asgd diverged: with 1 of 1 seeds its loss is no longer a finite number, first seen after" in said
    assert "ssgd diverged" not in said
    rows = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert {row["name"]: row["diverged"] is not None for row in rows} == {"asgd": True, "ssgd": False}


def test_a_reader_may_leave_early():
    pipe = f"{sys.executable} -m fred list | true; exit ${{PIPESTATUS[0]}}"
    finished = subprocess.run(["bash", "-c", pipe], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (141, "")
    full = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m fred list > /dev/full"], cwd=ROOT, capture_output=True, check=False
    )
    assert (full.returncode, full.stderr) == (2, b"fred: cannot write: No space left on device\n")


def test_a_pipe_is_no_scenario(monkeypatch, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.yaml")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "pipe.yaml"]) == 2
    assert capsys.readouterr().err == "fred: cannot read pipe.yaml: it is not a file\n"


def test_an_error_in_the_middle_leaves_the_old_result_alone_and_keeps_what_is_done(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    assert cli.main(["run", "small.yaml", "--seed", "1"]) == 0
    before = (tmp_path / "results/small/summary.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(figure_files, "drawn", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert cli.main(["run", "small.yaml", "--seed", "2"]) == 130
    assert "interrupted; 2 of 2 units are kept; the same command goes on from there" in capsys.readouterr().err
    assert (tmp_path / "results/small/summary.json").read_bytes() == before
    monkeypatch.setattr(work, "execute", None)
    assert cli.main(["run", "small.yaml", "--seed", "2"]) == 0
    assert "2 of 2 runs were finished before and reused" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["small"]


@pytest.mark.usefixtures("undrawn")
def test_odd_titles_names_and_places_are_taken_as_they_are(monkeypatch, tmp_path, capsys):
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "real")
    title = "$_{$ a [red] b [/x]"
    options = ["--seed", "1", "--only", "asgd", "--only", "asgd", "--set", "stop.gradients=5"]
    assert cli.main(["run", "../small.yaml", *options, "--set", f"title={title}", "--out", "."]) == 0
    assert title in capsys.readouterr().out
    assert Path.cwd().samefile(os.curdir)  # not in the folder that was replaced
    assert cli.main(["run", "../small.yaml", *options, "--out", str(tmp_path / "link")]) == 0
    assert Path.cwd().samefile(os.curdir)
    assert len(json.loads((tmp_path / "real/summary.json").read_text())) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real", "small.yaml"]


def test_one_run_can_be_asked_for_by_its_name_and_a_loss_needs_a_task(tmp_path):
    (tmp_path / "small.yaml").write_text(SMALL)
    result = fred_run(load(tmp_path / "small.yaml", ["task=null", "evaluate={points: 4}", "seeds=[1]"]), only="asgd")
    assert [outcome.name for outcome in result.outcomes] == ["asgd"]
    with pytest.raises(FredError, match="there is no loss to plot: the scenario has no `task`"):
        result.plot("loss")


@pytest.mark.parametrize("number", [1, 8, 9])
def test_every_run_is_named_at_the_end_of_its_line_or_in_a_legend(number):
    one = {"seed": 0, "virtual_seconds": [0.0, 1.0], "updates": [0, 1], "loss": [2.0, 1.0]}
    frame = pd.concat([pd.DataFrame({"run": f"_odd-{i}", **one}) for i in range(number)])
    picture = curves.learning(frame, "loss", "")
    texts = picture.legends[0].get_texts() if picture.legends else picture.axes[-1].texts
    assert sorted(text.get_text() for text in texts if text.get_text()) == [f"_odd-{i}" for i in range(number)]
    assert bool(picture.legends) == (number > 8)


def test_too_little_memory_is_said_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr("fred.commands.listing.run", lambda _: np.zeros(2**62, np.int8))
    assert cli.main(["list"]) == 2
    assert capsys.readouterr().err.startswith("fred: not enough memory: Unable to allocate")


def test_interrupting_a_long_run_leaves_nothing(tmp_path):
    (tmp_path / "small.yaml").write_text(SMALL)
    command = [sys.executable, "-m", "fred", "run", "small.yaml", "--set", "stop.gradients=3000000"]
    heeded = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # the child inherits what a parent in the background ignores
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)
    signal.signal(signal.SIGINT, heeded)
    while process.poll() is None and not list(tmp_path.glob("results/.*")):
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted; nothing was " in error
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["run", "--help"], ["--version"]])
def test_help_and_list_do_not_load_jax(arguments):
    program = f"import sys, fred.commands.cli\ntry: fred.commands.cli.main({arguments})\nexcept SystemExit: pass\nprint('jax' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert finished.stdout.strip().endswith("False")


class TestVerify:
    @pytest.fixture
    def copy(self, done, tmp_path) -> Path:
        subprocess.run(["cp", "-r", str(done / "results" / "small"), str(tmp_path / "small")], check=True)
        return tmp_path / "small"

    def test_the_same_machine_gives_the_same_bits(self, done, monkeypatch, capsys):
        """In another process than the one that ran it."""
        monkeypatch.chdir(done)
        assert cli.main(["verify", "results/small"]) == 0
        assert capsys.readouterr().out == "results/small: 4 runs, all digests the same\n"

    def test_a_difference_in_timing_is_told_with_its_first_row(self, copy, capsys):
        files = copy / "ssgd" / "seed-1"
        frame = Schedule.load(files / "schedule.parquet")
        columns = {**frame.columns, "time_ns": frame["time_ns"].copy()}
        columns["time_ns"][17] += 5
        changed = dataclasses.replace(frame, columns=columns)
        changed.save(files / "schedule.parquet")
        self._set_digest(copy, "schedule", changed.digest())
        resigned(copy)
        assert cli.main(["verify", str(copy)]) == 1
        assert "ssgd/seed-1: timing differs: first at row 17" in capsys.readouterr().err

    def test_a_difference_in_arithmetic_is_told_with_its_first_evaluation(self, copy, capsys):
        files = copy / "ssgd" / "seed-1"
        with np.load(files / "params.npz") as stored:
            arrays = {name: stored[name] + np.float32(0.5) for name in stored.files}
        np.savez(files / "params.npz", **arrays)
        final = {name.removeprefix("final/"): array for name, array in arrays.items() if name.startswith("final/")}
        self._set_digest(copy, "params", digest(final))
        path = files / "metrics.parquet"
        metrics: Any = pd.read_parquet(path)
        metrics.loc[2, "loss"] *= 1.0001
        metrics.to_parquet(path)
        resigned(copy)
        assert cli.main(["verify", str(copy)]) == 1
        assert "ssgd/seed-1: arithmetic differs, timing is the same: first at evaluation 2" in capsys.readouterr().err

    def test_another_environment_cannot_be_compared_and_is_described(self, copy, monkeypatch, capsys):
        monkeypatch.setenv("PJRT_NPROC", "2")
        assert cli.main(["verify", str(copy)]) == 2
        assert "PJRT_NPROC: recorded '1', here '2'" in capsys.readouterr().err

    def test_other_data_cannot_be_compared(self, copy, capsys):
        manifest = json.loads((copy / "manifest.json").read_text())
        manifest["data"]["asgd/seed-1"] = "0" * 64
        (copy / "manifest.json").write_text(json.dumps(manifest))
        resigned(copy)
        assert cli.main(["verify", str(copy)]) == 2
        assert "the data are not the recorded ones" in capsys.readouterr().err

    def test_an_altered_file_is_noticed_before_anything_runs(self, copy, monkeypatch):
        monkeypatch.setattr(verify, "execute", None)
        files = copy / "ssgd" / "seed-1"
        schedule = Schedule.load(files / "schedule.parquet")
        dataclasses.replace(schedule, started=schedule.started + 1).save(files / "schedule.parquet")
        said = f"{files / 'schedule.parquet'} is not the file that was written (its digest differs); was it changed?"
        assert verify.verify(copy) == (verify.Verdict.CANNOT, said)

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda out: (out / "manifest.json").write_text("[]"), "not a whole result folder: Manifest"),
            (lambda out: (out / "manifest.json").write_text('{"format": 8}'), "Manifest fred: Field required"),
            (lambda out: (out / "manifest.json").write_text("[" * 100_000), "is not a result folder"),
            (lambda out: (out / "summary.json").write_text("[]"), "do not name the same runs"),
            (
                lambda out: (out / "summary.json").write_text(
                    (out / "summary.json").read_text().replace('"asgd",', '"other",', 1)
                ),
                "do not name the same runs",
            ),
        ],
    )
    def test_a_damaged_folder_is_refused(self, copy, damage, message):
        damage(copy)
        with pytest.raises(FredError, match=message):
            verify.verify(copy)

    def test_whatever_file_is_changed_cut_or_removed_is_named(self, copy, monkeypatch):
        monkeypatch.setattr(verify, "execute", None)
        files = [file for file in sorted(copy.rglob("*")) if file.is_file() and file.name != "summary.json"]
        assert len(files) > 20
        for file in files:
            content = file.read_bytes()
            for other in (content[:-3], content.replace(b"1", b"2", 1), None):
                file.unlink() if other is None else file.write_bytes(other)
                try:
                    verdict, said = verify.verify(copy)
                except FredError as error:
                    assert file.name == "manifest.json", error
                else:
                    assert verdict == verify.Verdict.CANNOT
                    assert file.name in said
                file.write_bytes(content)

    def test_another_format_is_refused(self, copy, capsys):
        (copy / "manifest.json").write_text('{"format": 99}')
        assert cli.main(["verify", str(copy)]) == 2
        assert "this version reads format 8" in capsys.readouterr().err

    @staticmethod
    def _set_digest(out: Path, which: str, digest: str | None) -> None:
        rows = json.loads((out / "summary.json").read_text())
        next(row for row in rows if (row["name"], row["seed"]) == ("ssgd", 1))["digests"][which] = digest
        (out / "summary.json").write_text(json.dumps(rows))
