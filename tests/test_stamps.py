"""What servers are told of gradients whose worker's fetch did not pass, against a program that acts out the dispatcher."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fred import batch_indices
from fred.base import streams
from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.outcomes.measures import summarise
from fred.outcomes.outcome import Outcome
from fred.outcomes.staleness import of_gradients
from fred.protocols.dispatcher import Dispatcher
from fred.protocols.gated import Gated
from fred.replay.arithmetic import Arithmetic
from fred.results.b_staleness import b_staleness
from fred.running.execution import execute
from fred.schedule.schedule import Verb
from fred.specification.shape import Run
from fred.timing.copies import Copy
from tests.recompute import gradient, largest_relative_error
from tests.worlds import COMPUTE, make_run, record, same

WORKERS, UPDATES, SEED, RATE = 6, 300, 3, 0.005


def b_fasgd(**options: Any) -> Run:
    algorithm = {"name": "b-fasgd", "variant": "published-code", "learning_rate": RATE}
    protocol = {"name": "dispatcher", "c_fetch": 0.05, **options}
    return make_run(algorithm, cluster={"workers": WORKERS}, protocol=protocol, stop={"updates": UPDATES})


class Published:
    """FASGD's dispatcher with `published-code`'s rule, in double precision [Odena 2016, section 3; docs/errata.md, item 5]."""

    def __init__(self, outcome: Outcome, c_push: float, c_fetch: float, published_stamps: bool):
        assert outcome.run.task is not None
        self.data = outcome.run.task.data.load(SEED).train
        self.params = {name: array.astype(float) for name, array in outcome.initial.items()}
        self.m = {name: np.zeros_like(array) for name, array in self.params.items()}
        self.told: list[int] = []  # staleness of each update
        self.true: list[int] = []
        self.v: list[float] = []  # its mean before each update
        self.run(c_push, c_fetch, published_stamps)

    def run(self, c_push: float, c_fetch: float, published_stamps: bool) -> None:
        draws = {
            way: [iter(streams.uniforms(SEED, f"{way} gate", w, 0, 400)) for w in range(WORKERS)] for way in ("fetch", "push")
        }
        steps, stamp, read = ([0] * WORKERS for _ in range(3))
        local = [self.params] * WORKERS
        last: list[tuple[dict[str, Any], int, int]] = [({}, 0, 0)] * WORKERS
        for clock, u in enumerate(streams.uniforms(SEED, "dispatch", 0, 0, UPDATES)):
            w = int(u * WORKERS)
            passes = not c_push or not steps[w] or self.passes(draws["push"][w], c_push)
            if passes:
                indices = batch_indices(SEED, w, steps[w], batch_size=4, examples=len(self.data))
                own = gradient(local[w], self.data.inputs[indices], self.data.answers[indices])
                last[w] = own, stamp[w], read[w]
            steps[w] += 1
            grads, told, true = last[w]
            self.v.append(self.mean_v())
            self.update(grads, clock - told)
            self.told.append(clock - told)
            self.true.append(clock - true)
            fetches = self.passes(draws["fetch"][w], c_fetch)
            if fetches:
                local[w], read[w] = self.params, clock + 1
            if fetches or published_stamps:
                stamp[w] = clock + 1

    def passes(self, draws: Iterator[float], c: float) -> bool:
        return next(draws) < 1 / (1 + c / (self.mean_v() + 1e-4))

    def mean_v(self) -> float:
        return float(np.concatenate([m.ravel() for m in self.m.values()]).mean())

    def update(self, grads: dict, staleness: int) -> None:
        self.m = {name: 0.9 * m + 0.1 * abs(grads[name]) for name, m in self.m.items()}
        step = {name: RATE * grads[name] / ((staleness + 1) * (m + 0.001)) for name, m in self.m.items()}
        self.params = {name: values - step[name] for name, values in self.params.items()}


@pytest.mark.parametrize("c_push", [0.0, 0.02])
@pytest.mark.parametrize("stamp", ["read", "published"])
def test_the_dispatcher_does_what_the_published_one_does(stamp, c_push):
    run = b_fasgd(stamp=stamp, c_push=c_push)
    outcome = execute("run", run, SEED)
    acted = Published(outcome, c_push, 0.05, stamp == "published")
    pushes = outcome.schedule.rows(Verb.PUSH)
    assert outcome.schedule["staleness"][pushes].tolist() == acted.told
    assert of_gradients(outcome.schedule).tolist() == acted.true
    assert (acted.told == acted.true) == (stamp == "read")
    assert largest_relative_error(outcome.final, acted.params) < 1e-4
    apart = b_staleness(outcome, every=7)
    before = np.searchsorted(pushes, apart["row"])
    assert apart["statistic"].to_numpy() == pytest.approx(np.array(acted.v)[before], rel=1e-4, abs=1e-8)
    assert summarise(outcome)["staleness"]["mean"] == pytest.approx(np.mean(acted.true))


PERIODS = [
    {"name": "dispatcher", "k_fetch": 4},
    {"name": "gated", "k_fetch": 4, "k_push": 3},
    {"name": "gated", "k_fetch": 3, "unsent": "mean", "k_push": 2, "clocks": "each"},
]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PERIODS, ids=lambda protocol: " ".join(protocol))
def test_what_is_replayed_and_told_of_it_is_what_was_read(protocol, monkeypatch):
    """Told to be fresh a gradient is computed at old parameters all the same, which is what B-staleness sees."""
    monkeypatch.setattr(Arithmetic, "small", False)  # as large models are replayed: what is fresh is computed when it is used
    servers = 2 if "clocks" in protocol else 1
    cluster = {"workers": 3, "compute": COMPUTE, "servers": servers}
    run = make_run("sasgd", cluster=cluster, protocol={**protocol, "stamp": "published"}, stop={"gradients": 60})
    replayed, inline = (execute("run", run, 1, each) for each in (False, True))
    assert same(replayed, inline)
    uses, told = replayed.schedule.ledger.uses, replayed.schedule["staleness"]
    true = of_gradients(replayed.schedule)
    assert (told[uses] <= true).all()
    assert told[uses].mean() < 0.8 * true.mean()
    plain = execute("run", make_run("sasgd", cluster=cluster, protocol=protocol, stop={"gradients": 60}), 1)
    assert of_gradients(plain.schedule).tolist() == true.tolist() == plain.schedule["staleness"][uses].tolist()
    assert plain.params_digest != replayed.params_digest, "steps are divided by what is told"
    apart = b_staleness(replayed)
    assert apart["staleness"].tolist() == true.tolist()
    assert (apart["b_staleness"][true > 0] > 0).all()


@pytest.mark.parametrize("kind", [Gated, Dispatcher])
def test_where_every_fetch_passes_there_is_nothing_to_tell(kind):
    cluster = Cluster(workers=4, compute=COMPUTE)
    published, read = (record(kind(k_push=2, stamp=stamp), cluster, 60).digest() for stamp in ("published", "read"))
    assert published == read


@pytest.mark.parametrize(
    ("copy", "clocks"), [(Copy(0, 3), [2]), (Copy(0, 3, {0: 3, 1: 5}), [4, 4]), (Copy(0, 3, {0: 3, 1: 5}), [2, 6])]
)
def test_nobody_is_told_that_a_model_is_older_than_it_is(copy, clocks):
    with pytest.raises(FredError, match=f"read at clock 3 is stamped with clock {min(clocks)}; expected no older clock"):
        copy.stamped(clocks)
