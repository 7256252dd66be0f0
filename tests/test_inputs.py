"""Damaged input of users, of every kind that has come up: refused in one line with the expected value, never a traceback."""

import gzip
import itertools
import json
import os
import struct
import warnings
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fred
from fred import Cluster, Dataset, Examples, FredError, load, load_result, scenario
from fred.base import disk, environment
from fred.components import registry
from fred.learning.data import images
from fred.learning.data.images import MNIST
from fred.prediction.comparison import rule_named
from fred.prediction.deep import saved
from fred.running import stored
from fred.running.execution import execute
from fred.specification.source import keys_of
from fred.traces.reading import read
from fred.views import charts
from tests.program import refusal
from tests.worlds import make_run, record

SCENARIO = "algorithm: {name: asgd, learning_rate: 0.1}\ncluster: {workers: 2}\nstop: {updates: 5}\n"
NAMES = ("train_inputs", "train_answers", "evaluation_inputs", "evaluation_answers")
X, Y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 2, 0])
ENDLESS = "9" * 5000, "0x" + "f" * 6000  # numbers that Python does not write out


def check_refusal(function: Any, message: str) -> str:
    with pytest.raises(FredError, match=message) as error:
        function()
    assert "\n" not in str(error.value)
    return str(error.value)


def arrays(file: Path) -> Any:
    return registry.lookup("data", "arrays")(file=str(file))


class TestArrays:
    def test_what_are_no_examples_is_refused_without_a_warning(self, tmp_path):
        for name, array, message in (
            ("train_inputs", np.array(["a"] * 4), "holds <U1; expected numbers"),
            ("train_inputs", X.astype(complex), "holds complex128; expected numbers"),
            ("train_inputs", np.float32(1), "`train_inputs` is a single number"),
            ("train_inputs", np.zeros((4, 0, 0)), "expected some numbers for each example"),
            ("train_answers", np.zeros((4, 0)), r"expected values \[n, 0\] float32"),
            ("train_answers", np.array([0, 1, 2, 2**40]), "class numbers from 0 to 1099511627776"),
            ("train_answers", np.array([0, 1, 2, -(2**40)]), "class numbers from -1099511627776"),
            ("train_answers", np.array([], int), "expected as many answers as inputs"),
            ("train_inputs", np.zeros((0, 3)), "expected as many answers as inputs"),
            ("train_inputs", X + 1e300, "some numbers are not finite"),
            ("evaluation_answers", np.full(4, np.inf), r"evaluation data: answers are \[4, 1\] float32"),
            ("evaluation_answers", np.full((4, 2), -np.inf, np.float16), r"evaluation data: answers are \[4, 2\] float32"),
            ("evaluation_answers", np.full(4, 1e300), r"evaluation data: answers are \[4, 1\] float32"),
            ("evaluation_answers", np.full(4, None), "holds object; expected numbers"),
        ):
            stored: dict[str, Any] = {**dict(zip(NAMES, (X, Y, X, Y), strict=True)), name: array}
            np.savez(tmp_path / "a.npz", **stored)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert f"{tmp_path}/" in check_refusal(lambda: arrays(tmp_path / "a.npz").load(0), message), "which file it is"

    def test_a_single_array_a_false_header_and_missing_arrays_are_refused(self, tmp_path):
        file = tmp_path / "a.npz"
        np.save(tmp_path / "a.npy", X)
        check_refusal(lambda: disk.arrays(tmp_path / "a.npy"), r"it is damaged, or not an NPZ file")
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }"  # no memory is allocated
        with ZipFile(file, "w") as archive:
            archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        check_refusal(lambda: disk.arrays(file), r"it is damaged")
        np.savez(file, train_inputs=X)
        check_refusal(lambda: arrays(file).load(0), r"has no array `train_answers`")

    def test_any_flipped_bit_is_found_or_harmless(self, tmp_path):
        """Those of a zip's directory have ten kinds of errors: every 37th bit, so that all bytes and kinds come up."""
        file = tmp_path / "a.npz"
        np.savez(file, **dict(zip(NAMES, (X, Y, X, Y), strict=True)))  # type: ignore[arg-type]
        intact, expected, refusals = file.read_bytes(), disk.arrays(file), 0
        for bit in range(0, 8 * len(intact), 37):
            damaged = bytearray(intact)
            damaged[bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            try:
                content = disk.arrays(file)
                assert all(np.array_equal(content[name], expected[name]) for name in NAMES if name in content)
            except FredError:
                refusals += 1
        assert refusals > len(intact) // 9, "most bits are the arrays'"

    def test_a_name_gets_its_ending_and_truth_values_are_classes(self, tmp_path):
        data = fred.arrays(tmp_path / "model.v1", train=(X, Y > 0), evaluation=(X, Y > 0))
        assert [data.file] == [str(file) for file in tmp_path.iterdir()] == [str(tmp_path / "model.v1.npz")]
        dataset = data.load(0)
        assert dataset.classifies
        assert (dataset.outputs, dataset.train.answers.tolist()) == (2, (Y > 0).astype(int).tolist())

    def test_bad_arrays_overwrite_nothing_and_other_contents_are_not_replaced(self, tmp_path):
        file, raw = tmp_path / "a.npz", tmp_path / "raw.npz"
        fred.arrays(file, train=(X, Y), evaluation=(X, Y))
        np.savez(raw, X=X, y=Y)
        before = file.read_bytes(), raw.read_bytes()
        for answers in (Y[1:], np.array(["a"] * 4), [[1], [2, 3]], Y + 2**40):
            check_refusal(lambda answers=answers: fred.arrays(file, train=(X, answers), evaluation=(X, Y)), "")
        check_refusal(lambda: fred.arrays(raw, train=(X, Y), evaluation=(X, Y)), r"raw\.npz exists and does not hold examples")
        assert (file.read_bytes(), raw.read_bytes()) == before


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_has_no_end_is_no_file(kind, tmp_path):
    """A program would wait for ever for a pipe without a writer, and read for ever from a device."""
    endless = tmp_path / "pipe" if kind == "pipe" else Path("/dev/zero")
    if kind == "pipe":
        os.mkfifo(endless)
    for function in (disk.text, disk.arrays, disk.digest, read, load, lambda file: arrays(file).load(0)):
        check_refusal(lambda function=function: function(endless), r"it is not a file")
    folder = tmp_path / "result"
    folder.mkdir()
    for name in ("manifest.json", "summary.json"):
        (folder / name).symlink_to(endless)
        check_refusal(lambda: load_result(folder), r"it is not a file")
        (folder / name).unlink()
        (folder / name).write_text("{}")
    (tmp_path / "m.npz").write_bytes(saved.SHIPPED.read_bytes())
    (tmp_path / "m.json").symlink_to(endless)
    with pytest.raises(ValueError, match=r"it is not a file"):
        saved.load(tmp_path / "m.npz")


def test_damaged_predictors_and_numbers_beyond_their_limits_are_refused(tmp_path):
    description, content = json.loads(saved.SHIPPED.with_suffix(".json").read_text()), saved.SHIPPED.read_bytes()
    (tmp_path / "m.npz").write_bytes(content)
    wrong = [("normaliser", -1.0), ("normaliser", float("nan")), ("normaliser", 0.0), ("window", 10**20), ("window", 0)]
    for key, value in (*wrong, ("workers", -1), ("nodes", []), ("pace", [0.5, float("inf")]), ("bounds", [1.0, -1.0])):
        (tmp_path / "m.json").write_text(json.dumps(description | {key: value}))
        with pytest.raises(ValueError, match=r"cannot read .*m\.json: .*expected what `fred train-cutoff` writes"):
            saved.load(tmp_path / "m.npz")
    (tmp_path / "m.json").write_text(json.dumps(description))
    for place in (6, 8):  # flags, compression
        damaged = bytearray(content)
        damaged[content.index(b"PK\x01\x02") + 2 + place] ^= 1
        (tmp_path / "m.npz").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"m\.npz: it is damaged.*train-cutoff"):
            saved.load(tmp_path / "m.npz")
    for option in ("steps", "window", "particles", "seed", "warm_up"):
        protocol = {"name": "cutoff", "rule": {"name": "dmm", option: 10**20}}
        message = f"{option}: found 1{'0' * 20}; expected less than 2147483648"
        check_refusal(lambda protocol=protocol: make_run("cutoff-sgd", protocol=protocol), message)
    for name in ("count:" + "9" * 5000, "count:1" + "0" * 20, "count:0"):
        check_refusal(lambda name=name: rule_named(name), r"expected a number of workers after `count:`")


class TestScenarios:
    @pytest.fixture
    def file(self, tmp_path) -> Path:
        (tmp_path / "a.yaml").write_text(SCENARIO)
        return tmp_path / "a.yaml"

    def test_numbers_of_thousands_of_digits_are_refused_and_only_the_ten_digits_count_items(self, file):
        assert keys_of("a.12.٣") == ("a", 12, "٣")
        places = ("cluster.workers={}", "cluster.{}=1", "seeds.{}=1", "{}=1", "title={}", "cluster={{{}: 1}}")
        for number, place in itertools.product(ENDLESS, places):
            check_refusal(lambda place=place, number=number: load(file, [place.format(number)]), "")
        message = r"found a number with thousands of digits"
        for extra in ("sweep: {over: {cluster.workers: [N]}}", "? N\n: 1", "task: {data: digits, model: mlp, batch_size: N}"):
            file.write_text(SCENARIO + extra.replace("N", ENDLESS[1]))
            check_refusal(lambda: load(file), rf"a\.yaml:\d: .*{message}")
        for cluster in ({"workers": 10**5000}, {10**5000: 1}, {"workers": 2, "nodes": [10**5000]}):
            with pytest.raises(FredError, match=f"cluster.*{message}"):
                scenario(algorithm={"name": "asgd", "learning_rate": 1}, cluster=cluster, stop={"updates": 1})

    def test_numbers_that_are_too_large_and_bytes_that_are_no_text_are_refused_in_one_line(self, file):
        assert str(FredError("found a\n  b\r\n\nc", "and d")) == "found a b c\nand d", "each a line, whatever it quotes"
        check_refusal(lambda: load(file, ["cluster.workers=1e20"]), r"found 1e\+20; expected a smaller number")
        check_refusal(lambda: load(file, [f"seeds=[{10**20}]"]), r"expected less than 4294967296")
        file.write_bytes(SCENARIO.encode() + b"title: \xff\n")
        check_refusal(lambda: load(file), r"a\.yaml:4: it is not UTF-8 text")

    def test_a_sweep_may_mix_numbers_and_others(self):
        ssp = {"name": "ssp", "learning_rate": 0.1}
        mixed = {"algorithm.learning_rate": [0.1, "0.2"], "cluster.nodes": [1, [2, 2]], "protocol.bound": [1, None]}
        for key, values in mixed.items():
            sweep = {"over": {key: values}}
            result = fred.run(scenario(algorithm=ssp, cluster={"workers": 4}, stop={"updates": 4}, sweep=sweep))
            assert len(result.sweep) == 2 and result.plot("sweep")

    @pytest.mark.usefixtures("undrawn")
    def test_iterations_of_a_plan(self, tmp_path):
        rounds = scenario(algorithm={"name": "ssgd", "learning_rate": 1}, cluster={"workers": 2}, stop={"updates": 3})
        fred.run(rounds, out=tmp_path / "out")
        numbers = "expected N=COUNT"
        for text, message in (("1=100,1=50", "N = 1 is there twice"), (f"{10**20}=3", numbers), (f"{'9' * 5000}=3", numbers)):
            assert message in refusal("plan", tmp_path / "out", "--iterations", text)


class TestTraces:
    COLUMNS = {"iteration": [0, 0, 1, 1], "worker": [0, 1, 0, 1], "seconds": [1.0, 2.0, 1.0, 2.0]}

    def test_a_column_has_one_role_and_a_name_of_its_own(self, tmp_path):
        frame = pd.DataFrame(self.COLUMNS)
        frame.to_csv(tmp_path / "t.csv", index=False)
        frame.to_parquet(tmp_path / "t.parquet")
        for names, column in (
            (("iteration", "worker"), "worker"),
            (("time", "worker"), "worker"),
            (("start", "end"), "seconds"),
        ):
            columns = dict.fromkeys(names, column)
            for file in (tmp_path / "t.csv", tmp_path / "t.parquet"):
                check_refusal(lambda file=file, columns=columns: read(file, columns=columns), r"cannot be both")
        table = pa.table(self.COLUMNS)
        columns = [*(table[name] for name in table.column_names), table["seconds"]]  # type: ignore[assignment]
        pq.write_table(pa.Table.from_arrays(columns, names=[*table.column_names, "seconds"]), tmp_path / "t.parquet")
        check_refusal(lambda: read(tmp_path / "t.parquet"), r"has 2 columns `seconds`")

    def test_a_byte_that_is_no_utf_8_is_told_with_its_line_however_far_down(self, tmp_path):
        lines = ["iteration,worker,seconds,note", *(f"{i},0,1.5,fine" for i in range(3000))]
        content = "\n".join(lines).encode().replace(b"2500,0,1.5,fine", b"2500,0,1.5,\xff")
        (tmp_path / "t.csv").write_bytes(content)
        assert "text in Windows-1252, because line 2502 is not UTF-8" in read(tmp_path / "t.csv").notes

    def test_what_is_no_table_is_not_quoted(self, tmp_path):
        for text in ("secret:x:0\nroot:*:1::\nadam:y:1\n", "secret\n", "secret phrase\nof two lines\n"):
            (tmp_path / "shadow").write_text(text)
            for name, option in (("trace", "file"), ("empirical", "csv")):
                compute = {"name": name, option: str(tmp_path / "shadow")}
                with pytest.raises(FredError, match=r"shadow( has no rows|:1: no table begins here)") as error:
                    make_run(cluster={"workers": 2, "compute": compute})
                assert not any(word in str(error.value) for word in ("secret", "adam", "two lines"))
        (tmp_path / "unit.json").write_text("secret:x:0\nroot:*:1::\n")
        assert "secret" not in check_refusal(lambda: stored.load(tmp_path, make_run()), r"is not the folder of a whole run")


class TestImages:
    @staticmethod
    def idx(path: Path, shape: tuple[int, ...], content: bytes) -> None:
        header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
        path.write_bytes(gzip.compress(header + content, 1))

    def test_more_than_was_promised_is_not_unpacked(self, tmp_path, monkeypatch):
        sizes = list[int]()
        self.idx(tmp_path / "train-images-idx3-ubyte.gz", (2, 1, 1), bytes(1 << 26))
        original_read = gzip.GzipFile.read

        def counting_read(self: gzip.GzipFile, size: int | None = -1) -> bytes:
            sizes.append(len(content := original_read(self, size)))
            return content

        monkeypatch.setattr(gzip.GzipFile, "read", counting_read)
        load = MNIST(directory=tmp_path, canonical=False).load
        check_refusal(lambda: load(0), r"images-idx3-ubyte.gz is too long: expected 18 bytes")
        assert 18 < sum(sizes) < 1 << 22, "of 64 MB"
        monkeypatch.setattr(images, "_MOST_IMAGES", 3)
        (tmp_path / "data_batch_1.bin.gz").write_bytes(gzip.compress(bytes(4 * 3073), 1))
        check_refusal(lambda: images.CIFAR10(directory=tmp_path).load(0), r"data_batch_1.bin.gz is too long")

    def test_images_have_pixels(self, tmp_path):
        for part in ("train", "t10k"):
            self.idx(tmp_path / f"{part}-images-idx3-ubyte.gz", (2, 0, 0), b"")
            self.idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", (2,), b"\0\1")
        message = r"training data: inputs are .2, 0, 0, 1. and .*expected some numbers"
        check_refusal(lambda: MNIST(directory=tmp_path, canonical=False).load(0), message)
        empty = Examples(np.zeros((2, 0), np.float32), np.zeros(2, np.int32))
        check_refusal(lambda: Dataset(empty, empty, 1), r"expected some numbers")


class TestFaults:
    CRASHES = {"name": "crashes", "mean_up": 1.0}
    LONG = {"name": "constant", "seconds": 1e8}

    @pytest.mark.parametrize("limit", [{"updates": 10}, {"seconds": 1e9}], ids=str)
    def test_a_worker_that_only_crashes_is_named(self, limit, monkeypatch):
        monkeypatch.setattr("fred.timing.world.MOST_TRIES", 100)
        run = make_run("asgd", task=None, cluster={"workers": 3, "compute": self.LONG, "faults": [self.CRASHES]}, stop=limit)
        with pytest.raises(FredError, match=r"`cluster.faults`: worker . has gone offline 100 times since .* longer `mean_up`"):
            execute("run", run, 0)

    def test_crashes_are_counted_from_the_last_update(self, monkeypatch):
        monkeypatch.setattr("fred.timing.world.MOST_TRIES", 25)
        machines = Cluster(workers=1, compute={"name": "constant", "seconds": 1.0}, faults=[self.CRASHES])
        schedule = record(registry.lookup("protocol", "asynchronous")(), machines, seconds=1000.0)
        assert schedule.counts()["dropped"] > 50

    def test_a_server_that_is_asked_for_after_ages(self, monkeypatch):
        monkeypatch.setattr("fred.cluster.faults._MOST_CRASHES", 50_000)
        network = {"network": {"server_bandwidth": 1e6}, "faults": [{**self.CRASHES, "of": "servers"}]}
        cluster = {"workers": 4, "compute": self.LONG, **network}
        with pytest.raises(FredError, match=r"`cluster.faults`: more than .* crashes; server 0 alone .* longer times"):
            execute("run", make_run("ssp", task=None, cluster=cluster), 0)

    def test_absences_without_a_gap_and_messages_that_are_always_lost(self):
        crashes = self.CRASHES | {"mean_up": 1e-9, "away": {"name": "constant", "seconds": 1.0}}
        fault = {"name": "lost-messages", "share": 1 - 1e-10, "again_after": 1e-9}
        for algorithm, faults, message in (
            ("ssgd", [crashes, crashes], r"worker 0 is offline 10,000 times in a row"),
            ("asgd", [fault], r"a message .* is lost 10,000 times in a row; give a smaller `share`"),
        ):
            with pytest.raises(FredError, match=f"`cluster.faults`: {message}"):
                execute("run", make_run(algorithm, task=None, cluster={"workers": 2, "faults": faults}), 0)


def test_threads_are_a_number(monkeypatch):
    for threads in ("abc", "0", "-1", "1.5", "²", ""):
        monkeypatch.setenv("FRED_THREADS", threads)
        check_refusal(environment.check, f"FRED_THREADS={threads}: expected a number of threads")


def test_pictures_say_nothing_of_what_their_font_lacks(tmp_path):
    columns = {"virtual_seconds": [0.0, 1.0], "updates": [0, 1], "gradients": [0, 1], "loss": [2.0, 1.0]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        charts.learning(pd.DataFrame({"run": "a", "seed": 0, **columns}), "loss", "データ").save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").is_file()
