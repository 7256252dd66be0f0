"""Tables in files of every kind have the same cells; lines around a table and the format of numbers do not count."""

import bz2
import gzip
import io
import json
import lzma
import re
import shlex
import sqlite3
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fred.base.errors import FredError
from fred.tables import quantities
from fred.tables.columns import File
from fred.tables.content import read_content, read_contents
from fred.tables.opening import open_table

FRAME = pd.DataFrame({"step": [0, 0, 1, 1], "rank": [0, 1, 0, 1], "step_time": [0.5, 1633.5, 2.0, 0.25]})
CSV = FRAME.to_csv(index=False)


def open_path(path: Path) -> File:
    return open_table(read_content(path))


def zip_bytes(data: bytes) -> bytes:
    with zipfile.ZipFile(stream := io.BytesIO(), "w") as archive:
        archive.writestr("inner.csv", data)
    return stream.getvalue()


def zstandard(data: bytes) -> bytes:
    with pa.CompressedOutputStream(stream := pa.BufferOutputStream(), "zstd") as out:
        out.write(data)
    return stream.getvalue().to_pybytes()


def write_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as base:
        FRAME.to_sql("times", base, index=False)


FILES: dict[str, Callable[[Path], object]] = {
    "a.csv": lambda path: path.write_text(CSV),
    "a.csv.gz": lambda path: path.write_bytes(gzip.compress(CSV.encode())),
    "a.txt": lambda path: path.write_bytes(bz2.compress(CSV.encode())),  # its bytes say how it is packed, not its name
    "a.csv.xz": lambda path: path.write_bytes(lzma.compress(CSV.encode())),
    "a.csv.zst": lambda path: path.write_bytes(zstandard(CSV.encode())),
    "a.zip": lambda path: path.write_bytes(zip_bytes(CSV.encode("utf-16"))),
    "utf16.csv": lambda path: path.write_text(CSV, encoding="utf-16"),
    "utf16le.csv": lambda path: path.write_text(CSV, encoding="utf-16-le"),
    "a.tsv": lambda path: FRAME.to_csv(path, sep="\t", index=False),
    "semicolons.csv": lambda path: FRAME.to_csv(path, sep=";", decimal=",", index=False),
    "spaces.txt": lambda path: path.write_text(FRAME.to_string(index=False)),
    "a.md": lambda path: path.write_text(FRAME.astype(str).pipe(markdown)),
    "crlf.csv": lambda path: path.write_bytes(CSV.replace("\n", "\r\n").encode()),
    "comments.csv": lambda path: path.write_text(f"# run 7, llama\n\n// host a\n{CSV}# the end\n"),
    "commented header.csv": lambda path: path.write_text(f"# run 7\n# {CSV}"),
    "above.csv": lambda path: path.write_text(f"Report of run 7\n\n{CSV}"),
    "headers.csv": lambda path: path.write_text(CSV.replace("1,0,", "step,rank,step_time\n1,0,")),
    "units.csv": lambda path: path.write_text(CSV.replace("\n", "\n[-],[-],[s]\n", 1)),
    "cells.csv": lambda path: path.write_text("step,rank,step_time\n0,0,500ms\n0,1, 1633.5 s\n1,0,2 s\n1,1,250 ms\n"),
    "clock.csv": lambda path: path.write_text("step,rank,step_time\n0,0,0 days 00:00:00.5\n0,1,0:27:13.5\n1,0,00:02\n1,1,PT0.25S\n"),
    "thousands.csv": lambda path: path.write_text('step,rank,step_time\n0,0,0.5\n0,1,"1,633.5"\n1,0,2\n1,1,.25\n'),
    "a.parquet": lambda path: FRAME.to_parquet(path),
    "a.feather": lambda path: FRAME.to_feather(path),
    "timedelta.parquet": lambda path: FRAME.assign(step_time=pd.to_timedelta(FRAME["step_time"], "s")).to_parquet(path),
    "a.sqlite": write_sqlite,
    "a.jsonl": lambda path: FRAME.to_json(path, orient="records", lines=True),
    "nan.jsonl": lambda path: path.write_text(FRAME.to_json(orient="records", lines=True).replace("0.25", "NaN")),
    "cut.jsonl": lambda path: path.write_text(FRAME.to_json(orient="records", lines=True) + '{"step": 2, "ra'),
    "records.json": lambda path: FRAME.to_json(path, orient="records"),
    "columns.json": lambda path: FRAME.to_json(path),
    "split.json": lambda path: FRAME.to_json(path, orient="split"),
    "cut.csv": lambda path: path.write_text(f"{CSV}2,"),
}  # fmt: skip


def markdown(frame: pd.DataFrame) -> str:
    lines = [list(frame.columns), ["---"] * frame.shape[1], *frame.to_numpy().tolist()]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


@pytest.mark.parametrize("name", FILES)
def test_a_table_has_the_same_cells_in_every_file(name, tmp_path):
    FILES[name](tmp_path / name)
    file = open_path(tmp_path / name)
    labels, numbers = file.columns(["rank"], ["step", "step_time"])
    assert (file.header, labels["rank"].names) == (["step", "rank", "step_time"], ["0", "1"])
    expected = FRAME["step_time"].replace(0.25, np.nan) if name == "nan.jsonl" else FRAME["step_time"]
    np.testing.assert_allclose(numbers["step_time"], expected, rtol=1e-12)
    assert numbers["step"].tolist() == [0, 0, 1, 1] and labels["rank"].codes.tolist() == [0, 1, 0, 1]
    if name.endswith("csv"):
        line = int(file.describe_row(3).rpartition(":")[2])
        assert (
            (tmp_path / name)
            .read_bytes()
            .decode("utf-16" if name == "utf16.csv" else "latin-1")
            .replace("\0", "")
            .split("\n")[line - 1]
            .startswith(("1,1,", "1;1;"))
        )


def test_what_is_left_out_is_told(tmp_path):
    for name, note in (
        ("above.csv", "1 line above the table left out"),
        ("headers.csv", "the header stands 2 times"),
        ("cut.csv", "the last line is cut off, and left out"),
        ("utf16.csv", "text in utf-16"),
        ("semicolons.csv", "decimals after a comma in `step_time`"),
        ("thousands.csv", "commas between thousands in `step_time`"),
    ):
        FILES[name](tmp_path / name)
        file = open_path(tmp_path / name)
        file.columns([], ["step_time"])
        assert file.notes == [note]


def test_archives_and_folders_hold_files_in_the_order_of_their_names(tmp_path):
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        for name in ("b.csv", "a/c.csv", ".DS_Store", "__MACOSX/b.csv", "README.md"):
            archive.writestr(name, CSV)
    (tmp_path / "more").mkdir()
    for name in ("2.csv", "1.csv", ".hidden"):
        (tmp_path / "more" / name).write_text(CSV)
    names = [str(file.path.relative_to(tmp_path)) for file in read_contents([tmp_path / "logs.zip", tmp_path / "more"])]
    assert names == ["logs.zip/a/c.csv", "logs.zip/b.csv", "more/1.csv", "more/2.csv"]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_a_tape_archive_holds_the_files_of_its_folder(mode, tmp_path):
    (tmp_path / "logs").mkdir()
    for name in ("rank1.csv", "rank0.csv"):
        (tmp_path / "logs" / name).write_text(f"{CSV}{name}")
    (tmp_path / "logs" / "run.yaml").write_text("a: 1")
    with tarfile.open(tmp_path / "logs.tar", mode) as archive:
        archive.add(tmp_path / "logs", "logs")
    members = read_contents([tmp_path / "logs.tar"])
    assert [member.text for member in members] == [member.text for member in read_contents([tmp_path / "logs"])]
    assert [str(member.path.relative_to(tmp_path)) for member in members] == [
        "logs.tar/logs/rank0.csv",
        "logs.tar/logs/rank1.csv",
    ]
    data = (tmp_path / "logs.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(data[: min(700, len(data) // 2)])
    with pytest.raises(FredError, match=r"cannot read .*cut\.tar: "):
        read_contents([tmp_path / "cut.tar"])


@pytest.mark.parametrize("names", [("0/stdout.log", "0/stderr.log"), ("step-0.out", "step-0.err")], ids=["torchrun", "Slurm"])
@pytest.mark.parametrize("order", [1, -1], ids=["steps in stdout", "steps in stderr"])
def test_of_two_streams_that_a_launcher_wrote_the_one_with_the_steps_counts(names, order, tmp_path):
    texts = ["step: 1, time: 5 ms\nstep: 2, time: 4 ms\n", 40 * "a warning\n"][::order]
    for name, text in zip(names, texts, strict=True):
        (tmp_path / "0").mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (member,) = read_contents([tmp_path])
    assert member.text.startswith("step: 1") and member.notes[-1] == f"files of {'stderr' if order == 1 else 'stdout'} left out"


def test_reports_of_rays_trials_count_whatever_files_of_its_state_lie_above_and_next_to_them(tmp_path):
    for trial in ("train_0", "train_1"):
        (tmp_path / "exp" / trial).mkdir(parents=True)
        for name in ("params.json", "params.pkl", "result.json", "progress.csv"):
            (tmp_path / "exp" / trial / name).write_text(f"{trial},{name}")
    for state in ("experiment_state-1.json", "basic-variant-state-1.json", "tuner.pkl"):
        (tmp_path / "exp" / state).write_text("{}")
    with tarfile.open(tmp_path / "exp.tar", "w") as archive:
        archive.add(tmp_path / "exp", "exp")
    reports = ["train_0,progress.csv", "train_1,progress.csv"]
    for path in (tmp_path, tmp_path / "exp", tmp_path / "exp.tar"):
        assert [member.text for member in read_contents([path])] == reports
    assert [member.text for member in read_contents([tmp_path / "exp" / "train_1"])] == reports[1:]


def test_other_files_and_folders_around_the_logs_count_alike_in_folders_and_archives(tmp_path):
    folder = tmp_path / "runs"
    for name in ("rank0/metrics.csv", "rank1/metrics.csv", "rank0/hparams.yaml", ".git/a.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(CSV)
    with zipfile.ZipFile(tmp_path / "runs.zip", "w") as archive:
        for path in sorted(folder.rglob("*.*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    for path in (folder, tmp_path / "runs.zip"):
        files = read_contents([path])
        assert [str(file.path.relative_to(path)) for file in files] == ["rank0/metrics.csv", "rank1/metrics.csv"]
        assert files[0].notes == (f"files of {path} with other endings than .csv left out: hparams.yaml",)


def test_rows_of_one_value_are_chosen_and_keep_their_places(tmp_path):
    (tmp_path / "a.csv").write_text(CSV)
    file = open_path(tmp_path / "a.csv")
    file.restrict({"rank": "1"})
    assert file.columns([], ["step_time"])[1]["step_time"].tolist() == [1633.5, 0.25]
    assert file.describe_row(1).endswith("a.csv:5")
    with pytest.raises(FredError, match="no row has '7' in column `rank`; it has '0', '1'"):
        file.restrict({"rank": "7"})


def test_a_single_column_may_have_units_after_spaces(tmp_path):
    (tmp_path / "a.csv").write_text("delay\n250 ms\n0.5 s\n")
    assert open_path(tmp_path / "a.csv").columns([], ["delay"])[1]["delay"].tolist() == [0.25, 0.5]
    (tmp_path / "a.csv").write_text("rate\n250 kB/s\n2 MB/s\n")
    file = open_path(tmp_path / "a.csv")
    assert file.quantities("rate", {"kB/s": 1e3, "MB/s": 1e6}).tolist() == [250_000, 2_000_000]
    with pytest.raises(
        FredError, match=r"a.csv:2: expected a number, or one with a unit such as m in column `rate`; found '250 kB/s'"
    ):
        file.quantities("rate", {"m": 1.0})


@pytest.mark.parametrize(
    ("cells", "row"),
    [(["1,633", "2,100"], 0), (["408 ms", "409"], 1), (["5 parsecs"], 0), (["1_000"], 0), (["1.5", "fast"], 1), (["12 34"], 0)],
)
def test_a_number_that_may_mean_two_things_is_refused(cells, row):
    with pytest.raises(quantities.CellError) as refused:
        quantities.parse_numbers(cells)
    assert refused.value.row == row


def test_a_comma_before_three_digits_is_clear_between_semicolons_only_if_all_numbers_have_one(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("rank;ms\n0;1,068\n1;2,123\n")
    assert open_path(path).columns([], ["ms"])[1]["ms"].tolist() == [1.068, 2.123]
    for text in ("rank;ms\n0;1,068\n1;969\n", "rank\tms\n0\t1,068\n1\t2,123\n"):
        path.write_text(text)
        with pytest.raises(FredError, match="a number whose comma is clear"):
            open_path(path).columns([], ["ms"])


def test_dates_of_many_forms_are_the_same_moment():
    dates = ["2026-05-03T10:00:00Z", "2026-05-03 10:00", "2026/05/03 10:00:00.0", "2026-05-03T12:00:00+02:00", "20260503"]
    assert np.ptp(quantities.parse_moments(dates[:-1])) == 0
    assert quantities.parse_moments(["2025-06-21 8:54", "2025-06-21T08:54", "6/21/2025 8:54"]).tolist() == [1750496040.0] * 3
    assert quantities.parse_moments(["21/6/2025 10:54", "1/7/2025 10:54 AM"]).tolist() == [1750503240.0, 1751367240.0]
    with pytest.raises(quantities.CellError, match="day and month can be told apart"):
        quantities.parse_moments(["6/7/2025 10:54", "5/7/2025 10:54"])
    with pytest.raises(quantities.CellError, match="a date and a time"):
        quantities.parse_moments(dates[-1:])


def test_damaged_and_foreign_files_are_refused_with_what_they_are(tmp_path):
    for name, data, message in (
        ("a.gz", gzip.compress(CSV.encode())[:-9], "damaged or cut off"),
        ("a.zip", zip_bytes(CSV.encode())[:60], "damaged or locked archive"),
        ("a.npy", b"\x93NUMPY\x01\0", "it is an array without names"),
        ("a.pkl", b"\x80\x04\x95", "pandas.read_pickle"),
        ("b.bin", bytes(range(256)) * 4, "not text, Parquet, Arrow or SQLite"),
        ("a.sqlite", b"SQLite format 3\0", "cannot read .*a.sqlite"),
        ("a.zst", zstandard(bytes(2**28 + 1)), r"a.zst: unpacked it has more than 268,435,456 bytes; unpack it"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FredError, match=message):
            open_path(tmp_path / name)


@pytest.mark.parametrize("name", ["times.npy", "times.npz", "times.json", "levels.csv", "big.csv", "matrix.csv"])
def test_the_command_in_the_refusal_of_a_table_without_names_makes_one(tmp_path, monkeypatch, name):
    """Arrays of NumPy, lists of lists, two lines of names by pandas, commas between thousands, a matrix of four columns."""
    monkeypatch.chdir(tmp_path)
    times = np.arange(1.0, 13).reshape(3, 4) * 1000
    np.save("times.npy", times)
    np.savez("times.npz", compute=times)
    Path("times.json").write_text(json.dumps(times.tolist()))
    levels = pd.DataFrame(times, columns=pd.MultiIndex.from_product([["compute_s"], range(4)], names=[None, "rank"]))
    levels.rename_axis("step").to_csv("levels.csv")
    Path("big.csv").write_text("step,seconds\n" + "".join(f'{i},"{int(time):,}"\n' for i, time in enumerate(times.ravel())))
    np.savetxt("matrix.csv", times, delimiter=",")
    with pytest.raises(FredError) as refused:
        open_path(Path(name)).columns([], ["seconds"])
    command = re.search("`((?:python|sed) [^`]+)`", str(refused.value))
    assert command
    words = shlex.split(command[1])
    exec(words[2], {}) if words[0] == "python" else subprocess.run(words, check=True)
    outputs = {"times.npz": "compute.csv", "times.json": "times.csv", "times.npy": "times.csv", "matrix.csv": "matrix.csv"}
    table = pd.read_csv(outputs.get(name, f"{name[:-4]}-2.csv"))
    columns = [column for column in table if column != "step"]
    np.testing.assert_allclose(table[columns].to_numpy().ravel(), times.ravel())


def test_a_line_of_titles_with_mostly_empty_cells_is_no_header(tmp_path):
    """Spreadsheets and dstat write such titles."""
    (tmp_path / "a.csv").write_text("Run 7;;;\nstep;rank;time;size\n0;0;0,5;1\n0;1;0,25;2\n")
    table = open_path(tmp_path / "a.csv")
    assert table.header == ["step", "rank", "time", "size"]
    assert table.columns([], ["time"])[1]["time"].tolist() == [0.5, 0.25]
    assert "1 line above the table left out" in table.notes
