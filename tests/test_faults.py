"""Crashes, absences and lost messages: what comes of them, by hand and as properties of random clusters."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.durations import NANOSECONDS, NEVER
from fred.cluster.faults import Faults, Outage
from fred.components import registry
from fred.protocols.allreduce import Allreduce
from fred.protocols.asynchronous import Asynchronous
from fred.protocols.cutoff import Cutoff
from fred.protocols.gated import Gated
from fred.protocols.gossip import Gossip
from fred.protocols.local_steps import LocalSteps
from fred.protocols.synchronous import Synchronous
from fred.schedule.schedule import Schedule, Verb
from fred.systems.ad_psgd import Pairwise
from fred.systems.eager_sgd import Eager
from fred.systems.psp import Partial
from fred.systems.softsync import Softsync
from fred.systems.wagma_sgd import GroupAveraging
from tests.worlds import CLUSTERS, fitting, make_run, record

SECOND = {"name": "constant", "seconds": 1.0}
WITH_CLOCK = sorted(name for name in registry.REGISTRY["protocol"] if registry.lookup("protocol", name).has_clock)
TO_WORK = 150.0  # s, after the last fault: more than anybody needs for a round, unless times have heavy tails
LIGHT_TAILED = CLUSTERS.filter(lambda machines: "pareto" not in machines.model_dump_json())
ONE_GROUP = GroupAveraging(group_size=4, group_waits=True, period=None, group_collective="ring")

outages = st.builds(
    lambda workers, begin, length: {"name": "outage", "workers": workers, "begin": begin, "end": begin + length},
    st.lists(st.just(0), min_size=1, max_size=1),
    st.floats(0, 5),
    st.floats(0.01, 5),
)


def cluster(*faults: dict, workers: int = 3, **options) -> Cluster:
    return Cluster(workers=workers, compute=SECOND, faults=faults, **options)


def pushed(schedule: Schedule, worker: int) -> list[float]:
    """Return the times of the updates by a worker's gradients, s."""
    rows = schedule.rows(Verb.PUSH, Verb.ADD)
    return (schedule["time_ns"][rows][schedule["worker"][rows] == worker] / NANOSECONDS).tolist()


class Elastic:
    """Elastic rounds, simulated from moment to moment: an independent program."""

    def __init__(self, times: list[float], outages: list[tuple[int, float, float]], timeout: float, spare: int):
        self.times, self.outages, self.timeout, self.spare = times, outages, timeout, spare
        self.version, self.rounds = 0, list[float]()
        self.present, self.absent = set[int](), set[int]()
        self.ends: dict[int, tuple[float, int]] = {}  # of gradients: when, and at which version
        self.checks: list[tuple[float, int]] = []  # when somebody who has gone may be left out
        for worker in range(len(times)):
            self.leaves(worker, 0.0) if self.away(worker, 0.0) else self.begins(worker, 0.0)

    def away(self, worker: int, now: float) -> bool:
        return any(who == worker and begin <= now < end for who, begin, end in self.outages)

    def begins(self, worker: int, now: float) -> None:
        self.ends[worker] = now + self.times[worker], self.version

    def leaves(self, worker: int, now: float) -> None:
        self.ends.pop(worker, None)
        self.checks.append((now + self.timeout, worker))

    def run(self, until: float) -> list[float]:
        boundaries = sorted({(moment, worker) for worker, *span in self.outages for moment in span if moment > 0})
        there = {worker: not self.away(worker, 0.0) for worker in range(len(self.times))}
        while True:
            ends = min(((end, worker) for worker, (end, _) in self.ends.items()), default=(until, -1))
            now, kind, worker = min(
                (*ends[:1], 2, ends[1]),
                *((at, 0, who) for at, who in boundaries),
                *((at, 1, who) for at, who in self.checks),
                (until, 3, -1),
            )
            if kind == 3 or now >= until:
                return self.rounds
            if kind == 0:
                boundaries.remove((now, worker))
                if there[worker] != (not self.away(worker, now)):
                    there[worker] = not there[worker]
                    self.leaves(worker, now) if not there[worker] else self.returns(worker, now)
            elif kind == 1:
                self.checks.remove((now, worker))
                if self.away(worker, now):
                    self.absent.add(worker)
                    self.looks(now)
            else:
                _, version = self.ends.pop(worker)
                if version == self.version:
                    self.present.add(worker)
                    self.looks(now)
                else:
                    self.begins(worker, now)

    def returns(self, worker: int, now: float) -> None:
        self.absent.discard(worker)
        if worker not in self.present:
            self.begins(worker, now)

    def looks(self, now: float) -> None:
        """Complete the round if it waits for no more than the spare workers."""
        if self.present and len(self.times) - len(self.present | self.absent) <= self.spare:
            self.rounds.append(now)
            self.version += 1
            waiting, self.present = self.present, set()
            for worker in waiting:
                if not self.away(worker, now):
                    self.begins(worker, now)


class TestByHand:
    def test_who_crashes_loses_its_gradient_and_begins_anew(self):
        away = {"name": "outage", "workers": [1], "begin": 2.5, "end": 4.25}
        schedule = record(Asynchronous(), cluster(away), seconds=7)
        assert pushed(schedule, 0) == [1, 2, 3, 4, 5, 6]
        assert pushed(schedule, 1) == [1, 2, 5.25, 6.25]
        assert schedule.counts()["dropped"] == 1
        pulls = schedule.rows(Verb.PULL)
        own = pulls[schedule["worker"][pulls] == 1]
        assert 4.25 in schedule["time_ns"][own] / NANOSECONDS  # it reads anew

    def test_where_all_keep_in_step_only_time_is_lost(self):
        schedule = record(Allreduce(), cluster({"name": "outage", "workers": [1], "begin": 2.5, "end": 4.25}), seconds=7)
        assert pushed(schedule, 0) == [1, 1 + 1, 5.25, 6.25]
        assert schedule.counts()["dropped"] == 0

    def test_who_joins_late_and_who_leaves(self):
        late, leaver = {"name": "outage", "workers": [0], "end": 3.0}, {"name": "outage", "workers": [2], "begin": 1.5}
        schedule = record(Asynchronous(), cluster(late, leaver), seconds=6)
        assert pushed(schedule, 0) == [4, 5]
        assert pushed(schedule, 2) == [1]

    def test_backup_workers_stand_in_for_who_has_left(self):
        away = {"name": "outage", "workers": [2], "begin": 1.5}
        assert record(Synchronous(backup_workers=1), cluster(away), gradients=20).counts()["updates"] == 10
        message = (
            "nothing can happen any more after 2 s: worker 0 waits for round 1 to be complete.*worker 2 does not come back"
        )
        with pytest.raises(FredError, match=message):
            record(Synchronous(), cluster(away), gradients=20)
        stands_still = record(Synchronous(), cluster(away), seconds=20)
        assert stands_still.standstill.startswith("nothing can happen any more after 2 s: worker 0 waits for round 1")

    @pytest.mark.parametrize(
        ("timeout", "rounds"),
        [
            (None, [(1, 3), (2, 3), (7.25, 3), (8.25, 3)]),
            (0.0, [(1, 3), (2, 3), (3, 2), (4, 2), (5, 2), (6, 2), (7.25, 3), (8.25, 3)]),
            (1.5, [(1, 3), (2, 3), (4, 2), (5, 2), (6, 2), (7.25, 3), (8.25, 3)]),
            (4.0, [(1, 3), (2, 3), (7.25, 3), (8.25, 3)]),
        ],
    )
    def test_elastic_rounds_go_on_without_who_is_away(self, timeout, rounds):
        away = {"name": "outage", "workers": [2], "begin": 2.5, "end": 6.25}
        schedule = record(Synchronous(timeout=timeout), cluster(away), seconds=9)
        commits = schedule.rows(Verb.COMMIT)
        sizes = np.diff(np.searchsorted(schedule.rows(Verb.ADD), commits), prepend=0)
        assert list(zip(schedule["time_ns"][commits] / NANOSECONDS, sizes, strict=True)) == rounds

    @given(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 900), st.integers(1, 400)), max_size=6),
        st.sampled_from([0.0, 0.3, 2.0]),
        st.integers(0, 2),
    )
    def test_elastic_rounds_are_those_of_another_program(self, drawn, timeout, spare):
        begins = [(worker, at / 100 + 0.0037 * (place + 1), lasts / 100) for place, (worker, at, lasts) in enumerate(drawn)]
        outages = [(worker, begin, begin + lasts + 0.00053) for worker, begin, lasts in begins]  # nothing at the same time
        faults = [{"name": "outage", "workers": [worker], "begin": begin, "end": end} for worker, begin, end in outages]
        times = [1.0, 1.0103, 1.1007, 1.7]
        machines = Cluster(workers=4, compute=SECOND, speeds=[1 / each for each in times], faults=faults)
        schedule = record(Synchronous(timeout=timeout, backup_workers=spare), machines, seconds=15.0001)
        found = (schedule["time_ns"][schedule.rows(Verb.COMMIT)] / NANOSECONDS).tolist()
        assert found == pytest.approx(Elastic(times, outages, timeout, spare).run(until=15.0001), abs=1e-6)

    def test_overlapping_absences_are_one(self):
        both = [
            Outage(workers=[0], begin=1, end=3).start(0, "a", 1, 1),
            Outage(workers=[0], begin=2, end=5).start(0, "b", 1, 1),
        ]
        faults = Faults(both)
        assert faults.away("worker", 0, 0) == (1 * NANOSECONDS, 5 * NANOSECONDS)
        assert faults.back("worker", 0, 2 * NANOSECONDS) == 5 * NANOSECONDS
        assert faults.undisturbed([0], NANOSECONDS // 2, lambda _: NANOSECONDS) == (5 * NANOSECONDS, 6 * NANOSECONDS)
        assert faults.away("worker", 0, 6 * NANOSECONDS)[0] == NEVER

    def test_random_crashes_come_as_often_as_stated(self):
        crashes = {"name": "crashes", "mean_up": 20.0, "away": {"name": "constant", "seconds": 5.0}}
        counts = record(Asynchronous(), cluster(crashes, workers=100), seconds=500).counts()
        expected = 100 * 500 / 25  # a crash each 20 s of being up and 5 s of being away
        assert abs(counts["dropped"] - expected) < 4 * math.sqrt(expected)

    def test_impossible_ones_are_refused(self):
        with pytest.raises(ValueError, match="`faults`: there are 3 workers, numbered from 0; `workers` names 3"):
            cluster({"name": "outage", "workers": [3]})
        with pytest.raises(ValueError, match=r"`end` .1. must be after `begin` .2."):
            cluster({"name": "outage", "workers": [0], "begin": 2, "end": 1})


class TestReviewed:
    """What a reading found."""

    CRASHES = {"name": "crashes", "mean_up": 3.0, "away": {"name": "constant", "seconds": 1.0}}
    MESSAGES = {"latency": {"name": "constant", "seconds": 0.4}}

    @pytest.mark.parametrize(
        "protocol",
        [
            Asynchronous(clocks="each"),
            Gated(k_push=3),
            Gated(k_push=2, unsent="apply-again"),
            Partial(gradients=2),
            Synchronous(backup_workers=1),
            Softsync(n=2),
            Softsync(n=2, afterwards="wait"),
        ],
    )
    def test_a_gradient_that_was_dropped_is_not_used_afterwards(self, protocol):
        machines = cluster(self.CRASHES, workers=4, servers=2, network=self.MESSAGES)
        schedule = record(protocol, machines, seconds=200)
        lost: set[tuple[int, int]] = set()
        for verb, worker, step in zip(*(schedule[name].tolist() for name in ("verb", "worker", "step")), strict=True):
            if verb == Verb.DROP:
                lost.add((worker, step))
            assert verb not in (Verb.PUSH, Verb.ADD) or (worker, step) not in lost
        assert lost

    def test_a_round_has_one_gradient_of_each(self):
        schedule = record(Synchronous(), cluster(self.CRASHES, workers=4, network=self.MESSAGES), seconds=300)
        rows = schedule.rows(Verb.ADD, Verb.COMMIT)
        ends = np.flatnonzero(schedule["verb"][rows] == Verb.COMMIT) + 1
        rounds = np.split(schedule["worker"][rows], ends)
        assert len(rounds) > 20
        assert all(sorted(each[:-1].tolist()) == [0, 1, 2, 3] for each in rounds[:-1])

    @pytest.mark.parametrize(
        "protocol", [Allreduce(), LocalSteps(period=1), Eager(period=1), Cutoff(), GroupAveraging(period=1), ONE_GROUP]
    )
    def test_links_that_become_slow_later_slow_collectives_from_then_on(self, protocol):
        slow = {"regime": {"name": "job", "nodes": [0], "slowdown": 10.0, "begin": 10.0}}
        network = {"bandwidth": 1e3, "contention": [slow]}
        updates = record(protocol, cluster(workers=4, network=network), seconds=200).counts()["gradients"]
        assert 4 * (4 + 190 / 17) - 5 < updates < 4 * (4 + 190 / 15) + 5

    def test_who_crashes_all_the_time_is_told(self):
        often = {"name": "crashes", "mean_up": 0.01, "away": {"name": "constant", "seconds": 0.01}}
        with pytest.raises(FredError, match="worker 0 is offline 10,000 times before it can compute one gradient of 1 s"):
            record(Allreduce(), cluster(often), seconds=20)

    def test_who_joins_late_averages_with_nobody_before(self):
        schedule = record(Pairwise(), cluster({"name": "outage", "workers": [0], "end": 10.0}, workers=2), seconds=20)
        syncs = schedule.rows(Verb.SYNC)
        assert schedule["time_ns"][syncs].min() >= 10 * NANOSECONDS

    def test_servers_that_are_not_there_cannot_crash(self):
        with pytest.raises(FredError, match="this protocol has no servers"):
            make_run("allreduce-sgd", cluster={"workers": 2, "faults": [{"name": "outage", "servers": [0]}]})


def soonest(start: float, work: float, away: list[tuple[float, float]]) -> float:
    """Return the end of work that no absence may interrupt, begun at `start` or at any return."""
    begins = sorted([start, *(end for _, end in away if end > start)])
    return next(each for each in begins if not any(end > each and begin < each + work for begin, end in away)) + work


class TestLostMessages:
    LOST = {"name": "lost-messages", "share": 0.3, "again_after": 0.125}
    LATENCY = {"latency": {"name": "constant", "seconds": 0.25}}

    @pytest.mark.parametrize(("servers", "messages"), [(1, 1), (3, 3)])
    def test_what_is_sent_again_is_counted_with_what_arrives(self, servers, messages):
        """Nothing queues, so that by how much a message is late says how often it was lost."""
        schedule = record(Asynchronous(), cluster(self.LOST, servers=servers, network=self.LATENCY), gradients=300)
        for verb, begin, end in ((Verb.PULL, "begin_ns", "end_ns"), (Verb.PUSH, "end_ns", "time_ns")):
            rows = schedule.rows(verb)
            seconds = (schedule[end][rows] - schedule[begin][rows]) / NANOSECONDS
            sent = 1 + (seconds - 0.25) / 0.125
            assert schedule["messages"][rows].tolist() == (sent * messages).tolist()
            assert schedule["bytes"][rows].tolist() == (sent * 1000).tolist()
            assert sent.max() > 3

    @pytest.mark.parametrize("protocol", [Asynchronous(clocks="each"), Asynchronous(), Partial(), Gossip(), Gossip(overlap=2)])
    def test_a_message_is_sent_as_often_as_it_is_lost(self, protocol):
        network = {**self.LATENCY, "servers": [{"servers": [0], "bandwidth": 1e9}]}
        machines = [cluster(*faults, workers=4, servers=2, network=network) for faults in ([self.LOST], [])]
        lossy, sure = (record(protocol, each, gradients=4000) for each in machines)
        per_gradient = [each["messages"].sum() / each.counts()["gradients"] for each in (lossy, sure)]
        assert per_gradient[0] == pytest.approx(per_gradient[1] / 0.7, rel=0.03)
        sizes = [each["bytes"].sum() / each["messages"].sum() for each in (lossy, sure)]
        assert sizes[0] == pytest.approx(sizes[1])


class TestWhoIsAwayWhenAnAverageIsMade:
    RING = {"latency": {"name": "constant", "seconds": 0.25}}  # four workers' allreduce: 1.5 s

    @pytest.mark.parametrize(
        "protocol", [Allreduce(), LocalSteps(period=1), Eager(period=1), Cutoff(), GroupAveraging(period=1), ONE_GROUP]
    )
    @settings(max_examples=15)
    @given(
        absences=st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 99), st.integers(1, 40)).map(lambda a: (a[0], a[1] / 8, a[2] / 8)),
            max_size=5,
        )
    )
    def test_where_all_wait_for_all_it_begins_when_all_are_there_and_anew_if_one_goes(self, protocol, absences):
        faults = [{"name": "outage", "workers": [w], "begin": begin, "end": begin + length} for w, begin, length in absences]
        machines = cluster(*faults, workers=4, speeds=[1, 1, 0.5, 0.8], network=self.RING)
        schedule = record(protocol, machines, gradients=28)
        everybody = [(begin, begin + length) for _, begin, length in absences]
        away = [[span for span, (each, *_) in zip(everybody, absences, strict=True) if each == w] for w in range(4)]
        expected, now = [], 0.0
        for _ in range(6):
            computed = [soonest(now, 1 / speed, away[worker]) for worker, speed in enumerate((1, 1, 0.5, 0.8))]
            now = soonest(max(computed), 1.5, everybody)
            expected.append(now)
        verb = Verb.MIX if schedule.replicas > 1 else Verb.COMMIT
        found = np.unique(schedule["time_ns"][schedule.rows(verb)]) / NANOSECONDS
        assert found[:6].tolist() == expected

    def test_eager_sgd_goes_on_without_it_and_its_gradient_is_part_of_a_later_sum(self):
        """Worker 0 arrives at 1 s, the message that starts the allreduce two latencies later; worker 1 was there meanwhile."""
        away = {"name": "outage", "workers": [1], "begin": 1.375, "end": 4.0}
        machines = cluster(away, speeds=[1, 0.8, 0.1], network=self.RING)
        schedule = record(Eager(start_by="solo", period=None), machines, seconds=9)
        adds = schedule.rows(Verb.ADD)
        assert [(t / NANOSECONDS, w) for t, w in zip(schedule["time_ns"][adds], schedule["worker"][adds], strict=True)][:2] == [
            (1.5 + 2 * 0.25, 0),
            (2.0 + 1 + 0.5 + 2 * 0.25, 0),
        ], "two of the three in the ring"
        own = adds[schedule["worker"][adds] == 1]
        assert schedule["step"][own].tolist() == list(range(len(own)))
        assert schedule["time_ns"][own[0]] == (4.0 + 1 + 0.5 + 2 * 0.25 + 0.5) * NANOSECONDS, "finished at 1.25 s"
        assert schedule["bytes"][own[0]] == round(4 / 3 * 1000), "it has taken part in no other"

    def test_an_eager_worker_is_charged_for_each_allreduce_what_that_has_cost(self):
        """Worker 3 needs 2.5 s, worker 2 is away when the first allreduce begins: three in a ring, then all four."""
        away = {"name": "outage", "workers": [2], "begin": 1.25, "end": 1.625}
        machines = cluster(away, workers=4, speeds=[1, 1, 1, 0.4], network=self.RING)
        schedule = record(Eager(start_by="solo", period=None), machines, seconds=9)
        adds = schedule.rows(Verb.ADD)
        first = adds[schedule["worker"][adds] == 3][0]
        assert schedule["time_ns"][first] == (1 + 0.5 + 4 * 0.25 + 1 + 0.5 + 6 * 0.25) * NANOSECONDS
        assert (schedule["bytes"][first], schedule["messages"][first]) == (round(4 / 3 * 1000) + 1500, 4 + 6)

    def test_where_nobody_is_there_an_eager_allreduce_waits_for_the_first_who_is_back(self):
        """Worker 0 starts it at 1 s, and is gone when it begins at 1.25 s; at 4 s worker 1 has nothing to give."""
        away = [{"name": "outage", "workers": [w], "begin": 1.125, "end": end} for w, end in ((0, 5.0), (1, 4.0))]
        schedule = record(Eager(start_by="solo", period=None), cluster(*away, workers=2, speeds=[1, 0.1], network=self.RING), 8)
        rows = schedule.rows(Verb.ADD, Verb.COMMIT)
        columns = (schedule[name][rows].tolist() for name in ("time_ns", "verb", "step"))
        found = [(time / NANOSECONDS, verb, step) for time, verb, step in zip(*columns, strict=True)]
        assert found[:4] == [(4, Verb.COMMIT, -1), (6.75, Verb.ADD, 0), (6.75, Verb.ADD, 1), (6.75, Verb.COMMIT, -1)]

    @pytest.mark.parametrize("order", ["update-first", "compute-first"])
    def test_in_gossip_it_takes_the_average_when_it_is_back(self, order):
        """Worker 1 needs 2 s; worker 0, who waits for its model, is away from 1.5 s on, but has sent its own."""
        away = {"name": "outage", "workers": [0], "begin": 1.5, "end": 5.0}
        schedule = record(Gossip(order=order), cluster(away, workers=4, nodes=4, speeds=[1, 0.5, 1, 1]), seconds=5.5)
        syncs = schedule.rows(Verb.SYNC)
        first = [schedule["time_ns"][syncs][schedule["worker"][syncs] == worker][0] / NANOSECONDS for worker in range(4)]
        assert first == [5.0, 2.0, 2.0, 1.0]

    def test_averaging_now_and_then_is_the_same_in_groups_of_one(self):
        machines = cluster(TestReviewed.CRASHES, workers=4, network=self.RING)
        local, alone = (
            record(protocol, machines, seconds=500)
            for protocol in (LocalSteps(period=3), GroupAveraging(group_size=1, period=3))
        )
        times = [np.unique(each["time_ns"][each.rows(Verb.SYNC)]).tolist() for each in (local, alone)]
        assert times[0] == times[1] and len(times[0]) > 20

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            *(
                (name, {})
                for name in (
                    "gossip",
                    "local-steps",
                    "group-averaging",
                    "pairwise",
                    "eager",
                    "elastic",
                    "accumulating",
                    "buffered",
                    "straggler-tolerant",
                    "outer-steps",
                    "overlapped-steps",
                    "local-servers",
                    "quorum",
                    "in-pairs",
                    "local-sums",
                    "local-total",
                    "in-turn",
                    "streaming",
                    "choco",
                    "late-averaging",
                )
            ),
            ("streaming", {"elastic": True}),
            ("quorum", {"fragments": 3}),
            ("group-averaging", {"group_waits": True, "period": None}),
            *(("gossip", options) for options in ({"order": "mix-first"}, {"overlap": 2}, {"exchanges": 3})),
        ],
    )
    @settings(max_examples=5, deadline=None)
    @given(machines=CLUSTERS, faults=st.lists(outages, min_size=1, max_size=3), seed=st.integers(0, 99))
    def test_it_reads_sends_and_takes_nothing_meanwhile(self, name, options, machines, faults, seed):
        machines = machines.model_copy(update={"faults": Cluster(workers=1, faults=faults).faults})
        protocol = fitting(name, machines, **options)
        schedule = record(protocol, machines, seconds=20, seed=seed)
        rows = schedule.rows(Verb.PULL, Verb.PUSH, Verb.SYNC)
        times = schedule["time_ns"][rows][schedule["worker"][rows] == 0]
        for fault in faults:
            begin, end = (round(fault[name] * NANOSECONDS) for name in ("begin", "end"))
            assert not ((times > begin) & (times < end)).any()


class TestStandstillAmongRandomCrashes:
    CRASHES = {"name": "crashes", "mean_up": 20.0, "away": {"name": "constant", "seconds": 1.0}}

    @pytest.mark.parametrize("workers", [2, 300])
    def test_it_is_found_however_many_workers_there_are(self, workers, monkeypatch):
        monkeypatch.setattr("fred.timing.world._MANY_EVENTS", 1)
        machines = cluster({"name": "outage", "workers": [0], "begin": 0.5}, self.CRASHES, workers=workers)
        with pytest.raises(FredError, match=r"nothing can happen any more.*worker 0 does not come back"):
            record(Synchronous(), machines, gradients=10**6)

    def test_chained_exchanges_end_though_one_is_gone_for_good(self):
        machines = cluster(
            {"name": "outage", "workers": [0], "begin": 1.05}, self.CRASHES, workers=4, network=TestLostMessages.LATENCY
        )
        schedule = record(Gossip(exchanges=2), machines, seconds=50)
        assert 0 < schedule["time_ns"].max() < 10 * NANOSECONDS, "its neighbours, and theirs, wait for it"

    @pytest.mark.parametrize("name", WITH_CLOCK)
    def test_no_protocol_is_taken_for_one_that_stands_still(self, name, monkeypatch):
        monkeypatch.setattr("fred.timing.world._MANY_EVENTS", 1)
        machines = cluster(self.CRASHES, workers=4, servers=3, network={"latency": {"name": "exponential", "scale": 0.001}})
        schedule = record(fitting(name, machines), machines, gradients=1500)
        assert not schedule.standstill
        assert schedule.counts()["gradients"] >= 1500


def spans_of_computing(schedule: Schedule, worker: int) -> np.ndarray:
    rows = schedule.rows(Verb.PUSH, Verb.ADD)
    rows = rows[schedule["worker"][rows] == worker]
    return np.stack([schedule["begin_ns"][rows], schedule["end_ns"][rows]], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_CLOCK)
@settings(max_examples=3, deadline=None)
@given(machines=LIGHT_TAILED, faults=st.lists(outages, min_size=1, max_size=3), seed=st.integers(0, 99))
def test_after_the_last_fault_everybody_goes_on(name, machines, faults, seed):
    machines = machines.model_copy(update={"faults": Cluster(workers=1, faults=faults).faults})
    protocol = fitting(name, machines)
    over = max(fault["end"] for fault in faults)
    schedule = record(protocol, machines, seconds=over + TO_WORK, seed=seed)
    counts = schedule.counts()
    assert counts["in_flight"] >= 0
    assert counts["gradients"] + counts["dropped"] + counts["in_flight"] == schedule.started
    for fault in faults:
        begin, end = fault["begin"] * NANOSECONDS, fault["end"] * NANOSECONDS
        spans = spans_of_computing(schedule, 0)
        assert not ((spans[:, 0] < end - 1) & (spans[:, 1] > begin + 1)).any(), "computed while away"
    active = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    for worker in range(machines.size):
        last = schedule["end_ns"][active][schedule["worker"][active] == worker].max(initial=0)
        assert last > over * NANOSECONDS, f"worker {worker} did nothing after the last fault"


@pytest.mark.parametrize("name", WITH_CLOCK)
@settings(max_examples=4, deadline=None)
@given(machines=CLUSTERS, begin=st.floats(0, 3), seed=st.integers(0, 99))
def test_nobody_waits_in_silence_for_one_who_has_left(name, machines, begin, seed):
    leaves = Cluster(workers=1, faults=[{"name": "outage", "workers": [0], "begin": begin}]).faults
    machines = machines.model_copy(update={"faults": leaves})
    protocol = fitting(name, machines)
    try:
        schedule = record(protocol, machines, gradients=400, seed=seed)
    except FredError as error:
        assert "nothing can happen any more" in str(error) and "worker 0 does not come back" in str(error)
    else:
        assert machines.size > 1 and schedule.counts()["gradients"] >= 400
