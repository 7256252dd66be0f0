"""Units with the same timing: it is recorded once, lowered once, and stored once; others never share it."""

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

import fred
from fred import Cluster, FredError
from fred.base.disk import TIMINGS, UNIT, WORK
from fred.components import registry
from fred.protocols.asynchronous import Asynchronous
from fred.replay.lower import lower
from fred.results import folder
from fred.results.verify import Verdict, verify
from fred.running import execution
from fred.running import recording as timings
from fred.running.execution import execute
from fred.running.recording import Recording, Timing, Timings
from fred.running.units import SelectedRuns
from tests.places import names
from tests.worlds import COMPUTE, TASK, make_run, same_outcome

pytestmark = pytest.mark.usefixtures("undrawn")

RATES = {"algorithm.learning_rate": [0.01, 0.02, 0.05, 0.1]}
SETTINGS: dict[str, Any] = {
    "seeds": [1, 2],
    "cluster": {"workers": 3, "compute": {"name": "exponential", "scale": 0.1}},
    "task": TASK,
    "stop": {"gradients": 40},
    "evaluate": {"points": 2},
    "runs": {name: {"algorithm": name} for name in ("asgd", "sasgd", "fasgd")},
    "sweep": {"over": RATES},
}
TIMED = {**SETTINGS, "task": None}
SCENARIO = fred.scenario(TIMED)
FIRST_UNIT = next(SelectedRuns(SCENARIO, only="asgd,learning_rate=0.01").stages()).units[0]


@pytest.fixture
def counts(monkeypatch) -> Counter[str]:
    calls: Counter[str] = Counter()

    def count(name: str, where: Any, attribute: str, function: Any) -> None:
        monkeypatch.setattr(where, attribute, lambda *args, **options: calls.update([name]) or function(*args, **options))

    count("schedules", Timing, "schedule", Timing.schedule)
    count("programs", timings, "lower", lower)
    return calls


@pytest.fixture(scope="module")
def in_memory() -> list[tuple[str, Any]]:
    return digests(fred.run(SCENARIO))


def schedule_files(out: Path) -> list[Path]:
    return sorted(out.glob("*/seed-*/schedule.parquet"))


def inodes(out: Path) -> set[int]:
    return {file.stat().st_ino for file in schedule_files(out)}


def digests(result: Any) -> list[tuple[str, Any]]:
    return [(outcome.schedule_digest, outcome.params_digest) for outcome in result.outcomes]


class TestOnce:
    def test_a_timing_is_recorded_and_lowered_once(self, counts):
        assert len(fred.run(fred.scenario(SETTINGS)).outcomes) == 24
        assert counts == {"schedules": 2, "programs": 4}, "FASGD has a program of its own, for it calls other functions"

    @pytest.mark.slow
    def test_its_files_are_one_file_under_many_names(self, counts, in_memory, tmp_path):
        for jobs in (1, 2):
            out = tmp_path / str(jobs)
            counts.clear()
            assert digests(fred.run(SCENARIO, out=out, jobs=jobs)) == in_memory
            assert jobs == 2 or counts["schedules"] == 2
            assert list(Counter(file.stat().st_ino for file in schedule_files(out)).values()) == [12, 12]
            assert not (out / WORK).exists()
            listed = {*names(out / "asgd,learning_rate=0.01" / "seed-1")}
            assert {"schedule.parquet", "schedule-intervals.parquet", "run-times.parquet", UNIT} < listed
            assert "files.json" not in listed
        counts.clear()
        assert verify(out) == (Verdict.SAME, f"{out}: 24 runs, all digests the same") and counts["schedules"] == 2

    def test_a_timing_that_another_process_has_recorded_is_read(self, counts, tmp_path):
        for only, schedules in (("asgd,learning_rate=0.01", 2), ("fasgd", 2)):
            for unit in next(SelectedRuns(SCENARIO, only=only).stages()).units:
                execution.complete(unit, tmp_path, timings=Timings(tmp_path / TIMINGS))
            assert counts["schedules"] == schedules
        assert len(inodes(tmp_path)) == 2

    @pytest.mark.slow
    def test_files_of_saved_and_of_extended_results_are_shared(self, tmp_path):
        out = tmp_path / "out"
        first = fred.run(SCENARIO, only="fasgd", out=out)
        folder.save(first, tmp_path / "saved")
        assert len(inodes(tmp_path / "saved")) == 2
        fred.run(SCENARIO, out=out)
        before = inodes(out)
        assert len(before) == 2
        fred.run(fred.scenario({**TIMED, "seeds": [1, 2, 3]}), out=out)
        assert inodes(out) > before and len(inodes(out)) == 3
        assert verify(out)[0] == Verdict.SAME

    @pytest.mark.slow
    def test_files_are_copied_where_they_can_have_one_name_only(self, monkeypatch, tmp_path):
        monkeypatch.setattr(os, "link", MagicMock(side_effect=OSError("not here")))
        fred.run(SCENARIO, out=tmp_path / "out")
        assert len(inodes(tmp_path / "out")) == 24 and verify(tmp_path / "out")[0] == Verdict.SAME

    def test_a_shared_schedule_is_read_only(self):
        schedule = fred.run(SCENARIO, only=FIRST_UNIT.name).outcomes[0].schedule
        for column in (*schedule.columns.values(), *schedule.intervals):
            with pytest.raises(ValueError, match="read-only"):
                column[:] = 0


class TestDamage:
    @pytest.mark.slow
    def test_a_missing_or_damaged_shared_file_is_noticed_and_made_again(self, in_memory, tmp_path):
        out = tmp_path / "out"
        fred.run(SCENARIO, out=out)
        for harm in (Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-9] + b"\0" * 9)):
            harm(schedule_files(out)[0])
            verdict, message = verify(out)
            assert verdict == Verdict.CANNOT and "schedule.parquet" in message
            with pytest.warns(UserWarning, match="computed again: the stored result is damaged"):
                assert digests(fred.run(SCENARIO, out=out)) == in_memory
        assert verify(out)[0] == Verdict.SAME

    @pytest.mark.parametrize("name", ["schedule.parquet", "schedule-intervals.parquet", "files.json"])
    def test_a_damaged_timing_is_recorded_again(self, name, tmp_path, counts):
        other = next(SelectedRuns(SCENARIO, only="asgd,learning_rate=0.02").stages()).units[0]
        execution.complete(FIRST_UNIT, tmp_path, timings=Timings(tmp_path / TIMINGS))
        (place,) = (tmp_path / TIMINGS).iterdir()
        recorded = (place / name).read_bytes()
        expected = execute(other.name, other.run, other.seed).schedule_digest
        for content in (b"", b"{}", b"PAR1 and what follows", None):
            counts.clear()
            (place / name).unlink()  # so that the unit's own file stays as it is
            if content is not None:
                (place / name).write_bytes(content)
            execution.complete(other, tmp_path, timings=Timings(tmp_path / TIMINGS))
            assert counts["schedules"] == 1 and (place / name).read_bytes() == recorded
            assert fred.Schedule.load(tmp_path / other.folder / "schedule.parquet").digest() == expected
            shutil.rmtree(tmp_path / other.folder)

    def test_files_that_are_damaged_before_they_are_linked_are_not_used(self, tmp_path):
        shared = Timings(tmp_path)
        schedule = shared.schedule(Recording(FIRST_UNIT.run, 1, 400))
        assert shared.files(schedule)
        (file,) = tmp_path.glob("*/schedule.parquet")
        file.write_bytes(b"damaged")
        assert shared.files(schedule) is None

    def test_timings_of_a_run_that_fails_are_removed(self, monkeypatch, tmp_path):
        def fail(*_: Any, **__: Any) -> None:
            assert len(list(tmp_path.glob(f".out.unfinished/{TIMINGS}/*/files.json"))) == 1
            raise FredError("later")

        monkeypatch.setattr("fred.running.stored.write", fail)
        with pytest.raises(FredError, match="later"):
            fred.run(SCENARIO, out=tmp_path / "out")
        assert not list(tmp_path.iterdir())


BATCH = {"data": {"name": "synthetic-regression", "examples": 60, "evaluation": 12}, "model": "softmax", "batch_size": 2}
NETWORK = {"workers": 4, "compute": COMPUTE, "network": {"bandwidth": 1e4}}


class TestTiming:
    @pytest.mark.parametrize(
        ("options", "same_timing"),
        [
            ({"cluster": {"workers": 5, "compute": COMPUTE}}, False),
            ({"cluster": {"workers": 4, "compute": {**COMPUTE, "sigma": 0.5}}}, False),
            ({"protocol": {"name": "stale-synchronous", "bound": 2}}, False),
            ({"stop": {"gradients": 61}}, False),
            ({"stop": {"gradients": 60, "seconds": 1.0}}, False),
            ({"cluster": NETWORK}, False),
            ({"algorithm": {"name": "asgd", "learning_rate": 0.3}}, True),
            ({"algorithm": "fasgd"}, True),
            ({"evaluate": {"points": 7}}, True),
            ({"task": BATCH}, True),
        ],
        ids=str,
    )
    def test_it_is_the_same_exactly_where_the_schedule_is(self, options, same_timing):
        first, second = Recording(make_run(), 1, 400), Recording(make_run(**options), 1, 400)
        assert (first.schedule().digest() == second.schedule().digest()) == same_timing
        assert (first.timing == second.timing) == same_timing
        assert (first.timing.described() == second.timing.described()) == same_timing

    def test_it_depends_on_sizes_and_seeds(self):
        recordings = [Recording(make_run(cluster=NETWORK), seed, size) for seed, size in ((1, 400), (2, 400), (1, 800))]
        timings = {recording.timing for recording in recordings}
        assert len(timings) == len({recording.schedule().digest() for recording in recordings}) == 3

    def test_every_protocol_can_be_described_in_json(self):
        for name in registry.REGISTRY["protocol"]:
            protocol = registry.lookup("protocol", name).example()
            described = Timing(Cluster(workers=4), protocol, (("updates", 3),), 1.0, 0, 8).described()
            assert json.loads(json.dumps(described))["protocol"]["name"] == name

    def test_a_run_with_a_shared_timing_is_that_without(self):
        """Also with other rules, evaluations and timings before, and a target that ends it earlier."""
        shared, lengths = Timings(), list[int]()
        for algorithm, target in (
            ("asgd", None),
            ("fasgd", None),
            ("ssgd", None),
            ("asgd", None),
            ("asgd", 1.2),
            ("asgd", None),
        ):
            run = make_run(algorithm, evaluate={"points": 3 + 2 * len(lengths)}, stop={"gradients": 60, "target_loss": target})
            outcome = execute("run", run, 1, timings=shared)
            assert same_outcome(outcome, execute("run", run, 1, inline=True))
            lengths.append(len(outcome.schedule))
        assert lengths[4] < lengths[3] == lengths[5]


class Moody(Asynchronous):
    """A user's own protocol, which may depend on facts outside its timing."""


def test_users_own_protocols_share_nothing(counts):
    shared = Timings()
    schedules = [shared.schedule(Recording(make_run(protocol=Moody()), 1)) for _ in range(2)]
    assert counts["schedules"] == 2 and schedules[0] is not schedules[1]
