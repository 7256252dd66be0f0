"""Results that somebody has changed, with every digest that would tell of it: refused in one line, or read as they are."""

import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fred
from fred.base import inputs
from fred.base.errors import FredError
from fred.base.inputs import write_arrays
from fred.commands import printing
from fred.commands.cli import main
from fred.results import folder
from fred.schedule.schedule import COLUMNS, SCALES, Intervals
from tests.worlds import TASK

UNIT, PEERS = "asgd/seed-0", "d-psgd/seed-0"  # of workers whose models are on their way there are intervals, too
SETTINGS: dict[str, Any] = {
    "cluster": {"workers": 2, "network": {"latency": {"name": "constant", "seconds": 0.1}}},
    "task": TASK,
    "stop": {"updates": 6},
    "runs": {name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "d-psgd")},
    "evaluate": {"points": 2, "target_loss": 1.0},
}
WRONG: list[Any] = [None, "x", -1, 2**70, 0.5, True, [], {}, [1], {"a": 1}]


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A result without figures and page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fred.results.figure_files._finish", lambda *_: None)
        place = tmp_path_factory.mktemp("written") / "out"
        fred.run(fred.scenario(SETTINGS), out=place, report=False)
    return place


@pytest.fixture
def out(written, tmp_path) -> Path:
    shutil.copytree(written, tmp_path / "out")
    return tmp_path / "out"


def signed(out: Path, unit: str = UNIT) -> None:
    """Bring all digests up to date, whatever else is wrong."""
    file = out / unit / "unit.json"
    about = json.loads(file.read_text())
    about["files"] = {name: inputs.digest(file.parent / name) for name in about["files"]}
    covered = json.dumps({name: value for name, value in about.items() if name != "digest"}, sort_keys=True)
    file.write_text(json.dumps(about | {"digest": hashlib.sha256(covered.encode()).hexdigest()}))
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["files"] = {name: inputs.digest(out / name) for name in manifest["files"]}
    (out / "manifest.json").write_text(json.dumps(manifest | {"digest": folder._digest(manifest)}))


def places(value: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every value in a JSON document, also of mappings and lists."""
    yield keys
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*keys, key))


def changed(document: Any, keys: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """The document, changed at one place."""
    document = copy.deepcopy(document)
    at = document
    for key in keys[:-1]:
        at = at[key]
    change(at, keys[-1])
    return document


def refused(capsys, *arguments: str) -> str:
    """The one line with which a command refuses."""
    capsys.readouterr()
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    return said


@pytest.mark.parametrize(
    ("keys", "value", "where"),
    [
        (("updates",), "many", "summary.updates: Input should be a valid integer"),
        (("updates",), None, "summary.updates: Input should be a valid integer"),
        (("updates",), True, "summary.updates: Input should be a valid integer"),
        (("updates",), -1, "summary.updates: Input should be greater than or equal to 0"),
        (("gradients",), 5, "summary.gradients: "),
        (("staleness", "mean"), "x", "summary.staleness.mean: "),
        (("copies",), None, "summary.copies: "),
        (("ended_by",), "tired", "summary.ended_by: "),
        (("more",), 1, "summary.more: "),
        (("name",), "d-psgd", "`summary` is that of another run"),
    ],
)
def test_a_summary_of_other_things_is_refused(out, capsys, keys, value, where):
    file = out / UNIT / "unit.json"
    about = json.loads(file.read_text())
    about["summary"] = changed(about["summary"], keys, lambda at, key: at.update({key: value}))
    file.write_text(json.dumps(about))
    signed(out)
    shutil.copytree(out, out.with_name("other"))
    for command in (["show", str(out)], ["compare", str(out), str(out.with_name("other"))], ["report", str(out)]):
        assert f"is not the folder of a whole run: unit.json: {where}" in refused(capsys, *command)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_whatever_is_changed_in_a_units_summary_is_refused_or_shown(out, wrong):
    file = out / UNIT / "unit.json"
    about, taken = json.loads(file.read_text()), 0
    for keys in [keys for keys in places(about["summary"]) if keys]:
        file.write_text(
            json.dumps(about | {"summary": changed(about["summary"], keys, lambda at, key: at.update({key: wrong}))})
        )
        signed(out)
        try:
            result = fred.load_result(out)
        except FredError as error:
            assert len(str(error).splitlines()) == 1
            continue
        taken += 1
        assert printing.tables(result, out)
    assert taken < 35, "a number of the right kind cannot be told from another"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manifest.json", "summary.json"])
@pytest.mark.parametrize("way", ["gone", *range(len(WRONG))])
def test_whatever_is_changed_in_what_a_folder_says_of_itself_is_refused_or_read(out, name, way):
    document = json.loads((out / name).read_text())

    def change(at: Any, key: Any) -> None:
        if way == "gone":
            del at[key]
        else:
            at[key] = WRONG[way]

    for keys in [keys for keys in places(document) if keys and "files" not in keys and "environment" not in keys]:
        (out / name).write_text(json.dumps(changed(document, keys, change)))
        try:
            result = fred.load_result(out)
        except FredError:
            continue
        assert len(result.summary) <= 2
        repr(result.scenario)


FORGED = [  # any number may be in columns of scales, and none
    (column, way)
    for column in dict.fromkeys([*COLUMNS, *SCALES, *Intervals._fields])
    for way in ("text", "gone", *(() if column in SCALES else ("null", "absurd", "gap")))
]


@pytest.mark.parametrize(("column", "way"), FORGED)
def test_a_column_of_other_things_is_refused(out, capsys, column, way):
    """Rows and intervals have columns of their own, and some of the same name."""
    for name in ("schedule", "schedule-intervals"):
        shutil.rmtree(out.with_name("forged"), ignore_errors=True)
        forged = shutil.copytree(out, out.with_name("forged"))
        file = forged / PEERS / f"{name}.parquet"
        table = pq.read_table(file)
        if column not in table.column_names:
            continue
        pq.write_table(_with(table, column, way), file)
        signed(forged, PEERS)
        said = refused(capsys, "export", str(forged), "--only", "d-psgd", "--out", str(out.with_name("a.pftrace")))
        assert f"cannot read {forged / PEERS / 'schedule.parquet'}: " in said
        assert not out.with_name("a.pftrace").exists()


def _with(table: pa.Table, column: str, way: str) -> pa.Table:
    """The table with another column in the place of one."""
    place, rows = table.column_names.index(column), table.num_rows
    values = table[column].to_pylist()
    if way == "gone":
        return table.remove_column(place)
    wrong: dict[str, Any] = {
        "null": pa.array([None] * rows, table[column].type),
        "text": pa.array(["x"] * rows),
        "absurd": pa.array([-(2**40)] * rows),
        "gap": pa.array([None, *(0 if isinstance(each, str) else each for each in values[1:])]),
    }
    return table.set_column(place, column, wrong[way]).replace_schema_metadata(table.schema.metadata)


FACTS = [  # any words may be in `standstill`
    (fact, value)
    for fact in ("workers", "replicas", "blocks", "started", "end_ns", "standstill", "on_servers")
    for value in (None, "x", -1, 7.5, 2**70, [], [0, 5])
    if (fact, value) != ("standstill", "x")
]


@pytest.mark.parametrize(("fact", "value"), FACTS)
def test_facts_of_another_schedule_are_refused(out, capsys, fact, value):
    file = out / UNIT / "schedule.parquet"
    table = pq.read_table(file)
    facts = json.loads(table.schema.metadata[b"fred"])
    pq.write_table(table.replace_schema_metadata({b"fred": json.dumps(facts | {fact: value})}), file)
    signed(out)
    assert "schedule.parquet: " in refused(capsys, "export", str(out), "--only", "asgd")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("metrics", {"virtual_seconds": "x"}),
        ("metrics", {"virtual_seconds": np.nan}),
        ("metrics", {"virtual_seconds": [2.0, 1.0, 3.0]}),
        ("metrics", {"updates": 1.5}),
        ("metrics", {"gradients": -1}),
        ("metrics", {"loss": None}),
        ("metrics", {"note": "x"}),
        ("run-times", {"seconds": "x"}),
        ("run-times", {"seconds": np.inf}),
        ("run-times", {"worker": 2}),
        ("run-times", {"node": None}),
    ],
)
def test_tables_of_other_things_are_refused(out, name, wrong):
    file = out / UNIT / f"{name}.parquet"
    pd.read_parquet(file).assign(**wrong).to_parquet(file, index=False)
    signed(out)
    outcome = fred.load_result(out).outcome("asgd")
    with pytest.raises(FredError, match=f"cannot read .*{name}.parquet: "):
        _ = outcome.metrics if name == "metrics" else outcome.run_times


def test_parameters_that_are_no_numbers_are_refused(out):
    write_arrays(out / UNIT / "params.npz", {"initial/weights": np.zeros(2), "final/weights": np.array(["a", "b"])})
    signed(out)
    with pytest.raises(FredError, match=r"cannot read .*params.npz: `final/weights.npy` holds <U1; expected numbers"):
        _ = fred.load_result(out).outcome("asgd").final


@pytest.mark.parametrize("name", ["../../../elsewhere", "/etc/hostname", "a/b", ".hidden", ""])
def test_a_units_files_lie_in_its_folder(out, capsys, name):
    file = out / UNIT / "unit.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps(about | {"files": about["files"] | {name: "0" * 64}}))
    assert "is not the folder of a whole run: unit.json: files." in refused(capsys, "show", str(out))


def test_numbers_that_json_lacks_are_refused(out, capsys):
    manifest = (out / "manifest.json").read_text()
    (out / "manifest.json").write_text(manifest.replace('"seconds"', '"other": NaN, "seconds"', 1))
    assert "NaN is not a JSON number" in refused(capsys, "report", str(out))
