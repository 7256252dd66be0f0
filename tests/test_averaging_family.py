"""Systems that average models, or move a server model by pseudo-gradients: compared with other systems, and with NumPy."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fred import batch_indices
from fred.base.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import NONE, Verb
from fred.systems.stsyn import StragglerTolerant
from tests.recompute import gradient, largest_relative_error
from tests.worlds import CLUSTERS, COMPUTE, make_run, record, rows_of

WORKERS = 4
UNEQUAL = {"workers": WORKERS, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}
RATE = 0.125  # by which numbers are multiplied without being rounded


def outcome(algorithm: Any, protocol: Any = None, cluster: Any = UNEQUAL, inline: bool = False, **options: Any) -> Outcome:
    algorithm = {"learning_rate": RATE, **({"name": algorithm} if isinstance(algorithm, str) else algorithm)}
    options = {"stop": {"gradients": 160}, **options}
    return execute("run", make_run(algorithm, protocol=protocol, cluster=cluster, **options), 3, inline)


@pytest.mark.slow
class TestSame:
    """Equal to the last bit, unless a pseudo-gradient is subtracted from the model it came from."""

    @pytest.mark.parametrize("network", [None, NETWORK])
    def test_downpour_that_pushes_and_fetches_after_every_step_is_asynchronous(self, network):
        cluster = UNEQUAL | ({"network": network} if network else {})
        downpour, asgd = (outcome(name, None, cluster, stop={"seconds": 5.0}) for name in ("downpour", "asgd"))
        assert largest_relative_error(downpour.final, asgd.final) < 1e-5
        adds, pushes = downpour.schedule.rows(Verb.ADD), asgd.schedule.rows(Verb.PUSH)
        assert downpour.schedule["time_ns"][adds].tolist() == asgd.schedule["time_ns"][pushes].tolist()

    def test_averages_without_momentum_are_averages(self):
        averaged = outcome("local-sgd", {"period": 5})
        for algorithm in (
            {"name": "bmuf", "block_momentum": 0.0},
            {"name": "slowmo", "slow_momentum": 0.0},
            {"name": "snoo", "outer_momentum": 0.0, "outer_rate": 1.0},
        ):
            found = outcome(algorithm, {"period": 5})
            assert largest_relative_error(found.final, averaged.final) < 1e-5
            assert found.schedule.digest() == averaged.schedule.digest()

    def test_slowmo_is_block_momentum_in_units_of_gradients(self):
        slowmo, bmuf = outcome({"name": "slowmo", "slow_momentum": 0.75}, {"period": 5}), outcome("bmuf", {"period": 5})
        assert slowmo.params_digest == bmuf.params_digest, "0.75 is 1 - 1 / workers"

    def test_snoo_is_nesterovs_block_momentum(self):
        snoo = outcome({"name": "snoo", "outer_rate": 1.0, "outer_momentum": 0.75}, {"period": 5})
        assert snoo.params_digest == outcome({"name": "bmuf", "nesterov": True}, {"period": 5}).params_digest

    def test_where_one_works_alone_averages_without_momentum_change_nothing(self):
        alone = {"workers": 1, "compute": COMPUTE}
        found = outcome({"name": "snoo", "outer_momentum": 0.0, "outer_rate": 1.0}, None, alone)
        assert largest_relative_error(found.final, outcome("asgd", None, alone).final) < 1e-5

    def test_stsyn_that_waits_for_all_is_local_sgd_where_all_are_as_fast(self):
        cluster = {"workers": 4, "compute": {"name": "constant", "seconds": 0.1}, "network": {"bandwidth": 1e5}}
        stsyn, local = outcome("stsyn", {"period": 5, "enough": 4}, cluster), outcome("local-sgd", {"period": 5}, cluster)
        assert stsyn.params_digest == local.params_digest
        assert stsyn.schedule.end_ns == local.schedule.end_ns

    def test_a_pair_alone_is_everybody(self):
        two = {"workers": 2, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}, "network": NETWORK}
        bmuf = {"name": "bmuf", "block_momentum": 0.5, "block_rate": 0.7}
        for pairs, all_ in (("swarm-sgd", "local-sgd"), ("noloco", bmuf)):
            one, other = (outcome(each, {"period": 3}, two) for each in (pairs, all_))
            assert one.params_digest == other.params_digest
            assert one.schedule.end_ns == other.schedule.end_ns

    def test_adacomm_is_local_sgd_until_the_first_interval_is_over(self):
        adacomm, local = outcome("adacomm", {"period": 5, "adapt_every": 60}), outcome("local-sgd", {"period": 5})
        assert adacomm.schedule.digest() == local.schedule.digest()
        assert adacomm.params_digest == local.params_digest


class ActedOut:
    """Workers with given compute times, instant messages, and a server model, in double precision."""

    def __init__(self, found: Outcome, seconds: list[float]):
        assert found.run.task is not None
        self.data, self.evaluation = (getattr(found.run.task.data.load(3), name) for name in ("train", "evaluation"))
        self.server_model = {k: v.astype(float) for k, v in found.initial.items()}
        self.own = [dict(self.server_model) for _ in seconds]
        self.steps = [0] * len(seconds)
        for _, worker in sorted((s * n, w) for w, s in enumerate(seconds) for n in range(1, math.ceil(30.1 / s))):
            self.act(worker)

    def act(self, worker: int) -> None:
        """One more gradient of a worker, and what follows from it."""
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

    def __init__(self, *arguments: Any):
        self.before: dict[int, dict] = {}
        super().__init__(*arguments)

    def act(self, worker: int) -> None:
        self.step(worker, self.before.get(worker, self.own[worker]))
        self.before[worker] = x = self.own[worker]
        if self.steps[worker] % 3 == 0:
            self.own[worker] = {k: x[k] - 0.2 * (x[k] - self.server_model[k]) for k in x}
            self.server_model = {k: c + 0.2 * (x[k] - c) for k, c in self.server_model.items()}


class DownpourActedOut(ActedOut):
    """Accrued steps are pushed after two, the server model is fetched after three."""

    def __init__(self, *arguments: Any):
        self.accrued: dict[int, Any] = {}
        super().__init__(*arguments)

    def act(self, worker: int) -> None:
        grads = self.gradient(worker, self.own[worker])
        accrued = self.accrued.get(worker, dict.fromkeys(grads, 0.0))
        self.accrued[worker] = {k: a + RATE * grads[k] for k, a in accrued.items()}
        self.own[worker] = {k: p - RATE * grads[k] for k, p in self.own[worker].items()}
        if self.steps[worker] % 2 == 0:
            self.server_model = {k: c - self.accrued[worker][k] for k, c in self.server_model.items()}
            del self.accrued[worker]
        if self.steps[worker] % 3 == 0:
            self.own[worker] = self.server_model


class BufferedActedOut(ActedOut):
    """Two steps from the server model; the mean of three pseudo-gradients is an update."""

    def __init__(self, *arguments: Any):
        self.start: dict[int, dict] = {}
        self.buffer: list[dict] = []
        super().__init__(*arguments)

    def act(self, worker: int) -> None:
        start = self.start.setdefault(worker, self.own[worker])
        self.step(worker, self.own[worker])
        if self.steps[worker] % 2 == 0:
            self.buffer.append({k: start[k] - p for k, p in self.own[worker].items()})
            if len(self.buffer) == 3:
                self.server_model = {k: c - sum(each[k] for each in self.buffer) / 3 for k, c in self.server_model.items()}
                self.buffer = []
            self.start[worker] = self.own[worker] = self.server_model


@pytest.mark.parametrize(
    ("protocol", "acted"),
    [
        ({"name": "elastic", "period": 3, "elasticity": 0.2}, ElasticActedOut),
        ({"name": "accumulating", "n_push": 2, "n_fetch": 3}, DownpourActedOut),
        ({"name": "buffered", "period": 2, "buffer": 3}, BufferedActedOut),
    ],
    ids=lambda each: each["name"] if isinstance(each, dict) else "",
)
def test_protocols_do_what_their_algorithms_say(protocol, acted):
    """Acted out by a program that knows no schedule; the workers' times have no multiple in common within the run."""
    seconds = [1.0, 0.37, 0.731]
    cluster = {"workers": 3, "speeds": [1 / s for s in seconds], "compute": {"name": "constant", "seconds": 1.0}}
    found = outcome("easgd", protocol, cluster, stop={"seconds": 30.1})
    plain = acted(found, seconds)
    assert largest_relative_error(found.final, plain.server_model) < 1e-4
    assert largest_relative_error(found.final, found.initial) > 0.1


def mean(models: list[dict]) -> dict:
    """Return the mean of several models."""
    return {k: np.mean([model[k] for model in models], axis=0) for k in models[0]}


class TestSTSyn:
    SECONDS = (1.0, 0.37, 0.731, 2.9)

    def test_rounds_are_as_acted_out(self):
        """U = 2, K = 2: a round ends at 1.462 s, when worker 2 has made 2 updates, worker 1 then 3, worker 0 one, worker 3 none."""
        cluster = {"workers": 4, "speeds": [1 / s for s in self.SECONDS], "compute": {"name": "constant", "seconds": 1.0}}
        found = outcome("stsyn", {"period": 2, "enough": 2}, cluster, stop={"seconds": 10 * 1.462 + 0.001})
        plain = ActedOut(found, [])
        model, plain.steps = plain.server_model, [0] * 4
        for _ in range(10):
            ends = sorted(2 * s for s in self.SECONDS)[1]
            plain.own = [model] * 4
            numbers = [math.floor(ends / s + 1e-9) for s in self.SECONDS]
            assert numbers == [1, 3, 2, 0]
            for worker, number in enumerate(numbers):
                for _ in range(number):
                    plain.step(worker, plain.own[worker])
                plain.steps[worker] += numbers[worker] * self.SECONDS[worker] < ends - 1e-9  # given up: its minibatch is gone
            members = [own for own, number in zip(plain.own, numbers, strict=True) if number]
            model = mean(members)
        assert largest_relative_error(found.final, model) < 1e-4
        assert found.schedule.counts()["dropped"] == 10 * 3, "all give up but worker 2"

    @given(cluster=CLUSTERS, period=st.integers(1, 4), enough=st.integers(1, 7), seed=st.integers(0, 9))
    def test_a_round_ends_as_soon_as_enough_have_made_enough(self, cluster, period, enough, seed):
        enough = min(enough, cluster.size)
        schedule = record(StragglerTolerant(period=period, enough=enough), cluster, gradients=150, seed=seed)
        made, last, averaged = Counter[int](), 0, 0
        for row in rows_of(schedule):
            if row.verb == "PUSH":
                ready = sum(number >= period for number in made.values())
                assert ready < enough or row.time_ns == last, "only what is finished at the same moment is still used"
                made[row.worker] += 1
                last = row.time_ns
            elif row.verb == "MIX" and made:
                assert sum(number >= period for number in made.values()) >= enough
                assert row.weight == 1 / len(made)
                made, averaged = Counter(), averaged + 1
        assume(averaged)


def test_everybody_meets_one_other_in_each_round():
    """Five workers: two pairs and one alone, other ones each time; each waits for its own partner, and no message takes time."""
    schedule = outcome("swarm-sgd", {"period": 2}, UNEQUAL | {"workers": 5}, stop={"seconds": 20}).schedule
    ready: dict[int, list[int]] = {worker: [] for worker in range(5)}
    for row in rows_of(schedule):
        if row.verb == "PUSH":
            ready[row.worker].append(row.time_ns)
    syncs = schedule.rows(Verb.SYNC)
    partners = Counter[int]()
    for mailbox in np.unique(schedule["mailbox"][syncs]):
        own = syncs[schedule["mailbox"][syncs] == mailbox]
        workers, time = schedule["worker"][own].tolist(), schedule["time_ns"][own][0]
        partners[len(workers)] += 1
        counts = {sum(each <= time for each in ready[worker]) for worker in workers}
        assert len(counts) == 1 and counts.pop() % 2 == 0, "after as many updates"
        assert time == max(max(each for each in ready[worker] if each <= time) for worker in workers)
    assert set(partners) == {1, 2}


class AdaCommActedOut(ActedOut):
    """Local SGD of workers in step, whose period follows the loss every 0.7 s."""

    def run(self, period: int, rounds: int) -> list[float]:
        """The averagings' times, s."""
        now, due, first, start, times = 0.0, 0.7, period, self.loss(), list[float]()
        for _ in range(rounds):
            for worker in range(len(self.own)):
                for _ in range(period):
                    self.step(worker, self.own[worker])
            self.server_model = mean(self.own)
            self.own = [self.server_model] * len(self.own)
            now += 0.1 * period
            times.append(round(now, 6))
            if now >= due - 1e-9:
                due = 0.7 * (math.floor(now / 0.7 + 1e-9) + 1)
                wanted = math.ceil(first * math.sqrt(self.loss() / start))
                period = wanted if wanted < period else math.ceil(period / 2)
        return times

    def loss(self) -> float:
        """The mean cross-entropy of the evaluation examples."""
        scores = self.evaluation.inputs @ self.server_model["weights"] + self.server_model["biases"]
        scores = scores - scores.max(axis=1, keepdims=True)
        answers = scores[np.arange(len(scores)), self.evaluation.answers]
        return float((np.log(np.exp(scores).sum(axis=1)) - answers).mean())


def test_adacomm_follows_the_loss():
    cluster = {"workers": 3, "compute": {"name": "constant", "seconds": 0.1}}
    found = outcome("adacomm", {"period": 10, "adapt_every": 0.7}, cluster, stop={"seconds": 8.05})
    plain = AdaCommActedOut(found, [])
    plain.own, plain.steps = [plain.server_model] * 3, [0] * 3
    syncs = found.schedule.rows(Verb.SYNC)
    times = np.unique(found.schedule["time_ns"][syncs] / 1e9).round(6).tolist()
    assert plain.run(10, len(times)) == times
    periods = np.diff([0, *times]).round(6)
    assert periods[0] == 1.0 and periods.min() == pytest.approx(0.1), "from 10 updates to one"
    assert len(set(periods.tolist())) >= 4


def test_a_worker_brings_what_it_has_changed_as_one_message_as_old_as_what_it_fetched():
    """Pushes after two steps, and after four with the model fetched after three: the sum of two pseudo-gradients."""
    found = outcome(
        "downpour", {"n_push": 2, "n_fetch": 3}, {"workers": 2, "network": {"bandwidth": 1e6}}, stop={"gradients": 40}
    )
    schedule, rows = found.schedule, found.schedule.rows(Verb.ADD)
    assert (schedule["step"][rows] == NONE).all()
    sizes = schedule["bytes"][rows][schedule["worker"][rows] == 0]
    assert (sizes[:4] > 0).tolist() == [True, False, True, True], "one; two as one; one"
    assert schedule["staleness"][rows].min() >= 0
    server_model = schedule.rows(Verb.COMMIT)
    assert (schedule["replica"][server_model] == 2).all()


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ({"name": "elastic", "elasticity": 1.5}, "elasticity"),
        ({"name": "elastic", "period": 0}, "period"),
        ({"name": "accumulating", "n_fetch": 0}, "n_fetch"),
        ({"name": "buffered", "buffer": 0}, "buffer"),
        ({"name": "straggler-tolerant", "enough": 5}, r"`enough` \(5\) must not exceed the number of workers \(4\)"),
        ({"name": "local-steps", "adapt_every": 0}, "adapt_every"),
    ],
)
def test_what_cannot_be_is_refused(protocol, said):
    with pytest.raises(FredError, match=said):
        outcome("easgd", protocol)
