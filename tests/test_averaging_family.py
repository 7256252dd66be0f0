"""Systems whose workers average models, or move a server model by pseudo-gradients: algorithms acted out, times and bytes."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fred import batch_indices
from fred.outcomes.outcome import Outcome
from fred.schedule.schedule import NONE, Verb, What
from fred.systems.sparta import LateAveraging
from fred.systems.stsyn import StragglerTolerant
from tests.recompute import gradient, largest_relative_error, measure
from tests.worlds import CLUSTERS, NETWORK, RATE, UNEQUAL, constant, make_run, outcome, record, rows_of, sized_schedule

LINKED = UNEQUAL | {"network": NETWORK}


class ActedOut:
    """Workers with given compute times, instant messages, and a server model, in double precision."""

    def __init__(self, outcome: Outcome, seconds: list[float]):
        assert outcome.run.task is not None
        self.data, self.evaluation = (getattr(outcome.run.task.data.load(3), name) for name in ("train", "evaluation"))
        self.server_model = {k: v.astype(float) for k, v in outcome.initial.items()}
        self.own = [dict(self.server_model) for _ in seconds]
        self.steps, self.memory, self.buffer = [0] * len(seconds), dict[int, Any](), list[dict]()
        for _, worker in sorted((s * n, w) for w, s in enumerate(seconds) for n in range(1, math.ceil(30.1 / s))):
            self.act(worker)

    def act(self, worker: int) -> None:
        raise NotImplementedError

    def gradient(self, worker: int, at: dict) -> dict:
        indices = batch_indices(3, worker, self.steps[worker], batch_size=4, examples=len(self.data))
        self.steps[worker] += 1
        return gradient(at, self.data.inputs[indices], self.data.answers[indices])

    def step(self, worker: int, at: dict) -> None:
        grads = self.gradient(worker, at)
        self.own[worker] = {k: p - RATE * grads[k] for k, p in self.own[worker].items()}


class ElasticActedOut(ActedOut):
    """Algorithm 1 as printed, but for the exchange before the first step, of models that are the same."""

    def act(self, worker: int) -> None:
        self.step(worker, self.memory.get(worker, self.own[worker]))
        self.memory[worker] = x = self.own[worker]
        if self.steps[worker] % 3 == 0:
            self.own[worker] = {k: x[k] - 0.2 * (x[k] - self.server_model[k]) for k in x}
            self.server_model = {k: c + 0.2 * (x[k] - c) for k, c in self.server_model.items()}


class DownpourActedOut(ActedOut):
    """Accrued steps are pushed after two, the server model is fetched after three."""

    def act(self, worker: int) -> None:
        grads = self.gradient(worker, self.own[worker])
        accrued = self.memory.get(worker, dict.fromkeys(grads, 0.0))
        self.memory[worker] = {k: a + RATE * grads[k] for k, a in accrued.items()}
        self.own[worker] = {k: p - RATE * grads[k] for k, p in self.own[worker].items()}
        if self.steps[worker] % 2 == 0:
            self.server_model = {k: c - self.memory[worker][k] for k, c in self.server_model.items()}
            del self.memory[worker]
        if self.steps[worker] % 3 == 0:
            self.own[worker] = self.server_model


class BufferedActedOut(ActedOut):
    """Two steps from the server model; the mean of three pseudo-gradients is an update."""

    def act(self, worker: int) -> None:
        start = self.memory.setdefault(worker, self.own[worker])
        self.step(worker, self.own[worker])
        if self.steps[worker] % 2 == 0:
            self.buffer.append({k: start[k] - p for k, p in self.own[worker].items()})
            if len(self.buffer) == 3:
                self.server_model = {k: c - sum(entry[k] for entry in self.buffer) / 3 for k, c in self.server_model.items()}
                self.buffer = []
            self.memory[worker] = self.own[worker] = self.server_model


PROTOCOLS = [
    ({"name": "elastic", "period": 3, "elasticity": 0.2}, ElasticActedOut),
    ({"name": "accumulating", "n_push": 2, "n_fetch": 3}, DownpourActedOut),
    ({"name": "buffered", "period": 2, "buffer": 3}, BufferedActedOut),
]


@pytest.mark.parametrize(("protocol", "acted"), PROTOCOLS)
def test_protocols_do_what_their_algorithms_say(protocol, acted):
    """Acted out by a program that knows no schedule; the workers' times have no multiple in common within the run."""
    seconds = [1.0, 0.37, 0.731]
    run = outcome("easgd", protocol, constant(*seconds), stop={"seconds": 30.1})
    assert largest_relative_error(run.final, acted(run, seconds).server_model) < 1e-4
    assert largest_relative_error(run.final, run.initial) > 0.1


@pytest.mark.parametrize("name", ["elastic", "buffered"])
def test_times_of_gradients_of_a_second_where_messages_take_half_of_one(name):
    cluster = constant(1.0, 1.0, network={"latency": {"name": "constant", "seconds": 0.5}})
    schedule = outcome("asgd", {"name": name, "period": 3}, cluster, stop={"seconds": 9.9}, task=None).schedule
    pushes = schedule.rows(Verb.PUSH)
    times = schedule["time_ns"][pushes[schedule["replica"][pushes] == 0]] / 1e9
    assert times.tolist() == [1.5, 2.5, 3.5, 5.5, 6.5, 7.5, 9.5], "down and up again after three steps"


@given(cluster=CLUSTERS, period=st.integers(1, 4), quorum=st.integers(1, 7), seed=st.integers(0, 9))
def test_a_round_ends_as_soon_as_enough_workers_have_made_period_updates(cluster, period, quorum, seed):
    quorum = min(quorum, cluster.size)
    schedule = record(StragglerTolerant(period=period, enough=quorum), cluster, gradients=150, seed=seed)
    updates, last, averaged = Counter[int](), 0, 0
    for row in rows_of(schedule):
        if row.verb == "PUSH":
            reached = sum(number >= period for number in updates.values())
            assert reached < quorum or row.time_ns == last, "only what is finished at the same moment is still used"
            updates[row.worker] += 1
            last = row.time_ns
        elif row.verb == "MIX" and updates:
            assert sum(number >= period for number in updates.values()) >= quorum
            assert row.weight == 1 / len(updates)
            updates, averaged = Counter(), averaged + 1
    assume(averaged)


def test_pairs_meet_after_as_many_updates_and_wait_for_nobody_else():
    """Five workers: two pairs and one alone, other ones each time; no message takes time."""
    schedule = outcome("swarm-sgd", {"period": 2}, UNEQUAL | {"workers": 5}, stop={"seconds": 20}, task=None).schedule
    finish_times: dict[int, list[int]] = {worker: [] for worker in range(5)}
    for row in rows_of(schedule):
        if row.verb == "PUSH":
            finish_times[row.worker].append(row.time_ns)
    syncs, sizes = schedule.rows(Verb.SYNC), set[int]()
    for mailbox in np.unique(schedule["mailbox"][syncs]):
        rows = syncs[schedule["mailbox"][syncs] == mailbox]
        workers, time = schedule["worker"][rows].tolist(), schedule["time_ns"][rows][0]
        sizes.add(len(workers))
        counts = {sum(moment <= time for moment in finish_times[worker]) for worker in workers}
        assert len(counts) == 1 and counts.pop() % 2 == 0, "after as many updates"
        assert time == max(max(moment for moment in finish_times[worker] if moment <= time) for worker in workers)
    assert sizes == {1, 2}


class AdaCommActedOut(ActedOut):
    """Local SGD of workers in step, whose period follows the loss every 0.7 s."""

    def run(self, period: int, rounds: int) -> list[float]:

        def loss() -> float:
            return measure(self.server_model, self.evaluation.inputs, self.evaluation.answers)[0]

        now, due, first, start, times = 0.0, 0.7, period, loss(), list[float]()
        for _ in range(rounds):
            for worker in range(len(self.own)):
                for _ in range(period):
                    self.step(worker, self.own[worker])
            self.server_model = {k: np.mean([model[k] for model in self.own], axis=0) for k in self.server_model}
            self.own = [self.server_model] * len(self.own)
            now += 0.1 * period
            times.append(round(now, 6))
            if now >= due - 1e-9:
                due = 0.7 * (math.floor(now / 0.7 + 1e-9) + 1)
                proposed = math.ceil(first * math.sqrt(loss() / start))
                period = proposed if proposed < period else math.ceil(period / 2)
        return times


def test_adacomms_period_follows_the_loss():
    run = outcome("adacomm", {"period": 10, "adapt_every": 0.7}, constant(0.1, 0.1, 0.1), stop={"seconds": 8.05})
    simulated = AdaCommActedOut(run, [])
    simulated.own, simulated.steps = [simulated.server_model] * 3, [0] * 3
    times = np.unique(run.schedule["time_ns"][run.schedule.rows(Verb.SYNC)] / 1e9).round(6).tolist()
    assert simulated.run(10, len(times)) == times
    periods = np.diff([0, *times]).round(6)
    assert periods[0] == 1.0 and periods.min() == pytest.approx(0.1), "from 10 updates to one"
    assert len(set(periods.tolist())) >= 4


def test_downpours_changes_are_one_message_as_old_as_the_model_they_started_from():
    """Pushes after two steps, and after four with the model fetched after three: the sum of two pseudo-gradients."""
    cluster = {"workers": 2, "network": {"bandwidth": 1e6, "message_bytes": 144}}
    schedule = outcome("downpour", {"n_push": 2, "n_fetch": 3}, cluster, stop={"gradients": 40}, task=None).schedule
    rows = schedule.rows(Verb.ADD)
    assert (schedule["step"][rows] == NONE).all()
    sizes = schedule["bytes"][rows][schedule["worker"][rows] == 0]
    assert (sizes[:4] > 0).tolist() == [True, False, True, True], "one; two as one; one"
    assert schedule["staleness"][rows].min() >= 0
    assert (schedule["replica"][schedule.rows(Verb.COMMIT)] == 2).all()


class TestMaskedAverages:
    def test_each_average_has_the_bytes_of_its_coordinates(self):
        """32 and 4 coordinates in 3 parts are 11 + 2, 11 + 1, 10 + 1; in a ring of four each worker sends 1.5 times that."""
        schedule = sized_schedule({"name": "sparta", "parts": 3}, None, LINKED)
        sent = schedule["bytes"][schedule.rows(Verb.SYNC)].reshape(-1, 4)
        assert (sent == sent[:, :1]).all()
        assert sent[:9, 0].tolist() == [78, 72, 66] * 3

    def test_no_worker_waits_for_an_average_that_comes_in_time(self):
        cluster = constant(0.5, 0.5, 0.5, 0.5, network={"latency": {"name": "constant", "seconds": 0.02}})
        prompt, late, never = (
            outcome("sparta", {"delay": delay}, cluster, stop={"seconds": 10.0}, task=None).schedule.counts()["gradients"]
            for delay in (0, 1, None)
        )
        assert prompt < late == never == 4 * 19  # at 10 s the time is up

    def test_averages_are_one_after_the_other(self):
        """Each takes 1.5 s, and one is due every 0.5 s."""
        network = {"bandwidth": 1e6, "message_bytes": 1_000_000}
        cluster = make_run(cluster=constant(0.5, 0.5, 0.5, 0.5, network=network)).cluster
        moving = record(LateAveraging(delay=4), cluster, seconds=30.0).intervals.select(What.COLLECTIVE)
        begin, end = (times[moving.worker == 0] for times in (moving.begin_ns, moving.end_ns))
        assert set((end - begin).tolist()) == {1_500_000_000}
        assert (begin[1:] >= end[:-1]).all()
        assert len(begin) == 19


class TestBytes:
    def test_sparselocos_messages_are_gathered(self):
        """A chunk of 4,096 numbers keeps 64, each with 12 bits for its place and 2 for its value, and one scale."""
        values = {"name": "low-bit", "bits": 2, "zero": False}
        algorithm: Any = make_run("sparseloco").algorithm
        assert algorithm.codec.size(np.zeros(3 * 4096)) == 3 * (64 * (12 + 2) + 32) // 8
        algorithm = {"name": "sparseloco", "codec": {"name": "top-k", "share": 0.25, "values": values, "error_feedback": 0.95}}
        schedule = sized_schedule(algorithm, {"period": 4}, LINKED)
        size = math.ceil((8 * (2 + 5) + 32 + 1 * (2 + 2) + 32) / 8)  # of 32 numbers and of 4
        assert set(schedule["bytes"][schedule.rows(Verb.ADD)].tolist()) == {3 * size}

    def test_choco_sends_the_codecs_bytes(self):
        schedule = sized_schedule({"name": "choco-sgd", "codec": "sign"}, {"topology": "star"}, LINKED)
        size, pulls = math.ceil((32 + 32 + 4 + 32) / 8), schedule.rows(Verb.PULL)
        with_bytes = pulls[schedule["bytes"][pulls] > 0]
        assert set(schedule["bytes"][with_bytes].tolist()) == {size, 3 * size}
        assert schedule["replica"][with_bytes].min() == 4

    def test_des_locs_moments_are_sent_when_it_is_their_turn(self):
        """A worker in a ring of four sends 1.5 times the models in every average, and moments in every second and third."""
        schedule = sized_schedule({"name": "des-loc", "first_every": 2, "second_every": 3}, {"period": 3}, LINKED)
        sent = schedule["bytes"][schedule.rows(Verb.SYNC)].reshape(-1, 4)
        assert (sent == sent[:, :1]).all()
        assert len(sent) >= 12
        assert sent[:, 0].tolist() == (1.5 * 4 * 36 * np.array([1, 2, 2, 2, 1, 3] * 3)[: len(sent)]).tolist()
