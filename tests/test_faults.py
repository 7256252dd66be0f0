"""Crashes, absences and lost messages: their effects, by hand and as properties of random clusters."""

import math
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fred import Cluster, FredError, Protocol, Schedule, Verb
from fred.cluster.durations import NEVER
from fred.cluster.faults import Faults, Outage
from fred.components import registry
from fred.components.component import NANOSECONDS
from fred.running.execution import execute
from fred.running.recording import Timing
from fred.schedule.schedule import NONE, What
from tests.cases import options
from tests.worlds import CLUSTERS, constant, fitting_protocol, make_run, mostly_slow, record

SECOND = {"name": "constant", "seconds": 1.0}
CRASHES = {"name": "crashes", "mean_up": 3.0, "away": {"name": "constant", "seconds": 1.0}}
WITH_CLOCK = sorted(name for name in registry.REGISTRY["protocol"] if registry.lookup("protocol", name).has_clock)
TO_WORK = 150.0  # s, after the last fault: more than anybody needs for a round, unless times have heavy tails
LIGHT_TAILED = CLUSTERS.filter(lambda machines: "pareto" not in machines.model_dump_json())
ONE_GROUP = "group-averaging group_size=4 group_waits=True period=None group_collective=ring"
OF_REPLICAS = (
    *("gossip", "local-steps", "group-averaging", "pairwise", "eager", "elastic", "accumulating", "buffered"),
    *("straggler-tolerant", "outer-steps", "overlapped-steps", "local-servers", "quorum", "in-pairs", "local-sums"),
    *("local-total", "in-turn", "streaming", "choco", "late-averaging"),
)
OUTAGE = st.builds(lambda begin, length: outage(0, begin, begin + length), st.floats(0, 5), st.floats(0.01, 5))
OUTAGES = st.lists(OUTAGE, min_size=1, max_size=3)
EIGHTHS = st.tuples(st.integers(0, 3), st.integers(0, 99), st.integers(1, 40))
ABSENCES = st.lists(EIGHTHS.map(lambda sample: (sample[0], sample[1] / 8, sample[2] / 8)), max_size=5)  # worker, begin, length


def cluster(*faults: dict, workers: int = 3, **options) -> Cluster:
    return Cluster(workers=workers, compute=SECOND, faults=faults, **options)


def use(text: str) -> Protocol:
    parameters = options(text)
    return registry.lookup("protocol", parameters.pop("name")).model_validate(parameters)


def add_faults(machines: Cluster, *faults: dict) -> Cluster:
    return machines.model_copy(update={"faults": Cluster(workers=1, faults=faults).faults})


def record_updates(protocol: Protocol, machines: Cluster, updates: int) -> Schedule:
    return Timing(machines, protocol, (("updates", updates),), math.inf, seed=0, sizes=1000).schedule()


def push_times(schedule: Schedule, worker: int) -> list[float]:
    """Return the times of the updates by a worker's gradients, s."""
    rows = schedule.rows(Verb.PUSH, Verb.ADD)
    return (schedule["time_ns"][rows][schedule["worker"][rows] == worker] / NANOSECONDS).tolist()


def elastic_rounds(times: list[float], outages: list[Any], timeout: float, spare: int, until: float) -> list[tuple[float, int]]:
    """Return when elastic rounds end, s, and their gradients, simulated from moment to moment: an independent program."""
    version, rounds = 0, list[tuple[float, int]]()
    present, offline = set[int](), set[int]()
    ends: dict[int, tuple[float, int]] = {}  # of gradients: when, and at which version
    events = [(until, 3, -1), *((moment, 0, worker) for worker, *span in outages for moment in span if moment > 0)]
    heapify(events)

    def is_offline(worker: int, now: float) -> bool:
        return any(member == worker and begin <= now < end for member, begin, end in outages)

    def begin(worker: int, now: float) -> None:
        ends[worker] = now + times[worker], version
        heappush(events, (ends[worker][0], 2, worker))

    def leave(worker: int, now: float) -> None:
        ends.pop(worker, None)
        heappush(events, (now + timeout, 1, worker))

    available = {worker: not is_offline(worker, 0.0) for worker in range(len(times))}
    for worker in available:
        (begin if available[worker] else leave)(worker, 0.0)
    while True:
        now, kind, worker = heappop(events)
        if kind == 3:
            return rounds
        if kind == 0 and available[worker] == is_offline(worker, now):
            available[worker] = not available[worker]
            offline.discard(worker)
            if not available[worker]:
                leave(worker, now)
            elif worker not in present:
                begin(worker, now)
        elif kind == 1 and is_offline(worker, now):
            offline.add(worker)
        elif kind == 2 and ends.get(worker, (0.0, 0))[0] == now:
            if ends.pop(worker)[1] == version:
                present.add(worker)
            else:
                begin(worker, now)
        if kind > 0 and present and len(times) - len(present | offline) <= spare:
            rounds.append((now, len(present)))
            version += 1
            waiting, present = present, set()
            for other in waiting:
                if not is_offline(other, now):
                    begin(other, now)


def outage(worker: int, begin: float = 0.0, end: float | None = None) -> dict[str, Any]:
    return {"name": "outage", "workers": [worker], "begin": begin, "end": end}


class TestByHand:
    def test_a_worker_that_crashes_loses_its_gradient_and_begins_again(self):
        schedule = record(use("asynchronous"), cluster(outage(1, 2.5, 4.25)), seconds=7)
        assert push_times(schedule, 0) == [1, 2, 3, 4, 5, 6]
        assert push_times(schedule, 1) == [1, 2, 5.25, 6.25]
        assert schedule.counts()["dropped"] == 1
        assert push_times(record(use("asynchronous"), cluster(outage(0, end=3.0)), seconds=6), 0) == [4, 5], "it joins late"
        pulls = schedule.rows(Verb.PULL)
        assert 4.25 in schedule["time_ns"][pulls[schedule["worker"][pulls] == 1]] / NANOSECONDS, "it reads again"

    def test_backup_workers_stand_in_for_a_worker_that_has_left(self):
        leaves = cluster(outage(2, 1.5))
        assert record(use("synchronous backup_workers=1"), leaves, gradients=20).counts()["updates"] == 10
        standstill = "nothing can happen any more after 2 s: worker 0 waits for round 1"
        with pytest.raises(FredError, match=f"{standstill} to be complete.*worker 2 does not come back"):
            record(use("synchronous"), leaves, gradients=20)
        assert record(use("synchronous"), leaves, seconds=20).standstill.startswith(standstill)

    @given(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 900), st.integers(1, 400)), max_size=6),
        st.sampled_from([None, 0.0, 0.3, 2.0]),
        st.integers(0, 2),
    )
    def test_elastic_rounds_are_those_of_another_program(self, absences, timeout, spare):
        begins = [(worker, at / 100 + 0.0037 * (place + 1), lasts / 100) for place, (worker, at, lasts) in enumerate(absences)]
        outages = [(worker, begin, begin + lasts + 0.00053) for worker, begin, lasts in begins]  # nothing at the same time
        times = [1.0, 1.0103, 1.1007, 1.7]
        machines = Cluster(**constant(*times, faults=[outage(*absence) for absence in outages]))
        schedule = record(use(f"synchronous timeout={timeout} backup_workers={spare}"), machines, seconds=15.0001)
        commits = schedule.rows(Verb.COMMIT)
        rounds = elastic_rounds(times, outages, math.inf if timeout is None else timeout, spare, until=15.0001)
        assert (schedule["time_ns"][commits] / NANOSECONDS).tolist() == pytest.approx([end for end, _ in rounds], abs=1e-6)
        sizes = np.diff(np.searchsorted(schedule.rows(Verb.ADD), commits), prepend=0)
        assert sizes.tolist() == [size for _, size in rounds]

    def test_an_outage_after_updates_begins_right_after_them_and_its_round_lacks_the_worker(self):
        """Rounds end at 1, 2 and 3 s; worker 1 is away from then on for 1.5 s, and the round at 4 s goes on without it."""
        faults = [{"name": "outage", "workers": [1], "after_updates": 3, "away": 1.5}]
        faults.append({"name": "outage", "workers": [2], "after_updates": 6, "away": 1.25})
        schedule = record_updates(use("synchronous timeout=0"), cluster(*faults), updates=8)
        commits, away = schedule.rows(Verb.COMMIT), schedule.intervals.select(What.AWAY)
        times, sizes = schedule["time_ns"][commits], np.diff(np.searchsorted(schedule.rows(Verb.ADD), commits), prepend=0)
        assert [sizes[3], sizes[6]] == [2, 2], "the victim contributes nothing"
        assert (away.begin_ns - 1).tolist() == [times[2], times[5]]
        assert (away.end_ns - away.begin_ns).tolist() == [1.5 * NANOSECONDS, 1.25 * NANOSECONDS]
        late = record_updates(use("synchronous timeout=0"), cluster(faults[0] | {"after_updates": 9}), updates=8)
        assert not len(late.intervals.select(What.AWAY).what), "the run ends before"

    @pytest.mark.parametrize("name", WITH_CLOCK)
    def test_until_an_outage_after_updates_a_run_is_that_without_it(self, name):
        machines = Cluster(workers=4, compute={"name": "exponential", "scale": 0.5}, network={}, servers=2)
        protocol = fitting_protocol(name, machines)
        if protocol.needs_values:
            pytest.skip("its timing depends on values")
        undisturbed = record_updates(protocol, machines, updates=90)
        waiting = {"name": "outage", "workers": [0], "after_updates": 30, "away": 2.0}
        schedule = record_updates(protocol, add_faults(machines, waiting), updates=90)
        updates = undisturbed.rows(Verb.PUSH, Verb.COMMIT)
        (begin, *_) = schedule.intervals.select(What.AWAY).begin_ns.tolist()
        assert begin - 1 == undisturbed["time_ns"][updates[30 * undisturbed.blocks - 1]]
        for column in ("time_ns", "verb", "worker", "step", "timestamp"):
            rows, others = (run[column][run["time_ns"] < begin - 1].tolist() for run in (schedule, undisturbed))
            assert rows == others

    def test_overlapping_absences_are_one(self):
        faults = Faults([Outage(workers=[0], begin=b, end=e).start(0, name, 1, 1) for name, b, e in (("a", 1, 3), ("b", 2, 5))])
        assert faults.offline_interval("worker", 0, 0) == (1 * NANOSECONDS, 5 * NANOSECONDS)
        assert faults.next_available("worker", 0, 2 * NANOSECONDS) == 5 * NANOSECONDS
        assert faults.undisturbed([0], NANOSECONDS // 2, lambda _: NANOSECONDS) == (5 * NANOSECONDS, 6 * NANOSECONDS)
        assert faults.offline_interval("worker", 0, 6 * NANOSECONDS)[0] == NEVER

    @pytest.mark.slow
    def test_random_crashes_come_as_often_as_stated(self):
        crashes = {"name": "crashes", "mean_up": 20.0, "away": {"name": "constant", "seconds": 5.0}}
        schedule = record(use("asynchronous"), cluster(crashes, workers=50), seconds=400)
        counts, absences = schedule.counts(), schedule.intervals.select(What.AWAY)
        begins, ends = (np.array(column)[np.array(absences.worker) == 0] for column in (absences.begin_ns, absences.end_ns))
        assert len(set((begins[1:] - ends[:-1]).tolist())) == len(begins) - 1 > 5, "each time up is drawn anew"
        expected = 50 * 400 / 25  # a crash each 20 s of being up and 5 s of being away
        assert abs(counts["dropped"] - expected) < 4 * math.sqrt(expected)

    def test_impossible_faults_are_refused(self):
        for faults, message in (
            ([outage(3)], "`faults`: there are 3 workers, numbered from 0; `workers` names 3"),
            ([outage(0, 2, 1)], r"`end` .1. must be after `begin` .2."),
            ([{"name": "outage", "servers": [0]}], "this protocol has no servers"),
            ([outage(0, 2) | {"after_updates": 3}], "give `begin` or `after_updates`"),
            ([outage(0, 0, 5) | {"after_updates": 3}], "give the length of the outage, s, as `away`: leave `end` out"),
            ([outage(0, 0, 5) | {"away": 3.0}], "give `end` or `away`"),
            ([CRASHES | {"mean_up": 0.01}], "worker 0 is offline 10,000 times before it can compute one gradient of 1 s"),
        ):
            machines = {"workers": 3, "compute": SECOND, "faults": faults}
            with pytest.raises(FredError, match=message):
                execute("run", make_run("allreduce-sgd", cluster=machines, task=None), 0)

    def test_an_outage_after_updates_is_refused_where_what_is_learned_decides_on_times(self):
        """The pass over timing alone, which finds the time of an update, has no losses."""
        statistical = {"name": "gated", "fetch_gate": {"name": "statistical", "c": 0.1}}
        adaptive = {"name": "local-steps", "adapt_every": 2.0}
        for algorithm, protocol in (("b-fasgd", statistical), ("local-sgd", adaptive)):
            at_time = cluster({"name": "outage", "workers": [1], "begin": 3.0, "away": 1.0}).model_dump()
            assert make_run(algorithm, protocol=protocol, cluster=at_time).protocol.needs_values
            after = cluster({"name": "outage", "workers": [1], "after_updates": 7, "away": 1.0}).model_dump()
            with pytest.raises(FredError, match="cannot know the time of update 7 before: give the outage's `begin`"):
                make_run(algorithm, protocol=protocol, cluster=after)


WAIT_FOR_ALL = "allreduce", "local-steps period=1", "eager period=1", "cutoff", "group-averaging period=1", ONE_GROUP
DROPPING = (
    *(
        "asynchronous clocks=each",
        "gated push_gate={'name':'periodic','k':3}",
        "gated push_gate={'name':'periodic','k':2} unsent=apply-again",
        "partial gradients=2",
    ),
    *("synchronous backup_workers=1", "softsync n=2", "softsync n=2 afterwards=wait"),
)


class TestAmongCrashes:
    MESSAGES = {"latency": {"name": "constant", "seconds": 0.4}}

    @pytest.mark.parametrize("protocol", DROPPING)
    def test_a_gradient_that_was_dropped_is_not_used_afterwards(self, protocol):
        machines = cluster(CRASHES, workers=4, servers=2, network=self.MESSAGES)
        schedule = record(use(protocol), machines, seconds=200)
        dropped: set[tuple[int, int]] = set()
        for row in schedule:
            if row.verb == Verb.DROP:
                dropped.add((row.worker, row.step))
            assert row.verb not in (Verb.PUSH, Verb.ADD) or (row.worker, row.step) not in dropped
        assert dropped

    def test_a_round_has_one_gradient_of_each(self):
        schedule = record(use("synchronous"), cluster(CRASHES, workers=4, network=self.MESSAGES), seconds=300)
        rows = schedule.rows(Verb.ADD, Verb.COMMIT)
        ends = np.flatnonzero(schedule["verb"][rows] == Verb.COMMIT) + 1
        rounds = np.split(schedule["worker"][rows], ends)
        assert len(rounds) > 20
        assert all(sorted(row[:-1].tolist()) == [0, 1, 2, 3] for row in rounds[:-1])

    @pytest.mark.parametrize("protocol", WAIT_FOR_ALL)
    def test_links_that_become_slow_later_slow_collectives_from_then_on(self, protocol):
        slow = {"regime": {"name": "job", "nodes": [0], "slowdown": 10.0, "begin": 10.0}}
        network = {"bandwidth": 1e3, "contention": [slow]}
        gradients = record(use(protocol), cluster(workers=4, network=network), seconds=200).counts()["gradients"]
        assert 4 * (4 + 190 / 17) - 5 < gradients < 4 * (4 + 190 / 15) + 5


def soonest(start: float, work: float, absences: list[tuple[float, float]]) -> float:
    """Return the end of work that no absence may interrupt, begun at `start` or at any return."""
    begins = sorted([start, *(end for _, end in absences if end > start)])
    return (
        next(moment for moment in begins if not any(end > moment and begin < moment + work for begin, end in absences)) + work
    )


class TestLostMessages:
    LOSSES = {"name": "lost-messages", "share": 0.3, "again_after": 0.125}
    LATENCY = {"latency": {"name": "constant", "seconds": 0.25}}

    @pytest.mark.parametrize(("servers", "messages"), [(1, 1), (3, 3)])
    def test_what_is_sent_again_is_counted_with_what_arrives(self, servers, messages):
        """Nothing queues, so that by how much a message is late says how often it was lost."""
        schedule = record(use("asynchronous"), cluster(self.LOSSES, servers=servers, network=self.LATENCY), gradients=300)
        for verb, begin, end in ((Verb.PULL, "begin_ns", "end_ns"), (Verb.PUSH, "end_ns", "time_ns")):
            rows = schedule.rows(verb)
            seconds = (schedule[end][rows] - schedule[begin][rows]) / NANOSECONDS
            sent = 1 + (seconds - 0.25) / 0.125
            assert schedule["messages"][rows].tolist() == (sent * messages).tolist()
            assert schedule["bytes"][rows].tolist() == (sent * 1000).tolist()
            assert sent.max() > 3

    @pytest.mark.parametrize(
        "protocol", ["asynchronous", "gossip overlap=2", *mostly_slow(["asynchronous clocks=each", "partial", "gossip"], [])]
    )
    def test_a_message_is_sent_as_often_as_it_is_lost(self, protocol):
        network = {**self.LATENCY, "servers": [{"servers": [0], "bandwidth": 1e9}]}
        machines = [cluster(*faults, workers=4, servers=2, network=network) for faults in ([self.LOSSES], [])]
        lossy, sure = (record(use(protocol), machine, gradients=2000) for machine in machines)
        per_gradient = [schedule["messages"].sum() / schedule.counts()["gradients"] for schedule in (lossy, sure)]
        assert per_gradient[0] == pytest.approx(per_gradient[1] / 0.7, rel=0.03)
        sizes = [schedule["bytes"].sum() / schedule["messages"].sum() for schedule in (lossy, sure)]
        assert sizes[0] == pytest.approx(sizes[1])


class TestWhoIsAwayWhenAnAverageIsMade:
    RING = {"latency": {"name": "constant", "seconds": 0.25}}  # four workers' allreduce: 1.5 s

    @pytest.mark.parametrize("protocol", WAIT_FOR_ALL)
    @settings(max_examples=10)
    @given(absences=ABSENCES)
    def test_where_all_wait_for_all_it_begins_when_all_are_there_and_anew_if_one_goes(self, protocol, absences):
        faults = [outage(worker, begin, begin + length) for worker, begin, length in absences]
        machines = cluster(*faults, workers=4, speeds=[1, 1, 0.5, 0.8], network=self.RING)
        schedule = record(use(protocol), machines, gradients=28)
        everybody = [(begin, begin + length) for _, begin, length in absences]
        absences_of = [
            [span for span, (absentee, *_) in zip(everybody, absences, strict=True) if absentee == w] for w in range(4)
        ]
        expected, now = [], 0.0
        for _ in range(6):
            computed = [soonest(now, 1 / speed, absences_of[worker]) for worker, speed in enumerate((1, 1, 0.5, 0.8))]
            expected.append(now := soonest(max(computed), 1.5, everybody))
        verb = Verb.MIX if schedule.replicas > 1 else Verb.COMMIT
        times = np.unique(schedule["time_ns"][schedule.rows(verb)]) / NANOSECONDS
        assert times[:6].tolist() == expected

    def eager(self, *faults: dict, seconds: float = 9, **options: Any) -> list[Any]:
        machines = cluster(*faults, network=self.RING, **options)
        schedule = record(use("eager start_by=solo period=None"), machines, seconds=seconds)
        return [row for row in schedule if row.verb in (Verb.ADD, Verb.COMMIT)]

    def test_eager_sgd_goes_on_without_it_and_its_gradient_is_part_of_a_later_sum(self):
        """Worker 0 arrives at 1 s, the message that starts the allreduce two latencies later; worker 1 was available in between."""
        adds = [row for row in self.eager(outage(1, 1.375, 4.0), speeds=[1, 0.8, 0.1]) if row.verb == Verb.ADD]
        first = [(row.time_ns / NANOSECONDS, row.worker) for row in adds[:2]]
        assert first == [(1.5 + 2 * 0.25, 0), (2.0 + 1 + 0.5 + 2 * 0.25, 0)], "two of the three in the ring"
        gradients = [row for row in adds if row.worker == 1]
        assert [row.step for row in gradients] == list(range(len(gradients)))
        assert gradients[0].time_ns == (4.0 + 1 + 0.5 + 2 * 0.25 + 0.5) * NANOSECONDS, "finished at 1.25 s"
        assert gradients[0].bytes == round(4 / 3 * 1000), "it has taken part in no other"

    def test_an_eager_worker_is_charged_for_each_allreduce_what_that_has_cost(self):
        """Worker 3 needs 2.5 s, worker 2 is away when the first allreduce begins: three in a ring, then all four."""
        rows = self.eager(outage(2, 1.25, 1.625), workers=4, speeds=[1, 1, 1, 0.4])
        first = next(row for row in rows if row.worker == 3)
        assert first.time_ns == (1 + 0.5 + 4 * 0.25 + 1 + 0.5 + 6 * 0.25) * NANOSECONDS
        assert (first.bytes, first.messages) == (round(4 / 3 * 1000) + 1500, 4 + 6)

    def test_where_nobody_is_there_an_eager_allreduce_waits_for_the_first_who_is_back(self):
        """Worker 0 starts it at 1 s, and is gone when it begins at 1.25 s; at 4 s worker 1 has nothing to give."""
        rows = self.eager(outage(0, 1.125, 5.0), outage(1, 1.125, 4.0), workers=2, speeds=[1, 0.1])
        first = [(row.time_ns / NANOSECONDS, row.verb, row.step) for row in rows[:4]]
        assert first == [(4, Verb.COMMIT, -1), (6.75, Verb.ADD, 0), (6.75, Verb.ADD, 1), (6.75, Verb.COMMIT, -1)]

    def test_rounds_of_eager_sgd_are_empty_while_their_workers_are_away(self):
        crashes = {"name": "crashes", "mean_up": 2.0, "away": {"name": "constant", "seconds": 3.0}}
        rows = self.eager(crashes, workers=4, seconds=200)
        commits = [number for number, row in enumerate(rows) if row.verb == Verb.COMMIT]
        assert {0, 1, 2} <= set(np.diff(commits, prepend=-1) - 1)

    @pytest.mark.parametrize("order", ["update-first", "compute-first"])
    def test_in_gossip_it_takes_the_average_when_it_is_back(self, order):
        """Worker 1 needs 2 s; worker 0 waits for its model and is offline from 1.5 s on, but has sent its own model."""
        machines = cluster(outage(0, 1.5, 5.0), workers=4, nodes=4, speeds=[1, 0.5, 1, 1])
        schedule = record(use(f"gossip order={order}"), machines, seconds=5.5)
        syncs = schedule.rows(Verb.SYNC)
        first = [schedule["time_ns"][syncs][schedule["worker"][syncs] == worker][0] / NANOSECONDS for worker in range(4)]
        assert first == [5.0, 2.0, 2.0, 1.0]

    @pytest.mark.parametrize(
        ("name", "parameters"),
        [
            *((name, {}) for name in OF_REPLICAS),
            ("streaming", {"elastic": True}),
            ("quorum", {"fragments": 3}),
            ("group-averaging", {"group_waits": True, "period": None}),
            *(("gossip", parameters) for parameters in ({"order": "mix-first"}, {"overlap": 2}, {"exchanges": 3})),
        ],
    )
    @settings(max_examples=3)
    @given(machines=CLUSTERS, faults=OUTAGES, seed=st.integers(0, 99))
    def test_it_reads_sends_and_takes_nothing_meanwhile(self, name, parameters, machines, faults, seed):
        machines = add_faults(machines, *faults)
        schedule = record(fitting_protocol(name, machines, **parameters), machines, seconds=20, seed=seed)
        rows = schedule.rows(Verb.PULL, Verb.PUSH, Verb.SYNC)
        times = schedule["time_ns"][rows][schedule["worker"][rows] == 0]
        for fault in faults:
            begin, end = (round(fault[name] * NANOSECONDS) for name in ("begin", "end"))
            assert not ((times > begin) & (times < end)).any()


class TestStandstillAmongRandomCrashes:
    RARE = CRASHES | {"mean_up": 20.0}

    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [2, 300])
    def test_it_is_found_however_many_workers_there_are(self, workers, monkeypatch):
        monkeypatch.setattr("fred.timing.world._MANY_EVENTS", 1)
        machines = cluster(outage(0, 0.5), self.RARE, workers=workers)
        with pytest.raises(FredError, match=r"nothing can happen any more.*worker 0 does not come back"):
            record(use("synchronous"), machines, gradients=10**6)

    def test_chained_exchanges_end_though_one_is_gone_for_good(self):
        machines = cluster(outage(0, 1.05), self.RARE, workers=4, network=TestLostMessages.LATENCY)
        last = record(use("gossip exchanges=2"), machines, seconds=50)["time_ns"].max()
        assert 0 < last < 10 * NANOSECONDS, "its neighbours, and theirs, wait for it"

    @pytest.mark.parametrize("name", WITH_CLOCK)
    def test_no_protocol_is_taken_for_one_that_stands_still(self, name, monkeypatch):
        monkeypatch.setattr("fred.timing.world._MANY_EVENTS", 1)
        machines = cluster(self.RARE, workers=4, servers=3, network={"latency": {"name": "exponential", "scale": 0.001}})
        schedule = record(fitting_protocol(name, machines), machines, gradients=400)
        assert not schedule.standstill
        assert schedule.counts()["gradients"] >= 400


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_CLOCK)
@settings(max_examples=3)
@given(machines=LIGHT_TAILED, faults=OUTAGES, seed=st.integers(0, 99))
def test_after_the_last_fault_everybody_goes_on(name, machines, faults, seed):
    machines, end_of_faults = add_faults(machines, *faults), max(fault["end"] for fault in faults)
    schedule = record(fitting_protocol(name, machines), machines, seconds=end_of_faults + TO_WORK, seed=seed)
    counts = schedule.counts()
    assert counts["in_flight"] >= 0
    assert counts["gradients"] + counts["dropped"] + counts["in_flight"] == schedule.started
    rows = schedule.rows(Verb.PUSH, Verb.ADD)
    rows = rows[(schedule["worker"][rows] == 0) & (schedule["step"][rows] != NONE)]  # a server may add a model later
    for fault in faults:
        begin, end = fault["begin"] * NANOSECONDS, fault["end"] * NANOSECONDS
        overlap = (schedule["begin_ns"][rows] < end - 1) & (schedule["end_ns"][rows] > begin + 1)
        assert not overlap.any(), "computed while away"
    active = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
    for worker in range(machines.size):
        last = schedule["end_ns"][active][schedule["worker"][active] == worker].max(initial=0)
        assert last > end_of_faults * NANOSECONDS, f"worker {worker} did nothing after the last fault"


@pytest.mark.parametrize("name", WITH_CLOCK)
@settings(max_examples=3)
@given(machines=CLUSTERS, begin=st.floats(0, 3), seed=st.integers(0, 99))
def test_nobody_waits_in_silence_for_one_who_has_left(name, machines, begin, seed):
    machines = add_faults(machines, outage(0, begin))
    protocol = fitting_protocol(name, machines)
    try:
        schedule = record(protocol, machines, gradients=400, seed=seed)
    except FredError as error:
        assert "nothing can happen any more" in str(error) and "worker 0 does not come back" in str(error)
    else:
        assert machines.size > 1 and schedule.counts()["gradients"] >= 400
