"""Traces drive clusters, and runs leave traces: a trace that is recorded, read and driven again is the same."""

import os
import re
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest

import fred
from fred import Cluster, FredError, Verb
from fred.cluster.durations import durations
from fred.cluster.network import Network
from fred.cluster.recorded import RecordedTrace
from fred.commands.cli import main
from fred.components import registry
from fred.outcomes.outcome import run_times
from fred.protocols.asynchronous import Asynchronous
from fred.running.execution import execute
from fred.tables.content import read_contents
from fred.traces import reading
from fred.traces.reading import read
from tests.worlds import fitting_protocol, make_run, record

TIMES = np.array([[1.0, 10.0, 100.0], [2.0, 20.0, 200.0], [3.0, 30.0, 300.0], [4.0, 40.0, 400.0]])


@pytest.fixture
def trace(tmp_path) -> dict[str, str]:
    """A latency: 4 iterations of 3 workers, all times different."""
    pd.DataFrame(TIMES, columns=list("abc")).to_csv(tmp_path / "trace.csv", index_label="iteration")
    return {"name": "trace", "file": str(tmp_path / "trace.csv"), "unit": "s"}


def draw_rounds(cluster: Cluster, number: int, seed: int = 0) -> np.ndarray:
    draws = durations(seed, "compute", cluster.latencies(), cluster.worker_speeds())
    return np.array([[draw() for draw in draws] for _ in range(number)]) / 1e9


def test_workers_take_what_the_trace_says(trace):
    cluster = Cluster(workers=3, compute=trace)
    assert np.array_equal(draw_rounds(cluster, 9_000), np.tile(TIMES, (2_250, 1))), "also beyond the first blocks of draws"
    assert cluster.compute.mean == TIMES.mean()
    grid = (np.arange(1200) + 0.5) / 1200
    assert np.array_equal(np.unique(cluster.compute.sample(grid)), np.unique(TIMES))
    faster = Cluster(workers=3, compute=trace, speeds=(1, 2, 4))
    assert np.array_equal(draw_rounds(faster, 4), TIMES / [1, 2, 4])


def test_rows_are_drawn_whole_and_all_as_often(trace):
    cluster = Cluster(workers=3, compute={**trace, "rows": "resampled"})
    rows = draw_rounds(cluster, 6_000)
    assert np.array_equal(rows, TIMES[rows[:, 0].astype(int) - 1])
    counts = np.bincount(rows[:, 0].astype(int))[1:]
    assert counts.min() > 1_350, "1,500 expected of each, with a deviation of 34"
    assert counts.max() < 1_650
    repeats = (np.diff(rows[:, 0]) == 0).mean()
    assert repeats == pytest.approx(0.25, abs=0.03), "independent of the row before"
    assert np.array_equal(rows, draw_rounds(cluster, 6_000)) and not np.array_equal(rows, draw_rounds(cluster, 6_000, seed=1))


def test_blocks_keep_the_order_within_them(trace):
    rows = draw_rounds(Cluster(workers=3, compute={**trace, "rows": "block", "block": 3}), 6_000)
    assert np.array_equal(rows, TIMES[rows[:, 0].astype(int) - 1])
    number = rows[:, 0].astype(int).reshape(2_000, 3)
    assert (np.diff(number, axis=1) % 4 == 1).all(), "the next row; after the last, the first"
    starts = np.bincount(number[:, 0])[1:]
    assert starts.min() > 400, "500 expected of each, with a deviation of 19"
    assert starts.max() < 600
    single = draw_rounds(Cluster(workers=3, compute={**trace, "rows": "block", "block": 1}), 500)
    assert np.array_equal(single, draw_rounds(Cluster(workers=3, compute={**trace, "rows": "resampled"}), 500))


def test_another_number_of_workers_is_refused_unless_said_how(trace):
    for workers in (2, 4):
        with pytest.raises(FredError, match=f"has 3 workers, but {workers} take .*`workers: cycled`"):
            make_run(cluster={"workers": workers, "compute": trace})
        rows = draw_rounds(Cluster(workers=workers, compute={**trace, "workers": "cycled"}), 4)
        assert np.array_equal(rows, np.hstack([TIMES, TIMES])[:, :workers])


def test_groups_may_have_traces_of_their_own(trace):
    groups = [{"workers": 2, "compute": {"name": "constant", "seconds": 7}}, {"workers": 3, "compute": trace}]
    rows = draw_rounds(Cluster(groups=groups), 4)
    assert np.array_equal(rows, np.hstack([np.full((4, 2), 7.0), TIMES]))
    cycled = {**trace, "workers": "cycled"}  # groups are compared as options, not by what has been read of the files
    grouped = {"groups": [{"workers": 2, "compute": cycled}, {"workers": 1, "speed": 2.0, "compute": cycled}]}
    assert make_run(task=None, cluster=grouped, stop={"updates": 3}).cluster == Cluster(**grouped)
    shared = Cluster(groups=[{"workers": 1}, {"workers": 2, "speed": 2}], compute=trace)
    assert np.array_equal(draw_rounds(shared, 4), TIMES / [1, 2, 2])
    with pytest.raises(FredError, match="has 3 workers, but 2 take"):
        Cluster(groups=[{"workers": 1, "compute": {"name": "constant", "seconds": 7}}, {"workers": 2}], compute=trace)


def test_messages_may_take_recorded_times_too(trace):
    schedule = record(Asynchronous(), Cluster(workers=3, network=Network(latency=trace)), gradients=3)
    pulls = schedule.rows(Verb.PULL)[:3]
    assert (schedule["end_ns"][pulls] / 1e9).tolist() == TIMES[0].tolist()
    with pytest.raises(FredError, match="has 3 workers, but 2 take"):
        Cluster(workers=2, network=Network(latency=trace))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": "block"}, "give `block`, its length, with `rows: block`"),
        ({"block": 2}, "and only then"),
        ({"rows": "block", "block": 5}, "`block` .5. must not exceed the trace's 4 iterations"),
        ({"columns": {"time": "ms"}}, r"no column `ms` \(time\); it has iteration, a, b, c"),
        ({"longest": 300}, r"trace.csv:5: iteration 3, worker c: found 400 s"),
        ({"digest": "0" * 64}, "does not hold the times that were recorded: its digest is .*, not 000"),
        ({"mend": "guess"}, "mend: found 'guess'; expected 'refuse', 'drop' or 'fill'"),
    ],
)
def test_what_cannot_be_is_refused(trace, options, message):
    with pytest.raises(FredError, match=message):
        make_run(cluster={"workers": 3, "compute": {**trace, **options}})


def test_the_file_is_read_once_and_again_when_it_has_changed(trace, monkeypatch):
    monkeypatch.setattr(reading, "read_contents", reads := MagicMock(wraps=read_contents))
    del trace["name"]
    first, second = (RecordedTrace(**trace).digest for _ in range(2))
    assert reads.call_count == 1 and second == first
    path = Path(trace["file"])
    path.write_text(path.read_text().replace("400", "401"))
    os.utime(path, ns=(1, 1))
    assert RecordedTrace(**trace).digest != first


def test_a_synchronous_run_exports_the_trace_that_drove_it_and_the_export_drives_it_again(tmp_path):
    cluster = {"workers": 8, "nodes": 2, "compute": {"name": "trace", "file": "example"}}
    example = read("example")
    options: dict[str, Any] = {"task": None, "stop": {"updates": example.iterations}}
    first = execute("run", make_run("ssgd", cluster=cluster, **options), 0)
    for name in ("out.parquet", "out.csv"):
        frame = run_times(first.schedule, first.run.cluster)
        frame.to_csv(tmp_path / name, index=False) if name.endswith("csv") else frame.to_parquet(tmp_path / name, index=False)
        exported = read(tmp_path / name)
        assert exported.digest == example.digest and exported.workers == example.workers
        assert exported.node_of is not None and exported.node_of.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
        cluster["compute"] = {"name": "trace", "file": str(tmp_path / name)}
        replayed = execute("run", make_run("ssgd", cluster=cluster, **options), 1)
        assert replayed.schedule.digest() == first.schedule.digest()


@pytest.mark.parametrize(
    "name", [name for name in registry.REGISTRY["protocol"] if registry.lookup("protocol", name).has_clock]
)
def test_every_protocol_exports_what_workers_really_drew(name):
    cluster = Cluster(workers=4, nodes=(1, 3), compute={"name": "lognormal", "median": 0.1, "sigma": 0.8})
    protocol = fitting_protocol(name, cluster)
    schedule = record(protocol, cluster, gradients=60, seed=2)
    times = run_times(schedule, cluster)
    assert len(times) >= 60
    drops = schedule.rows(Verb.DROP)
    assert (schedule["end_ns"][drops] <= schedule["time_ns"][drops]).all()
    assert len(drops) or name not in ("cutoff", "synchronous"), "also gradients that the protocol ends early"
    assert not times.duplicated(["iteration", "worker"]).any()
    assert np.array_equal(times["seconds"], draw_rounds(cluster, 400, seed=2)[times["iteration"], times["worker"]])
    assert np.array_equal(times["node"], cluster.node_of[times["worker"]])


SCENARIO = """
algorithm: {name: asgd, learning_rate: 0.1}
cluster: {workers: 3, compute: {name: trace, file: times/trace.csv, unit: s}}
stop: {gradients: 12}
"""


def test_a_result_tells_when_its_trace_is_another(tmp_path, trace, monkeypatch, capsys):
    """The file lies relative to the scenario; the manifest has its path and digest, and none of its numbers."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "here"
    (folder / "times").mkdir(parents=True)
    file = Path(trace["file"]).rename(folder / "times" / "trace.csv")
    (folder / "a.yaml").write_text(SCENARIO)
    assert main(["run", "here/a.yaml", "--out", "out"]) == 0
    manifest = (tmp_path / "out" / "manifest.json").read_text()
    assert '"file": "here/times/trace.csv"' in manifest and read(file, unit="s").digest in manifest
    assert "300" not in re.sub(r"\b[0-9a-f]{64}\b", "", manifest), "beside digests"
    exported = pd.read_parquet("out/asgd/seed-0/run-times.parquet")
    assert exported.query("worker == 0")["seconds"].tolist()[:5] == [1, 2, 3, 4, 1] and main(["verify", "out"]) == 0
    assert main(["run", "here/a.yaml", "--out", "out"]) == 0, "the new file is FRED's own"
    file.write_text(file.read_text().replace("300", "301"))
    capsys.readouterr()
    assert main(["verify", "out"]) == 2
    assert "here/times/trace.csv does not hold the times that were recorded" in capsys.readouterr().err
    file.unlink()
    assert main(["verify", "out"]) == 2
    missing = "cannot read here/times/trace.csv: No such file or folder, nor a trace.csv in the current folder"
    assert missing in capsys.readouterr().err


def test_a_result_has_the_run_times_of_each_run_with_a_clock(tmp_path, undrawn):
    cluster = {"workers": 8, "compute": {"name": "trace", "file": "example"}}
    algorithm = {"name": "ssgd", "learning_rate": 0.1}
    runs: dict[str, Any] = {"a": {}, "clockless": {"algorithm": {**algorithm, "name": "asgd"}, "protocol": "dispatcher"}}
    result = fred.run(fred.scenario(algorithm=algorithm, cluster=cluster, stop={"updates": 2}, runs=runs), out=tmp_path / "out")
    assert result.run_times("a")["seconds"].tolist() == read("example").seconds[:2].ravel().tolist()
    assert [file.parts[-3] for file in (tmp_path / "out").rglob("run-times.parquet")] == ["a"]
    with pytest.raises(FredError, match="no run `b`"):
        result.run_times("b")
