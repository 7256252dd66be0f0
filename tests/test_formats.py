"""Logs that trackers export: each shows the slow worker and its factor; columns that are no times are refused."""

import base64
import json
import re
import sqlite3
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fred.base.errors import FredError
from fred.fitting import measurements
from fred.tables import records
from fred.tables.content import Content
from fred.traces import formats
from fred.traces.doubts import find_doubt
from fred.traces.reading import read
from fred.traces.roles import UnclearTraceError
from tests.conftest import ROOT

STEPS, RANKS = 12, 3
SECONDS = np.random.default_rng(3).lognormal(-1, 0.1, (STEPS, RANKS)).round(6) * [1, 1.5, 1]
NAMES = [f"rank-{rank}" for rank in range(RANKS)]


def frame(rank: int) -> pd.DataFrame:
    """The log of one rank, with what every logger adds."""
    steps = np.arange(STEPS)
    return pd.DataFrame({"step": steps, "time": SECONDS[:, rank], "loss": 3 / (1 + steps), "wall": 1.7e9 + 0.6 * steps})


def tensorboard(folder: Path) -> None:
    for rank in range(RANKS):
        log = frame(rank)[["wall", "step", "time"]].set_axis(["Wall time", "Step", "Value"], axis=1)
        log.to_csv(folder / f"run-rank-{rank}-tag-perf_step_time.csv", index=False)


def chart(folder: Path) -> None:
    columns: dict[str, Any] = {"Step": np.arange(STEPS)}
    for rank in range(RANKS):
        for ending in ("", "__MIN", "__MAX"):
            columns[f"rank-{rank} - perf/step_time{ending}"] = SECONDS[:, rank]
    pd.DataFrame(columns).astype(str).to_csv(folder / "wandb_export.csv", index=False, quoting=1)


def history(folder: Path) -> None:
    for rank in range(RANKS):
        rows = []
        for step, seconds in enumerate(SECONDS[:, rank].tolist()):
            row = {"_step": step, "_runtime": 3 + 0.6 * step, "_timestamp": 1.7e9 + step}
            rows += [{**row, "perf/step_time": seconds}, {**row, "train/loss": 1.0, "system.gpu.0.temp": 60}]
        (folder / f"rank-{rank}.jsonl").write_text("\n".join(map(json.dumps, rows)))


def runs_of_the_api(folder: Path) -> None:
    rows = [{"run": name, "_step": step, "_runtime": 0.6 * step, "_timestamp": 1.7e9, "step_time": SECONDS[step, rank]}
            for rank, name in enumerate(NAMES) for step in range(STEPS)]  # fmt: skip
    pd.DataFrame(rows)[["_step", "_runtime", "_timestamp", "step_time", "run"]].to_csv(folder / "history.csv", index=False)


def mlflow_rows(folder: Path) -> None:
    rows = [(name, metric, value, step, 1.7e12) for rank, name in enumerate(NAMES) for step in range(STEPS)
            for metric, value in (("step_time", SECONDS[step, rank]), ("loss", 2.5))]  # fmt: skip
    pd.DataFrame(rows, columns=["run_id", "key", "value", "step", "timestamp"]).to_csv(folder / "metrics.csv", index=False)


def mlflow_files(folder: Path) -> None:
    for rank, name in enumerate(NAMES):
        place = folder / name / "metrics" / "step_time"
        place.parent.mkdir(parents=True)
        place.write_text("".join(f"{1700000000000 + step} {seconds} {step}\n" for step, seconds in enumerate(SECONDS[:, rank])))


def progress(folder: Path) -> None:
    for rank, name in enumerate(NAMES):
        log = pd.DataFrame({"time_this_iter_s": SECONDS[:, rank], "training_iteration": np.arange(1, STEPS + 1)})
        log.assign(time_total_s=log["time_this_iter_s"].cumsum(), timestamp=1700000000, pid=7, hostname="a", loss=1.0).to_csv(
            folder / f"{name}.csv", index=False
        )


def result_json(folder: Path) -> None:
    for rank, name in enumerate(NAMES):
        rows = [{"loss": 1.0, "timestamp": 17, "time_this_iter_s": seconds, "time_total_s": 9.0 * step, "training_iteration": step,
                 "config": {"lr": 0.1}} for step, seconds in enumerate(SECONDS[:, rank].tolist())]  # fmt: skip
        (folder / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))


def clearml(folder: Path) -> None:
    series = {name: {"name": name, "x": [*range(STEPS)], "y": SECONDS[:, rank].tolist()} for rank, name in enumerate(NAMES)}
    losses = {name: {"name": name, "x": [0, 1], "y": [2.5, 2.0]} for name in NAMES}
    (folder / "scalars.json").write_text(json.dumps({"loss": losses, "step_time": series}))


def prometheus(folder: Path) -> None:
    series = [{"metric": {"__name__": "step_time", "rank": name}, "values": [[1.7e9 + 15 * step, str(seconds)]
              for step, seconds in enumerate(SECONDS[:, rank])]} for rank, name in enumerate(NAMES)]  # fmt: skip
    answer = {"status": "success", "data": {"resultType": "matrix", "result": series}}
    (folder / "range.json").write_text(json.dumps(answer))


def lightning(folder: Path) -> None:
    for rank, name in enumerate(NAMES):
        log = frame(rank)[["step", "loss"]].assign(epoch=0, step_time=SECONDS[:, rank])
        log.columns = ["step", "train_loss", "epoch", "perf/step_time"]
        log.to_csv(folder / f"{name}.csv", index=False)


FORMATS: dict[Callable[[Path], None], tuple[str, bool]] = {  # note, and whether the log gives the unit
    tensorboard: ("TensorBoard export: a run in each file, its times in `perf_step_time`", False),
    chart: ("Weights & Biases, chart: a run in each column, its times in `perf/step_time`", False),
    history: ("Weights & Biases, history: a run in each file, its times in `perf/step_time`", False),
    runs_of_the_api: ("Weights & Biases, history: a run in each value of `run`, its times in `step_time`", False),
    mlflow_rows: ("rows of metrics: step times in `key` = `step_time`", False),
    mlflow_files: ("MLflow: a run in each folder, its times in `step_time`", False),
    clearml: ("rows of metrics: step times in `metric` = `step_time`", False),
    prometheus: ("rows of metrics: step times in `metric` = `step_time`", False),
    progress: ("Ray: a worker for each file", True),
    result_json: ("Ray: a worker for each file", True),
    lightning: ("no column names workers: each file is one worker's", False),
}


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
def test_the_times_of_each_rank_come_out_of_the_log(write, tmp_path):
    write(tmp_path)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    note, has_unit = FORMATS[write]
    if not has_unit:
        with pytest.raises(UnclearTraceError, match="in which unit are the times") as refused:
            read(*files)
        assert (dict(refused.value.options), refused.value.works) == ({"unit": "s"}, True)
    options: dict[str, Any] = {} if has_unit else {"unit": "s"}
    trace = read(*files, **options)
    np.testing.assert_allclose(trace.seconds, SECONDS, rtol=1e-12)
    assert tuple(name.removeprefix("rank=") for name in trace.workers) == tuple(NAMES)
    assert any(line.startswith(note) for line in trace.notes)


def test_the_metric_of_a_chart_that_may_be_a_time_is_proposed(tmp_path):
    """The other one is a loss."""
    chart(tmp_path)
    text = (tmp_path / "wandb_export.csv").read_text()
    losses = ['"rank-0 - train/loss","rank-0 - train/loss__MIN","rank-0 - train/loss__MAX"', *['"2","2","2"'] * STEPS]
    rows = [f"{row},{loss}" for row, loss in zip(text.replace("step_time", "fwd_bwd").splitlines(), losses, strict=True)]
    (tmp_path / "wandb_export.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(UnclearTraceError, match="none of its metrics is known to be a step time") as refused:
        read(tmp_path / "wandb_export.csv")
    assert dict(refused.value.options) == {"columns": {"time": "perf/fwd_bwd"}, "unit": "s"}
    np.testing.assert_allclose(read(tmp_path / "wandb_export.csv", **refused.value.options).seconds, SECONDS, rtol=1e-12)


def test_runs_of_a_name_that_is_not_known_are_proposed_as_workers(tmp_path):
    """Comet's API writes these rows; the moments in `timestamp` are no starts of operations."""
    rows = [{"metricName": metric, "metricValue": str(value), "timestamp": 1772000000000 + step, "step": step, "runContext": name}
            for step in range(STEPS) for rank, name in enumerate(NAMES)
            for metric, value in (("step_time_s", SECONDS[step, rank]), ("loss", 2.5))]  # fmt: skip
    (tmp_path / "metrics.json").write_text(json.dumps(rows))
    with pytest.raises(UnclearTraceError, match="67% of the rows repeat") as refused:
        read(tmp_path / "metrics.json")
    assert refused.value.works
    trace = read(tmp_path / "metrics.json", **refused.value.options)
    np.testing.assert_allclose(trace.seconds, SECONDS, rtol=1e-12)
    assert read(tmp_path / "metrics.json", columns={"worker": "runContext"}).workers == tuple(NAMES)


def test_a_slow_loader_shows_in_tracemls_phases_although_all_steps_are_equal(tmp_path):
    """Ranks that load sooner wait longer in the backward pass."""
    loading = SECONDS * 1e3
    backward = 50 + loading.max(axis=1, keepdims=True) - loading
    with sqlite3.connect(tmp_path / "telemetry") as base:
        base.execute(
            "CREATE TABLE step_time_samples(id INTEGER PRIMARY KEY AUTOINCREMENT, global_rank INT, step INT, events_json TEXT)"
        )
        for step, rank in np.ndindex(STEPS, RANKS):
            phases = {"dataloader_next": loading[step, rank], "backward_time": backward[step, rank], "step_time": 1.0}
            clocks = {name: {"cuda:0": {"duration_ms": 1.0, "gpu_ms": value}} for name, value in phases.items()}
            events = json.dumps({f"_traceml_internal:{name}": value for name, value in clocks.items()})
            base.execute("INSERT INTO step_time_samples VALUES (NULL, ?, ?, ?)", (rank, step, events))
    base.close()
    trace = read(tmp_path / "telemetry")
    np.testing.assert_allclose(trace.seconds, SECONDS + 0.05, rtol=1e-9)
    assert trace.workers == ("0", "1", "2")


def test_a_table_of_workers_may_have_units_in_some_columns(tmp_path):
    (tmp_path / "times.csv").write_text("step,gpu0,gpu1\n" + "".join(f"{i},1.{i} s,{2000 + i}\n" for i in range(9)))
    seconds = read(tmp_path / "times.csv", unit="ms").seconds
    np.testing.assert_allclose(seconds, [[1 + i / 10, 2 + i / 1000] for i in range(9)])


def test_a_dashboards_columns_are_workers_with_their_labels_and_units(tmp_path):
    """Grafana writes dates, and labels with commas in the header."""
    header = ",".join(['"Time"', *(f'"{{rank=""{rank}"", job=""llm""}}"' for rank in range(RANKS))])
    rows = [
        ",".join([f"2026-02-25 10:00:{step:02d}", *(f"{1e3 * cell:.3f} ms" for cell in SECONDS[step])]) for step in range(STEPS)
    ]
    (tmp_path / "panel.csv").write_text("\n".join([header, *rows]) + "\n")
    trace = read(tmp_path / "panel.csv")
    np.testing.assert_allclose(trace.seconds, SECONDS, atol=1e-6)
    assert trace.workers[1] == '{rank="1", job="llm"}'


def test_phases_of_each_rank_are_added_up_and_are_no_workers(tmp_path):
    paths = [tmp_path / f"{name}.csv" for name in NAMES]
    for rank, path in enumerate(paths):
        columns = {"step": np.arange(STEPS), "forward_s": SECONDS[:, rank] / 4, "backward_s": SECONDS[:, rank] * 3 / 4}
        pd.DataFrame(columns).to_csv(path, index=False)
    with pytest.raises(UnclearTraceError, match="forward_s, backward_s are phases of a step") as refused:
        read(*paths)
    assert refused.value.works
    trace = read(*paths, **refused.value.options)
    np.testing.assert_allclose(trace.seconds, SECONDS, rtol=1e-12)
    assert trace.workers == tuple(NAMES)


def test_times_of_an_unknown_name_among_rows_of_other_calls_are_proposed(tmp_path):
    """Lightning's CSVLogger writes the memory of each step in a separate row."""
    paths = [tmp_path / f"version_{rank}" / "metrics.csv" for rank in range(RANKS)]
    for rank, path in enumerate(paths):
        memory = pd.DataFrame({"memory/allocated_bytes": 1.0e9, "epoch": np.nan, "step": np.arange(STEPS)})
        times = pd.DataFrame({"epoch": 0, "step": np.arange(STEPS), "model_time": SECONDS[:, rank]})
        path.parent.mkdir()
        pd.concat([memory, times]).sort_values("step", kind="stable").to_csv(path, index=False)
    with pytest.raises(UnclearTraceError, match="nothing in column `epoch`") as refused:
        read(*paths)
    assert refused.value.works
    trace = read(*paths, **refused.value.options)
    np.testing.assert_allclose(trace.seconds, SECONDS, rtol=1e-12)


def test_rows_of_another_metric_are_chosen_by_the_user(tmp_path):
    mlflow_rows(tmp_path)
    text = (tmp_path / "metrics.csv").read_text().replace("step_time", "cost")
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(UnclearTraceError, match=r"which `key` has the times of steps\? It has cost, loss") as refused:
        read(tmp_path / "metrics.csv")
    assert dict(refused.value.options) == {"only": {"key": "cost"}, "unit": "s"}
    np.testing.assert_allclose(read(tmp_path / "metrics.csv", only={"key": "cost"}, unit="s").seconds, SECONDS, rtol=1e-12)


# By tensorboardX 2.6 (a loss and a step time), and by tensorboard 2.21 as TensorFlow does, each step with another kind of tensor.
EVENTS = {
    "rank0": "eNqTYICAxfXeSpx6/LviTx665SjFm1SUmJmn51qWmldiZfTJNvmJBLK64zsh6rR4ubi5WHLyi4tFgVIOU5nfzJWFqkvQv6/MOWcfVJ0QlwAXZ3FJakF"
    "8SWZuKlBxg13VLuFlUlDFQrNv6HKyHIYoFmBEMbbBPnD2OQ55qMpAbxcJzgaESgyDGexX9DfnoRj8CKacCdW9DHladcdQDLY/AleJYfABOz7dhCkA4vZV9A==",
    "rank1": "eNrzYICAf5M85nLq9p+KP3nolqMUb1JRYmaenmtZal6JlVGQHpdOSWpecX5RUn5iUYpecWlubmJRpV55UWZJapFeKkhVfFpmTmo8VESBXUIJam6FoO1fTiD"
    "t8CfkpqOWOJcoF2dxSWpBfElmbqoTBwejFgtQzj5sj9QtFagOJ+0GX6AOB7AOAUYsepSAehjsUyVnWWlA9fwvEPMC6mmA6GHSkuaSRNbDw8FkxAFR+cR+j7FBFwA63kKc",
}


@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "last record cut off"])
def test_event_files_of_tensorboard_are_read_without_it_whatever_wrote_them(is_cut, tmp_path):
    for number, (run, packed) in enumerate(EVENTS.items()):
        data = zlib.decompress(base64.b64decode(packed))
        (tmp_path / run).mkdir()
        (tmp_path / run / f"events.out.tfevents.1795892606.host{number}.{number}").write_bytes(data[:-9] if is_cut else data)
    trace = read(tmp_path, unit="s")
    assert trace.workers == ("rank0", "rank1")
    assert trace.seconds.tolist() == [[0.25, 0.75], [0.5, 0.5], [0.375, 0.625]][: 2 if is_cut else 3]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run-a-tag-loss.csv", "Wall time,Step,Value\n1.7e9,0,2.5\n1.7e9,1,2.4\n", "export of the tag `loss`; expected"),
        ("loss", "1700000000000 2.5 0\n1700000000001 2.4 1\n", "MLflow's file of the metric `loss`"),
        ("metrics.csv", "epoch,step,train_loss,val_acc\n0,0,2.5,.1\n0,1,2.4,.2\n", "has no column of times; .* record the own time of each rank"),
        ("h.jsonl", '{"_step": 0, "_runtime": 1.5, "loss": 2}\n{"_step": 1, "_runtime": 2.5, "loss": 1}\n', "which metric has the times"),
        ("events.out.tfevents.17.host", "", "is an event file without scalars"),
        ("events.out.tfevents.17.host", "\x05" + 7 * "\0" + "crc4" + "\x2a\x09abc" + "crc4", "no event file of TensorBoard, or a damaged one"),
        ("w.csv", "a,b\n" + "".join(f"{1.7e9 + 1.7 * i},{0.5 + i % 2}\n" for i in range(20)), "a only grows, like a moment or a counter"),
        ("elapsed_time_ms_forward.csv", "step,elapsed_time_ms_forward\n1,9.5\n2,9.25\n", "is a phase of a step, not a worker's times; record the own time"),
        ("trainer_state.json", json.dumps({"log_history": [{"loss": 1.5, "step": 10}, {"step": 10, "train_runtime": 9.5,
            "train_steps_per_second": 2.5, "total_flos": 1e15}]}), "has no column of times; .* record the own time of each rank"),
        ("dmon.txt", "#Entity   GPUTL  SMACT\nID\nGPU 0     95     0.71\nGPU 1     93     0.82\n", "DCGM, which has the use of GPUs"),
        ("runs.csv", "Start Time,Duration,Run ID,Name,Source Type,rank,step_time\n2026-01-01,1.2h,a7,rank-0,LOCAL,0,.5\n", "is a list of runs"),
        ("runs.csv", "run_id,experiment_id,status,artifact_uri,metrics.step_time\na7,0,FINISHED,/a,.5\n", "is a list of runs"),
        ("dstat.csv", "time,usr,sys,recv,send\n2026-01-01 10:00:00,40,2,9,8\n2026-01-01 10:00:01,41,2,9,8\n", "has no column of times; .* record the own"),
        ("w.csv", "tokens_seen,rank0\n9000,.5\n9000,.6\n", "in which unit"),
        ("w.csv", "queue,rank0\n9000,.5\n9000,.6\n", "queue is .* times rank0, so they are not times of the same step"),
    ],
)  # fmt: skip
def test_what_is_no_time_of_a_step_is_refused_and_no_command_is_proposed(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(FredError, match=message) as refused:
        read(tmp_path / name)
    if "unit" not in message:
        assert not getattr(refused.value, "fix", ())


def rates(folder: Path) -> None:
    """Samples per second, which are small where steps are long."""
    rows = [(step, rank, 8 / SECONDS[step, rank]) for step in range(STEPS) for rank in range(RANKS)]
    pd.DataFrame(rows, columns=["step", "rank", "samples_per_sec"]).to_csv(folder / "rates.csv", index=False)
    wide = pd.DataFrame({f"{name} - perf/throughput": 8 / SECONDS[:, rank] for rank, name in enumerate(NAMES)})
    wide.assign(**{f"{NAMES[0]} - perf/throughput{end}": 1.0 for end in ("__MIN", "__MAX")}).to_csv(
        folder / "chart.csv", index_label="Step"
    )
    for rank, name in enumerate(NAMES):
        scalar = pd.DataFrame({"Wall time": 1.7e9, "Step": range(STEPS), "Value": 8 / SECONDS[:, rank]})
        scalar.to_csv(folder / f"run-{name}-tag-perf_tokens_per_sec.csv", index=False)


@pytest.mark.parametrize("files", ["rates.csv", "chart.csv", "run-*.csv"])
def test_of_rates_the_inverse_counts_so_a_slow_rank_is_slow(tmp_path, files):
    rates(tmp_path)
    trace = read(*sorted(tmp_path.glob(files)))
    np.testing.assert_allclose(trace.seconds, SECONDS / 8, rtol=1e-9)
    assert any("factors between workers are right, seconds are not" in note for note in trace.notes)


def test_a_chart_of_another_metric_is_read_as_times_only_if_the_user_names_it(tmp_path):
    for metric, is_proposed in (("loss", False), ("cost", True)):
        columns = {
            f"{name} - {metric}{end}": SECONDS[:, rank] for rank, name in enumerate(NAMES) for end in ("", "__MIN", "__MAX")
        }
        pd.DataFrame(columns).to_csv(tmp_path / "chart.csv", index_label="Step")
        with pytest.raises(FredError, match=f"none of its metrics is known to be a step time: {metric}") as refused:
            read(tmp_path / "chart.csv", unit="s")
        assert getattr(refused.value, "fix", ()) == (("--columns", "time=cost") if is_proposed else ())


def test_labels_of_prometheus_other_than_the_rank_are_no_workers(tmp_path):
    values = {"0.5": SECONDS, "0.99": 3 * SECONDS}
    series = [{"metric": {"__name__": "step_seconds", "job": "a", "rank": name, "quantile": quantile},
               "values": [[1.7e9 + 15 * step, str(seconds)] for step, seconds in enumerate(times[:, rank])]}
              for quantile, times in values.items() for rank, name in enumerate(NAMES)]  # fmt: skip
    (tmp_path / "range.json").write_text(json.dumps({"data": {"resultType": "matrix", "result": series}}))
    with pytest.raises(UnclearTraceError, match="with another `quantile`") as refused:
        read(tmp_path / "range.json")
    assert (refused.value.options, refused.value.works) == ({"only": {"quantile": "0.5"}}, True)
    trace = read(tmp_path / "range.json", **refused.value.options)
    np.testing.assert_allclose(trace.seconds, SECONDS, rtol=1e-12)
    assert trace.workers == tuple(NAMES)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("rank,idle_time(us),compute_time(us),compute_time_pctg\n0,5,9,64\n1,2,12,86\n", "compute_time_pctg"),
        (
            "|  Action  |  Mean duration (s)  |  Num calls  |\n|  backward  |  0.15  |  200  |\n|  step  |  0.1  |  200  |\n",
            "calls",
        ),
        ("   ncalls  tottime  percall  cumtime  percall function\n   200  0.1  0.001  56.0  0.28  train\n", "ncalls"),
    ],
)
def test_sums_over_steps_are_refused_whatever_their_layout(tmp_path, content, word):
    (tmp_path / "summary.txt").write_text(content)
    with pytest.raises(
        FredError, match=f"has sums over many steps .`{word}`., which hide the times of steps; record"
    ) as refused:
        read(tmp_path / "summary.txt")
    assert not getattr(refused.value, "fix", ())


@pytest.mark.parametrize("cut", [False, True], ids=["with durations", "without"])
def test_dumps_of_the_flight_recorder_have_times_of_collectives_and_no_compute_times(cut, tmp_path):
    waits = SECONDS.max(axis=1, keepdims=True) - SECONDS + 0.05
    for rank in range(RANKS):
        common = {"process_group": ["0", "default_pg"], "profiling_name": "nccl:all_reduce", "is_p2p": False}
        entries = [{**common, "collective_seq_id": step + 1, "duration_ms": 1e3 * waits[step, rank]} for step in range(STEPS)]
        entries = [{key: value for key, value in entry.items() if not cut or key != "duration_ms"} for entry in entries]
        (tmp_path / f"nccl_trace_rank_{rank}.json").write_text(json.dumps({"version": "2.9", "entries": entries}))
    if cut:
        with pytest.raises(FredError, match=r"flight recorder without durations.*fred record"):
            read(tmp_path)
        return
    trace = read(tmp_path)
    np.testing.assert_allclose(trace.seconds, waits)
    assert trace.workers == ("0", "1", "2") and trace.collective == "nccl:all_reduce"
    doubt = find_doubt(trace)
    assert doubt is not None and "waits least is the slow one: worker 1" in doubt.evidence


@pytest.mark.parametrize("is_split", [False, True], ids=["one log", "a log for each rank"])
def test_deepspeeds_timers_are_numbered_for_each_rank_and_its_allreduce_is_left_out(is_split, tmp_path):
    lines = [list[str]() for _ in range(RANKS)]
    ends = SECONDS.max(axis=1)
    for (step, rank), seconds in np.ndenumerate(1e3 * SECONDS):
        if step % 10 == 0 and rank == 0:
            lines[rank].append(
                f"[INFO] [logging.py:96:log_dist] [Rank 0] step={step + 1}, skipped=0, lr=[0.1], mom=[(0.9, 0.9)]"
            )
        forward, inner, wait = seconds / 4, seconds / 2, 1e3 * ends[step] - seconds
        for suffix in ("_microstep", ""):
            timers = {"fwd": forward, "bwd": inner + wait, "bwd_inner": inner, "bwd_allreduce": wait, "step": seconds / 4}
            text = " | ".join(f"{name}{suffix}: {value:.3f}" for name, value in timers.items())
            lines[rank].append(f"[INFO] [logging.py:96:log_dist] [Rank {rank}] time (ms) | {text}")
    for rank, log in enumerate(lines):
        with (tmp_path / (f"log-{rank}.txt" if is_split else "train.log")).open("a") as file:
            file.write("\n".join(log) + "\n")
    np.testing.assert_allclose(read(tmp_path).seconds, SECONDS, atol=2e-6)


def test_files_of_a_folder_that_end_in_numbers_are_a_series(tmp_path):
    for rank in range(RANKS):
        lines = [f"step: {step}, time: {seconds:.6f} s" for step, seconds in enumerate(SECONDS[:, rank])]
        (tmp_path / f"workerlog.{rank}").write_text("\n".join(lines))
    (tmp_path / "endpoints.log").write_text("nothing\n")
    np.testing.assert_allclose(read(tmp_path).seconds, SECONDS, atol=2e-6)


def test_records_of_another_kind_without_a_time_are_left_out(tmp_path):
    for rank in range(RANKS):
        rows: list[dict[str, Any]] = [{"tracker": "json", "event": "hparams", "hparams": {"seed": 0}}]
        for step, seconds in enumerate(SECONDS[:, rank].tolist()):
            metrics = {"train/loss": 3.0, "throughput/duration": seconds, "throughput/loading_time": 0.003}
            rows.append({"tracker": "json", "event": "log", "step": step, "metrics": metrics})
        (tmp_path / f"host-{rank}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    trace = read(tmp_path, unit="s")
    np.testing.assert_allclose(trace.seconds, SECONDS)
    assert "1 rows of a file without step left out" in trace.notes


def test_a_column_of_dates_is_no_candidate_for_the_times(tmp_path):
    step, rank = (index.ravel() for index in np.indices(SECONDS.shape))
    table = pd.DataFrame({"time": 1.7776296e9 + step + 0.001 * rank, "rank": rank, "step": step, "step_time": SECONDS.ravel()})
    table.to_csv(tmp_path / "log.csv", index=False)
    np.testing.assert_allclose(read(tmp_path / "log.csv", unit="s").seconds, SECONDS)


def test_an_object_of_json_for_each_rank_has_its_times_in_a_list(tmp_path):
    ranks = {name: {"host": f"n{rank}", "step_times": SECONDS[:, rank].tolist()} for rank, name in enumerate(NAMES)}
    (tmp_path / "times.json").write_text(json.dumps(ranks))
    trace = read(tmp_path / "times.json", columns={"time": "step_times"}, unit="s")
    np.testing.assert_allclose(trace.seconds, SECONDS)
    assert trace.workers == tuple(NAMES) and trace.nodes == ("n0", "n1", "n2")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "@ mpiP\n@ Command : ./train\n@--- MPI Time (seconds) ---\nTask AppTime MPITime MPI%\n0 61.3 20.9 34.09\n",
            "report of mpiP",
        ),
        ("cycle_time_ms,tensor_fusion_threshold,score\n" + "18.4,25165824,148499107\n" * 12, "autotuning"),
    ],
    ids=["mpiP", "Horovod autotune"],
)
def test_reports_without_steps_are_refused_as_what_they_are(content, message, tmp_path):
    (tmp_path / "report.txt").write_text(content)
    with pytest.raises(FredError, match=rf"{message}.*fred record"):
        read(tmp_path / "report.txt")


@pytest.mark.parametrize(("name", "ending"), [("time", "jsonl"), ("date", "jsonl"), ("time", "csv"), ("time", "parquet")])
def test_the_command_for_begins_and_ends_writes_their_durations(name, ending, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = []
    for (step, rank), seconds in np.ndenumerate(SECONDS.round(3)):
        begin = pd.Timestamp("2026-05-01T10:00:00.001+02:00") + pd.Timedelta(seconds=3 * step)
        for event, moment in (("compute_begin", begin), ("compute_end", begin + pd.Timedelta(seconds=seconds))):
            date = moment.isoformat(timespec="milliseconds")
            rows.append({name: date, "host": f"n{rank}", "rank": rank, "event": event, "step": step})
    frame = pd.DataFrame(rows)
    if ending == "jsonl":
        frame.to_json("events.jsonl", orient="records", lines=True)
    elif ending == "csv":
        frame.to_csv("events.csv", sep=";", index=False)
    else:
        frame.to_parquet("events.parquet")
    with pytest.raises(FredError, match="its rows are events") as refused:
        read(f"events.{ending}")
    exec(re.findall(r'python -c "(.*)"`', str(refused.value))[0], {})
    np.testing.assert_allclose(read("events-2.csv").seconds, SECONDS.round(3), atol=1e-9)


def test_begins_and_ends_that_no_command_can_read_are_refused_without_one(tmp_path):
    moments = [f"2026-05-01T10:00:{second:02},{rank},compute_{kind},{second}" for second in range(9) for rank in range(2)
               for kind in ("begin", "end")]  # fmt: skip
    (tmp_path / "events.csv").write_text("time,rank,event,step\n" + "\n".join([*moments, "never,0,compute_end,9"]))
    with pytest.raises(FredError, match=r"its rows are events.*read it: by hand, because"):
        read(tmp_path / "events.csv")


RECORD = '{"_step": 1, "Run ID": 2, "State": 3, "Notes": 4, "run_id": 5, "step": [1, 2]}, '
LONG_INPUTS = [
    RECORD,
    "7",
    " ",
    ",",
    "-",
    "a1",
    "rank1",
    "\n",
    " \n",
    "1,",
    "{",
    "Run ID State run_id Instances _step ",
    '"message": "step ',
]


@pytest.mark.parametrize("word", LONG_INPUTS)
def test_all_formats_together_judge_a_megabyte_of_one_word_within_a_second(word):
    begin = "{" if word == RECORD else ""
    file = Content(Path("log.txt"), (begin + word * (1_000_000 // len(word))).encode())
    start = time.process_time()
    for reader in formats.FORMATS:
        reader.sniff(file)
    assert time.process_time() - start < 1


def test_the_page_of_logs_lists_each_format_and_has_the_title_that_messages_name(tmp_path):
    page = (ROOT / "docs" / "how-to" / "from-a-log.md").read_text(encoding="utf-8")
    names = [reader.name for reader in formats.FORMATS] + [reader.name for reader in records.FORMATS]
    names += [form.tool for form in measurements.FORMATS]
    assert set(re.findall(r"\[([^]]+)\]\(#", page.split("\n## ")[0])) == set(names)
    (tmp_path / "a.txt").write_text("nothing that is a table\nin three lines\nof different length, and more\n")
    with pytest.raises(FredError, match="see `From a log to a table` in the documentation"):
        read(tmp_path / "a.txt")
    assert "\n# From a log to a table\n" in page
