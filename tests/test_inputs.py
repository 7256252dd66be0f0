"""What users give, damaged in every way that was found: refused with a line that says what was expected, never a traceback."""

import gzip
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
from fred.base import environment, inputs
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.commands.plan import _pairs
from fred.components import registry
from fred.learning.data import images
from fred.learning.data.dataset import Dataset, Examples
from fred.learning.data.images import MNIST
from fred.prediction.comparison import rule_named
from fred.prediction.deep import saved
from fred.results.folder import load_result
from fred.running import checkpoints, stored, work
from fred.running.checkpoints import Following
from fred.running.execution import execute
from fred.running.unit import Unit
from fred.specification.loading import load, scenario
from fred.specification.source import keys_of
from fred.traces.reading import read
from fred.views import curves
from tests.worlds import make_run, record

GOOD = "algorithm: {name: asgd, learning_rate: 0.1}\ncluster: {workers: 2}\nstop: {updates: 5}\n"
NAMES = ("train_inputs", "train_answers", "evaluation_inputs", "evaluation_answers")
X, Y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 2, 0])
ENDLESS = "9" * 5000, "0x" + "f" * 6000  # numbers that Python does not write out


def one_line(error: pytest.ExceptionInfo[FredError]) -> bool:
    return "\n" not in str(error.value)


def written(folder: Path, **changed: Any) -> Path:
    """Good arrays but for these."""
    file = folder / "a.npz"
    np.savez(file, **{**dict(zip(NAMES, (X, Y, X, Y), strict=True)), **changed})
    return file


class TestArrays:
    @pytest.mark.parametrize(
        ("name", "array", "message"),
        [
            ("train_inputs", np.array(["a"] * 4), "holds <U1; expected numbers"),
            ("train_inputs", np.zeros(4, [("a", "f4")]), "expected numbers"),
            ("train_inputs", X.astype(complex), "holds complex128; expected numbers"),
            ("train_answers", np.zeros(4, "datetime64[s]"), "expected numbers"),
            ("train_inputs", np.float32(1), "`train_inputs` is a single number"),
            ("train_answers", np.int32(1), "`train_answers` is a single number"),
            ("train_inputs", np.zeros((4, 0, 0)), "expected some numbers for each example"),
            ("train_answers", np.zeros((4, 0)), r"expected values \[n, 0\] float32"),
            ("train_answers", np.array([0, 1, 2, 2**40]), "class numbers from 0 to 1099511627776"),
            ("train_answers", np.array([0, 1, 2, -(2**40)]), "class numbers from -1099511627776"),
            ("train_answers", np.array([], int), "expected as many answers as inputs"),
            ("train_inputs", np.zeros((0, 3)), "expected as many answers as inputs"),
            ("train_inputs", X + 1e300, "some numbers are not finite"),
            ("evaluation_answers", np.full(4, np.inf), r"evaluation data: answers are \[4, 1\] float32"),
            ("evaluation_answers", np.full(4, np.nan), r"evaluation data: answers are \[4, 1\] float32"),
            ("evaluation_answers", np.full((4, 2), -np.inf, np.float16), r"evaluation data: answers are \[4, 2\] float32"),
            ("evaluation_answers", np.full(4, 1e300), r"evaluation data: answers are \[4, 1\] float32"),
            ("evaluation_answers", np.zeros(4, "c8"), "`evaluation_answers.npy` holds complex64; expected numbers"),
            ("evaluation_answers", np.full(4, None), "holds object; expected numbers"),
        ],
        ids=str,
    )
    def test_what_are_no_examples_is_refused_without_a_word_more(self, tmp_path, name, array, message):
        data = registry.lookup("data", "arrays")(file=str(written(tmp_path, **{name: array})))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(FredError, match=message) as error:
                data.load(0)
        assert one_line(error)
        assert f"{tmp_path}/" in str(error.value), "which file it is"

    def test_a_single_array_and_missing_ones_are_refused(self, tmp_path):
        file = tmp_path / "a.npz"
        with file.open("wb") as content:
            np.save(content, X)
        with pytest.raises(FredError, match=r"it is damaged, or not an NPZ file"):
            inputs.arrays(file)
        np.savez(file, train_inputs=X)
        with pytest.raises(FredError, match=r"has no array `train_answers`"):
            registry.lookup("data", "arrays")(file=str(file)).load(0)

    def test_any_flipped_bit_is_found_or_harmless(self, tmp_path):
        """Those of a zip's directory have ten kinds of errors: every 37th bit, so that all bytes and kinds come up."""
        file = written(tmp_path)
        whole = file.read_bytes()
        expected = inputs.arrays(file)
        refused = 0
        for bit in range(0, 8 * len(whole), 37):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            try:
                found = inputs.arrays(file)
            except FredError:
                refused += 1
                continue
            assert all(np.array_equal(found[name], expected[name]) for name in NAMES if name in found)
        assert refused > len(whole) // 9, "most bits are the arrays'"

    def test_a_header_that_promises_more_asks_for_no_memory(self, tmp_path):
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }"
        content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
        with ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("x.npy", content)
        with pytest.raises(FredError, match=r"it is damaged"):
            inputs.arrays(tmp_path / "a.npz")

    def test_what_is_written_is_what_was_asked_for_or_said(self, tmp_path):
        data = fred.arrays(tmp_path / "model.v1", train=(X, Y), evaluation=(X, Y))
        assert data.file == str(tmp_path / "model.v1.npz")
        assert [file.name for file in tmp_path.iterdir()] == ["model.v1.npz"]

    def test_bad_arrays_overwrite_nothing(self, tmp_path):
        file = tmp_path / "a.npz"
        fred.arrays(file, train=(X, Y), evaluation=(X, Y))
        before = file.read_bytes()
        for bad in (Y[1:], np.array(["a"] * 4), [[1], [2, 3]], Y + 2**40):
            with pytest.raises(FredError):
                fred.arrays(file, train=(X, bad), evaluation=(X, Y))
        assert file.read_bytes() == before

    def test_what_holds_something_else_is_not_replaced(self, tmp_path):
        np.savez(tmp_path / "raw.npz", X=X, y=Y)
        before = (tmp_path / "raw.npz").read_bytes()
        with pytest.raises(FredError, match=r"raw\.npz exists and does not hold examples"):
            fred.arrays(tmp_path / "raw.npz", train=(X, Y), evaluation=(X, Y))
        assert (tmp_path / "raw.npz").read_bytes() == before

    def test_truth_values_are_classes(self, tmp_path):
        data = fred.arrays(tmp_path / "truth", train=(X, Y > 0), evaluation=(X, Y > 0)).load(0)
        assert data.classifies
        assert (data.outputs, data.train.answers.tolist()) == (2, (Y > 0).astype(int).tolist())


class TestWhatHasNoEnd:
    """A pipe that nobody writes to would be waited for; a device read for ever."""

    @pytest.fixture(params=["pipe", "/dev/zero"])
    def endless(self, request, tmp_path):
        if request.param != "pipe":
            return Path(request.param)
        os.mkfifo(tmp_path / "pipe")
        return tmp_path / "pipe"

    def test_it_is_no_file(self, endless):
        for reading in (inputs.text, inputs.arrays, inputs.digest, read, load):
            with pytest.raises(FredError, match=r"it is not a file"):
                reading(endless)
        with pytest.raises(FredError, match=r"it is not a file"):
            registry.lookup("data", "arrays")(file=str(endless)).load(0)

    @pytest.mark.parametrize("name", ["manifest.json", "summary.json"])
    def test_it_is_no_part_of_a_result(self, endless, name, tmp_path):
        folder = tmp_path / "result"
        folder.mkdir()
        (folder / "manifest.json").write_text("{}")
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(endless)
        with pytest.raises(FredError, match=r"it is not a file"):
            load_result(folder)

    def test_it_is_no_model(self, endless, tmp_path):
        (tmp_path / "m.npz").write_bytes(saved.SHIPPED.read_bytes())
        (tmp_path / "m.json").symlink_to(endless)
        with pytest.raises(ValueError, match=r"it is not a file"):
            saved.load(tmp_path / "m.npz")


class TestPredictors:
    @pytest.mark.parametrize(
        "change",
        [
            {"normaliser": -1.0},
            {"normaliser": float("nan")},
            {"normaliser": 0.0},
            {"window": 10**20},
            {"window": 0},
            {"workers": -1},
            {"nodes": []},
            {"pace": [0.5, float("inf")]},
            {"bounds": [1.0, -1.0]},
        ],
        ids=str,
    )
    def test_impossible_facts_are_refused(self, tmp_path, change):
        about = json.loads(saved.SHIPPED.with_suffix(".json").read_text())
        (tmp_path / "m.npz").write_bytes(saved.SHIPPED.read_bytes())
        (tmp_path / "m.json").write_text(json.dumps(about | change))
        with pytest.raises(ValueError, match=r"cannot read .*m\.json: .*expected what `fred train-cutoff` writes"):
            saved.load(tmp_path / "m.npz")

    @pytest.mark.parametrize("place", [6, 8], ids=["flags", "compression"])
    def test_flipped_flags_are_refused(self, tmp_path, place):
        content = bytearray(saved.SHIPPED.read_bytes())
        content[content.index(b"PK\x01\x02") + 2 + place] ^= 1
        (tmp_path / "m.npz").write_bytes(content)
        (tmp_path / "m.json").write_bytes(saved.SHIPPED.with_suffix(".json").read_bytes())
        with pytest.raises(ValueError, match=r"m\.npz: it is damaged.*train-cutoff"):
            saved.load(tmp_path / "m.npz")

    @pytest.mark.parametrize("option", ["steps", "window", "particles", "seed", "warm_up"])
    def test_no_number_is_too_large_to_be_counted_to(self, option):
        rule = {"name": "dmm", option: 10**20}
        with pytest.raises(FredError, match=f"{option}: found 1{'0' * 20}; expected less than 2147483648"):
            make_run("cutoff-sgd", protocol={"name": "cutoff", "rule": rule})

    @pytest.mark.parametrize("name", ["count:" + "9" * 5000, "count:1" + "0" * 20, "count:0"])
    def test_rules_of_the_command_line(self, name):
        with pytest.raises(FredError, match=r"expected a number of workers after `count:`"):
            rule_named(name)


class TestCheckpoints:
    @pytest.mark.parametrize("place", [6, 8], ids=["flags", "compression"])
    def test_a_damaged_one_is_thrown_away_with_a_word(self, tmp_path, capsys, place):
        run = make_run("fasgd", stop={"updates": 8}, evaluate={"points": 4})
        unit = Unit("fasgd", run, 5)
        own = tmp_path / work.folder_of(unit)
        own.mkdir(parents=True)
        whole = execute("fasgd", run, 5, False, Following(save=lambda each: checkpoints.save(own, unit.identity, each)))
        file = own / checkpoints.FILE
        assert checkpoints.load(own, unit.identity) is not None
        assert capsys.readouterr().err == ""
        content = bytearray(file.read_bytes())
        content[content.index(b"PK\x01\x02") + 2 + place] ^= 1
        file.write_bytes(content)
        work.do(unit, tmp_path)
        assert "checkpoint.npz is damaged" in capsys.readouterr().err
        found = stored.whole(unit, tmp_path / unit.folder)
        assert found is not None
        assert found.params_digest == whole.params_digest


class TestScenarios:
    @pytest.mark.parametrize("number", ENDLESS, ids=["decimal", "hexadecimal"])
    @pytest.mark.parametrize(
        "where", ["cluster.workers={}", "cluster.{}=1", "seeds.{}=1", "{}=1", "title={}", "cluster={{{}: 1}}"]
    )
    def test_numbers_of_thousands_of_digits_in_settings(self, tmp_path, where, number):
        (tmp_path / "a.yaml").write_text(GOOD)
        with pytest.raises(FredError) as error:
            load(tmp_path / "a.yaml", [where.format(number)])
        assert one_line(error)

    @pytest.mark.parametrize(
        "more", ["sweep: {over: {cluster.workers: [N]}}", "? N\n: 1", "task: {data: digits, model: mlp, batch_size: N}"]
    )
    def test_numbers_of_thousands_of_digits_in_files(self, tmp_path, more):
        (tmp_path / "a.yaml").write_text(GOOD + more.replace("N", ENDLESS[1]))
        with pytest.raises(FredError, match=r"a\.yaml:\d: .*found a number with thousands of digits") as error:
            load(tmp_path / "a.yaml")
        assert one_line(error)

    @pytest.mark.parametrize("cluster", [{"workers": 10**5000}, {10**5000: 1}, {"workers": 2, "nodes": [10**5000]}])
    def test_numbers_of_thousands_of_digits_in_python(self, cluster):
        with pytest.raises(FredError, match=r"cluster.*found a number with thousands of digits"):
            scenario(algorithm={"name": "asgd", "learning_rate": 1}, cluster=cluster, stop={"updates": 1})

    def test_a_number_that_is_too_large_is_called_that(self, tmp_path):
        (tmp_path / "a.yaml").write_text(GOOD)
        with pytest.raises(FredError, match=r"found 1e\+20; expected a smaller number"):
            load(tmp_path / "a.yaml", ["cluster.workers=1e20"])
        with pytest.raises(FredError, match=r"expected less than 4294967296"):
            load(tmp_path / "a.yaml", [f"seeds=[{10**20}]"])

    def test_only_the_ten_digits_count_items(self):
        assert keys_of("a.12.٣") == ("a", 12, "٣")

    def test_a_setting_makes_a_sweep(self, tmp_path):
        (tmp_path / "a.yaml").write_text(GOOD)
        assert len(load(tmp_path / "a.yaml", ["sweep={over: {cluster.workers: [1, 2, 3]}}"]).runs) == 3
        two = GOOD + "runs:\n  swept: {sweep: {over: {cluster.workers: [1, 2]}}}\n  other:\n"
        (tmp_path / "a.yaml").write_text(two)
        found = load(tmp_path / "a.yaml", ["sweep.over={cluster.workers: [5, 6]}"]).runs
        assert list(found) == ["swept,workers=5", "swept,workers=6", "other"], "as before, where there are some"

    @pytest.mark.parametrize(
        ("key", "values"),
        [("algorithm.learning_rate", [0.1, "0.2"]), ("cluster.nodes", [1, [2, 2]]), ("protocol.bound", [1, None])],
    )
    def test_a_sweep_may_mix_numbers_and_others(self, key, values):
        points = {
            "task": {"data": {"name": "synthetic-classification", "examples": 40}, "model": "softmax"},
            "algorithm": {"name": "ssp", "learning_rate": 0.1},
            "cluster": {"workers": 4},
            "stop": {"updates": 4},
            "sweep": {"over": {key: values}},
        }
        result = fred.run(scenario(points))
        assert len(result.sweep) == 2
        result.plot("sweep")

    def test_bytes_that_are_no_text_have_a_line(self, tmp_path):
        (tmp_path / "a.yaml").write_bytes(GOOD.encode() + b"title: \xff\n")
        with pytest.raises(FredError, match=r"a\.yaml:4: it is not UTF-8 text"):
            load(tmp_path / "a.yaml")

    def test_a_refusal_is_one_line_whatever_it_quotes(self):
        assert str(FredError("found a\n  b\r\n\nc", "and d")) == "found a b c\nand d"

    def test_a_module_may_raise_anything(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "raises.py").write_text("raise GeneratorExit('so')")
        with pytest.raises(FredError, match=r"cannot import `raises`: GeneratorExit: so"):
            registry.allow_import(["raises"])

    @pytest.mark.parametrize("text", ["1=100,1=50", f"{10**20}=3", f"{'9' * 5000}=3"])
    def test_iterations_of_a_plan(self, text):
        with pytest.raises(FredError, match=r"there twice|expected N=COUNT"):
            _pairs(text)


class TestTraces:
    COLUMNS = {"iteration": [0, 0, 1, 1], "worker": [0, 1, 0, 1], "seconds": [1.0, 2.0, 1.0, 2.0]}

    @pytest.mark.parametrize("ending", ["parquet", "csv"])
    @pytest.mark.parametrize(
        "columns",
        [
            {"iteration": "worker", "worker": "worker"},
            {"time": "worker", "worker": "worker"},
            {"start": "seconds", "end": "seconds"},
        ],
        ids=str,
    )
    def test_a_column_has_one_role(self, tmp_path, ending, columns):
        frame = pd.DataFrame(self.COLUMNS)
        frame.to_csv(tmp_path / "t.csv", index=False)
        frame.to_parquet(tmp_path / "t.parquet")
        with pytest.raises(FredError, match=r"cannot be both") as error:
            read(tmp_path / f"t.{ending}", columns=columns)
        assert one_line(error)

    def test_columns_have_names_of_their_own(self, tmp_path):
        table = pa.table(self.COLUMNS)
        arrays = [*(table[name] for name in table.column_names), table["seconds"]]
        pq.write_table(pa.Table.from_arrays(arrays, names=[*table.column_names, "seconds"]), tmp_path / "t.parquet")
        with pytest.raises(FredError, match=r"has 2 columns `seconds`"):
            read(tmp_path / "t.parquet")

    def test_a_byte_that_is_no_text_has_a_line_however_far_down(self, tmp_path):
        lines = ["iteration,worker,seconds,note", *(f"{i},0,1.5,fine" for i in range(3000)), "7,0,1.5,again"]
        content = "\n".join(lines).encode().replace(b"2500,0,1.5,fine", b"2500,0,1.5,\xff")
        (tmp_path / "t.csv").write_bytes(content)
        with pytest.raises(FredError, match=r"t\.csv:2502: it is not UTF-8 text"):
            read(tmp_path / "t.csv")

    @pytest.mark.parametrize(
        "text",
        ["secret:x:0\nroot:*:1::\nadam:y:1\n", "secret\n", "secret phrase\nof two lines\n"],
        ids=["lines", "one", "text"],
    )
    def test_what_is_no_table_is_not_quoted(self, tmp_path, text):
        (tmp_path / "shadow").write_text(text)
        cluster = {"workers": 2}
        for latency in (
            {"name": "trace", "file": str(tmp_path / "shadow")},
            {"name": "empirical", "csv": str(tmp_path / "shadow")},
        ):
            with pytest.raises(FredError, match=r"shadow( has no rows|:2: expected a row with numbers)") as error:
                make_run(cluster={**cluster, "compute": latency})
            assert not any(word in str(error.value) for word in ("secret", "adam", "two lines"))

    def test_a_foreign_units_file_is_not_quoted(self, tmp_path):
        (tmp_path / "unit.json").write_text("secret:x:0\nroot:*:1::\n")
        with pytest.raises(FredError, match=r"is not the folder of a whole run") as error:
            stored.read(tmp_path, make_run())
        assert "secret" not in str(error.value)
        assert one_line(error)


class TestImages:
    @staticmethod
    def idx(path: Path, shape: tuple[int, ...], content: bytes) -> None:
        header = b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
        path.write_bytes(gzip.compress(header + content, 1))

    def test_more_than_was_promised_is_not_unpacked(self, tmp_path, monkeypatch):
        images, unpacked = tmp_path / "train-images-idx3-ubyte.gz", []
        self.idx(images, (2, 1, 1), bytes(1 << 26))
        whole = gzip.GzipFile.read

        def counted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
            unpacked.append(whole(self, size))
            return unpacked[-1]

        monkeypatch.setattr(gzip.GzipFile, "read", counted)
        with pytest.raises(FredError, match=r"images-idx3-ubyte.gz is too long: expected 18 bytes"):
            MNIST(directory=tmp_path, canonical=False).load(0)
        assert 18 < sum(map(len, unpacked)) < 1 << 22, "of 64 MB"

    def test_files_of_photographs_have_a_limit(self, tmp_path, monkeypatch):
        monkeypatch.setattr(images, "_MOST", 3)
        (tmp_path / "data_batch_1.bin.gz").write_bytes(gzip.compress(bytes(4 * 3073), 1))
        with pytest.raises(FredError, match=r"data_batch_1.bin.gz is too long"):
            images.CIFAR10(directory=tmp_path).load(0)

    def test_images_have_pixels(self, tmp_path):
        for part in ("train", "t10k"):
            self.idx(tmp_path / f"{part}-images-idx3-ubyte.gz", (2, 0, 0), b"")
            self.idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", (2,), b"\0\1")
        with pytest.raises(FredError, match=r"training data: inputs are .2, 0, 0, 1. and .*expected some numbers"):
            MNIST(directory=tmp_path, canonical=False).load(0)
        with pytest.raises(FredError, match=r"expected some numbers"):
            empty = Examples(np.zeros((2, 0), np.float32), np.zeros(2, np.int32))
            Dataset(empty, empty, 1)


class TestFaults:
    """mean_up far below what a gradient takes: nothing is ever finished."""

    CRASHES = {"name": "crashes", "mean_up": 1.0}
    LONG = {"name": "constant", "seconds": 1e8}

    @pytest.mark.parametrize("limit", [{"updates": 10}, {"seconds": 1e9}], ids=str)
    def test_who_only_crashes_is_told(self, limit, monkeypatch):
        monkeypatch.setattr("fred.timing.lives.MOST_TRIES", 100)
        run = make_run("asgd", task=None, cluster={"workers": 3, "compute": self.LONG, "faults": [self.CRASHES]}, stop=limit)
        with pytest.raises(FredError, match=r"`cluster.faults`: worker . has crashed 100 times since .* longer `mean_up`"):
            execute("run", run, 0)

    def test_crashes_between_updates_are_counted_anew(self, monkeypatch):
        monkeypatch.setattr("fred.timing.lives.MOST_TRIES", 25)
        machines = Cluster(workers=1, compute={"name": "constant", "seconds": 1.0}, faults=[self.CRASHES])
        schedule = record(registry.lookup("protocol", "asynchronous")(), machines, seconds=1000.0)
        assert schedule.counts()["dropped"] > 50

    def test_a_server_that_is_asked_for_after_ages(self, monkeypatch):
        monkeypatch.setattr("fred.cluster.faults._MOST_CRASHES", 50_000)
        cluster = {
            "workers": 4,
            "compute": self.LONG,
            "network": {"server_bandwidth": 1e6},
            "faults": [{**self.CRASHES, "of": "servers"}],
        }
        run = make_run("ssp", task=None, cluster=cluster)
        with pytest.raises(FredError, match=r"`cluster.faults`: more than .* crashes; server 0 alone .* longer times"):
            execute("run", run, 0)

    def test_absences_without_a_gap(self):
        fault = {"name": "crashes", "mean_up": 1e-9, "away": {"name": "constant", "seconds": 1.0}}
        with pytest.raises(FredError, match=r"`cluster.faults`: worker 0 is offline 10,000 times in a row"):
            execute("run", make_run("ssgd", task=None, cluster={"workers": 2, "faults": [fault, fault]}), 0)

    def test_messages_that_are_always_lost(self):
        fault = {"name": "lost-messages", "share": 1 - 1e-10, "again_after": 1e-9}
        with pytest.raises(
            FredError, match=r"`cluster.faults`: a message .* is lost 10,000 times in a row; give a smaller `share`"
        ):
            execute("run", make_run("asgd", task=None, cluster={"workers": 2, "faults": [fault]}), 0)


class TestEnvironment:
    @pytest.mark.parametrize("threads", ["abc", "0", "-1", "1.5", "²", ""])
    def test_threads_are_a_number(self, monkeypatch, threads):
        monkeypatch.setenv("FRED_THREADS", threads)
        with pytest.raises(FredError, match=f"FRED_THREADS={threads}: expected a number of threads"):
            environment.check()

    def test_what_jax_may_be_told_otherwise_is_as_usual(self, monkeypatch):
        monkeypatch.setenv("JAX_NUMPY_RANK_PROMOTION", "raise")
        monkeypatch.setenv("JAX_TRANSFER_GUARD", "disallow")
        wanted = environment._wanted()
        assert (wanted["JAX_NUMPY_RANK_PROMOTION"], wanted["JAX_TRANSFER_GUARD"]) == ("allow", "allow")


def test_pictures_say_nothing_of_what_their_font_lacks(tmp_path):
    frame = pd.DataFrame(
        {"run": "a", "seed": 0, "virtual_seconds": [0.0, 1.0], "updates": [0, 1], "gradients": [0, 1], "loss": [2.0, 1.0]}
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        curves.learning(frame, "loss", "データ").save(tmp_path / "a.svg")
    assert not said
