"""What the contract carries: later systems, each recomputed by NumPy, and inline the same as replayed."""

import numpy as np
import pytest

from fred import batch_indices
from fred.components import registry
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.schedule.schedule import NONE, Verb
from tests.recompute import (
    PlainEqual,
    PlainLayers,
    PlainSGD,
    largest_relative_error,
    recompute,
    with_what_was_read,
)
from tests.worlds import COMPUTE, LAYERS, TASK, make_run, same

WORKERS = 4


@pytest.fixture(autouse=True, scope="module")
def _allowed():
    registry.allow_import(["tests.successors"])


class PlainDelayCompensated(PlainSGD):
    """g + lambda g g (w - w_read)."""

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        self.params = {
            k: w - self.rate * (grads[k] + 0.5 * grads[k] ** 2 * (w - grads[f"read {k}"])) for k, w in self.params.items()
        }


class PlainAveraged(PlainSGD):
    """Beside the parameters, their moving average."""

    def __init__(self, params: dict, rate: float):
        super().__init__(params, rate)
        self.sum, self.updates = dict.fromkeys(params, 0.0), 0

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        super().update(grads, staleness, count)
        self.sum, self.updates = {k: 0.9 * a + 0.1 * self.params[k] for k, a in self.sum.items()}, self.updates + 1

    @property
    def average(self) -> dict:
        return {k: a / (1 - 0.9**self.updates) for k, a in self.sum.items()}


class PlainMomentum(PlainSGD):
    """Inner SGD with momentum; rounds are outer steps with Nesterov momentum."""

    def __init__(self, params: dict, rate: float, inner: float = 0.5):
        super().__init__(params, rate)
        self.inner, self.trace, self.outer = inner, dict.fromkeys(params, 0.0), dict.fromkeys(params, 0.0)

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        if count:
            self.outer = {k: d + 0.6 * self.outer[k] for k, d in grads.items()}
            self.params = {k: p - 0.4 * (grads[k] + 0.6 * self.outer[k]) for k, p in self.params.items()}
        else:
            self.trace = {k: g + self.inner * self.trace[k] for k, g in grads.items()}
            self.params = {k: p - self.rate * self.trace[k] for k, p in self.params.items()}


class PlainElastic(PlainSGD):
    """Rounds are steps of length 0.3."""

    of_rounds = 0.3

    def update(self, grads: dict, staleness: int, count: int = 0) -> None:
        rate = self.of_rounds if count else self.rate
        self.params = {k: p - rate * grads[k] for k, p in self.params.items()}


class PlainBuffered(PlainElastic):
    """Differences weighed by their staleness; rounds are steps of length 0.8."""

    of_rounds = 0.8

    def contribution(self, message: dict, staleness: int) -> dict:
        return {k: m / np.sqrt(1 + staleness) for k, m in message.items()}


class PlainQuantised(PlainSGD):
    """Publishes multiples of 0.05, and remembers what that takes away."""

    def __init__(self, params: dict, rate: float):
        super().__init__(params, rate)
        self.rest = dict.fromkeys(params, 0.0)

    def published(self) -> dict:
        whole = {k: p + self.rest[k] for k, p in self.params.items()}
        rounded = {k: 0.05 * np.round(p / 0.05) for k, p in whole.items()}
        self.rest = {k: p - rounded[k] for k, p in whole.items()}
        return rounded


class PlainBlockMomentum(PlainSGD):
    """Steps towards a mailbox with momentum."""

    def __init__(self, params: dict, rate: float):
        super().__init__(params, rate)
        self.speed = dict.fromkeys(params, 0.0)

    def meet(self, mixed: dict, keep: float, weight: float) -> None:
        self.speed = {k: 0.5 * self.speed[k] + weight * (mixed[k] - p) for k, p in self.params.items()}
        self.params = {k: p + self.speed[k] for k, p in self.params.items()}


class WithMemory:
    """Workers that send the largest quarter of each array, and remember the rest."""

    def __init__(self) -> None:
        self.rest: dict = {}

    def __call__(self, worker: int, params: dict, message: dict) -> dict:
        rest = self.rest.setdefault(worker, dict.fromkeys(message, 0.0))
        total = {k: g + rest[k] for k, g in message.items()}
        sent = {}
        for k, t in total.items():
            threshold = np.sort(np.abs(t).ravel())[round(0.75 * (t.size - 1))]
            sent[k] = np.where(np.abs(t) >= threshold, t, 0.0)
            rest[k] = t - sent[k]
        return sent


def mean(parts: list) -> dict:
    return {k: np.mean([part[k] for part in parts], axis=0) for k in parts[0]}


def one_per_replica(plain, replicas: int):
    return lambda initial, rate: [plain(initial, rate) for _ in range(replicas)]


def one_per_block(plain, servers: int):
    return lambda initial, rate: [plain(initial, rate, number, servers) for number in range(servers)]


def fragments(plain):
    return lambda initial, rate: [plain(initial, rate, block, 2) for _ in range(WORKERS) for block in range(2)]


def joined(plain):
    return lambda final, initial: plain.join(final, initial)


def mean_of_fragments(plain):
    return lambda final, initial: mean([plain.join(final[2 * w : 2 * w + 2], initial) for w in range(WORKERS)])


MOMENTUM = {"optimizer": {"name": "sgd", "momentum": 0.5}}
CENTRED = WORKERS + 1
SYSTEMS = {  # name -> algorithm, protocol, servers of the cluster, plain servers, the answer of their parameters, send
    "easgd": ("EASGD", None, 1, one_per_replica(PlainElastic, CENTRED), lambda final, _: final[-1], None),
    "dc-asgd": ("DCASGD", "asynchronous", 1, one_per_replica(PlainDelayCompensated, 1), None, with_what_was_read),
    "diloco": ("DiLoCo", None, 1, one_per_replica(PlainMomentum, CENTRED), lambda final, _: final[-1], None),
    "fedbuff": ("FedBuff", None, 1, one_per_replica(PlainBuffered, CENTRED), lambda final, _: final[-1], None),
    "top-k": ("TopK", "asynchronous", 1, one_per_replica(PlainSGD, 1), None, WithMemory),
    "top-k, in rounds": ("TopK", "synchronous", 1, one_per_replica(PlainSGD, 1), None, WithMemory),
    "quantised": ("Quantised", "asynchronous", 1, one_per_replica(PlainQuantised, 1), None, None),
    "block momentum": ("BlockMomentum", "Elastic", 1, one_per_replica(PlainBlockMomentum, CENTRED), lambda f, _: f[-1], None),
    "eager-sgd, with crashes": ("eager-sgd", "eager", 1, one_per_replica(PlainSGD, 1), None, None),
    "top-k, layers on servers": (
        "TopK",
        "asynchronous:layers",
        2,
        one_per_block(PlainLayers, 2),
        joined(PlainLayers),
        WithMemory,
    ),
    "differences on shards, top-k": (
        "TopK",
        "ShardedRounds",
        2,
        lambda initial, rate: [PlainEqual(initial, rate, block, 2) for _ in range(CENTRED) for block in range(2)],
        lambda final, initial: PlainEqual.join(final[-2:], initial),
        WithMemory,
    ),
    "fragments, parts": ("asgd", "Fragments:parts", 1, fragments(PlainEqual), mean_of_fragments(PlainEqual), None),
    "fragments, layers": ("asgd", "Fragments:layers", 1, fragments(PlainLayers), mean_of_fragments(PlainLayers), None),
}


def own(name: str) -> str:
    """The name of one of `tests.successors`, if it is."""
    return f"tests.successors:{name}" if name[0].isupper() else name


def run_of(name: str, **options):
    algorithm, protocol, servers, *_ = SYSTEMS[name]
    compute = {"name": "lognormal", "median": 0.1, "sigma": 0.7}
    cluster = {
        "workers": WORKERS,
        "compute": compute,
        "servers": servers,
        "network": {"latency": {"seconds": 0.02, "name": "constant"}},
    }
    rate = {"learning_rate": 0.1} | (MOMENTUM if name == "diloco" else {})
    if protocol:
        kind, _, cut = protocol.partition(":")
        options = {"task": LAYERS if cut == "layers" else TASK, **options}
        options["protocol"] = {"name": own(kind)} | ({"cut": cut} if cut else {})
        options["protocol"] |= {"clocks": "each"} if kind == "asynchronous" and cut else {}
    if protocol == "eager":
        options["protocol"] |= {"start_by": "solo", "period": None}
        cluster["faults"] = [{"name": "crashes", "mean_up": 0.2, "away": {"name": "constant", "seconds": 0.3}}]
    return make_run({"name": own(algorithm), **rate}, cluster=cluster, **{"stop": {"gradients": 120}, **options})


def recomputed(name: str, outcome: Outcome) -> dict:
    *_, plain, answer, send = SYSTEMS[name]
    initial = {k: v.astype(float) for k, v in outcome.initial.items()}
    assert outcome.run.task is not None
    data = outcome.run.task.data.load(outcome.seed).train
    send = send() if isinstance(send, type) else send or (lambda worker, params, message: message)
    final = recompute(
        outcome.schedule.frame(),
        plain(initial, 0.1),
        data.inputs,
        data.answers,
        lambda worker, step: batch_indices(outcome.seed, worker, step, batch_size=4, examples=len(data)),
        send=send,
    )
    return answer(final, initial) if answer else final[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_later_system_is_what_its_schedule_says_inline_and_replayed(name):
    run = run_of(name)
    replayed, inline = (execute("run", run, 3, each) for each in (False, True))
    assert replayed.schedule.digest() == inline.schedule.digest()
    assert replayed.params_digest == inline.params_digest
    assert replayed.metrics.equals(inline.metrics)
    params = recomputed(name, replayed)
    assert largest_relative_error(replayed.final, params) < 1e-4
    assert largest_relative_error(replayed.final, replayed.initial) > 0.1, "the run moved the parameters"
    assert replayed.metrics["loss"].iloc[-1] < 0.8 * replayed.metrics["loss"].iloc[0]


def test_the_schedules_show_what_is_new():
    schedules = {name: execute("run", run_of(name, task=None), 3).schedule for name in ("fedbuff", "eager-sgd, with crashes")}
    buffered = schedules["fedbuff"]
    adds = buffered.rows(Verb.ADD)
    assert (buffered["step"][adds] == NONE).all(), "a round is made of differences"
    assert buffered["staleness"][adds].max() > 0
    assert set(buffered["weight"][adds]) == {0.5, 1.0}
    eager = schedules["eager-sgd, with crashes"]
    commits = eager.rows(Verb.COMMIT)
    members = np.diff(np.searchsorted(eager.rows(Verb.ADD), np.insert(commits, 0, 0)))
    assert {0, 1, 2} <= set(members), "now and then who would have given something is away"


def test_what_is_evaluated_may_be_a_moving_average():
    run = make_run({"name": "tests.successors:Averaged", "learning_rate": 0.1}, stop={"gradients": 120})
    replayed, inline = (execute("run", run, 3, each) for each in (False, True))
    assert same(replayed, inline)
    assert run.task is not None
    data = run.task.data.load(3).train
    plain = PlainAveraged({k: v.astype(float) for k, v in replayed.initial.items()}, 0.1)
    recompute(
        replayed.schedule.frame(),
        [plain],
        data.inputs,
        data.answers,
        lambda worker, step: batch_indices(3, worker, step, batch_size=4, examples=len(data)),
    )
    assert largest_relative_error(replayed.final, plain.average) < 1e-4
    assert largest_relative_error(replayed.final, plain.params) > 1e-2


@pytest.mark.parametrize(
    ("protocol", "servers", "expected"),
    [
        ("Elastic", 1, [1, 2, 3, 5, 6, 7, 9]),  # down and up again after three steps
        ("Rounds", 1, [1.5, 2.5, 3.5, 5.5, 6.5, 7.5, 9.5]),
        ("Buffered", 1, [1.5, 2.5, 3.5, 5.5, 6.5, 7.5, 9.5]),
        ("Fragments", 1, [1, 3, 5, 7, 9]),  # two phases around a ring of two
        ("ShardedRounds", 2, [1.5, 4, 6.5, 9]),  # up to one server after the other
    ],
)
def test_when_gradients_are_ready_that_take_a_second_where_messages_take_half_of_one(protocol, servers, expected):
    network = {"latency": {"name": "constant", "seconds": 0.5}}
    cluster = {"workers": 2, "servers": servers, "compute": {"name": "constant", "seconds": 1.0}, "network": network}
    run = make_run("asgd", protocol=own(protocol), cluster=cluster, task=None, stop={"seconds": 9.9})
    schedule = execute("run", run, 1).schedule
    pushes = schedule.rows(Verb.PUSH)
    first = pushes[(schedule["replica"][pushes] == 0) & (schedule["block"][pushes] == 0)]
    assert (schedule["time_ns"][first] / 1e9).tolist() == expected


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["gossip", "synchronous", "Elastic"])
def test_an_average_that_forgets_at_once_is_the_parameters(protocol):
    options = {"learning_rate": 0.1, "decay": 0.0}
    cluster = {"workers": 4, "compute": COMPUTE}
    average = make_run({"name": "tests.successors:Averaged", **options}, protocol=own(protocol), cluster=cluster)
    plain = make_run("asgd", protocol=own(protocol), cluster=cluster)
    difference = largest_relative_error(execute("a", average, 1).final, execute("p", plain, 1).final)
    if protocol == "gossip":  # mixing changes the parameters, and no average
        assert difference > 1e-3
    else:
        assert difference == 0.0
