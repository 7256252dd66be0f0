"""Rules in closed loop on recorded rounds: as the protocol would drive them, and what the rounds come to."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.components import registry
from fred.prediction.closed_loop import run
from fred.prediction.contract import AllWorkers, Choice, Chooser, CutoffRule, Deadline, Oracle, Round
from fred.prediction.fixed import FixedCount
from fred.protocols.cutoff import Cutoff
from fred.schedule.schedule import Verb
from tests.rounds import NODES, RULES, rounds_of
from tests.worlds import record

COMPUTE = {"name": "lognormal", "median": 1.0, "sigma": 0.4}
CONTENTION = [{"name": "markov-switching", "of": "node", "slowdown": 3.0, "fast_seconds": 20, "slow_seconds": 20}]


class Witness(CutoffRule):
    """Another rule, and what was seen of it in the run that it was in last."""

    rule: Any
    rounds: Any

    def start(self, node_of):
        return _Watched(self.rule.start(node_of), self.rounds)


class _Watched(Chooser):
    def __init__(self, chooser, rounds):
        self._chooser, self._rounds = chooser, rounds

    def choose(self, times):
        self._rounds.append((times, self._chooser.choose(times)))
        return self._rounds[-1][1]

    def observe(self, times, finished):
        self._chooser.observe(times, finished)


EXAMPLES = {name: registry.lookup("cutoff", name).example() for name in registry.REGISTRY["cutoff"] if name[:3] != "dmm"}


@pytest.mark.parametrize("rule", [*EXAMPLES.values(), *RULES.values()], ids=[*EXAMPLES, *(f"{name}'s" for name in RULES)])
def test_it_drives_a_rule_as_the_protocol_does_to_the_last_bit(rule):
    seen: list[tuple[np.ndarray, Choice]] = []
    cluster = Cluster(workers=30, nodes=3, compute=COMPUTE, contention=CONTENTION)
    schedule = record(Cutoff(rule=Witness(rule=rule, rounds=seen)), cluster, gradients=1500)
    commits = schedule.rows(Verb.COMMIT)
    added = np.diff(np.searchsorted(schedule.rows(Verb.ADD), commits), prepend=0)
    times, chosen = zip(*seen[: len(commits)], strict=True)
    rounds = run(rule, np.array(times) / 1e9, cluster.node_of, warm_up=0)
    assert len(rounds.cutoff) > 20
    assert np.array_equal(rounds.cutoff, added)
    assert np.array_equal(rounds.time, np.diff(schedule["time_ns"][commits], prepend=0))
    assert all(choice == number for choice, number in zip(chosen, added, strict=True) if not isinstance(choice, Deadline))
    limits = [(choice.workers or 30) if isinstance(choice, Deadline) else choice for choice in chosen]
    assert (added <= limits).all()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.data())
def test_a_round_is_what_a_walk_through_its_times_finds(times, data):
    number = data.draw(st.integers(1, len(times)))
    this = Round.of(np.array(times), number)
    arrivals = sorted((time, worker) for worker, time in enumerate(times))
    assert this.first.tolist() == [worker for _, worker in arrivals[:number]]
    assert this.cutoff == arrivals[number - 1][0]
    for worker, time in enumerate(times):
        assert this.taken[worker] == ((time, worker) <= arrivals[number - 1])
        assert this.seen[worker] == (time if this.taken[worker] else this.cutoff)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(0, 11))
def test_a_round_by_time_is_what_a_walk_through_its_times_finds(times, deadline):
    this = Round.of(np.array(times), Deadline(deadline))
    there = [(time, worker) for worker, time in enumerate(times) if time <= deadline]
    there = sorted(there) or [min((time, worker) for worker, time in enumerate(times))]
    end = max(min(deadline, max(times)), min(times))
    assert this.first.tolist() == [worker for _, worker in there]
    assert this.cutoff == end
    assert isinstance(this.cutoff, int)
    assert this.taken.tolist() == [(time, worker) in there for worker, time in enumerate(times)]
    assert this.seen.tolist() == [min(time, end) for time in times]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(0, 11), st.data())
def test_a_round_by_time_or_number_is_the_one_that_ends_first(times, deadline, data):
    number = data.draw(st.integers(1, len(times)))
    by_time, by_count = (Round.of(np.array(times), each) for each in (Deadline(deadline), number))
    this = Round.of(np.array(times), Deadline(deadline, number))
    assert this.cutoff == min(by_time.cutoff, by_count.cutoff)
    assert this.first.tolist() == min(by_time.first.tolist(), by_count.first.tolist(), key=len)
    assert this.taken.tolist() == (by_time.taken & by_count.taken).tolist()
    assert this.seen.tolist() == np.minimum(times, this.cutoff).tolist()


@given(st.lists(st.integers(1, 99), min_size=1, max_size=9, unique=True), st.data())
def test_a_deadline_at_the_time_of_a_worker_is_to_wait_for_it(times, data):
    number = data.draw(st.integers(1, len(times)))
    by_count, by_time = (Round.of(np.array(times), each) for each in (number, Deadline(sorted(times)[number - 1])))
    for name in Round._fields:
        assert np.array_equal(getattr(by_count, name), getattr(by_time, name))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        *((number, f"wait for {number} workers; expected 1 to 3") for number in (-1, 0, 4)),
        (Deadline(-1), "a deadline -1 ns after the round's start; expected 0 or more"),
        (Deadline(1, 0), "wait for 0 workers; expected 1 to 3"),
        (Deadline(1, 4), "wait for 4 workers; expected 1 to 3"),
    ],
)
def test_a_rule_that_wants_to_wait_for_nobody_or_for_more_than_there_are_is_refused(choice, message):
    class Wrong(CutoffRule):
        def start(self, node_of):
            return _Wrong()

    class _Wrong(Chooser):
        def choose(self, times):
            return choice

    with pytest.raises(FredError, match=message):
        run(Wrong(), np.ones((2, 3)), np.zeros(3, int), warm_up=0)
    with pytest.raises(FredError, match=message):
        record(Cutoff(rule=Wrong()), Cluster(workers=3), gradients=10)


def test_the_summary_says_what_the_rounds_came_to():
    seconds = np.array([[5.0, 5.0, 5.0], [1.0, 1.0, 4.0], [1.0, 3.0, 3.0]])
    rounds = run(FixedCount(workers=2), seconds, np.zeros(3, int), warm_up=1)
    summary = rounds.summary()
    assert rounds.cutoff.tolist() == [2, 2]
    assert rounds.time.tolist() == [1_000_000_000, 3_000_000_000]
    assert rounds.best_cutoff.tolist() == [2, 1]  # of 2/1, 3/4 and of 1/1, 3/3, the first
    assert summary["throughput"] == 1.0
    assert summary["of_oracle"] == 1.0 / 1.5
    assert summary["mean_ratio"] == pytest.approx((1 + 2 / 3) / 2)
    assert summary["cutoff"] == 2.0
    assert rounds.part(1, 2).summary()["throughput"] == pytest.approx(2 / 3)


def test_while_warming_up_all_are_waited_for_and_nothing_counts():
    seconds = rounds_of(0)
    assert run(Oracle(), seconds, NODES).summary()["of_oracle"] == 1.0
    assert len(run(Oracle(), seconds, NODES, warm_up=59).cutoff) == 1
    told: list[float] = []
    run(AllWorkers(), seconds, NODES, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0
    with pytest.raises(ValueError, match="none is left"):
        run(Oracle(), seconds, NODES, warm_up=60)
