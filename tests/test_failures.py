"""Failures that stop the whole job: by hand, against closed forms, recomputed, for each protocol; checkpoints on the network."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

import fred
from fred import Cluster, FredError, Schedule, Verb, spans
from fred.base import numerics
from fred.cluster.failing import Failing
from fred.components.component import NANOSECONDS
from fred.results.extra_measures import b_staleness
from fred.results.verify import verify
from fred.running.execution import execute
from fred.running.recording import Recording
from fred.schedule.schedule import What
from fred.schedule.spans import STATES, failure_times, shares
from fred.specification.shape import Run
from fred.timing import restarts
from fred.views.page_tables import summary_table
from fred.views.timeline import timeline
from tests.cases import CASES, Case
from tests.draws import Draws
from tests.laws import check_laws
from tests.random_clusters import failures as random_failures
from tests.recompute import PlainSGD, largest_relative_error, recompute_by
from tests.worlds import COMPUTE, TASK, make_run, mostly_slow, same_outcome

ONE_MODEL = {  # a case of each protocol that can go back to a checkpoint
    type(case.run.protocol).__name__: case
    for case in CASES
    if case.run.protocol.has_clock
    and not case.run.protocol.needs_values
    and case.run.protocol.layout(case.run.cluster).replicas == 1
}
SECOND = {"name": "constant", "seconds": 1.0}
EVERY = {"every_updates": 1}


def failures(*recorded: tuple[int, float, float], checkpoint: dict[str, Any] = EVERY, **options: Any) -> dict[str, Any]:
    return {"recorded": recorded, "checkpoint": checkpoint} | options


def carried_checkpoint(to: str, size: int = 400_000, every: int = 2, **options: Any) -> dict[str, Any]:
    """Return a checkpoint that the network carries; a share of each of four workers takes 0.1 s at 1 MB/s."""
    return {"every_updates": every, "to": to, "bytes": size, **options}


def drawn_failures(mean_up: float, repair: float = 0.0, **options: Any) -> dict[str, Any]:
    cause = {"mean_up": mean_up} | ({"repair": {"name": "exponential", "scale": repair}} if repair else {})
    return {"causes": [cause], "checkpoint": EVERY} | options


def record(protocol: Any, job: Any, stop: dict[str, Any], workers: int = 2, seed: int = 0, **cluster: Any) -> Schedule:
    machines = {"workers": workers, "compute": SECOND, "failures": job, **cluster}
    return Recording(make_run(task=None, evaluate={}, protocol=protocol, cluster=machines, stop=stop), seed).schedule()


def failing_run(run: Run, job: dict[str, Any], **options: Any) -> Run:
    """Return a run whose whole job fails, instead of its single workers; options are the cluster's, or the `task`."""
    changes = {"task": options.pop("task")} if "task" in options else {}
    cluster = run.cluster.model_copy(update={"faults": ()}).model_dump() | {"failures": job, **options}
    return run.model_copy(update={"cluster": Cluster.model_validate(cluster), **changes})


def carrying_run(run: Run, to: str, sharing: str, **options: Any) -> Run:
    checkpoint = {"every_updates": 3, "to": to, "bytes": 30_000, "blocking": sharing == "queue"}
    network = {"bandwidth": 1e6, "server_bandwidth": 1e6, "sharing": sharing}
    return failing_run(run, drawn_failures(8.0, repair=0.2, spares=1, checkpoint=checkpoint), network=network, **options)


def updates(schedule: Schedule) -> list[float]:
    return (schedule["time_ns"][schedule.rows(Verb.PUSH, Verb.COMMIT)] / NANOSECONDS).tolist()


def time_of(schedule: Schedule) -> dict[str, float]:
    """Return how long the job was in each state, s."""
    shares = failure_times(schedule)["time"]
    return {state: round(share * schedule.end_ns / NANOSECONDS, 9) for state, share in shares.items() if share}


def failing_of(cluster: Cluster, seed: int = 0) -> Failing:
    assert cluster.failures is not None
    failing = Failing(cluster.failures, cluster, seed)
    failing.resume(0)
    return failing


def times(**seconds: float) -> dict[str, Any]:
    return {name: {"name": "constant", "seconds": value} for name, value in seconds.items()}


TWO = {"every_updates": 2}
FAIR: dict[str, Any] = {"sharing": "fair"}
REGIONS = {"regions": {"bandwidth": [[1e6]]}}
WAY_BACK = {"training": 2, "undone": 0.5, "detecting": 0.25, "repairing": 1.25, "loading": 2.5}
PAUSED, BACKGROUND = EVERY | {"pause": 0.5}, EVERY | {"write": 0.75}


class TestByHand:
    @pytest.mark.parametrize(
        ("job", "expected", "states"),
        [
            # work since the checkpoint is done again
            (failures((0, 3.5, 5.0), checkpoint=TWO), [1, 2, 6, 7], {"training": 4, "undone": 1.5, "repairing": 1.5}),
            # the way back takes its time, and a job may fail while it loads
            (failures((0, 1.5, 3.0), **times(detect=0.25, join=0.5, load=2.0)), [1, 6.5], WAY_BACK),
            (
                failures((0, 1.5, 2), (1, 3, 4), **times(load=2)),
                [1, 7],
                WAY_BACK | {"detecting": 0, "repairing": 1.5, "loading": 3},
            ),
            # a spare takes over
            (failures((0, 1.5, 30.0), spares=1), [1, 2.5, 3.5], {"training": 3, "undone": 0.5}),
            # a checkpoint stops the job, or is written meanwhile, and lost until then
            (failures((0, 90, 91), checkpoint=PAUSED), [1, 2.5, 4], {"training": 3, "saving": 1}),
            (failures((0, 1.76, 2), checkpoint=BACKGROUND), [1, 3, 4], {"training": 3, "undone": 0.76, "repairing": 0.24}),
            (failures((0, 1.74, 2), checkpoint=BACKGROUND), [3, 4, 5], {"training": 3, "undone": 1.74, "repairing": 0.26}),
        ],
    )
    def test_updates_and_states(self, job, expected, states):
        schedule = record("allreduce", job, {"updates": len(expected)})
        assert updates(schedule) == expected
        assert time_of(schedule) == {state: seconds for state, seconds in states.items() if seconds}
        assert failure_times(schedule)["number"] == sum(down < expected[-1] for _, down, _ in job["recorded"])
        assert schedule.counts() == {"updates": len(expected), "gradients": 2 * len(expected), "dropped": 0, "in_flight": 0}
        order = ("training", "saving", "undone", "detecting", "repairing", "loading")
        training, saving, undone, *repair = (states.get(state, 0) / expected[-1] for state in order)
        activities = {"computing": training, "wasted": undone, "network": 0.0, "waiting": saving, "away": sum(repair)}
        assert shares(spans(schedule)) == pytest.approx(activities)

    def test_a_checkpoint_that_is_due_waits_for_the_last_one_and_is_counted(self):
        """One is written from 2 s to 5.5 s, so that due at 4 s is made at 6 s; the failure at 9.6 s goes back to it."""
        late = {"every_updates": 2, "write": 3.5}
        schedule = record("allreduce", failures((0, 9.6, 10.0), checkpoint=late), {"updates": 11})
        assert updates(schedule) == [1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15]
        deferred = schedule.intervals.select(What.DEFERRED)
        assert (deferred.begin_ns / NANOSECONDS).tolist() == [4, 8, 14]  # also in work that is undone
        assert failure_times(schedule)["deferred_checkpoints"] == 3
        in_time = record("allreduce", failures((0, 9.6, 10.0), checkpoint=late | {"write": 1.9}), {"updates": 10})
        assert failure_times(in_time)["deferred_checkpoints"] == 0

    def test_recorded_failures_that_begin_while_the_job_waits_strike_when_it_goes_on(self):
        """Worker 1 is repaired before worker 0, worker 2 after it: both count, and the last one repaired holds the job up."""
        job = failures((0, 3.5, 10.5), (1, 5, 7), (2, 6, 13), **times(load=0.5))
        schedule = record("allreduce", job, {"updates": 5}, workers=3)
        assert failure_times(schedule)["number"] == 3
        assert updates(schedule) == [1, 2, 3, 14.5, 15.5]
        broken = schedule.intervals.select(What.BROKEN)
        spans = zip(broken.worker.tolist(), (broken.begin_ns / NANOSECONDS), (broken.end_ns / NANOSECONDS), strict=True)
        assert list(spans) == [(0, 3.5, 10.5), (2, 10.5, 13)]

    @pytest.mark.parametrize("seed", mostly_slow(range(24), [0, 1]))
    def test_all_recorded_failures_are_counted(self, seed):
        draws = Draws(seed)
        downs = [draws.integer(1, 400) / 10 for _ in range(6)]
        rows = [(draws.integer(0, 2), down, down + draws.integer(1, 150) / 10) for down in downs]
        job = failures(*rows, checkpoint=draws.choose(EVERY, TWO, PAUSED, BACKGROUND))
        job |= draws.choose({}, {"spares": 2}, {"spares": 1, "crews": 1}) | draws.choose({}, times(load=2.0), times(detect=0.5))
        protocol = draws.choose("allreduce", "asynchronous", "synchronous")
        schedule = record(protocol, job, {"seconds": 300.0}, workers=3)
        assert failure_times(schedule)["number"] == len({(down, up) for _, down, up in rows})

    def test_retired_machines_are_not_repaired(self):
        recorded = [(0, 1.5, 2.0), (0, 3.2, 4.0)]
        assert updates(record("allreduce", failures(*recorded), {"seconds": 6.0})) == [1, 3, 5]
        job, waits = failures(*recorded, retire_after=2), "the job waits for a machine"
        schedule = record("allreduce", job, {"seconds": 6.0})
        assert updates(schedule) == [1, 3]
        assert schedule.standstill == f"nothing can happen any more after 3 s: {waits}: too few are left"
        with pytest.raises(FredError, match=f"{waits}: too few are left"):
            record("allreduce", job, {"updates": 5})

    def test_a_rack_fails_as_one(self):
        """Two nodes of two workers each: four spares replace all four machines; with three, the job waits for a repair."""
        for spares, wait in ((4, 0), (3, NANOSECONDS)):
            causes = [{"of": "nodes", "together": 2, "mean_up": 50.0, "repair": SECOND}]
            job = {"causes": causes, "checkpoint": EVERY, "spares": spares}
            failing = failing_of(Cluster(workers=8, nodes=4, failures=job))
            outage = failing.fail(failing.next_failure())
            assert outage.workers in ([0, 1, 2, 3], [4, 5, 6, 7])
            assert outage.complete - outage.detected == wait

    def test_a_failure_costs_a_synchronous_job_nothing_but_time(self):
        machines = {"compute": {"name": "constant", "seconds": 0.1}, "workers": 4}
        reliable, never, failing = (
            execute("run", make_run(protocol="synchronous", cluster={**machines, "failures": job}), 3)
            for job in (None, drawn_failures(1e9), drawn_failures(4.0))
        )
        assert (never.summary["failures"]["number"], failing.summary["failures"]["number"] > 0) == (0, True)
        assert reliable.params_digest == never.params_digest == failing.params_digest
        assert failing.summary["virtual_seconds"] > never.summary["virtual_seconds"] == reliable.summary["virtual_seconds"]

    def test_the_timeline_has_the_states_of_the_job(self):
        job = failures((0, 2.5, 4.0), checkpoint={"every_updates": 1, "pause": 0.25}, detect=SECOND, load=SECOND)
        schedules = [record("synchronous", job, {"seconds": 10}, workers=3, failures=option) for option in (job, None)]
        figure = timeline({("job",): schedules[0], ("no job",): schedules[1]})
        labels = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
        assert labels == [["0", "1", "2", "job"], ["0", "1", "2"]]
        begins = {patch.get_label(): np.asarray(patch.get_path().vertices)[::5, 0].tolist() for patch in figure.axes[0].patches}
        assert [begins[f"job: {state}"] for state in ("detecting", "repairing", "loading")] == [[2.5], [3.5], [4.0]]
        assert begins["job: saving"][:2] == [1.0, 6.0]  # that of 2.25 s is undone


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
        """Gradients 2 and 3, then 4, then 5 and 6 are undone; the job then loads for 1 s, and fails while it loads."""
        times = [(0, 3.5, 5.0), (0, 6.5, 7.0), (0, 9.5, 10.0), (0, 10.5, 11.0)]
        schedule = record("asynchronous", failures(*times, **self.NEXT, load=SECOND), {"updates": 6}, workers=1)
        assert updates(schedule) == [1, 2, 13, 14, 15, 16]
        assert numbers(schedule) == [0, 1, 7, 8, 9, 10]
        assert schedule.intervals.select(What.SKIPPED).other.tolist() == [2, 1, 2]

    def test_each_worker_skips_its_own(self):
        """Worker 0's first gradient is in flight at the checkpoint of 0.8 s and is lost, with its second and worker 1's third."""
        schedule = record("asynchronous", failures((0, 1.1, 5.0), **self.NEXT), {"updates": 6}, speeds=[1.0, 2.5])
        assert updates(schedule) == [0.4, 0.8, 5.4, 5.8, 6.0, 6.2]
        assert (numbers(schedule, 0), numbers(schedule, 1)) == ([2], [0, 1, 3, 4, 5])

    def test_a_lost_checkpoint_brings_no_minibatch_back(self):
        strikes = (0, 3.5, 5.0), (0, 6.5, 8.0), (1, 6.5, 8.0)
        job = failures(*strikes, checkpoint=carried_checkpoint("peers", size=1), minibatches="next")
        schedule = record("allreduce", job, {"updates": 5}, network={"bandwidth": 1e12})
        assert updates(schedule) == pytest.approx([9, 10, 11, 12, 13])
        assert numbers(schedule) == numbers(schedule, 1) == [6, 7, 8, 9, 10]


class TestClosedForms:
    @staticmethod
    def goodput(every: int, mean_up: float, seconds: float, pause: float, load: float = 0.0, detect: float = 0.0) -> float:
        job = drawn_failures(mean_up, checkpoint={"every_updates": every, "pause": pause}, **times(load=load, detect=detect))
        return len(updates(record("asynchronous", job, {"seconds": seconds}, workers=1))) / seconds

    @staticmethod
    def daly(every: float, mean_up: float, pause: float, load: float = 0.0, detect: float = 0.0) -> float:
        """Return the goodput with exponential times to failure [Daly 2006]; none fails while a failure is being detected."""
        return every / ((mean_up + detect) * math.exp(load / mean_up) * math.expm1((every + pause) / mean_up))

    @pytest.mark.parametrize("every", mostly_slow([2, 4, 16], [4]))
    def test_goodput_is_dalys(self, every):
        options = {"mean_up": 20.0, "pause": 0.4, "load": 0.5, "detect": 0.3}
        assert self.goodput(every, seconds=4e4, **options) == pytest.approx(self.daly(every, **options), rel=0.02)

    @pytest.mark.nightly
    def test_dalys_interval_is_the_best_of_a_sweep(self):
        mean_up, pause = 50.0, 1.0
        root = math.sqrt(pause / (2 * mean_up))
        best = math.sqrt(2 * pause * mean_up) * (1 + root / 3 + root**2 / 9) - pause
        goodputs = {every: self.goodput(every, mean_up, 4e5, pause) for every in (2, *range(6, 14), 30)}
        assert goodputs == pytest.approx({every: self.daly(every, mean_up, pause) for every in goodputs}, rel=0.005)
        assert goodputs[round(best)] == pytest.approx(max(goodputs.values()), rel=0.001)

    @pytest.mark.parametrize(("workers", "spares", "crews"), [(4, 0, None), (4, 1, 1), (10, 3, 2), (3, 2, None)])
    def test_machines_with_spares_are_a_birth_death_process(self, workers, spares, crews):
        mean_up, repair = 100.0, 20.0
        cluster = Cluster(workers=workers, failures=drawn_failures(mean_up, repair, spares=spares, crews=crews))
        failing, now, waited = failing_of(cluster, seed=1), 0, 0
        for _ in range(40_000):
            failing.resume(now)
            outage = failing.fail(failing.next_failure())
            now, waited = outage.complete, waited + outage.complete - outage.detected
        weights = [1.0]  # by the number of machines under repair; with more than `spares`, the job waits and none fails
        for number in range(1, spares + 2):
            weights.append(weights[-1] * workers / mean_up * repair / min(number, crews or number))
        up = 1 - weights[-1] / sum(weights)
        assert 1 - waited / now == pytest.approx(up, rel=0.01)
        if waited:
            assert waited / now == pytest.approx(1 - up, rel=0.06)

    LEMONS: ClassVar[dict[str, Any]] = {"name": "bimodal", "fast": 1.0, "slow": 5.0, "slow_fraction": 0.1}

    @staticmethod
    def strikes(failing: Failing, number: int) -> tuple[list[int], float]:
        """Return the first worker of each of the first failures, and the time exposed until the last one, s."""
        workers, exposed, now = [], 0, 0
        for _ in range(number):
            failing.resume(now)
            when = failing.next_failure()
            outage = failing.fail(when)
            workers.append(outage.workers[0])
            exposed, now = exposed + when - now, outage.complete
        return workers, exposed / NANOSECONDS

    def test_a_share_of_machines_fails_more_often_and_always_the_same(self):
        workers, number, mean_up = 400, 20_000, 1e6
        causes = [{"mean_up": mean_up, "rate": self.LEMONS}]
        failing = failing_of(Cluster(workers=workers, failures={"causes": causes, "checkpoint": EVERY}))
        struck, seconds = self.strikes(failing, number)
        strikes = np.bincount(struck, minlength=workers) / (seconds / mean_up)  # per machine and usual time to failure
        lemons = strikes > 3
        p, f = 0.1, 5.0
        # the rate varies with the number of lemons, and with the failures
        error = math.hypot((f - 1) * math.sqrt(p * (1 - p) / workers), (1 - p + p * f) / math.sqrt(number))
        assert strikes.mean() == pytest.approx(1 - p + p * f, abs=3 * error)
        assert lemons.mean() == pytest.approx(p, abs=3 * math.sqrt(p * (1 - p) / workers))
        assert [strikes[~lemons].mean(), strikes[lemons].mean()] == pytest.approx([1, f], rel=0.05)

    def test_failures_of_machines_that_are_alike_are_those_without_rates(self):
        for scale in (1.0, 4.0):
            rate = {"name": "constant", "seconds": scale}
            causes = [{"mean_up": 48.0 / scale}], [{"mean_up": 48.0, "rate": rate}]
            one, other = (failing_of(Cluster(workers=3, failures={"causes": cause, "checkpoint": EVERY})) for cause in causes)
            (struck, seconds), (same, same_seconds) = self.strikes(one, 50), self.strikes(other, 50)
            assert struck == same
            assert seconds == pytest.approx(same_seconds, rel=1e-9)

    def test_machines_keep_their_rates_wherever_they_work(self):
        """A worker and its spare swap at every failure; a second cause has the same rate for both, and wears them, too."""
        mean_up, number, seed = 1000.0, 20_000, 1
        law, at_once = {"name": "uniform", "low": 0.5, "high": 8.0}, {"name": "constant", "seconds": 0.0}
        causes = [{"mean_up": mean_up, "rate": law, "repair": at_once}, {"mean_up": mean_up, "repair": at_once}]
        job = {"causes": causes, "checkpoint": EVERY, "spares": 1}
        _, seconds = self.strikes(failing_of(Cluster(workers=1, failures=job), seed), number)
        rates = 0.5 + 7.5 * numerics.uniforms(seed, "failure 0 rate", 0, 0, 2)
        expected = (mean_up / (rates + 1)).mean()
        assert seconds / number == pytest.approx(expected, rel=0.03)
        assert expected > 1.4 * mean_up / (rates.mean() + 1), "one rate for both would not do"

    @pytest.mark.slow
    def test_early_and_late_failures_make_a_bathtub(self):
        times = [{"name": "weibull", "shape": 0.5, "scale": 400.0}, {"name": "weibull", "shape": 5.0, "scale": 100.0}]
        cluster = Cluster(workers=1, failures={"causes": [{"up": up} for up in times], "checkpoint": EVERY})
        firsts = [failing_of(cluster, seed).next_failure() / NANOSECONDS for seed in range(800)]
        survive = np.exp(-((np.array([5, 50, 100]) / 400) ** 0.5) - (np.array([5, 50, 100]) / 100) ** 5)
        assert (np.array(firsts)[:, None] > [5, 50, 100]).mean(axis=0) == pytest.approx(survive, abs=0.03)


SAVED = {"every_updates": 3, "pause": 0.02, "write": 0.05}
JOB = drawn_failures(8.0, repair=0.2, spares=1, **times(detect=0.05, load=0.1), checkpoint=SAVED)


class TestEveryProtocol:
    @pytest.mark.slow
    @pytest.mark.parametrize("case", ONE_MODEL.values(), ids=list(ONE_MODEL))
    def test_failures_keep_the_laws_and_minibatches_do_not_change_timing(self, case: Case):
        jobs = [(3, JOB), *((seed, random_failures(Draws(seed), {"workers": case.run.cluster.size})) for seed in (0, 2, 5, 7))]
        numbers = []
        for seed, job in jobs:
            runs = (failing_run(case.run, job | {"minibatches": minibatches}, task=None) for minibatches in ("same", "next"))
            usual, skipping = (execute("run", run, seed) for run in runs)
            for outcome in (usual, skipping):
                check_laws(outcome)
            assert sum(usual.summary["failures"]["time"].values()) == pytest.approx(1.0)
            assert all(np.array_equal(usual.schedule[name], skipping.schedule[name]) for name in usual.schedule.columns)
            numbers.append(usual.summary["failures"]["number"])
        assert numbers[0] > 0 < sum(numbers[1:])

    @pytest.mark.parametrize("case", ONE_MODEL.values(), ids=list(ONE_MODEL))
    def test_checkpoints_on_the_network_keep_the_laws(self, case: Case):
        on_servers = bool(case.run.protocol.layout(case.run.cluster).on_servers)
        for to in ("store",) if on_servers else ("store", "peers"):  # servers do not fail
            for sharing in ("queue", "fair"):
                outcome = execute("run", carrying_run(case.run, to, sharing, task=None), 3)
                assert outcome.summary["failures"]["number"] > 0
                check_laws(outcome)

    @pytest.mark.slow
    @pytest.mark.parametrize("case", ONE_MODEL.values(), ids=list(ONE_MODEL))
    def test_replayed_and_inline_leave_the_same_bits(self, case: Case):
        for run in (failing_run(case.run, JOB | {"minibatches": "next"}), carrying_run(case.run, "store", "fair")):
            replayed, inline = execute("run", run, 3), execute("run", run, 3, inline=True)
            assert replayed.summary["failures"]["number"] > 0
            assert same_outcome(replayed, inline)

    @pytest.mark.parametrize(
        ("protocol", "minibatches"),
        [("asynchronous", "same"), ("asynchronous", "next"), ("synchronous", "next"), ("allreduce", "next")],
    )
    def test_another_program_finds_the_same_parameters(self, protocol, minibatches):
        job = drawn_failures(2.0, checkpoint={"every_updates": 3}, minibatches=minibatches)
        outcome = execute("run", make_run(protocol=protocol, cluster={"workers": 4, "compute": COMPUTE, "failures": job}), 0)
        assert outcome.summary["failures"]["number"] > 0
        assert bool(len(outcome.schedule.intervals.select(What.SKIPPED).what)) == (minibatches == "next")
        (params,) = recompute_by(outcome, [PlainSGD(outcome.initial, 0.1)])
        assert largest_relative_error(outcome.final, params) < 1e-5
        if protocol == "asynchronous":
            renumbered = replace(outcome, schedule=outcome.schedule.by_minibatch())
            pd.testing.assert_frame_equal(b_staleness(outcome), b_staleness(renumbered))

    @pytest.mark.parametrize(
        ("protocol", "evaluate"), [("asynchronous", {"every_seconds": 0.07}), ("synchronous", {"every_updates": 1})]
    )
    def test_a_target_ends_the_run_where_work_lasts(self, protocol, evaluate):
        cluster = {"workers": 4, "compute": COMPUTE}
        cluster["failures"] = drawn_failures(4.0, checkpoint={"every_updates": 10}, **times(load=0.3))
        for target in (1.2, 1.0):
            stop = {"gradients": 400, "target_loss": target}
            run = make_run(protocol=protocol, cluster=cluster, stop=stop, evaluate=evaluate)
            replayed, inline = execute("run", run, 1), execute("run", run, 1, inline=True)
            assert same_outcome(replayed, inline) and replayed.summary["ended_by"] == "target_loss"
            (params,) = recompute_by(replayed, [PlainSGD(replayed.initial, 0.1)])
            assert largest_relative_error(replayed.final, params) < 1e-5

    def test_messages_under_way_are_lost(self):
        network = {"latency": {"name": "constant", "seconds": 0.4}, "bandwidth": 1e6, "message_bytes": 100_000}
        for sharing in ("queue", "fair"):
            links = {**network, "sharing": sharing}
            schedule = record("asynchronous", failures((0, 2.3, 3.0)), {"updates": 6}, workers=1, network=links)
            assert updates(schedule) == pytest.approx([2, 5, 7, 9, 11, 13])


def test_impossible_failures_are_refused():
    for options, message in (
        ({"checkpoint": EVERY}, "needs `causes` of failures, a `file` of recorded ones, or `at_updates`"),
        (drawn_failures(1.0) | {"checkpoint": {}}, "give `every_updates` or `every_seconds`"),
        (drawn_failures(1.0, spares=1), "`spares` needs a cause with `repair`"),
        (failures((0, 2, 1)), "worker 0 is up at 1 s, which is not after it was down at 2 s"),
        (failures((7, 1, 2)), "there are 2 workers, numbered from 0; `recorded` names 7"),
        ({"causes": [{}], "checkpoint": EVERY}, "give `mean_up`, for exponential times, or their distribution as `up`"),
        ({"causes": [{"of": "regions", "mean_up": 1.0}], "checkpoint": EVERY}, "`of: regions` needs `network.regions`"),
        (drawn_failures(1.0) | {"file": "there.csv", "recorded": [[0, 1, 2]]}, "give `recorded` or `file`, not both"),
        (drawn_failures(1.0, checkpoint=EVERY | {"bytes": 9}), "`bytes` needs `to`: `store` or `peers`"),
        (drawn_failures(1.0, checkpoint=EVERY | {"blocking": True}), "`blocking` needs `to`"),
        (drawn_failures(1.0, checkpoint=EVERY | {"to": "store"}), "`to` needs `bytes`"),
        (drawn_failures(1.0, checkpoint=carried_checkpoint("store", write=1.0)), "leave out `write`, or `to`"),
        (
            drawn_failures(1.0, checkpoint=carried_checkpoint("peers", store_bandwidth=1e6)),
            "`store_bandwidth` needs `to: store`",
        ),
        (drawn_failures(1.0, checkpoint=carried_checkpoint("store")), "needs a `network` that carries checkpoints"),
        (
            drawn_failures(9.0) | {"workers": 1, "network": {}, "checkpoint": carried_checkpoint("peers")},
            "needs 2 workers or more",
        ),
        (
            drawn_failures(9.0) | {"network": FAIR, "checkpoint": carried_checkpoint("store", blocking=True)},
            "needs `network.sharing: queue`",
        ),
        (
            drawn_failures(9.0) | {"network": REGIONS, "checkpoint": carried_checkpoint("store")},
            "no place in `network.regions`",
        ),
        (drawn_failures(9.0) | {"faults": [{"name": "crashes", "mean_up": 9.0}]}, "leave one of them out"),
    ):
        cluster = {"workers": 2, **{name: options[name] for name in ("workers", "network", "faults") if name in options}}
        job = {name: value for name, value in options.items() if name not in cluster}
        with pytest.raises(FredError, match=message):
            Cluster(**cluster, failures=job)


ONE_ORDER = "all workers have the same ones: use another `sampling`"
ON_SERVERS = "servers hold the model, and they do not fail: use `cluster.failures.checkpoint.to: store`"
GATED = {"name": "b-fasgd", "learning_rate": 0.1}


def test_protocols_that_cannot_go_back_are_refused():
    cluster = {"workers": 2, "failures": drawn_failures(9.0, minibatches="next")}
    for options, message in (
        ({"protocol": "gossip"}, "a checkpoint holds one model"),
        ({"task": {**TASK, "sampling": "sequential"}, "cluster": cluster}, ONE_ORDER),
        (
            {"algorithm": GATED, "protocol": {"name": "gated", "push_gate": {"name": "statistical", "c": 0.2}}},
            "timing depends on what is learned",
        ),
        (
            {"cluster": {"workers": 2, "network": {}, "failures": failures((0, 1, 2), checkpoint=carried_checkpoint("peers"))}},
            ON_SERVERS,
        ),
    ):
        with pytest.raises(FredError, match=message):
            make_run(**{"cluster": {"workers": 2, "failures": drawn_failures(9.0)}, **options})


def test_failures_from_a_file(tmp_path: Path):
    file = tmp_path / "failures.csv"
    file.write_text("worker,down,up\n0,3.5,5\n")
    job = {"file": str(file), "checkpoint": {"every_updates": 2}}
    assert updates(record("allreduce", job, {"updates": 4})) == [1, 2, 6, 7]
    no_end, early = (
        ("worker,down\n0,3.5\n", "no column `up`"),
        ("worker,down,up\n0,3,2\n", ":2: expected a `down`, and a later `up` or none; found 3 to 2 s"),
    )
    for text, message in (no_end, early):
        file.write_text(text)
        with pytest.raises(FredError, match=message):
            record("allreduce", job, {"updates": 4})


def test_a_stored_result_is_read_again(tmp_path: Path, undrawn):
    jobs: dict[str, dict[str, Any]] = {
        "recorded": {},
        "restarted": {"failures": drawn_failures(4.0) | {"recorded": []}},
        "skipping": {"failures": failures((0, 3.5, 5.0), **TestMinibatches.NEXT)},
        "carrying": {"network": {}, "failures": failures((0, 3.5, 5.0), checkpoint=carried_checkpoint("store"))},
    }
    scenario = fred.scenario(
        cluster={"workers": 2, "compute": SECOND, "failures": failures((0, 3.5, 5.0))},
        algorithm={"name": "ssgd", "learning_rate": 0.1},
        stop={"seconds": 10},
        runs={name: {"cluster": cluster} for name, cluster in jobs.items()},
    )
    fred.run(scenario, out=tmp_path / "result")
    assert verify(tmp_path / "result")[0] == 0  # the manifest names all options, also those that only repairs use
    result = fred.load_result(tmp_path / "result")
    row = result.summary.to_dict("records")[0]
    states = {f"failures_time_{state}" for state in ("training", *STATES)}
    totals = {f"failures_{name}" for name in ("number", "goodput", "seconds_between", "deferred_checkpoints")}
    assert {column for column in row if str(column).startswith("failures_")} == states | totals
    table = summary_table(result.summary, printed=False)
    cells = {name: cell.text for name, cell in zip(table.columns, table.cells[0], strict=True)}
    expected = {"failures": "1", "goodput, %": "80", "undone, %": "5", "repairing, %": "15"}  # 0.5 s undone, 1.5 s of repair
    assert expected.items() <= cells.items()
    for minibatches in (None, "same", "next"):
        job = failures((0, 3.5, 5.0)) | ({"minibatches": minibatches} if minibatches else {})
        dumped = Cluster(workers=2, failures=job).model_dump()["failures"]
        assert ("minibatches" in dumped) == (minibatches == "next")
        assert dumped["checkpoint"].keys() == {"every_updates", "every_seconds", "pause", "write"}, "others on the network"
    assert result.outcome("skipping").schedule.intervals.select(What.SKIPPED).worker.tolist() == [0, 1]


NETWORK: dict[str, Any] = {"latency": {"name": "constant", "seconds": 0.01}, "bandwidth": 1e6, "message_bytes": 100}
SLOWER = {"regime": {"name": "job", "nodes": [0], "slowdown": 3.0, "begin": 1.0}}
STORE = {"to": "store"}
ONE_SERVER = {"server_bandwidth": 1e6, "message_bytes": 100_000}
PEERS: dict[str, Any] = {"bandwidth": 1e6, "message_bytes": 1}
RARELY = (0, 90, 91)
MB = 1_000_000


class TestOnTheNetwork:
    @pytest.mark.parametrize("blocking", [True, False])
    @pytest.mark.parametrize(
        ("protocol", "options", "cluster", "write", "load"),
        [
            ("allreduce", STORE, {}, 0.11, 0.11),  # each worker's own link
            ("allreduce", STORE | {"store_bandwidth": 8e5}, {}, 0.51, 0.51),  # the store's card, one share after the other
            ("allreduce", STORE, {"nodes": 2, "network": {"node_bandwidth": 1e6}}, 0.21, 0.21),  # two workers of a node
            ("allreduce", STORE, {"network": {"efficiency": 0.5}}, 0.21, 0.21),
            ("allreduce", STORE, {"network": {"bandwidth": None}}, 0.01, 0.01),
            ("allreduce", STORE, {"nodes": 4, "network": {"contention": [SLOWER]}}, 0.33, 0.33),
            # the last share leaves a card at 0.15 s
            *((name, STORE | {"store_bandwidth": 2e6}, {}, 0.21, 0.01 + 3 * 0.05 + 0.1) for name in ("allreduce", "cutoff")),
            *((name, STORE | {"store_bandwidth": 2e6}, {}, 0.21, 0.21) for name in ("synchronous", "asynchronous")),
            ("synchronous", STORE, {"servers": 2, "network": {"server_bandwidth": 1e6}}, 0.21, 0.21),
            ("allreduce", {"to": "peers"}, {}, 0.11, 0.21),
        ],
    )
    def test_the_schedule_is_that_of_given_times(self, protocol, options, cluster, write, load, blocking):
        """Servers' cards are unlimited, or their checkpoints have the network for themselves. A job fails while it loads."""
        blocking |= "servers" in cluster
        timed = {"every_updates": 2} | ({"pause": 0.25 + write} if blocking else {"pause": 0.25, "write": write})
        strikes = (0, 9.53, 11.0), (2, 11.1, 11.3), (1, 15.07, 15.1), (2, 27.01, 28.0)
        network = NETWORK | cluster.get("network", {})
        machines: dict[str, Any] = {"workers": 4, "speeds": [1.0, 1.05, 1.1, 1.15], **cluster, "network": network}
        checkpoints = (carried_checkpoint(**options, blocking=blocking, pause=0.25), 0.5), (timed, 0.5 + load)
        jobs = [failures(*strikes, checkpoint=saved, **times(load=seconds)) for saved, seconds in checkpoints]
        carried, fixed = (record(protocol, job, {"seconds": 40}, **machines) for job in jobs)
        assert failure_times(carried)["number"] == 4
        assert carried.digest() == fixed.digest()

    @pytest.mark.parametrize(
        ("network", "strikes", "checkpoint", "expected"),
        [
            # a card takes 2 s for the checkpoint: a pull passes before it (1.2 s), the next one waits until 3.3 s
            (ONE_SERVER, [RARELY], carried_checkpoint("store", 2 * MB, 1), [1.2, 2.4, 4.5]),
            (
                ONE_SERVER | FAIR,
                [RARELY],
                carried_checkpoint("store", 2 * MB, 1),
                [1.2, 2.5, 3.8],
            ),  # it has half of the card: 0.2 s
            (
                ONE_SERVER,
                [RARELY],
                carried_checkpoint("store", 2 * MB, 1, blocking=True),
                [1.2, 4.4, 7.6],
            ),  # the network for itself
            # a job may fail before the checkpoint arrives at 2.3 s, or after; loading takes 1 s
            (ONE_SERVER, [(0, 2.25, 3)], carried_checkpoint("store", MB, 1), [4.2, 5.4]),
            (ONE_SERVER, [(0, 2.35, 3)], carried_checkpoint("store", MB, 1), [1.2, 5.2]),
            (ONE_SERVER | FAIR, [(0, 2.35, 3)], carried_checkpoint("store", MB, 1), [1.2, 5.2]),
            # a share needs 2 s alone; after the 1 s of a gradient, the allreduce of 0.6 s has half of each link
            (PEERS | FAIR | {"message_bytes": 400_000}, [RARELY], carried_checkpoint("store", 8 * MB), [1.6, 3.2, 5.4, 7.0]),
            # neighbours lose everything, others do not; a neighbour that fails while the first one loads, and after that
            (PEERS, [(1, 4.5, 6), (2, 4.5, 6)], carried_checkpoint("peers"), [7, 8, 9, 10, 11]),
            (PEERS, [(0, 4.5, 6), (2, 4.5, 6)], carried_checkpoint("peers"), [1, 2, 3, 4, 7.2]),
            (PEERS | FAIR, [(0, 4.5, 6), (2, 4.5, 6)], carried_checkpoint("peers"), [1, 2, 3, 4, 7.2]),
            (PEERS, [(1, 4.5, 6), (2, 6.1, 7)], carried_checkpoint("peers"), [8, 9, 10, 11, 12]),
            (PEERS, [(1, 4.5, 6), (2, 6.3, 7)], carried_checkpoint("peers"), [1, 2, 3, 4, 8.2]),
        ],
    )
    def test_updates_beside_checkpoints(self, network, strikes, checkpoint, expected):
        """The job has one worker and a server, or four workers in step."""
        protocol, workers = ("asynchronous", 1) if "server_bandwidth" in network else ("allreduce", 4)
        job = failures(*strikes, checkpoint=checkpoint)
        schedule = record(protocol, job, {"updates": len(expected)}, workers=workers, network=network)
        assert updates(schedule) == pytest.approx(expected, abs=1e-3)

    def test_everything_since_the_beginning_is_undone_but_failures_count(self):
        job = failures((3, 2.5, 3), (1, 5.7, 6), (2, 5.7, 6), checkpoint=carried_checkpoint("peers"), detect=SECOND)
        schedule = record("allreduce", job, {"updates": 5}, workers=4, network=PEERS)
        assert failure_times(schedule)["number"] == 2
        assert time_of(schedule) == pytest.approx({"training": 5, "undone": 5.7, "detecting": 1}, abs=1e-3)
        assert (schedule.intervals.select(What.DETECTING).begin_ns / NANOSECONDS).tolist() == [2.5, 5.7]

    def test_a_job_that_never_gets_anywhere_or_always_loses_everything_is_refused(self, monkeypatch):
        with pytest.raises(FredError, match="10,000 failures since the checkpoint at 0 s: give longer times"):
            record("allreduce", drawn_failures(0.1), {"updates": 3})
        monkeypatch.setattr(restarts, "MOST_TRIES", 50)
        causes = [{"of": "nodes", "up": {"name": "constant", "seconds": 2.5}}]
        with pytest.raises(FredError, match="50 failures since the checkpoint at 2 s"):
            record(
                "allreduce",
                {"causes": causes, "checkpoint": carried_checkpoint("peers", 1, 1)},
                {"updates": 3},
                network={},
                nodes=2,
            )
