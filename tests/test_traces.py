"""Traces: every format is read alike; mistakes are refused with their file and row, or mended as the user says and reported."""

import argparse
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.cluster.recorded import RecordedTrace
from fred.commands.cli import main
from fred.commands.trace_options import add_options, read_trace
from fred.traces.reading import read
from fred.traces.roles import UnclearTraceError

LONG = "iteration,worker,seconds\n0,a,1.5\n0,b,2.5\n1,a,3.5\n1,b,4.5\n"
TABLE = [[1.5, 2.5], [3.5, 4.5]]


def write(folder: Path, content: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (LONG, {}),
        ("\ufeff" + LONG, {}),
        (LONG.replace("\n", "\r\n"), {}),
        (LONG.replace(",", " , "), {}),
        (LONG.replace(",", ";"), {}),
        (LONG.replace(",", "\t"), {}),
        (LONG.replace(",a,", ",rank9,").replace(",b,", ",rank10,"), {}),
        ("step,rank,what,ms\n0,a,x,1500\n0,b,y,2500\n1,a,x,3500\n1,b,y,4500\n", {}),
        ("Global Step,Rank ID,Step Time (ms)\n0,a,1500\n0,b,2500\n1,a,3500\n1,b,4500\n", {}),
        ("globalStep,host,durationUs,loss\n0,a,1500000,9\n0,b,2500000,9\n1,a,3500000,9\n1,b,4500000,9\n", {}),
        (",iteration,worker,seconds\n0,0,a,1.5\n1,0,b,2.5\n2,1,a,3.5\n3,1,b,4.5\n", {}),
        ("Unnamed: 0,Unnamed: 0.1,iteration,worker,seconds\n0,0,0,a,1.5\n1,1,0,b,2.5\n2,2,1,a,3.5\n3,3,1,b,4.5\n", {}),
        ("a,b\n1.5,2.5\n3.5,4.5\n", {"unit": "s"}),
        ("epoch,step,a,b,loss\n1,0,3500,4500,7\n0,0,1500,2500,8\n", {"unit": "ms"}),
        ("step,a_ms,b_ms\n0,1500,2500\n1,3500,4500\n", {}),
        ("b,iteration,a\n2.5,0,1.5\n4.5,1,3.5\n".replace("a\n", "2\n").replace("b", "10"), {"unit": "s"}),
        ("a,n,b\n3.5,10,4.5\n1.5,9,2.5\n", {"columns": {"iteration": "n"}, "unit": "s"}),
        ("rank,step,start_s,end_s\na,0,10,11.5\na,1,20,23.5\nb,0,10,12.5\nb,1,1,5.5\n", {}),
        ("who,n,took\na,0,1.5\na,1,3.5\nb,0,2.5\nb,1,4.5\n",
         {"columns": {"iteration": "n", "worker": "who", "time": "took"}, "unit": "s"}),
        ("rank,timestamp,duration_ms\na,7,3500\nb,5,4500\na,1,1500\nb,0,2500\n", {}),
        ("step,rank,forward_ms,backward_ms,all_reduce_ms\n0,a,500,1000,9\n0,b,1500,1000,9\n1,a,500,3000,9\n1,b,4000,500,9\n",
         {"columns": {"time": "forward_ms+backward_ms"}}),
        ("step,rank,seconds\n0.0,0.0,1.5\n0.0,1.0,2.5\n1.0,0.0,3.5\n1.0,1.0,4.5\n", {}),
        ("rank,seconds\na,1.5\nb,2.5\na,3.5\nb,4.5\n", {}),
        ("rank,step,start,end\na,0,2026-01-01 10:00:00,2026-01-01 10:00:01.5\na,1,2026-01-01 00:00,2026-01-01 00:00:03.5\n"
         "b,0,2026-01-01 10:00:59.5,2026-01-01 10:01:02\nb,1,2025-12-31 23:59:59,2026-01-01T00:00:03.500\n", {}),
        ("rank,step,start,duration_ms\na,0,2026-01-01T10:00:00Z,1500\na,1,2026-01-01T10:00:00+01:00,3500\n"
         "b,0,2026-01-01T10:00:00.5Z,2500\nb,1,2026-01-01T10:00:01Z,4500\n", {}),
    ],
)  # fmt: skip
def test_formats(tmp_path, content, options):
    trace = read(write(tmp_path, content), **options)
    assert trace.seconds.tolist() == TABLE
    assert (len(trace.workers), trace.node_of, len(trace.repairs)) == (2, None, 0)


NAMES = st.one_of(
    st.lists(st.integers(-5, 10**20), min_size=1, max_size=5, unique=True).map(lambda numbers: list(map(str, sorted(numbers)))),
    st.lists(st.from_regex(r"worker[a-z]{1,3}", fullmatch=True), min_size=1, max_size=5, unique=True),
)
SECONDS = st.floats(1e-9, 8e9, allow_subnormal=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_trace_reads_back_the_same_from_any_format(tmp_path, data):
    workers, iterations = data.draw(NAMES), sorted(data.draw(st.sets(st.integers(0, 10**15), min_size=1, max_size=6)))
    seconds = np.array([[data.draw(SECONDS) for _ in workers] for _ in iterations])
    cells = [(i, w, s) for i, row in zip(iterations, seconds, strict=True) for w, s in zip(workers, row, strict=True)]
    if workers[0].lstrip("-").isdigit():  # numbers put themselves in order
        cells = data.draw(st.permutations(cells))
    long = pd.DataFrame(cells, columns=["iteration", "worker", "seconds"])
    wide = pd.DataFrame(seconds, columns=workers).assign(iteration=iterations)
    parts = [long.assign(seconds=long["seconds"] * share, type=name) for share, name in ((0.25, "forward"), (0.75, "backward"))]
    ops = pd.concat([*parts, long.assign(seconds=1.0, type="all-reduce")])
    formats: tuple[tuple[pd.DataFrame, dict[str, Any]], ...] = ((long, {}), (wide, {"unit": "s"}), (ops, {}))
    for frame, options in formats:
        for kind in ("csv", "parquet"):
            path = tmp_path / f"trace.{kind}"
            frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path, index=False)
            trace = read(path, **options)
            assert trace.workers == tuple(workers)
            np.testing.assert_allclose(trace.seconds, seconds, rtol=1e-15 if frame is ops else 0)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "trace.csv is empty; expected a line with the names"),
        ("iteration,worker,seconds\n", {}, "trace.csv has no rows"),
        ("iteration,worker,start\n0,a,1\n", {}, "known to be the time; it has iteration, worker, start"),
        ("0,0,1.5\n0,1,2.5\n", {}, "trace.csv: expected names of columns, .*; found 1.5"),
        ("iteration,worker,seconds,seconds\n0,a,1,1\n", {}, "has 2 columns `seconds`"),
        ("iteration\n1\n", {}, "no column of times"),
        ("step,rank,loss\n0,a,x\n", {}, "no column is known to be the time; it has step, rank, loss"),
        ("step,a,b\n0,1.5,x\n", {}, "trace.csv:2: expected a time in column `b`, .*'x'; without columns of workers and"),
        (LONG, {"columns": {"worker": "rank"}}, r"no column `rank` \(worker\); it has iteration, worker, seconds"),
        (LONG, {"columns": {"start": "iteration+worker"}}, "`iteration.worker` are several columns; expected one that is the `start`"),
        (LONG, {"columns": {"time": "FILE"}}, r"no column `FILE` \(time\)"),
        (LONG, {"columns": {"workers": "a"}}, "reading .*trace.csv: columns.* expected 'iteration', 'worker', 'time'"),
        (LONG, {"mend": "mean"}, "mend: expected 'refuse', 'drop' or 'fill'"),
        (LONG, {"mnd": "drop"}, "unknown key `mnd`; did you mean `mend`"),
        (LONG.replace("3.5", "fast"), {}, "trace.csv:4: expected a time in column `seconds`, a number; found 'fast'"),
        ("\n\n" + LONG.replace("3.5", "fast"), {}, "trace.csv:6: expected a time"),
        (LONG.replace("3.5", "3_5"), {}, "trace.csv:4: expected a time .*; found '3_5'"),
        (LONG.replace("3.5", " "), {}, "trace.csv:4: no time for iteration 1, worker a"),
        ("step,rank,start,end\n0,a,2026-01-01 10:00:00,2026-01-01 10:00:01\n0,b,soon,2026-01-01 10:00:02\n", {},
         "trace.csv:3: expected a date and a time in column `start`; found 'soon'"),
        (LONG.replace("3.5", "3,5"), {}, "trace.csv:4: found 4 fields; expected 3, .*a decimal comma needs another delimiter"),
        (LONG.replace("0,a,1.5\n1,a,3.5\n", "").replace("1,a,3.5\n", "1,a,\n").replace("0,a,1.5", "0,a,"), {"mend": "fill"},
         "no time at all of worker a"),
        ("a,b\n1,\n,2\n", {"mend": "drop", "unit": "s"}, "no iteration has all times"),
        ("rank,type,ms\na,x,15\na,y,15\nb,x,25\n", {}, "no column is called `iteration`"),
        ("step,rank,type,ms\n0,a,send,15\n0,a,all_gather,15\n", {}, "all rows are communication: send, all_gather"),
        ("step,rank,time_ms\n" + "".join(f"{i},{w},{i * 10 + w}\n" for i in range(12) for w in range(3)), {}, "look like timestamps"),
        ("iteration,worker,seconds\n1,,2\n2,,3\n", {"mend": "drop"}, "has no rows"),
        (LONG, {"nodes": 3}, "`nodes` is 3; expected 1 to 2"),
        (LONG, {"nodes": [1, 2]}, r"`nodes` \(1, 2\) must be sizes that add up to the 2 workers"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_place(tmp_path, content, options, message):
    with pytest.raises(FredError, match=message):
        read(write(tmp_path, content), **options)


def test_files_that_are_no_traces_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    write(tmp_path, LONG, "no.parquet")
    for name, iterations, workers, seconds in (
        ("text", [0, 0], [0, 1], ["1", "soon"]),
        ("lists", [0, 1], [[0], [1]], 1.0),
        ("thin", range(99_999), range(99_999), 1.0),
    ):
        frame = pd.DataFrame({"iteration": iterations, "worker": workers, "seconds": seconds})
        frame.to_parquet(tmp_path / f"{name}.parquet")
    for name, message in (
        ("absent.csv", "cannot read .*: No such file"),
        ("empty", "cannot read .*: the folder has no files of times"),
        ("no.parquet", r"cannot read .*no\.parquet"),
        ("text.parquet", r"text\.parquet, row 2: expected a time in column `seconds`, a number; found 'soon'"),
        ("lists.parquet", r"cannot read .*lists\.parquet"),
        ("thin.parquet", "99,999 iterations of 99,999 workers, but only 99,999 times; are these the right"),
    ):
        with pytest.raises(FredError, match=message):
            read(tmp_path / name)


def test_the_index_of_a_parquet_file_does_not_count(tmp_path):
    pd.DataFrame(TABLE, columns=["a", "b"], index=[3, 5]).to_parquet(tmp_path / "indexed.parquet")
    assert read(tmp_path / "indexed.parquet", unit="s").seconds.tolist() == TABLE


GAPS = "step,a_s,b_s,c_s\n0,1,2,4\n1,3,,9\n2,5,,7\n"


@pytest.mark.parametrize(
    ("content", "options", "table", "problem", "repair"),
    [
        (GAPS, {"mend": "drop"}, [[1, 2, 4]], "trace.csv:3: no time for iteration 1, worker b. 2 times of 9 missing",
         "2 iterations of 3 left out, for 2 missing times .iteration 1, worker b; iteration 2, worker b.$"),
        (GAPS, {"mend": "fill"}, [[1, 2, 4], [3, 2, 9], [5, 2, 7]], "some workers end before others",
         "2 missing times .* filled in with the worker's previous time: 22.2% of all, at most 67% of one worker's"),
        (LONG.replace("0,a,1.5\n", ""), {"mend": "fill"}, [[2.5, 3.5], [4.5, 3.5]], "trace.csv: no time for iteration 0, worker a",
         "1 missing time"),
        (LONG + "0,b,7\n1,b,8\n", {"mend": "drop"}, TABLE, "trace.csv:6: iteration 0, worker b: found a second time, after .*csv:3.* 2 duplicate times",
         "2 duplicates left out, the first of each kept: .*trace.csv:6: iteration 0, worker b; .*trace.csv:7"),
        (LONG.replace("2.5", "") + "0,b,2.5\n", {"mend": "fill"}, TABLE, "found a second time", "1 duplicate left out"),
        (LONG.replace("3.5", "-3"), {"mend": "fill"}, [[1.5, 2.5], [1.5, 4.5]], "trace.csv:4: iteration 1, worker a: found -3 s; expected",
         "1 impossible time taken as missing: .*trace.csv:4: iteration 1, worker a .-3 s"),
        (LONG.replace("3.5", "0"), {"mend": "drop"}, [[1.5, 2.5]], "found 0 s; .* above 0 and up to 9e.09 s", "1 impossible time"),
        (LONG.replace("3.5", "inf"), {"mend": "drop"}, [[1.5, 2.5]], "found inf s", "1 impossible time"),
        (LONG, {"mend": "drop", "longest": 4}, [[1.5, 2.5]], "trace.csv:5: iteration 1, worker b: found 4.5 s; .*up to 4 s", "1 imp"),
        ("step,rank,type,ms\n0,a,x,1000\n0,a,y,-1\n0,b,x,2500\n1,a,x,3500\n1,b,x,4500\n", {"mend": "drop"}, [[3.5, 4.5]],
         "found -0.001 s", "1 impossible time"),
        ("step,rank,type,start_s,end_s\n0,a,x,0,1\n0,a,y,inf,inf\n0,b,x,0,2\n1,a,x,3,6\n1,a,y,4,6.5\n1,b,x,3,7.5\n", {"mend": "drop"},
         [[3.5, 4.5]], "no time for iteration 0, worker a", "1 iteration of 2 left out"),
        (LONG.replace("1,a,3.5", ",a,3.5"), {"mend": "drop"}, [[1.5, 2.5]], "trace.csv:4: nothing in column `iteration`", "1 iteration of 2"),
        (LONG.replace("1,a,3.5", "1, ,3.5"), {"mend": "drop"}, [[1.5, 2.5]], "trace.csv:4: nothing in column `worker`", "1 iteration of 2"),
    ],
)  # fmt: skip
def test_what_is_mended_is_what_was_asked_for_and_is_told(tmp_path, content, options, table, problem, repair):
    path = write(tmp_path, content)
    with pytest.raises(UnclearTraceError, match=problem) as refused:
        read(path, **{word: option for word, option in options.items() if word == "longest"})
    assert refused.value.fix[0] == "--mend" and "mend" in refused.value.options
    trace = read(path, **options)
    assert trace.seconds.tolist() == table and any(re.match(repair, line) for line in trace.repairs)


def test_nodes_come_from_the_file_or_from_the_user(tmp_path):
    path = write(tmp_path, "iteration,worker,seconds,node\n0,a,1,n10\n0,b,1,n9\n0,c,1,n10\n")
    trace = read(path)
    assert np.array_equal(trace.node_of, [0, 1, 0])  # type: ignore[arg-type]
    assert (trace.nodes, trace.node(1), trace.worker(2)) == (("n10", "n9"), "n9", "c")
    for nodes, expected in ((1, [0, 0, 0]), (3, [0, 1, 2]), (2, [0, 0, 1]), ([1, 2], [0, 1, 1])):
        trace = read(path, nodes=nodes)
        assert np.array_equal(trace.node_of, expected) and trace.node(0) == "node 0"  # type: ignore[arg-type]


def test_workers_of_different_nodes_may_have_the_same_numbers(tmp_path):
    lines = [f"{i},{host},{rank},{1 + i + rank}" for i in range(3) for host in ("x", "y") for rank in (0, 1)]
    for column in ("local_rank", "rank"):
        trace = read(write(tmp_path, f"step,host,{column},seconds\n" + "\n".join(lines)))
        assert trace.workers == ("x/0", "x/1", "y/0", "y/1") and trace.nodes == ("x", "y")
        assert trace.seconds.tolist() == [[1 + i, 2 + i] * 2 for i in range(3)]


def test_a_worker_that_moves_has_no_node(tmp_path):
    trace = read(write(tmp_path, "iteration,worker,seconds,node\n0,a,1,x\n0,b,1,x\n1,a,1,y\n1,b,1,x\n"))
    assert (trace.workers, trace.node_of) == (("a", "b"), None)
    assert trace.notes == ("workers moved from node to node, so nodes are not known",)


def test_a_command_line_has_the_same_options(tmp_path):
    parser = argparse.ArgumentParser()
    add_options(parser)
    path = write(tmp_path, "n,who,took\n0,a,1500000\n0,b,2500000\n0,b,0\n1,a,3500000\n1,b,4500000\n2,a,1\n")
    words = ["--columns", "iteration=n,worker=who,time=took", "--unit=us", "--mend=drop", "--nodes=2"]
    trace = read_trace(parser.parse_args([str(path), *words, "--longest=5"]))
    assert trace.seconds.tolist() == TABLE and np.array_equal(trace.node_of, [0, 1])  # type: ignore[arg-type]
    for wrong, message in (("--columns=step", "expected NAME=VALUE"), ("--nodes=2,x", "expected a number of nodes")):
        with pytest.raises(FredError, match=message):
            read_trace(parser.parse_args([str(path), wrong]))


@pytest.mark.parametrize(
    ("name", "unit"), [("time_ms", "ms"), ("time (us)", "us"), ("took.NS", "ns"), ("ms", "ms"), ("timeMs", "ms")]
)
def test_a_unit_is_taken_from_the_name_of_a_column_unless_the_user_says_another(tmp_path, name, unit):
    path = write(tmp_path, f"iteration,worker,{name}\n0,0,1500\n0,1,2500\n")
    per_second = {"ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
    trace = read(path)
    assert trace.seconds.tolist() == [[1500 / per_second, 2500 / per_second]]
    assert trace.notes == (f"times in {unit}, as `{name}` says",)
    assert read(path, unit="s").seconds.tolist() == [[1500, 2500]]
    assert RecordedTrace(file=str(path)).trace.digest == trace.digest


@pytest.mark.parametrize(
    ("content", "likely"),
    [("step,rank,duration\n0,0,1.5\n0,1,2.5\n", "s"), ("step,rank,time\n0,0,1500\n0,1,2500\n", "ms"), ("a,b\n1e6,2e6\n", "us")],
)
def test_a_unit_that_nobody_says_is_asked_for(tmp_path, content, likely):
    path = write(tmp_path, content)
    with pytest.raises(UnclearTraceError, match=f"in which unit are the times .* `unit: {likely}`, or") as refused:
        read(path)
    assert refused.value.fix == ("--unit", likely)
    with pytest.raises(FredError, match="in which unit are the times"):
        RecordedTrace(file=str(path))
    assert read(path, unit="ns").seconds[0, 0] * 1e9 == pytest.approx(
        float(content.split()[1].split(",")[-1 if "step" in content else 0])
    )


def test_packed_tables_and_lines_of_json_are_read_alike(tmp_path):
    frame = pd.read_csv(write(tmp_path, LONG))
    frame.to_csv(tmp_path / "packed.csv.gz", index=False)
    frame.to_json(tmp_path / "log.jsonl", orient="records", lines=True)
    frame.to_json(tmp_path / "packed.jsonl.gz", orient="records", lines=True)
    for name in ("packed.csv.gz", "log.jsonl", "packed.jsonl.gz"):
        trace = read(tmp_path / name)
        assert (trace.seconds.tolist(), trace.workers) == (TABLE, ("a", "b"))
    frame.assign(seconds=["1.5", "soon", "2", "3"]).to_json(tmp_path / "log.jsonl", orient="records", lines=True)
    with pytest.raises(FredError, match=r"log\.jsonl:2: expected a time in column `seconds`, a number; found 'soon'"):
        read(tmp_path / "log.jsonl")
    for name, content in (("no.jsonl", b"{"), ("text.jsonl", b"secret"), ("no.csv.gz", b"a,b"), ("empty.jsonl", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FredError, match=rf"{name}( is empty)?") as error:
            read(tmp_path / name)
        assert "secret" not in str(error.value)


def test_a_command_is_said_to_work_only_if_it_does(tmp_path, capsys):
    for last, promise in (("2500", "this works"), ("soon", "")):
        path = write(tmp_path, f"step,rank,duration\n0,0,1500\n0,1,{last}\n")
        assert main(["fit", str(path)]) == 2
        assert (f"fred: {promise}: fred fit {path} --unit ms" in capsys.readouterr().err) == bool(promise)
    path = write(tmp_path, "step,rank,duration\n0,0,1500\n1,1,2500\n")
    assert main(["fit", str(path), "--columns", "node=FILE", "--unit", "s", "--mend", "drop"]) == 2
    assert "no iteration has all times" in capsys.readouterr().err
    assert main(["fit", str(path), "--columns", "node=FILE", "--unit=s"]) == 2
    assert capsys.readouterr().err.endswith(f"fred: this works: fred fit {path} --columns node=FILE --unit=s --mend fill\n")


@pytest.mark.parametrize(
    ("column", "values", "options"),
    [
        ("run", ("first", "second"), {"only": {"run": "first"}}),
        ("micro", (0, 1), {"columns": {"type": "micro"}}),
        ("attempt", (0, 1), {"only": {"attempt": "0"}}),
        ("device", (0, 1), {"columns": {"worker": "rank+device"}}),
    ],
)
def test_what_repeats_a_step_is_read_by_its_name_and_every_meaning_is_listed(tmp_path, column, values, options):
    """Ten steps of two ranks, twice: the second time, all takes three times as long."""
    times = {value: np.random.default_rng(5).uniform(1, 2, (10, 2)) * (1, 3)[place] for place, value in enumerate(values)}
    rows = [(value, step, rank, times[value][step, rank]) for value in values for step in range(10) for rank in range(2)]
    pd.DataFrame(rows, columns=[column, "step", "rank", "seconds"]).to_csv(tmp_path / "trace.csv", index=False)
    meanings = rf"`only: {{{column}: {values[0]}}}`; .*`columns: {{type: {column}}}`; .*{column}\+step.*rank\+{column}"
    with pytest.raises(UnclearTraceError, match=meanings) as refused:
        read(tmp_path / "trace.csv")
    assert (refused.value.options, refused.value.works) == (options, True)
    first, second = times.values()
    expected = {
        "run": first, "micro": first + second, "attempt": first,
        "device": np.stack([first, second], axis=2).reshape(10, 4),
    }  # fmt: skip
    np.testing.assert_allclose(read(tmp_path / "trace.csv", **options).seconds, expected[column], rtol=1e-12)


def test_a_few_rows_of_another_kind_are_no_duplicates(tmp_path):
    rows = [("eval", 4, rank, 0.1) for rank in range(2)] + [
        ("train", t, rank, 1.0 + t % 3) for t in range(10) for rank in range(2)
    ]
    pd.DataFrame(rows, columns=["mode", "step", "rank", "seconds"]).to_csv(tmp_path / "trace.csv", index=False)
    with pytest.raises(UnclearTraceError, match=r"9% of the rows repeat .* `only: {mode: train}`") as refused:
        read(tmp_path / "trace.csv")
    assert refused.value.options == {"only": {"mode": "train"}}


@pytest.mark.parametrize("options", [{}, {"sep": ";", "decimal": ","}])
def test_iterations_of_sampled_workers_are_not_filled_and_the_command_numbers_the_times(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(t, f"client{(t + k) % 8}", 1.5 + t + k) for t in range(32) for k in range(2)]
    pd.DataFrame(rows, columns=["round", "client", "seconds"]).to_csv("log.csv", index=False, **options)
    with pytest.raises(FredError, match="Workers take part in 25% of the iterations, and no iteration has all") as refused:
        read("log.csv")
    assert not getattr(refused.value, "fix", ())
    command = re.search('`(python -c "[^"]+")`', str(refused.value))
    assert command
    exec(shlex.split(command[1])[2], {})
    numbered = read("log-2.csv", mend="drop")
    assert numbered.seconds.shape == (8, 8)
    assert numbered.seconds[:, 0].tolist() == [seconds for _, client, seconds in rows if client == "client0"]


def test_times_since_the_start_become_durations_by_the_command_in_the_refusal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    times = np.random.default_rng(5).uniform(1, 2, (12, 2))
    rows = [(t, rank, times[: t + 1, rank].sum()) for t in range(12) for rank in range(2)]
    pd.DataFrame(rows, columns=["step", "rank", "elapsed_s"]).to_csv("log.csv", index=False)
    with pytest.raises(FredError, match="they look like timestamps") as refused:
        read("log.csv")
    command = re.search('`(python -c "[^"]+")`', str(refused.value))
    assert command
    exec(shlex.split(command[1])[2], {})
    np.testing.assert_allclose(read("log-2.csv").seconds, times[1:], rtol=1e-9)


def test_a_file_of_each_node_with_a_column_of_each_worker_gives_the_nodes(tmp_path):
    frames = {node: pd.DataFrame(np.random.default_rng(place).uniform(1, 2, (5, 2))) for place, node in enumerate(("x", "y"))}
    files = [write(tmp_path, frame.add_prefix("rank").to_csv(index=False), f"{node}.csv") for node, frame in frames.items()]
    for columns in ({"node": "FILE"}, {"node": "FILE", "worker": "FILE"}):
        trace = read(*files, columns=columns, unit="s")
        assert trace.workers == ("x/rank0", "x/rank1", "y/rank0", "y/rank1") and trace.nodes == ("x", "y")
        assert trace.node_of is not None and trace.node_of.tolist() == [0, 0, 1, 1]
        np.testing.assert_allclose(trace.seconds, np.hstack(list(frames.values())))


def test_a_digest_is_of_the_numbers_alone(tmp_path):
    trace, wide = read(write(tmp_path, LONG)), read(write(tmp_path, "a,b\n1.5,2.5\n3.5,4.5\n", "wide.csv"), unit="s")
    assert trace.digest == wide.digest
    assert read(write(tmp_path, "a,b\n1.5,2.5\n3.5,4.500001\n", "wide.csv"), unit="s").digest != trace.digest
    assert read(write(tmp_path, "a,b,c,d\n1.5,2.5,3.5,4.5\n", "row.csv"), unit="s").digest != trace.digest
