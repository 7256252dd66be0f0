"""Results that somebody has changed: digests tell; where these fit as well, commands end in one line at most."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fred
from fred import FredError
from tests.folders import resign_manifest, resign_unit, undrawn_results
from tests.program import fred_command, refusal
from tests.worlds import TASK

UNIT, PEERS = "asgd/seed-0", "d-psgd/seed-0"  # with peers, models are in transit: their schedule has intervals, too
SETTINGS: dict[str, Any] = {
    "cluster": {"workers": 2, "network": {"latency": {"name": "constant", "seconds": 0.1}}},
    "task": TASK,
    "stop": {"updates": 6},
    "runs": {name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "d-psgd")},
    "evaluate": {"points": 2, "target_loss": 1.0},
}
PARTS = {  # of an outcome, with the files from which they are read
    "schedule": ("schedule.parquet", "schedule-intervals.parquet"),
    "metrics": ("metrics.parquet",),
    "run_times": ("run-times.parquet",),
    "initial": ("params.npz",),
    "final": ("params.npz",),
}


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


def test_no_part_of_an_outcome_is_read_from_a_changed_file(out):
    outcome = fred.load_result(out).outcome("asgd")
    for part, names in PARTS.items():
        for name in names:
            file = out / UNIT / name
            content = file.read_bytes()
            assert len(getattr(outcome, part))
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            with pytest.raises(
                FredError, match=rf"asgd/seed-0/{name} has changed \(its digest differs\): load the result again"
            ):
                getattr(outcome, part)
            file.unlink()
            with pytest.raises(FredError, match=rf"/asgd/seed-0/{name} is missing: restore it, or run the scenario again"):
                getattr(outcome, part)
            file.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("manifest.json", '"workers": 2', '"workers": 3'), ("summary.json", '"updates": 6', '"updates": 7')],
)
def test_other_settings_and_other_measures_are_refused_by_their_digests(out, name, old, new):
    text = (out / name).read_text()
    assert old in text
    (out / name).write_text(text.replace(old, new))
    assert f"{out / name} has changed (its digest differs)" in refusal("show", out)
    (out / name).write_text(text)
    assert fred_command("show", out).code == 0


def test_output_that_an_encoding_lacks_is_no_fault_of_the_result(out):
    command, variables = [sys.executable, "-m", "fred", "show", out], os.environ | {"PYTHONIOENCODING": "ascii"}
    process = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (
        2,
        "fred: the output has characters that ascii lacks: set PYTHONIOENCODING=utf-8\n",
    )
    variables["PYTHONIOENCODING"] = "utf-8"
    subprocess.run(command, env=variables, capture_output=True, check=True)


def test_other_numbers_in_a_table_are_refused_by_its_digest(out):
    times = pd.read_parquet(file := out / UNIT / "metrics.parquet")
    times.assign(loss=times["loss"] / 2).to_parquet(file, index=False)
    assert f"{file} has changed" in refusal("show", out)


def write_columns(file: Path, **columns: Any) -> None:
    """Replace columns of a table, not the facts of the schedule next to them."""
    table = pq.read_table(file)
    changed = pa.Table.from_pandas(table.to_pandas().assign(**columns), preserve_index=False)
    pq.write_table(changed.replace_schema_metadata({b"fred": (table.schema.metadata or {}).get(b"fred", b"")}), file)


def sign(out: Path) -> None:
    """Make all digests fit."""
    for unit in (UNIT, PEERS):
        resign_unit(out / unit)
    resign_manifest(out)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "x"}, "summary.loss: Input should be a valid number"),
        ({"more": 1}, "summary.more: Extra inputs are not permitted"),
        ({"gradients": {}}, "summary.gradients.computed: Field required"),
    ],
)
def test_a_summary_of_other_keys_or_types_is_refused(out, changes, message):
    summary = json.loads((out / UNIT / "unit.json").read_text())["summary"]
    resign_unit(out / UNIT, summary=summary | changes)
    resign_manifest(out)
    assert f"is not the folder of a whole run: unit.json: {message}" in refusal("show", out)


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("schedule", {"verb": "JUMP"}, "'JUMP'"),
        ("schedule-intervals", {"what": "NAP"}, "'NAP'"),
        ("schedule", {}, ""),
    ],
)
def test_a_signed_file_that_cannot_be_read_is_named(out, name, columns, message):
    file = out / PEERS / f"{name}.parquet"
    write_columns(file, **columns) if columns else file.write_bytes(b"PAR1")
    sign(out)
    error = refusal("export", out, "--only", "d-psgd", "--out", out.with_name("written"))
    names = " and ".join(str(out / PEERS / name) for name in PARTS["schedule"])
    assert f"cannot read {names}: {message}" in error
    assert "run the scenario again into this folder with `--fresh`" in error


@pytest.mark.parametrize(
    ("file", "columns", "command"),
    [
        (f"{UNIT}/metrics.parquet", {"loss": None}, "show"),
        (f"{UNIT}/metrics.parquet", {"loss": "x"}, "draw"),
        (f"{PEERS}/schedule.parquet", {"step": "x"}, "export"),
        (f"{PEERS}/schedule.parquet", {"worker": -5}, "export"),
        (f"{PEERS}/schedule-intervals.parquet", {"row": 2**40}, "export"),
    ],
)
def test_signed_content_that_no_run_writes_ends_in_one_line(out, file, columns, command):
    write_columns(out / file, **columns)
    sign(out)
    written = out.with_name("written")
    options = {"show": [], "draw": ["--out", written], "export": ["--only", "d-psgd", "--out", written]}[command]
    error = refusal(command, out, *options)
    assert f"`fred {command} {out}" in error
    assert "found other content than `fred run` writes (" in error
    assert not written.exists()


def test_files_outside_the_folder_and_numbers_that_json_lacks_are_refused(out):
    manifest = (out / "manifest.json").read_text()
    (out / "manifest.json").write_text(manifest.replace('"seconds"', '"other": NaN, "seconds"', 1))
    assert "NaN is not a JSON number" in refusal("report", out)
    (out / "manifest.json").write_text(manifest)
    record = json.loads((out / UNIT / "unit.json").read_text())
    for name in ("../../../elsewhere", "/etc/hostname", "a/b", ".hidden", ""):
        (out / UNIT / "unit.json").write_text(json.dumps(record | {"files": record["files"] | {name: "0" * 64}}))
        assert "is not the folder of a whole run: unit.json: files." in refusal("show", out), name
