"""Gates, FRED's and the user's own, and stamps: compared with a program that acts out the dispatcher; offers; refusals."""

import sys
from typing import Any, ClassVar

import numpy as np
import pytest

from fred import Cluster, Copy, FredError, Gate, Offer, Schedule, Verb, batch_indices
from fred.base import numerics
from fred.components import registry
from fred.outcomes.outcome import Outcome, summarise
from fred.protocols.asynchronous import Dispatcher
from fred.protocols.gates import Gated, Periodic, Statistical
from fred.replay.arithmetic import Arithmetic
from fred.results.extra_measures import b_staleness
from fred.running.execution import execute
from fred.schedule.staleness import of_gradients
from tests.recompute import gradient, largest_relative_error
from tests.worlds import COMPUTE, make_run, mostly_slow, record, rows_of, same_outcome

SEED, WORKERS, UPDATES = 3, 6, 300
KINDS = (Gated, Dispatcher)


@pytest.fixture(autouse=True)
def users_gates():
    registry.allow_import(["tests.users"])


class Never(Gate):
    def passes(self, offer: Offer) -> bool:
        return False


class Noted(Gate):
    """Passes half of all offers, in NumPy's words, and notes them."""

    offers: ClassVar[list[Offer]] = []

    def passes(self, offer: Offer) -> bool:
        self.offers.append(offer)
        return np.float64(offer.draw) < 0.5  # type: ignore[return-value]


def pushed_rows(schedule: Schedule, *columns: str) -> list[tuple[int, ...]]:
    rows = schedule.rows(Verb.PUSH)
    return list(zip(*(schedule[column][rows].tolist() for column in columns), strict=True))


class Acted:
    """The dispatcher [Odena 2016, section 3; docs/errata.md, item 5], in double precision.

    Asynchronous SGD goes through the user's `Choosy` gates, and `published-code`'s FASGD through statistical ones.
    """

    def __init__(self, outcome: Outcome, c: dict[str, float], stamps: str = "read"):
        assert outcome.run.task is not None
        self.c, self.stamps, self.fasgd = c, stamps, outcome.run.algorithm.has_statistic
        self.rate = outcome.run.algorithm.learning_rate
        self.data = outcome.run.task.data.load(SEED).train
        self.params = {name: array.astype(float) for name, array in outcome.initial.items()}
        self.m = {name: np.zeros_like(array) for name, array in self.params.items()}
        self.draws = {
            way: [iter(numerics.uniforms(SEED, f"{way} gate", w, 0, 400)) for w in range(WORKERS)] for way in ("push", "fetch")
        }
        self.withheld = {way: [0] * WORKERS for way in self.draws}
        self.stamped, self.true = list[int](), list[int]()  # staleness of each update, by the timestamp of its gradient
        self.v: list[float] = []  # its mean before each update
        self.sent: list[bool] = []
        self.run()

    def run(self) -> None:
        steps, stamp, read = ([0] * WORKERS for _ in range(3))
        local = [self.params] * WORKERS
        last: list[tuple[dict[str, Any], int, int]] = [({}, 0, 0)] * WORKERS
        for clock, u in enumerate(numerics.uniforms(SEED, "dispatch", 0, 0, UPDATES)):
            w = int(u * WORKERS)
            sends = not steps[w] or self.passes("push", w, clock - stamp[w])
            if sends:
                indices = batch_indices(SEED, w, steps[w], batch_size=4, examples=len(self.data))
                last[w] = gradient(local[w], self.data.inputs[indices], self.data.answers[indices]), stamp[w], read[w]
            steps[w] += 1
            grads, stamped, true = last[w]
            self.v.append(self.mean_v())
            self.sent.append(sends)
            self.stamped.append(clock - stamped)
            self.true.append(clock - true)
            self.update(grads, clock - stamped)
            fetches = self.passes("fetch", w, clock + 1 - stamp[w])
            if fetches:
                local[w], read[w] = self.params, clock + 1
            if fetches or self.stamps == "published":
                stamp[w] = clock + 1

    def passes(self, way: str, w: int, age: int) -> bool:
        if way not in self.c:
            return True
        draw = next(self.draws[way][w])
        if self.fasgd:
            return draw < 1 / (1 + self.c[way] / (self.mean_v() + 1e-4))
        passes = (draw < 0.5 and w == 0) or age > 6 or self.withheld[way][w] >= 3
        self.withheld[way][w] = 0 if passes else self.withheld[way][w] + 1
        return passes

    def mean_v(self) -> float:
        return float(np.concatenate([m.ravel() for m in self.m.values()]).mean())

    def update(self, grads: dict[str, Any], staleness: int) -> None:
        if self.fasgd:
            self.m = {name: 0.9 * m + 0.1 * abs(grads[name]) for name, m in self.m.items()}
            grads = {name: grads[name] / ((staleness + 1) * (m + 0.001)) for name, m in self.m.items()}
        self.params = {name: values - self.rate * grads[name] for name, values in self.params.items()}


def run_dispatched(algorithm: dict[str, Any], **protocol: Any) -> Outcome:
    options: dict[str, Any] = {"cluster": {"workers": WORKERS}, "stop": {"updates": UPDATES}}
    return execute("run", make_run(algorithm, protocol={"name": "dispatcher", **protocol}, **options), SEED)


@pytest.mark.parametrize("ways", [["fetch"], ["push"], ["push", "fetch"]])
def test_a_gate_of_the_users_own_decides_as_in_the_program(ways):
    gates = {f"{way}_gate": {"name": "tests.users:Choosy", "oldest": 6} for way in ways}
    outcome = run_dispatched({"name": "asgd", "learning_rate": 0.1}, **gates)
    acted = Acted(outcome, dict.fromkeys(ways, 0.0))
    assert pushed_rows(outcome.schedule, "staleness") == [(age,) for age in acted.stamped]
    assert [messages > 0 for (messages,) in pushed_rows(outcome.schedule, "messages")] == acted.sent
    assert sum(acted.sent) < 0.8 * UPDATES or "push" not in ways
    assert largest_relative_error(outcome.final, acted.params) < 1e-4


@pytest.mark.parametrize("c", [0.0, 0.02])
@pytest.mark.parametrize("stamp", ["read", "published"])
def test_the_dispatcher_does_what_the_published_one_does(stamp, c):
    algorithm = {"name": "b-fasgd", "variant": "published-code", "learning_rate": 0.005}
    outcome = run_dispatched(algorithm, fetch_gate=Statistical(c=0.05), push_gate=Statistical(c=c) if c else None, stamp=stamp)
    acted = Acted(outcome, {"fetch": 0.05} | ({"push": c} if c else {}), stamp)
    assert pushed_rows(outcome.schedule, "staleness") == [(age,) for age in acted.stamped]
    assert of_gradients(outcome.schedule).tolist() == acted.true
    assert (acted.stamped == acted.true) == (stamp == "read")
    assert largest_relative_error(outcome.final, acted.params) < 1e-4
    frame = b_staleness(outcome, every=7)
    before = np.searchsorted(outcome.schedule.rows(Verb.PUSH), frame["row"])
    assert frame["statistic"].to_numpy() == pytest.approx(np.array(acted.v)[before], rel=1e-4, abs=1e-8)
    assert summarise(outcome)["staleness"]["mean"] == pytest.approx(np.mean(acted.true))


@pytest.mark.parametrize(("kind", "way"), mostly_slow([("gated", "push"), ("dispatcher", "fetch")], [("dispatcher", "fetch")]))
def test_odenas_rule_as_a_users_gate_is_freds(kind, way):
    gates = ("tests.users:Measured", {"name": "statistical", "c": 0.2}, {"name": "statistical", "c": 0.2, "epsilon": 0.1})
    runs = [make_run("b-fasgd", protocol={"name": kind, f"{way}_gate": gate}, stop={"gradients": 120}) for gate in gates]
    users, freds, other = (execute("run", run, SEED) for run in runs)
    assert same_outcome(users, freds) and other.schedule.digest() != freds.schedule.digest()


@pytest.mark.parametrize("kind", KINDS)
def test_stamps_of_fetches_that_all_pass_change_nothing(kind):
    assert kind(push_gate=Periodic(k=3)).sends_sums and not kind(push_gate=Never()).sends_sums
    protocols = [kind(push_gate=Periodic(k=2), stamp=stamp) for stamp in ("published", "read")]
    assert len({record(protocol, Cluster(workers=4, compute=COMPUTE), 100).digest() for protocol in protocols}) == 1


def test_the_first_message_passes_whatever_the_gate_says():
    for kind in KINDS:
        protocol = kind(push_gate=Never(), fetch_gate=Never())
        options: dict[str, Any] = {"cluster": {"workers": 3, "compute": COMPUTE}, "stop": {"updates": 60}, "task": None}
        schedule = execute("run", make_run(protocol=protocol, **options), 0).schedule
        assert {step for (step,) in pushed_rows(schedule, "step")} == {0}
        assert len(schedule.rows(Verb.PULL)) == 3
        assert schedule["messages"][schedule.rows(Verb.PUSH)].sum() == 3


def test_a_worker_that_rejoins_fetches_and_its_first_push_passes():
    fault = {"name": "outage", "workers": [0], "begin": 2.0, "end": 3.0}
    cluster = Cluster(workers=2, compute={"name": "constant", "seconds": 0.4}, faults=[fault])
    schedule = record(Gated(push_gate=Never(), fetch_gate=Never()), cluster, seconds=6)
    pulls = schedule.rows(Verb.PULL)
    assert schedule["time_ns"][pulls].tolist() == [0, 0, 3_000_000_000]
    assert schedule["worker"][pulls].tolist() == [0, 1, 0]
    steps = [step for step, worker in pushed_rows(schedule, "step", "worker") if worker == 0]
    assert steps == sorted(steps) and len(set(steps)) == 2


class TestOffers:
    NETWORK = {"latency": {"name": "constant", "seconds": 0.05}}

    def record_offers(self, protocol: Any, **cluster: Any) -> tuple[list[Offer], Schedule]:
        Noted.offers.clear()
        schedule = record(protocol, Cluster(workers=3, compute=COMPUTE, **cluster), 90, seed=SEED)
        return list(Noted.offers), schedule

    @pytest.mark.parametrize("servers", [1, 3])
    def test_a_push_is_offered_as_the_schedule_has_it_later(self, servers):
        gated = Gated(push_gate=Noted(), unsent="sum", clocks="each" if servers > 1 else "one")
        offers, schedule = self.record_offers(gated, servers=servers)
        rows = [row for row in rows_of(schedule) if row.verb in ("PUSH", "ADD") and row.messages and not row.block]
        sent = {(row.worker, row.step): row for row in rows}
        withheld, compared = [0, 0, 0], 0
        for offer in offers:
            assert offer.withheld == withheld[offer.worker]
            withheld[offer.worker] = 0 if offer.draw < 0.5 else offer.withheld + 1
            if row := sent.get((offer.worker, offer.number)):
                assert offer.draw < 0.5
                assert (round(offer.seconds * 1e9), offer.staleness) == (row.time_ns, row.staleness)
                assert offer.updates == row.timestamp + row.staleness
                compared += 1
        assert compared > 30
        for worker in range(3):
            numbers, draws = zip(*((offer.number, offer.draw) for offer in offers if offer.worker == worker), strict=True)
            assert numbers == tuple(range(1, len(numbers) + 1))
            assert list(draws) == numerics.uniforms(SEED, "push gate", worker, 0, len(numbers)).tolist()

    def test_a_fetch_is_offered_with_the_age_of_the_workers_parameters(self):
        offers, schedule = self.record_offers(Gated(fetch_gate=Noted()), network=self.NETWORK)
        pulls, pushes = schedule.rows(Verb.PULL), schedule.rows(Verb.PUSH)
        for offer in offers:
            now = round(offer.seconds * 1e9)
            before = pulls[(schedule["worker"][pulls] == offer.worker) & (schedule["time_ns"][pulls] < now)]
            done = int((schedule["time_ns"][pushes] <= now).sum())
            assert offer.updates == done
            assert offer.staleness == done - schedule["timestamp"][before[-1]]
        assert max(offer.staleness for offer in offers) > 5

    def test_if_fetches_are_stamped_as_published_so_is_their_offer(self):
        gates = (Gated(fetch_gate=Noted(), stamp=stamp) for stamp in ("published", "read"))
        stamped, true = ([offer.staleness for offer in self.record_offers(gate)[0]] for gate in gates)
        assert len(stamped) == len(true) and max(stamped) < max(true)

    def test_without_a_clock_no_time_passes(self):
        offers, _ = self.record_offers(Dispatcher(fetch_gate=Noted()))
        assert {offer.seconds for offer in offers} == {0.0}
        assert [offer.updates for offer in offers] == list(range(1, len(offers) + 1))


SOURCE = """
from fred import Gate
class Odd(Gate):
    "Answers in words."
    def passes(self, offer):
        return "yes"
class Curious(Gate):
    "Does not say that it asks."
    def passes(self, offer):
        return offer.statistic > 1
class Faulty(Gate):
    "Fails."
    def passes(self, offer):
        return offer.draw < 1 / (offer.number - 3)
class Lacking(Gate):
    "Has nothing to say."
"""


class TestRefusals:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path, monkeypatch):
        (tmp_path / "own_gates.py").write_text(SOURCE)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "own_gates", raising=False)
        registry.allow_import(["own_gates", "tests.users"])

    def test_a_gate_that_cannot_be_is_refused_before_the_run(self):
        statistic = "a statistic that this algorithm does not have"
        for protocol, message in (
            ({"fetch_gate": "own_gates:Lacking"}, "`own_gates:Lacking` lacks `passes`"),
            ({"fetch_gate": "tests.users:Flax"}, "is not a class derived from .*Gate, as every gate is"),
            ({"fetch_gate": "perodic"}, "did you mean `periodic`"),
            ({"fetch_gate": "periodic"}, "`k`"),
            ({"fetch_gate": {"name": "statistical", "c": 0}}, "greater than 0"),
            ({"fetch_gate": "tests.users:Measured"}, statistic),
            ({"push_gate": {"name": "statistical", "c": 1}}, statistic),
        ):
            with pytest.raises(FredError, match=message):
                make_run("asgd", protocol={"name": "gated", **protocol})

    def test_what_goes_wrong_during_the_run_is_one_line(self):
        asks = "the gate asks for the statistic, which only gates get whose `needs_values` is True"
        for gate, message in (
            ("Odd", "run `here`: gate `own_gates:Odd` answers 'yes'; expected True or False"),
            ("Curious", f"run `here`: {asks}"),
            ("Faulty", r"run `here`, with `own_gates:Faulty`: ZeroDivisionError: .*own_gates.py, line 14\)"),
        ):
            for kind in ("gated", "dispatcher"):
                run = make_run("asgd", protocol={"name": kind, "fetch_gate": f"own_gates:{gate}"}, task=None)
                with pytest.raises(FredError, match=message) as error:
                    execute("here", run, 0)
                assert "\n" not in str(error.value)

    def test_a_gate_that_stays_closed_ends_the_run(self, monkeypatch):
        """Otherwise a run that stops after a number of gradients would never end."""
        monkeypatch.setattr("fred.protocols.gates._MOST_WITHHELD", 50)
        message = "passed none of worker 0's last 50 gradients; expected a gate that opens again"
        for kind in KINDS:
            for leftover in ("apply-again", "sum"):
                with pytest.raises(FredError, match=message):
                    record(kind(push_gate=Never(), unsent=leftover), Cluster(workers=1, compute=COMPUTE), gradients=90)

    def test_a_model_is_not_stamped_as_older_than_it_is(self):
        for copy, clocks in ((Copy(0, 3), [2]), (Copy(0, 3, {0: 3, 1: 5}), [4, 4]), (Copy(0, 3, {0: 3, 1: 5}), [2, 6])):
            message = f"read at clock 3 is stamped with clock {min(clocks)}; expected no older clock"
            with pytest.raises(FredError, match=message):
                copy.stamped(clocks)


@pytest.mark.slow
def test_a_gradient_stamped_as_fresh_is_computed_at_old_parameters(monkeypatch):
    monkeypatch.setattr(
        Arithmetic, "stores_gradients", False
    )  # as large models are replayed: what is fresh is computed when it is used
    protocol = {
        "name": "gated",
        "fetch_gate": {"name": "periodic", "k": 3},
        "unsent": "mean",
        "push_gate": {"name": "periodic", "k": 2},
        "clocks": "each",
    }
    options: dict[str, Any] = {"cluster": {"workers": 3, "compute": COMPUTE, "servers": 2}, "stop": {"gradients": 60}}
    unstamped = execute("run", make_run("sasgd", protocol=protocol, **options), 1)
    run = make_run("sasgd", protocol={**protocol, "stamp": "published"}, **options)
    replayed, inline = (execute("run", run, 1, inline) for inline in (False, True))
    assert same_outcome(replayed, inline)
    uses, stamped, true = replayed.schedule.ledger.uses, replayed.schedule["staleness"], of_gradients(replayed.schedule)
    assert (stamped[uses] <= true).all() and stamped[uses].mean() < 0.8 * true.mean()
    assert of_gradients(unstamped.schedule).tolist() == true.tolist() == unstamped.schedule["staleness"][uses].tolist()
    assert unstamped.params_digest != replayed.params_digest, "steps are divided by the stamped staleness"
    frame = b_staleness(replayed)
    assert frame["staleness"].tolist() == true.tolist() and (frame["b_staleness"][true > 0] > 0).all()
