"""Traces as people have them: one refusal with the command that works, then an answer from the times that were recorded."""

import gzip
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fred.base.errors import FredError
from fred.traces.reading import read
from fred.traces.roles import UnclearTraceError
from tests.conftest import ROOT
from tests.program import fred_command, refusal

STEPS, RANKS, PER_NODE = 40, 6, 2
NODES = ("gpu-node-a", "gpu-node-b", "gpu-node-c")
SECONDS = np.random.default_rng(7).lognormal(-0.3, 0.2, (STEPS, RANKS)).round(6)


def table(**renamed: str) -> pd.DataFrame:
    """A row for each gradient, in ms, with columns called as one likes."""
    rows = [(t, f"rank{i}", NODES[i // PER_NODE], SECONDS[t, i] * 1e3, 3 / (t + 1)) for t in range(STEPS) for i in range(RANKS)]
    return pd.DataFrame(rows, columns=["global_step", "rank", "hostname", "duration_ms", "loss"]).rename(columns=renamed)


def steps_of(ranks: list[Any], seconds: Any) -> pd.DataFrame:
    """A row for each step and rank, in their order, with these seconds."""
    steps = np.repeat(np.arange(len(seconds) // len(ranks)), len(ranks))
    return pd.DataFrame({"step": steps, "rank": ranks * (len(seconds) // len(ranks)), "seconds": seconds})


def from_pandas(folder: Path) -> list[Path]:
    """Shuffled, with pandas' index, three gaps and two duplicates."""
    rows = table().drop(index=[9, 100, 200]).sample(frac=1, random_state=0)
    pd.concat([rows, rows.iloc[[3, 50]]]).to_csv(folder / "log.csv")
    return [folder / "log.csv"]


def write_file_per_node(folder: Path) -> list[Path]:
    """Local ranks, no column of nodes, a time without a unit, and a row that is lost."""
    rows = table(duration_ms="time", global_step="step")
    for number, (node, part) in enumerate(rows.groupby("hostname")):
        part = part.assign(local_rank=part["rank"].str.removeprefix("rank").astype(int) % PER_NODE)
        part = part[["step", "local_rank", "time"]].drop(index=part.index[5 : 5 + number % 2])
        part.to_parquet(folder / f"{node}.parquet")
    return sorted(folder.glob("*.parquet"))


def write_unknown_names(folder: Path) -> list[Path]:
    """Semicolons, and no name that says anything."""
    names = {"global_step": "k", "rank": "who", "duration_ms": "cost", "hostname": "where"}
    table(**names).to_csv(folder / "log.csv", sep=";", index=False)
    return [folder / "log.csv"]


def write_file_per_day(folder: Path) -> list[Path]:
    """Steps are counted from 0 on each day."""
    rows = table()
    for day in range(2):
        part = rows[rows["global_step"] // (STEPS // 2) == day]
        part.assign(global_step=part["global_step"] % (STEPS // 2)).to_csv(folder / f"day{day}.csv", index=False)
    return sorted(folder.glob("*.csv"))


def operations(folder: Path) -> list[Path]:
    """Forward, an optimizer's kernels on another stream, backward, and communication until the slowest is done, in us."""
    rows = []
    for t in range(STEPS):
        for i in range(RANKS):
            begin, length = 7.0 * t + 0.01 * i, SECONDS[t, i]
            ends = ((0, 0.3, "forward"), (0.3, 1, "backward"), (0.5, 0.9, "optimizer"))
            rows += [(t, i, name, 1e6 * (begin + a * length), 1e6 * (begin + b * length)) for a, b, name in ends]
            rows.append((t, i, "reduce-scatter", 1e6 * (begin + 0.6 * length), 1e6 * (7 * t + 6.5)))
    frame = pd.DataFrame(rows, columns=["step", "rank", "type", "start_us", "end_us"])
    frame.sample(frac=1, random_state=1).to_parquet(folder / "operations.parquet")
    return [folder / "operations.parquet"]


def write_profiles(folder: Path, gpu: bool = True) -> list[Path]:
    """Files of `tensorboard_trace_handler` from three hosts; kernels begin in the next step's time and belong to their own."""
    for i in range(RANKS):
        events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "args": {"name": "python"}}]
        for t in range(STEPS):
            begin, length = 2e9 + 8e6 * t, 1e6 * SECONDS[t, i]
            events.append(span("user_annotation", f"ProfilerStep#{t + 3}", begin, 8e6 - 1))
            events.append(span("gpu_user_annotation", f"ProfilerStep#{t + 3}", begin + 3e6, 8e6 - 1))
            if not gpu:
                on_cpu = ("aten::linear", 10, length), ("aten::addmm", 20, length / 2), ("c10d::allreduce_", 5e6, 2e6)
                events += [span("cpu_op", name, begin + delay, seconds) for name, delay, seconds in on_cpu]
                continue
            for half, launched, runs in ((1, 10.0, 1e6), (2, 7.9e6, 8.1e6)):
                number = 2 * t + half
                events.append(span("cuda_runtime", "cudaLaunchKernel", begin + launched, 4, correlation=number))
                for name, part in (("sgemm", length / 2), ("elementwise", length / 4)):
                    events.append(span("kernel", name, begin + runs, part, correlation=number))
            loading = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            events.append(span("user_annotation", loading, begin + 1e6, 5))
            events.append(span("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin + 3e6, 4e6, correlation=-t))
        content = json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": i}, "traceEvents": events}).encode()
        path = folder / f"{NODES[i // PER_NODE]}_{4000 + i}.17325{i}.pt.trace.json.gz"
        path.write_bytes(gzip.compress(content, 1))
    return sorted(folder.glob("*.json.gz"))


def span(category: str, name: str, begin: float, length: float, **args: int) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": length, "pid": 1, "tid": 1, "args": args}


MESSY: tuple[tuple[Callable[[Path], list[Path]], int, list[int], str], ...] = (  # refusals, iterations that are lost, a name
    (from_pandas, 1, [1, 16, 33], "gpu-node-b"),
    (write_file_per_node, 1, [2], "gpu-node-b"),
    (write_unknown_names, 1, [], "found in the compute times"),
    (write_file_per_day, 1, [], "gpu-node-c"),
    (operations, 0, [], "found in the compute times"),
    (write_profiles, 0, [], "gpu-node-c"),
)


@pytest.mark.parametrize(("make", "refusals", "dropped", "name"), MESSY, ids=lambda value: getattr(value, "__name__", ""))
def test_a_messy_file_is_refused_once_with_a_command_that_works(make, refusals, dropped, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["cutoffs", *(file.name for file in make(tmp_path)), "--rules", "all,count:4", "--train", "20", "--warm-up", "0"]
    for _ in range(refusals):
        answer = fred_command(*command)
        (words,) = re.findall(r"^fred: this works: fred (.*)$", answer.err, re.MULTILINE)
        assert answer.code == 2
        command = shlex.split(words)
    out = " ".join(fred_command(*command).out.split())
    assert name in out and ("mended: " in out) == bool(dropped)
    answer = json.loads(fred_command(*command, "--json").out)
    seconds = np.delete(SECONDS, dropped, axis=0)[20:]
    assert (answer["rounds"], bool(answer["repairs"])) == (len(seconds), bool(dropped))
    expected = {"all": RANKS * len(seconds) / seconds.max(1).sum(), "count:4": 4 * len(seconds) / np.sort(seconds)[:, 3].sum()}
    assert {rule: entry["throughput"] for rule, entry in answer["rules"].items()} == pytest.approx(expected, rel=1e-5)


def test_without_kernels_operations_on_the_cpu_count_and_without_those_whole_steps(tmp_path):
    trace = read(*write_profiles(tmp_path, gpu=False))
    np.testing.assert_allclose(trace.seconds, SECONDS, rtol=1e-6)
    assert trace.nodes == NODES
    assert trace.notes[1] == "left out as communication or waiting: c10d::allreduce_"
    events = [span("user_annotation", f"ProfilerStep#{t}", 5e6 * t, 1e6 + t) for t in range(3)]
    (tmp_path / "one.json").write_text(json.dumps(events))
    full_trace = read(tmp_path / "one.json")
    np.testing.assert_allclose(full_trace.seconds[:, 0], [1, 1.000001, 1.000002], rtol=1e-9)
    assert full_trace.workers == ("one",)
    assert "waiting for others included" in full_trace.notes[0]


def test_what_no_profiler_wrote_is_refused(tmp_path):
    for content, message in (
        ("{", "its JSON is cut off; copy it again"),
        ("[}]", "it is not JSON"),
        ('{"a": 1}', "expected a table in JSON"),
        ('{"traceEvents": 1}', "expected what `torch.profiler` exports, with a list `traceEvents`"),
        ('[{"ph": "X", "name": "aten::mul", "ts": 1, "dur": 2}, 7]', r"no step is marked \(`ProfilerStep#1`\);"),
        (f'[{{"ph": "X", "name": "ProfilerStep#1", "ts": 1, "dur": {"9" * 400}}}]', "no step is marked"),
    ):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(FredError, match=message):
            read(tmp_path / "a.json")


def test_a_trace_of_another_program_becomes_a_table_by_the_command_in_its_refusal(tmp_path):
    """`ray timeline` writes events in any order."""
    events = [span("task:execute", "task:execute", 1e6 * (9 * t + 2), 100) for t in range(9)]
    events += [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Node 10.0.0.1"}}]
    seconds = np.array([[1.0, 1.5]]) + np.arange(9)[:, None] / 8
    for t, worker in np.ndindex(9, 2):
        events.insert(
            t, {**span("task::W.step", "task::W.step", 9e6 * t, 1e6 * float(seconds[t, worker])), "pid": worker, "tid": 10}
        )
    (tmp_path / "timeline.json").write_text(json.dumps(events))
    with pytest.raises(FredError, match=r"If `task::W\.step` is one step of a worker") as refused:
        read(tmp_path / "timeline.json")
    command = str(refused.value).split("`")[5].replace("python", sys.executable, 1)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    trace = read(tmp_path / "timeline.csv")
    np.testing.assert_allclose(trace.seconds, seconds, rtol=1e-12)


def test_the_recipe_for_marked_steps_is_the_same_in_the_message_and_on_the_page(tmp_path):
    """PyTorch marks steps only with a schedule."""
    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    with pytest.raises(FredError) as refused:
        read(tmp_path / "a.json")
    page = (ROOT / "docs" / "how-to" / "from-a-log.md").read_text()
    for text in (str(refused.value), page):
        assert "profiler.step()" in text
        assert re.search(r"schedule=[\w.]+\.schedule\(wait=1, warmup=1, active=100, repeat=1\)", text)


def test_files_that_may_be_nodes_or_days_are_read_as_the_user_says(tmp_path):
    for name, add in (("left", 0.0), ("right", 10.0)):
        steps_of([0, 1], np.arange(1.0, 5) + add).to_csv(tmp_path / f"{name}.csv", index=False)
    files = tmp_path / "left.csv", tmp_path / "right.csv"
    with pytest.raises(UnclearTraceError, match=r"the same iteration and worker as in .*right\.csv:2") as refused:
        read(*files)
    assert refused.value.options == {"columns": {"worker": "FILE+rank"}}
    wide = read(*files, columns={"worker": "FILE+rank", "node": "FILE"})
    assert wide.seconds.tolist() == [[1, 2, 11, 12], [3, 4, 13, 14]]
    assert (wide.workers, wide.nodes) == (("left/0", "left/1", "right/0", "right/1"), ("left", "right"))
    after = read(*files, columns={"iteration": "FILE+step"})
    assert after.seconds.tolist() == [[1, 2], [3, 4], [11, 12], [13, 14]]
    assert after.workers == ("0", "1")


def test_a_restart_that_repeats_some_steps_is_mended(tmp_path):
    frame = steps_of([0, 1], np.arange(60) * 37 % 60 + 1.0)
    frame[frame["step"] < 20].to_csv(tmp_path / "first.csv", index=False)
    frame[frame["step"] >= 18].assign(seconds=lambda part: part["seconds"] + 0.5).to_csv(tmp_path / "second.csv", index=False)
    files = tmp_path / "first.csv", tmp_path / "second.csv"
    message = r"second\.csv:2: iteration 18, worker 0: found a second time, after that in .*first\.csv"
    with pytest.raises(UnclearTraceError, match=message):
        read(*files)
    trace = read(*files, mend="drop")
    assert trace.seconds.shape == (30, 2)
    assert trace.seconds[18].tolist() == [13, 50]
    assert trace.seconds[20].tolist() == [41.5, 18.5]


def test_columns_with_unknown_names_are_proposed_by_what_they_hold(tmp_path):
    for columns, options in (
        ({"rank": "who"}, {"columns": {"worker": "who"}}),  # the host alone would name two workers
        ({"rank": "name"}, {"columns": {"worker": "name"}}),
        ({"global_step": "k", "rank": "who", "duration_ms": "value_ms"}, {"columns": {"iteration": "k", "worker": "who"}}),
        ({"global_step": "k", "duration_ms": "x"}, {"columns": {"iteration": "k", "time": "x"}, "unit": "ms"}),
        ({"rank": ""}, {"columns": {"worker": "hostname+core"}}),  # tells the rows of a host apart
    ):
        rows = table(**columns).assign(batch_size=512)
        if "" in rows:
            rows["core"] = rows.pop("").str[-1].astype(int) % PER_NODE
        rows.to_csv(tmp_path / "log.csv")
        with pytest.raises(UnclearTraceError) as refused:
            read(tmp_path / "log.csv")
        assert refused.value.options == options
        trace = read(tmp_path / "log.csv", **refused.value.options)
        np.testing.assert_allclose(trace.seconds, SECONDS, rtol=1e-9)
        assert trace.nodes == (() if "core" in rows else NODES)


def test_a_diagnosis_takes_the_same_files_and_keeps_names(tmp_path):
    files, out = write_file_per_day(tmp_path), tmp_path / "out"
    options = ("--columns", "iteration=FILE+global_step", "--json", "--out", out)
    facts = json.loads(fred_command("diagnose", *files, *options).out)
    assert list(facts["remedies"][-1]["used"])[:2] == ["rank0", "rank1"]
    assert "times in ms, as `duration_ms` says" in facts["notes"]
    reloaded = read(out / "trace.csv")
    assert reloaded.nodes == NODES and reloaded.workers[:2] == ("rank0", "rank1")
    np.testing.assert_allclose(reloaded.seconds, SECONDS, rtol=1e-6)


def test_a_few_second_rows_are_duplicates_and_no_operations(tmp_path):
    rows = table().assign(type="train", start=lambda part: part["global_step"] * 5.0)
    rows["start_ms"] = rows.pop("start") * 1e3
    rows = pd.concat([rows, rows.iloc[[8]].assign(start_ms=1e6)])
    for columns in ([], ["type"], ["start_ms"]):
        rows.drop(columns=columns).to_csv(tmp_path / "log.csv", index=False)
        with pytest.raises(UnclearTraceError, match="iteration 1, worker rank2: found a second time"):
            read(tmp_path / "log.csv")
        np.testing.assert_allclose(read(tmp_path / "log.csv", mend="drop").seconds, SECONDS, rtol=1e-9)
    rare = rows.iloc[[8]].assign(type="checkpoint", duration_ms=500.0)
    pd.concat([rows.iloc[:-1], rare]).drop(columns="start_ms").to_csv(tmp_path / "log.csv", index=False)
    seconds = read(tmp_path / "log.csv").seconds
    assert seconds[1, 2] == pytest.approx(SECONDS[1, 2] + 0.5)
    assert seconds.sum() == pytest.approx(SECONDS.sum() + 0.5)


def test_a_result_finds_all_files_of_its_trace_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here" / "in").mkdir(parents=True)
    write_file_per_day(tmp_path / "here" / "in")
    columns = {"iteration": "FILE+global_step"}
    compute = {"name": "trace", "file": "in/day0.csv", "more": ["in/day1.csv"], "columns": columns}
    run = {"cluster": {"workers": RANKS, "compute": compute}, "stop": {"updates": STEPS}}
    run["algorithm"] = {"name": "ssgd", "learning_rate": 0.1}
    (tmp_path / "here" / "a.yaml").write_text(json.dumps(run))
    assert fred_command("run", "here/a.yaml", "--out", "here/out", "--no-report").code == 0
    (tmp_path / "here").rename("there")
    assert fred_command("verify", "there/out").code == 0
    day_file = tmp_path / "there" / "in" / "day1.csv"
    frame = pd.read_csv(day_file)
    frame.assign(duration_ms=2 * frame["duration_ms"]).to_csv(day_file, index=False)
    assert "and 1 more does not hold the times that were recorded" in refusal("verify", "there/out")


def test_a_worker_that_ends_is_named_and_its_times_are_rather_dropped_than_invented(tmp_path):
    frame = steps_of(["a", "b", "c"], np.arange(120) * 7 % 11 + 1.0)
    frame[(frame["rank"] != "b") | (frame["step"] < 20)].to_csv(tmp_path / "dead.csv", index=False)
    with pytest.raises(UnclearTraceError, match="without times to the end: b \\(from iteration 20\\)") as raised:
        read(tmp_path / "dead.csv")
    assert raised.value.remedies[0] == {"mend": "drop"}
    assert "without times to the end: b (from iteration 20)" in read(tmp_path / "dead.csv", mend="fill").repairs[0]


@pytest.mark.parametrize("names", [("started_at", "finished_at"), ("start", "end")])
def test_dates_of_start_and_end_are_durations(tmp_path, names):
    frame = steps_of([0, 1], [0.25, 0.5] * 12)
    frame[names[0]] = pd.Timestamp("2026-10-01 12:00:00") + pd.to_timedelta(frame["step"], "s")
    frame[names[1]] = frame[names[0]] + pd.to_timedelta(frame.pop("seconds"), "s")
    frame.to_csv(tmp_path / "dates.csv", index=False)
    assert read(tmp_path / "dates.csv").seconds == pytest.approx(np.tile([0.25, 0.5], (12, 1)))
    with pytest.raises(FredError, match=f"`{names[0]}` has dates, and `time` needs durations"):
        read(tmp_path / "dates.csv", columns={"time": names[0]})


def test_elapsed_times_are_not_durations_whatever_their_column_is_called(tmp_path):
    steps_of([0, 1], np.arange(60) + 1.0).to_csv(tmp_path / "elapsed.csv", index=False)
    with pytest.raises(FredError, match="they look like timestamps"):
        read(tmp_path / "elapsed.csv")
