"""Units with the same timing: recorded once, lowered once, on disk once; and never confused with others."""

import json
import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fred
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.protocols.asynchronous import Asynchronous
from fred.replay.lower import lower
from fred.results import folder
from fred.results.verify import Verdict, verify
from fred.running import on_dask, timings, work
from fred.running.execution import execute
from fred.running.recording import Recording, Timing
from fred.running.stored import ABOUT
from fred.running.timings import Timings, in_order
from fred.running.units import units_of
from tests.worlds import COMPUTE, make_run, same

pytestmark = pytest.mark.usefixtures("undrawn")

RATES = {"algorithm.learning_rate": [0.01, 0.02, 0.05, 0.1]}
SETTINGS: dict[str, Any] = {
    "seeds": [1, 2],
    "cluster": {"workers": 3, "compute": {"name": "exponential", "scale": 0.1}},
    "task": {"data": {"name": "synthetic-regression", "examples": 60}, "model": "softmax"},
    "stop": {"gradients": 40},
    "evaluate": {"points": 2},
    "runs": {name: {"algorithm": name} for name in ("asgd", "sasgd", "fasgd")},
    "sweep": {"over": RATES},
}


@pytest.fixture
def made(monkeypatch) -> Counter[str]:
    """Count the schedules and programs made in this process."""
    counted: Counter[str] = Counter()

    def counting(name: str, function: Any) -> Any:
        def called(*arguments: Any, **options: Any) -> Any:
            counted[name] += 1
            return function(*arguments, **options)

        return called

    monkeypatch.setattr(Timing, "schedule", counting("schedules", Timing.schedule))
    monkeypatch.setattr(timings, "lower", counting("programs", lower))
    return counted


def schedule_files(out: Path) -> list[Path]:
    return sorted(out.glob("*/seed-*/schedule.parquet"))


def digests(result: Any) -> list[tuple[str, Any]]:
    return [(each.schedule_digest, each.params_digest) for each in result.outcomes]


class TestOnce:
    """24 units with two timings."""

    def test_in_memory(self, made):
        assert len(fred.run(fred.scenario(SETTINGS)).outcomes) == 24
        assert made == {"schedules": 2, "programs": 4}  # FASGD has one of its own, for it calls other functions

    def test_in_a_folder_where_their_files_are_one_file_under_many_names(self, made, tmp_path):
        result = fred.run(fred.scenario(SETTINGS), out=tmp_path / "out")
        assert made == {"schedules": 2, "programs": 4}  # FASGD has one of its own, for it calls other functions
        files = schedule_files(tmp_path / "out")
        assert list(Counter(file.stat().st_ino for file in files).values()) == [12, 12]
        assert not (tmp_path / "out" / work.AT_WORK).exists()
        made.clear()
        assert verify(tmp_path / "out") == (Verdict.SAME, f"{tmp_path / 'out'}: 24 runs, all digests the same")
        assert made["schedules"] == 2
        assert digests(result) == digests(fred.run(fred.scenario(SETTINGS)))

    def test_in_several_processes(self, tmp_path):
        result = fred.run(fred.scenario(SETTINGS), out=tmp_path / "out", jobs=2)
        assert len(_inodes(schedule_files(tmp_path / "out"))) == 2
        assert digests(result) == digests(fred.run(fred.scenario(SETTINGS)))

    def test_what_another_process_has_recorded_is_taken(self, made, tmp_path):
        units = units_of(fred.scenario(SETTINGS), only="asgd,learning_rate=0.01")
        for unit in units:
            work.do(unit, tmp_path, timings=Timings(tmp_path / timings.FOLDER))
        first = made["schedules"]
        for unit in units_of(fred.scenario(SETTINGS), only="fasgd"):
            work.do(unit, tmp_path, timings=Timings(tmp_path / timings.FOLDER))
        assert (first, made["schedules"]) == (2, 2)
        assert len(_inodes(schedule_files(tmp_path))) == 2

    def test_of_a_saved_result_too(self, tmp_path):
        folder.save(fred.run(fred.scenario(SETTINGS)), tmp_path / "out")
        assert len(_inodes(schedule_files(tmp_path / "out"))) == 2

    def test_a_result_that_gets_more_seeds_keeps_its_files(self, tmp_path):
        fred.run(fred.scenario(SETTINGS), out=tmp_path / "out")
        before = _inodes(schedule_files(tmp_path / "out"))
        fred.run(fred.scenario({**SETTINGS, "seeds": [1, 2, 3]}), out=tmp_path / "out")
        assert _inodes(schedule_files(tmp_path / "out")) > before
        assert len(_inodes(schedule_files(tmp_path / "out"))) == 3

    def test_a_result_that_gets_more_runs_has_each_file_once(self, tmp_path):
        fred.run(fred.scenario(SETTINGS), only="fasgd", out=tmp_path / "out")
        fred.run(fred.scenario(SETTINGS), out=tmp_path / "out")
        assert len(_inodes(schedule_files(tmp_path / "out"))) == 2
        assert verify(tmp_path / "out")[0] == Verdict.SAME

    def test_nobody_changes_what_others_have_too(self):
        schedule = fred.run(fred.scenario(SETTINGS)).outcomes[0].schedule
        for column in (*schedule.columns.values(), *schedule.intervals):
            with pytest.raises(ValueError, match="read-only"):
                column[:] = 0


def test_threads_of_a_process_have_timings_of_their_own():
    def own(number: str) -> Timings:
        return on_dask._timings_of(number)

    here = own("one")
    with ThreadPoolExecutor(1) as other:
        there = other.submit(own, "one").result()
        assert other.submit(own, "one").result() is there
    assert here is own("one") is not there
    assert own("two") is not here


def _inodes(files: list[Path]) -> set[int]:
    return {file.stat().st_ino for file in files}


class TestTold:
    """What lies on disk is not believed for its name."""

    @pytest.mark.slow
    @pytest.mark.parametrize("harm", [Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-9] + b"\0" * 9)])
    def test_a_shared_file_that_is_missing_or_damaged_is_found_out_and_made_anew(self, harm, tmp_path):
        out, scenario = tmp_path / "out", fred.scenario(SETTINGS)
        whole = digests(fred.run(scenario, out=out))
        harm(schedule_files(out)[0])
        verdict, said = verify(out)
        assert verdict == Verdict.CANNOT
        assert "schedule.parquet" in said
        with pytest.warns(UserWarning, match="computed again: the stored result is damaged"):
            again = fred.run(scenario, out=out)
        assert digests(again) == whole
        assert verify(out)[0] == Verdict.SAME

    @pytest.mark.parametrize("name", ["schedule.parquet", "schedule-intervals.parquet", "files.json"])
    @pytest.mark.parametrize("content", [b"", b"{}", b"PAR1 and what follows", None])
    def test_a_damaged_timing_is_recorded_again(self, name, content, tmp_path, made):
        unit, other = units_of(fred.scenario(SETTINGS), only=["asgd,learning_rate=0.01", "asgd,learning_rate=0.02"])[::2]
        work.do(unit, tmp_path, timings=Timings(tmp_path / timings.FOLDER))
        (place,) = (tmp_path / timings.FOLDER).iterdir()
        there = (place / name).read_bytes()
        (place / name).unlink()  # so that the unit's own file stays as it is
        if content is not None:
            (place / name).write_bytes(content)
        work.do(other, tmp_path, timings=Timings(tmp_path / timings.FOLDER))
        assert made["schedules"] == 2
        assert (place / name).read_bytes() == there
        shutil.rmtree(tmp_path / timings.FOLDER)
        alone = execute(other.name, other.run, other.seed)
        assert fred.Schedule.load(tmp_path / other.folder / "schedule.parquet").digest() == alone.schedule_digest

    def test_timings_alone_are_not_left(self, monkeypatch, tmp_path):
        def fail(*_: Any, **__: Any) -> None:
            assert len(list(tmp_path.glob(f".out.unfinished/{timings.FOLDER}/*/files.json"))) == 1
            raise FredError("later")

        monkeypatch.setattr(Timings, "program", fail)
        with pytest.raises(FredError, match="later"):
            fred.run(fred.scenario(SETTINGS), out=tmp_path / "out")
        assert not list(tmp_path.iterdir())

    def test_where_files_have_one_name_only_they_are_copied(self, monkeypatch, tmp_path):
        def refuse(*_: Any, **__: Any) -> None:
            raise OSError("not here")

        monkeypatch.setattr(os, "link", refuse)
        fred.run(fred.scenario(SETTINGS), out=tmp_path / "out")
        assert len(_inodes(schedule_files(tmp_path / "out"))) == 24
        assert verify(tmp_path / "out")[0] == Verdict.SAME


TIMED_APART: dict[str, dict[str, Any]] = {
    "workers": {"cluster": {"workers": 5, "compute": COMPUTE}},
    "latency": {"cluster": {"workers": 4, "compute": {**COMPUTE, "sigma": 0.5}}},
    "protocol": {"protocol": {"name": "stale-synchronous", "bound": 2}},
    "gradients": {"stop": {"gradients": 61}},
    "time": {"stop": {"gradients": 60, "seconds": 1.0}},
    "bandwidth": {"cluster": {"workers": 4, "compute": COMPUTE, "network": {"bandwidth": 1e4}}},
}
TIMED_ALIKE: dict[str, dict[str, Any]] = {
    "rate": {"algorithm": {"name": "asgd", "learning_rate": 0.3}},
    "rule": {"algorithm": "fasgd"},
    "evaluation": {"evaluate": {"points": 7}},
    "batch": {"task": {"data": {"name": "synthetic-regression", "examples": 60}, "model": "softmax", "batch_size": 2}},
}


class TestTiming:
    @pytest.mark.parametrize("options", TIMED_APART.values(), ids=TIMED_APART)
    def test_what_makes_another_schedule_makes_another_timing(self, options):
        one, other = (Recording(run, 1, 400) for run in (make_run(), make_run(**options)))
        assert one.schedule().digest() != other.schedule().digest()
        assert one.timing != other.timing
        assert one.timing.described() != other.timing.described()

    @pytest.mark.parametrize("name", registry.REGISTRY["protocol"])
    def test_every_protocol_can_be_told_in_json(self, name):
        protocol = registry.lookup("protocol", name).example()
        described = Timing(Cluster(workers=4), protocol, (("updates", 3),), 1.0, 0, 8).described()
        assert json.loads(json.dumps(described))["protocol"]["name"] == name

    def test_so_do_sizes_and_seeds(self):
        cluster = {"workers": 4, "compute": COMPUTE, "network": {"bandwidth": 1e4}}
        recordings = [Recording(make_run(cluster=cluster), seed, size) for seed, size in ((1, 400), (2, 400), (1, 800))]
        assert len({each.timing for each in recordings}) == len({each.schedule().digest() for each in recordings}) == 3

    @pytest.mark.parametrize("options", TIMED_ALIKE.values(), ids=TIMED_ALIKE)
    def test_what_only_arithmetic_asks_for_does_not(self, options):
        one, other = (Recording(run, 1, 400) for run in (make_run(), make_run(**options)))
        assert one.timing == other.timing
        assert one.schedule().digest() == other.schedule().digest()

    def test_units_come_timing_by_timing_each_where_its_first_was(self):
        units = units_of(fred.scenario(SETTINGS), only=["asgd", "fasgd"])
        ordered = in_order(units)
        assert [unit.seed for unit in ordered] == [1] * 8 + [2] * 8
        assert [unit.name for unit in ordered[:8]] == [unit.name for unit in ordered[8:]] == [unit.name for unit in units[::2]]

    def test_with_what_another_had_a_run_comes_out_as_by_itself(self):
        shared = Timings()
        for algorithm in ("asgd", "sasgd", "fasgd", "ssgd"):
            for points in (3, 5):
                run = make_run(algorithm, evaluate={"points": points})
                assert same(execute("run", run, 1, timings=shared), execute("run", run, 1, inline=True))

    def test_a_run_that_ends_at_its_target_has_a_schedule_of_its_own(self):
        shared, points = Timings(), {"evaluate": {"points": 6}}
        whole = execute("run", make_run(**points), 1, timings=shared)
        target = {"gradients": 60, "target_loss": float(whole.metrics["loss"][1:4].min())}
        for run in (make_run(stop=target, **points), make_run(**points)):
            outcome = execute("run", run, 1, timings=shared)
            assert (len(outcome.schedule) < len(whole.schedule)) == ("target_loss" in run.stop.limits)
            assert same(outcome, execute("run", run, 1, inline=True))


def test_nothing_of_a_timing_is_listed_that_is_not_a_units(tmp_path):
    fred.run(fred.scenario(SETTINGS), only="asgd,learning_rate=0.01", out=tmp_path / "out")
    (unit,) = (tmp_path / "out").glob("asgd,learning_rate=0.01/seed-1")
    listed = {file.name for file in unit.iterdir()}
    assert {"schedule.parquet", "schedule-intervals.parquet", "run-times.parquet", ABOUT} < listed
    assert "files.json" not in listed


class Moody(Asynchronous):
    """A user's own, which looks at what no timing tells."""


def test_protocols_of_the_users_own_share_nothing(made):
    shared = Timings()
    recordings = [Recording(make_run(protocol=Moody()), 1) for _ in range(2)]
    schedules = [shared.schedule(each) for each in recordings]
    assert made["schedules"] == 2
    assert schedules[0] is not schedules[1]


def test_files_that_are_damaged_before_they_are_linked_are_written_anew(tmp_path):
    unit = units_of(fred.scenario(SETTINGS), only="asgd,learning_rate=0.01")[0]
    shared = Timings(tmp_path / timings.FOLDER)
    schedule = shared.schedule(Recording(unit.run, 1, 400))
    assert shared.files(schedule)
    (file,) = (tmp_path / timings.FOLDER).glob("*/schedule.parquet")
    file.write_bytes(b"damaged")
    assert shared.files(schedule) is None
