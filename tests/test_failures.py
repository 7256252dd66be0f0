"""Failures that stop the whole job: by hand, against closed forms, and replayed, inline and recomputed for each protocol."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

import fred
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.durations import NANOSECONDS, NEVER
from fred.cluster.failing import Failing
from fred.outcomes.job_time import STATES, of_failures
from fred.outcomes.spans import shares, spans
from fred.results.b_staleness import b_staleness
from fred.results.verify import verify
from fred.running.execution import execute
from fred.schedule.bounds import check_bounds
from fred.schedule.schedule import Schedule, Verb, What
from fred.specification.sweep import _OF_FAILURES
from fred.views.summary_table import summary_table
from fred.views.timeline import timeline
from tests.cases import Case
from tests.draws import Draws
from tests.failing_jobs import EVERY, ONE_MODEL, SECOND, drawn, failures, record, time_of, updates
from tests.laws import check_laws
from tests.random_clusters import failures as random_failures
from tests.recompute import PlainSGD, by_plain, largest_relative_error
from tests.worlds import COMPUTE, TASK, make_run, same


def failing_of(cluster: Cluster, seed: int = 0) -> Failing:
    assert cluster.failures is not None
    return Failing(cluster.failures, cluster, seed)


class TestByHand:
    def test_work_since_the_checkpoint_is_done_again(self):
        job = failures((0, 3.5, 5.0), checkpoint={"every_updates": 2})
        schedule = record("allreduce", job, {"updates": 4})
        assert updates(schedule) == [1, 2, 6, 7]
        assert time_of(schedule) == {"training": 4, "undone": 1.5, "repairing": 1.5}
        assert schedule.counts() == {"updates": 4, "gradients": 8, "dropped": 0, "in_flight": 0}

    def test_the_way_back_takes_its_time(self):
        way: dict[str, Any] = {
            name: {"name": "constant", "seconds": each} for name, each in (("detect", 0.25), ("join", 0.5), ("load", 2.0))
        }
        schedule = record("allreduce", failures((0, 1.5, 3.0), **way), {"updates": 2})
        assert updates(schedule) == [1, 6.5]
        assert time_of(schedule) == {"training": 2, "undone": 0.5, "detecting": 0.25, "repairing": 1.25, "loading": 2.5}

    def test_a_spare_takes_over(self):
        assert updates(record("allreduce", failures((0, 1.5, 30.0), spares=1), {"updates": 3})) == [1, 2.5, 3.5]

    def test_a_checkpoint_stops_the_job_or_is_written_meanwhile(self):
        assert updates(record("allreduce", failures((0, 90, 91), checkpoint=EVERY | {"pause": 0.5}), {"updates": 3})) == [
            1,
            2.5,
            4,
        ]
        meanwhile = EVERY | {"write": 0.75}
        assert updates(record("allreduce", failures((0, 1.76, 2), checkpoint=meanwhile), {"updates": 3})) == [1, 3, 4]
        assert updates(record("allreduce", failures((0, 1.74, 2), checkpoint=meanwhile), {"updates": 3})) == [3, 4, 5]

    def test_a_job_may_fail_while_it_loads(self):
        slow = {"load": {"name": "constant", "seconds": 2.0}}
        schedule = record("allreduce", failures((0, 1.5, 2), (1, 3, 4), **slow), {"updates": 2})
        assert updates(schedule) == [1, 7]
        assert time_of(schedule) == {"training": 2, "undone": 0.5, "repairing": 1.5, "loading": 3}
        assert of_failures(schedule)["number"] == 2

    def test_crews_repair_one_machine_after_the_other(self):
        causes = [{"of": "nodes", "up": {"name": "constant", "seconds": 2.5}, "repair": SECOND}]
        for crews, begin in ((None, 3.5), (1, 4.5)):
            job = {"causes": causes, "checkpoint": EVERY, "crews": crews, "spares": 1}
            schedule = record("allreduce", job, {"seconds": 6}, workers=3, nodes=3)
            assert updates(schedule)[:3] == [1, 2, begin + 1]

    def test_retired_machines_are_not_repaired(self):
        times = [(0, 1.5, 2.0), (0, 3.2, 4.0)]
        assert updates(record("allreduce", failures(*times), {"seconds": 6.0})) == [1, 3, 5]
        schedule = record("allreduce", failures(*times, retire_after=2), {"seconds": 6.0})
        assert updates(schedule) == [1, 3]
        assert schedule.standstill == "nothing can happen any more after 3 s: the job waits for a machine: too few are left"
        with pytest.raises(FredError, match="the job waits for a machine: too few are left"):
            record("allreduce", failures(*times, retire_after=2), {"updates": 5})

    def test_a_rack_fails_as_one(self):
        job = {"causes": [{"of": "nodes", "together": 2, "mean_up": 50.0, "repair": SECOND}], "checkpoint": EVERY, "spares": 4}
        failing = failing_of(Cluster(workers=8, nodes=4, failures=job))
        assert [domain.tolist() for domain in failing._domains[0]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        failing.resume(0)
        outage = failing.fail(failing.next())
        assert outage.complete == outage.detected  # four spares for four workers
        failing.resume(outage.complete)
        assert sorted(free for free, _ in failing._free) == [outage.detected + NANOSECONDS] * 4

    def test_a_failure_costs_a_synchronous_job_nothing_but_time(self):
        compute = {"compute": {"name": "constant", "seconds": 0.1}, "workers": 4}
        plain = execute("run", make_run(protocol="synchronous", cluster=compute), 3)
        failing = execute("run", make_run(protocol="synchronous", cluster={**compute, "failures": drawn(4.0)}), 3)
        assert failing.summary["failures"]["number"] > 0
        assert failing.params_digest == plain.params_digest
        assert failing.summary["virtual_seconds"] > plain.summary["virtual_seconds"]

    def test_the_timeline_has_the_states_of_the_job(self) -> None:
        job = failures((0, 2.5, 4.0), checkpoint={"every_updates": 1, "pause": 0.25}, detect=SECOND, load=SECOND)
        schedule = record("synchronous", job, {"seconds": 10}, workers=3)
        figure = timeline(
            {("job",): schedule, ("no job",): record("synchronous", {}, {"seconds": 10}, workers=3, failures=None)}
        )
        assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["0", "1", "2", "job"]
        assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["0", "1", "2"]
        begins = {each.get_label(): np.asarray(each.get_path().vertices)[::5, 0].tolist() for each in figure.axes[0].patches}
        assert begins["job: detecting"] == [2.5]
        assert begins["job: repairing"] == [3.5]
        assert begins["job: loading"] == [4.0]
        assert begins["job: saving"][:2] == [1.0, 6.0]  # that of 2.25 s is undone

    def test_workers_are_away_or_their_work_is_wasted(self):
        schedule = record("allreduce", failures((0, 3.5, 5.0), checkpoint={"every_updates": 2}), {"updates": 4})
        expected = {"computing": 4 / 7, "wasted": 1.5 / 7, "network": 0.0, "waiting": 0.0, "away": 1.5 / 7}
        assert shares(spans(schedule)) == pytest.approx(expected)

    def test_gradients_in_flight_at_the_checkpoint_are_wasted_until_the_job_goes_on(self):
        """Worker 1 computes while the job pauses from 1 s to 1.5 s; or it has finished, and its message is lost."""
        job = failures((0, 2.0, 3.0), checkpoint={"every_updates": 1, "pause": 0.5})
        network = {"latency": {"name": "constant", "seconds": 0.25}, "pull_latency": {"name": "constant", "seconds": 0.0}}
        for options, expected in (
            ({"speeds": [1.0, 0.1]}, [("wasted", 2.0), ("away", 3.0)]),
            ({"times": [1.0, 1.2], "network": network}, [("wasted", 1.2), ("waiting", 1.75), ("wasted", 2.0), ("away", 3.0)]),
        ):
            account = spans(record("asynchronous", job, {"seconds": 4}, **options))
            own = account[account["worker"] == 1]
            merged = [
                (kind, end / NANOSECONDS)
                for kind, following, end in zip(own["kind"], [*own["kind"][1:], ""], own["end_ns"], strict=True)
                if kind != following
            ]
            assert merged[: len(expected)] == expected

    def test_gradients_that_end_as_the_job_pauses_are_computed_until_it_goes_on(self):
        job = failures((0, 9.0, 10.0), checkpoint={"every_updates": 4, "pause": 0.5})
        schedule = record("asynchronous", job, {"seconds": 4}, workers=3)
        assert updates(schedule)[:6] == [1, 1, 1, 2, 2.5, 2.5]
        assert set(spans(schedule)["kind"]) == {"computing", "waiting"}
        assert shares(spans(schedule))["network"] == 0


def numbers(schedule: Schedule, worker: int = 0) -> list[int]:
    """Return the numbers of the minibatches of a worker's gradients that were used, in order."""
    uses = schedule.rows(Verb.PUSH, Verb.ADD)
    return schedule.by_minibatch()["step"][uses[schedule["worker"][uses] == worker]].tolist()


class TestMinibatches:
    NEXT: ClassVar[dict[str, Any]] = {"checkpoint": {"every_updates": 2}, "minibatches": "next"}

    @pytest.mark.parametrize("protocol", ["asynchronous", "synchronous", "allreduce"])
    def test_a_worker_goes_on_after_the_last_one_that_it_began(self, protocol):
        """The failure at 3.5 s undoes gradients 2 and 3; 3 was being computed."""
        schedule = record(protocol, failures((0, 3.5, 5.0), **self.NEXT), {"updates": 5}, workers=1)
        assert updates(schedule) == [1, 2, 6, 7, 8]
        assert numbers(schedule) == [0, 1, 4, 5, 6]
        assert schedule["step"][schedule.rows(Verb.PUSH, Verb.ADD)].tolist() == [0, 1, 2, 3, 4]
        usual = record(protocol, failures((0, 3.5, 5.0), checkpoint={"every_updates": 2}), {"updates": 5}, workers=1)
        assert usual.by_minibatch() is usual
        assert numbers(usual) == [0, 1, 2, 3, 4]

    def test_failures_between_two_checkpoints_add_up(self):
        """Gradients 2 and 3, then 4, then 5 and 6 are undone; the job then loads for 1 s, and fails meanwhile."""
        times = [(0, 3.5, 5.0), (0, 6.5, 7.0), (0, 9.5, 10.0), (0, 10.5, 11.0)]
        schedule = record("asynchronous", failures(*times, **self.NEXT, load=SECOND), {"updates": 6}, workers=1)
        assert updates(schedule) == [1, 2, 13, 14, 15, 16]
        assert numbers(schedule) == [0, 1, 7, 8, 9, 10]
        assert schedule.intervals.only(What.SKIPPED).other.tolist() == [2, 1, 2]

    def test_each_worker_skips_its_own(self):
        """Worker 0's first gradient is in flight at the checkpoint of 0.8 s and is lost, with its second and worker 1's third."""
        schedule = record("asynchronous", failures((0, 1.1, 5.0), **self.NEXT), {"updates": 6}, times=[1.0, 0.4])
        assert updates(schedule) == [0.4, 0.8, 5.4, 5.8, 6.0, 6.2]
        assert (numbers(schedule, 0), numbers(schedule, 1)) == ([2], [0, 1, 3, 4, 5])

    def test_a_lost_checkpoint_brings_no_minibatch_back(self):
        checkpoint = {"every_updates": 2, "to": "peers", "bytes": 1}
        job = failures((0, 3.5, 5.0), (0, 6.5, 8.0), (1, 6.5, 8.0), checkpoint=checkpoint, minibatches="next")
        schedule = record("allreduce", job, {"updates": 5}, network={"bandwidth": 1e12})
        assert updates(schedule) == pytest.approx([9, 10, 11, 12, 13])
        assert numbers(schedule) == numbers(schedule, 1) == [6, 7, 8, 9, 10]

    @pytest.mark.parametrize("protocol", ["asynchronous", "synchronous", "allreduce"])
    def test_another_program_finds_the_same_parameters(self, protocol):
        job = drawn(2.0, checkpoint={"every_updates": 3}, minibatches="next")
        run = make_run(protocol=protocol, cluster={"workers": 4, "compute": COMPUTE, "failures": job})
        outcome = execute("run", run, 0)
        assert len(outcome.schedule.intervals.only(What.SKIPPED).what) > 0
        (params,) = by_plain(outcome, [PlainSGD(outcome.initial, 0.1)])
        assert largest_relative_error(outcome.final, params) < 1e-5

    def test_b_staleness_is_of_the_same_minibatches(self):
        cluster = {"workers": 2, "compute": COMPUTE, "failures": failures((0, 0.5, 0.6), **self.NEXT)}
        outcome = execute("run", make_run(cluster=cluster, stop={"updates": 20}), 0)
        assert len(outcome.schedule.intervals.only(What.SKIPPED).what) > 0
        pd.testing.assert_frame_equal(
            b_staleness(outcome), b_staleness(replace(outcome, schedule=outcome.schedule.by_minibatch()))
        )

    def test_timing_does_not_depend_on_it(self):
        same_ones, next_ones = (
            record("asynchronous", drawn(2.0, minibatches=minibatches), {"updates": 40}, workers=3, compute=COMPUTE)
            for minibatches in ("same", "next")
        )
        assert all(np.array_equal(same_ones[name], next_ones[name]) for name in same_ones.columns)
        assert len(next_ones.intervals.only(What.SKIPPED).what) > 0

    def test_only_manifests_of_next_mention_it(self):
        for job in (drawn(9.0), drawn(9.0, minibatches="same")):
            assert "minibatches" not in Cluster(workers=2, failures=job).model_dump()["failures"]
        again = Cluster(workers=2, failures=drawn(9.0, minibatches="next")).model_dump()["failures"]
        assert Cluster(workers=2, failures=again).model_dump()["failures"] == again

    def test_a_stored_result_is_verified(self, tmp_path: Path):
        cluster = {"workers": 2, "compute": SECOND, "failures": failures((0, 3.5, 5.0), **self.NEXT)}
        run = {"algorithm": {"name": "asgd", "learning_rate": 0.1}, "task": TASK, "stop": {"updates": 8}}
        fred.run(fred.scenario(**run, cluster=cluster), out=tmp_path / "result")
        assert verify(tmp_path / "result")[0] == 0
        (outcome,) = fred.load_result(tmp_path / "result").outcomes
        assert outcome.schedule.intervals.only(What.SKIPPED).worker.tolist() == [0, 1]
        check_bounds(outcome.schedule, 2, 1, outcome.run.protocol.layout(outcome.run.cluster))
        forged = outcome.schedule.intervals.other.copy()
        forged[outcome.schedule.intervals.what == What.SKIPPED] = 0
        intervals = outcome.schedule.intervals._replace(other=forged)
        with pytest.raises(ValueError, match="interval 0 has other 0; expected 1 to"):
            check_bounds(replace(outcome.schedule, intervals=intervals), 2, 1, fred.Layout.central())


class TestClosedForms:
    @staticmethod
    def goodput(every: int, mean_up: float, seconds: float, pause: float, load: float = 0.0, detect: float = 0.0) -> float:
        times: dict[str, Any] = {
            name: {"name": "constant", "seconds": each} for name, each in (("load", load), ("detect", detect))
        }
        job = drawn(mean_up, checkpoint={"every_updates": every, "pause": pause}, **times)
        return len(updates(record("asynchronous", job, {"seconds": seconds}, workers=1))) / seconds

    @staticmethod
    def daly(every: float, mean_up: float, pause: float, load: float = 0.0, detect: float = 0.0) -> float:
        """Return the goodput with exponential times to failure [Daly 2006]; none fails while a failure is being detected."""
        return every / ((mean_up + detect) * math.exp(load / mean_up) * math.expm1((every + pause) / mean_up))

    @pytest.mark.parametrize("every", [1, 4, 16])
    def test_goodput_is_dalys(self, every):
        options = {"mean_up": 20.0, "pause": 0.4, "load": 0.5, "detect": 0.3}
        assert self.goodput(every, seconds=4e4, **options) == pytest.approx(self.daly(every, **options), rel=0.02)

    @pytest.mark.slow
    @pytest.mark.parametrize("every", [1, 2, 4, 8, 16, 32])
    def test_goodput_is_dalys_in_long_runs(self, every):
        options = {"mean_up": 20.0, "pause": 0.4, "load": 0.5, "detect": 0.3}
        assert self.goodput(every, seconds=4e5, **options) == pytest.approx(self.daly(every, **options), rel=0.005)

    @pytest.mark.slow
    def test_dalys_interval_is_the_best_of_a_sweep(self):
        mean_up, pause = 50.0, 1.0
        root = math.sqrt(pause / (2 * mean_up))
        daly = math.sqrt(2 * pause * mean_up) * (1 + root / 3 + root**2 / 9) - pause
        goodputs = {every: self.goodput(every, mean_up, 4e5, pause) for every in range(6, 14)}
        assert goodputs[round(daly)] == pytest.approx(max(goodputs.values()), rel=0.001)

    @pytest.mark.parametrize(("workers", "spares", "crews"), [(4, 0, None), (4, 1, 1), (10, 3, 2), (3, 2, None)])
    def test_machines_with_spares_are_a_birth_death_process(self, workers, spares, crews):
        mean_up, repair = 100.0, 20.0
        cluster = Cluster(workers=workers, failures=drawn(mean_up, repair, spares=spares, crews=crews))
        failing, now, waited = failing_of(cluster, seed=1), 0, 0
        for _ in range(40_000):
            failing.resume(now)
            outage = failing.fail(failing.next())
            now, waited = outage.complete, waited + outage.complete - outage.detected
        weights = [1.0]  # by the number of machines under repair; with more than `spares`, the job waits and none fails
        for number in range(1, spares + 2):
            weights.append(weights[-1] * workers / mean_up * repair / min(number, crews or number))
        up = 1 - weights[-1] / sum(weights)
        assert 1 - waited / now == pytest.approx(up, rel=0.01)
        if waited:
            assert waited / now == pytest.approx(1 - up, rel=0.06)

    def test_early_and_late_failures_make_a_bathtub(self):
        times = [{"name": "weibull", "shape": 0.5, "scale": 400.0}, {"name": "weibull", "shape": 5.0, "scale": 100.0}]
        cluster = Cluster(workers=1, failures={"causes": [{"up": up} for up in times], "checkpoint": EVERY})
        firsts = []
        for seed in range(2000):
            failing = failing_of(cluster, seed)
            failing.resume(0)
            firsts.append(failing.next() / NANOSECONDS)
        survive = np.exp(-((np.array([5, 50, 100]) / 400) ** 0.5) - (np.array([5, 50, 100]) / 100) ** 5)
        assert (np.array(firsts)[:, None] > [5, 50, 100]).mean(axis=0) == pytest.approx(survive, abs=0.03)


JOB = drawn(
    8.0,
    repair=0.2,
    spares=1,
    detect={"name": "constant", "seconds": 0.05},
    load={"name": "constant", "seconds": 0.1},
    checkpoint={"every_updates": 3, "pause": 0.02, "write": 0.05},
)


class TestEveryProtocol:
    @pytest.mark.parametrize("minibatches", ["same", "next"])
    @pytest.mark.parametrize("case", ONE_MODEL.values(), ids=list(ONE_MODEL))
    def test_replayed_and_inline_leave_the_same_bits(self, case: Case, minibatches: str):
        cluster = case.run.cluster.model_copy(update={"failures": JOB | {"minibatches": minibatches}, "faults": ()})
        run = case.run.model_copy(update={"cluster": cluster})
        replayed, inline = execute("run", run, 3), execute("run", run, 3, inline=True)
        assert replayed.summary["failures"]["number"] > 0
        assert same(replayed, inline)
        check_bounds(replayed.schedule, cluster.size, cluster.servers, run.protocol.layout(cluster))
        assert sum(replayed.summary["failures"]["time"].values()) == pytest.approx(1.0)

    @pytest.mark.parametrize("case", ONE_MODEL.values(), ids=list(ONE_MODEL))
    def test_random_failures_leave_the_same_bits_and_keep_the_laws(self, case: Case):
        failed = 0
        for seed in range(4):
            job = random_failures(Draws(seed), {"workers": case.run.cluster.size})
            job["minibatches"] = ("same", "next")[seed % 2]
            cluster = Cluster.model_validate(
                case.run.cluster.model_copy(update={"faults": ()}).model_dump() | {"failures": job}
            )
            run = case.run.model_copy(update={"cluster": cluster})
            replayed, inline = execute("run", run, seed), execute("run", run, seed, inline=True)
            assert same(replayed, inline)
            check_laws(replayed)
            failed += replayed.summary["failures"]["number"]
        assert failed

    @pytest.mark.parametrize("protocol", ["asynchronous", "synchronous"])
    def test_another_program_finds_the_same_parameters(self, protocol):
        job = drawn(2.0, checkpoint={"every_updates": 3})
        outcome = execute("run", make_run(protocol=protocol, cluster={"workers": 4, "compute": COMPUTE, "failures": job}), 0)
        assert outcome.summary["failures"]["number"] > 0
        (params,) = by_plain(outcome, [PlainSGD(outcome.initial, 0.1)])
        assert largest_relative_error(outcome.final, params) < 1e-5

    @pytest.mark.parametrize("evaluate", [{"every_seconds": 0.07}, {"every_updates": 1}])
    @pytest.mark.parametrize("protocol", ["asynchronous", "synchronous"])
    def test_a_target_ends_the_run_where_work_lasts(self, protocol, evaluate):
        job = drawn(4.0, checkpoint={"every_updates": 10}, load={"name": "constant", "seconds": 0.3})
        cluster = {"workers": 4, "compute": COMPUTE, "failures": job}
        for target in (1.2, 1.1, 1.0):
            stop = {"gradients": 400, "target_loss": target}
            run = make_run(protocol=protocol, cluster=cluster, stop=stop, evaluate=evaluate)
            replayed, inline = execute("run", run, 1), execute("run", run, 1, inline=True)
            assert same(replayed, inline)
            assert replayed.summary["ended_by"] == "target_loss"
            (params,) = by_plain(replayed, [PlainSGD(replayed.initial, 0.1)])
            assert largest_relative_error(replayed.final, params) < 1e-5

    def test_messages_under_way_are_lost(self):
        network = {"latency": {"name": "constant", "seconds": 0.4}, "bandwidth": 1e6, "message_bytes": 100_000}
        for sharing in ("queue", "fair"):
            machines: dict[str, Any] = {"network": {**network, "sharing": sharing}}
            schedule = record("asynchronous", failures((0, 2.3, 3.0)), {"updates": 6}, workers=1, **machines)
            assert updates(schedule) == pytest.approx([2, 5, 7, 9, 11, 13])


class TestRefusals:
    @pytest.mark.parametrize(
        ("job", "message"),
        [
            ({"checkpoint": EVERY}, "needs `causes` of failures, or a `file` of recorded ones"),
            (drawn(1.0) | {"checkpoint": {}}, "give `every_updates` or `every_seconds`"),
            (drawn(1.0, spares=1), "`spares` needs a cause with `repair`"),
            (failures((0, 2, 1)), "worker 0 is up at 1 s, which is not after it was down at 2 s"),
            (failures((7, 1, 2)), "there are 2 workers, numbered from 0; `recorded` names 7"),
            ({"causes": [{}], "checkpoint": EVERY}, "give `mean_up`, for exponential times, or their distribution as `up`"),
            ({"causes": [{"of": "regions", "mean_up": 1.0}], "checkpoint": EVERY}, "`of: regions` needs `network.regions`"),
            (drawn(1.0) | {"file": "there.csv", "recorded": [[0, 1, 2]]}, "give `recorded` or `file`, not both"),
        ],
    )
    def test_impossible_failures(self, job, message):
        with pytest.raises(ValidationError, match=message):
            Cluster(workers=2, failures=job)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"protocol": "gossip"}, "a checkpoint holds one model"),
            ({"protocol": "outer-steps"}, "a checkpoint holds one model"),
            (
                {
                    "task": {**TASK, "sampling": "sequential"},
                    "cluster": {"workers": 2, "failures": drawn(9.0, minibatches="next")},
                },
                "all workers have the same ones: use another `sampling`",
            ),
            (
                {"algorithm": {"name": "b-fasgd", "learning_rate": 0.1}, "protocol": {"name": "gated", "c_push": 0.2}},
                "timing depends on what is learned",
            ),
        ],
    )
    def test_protocols_that_cannot_go_back(self, options, message):
        with pytest.raises(FredError, match=message):
            make_run(**{"cluster": {"workers": 2, "failures": drawn(9.0)}, **options})

    def test_faults_at_the_same_time(self):
        with pytest.raises(ValidationError, match="leave one of them out"):
            Cluster(workers=2, failures=drawn(9.0), faults=[{"name": "crashes", "mean_up": 9.0}])

    def test_a_job_that_never_gets_anywhere(self):
        with pytest.raises(FredError, match="10,000 failures since the checkpoint at 0 s: give longer times"):
            record("allreduce", drawn(0.1), {"updates": 3})


def test_failures_from_a_file(tmp_path: Path):
    file = tmp_path / "failures.csv"
    file.write_text("worker,down,up\n0,3.5,5\n")
    job = {"file": str(file), "checkpoint": {"every_updates": 2}}
    assert updates(record("allreduce", job, {"updates": 4})) == [1, 2, 6, 7]
    for text, message in (
        ("worker,down\n0,3.5\n", "no column `up`"),
        ("worker,down,up\n0,3,2\n", ":2: expected a worker's number"),
    ):
        file.write_text(text)
        with pytest.raises(FredError, match=message):
            record("allreduce", job, {"updates": 4})


def test_a_stored_result_is_read_again(tmp_path: Path):
    scenario = fred.scenario(
        cluster={"workers": 2, "compute": SECOND, "failures": failures((0, 3.5, 5.0))},
        algorithm={"name": "ssgd", "learning_rate": 0.1},
        stop={"seconds": 10},
        runs={"recorded": {}, "restarted": {"cluster": {"failures": drawn(4.0) | {"recorded": []}}}},
    )
    fred.run(scenario, out=tmp_path / "result")
    row, _ = fred.load_result(tmp_path / "result").summary.to_dict("records")
    assert row["failures_number"] == 1
    assert {f"failures_time_{state}" for state in STATES} <= row.keys()
    assert {column for column in row if str(column).startswith("failures_")} == set(_OF_FAILURES)
    assert verify(tmp_path / "result")[0] == 0  # the manifest names all options, also those that only repairs use
    table = summary_table(fred.load_result(tmp_path / "result").summary, printed=False)
    shown = dict(zip(table.columns, table.cells[0], strict=True))
    assert (shown["failures"].text, shown["goodput, %"].text) == ("1", "80")  # 0.5 s undone, 1.5 s of repair
    assert (shown["undone, %"].text, shown["repairing, %"].text) == ("5", "15")


def test_nothing_fails_for_ever():
    cluster = Cluster(workers=1, failures=failures((0, 1, 2)))
    failing = failing_of(cluster)
    failing.resume(3 * NANOSECONDS)
    assert failing.next() == NEVER
