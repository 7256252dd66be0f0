"""Results that somebody has changed, with every digest made to fit: they are refused in one line, or read as they are."""

import copy
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fred
from fred.base.disk import write_arrays
from fred.base.errors import FredError
from fred.commands import printing
from fred.schedule.schedule import COLUMNS, SCALES, Intervals
from tests.folders import resign_manifest, resign_unit, undrawn_results
from tests.program import refusal
from tests.worlds import TASK

UNIT, PEERS = "asgd/seed-0", "d-psgd/seed-0"  # with peers, models are in transit: their schedule has intervals, too
SETTINGS: dict[str, Any] = {
    "cluster": {"workers": 2, "network": {"latency": {"name": "constant", "seconds": 0.1}}},
    "task": TASK,
    "stop": {"updates": 6},
    "runs": {name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "d-psgd")},
    "evaluate": {"points": 2, "target_loss": 1.0},
}
WRONG: list[Any] = [None, "x", -1, 2**70, 0.5, True, [], {}, [1], {"a": 1}]


@pytest.fixture(scope="module")
def result_folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("written") / "out"
    with undrawn_results():
        fred.run(fred.scenario(SETTINGS), out=out, report=False)
    return out


@pytest.fixture
def out(result_folder, tmp_path) -> Path:
    shutil.copytree(result_folder, tmp_path / "out")
    return tmp_path / "out"


def places(value: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield keys
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*keys, key))


def replace_at(document: Any, keys: tuple[Any, ...], value: Any) -> Any:
    document = at = copy.deepcopy(document)
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = value
    return document


SUMMARIES = [
    (("updates",), True, "summary.updates: Input should be a valid integer"),
    (("updates",), -1, "summary.updates: Input should be greater than or equal to 0"),
    (("gradients",), 5, "summary.gradients: "),
    (("staleness", "mean"), "x", "summary.staleness.mean: "),
    (("copies",), None, "summary.copies: "),
    (("ended_by",), "tired", "summary.ended_by: "),
    (("more",), 1, "summary.more: "),
    (("name",), "d-psgd", "`summary` is that of another run"),
]


def test_a_wrong_summary_is_refused(out):
    summary = json.loads((out / UNIT / "unit.json").read_text())["summary"]
    shutil.copytree(out, out.with_name("other"))
    commands = (["show", out], ["compare", out, out.with_name("other")], ["report", out])
    for command, (keys, value, where) in zip(itertools.cycle(commands), SUMMARIES, strict=False):
        resign_unit(out / UNIT, summary=replace_at(summary, keys, value))
        resign_manifest(out)
        assert f"is not the folder of a whole run: unit.json: {where}" in refusal(*command), (keys, value)


@pytest.mark.parametrize("wrong", [pytest.param(wrong, marks=pytest.mark.slow if wrong else ()) for wrong in WRONG])
def test_any_change_of_a_units_summary_is_refused_or_shown(out, wrong):
    summary, accepted = json.loads((out / UNIT / "unit.json").read_text())["summary"], 0
    for keys in filter(None, places(summary)):
        resign_unit(out / UNIT, summary=replace_at(summary, keys, wrong))
        try:
            assert printing.tables(fred.load_result(out), out)
            accepted += 1
        except FredError as error:
            assert "\n" not in str(error)
    assert accepted < 35, "a number of the right kind cannot be told from another"


def _forge(table: pa.Table, column: str) -> Iterator[tuple[str, pa.Table]]:
    """Yield the table without a column, and with wrong ones in its place; any number may be in columns of scales, and none."""
    place, values = table.column_names.index(column), table[column].to_pylist()
    yield "gone", table.remove_column(place)
    wrong: dict[str, Any] = {"text": pa.array(["x"] * len(values))}
    if column not in SCALES:
        gap = [None, *(0 if isinstance(value, str) else value for value in values[1:])]
        wrong |= {"null": pa.array([None] * len(values), table[column].type), "absurd": pa.array([-(2**40)] * len(values))}
        wrong["gap"] = pa.array(gap)
    for way, array in wrong.items():
        yield way, table.set_column(place, column, array).replace_schema_metadata(table.schema.metadata)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "columns"), [("schedule", COLUMNS + SCALES), ("schedule-intervals", Intervals._fields)])
def test_a_column_of_other_values_is_refused(out, name, columns):
    file = out / PEERS / f"{name}.parquet"
    table = pq.read_table(file)
    assert set(table.column_names) == set(columns)
    for column in columns:
        for way, forged in _forge(table, column):
            pq.write_table(forged, file)
            with pytest.raises(FredError, match=f"cannot read {out / PEERS / 'schedule.parquet'}: "):
                raise AssertionError((column, way, fred.load_result(out).outcome("d-psgd").schedule))
    resign_unit(out / PEERS)
    resign_manifest(out)
    picture = out.with_name("a.pftrace")
    message = refusal("export", out, "--only", "d-psgd", "--out", picture)
    assert f"cannot read {out / PEERS / 'schedule.parquet'}: " in message
    assert not picture.exists()


FACTS = ("workers", "replicas", "blocks", "started", "end_ns", "standstill", "on_servers")
TABLES: list[tuple[str, dict[str, Any]]] = [
    *(("metrics", {"virtual_seconds": wrong}) for wrong in ("x", np.nan, [2.0, 1.0, 3.0])),
    *(("metrics", wrong) for wrong in ({"updates": 1.5}, {"gradients": -1}, {"loss": None}, {"note": "x"})),
    *(("run-times", wrong) for wrong in ({"seconds": "x"}, {"seconds": np.inf}, {"worker": 2}, {"node": None})),
]


@pytest.mark.slow
def test_other_values_in_a_units_files_are_refused(out):
    file = out / UNIT / "schedule.parquet"
    table = pq.read_table(file)
    facts = json.loads(table.schema.metadata[b"fred"])
    for fact, value in itertools.product(FACTS, (None, "x", -1, 7.5, 2**70, [], [0, 5])):
        if (fact, value) != ("standstill", "x"):  # any words may be there
            pq.write_table(table.replace_schema_metadata({b"fred": json.dumps(facts | {fact: value})}), file)
            with pytest.raises(FredError, match=r"schedule.parquet: "):
                raise AssertionError((fact, value, fred.load_result(out).outcome("asgd").schedule))
    for name, wrong in TABLES:
        frame = pd.read_parquet(file := out / UNIT / f"{name}.parquet")
        frame.assign(**wrong).to_parquet(file, index=False)
        with pytest.raises(FredError, match=f"cannot read .*{name}.parquet: "):
            raise AssertionError((name, wrong, getattr(fred.load_result(out).outcome("asgd"), name.replace("-", "_"))))
        frame.to_parquet(file, index=False)
    write_arrays(out / UNIT / "params.npz", {"initial/weights": np.zeros(2), "final/weights": np.array(["a", "b"])})
    with pytest.raises(FredError, match=r"cannot read .*params.npz: `final/weights.npy` holds <U1; expected numbers"):
        _ = fred.load_result(out).outcome("asgd").final


def test_files_outside_the_folder_and_numbers_that_json_lacks_are_refused(out):
    manifest = (out / "manifest.json").read_text()
    (out / "manifest.json").write_text(manifest.replace('"seconds"', '"other": NaN, "seconds"', 1))
    assert "NaN is not a JSON number" in refusal("report", out)
    (out / "manifest.json").write_text(manifest)
    record = json.loads((out / UNIT / "unit.json").read_text())
    for name in ("../../../elsewhere", "/etc/hostname", "a/b", ".hidden", ""):
        (out / UNIT / "unit.json").write_text(json.dumps(record | {"files": record["files"] | {name: "0" * 64}}))
        assert "is not the folder of a whole run: unit.json: files." in refusal("show", out), name
