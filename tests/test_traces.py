"""Traces: every format is read alike; what is wrong is refused with its file and row, or mended as the user says and told of."""

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fred.cluster.recorded import Recorded
from fred.commands.trace_options import add_options, from_options
from fred.errors import FredError
from fred.traces.reading import read

LONG = "iteration,worker,seconds\n0,a,1.5\n0,b,2.5\n1,a,3.5\n1,b,4.5\n"
TABLE = [[1.5, 2.5], [3.5, 4.5]]


def written(folder: Path, content: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (LONG, {}),
        ("\ufeff" + LONG, {}),
        (LONG.replace("\n", "\r\n"), {}),
        (LONG + "\n\n", {}),
        (LONG.replace(",", " , "), {}),
        ("iteration,worker,seconds\n1,a,3.5\n0,b,2.5\n1,b,4.5\n0,a,1.5\n".replace(",a", ",7").replace(",b", ",11"), {}),
        ("step,rank,what,ms\n0,a,x,1500\n0,b,y,2500\n1,a,x,3500\n1,b,y,4500\n", "step rank ms"),
        ("a,b\n1.5,2.5\n3.5,4.5\n", {}),
        ("b,iteration,a\n2.5,0,1.5\n4.5,1,3.5\n".replace("a\n", "2\n").replace("b", "10"), {}),
        ("a,step,b\n3.5,10,4.5\n1.5,9,2.5\n", {"columns": {"iteration": "step"}}),
        (
            "rank,step,start,end\na,0,10,11.5\na,1,20,23.5\nb,0,10,12.5\nb,1,1,5.5\n",
            {"columns": {"iteration": "step", "worker": "rank"}},
        ),
        ("iteration,worker,seconds\n0,a,1\n0,b,2.5\n0,a,0.5\n1,a,3.5\n1,b,4.5\n1,b,0\n", {"duplicates": "sum"}),
    ],
)
def test_formats(tmp_path, content, options):
    if options == "step rank ms":
        options = {"columns": {"iteration": "step", "worker": "rank", "seconds": "ms"}, "unit": "ms"}
    trace = read(written(tmp_path, content), **options)
    assert trace.seconds.tolist() == TABLE
    assert len(trace.workers) == 2
    assert trace.node_of is None
    assert bool(trace.repairs) == ("duplicates" in options)


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
    ops = pd.concat([long.assign(seconds=long["seconds"] / 4), long.assign(seconds=long["seconds"] * 0.75)])
    formats: tuple[tuple[pd.DataFrame, dict[str, Any]], ...] = ((long, {}), (wide, {}), (ops, {"duplicates": "sum"}))
    for frame, options in formats:
        for kind in ("csv", "parquet"):
            path = tmp_path / f"trace.{kind}"
            frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path, index=False)
            trace = read(path, **options)
            assert trace.workers == tuple(workers)
            np.testing.assert_allclose(trace.seconds, seconds, rtol=1e-15 if options else 0)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "trace.csv is empty; expected a line with the names"),
        ("iteration,worker,seconds\n", {}, "trace.csv has no rows"),
        ("iteration,worker,time\n0,a,1\n", {}, "no column `seconds`; it has iteration, worker, time; expected .*`columns`"),
        ("step,worker,seconds\n0,a,1\n", {}, "no column `iteration`; it has step, worker, seconds"),
        ("iteration,worker,start\n0,a,1\n", {}, "no column `end`"),
        ("0,0,1.5\n0,1,2.5\n", {}, "trace.csv: expected names of columns, .*; found 1.5"),
        ("iteration,worker,seconds,seconds\n0,a,1,1\n", {}, "has 2 columns `seconds`"),
        (",a,b\n0,1,2\n", {}, "has a column without a name"),
        ("iteration\n1\n", {}, "no column of times"),
        ("step,a,b\n0,1.5,2.5\n1,3.5,4.5\n2,3.5,4.5\n", {}, r"column `step` counts: .* say so with `columns` \(iteration=step\)"),
        ("step,rank,ms\n1,1,15\n1,2,25\n2,1,35\n2,2,45\n", {}, "column `step` counts"),
        ("step,rank,ms\n0,a,15\n0,b,25\n", {}, "trace.csv:2: expected a time in column `rank`, .*'a'; without columns `worker` and"),
        (LONG, {"columns": {"worker": "rank"}}, r"no column `rank` \(worker\); it has iteration, worker, seconds"),
        (LONG, {"columns": {"workers": "a"}}, "reading .*trace.csv: columns.* expected 'iteration', 'worker'"),
        (LONG, {"missing": "mean"}, "missing: expected 'refuse', 'drop', 'previous' or 'median'"),
        (LONG, {"mising": "drop"}, "unknown key `mising`; did you mean `missing`"),
        (LONG.replace("3.5", "fast"), {}, "trace.csv:4: expected a time in column `seconds`, a number; found 'fast'"),
        ("\n\n" + LONG.replace("3.5", "fast"), {}, "trace.csv:6: expected a time"),
        (LONG.replace("3.5", "3_5"), {}, "trace.csv:4: expected a time .*; found '3_5'"),
        (LONG.replace("3.5", " "), {}, "trace.csv:4: expected a time .*; found ' '"),
        ("iteration,worker,seconds", {}, "trace.csv has no rows"),
        (LONG.replace("3.5", "3,5"), {}, "trace.csv:4: found 4 fields; expected 3, .*decimals are written with a point"),
        (LONG.replace("3.5", "0"), {}, "trace.csv:4: iteration 1, worker a: found 0 s; expected a time above 0"),
        (LONG.replace("3.5", "-1"), {}, "trace.csv:4: iteration 1, worker a: found -1 s"),
        (LONG.replace("3.5", "-1"), {"duplicates": "sum"}, "trace.csv:4: iteration 1, worker a: found -1 s"),
        (LONG.replace("3.5", "0"), {"duplicates": "sum"}, "trace.csv:4: iteration 1, worker a: found 0 s"),
        (LONG.replace("3.5", "inf"), {}, "trace.csv:4: iteration 1, worker a: found inf s; .* up to 9e.09 s"),
        (LONG, {"longest": 4}, "trace.csv:5: iteration 1, worker b: found 4.5 s; .*above 0 and up to 4 s"),
        (LONG.replace("3.5", ""), {}, "trace.csv:4: no time of worker a in iteration 1; 1 of 4 times are missing.*missing: drop"),
        ("a,b\n1,2\n3,NA\n", {}, "trace.csv:3: no time of worker b in iteration 1; .*some workers end before others"),
        (LONG.replace("1,a,3.5\n", ""), {}, "trace.csv: no time of worker a in iteration 1"),
        (LONG.replace("0,a,1.5\n", ""), {"missing": "previous"}, "worker a in iteration 0, and `missing: previous` finds none"),
        ("a,b\n1,2\n,\n", {"missing": "median"}, "worker a in iteration 1, and `missing: median` finds none"),
        ("a,b\n1,\n,2\n", {"missing": "drop"}, "no iteration is complete"),
        (LONG + "0,b,7\n", {}, "trace.csv:6: iteration 0, worker b: found a second time, after that in .*trace.csv:3; .*duplicates"),
        (LONG.replace("1,a,3.5", ",a,3.5"), {}, "trace.csv:4: nothing in column `iteration`"),
        (LONG.replace("1,a,3.5", "1, ,3.5"), {}, "trace.csv:4: nothing in column `worker`"),
        ("iteration,worker,seconds,node\n0,a,1,x\n1,a,1,y\n", {}, "trace.csv:3: worker a is on node y, but on node x above"),
        (LONG, {"nodes": 3}, "`nodes` is 3; expected 1 to 2"),
        (LONG, {"nodes": [1, 2]}, r"`nodes` \(1, 2\) must be sizes that add up to the 2 workers"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_place(tmp_path, content, options, message):
    with pytest.raises(FredError, match=message):
        read(written(tmp_path, content), **options)


def test_files_that_are_no_traces_are_refused(tmp_path):
    for path, message in ((tmp_path / "absent.csv", "No such file"), (tmp_path, "it is not a file")):
        with pytest.raises(FredError, match=f"cannot read .*: {message}"):
            read(path)
    (tmp_path / "latin.csv").write_bytes(LONG.replace("a", "\xe4").encode("latin-1"))
    with pytest.raises(FredError, match=r"latin\.csv:1: it is not UTF-8 text"):
        read(tmp_path / "latin.csv")
    with pytest.raises(FredError, match=r"cannot read .*no\.parquet"):
        read(written(tmp_path, LONG, "no.parquet"))
    frame = pd.DataFrame({"iteration": [0, 0], "worker": [0, 1], "seconds": ["1", "soon"]})
    frame.to_parquet(tmp_path / "text.parquet")
    with pytest.raises(FredError, match=r"text\.parquet, row 2: expected a time in column `seconds`, a number; found 'soon'"):
        read(tmp_path / "text.parquet")
    pd.DataFrame(TABLE, columns=["a", "b"], index=[3, 5]).to_parquet(tmp_path / "indexed.parquet")
    with pytest.raises(FredError, match="has a column without a name; it has a, b, __index_level_0__"):
        read(tmp_path / "indexed.parquet")
    pd.DataFrame({"iteration": [0, 1], "worker": [[0], [1]], "seconds": 1.0}).to_parquet(tmp_path / "lists.parquet")
    with pytest.raises(FredError, match=r"cannot read .*lists\.parquet"):
        read(tmp_path / "lists.parquet")
    pd.DataFrame({"iteration": range(99_999), "worker": range(99_999), "seconds": 1.0}).to_parquet(tmp_path / "thin.parquet")
    with pytest.raises(FredError, match="99,999 iterations of 99,999 workers, but only 99,999 times; are these the right"):
        read(tmp_path / "thin.parquet")


@pytest.mark.parametrize(
    ("content", "options", "table", "repair"),
    [
        ("a,b,c\n1,2,4\n3,,9\n5,6,7\n", {"missing": "drop"}, [[1, 2, 4], [5, 6, 7]],
         "1 iteration dropped for 1 missing time; the first: worker b in iteration 1"),
        ("a,b,c\n1,2,4\n3,,9\n5,,7\n", {"missing": "previous"}, [[1, 2, 4], [3, 2, 9], [5, 2, 7]],
         "2 missing times filled in with the worker's time before; the first: worker b in iteration 1"),
        ("a,b,c\n1,2,4\n3,,9\n", {"missing": "median"}, [[1, 2, 4], [3, 6, 9]],
         "1 missing time filled in with the median of the iteration's other times; the first: worker b in iteration 1"),
        (LONG + "0,b,7\n1,b,8\n", {"duplicates": "first"}, TABLE, "2 duplicates left out; the first: .*trace.csv:6: iteration 0, worker b"),
        (LONG + "0,b,7\n", {"duplicates": "sum"}, [[1.5, 9.5], [3.5, 4.5]], "5 rows summed to 4 times"),
        (LONG + "0,b,NA\n", {"duplicates": "sum", "missing": "previous"}, None, ""),
        ("a,b\n1,2\n3,-4\n", {"absurd": "missing", "missing": "previous"}, [[1, 2], [3, 2]],
         "1 absurd time taken as missing; the first: .*trace.csv:3: iteration 1, worker b"),
        ("a,b\n1,2\n3,50\n", {"absurd": "missing", "longest": 49, "missing": "drop"}, [[1, 2]], "1 absurd time taken as missing"),
    ],
)  # fmt: skip
def test_repairs_are_those_that_were_asked_for_and_told(tmp_path, content, options, table, repair):
    path = written(tmp_path, content)
    if table is None:  # part of a sum is missing, so the sum is
        with pytest.raises(FredError, match="worker b in iteration 0, and `missing: previous` finds none"):
            read(path, **options)
        return
    trace = read(path, **options)
    assert trace.seconds.tolist() == table
    assert re.match(repair, trace.repairs[0])
    with pytest.raises(FredError):
        read(path, **{word: option for word, option in options.items() if word == "longest"})


def test_nodes_come_from_the_file_or_from_the_user(tmp_path):
    path = written(tmp_path, "iteration,worker,seconds,node\n0,a,1,n10\n0,b,1,n9\n0,c,1,n10\n")
    nodes = read(path).node_of
    assert nodes is not None
    assert nodes.tolist() == [0, 1, 0]
    for said, expected in ((1, [0, 0, 0]), (3, [0, 1, 2]), (2, [0, 0, 1]), ([1, 2], [0, 1, 1])):
        nodes = read(path, said).node_of
        assert nodes is not None
        assert nodes.tolist() == expected


def test_a_command_line_has_the_same_options(tmp_path):
    parser = argparse.ArgumentParser()
    add_options(parser)
    path = written(tmp_path, "step,rank,us\n0,a,1500000\n0,b,2500000\n0,b,0\n1,a,3500000\n1,b,4500000\n2,a,1\n")
    words = [
        "--columns",
        "iteration=step,worker=rank,seconds=us",
        "--unit=us",
        "--duplicates=sum",
        "--missing=drop",
        "--nodes=2",
    ]
    trace = from_options(parser.parse_args([str(path), *words, "--longest=5"]))
    assert trace.seconds.tolist() == TABLE
    assert trace.node_of is not None
    assert trace.node_of.tolist() == [0, 1]
    for wrong, message in (("--columns=step", "expected OURS=THEIRS"), ("--nodes=2,x", "expected a number of nodes")):
        with pytest.raises(FredError, match=message):
            from_options(parser.parse_args([str(path), wrong]))


@pytest.mark.parametrize(("name", "unit"), [("time_ms", "ms"), ("time (us)", "us"), ("took.NS", "ns"), ("ms", "ms")])
def test_a_column_that_names_a_unit_is_not_taken_for_seconds_unasked(tmp_path, name, unit):
    path = written(tmp_path, f"iteration,worker,{name}\n0,0,1500\n0,1,2500\n")
    columns = {"seconds": name}
    with pytest.raises(FredError, match=f"seem to be in {unit}.*`unit: {unit}`.*--unit {unit}"):
        read(path, columns=columns)
    for said, per_second in ((unit, {"ms": 1e3, "us": 1e6, "ns": 1e9}[unit]), ("s", 1.0)):
        assert read(path, columns=columns, unit=said).seconds.tolist() == [[1500 / per_second, 2500 / per_second]]
    with pytest.raises(FredError, match="seem to be in us"):
        read(written(tmp_path, "a_us,b_us\n1,2\n", "wide.csv"))
    with pytest.raises(ValueError, match=f"seem to be in {unit}"):
        Recorded(file=str(path), columns=columns)
    assert Recorded(file=str(path), columns=columns, unit="s").trace.seconds.tolist() == [[1500, 2500]]


def test_a_digest_is_of_the_numbers_alone(tmp_path):
    one, other = read(written(tmp_path, LONG)), read(written(tmp_path, "a,b\n1.5,2.5\n3.5,4.5\n", "wide.csv"))
    assert one.digest == other.digest
    assert read(written(tmp_path, "a,b\n1.5,2.5\n3.5,4.500001\n", "wide.csv")).digest != one.digest
    assert read(written(tmp_path, "a,b,c,d\n1.5,2.5,3.5,4.5\n", "row.csv")).digest != one.digest


@pytest.mark.parametrize(("name", "shape"), [("ec2-15", (100, 15)), ("lambda-256", (30, 256)), ("llm-64", (43, 64))])
def test_real_traces(data_folder, name, shape):
    path = data_folder / "traces" / f"{name}-workers.csv"
    trace, frame = read(path), pd.read_csv(path)
    assert trace.seconds.shape == shape
    table = frame.pivot(index="iteration", columns="worker", values="seconds")
    np.testing.assert_allclose(trace.seconds, table.to_numpy(), rtol=1e-15)
    assert trace.workers == tuple(map(str, table.columns))


def test_a_real_trace_with_a_gap(data_folder):
    path = data_folder / "traces" / "ec2-10-workers.csv"
    with pytest.raises(FredError, match="no time of worker 6 in iteration 38; 1 of 3,120 times"):
        read(path)
    assert read(path, missing="drop").seconds.shape == (311, 10)
