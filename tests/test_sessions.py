"""Workers that are available at times only: files, repetitions and shifts, compared with a look at each moment."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import fred
from fred import Cluster, FredError, Verb
from fred.cluster.durations import NEVER
from fred.cluster.faults import Faults
from fred.cluster.sessions import Periodic, Sessions, spans_of_counts
from fred.components.component import NANOSECONDS
from fred.protocols.asynchronous import Asynchronous
from fred.schedule.schedule import What
from tests.worlds import record

SECOND = {"name": "constant", "seconds": 1.0}


def sample_availability(fault: fred.Fault, moments: Iterable[float], workers: int = 4, seed: int = 0) -> list[list[bool]]:
    faults = Faults([fault.start(seed, "fault 0", workers, 1)])
    times = [round(seconds * NANOSECONDS) for seconds in moments]
    return [[faults.next_available("worker", worker, now) == now for now in times] for worker in range(workers)]


class TestSessions:
    def test_workers_are_available_in_their_sessions_and_again_after_the_end_of_the_record(self):
        for seed in range(20):
            rng = np.random.default_rng(seed)
            sessions = []
            for _ in range(rng.integers(1, 4)):
                begins = rng.integers(0, 50, rng.integers(1, 6)).tolist()
                sessions.append([(float(begin), float(begin + rng.integers(1, 20))) for begin in begins])  # they may overlap
            length = max(end for member in sessions for _, end in member) + float(rng.integers(0, 10))
            fault = Sessions(sessions=sessions, length=length)
            moments = rng.uniform(0, 4 * length, 60).tolist()
            for worker, available in enumerate(sample_availability(fault, moments)):
                member = sessions[worker % len(sessions)]
                assert available == [any(begin <= moment % length < end for begin, end in member) for moment in moments]

    def test_drawn_ones_are_those_of_a_member_from_some_time_on(self):
        fault = Sessions(sessions=[[(0, 10)], [(0, 60)]], length=100, assignment="drawn")
        shares = []
        for available in sample_availability(fault, np.arange(0.5, 100).tolist(), workers=200):
            assert sum(available) in (10, 60), "a member's sessions, whatever the shift"
            assert sum(a != b for a, b in zip(available, available[1:] + available[:1], strict=True)) == 2
            shares.append(sum(available))
        assert 60 < shares.count(10) < 140, "half of the workers have the first member"
        assert len({tuple(sample_availability(fault, range(100), seed=seed)[0]) for seed in range(8)}) > 4

    def test_machines_come_in_order_and_go_in_the_opposite_one(self):
        counts = np.random.default_rng(3).integers(0, 5, 40).tolist()
        fault = Sessions(sessions=spans_of_counts(counts, 300.0), length=300.0 * len(counts))
        moments = [300.0 * place + 150 for place in range(len(counts))]
        for worker, available in enumerate(sample_availability(fault, moments, max(counts))):
            assert available == [worker < count for count in counts]

    def test_files(self, tmp_path):
        (tmp_path / "sessions.csv").write_text("member,begin,end\nb,0,60\na,30,90\nb,70,80\n")
        (tmp_path / "spot.json").write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [1, 2, 0]}))
        read, spot = (
            Sessions.model_validate({"file": name}, context={"folder": tmp_path}) for name in ("sessions.csv", "spot.json")
        )
        assert read.sessions == (((0, 60), (70, 80)), ((30, 90),)), "members in the order of appearance"
        assert spot.sessions == (((0, 600),), ((300, 600),)) and spot.length == 900
        assert Sessions.model_validate(spot.model_dump()) == spot, "a manifest needs no file"

    def test_mistakes_in_files_and_options_are_refused(self, tmp_path):
        for name, text, message in (
            ("a.csv", "member,begin\nx,1\n", "has no column `end`; it has member, begin; expected member, begin, end"),
            (
                "a.csv",
                "member,begin,end\nx,1,1\n",
                "csv:2: expected a `begin`, and a later `end` or none; found 1 to 1 s",
            ),
            ("a.csv", "member,begin,end\nx,0,2\n,0,2\n", "a.csv:3: expected a member"),
            ("a.csv", "member,begin,end\n", "a.csv"),
            ("a.json", "{}", "expected ..metadata.: ..gap_seconds.: 300., .data.: .4, 4, 3.."),
            ("a.json", '{"metadata": {"gap_seconds": 300}, "data": [-1]}', "numbers of machines"),
            ("a.json", '{"metadata": {"gap_seconds": 300}, "data": [0, 0]}', "no machine is ever available"),
        ):
            (tmp_path / name).write_text(text)
            with pytest.raises(FredError, match=message):
                self.scenario(file=str(tmp_path / name))
        for options, message in (
            ({}, "needs sessions"),
            ({"sessions": [[[5, 5]]]}, "a session ends at 5 s, which is not 1 ns or more after its begin at 5 s"),
            ({"sessions": [[[0, 5]]], "length": 4}, "is before the end of the last session"),
            ({"sessions": [[[0, 5]]], "file": "x.csv"}, "not both"),
            ({"sessions": [[[0, 5]]], "workers": [2]}, "there are 2 workers, numbered from 0; `workers` names 2"),
        ):
            with pytest.raises(FredError, match=message):
                self.scenario(**options)

    def scenario(self, **options: Any) -> Any:
        faults = [{"name": "sessions", **options}]
        return fred.scenario(cluster={"workers": 2, "faults": faults}, algorithm="asgd", stop={"updates": 2})


class TestPeriodic:
    def test_workers_are_there_for_a_part_of_each_day_in_their_time_zone(self):
        fault = Periodic(available=8.0, period=24.0, begin=22.0, shifts=(0.0, 6.0))
        hours = np.arange(0.5, 72).tolist()
        for worker, available in enumerate(sample_availability(fault, hours)):
            assert available == [(hour - 22 - (0, 6)[worker % 2]) % 24 < 8 for hour in hours]

    def test_others_are_always_there_and_a_part_is_less_than_the_whole(self):
        faults = Faults([Periodic(available=1.0, period=2.0, workers=(1,)).start(0, "fault 0", 3, 2)])
        assert faults.offline_interval("worker", 0, 0)[0] == faults.offline_interval("server", 1, 0)[0] == NEVER
        assert faults.offline_interval("worker", 1, 0) == (NANOSECONDS, 2 * NANOSECONDS)

        with pytest.raises(FredError, match="must be less than the `period`"):
            Periodic(available=5.0, period=5.0)


def test_a_run_computes_in_sessions_only():
    """Gradients of 1 s in sessions of 3.5 s: three in each, and a fourth that is lost."""
    fault = {"name": "sessions", "sessions": [[[0, 3.5]], [[0, 10]]], "length": 10}
    schedule = record(Asynchronous(), Cluster(workers=2, compute=SECOND, faults=[fault]), seconds=20)
    pushed, absences = schedule.rows(Verb.PUSH), schedule.intervals.select(What.AWAY)
    times = schedule["time_ns"][pushed][schedule["worker"][pushed] == 0] / NANOSECONDS
    assert times.tolist() == [1, 2, 3, 11, 12, 13]
    assert np.transpose([absences.begin_ns, absences.end_ns]).tolist() == [
        [3_500_000_000, 10**10],
        [13_500_000_000, 2 * 10**10],
    ]


class TestCrashes:
    def crashes(self, workers: int, up: dict[str, Any]) -> Any:
        return Cluster(workers=workers, faults=[{"name": "crashes", "up": up, "away": SECOND}]).fault_processes(0)[0]

    def test_up_times_have_the_given_distribution(self):
        process = self.crashes(1, {"name": "constant", "seconds": 3.0})
        assert [process.away("worker", 0, after * NANOSECONDS)[0] / NANOSECONDS for after in (0, 4, 8)] == [3, 7, 11]

    def test_weibull_times_have_their_mean(self):
        process = self.crashes(400, {"name": "weibull", "scale": 10.0, "shape": 2.0})
        first = np.array([process.away("worker", worker, 0)[0] for worker in range(400)]) / NANOSECONDS
        assert first.mean() == pytest.approx(8.862, abs=4 * 4.63 / 20)

    def test_one_of_mean_and_distribution_is_needed(self):
        for options in ({}, {"mean_up": 1.0, "up": SECOND}):
            with pytest.raises(FredError, match="give `mean_up`, for exponential times, or their distribution as `up`"):
                Cluster(workers=1, faults=[{"name": "crashes", **options}])
